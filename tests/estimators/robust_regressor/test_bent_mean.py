"""A mean that bends as the noise grows, as costs do, is no line with skewed noise around it."""

import numpy as np
from sklearn.linear_model import LinearRegression

import tailproof as tp
from tailproof.estimators.robust_regressor.bent_mean import score_of_mean
from tailproof.estimators.robust_regressor.scale_family import ScaleFamily

# Of e^{x/2} over standard normal x, the best line: E e^{x/2} = e^{1/8}, and half of it along x.
LINE = np.exp(0.125) * np.array([0.5, 1.0])


def costs(seed, n, d=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.exp(0.5 * X[:, 0]) * rng.lognormal(-0.5, 1.0, n)


def straight(seed, n, d=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] + np.exp(0.5 * X[:, 0]) * (rng.lognormal(-0.5, 1.0, n) - 1.0)


def solved_family(X, y):
    n = len(X)
    Q = np.linalg.qr(np.column_stack([X, np.ones(n)]))[0] * np.sqrt(n)
    features = np.column_stack([X, np.abs(X), np.ones(n)])
    family = ScaleFamily(Q, y, features, np.full(n, 1 / n))
    away = np.abs(y - np.median(y))
    return family, family.solve(np.log(away + 1e-3 * np.median(away)))


def scores(make, n):
    found = [solved_family(*make(seed, n)) for seed in range(20)]
    return np.array([score_of_mean(*each, each[0].moves(each[1])) for each in found])


def test_noise_around_a_line_has_no_mean():
    found = scores(straight, 500)
    assert np.abs(found).max() < 4
    assert np.mean(np.abs(found) < 2) >= 0.85


def test_costs_have_one():
    assert np.quantile(scores(costs, 500), 0.1) > 2.5


def excess(model):
    return float(np.sum((np.append(model.coef_[0], model.intercept_) - LINE) ** 2))


def test_costs_are_fitted_as_well_as_by_least_squares():
    """5 times the excess risk where the weighted fit was believed."""
    ours, theirs = [], []
    for seed in range(12):
        X, y = costs(seed, 1_000)
        ours.append(excess(tp.RobustRegressor(random_state=0).fit(X, y)))
        theirs.append(excess(LinearRegression().fit(X, y)))
    assert np.median(ours) < 1.2 * np.median(theirs)


def test_intervals_are_about_the_best_line():
    """None of them held it where the weighted fit was believed; nine in ten of least squares do."""
    held = []
    for seed in range(20):
        X, y = costs(seed, 1_000, 2)
        summary = tp.RobustRegressor(random_state=0).fit(X, y).summary()
        held.append(summary.low[0] <= LINE[0] <= summary.high[0])
    assert sum(held) >= 16
    assert any("mean bends" in note for note in summary.notes)


def test_noise_that_grows_around_a_line_is_still_weighted():
    ours, theirs = [], []
    for seed in range(12):
        X, y = straight(seed, 1_000)
        for errors, model in ((ours, tp.RobustRegressor(random_state=0)), (theirs, LinearRegression())):
            errors.append((model.fit(X, y).coef_[0] - 1) ** 2)
    assert np.median(ours) < 0.5 * np.median(theirs)
