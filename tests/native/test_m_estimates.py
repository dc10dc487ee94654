"""Compiled medians of block means, beside the same in NumPy."""

import numpy as np
import pytest

from tailproof.native.m_estimates import block_medians, block_sums


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("n", "k"), [(7, 1), (100, 2), (1_000, 33), (50_000, 5), (64, 64)])
def test_medians_are_those_of_the_means_of_blocks(n, k, squared, dtype):
    values = np.random.default_rng(n).standard_t(2, (3, n)).astype(dtype)
    values[1] = np.round(values[1])  # ties
    centres = np.array([0.0, 1.0, -2.0])
    sums, totals = block_sums(values, np.empty(0), k, centres, squared)
    found = block_medians(values, k, centres, squared)
    np.testing.assert_allclose(found, np.median(sums / totals, axis=1), rtol=1e-14)


def test_a_block_that_is_not_finite_spoils_its_row_alone():
    values = np.ones((3, 40))
    values[1, 3], values[2, 5] = np.nan, np.inf
    found = block_medians(values, 4, np.zeros(3), False)
    assert np.isnan(found).tolist() == [False, True, True]
