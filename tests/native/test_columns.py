"""Compiled products of columns, beside NumPy's."""

import numpy as np
import pytest

from tailproof.native.columns import by_columns, column_lengths, column_products, huber_steps


# Rows below, at and beyond a tile of 128; columns of every remainder of four.
@pytest.mark.parametrize("n", [1, 127, 128, 300])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_products_and_lengths_are_those_of_numpy(n, count):
    rng = np.random.default_rng([n, count])
    rows, weights = np.asfortranarray(rng.standard_normal((n, count))), rng.standard_normal(n)
    matrix = rng.standard_normal((count, count))
    exact = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(column_products(rows, None), rows.T @ rows, **exact)
    np.testing.assert_allclose(column_products(rows, weights), rows.T @ (weights[:, None] * rows), **exact)
    lengths = np.einsum("ij,jk,ik->i", rows, matrix, rows)
    np.testing.assert_allclose(column_lengths(rows, matrix), lengths, **exact)


def test_products_are_symmetric_to_the_last_bit():
    rows = np.asfortranarray(np.random.default_rng(0).standard_normal((200, 7)))
    products = column_products(rows, np.arange(200.0))
    np.testing.assert_array_equal(products, products.T)


def test_what_is_not_a_number_stays():
    rows = np.ones((3, 2), order="F")
    rows[1, 1] = np.nan
    assert np.isnan(column_products(rows, None)).tolist() == [[False, True], [True, True]]
    assert np.isnan(column_lengths(rows, np.eye(2))).tolist() == [False, True, False]


@pytest.mark.parametrize(
    "rows", [np.ones((3, 2)), np.ones((3, 0), order="F"), np.ones((3, 33), order="F"), np.ones((3, 1), "f4")]
)
def test_other_rows_are_left_to_numpy(rows):
    assert not by_columns(rows)


def test_weights_of_another_length_are_refused():
    with pytest.raises(ValueError, match="weights must have shape"):
        column_products(np.ones((3, 2), order="F"), np.ones(4))


@pytest.mark.parametrize("n", [20, 128, 300])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_steps_have_one_hessian_and_end_with_what_they_leave(n, steps):
    rng = np.random.default_rng([n, steps])
    rows, y, v = np.asfortranarray(rng.standard_normal((n, 5))), rng.standard_t(2, n), rng.uniform(0, 1, n)
    inverse, place = np.linalg.inv(rows.T @ (v[:, None] * rows)), rng.standard_normal(5)
    found, u = huber_steps(rows, y, v, place, 0.7, inverse, steps)
    for _ in range(steps):
        place = place + inverse @ ((v * np.clip(y - rows @ place, -0.7, 0.7)) @ rows)
    np.testing.assert_allclose(found, place, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(u, y - rows @ place, rtol=1e-10, atol=1e-12)
