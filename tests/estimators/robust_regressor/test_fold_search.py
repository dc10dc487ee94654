"""Wide levels without a fold: compiled steps beside those in Python, and where they lead."""

from dataclasses import replace

import numpy as np
import pytest

from tailproof.core.losses import get_loss
from tailproof.estimators.robust_regressor import fold_search
from tailproof.estimators.robust_regressor.fold_search import search_in_python, searched_without
from tailproof.estimators.robust_regressor.levels import Levels, level_scores
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.step_length import Line

N = 240
FOLD = np.arange(0, N, 5)


def path(d, weights=None, noise=1.2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, d))
    y = X.sum(axis=1) + rng.lognormal(0, noise, N)
    loss = get_loss("squared_error", None, "regression")
    rows = rows_of(X, y, np.ones(N) if weights is None else weights, loss, True)
    return solve_path(rows, np.random.default_rng(0))


def rest_of(found):
    return found.rows.take(np.delete(np.arange(N), FOLD))


def gradients(rest, levels, phi):
    sums = level_scores(rest, phi, levels, hessian=False).gradient
    return np.linalg.norm(sums / rest.total - levels.ridge * rest.whitening.slopes(phi), axis=0)


@pytest.mark.parametrize("d", [30, 90, 150, 300])
@pytest.mark.parametrize("uneven", [False, True])
def test_compiled_steps_are_those_in_python(d, uneven, monkeypatch):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, N) if uneven else None
    found = path(d, weights)
    rest, levels = rest_of(found), found.levels
    compiled, asked = searched_without(rest, levels, found.phi), []

    def in_python(X, y, v, phi, tau, tukey, ridge, inverse, constant, how):
        asked.append(len(phi))
        return search_in_python(rest, Levels(tau, tau, ridge, tukey), phi.T, how).T

    monkeypatch.setattr(fold_search, "searched_levels", in_python)
    np.testing.assert_allclose(searched_without(rest, levels, found.phi), compiled, atol=1e-6)
    assert sum(asked) == len(levels)


@pytest.mark.parametrize("d", [30, 60, 90, 120])
def test_truncated_levels_converge(d):
    found = path(d)
    rest, levels = rest_of(found), found.levels
    before, after = (
        gradients(rest, levels, phi) for phi in (found.phi, searched_without(rest, levels, found.phi))
    )
    huber = levels.bisquare == 0
    assert np.all(after[huber] <= 1.01 * rest.tuning.corrected * before[huber])


@pytest.mark.parametrize("d", [150, 180, 300])
def test_with_hardly_more_rows_than_columns_or_fewer_they_converge_in_more_steps(d):
    found = path(d)
    rest, levels = rest_of(found), found.levels
    huber, before = levels.bisquare == 0, gradients(rest, levels, found.phi)
    eight, many = (
        gradients(each, levels, searched_without(each, levels, found.phi))[huber] / before[huber]
        for each in (rest, replace(rest, tuning=replace(rest.tuning, searches=100)))
    )
    assert np.all(many <= 1.01 * rest.tuning.corrected)
    # What eight steps leave is far less than what there was.
    assert np.all(eight <= 0.03)


@pytest.mark.parametrize("d", [90, 120, 150])
def test_rows_held_out_are_forgotten(d):
    """What all rows have led to is only where the steps start."""
    found = path(d)
    rest, levels, fold = rest_of(found), found.levels, found.rows.take(FOLD)
    elsewhere = found.phi + 0.2 * np.random.default_rng(2).standard_normal(found.phi.shape)
    long = replace(rest, tuning=replace(rest.tuning, searches=30, corrected=1e-4))
    here, there = (fold.predictions(searched_without(long, levels, phi)) for phi in (found.phi, elsewhere))
    errors = np.linalg.norm(fold.y - here, axis=1)
    assert np.all(np.linalg.norm(here - there, axis=1) <= 0.05 * errors)


def test_tukeys_levels_start_from_the_most_robust_of_their_penalty():
    tau = np.array([np.inf, 2.0, 1.0, 3.0, np.inf, 4.0, 0.5])
    ridge = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.5])
    bisquare = np.array([0.0, 0.0, 0.0, 4.7, 0.0, 4.7, 0.0])
    levels = Levels(tau, tau, ridge, bisquare)
    assert fold_search._most_robust(levels, np.flatnonzero(bisquare)).tolist() == [2, 4]


def test_a_line_ends_where_the_loss_is_least():
    found = path(90)
    rest, levels = rest_of(found), found.levels
    step = np.random.default_rng(3).standard_normal(found.phi.shape)
    sums = level_scores(rest, found.phi, levels, hessian=False).gradient / rest.total
    downhill = np.sign((step * (sums - levels.ridge * rest.whitening.slopes(found.phi))).sum(axis=0))
    step *= downhill
    line = fold_search._line(
        rest, levels, rest.y - rest.predictions(found.phi), rest.predictions(step), found.phi, step
    )
    length, every = line.shortest(), np.arange(len(levels))
    start, there = (line.slopes(at, every) for at in (np.zeros(len(levels)), length))
    whole = length == 1.0
    assert isinstance(line, Line)
    assert np.all(there[whole] <= 0.05 * np.abs(start[whole]))
    assert np.all(np.abs(there[~whole]) <= 0.05 * np.abs(start[~whole]))
    assert np.any(~whole)
