"""Compiled sums over rows for levels of truncation, beside the same in NumPy."""

import numpy as np
import pytest

from tailproof.core.validate import resistance, resistant_mean
from tailproof.estimators.robust_regressor.levels import Levels, influence, psi_slopes
from tailproof.estimators.robust_regressor.tuning import DEFAULT
from tailproof.native.levels import (
    LevelMoments,
    LevelSums,
    SizeMeasure,
    level_pulls,
    level_residuals,
    level_weights,
    log_size_sums,
    means_of_rest,
    row_products,
)

N, D = 1_000, 3  # more rows than are taken at a time, and no multiple of that


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    Z, y = rng.standard_normal((N, D)), rng.standard_t(2, N)
    levels = Levels(np.array([3.0, 0.5, np.inf]), np.zeros(3), np.zeros(3), np.array([4.7, 0.0, 0.0]))
    return Z, y, rng.uniform(0.5, 2, N), levels, 0.3 * rng.standard_normal((D, 3))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_sums_of_every_fold_are_those_of_its_rows(problem, weighted, exact):
    Z, y, weights, levels, phi = problem
    ends, floor = np.array([0, 430, N]), DEFAULT.truncated_curvature
    sums = LevelSums.zero(phi, levels.tau, levels.bisquare, floor, exact, 3, True)
    sums.add(Z, y, weights if weighted else None, ends)
    v, r = weights if weighted else np.ones(N), y - phi.T @ Z.T
    (psi, rho), slopes = influence(r, levels), psi_slopes(r, levels, DEFAULT, exact)
    assert not sums.value[0].any()
    for k, part in ((1, slice(0, 430)), (2, slice(430, N))):
        np.testing.assert_allclose(sums.value[k], (rho * v)[:, part].sum(axis=1))
        np.testing.assert_allclose(sums.gradient[k], Z[part].T @ (psi * v)[:, part].T)
        hessians = [(Z[part].T * (slope * v)[part]) @ Z[part] for slope in slopes]
        np.testing.assert_allclose(sums.hessian[k], np.stack(hessians, axis=-1))


def test_folds_must_end_one_after_the_other(problem):
    Z, y, _, levels, phi = problem
    sums = LevelSums.zero(phi, levels.tau, levels.bisquare, 0.0, False, 2, False)
    for ends in ([200, 100], [100, N - 1], [-1, N]):
        with pytest.raises(ValueError, match="folds must end"):
            sums.add(Z, y, None, np.array(ends))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("named", [0, 1, 2])
def test_moments_are_those_of_all_rows(problem, weighted, named):
    Z, y, v, levels, phi = problem
    reach, v = np.random.default_rng(1).uniform(0, 2, N), v if weighted else np.ones(N)
    moments = LevelMoments.zero(phi, levels.tau, levels.bisquare, named, DEFAULT.truncated_curvature)
    for part in (slice(0, 50), slice(50, N)):
        moments.add(Z[part], y[part], v[part] if weighted else None, reach[part])
    r = y - phi.T @ Z.T
    psi, slopes = influence(r, levels)[0] * (v * np.sqrt(reach)), psi_slopes(r, levels, DEFAULT, exact=True)
    np.testing.assert_allclose(moments.slope, slopes @ v)
    np.testing.assert_allclose(moments.inside, (slopes * r) @ v)
    products = psi @ psi.T
    np.testing.assert_allclose(moments.products, [np.diag(products), products[named]])


@pytest.mark.parametrize("named", [-1, 3])
def test_moments_with_a_level_that_is_not_there_are_refused(problem, named):
    _, _, _, levels, phi = problem
    with pytest.raises(IndexError, match="the level named"):
        LevelMoments.zero(phi, levels.tau, levels.bisquare, named, 0.0)


@pytest.mark.parametrize("n", [0, 1, 383, 1_000])
@pytest.mark.parametrize("d", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_of_rows(n, d, weighted):
    rng = np.random.default_rng(n + d)
    Z, v = rng.standard_normal((n, d)), rng.uniform(0.5, 2, n) if weighted else None
    sums, products = row_products(Z, v)
    shares = np.ones(n) if v is None else v
    np.testing.assert_allclose(sums, shares @ Z, atol=1e-12)
    np.testing.assert_allclose(products, (Z.T * shares) @ Z, atol=1e-12)
    np.testing.assert_array_equal(products, products.T)


@pytest.mark.parametrize("d", [0, 1, 2, 3, 7])
def test_residuals_of_a_level(d):
    rng = np.random.default_rng(d)
    Z, y, phi = rng.standard_normal((N, d)), rng.standard_normal(N), rng.standard_normal(d)
    np.testing.assert_allclose(level_residuals(Z, y, phi), y - Z @ phi, atol=1e-12)


def test_pulls_are_those_of_whole_arrays(problem):
    Z, y, v, levels, phi = problem
    r, floor = y - phi.T @ Z.T, DEFAULT.truncated_curvature
    psi, slopes = level_pulls(r, v, levels.tau, levels.bisquare, floor)
    np.testing.assert_allclose(psi, influence(r, levels)[0], atol=1e-14)
    np.testing.assert_allclose(slopes, psi_slopes(r, levels, DEFAULT, exact=True) @ v)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_sums_of_sizes_are_those_of_whole_arrays(problem, weighted, level):
    Z, y, weights, levels, phi = problem
    v, r = weights if weighted else np.ones(N), y - Z @ phi[:, level]
    r[:4] = 0.3, 0.3 + 1e-15, 1e150, -1e-12  # from the middle itself to far out
    how = SizeMeasure(float(levels.tau[level]), float(levels.bisquare[level]), 0.3, 1e-3, 0.2)
    r[2] = 1e150 if level < 2 else 1e3  # times 0.2 it would be all that is left
    found = log_size_sums(Z, r, weights if weighted else None, how, 0.1 * np.ones(D))
    psi = influence(r[None], levels.only([level]))[0][0]
    t = np.log(np.abs(r - 0.3) + 1e-3) - 0.2 * psi - 0.1 * Z.sum(axis=1)
    np.testing.assert_allclose(found[:2], [v @ t, v @ t**2])
    np.testing.assert_allclose(found[2:], np.concatenate([(v * t) @ Z, v @ Z]), atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_sizes_of_what_is_no_number_are_none(bad):
    how = SizeMeasure(1.0, 0.0, 0.0, 1.0, 0.0)
    assert not np.isfinite(log_size_sums(np.ones((1, 1)), np.array([bad]), None, how, np.zeros(1))[0])


def test_weights_of_rows_are_shares_of_the_residuals_kept(problem):
    Z, y, _, levels, phi = problem
    shares, y[7] = np.array([0.5, 0.3, 0.2]), 0.0
    Z[7] = 0.0  # a residual of zero counts in full
    r = y - phi.T @ Z.T
    ratio = np.divide(influence(r, levels)[0], r, out=np.ones_like(r), where=r != 0)
    found = level_weights(Z, y, phi, levels.tau, levels.bisquare, shares)
    np.testing.assert_allclose(found, shares @ ratio)
    assert found[7] == pytest.approx(1.0)


@pytest.mark.parametrize("alike", [False, True])
def test_means_of_the_rows_that_are_not_in_a_fold(alike):
    rng, tau = np.random.default_rng(3), np.array([1.0, np.inf, 2.0])
    y, ends = rng.lognormal(0, 1, 1_200), np.array([400, 800, 1_200])
    p = rng.standard_normal((3, 1, 1)) + 1e-3 * rng.standard_normal((3, 3, 1_200))
    found = means_of_rest(p, y, ends, tau, alike, [resistance(800, 0.05, 1.0)] * 3)
    assert not found[:, 1].any()
    for k, level in ((0, 0), (1, 2), (2, 0), (2, 2)):
        rest = np.delete(y - p[k, level], slice(ends[k] - 400, ends[k]))
        limit = 0.0 if level == 0 or not alike else 1e-3
        assert abs(found[k, level] - resistant_mean(rest, 0.05)) <= limit + 1e-12


def test_means_of_rest_refuse_folds_out_of_order():
    p, how = np.zeros((2, 1, 100)), [resistance(50, 0.05, 1.0)] * 2
    for ends in ([60, 50], [50, 99], [-1, 100]):
        with pytest.raises(ValueError, match="folds must end"):
            means_of_rest(p, np.zeros(100), np.array(ends), np.ones(1), True, how)
