"""Rough centres and scales of columns, from a sample of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    CODE,
    COUNT,
    F64,
    NUMBER,
    POINTER,
    address,
    at_least_one,
    check,
    declare,
    read,
    written,
)

Array = NDArray[Any]

_medians_of_means = declare("medians_of_means", POINTER, COUNT, COUNT, COUNT, CODE, POINTER, POINTER)
_NEAR = (POINTER, COUNT, COUNT, COUNT, POINTER, POINTER, POINTER, NUMBER)
_near_moments = declare("near_moments", *_NEAR, POINTER, POINTER, POINTER)
_square_norms = declare("square_norms", POINTER, COUNT, COUNT, POINTER, POINTER, POINTER)

_scale_and_map_rows = declare(
    "scale_and_map_rows", POINTER, COUNT, COUNT, POINTER, POINTER, NUMBER, POINTER, POINTER
)
_scale_rows = declare("scale_rows", POINTER, COUNT, COUNT, POINTER, POINTER, NUMBER, POINTER)


def medians_of_means(sample: Array, groups: int) -> Array:
    """Median over groups of neighbouring rows of the mean of x, by column.

    Rows that are left over after groups of equal size are not looked at.

    Examples
    --------
    >>> medians_of_means(np.array([[1.0], [3.0], [4.0], [6.0], [1e9]]), 2).tolist()
    [3.5]
    """
    rows = _in_groups(sample, groups)
    middle = np.empty(rows[1])
    check(_medians_of_means(*rows, True, address("middle", middle), None))
    return middle


def robust_moments(sample: Array, groups: int, centred: bool = True) -> tuple[Array, Array]:
    """:func:`medians_of_means`, and the same of (x − centre)², where the centre is that median, or zero.

    Examples
    --------
    >>> middle, variance = robust_moments(np.array([[1.0], [3.0], [4.0], [6.0], [1e9]]), 2)
    >>> middle.tolist(), variance.tolist()
    ([3.5], [3.25])
    """
    rows = _in_groups(sample, groups)
    middle, variance = np.empty(rows[1]), np.empty(rows[1])
    check(_medians_of_means(*rows, centred, address("middle", middle), address("variance", variance)))
    return middle, variance


def _in_groups(sample: Array, groups: int) -> tuple[int, int, int, int]:
    """Address of the rows, columns, groups and their size."""
    if sample.ndim != 2:
        raise ValueError(f"rows must be a table of two dimensions; there are {sample.ndim}")
    m, d = sample.shape
    size = at_least_one("the size of a group", m // at_least_one("groups", groups))
    return read("sample", sample, F64, (m, d)), d, groups, size


def square_norms(sample: Array, centre: Array, scale: Array) -> Array:
    """‖(x − centre)/scale‖² of every row.

    Examples
    --------
    >>> square_norms(np.array([[3.0, 8.0]]), np.zeros(2), np.array([1.0, 2.0])).tolist()
    [25.0]
    """
    m, d = sample.shape
    columns, norms = (read("centre", centre, F64, (d,)), read("scale", scale, F64, (d,))), np.empty(m)
    check(_square_norms(read("sample", sample, F64, (m, d)), m, d, *columns, address("found", norms)))
    return norms


def scale_rows(
    sample: Array, centre: Array, scale: Array, constant: float, out: Array | None = None
) -> Array:
    """(x − centre)/scale of every row, with a constant in a last column; into an array, if one is given.

    Examples
    --------
    >>> scale_rows(np.array([[3.0, 8.0]]), np.zeros(2), np.array([1.0, 2.0]), 1.0).tolist()
    [[3.0, 4.0, 1.0]]
    """
    m, d = sample.shape
    scaled, rows = np.empty((m, d + 1)) if out is None else out, read("sample", sample, F64, (m, d))
    columns = read("centre", centre, F64, (d,)), read("scale", scale, F64, (d,))
    check(_scale_rows(rows, m, d, *columns, constant, written("scaled", scaled, F64, (m, d + 1))))
    return scaled


def scale_and_map_rows(sample: Array, centre: Array, scale: Array, constant: float, by: Array) -> Array:
    """:func:`scale_rows` times a square matrix, in one pass: for few columns, where that is what takes time.

    Examples
    --------
    >>> by = np.array([[1.0, 2.0], [0.0, 10.0]])
    >>> scale_and_map_rows(np.array([[3.0]]), np.ones(1), np.ones(1), 1.0, by).tolist()
    [[2.0, 14.0]]
    """
    (m, d), wide = sample.shape, sample.shape[1] + 1
    mapped, rows = np.empty((m, wide)), read("sample", sample, F64, (m, d))
    columns = read("centre", centre, F64, (d,)), read("scale", scale, F64, (d,))
    matrix = read("by", by, F64, (wide, wide))
    check(_scale_and_map_rows(rows, m, d, *columns, constant, matrix, address("mapped", mapped)))
    return mapped


def near_moments(
    sample: Array, centre: Array, scale: Array, norms: Array, limit: float, step: int = 1
) -> tuple[int, Array, Array]:
    """How many rows have a finite norm up to the limit, and the means of z and of z zᵀ over them.

    z is (x − centre)/scale; without such rows the means are zero. One row in ``step`` is looked at, and
    ``norms`` are those of these rows.

    Examples
    --------
    >>> sample, norms = np.array([[1.0], [3.0], [1e9]]), np.array([1.0, 9.0, 1e18])
    >>> near_moments(sample, np.zeros(1), np.ones(1), norms, 10.0)
    (2, array([2.]), array([[5.]]))
    """
    n, d = sample.shape
    m = -(-n // at_least_one("step", step))
    count, mean, product = np.empty(1), np.empty(d), np.empty((d, d))
    columns = read("centre", centre, F64, (d,)), read("scale", scale, F64, (d,))
    looked_at = read("norms", norms, F64, (m,)), limit
    rows = read("sample", sample, F64, (n, d)), m, d, step, *columns, *looked_at
    results = address("count", count), address("mean", mean), address("product", product)
    check(_near_moments(*rows, *results))
    return int(count[0]), mean, product
