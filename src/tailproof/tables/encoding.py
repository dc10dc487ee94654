"""Named columns of any type to a matrix of numbers, learned once and repeated on new rows.

Numbers stay, dates become days, texts become one column of zeros and ones per level. Missing numbers take
the median and, where the training rows had some, a column that says so. All of it is in the model file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.tables.columns import (
    KINDS,
    TableError,
    absent_in,
    check_size,
    extent_of,
    floats,
    is_text,
    kind_of,
)
from tailproof.tables.levels import coded, dictionary

OTHER, MISSING = "(other)", "(missing)"
MOST_LEVELS = 50  # of one column; the rest is pooled
_RARE = 0.002  # share of the rows below which a level is pooled
_FEWEST = 10  # rows that a level needs in any case
_MOST_RARE = 1_000  # pooled levels that are remembered
_SAMPLE = 50_000  # values that a median is taken of, where it fills no gap
_TILE = 8_192  # rows that are written together, a column at a time: they stay in the fast cache


@dataclass(frozen=True)
class Gap:
    """What new rows of a column lack, and what stands in for it.

    Attributes
    ----------
    name : str
        Of the column.
    missing, unknown : int
        Values that are not there, and texts that the model has never seen.
    level : str
        Which level both count as; empty for numbers, which take the median.
    sure : bool
        Whether all that the model has seen is known; else unknown texts may have been rare ones.
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
        ``kind`` is a name in ``KINDS``.
    fill : float
        Median, for missing numbers.
    indicator : bool
        Whether a column says where a number was missing.
    levels : tuple of str
        Levels with a column of their own; the last may be "(other)", for levels that are rare or new.
    reference : str
        The most frequent level, which has no column.
    rare : tuple of str or None
        Levels that were pooled; None where they are too many to remember.
    """

    name: str
    kind: str
    fill: float = 0.0
    indicator: bool = False
    levels: tuple[str, ...] = ()
    reference: str = ""
    rare: tuple[str, ...] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns that it becomes."""
        if self.kind == "category":
            return [f"{self.name}={level}" for level in self.levels]
        return [self.name, f"{self.name} {MISSING}"] if self.indicator else [self.name]

    @property
    def unknown(self) -> str:
        """What a rare or new level counts as: "(other)", or the reference where nothing was pooled."""
        return OTHER if self.levels[-1] == OTHER else self.reference

    def ready(self, values: Any) -> Any:
        """Values as floats, or as places of their levels, the reference last; floats may be missing."""
        _check_kind(values, self)
        if self.kind != "category":
            return floats(values, self.kind)
        known = [*self.levels, self.reference]
        unknown = known.index(self.unknown)
        missing = known.index(MISSING) if MISSING in known else unknown
        return coded(values).translated(known, unknown, missing)

    def write(self, ready: Any, into: Array, first: int) -> None:
        """Write some rows of what is ready, from the first on, into a block of the matrix."""
        if self.kind == "category":
            _one_hot(ready.to_numpy(), into)
            return
        numbers = ready.to_numpy(zero_copy_only=False)
        absent = absent_in(self.name, numbers, first)
        into[:, 0] = numbers
        into[absent, 0] = self.fill
        if self.indicator:
            into[:, 1] = 0.0
            into[absent, 1] = 1.0

    def gap(self, values: Any) -> Gap:
        """Count what values lack."""
        if self.kind != "category":
            return Gap(self.name, extent_of(self.name, floats(values, self.kind)).absent, 0, "")
        found, known = coded(values), {*self.levels, self.reference, *(self.rare or ())}
        levels, counts = found.occurring()
        new = np.array([level not in known for level in levels.to_pylist()], dtype=np.bool_)
        missing = 0 if MISSING in known else found.missing
        return Gap(self.name, missing, int(counts[new].sum()), self.unknown, self.rare is not None)


@dataclass(frozen=True)
class Encoding:
    """How a table becomes a matrix.

    Attributes
    ----------
    columns : tuple of Column
    left_out : tuple of str
        Columns that hold one value only, or nothing but rare texts.
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

        self._check_columns(table)
        ready = pa.table({column.name: column.ready(table.column(column.name)) for column in self.columns})
        ends = np.cumsum([len(column.names) for column in self.columns])
        blocks = [slice(end - len(c.names), end) for c, end in zip(self.columns, ends, strict=True)]
        found, start = np.empty((table.num_rows, ends[-1])), 0
        for batch in ready.to_batches(max_chunksize=_TILE):
            tile = found[start : start + batch.num_rows]
            for column, some, block in zip(self.columns, batch.columns, blocks, strict=True):
                column.write(some, tile[:, block], start)
            start += batch.num_rows
        return found

    def gaps(self, table: Any) -> list[Gap]:
        """What the rows of a table lack, for columns that lack something."""
        found = (column.gap(table.column(column.name)) for column in self.columns)
        return [gap for gap in found if gap.missing or gap.unknown]

    def _check_columns(self, table: Any) -> None:
        there = set(table.column_names)
        absent = [column.name for column in self.columns if column.name not in there]
        if absent:
            raise TableError(
                f"the data have no column {', '.join(map(repr, absent[:5]))}, which the model needs"
            )


def with_codes(table: Any) -> Any:
    """Return the table with its texts as dictionaries, so that they are told apart once and not thrice."""
    for place, field in enumerate(table.schema):
        if is_text(field.type):
            table = table.set_column(place, field.name, dictionary(table.column(place)))
    return table


def learn_encoding(table: Any, leave_out: Iterable[str] = ()) -> Encoding:
    """How to turn the columns of a table into numbers, all but some.

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
    name, times = Counter(table.column_names).most_common(1)[0]
    if times > 1:
        raise TableError(f"there are two columns named {name!r}: rename one of them")
    columns = [_learn(name, table.column(name)) for name in names]
    kept = tuple(column for column in columns if column is not None)
    if not kept:
        raise TableError("no column is left to learn from: every one holds one value only, or rare texts")
    known = {column.name for column in kept}
    return Encoding(kept, tuple(name for name in names if name not in known))


def _learn(name: str, values: Any) -> Column | None:
    kind = kind_of(name, values)
    if kind == "category":
        _check_present(name, len(values) - values.null_count)
        (reference, *levels), rare = _levels(values)
        if not levels:
            return None
        known = tuple(rare) if len(rare) <= _MOST_RARE else None
        return Column(name, kind, levels=tuple(levels), reference=reference, rare=known)
    numbers = floats(values, kind)
    extent = extent_of(name, numbers)
    _check_present(name, len(numbers) - extent.absent)
    check_size(name, extent)
    if extent.low == extent.high and not extent.absent:
        return None
    # Where nothing is missing yet, the median of a part will do for what may be missing later.
    step = 1 if extent.absent else max(1, len(numbers) // _SAMPLE)
    part = numbers.take(np.arange(0, len(numbers), step)) if step > 1 else numbers
    return Column(name, kind, float(np.nanmedian(part.to_numpy(zero_copy_only=False))), extent.absent > 0)


def _check_present(name: str, count: int) -> None:
    if count == 0:
        raise TableError(f"column {name!r} has no value at all: leave it out")


def _levels(values: Any) -> tuple[list[str], list[str]]:
    """Frequent levels, with "(other)" where the rest is not too rare itself, and that rest."""
    found = coded(values)
    levels, times = found.occurring()
    every = Counter(dict(zip(levels.to_pylist(), times.tolist(), strict=True)))
    every.update({MISSING: found.missing} if found.missing else {})
    counts = sorted((-count, level) for level, count in every.items())
    least = max(_FEWEST, _RARE * len(values))
    frequent = [level for count, level in counts[:MOST_LEVELS] if -count >= least]
    rest = counts[len(frequent) :]
    pooled = -sum(count for count, _ in rest)
    shown = [*frequent, OTHER] if pooled >= least or not frequent else frequent
    return shown, [level for _, level in rest]


def _one_hot(places: NDArray[np.int32], into: Array) -> None:
    into[:] = 0.0
    rows = np.flatnonzero(places < into.shape[1])
    into[rows, places[rows]] = 1.0


def _check_kind(values: Any, column: Column) -> None:
    """Refuse values that are not of the kind that was learned; everything can be a text."""
    if column.kind == "category" and any(fits(values.type) for fits in KINDS.values()):
        return
    kind = kind_of(column.name, values)
    if column.kind != kind and values.null_count < len(values):
        raise TableError(f"column {column.name!r} holds a {kind} here; the model learned a {column.kind}")
