"""One file to a ``pyarrow.Table``: CSV in any dialect, Parquet, Arrow, JSON lines, Excel; packed or not."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tailproof.core.lookup import optional
from tailproof.data.readers.files import DELIMITERS, FORMATS, BadFileError, csv_conversion
from tailproof.tables.dialect import FALLBACK_ENCODING, SAMPLE_BYTES, Dialect, sniff

STDIN = "-"
PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
TABLE_FORMATS = FORMATS | {
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}
READABLE = ", ".join(TABLE_FORMATS) + "; text may be packed as " + ", ".join(PACKED)
# First bytes, which tell more than an ending.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "ipc", b"PK\x03\x04": "xlsx"}
_PACKED_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_WIDER = {"int64": "float64"}  # whole numbers become fractions; all else becomes strings
_SAMPLE_ROWS = 3_000  # that are looked at one by one
_MOST_LEVELS = 1_000  # categories in a block of a CSV; a column of more is read as strings
Result = tuple[Any, Dialect]  # a table, and how the file is written
_CONVERSION_ERROR = re.compile(r"In CSV column #(\d+): .*conversion error to (\w+)")


@dataclass(frozen=True, eq=False)
class Source:
    """A file, or what came through a pipe.

    Attributes
    ----------
    name : str
        For messages.
    kind : str
        A name in ``READERS``.
    content : Path or bytes
    packing : str or None
        As ``pyarrow`` names it.
    """

    name: str
    kind: str
    content: Any
    packing: str | None = None

    @classmethod
    def of(cls, path: Path | bytes) -> Source:
        """What a file is, by its first bytes and its ending."""
        if isinstance(path, bytes):
            start, name, endings = path[:8], "standard input", [".csv"]
        else:
            name, endings = str(path), [ending.lower() for ending in path.suffixes[-2:]]
            with open(path, "rb") as file:
                start = file.read(8)
        if not start:
            raise BadFileError(f"{name} is empty")
        packing = next((kind for magic, kind in _PACKED_MAGIC.items() if start.startswith(magic)), None)
        if endings and endings[-1] in PACKED:
            endings = endings[:-1]
        kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
        kind = kind or TABLE_FORMATS.get(endings[-1] if endings else "")
        if kind is None:
            shown = endings[-1] if endings else "no ending"
            raise BadFileError(f"{name}: files end in {READABLE}; got {shown!r}: convert or rename it")
        if kind not in ("csv", "tsv", "jsonl"):
            packing = None
        return cls(name, kind, path, packing)

    def stream(self) -> Any:
        """The content from its start, unpacked."""
        pa = optional("pyarrow", extra="cli")
        raw = (
            pa.BufferReader(self.content) if isinstance(self.content, bytes) else pa.OSFile(str(self.content))
        )
        return pa.CompressedInputStream(raw, self.packing) if self.packing else raw


@dataclass(frozen=True)
class Wanted:
    """What the caller asks for: a dialect as far as it is given, columns, and which of them stay strings.

    ``quoted`` says that cells may hold line ends, which makes reading slower.
    """

    dialect: Dialect
    columns: list[str] | None = None
    as_text: frozenset[str] = frozenset()
    quoted: bool = False


def read_one(source: Source, wanted: Wanted) -> Result:
    """Table of a file, with cells as they are, and the dialect that it is written in."""
    try:
        return READERS[source.kind](source, wanted)
    except BadFileError:
        raise
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise BadFileError(f"cannot read {source.name} as {source.kind}: {one_line(error)}") from None


def _read_parquet(source: Source, wanted: Wanted) -> Result:
    table = optional("pyarrow.parquet", extra="cli").read_table(_file(source), columns=wanted.columns)
    return table, wanted.dialect


def _read_ipc(source: Source, wanted: Wanted) -> Result:
    table = optional("pyarrow.feather", extra="cli").read_table(_file(source), columns=wanted.columns)
    return table, wanted.dialect


def _file(source: Source) -> Any:
    return source.stream() if isinstance(source.content, bytes) else source.content


def _read_jsonl(source: Source, wanted: Wanted) -> Result:
    table = optional("pyarrow.json", extra="cli").read_json(source.stream())
    return (table.select(wanted.columns) if wanted.columns else table), wanted.dialect


def _read_xlsx(source: Source, wanted: Wanted) -> Result:
    """A sheet whose header is the first row with as many cells as most rows have."""
    openpyxl = optional("openpyxl", extra="excel")
    content = io.BytesIO(source.content) if isinstance(source.content, bytes) else source.content
    try:
        book = openpyxl.load_workbook(content, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError) as error:
        raise BadFileError(f"cannot read {source.name} as an Excel file: {one_line(error)}") from None
    asked, sheets = wanted.dialect.sheet, book.sheetnames
    if asked is not None and asked not in sheets:
        raise BadFileError(f"{source.name} has no sheet {asked!r}: there are {', '.join(sheets)}")
    sheet = book[asked or sheets[0]]
    rows = [list(row) for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)]
    widths = [sum(cell is not None for cell in row) for row in rows]
    first = next((j for j, width in enumerate(widths) if width >= max(widths, default=0) * 0.8), 0)
    if not rows[first + 1 :]:
        others = f": choose another by --sheet, of {', '.join(sheets)}" if len(sheets) > 1 else ""
        raise BadFileError(f"{source.name} has no rows in sheet {sheet.title!r}{others}")
    names = [f"column {j + 1}" if name is None else str(name) for j, name in enumerate(rows[first])]
    values = {name: [row[j] for row in rows[first + 1 :]] for j, name in enumerate(names)}
    table = optional("pyarrow", extra="cli").table({name: _cells(column) for name, column in values.items()})
    return (table.select(wanted.columns) if wanted.columns else table), wanted.dialect


def _cells(values: list[Any]) -> Any:
    """Cells of a sheet as one type; where they are of several, as strings."""
    pa = optional("pyarrow", extra="cli")
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        numbers = [value for value in values if isinstance(value, (int, float))]
        if len(numbers) + values.count(None) == len(values):
            return pa.array([None if value is None else float(value) for value in values])
        return pa.array([None if value is None else str(value) for value in values])


def _read_csv(source: Source, wanted: Wanted) -> Result:
    """Types are guessed from the first block; a column that does not keep to its type is read as wider."""
    with source.stream() as file:
        sample = file.read(SAMPLE_BYTES)
    default = DELIMITERS["tsv"] if source.kind == "tsv" else None
    dialect = sniff(sample, wanted.dialect, source.name, default)
    header = next(iter(_sampled(sample, dialect)), [])
    texts = wanted.as_text | _with_leading_zeros(sample, dialect)
    wanted = replace(wanted, dialect=dialect, as_text=texts, quoted=b'"' in sample)
    table = _parsed(source, wanted, header)
    if table is None:  # not UTF-8 after all
        dialect = replace(dialect, encoding=FALLBACK_ENCODING)
        table = _parsed(source, replace(wanted, dialect=dialect), header)
    names = [name or f"column {j + 1}" for j, name in enumerate(table.column_names)]
    return table.rename_columns(names), dialect


def _parsed(source: Source, wanted: Wanted, header: list[str]) -> Any:
    """The table, or None if a column is not in the encoding."""
    arrow_csv, pa = optional("pyarrow.csv", extra="cli"), optional("pyarrow", extra="cli")
    dialect = wanted.dialect
    encoding = "utf8" if dialect.encoding in ("utf-8", "utf-8-sig") else dialect.encoding
    reading = arrow_csv.ReadOptions(skip_rows=dialect.skip, encoding=encoding)
    parsing = arrow_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=wanted.quoted)
    types: dict[str, Any] = {name: pa.string() for name in wanted.as_text if name in header}
    while True:
        options = csv_conversion(
            column_types=types,
            include_columns=wanted.columns or [],
            decimal_point=dialect.decimal,
            auto_dict_encode=True,  # by the threads that read: later it would take as long as the rest
            auto_dict_max_cardinality=_MOST_LEVELS,
        )
        try:
            with source.stream() as file:
                table = arrow_csv.read_csv(file, reading, parsing, options)
            break
        except pa.ArrowInvalid as error:
            failed = _CONVERSION_ERROR.search(str(error))
            name = header[int(failed[1])] if failed and int(failed[1]) < len(header) else None
            if "invalid UTF8" in str(error) and dialect.encoding == "utf-8":
                return None
            if failed is None or name is None or types.get(name) == pa.string():
                raise
            types[name] = getattr(pa, _WIDER.get(failed[2], "string"))()
    binary = any(pa.types.is_binary(value_type(field)) for field in table.schema)
    return None if binary and dialect.encoding == "utf-8" else table


def _sampled(sample: bytes, dialect: Dialect) -> list[list[str]]:
    text = sample.decode(dialect.encoding or "utf-8", errors="replace").lstrip("\ufeff")
    lines = text.splitlines()[dialect.skip :][:_SAMPLE_ROWS]
    try:
        return [row for row in csv.reader(lines[:-1] or lines, delimiter=dialect.delimiter or ",") if row]
    except csv.Error:
        return []


def _with_leading_zeros(sample: bytes, dialect: Dialect) -> frozenset[str]:
    """Columns of digits, some with leading zeros, which a number would lose: postcodes and the like."""
    header, *rows = _sampled(sample, dialect) or [[]]
    places = {j for row in rows for j, cell in enumerate(row) if cell.isdigit() and cell[0] == "0" != cell}
    return frozenset(
        name
        for j, name in enumerate(header)
        if j in places and all(row[j].strip().isdigit() for row in rows if len(row) > j and row[j].strip())
    )


READERS: dict[str, Callable[[Source, Wanted], Result]] = {
    "parquet": _read_parquet,
    "ipc": _read_ipc,
    "jsonl": _read_jsonl,
    "xlsx": _read_xlsx,
    **dict.fromkeys(DELIMITERS, _read_csv),
}


def value_type(field: Any) -> Any:
    """Type of a column's values, whether or not they are encoded as a dictionary."""
    is_dictionary = optional("pyarrow.types", extra="cli").is_dictionary
    return field.type.value_type if is_dictionary(field.type) else field.type


def one_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
