"""Compiled scores and sums of them, beside the same by whole arrays."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailproof.estimators.robust_regressor.monotone_score import MonotoneScore
from tailproof.native.scores import best_score, concave_corners, pulls_of_noise, score_of_rows, score_sums

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


def slow_quantiles(ordered, below, shares):
    at = np.searchsorted(below, np.stack([shares - 1e-10, shares + 1e-10]))
    return ordered[np.minimum(at, ordered.size - 1)].mean(axis=0)


def slow_score(ordered, below, bins):
    """By whole arrays, with the majorant by all chords."""
    inner = slow_quantiles(ordered, below, np.arange(1, bins) / bins)
    edges = np.concatenate([ordered[:1], inner, ordered[-1:]])
    narrowest = 1e-9 * (edges[3 * bins // 4] - edges[bins // 4])
    u = np.concatenate([[0.0], (np.arange(bins) + 0.5) / bins, [1.0]])
    J = np.concatenate([[0.0], 1 / (bins * np.maximum(np.diff(edges), narrowest)), [0.0]])
    kept = [
        b
        for b in range(bins + 2)
        if not any(
            J[a] + (J[c] - J[a]) * (u[b] - u[a]) / (u[c] - u[a]) >= J[b]
            for a, c in itertools.product(range(b), range(b + 1, bins + 2))
        )
    ]
    u, J = u[kept], J[kept]
    knots = slow_quantiles(ordered, below, 0.5 * (u[1:] + u[:-1]))
    apart = np.append(True, np.diff(knots) > 0)
    return knots[apart], (-np.diff(J) / np.diff(u))[apart]


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(("n", "bins"), [(64, 8), (65, 8), (1_000, 31), (1_600, 40)])
def test_the_best_score_is_that_of_whole_arrays(n, bins, even):
    rng = np.random.default_rng([n, even])
    ordered = np.sort(rng.lognormal(0, 1.5, n) - 3.0)
    v = np.full(n, 1 / n) if even else rng.uniform(0.5, 2.0, n)
    below = np.cumsum(v / v.sum())
    found = best_score(ordered, None if even else below, bins, 1e-10, 1e-9)
    for ours, slow in zip(found, slow_score(ordered, below, bins), strict=True):
        np.testing.assert_allclose(ours, slow, rtol=1e-9)
    np.testing.assert_allclose(best_score(ordered, below, bins, 1e-10, 1e-9)[0], found[0], rtol=1e-12)


def test_residuals_of_which_half_are_alike_have_no_score():
    assert not best_score(np.append(np.zeros(90), np.arange(10.0)), None, 10, 1e-10, 1e-9)[0].size
    assert not best_score(np.array([0.0, np.inf]), None, 8, 1e-10, 1e-9)[0].size
    with pytest.raises(ValueError, match="from 1 to 64"):
        best_score(np.arange(9.0), None, 65, 1e-10, 1e-9)


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


@pytest.mark.parametrize("n", [3, 256, 700])
def test_pulls_of_noise_are_those_of_its_law(n):
    rng = np.random.default_rng(n)
    noise, v = rng.exponential(size=n), rng.uniform(0.5, 2.0, n)
    v /= v.sum()
    knots, values = np.array([0.1, 0.5, 1.5]), np.array([-1.0, 0.2, 0.3])
    psi, slope = score_of_rows(noise, knots, values)
    h, mean = psi - v @ psi, v @ noise
    variance, tall = v @ (noise - mean) ** 2, v @ (h * noise)
    rows, means, sizes, factors = pulls_of_noise(noise, v, knots, values, 1e-300)
    np.testing.assert_allclose(rows, v * h, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(means, v * noise / variance, rtol=1e-10)
    np.testing.assert_allclose(sizes, v * (h * noise - tall), rtol=1e-9, atol=1e-15)
    steep = v * slope
    expected = [steep.sum(), steep @ noise, steep @ noise**2 + tall, 1.0 / variance]
    np.testing.assert_allclose(factors, expected, rtol=1e-10, atol=1e-15)
    assert pulls_of_noise(noise, v, knots, values, 1e3)[3][3] == 1e-3
