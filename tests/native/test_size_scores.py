"""Sums where the noise is s(x) times one law, against the same written with whole arrays."""

import numpy as np
import pytest

from tailproof.native.size_scores import SizeLaw, lengths_of_rows, size_sums, sizes_of_rows

LARGEST = 100.0


def law_of(random, columns, both_sides):
    columns = np.asarray(columns, dtype=np.int64)
    gamma = 0.3 * random.standard_normal(columns.size * (2 if both_sides else 1) + 1)
    return SizeLaw(columns, both_sides, gamma, 1.5, -0.6, LARGEST, 0.2, 0.9, 0.1, -0.3)


def features(z, both_sides):
    return np.column_stack([z, *([np.abs(z)] if both_sides else []), np.ones(len(z))])


def expected_sizes(Z, law):
    z = Z[:, law.columns]
    near = features(np.clip(z, -law.reach, law.reach), law.both_sides) @ law.gamma
    far = (np.abs(z) > law.reach).any(axis=1)
    grown = np.where(far, np.maximum(near, features(z, law.both_sides) @ law.gamma), near)
    return np.exp(np.clip(grown, law.least, law.largest))


def rows_of(random, n, width):
    Z = random.standard_normal((n, width))
    Z[:, -1] = 1.0
    return Z, Z.sum(axis=1) + random.standard_t(3, n), random.random(n)


@pytest.mark.parametrize("both_sides", [False, True])
@pytest.mark.parametrize("columns", [[], [2], [0, 1, 4]])
@pytest.mark.parametrize("n", [0, 1, 5, 16, 131])
def test_sums_and_sizes(n, columns, both_sides):
    random = np.random.default_rng(n)
    width, law = 5, law_of(random, columns, both_sides)
    Z, y, v = rows_of(random, n, width)
    theta, plain = random.standard_normal((2, width))
    matrix = random.standard_normal((2 * width + 1 + law.features, width))
    sums, sizes = size_sums(Z, y, v, theta, plain, law, matrix)
    s = expected_sizes(Z, law)
    u = (y - Z @ theta) / s - law.kappa
    pull, tall = np.clip(u, -law.tau, law.tau) / s, np.log(np.abs(u) + law.offset) - law.middle
    f = features(np.clip(Z[:, law.columns], -law.reach, law.reach), both_sides)
    parts = [pull[:, None] * Z, (u + law.kappa)[:, None], tall[:, None] * f]
    factors = np.column_stack([parts[0], (y - Z @ plain)[:, None] * Z, *parts[1:]])
    expected = [*(v @ part for part in parts), v @ Z, [v.sum(), v @ v], v**2 @ (factors @ matrix) ** 2]
    np.testing.assert_allclose(sizes, s, rtol=1e-13)
    np.testing.assert_allclose(sizes_of_rows(Z, law), s, rtol=1e-13)
    np.testing.assert_allclose(sums, np.concatenate(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", [1, 4, 27])
@pytest.mark.parametrize("directions", [1, 8, 9])
@pytest.mark.parametrize("both_sides", [False, True])
def test_lengths(n, directions, both_sides):
    random = np.random.default_rng(n)
    law, (Z, _, _) = law_of(random, [0, 3], both_sides), rows_of(random, n, 5)
    matrix = random.standard_normal((6 + law.features, directions))
    f = features(np.clip(Z[:, law.columns], -law.reach, law.reach), both_sides)
    image = np.column_stack([Z / expected_sizes(Z, law)[:, None], np.ones(n), f]) @ matrix
    np.testing.assert_allclose(lengths_of_rows(Z, law, matrix), (image**2).sum(axis=1), rtol=1e-12)


def test_matrices_of_another_shape_are_refused():
    law, Z, y = law_of(np.random.default_rng(0), [1], False), np.ones((4, 3)), np.ones(4)
    with pytest.raises(ValueError, match="matrix must have 6 rows; got 2"):
        lengths_of_rows(Z, law, np.ones((2, 3)))
    with pytest.raises(ValueError, match="matrix must have 9 rows; got 2"):
        size_sums(Z, y, y, np.ones(3), np.ones(3), law, np.ones((2, 3)))


def test_without_a_matrix_there_are_no_squares():
    random = np.random.default_rng(0)
    law, (Z, y, v) = law_of(random, [1], False), rows_of(random, 40, 3)
    matrix = random.standard_normal((9, 3))
    some, all_sums = (size_sums(Z, y, v, np.ones(3), np.zeros(3), law, given)[0] for given in (None, matrix))
    assert np.array_equal(some, all_sums[:-3])


def test_columns_that_are_not_there_are_refused():
    law = law_of(np.random.default_rng(0), [3], False)
    with pytest.raises(IndexError, match="columns must be from 0 to 2"):
        sizes_of_rows(np.ones((4, 3)), law)


def test_sizes_are_exponentials_to_the_last_digits():
    z = np.random.default_rng(3).uniform(-700, 100, (20_000, 1))
    law = SizeLaw(np.array([0]), False, np.array([1.0, 0.0]), 1e3, -705.0, 100.0)
    np.testing.assert_allclose(sizes_of_rows(z, law), np.exp(z[:, 0]), rtol=5e-16)
    assert np.isnan(sizes_of_rows(np.array([[np.nan]]), law)).all()
