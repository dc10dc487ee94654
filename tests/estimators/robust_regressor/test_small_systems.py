"""Systems by factorisation beside the singular value decomposition, which they stand in for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailproof.estimators.robust_regressor.small_systems import inverse_of, rank_of, solved, squared_lengths

SEEDS = st.integers(0, 10**6)


def system(seed, size, scale, symmetric):
    rng = np.random.default_rng(seed)
    matrix = scale * rng.standard_normal((size, size))
    return (matrix @ matrix.T if symmetric else matrix), rng.standard_normal(size)


@given(SEEDS, st.integers(1, 12), st.sampled_from([1e-8, 1.0, 1e12]), st.booleans())
def test_regular_systems(seed, size, scale, symmetric):
    matrix, side = system(seed, size, scale, symmetric)
    close = 1e-12 * np.linalg.cond(matrix)
    x = np.linalg.lstsq(matrix, side)[0]
    np.testing.assert_allclose(solved(matrix, side), x, atol=close * np.abs(x).max(), rtol=0)
    inverse = np.linalg.pinv(matrix)
    np.testing.assert_allclose(inverse_of(matrix), inverse, atol=close * np.abs(inverse).max(), rtol=0)


@given(SEEDS, st.integers(2, 12), st.sampled_from(["equal columns", "zero column", "nothing"]))
def test_singular_systems_have_the_shortest_solution(seed, size, kind):
    matrix, side = system(seed, size, 1.0, symmetric=False)
    if kind == "nothing":
        matrix[:] = 0.0
    else:
        matrix[:, -1] = matrix[:, 0] if kind == "equal columns" else 0.0
    np.testing.assert_array_equal(solved(matrix, side), np.linalg.lstsq(matrix, side)[0])
    np.testing.assert_array_equal(inverse_of(matrix), np.linalg.pinv(matrix))


def test_rounding_of_a_singular_matrix_is_not_made_large():
    """Sums over many rows leave more of it than one operation does."""
    matrix = np.diag([1.0, 1.0, 1e-14])
    np.testing.assert_array_equal(inverse_of(matrix), np.diag([1.0, 1.0, 0.0]))
    np.testing.assert_array_equal(solved(matrix, np.ones(3)), [1.0, 1.0, 0.0])


def test_what_is_given_stays_as_it_was():
    matrix, side = np.asfortranarray(np.diag([2.0, 4.0])), np.array([1.0, 1.0])
    solved(matrix, side)
    inverse_of(matrix)
    assert matrix.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert side.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (0, 2)])
def test_squared_lengths(shape):
    rng = np.random.default_rng(0)
    rows, matrix = rng.standard_normal(shape), rng.standard_normal((shape[1], shape[1]))
    slow = [row @ matrix @ row for row in rows]
    np.testing.assert_allclose(squared_lengths(rows, matrix), slow, rtol=1e-12)


def test_empty_systems_are_solved_without_a_word(capfd):
    nothing = np.empty((0, 0))
    assert solved(nothing, np.empty(0)).shape == (0,)
    assert inverse_of(nothing).shape == (0, 0)
    assert rank_of(nothing) == 0
    assert capfd.readouterr().err == ""
