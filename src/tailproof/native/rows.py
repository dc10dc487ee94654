"""Products, sums and extremes over rows of a matrix, without a copy of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    COUNT,
    CSR,
    F64,
    I64,
    NUMBER,
    POINTER,
    REALS,
    address,
    at_least_one,
    check,
    declare,
    declare_for,
    function_for,
    optional,
    read,
    written,
)

Array = NDArray[Any]

_SOME_ROWS = (POINTER, COUNT, COUNT, POINTER, COUNT)
_whitened_rows = declare_for(REALS, "whitened_rows", *_SOME_ROWS, POINTER, POINTER, COUNT, POINTER)
_copied_rows = declare_for(REALS, "copied_rows", *_SOME_ROWS, POINTER)
_rows_of_runs = declare("rows_of_runs", POINTER, COUNT, COUNT, POINTER)
_ends_and_square = declare("ends_and_square", POINTER, COUNT, POINTER)
_places_outside = declare("places_outside", POINTER, COUNT, NUMBER, NUMBER, POINTER, returns=COUNT)
_scores_of_rows = declare_for(REALS, "scores_of_rows", *_SOME_ROWS, POINTER, NUMBER, POINTER)
_BLOCKS = (*_SOME_ROWS, POINTER, COUNT, POINTER, POINTER)
_scores_of_blocks = declare_for(REALS, "scores_of_blocks", *_BLOCKS, POINTER, NUMBER, POINTER, POINTER)
_column_extremes = declare_for(REALS, "column_extremes", POINTER, COUNT, COUNT, COUNT, POINTER, POINTER)
_entry_extremes = declare_for(CSR, "entry_extremes", POINTER, POINTER, COUNT, COUNT, POINTER, POINTER)
_add_sums = declare_for(REALS, "add_sums", *_SOME_ROWS, POINTER, POINTER, POINTER, POINTER)
_BLOCKS_SUMS = (*_SOME_ROWS, POINTER, COUNT, POINTER, POINTER, POINTER, POINTER, COUNT)
_add_sums_of_blocks = declare_for(REALS, "add_sums_of_blocks", *_BLOCKS_SUMS)


def whitened_rows(X: Array, rows: Array, centre: Array, whitening: Array) -> Array:
    """Return (x − centre) · whitening for some rows.

    Examples
    --------
    >>> swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> whitened_rows(np.array([[1.0, 2.0]]), np.array([0]), np.zeros(2), swap).tolist()
    [[2.0, 1.0]]
    """
    d, columns = X.shape[1], whitening.shape[1]
    whitened = np.empty((rows.size, columns))
    scale = read("centre", centre, F64, (d,)), read("whitening", whitening, F64, (d, columns))
    function = function_for(_whitened_rows, X.dtype)
    check(function(*_some_rows(X, rows), *scale, columns, address("whitened", whitened)))
    return whitened


def copied_rows(X: Array, rows: Array) -> Array:
    """Copy some rows as float64, which are fetched from memory before their turn.

    Examples
    --------
    >>> copied_rows(np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32), np.array([1, 1])).tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    """
    copied = np.empty((rows.size, X.shape[1]))
    check(function_for(_copied_rows, X.dtype)(*_some_rows(X, rows), address("copied", copied)))
    return copied


def rows_of_runs(starts: Array, length: int, into: Array) -> None:
    """Write runs of so many neighbouring rows, from every start on, to an array.

    Examples
    --------
    >>> rows = np.empty(4, dtype=np.int64)
    >>> rows_of_runs(np.array([4, 0]), 2, rows)
    >>> rows.tolist()
    [4, 5, 0, 1]
    """
    runs = starts.size
    to = written("into", into, I64, (runs * at_least_one("length", length),))
    check(_rows_of_runs(read("starts", starts, I64, (runs,)), runs, length, to))


def ends_and_square(values: Array) -> tuple[float, float, float]:
    """The least and the largest value, and the sum of squares, in one reading; all NaN where one value is.

    It takes one thread, whereas linear algebra wakes others for a sum of 10,000 squares.

    Examples
    --------
    >>> ends_and_square(np.array([3.0, -4.0, 1.0]))
    (-4.0, 3.0, 26.0)
    """
    found = np.empty(3)
    check(_ends_and_square(read("values", values, F64, (values.size,)), values.size, address("found", found)))
    low, high, square = found.tolist()
    return low, high, square


def places_outside(values: Array, low: float, high: float) -> Array:
    """Places of values that do not lie between two numbers, NaN among them; quick where they are few.

    Examples
    --------
    >>> places_outside(np.array([3.0, -4.0, 1.0, np.nan]), 0.0, 2.0).tolist()
    [0, 1, 3]
    """
    n, places = values.size, np.empty(values.size, dtype=np.int64)
    found = _places_outside(read("values", values, F64, (n,)), n, low, high, address("places", places))
    return places[:found].copy()


def scores_of_rows(X: Array, rows: Array | None, w: Array, b: float, out: Array | None = None) -> Array:
    """Return ⟨w, x⟩ + b for some rows, or for all; in an array, if one is given.

    Examples
    --------
    >>> scores_of_rows(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1]), np.ones(2), 0.5).tolist()
    [7.5]
    """
    count = len(X) if rows is None else rows.size
    scores = np.empty(count) if out is None else out
    function, weights = function_for(_scores_of_rows, X.dtype), read("w", w, F64, (X.shape[1],))
    which = (address("X", X), *X.shape, None, len(X)) if rows is None else _some_rows(X, rows)
    check(function(*which, weights, b, written("scores", scores, F64, (count,))))
    return scores


def scores_of_blocks(
    X: Array,
    rows: Array,
    ends: Array,
    coef: Array,
    intercept: Array,
    shared: Array | None = None,
    shared_intercept: float = 0.0,
    every: Array | None = None,
) -> tuple[Array, Array | None]:
    """Return ⟨wⱼ, x⟩ + bⱼ for the rows of every block j by its own model.

    Parameters
    ----------
    X : array of shape (n, d)
    rows : array of int
        Rows of all blocks, one block after another.
    ends : array of int of shape (k,)
        Where in ``rows`` each block ends.
    coef, intercept : arrays of shapes (k, d) and (k,)
    shared : array of shape (d,), optional
        A model whose scores come as well, from the same reading, at the numbers of the rows.
    every : array of shape (n,), optional
        Where those go; by default to a new array, in which rows of no block are left as they come.

    Examples
    --------
    >>> X, rows, ends = np.array([[1.0], [2.0], [3.0]]), np.array([2, 0, 1]), np.array([2, 3])
    >>> own, every = scores_of_blocks(X, rows, ends, np.array([[1.0], [10.0]]), np.zeros(2), np.ones(1), 0.5)
    >>> own.tolist(), every.tolist()
    ([3.0, 1.0, 20.0], [1.5, 2.5, 3.5])
    """
    k, d = at_least_one("the number of blocks", len(coef)), X.shape[1]
    own = np.empty(rows.size)
    if shared is not None and every is None:
        every = np.empty(len(X))
    check(
        function_for(_scores_of_blocks, X.dtype)(
            *_some_rows(X, rows), read("ends", ends, I64, (k,)), k,
            read("coef", coef, F64, (k, d)), read("intercept", intercept, F64, (k,)),
            None if shared is None else read("shared", shared, F64, (d,)), shared_intercept,
            address("own", own), None if every is None else written("every", every, F64, (len(X),)),
        )
    )  # fmt: skip
    return own, every


def add_sums(X: Array, y: Array, weights: Array, rows: Array, centre: Array, into: Array) -> None:
    """Add Σ w (x − centre), Σ w y and Σ w over the rows to an array of d + 2 numbers."""
    n, d = X.shape
    targets = read("y", y, F64, (n,)), optional("weights", weights, n)
    sums = read("centre", centre, F64, (d,)), written("into", into, F64, (d + 2,))
    check(function_for(_add_sums, X.dtype)(*_some_rows(X, rows), *targets, *sums))


def add_sums_of_blocks(
    X: Array, y: Array, weights: Array, rows: Array, ends: Array, centre: Array, into: Array, group: int
) -> None:
    """The same for the rows of every block, one block after another, into ``into[:, group]``.

    Parameters
    ----------
    X : array of shape (n, d)
    y, weights : arrays of shape (n,)
    rows, ends : arrays of int
        Rows of all blocks, and where in them each block ends.
    centre : array of shape (d,)
    into : array of shape (k, groups, d + 2)
    group : int

    Examples
    --------
    >>> X, into = np.array([[1.0], [2.0], [4.0]]), np.zeros((2, 1, 3))
    >>> rows, ends = np.array([2, 0, 1]), np.array([2, 3])
    >>> add_sums_of_blocks(X, np.ones(3), np.empty(0), rows, ends, np.zeros(1), into, 0)
    >>> into[:, 0].tolist()
    [[5.0, 2.0, 2.0], [2.0, 1.0, 1.0]]
    """
    (n, d), k = X.shape, at_least_one("the number of blocks", len(into))
    groups = into.shape[1]
    if not 0 <= group < groups:
        raise IndexError(f"group must be from 0 to {groups - 1}; got {group}")
    targets = read("y", y, F64, (n,)), optional("weights", weights, n)
    first = written("into", into, F64, (k, groups, d + 2)) + group * (d + 2) * into.itemsize
    where = read("ends", ends, I64, (k,)), k
    function = function_for(_add_sums_of_blocks, X.dtype)
    scale = read("centre", centre, F64, (d,))
    check(function(*_some_rows(X, rows), *where, *targets, scale, first, groups * (d + 2)))


def column_extremes(X: Array, step: int = 1) -> tuple[Array, Array]:
    """Least and largest value of every column, of one row in so many; NaN is not looked at.

    Examples
    --------
    >>> low, high = column_extremes(np.array([[1.0, 2.0], [3.0, -4.0]]))
    >>> low.tolist(), high.tolist()
    ([1.0, -4.0], [3.0, 2.0])
    """
    n, d = X.shape
    low, high = np.empty(d, X.dtype), np.empty(d, X.dtype)
    ends = address("low", low), address("high", high)
    step = at_least_one("step", step)
    check(function_for(_column_extremes, X.dtype)(address("X", X), n, d, step, *ends))
    return low, high


def entry_extremes(data: Array, indices: Array, d: int) -> tuple[Array, Array]:
    """Least and largest entry of each of d columns of CSR rows, and zero; NaN is not looked at.

    Examples
    --------
    >>> low, high = entry_extremes(np.array([3.0, -4.0]), np.array([1, 0]), 3)
    >>> low.tolist(), high.tolist()
    ([-4.0, 0.0, 0.0], [0.0, 3.0, 0.0])
    """
    low, high = np.empty(d, data.dtype), np.empty(d, data.dtype)
    entries = address("data", data), read("indices", indices, indices.dtype, data.shape)
    ends = address("low", low), address("high", high)
    check(function_for(_entry_extremes, (data.dtype, indices.dtype))(*entries, data.size, d, *ends))
    return low, high


def _some_rows(X: Array, rows: Array) -> tuple[int, ...]:
    n, d = X.shape
    return address("X", X), n, d, read("rows", rows, I64, (rows.size,)), rows.size
