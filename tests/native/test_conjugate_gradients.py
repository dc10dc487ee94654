"""Compiled conjugate gradients, beside systems that are solved whole."""

import numpy as np
import pytest

from tailproof.native.conjugate_gradients import conjugate_gradients


def problem(n, d, levels=3):
    rng = np.random.default_rng(n + d)
    X, weights = rng.standard_normal((n, d)), rng.uniform(0.01, 1.0, (levels, n))
    ridge, b = np.linspace(0.0, 2.0, levels), rng.standard_normal((levels, d))
    return X, weights, ridge, b, rng.uniform(0.5, 2.0, d), 0.1 * rng.standard_normal(d), float(n), 0.01


@pytest.mark.parametrize(("n", "d"), [(7, 3), (40, 12), (12, 40), (3, 1)])
def test_solutions_are_those_of_the_whole_system(n, d):
    X, weights, ridge, b, inverse, constant, total, damping = problem(n, d)
    found = conjugate_gradients(X, weights, ridge, b, inverse, constant, total, damping, np.full(3, 1e-12), 200)
    penalty = np.diag(inverse) - np.outer(constant, constant)
    for m, x in enumerate(found):
        A = (X.T * weights[m]) @ X / total + ridge[m] * penalty + damping * np.eye(d)
        np.testing.assert_allclose(A @ x, b[m], atol=1e-8)


def test_levels_do_not_depend_on_each_other():
    X, weights, ridge, b, *rest = problem(50, 20, levels=4)
    together = conjugate_gradients(X, weights, ridge, b, *rest, np.full(4, 0.03), 50)
    for m in range(4):
        one = slice(m, m + 1)
        alone = conjugate_gradients(X, weights[one], ridge[one], b[one], *rest, np.full(1, 0.03), 50)
        np.testing.assert_array_equal(alone[0], together[m])


def test_nothing_is_asked_of_a_level_without_a_right_hand_side():
    X, weights, ridge, b, *rest = problem(30, 5)
    b[1] = 0.0
    found = conjugate_gradients(X, weights, ridge, b, *rest, np.full(3, 1e-9), 50)
    assert not found[1].any()
    assert np.isfinite(found).all()


def test_every_level_has_a_tolerance_of_its_own():
    X, weights, ridge, b, *rest = problem(50, 20)
    tolerance = np.array([0.5, 1e-3, 1e-12])
    found = conjugate_gradients(X, weights, ridge, b, *rest, tolerance, 200)
    best = conjugate_gradients(X, weights, ridge, b, *rest, np.full(3, 1e-12), 200)
    gap = np.linalg.norm(found - best, axis=1) / np.linalg.norm(best, axis=1)
    assert gap[0] > 0.01 > gap[1] > 1e-8 > gap[2]
