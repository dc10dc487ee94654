"""Files to one table and back, by path, glob or folder; errors in one sentence."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tailproof.core.lookup import optional
from tailproof.data.readers.files import BadFileError, expand
from tailproof.data.readers.folders import typed, values_below
from tailproof.data.readers.formats import DELIMITERS
from tailproof.tables.columns import check_unique, is_text
from tailproof.tables.dialect import GUESSED, Dialect, with_decimal
from tailproof.tables.formats import (
    STDIN,
    Result,
    Source,
    Wanted,
    read_one,
    value_type,
)
from tailproof.tables.marks import Evidence, both_ways
from tailproof.tables.values import (
    ReadAs,
    convert,
    converted,
    evidence_in,
    is_identifier,
    plain_words,
    remembered,
    warn_of_units,
)

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_TOTAL = re.compile(
    r"((grand|sub) ?)?totals?|totale|totaal|sum|summe|gesamt(summe)?|insgesamt|suma|somme|soma|razem", re.I
)
_PARTS = 100  # row groups of files that are sampled, at most
_PLAIN_NUMBER = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?")


@dataclass(frozen=True, eq=False)
class ReadTable:
    """A table, and how it was read.

    Attributes
    ----------
    table : pyarrow.Table
    columns : list of ReadAs
        How each column was read.
    dialect : Dialect
        What reads new files alike.
    notes : list of str
        What was found about the files that a reader may want to correct.
    """

    table: Any
    columns: list[ReadAs]
    dialect: Dialect
    notes: list[str] = field(default_factory=list)


def read_table(
    paths: Any, delimiter: str | None = None, columns: list[str] | None = None, **options: Any
) -> Any:
    r"""Read files of the same columns as one ``pyarrow.Table``.

    Strings that are numbers or dates become such, the way people write them: decimal commas, thousands,
    currencies, percent, local dates. What a file does not say is found from its start.

    Parameters
    ----------
    paths : path, or list of paths
        A file, a glob or a folder; the ending says what a file is. "-" is standard input.
    delimiter : str, optional
        Between the values of a CSV; found by default.
    columns : list of str, optional
        Read these alone.
    **options
        ``encoding``, ``decimal``, ``thousands``, ``missing`` (a tuple of words), ``date_format``, ``sheet``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("size;colour\n1;red\n2,5;\n")
    ...     read_table(folder).to_pylist()
    [{'size': 1.0, 'colour': 'red'}, {'size': 2.5, 'colour': None}]
    """
    return read_files(paths, Dialect(delimiter=delimiter, **options), columns).table


def read_files(
    paths: Any,
    given: Dialect,
    columns: list[str] | None = None,
    as_text: Iterable[str] = (),
    used: frozenset[str] | None = None,
) -> ReadTable:
    """Read files, and say how.

    ``as_text`` names columns that stay strings whatever they hold, and ``used``, if it is given, those of
    which it matters whether 1.668 means a thousand and some.
    """
    given = given.with_implied_mark
    contents = _contents(paths)
    sources = [Source.of(content) for content, _ in contents]
    wanted = Wanted(given, columns, frozenset(as_text))
    folders = _folder_values([values for _, values in contents], wanted)
    results = [
        read_one(source, _without(wanted, values)) for source, values in zip(sources, folders, strict=True)
    ]
    tables = [
        _with_folders(result.table, values, wanted) for result, values in zip(results, folders, strict=True)
    ]
    for source, table in zip(sources, tables, strict=True):
        check_unique(table.column_names, source.name, BadFileError)
        _same_columns(sources[0].name, tables[0], source.name, table)
    unused = frozenset() if used is None else frozenset(tables[0].column_names) - used
    marks, european = _marks(sources[0].name, given, results, wanted.as_text | unused)
    table = tables[0] if len(tables) == 1 else _stacked(_alike(tables, results, marks, wanted.as_text))
    if table.num_rows == 0:
        raise BadFileError(f"{sources[0].name} has a header, but no rows")
    notes = [
        note
        for source, result in zip(sources, results, strict=True)
        for note in _notes(source, result, given)
    ]
    written = [result.written_out for result in results]
    table, dialect, read = converted(table, replace(marks, units=None), wanted.as_text, european)
    if given.units is not None:
        numbers = {column.name for column in read if "number" in column.words}
        seen = frozenset.union(*written) & numbers
        warn_of_units(dialect.units or {}, given.units, seen if used is None else seen & used)
    return _noticed(table, read, marks, remembered(dialect, given), notes)


def _marks(
    name: str, given: Dialect, results: Sequence[Result], as_text: frozenset[str]
) -> tuple[Dialect, bool]:
    """How files are written that do not show it themselves, and whether dates begin with the day, perhaps."""
    evidence = sum((result.evidence for result in results), Evidence())
    for result in results:
        if not result.dialect.decimal:
            evidence += evidence_in(result.table, given, as_text)
    delimiter = results[0].dialect.delimiter
    day_first = next((r.dialect.day_first for r in results if r.dialect.day_first is not None), None)
    marks = with_decimal(replace(given, day_first=day_first), evidence, delimiter, name)
    return marks, evidence.guessed(delimiter) == ","


def _alike(
    tables: Sequence[Any], results: Sequence[Result], marks: Dialect, as_text: frozenset[str]
) -> list[Any]:
    """Tables whose columns of strings become numbers or dates by the marks of their own file.

    That is for columns which are strings in some files only, and for all where the files differ in marks.
    """
    texts = [frozenset(field.name for field in table.schema if is_text(field.type)) for table in tables]
    differ = len({result.dialect.decimal for result in results if result.dialect.decimal}) > 1
    stay = as_text | (frozenset() if differ else frozenset.intersection(*texts))
    own = [replace(marks, decimal=result.dialect.decimal or marks.decimal) for result in results]
    return [converted(table, each, stay, False)[0] for table, each in zip(tables, own, strict=True)]


def _notes(source: Source, result: Result, given: Dialect) -> list[str]:
    notes, found = [], result.dialect
    if len(result.sheets) > 1 and given.sheet is None:
        others = ", ".join(map(repr, result.sheets[1:]))
        notes.append(
            f"{source.name}: sheet {result.sheets[0]!r} is read, and not {others}: --sheet names another"
        )
    if found.encoding in GUESSED and not given.encoding:
        notes.append(f"{source.name} is not UTF-8, and is read as {found.encoding}: --encoding names another")
    if found.skip and given.skip is None:
        notes.append(f"{source.name}: line {found.skip + 1} has the names of the columns")
    if total := _total_in(result.table):
        notes.append(
            f"{source.name}: the last line says {total!r}, and is read as any other: remove it if it is a sum"
        )
    told, shown = given.decimal or given.usual, result.evidence.shown
    if result.doubtful and told and shown and told != shown:
        why = "--decimal asks for" if given.decimal else "the model's files had"
        read, other = both_ways(result.doubtful, given.decimal or shown)
        mark = shown if given.decimal else told
        notes.append(
            f"{source.name} shows {shown!r} as decimal mark, and {why} {told!r}: {result.doubtful!r} is read "
            f"as {read}; --decimal {mark} reads it as {other}"
        )
    return notes


def _total_in(table: Any) -> str:
    """What the last line says if it seems to sum up the others."""
    last = table.slice(max(table.num_rows - 1, 1))
    texts = (last.column(name).to_pylist() for name in last.column_names)
    return next((cell for cells in texts for cell in cells if _TOTAL.fullmatch(str(cell).strip())), "")


def read_sample(files: Sequence[Path], given: Dialect, most: int) -> ReadTable:
    """Read about so many rows from all parts of Parquet files of the same columns."""
    pa, parquet = optional("pyarrow", extra="cli"), optional("pyarrow.parquet", extra="cli")
    groups = [(path, group) for path in files for group in range(parquet.read_metadata(path).num_row_groups)]
    if not groups:
        raise BadFileError(f"{files[0]} has columns, but no rows")
    chosen = [groups[int(i)] for i in np.unique(np.linspace(0, len(groups) - 1, _PARTS).astype(int))]
    batches = list[Any]()
    for path, group in chosen:
        with parquet.ParquetFile(path) as file:
            batches += islice(file.iter_batches(-(-most // len(chosen)), row_groups=[group]), 1)
    table, dialect, read = convert(pa.Table.from_batches(batches), given.with_implied_mark)
    return _noticed(table, read, dialect, remembered(dialect, given), [])


def _noticed(table: Any, read: list[ReadAs], marks: Dialect, dialect: Dialect, notes: list[str]) -> ReadTable:
    """What was read, with remarks on its columns."""
    return ReadTable(table, [_with_remark(table, column, marks) for column in read], dialect, notes)


def _with_remark(table: Any, column: ReadAs, marks: Dialect) -> ReadAs:
    if column.words == "number" and marks.decimal == ",":
        return replace(column, words="number, decimal comma")
    if not column.remark and is_identifier(column.name, table.column(column.name)):
        remark = f"a different number in every row: if it is an identifier, --drop {shlex.quote(column.name)}"
        return replace(column, remark=remark)
    return column


def _contents(paths: Any) -> list[tuple[Path | bytes, dict[str, Any]]]:
    """Files, or what came through a pipe, with the values in the names of folders."""
    contents: list[tuple[Path | bytes, dict[str, Any]]] = []
    for path in _several(paths):
        if str(path) == STDIN:
            contents.append((sys.stdin.buffer.read(), {}))
        else:
            contents += [(file, values_below(path, file)) for file in expand(path)]
    return contents


def _several(paths: Any) -> Sequence[Any]:
    return paths if isinstance(paths, (list, tuple)) else [paths]


def names_of_folders(paths: Any) -> set[str]:
    """Columns that are in the names of folders (``day=3``) and not in the files."""
    given = [path for path in _several(paths) if str(path) != STDIN]
    return {name for path in given for file in expand(path) for name in values_below(path, file)}


def _folder_values(files: list[dict[str, Any]], wanted: Wanted) -> list[dict[str, Any]]:
    """Values of folders of each file that are wanted, as numbers where all are and none has to stay text."""
    numbers = typed(files)
    return [
        {
            name: text if name in wanted.as_text else number[name]
            for name, text in texts.items()
            if wanted.columns is None or name in wanted.columns
        }
        for texts, number in zip(files, numbers, strict=True)
    ]


def _without(wanted: Wanted, values: dict[str, Any]) -> Wanted:
    """What to read from a file: columns in the names of its folders are not in it."""
    if not values or wanted.columns is None:
        return wanted
    # A file is read whole where only names of folders are asked for, which say nothing of its rows.
    return replace(wanted, columns=[name for name in wanted.columns if name not in values] or None)


def _with_folders(table: Any, values: dict[str, Any], wanted: Wanted) -> Any:
    """The table with a column for each value in the names of its folders, unless it has that one itself."""
    pa = optional("pyarrow", extra="cli")
    for name, value in values.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.repeat(pa.scalar(value), table.num_rows))
    return table.select(wanted.columns) if values and wanted.columns else table


def _written(write: Callable[..., None], columns: dict[str, Any], *options: Any) -> bytes:
    sink = io.BytesIO()
    write(optional("pyarrow", extra="cli").table(columns), sink, *options)
    return sink.getvalue()


def _parquet(columns: dict[str, Any]) -> bytes:
    return _written(optional("pyarrow.parquet", extra="cli").write_table, columns)


def _csv(columns: dict[str, Any], delimiter: str) -> bytes:
    csv = optional("pyarrow.csv", extra="cli")
    safe = {
        _as_plain_text(name): _without_formulas(_without_midnight(values)) for name, values in columns.items()
    }
    return _written(csv.write_csv, safe, csv.WriteOptions(delimiter=delimiter))


def _without_midnight(values: Any) -> Any:
    """Arrow's points of time as dates, if all of them are the beginning of a day."""
    pa, pc = optional("pyarrow", extra="cli"), optional("pyarrow.compute", extra="cli")
    kind = getattr(values, "type", None)
    if kind is None or not pa.types.is_timestamp(kind) or kind.tz is not None:
        return values
    days = values.cast(pa.date32(), safe=False)
    return days if pc.all(pc.equal(days.cast(kind), values)).as_py() else values


def _without_formulas(values: Any) -> Any:
    """Strings that a spreadsheet would run as formulas get an apostrophe in front; numbers stay."""
    kind = getattr(getattr(values, "dtype", None), "kind", "O")
    if kind not in "OU":
        return values
    # Columns of Arrow give scalars one by one, which are no strings.
    cells = values.to_pylist() if hasattr(values, "to_pylist") else values
    if not any(isinstance(cell, str) for cell in cells):
        return values
    return [_as_plain_text(cell) if isinstance(cell, str) else cell for cell in cells]


def _as_plain_text(text: str) -> str:
    formula = text.startswith(_FORMULA_STARTS) and not _PLAIN_NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


def _ipc(columns: dict[str, Any]) -> bytes:
    return _written(optional("pyarrow.feather", extra="cli").write_feather, columns)


# From columns to the bytes of a file.
WRITERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "parquet": _parquet,
    **{kind: partial(_csv, delimiter=delimiter) for kind, delimiter in DELIMITERS.items()},
    "ipc": _ipc,
}


def _same_columns(first: str, wanted: Any, path: str, table: Any) -> None:
    if set(wanted.column_names) == set(table.column_names):
        return
    odd = sorted(set(wanted.column_names) ^ set(table.column_names))[0]
    has, lacks = (first, path) if odd in wanted.column_names else (path, first)
    raise BadFileError(f"{has} has a column {odd!r}, and {lacks} has none")


def _stacked(tables: Sequence[Any]) -> Any:
    """Tables concatenated; a column of whole numbers here and fractions there becomes fractions."""
    pa = optional("pyarrow", extra="cli")
    types = [{field.name: value_type(field) for field in table.schema} for table in tables]
    wide = {name: _common_type({each[name] for each in types}) for name in types[0]}
    schemas = [pa.schema([(name, wide[name] or kind) for name, kind in each.items()]) for each in types]
    plain = [table.cast(schema) for table, schema in zip(tables, schemas, strict=True)]
    try:
        return pa.concat_tables(plain, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise BadFileError(_mismatch(types)) from None


def _mismatch(types: Sequence[dict[str, Any]]) -> str:
    """A column that is one thing in one file and another in the next."""
    for name in types[0]:
        first, *others = dict.fromkeys(_in_words(each[name]) for each in types)
        if others:
            return (
                f"column {name!r} holds {first} in one file, and {others[0]} in another: write it alike in "
                "all of them, or leave it out"
            )
    return "the files have columns of different types: write them alike"


def _in_words(kind: Any) -> str:
    zone = getattr(kind, "tz", None)
    return plain_words(kind).removeprefix("whole ") + (f" in the time zone {zone}" if zone else "")


def _common_type(kinds: set[Any]) -> Any:
    """Points of time, for columns of dates here and of times of a day there; None for all others."""
    pa = optional("pyarrow", extra="cli")
    zones = {getattr(kind, "tz", None) for kind in kinds}
    dates = all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in kinds)
    return pa.timestamp("us", tz=zones.pop()) if dates and len(kinds) > 1 and len(zones) == 1 else None
