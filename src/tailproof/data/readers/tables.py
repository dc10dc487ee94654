"""Streams of tables: frames, Arrow tables and dicts from an iterator, readers and lazy queries, kept on disk.

What can be read only once, or only from its beginning, is written to Arrow files in a temporary folder, and
read from there as often as a fit needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tailproof.core.lookup import optional
from tailproof.data.durable import create, temporary_folder
from tailproof.data.readers.files import Files, open_files
from tailproof.data.readers.stream_types import (
    check_unique,
    common_schema,
    table_of_columns,
    table_of_rows,
    with_schema,
)

_FILE_ROWS = 1 << 18  # of a file: small enough for many pieces, large enough for few files
_FILE_BYTES = 1 << 27  # which are in memory until they are written
_ROWS_TOGETHER = 4_096  # that come one by one and make a table


def is_table(item: Any) -> bool:
    """Whether an item has named columns: a frame, an Arrow table or batch, or a dict of arrays."""
    return hasattr(item, "columns") or hasattr(item, "column_names") or isinstance(item, Mapping)


def is_table_stream(data: Any) -> bool:
    """Whether data are a query or reader that gives tables; imports nothing."""
    if getattr(data, "_scan_options", None):
        return True  # a filtered dataset, whose files hold other rows too
    names = {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(data).__mro__}
    return not names.isdisjoint(_STREAMS)


@contextmanager
def open_tables(data: Any, options: Any) -> Iterator[Files]:
    """Write a stream of tables to a temporary folder, and open it there."""
    with temporary_folder() as folder:
        _spool(_tables_of(data), folder)
        files = open_files(sorted(folder.glob("*.arrow"), key=lambda path: int(path.stem)), skip=options.skip)
        text = f"a stream of tables, {sum(files.rows):,} rows"
        yield replace(files, text=text, shown=_parts_of_stream(files), lasting=False)


def _parts_of_stream(files: Files) -> list[str]:
    """What errors call the files: nobody knows their names, and soon they are gone."""
    if len(files) == 1:
        return ["the stream"]
    starts = [sum(files.rows[:piece]) for piece in range(len(files))]
    return [f"the stream from row {start} on" for start in starts]


def _tables_of(data: Any) -> Iterable[Any]:
    names = [f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(data).__mro__]
    known = next((_STREAMS[name] for name in names if name in _STREAMS), None)
    if known is not None and not getattr(data, "_scan_options", None):
        return known(data)
    return data.to_batches() if hasattr(data, "to_batches") else data


def _relation_tables(relation: Any) -> Any:
    """Batches of a DuckDB relation, whose methods have changed their names more than once."""
    if hasattr(relation, "__arrow_c_stream__"):
        return optional("pyarrow", extra="cli").RecordBatchReader.from_stream(relation)
    return relation.fetch_arrow_reader()


# Queries and readers by name, so that nothing is imported, and how each gives its tables.
_STREAMS: dict[str, Callable[[Any], Iterable[Any]]] = {
    "pyarrow.RecordBatchReader": iter,
    "pyarrow.Scanner": lambda scanner: scanner.to_batches(),
    "polars.LazyFrame": lambda query: (
        query.collect_batches() if hasattr(query, "collect_batches") else [query.collect()]
    ),
    "_duckdb.DuckDBPyRelation": _relation_tables,
    "duckdb.DuckDBPyRelation": _relation_tables,
    "datasets.Dataset": lambda rows: rows.with_format("arrow").iter(batch_size=_FILE_ROWS),
    "datasets.IterableDataset": lambda rows: rows.with_format("arrow").iter(batch_size=_FILE_ROWS),
}


def _spool(tables: Iterable[Any], folder: Path) -> None:
    """Write tables to files of about the same number of rows."""
    spool = _Spool(folder)
    for place, item in enumerate(_rows_together(tables)):
        if isinstance(item, _Rows):
            spool.add(item.table, str(item), may_lack=True)
        else:
            spool.add(_plain(_as_table(item, place)), f"table {place}", may_lack=False)
    spool.finish()
    if not spool.seen:
        given = "no tables" if spool.schema is None else "tables without rows"
        raise ValueError(f"there is no row to learn from: the stream gives {given}")


class _Spool:
    """Files of a stream, all of one schema in the end: that of the first tables may have to give way."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.schema = folder, None
        self._held: list[tuple[str, Any]] = []
        self._rows = self._bytes = 0  # that are held
        self.seen = 0  # rows of all tables
        self._written: list[Any] = []  # schemas of the files

    def add(self, table: Any, where: str, may_lack: bool) -> None:
        """Take one more table, and write those that are held if they are enough."""
        new = table.schema.remove_metadata()
        self.schema = new if self.schema is None else common_schema(self.schema, new, where, may_lack)
        self._held.append((where, table))
        self.seen += table.num_rows
        self._rows, self._bytes = self._rows + table.num_rows, self._bytes + table.nbytes
        if self._rows >= _FILE_ROWS or self._bytes >= _FILE_BYTES:
            self._flush()

    def finish(self) -> None:
        """Write what is held, and once more what came before a column was seen to be of another type."""
        self._flush()
        for number, schema in enumerate(self._written):
            if not schema.equals(self.schema):
                self._write_again(self._path(number))

    def _flush(self) -> None:
        if self._held:
            tables = [with_schema(table, self.schema, where) for where, table in self._held]
            pa = optional("pyarrow", extra="cli")
            _write(pa.concat_tables(tables), self._path(len(self._written)))
            self._written.append(self.schema)
            self._held, self._rows, self._bytes = [], 0, 0

    def _write_again(self, path: Path) -> None:
        ipc = optional("pyarrow.ipc", extra="cli")
        with path.open("rb") as file:
            table = ipc.open_file(file).read_all()
        path.unlink()
        _write(with_schema(table, self.schema, "the first tables"), path)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.arrow"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows that came one by one, as a table."""

    start: int
    table: Any

    def __str__(self) -> str:
        return f"rows {self.start} to {self.start + self.table.num_rows - 1}"


def _rows_together(items: Iterable[Any]) -> Iterator[Any]:
    """Items, of which rows that come one by one as dicts are taken together."""
    rows: list[Any] = []
    done = 0
    for item in items:
        if _is_row(item):
            rows.append(item)
        else:
            yield item
        if len(rows) == _ROWS_TOGETHER:
            yield _Rows(done, table_of_rows(rows, done))
            done, rows = done + len(rows), []
    if rows:
        yield _Rows(done, table_of_rows(rows, done))


def _is_row(item: Any) -> bool:
    """Whether an item is one row: a dict of single values."""
    return isinstance(item, Mapping) and all(
        isinstance(value, str) or not hasattr(value, "__len__") for value in item.values()
    )


def _write(table: Any, path: Path) -> None:
    ipc = optional("pyarrow.ipc", extra="cli")
    with create(path) as file, ipc.new_file(file, table.schema) as into:
        into.write_table(table)


def _as_table(item: Any, place: int) -> Any:
    if not is_table(item):
        raise ValueError(f"item {place} of the stream is a {type(item).__name__}, where the first is a table")
    pa, where = optional("pyarrow", extra="cli"), f"table {place}"
    check_unique(_names_of(item), where)
    if isinstance(item, pa.Table):
        return item
    if isinstance(item, pa.RecordBatch):
        return pa.Table.from_batches([item])
    if isinstance(item, Mapping):
        return table_of_columns({str(name): values for name, values in item.items()}, where)
    return item.to_arrow() if hasattr(item, "to_arrow") else _of_pandas(item, where)


def _names_of(item: Any) -> Iterable[Any]:
    if isinstance(item, Mapping):
        return item
    return item.column_names if hasattr(item, "column_names") else item.columns


def _of_pandas(frame: Any, where: str) -> Any:
    pa = optional("pyarrow", extra="cli")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (TypeError, ValueError, OverflowError, NotImplementedError):
        columns = {str(name): frame.iloc[:, place] for place, name in enumerate(frame.columns)}
        return table_of_columns(columns, where)


def _plain(table: Any) -> Any:
    """Texts instead of dictionaries of them, which may differ from table to table."""
    pa = optional("pyarrow", extra="cli")
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
