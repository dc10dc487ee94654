"""Named columns of any type to a matrix of numbers, learned once and repeated on new rows.

Numbers stay, dates become days, texts become one column of zeros and ones per level. Missing numbers take
the median and, where the training rows had some, a column that says so. All of it is in the model file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

OTHER, MISSING = "(other)", "(missing)"
MOST_LEVELS = 50  # of one column; the rest is pooled
_RARE = 0.002  # share of the rows below which a level is pooled
_FEWEST = 10  # rows that a level needs in any case
_SAMPLE = 50_000  # values that a median is taken of, where it fills no gap
_CLASSES = 10  # a whole-number target with at most so many values is a class
_LARGEST = 1e100  # losses are squares, and their variances fourth powers: 1e308 is soon reached
_MICROSECONDS = 86_400e6  # of a day
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d([.]\d{1,6})?)?)?"  # ISO 8601, and then a zone or none
_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"
_MOSTLY = 0.5  # a text column of which more are numbers is a number column with a slip in it


class TableError(ValueError):
    """A table that cannot be learned from or predicted for, with the column to blame."""


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
    """

    name: str
    kind: str
    fill: float = 0.0
    indicator: bool = False
    levels: tuple[str, ...] = ()
    reference: str = ""

    @property
    def names(self) -> list[str]:
        """Names of the columns that it becomes."""
        if self.kind == "category":
            return [f"{self.name}={level}" for level in self.levels]
        return [self.name, f"{self.name} {MISSING}"] if self.indicator else [self.name]

    def fill_in(self, values: Any, into: Array) -> None:
        """Write the numbers of a column into a block of the matrix."""
        if self.kind == "category":
            _one_hot(values, self.levels, self.reference, into)
            return
        into[:, 0] = _as_numbers(values, self.name, self.kind)
        absent = _absent(into[:, 0])
        into[absent, 0] = self.fill
        if self.indicator:
            into[:, 1] = 0.0
            into[absent, 1] = 1.0


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
        there = set(table.column_names)
        absent = [column.name for column in self.columns if column.name not in there]
        if absent:
            raise TableError(
                f"the data have no column {', '.join(map(repr, absent[:5]))}, which the model needs"
            )
        found = np.empty((table.num_rows, len(self.names)))
        start = 0
        for column in self.columns:
            stop = start + len(column.names)
            column.fill_in(_checked_kind(table.column(column.name), column), found[:, start:stop])
            start = stop
        return found


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


def kind_of(name: str, values: Any) -> str:
    """The kind of a column by its type, or by what its texts say."""
    for kind, fits in KINDS.items():
        if fits(values.type):
            return _kind_of_text(name, values) if kind == "category" else kind
    raise TableError(
        f"column {name!r} holds values of type {values.type}, which cannot become numbers: leave it out"
    )


def is_classes(name: str, values: Any) -> bool:
    """Whether a target is a class: texts, booleans, or a few whole numbers."""
    pt = _types()
    if pt.is_boolean(values.type):
        return True
    if _is_text(values.type):
        return kind_of(name, values) == "category"
    return pt.is_integer(values.type) and len(values.unique()) <= _CLASSES


def target_numbers(name: str, values: Any) -> Array:
    """Numbers of a target, dates as days; every one of them finite, and not all the same."""
    numbers = _as_numbers(values, name, kind_of(name, values))
    low, high = float(numbers.min()), float(numbers.max())
    if low == high:
        raise TableError(f"the target {name!r} has one value only, {low:g}: there is nothing to learn")
    _check_size(name, low, high)
    return numbers


def _types() -> Any:
    import pyarrow.types  # noqa: PLC0415

    return pyarrow.types


def _is_number(kind: Any) -> bool:
    pt = _types()
    return any(
        test(kind) for test in (pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_boolean, pt.is_null)
    )


def _is_date(kind: Any) -> bool:
    pt = _types()
    return any(test(kind) for test in (pt.is_timestamp, pt.is_date, pt.is_time, pt.is_duration))


def _is_text(kind: Any) -> bool:
    pt = _types()
    return any(test(kind) for test in (pt.is_string, pt.is_large_string, pt.is_string_view, pt.is_dictionary))


KINDS: dict[str, Callable[[Any], bool]] = {"number": _is_number, "date": _is_date, "category": _is_text}


def _kind_of_text(name: str, values: Any) -> str:
    """Tell a number column with a slip in it, and a column of dates, from a column of levels."""
    import pyarrow.compute as pc  # noqa: PLC0415

    texts = _texts(values)
    levels, counts = _counted(texts.drop_null())
    numeric = pc.match_substring_regex(levels, _NUMBER).to_numpy(zero_copy_only=False)
    if counts[numeric].sum() <= _MOSTLY * counts.sum():
        return "date" if _dates(levels) is not None else "category"
    if numeric.all():
        return "number"
    row = pc.index(pc.fill_null(pc.match_substring_regex(texts, _NUMBER), True), False).as_py()
    raise TableError(
        f"column {name!r} holds numbers, but row {row + 1} says {texts[row].as_py()[:40]!r}: mend it, or "
        "leave the column out"
    )


def _dates(texts: Any) -> Any:
    """Texts as times if all that are there are ISO dates, with or without a zone; else None."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    there = texts.drop_null()
    # The first tells nearly always; a second look at a million names would cost.
    for pattern, zone in ((_DATE + "$", None), (_DATE + _ZONE, "UTC")):
        for some in (there[:1], there):
            if not len(some) or not pc.all(pc.match_substring_regex(some, pattern)).as_py():
                break
        else:
            try:
                return texts.cast(pa.timestamp("us", tz=zone))
            except pa.ArrowInvalid:  # a 30th of February
                return None
    return None


def _texts(values: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    return values.cast(pa.string())


def _learn(name: str, values: Any) -> Column | None:
    kind = kind_of(name, values)
    if kind == "category":
        _check_present(name, len(values) - values.null_count)
        reference, *levels = _levels(values)
        return Column(name, kind, levels=tuple(levels), reference=reference) if levels else None
    numbers = _as_numbers(values, name, kind)
    absent = _absent(numbers)
    known = np.delete(numbers, absent) if absent.size else numbers
    _check_present(name, known.size)
    low, high = float(known.min()), float(known.max())
    _check_size(name, low, high)
    if low == high and not absent.size:
        return None
    # Where nothing is missing yet, the median of a part will do for what may be missing later.
    part = known if absent.size else known[:: max(1, known.size // _SAMPLE)]
    return Column(name, kind, float(np.median(part)), bool(absent.size))


def _check_present(name: str, count: int) -> None:
    if count == 0:
        raise TableError(f"column {name!r} has no value at all: leave it out")


def _check_size(name: str, low: float, high: float) -> None:
    """Refuse numbers whose squares have no place among floats."""
    largest = max(-low, high)
    if largest > _LARGEST:
        raise TableError(
            f"column {name!r} holds {largest:.3g}, which is too large: scale it, or leave it out"
        )


def _levels(values: Any) -> list[str]:
    """Frequent levels, most frequent first, and "(other)" where the rest is not too rare itself."""
    levels, times = _counted(_filled(values))
    counts = sorted(zip((-times).tolist(), levels.to_pylist(), strict=True))
    least = max(_FEWEST, _RARE * len(values))
    frequent = [level for count, level in counts[:MOST_LEVELS] if -count >= least]
    pooled = -sum(count for count, _ in counts[len(frequent) :])
    return [*frequent, OTHER] if pooled >= least or not frequent else frequent


def _counted(texts: Any) -> tuple[Any, NDArray[np.int64]]:
    """Different texts, and how often each occurs."""
    import pyarrow.compute as pc  # noqa: PLC0415

    found = pc.value_counts(texts)
    return found.field("values"), found.field("counts").to_numpy()


def _filled(values: Any) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.fill_null(_texts(values), MISSING)


def _one_hot(values: Any, levels: tuple[str, ...], reference: str, into: Array) -> None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    known = pa.array([*levels, reference], pa.string())
    place = pc.index_in(_filled(values), value_set=known)
    # A level that is rare or new counts as "(other)", or, where nothing was pooled, as the reference.
    unknown = len(levels) - 1 if levels[-1] == OTHER else len(levels)
    place = pc.fill_null(place, unknown).to_numpy()
    into[:] = 0.0
    rows = np.flatnonzero(place < len(levels))
    into[rows, place[rows]] = 1.0


def _as_numbers(values: Any, name: str, kind: str) -> Array:
    """Floats with NaN for what is missing."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if kind == "date":
        values = _microseconds(values)
    elif _is_text(values.type):
        values = pc.utf8_trim_whitespace(_texts(values))
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    numbers = numbers / _MICROSECONDS if kind == "date" else numbers
    # One pass tells that all is well; only if it is not, it takes more to say where.
    if not np.isfinite(numbers.sum()) and np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax()) + 1
        raise TableError(f"column {name!r} is infinite in row {row}: mend it or leave it out")
    return numbers


def _absent(numbers: Array) -> NDArray[np.intp]:
    """Places of NaN; a finite sum has none."""
    return np.empty(0, dtype=np.intp) if np.isfinite(numbers.sum()) else np.flatnonzero(np.isnan(numbers))


def _microseconds(values: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    pt = _types()
    values = _dates(_texts(values)) if _is_text(values.type) else values
    wide = {
        pt.is_date: pa.timestamp("us"),
        pt.is_time: pa.time64("us"),
        pt.is_duration: pa.duration("us"),
        pt.is_timestamp: pa.timestamp("us", tz=getattr(values.type, "tz", None)),
    }
    target = next(kind for test, kind in wide.items() if test(values.type))
    return values.cast(target, safe=False).cast(pa.int64())


def _checked_kind(values: Any, column: Column) -> Any:
    """New values of a column, if they are of the kind that was learned; everything can be a text."""
    if column.kind == "category" and any(fits(values.type) for fits in KINDS.values()):
        return values
    kind = kind_of(column.name, values)
    if column.kind != kind and values.null_count < len(values):
        raise TableError(f"column {column.name!r} holds a {kind} here; the model learned a {column.kind}")
    return values
