"""Tables on their way to numbers: quotes in text, extents of columns, columns to rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, I32, I64, POINTER, address, check, declare, read, written

Array = NDArray[Any]

_follow_quotes = declare("follow_quotes", POINTER, COUNT, COUNT, POINTER)
_extent = declare("extent", POINTER, COUNT, POINTER)
_columns_to_rows = declare("columns_to_rows", POINTER, POINTER, COUNT, COUNT, COUNT, POINTER, POINTER)
_codes_to_rows = declare("codes_to_rows", POINTER, COUNT, COUNT, COUNT, COUNT, POINTER)
_DOUBTFUL = 2


class Quotes:
    r"""Follows the quotes of a text, piece after piece, and tells whether cells in quotes end in their lines.

    Parameters
    ----------
    delimiter : str
        Between cells: one character of ASCII.

    Examples
    --------
    >>> quotes = Quotes(",")
    >>> quotes.follow(b'a,"b"\n1,"x')
    >>> quotes.plain
    True
    >>> quotes.follow(b'\ny"\n')
    >>> quotes.plain
    False
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)
        self._state = np.array([0, -1])

    def follow(self, text: Any) -> None:
        """Go on through the next piece, bytes or a buffer of them."""
        piece = np.frombuffer(text, dtype=np.uint8)
        state = written("state", self._state, I64, (2,))
        check(_follow_quotes(address("text", piece), piece.size, self._delimiter, state))

    @property
    def plain(self) -> bool:
        """Whether no line has ended within quotes so far, and no quote has stood inside of a cell."""
        return bool(self._state[0] != _DOUBTFUL)


def extent(numbers: Array) -> tuple[float, float, float]:
    """Sum, smallest and largest; without a meaning unless the sum is finite.

    Examples
    --------
    >>> extent(np.array([1.0, -2.0, 4.0]))
    (3.0, -2.0, 4.0)
    """
    found = np.empty(3)
    check(_extent(read("numbers", numbers, F64, numbers.shape), numbers.size, address("found", found)))
    return float(found[0]), float(found[1]), float(found[2])


def columns_to_rows(columns: Sequence[Array], places: Sequence[int], rows: Array) -> Array:
    """Write columns into rows at their places; return the sum of each.

    Examples
    --------
    >>> rows = np.zeros((2, 3))
    >>> columns_to_rows([np.array([1.0, 2.0]), np.array([3.0, 4.0])], [2, 0], rows).tolist()
    [3.0, 7.0]
    >>> rows.tolist()
    [[3.0, 0.0, 1.0], [4.0, 0.0, 2.0]]
    """
    (m, width), d = rows.shape, len(columns)
    where = np.array(places, dtype=np.int64).reshape(d)
    if d and not (where.min() >= 0 and where.max() < width):
        raise IndexError(f"places must be columns of the rows, from 0 to {width - 1}")
    first = np.array([read("column", column, F64, (m,)) for column in columns], dtype=np.uintp)
    sums = np.empty(d)
    into = written("rows", rows, F64, (m, width)), address("sums", sums)
    check(_columns_to_rows(address("columns", first), address("places", where), m, d, width, *into))
    return sums


def codes_to_rows(codes: Array, levels: int, place: int, rows: Array) -> None:
    """Write zeros and a one for each code from a place on; a code that is no level has zeros alone.

    Examples
    --------
    >>> rows = np.full((3, 3), 7.0)
    >>> codes_to_rows(np.array([1, 0, 2], dtype=np.int32), 2, 1, rows)
    >>> rows.tolist()
    [[7.0, 0.0, 1.0], [7.0, 1.0, 0.0], [7.0, 0.0, 0.0]]
    """
    m, width = rows.shape
    if not 0 <= place <= place + levels <= width:
        raise IndexError(f"{levels} levels from column {place} on do not fit into rows of {width}")
    into = written("rows", rows, F64, (m, width))
    check(_codes_to_rows(read("codes", codes, I32, (m,)), m, levels, width, place, into))
