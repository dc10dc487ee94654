"""One file to a ``pyarrow.Table``: CSV in any dialect, Parquet, Arrow, JSON lines, Excel; packed or not."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailproof.core.lookup import optional
from tailproof.data.readers.files import BadFileError
from tailproof.data.readers.formats import DELIMITERS, FORMATS, csv_conversion
from tailproof.tables.columns import check_unique, is_text
from tailproof.tables.dialect import (
    FALLBACK_ENCODING,
    SAMPLE_BYTES,
    Dialect,
    is_number,
    names_of,
    sniff,
)
from tailproof.tables.marks import Evidence, columns_that_show, evidence_in_rows, has_open_cells, open_cell
from tailproof.tables.quotes import are_plain, read_text

STDIN = "-"
PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
TABLE_FORMATS = FORMATS | {
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}
READABLE = ", ".join(TABLE_FORMATS) + "; text may be packed as " + ", ".join([*PACKED, ".zip"])
# First bytes, which tell more than an ending.
_ZIP = b"PK\x03\x04"
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "ipc", _ZIP: "xlsx"}
_PACKED_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_WIDER = {"int64": "float64"}  # whole numbers become fractions; all else becomes strings
_SAMPLE_ROWS = 3_000  # that are looked at one by one
_LOOKED_AT = 400  # of them, cell by cell for decimal commas
_MOST_LEVELS = 1_000  # categories in a block of a CSV; a column of more is read as strings
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
        if start.startswith(_ZIP) and (member := _only_member(path, name)):
            return member
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


def _only_member(path: Path | bytes, name: str) -> Source | None:
    """The file in an archive of one; None for an Excel file, which is an archive too."""
    try:
        with zipfile.ZipFile(io.BytesIO(path) if isinstance(path, bytes) else path) as archive:
            inside = [
                item for item in archive.namelist() if not item.endswith("/") and "__MACOSX" not in item
            ]
            if "[Content_Types].xml" in inside:
                return None
            if len(inside) != 1:
                raise BadFileError(f"{name} holds {len(inside)} files: unpack it, and name those to read")
            content, ending = archive.read(inside[0]), Path(inside[0]).suffix.lower()
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        if not isinstance(path, bytes) and path.suffix.lower() in (".xlsx", ".xlsm"):
            return None
        raise BadFileError(f"cannot unpack {name}: {one_line(error)}") from None
    magic = next((kind for start, kind in _MAGIC.items() if content.startswith(start)), None)
    kind = magic or TABLE_FORMATS.get(ending)
    if not content or kind is None:
        raise BadFileError(f"{name} holds {inside[0]}, which is no table: files end in {READABLE}")
    return Source(f"{name} ({inside[0]})", kind, content)


@dataclass(frozen=True, eq=False)
class Result:
    """A table, how its file is written, and the sheets of a workbook, the one that was read first.

    ``evidence`` is what its first rows say of the decimal mark, and ``doubtful`` one of their cells that
    could be read with either.
    """

    table: Any
    dialect: Dialect
    sheets: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    doubtful: str = ""

    @property
    def written_out(self) -> frozenset[str]:
        """Columns whose cells show how numbers are written: all of a text file, else those of strings."""
        plain = self.dialect.delimiter is not None
        return frozenset(field.name for field in self.table.schema if plain or is_text(field.type))


@dataclass(frozen=True)
class Wanted:
    """What the caller asks for: a dialect as far as it is given, columns, and which of them stay strings.

    ``quoted`` says that cells may hold line ends, which makes reading slower; ``names`` are given where the
    header has none for some column.
    """

    dialect: Dialect
    columns: list[str] | None = None
    as_text: frozenset[str] = frozenset()
    quoted: bool = False
    names: list[str] | None = None


def read_one(source: Source, wanted: Wanted) -> Result:
    """Table of a file, with cells as they are, and the dialect that it is written in."""
    try:
        return READERS[source.kind](source, wanted)
    except BadFileError:
        raise
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise _bad_file(source, error) from None


def _bad_file(source: Source, error: Exception) -> BadFileError:
    told = one_line(error)
    help_ = ": correct or remove that line" if re.search(r"Expected \d+ columns, got", told) else ""
    return BadFileError(f"cannot read {source.name} as {source.kind}: {told}{help_}")


def parquet_schema(path: Path) -> Any:
    """Columns of a Parquet file and their types."""
    try:
        return optional("pyarrow.parquet", extra="cli").read_schema(path)
    except (OSError, ValueError) as error:
        raise _bad_file(Source(str(path), "parquet", path), error) from None


def _read_parquet(source: Source, wanted: Wanted) -> Result:
    table = optional("pyarrow.parquet", extra="cli").read_table(_file(source), columns=wanted.columns)
    return Result(table, wanted.dialect)


def _read_ipc(source: Source, wanted: Wanted) -> Result:
    table = optional("pyarrow.feather", extra="cli").read_table(_file(source), columns=wanted.columns)
    return Result(table, wanted.dialect)


def _file(source: Source) -> Any:
    return source.stream() if isinstance(source.content, bytes) else source.content


def _read_jsonl(source: Source, wanted: Wanted) -> Result:
    """A record in each line, or one list of records; what is nested gets names with points."""
    pa = optional("pyarrow", extra="cli")
    with source.stream() as file:
        is_list = file.read(64).lstrip().startswith(b"[")
    try:
        table = None if is_list else optional("pyarrow.json", extra="cli").read_json(source.stream())
    except pa.ArrowInvalid as error:
        if "changed from" not in str(error):  # numbers here and strings there can be told apart cell by cell
            raise
        table = None
    if table is None:
        with source.stream() as file:
            text = file.read().decode("utf-8-sig")
        table = _of_records(json.loads(text) if is_list else list(map(json.loads, text.splitlines())), source)
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return Result(_chosen(table, wanted), wanted.dialect)


def _chosen(table: Any, wanted: Wanted) -> Any:
    return table.select(wanted.columns) if wanted.columns else table


def _of_records(records: list[Any], source: Source) -> Any:
    if not records or not all(isinstance(record, dict) for record in records):
        raise BadFileError(f'{source.name} must hold a list of records, such as [{{"size": 1}}]')
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: _cells([record.get(name) for record in records]) for name in names}
    return optional("pyarrow", extra="cli").table(columns)


def _read_xlsx(source: Source, wanted: Wanted) -> Result:
    """A sheet whose header is the first row with as many cells as most rows have."""
    openpyxl = optional("openpyxl", extra="excel")
    content = io.BytesIO(source.content) if isinstance(source.content, bytes) else source.content
    try:
        book = openpyxl.load_workbook(content, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError) as error:
        raise BadFileError(f"cannot read {source.name} as an Excel file: {one_line(error)}") from None
    asked, sheets = wanted.dialect.sheet, book.sheetnames
    with contextlib.closing(book):
        if asked is not None and asked not in sheets:
            raise BadFileError(f"{source.name} has no sheet {asked!r}: there are {', '.join(sheets)}")
        sheet = book[asked or sheets[0]]
        cells = sheet.iter_rows(values_only=True)
        rows = [list(row) for row in cells if any(cell is not None for cell in row)]
    widths = [sum(cell is not None for cell in row) for row in rows]
    first = next((j for j, width in enumerate(widths) if width >= max(widths, default=0) * 0.8), 0)
    if not rows[first + 1 :]:
        others = f": choose another by --sheet, of {', '.join(sheets)}" if len(sheets) > 1 else ""
        raise BadFileError(f"{source.name} has no rows in sheet {sheet.title!r}{others}")
    names = _filled(["" if name is None else str(name) for name in rows[first]])
    check_unique(names, source.name, BadFileError)
    values = {name: [row[j] for row in rows[first + 1 :]] for j, name in enumerate(names)}
    table = optional("pyarrow", extra="cli").table({name: _cells(column) for name, column in values.items()})
    in_order = sheet.title, *(name for name in sheets if name != sheet.title)
    return Result(_chosen(table, wanted), wanted.dialect, in_order)


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
    told = wanted.dialect.decimal or wanted.dialect.usual
    dialect = sniff(sample, wanted.dialect, source.name, default)
    header, *rows = _sampled(sample, dialect) or [[]]
    _check_header(header, rows, source.name)
    names = names_of(header, rows, source.name)
    texts = wanted.as_text | _named_in_digits(names or header, rows)
    quoted = not are_plain(sample, dialect)
    wanted = replace(wanted, dialect=dialect, as_text=texts, quoted=quoted, names=names)
    evidence = evidence_in_rows(rows[:_LOOKED_AT])
    mark = dialect.decimal or evidence.guessed(None) or "."
    table = _parsed(source, wanted, names or header, mark)
    if table is None:  # not UTF-8 after all
        dialect = replace(dialect, encoding=FALLBACK_ENCODING)
        wanted = replace(wanted, dialect=dialect)
        table = _parsed(source, wanted, names or header, mark)
    if not dialect.decimal:
        sure = columns_that_show(mark, names or header, rows[:_LOOKED_AT])
        table = _with_doubtful_text(source, wanted, names or header, table, sure)
    table = table.rename_columns(_filled(table.column_names))
    doubtful = open_cell(rows[:_LOOKED_AT]) if told else ""
    return Result(_chosen(table, wanted), dialect, evidence=evidence, doubtful=doubtful)


def _with_doubtful_text(source: Source, wanted: Wanted, header: list[str], table: Any, sure: set[str]) -> Any:
    """The table with the cells of numbers that could be thousands, such as 1.668, as they are written."""
    pa = optional("pyarrow", extra="cli")
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    doubtful = [name.strip() for name in floats if name not in sure]
    if not doubtful or len({*header}) < len(header):
        return table
    again = replace(wanted, columns=doubtful, as_text=wanted.as_text.union(doubtful))
    texts = _parsed(source, again, header, ".")
    for name in texts.column_names:
        if has_open_cells(texts.column(name)):
            table = table.set_column(table.column_names.index(name), name, texts.column(name))
    return table


def _filled(names: list[str]) -> list[str]:
    """Names without blanks around them; those that are missing say where the column is."""
    return [name.strip() or f"column {j + 1}" for j, name in enumerate(names)]


def _check_header(header: list[str], rows: list[list[str]], name: str) -> None:
    """Refuse a first line of numbers; different whole numbers, such as years, may be names."""
    years = all(cell.strip().isdigit() for cell in header) and len(set(header)) == len(header)
    if header and rows and all(map(is_number, header)) and not years:
        raise BadFileError(f"{name} begins with numbers: put a line with the names of the columns above them")


def _parsed(source: Source, wanted: Wanted, header: list[str], mark: str) -> Any:
    """The table, with numbers that have this decimal mark, or None if a column is not in the encoding."""
    arrow_csv, pa = optional("pyarrow.csv", extra="cli"), optional("pyarrow", extra="cli")
    dialect = wanted.dialect
    encoding = "utf8" if dialect.encoding in ("utf-8", "utf-8-sig") else dialect.encoding
    skip = (dialect.skip or 0) + (wanted.names is not None)
    reading = arrow_csv.ReadOptions(skip_rows=skip, encoding=encoding, column_names=wanted.names)
    types: dict[str, Any] = {name: pa.string() for name in header if name.strip() in wanted.as_text}
    included = [name for name in header if name.strip() in (wanted.columns or [])]
    while True:
        options = csv_conversion(
            column_types=types,
            include_columns=included,
            decimal_point=mark,
            auto_dict_encode=True,  # by the threads that read: later it would take as long as the rest
            auto_dict_max_cardinality=_MOST_LEVELS,
        )
        try:
            table = read_text(source.stream, str(dialect.delimiter), reading, options, wanted.quoted)
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
    if len(sample) >= SAMPLE_BYTES:
        lines = lines[:-1]  # cut off, perhaps
    try:
        return [row for row in csv.reader(lines, delimiter=dialect.delimiter or ",") if row]
    except csv.Error:
        return []


def _named_in_digits(header: list[str], rows: list[list[str]]) -> frozenset[str]:
    """Columns of digits that a number would lose: leading zeros, as postcodes have, or more than 18."""
    places = {j for row in rows for j, cell in enumerate(row) if _loses_digits(cell)}
    return frozenset(
        name.strip()
        for j, name in enumerate(header)
        if j in places and all(row[j].strip().isdigit() for row in rows if len(row) > j and row[j].strip())
    )


def _loses_digits(cell: str) -> bool:
    return (cell[:1] == "0" != cell or len(cell) > 18) and cell.isdigit()


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
