"""Named columns of any type to a matrix of numbers, learned once and repeated on new rows.

Numbers stay, dates become days, strings become one column of zeros and ones per category. Missing numbers
take the median; where the training rows had some, an indicator column marks them. The model file holds all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.native.tables import codes_to_rows, columns_to_rows
from tailproof.tables.columns import (
    COLUMN_TYPES,
    TableError,
    are_numbers,
    check_present,
    check_size,
    check_unique,
    coded,
    column_type,
    dictionary,
    extent_of,
    floats,
    is_text,
    missing_rows,
)
from tailproof.tables.sizes import sizes_of

OTHER, MISSING = "(other)", "(missing)"
MOST_LEVELS = 50  # categories of one column; the rest is pooled
_RARE = 0.002  # share of the rows below which a category is pooled
_FEWEST = 10  # rows that a category needs in any case
_MOST_RARE = 1_000  # pooled categories that are remembered
_FEW = 2_000  # values that show the typical size of a column
_SAMPLE = 50_000  # values for the median of a column without missing ones
_HINTS = {("category", "date"): ": --date-format names the form of the dates, such as %d/%m/%Y"}
_TILE = 16_384  # rows that are written together: they stay in the processor's cache


@dataclass(frozen=True)
class Gap:
    """Missing and unknown values of a column in new rows, and what replaces them.

    Attributes
    ----------
    name : str
        Of the column.
    missing, unknown : int
        Missing values, and strings that the model has never seen.
    level : str
        Category that both count as; empty for numbers, which take the median.
    sure : bool
        Whether all categories of the training rows are known; else unknown strings may have been rare ones.
    """

    name: str
    missing: int
    unknown: int
    level: str
    sure: bool = True

    def __str__(self) -> str:
        instead = (
            f"counted as {self.level!r}" if self.level else "filled with the median of the training rows"
        )
        parts = [f"{self.missing:,} missing"] * bool(self.missing)
        new = "never seen by the model" if self.sure else "rare or never seen by the model"
        parts += [f"{self.unknown:,} {new}"] * bool(self.unknown)
        return f"column {self.name!r}: {' and '.join(parts)}, {instead}"


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    Attributes
    ----------
    name, kind : str
        ``kind`` is a name in ``COLUMN_TYPES``.
    fill : float
        Median, for missing numbers.
    indicator : bool
        Whether an indicator column marks missing numbers.
    levels : tuple of str
        Categories with a column of their own; the last may be "(other)", for rare or new ones.
    reference : str
        The most frequent category, which has no column.
    rare : tuple of str or None
        Categories that were pooled; None where they are too many to remember.
    sizes : tuple of float
        Smallest, median and largest of numbers without signs and zeros; empty for others.
    """

    name: str
    kind: str
    fill: float = 0.0
    indicator: bool = False
    levels: tuple[str, ...] = ()
    reference: str = ""
    rare: tuple[str, ...] | None = None
    sizes: tuple[float, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the columns that it becomes."""
        if self.kind == "category":
            return [f"{self.name}={level}" for level in self.levels]
        return [self.name, f"{self.name} {MISSING}"] if self.indicator else [self.name]

    @property
    def unknown(self) -> str:
        """What a rare or new category counts as: "(other)", or the reference where nothing was pooled."""
        return OTHER if self.levels[-1] == OTHER else self.reference

    def ready(self, values: Any) -> Any:
        """Values as floats, some of them missing, or as codes of categories, the reference last."""
        _check_type(values, self)
        if self.kind != "category":
            return floats(values, self.kind)
        known = [*self.levels, self.reference]
        unknown = known.index(self.unknown)
        missing = known.index(MISSING) if MISSING in known else unknown
        return coded(values).translated(known, unknown, missing)

    def write_codes(self, codes: Any, into: Array, place: int) -> None:
        """Write a batch of codes into rows, from a place on."""
        codes_to_rows(codes.to_numpy(), len(self.levels), place, into)

    def write_missing(self, numbers: Array, into: Array, first: int) -> None:
        """Fill in what is missing of the numbers that a column of rows holds; the first row has this number.

        The column behind it marks them, where that was learned.
        """
        missing = missing_rows(self.name, numbers, first)
        into[missing, 0] = self.fill
        if self.indicator:
            into[:, 1] = 0.0
            into[missing, 1] = 1.0

    def gap(self, values: Any) -> Gap:
        """Count missing and unknown values."""
        if self.kind != "category":
            return Gap(self.name, extent_of(self.name, floats(values, self.kind)).absent, 0, "")
        column, known = coded(values), {*self.levels, self.reference, *(self.rare or ())}
        categories, counts = column.occurring()
        new = np.array([category not in known for category in categories.to_pylist()], dtype=np.bool_)
        missing = 0 if MISSING in known else column.missing
        return Gap(self.name, missing, int(counts[new].sum()), self.unknown, self.rare is not None)


@dataclass(frozen=True)
class Encoding:
    """How a table becomes a matrix.

    Attributes
    ----------
    columns : tuple of Column
    left_out : tuple of str
        Columns that hold one value at most, or nothing but rare strings.
    """

    columns: tuple[Column, ...]
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the columns of the matrix."""
        return [name for column in self.columns for name in column.names]

    def matrix(self, table: Any) -> Array:
        """Numbers for the rows of a ``pyarrow.Table``; a column that is not there raises."""
        import pyarrow as pa

        check_present(table.column_names, [column.name for column in self.columns], ", which the model needs")
        ready = pa.table({column.name: column.ready(table.column(column.name)) for column in self.columns})
        widths = [len(column.names) for column in self.columns]
        places = [sum(widths[:j]) for j in range(len(widths))]
        matrix, start = np.empty((table.num_rows, sum(widths))), 0
        for batch in ready.to_batches(max_chunksize=_TILE):
            tile = matrix[start : start + batch.num_rows]
            self._write(batch.columns, places, tile, start)
            start += batch.num_rows
        return matrix

    def _write(self, values: list[Any], places: list[int], into: Array, first: int) -> None:
        """Write a batch of what is ready, whose first row has this number."""
        every = list(zip(self.columns, values, places, strict=True))
        for column, codes, place in every:
            if column.kind == "category":
                column.write_codes(codes, into, place)
        numeric = [entry for entry in every if entry[0].kind != "category"]
        numbers = [column.to_numpy(zero_copy_only=False) for _, column, _ in numeric]
        sums = columns_to_rows(numbers, [place for _, _, place in numeric], into)
        # A finite sum settles that nothing is missing or infinite.
        for (column, _, place), found, total in zip(numeric, numbers, sums.tolist(), strict=True):
            if column.indicator or not math.isfinite(total):
                column.write_missing(found, into[:, place:], first)

    def gaps(self, table: Any) -> list[Gap]:
        """Missing and unknown values of the columns that have any."""
        gaps = (column.gap(table.column(column.name)) for column in self.columns)
        return [gap for gap in gaps if gap.missing or gap.unknown]

    def samples(self, table: Any) -> list[tuple[str, tuple[float, ...], Array]]:
        """Columns of numbers: name, sizes that were learned, and some of the numbers in a table."""
        step = max(1, table.num_rows // _FEW)
        known = [column for column in self.columns if column.sizes]
        return [
            (column.name, column.sizes, _every(step, floats(table.column(column.name), column.kind)))
            for column in known
        ]


def with_codes(table: Any) -> Any:
    """The table with its strings as dictionaries, so that they are encoded once."""
    for place, field in enumerate(table.schema):
        if is_text(field.type):
            table = table.set_column(place, field.name, dictionary(table.column(place)))
    return table


def learn_encoding(table: Any, leave_out: Iterable[str] = ()) -> Encoding:
    """Learn how the columns of a table become numbers, all but those to leave out.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"size": [1.0, None, 3.0] * 10, "colour": ["red", "red", "blue"] * 10})
    >>> encoding = learn_encoding(table)
    >>> encoding.names
    ['size', 'size (missing)', 'colour=blue']
    >>> encoding.matrix(table)[:3].tolist()
    [[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [3.0, 0.0, 1.0]]
    """
    skip = set(leave_out)
    names = [name for name in table.column_names if name not in skip]
    check_unique(table.column_names)
    columns = [_learn(name, table.column(name)) for name in names]
    kept = tuple(column for column in columns if column is not None)
    if not kept:
        raise TableError("no column is left to learn from: each holds one value at most, or rare strings")
    known = {column.name for column in kept}
    return Encoding(kept, tuple(name for name in names if name not in known))


def _learn(name: str, values: Any) -> Column | None:
    kind = column_type(name, values)
    if kind == "category":
        if values.null_count == len(values):
            return None
        (reference, *levels), rare = _frequent(values)
        if not levels:
            return None
        known = tuple(rare) if len(rare) <= _MOST_RARE else None
        return Column(name, kind, levels=tuple(levels), reference=reference, rare=known)
    numbers = floats(values, kind)
    extent = extent_of(name, numbers)
    if extent.absent == len(numbers):
        return None
    check_size(name, extent)
    if extent.low == extent.high and not extent.absent:
        return None
    # Where nothing is missing yet, the median of a sample will do for what may be missing later.
    step = 1 if extent.absent else max(1, len(numbers) // _SAMPLE)
    sample = _every(step, numbers)
    sizes = sizes_of(sample) if kind == "number" else ()
    return Column(name, kind, float(np.nanmedian(sample)), extent.absent > 0, sizes=sizes)


def _every(step: int, numbers: Any) -> Array:
    """Every so manieth number of a column, from the first on; a missing one is NaN."""
    parts, start = [], 0
    for chunk in numbers.chunks:
        parts.append(chunk.to_numpy(zero_copy_only=False)[-start % step :: step])
        start += len(chunk)
    return np.concatenate(parts)


def _frequent(values: Any) -> tuple[list[str], list[str]]:
    """Frequent categories, with "(other)" where the rest is not too rare itself, and that rest."""
    column = coded(values)
    categories, times = column.occurring()
    every = Counter(dict(zip(categories.to_pylist(), times.tolist(), strict=True)))
    every.update({MISSING: column.missing} if column.missing else {})
    counts = sorted((-count, category) for category, count in every.items())
    least = max(_FEWEST, _RARE * len(values))
    frequent = [category for count, category in counts[:MOST_LEVELS] if -count >= least]
    rest = counts[len(frequent) :]
    pooled = -sum(count for count, _ in rest)
    shown = [*frequent, OTHER] if pooled >= least or not frequent else frequent
    return shown, [category for _, category in rest]


def _check_type(values: Any, column: Column) -> None:
    """Refuse values of another type than was learned; anything can be a category."""
    if column.kind == "category" and any(fits(values.type) for fits in COLUMN_TYPES.values()):
        return
    if column.kind == "number" and is_text(values.type) and are_numbers(values):
        return  # with leading zeros, which the rows learned from did not have
    kind = column_type(column.name, values)
    if column.kind != kind and values.null_count < len(values):
        first = next(str(value) for value in values if value.is_valid)
        raise TableError(
            f"column {column.name!r} holds a {kind} here; the model learned a {column.kind} (the first value "
            f"is {first[:40]!r}){_HINTS.get((kind, column.kind), '')}"
        )
