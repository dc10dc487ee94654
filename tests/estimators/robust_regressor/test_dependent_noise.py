"""Intervals where noise grows with x: a fit that models its size, or least squares where that is in doubt."""

import tracemalloc

import numpy as np
import pytest

import tailproof as tp
from tailproof.estimators.robust_regressor import estimator
from tailproof.estimators.robust_regressor.dependent_noise import SizeFit
from tailproof.estimators.robust_regressor.scale_family import ScaleFamily

CLEAR, DOUBT = "models its size", "HC3"


def rows(seed, n, growth):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    noise = rng.lognormal(0, 1.2, n) - np.exp(0.72)
    return X, X.sum(axis=1) + np.exp(growth * X[:, 0]) * noise


def _as_it_is(model, blend, *_):
    return model, blend


def hc3(X, y):
    Z = np.column_stack([X, np.ones(len(X))])
    inverse = np.linalg.inv(Z.T @ Z)
    theta = inverse @ Z.T @ y
    r = (y - Z @ theta) / (1 - np.einsum("ij,jk,ik->i", Z, inverse, Z))
    return theta[:-1], np.sqrt(np.diag(inverse @ (Z * r[:, None] ** 2).T @ Z @ inverse))[:-1]


def test_intervals_hold_slopes_that_truncated_fits_miss(monkeypatch):
    held, lengths, missed, found = [], [], [], []
    for seed in range(6):
        X, y = rows(seed, 600, 0.7)
        model = tp.RobustRegressor(random_state=0).fit(X, y)
        summary = model.summary()
        assert any(CLEAR in note for note in summary.notes)
        held.append((summary.low <= 1) & (summary.high >= 1))
        lengths.append(summary.se / hc3(X, y)[1])
        found.append(abs(model.coef_[0] - 1) < 2 * summary.se[0])
        with monkeypatch.context() as patch:
            patch.setattr(estimator, "refined", _as_it_is)
            truncated = tp.RobustRegressor(random_state=0).fit(X, y)
        missed.append(abs(truncated.coef_[0] - 1) > 2 * summary.se[0])
    assert np.mean(held) >= 10 / 12
    assert np.mean(lengths) < 0.5
    assert np.mean(missed) > 0.5
    assert np.mean(found) > 0.5


def test_in_doubt_the_intervals_are_those_of_least_squares():
    X, y = rows(0, 80, 1.0)
    summary = tp.RobustRegressor(random_state=0).fit(X, y).summary()
    assert any(DOUBT in note for note in summary.notes)
    theta, se = hc3(X, y)
    np.testing.assert_allclose(summary.se, se, rtol=1e-6)
    np.testing.assert_allclose((summary.low + summary.high) / 2, theta, rtol=1e-6)


def test_noise_that_is_alike_in_all_rows_needs_no_correction():
    X, y = rows(1, 600, 0.0)
    notes = " ".join(tp.RobustRegressor(random_state=0).fit(X, y).summary().notes)
    assert CLEAR not in notes
    assert DOUBT not in notes


def with_categories(seed, n=2_000):
    """Rows, indicators of all three categories, and targets whose noise depends on neither."""
    rng = np.random.default_rng(seed)
    X, D = rng.standard_normal((n, 2)), np.eye(3)[rng.integers(0, 3, n)]
    return X, D, X.sum(axis=1) + D @ [10, 20, 30] + rng.lognormal(0, 1, n)


@pytest.mark.parametrize("seed", [100, 107, 117])
def test_columns_that_add_up_to_a_constant_do_not_make_noise_grow(seed):
    """The level of sizes, which is no growth, was shared out among these columns."""
    X, D, y = with_categories(seed)
    summary = tp.RobustRegressor(random_state=0).fit(np.column_stack([X, D]), y).summary()
    assert not any(CLEAR in note for note in summary.notes)
    np.testing.assert_allclose((summary.low + summary.high)[:2] / 2, 1, atol=0.05)


@pytest.mark.parametrize(("seed", "n"), [(123, 2_000), (134, 2_000), (144, 2_000), (102, 20_000)])
def test_a_category_that_is_left_out_changes_no_other_slope(seed, n):
    """Tests of single categories depend on which one the others are compared with."""
    X, D, y = with_categories(seed, n)
    every, fewer = (
        tp.RobustRegressor(random_state=0).fit(np.column_stack([X, part]), y).summary()
        for part in (D, D[:, 1:])
    )
    np.testing.assert_allclose(every.estimate[:2], fewer.estimate[:2], atol=1e-3 * fewer.se[:2].min())
    np.testing.assert_allclose(every.se[:2], fewer.se[:2], rtol=0.1)


@pytest.mark.parametrize("seed", [0, 4])
def test_a_sample_does_not_ask_again_what_all_rows_have_judged(seed):
    """Noise seems to grow in the sample that errors are from, and its least squares was the middle."""
    n, rng = 200_000, np.random.default_rng(4)
    X, D = np.random.default_rng(0).standard_normal((n, 2)), np.eye(3)[rng.choice(3, n)]
    y, Z = X.sum(axis=1) + D @ [10, 20, 30] + rng.lognormal(0, 1, n), np.column_stack([X, D[:, 1:]])
    parts = [(Z[i : i + 50_000], y[i : i + 50_000]) for i in range(0, n, 50_000)]
    summary = tp.fit(tp.RobustRegressor(random_state=seed), parts).summary()
    np.testing.assert_allclose((summary.low + summary.high)[:2] / 2, summary.estimate[:2], rtol=1e-6)


def test_an_estimate_outside_its_interval_is_named(monkeypatch):
    X, y = rows(1, 600, 0.7)
    monkeypatch.setattr(estimator, "refined", _as_it_is)
    summary = tp.RobustRegressor(random_state=0).fit(X, y).summary()
    outside = (summary.estimate < summary.low) | (summary.estimate > summary.high)
    assert outside[0]
    assert any(note.startswith("Outside its interval: x0") for note in summary.notes)


@pytest.fixture(scope="module")
def family():
    rng = np.random.default_rng(3)
    z = rng.standard_normal(250)
    y = z + np.exp(0.5 * z) * (rng.exponential(size=250) - 1)
    Q, features = np.column_stack([z, np.ones(250)]), np.column_stack([z, np.abs(z), np.ones(250)])
    return ScaleFamily(Q, y, features, np.full(250, 1 / 250)), np.log(np.abs(y - z) + 0.3)


def test_moves_are_what_the_fit_moves_by_without_a_row(family):
    whole, sizes = family
    solution = whole.solve(sizes)
    moves = whole.moves(solution).of(slice(2))
    chosen = np.argsort(-np.abs(moves[:, 0]))[:12]
    gone = []
    for row in chosen:
        kept = np.delete(np.arange(250), row)
        rest = ScaleFamily(whole.Q[kept], whole.y[kept], whole.features[kept], np.full(249, 1 / 249))
        gone.append(solution.phi - rest.solve(sizes[kept]).phi)
    assert np.corrcoef(np.array(gone)[:, 0], moves[chosen, 0])[0, 1] > 0.95
    assert np.linalg.norm(gone) == pytest.approx(np.linalg.norm(moves[chosen]), rel=0.3)


def test_scales_and_slopes_are_found(family):
    whole, sizes = family
    solution = whole.solve(sizes)
    assert solution.gamma[0] == pytest.approx(0.5, abs=0.2)
    assert solution.phi[0] == pytest.approx(1.0, abs=0.25)
    scaled = ScaleFamily(whole.Q, 1e6 * whole.y, whole.features, whole.v).solve(sizes)
    np.testing.assert_allclose(scaled.phi, 1e6 * solution.phi, rtol=0.02)


def test_more_rows_may_find_less_noise_at_the_end_of_a_column():
    """A limit that these cannot keep to makes slopes of sizes run away in search of it."""
    rng = np.random.default_rng(1)
    Z = np.column_stack([rng.uniform(-1.3, 1.3, 3_000), np.ones(3_000)])
    f = np.column_stack([Z[:, 0], np.abs(Z[:, 0]), np.ones(3_000)])
    few = ScaleFamily(
        Z, np.exp(0.2 * Z[:, 0]) * (rng.lognormal(0, 1, 3_000) - 1.65), f, np.full(3_000, 1 / 3_000)
    )
    solution = few.solve(np.zeros(3_000))
    equations = SizeFit.of(few, solution, np.arange(1)).equations(np.zeros(2), np.eye(2))
    end = np.array([-1.3, 1.3, 1.0])
    error = np.sqrt(few.moves(solution).covariance(slice(-3, None), end[None])[0, 0])
    assert end @ solution.gamma - 4 * error < equations.least < end @ solution.gamma - 2 * error


def test_rows_without_noise_have_no_solution():
    Q = np.ones((50, 1))
    assert ScaleFamily(Q, np.zeros(50), Q, np.full(50, 0.02)).solve(np.zeros(50)) is None


def test_where_the_mean_bends_intervals_are_about_the_best_straight_line():
    """A fit that models the size of the noise weighs rows unlike least squares, and finds another line."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (4_000, 3))
    y = X[:, 0] ** 2 + X[:, 1] + 0.15 * np.exp(X[:, 0]) * rng.standard_t(3, 4_000)
    model = tp.RobustRegressor(random_state=0).fit(X, y)
    errors, summary = model.coefficient_errors_, model.summary().records()
    assert "best straight line" in errors.how
    for record in summary:
        assert record["95% low"] <= record["estimate"] <= record["95% high"], record
    np.testing.assert_allclose(model.coef_, [3, 1, 0], atol=0.15)


@pytest.mark.parametrize("noise", ["normal", "lognormal"])
def test_a_straight_line_is_not_contradicted(noise):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((2_000, 4))
        e = rng.standard_normal(2_000) if noise == "normal" else rng.lognormal(0, 1.2, 2_000) - np.exp(0.72)
        model = tp.RobustRegressor(random_state=0).fit(X, X.sum(axis=1) + e * np.exp(0.6 * X[:, 0]))
        assert "best straight line" not in model.coefficient_errors_.how


@pytest.mark.parametrize("n", [3_000, 6_000])
def test_sizes_are_not_modelled_where_most_targets_are_equal(monkeypatch, n):
    """Residuals of rows without a claim are as large as predictions, whatever the noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    y = np.where(rng.random(n) < 0.1, np.exp(0.5 * X[:, 0]) * rng.lognormal(1.0, 1.0, n), 0.0)
    monkeypatch.setattr(ScaleFamily, "solve", lambda *_: pytest.fail("sizes were modelled"))
    model = tp.RobustRegressor(random_state=0).fit(X, y)
    summary = model.summary()
    assert any(DOUBT in note for note in summary.notes)
    theta, se = hc3(X, y)
    np.testing.assert_allclose(summary.se, se, rtol=0.02)
    np.testing.assert_allclose((summary.low + summary.high) / 2, theta, atol=0.1 * se.max())


def test_sizes_beyond_all_numbers_have_no_fit():
    """Rows of few distinct sizes may lead there: it was an error of a singular value decomposition."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal(200)
    Q = np.column_stack([np.ones(200), z])
    family = ScaleFamily(Q, rng.standard_normal(200), Q, np.full(200, 1 / 200))
    assert family.solve(360.0 * z) is None


def categories(n):
    """A fit by size along two indicators: half of the rows share the least size there is."""
    rng = np.random.default_rng(0)
    z = (rng.random((n, 2)) < 0.3).astype(float)
    y = z.sum(axis=1) + np.exp(z[:, 0] + 0.5 * z[:, 1]) * (rng.lognormal(0, 1, n) - np.exp(0.5))
    Q, f = np.column_stack([z, np.ones(n)]), np.column_stack([z, np.abs(z), np.ones(n)])
    family = ScaleFamily(Q, y, f, np.full(n, 1 / n))
    return SizeFit.of(family, family.solve(np.log(np.abs(y - z.sum(axis=1)) + 0.3)), np.arange(2))


def test_the_least_size_is_that_of_rows_less_three_standard_errors():
    fit = categories(400)
    f, gamma = fit.family.features, fit.solution.gamma
    least = np.quantile(f @ gamma, 0.001)
    moves = fit.moves_of_all.of(slice(-gamma.size, None))
    errors = [np.linalg.norm(moves @ row) for row in f if row @ gamma <= least]
    assert fit.equations(np.zeros(3), np.eye(3)).least == pytest.approx(least - 3 * max(errors), rel=1e-9)


def test_many_rows_of_the_least_size_take_no_table_of_their_pairs():
    fit = categories(6_000)
    tracemalloc.start()
    try:
        fit.equations(np.zeros(3), np.eye(3))
        assert tracemalloc.get_traced_memory()[1] < 3e6  # pairs of 3,000 rows would be 72 MB
    finally:
        tracemalloc.stop()
