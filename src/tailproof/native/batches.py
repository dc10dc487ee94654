"""Columns to rows of a batch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
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
_columns_of_batch = declare("columns_of_batch", POINTER, COUNT, POINTER, POINTER, POINTER)
_fill_rows = declare("fill_rows", POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER)

# A prototype of our own: that of ctypes.pythonapi belongs to everybody.
_pointer_in = ctypes.PYFUNCTYPE(POINTER, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


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


class ArrowColumns(NamedTuple):
    """Where the numbers of columns of a record batch are: ``struct column`` of batches.c for each."""

    places: NDArray[np.int64]
    size: int
    holder: Any


class NumberColumns:
    """Columns of numbers in record batches of one schema, found by one compiled call a batch.

    Parameters
    ----------
    schema : pyarrow.Schema
    names : sequence of str

    Examples
    --------
    >>> import pyarrow as pa
    >>> batch = pa.record_batch({"a": [1.0, 2.0], "b": [3, 4], "c": ["x", "y"]})
    >>> X, good, low, high = np.empty((2, 2)), np.ones(2, dtype=bool), np.full(2, np.inf), np.full(2, -np.inf)
    >>> fill_rows(NumberColumns(batch.schema, ["b", "a"]).of(batch), X, good, low, high)
    >>> X.tolist()
    [[3.0, 1.0], [4.0, 2.0]]
    >>> NumberColumns(batch.schema, ["c"]).of(batch) is None
    True
    """

    def __init__(self, schema: Any, names: Sequence[str]) -> None:
        self._chosen = np.array([schema.get_field_index(name) for name in names], dtype=np.int64)
        types = [str(schema.field(int(place)).type) if place >= 0 else "" for place in self._chosen]
        self._kinds = np.array([_KINDS.get(kind, (-1, 1))[0] for kind in types], dtype=np.int64)
        self._known = bool(np.all(self._kinds >= 0))

    def of(self, batch: Any) -> ArrowColumns | None:
        """Say where they are in a batch; None where compiled code cannot read one of them."""
        if not self._known:
            return None
        _, held = batch.__arrow_c_array__()
        places = np.empty((self._chosen.size, 4), dtype=np.int64)
        given = address("chosen", self._chosen), address("kinds", self._kinds), address("places", places)
        found = _columns_of_batch(_pointer_in(held, b"arrow_array"), self._chosen.size, *given)
        return ArrowColumns(places, batch.num_rows, held) if found else None


def fill_rows(
    columns: list[Array | ArrowColumn] | ArrowColumns,
    X: Array,
    good: NDArray[np.bool_],
    low: Array,
    high: Array,
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
    places = _places(columns, n)
    if len(places) != d:
        raise ValueError(f"columns must be as many as X has; got {len(places)} and {d}")
    ends = written("low", low, F64, (d,)), written("high", high, F64, (d,))
    into = written("X", X, F64, (n, d)), written("good", good, BOOL, (n,))
    check(_fill_rows(address("places", places), n, d, *into, *ends))


def _places(columns: list[Array | ArrowColumn] | ArrowColumns, n: int) -> NDArray[np.int64]:
    if not isinstance(columns, ArrowColumns):
        return np.array([_place(column, n) for column in columns], dtype=np.int64)
    if columns.size != n:
        raise ValueError(f"columns must have {n} numbers; got {columns.size}")
    return columns.places


def _place(column: Array | ArrowColumn, n: int) -> tuple[int, int, int, int]:
    if not isinstance(column, ArrowColumn):
        return read("column", column, F64, (n,)), 0, 0, 0
    if column.size != n:
        raise ValueError(f"column must have {n} numbers; got {column.size}")
    return column[:4]
