"""Wide levels without a fold: all folds at once beside one after the other, and where they lead."""

from dataclasses import replace

import numpy as np
import pytest

from tailproof.core.losses import get_loss
from tailproof.estimators.robust_regressor import fold_search, scaled_rows
from tailproof.estimators.robust_regressor.fold_search import searched_without, shares_of_rest
from tailproof.estimators.robust_regressor.levels import Levels, level_scores
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of

N = 240
ROUNDING = {"double": 1e-12, "single": 1e-4}
FOLD = np.arange(0, N, 5)


def path(d, weights=None, noise=1.2, n=N):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = X.sum(axis=1) + rng.lognormal(0, noise, n)
    loss = get_loss("squared_error", None, "regression")
    rows = rows_of(X, y, np.ones(n) if weights is None else weights, loss, True)
    return solve_path(rows, np.random.default_rng(0))


def without(found, phi=None, folds=(FOLD,), **tuning):
    """φ without each of the folds."""
    rows, phi = (
        replace(found.rows, tuning=replace(found.rows.tuning, **tuning)),
        found.phi if phi is None else phi,
    )
    return searched_without(rows, found.levels, phi, rows.y - rows.predictions(phi), folds)


@pytest.fixture(params=["double", "single"])
def rounding(request, monkeypatch):
    """What rows in double or single precision leave to chance."""
    if request.param == "double":
        monkeypatch.setattr(scaled_rows, "_LARGEST_SINGLE", 0.0)
    return ROUNDING[request.param]


def rest_of(found, fold=FOLD):
    return found.rows.take(np.delete(np.arange(found.rows.n), fold))


def gradients(rest, levels, phi):
    sums = level_scores(rest, phi, levels, hessian=False).gradient
    return np.linalg.norm(sums / rest.total - levels.ridge * rest.whitening.slopes(phi), axis=0)


@pytest.mark.parametrize("d", [30, 90, 150, 300])
@pytest.mark.parametrize("uneven", [False, True])
def test_folds_do_not_depend_on_each_other(d, uneven, rounding):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, N) if uneven else None
    found, folds = path(d, weights), np.array_split(np.random.default_rng(2).permutation(N), 5)
    together = without(found, folds=folds)
    assert together.shape == (5, *found.phi.shape)
    for fold, phi in zip(folds, together, strict=True):
        np.testing.assert_allclose(without(found, folds=(fold,))[0], phi, atol=rounding)


@pytest.mark.parametrize("d", [30, 150, 300])
def test_held_out_rows_do_not_matter(d, rounding):
    """As if they were absent: other targets, and no rows at all."""
    found = path(d)
    rows, rest = found.rows, rest_of(found)
    other = replace(rows, y=rows.y.copy())
    other.y[FOLD] += 1e3
    residuals = other.y - other.predictions(found.phi)
    moved = searched_without(other, found.levels, found.phi, residuals, (FOLD,))[0]
    residuals, nothing = rest.y - rest.predictions(found.phi), np.arange(0)
    absent = searched_without(rest, found.levels, found.phi, residuals, (nothing,))[0]
    for phi in (moved, absent):
        np.testing.assert_allclose(phi, without(found)[0], atol=rounding)


@pytest.mark.parametrize("d", [30, 90, 150])
def test_single_precision_leaves_the_steps_where_they_are(d, monkeypatch):
    found = path(d)
    assert found.rows.for_steps.dtype == np.float32
    single = without(found)[0]
    monkeypatch.setattr(scaled_rows, "_LARGEST_SINGLE", 0.0)
    rows = replace(found.rows)
    assert rows.for_steps is rows.X
    np.testing.assert_allclose(without(found)[0], single, atol=ROUNDING["single"])


def test_what_is_beyond_single_precision_stays_in_double():
    rows = path(30).rows
    far = rows.y.copy()
    far[3] = -1e12
    assert replace(rows, y=far).for_steps is rows.X
    faint = replace(rows, X=1e12 * rows.X)
    assert faint.for_steps is faint.X


@pytest.mark.parametrize("d", [30, 60, 90, 120])
def test_truncated_levels_converge(d):
    found = path(d)
    rest, levels = rest_of(found), found.levels
    before, after = (gradients(rest, levels, phi) for phi in (found.phi, without(found)[0]))
    huber = levels.bisquare == 0
    assert np.all(after[huber] <= 1.01 * rest.tuning.corrected * before[huber])


@pytest.mark.parametrize("d", [25, 30])
def test_with_many_rows_tukeys_levels_converge_too_next_to_where_they_were(d):
    found = path(d, n=70 * d)
    rows, levels = found.rows, found.levels
    assert fold_search.is_searched(rows)
    assert not fold_search.has_few_rows(rows)
    least = np.sqrt(rows.y.var() / rows.n)
    assert np.all(gradients(rows, levels, found.phi) <= 0.01 * least)
    fold = np.arange(0, rows.n, 5)
    rest, phi = rest_of(found, fold), without(found, folds=(fold,))[0]
    before, after = (gradients(rest, levels, place) for place in (found.phi, phi))
    assert np.any(levels.bisquare > 0)
    assert np.all(after <= 1.01 * rest.tuning.corrected * before)


@pytest.mark.parametrize("d", [30, 90, 120])
def test_least_squares_is_that_of_normal_equations(d):
    found = path(d)
    rest, levels = rest_of(found), found.levels
    Z, S = rest.gathered(), rest.whitening.slopes_matrix()
    phi = without(found, corrected=1e-9, fold_damping=0.0)[0]
    for m in np.flatnonzero(np.isinf(levels.tau)):
        exact = np.linalg.solve(Z.T @ Z / rest.n + levels.ridge[m] * S, Z.T @ rest.y / rest.n)
        np.testing.assert_allclose(phi[:, m], exact, atol=1e-6 * np.abs(exact).max())


@pytest.mark.parametrize("d", [150, 180, 300])
def test_with_hardly_more_rows_than_columns_or_fewer_they_converge_in_more_steps(d):
    found = path(d)
    rest, levels = rest_of(found), found.levels
    huber, before = levels.bisquare == 0, gradients(rest, levels, found.phi)
    eight, many = (
        gradients(rest, levels, without(found, searches=searches)[0])[huber] / before[huber]
        for searches in (8, 100)
    )
    assert np.all(many <= 1.01 * rest.tuning.corrected)
    # What eight steps leave is far less than what there was.
    assert np.all(eight <= 0.03)


@pytest.mark.parametrize("d", [90, 120, 150])
def test_rows_held_out_are_forgotten(d):
    """What all rows have led to is only where the steps start."""
    found = path(d)
    fold = found.rows.take(FOLD)
    elsewhere = found.phi + 0.2 * np.random.default_rng(2).standard_normal(found.phi.shape)
    here, there = (
        fold.predictions(without(found, phi, searches=30, corrected=1e-4)[0])
        for phi in (found.phi, elsewhere)
    )
    errors = np.linalg.norm(fold.y - here, axis=1)
    assert np.all(np.linalg.norm(here - there, axis=1) <= 0.05 * errors)


def test_tukeys_levels_start_from_the_most_robust_of_their_penalty():
    tau = np.array([np.inf, 2.0, 1.0, 3.0, np.inf, 4.0, 0.5])
    ridge = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.5])
    bisquare = np.array([0.0, 0.0, 0.0, 4.7, 0.0, 4.7, 0.0])
    levels = Levels(tau, tau, ridge, bisquare)
    assert fold_search._most_robust(levels, np.flatnonzero(bisquare)).tolist() == [2, 4]


def test_shares_of_the_rest_add_up_to_one():
    shares = shares_of_rest(np.array([1.0, 2.0, 3.0]), (np.array([0]), np.array([1, 2])))
    np.testing.assert_allclose(shares, [[0.0, 0.4, 0.6], [1.0, 0.0, 0.0]])
