"""Categories of which the rows that choose have one row or none: slopes beside them stay as good."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression

import tailproof as tp
from pieces_data import chunks_of
from robust_pieces import FewChoose
from tailproof.core.losses import LOSSES
from tailproof.estimators.inputs import seed_from_random_state
from tailproof.estimators.robust_regressor.compared import few_rows
from tailproof.estimators.robust_regressor.monotone_score import learn_score
from tailproof.estimators.robust_regressor.noise_equations import with_more_directions
from tailproof.estimators.robust_regressor.noise_growth import exclusive_sets, growth_of_noise
from tailproof.estimators.robust_regressor.row_tiles import scaled_tiles
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.score_equations import ByScore
from tailproof.estimators.robust_regressor.second_fit import solved, sums_over_rows

ONCE_MORE = "slopes are fitted once more"


def rows(seed, n, rare, growth=0.0):
    """Five columns with slopes of one, and a category of one in so many rows, or none for zero."""
    rng = np.random.default_rng([seed, 3])
    X, share = rng.standard_normal((n, 5)), rng.random(n)
    noise = np.exp(growth * X[:, 0]) * (rng.lognormal(0, 1.5, n) - np.exp(1.125))
    if rare:
        X = np.column_stack([X, share < 1 / rare])
    return X, X.sum(axis=1) + noise


def error(model):
    return np.linalg.norm(model.coef_[:5] - 1)


def was_refined(model):
    return any(ONCE_MORE in remark.lower() for remark in model.report_.remarks)


@pytest.mark.parametrize("growth", [0.0, 0.4])
def test_slopes_beside_a_rare_category_are_as_good_as_without_it(growth):
    with_it, without = [], []
    for seed in range(6):
        model = tp.RobustRegressor(random_state=0).fit(*rows(seed, 60_000, 2_000, growth))
        assert was_refined(model)
        with_it.append(error(model))
        without.append(error(tp.RobustRegressor(random_state=0).fit(*rows(seed, 60_000, 0, growth))))
    assert np.exp(np.mean(np.log(with_it) - np.log(without))) < 1.3


@pytest.mark.parametrize("growth", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_pieces_find_what_memory_finds(seed, growth):
    X, y = rows(seed, 30_000, 1_000, growth)
    memory = FewChoose(random_state=0).fit(X, y)
    found = tp.fit(FewChoose(random_state=0), chunks_of(X, y, 4))
    assert was_refined(found) == was_refined(memory)
    apart = (X - X.mean(axis=0)) @ (found.coef_ - memory.coef_)
    assert apart.std() <= 0.02 * ((X - X.mean(axis=0)) @ (memory.coef_ - 1)).std()


@pytest.mark.parametrize("far", [-30.0, 0.0, 30.0])
def test_steps_settle_wherever_a_category_begins(far):
    """All its rows may lie where ψ is flat at first."""
    X, y = rows(0, 4_000, 150)
    kept = rows_of(X, y, np.ones(4_000), LOSSES["squared_error"], True)
    white, v = kept.whitened(), np.full(4_000, 1 / 4_000)
    score = learn_score(y - X.sum(axis=1), v)
    theta = np.append(white.columns.scale, X.sum(axis=1).mean() - white.columns.centre.sum())
    theta[5] += far
    theta[-1] -= far * white.tile_to_columns(white.mean_tile)[5]  # the prediction for the mean row stays
    psi, slopes = score.both(y - X.sum(axis=1))
    start = ByScore(score, theta, white.whitening.map, psi.mean(), slopes.mean())
    plain, reach = np.zeros(7), np.ones(4_000)
    found, _ = solved(start, lambda here: sums_over_rows(here, white, plain, reach), white)
    Z = np.concatenate([tile for _, tile in scaled_tiles(white)])
    psi = score.at(kept.y - Z @ found.theta)
    assert np.abs((psi - psi.mean()) @ Z[:, :6]).max() < 0.02 * np.sqrt(4_000) * psi.std()
    assert abs(np.sum((psi - psi.mean())[X[:, 5] > 0])) < 2 * psi.std()


def test_steps_keep_the_prediction_for_the_middle():
    score = learn_score(np.random.default_rng(0).exponential(size=500), np.full(500, 1 / 500))
    middle = np.array([0.3, -2.0, 1.0])
    here = ByScore(score, np.array([1.0, 2.0, 3.0]), np.eye(3), 0.2, 0.8, middle=middle)
    there = here.after(np.array([0.5, -0.1, 0.7]))
    assert middle @ there.theta == pytest.approx(middle @ here.theta)
    np.testing.assert_allclose(there.theta[:2] - here.theta[:2], [0.5, -0.1])


@given(st.integers(0, 1_000), st.integers(1, 3))
def test_other_directions_are_white_and_not_correlated(seed, known):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 3))
    white = rows_of(X, X[:, 0], np.ones(60), LOSSES["squared_error"], True).whitened()
    Z = np.concatenate([tile for _, tile in scaled_tiles(white)])
    B = with_more_directions(
        white.whitening.map[:, :known] @ rng.standard_normal((known, known)), white.whitening
    )
    products = (Z @ B).T @ (Z @ B) / 60
    np.testing.assert_allclose(products[known:, known:], np.eye(4 - known), atol=1e-8)
    np.testing.assert_allclose(products[known:, :known], 0.0, atol=1e-8)


def looked_at(X, seed=0):
    """The quick look at noise that grows along the first column."""
    n = len(X)
    noise = np.random.default_rng(seed).standard_normal(n) * np.exp(0.7 * X[:, 0])
    kept = rows_of(X, noise, np.ones(n), LOSSES["squared_error"], True)
    return growth_of_noise(kept.whitened(), noise)


@pytest.mark.parametrize("count", [0, 1, 3, 9, 12, 200])
def test_sizes_are_asked_along_columns_that_ten_rows_tell(count):
    X = np.random.default_rng(0).standard_normal((2_000, 3))
    X[:, 1] = np.arange(2_000) < count
    growth = looked_at(X)
    assert (1 in growth.told) == (count >= 12)
    assert 0 in growth.columns
    assert set(growth.columns) <= set(growth.told)
    assert growth.z[:, 1].any() == (count >= 12)


def test_indicators_are_found_in_other_coordinates():
    """Where the first rows have one value of each, rounding is all that they differ by."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.standard_normal((2_000, 2)), np.zeros((2_000, 3))])
    for j in range(3):
        X[500 * (j + 1) : 500 * (j + 1) + 40, 2 + j] = 1.0
    sets = looked_at(X @ np.eye(5)).along.sets
    assert [part.tolist() for part in sets] == [[0], [1], [2, 3, 4]]
    rotation = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    back = (X @ rotation) @ rotation.T
    assert [part.tolist() for part in exclusive_sets(back)] == [[0], [1], [2, 3, 4]]


@pytest.mark.parametrize("growth", [0.0, 0.4])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e8])
def test_slopes_of_a_category_nobody_knew_do_not_depend_on_its_unit(unit, growth):
    """Its scale cannot be that of the rows that choose, which have none of it."""
    X, y = rows(3, 20_000, 0, growth)
    chosen = next(few_rows(20_000, [5_000], seed_from_random_state(0)))
    category = np.setdiff1d(np.arange(20_000), chosen)[::800]
    X = np.column_stack([X, np.isin(np.arange(20_000), category)])
    there = tp.RobustRegressor(random_state=0).fit(X * [1, 1, 1, 1, 1, unit], y + X[:, 5])
    alone = tp.RobustRegressor(random_state=0).fit(X, y + X[:, 5])
    np.testing.assert_allclose(there.coef_ * [1, 1, 1, 1, 1, unit], alone.coef_, rtol=1e-6)
    plain = np.linalg.lstsq(np.column_stack([X, np.ones(20_000)]), y + X[:, 5], rcond=None)[0]
    assert abs(alone.coef_[5] - 1) < 2 * abs(plain[5] - 1) + 0.5


@pytest.mark.parametrize("seed", range(3))
def test_full_indicators_of_rare_levels_are_no_worse_than_least_squares(seed):
    """Most levels have twenty rows of 60,000: a tenth of these may lack them, and so may rows that choose."""
    rng = np.random.default_rng([seed, 99])
    x, level = rng.standard_normal((60_000, 1)), np.minimum(rng.integers(0, 3_000, 60_000), 59)
    X = np.column_stack([x, np.eye(60)[level]])
    y = x[:, 0] + (rng.lognormal(0, 1.5, 60_000) - np.exp(1.125)) * np.exp(0.4 * x[:, 0])
    excess = [
        np.mean((model.fit(X, y).predict(X) - x[:, 0]) ** 2)
        for model in (tp.RobustRegressor(random_state=0), LinearRegression())
    ]
    assert excess[0] < 0.5 * excess[1]


def test_rows_that_tell_of_no_column_have_no_growth():
    rng = np.random.default_rng([0, 1])
    X = (rng.random((20_000, 1)) < 1 / 2_000) * 1.0
    model = tp.RobustRegressor(random_state=0).fit(X, rng.lognormal(0, 1.5, 20_000))
    assert np.isfinite(model.coef_).all()


def test_a_level_that_went_astray_does_not_take_the_intercept_along():
    rng, n = np.random.default_rng([1, 3, 60]), 110_000
    X = np.column_stack([rng.standard_normal(n), np.zeros(n)])
    X[rng.choice(n, 60, replace=False), 1] = 1
    y = X @ [1, 5] + rng.exponential(size=n) - 1
    found = tp.fit(tp.RobustRegressor(random_state=0), chunks_of(X, y, 4))
    memory = tp.RobustRegressor(random_state=0).fit(X, y)
    assert abs(found.intercept_) < 0.02
    assert abs(found.intercept_ - memory.intercept_) < 0.002


def test_a_level_by_size_counts_in_the_share_of_least_variance():
    """Where few rows have most of the weight, the plain mean is known better."""
    against = []
    for seed in range(8):
        rng = np.random.default_rng([seed, 3])
        X = rng.standard_t(3, (200_000, 2))
        noise = rng.lognormal(0, 1.5, 200_000) - np.exp(1.125)
        y = X.sum(axis=1) + noise * np.exp(0.4 * np.clip(X[:, 0], -4, 4))
        excess = [
            np.mean((model.fit(X, y).predict(X) - X.sum(axis=1)) ** 2)
            for model in (tp.RobustRegressor(random_state=0), LinearRegression())
        ]
        against.append(excess[0] / excess[1])
    assert max(against) < 1.3
    assert np.exp(np.mean(np.log(against))) < 0.7


@pytest.mark.parametrize("count", [3, 15])
def test_intervals_of_a_category_that_hardly_anybody_knew_hold(count):
    """A sample of the rows may have one of it, whose own residual says nothing."""
    held = []
    for seed in range(12):
        X, y = rows(seed, 30_000, 0)
        category = np.zeros(30_000)
        category[np.random.default_rng(seed).choice(30_000, count, replace=False)] = 1.0
        summary = tp.RobustRegressor(random_state=0).fit(np.column_stack([X, category]), y).summary()
        held.append(summary.low[5] <= 0 <= summary.high[5])
    assert np.mean(held) >= 0.8
