"""RobustRegressor on many rows: some of them choose, all of them are fitted."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression

from tailproof import RobustRegressor
from tailproof.core.losses import get_loss
from tailproof.core.validate import resistant_means
from tailproof.estimators.robust_regressor import truncation_path
from tailproof.estimators.robust_regressor.levels import level_scores
from tailproof.estimators.robust_regressor.newton import newton
from tailproof.estimators.robust_regressor.on_demand import _first_rows
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath
from tailproof.estimators.robust_regressor.tuning import DEFAULT

SQUARES = get_loss("squared_error", None, "regression")


@pytest.fixture
def few_to_choose_by(monkeypatch):
    monkeypatch.setattr(RobustRegressor, "_tuning", replace(DEFAULT, compared_rows=2_000))


def data(n=12_000, d=4, seed=0, noise="lognormal"):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    drawn = rng.lognormal(0, 1.5, n) if noise == "lognormal" else rng.standard_normal(n)
    return X, 2 + X.sum(axis=1) + drawn


@pytest.mark.parametrize("seed", [13, 28, 41])
def test_a_doubt_of_the_rows_that_choose_is_settled_by_all(seed, few_to_choose_by):
    """Noise seems to grow in these few, as it does in one sample of ten: all rows know better."""
    X, y = data(seed=seed)
    model = RobustRegressor(random_state=0).fit(X, y)
    assert "score that suits the noise best" in str(model.report_)
    assert np.sum((model.coef_ - 1) ** 2) < 0.05 * np.sum((LinearRegression().fit(X, y).coef_ - 1) ** 2)


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
def test_a_path_moved_to_all_rows_is_the_path_of_all_rows(loss):
    X, y = data()
    y = y if loss == "squared_error" else np.random.default_rng(1).poisson(np.exp(0.3 * X.sum(axis=1))) * 1.0
    function, ones = get_loss(loss, None, "regression"), np.ones(len(y))
    part = rows_of(X[:3_000], y[:3_000], ones[:3_000], function, True)
    path = solve_path(part, np.random.default_rng(0))
    moved = path.moved(X, y, ones)
    solved = newton(path.rows.others(X, y, ones), path.phi, path.levels)
    # In whitened coordinates a standard error is about the spread of the residuals over √n.
    assert np.abs(moved.phi - solved.phi).max() < 1e-3 / np.sqrt(len(y))
    assert np.abs(path.phi - solved.phi).max() > 1e-1 / np.sqrt(len(y))


@pytest.mark.parametrize("what", ["rare", "far", "large"])
def test_it_is_even_where_the_sample_knows_little(what):
    X, y = data()
    if what == "rare":
        X[:, 0] = np.arange(y.size) % 2_000 == 7  # six rows, two of them in the sample
    if what == "far":
        X[:, 0] = np.random.default_rng(1).lognormal(0, 3, y.size)
    if what == "large":
        y = 2 + 1e5 * X.sum(axis=1) + np.random.default_rng(1).standard_normal(y.size)
    ones = np.ones(y.size)
    part = rows_of(X[:3_000], y[:3_000], ones[:3_000], get_loss("squared_error", None, "regression"), True)
    path = solve_path(part, np.random.default_rng(0))
    path = path.only(np.flatnonzero(path.levels.bisquare == 0).tolist())
    moved = path.moved(X, y, ones)
    gradient = level_scores(moved.rows, moved.phi, moved.levels, hessian=False).gradient / y.size
    whitened = moved.rows.whitening.map @ gradient  # a Newton step of least squares, but for curvatures
    assert np.abs(moved.rows.whitening.coordinates(whitened)).max() < 1e-3 * y.std() / np.sqrt(y.size)


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
def test_some_levels_moved_alone_are_those_of_the_whole_path(loss):
    X, y = data(6_000)
    y = y if loss == "squared_error" else np.random.default_rng(1).poisson(np.exp(0.3 * X.sum(axis=1))) * 1.0
    ones = np.ones(len(y))
    part = rows_of(X[:3_000], y[:3_000], ones[:3_000], get_loss(loss, None, "regression"), True)
    path = solve_path(part, np.random.default_rng(0))
    some = [0, 2, len(path.levels) - 1]
    alone = path.only(some).moved(X, y, ones)
    assert alone.levels.names() == [path.levels.names()[m] for m in some]
    whole = path.moved(X, y, ones)
    np.testing.assert_allclose(alone.recentred(0.05), whole.recentred(0.05)[:, some], rtol=1e-7, atol=1e-7)


def test_only_the_levels_of_the_model_are_fitted_on_all_rows(few_to_choose_by, monkeypatch):
    moved, seen = TruncationPath.moved, []

    def watched(self, *rows):
        seen.extend(self.levels.names())
        return moved(self, *rows)

    monkeypatch.setattr(TruncationPath, "moved", watched)
    X, y = data(5_000, noise="normal")
    # Where large targets are what the slope is about, strong truncation is no choice.
    y = y + 5 * np.random.default_rng(1).exponential(np.exp(X[:, 0]))
    report = RobustRegressor(random_state=0).fit(X, y).report_
    assert "untruncated" in seen
    assert "25% truncated" in report.candidates
    assert "25% truncated" not in seen


def test_all_rows_are_fitted(few_to_choose_by):
    X, y = data(noise="normal")
    model = RobustRegressor(random_state=0).fit(X, y)
    plain = LinearRegression().fit(X, y)
    part = LinearRegression().fit(X[:2_000], y[:2_000])
    assert model.report_.compared == 2_000
    assert np.linalg.norm(model.coef_ - plain.coef_) < 0.3 * np.linalg.norm(part.coef_ - plain.coef_)


def test_few_rows_choose_well(few_to_choose_by):
    ours, plain = [], []
    for seed in range(6):
        X, y = data(n=20_000, seed=seed)
        ours.append(np.sum((RobustRegressor(random_state=seed).fit(X, y).coef_ - 1) ** 2))
        plain.append(np.sum((LinearRegression().fit(X, y).coef_ - 1) ** 2))
    assert np.mean(ours) < 0.6 * np.mean(plain)


def test_a_column_that_the_sample_has_not_seen(few_to_choose_by):
    X, y = data()
    seen = RobustRegressor(random_state=0).fit(X, y)
    rare = np.zeros((len(y), 1))
    rare[::3_000] = 1.0
    y = y + 1_000 * rare[:, 0]
    model = RobustRegressor(random_state=0, drop_glitches=False).fit(np.hstack([X, rare]), y)
    assert model.coef_.shape == (5,)
    assert np.abs(model.coef_[:4] - seen.coef_).max() < 0.2
    assert np.all(np.isfinite(model.coef_))


def test_weights_and_sparse_rows(few_to_choose_by):
    X, y = data()
    once = np.random.default_rng(3).integers(0, 3, len(y)).astype(float)
    dense = RobustRegressor(random_state=0).fit(X, y, sample_weight=once)
    thin = RobustRegressor(random_state=0).fit(sparse.csr_array(X), y, sample_weight=once)
    assert dense.report_.compared == thin.report_.compared == 2_000
    assert np.allclose(dense.coef_, thin.coef_, atol=0.05)
    assert np.abs(dense.coef_ - 1).max() < 0.2


def test_user_candidates_are_fitted_on_all_rows(few_to_choose_by):
    class Counting(LinearRegression):
        sizes: ClassVar[list[int]] = []

        def fit(self, X, y, sample_weight=None):
            Counting.sizes.append(len(y))
            return super().fit(X[:, :1], y - 100 * X[:, 1] ** 2, sample_weight)

        def predict(self, X):
            return super().predict(X[:, :1]) + 100 * X[:, 1] ** 2

    X, y = data()
    y = y + 100 * X[:, 1] ** 2
    model = RobustRegressor(candidates=[Counting()], random_state=0).fit(X, y)
    assert isinstance(model.estimator_, Counting)
    assert Counting.sizes[-1] == len(y)
    assert max(Counting.sizes[:-1]) < 2_000


@pytest.mark.parametrize("levels", [1, 3, 1_000])
@pytest.mark.parametrize("count", [1, 20, 200])
def test_rows_that_count_least_come_first_as_in_a_sort_of_all(levels, count):
    rng = np.random.default_rng(0)
    weights, losses = rng.integers(0, levels, 150) / levels, rng.integers(0, 9, 150) / 9
    wanted = np.lexsort((-losses, weights))[:count]
    np.testing.assert_array_equal(_first_rows(weights, losses, count), wanted)


@pytest.mark.parametrize("intercept", [True, False])
def test_tiles_of_any_layout_are_scaled_alike(intercept):
    X, y = data(300)
    rows = rows_of(X, y, np.ones(300), get_loss("squared_error", None, "regression"), intercept)
    rows = replace(rows, X=X, ready=False)
    layouts = [X, np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2]]
    tiles = [next(replace(rows, X=layout).tiles())[1] for layout in layouts]
    for tile in tiles:
        np.testing.assert_array_equal(tile[:, :-1], (X - rows.columns.centre) / rows.columns.scale)
        assert np.all(tile[:, -1] == float(intercept))


@pytest.mark.parametrize("weighted", [False, True])
def test_intercepts_of_close_levels_are_those_of_each_alone(weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60_000, 2))
    weights = rng.uniform(0.5, 2.0, 60_000) if weighted else np.ones(60_000)
    y = X.sum(axis=1) + rng.lognormal(0.0, 1.5, 60_000)
    path = solve_path(rows_of(X, y, weights, SQUARES, True), np.random.default_rng(0))
    cut = path.levels.truncated
    assert 8 * 60_000 * cut.size > path.rows.tuning.tile_bytes
    alone = [
        float(resistant_means(path.residuals_of(int(level))[None], 0.05, weights if weighted else None)[0])
        for level in cut
    ]
    error = np.std(y) / np.sqrt(60_000)
    np.testing.assert_allclose(path._mean_residuals(cut, 0.05), alone, atol=0.01 * error)


def test_a_path_on_many_more_rows_is_solved_on_some_of_them_first(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((100_000, 2))
    y = X.sum(axis=1) + rng.lognormal(0.0, 1.5, 100_000)
    path = solve_path(rows_of(X[:2_000], y[:2_000], np.ones(2_000), SQUARES, True), np.random.default_rng(0))
    found = path.moved(X, y, np.ones(100_000))
    monkeypatch.setattr(truncation_path, "_HALFWAY_FROM", np.inf)
    straight = path.moved(X, y, np.ones(100_000))
    assert found.settled.all()
    error = np.sqrt(2 * straight.scores.value / 100_000 * 3 / 100_000)
    assert np.all(np.linalg.norm(found.phi - straight.phi, axis=0) < 0.002 * error)


@pytest.mark.parametrize("period", [2, 5, 10])
def test_rows_that_take_turns_are_fitted_as_mixed_ones(period):
    rng = np.random.default_rng(1)
    turns = (np.arange(60_000) % period)[:, None] == np.arange(1, period)
    X = np.column_stack([rng.standard_normal((60_000, 3)), turns])
    noise = rng.lognormal(0, 1.2, 60_000) - np.exp(0.72)
    y = X.sum(axis=1) + np.exp(0.5 * X[:, 0]) * noise
    order = rng.permutation(60_000)
    in_turn, mixed = (RobustRegressor(random_state=0).fit(X[rows], y[rows]) for rows in (slice(None), order))
    error = np.linalg.norm(mixed.coef_[1:] - 1)
    assert np.linalg.norm(in_turn.coef_[1:] - 1) <= 2 * error


@pytest.mark.parametrize("n", [1, 9, 10, 11, 1_005])
def test_a_tenth_has_one_row_of_every_ten(n):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, 2)), rng.standard_normal(n)
    places = rows_of(X, y, np.ones(n), SQUARES, True).places_of_tenth
    np.testing.assert_array_equal(places // 10, np.arange(-(-n // 10)))
    assert places.max() < n
    if n > 1_000:
        assert np.bincount(places % 10, minlength=10).min() >= 9


def test_a_far_value_in_a_column_that_the_sample_hardly_knows():
    """Steps with the sample's Hessian would go on without end: slopes of other columns were off by 1.6."""
    rng = np.random.default_rng(10)
    X = rng.standard_normal((10_000, 6))
    X[:, 5] = 0.0
    X[rng.choice(10_000, 3, replace=False), 5] = 1.0
    X[rng.integers(10_000), 5] = 1e6
    y = X[:, :5].sum(axis=1) + rng.standard_normal(10_000)
    model = RobustRegressor(random_state=10, drop_glitches=False).fit(X, y)
    np.testing.assert_allclose(model.coef_[:5], 1.0, atol=0.05)
