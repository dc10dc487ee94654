"""One type for every column of a stream, whose tables may each have found another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

from tailproof.core.lookup import optional
from tailproof.data.readers.files import BadFileError
from tailproof.data.readers.widening import widened, widest_type

_REMEDY = "give it values of one kind, or take it out of the stream"


def table_of_rows(rows: list[Mapping[str, Any]], start: int) -> Any:
    """Arrow table of rows that came one by one, the first of them row ``start`` of the stream.

    It has the keys of all rows; whole numbers beside others are numbers.

    Examples
    --------
    >>> table_of_rows([{"x": 1}, {"x": 2.5, "y": "a"}], 0).to_pylist()
    [{'x': 1.0, 'y': None}, {'x': 2.5, 'y': 'a'}]
    """
    pa = optional("pyarrow", extra="cli")
    names = dict.fromkeys(key for row in rows for key in row)
    return pa.table(
        {
            str(name): _column([row.get(name) for row in rows], f"column {name!r} of the stream", start)
            for name in names
        }
    )


def table_of_columns(columns: Mapping[str, Any], where: str) -> Any:
    """Arrow table of columns of any kind, or a sentence on the column that makes none.

    Examples
    --------
    >>> table_of_columns({"x": [1, 2.5], "y": ["a", None]}, "table 0").to_pylist()
    [{'x': 1.0, 'y': 'a'}, {'x': 2.5, 'y': None}]
    """
    pa = optional("pyarrow", extra="cli")
    arrays = {}
    for name, values in columns.items():
        told = f"column {name!r} in {where} of the stream"
        if isinstance(values, (Mapping, str)) or not hasattr(values, "__len__"):
            raise BadFileError(
                f"{told} is a {type(values).__name__}: a table is a dict of arrays, and a row one of single "
                "values"
            )
        arrays[name] = _column(values, told, 0)
    _check_lengths({name: len(array) for name, array in arrays.items()}, where)
    return pa.table(arrays)


def _check_lengths(lengths: dict[str, int], where: str) -> None:
    first = next(iter(lengths), "")
    for name, length in lengths.items():
        if length != lengths[first]:
            raise BadFileError(
                f"{where} of the stream has {lengths[first]} values in column {first!r} and {length} in "
                f"column {name!r}: give both as many"
            )


def _column(values: Any, told: str, start: int) -> Any:
    """Arrow's array of values; ``told`` is what errors call it, ``start`` the row of its first value."""
    pa = optional("pyarrow", extra="cli")
    try:
        return pa.table({"": values}).column(0)
    except (TypeError, ValueError, OverflowError, NotImplementedError):
        return _array_of_one_kind([None if _is_absent(value) else value for value in values], told, start)


def _is_absent(value: Any) -> bool:
    """Whether a value is one of the words of pandas for a missing one, which Arrow reads in frames alone."""
    return type(value).__name__ in ("NAType", "NaTType")


def _array_of_one_kind(values: list[Any], told: str, start: int) -> Any:
    pa = optional("pyarrow", extra="cli")
    known = [number for number, value in enumerate(values) if value is not None]
    first, kind = (known[0], _kind(values[known[0]])) if known else (0, "")
    other = next((number for number in known if _kind(values[number]) != kind), None)
    if other is not None:
        raise BadFileError(
            f"{told} holds {kind} in row {start + first} and {_kind(values[other])} in row {start + other}: "
            f"{_REMEDY}"
        )
    if kind == "a number":
        return pa.array([_rounded(value, told, start + row) for row, value in enumerate(values)])
    try:
        return pa.array(values)
    except (TypeError, ValueError, OverflowError, NotImplementedError):
        raise BadFileError(
            f"{told} holds {kind} in row {start + first}, which is no number or text: {_REMEDY}"
        ) from None


def _rounded(value: Any, told: str, row: int) -> float | None:
    """A number as a float, as Arrow does not round large whole numbers by itself."""
    try:
        return None if value is None else float(value)
    except OverflowError:
        raise BadFileError(
            f"{told} holds a number in row {row} that is too large for a float: correct it, or give None"
        ) from None


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, (Real, Decimal)):
        return "a number"
    return "text" if isinstance(value, str) else f"a {type(value).__name__}"


def check_unique(names: Iterable[Any], where: str) -> None:
    """Refuse a table with two columns of the same name."""
    name, times = next(iter(Counter(map(str, names)).most_common(1)), ("", 0))
    if times > 1:
        raise BadFileError(f"{where} of the stream has two columns named {name!r}: rename one of them")


def common_schema(known: Any, new: Any, where: str, may_lack: bool) -> Any:
    """Schema that holds the columns of all tables so far and of one more, or a sentence on why there is none.

    Parameters
    ----------
    known, new : pyarrow.Schema
    where : str
        What errors call the new table.
    may_lack : bool
        A column that only one of them has is one with missing values.
    """
    if new.equals(known):
        return known
    pa = optional("pyarrow", extra="cli")
    if not may_lack:
        _check_names(set(known.names), set(new.names), where)
    lacking = [new.field(name) for name in new.names if name not in known.names]
    shared = [_widest(field, new, where) if field.name in new.names else field for field in known]
    return pa.schema([*shared, *lacking])


def _check_names(known: set[str], new: set[str], where: str) -> None:
    if absent := sorted(known - new):
        raise BadFileError(
            f"{where} of the stream does not fit the first one: it has no column {absent[0]!r}"
        )
    if more := sorted(new - known):
        raise BadFileError(
            f"{where} of the stream does not fit the first one, which has no column {more[0]!r}"
        )


def _widest(field: Any, new: Any, where: str) -> Any:
    """The field, or one that holds its values and those of the other: whole numbers become numbers."""
    other = new.field(field.name)
    kind = widest_type(field.type, other.type)
    if kind is None:
        raise BadFileError(
            f"column {field.name!r} of the stream holds {field.type} at first and {other.type} in {where}: "
            f"{_REMEDY}"
        )
    return field.with_type(kind)


def with_schema(table: Any, schema: Any, where: str) -> Any:
    """A table with the columns and types of a schema that :func:`common_schema` has found."""
    if table.schema.equals(schema):
        return table
    pa = optional("pyarrow", extra="cli")
    columns = {field.name: _as(table, field, where) for field in schema}
    return pa.table(columns, schema=schema)


def _as(table: Any, field: Any, where: str) -> Any:
    pa = optional("pyarrow", extra="cli")
    if field.name not in table.column_names:
        return pa.nulls(table.num_rows, field.type)
    try:
        return widened(table.column(field.name), field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise BadFileError(f"column {field.name!r} in {where} of the stream: {reason}: {_REMEDY}") from None
