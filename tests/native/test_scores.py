"""Compiled scores and sums of them, beside the same by whole arrays."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailproof.estimators.robust_regressor.monotone_score import MonotoneScore
from tailproof.native.scores import concave_corners, score_of_rows, score_sums

MEAN, INFORMATION = 0.1, 0.7


def problem(n, width, knots, seed=0, size=1.0):
    rng = np.random.default_rng(seed)
    Z, y = rng.standard_normal((n, width)), size * rng.standard_t(2, n)
    psi = MonotoneScore(
        np.sort(size * rng.standard_normal(knots)), np.sort(rng.standard_normal(knots)) / size
    )
    return Z, y, rng.random(n), rng.random(n), *(size * rng.standard_normal((2, width))), psi


def compiled(Z, y, v, reach, theta, plain, psi):
    return score_sums(Z, y, v, reach, theta, plain, psi.knots, psi.values, MEAN, INFORMATION)


def by_arrays(Z, y, v, reach, theta, plain, psi):
    r = y - Z @ theta
    at, between = np.interp(r, psi.knots, psi.values), np.diff(psi.values) / np.diff(psi.knots)
    slopes = np.concatenate([[0.0], between, [0.0]])[np.searchsorted(psi.knots, r)]
    pull = v * at
    move = v * ((at - MEAN) / INFORMATION - (y - Z @ plain))
    numbers = [v.sum(), pull.sum(), v @ slopes, pull @ pull, v @ pull, v @ v, v @ reach, reach @ move**2]
    return np.concatenate([pull @ Z, v @ Z, numbers])


@given(
    st.integers(0, 700),
    st.integers(1, 12),
    st.integers(1, 60),
    st.integers(0, 99),
    st.sampled_from([1e-8, 1, 1e12]),
)
def test_sums_are_those_of_whole_arrays(n, width, knots, seed, size):
    rows = problem(n, width, knots, seed, size)
    expected = by_arrays(*rows)
    np.testing.assert_allclose(
        compiled(*rows), expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max(initial=0)
    )


@pytest.mark.parametrize("width", [2, 9])
def test_no_weights_are_ones(width):
    Z, y, v, *rest = problem(300, width, 9)
    np.testing.assert_allclose(compiled(Z, y, None, *rest), compiled(Z, y, np.ones_like(v), *rest))


def test_a_residual_on_a_knot_belongs_to_the_interval_before():
    psi = MonotoneScore(np.array([-1.0, 0.0, 2.0]), np.array([-2.0, 0.0, 1.0]))
    one = np.ones(1)
    for r in (-3.0, -1.0, -0.5, 0.0, 1.0, 2.0, 5.0):
        rows = one[:, None], np.array([r]), one, one, 0 * one, 0 * one, psi
        np.testing.assert_allclose(compiled(*rows), by_arrays(*rows), atol=1e-13)


def test_what_is_no_number_stays_none():
    Z, y, *rest = problem(20, 2, 9)
    y[3] = np.nan
    assert np.isnan(compiled(Z, y, *rest)[:2]).all()


@pytest.mark.parametrize("wrong", ["y", "theta", "knots"])
def test_shapes_that_do_not_fit_are_refused(wrong):
    Z, y, v, reach, theta, plain, psi = problem(20, 2, 9)
    cut = {"y": y, "theta": theta, "knots": psi.knots}
    cut[wrong] = cut[wrong][:-1]
    with pytest.raises(ValueError, match="knots|values" if wrong == "knots" else wrong):
        score_sums(Z, cut["y"], v, reach, cut["theta"], plain, cut["knots"], psi.values, MEAN, INFORMATION)


@pytest.mark.parametrize("seed", range(5))
def test_majorant_is_the_highest_chord_over_every_point(seed):
    rng = np.random.default_rng(seed)
    u, J = np.sort(rng.random(12)), rng.random(12)
    corners = concave_corners(u, J)
    highest = J.copy()
    for a, b, c in itertools.product(range(12), repeat=3):
        if a < b < c:
            highest[b] = max(highest[b], J[a] + (J[c] - J[a]) * (u[b] - u[a]) / (u[c] - u[a]))
    np.testing.assert_allclose(np.interp(u, u[corners], J[corners]), highest, rtol=1e-12)


@pytest.mark.parametrize("knots", [2, 5, 30])
def test_scores_of_rows_are_those_of_the_pieces(knots):
    """As NumPy interpolates; on a knot ψ′ is the mean of both sides, and beyond the ends it is zero."""
    rng = np.random.default_rng(knots)
    at, values = np.sort(rng.standard_normal(knots)), np.sort(rng.standard_normal(knots))
    r = np.concatenate([at, 2.0 * rng.standard_normal(600)])
    psi, slopes = score_of_rows(r, at, values)
    np.testing.assert_allclose(psi, np.interp(r, at, values), atol=1e-14)
    pieces = np.concatenate([[0.0], np.diff(values) / np.diff(at), [0.0]])
    np.testing.assert_allclose(slopes[:knots], 0.5 * (pieces[1:] + pieces[:-1]), rtol=1e-14)
    np.testing.assert_allclose(slopes[knots:], pieces[np.searchsorted(at, r[knots:])], rtol=1e-14)
