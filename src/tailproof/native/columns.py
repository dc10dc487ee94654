"""Products of arrays of few columns that are stored column by column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, NUMBER, POINTER, address, check, declare, read

Array = NDArray[Any]

_column_products = declare("column_products", POINTER, COUNT, COUNT, POINTER, POINTER)
_column_lengths = declare("column_lengths", POINTER, COUNT, COUNT, POINTER, POINTER)
_huber_steps = declare(
    "huber_steps", POINTER, COUNT, COUNT, POINTER, POINTER, NUMBER, POINTER, COUNT, POINTER, POINTER
)


_FEW = 32  # columns, beyond which libraries of linear algebra are faster


def by_columns(rows: Array) -> bool:
    """Whether rows suit the functions below: few columns of doubles, stored one after the other.

    Examples
    --------
    >>> by_columns(np.ones((3, 2))), by_columns(np.ones((3, 2), order="F"))
    (False, True)
    """
    return rows.flags.f_contiguous and 0 < rows.shape[1] <= _FEW and rows.dtype == F64


def column_products(rows: Array, weights: Array | None) -> Array:
    """Z' diag(weights) Z of rows that are stored column by column; no weights are ones.

    Examples
    --------
    >>> rows = np.asfortranarray([[1.0, 2.0], [0.0, 3.0]])
    >>> column_products(rows, None).tolist(), column_products(rows, np.array([1.0, 2.0])).tolist()
    ([[1.0, 2.0], [2.0, 13.0]], [[1.0, 2.0], [2.0, 22.0]])
    """
    (n, count), columns = rows.shape, rows.T
    products = np.empty((count, count))
    shares = None if weights is None else read("weights", weights, F64, (n,))
    table = read("rows", columns, F64, (count, n)), n, count
    check(_column_products(*table, shares, address("products", products)))
    return products


def column_lengths(rows: Array, matrix: Array) -> Array:
    """The length x' matrix x of every row x, stored column by column.

    Examples
    --------
    >>> column_lengths(np.asfortranarray([[1.0, 2.0], [0.0, 3.0]]), np.eye(2)).tolist()
    [5.0, 9.0]
    """
    n, count = rows.shape
    lengths, by = np.empty(n), np.ascontiguousarray(matrix)
    table = read("rows", rows.T, F64, (count, n)), n, count
    check(_column_lengths(*table, read("matrix", by, F64, (count, count)), address("lengths", lengths)))
    return lengths


def huber_steps(
    rows: Array, y: Array, v: Array, place: Array, tau: float, inverse: Array, steps: int
) -> tuple[Array, Array]:
    """Where steps H⁻¹ Σ v ψ(u) x lead from a place, and u = y − x'place there; ψ truncates at ±τ.

    Examples
    --------
    >>> one, y = np.ones((4, 1)), np.array([0.0, 0.2, 0.4, 9.0])
    >>> place, u = huber_steps(one, y, np.full(4, 0.25), np.zeros(1), 1.0, np.ones((1, 1)), 50)
    >>> place.round(6).tolist(), u.round(3).tolist()
    ([0.533333], [-0.533, -0.333, -0.133, 8.467])
    """
    (n, count), columns = rows.shape, np.ascontiguousarray(rows.T)
    found, u, by = np.array(place, dtype=np.float64), np.empty(n), np.ascontiguousarray(inverse)
    table = read("rows", columns, F64, (count, n)), n, count
    given = (read(name, a, F64, (n,)) for name, a in (("y", y), ("v", v)))
    moved = read("place", found, F64, (count,)), address("u", u)
    check(_huber_steps(*table, *given, tau, read("inverse", by, F64, (count, count)), steps, *moved))
    return found, u
