"""Conjugate gradients of many fits, beside systems that are solved whole."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from tailproof.estimators.robust_regressor.sparse_rows import SparseTable
from tailproof.native.conjugate_gradients import Equations, Room, multiply


def problem(n, d, fits=3):
    rng = np.random.default_rng(n + d)
    X, curvature = rng.standard_normal((n, d)), rng.uniform(0.01, 1.0, (fits, n)) / n
    ridge, b = np.linspace(0.0, 2.0, fits), rng.standard_normal((fits, d))
    return Equations(X, curvature, ridge, rng.uniform(0.5, 2.0, d), 0.1 * rng.standard_normal(d), 0.01), b


def matrix(equations, m, X):
    penalty = np.diag(equations.inverse) - np.outer(equations.constant, equations.constant)
    hessian = (X.T * equations.curvature[m]) @ X + equations.ridge[m] * penalty
    return hessian + equations.damping * np.eye(X.shape[1])


@pytest.mark.parametrize(("n", "d"), [(7, 3), (40, 12), (12, 40), (3, 1)])
@pytest.mark.parametrize("fits", [1, 3, 9])
def test_solutions_are_those_of_the_whole_system(n, d, fits):
    equations, b = problem(n, d, fits)
    found = equations.solve(b, np.full(fits, 1e-12), 200)
    for m, x in enumerate(found.x):
        np.testing.assert_allclose(matrix(equations, m, equations.X) @ x, b[m], atol=1e-8)
    np.testing.assert_allclose(found.predictions, found.x @ equations.X.T, atol=1e-10)


@pytest.mark.parametrize("fits", [1, 9])
@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e150])
def test_rows_in_single_precision_have_the_solutions_of_double_ones(fits, unit):
    equations, b = problem(40, 12, fits)
    single = replace(equations, X=equations.X.astype(np.float32))
    found, expected = (e.solve(unit * b, np.full(fits, 1e-5), 200) for e in (single, equations))
    assert found.x.dtype == found.predictions.dtype == np.float64
    np.testing.assert_allclose(found.x / unit, expected.x / unit, atol=1e-3)
    np.testing.assert_allclose(found.predictions / unit, expected.predictions / unit, atol=1e-3)


def test_sparse_rows_have_the_solutions_of_dense_ones():
    equations, b = problem(30, 8)
    table = SparseTable(sparse.csr_array(equations.X[:, :-1]), np.zeros(7), 1.0)
    dense = np.column_stack([equations.X[:, :-1], np.ones(30)])
    rest = (equations.curvature, equations.ridge, equations.inverse, equations.constant, equations.damping)
    found, expected = (Equations(X, *rest).solve(b, np.full(3, 1e-12), 200) for X in (table, dense))
    np.testing.assert_allclose(found.x, expected.x, atol=1e-9)
    np.testing.assert_allclose(found.predictions, expected.predictions, atol=1e-9)


def test_fits_do_not_depend_on_each_other():
    equations, b = problem(50, 20, fits=6)
    together = equations.solve(b, np.full(6, 0.03), 50)
    for m in range(6):
        own = Equations(
            equations.X,
            equations.curvature[[m]],
            equations.ridge[[m]],
            equations.inverse,
            equations.constant,
            equations.damping,
        )
        np.testing.assert_allclose(own.solve(b[[m]], np.full(1, 0.03), 50).x[0], together.x[m], atol=1e-12)


def test_room_that_was_used_before_changes_nothing():
    (first, b), (second, c) = problem(40, 12, fits=5), problem(40, 12, fits=3)
    room = Room(6, 40)
    for equations, side in ((first, b), (second, c)):
        tolerance = np.full(len(side), 0.03)
        found, expected = equations.solve(side, tolerance, 50, room), equations.solve(side, tolerance, 50)
        np.testing.assert_array_equal(found.x, expected.x)
        np.testing.assert_array_equal(found.predictions, expected.predictions)


def test_too_little_room_is_refused():
    equations, b = problem(40, 12)
    for room in (Room(2, 40), Room(3, 39)):
        with pytest.raises(ValueError, match="room must have shape"):
            equations.solve(b, np.full(3, 0.03), 50, room)


def test_nothing_is_asked_of_a_fit_without_a_right_hand_side():
    equations, b = problem(30, 5)
    b[1] = 0.0
    found = equations.solve(b, np.full(3, 1e-9), 50)
    assert not found.x[1].any()
    assert np.isfinite(found.x).all()


def test_nothing_is_done_along_a_direction_that_no_row_has():
    X, none = np.array([[1.0, 0.0], [2.0, 0.0]]), np.zeros(2)
    equations = Equations(X, np.full((1, 2), 0.5), np.zeros(1), none, none, 0.0)
    assert equations.solve(np.array([[0.0, 1e-16]]), np.full(1, 0.03), 50).x.tolist() == [[0.0, 0.0]]
    found = equations.solve(np.array([[5.0, 0.0]]), np.full(1, 1e-9), 50).x
    np.testing.assert_allclose(found, [[2.0, 0.0]])


def test_the_right_hand_side_stays_what_it_is():
    equations, b = problem(30, 5)
    before = b.copy()
    equations.solve(b, np.full(3, 1e-9), 50)
    np.testing.assert_array_equal(b, before)


def test_every_fit_has_a_tolerance_of_its_own():
    equations, b = problem(50, 20)
    found = equations.solve(b, np.array([0.5, 1e-3, 1e-12]), 200).x
    best = equations.solve(b, np.full(3, 1e-12), 200).x
    gap = np.linalg.norm(found - best, axis=1) / np.linalg.norm(best, axis=1)
    assert gap[0] > 0.01 > gap[1] > 1e-8 > gap[2]


def test_steps_are_no_more_than_asked_for():
    equations, b = problem(50, 20)
    assert not equations.solve(b, np.full(3, 1e-12), 0).x.any()
    one, best = (equations.solve(b, np.full(3, 1e-12), steps).x for steps in (1, 200))
    assert np.linalg.norm(one - best) > 1e-3 * np.linalg.norm(best)


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 10])
def test_products_are_those_of_matrices(rows):
    rng = np.random.default_rng(rows)
    left, right = rng.standard_normal((rows, 5)), rng.standard_normal((5, 7))
    out = np.full((rows, 7), np.nan)
    multiply(left, right, out)
    np.testing.assert_allclose(out, left @ right, atol=1e-12)
