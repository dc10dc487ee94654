"""What a column of a table holds, by its type or by what its texts say, and its values as floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.tables.levels import coded, texts

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
class Extent:
    """Smallest and largest of the numbers that are there, and how many are not."""

    low: float
    high: float
    absent: int


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
    if is_text(values.type):
        return kind_of(name, values) == "category"
    return pt.is_integer(values.type) and len(values.unique()) <= _CLASSES


def target_numbers(name: str, values: Any) -> Array:
    """Numbers of a target, dates as days; every one of them finite, and not all the same."""
    numbers = floats(values, kind_of(name, values))
    extent = extent_of(name, numbers)
    if extent.low == extent.high:
        raise TableError(f"the target {name!r} has one value only, {extent.low:g}: there is nothing to learn")
    check_size(name, extent)
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def floats(values: Any, kind: str) -> Any:
    """Values as a ``pyarrow.ChunkedArray`` of float64, which shares memory where they are such already."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "date":
        return pc.divide(_microseconds(values).cast(pa.float64(), safe=False), _MICROSECONDS)
    if is_text(values.type):
        values = pc.utf8_trim_whitespace(texts(values))
    return values.cast(pa.float64(), safe=False)


def extent_of(name: str, numbers: Any) -> Extent:
    """Extent of floats, which must be finite where they are there; without any, NaN.

    Examples
    --------
    >>> import pyarrow as pa
    >>> extent_of("x", pa.chunked_array([[1.0, None], [3.0]]))
    Extent(low=1.0, high=3.0, absent=1)
    """
    lows, highs, absent, start = [], [], 0, 0
    for chunk in numbers.chunks:
        known = chunk.to_numpy(zero_copy_only=False)
        gaps = absent_in(name, known, start)
        known = np.delete(known, gaps) if gaps.size else known
        absent, start = absent + gaps.size, start + len(chunk)
        if known.size:
            lows.append(known.min())
            highs.append(known.max())
    return Extent(float(min(lows, default=np.nan)), float(max(highs, default=np.nan)), absent)


def absent_in(name: str, numbers: Array, first: int) -> NDArray[np.intp]:
    """Places of NaN among numbers, the first of which is in this row; infinite ones raise."""
    # One pass tells that all is well; only if it is not, it takes more to say where.
    if np.isfinite(numbers.sum()):
        return np.empty(0, dtype=np.intp)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = first + int(infinite.argmax()) + 1
        raise TableError(f"column {name!r} is infinite in row {row}: mend it or leave it out")
    return np.flatnonzero(np.isnan(numbers))


def check_size(name: str, extent: Extent) -> None:
    """Refuse numbers whose squares have no place among floats."""
    largest = max(-extent.low, extent.high)
    if largest > _LARGEST:
        raise TableError(
            f"column {name!r} holds {largest:.3g}, which is too large: scale it, or leave it out"
        )


def _types() -> Any:
    import pyarrow.types

    return pyarrow.types


def _is_number(kind: Any) -> bool:
    pt = _types()
    return any(
        test(kind) for test in (pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_boolean, pt.is_null)
    )


def _is_date(kind: Any) -> bool:
    pt = _types()
    return any(test(kind) for test in (pt.is_timestamp, pt.is_date, pt.is_time, pt.is_duration))


def is_text(kind: Any) -> bool:
    """Whether a type is one of texts, or of a dictionary."""
    pt = _types()
    return any(test(kind) for test in (pt.is_string, pt.is_large_string, pt.is_string_view, pt.is_dictionary))


KINDS: dict[str, Callable[[Any], bool]] = {"number": _is_number, "date": _is_date, "category": is_text}


def _kind_of_text(name: str, values: Any) -> str:
    """Tell a number column with a slip in it, and a column of dates, from a column of levels."""
    import pyarrow.compute as pc

    levels, counts = coded(values).occurring()
    numeric = pc.match_substring_regex(levels, _NUMBER).to_numpy(zero_copy_only=False)
    if counts[numeric].sum() <= _MOSTLY * counts.sum():
        return "date" if _dates(levels) is not None else "category"
    if numeric.all():
        return "number"
    said = texts(values)
    row = pc.index(pc.fill_null(pc.match_substring_regex(said, _NUMBER), True), False).as_py()
    raise TableError(
        f"column {name!r} holds numbers, but row {row + 1} says {said[row].as_py()[:40]!r}: mend it, or "
        "leave the column out"
    )


def _dates(said: Any) -> Any:
    """Texts as times if all that are there are ISO dates, with or without a zone; else None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    there = said.drop_null()
    # The first tells nearly always; a second look at a million names would cost.
    for pattern, zone in ((_DATE + "$", None), (_DATE + _ZONE, "UTC")):
        for some in (there[:1], there):
            if not len(some) or not pc.all(pc.match_substring_regex(some, pattern)).as_py():
                break
        else:
            try:
                return said.cast(pa.timestamp("us", tz=zone))
            except pa.ArrowInvalid:  # a 30th of February
                return None
    return None


def _microseconds(values: Any) -> Any:
    import pyarrow as pa

    pt = _types()
    values = _dates(texts(values)) if is_text(values.type) else values
    wide = {
        pt.is_date: pa.timestamp("us"),
        pt.is_time: pa.time64("us"),
        pt.is_duration: pa.duration("us"),
        pt.is_timestamp: pa.timestamp("us", tz=getattr(values.type, "tz", None)),
    }
    target = next(kind for test, kind in wide.items() if test(values.type))
    return values.cast(target, safe=False).cast(pa.int64())
