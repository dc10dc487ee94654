"""Sums where the noise is s(x) times one law, against the same written with whole arrays."""

import numpy as np
import pytest

from tailproof.native.size_pass import SizePass, SizePassSums
from tailproof.native.size_scores import SizeModel, SizeSlopes, lengths_of_rows, size_sums, sizes_of_rows

LARGEST = 100.0


def model_of(random, columns, both_sides):
    columns = np.asarray(columns, dtype=np.int64)
    gamma = 0.3 * random.standard_normal(columns.size * (2 if both_sides else 1) + 1)
    return SizeModel(columns, both_sides, gamma, 1.5, -0.6, LARGEST, 0.2, 0.9, 0.1, -0.3)


def features(z, both_sides):
    return np.column_stack([z, *([np.abs(z)] if both_sides else []), np.ones(len(z))])


def expected_sizes(Z, model):
    z = Z[:, model.columns]
    near = features(np.clip(z, -model.reach, model.reach), model.both_sides) @ model.gamma
    far = (np.abs(z) > model.reach).any(axis=1)
    grown = np.where(far, np.maximum(near, features(z, model.both_sides) @ model.gamma), near)
    return np.exp(np.clip(grown, model.least, model.largest))


def rows_of(random, n, width):
    Z = random.standard_normal((n, width))
    Z[:, -1] = 1.0
    return Z, Z.sum(axis=1) + random.standard_t(3, n), random.random(n)


def expected_sums(Z, y, v, theta, plain, model, matrix):
    s = expected_sizes(Z, model)
    u = (y - Z @ theta) / s - model.kappa
    pull, tall = np.clip(u, -model.tau, model.tau) / s, np.log(np.abs(u) + model.offset) - model.middle
    f = features(np.clip(Z[:, model.columns], -model.reach, model.reach), model.both_sides)
    parts = [pull[:, None] * Z, (u + model.kappa)[:, None], tall[:, None] * f]
    factors = np.column_stack([parts[0], (y - Z @ plain)[:, None] * Z, *parts[1:]])
    squares = np.empty(0) if matrix is None else v**2 @ (factors @ matrix) ** 2
    return np.concatenate([*(v @ part for part in parts), [v.sum(), v @ v], squares])


@pytest.mark.parametrize("both_sides", [False, True])
@pytest.mark.parametrize("columns", [[], [2], [0, 1, 4]])
@pytest.mark.parametrize("n", [0, 1, 5, 16, 131])
def test_sums_and_sizes(n, columns, both_sides):
    random = np.random.default_rng(n)
    width, model = 5, model_of(random, columns, both_sides)
    Z, y, v = rows_of(random, n, width)
    theta, plain = random.standard_normal((2, width))
    matrix = random.standard_normal((2 * width + 1 + model.features, width))
    found = size_sums(Z, y, v, theta, plain, model, matrix)
    np.testing.assert_allclose(sizes_of_rows(Z, model), expected_sizes(Z, model), rtol=1e-13)
    np.testing.assert_allclose(
        found, expected_sums(Z, y, v, theta, plain, model, matrix), rtol=1e-10, atol=1e-12
    )


def expected_level(Z, y, v, theta, model, asked, numbers):
    """Sums for the mean of what slopes alone leave."""
    r, w = y - Z[:, :-1] @ theta[:-1], v / expected_sizes(Z, model) ** 2
    blocks, catoni, e = np.zeros((3, asked.blocks)), np.zeros(2), r - asked.centre
    if asked.reach:
        x = e / asked.reach
        inside, near = np.clip(x, -np.sqrt(2), np.sqrt(2)), np.abs(x) <= np.sqrt(2)
        blocks[2, 0] = w.sum()
        catoni[:] = w @ (inside - inside**3 / 6), w @ np.where(near, 1 - x**2 / 2, 0.0)
    else:
        block = numbers // asked.run % asked.blocks
        blocks[:] = [np.bincount(block, values, asked.blocks) for values in (w * r, w * r**2, w)]
    own, even = w * e, v * e
    return np.concatenate([blocks.ravel(), catoni, [w @ w, own @ own, own @ even, even @ even, v.sum()]])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reach", [0.0, 0.8])
@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("sizes", [[0], [1, 5], [16, 16], [40, 3, 91]])
def test_a_pass_over_rows_as_they_are(sizes, judged, reach, weighted):
    random = np.random.default_rng(sum(sizes))
    n, d = sum(sizes), 5
    model = model_of(random, [0, 3], True)
    X, offset, scale = 3.0 + random.standard_normal((n, d)), 3.0 + random.random(d), 0.5 + random.random(d)
    Z = np.column_stack([(X - offset) / scale, np.ones(n)])
    y, v = Z.sum(axis=1) + random.standard_t(3, n), random.random(n) if weighted else None
    theta, plain = random.standard_normal((2, d + 1))
    matrix = random.standard_normal((2 * d + 3 + model.features, d + 1)) if judged else None
    to_leverage = random.standard_normal((d + 2 + model.features, 3))
    asked = SizePass(offset, scale, to_leverage, 4, 7, 0.3, reach)
    numbers, least = 1_000 + np.cumsum(random.integers(1, 3, n)), 9.0 * random.random(n)
    adding, leverages = SizePassSums(model, SizeSlopes.of(theta, plain, model, matrix), asked), least.copy()
    for part in np.split(np.arange(n), np.cumsum(sizes)[:-1]):
        some = leverages[part]
        adding.add(X[part], y[part], None if v is None else v[part], numbers[part], some)
        leverages[part] = some
    ones = np.ones(n) if v is None else v
    expected = expected_sums(Z, y, ones, theta, plain, model, matrix)
    np.testing.assert_allclose(adding.scores, expected, rtol=1e-10, atol=1e-11)
    level = expected_level(Z, y, ones, theta, model, asked, numbers)
    np.testing.assert_allclose(adding.level, level, rtol=1e-10, atol=1e-11)
    expected = np.maximum(least, lengths_of_rows(Z, model, to_leverage))
    np.testing.assert_allclose(leverages, expected, rtol=1e-11)


def test_a_pass_without_directions_leaves_leverages():
    model, leverages = model_of(np.random.default_rng(0), [0], False), np.arange(20.0)
    asked = SizePass(np.zeros(2), np.ones(2), None, 2, 3, 0.0, 0.0)
    adding = SizePassSums(model, SizeSlopes.of(np.ones(3), np.ones(3), model), asked)
    adding.add(np.ones((20, 2)), np.ones(20), None, np.arange(20), leverages)
    assert np.array_equal(leverages, np.arange(20.0))


def test_passes_of_another_shape_are_refused():
    model = model_of(np.random.default_rng(0), [1], False)
    asked, slopes = SizePass(np.zeros(2), np.ones(2), None, 2, 3, 0.0, 0.0), SizeSlopes.of
    with pytest.raises(ValueError, match="slopes must be as many as columns and one; got 2 and 2"):
        SizePassSums(model, slopes(np.ones(2), np.ones(2), model), asked)
    with pytest.raises(ValueError, match="to_leverage must have 6 rows; got 3"):
        SizePassSums(
            model, slopes(np.ones(3), np.ones(3), model), asked._replace(to_leverage=np.ones((3, 1)))
        )
    with pytest.raises(ValueError, match="a pass needs a block, and a run"):
        SizePassSums(model, slopes(np.ones(3), np.ones(3), model), asked._replace(run=0))


@pytest.mark.parametrize("n", [1, 4, 27])
@pytest.mark.parametrize("directions", [1, 8, 9])
@pytest.mark.parametrize("both_sides", [False, True])
def test_lengths(n, directions, both_sides):
    random = np.random.default_rng(n)
    model, (Z, _, _) = model_of(random, [0, 3], both_sides), rows_of(random, n, 5)
    matrix = random.standard_normal((6 + model.features, directions))
    f = features(np.clip(Z[:, model.columns], -model.reach, model.reach), both_sides)
    image = np.column_stack([Z / expected_sizes(Z, model)[:, None], np.ones(n), f]) @ matrix
    np.testing.assert_allclose(lengths_of_rows(Z, model, matrix), (image**2).sum(axis=1), rtol=1e-12)


def test_matrices_of_another_shape_are_refused():
    model, Z, y = model_of(np.random.default_rng(0), [1], False), np.ones((4, 3)), np.ones(4)
    with pytest.raises(ValueError, match="matrix must have 6 rows; got 2"):
        lengths_of_rows(Z, model, np.ones((2, 3)))
    with pytest.raises(ValueError, match="matrix must have 9 rows; got 2"):
        size_sums(Z, y, y, np.ones(3), np.ones(3), model, np.ones((2, 3)))


def test_without_a_matrix_there_are_no_squares():
    random = np.random.default_rng(0)
    model, (Z, y, v) = model_of(random, [1], False), rows_of(random, 40, 3)
    matrix = random.standard_normal((9, 3))
    some, all_sums = (size_sums(Z, y, v, np.ones(3), np.zeros(3), model, given) for given in (None, matrix))
    assert np.array_equal(some, all_sums[:-3])


def test_columns_that_are_not_there_are_refused():
    model = model_of(np.random.default_rng(0), [3], False)
    with pytest.raises(IndexError, match="columns must be from 0 to 2"):
        sizes_of_rows(np.ones((4, 3)), model)


def test_sizes_are_exponentials_to_the_last_digits():
    z = np.random.default_rng(3).uniform(-700, 100, (20_000, 1))
    model = SizeModel(np.array([0]), False, np.array([1.0, 0.0]), 1e3, -705.0, 100.0)
    np.testing.assert_allclose(sizes_of_rows(z, model), np.exp(z[:, 0]), rtol=5e-16)
    assert np.isnan(sizes_of_rows(np.array([[np.nan]]), model)).all()
