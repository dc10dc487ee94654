"""How a text file is written, found from its start: encoding, delimiter, preamble, decimal mark, dates."""

from __future__ import annotations

import codecs
import csv
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tailproof.data.readers.files import BadFileError
from tailproof.tables.marks import Evidence, both_ways, doubt_of, evidence_in_rows

SAMPLE_BYTES = 1 << 20
_SAMPLE_LINES = 400
_DELIMITERS = (",", ";", "\t", "|")
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
FALLBACK_ENCODING = "cp1252"  # what is not UTF-8 was mostly written by Windows; latin-1 reads the same
GUESSED = (FALLBACK_ENCODING, "latin-1")  # encodings that any bytes could be in
_UNUSED = {0x81, 0x8D, 0x8F, 0x90, 0x9D}  # bytes that mean nothing there
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[\d.,]*([eE][-+]?\d+)?%?")
# A cell that a comma as delimiter would cut: decimals or thousands, with a currency or a unit.
_AROUND = r"[^\d.,;|\t]{0,6}"
_WITH_COMMA = r"(\d{1,3}([.' \u00a0\u202f]\d{3})+|\d+)(,\d+)?|\d{1,3}(,\d{3})+(\.\d*)?"
_ONE_NUMBER = re.compile(rf"{_AROUND}({_WITH_COMMA}|\d+\.\d+){_AROUND}")
_NUMERIC_DATE = re.compile(r"^(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d\d)(\D|$)")


@dataclass(frozen=True)
class Dialect:
    """How files are written; what is None is found from the file.

    Attributes
    ----------
    delimiter : str or None
        Between the cells of a CSV.
    encoding : str or None
        Of text, as Python names it.
    decimal, thousands : str or None
        Decimal mark, and what separates thousands.
    guessed : bool
        Whether the decimal mark, or the usual one, is a guess that no cell settled.
    asked : bool
        Whether it was given, and not found.
    usual : str or None
        Decimal mark of the files that a model learned from, for those that do not show their own.
    units : dict of str or None
        Units, "%" among them, of the columns of numbers that a model learned; None where none has learned.
    missing : tuple of str
        Words for missing values, beside the usual ones.
    date_format : str or None
        As ``strptime`` wants it, such as ``"%d/%m/%Y"``.
    day_first : bool or None
        Whether 3/4/2024 is in April.
    sheet : str or None
        Of an Excel file; the first by default.
    skip : int or None
        Lines before the header.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    missing: tuple[str, ...] = ()
    date_format: str | None = None
    day_first: bool | None = None
    sheet: str | None = None
    skip: int | None = None
    guessed: bool = False
    asked: bool = False
    usual: str | None = None
    units: dict[str, str] | None = None

    @property
    def as_learned(self) -> Dialect:
        """What a model knows of new files: the decimal mark of its own, unless they show another."""
        return replace(self, decimal=None, usual=self.decimal)

    @property
    def with_implied_mark(self) -> Dialect:
        """The same, with the decimal mark that thousands by the other one leave."""
        implied = None if self.usual else {".": ",", ",": "."}.get(self.thousands or "")
        return replace(self, decimal=self.decimal or implied)


def sniff(sample: bytes, given: Dialect, name: str, default_delimiter: str | None = None) -> Dialect:
    r"""Fill in what is not given, from the first bytes of a text file.

    Examples
    --------
    >>> found = sniff(b"Report of May\n\nsize;cost\n1,5;2.000,10\n2,5;3.000,20\n", Dialect(), "a.csv")
    >>> found.delimiter, found.decimal, found.skip
    (';', ',', 2)
    """
    encoding = given.encoding or encoding_of(sample)
    if b"\0" in sample[:4096] and "16" not in encoding and "32" not in encoding:
        raise BadFileError(f"{name} is not a text file")
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(sample, final=False)
    except (UnicodeDecodeError, LookupError) as error:
        raise BadFileError(
            f"{name} cannot be read as {encoding}: {error}; say which with --encoding"
        ) from None
    if not text.strip("\ufeff \t\r\n"):
        raise BadFileError(f"{name} is empty")
    lines = text.splitlines()[:_SAMPLE_LINES]
    if len(sample) >= SAMPLE_BYTES:
        lines = lines[:-1]  # cut off
    declared = re.fullmatch(r"sep=(.)", lines[0].strip('\ufeff"')) if lines else None
    first = 1 if declared else 0
    delimiter = given.delimiter or (declared[1] if declared else None) or default_delimiter
    delimiter = delimiter or delimiter_of(lines[first:])
    skip = given.skip if given.skip is not None else first + _preamble(lines[first:], delimiter)
    rows = _rows(lines[skip + 1 :], delimiter)
    if skip > first and given.skip is None and 2 * sum(map(_is_cut_in_single_quotes, rows)) > len(rows):
        raise BadFileError(
            f"{name} has {delimiter!r} within single quotes, which are no quotes of a CSV: write double ones"
        )
    decimal = given.decimal or evidence_in_rows(rows).shown
    found = replace(given, encoding=encoding, delimiter=delimiter, skip=skip, decimal=decimal)
    return with_order(found, (cell for row in rows for cell in row))


def _is_cut_in_single_quotes(row: Sequence[str]) -> bool:
    """Whether a cell opens a single quote that only a later one closes."""
    tidy = [cell.strip() for cell in row]
    opened = [j for j, cell in enumerate(tidy) if cell.startswith("'") and not cell[1:].endswith("'")]
    later = tidy[opened[0] + 1 :] if opened else []
    return any(cell.endswith("'") and not cell.startswith("'") for cell in later)


def with_order(dialect: Dialect, cells: Iterable[str]) -> Dialect:
    """Fill in the order of dates as far as the cells show it; what they do not stays None.

    So a model that learned from other dates has no say in how new files are written.
    """
    day_first = _day_first(cells) if dialect.day_first is None else dialect.day_first
    return replace(dialect, day_first=day_first)


def with_decimal(given: Dialect, evidence: Evidence, delimiter: str | None, source: str) -> Dialect:
    """Fill in the decimal mark: the one that cells show, or that the model's files had, or a guess.

    Parameters
    ----------
    given : Dialect
    evidence : Evidence
    delimiter : str or None
    source : str
        For the error that there is if the cells contradict what was guessed when the model learned.
    """
    if given.decimal:
        return replace(given, asked=True)
    shown = evidence.shown
    if given.guessed and given.usual and shown not in (None, given.usual):
        raise BadFileError(
            f"{source} shows that {shown!r} is the decimal mark, and the model took it for the mark of "
            f"thousands, by a guess, when it learned: fit it again with --decimal {shown} (decimal={shown!r} "
            "in Python), or give that option here if the guess was right"
        )
    likely = evidence.guessed(delimiter)
    settled = shown or not delimiter or given.asked or likely == given.usual
    if evidence.doubtful and given.usual and not settled:
        this, other = both_ways(evidence.doubtful, given.usual)
        warnings.warn(
            f"{source}: {evidence.doubtful!r} is read as {this}, by the decimal mark of the model's files: "
            f"--decimal {likely} reads it as {other}",
            stacklevel=2,
        )
    decimal = shown or given.usual or likely
    guessed = not (shown or given.usual) and bool(evidence.doubtful)
    if guessed and decimal:
        option = "--decimal {}" if delimiter else "decimal={!r}"  # of a file, or of TableRegressor
        warnings.warn(f"{source}: {doubt_of(evidence.doubtful, decimal, option)}", stacklevel=2)
    thousands = None if given.thousands == decimal else given.thousands
    return replace(given, decimal=decimal, guessed=guessed, thousands=thousands)


def encoding_of(sample: bytes) -> str:
    """Encoding by the byte order mark, or UTF-8 if the bytes are, or UTF-16 by its zeros, or Windows-1252."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if sample.startswith(mark):
            return encoding
    odd, even = sample[1:4096:2].count(0), sample[:4096:2].count(0)
    if odd + even > min(len(sample), 4096) // 4 and min(odd, even) == 0:
        return "utf-16-le" if odd else "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(sample, final=False)
        return "utf-8"
    except UnicodeDecodeError:
        return FALLBACK_ENCODING if not _UNUSED.intersection(sample) else "latin-1"


def delimiter_of(lines: Sequence[str]) -> str:
    """The delimiter that cuts most lines into the same number of cells, more than one.

    Examples
    --------
    >>> delimiter_of(["a;b", "1,5;2", "2,5;3"]), delimiter_of(["a", "1"])
    (';', ',')
    """
    if _one_column_with_commas(lines):
        return ";"
    best, most = ",", 0.0
    for delimiter in _DELIMITERS:
        widths = Counter(len(row) for row in _rows(lines, delimiter) if row)
        wide = [(times, width) for width, times in widths.items() if width > 1]
        if wide:
            times, width = max(wide)
            # Nearly all lines must agree; of two that do, the one that makes more cells.
            score = times / sum(widths.values()) + min(width, 1000) / 1e6
            best, most = (delimiter, score) if score > most else (best, most)
    return " " if not most and _are_cut_by_blanks(lines) else best


def _one_column_with_commas(lines: Sequence[str]) -> bool:
    """Whether a name without a comma stands above single numbers, some of which have one."""
    name, *cells = [line.strip() for line in lines if line.strip()] or [""]
    if "," in name or not any("," in cell for cell in cells):
        return False
    return all(_ONE_NUMBER.fullmatch(cell) for cell in cells)


def _are_cut_by_blanks(lines: Sequence[str]) -> bool:
    """Whether single blanks cut all lines into the same number of cells, some of them numbers below."""
    header, *rows = _rows(lines, " ") or [[]]
    if len(header) < 2 or not rows or any(len(row) != len(header) or "" in row for row in rows):
        return False
    return any(all(is_number(cell) for cell in column) for column in zip(*rows, strict=True))


def is_number(cell: str) -> bool:
    """Whether a cell is a number in any style.

    Examples
    --------
    >>> [is_number(cell) for cell in ("1.234,5", "-2", "3e5", "x2", "")]
    [True, True, True, False, False]
    """
    return _NUMBER.fullmatch(cell.strip()) is not None


def _rows(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=delimiter))
    except csv.Error:
        return [line.split(delimiter) for line in lines]


def _preamble(lines: Sequence[str], delimiter: str) -> int:
    """Lines before the header: the first line that has as many cells as most lines."""
    broken = any(line.count('"') % 2 for line in lines)  # a cell in quotes goes on in the next line
    cells = (
        _rows(lines, delimiter) if broken else [next(iter(_rows([line], delimiter)), []) for line in lines]
    )
    common = Counter(len(row) for row in cells if len(row) > 1).most_common(1)
    if not common or common[0][1] < 2 or '"' in "".join(lines[:1]):
        return 0
    first = next(place for place, row in enumerate(cells) if len(row) == common[0][0])
    above = cells[first - 1] if first else []
    # A line of names with a cell less than the rows below, which hold numbers, is a header all the same.
    short = len(above) == len(cells[first]) - 1 and not any(map(is_number, above))
    if short and any(map(is_number, cells[first])):
        return first - 1
    return first + 1 if _is_above_names(*cells[first : first + 2]) else first


def _is_above_names(header: Sequence[str], below: Sequence[str] = ()) -> bool:
    """Whether a line has names for groups of columns only, as merged cells leave it, and the next for all."""
    names = [cell for cell in header if cell.strip()]
    full = len(below) == len(header) and all(cell.strip() and not is_number(cell) for cell in below)
    return full and 2 * len(names) <= len(header)


def names_of(header: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> list[str] | None:
    """Names for rows with a cell more than the header: a last one that is empty, or the rows' own names.

    None where every cell has its name. The name of ``name``, a file, is for errors.

    Examples
    --------
    >>> names_of(["x", "y"], [["1", "2", ""], ["3", "4", ""]], "a.csv")
    ['x', 'y', '']
    >>> names_of(["x", "y"], [["a", "1", "2"], ["b", "3", "4"]], "a.csv")
    ['', 'x', 'y']
    """
    full = [row for row in rows if len(row) == len(header) + 1]
    if not full or 2 * len(full) <= len(rows):
        return None
    if not any(row[-1].strip() for row in full):
        return [*header, ""]
    labels = {row[0] for row in full}
    if len(labels) == len(full) and not any(cell.startswith("'") for row in full for cell in row):
        return ["", *header]
    raise BadFileError(
        f"{name} has {len(header)} names in its header and {len(full[0])} cells in the lines below: "
        "give every column a name"
    )


def _day_first(cells: Iterable[str]) -> bool | None:
    """Whether dates begin with the day: some are after the 12th, or dots say so; None where nothing does."""
    days = months = dots = 0
    for cell in cells:
        match = _NUMERIC_DATE.match(cell.strip())
        if match:
            days += int(match[1]) > 12
            months += int(match[3]) > 12
            dots += match[2] == "."
    if days != months:
        return days > months
    return True if dots else None
