"""Compiled searches of fits: beside solved equations, beside each other, and what they refuse."""

import numpy as np
import pytest

from tailproof.native.fit_search import Penalised, Steps, search_fits, search_start
from tailproof.native.searches import Fits, pulls_of_fits

N, D = 203, 19
FINE = Steps(20, 0.0, 1e-6, 0.5, 0.03, 0.01, whole=False)


def table(d=D, n=N, damping=0.0):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d))
    y = X[:, 0] + rng.standard_t(2.0, n)
    return Penalised(X, rng.uniform(0.5, 2.0, d), 0.1 * rng.standard_normal(d), damping, 50), y


def fits_of(parts, tau, tukey):
    """All levels on every part of the rows."""
    count, times = len(tau), len(parts)
    return Fits(parts, np.repeat(np.arange(times), count), np.tile(tau, times), np.tile(tukey, times))


def shares(parts=1, left_out=5):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, (parts, N))
    for k in range(parts if parts > 1 else 0):
        weights[k, k::left_out] = 0.0
    return weights / weights.sum(axis=1)[:, None]


def gradients(rows, y, fits, ridge, phi):
    pull, _ = pulls_of_fits(y - phi @ rows.X.T, fits, 0.01)
    penalty = phi * rows.inverse - np.outer(phi @ rows.constant, rows.constant)
    return np.linalg.norm(pull @ rows.X - ridge[:, None] * penalty, axis=1)


def searched(rows, y, fits, ridge, steps=FINE):
    count = fits.tau.size
    phi, residuals = np.zeros((count, rows.X.shape[1])), np.tile(y, (count, 1))
    search_fits(rows, fits, ridge, steps, phi, residuals)
    return phi, residuals


@pytest.mark.parametrize("d", [1, 15, 16, 17, 40])
def test_least_squares_is_that_of_normal_equations(d):
    rows, y = table(d, damping=0.02)
    fits, ridge = fits_of(shares(), np.full(3, np.inf), np.zeros(3)), np.array([0.0, 0.1, 3.0])
    phi, _ = searched(rows, y, fits, ridge)
    gram = (rows.X.T * fits.shares[0]) @ rows.X
    S = np.diag(rows.inverse) - np.outer(rows.constant, rows.constant)
    for found, penalty in zip(phi, ridge, strict=True):
        exact = np.linalg.solve(gram + penalty * S, (rows.X.T * fits.shares[0]) @ y)
        np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("n", [60, N])
def test_gradients_of_hubers_levels_vanish(n):
    rows, y = table(n=n)
    even = np.full((1, n), 1 / n)
    fits, ridge = fits_of(even, np.array([0.3, 1.0, 5.0, np.inf]), np.zeros(4)), np.full(4, 0.01)
    phi, residuals = searched(rows, y, fits, ridge)
    assert np.all(gradients(rows, y, fits, ridge, phi) < 1e-5)
    np.testing.assert_allclose(residuals, y - phi @ rows.X.T, atol=1e-4)


def test_tukeys_levels_go_on_from_where_they_are():
    rows, y = table()
    fits, ridge = fits_of(shares(), np.array([4.0, 9.0]), np.array([4.7, 10.0])), np.zeros(2)
    start = np.tile(np.linalg.lstsq(rows.X, np.clip(y, -3, 3), rcond=None)[0], (2, 1))
    phi, residuals = start.copy(), y - start @ rows.X.T
    search_fits(rows, fits, ridge, FINE, phi, residuals)
    assert np.all(gradients(rows, y, fits, ridge, phi) < 1e-4 * gradients(rows, y, fits, ridge, start))


def test_what_is_found_does_not_depend_on_other_fits():
    """Up to four fits share a reading of the rows, and take part in it as long as they move."""
    rows, y = table()
    fits = fits_of(shares(3), np.array([0.2, 0.5, 1.0, 2.0, np.inf, 0.4, 3.0]), np.zeros(7))
    ridge = np.tile(np.linspace(0.0, 0.5, 7), 3)
    together, _ = searched(rows, y, fits, ridge)
    for m in range(fits.tau.size):
        alone, _ = searched(rows, y, fits.only(np.array([m])), ridge[[m]])
        np.testing.assert_array_equal(alone[0], together[m])


def test_rows_without_a_share_do_not_count():
    rows, y = table()
    parts = shares(2)
    fits, ridge = fits_of(parts, np.array([0.5, np.inf]), np.zeros(2)), np.full(4, 0.1)
    phi, residuals = searched(rows, y, fits, ridge)
    for part in (0, 1):
        seen = parts[part] > 0
        rest = Penalised(rows.X[seen], rows.inverse, rows.constant, 0.0, 50)
        own = fits_of(parts[part][None, seen], np.array([0.5, np.inf]), np.zeros(2))
        exact, _ = searched(rest, y[seen], own, ridge[:2])
        np.testing.assert_array_equal(phi[2 * part : 2 * part + 2], exact)
        np.testing.assert_array_equal(residuals[2 * part, ~seen], y[~seen])


def test_a_whole_first_step_forgets_what_rows_do_not_have():
    """Directions without a row go to zero by the damping, if the system is solved exactly enough."""
    rows, y = table(damping=1e-3)
    rows.X[:, -1] = 0.0
    rows.constant[-1] = 0.0
    fits = fits_of(shares(), np.array([0.5, np.inf]), np.zeros(2))
    phi = np.ones((2, D))
    residuals = y - phi @ rows.X.T
    search_fits(rows, fits, np.zeros(2), Steps(0, 1e-7, 0.0, 0.5, 1e-7, 0.01, whole=True), phi, residuals)
    np.testing.assert_allclose(phi[:, -1], 0.0, atol=1e-3)


def test_the_start_is_hubers_regression_with_the_size_of_a_rank():
    rows, y = table()
    rank, phi, residuals = 150, np.zeros(D), y.copy()
    search_start(rows, rank, 200, 0.0, 1e-3, 1e-7, phi, residuals)
    r = y - rows.X @ phi
    tau = np.sort(np.abs(r))[rank]
    np.testing.assert_allclose(residuals, r, atol=1e-4)
    assert np.linalg.norm(np.clip(r, -tau, tau) @ rows.X / N) < 1e-4 * np.linalg.norm(y @ rows.X / N)


def test_no_unit_of_targets_is_too_large_or_too_small():
    rows, y = table()
    ridge, even = np.full(2, 0.1), np.full((1, N), 1 / N)
    one, other = (
        searched(rows, unit * y, fits_of(even, unit * np.array([0.5, np.inf]), np.zeros(2)), ridge)[0] / unit
        for unit in (1.0, 1e9)
    )
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_arrays_that_do_not_match_are_refused():
    rows, y = table()
    fits, none = fits_of(shares(), np.ones(1), np.zeros(1)), np.zeros(1)
    with pytest.raises(ValueError, match="residuals"):
        search_fits(rows, fits, none, FINE, np.zeros((1, D)), np.zeros((1, N - 1)))
    with pytest.raises(ValueError, match="phi"):
        search_fits(rows, fits, none, FINE, np.zeros((1, D + 1)), y[None].copy())
    bad = Fits(fits.shares, np.ones(1, dtype=np.int64), fits.tau, fits.tukey)
    with pytest.raises(IndexError):
        search_fits(rows, bad, none, FINE, np.zeros((1, D)), y[None].copy())
    with pytest.raises(IndexError):
        search_start(rows, N, 9, 0.0, 0.1, 0.1, np.zeros(D), y.copy())
