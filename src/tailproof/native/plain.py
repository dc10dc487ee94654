"""Numbers that lie in a Parquet file as they are: read straight into rows, without a copy on the way."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import BOOL, CODE, COUNT, F64, POINTER, address, declare, written

Array = NDArray[Any]

_FLAG = ctypes.c_bool
_ROWS = (CODE, POINTER, COUNT, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER)
_plain_pages = declare("plain_pages", CODE, COUNT, COUNT, COUNT, _FLAG, COUNT, POINTER, returns=COUNT)
_read_plain = declare("read_plain", CODE, POINTER, COUNT, COUNT, POINTER)
_fill_plain_rows = declare("fill_plain_rows", *_ROWS)

# What batches.c calls numbers of these types.
KINDS = {np.dtype(name): code for code, name in enumerate(("f8", "f4", "i1", "i2", "i4", "i8"))}
KINDS |= {np.dtype(name): 6 + code for code, name in enumerate(("u1", "u2", "u4", "u8"))}


def plain_pages(file: int, place: int, rows: int, dtype: np.dtype[Any], optional: bool, most: int) -> Array:
    """Find the pages of a column of a Parquet file: of each its first row, and where its numbers begin.

    Parameters
    ----------
    file : int
        Its descriptor.
    place : int
        Where the first page begins.
    rows : int
        Of the column in its row group.
    dtype : numpy.dtype
        Of the numbers in the file.
    optional : bool
        Numbers may be missing, so that each has a level.
    most : int
        Pages, at most.

    Returns
    -------
    array of shape (pages + 1, 2)
        The last one begins after the last row. Empty where the pages are not plain, or a number is missing.
    """
    pages = np.empty((most + 1, 2), dtype=np.int64)
    found = _plain_pages(file, place, rows, KINDS[dtype], optional, most, address("pages", pages))
    if found < 0:
        return pages[:0]
    pages[found] = rows, 0
    return pages[: found + 1].copy()


class PlainColumns:
    """Columns of one row group of an open file: ``struct plain_column`` of plain.c for each.

    Parameters
    ----------
    file : int
        Its descriptor, which must stay open.
    pages : list of arrays
        Of each column, from :func:`plain_pages`.
    dtypes : list of numpy.dtype
        Of the numbers in the file.
    """

    def __init__(self, file: int, pages: list[Array], dtypes: list[np.dtype[Any]]) -> None:
        self.file, self.dtypes = file, dtypes
        self.rows = int(min(of_column[-1, 0] for of_column in pages))
        self._pages = pages  # the addresses are good while these live
        self._columns = np.array(
            [
                (address("pages", one), len(one) - 1, KINDS[dtype])
                for one, dtype in zip(pages, dtypes, strict=True)
            ],
            dtype=np.int64,
        )

    def column(self, number: int, start: int, count: int) -> Array:
        """Numbers of one column from row ``start`` on."""
        self._check(start, count)
        numbers = np.empty(count, dtype=self.dtypes[number])
        place = address("columns", self._columns[number])
        if not _read_plain(self.file, place, start, count, address("numbers", numbers)):
            raise _cut_off(start, count)
        return numbers

    def fill_rows(self, start: int, X: Array, good: NDArray[np.bool_], low: Array, high: Array) -> None:
        """Write rows of the first columns, as many as X has; the rest is as in ``batches.fill_rows``."""
        n, d = X.shape
        self._check(start, n)
        if not 0 < d <= len(self._columns):
            raise ValueError(f"X must have 1 to {len(self._columns)} columns; got {d}")
        into = written("X", X, F64, (n, d)), written("good", good, BOOL, (n,))
        ends = written("low", low, F64, (d,)), written("high", high, F64, (d,))
        columns = address("columns", self._columns)
        if not _fill_plain_rows(self.file, columns, d, start, n, *into, *ends):
            raise _cut_off(start, n)

    def _check(self, start: int, count: int) -> None:
        if not 0 <= start <= start + count <= self.rows:
            raise ValueError(f"rows must be among {self.rows}; got {start} to {start + count}")


def _cut_off(start: int, count: int) -> OSError:
    return OSError(f"its rows {start} to {start + count} could not be read")
