"""RobustRegressor where fits can go astray: rare categories, log links on few rows, singular Hessians."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, RidgeCV

from tailproof import RobustRegressor


def dummies(n, seed, categories=(40, 60, 60, 30)):
    """Every category of several factors as a column of its own: collinear, and many of them rare."""
    rng, columns, mean = np.random.default_rng(seed), [], np.zeros(n)
    for count in categories:
        share = 1 / np.arange(1, count + 1) ** 1.3
        category = rng.choice(count, n, p=share / share.sum())
        columns.append((category[:, None] == np.arange(count)).astype(float))
        mean += np.random.default_rng(count).standard_normal(count)[category]
    return np.hstack(columns), mean + rng.lognormal(0, 1, n)


@pytest.mark.parametrize("seed", range(3))
def test_wide_dummies_are_as_safe_as_ridge_regression(seed):
    X, y = dummies(6_000, seed)
    train, test = slice(0, 1_000), slice(1_000, None)

    def risk(model):
        return np.mean((model.fit(X[train], y[train]).predict(X[test]) - y[test]) ** 2)

    ridge = risk(RidgeCV(np.logspace(-3, 3, 13)))
    assert risk(RobustRegressor(random_state=seed)) < 1.05 * min(ridge, risk(LinearRegression()))


@pytest.mark.parametrize("loss", ["poisson", "tweedie", "gamma"])
@pytest.mark.parametrize("seed", range(3))
def test_the_log_link_predicts_nothing_that_the_rows_do_not_support(loss, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, (300, 8))
    y = np.exp(0.2 * np.clip(X[:, 0], -3, 3)) * rng.lognormal(0, 1.5, 300)
    model = RobustRegressor(loss, random_state=0).fit(X, y)
    far = model.predict(1e3 * rng.standard_t(2, (1_000, 8)))
    assert far.max() <= 2 * y.max() * (1 + 1e-9)
    assert far.min() > 0
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.6)


@pytest.mark.parametrize("loss", ["poisson", "tweedie"])
def test_the_log_link_has_no_singular_matrix(loss):
    rng = np.random.default_rng(0)
    category = rng.integers(0, 30, 2_000)
    X = np.hstack([(category[:, None] == np.arange(30)) * 1.0, rng.pareto(1.1, (2_000, 2))])
    y = np.where(category < 10, 0.0, rng.lognormal(3, 2, 2_000))
    model = RobustRegressor(loss, random_state=0).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.5)


@pytest.mark.parametrize("d", [110, 160])
def test_least_squares_is_there_down_to_few_rows_a_parameter(d):
    """Slopes so large that every penalty costs more than the variance it saves."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((200, d))
    y = X.sum(axis=1) + rng.standard_normal(200)
    plain = LinearRegression().fit(X, y)
    model = RobustRegressor(random_state=0).fit(X, y)
    assert ((model.coef_ - 1) ** 2).sum() < 1.3 * ((plain.coef_ - 1) ** 2).sum()


@pytest.mark.parametrize(
    ("loss", "rows", "penalised"), [("poisson", 400, True), ("squared_error", 400, False)]
)
def test_slopes_of_a_log_link_are_penalised_up_to_more_rows(loss, rows, penalised):
    """500 rows of health costs: without penalties the deviance is that of a GLM that has none."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 4))
    y = rng.poisson(np.exp(0.3 * X[:, 0])).astype(float)
    names = RobustRegressor(loss, random_state=0).fit(X, y).report_.candidates
    assert any("ridge" in name for name in names) == penalised


@pytest.mark.parametrize("draw", [1, 11])
def test_noise_without_a_variance_does_not_bring_least_squares_in(draw):
    """Held-out rows tell nothing apart, and least squares misses slopes by thousands."""
    n = 100_000
    rng = np.random.default_rng([draw, n, 77])
    X = rng.standard_t(4, (n, 5))
    y = X.sum(axis=1) + (rng.lognormal(0, 1.2, n) - np.exp(0.72)) * np.exp(0.7 * X[:, 0])
    assert np.abs(LinearRegression().fit(X, y).coef_ - 1).max() > 100
    assert np.abs(RobustRegressor(random_state=draw).fit(X, y).coef_ - 1).max() < 0.05
