"""Newton's method by Hessians and by conjugate gradients, and whitening by either Gram matrix."""

from dataclasses import replace

import numpy as np
import pytest

from tailproof.core.losses import get_loss
from tailproof.estimators.robust_regressor import newton, path_solution
from tailproof.estimators.robust_regressor.left_out import held_out_predictions
from tailproof.estimators.robust_regressor.levels import level_scores
from tailproof.estimators.robust_regressor.newton import StandIns, _corrected, solve_levels
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.tuning import DEFAULT
from tailproof.native.newton import Search, newton_levels, robust_start

SQUARES = get_loss("squared_error", None, "regression")


def rows(n, d, tuning=DEFAULT, weights=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = X.sum(axis=1) / np.sqrt(d) + rng.standard_t(3, n)
    return rows_of(X, y, np.ones(n) if weights is None else weights, SQUARES, True, tuning)


@pytest.mark.parametrize(("n", "d"), [(300, 10), (120, 30), (40, 60)])
def test_conjugate_gradients_find_what_hessians_find(n, d):
    random = np.random.default_rng(0)
    formed = solve_path(rows(n, d, replace(DEFAULT, second_fit_rows=0, cached_bytes=0)), random)
    assert formed.scores.hessian.size > 0
    applied = solve_path(rows(n, d, replace(DEFAULT, hessian_columns=0)), np.random.default_rng(0))
    assert applied.scores.hessian.size == 0
    # With few rows bisquare levels stop after some steps, wherever they are.
    huber = np.flatnonzero(formed.levels.bisquare == 0)
    applied, formed = applied.only(huber), formed.only(huber)
    np.testing.assert_allclose(applied.phi, formed.phi, atol=2e-3 * np.abs(formed.phi).max())
    folds = [np.arange(k, n, 4) for k in range(4)]
    by_hessians, by_gradients = (
        held_out_predictions(formed, folds, 0.05),
        held_out_predictions(applied, folds, 0.05),
    )
    # A few corrections are not the end of Newton's method, so single rows may differ a little.
    assert np.sqrt(np.mean((by_gradients - by_hessians) ** 2)) < 0.01 * np.std(by_hessians)


@pytest.mark.parametrize("tuning", [DEFAULT, replace(DEFAULT, ready_bytes=0)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_a_compiled_pass_finds_what_matrix_products_find(tuning, weighted, exact):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 400) if weighted else None
    path = solve_path(rows(400, 3, tuning, weights), np.random.default_rng(0))
    phi = path.phi + 0.1
    slowly = replace(path.rows, tuning=replace(tuning, narrow_columns=0))
    for hessian in (False, True):
        found = level_scores(path.rows, phi, path.levels, hessian, exact=exact)
        expected = level_scores(slowly, phi, path.levels, hessian, exact=exact)
        np.testing.assert_allclose(found.value, expected.value, rtol=1e-10)
        np.testing.assert_allclose(found.gradient, expected.gradient, atol=1e-9)
        np.testing.assert_allclose(found.hessian, expected.hessian, atol=1e-9)
        assert found.hessian.shape == expected.hessian.shape


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [3, 12])
def test_all_folds_together_are_left_out_as_one_by_one(weighted, d):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 400) if weighted else None
    path = solve_path(rows(400, d, weights=weights), np.random.default_rng(0))
    # Rows that are not kept whitened take the same steps one fold at a time, however few they are.
    apart = rows(400, d, replace(DEFAULT, ready_bytes=0, narrow_columns=0), weights)
    apart = apart.in_coordinates(path.basis)
    assert path.rows.in_basis
    assert not apart.in_basis
    # Together they take the sums of all rows at φ itself, not those of the last pass before it.
    slowly = replace(path, rows=apart, scores=level_scores(apart, path.phi, path.levels))
    folds = [np.arange(k, 400, 7) for k in range(7)]
    np.testing.assert_allclose(
        held_out_predictions(path, folds, 0.05), held_out_predictions(slowly, folds, 0.05), atol=1e-9
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_steps_of_few_columns_lead_where_searches_lead(weighted):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 400) if weighted else None
    path = solve_path(rows(400, 12, weights=weights), np.random.default_rng(0))
    # Tukey's ψ has many solutions; of Huber's there is one, and both come to it if they are given the time.
    huber = path.only(np.flatnonzero(path.levels.bisquare == 0).tolist())
    patient = replace(DEFAULT, corrected=1e-9, corrections=200, searches=50, cg_tolerance=1e-6)
    folds = [np.arange(k, 400, 7) for k in range(7)]
    by_steps, by_search = (
        held_out_predictions(
            replace(huber, rows=replace(huber.rows, tuning=replace(patient, narrow_columns=columns))),
            folds,
            0.05,
        )
        for columns in (DEFAULT.narrow_columns, 0)
    )
    np.testing.assert_allclose(by_steps, by_search, atol=1e-6)


@pytest.mark.parametrize("tuning", [DEFAULT, replace(DEFAULT, hessian_columns=0)])
def test_rows_that_stand_for_themselves_are_solved_in_one_step(tuning):
    path = solve_path(rows(2_000, 4, tuning), np.random.default_rng(0))
    huber = path.only(np.flatnonzero(path.levels.bisquare == 0).tolist())
    far = huber.phi + 0.3
    total = path.rows.weights.sum()
    gradient = level_scores(path.rows, far, huber.levels, hessian=False).gradient / total
    found = far + StandIns(path.rows, huber.levels, far, 2_000).solve(gradient)
    np.testing.assert_allclose(found, huber.phi, atol=1e-4)
    # Gradients of other rows pull the solution as far as their curvature lets them.
    pull = np.full_like(gradient, 1e-4)
    found = huber.phi + StandIns(path.rows, huber.levels, huber.phi, 2_000).solve(pull)
    left = level_scores(path.rows, found, huber.levels, hessian=False).gradient / total
    np.testing.assert_allclose(left, -pull, atol=3e-6)


@pytest.mark.parametrize(("n", "d"), [(50, 20), (20, 50), (21, 20)])
@pytest.mark.parametrize("weighted", [False, True])
def test_whitened_rows_have_the_identity_for_gram_matrix(n, d, weighted):
    weights = np.random.default_rng(1).integers(1, 4, n) * 1.0 if weighted else None
    scaled = rows(n, d, weights=weights)
    white = scaled.whitened()
    shares = white.weights / white.weights.sum()
    np.testing.assert_allclose(
        (white.X * shares[:, None]).T @ white.X, np.eye(white.whitening.rank), atol=1e-7
    )
    np.testing.assert_allclose(white.X, scaled.X @ white.whitening.map)
    theta = white.whitening.map @ np.random.default_rng(2).standard_normal((white.whitening.rank, 2))
    np.testing.assert_allclose(white.whitening.map @ white.whitening.coordinates(theta), theta, atol=1e-8)
    phi = white.whitening.coordinates(theta)
    np.testing.assert_allclose((phi * white.whitening.slopes(phi)).sum(axis=0), (theta[:-1] ** 2).sum(axis=0))


def test_rows_that_do_not_fit_into_memory_give_the_same_path():
    small = solve_path(rows(400, 5), np.random.default_rng(0))
    tiles = solve_path(
        rows(400, 5, replace(DEFAULT, ready_bytes=0, tile_bytes=4_000)), np.random.default_rng(0)
    )
    assert not tiles.rows.in_basis
    np.testing.assert_allclose(tiles.phi, small.phi, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("size", [3, 60])
def test_singular_systems_have_a_solution(size):
    H = np.zeros((2, size, size))
    H[0, 0, 0], H[1] = 2.0, np.eye(size)
    b = np.zeros((size, 2))
    b[0] = 1.0
    found = solve_levels(H, b)
    np.testing.assert_allclose(found[0], [0.5, 1.0])
    np.testing.assert_allclose(found[1:], 0.0, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d"), [(60, 1), (400, 12), (3_000, 3)])
def test_compiled_steps_lead_where_the_others_do(monkeypatch, n, d, weighted):
    rng = np.random.default_rng(n)
    X, weights = rng.standard_normal((n, d)), rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    y = X.sum(axis=1) + rng.standard_t(2, n)
    table = rows_of(X, y, weights, SQUARES, True)
    compiled = solve_path(table, np.random.default_rng(0))
    monkeypatch.setattr(newton, "_compiled", lambda *given: None)
    monkeypatch.setattr(path_solution, "_compiled_start", lambda *given: None)
    other = solve_path(table, np.random.default_rng(0))
    np.testing.assert_allclose(compiled.levels.tau, other.levels.tau, rtol=1e-9)
    assert compiled.settled.all() == other.settled.all()
    tukey = compiled.levels.bisquare > 0
    np.testing.assert_allclose(compiled.phi[:, ~tukey], other.phi[:, ~tukey], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(compiled.phi[:, tukey], other.phi[:, tukey], rtol=1e-2, atol=1e-2)


def test_a_singular_system_is_left_to_least_squares():
    one, zero, Z = np.ones(1), np.zeros(1), np.zeros((5, 1))
    search = Search(one, zero, zero, np.zeros((1, 1)), 0.0, one, 0.0, None, 9, 9, *[False] * 3, 0.0, 0.1, 0.2)
    with pytest.raises(ArithmeticError, match="singular"):
        newton_levels(Z, np.ones(5), None, 5.0, np.zeros((1, 1)), search, None)
    with pytest.raises(ArithmeticError, match="singular"):
        robust_start(Z, np.ones(5), zero, 3, 30, 0.0, 0.0, np.zeros((1, 1)))
    with pytest.raises(ValueError, match="rank must be"):
        robust_start(Z, np.ones(5), zero, 5, 30, 0.0, 0.0, np.zeros((1, 1)))


def test_steps_of_a_wrong_system_are_corrected_by_what_they_achieve():
    rng = np.random.default_rng(0)
    H = np.eye(3) + 0.2 * rng.standard_normal((3, 3))
    goal, phi, plain, taken = rng.standard_normal((3, 2)), np.zeros((3, 2)), np.zeros((3, 2)), []
    for _ in range(6):  # Broyden's method solves a linear system in twice as many steps as unknowns
        step = _corrected(H @ (goal - phi), taken)
        taken.append(step)
        phi, plain = phi + step, plain + H @ (goal - plain)
    assert np.abs(phi - goal).max() < 1e-9
    assert np.abs(plain - goal).max() > 1e-4


def test_a_step_that_undoes_the_last_one_stays_finite():
    step = np.array([[1.0], [2.0]])
    np.testing.assert_array_equal(_corrected(step, [step]), step)
    np.testing.assert_array_equal(_corrected(step, [np.zeros((2, 1))]), step)
