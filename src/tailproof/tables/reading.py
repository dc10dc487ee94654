"""Files to one table and back: CSV, Parquet and Arrow, by path, glob or folder, errors in one sentence."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tailproof.core.lookup import optional
from tailproof.data.readers.files import DELIMITERS, ENDINGS, FORMATS, BadFileError, csv_conversion, expand
from tailproof.tables.columns import check_unique

_DELIMITER_NAMES = {";": "';'", "\t": "a tab", "|": "'|'", ",": "','"}
_WIDER = {"int64": "float64"}  # whole numbers become fractions; all else becomes strings
_MOST_LEVELS = 1_000  # categories in a block of a CSV; a column of more is read as strings
_CONVERSION_ERROR = re.compile(r"In CSV column #(\d+): .*conversion error to (\w+)")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_PLAIN_NUMBER = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?")
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # byte order marks of text that is not UTF-8


def read_table(paths: Any, delimiter: str | None = None, columns: list[str] | None = None) -> Any:
    r"""Read files of the same columns as one ``pyarrow.Table``.

    Parameters
    ----------
    paths : path, or list of paths
        A file, a glob or a folder; the file's ending says what it is.
    delimiter : str, optional
        Between the values of a CSV; "," by default, a tab for ``.tsv``.
    columns : list of str, optional
        Read these alone.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("size,colour\n1,red\n2.5,\n")
    ...     read_table(folder).to_pylist()
    [{'size': 1.0, 'colour': 'red'}, {'size': 2.5, 'colour': None}]
    """
    several = paths if isinstance(paths, (list, tuple)) else [paths]
    names = [name for path in several for name in expand(path)]
    tables = [_read(path, delimiter, columns) for path in names]
    for path, table in zip(names[1:], tables[1:], strict=True):
        _same_columns(names[0], tables[0], path, table)
    table = tables[0] if len(tables) == 1 else _stacked(tables)
    if table.num_rows == 0:
        raise BadFileError(f"{names[0]} has a header, but no rows")
    return table


def _read(path: Path, delimiter: str | None, columns: list[str] | None) -> Any:
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise BadFileError(
            f"{path}: files end in {ENDINGS}; got {path.suffix or 'no ending'!r}: convert or rename it"
        )
    if path.stat().st_size == 0:
        raise BadFileError(f"{path} is empty")
    try:
        table = READERS[kind](path, delimiter, columns)
    except BadFileError:
        raise
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise BadFileError(f"cannot read {path} as {kind}: {_one_line(error)}") from None
    check_unique(table.column_names, path, BadFileError)
    return table


def _read_parquet(path: Path, _: str | None, columns: list[str] | None) -> Any:
    return optional("pyarrow.parquet", extra="cli").read_table(path, columns=columns)


def _read_ipc(path: Path, _: str | None, columns: list[str] | None) -> Any:
    return optional("pyarrow.feather", extra="cli").read_table(path, columns=columns)


def _read_csv(path: Path, delimiter: str | None, columns: list[str] | None) -> Any:
    """Types are guessed from the first block; a column that does not keep to its type is read as wider."""
    csv, pa = optional("pyarrow.csv", extra="cli"), optional("pyarrow", extra="cli")
    separator = delimiter or DELIMITERS[FORMATS[path.suffix.lower()]]
    header = _header(path, separator)
    types: dict[str, Any] = {}
    while True:
        options = csv_conversion(
            column_types=types,
            include_columns=columns or [],
            auto_dict_encode=True,  # by the threads that read: later it would take as long as the rest
            auto_dict_max_cardinality=_MOST_LEVELS,
        )
        try:
            table = csv.read_csv(
                path, parse_options=csv.ParseOptions(delimiter=separator), convert_options=options
            )
            break
        except pa.ArrowInvalid as error:
            failed = _CONVERSION_ERROR.search(str(error))
            name = header[int(failed[1])] if failed and int(failed[1]) < len(header) else None
            if failed is None or name is None or types.get(name) == pa.string():
                raise
            types[name] = getattr(pa, _WIDER.get(failed[2], "string"))()
    _check_utf8(path, table)
    return table


READERS: dict[str, Callable[[Path, str | None, list[str] | None], Any]] = {
    "parquet": _read_parquet,
    "ipc": _read_ipc,
    **dict.fromkeys(DELIMITERS, _read_csv),
}


def _written(write: Callable[..., None], columns: dict[str, Any], *options: Any) -> bytes:
    sink = io.BytesIO()
    write(optional("pyarrow", extra="cli").table(columns), sink, *options)
    return sink.getvalue()


def _parquet(columns: dict[str, Any]) -> bytes:
    return _written(optional("pyarrow.parquet", extra="cli").write_table, columns)


def _csv(columns: dict[str, Any], delimiter: str) -> bytes:
    csv = optional("pyarrow.csv", extra="cli")
    safe = {_as_plain_text(name): _without_formulas(values) for name, values in columns.items()}
    return _written(csv.write_csv, safe, csv.WriteOptions(delimiter=delimiter))


def _without_formulas(values: Any) -> Any:
    """Strings that a spreadsheet would run as formulas get an apostrophe in front; numbers stay."""
    kind = getattr(getattr(values, "dtype", None), "kind", "O")
    if kind not in "OU":
        return values
    return [_as_plain_text(value) if isinstance(value, str) else value for value in values]


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


def _header(path: Path, separator: str) -> list[str]:
    """Names in the first line; a file that is not text, or has another delimiter, is refused."""
    import csv

    with open(path, "rb") as file:
        start = file.read(1 << 20)
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            raise BadFileError(f"{path} is {encoding}: save it as UTF-8")
    if b"\0" in start[:4096]:
        raise BadFileError(f"{path} is not a text file")
    try:
        line = start.split(b"\n", 1)[0].decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError:
        raise BadFileError(f"{path} is not UTF-8 in its first line: save it as UTF-8") from None
    names = next(csv.reader([line], delimiter=separator), [])
    if len(names) == 1:
        for other, words in _DELIMITER_NAMES.items():
            if other != separator and other in line:
                raise BadFileError(
                    f"{path} has one column only, named {line[:60]!r}: is its delimiter {words}? "
                    "Say so with --delimiter"
                )
    return names


def _check_utf8(path: Path, table: Any) -> None:
    is_binary = optional("pyarrow.types", extra="cli").is_binary
    for field in table.schema:
        if is_binary(_value_type(field)):
            raise BadFileError(f"{path} is not UTF-8 in column {field.name!r}: save it as UTF-8")


def _same_columns(first: Path, wanted: Any, path: Path, table: Any) -> None:
    if set(wanted.column_names) == set(table.column_names):
        return
    odd = sorted(set(wanted.column_names) ^ set(table.column_names))[0]
    has, lacks = (first, path) if odd in wanted.column_names else (path, first)
    raise BadFileError(f"{has} has a column {odd!r}, and {lacks} has none")


def _stacked(tables: Sequence[Any]) -> Any:
    """Tables concatenated; a column of whole numbers here and fractions there becomes fractions."""
    pa = optional("pyarrow", extra="cli")
    schemas = [pa.schema([(field.name, _value_type(field)) for field in table.schema]) for table in tables]
    plain = [table.cast(schema) for table, schema in zip(tables, schemas, strict=True)]
    try:
        return pa.concat_tables(plain, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise BadFileError(f"the files have columns of different types: {_one_line(error)}") from None


def _value_type(field: Any) -> Any:
    """Type of a column's values, whether or not they are encoded as a dictionary."""
    is_dictionary = optional("pyarrow.types", extra="cli").is_dictionary
    return field.type.value_type if is_dictionary(field.type) else field.type


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
