"""Columns to rows of a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import BOOL, COUNT, F64, POINTER, address, check, declare, read, written

Array = NDArray[Any]

# Codes of batches.c, and bytes of a number, by the names that Arrow has for types.
_KINDS = {
    "double": (0, 8),
    "float": (1, 4),
    "int8": (2, 1),
    "int16": (3, 2),
    "int32": (4, 4),
    "int64": (5, 8),
    "uint8": (6, 1),
    "uint16": (7, 2),
    "uint32": (8, 4),
    "uint64": (9, 8),
}
_fill_rows = declare("fill_rows", POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER)


class ArrowColumn(NamedTuple):
    """Where the numbers of an Arrow array are: ``struct column`` of batches.c, and what keeps them there."""

    values: int
    there: int
    offset: int
    kind: int
    size: int
    buffers: Any


def arrow_column(array: Any) -> ArrowColumn | None:
    """Say where the numbers of a ``pyarrow.Array`` are; None where compiled code cannot read them."""
    code, width = _KINDS.get(str(array.type), (-1, 1))
    if code < 0:
        return None
    there, values = buffers = array.buffers()
    if values is None or values.address % width or values.size < width * (array.offset + len(array)):
        return None
    some_missing = there is not None and array.null_count > 0
    bits = there.address if some_missing else 0
    return ArrowColumn(values.address, bits, array.offset, code, len(array), buffers)


def fill_rows(
    columns: list[Array | ArrowColumn], X: Array, good: NDArray[np.bool_], low: Array, high: Array
) -> None:
    """Write columns of any numbers into the rows of a C-ordered X, without a copy of them on the way.

    ``good`` becomes false for rows that are not finite, or have a number that is not there; ``low`` and
    ``high`` go out to the least and largest number of each column.

    Examples
    --------
    >>> X, good, low, high = np.empty((2, 2)), np.ones(2, dtype=bool), np.full(2, np.inf), np.full(2, -np.inf)
    >>> fill_rows([np.array([1.0, 2.0]), np.array([3.0, np.nan])], X, good, low, high)
    >>> X[0].tolist(), good.tolist(), low.tolist(), high.tolist()
    ([1.0, 3.0], [True, False], [1.0, 3.0], [2.0, 3.0])
    """
    n, d = X.shape
    if len(columns) != d:
        raise ValueError(f"columns must be as many as X has; got {len(columns)} and {d}")
    places = np.array([_place(column, n) for column in columns], dtype=np.int64)
    ends = written("low", low, F64, (d,)), written("high", high, F64, (d,))
    into = written("X", X, F64, (n, d)), written("good", good, BOOL, (n,))
    check(_fill_rows(address("places", places), n, d, *into, *ends))


def _place(column: Array | ArrowColumn, n: int) -> tuple[int, int, int, int]:
    if not isinstance(column, ArrowColumn):
        return read("column", column, F64, (n,)), 0, 0, 0
    if column.size != n:
        raise ValueError(f"column must have {n} numbers; got {column.size}")
    return column[:4]
