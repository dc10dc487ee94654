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
_turned_rows = declare_for(REALS, "turned_rows", *_SOME_ROWS, POINTER, POINTER, COUNT, POINTER)
_scores_of_rows = declare_for(REALS, "scores_of_rows", *_SOME_ROWS, POINTER, NUMBER, POINTER)
_add_sums = declare_for(
    REALS, "add_sums", POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, COUNT, POINTER, POINTER
)


def turned_rows(X: Array, rows: Array, centre: Array, turn: Array) -> Array:
    """Return (x − centre) · turn for some rows.

    Examples
    --------
    >>> turned_rows(np.array([[1.0, 2.0]]), np.array([0]), np.zeros(2), np.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
    [[2.0, 1.0]]
    """
    (n, d), columns = X.shape, turn.shape[1]
    turned = np.empty((rows.size, columns))
    check(
        function_for(_turned_rows, X.dtype)(
            address("X", X), n, d, read("rows", rows, I64, (rows.size,)), rows.size,
            read("centre", centre, F64, (d,)), read("turn", turn, F64, (d, columns)), columns, address("turned", turned),
        )
    )  # fmt: skip
    return turned


def scores_of_rows(X: Array, rows: Array, w: Array, b: float) -> Array:
    """Return ⟨w, x⟩ + b for some rows.

    Examples
    --------
    >>> scores_of_rows(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1]), np.ones(2), 0.5).tolist()
    [7.5]
    """
    n, d = X.shape
    scores = np.empty(rows.size)
    check(
        function_for(_scores_of_rows, X.dtype)(
            address("X", X), n, d, read("rows", rows, I64, (rows.size,)), rows.size,
            read("w", w, F64, (d,)), b, address("scores", scores),
        )
    )  # fmt: skip
    return scores


def add_sums(X: Array, y: Array, weights: Array, rows: Array, centre: Array, into: Array) -> None:
    """Add Σ w (x − centre), Σ w y and Σ w over the rows to an array of d + 2 numbers."""
    n, d = X.shape
    check(
        function_for(_add_sums, X.dtype)(
            address("X", X), n, d, read("y", y, F64, (n,)), optional("weights", weights, n),
            read("rows", rows, I64, (rows.size,)), rows.size, read("centre", centre, F64, (d,)),
            written("into", into, F64, (d + 2,)),
        )
    )  # fmt: skip
