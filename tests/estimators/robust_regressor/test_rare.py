"""RobustRegressor where most targets are zero, where losses have no logarithm, and with odd candidates."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression, PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsRegressor

from tailproof import RobustRegressor, TwoPopulationsWarning


def rare_claims(rate, n=20_000, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, np.where(rng.random(n) < rate, np.exp(0.5 * X[:, 0]) * rng.lognormal(6, 1, n), 0.0)


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
@pytest.mark.parametrize(("rate", "n"), [(0.003, 20_000), (0.02, 2_000)])
def test_few_claims_among_zeros_are_no_outliers(loss, rate, n):
    ratios = []
    for seed in range(4):
        X, y = rare_claims(rate, n, seed)
        ratios.append(RobustRegressor(loss, random_state=0).fit(X, y).predict(X).mean() / y.mean())
    assert 0.6 < np.median(ratios) < 1.3
    assert min(ratios) > 0.2


def claims_among_noise(rate, n, seed, slope, noise=1e-3):
    """Claims that are likelier along one column and larger along another; and the best coefficients."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    struck = rng.random(n) < rate * np.exp(slope * X[:, 0] - slope**2 / 2)
    size = np.exp(slope * X[:, 1] - slope**2 / 2) * rng.lognormal(-0.5, 1.0, n)
    return (
        X,
        X.sum(axis=1) + noise * rng.standard_normal(n) + struck * size,
        1 + rate * slope * np.array([1, 1, 0]),
    )


def excess(model, coef, rate):
    return np.sum((model.coef_ - coef) ** 2) + (model.intercept_ - rate) ** 2


@pytest.mark.parametrize(
    ("rate", "n", "slope", "noise"),
    [
        (0.02, 2_000, 0.0, 1e-3),
        (0.02, 5_000, 0.0, 1e-7),
        (0.003, 20_000, 0.0, 1e-3),
        (0.003, 20_000, 0.4, 1e-3),
    ],
)
def test_claims_among_small_noise_are_no_outliers(rate, n, slope, noise):
    ours, plain = [], []
    for seed in range(4):
        X, y, coef = claims_among_noise(rate, n, seed, slope, noise)
        model = RobustRegressor(drop_glitches=noise > 1e-6, random_state=0).fit(X, y)
        ours.append(excess(model, coef, rate))
        plain.append(excess(LinearRegression().fit(X, y), coef, rate))
    assert np.mean(ours) < 2 * np.mean(plain)


def test_claims_of_a_sample_with_few_other_rows_are_no_outliers():
    """Every claim, and one in ten of the other rows, which counts ten times."""
    ours, plain = [], []
    for seed in range(4):
        X, y, coef = claims_among_noise(0.01, 40_000, seed, 0.4)
        struck = y - X.sum(axis=1) > 0.01
        kept = struck | (np.random.default_rng(seed).random(y.size) < 0.1)
        rows = X[kept], y[kept], np.where(struck, 1.0, 10.0)[kept]
        ours.append(excess(RobustRegressor(random_state=0).fit(*rows), coef, 0.01))
        plain.append(excess(LinearRegression().fit(*rows), coef, 0.01))
    assert np.mean(ours) < 3 * np.mean(plain)


@pytest.mark.parametrize("weight", [3.0, 100.0])
def test_claims_that_weigh_much_are_no_outliers(weight):
    for seed in range(2):
        X, y, _ = claims_among_noise(0.003, 20_000, seed, 0.4)
        weights = np.where(y - X.sum(axis=1) > 0.01, weight, 1.0)
        model = RobustRegressor(random_state=0, drop_glitches=False).fit(X, y, weights)
        mean = np.average(y - X @ model.coef_, weights=weights)
        assert model.intercept_ == pytest.approx(mean, rel=0.3)


@pytest.mark.parametrize("seed", range(3))
def test_errors_in_one_target_of_a_thousand_are_no_claims(seed):
    """Of sizes over three decades, and more of them than claims would have to be."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20_000, 3))
    y = X.sum(axis=1) + 10.0 + rng.standard_normal(20_000)
    y[rng.choice(20_000, 20, replace=False)] *= 10 ** rng.uniform(1, 4, 20)
    # Far rows are kept, so that it is the means which have to bear them.
    model = RobustRegressor(random_state=0, drop_glitches=False).fit(X, y)
    assert excess(model, np.ones(3), 10.0) < 0.005


@pytest.mark.parametrize("loss", ["poisson", "tweedie"])
@pytest.mark.parametrize("seed", [3, 8])
def test_very_rare_counts(loss, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20_000, 3))
    y = np.where(rng.random(20_000) < 0.001, rng.gamma(2, 100, 20_000), 0.0)
    model = RobustRegressor(loss, random_state=0).fit(X, y)
    plain = PoissonRegressor(alpha=0).fit(X, y)
    assert np.abs(model.coef_ - plain.coef_).max() < 1
    assert abs(model.intercept_ - plain.intercept_) < 1.5
    assert np.isfinite(model.report_.risk[model.report_.chosen])


@pytest.mark.parametrize("loss", ["poisson", "tweedie"])
@pytest.mark.parametrize("rows", [1, 20])
def test_a_level_that_has_seen_zeros_alone(loss, rows):
    level = np.repeat([1.0, 0.0], [rows, 500 - rows])[:, None]
    y = np.where(level[:, 0] > 0, 0, np.random.default_rng(0).poisson(1.0, 500)).astype(float)
    model = RobustRegressor(loss, random_state=0).fit(level, y)
    others = model.predict(np.zeros((1, 1)))[0]
    assert others == pytest.approx(y[rows:].mean(), rel=0.1)
    assert model.predict(np.ones((1, 1)))[0] < (0.2 * others if rows == 20 else others)


@pytest.mark.parametrize("loss", ["poisson", "tweedie", "squared_error"])
def test_nothing_but_zeros(loss):
    X = np.random.default_rng(0).standard_normal((300, 3))
    model = RobustRegressor(loss, random_state=0).fit(X, np.zeros(300))
    assert model.coef_.shape == (3,)
    assert np.all(np.abs(model.predict(X)) < 1e-6)


class Patchy(RegressorMixin, BaseEstimator):
    """Knows the answer, but not everywhere."""

    def __init__(self, gap=1.5):
        self.gap = gap

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict(self, X):
        found = 5 * X[:, 0] ** 2
        found[np.abs(X[:, 0]) < self.gap] = np.nan
        return found


@pytest.mark.parametrize("gap", [1.5, 100.0])
def test_a_candidate_that_predicts_nan_never_wins(gap):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    model = RobustRegressor(candidates=[Patchy(gap)], random_state=0).fit(X, 5 * X[:, 0] ** 2)
    assert np.all(np.isfinite(model.predict(X)))
    assert model.report_.difference[model.report_.candidates.index("Patchy")] == np.inf


def test_an_error_of_a_candidate_has_its_name():
    X = np.random.default_rng(0).standard_normal((100, 2))
    with pytest.raises(ValueError, match="n_neighbors") as failed:
        RobustRegressor(candidates=[("mine", KNeighborsRegressor(1_000))]).fit(X, X[:, 0])
    assert "candidate 'mine'" in failed.value.__notes__[0]


def test_names_of_candidates():
    X = np.random.default_rng(0).standard_normal((100, 2))
    with pytest.raises(ValueError, match="named or not"):
        RobustRegressor(candidates=[(3, Ridge())]).fit(X, X[:, 0])
    model = RobustRegressor(candidates=[("a", Ridge()), ("a", Ridge(5.0)), Ridge()]).fit(X, X[:, 0])
    assert {"a (1)", "a (2)", "Ridge"} <= set(model.report_.candidates)


def test_glitches_are_counted_as_the_rows_were_given():
    X = np.random.default_rng(0).standard_normal((300, 4))
    y = X.sum(axis=1)
    X[7] = 1e6
    weights = np.r_[np.zeros(5), np.ones(295)]
    with pytest.warns(TwoPopulationsWarning, match="rows 7"):
        model = RobustRegressor(random_state=0).fit(X, y, weights)
    assert model.report_.glitches.tolist() == [7]
