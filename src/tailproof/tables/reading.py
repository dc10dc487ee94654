"""Files to one table and back: CSV, Parquet and Arrow, by path, glob or folder, errors in one sentence."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tailproof.data.readers.files import ENDINGS, FORMATS, BadFileError, expand
from tailproof.tables.columns import check_unique

_DELIMITERS = {";": "';'", "\t": "a tab", "|": "'|'", ",": "','"}
_MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "#N/A", "?"]
_WIDER = {"int64": "float64"}  # what a column of whole numbers may turn out to be; all else is text
_MOST_LEVELS = 1_000  # of a block of a CSV; a column of more is read as texts
_SLIP = re.compile(r"In CSV column #(\d+): .*conversion error to (\w+)")
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # first bytes of texts that are not UTF-8


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
    _pyarrow()
    try:
        table = READERS[kind](path, delimiter, columns)
    except BadFileError:
        raise
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise BadFileError(f"cannot read {path} as {kind}: {_one_line(error)}") from None
    check_unique(table.column_names, path, BadFileError)
    return table


def _read_parquet(path: Path, _: str | None, columns: list[str] | None) -> Any:
    import pyarrow.parquet as pq  # noqa: PLC0415

    return pq.read_table(path, columns=columns)


def _read_ipc(path: Path, _: str | None, columns: list[str] | None) -> Any:
    from pyarrow import feather  # noqa: PLC0415

    return feather.read_table(path, columns=columns)


def _read_csv(path: Path, delimiter: str | None, columns: list[str] | None) -> Any:
    """Types are guessed from the first block; a column that goes on otherwise is read again as wider."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv  # noqa: PLC0415

    separator = delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
    header = _header(path, separator)
    types: dict[str, Any] = {}
    while True:
        options = csv.ConvertOptions(
            strings_can_be_null=True,
            null_values=_MISSING,
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
            slip = _SLIP.search(str(error))
            name = header[int(slip[1])] if slip and int(slip[1]) < len(header) else None
            if slip is None or name is None or types.get(name) == pa.string():
                raise
            types[name] = getattr(pa, _WIDER.get(slip[2], "string"))()
    _check_text(path, table)
    return table


READERS: dict[str, Callable[[Path, str | None, list[str] | None], Any]] = {
    "parquet": _read_parquet,
    "ipc": _read_ipc,
    "csv": _read_csv,
    "tsv": _read_csv,
}


def _as_table(columns: dict[str, Any]) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    return pa.table(columns)


def _parquet(columns: dict[str, Any]) -> bytes:
    import pyarrow.parquet as pq  # noqa: PLC0415

    sink = io.BytesIO()
    pq.write_table(_as_table(columns), sink)
    return sink.getvalue()


def _csv(columns: dict[str, Any], delimiter: str = ",") -> bytes:
    from pyarrow import csv  # noqa: PLC0415

    sink = io.BytesIO()
    csv.write_csv(_as_table(columns), sink, csv.WriteOptions(delimiter=delimiter))
    return sink.getvalue()


def _ipc(columns: dict[str, Any]) -> bytes:
    from pyarrow import feather  # noqa: PLC0415

    sink = io.BytesIO()
    feather.write_feather(_as_table(columns), sink)
    return sink.getvalue()


# From columns to the bytes of a file.
WRITERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "parquet": _parquet,
    "csv": _csv,
    "tsv": partial(_csv, delimiter="\t"),
    "ipc": _ipc,
}


def _header(path: Path, separator: str) -> list[str]:
    """Names in the first line, after a look at whether it is text, and cut as it should be."""
    import csv  # noqa: PLC0415

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
        for other, words in _DELIMITERS.items():
            if other != separator and other in line:
                raise BadFileError(
                    f"{path} has one column only, named {line[:60]!r}: is its delimiter {words}? "
                    "Say so with --delimiter"
                )
    return names


def _check_text(path: Path, table: Any) -> None:
    import pyarrow.types as pt  # noqa: PLC0415

    for field in table.schema:
        kind = field.type.value_type if pt.is_dictionary(field.type) else field.type
        if pt.is_binary(kind):
            raise BadFileError(f"{path} is not UTF-8 in column {field.name!r}: save it as UTF-8")


def _same_columns(first: Path, wanted: Any, path: Path, table: Any) -> None:
    if set(wanted.column_names) == set(table.column_names):
        return
    odd = sorted(set(wanted.column_names) ^ set(table.column_names))[0]
    has, lacks = (first, path) if odd in wanted.column_names else (path, first)
    raise BadFileError(f"{has} has a column {odd!r}, and {lacks} has none")


def _stacked(tables: Sequence[Any]) -> Any:
    """One below the other, whole numbers and fractions of a column as fractions."""
    import pyarrow as pa  # noqa: PLC0415

    plain = [_without_dictionaries(table) for table in tables]
    try:
        return pa.concat_tables(plain, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise BadFileError(f"the files have columns of different types: {_one_line(error)}") from None


def _without_dictionaries(table: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.types as pt  # noqa: PLC0415

    fields = [
        pa.field(field.name, field.type.value_type if pt.is_dictionary(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401, PLC0415
    except ImportError:
        raise ImportError("reading files needs pyarrow: pip install 'tailproof[cli]'") from None
