"""Covariances of slopes over all rows, which some of them carry over to slopes nearby."""

import numpy as np

from tailproof.estimators.robust_regressor.covariances import carried_over

RNG = np.random.default_rng(0)
ROOT = RNG.standard_normal((5, 5))
OF_ALL = ROOT @ ROOT.T  # far from the identity, which it is for some rows
KNOWN = np.column_stack([RNG.standard_normal((5, 2)) * [1.0, 1e-4], np.zeros(5)])
FOUND = KNOWN.T @ OF_ALL @ KNOWN


def test_they_are_those_of_all_rows_where_these_know_them():
    slopes = KNOWN @ RNG.standard_normal((3, 4))
    np.testing.assert_allclose(carried_over(KNOWN, FOUND, slopes), slopes.T @ OF_ALL @ slopes, rtol=1e-9)


def test_of_what_is_across_the_known_ones_some_rows_tell():
    across = np.linalg.svd(KNOWN)[0][:, 2:]
    np.testing.assert_allclose(carried_over(KNOWN, FOUND, across), np.eye(3), atol=1e-9)


def test_a_small_step_from_there_leaves_a_small_error():
    step = 1e-3 * RNG.standard_normal((5, 3)) * np.linalg.norm(KNOWN, axis=0)
    exact = (KNOWN + step).T @ OF_ALL @ (KNOWN + step)
    np.testing.assert_allclose(np.diag(carried_over(KNOWN, FOUND, KNOWN + step)), np.diag(exact), rtol=0.01)


def test_slopes_that_are_nearly_the_same_make_no_huge_shares():
    twice = KNOWN[:, [0, 0]] + 1e-12 * RNG.standard_normal((5, 2))
    slopes = twice[:, :1] + 1e-3 * RNG.standard_normal((5, 1))
    found = carried_over(twice, twice.T @ OF_ALL @ twice, slopes)
    np.testing.assert_allclose(found, slopes.T @ OF_ALL @ slopes, rtol=0.01)


def test_where_they_are_no_numbers_some_rows_tell():
    found = carried_over(KNOWN, np.full((3, 3), np.nan), KNOWN)
    np.testing.assert_array_equal(found, KNOWN.T @ KNOWN)
