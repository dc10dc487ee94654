"""One type for a column that tables or files hold in several."""

from __future__ import annotations

from typing import Any

from tailproof.core.lookup import optional


def widest_type(first: Any, second: Any) -> Any | None:
    """Arrow's type that holds the values of both; None where they are of different kinds.

    Whole numbers beside others become numbers, a column without values takes the other type, and days beside
    times become times. Numbers do not become text, nor truth values numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> str(widest_type(pa.int32(), pa.float32())), str(widest_type(pa.null(), pa.string()))
    ('double', 'string')
    >>> widest_type(pa.int64(), pa.string()) is None
    True
    """
    pa = optional("pyarrow", extra="cli")
    first, second = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (first, second))
    if first == second:
        return first
    for one, other in ((first, second), (second, first)):
        if pa.types.is_decimal(one) and (pa.types.is_integer(other) or pa.types.is_floating(other)):
            return pa.float64()  # no decimal has the digits of all whole numbers
        if pa.types.is_date(one) and pa.types.is_timestamp(other) and other.tz is None:
            return other
    try:
        schemas = [pa.schema([("column", kind)]) for kind in (first, second)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def widened(column: Any, kind: Any) -> Any:
    """A column with a type that :func:`widest_type` has found; raises where a value is beyond it."""
    pa = optional("pyarrow", extra="cli")
    # Large whole numbers are rounded where others are not whole, as everywhere.
    return column if column.type == kind else column.cast(kind, safe=not pa.types.is_floating(kind))


class CommonSchema:
    """Columns of files, each of the type that holds its values in all of them.

    Examples
    --------
    >>> import pyarrow as pa
    >>> common = CommonSchema()
    >>> common.add("a.csv", pa.schema([("x", pa.int64())]))
    >>> common.add("b.csv", pa.schema([("x", pa.float64())]))
    >>> str(common.schema.field("x").type)
    'double'
    """

    def __init__(self) -> None:
        self.schema: Any = None
        self._first = ""
        self._file_of_type: dict[str, str] = {}  # which file has given a column the type that it has by now

    def add(self, name: str, schema: Any) -> None:
        """Take in the columns of one more file; raises where one is not there, or of another kind."""
        if self.schema is None:
            self.schema, self._first = schema, name
        if schema.equals(self.schema):
            return
        for column in dict.fromkeys([*self.schema.names, *schema.names]):
            self._widen(column, name, schema)

    def _widen(self, column: str, name: str, schema: Any) -> None:
        place, given = self.schema.get_field_index(column), schema.get_field_index(column)
        known = None if place < 0 else self.schema.field(place).type
        new = None if given < 0 else schema.field(given).type
        kind = None if known is None or new is None else widest_type(known, new)
        if kind is None:
            other = self._file_of_type.get(column, self._first)
            remedy = "the same columns" if known is None or new is None else "one type of it"
            raise ValueError(
                f"{name} and {other} have different schemas: column {column!r} is {_told(new)} in the former "
                f"and {_told(known)} in the latter; write both with {remedy}, or leave one out"
            )
        if kind != known:
            self._file_of_type[column] = name
            self.schema = self.schema.set(place, self.schema.field(place).with_type(kind))


def _told(kind: Any) -> str:
    return "absent" if kind is None else str(kind)
