"""What all rows tell about levels that a sample chose: slopes corrected, or drawn towards least squares."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from tailproof import RobustRegressor
from tailproof.core.losses import get_loss
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.estimators.robust_regressor.all_rows import (
    AllRowsEvidence,
    Reach,
    judge,
    level_means,
    slopes_apart,
)
from tailproof.estimators.robust_regressor.candidates import RegressionTask, path_candidates
from tailproof.estimators.robust_regressor.levels import influence
from tailproof.estimators.robust_regressor.log_noise import (
    LogNoise,
    log_noise,
    longer_errors,
    measure_of_size,
)
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.tuning import DEFAULT

N = 40_000
SQUARES = get_loss("squared_error", None, "regression")


class SmallSample(RobustRegressor):
    _tuning = replace(DEFAULT, compared_rows=4_000)


def rows(noise, d=6, seed=0, n=N):
    """Features, and targets whose mean is their sum; the noise is of one of three kinds."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    skewed = rng.lognormal(0, 1, n) - np.exp(0.5)
    kinds = {
        "even": skewed,
        "growing": skewed * (1 + 0.1 * X[:, 0]),
        # Skewed to one side or the other: its size says nothing.
        "turning": skewed * np.where(rng.random(n) < 0.5 + 0.1 * np.clip(X[:, 0], -4, 4), 1, -1),
    }
    return X, X.sum(axis=1) + kinds[noise]


def evidence(path, means, mean_row, noise, plain):
    """What the rows of a path tell."""
    slopes = slopes_apart(path.basis.map @ path.phi, plain, noise)
    return AllRowsEvidence(means, mean_row, noise, path.rows.covariances(slopes))


def errors(noise, seed):
    """Distances from the truth: ours, that of least squares, and that of the sample's fit."""
    X, y = rows(noise, seed=seed)
    model = SmallSample(random_state=0).fit(X, y)
    plain = np.linalg.lstsq(np.column_stack([X, np.ones(y.size)]), y, rcond=None)[0][:-1]
    return np.linalg.norm(model.coef_ - 1), np.linalg.norm(plain - 1), model


@pytest.mark.parametrize(("noise", "most"), [("even", 0.5), ("growing", 0.8), ("turning", 1.2)])
def test_never_far_worse_than_least_squares(noise, most):
    found = [errors(noise, seed) for seed in range(3)]
    assert np.mean([ours for ours, _, _ in found]) < most * np.mean([plain for _, plain, _ in found])
    corrected = ["slopes are corrected" in str(model.report_) for _, _, model in found]
    assert all(corrected) if noise == "growing" else not any(corrected)


def test_intervals_are_about_the_corrected_slopes():
    _, _, model = errors("growing", 0)
    np.testing.assert_allclose(model.coefficient_errors_.centre[:-1], model.coef_, rtol=1e-12)


def fitted_path(n=2_000, seed=0, weighted=False):
    X, y = rows("growing", d=2, seed=seed, n=n)
    weights = np.random.default_rng(1).uniform(0.5, 2, n) if weighted else np.ones(n)
    part = rows_of(X, y, weights, get_loss("squared_error", None, "regression"), True)
    return X, y, weights, solve_path(part, np.random.default_rng(0))


def test_errors_of_slopes_of_the_noise_are_honest():
    """Skewed noise that does not depend on x: the error of the level itself is allowed for."""
    scores = []
    for seed in range(40):
        X, y = rows("even", d=3, seed=seed, n=1_000)
        part = rows_of(X, y, np.ones(y.size), get_loss("squared_error", None, "regression"), True)
        path = solve_path(part, np.random.default_rng(0))
        noise, _ = log_noise(path, path.residuals[0], measure_of_size(path))
        scores.extend(noise.slopes[:-1] / noise.errors[:-1])
    assert 0.8 < np.std(scores) < 1.25  # of 120 standard normal values


@pytest.mark.parametrize("weighted", [False, True])
def test_log_noise_is_a_regression(weighted):
    X, y, weights, path = fitted_path(weighted=weighted)
    r = (y - path.rows.predictions(path.phi))[0]
    noise, mean_row = log_noise(path, r, measure_of_size(path))
    columns = path.rows.columns
    Z = np.column_stack([(X - columns.centre) / columns.scale, np.ones(y.size)])
    np.testing.assert_allclose(mean_row, np.average(Z, axis=0, weights=weights), atol=1e-9)
    root = np.sqrt(weights)
    assert noise.middle == pytest.approx(weighted_median(r, weights))
    away = np.abs(r - noise.middle)
    assert noise.offset == pytest.approx(0.5 * weighted_median(away, weights))
    t = np.log(away + noise.offset) - noise.share * influence(r[None], path.levels.only([0]))[0][0]
    expected = np.linalg.lstsq(Z * root[:, None], t * root, rcond=None)[0]
    np.testing.assert_allclose(noise.slopes, expected, atol=1e-9)
    # From another function, and sums over the same rows, it comes to the same.
    other = replace(noise, slopes=noise.slopes + np.array([0.3, -0.2, 0.1]))
    left, v = t - Z @ other.slopes, weights / weights.sum()
    moved = other.moved(path.basis, (v * left) @ Z, float(v @ left**2), y.size)
    np.testing.assert_allclose(moved.slopes, expected, atol=1e-9)


def test_the_correction_is_the_derivative_of_the_bias_by_the_scale():
    _, y, _, path = fitted_path()
    path = path.only([0, 3, len(path.levels) - 1])
    r = y - path.rows.predictions(path.phi)
    theta = path.basis.map @ path.phi
    theta[-1, :2] += r[:2].mean(axis=1)
    growth = np.array([0.2, 0.0, 0.0])
    noise = LogNoise(growth, np.full(3, 1e-3), path.levels.only([0]), 0.0, 1.0)
    # Least squares, whose variance is said to be huge, contradicts nothing.
    means = replace(level_means(path, np.ones(path.rows.n)), products=np.diag([0.0, 0.0, 1e9]))
    judgement = judge(path, theta, evidence(path, means, np.zeros(3), noise, plain=2), plain=2)
    for m, (tau, bisquare) in enumerate(zip(path.levels.tau[:2], path.levels.bisquare[:2], strict=True)):
        bias = [_mean_minus_fit(r[m], tau, bisquare, scale) for scale in (0.999, 1.001)]
        expected = (bias[1] - bias[0]) / 0.002 * growth[0]
        assert judgement.change[0, m] == pytest.approx(expected, rel=0.02)
    np.testing.assert_array_equal(judgement.change[:, 2], 0)
    np.testing.assert_array_equal(judgement.pull, 0)


def _mean_minus_fit(r, tau, bisquare, scale):
    """The mean of scaled residuals minus their M-estimate of location."""

    def total(b):
        u = scale * r - b
        return np.sum(u * np.maximum(1 - (u / tau) ** 2, 0) ** 2 if bisquare else np.clip(u, -tau, tau))

    return scale * r.mean() - optimize.brentq(total, -0.5 * tau, 0.5 * tau, xtol=1e-12)


def test_the_reach_of_rows_is_their_square_distance_in_standard_deviations():
    rng = np.random.default_rng(0)
    X = rng.lognormal(0, 1, (500, 3)) * [1.0, 1e-6, 1e6] + [0.0, 1.0, 1e7]
    rows = rows_of(X, rng.standard_normal(500), np.ones(500), SQUARES, True)
    rows = rows.whitened()
    mean = rows.tile_to_columns(rows.mean_tile)[:-1]
    reach = Reach.of_columns(rows.columns, mean, rows.variances(X))
    expected = (((X - X.mean(axis=0)) / X.std(axis=0)) ** 2).mean(axis=1)
    np.testing.assert_allclose(reach.of(X), expected, rtol=1e-6)
    np.testing.assert_allclose(reach.moved(X[0]).of(X - X[0]), expected, rtol=1e-6)


@pytest.mark.parametrize("ready_bytes", [0, 2**26])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_covariances_are_those_of_all_rows_whatever_their_basis_is_from(fit_intercept, ready_bytes):
    rng = np.random.default_rng(0)
    X, weights = rng.lognormal(np.array([0.0, 2.0, -1.0]), 1, (3_000, 3)), rng.uniform(0.5, 2, 3_000)
    tuning = replace(DEFAULT, ready_bytes=ready_bytes)
    few = rows_of(X[:200], X[:200, 0], weights[:200], SQUARES, fit_intercept, tuning).whitened()
    whole = few.others(X, X[:, 0], weights)
    theta = rng.standard_normal((4, 2))
    a = (X - few.columns.centre) / few.columns.scale @ theta[:-1]
    a -= fit_intercept * np.average(a, axis=0, weights=weights)
    expected = (a * weights[:, None]).T @ a / weights.sum()
    np.testing.assert_allclose(whole.covariances(theta), expected, rtol=1e-9)
    every = whole.covariances(np.eye(4))
    np.testing.assert_allclose(whole.variances(X), np.diag(every)[:-1], rtol=1e-9)


@pytest.mark.parametrize("weights", [np.ones(300), np.full(300, 0.1), np.linspace(0.5, 2.0, 300)])
@pytest.mark.parametrize("d", [1, 3, 12])
def test_numbers_of_weights_and_sums_over_rows(weights, d):
    X = np.random.default_rng(d).standard_normal((300, d))
    rows = rows_of(X, X[:, 0], weights, SQUARES, True).whitened()
    Z = rows.gathered()
    assert rows.even == (np.ptp(weights) == 0)
    np.testing.assert_allclose(
        [rows.total, rows.size], [weights.sum(), weights.sum() ** 2 / (weights @ weights)]
    )
    np.testing.assert_allclose(rows.mean_tile, weights @ Z / weights.sum(), atol=1e-12)
    np.testing.assert_allclose(rows.products, (Z.T * weights) @ Z, atol=1e-10)


def test_slopes_alone_are_those_of_recentred_levels():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    y = X.sum(axis=1) + rng.lognormal(0, 1, 400)
    folds = tuple(np.arange(k, 400, 5) for k in range(5))
    task = RegressionTask(X, y, np.empty(0), SQUARES, True, 0.05, folds, np.random.SeedSequence(0))
    robust = path_candidates(task)[0]
    found, alone = robust.fit(task), robust.fit(replace(task, slopes_alone=True))
    np.testing.assert_array_equal(alone.coef, found.coef)
    assert abs(np.mean(y - found.scores(X))) < 0.1 < abs(np.mean(y - alone.scores(X)))


def test_errors_of_slopes_of_sizes_know_the_variances_of_all_rows():
    """A few rows lack the far ones, and would say other errors."""
    rng = np.random.default_rng(0)
    X = rng.lognormal(0, 1, (20_000, 3)) * [1.0, 10.0, 0.1]
    few = rows_of(X[:300], X[:300, 0], np.ones(300), SQUARES, True).whitened()
    whole = few.others(X, X[:, 0], np.ones(20_000))
    own = replace(few, basis=None, X=few.X @ np.linalg.pinv(few.whitening.map)).whitened()
    np.testing.assert_allclose(longer_errors(own, own.variances(X[:300])), 1.0, rtol=1e-6)
    exact = np.sqrt(np.diag(np.linalg.inv(np.cov(((X - few.columns.centre) / few.columns.scale).T))))
    of_few = np.sqrt((few.whitening.map**2).sum(axis=1))
    found = (longer_errors(whole, whole.variances(X)) * of_few)[:-1]
    np.testing.assert_allclose(found, exact, rtol=0.02)
    assert np.abs(of_few[:-1] / exact - 1).max() > 0.1


def test_one_far_row_is_no_sign_of_bias():
    """A row of huge leverage and noise separates least squares from all other levels."""
    X, y = rows("even", n=4_000)
    X[0], y[0] = 8.0, 1_000.0
    path = solve_path(rows_of(X, y, np.ones(4_000), SQUARES, True), np.random.default_rng(0))
    r, plain = y - path.rows.predictions(path.phi), len(path.levels) - 1
    noise, mean_row = log_noise(path, r[0], measure_of_size(path))
    pulls = [
        judge(
            path,
            path.recentred(0.05),
            evidence(path, level_means(path, reach), mean_row, noise, plain),
            plain,
        ).pull[0]
        for reach in (
            np.ones(4_000),
            Reach.of_columns(path.rows.columns, mean_row[:-1], path.rows.variances(X)).of(X),
        )
    ]
    assert pulls[0] > 0.5
    assert pulls[1] == 0


def test_a_target_beyond_all_of_the_sample_is_seen():
    """Normal noise but for one row of high leverage: few rows at random would take least squares."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 3))
    y = X.sum(axis=1) + rng.standard_normal(20_000)
    X[0], y[0] = 5.0, 2_000.0
    model = RobustRegressor(random_state=0, drop_glitches=False).fit(X, y)
    assert model.report_.compared == 20_000
    assert np.abs(model.coef_ - 1).max() < 0.05
    assert RobustRegressor(random_state=0).fit(X[1:], y[1:]).report_.compared == 5_000


def test_where_least_squares_contradicts_its_slope_counts():
    _, _, _, path = fitted_path()
    path = path.only([0, len(path.levels) - 1])
    theta = path.basis.map @ path.phi
    theta[-1, 0] += 100.0  # a shift that cannot be
    noise = LogNoise(np.array([0.2, 0.0, 0.0]), np.full(3, 1e-3), path.levels.only([0]), 0.0, 1.0)
    means = replace(level_means(path, np.ones(path.rows.n)), products=np.diag([0.0, 1e-6]))
    change = judge(path, theta, evidence(path, means, np.zeros(3), noise, plain=1), plain=1).change
    assert theta[0, 0] + change[0, 0] == pytest.approx(theta[0, 1], abs=0.02)
    assert change[1, 0] == 0
