"""Columns of a table: their names, what type of values they hold, strings as codes, values as floats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.native.tables import extent

_MOST_CLASSES = 10  # a whole-number target with at most so many values is a class
_TAIL = 10  # rows below which the frequencies of counts may go up and down
_LARGEST = 1e100  # losses are squares, and their variances fourth powers: 1e308 is soon reached
_MICROSECONDS = 86_400e6  # of a day
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d([.]\d{1,6})?)?)?"  # ISO 8601, without a time zone
_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"
NAME_IN_DIGITS = r"^(0\d+|\d{19,})$"  # whose zeros, or last digits, a number would lose
_MOSTLY = 0.5  # a string column of which more are numbers is a numeric column with an unparsable value


class TableError(ValueError):
    """A table that cannot be learned from or predicted for; the message names the column."""


class RowError(TableError):
    """One that names a row; the message counts from 1.

    Examples
    --------
    >>> str(RowError("column 'x' is infinite in row", 2, ": correct it").among(np.array([0, 1, 7])))
    "column 'x' is infinite in row 8: correct it"
    """

    def __init__(self, before: str, row: int, after: str) -> None:
        super().__init__(f"{before} {row + 1:,}{after}")
        self._parts = before, row, after

    def among(self, rows: NDArray[np.intp]) -> RowError:
        """The same, where the rows of the table are these of a larger one."""
        before, row, after = self._parts
        return RowError(before, int(rows[row]), after)


def check_unique(
    names: Iterable[str], source: object = "the table", error: type[ValueError] = TableError
) -> None:
    """Refuse a table with two columns of the same name."""
    for name, times in Counter(names).most_common(1):
        if times > 1:
            raise error(f"{source} has two columns named {name!r}: rename one of them")


def check_present(names: list[str], wanted: Iterable[str], reason: str = "") -> None:
    """Refuse a table without a column that is wanted.

    Examples
    --------
    >>> check_present(["size", "cost"], ["price"])
    Traceback (most recent call last):
    ...
    tailproof.tables.columns.TableError: there is no column 'price': the columns are 'size', 'cost'
    """
    present = set(names)
    absent = [name for name in wanted if name not in present]
    if absent:
        known = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
        missing = ", ".join(map(repr, absent[:5]))
        raise TableError(f"there is no column {missing}{reason}: the columns are {known}")


@dataclass(frozen=True)
class Extent:
    """Smallest and largest of the numbers that are not missing, and how many are."""

    low: float
    high: float
    absent: int


def column_type(name: str, values: Any) -> str:
    """The type of a column, a name in ``COLUMN_TYPES``: by its Arrow type, or by what its strings say."""
    for kind, fits in COLUMN_TYPES.items():
        if fits(values.type):
            return _type_of_strings(name, values) if kind == "category" else kind
    raise TableError(
        f"column {name!r} holds values of type {values.type}, which cannot become numbers: leave it out"
    )


def is_classes(name: str, values: Any) -> bool:
    """Whether a target is a class: strings, booleans, or a few different whole numbers."""
    pt = _types()
    if pt.is_boolean(values.type):
        return True
    if is_text(values.type):
        return column_type(name, values) == "category"
    few = pt.is_integer(values.type) and len(values.unique()) <= _MOST_CLASSES
    return few and not is_counts(values)


def is_counts(values: Any) -> bool:
    """Whether whole numbers count something: they begin at zero, and zeros prevail over a long tail.

    Two values are classes. More are counts if there are gaps between them, or if they get rarer and all
    above one together are at most half as frequent as zero.

    Examples
    --------
    >>> import pyarrow as pa
    >>> is_counts(pa.chunked_array([[0] * 8 + [1] * 3 + [2]])), is_counts(pa.chunked_array([[0, 1, 2] * 5]))
    (True, False)
    """
    if not _types().is_integer(values.type):
        return False
    numbers, times = np.unique(values.drop_null().to_numpy(), return_counts=True)
    if numbers.size < 3 or numbers[0] != 0:
        return False
    gaps = times[0] == times.max() and numbers[-1] >= 2 * numbers.size
    rarer = (times[1:] <= times[:-1]) | (times[1:] < _TAIL)
    return bool(gaps or (rarer.all() and 2 * times[2:].sum() <= times[0]))


def target_numbers(name: str, values: Any) -> Array:
    """Values of a target as floats, dates as days; all of them must be finite, and not all the same."""
    numbers = numbers_of(name, values)
    if numbers.min() == numbers.max():
        raise TableError(f"the target {name!r} has one value only, {numbers[0]:g}: there is nothing to learn")
    return numbers


def numbers_of(name: str, values: Any) -> Array:
    """Values of a column as floats, dates as days; none may be missing, infinite or too large to square."""
    kind = column_type(name, values)
    if kind == "category":
        first = next(str(value) for value in values.drop_null())
        raise TableError(f"column {name!r} holds text such as {first[:40]!r}, where numbers are needed")
    numbers = floats(values, kind)
    extent = extent_of(name, numbers)
    if extent.absent:
        rows = "1 row" if extent.absent == 1 else f"{extent.absent:,} rows"
        raise TableError(f"column {name!r} has no value in {rows}: every row needs one")
    check_size(name, extent)
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def are_numbers(values: Any) -> bool:
    """Whether all strings of a column are numbers, with leading zeros or without.

    Examples
    --------
    >>> import pyarrow as pa
    >>> are_numbers(pa.chunked_array([["007", "1.5", None]])), are_numbers(pa.chunked_array([["7", "a"]]))
    (True, False)
    """
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(coded(values).occurring()[0], _NUMBER)).as_py())


def floats(values: Any, kind: str) -> Any:
    """Values as a ``pyarrow.ChunkedArray`` of float64, without a copy where they are float64 already."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "date":
        return pc.divide(_microseconds(values).cast(pa.float64(), safe=False), _MICROSECONDS)
    if is_text(values.type):
        values = pc.utf8_trim_whitespace(strings(values))
    return values.cast(pa.float64(), safe=False)


def extent_of(name: str, numbers: Any) -> Extent:
    """Extent of floats; infinite ones raise, and where all are missing it is NaN.

    Examples
    --------
    >>> import pyarrow as pa
    >>> extent_of("x", pa.chunked_array([[1.0, None], [3.0]]))
    Extent(low=1.0, high=3.0, absent=1)
    """
    lows, highs, absent, start = [], [], 0, 0
    for chunk in numbers.chunks:
        known = chunk.to_numpy(zero_copy_only=False)
        total, low, high = extent(known)
        if not math.isfinite(total):
            missing = missing_rows(name, known, start)
            known = np.delete(known, missing)
            absent += missing.size
            _, low, high = extent(known)
        start += len(chunk)
        if known.size:
            lows.append(low)
            highs.append(high)
    return Extent(min(lows, default=np.nan), max(highs, default=np.nan), absent)


def missing_rows(name: str, numbers: Array, first: int) -> NDArray[np.intp]:
    """Positions of NaN; infinite numbers raise, with their row counted from ``first``."""
    # A finite sum takes one pass and settles it; only otherwise the values are looked at one by one.
    if np.isfinite(numbers.sum()):
        return np.empty(0, dtype=np.intp)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = first + int(infinite.argmax())
        raise RowError(f"column {name!r} is infinite in row", row, ": correct it or leave the column out")
    return np.flatnonzero(np.isnan(numbers))


def check_size(name: str, extent: Extent) -> None:
    """Refuse numbers whose squares overflow."""
    largest = max(-extent.low, extent.high)
    if largest > _LARGEST:
        raise TableError(
            f"column {name!r} holds {largest:.3g}, which is too large: scale it, or leave it out"
        )


def _types() -> Any:
    import pyarrow.types

    return pyarrow.types


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers, booleans among them."""
    pt = _types()
    return any(
        test(kind) for test in (pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_boolean, pt.is_null)
    )


def _is_date(kind: Any) -> bool:
    pt = _types()
    return any(test(kind) for test in (pt.is_timestamp, pt.is_date, pt.is_time, pt.is_duration))


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of strings, or a dictionary."""
    pt = _types()
    return any(test(kind) for test in (pt.is_string, pt.is_large_string, pt.is_string_view, pt.is_dictionary))


COLUMN_TYPES: dict[str, Callable[[Any], bool]] = {"number": is_number, "date": _is_date, "category": is_text}


def _type_of_strings(name: str, values: Any) -> str:
    """Tell numbers (with an unparsable value among them: an error) and dates from categories."""
    import pyarrow.compute as pc

    categories, counts = coded(values).occurring()
    numeric = pc.match_substring_regex(categories, _NUMBER).to_numpy(zero_copy_only=False).copy()
    if pc.any(pc.match_substring_regex(categories, NAME_IN_DIGITS)).as_py():
        numeric[:] = False  # postcodes, accounts and the like
    if counts[numeric].sum() <= _MOSTLY * counts.sum():
        return "date" if _dates(categories) is not None else "category"
    if numeric.all():
        return "number"
    text = strings(values)
    row = pc.index(pc.fill_null(pc.match_substring_regex(text, _NUMBER), True), False).as_py()
    raise RowError(
        f"column {name!r} holds numbers, but row",
        row,
        f" says {text[row].as_py()[:40]!r}: correct it, name it as a word for missing values, or leave the "
        "column out",
    )


def _dates(text: Any) -> Any:
    """Strings as timestamps if all that are not missing are ISO dates, all with a time zone or none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = text.drop_null()
    # The first string settles it nearly always, at no cost.
    for pattern, zone in ((_DATE + "$", None), (_DATE + _ZONE, "UTC")):
        for part in (known[:1], known):
            if not len(part) or not pc.all(pc.match_substring_regex(part, pattern)).as_py():
                break
        else:
            try:
                return text.cast(pa.timestamp("us", tz=zone))
            except pa.ArrowInvalid:  # a 30th of February
                return None
    return None


def _microseconds(values: Any) -> Any:
    import pyarrow as pa

    pt = _types()
    values = _dates(strings(values)) if is_text(values.type) else values
    wide = {
        pt.is_date: pa.timestamp("us"),
        pt.is_time: pa.time64("us"),
        pt.is_duration: pa.duration("us"),
        pt.is_timestamp: pa.timestamp("us", tz=getattr(values.type, "tz", None)),
    }
    target = next(kind for test, kind in wide.items() if test(values.type))
    return values.cast(target, safe=False).cast(pa.int64())


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of strings as codes.

    Attributes
    ----------
    categories : pyarrow.Array
        Different strings, none of them missing; some may not occur.
    codes : pyarrow.ChunkedArray of int32
        Index of each row's category, null where it is missing.
    """

    categories: Any
    codes: Any

    @property
    def missing(self) -> int:
        """Rows without a string."""
        return int(self.codes.null_count)

    def occurring(self) -> tuple[Any, NDArray[np.int64]]:
        """Categories that occur, and how often."""
        counts = np.zeros(len(self.categories), dtype=np.int64)
        for chunk in self.codes.drop_null().chunks:
            counts += np.bincount(chunk.to_numpy(), minlength=counts.size)
        present = np.flatnonzero(counts)
        return self.categories.take(present), counts[present]

    def translated(self, known: list[str], unknown: int, missing: int) -> Any:
        """Codes of the rows among other categories.

        Parameters
        ----------
        known : list of str
        unknown, missing : int
            Codes for strings that are not known, and for rows without one.

        Examples
        --------
        >>> import pyarrow as pa
        >>> coded(pa.chunked_array([["red", None, "blue"]])).translated(["blue"], 7, 9).to_pylist()
        [7, 9, 0]
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        new = pc.fill_null(pc.index_in(self.categories, value_set=pa.array(known, pa.string())), unknown)
        table = np.append(new.to_numpy(), missing).astype(np.int32)
        codes = pc.fill_null(self.codes, len(self.categories))
        return pa.chunked_array([table[chunk.to_numpy()] for chunk in codes.chunks], pa.int32())


def coded(values: Any) -> Coded:
    """Codes of a column of strings, or of a dictionary, whose codes are used as they are.

    Blanks around strings do not count.

    Examples
    --------
    >>> import pyarrow as pa
    >>> column = coded(pa.chunked_array([["red", "blue"], ["red", None]]))
    >>> column.categories.to_pylist(), column.codes.to_pylist()
    (['red', 'blue'], [0, 1, 0, None])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    chunks = dictionary(values).chunks
    categories = chunks[0].dictionary.cast(pa.string()) if chunks else pa.array([], pa.string())
    trimmed = pc.utf8_trim_whitespace(categories)
    if not trimmed.equals(categories):
        return coded(pc.utf8_trim_whitespace(strings(values)))
    if categories.null_count or len(categories.unique()) < len(categories):  # dictionaries may hold both
        return coded(strings(values))
    codes = pa.chunked_array([chunk.indices.cast(pa.int32()) for chunk in chunks], pa.int32())
    return Coded(categories, codes)


def dictionary(values: Any) -> Any:
    """A column of strings as a dictionary that all its chunks share."""
    import pyarrow as pa

    encoded = values if pa.types.is_dictionary(values.type) else strings(values).dictionary_encode()
    return encoded.unify_dictionaries()


def strings(values: Any) -> Any:
    """Values of a column as strings."""
    import pyarrow as pa

    return values.cast(pa.string())
