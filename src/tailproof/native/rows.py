"""Products and sums over some rows of a dense matrix, without a copy of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    COUNT,
    F64,
    I64,
    NUMBER,
    POINTER,
    REALS,
    address,
    check,
    declare_for,
    function_for,
    optional,
    read,
    written,
)

Array = NDArray[Any]

_SOME_ROWS = (POINTER, COUNT, COUNT, POINTER, COUNT)
_whitened_rows = declare_for(REALS, "whitened_rows", *_SOME_ROWS, POINTER, POINTER, COUNT, POINTER)
_scores_of_rows = declare_for(REALS, "scores_of_rows", *_SOME_ROWS, POINTER, NUMBER, POINTER)
_add_sums = declare_for(REALS, "add_sums", *_SOME_ROWS, POINTER, POINTER, POINTER, POINTER)


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


def scores_of_rows(X: Array, rows: Array, w: Array, b: float) -> Array:
    """Return ⟨w, x⟩ + b for some rows.

    Examples
    --------
    >>> scores_of_rows(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1]), np.ones(2), 0.5).tolist()
    [7.5]
    """
    scores = np.empty(rows.size)
    function, weights = function_for(_scores_of_rows, X.dtype), read("w", w, F64, (X.shape[1],))
    check(function(*_some_rows(X, rows), weights, b, address("scores", scores)))
    return scores


def add_sums(X: Array, y: Array, weights: Array, rows: Array, centre: Array, into: Array) -> None:
    """Add Σ w (x − centre), Σ w y and Σ w over the rows to an array of d + 2 numbers."""
    n, d = X.shape
    targets = read("y", y, F64, (n,)), optional("weights", weights, n)
    sums = read("centre", centre, F64, (d,)), written("into", into, F64, (d + 2,))
    check(function_for(_add_sums, X.dtype)(*_some_rows(X, rows), *targets, *sums))


def _some_rows(X: Array, rows: Array) -> tuple[int, ...]:
    n, d = X.shape
    return address("X", X), n, d, read("rows", rows, I64, (rows.size,)), rows.size
