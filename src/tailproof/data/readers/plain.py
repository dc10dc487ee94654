"""Row groups of Parquet files whose columns lie there as they are, neither encoded nor compressed.

Decoding such numbers copies them twice, once from the file and once from its pages to columns, before they
become rows. Here rows are made of them as they come from the file. Whatever is less plain, such as a column
that is compressed, in a dictionary or with a number missing, is left to pyarrow.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.data.readers.batches import Batch, Reading
from tailproof.data.readers.parquet_footer import UNCOMPRESSED, codecs_of_columns
from tailproof.native.plain import PlainColumns, plain_pages

# By the names that Arrow and Parquet have for types: numbers in the file.
_STORED = {
    ("double", "DOUBLE"): "f8",
    ("float", "FLOAT"): "f4",
    **{(name, "INT32"): "i4" for name in ("int8", "int16", "int32", "uint8", "uint16")},
    ("uint32", "INT32"): "u4",
    ("uint32", "INT64"): "i8",
    ("int64", "INT64"): "i8",
    ("uint64", "INT64"): "u8",
}
_ENCODINGS = {"PLAIN", "RLE", "BIT_PACKED"}  # of numbers, and of the levels before them
_FEWEST_BYTES = 1 << 14  # of a page on average: each is a call of the system


class PlainRows:
    """Columns of an open row group by name: features first, whose rows can be filled.

    Parameters
    ----------
    names : list of str
    columns : PlainColumns
    types : list of numpy.dtype
        Of the numbers as pyarrow would give them.
    """

    def __init__(self, names: list[str], columns: PlainColumns, types: list[np.dtype[Any]]) -> None:
        self.columns, self.rows = columns, columns.rows
        self._types = dict(zip(names, types, strict=True))
        self._places = {name: place for place, name in enumerate(names)}

    def column(self, name: str, start: int, count: int) -> NDArray[Any]:
        """Numbers of one column from row ``start`` on."""
        return self.columns.column(self._places[name], start, count).astype(self._types[name], copy=False)

    def fill_rows(self, start: int, X: Array, good: NDArray[np.bool_], low: Array, high: Array) -> None:
        """Write rows of the first columns, as many as X has."""
        self.columns.fill_rows(start, X, good, low, high)

    def parts(self, names: list[str], most: int) -> Iterator[list[NDArray[Any]]]:
        """Columns, at most so many rows of them at a time."""
        for start in range(0, self.rows, most):
            yield [self.column(name, start, min(most, self.rows - start)) for name in names]

    def batches(
        self, reading: Reading, piece: int, where: str, new: Callable[[tuple[int, int]], Array]
    ) -> Iterator[Batch]:
        """Batches as :meth:`Reading.arrow_batches` cuts them; arrays to write into come from ``new``."""
        most = min(reading.batch_rows, self.rows)
        for number, start in enumerate(range(0, self.rows, most)):
            X = new((most, len(reading.features)))[: self.rows - start]
            good, low, high = np.ones(len(X), dtype=np.bool_), *_no_ends(X.shape[1])
            self.fill_rows(start, X, good, low, high)
            y = self.column(reading.target, start, len(X)) if reading.target else np.zeros(len(X))
            weights = self.column(reading.weight, start, len(X)) if reading.weight else np.empty(0)
            batch = reading.checked(piece, number, where, X, y, weights.astype(np.float64, copy=False), good)
            yield replace(batch, extremes=(low, high))


def _no_ends(columns: int) -> tuple[Array, Array]:
    """Least and largest number of columns without rows."""
    return np.full(columns, np.inf), np.full(columns, -np.inf)


@contextmanager
def open_plain(fragment: Any, names: list[str], schema: Any) -> Iterator[PlainRows | None]:
    """Open columns of a part of a dataset; None where one is not plain, or not of the schema's type."""
    stored = _stored(fragment, names, schema)
    if not stored:
        yield None
        return
    try:
        file = os.open(fragment.path, os.O_RDONLY)
    except OSError:  # pyarrow will say so
        yield None
        return
    try:
        pages = _pages(file, stored)
        columns = PlainColumns(file, pages, [one.dtype for one in stored]) if pages else None
        yield PlainRows(names, columns, [one.shown for one in stored]) if columns else None
    finally:
        os.close(file)


class _Stored:
    """A column of numbers as a row group says it has it."""

    def __init__(self, chunk: Any, optional: bool, stored: str, shown: str) -> None:
        self.place, self.rows, self.bytes = (
            chunk.data_page_offset,
            chunk.num_values,
            chunk.total_compressed_size,
        )
        self.optional, self.dtype, self.shown = optional, np.dtype(stored), np.dtype(shown)


def _stored(fragment: Any, names: list[str], schema: Any) -> list[_Stored]:
    """Columns of a row group on a disk of this machine; none where one of them is surely not plain."""
    if os.name != "posix" or not hasattr(fragment, "row_groups") or fragment.filesystem.type_name != "local":
        return []
    here, metadata = fragment.physical_schema, fragment.metadata
    if len(fragment.row_groups) != 1 or len(here) != metadata.num_columns:  # else columns are in columns
        return []
    number = fragment.row_groups[0].id
    group, found = metadata.row_group(number), []
    codecs = _codecs_of_group(fragment.path, number)
    for name in names:
        place = here.get_field_index(name)
        if place < 0 or here.field(place).type != schema.field(name).type:
            return []
        if codecs[place : place + 1] != [UNCOMPRESSED]:
            return []
        column = _plain(group, place, metadata.schema.column(place), str(here.field(place).type))
        if column is None or column.bytes > os.path.getsize(fragment.path):
            return []
        found.append(column)
    return found


def _codecs_of_group(path: str, number: int) -> list[int]:
    """Of the columns of one row group; none where that is not known."""
    try:
        told = os.stat(path)
        groups = _codecs(path, told.st_mtime_ns, told.st_size)
    except OSError:
        return []
    return groups[number] if number < len(groups) else []


@functools.lru_cache(maxsize=256)
def _codecs(path: str, changed: int, size: int) -> list[list[int]]:
    """Codecs of a file, read once while it stays as it is: it has many row groups, and passes are several."""
    return codecs_of_columns(path)


def _plain(group: Any, place: int, described: Any, kind: str) -> _Stored | None:
    chunk = group.column(place)
    stored = _STORED.get((kind, chunk.physical_type))
    nested = described.max_repetition_level > 0 or described.max_definition_level > 1
    if stored is None or nested or chunk.file_path:
        return None
    if chunk.has_dictionary_page or not _ENCODINGS.issuperset(chunk.encodings):
        return None
    if chunk.num_values != group.num_rows or group.num_rows <= 0 or chunk.total_compressed_size <= 0:
        return None
    shown = {"double": "f8", "float": "f4"}.get(kind, kind)
    return _Stored(chunk, described.max_definition_level == 1, stored, shown)


def _pages(file: int, stored: list[_Stored]) -> list[Array]:
    """Pages of every column; none where those of one are not plain."""
    found = []
    for one in stored:
        most = 1 + one.bytes // _FEWEST_BYTES
        pages = plain_pages(file, one.place, one.rows, one.dtype, one.optional, most)
        if not len(pages):
            return []
        found.append(pages)
    return found
