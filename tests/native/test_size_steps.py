"""Compiled steps of slopes and sizes, beside the same row by row."""

import numpy as np
import pytest

from tailproof.estimators.robust_regressor.scale_family import ScaleFamily
from tailproof.native.size_steps import (
    Pace,
    noise_over_sizes,
    size_rounds,
    size_steps,
    smooth_sizes,
)


def problem(n, rank, seed=0):
    rng = np.random.default_rng([n, rank, seed])
    Q = np.column_stack([np.ones(n), rng.standard_normal((n, rank - 1))])
    v = rng.uniform(0.5, 2.0, n)
    return Q, rng.lognormal(0.0, 1.5, n), v / v.sum(), np.exp(0.3 * rng.standard_normal(n))


def slow_steps(Q, y, v, s, place, steps, share, every=1):
    A = np.column_stack([Q / s[:, None], np.ones(len(s))])
    for number in range(steps):
        u = y / s - A @ place
        tau = np.quantile(np.abs(u), share)
        weights = v * np.minimum(1.0, tau / np.abs(u))
        if number % every == 0:
            matrix = A.T @ (weights[:, None] * A)
            matrix[-1], matrix[-1, -1] = v @ A, 0.0
        side = A.T @ (weights * u)
        side[-1] = v @ (u + place[-1])
        place = place + np.linalg.solve(matrix, side)
    return place, tau, y / s - A @ place


# Rows below, at and beyond a tile of 128; columns of every remainder of four.
@pytest.mark.parametrize("n", [20, 127, 128, 300])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 9])
def test_steps_are_those_of_reweighted_least_squares(n, rank):
    Q, y, v, s = problem(n, rank)
    place = np.zeros(rank + 1)
    found = size_steps(Q, y, v, s, place, 3, 0.75, 0.0)
    slow, tau, u = slow_steps(Q, y, v, s, np.zeros(rank + 1), 3, 0.75)
    np.testing.assert_allclose(place, slow, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.u, u, rtol=1e-9, atol=1e-12)
    assert found.left == 0
    assert found.tau == pytest.approx(tau, rel=1e-9)


@pytest.mark.parametrize("every", [2, 3, 7])
def test_steps_may_share_a_matrix(every):
    Q, y, v, s = problem(300, 4)
    place = np.zeros(5)
    found = size_steps(Q, y, v, s, place, 7, 0.75, 0.0, every)
    slow, tau, u = slow_steps(Q, y, v, s, np.zeros(5), 7, 0.75, every)
    np.testing.assert_allclose(place, slow, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.u, u, rtol=1e-9, atol=1e-12)
    assert found.tau == pytest.approx(tau, rel=1e-9)
    own = np.zeros(5)
    size_steps(Q, y, v, s, place, 200, 0.75, 1e-12, every)
    size_steps(Q, y, v, s, own, 200, 0.75, 1e-12)
    np.testing.assert_allclose(place, own, rtol=1e-8)


def test_steps_end_where_they_are_short():
    Q, y, v, s = problem(200, 3)
    place, again = np.zeros(4), np.zeros(4)
    size_steps(Q, y, v, s, place, 200, 0.75, 1e-9)
    size_steps(Q, y, v, s, again, 400, 0.75, 1e-9)
    assert (place == again).all()


def test_a_system_that_may_be_singular_is_left_to_the_caller():
    Q, y, v, s = problem(200, 3)
    Q[:, 2] = Q[:, 1]
    place = np.zeros(4)
    found = size_steps(Q, y, v, s, place, 5, 0.75, 1e-6)
    assert found.left == 5
    assert np.isfinite(found.tau)
    assert not place.any()
    np.testing.assert_allclose(found.matrix[1], found.matrix[2])
    np.testing.assert_allclose(found.u, y / s)


def test_a_column_twice_has_the_fit_of_one():
    """Its systems are singular: each is solved by least squares."""
    Q, y, v, _ = problem(300, 3)
    log = np.log(np.abs(y - np.median(y)) + 0.3)
    once = ScaleFamily(Q, y, Q, v).solve(log, 1e-4)
    twice = ScaleFamily(np.column_stack([Q, Q[:, 1]]), y, Q, v).solve(log, 1e-4)
    np.testing.assert_allclose(twice.phi[1] + twice.phi[3], once.phi[1], rtol=1e-5)
    np.testing.assert_allclose(twice.s, once.s, rtol=1e-5)


@pytest.mark.parametrize("n", [60, 300])
def test_rounds_at_once_lead_where_single_ones_do(n):
    Q, y, v, s = problem(n, 4)
    family = ScaleFamily(Q, y * s, Q, v)
    log = np.log(np.abs(y - np.median(y)) + 0.3)
    found, slow = family.solve(log, 1e-4), family._solve_with_care(family._smooth(log), 1e-4)
    for name in ("phi", "kappa", "gamma", "s", "u", "tau"):
        np.testing.assert_allclose(getattr(found, name), getattr(slow, name), rtol=1e-9, atol=1e-11)


def test_sizes_beyond_all_numbers_are_left_to_single_rounds():
    Q, y, v, _ = problem(50, 2)
    pace = Pace(20, 4, 2, 2, 0.75, 1e-6, 0.02)
    found = size_rounds(
        np.asfortranarray(Q),
        y,
        np.ones((50, 1)),
        np.ones((1, 1)),
        v,
        0 * v,
        800 * Q[:, 1],
        0.5,
        (0.0, 1.0),
        pace,
    )
    assert not found.known


def test_numbers_beyond_all_bounds_have_no_truncation():
    Q, y, v, s = problem(50, 2)
    assert np.isnan(size_steps(Q, y, v, 0 * s, np.zeros(3), 5, 0.75, 1e-6).tau)


@pytest.mark.parametrize("with_noise", [True, False])
def test_sizes_are_smoothed_as_the_formula_has_it(with_noise):
    rng = np.random.default_rng(0)
    _, u, v, _ = problem(301, 2)
    f = np.column_stack([rng.standard_normal((301, 4)), np.ones(301)])
    inverse, own, log = np.linalg.inv(f.T @ (v[:, None] * f)), rng.random(301), rng.standard_normal(301)
    found = smooth_sizes(f, inverse, v, own, log, u if with_noise else None, 0.5, (0.01, 0.98))
    sizes = log + np.log(np.abs(u) + 0.5 * np.median(np.abs(u))) if with_noise else log
    fitted = f @ (inverse @ (f.T @ (v * sizes)))
    slow = np.clip(fitted, *np.quantile(fitted, [0.01, 0.98])) - own * (sizes - fitted)
    np.testing.assert_allclose(found, slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("u", [0.0, np.inf, np.nan])
def test_noise_without_a_size_has_no_smooth_one(u):
    one = np.ones(4)
    found = smooth_sizes(one[:, None], np.ones((1, 1)), one / 4, one, one, np.full(4, u), 0.5, (0.0, 1.0))
    assert np.isnan(found).all()


@pytest.mark.parametrize("rank", [1, 3])
def test_noise_is_what_slopes_leave_over_sizes(rank):
    Q, y, v, _ = problem(301, rank)
    rng = np.random.default_rng(0)
    f, phi, gamma = rng.standard_normal((301, 2)), rng.standard_normal(rank), np.array([0.4, -0.2])
    s, noise, mean = noise_over_sizes(Q, y, f, v, phi, gamma, (0.01, 0.98))
    slow = np.exp(np.clip(f @ gamma, *np.quantile(f @ gamma, [0.01, 0.98])))
    np.testing.assert_allclose(s, slow, rtol=1e-12)
    np.testing.assert_allclose(noise, (y - Q @ phi) / slow, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mean, (v / slow) @ Q, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("gamma", [1e4, np.inf, np.nan])
def test_sizes_beyond_all_numbers_leave_no_noise(gamma):
    Q, y, v, _ = problem(50, 2)
    assert noise_over_sizes(Q, y, Q, v, np.zeros(2), np.array([0.0, gamma]), (0.0, 1.0)) is None


def test_arrays_of_other_shapes_are_refused():
    Q, y, v, s = problem(20, 2)
    with pytest.raises(ValueError, match="place must have shape"):
        size_steps(Q, y, v, s, np.zeros(2), 1, 0.75, 0.0)
    with pytest.raises(ValueError, match="at least 1"):
        size_steps(Q[:0], y[:0], v[:0], s[:0], np.zeros(3), 1, 0.75, 0.0)
    with pytest.raises(ValueError, match="steps with one matrix"):
        size_steps(Q, y, v, s, np.zeros(3), 1, 0.75, 0.0, 0)
    with pytest.raises(ValueError, match="inverse must have shape"):
        smooth_sizes(Q, np.eye(3), v, v, s, None, 0.5, (0.0, 1.0))
