"""How a text file is written, found from its start: encoding, delimiter, preamble, decimal mark, dates."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tailproof.data.readers.files import BadFileError

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
_UNUSED = {0x81, 0x8D, 0x8F, 0x90, 0x9D}  # bytes that mean nothing there
# Cells that leave no doubt about the decimal mark: 3,14 or 1.234,5, and 3.14 or 1,234.5.
_EDGE = r"^[^\d.,]{0,6}"
_COMMA = re.compile(_EDGE + r"(\d+,(\d{1,2}|\d{4,})|\d{1,3}(\.\d{3})+,\d+)[^\d.,]{0,6}$")
_POINT = re.compile(_EDGE + r"(\d+\.(\d{1,2}|\d{4,})|\d{1,3}(,\d{3})+\.\d+)[^\d.,]{0,6}$")
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
    lines = text.splitlines()[:_SAMPLE_LINES]
    if len(sample) >= SAMPLE_BYTES:
        lines = lines[:-1]  # cut off
    declared = re.fullmatch(r"sep=(.)", lines[0].strip('\ufeff"')) if lines else None
    first = 1 if declared else 0
    delimiter = given.delimiter or (declared[1] if declared else None) or default_delimiter
    delimiter = delimiter or delimiter_of(lines[first:])
    skip = given.skip if given.skip is not None else first + _preamble(lines[first:], delimiter)
    cells = [cell for row in _rows(lines[skip + 1 :], delimiter) for cell in row]
    return with_marks(replace(given, encoding=encoding, delimiter=delimiter, skip=skip), cells)


def with_marks(dialect: Dialect, cells: Sequence[str]) -> Dialect:
    """Fill in decimal mark and order of dates, by what the cells leave no doubt about."""
    decimal = dialect.decimal or decimal_of(cells, dialect.delimiter or ",")
    day_first = dialect.day_first
    if day_first is None:
        day_first = _day_first(cells, european=decimal == ",")
    return replace(dialect, decimal=decimal, day_first=day_first)


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
    best, most = ",", 0.0
    for delimiter in _DELIMITERS:
        widths = Counter(len(row) for row in _rows(lines, delimiter) if row)
        wide = [(times, width) for width, times in widths.items() if width > 1]
        if wide:
            times, width = max(wide)
            # Nearly all lines must agree; of two that do, the one that makes more cells.
            score = times / sum(widths.values()) + min(width, 1000) / 1e6
            best, most = (delimiter, score) if score > most else (best, most)
    return best


def _rows(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=delimiter))
    except csv.Error:
        return [line.split(delimiter) for line in lines]


def _preamble(lines: Sequence[str], delimiter: str) -> int:
    """Lines before the header: the first line that has as many cells as most lines."""
    widths = [len(next(iter(_rows([line], delimiter)), [])) for line in lines]
    common = Counter(width for width in widths if width > 1).most_common(1)
    if not common or common[0][1] < 2 or '"' in "".join(lines[:1]):
        return 0
    return next(place for place, width in enumerate(widths) if width == common[0][0])


def decimal_of(cells: Iterable[str], delimiter: str) -> str:
    """The decimal mark that more cells ask for; without any, a comma where semicolons leave it free.

    Examples
    --------
    >>> decimal_of(["1,5", "2"], ";"), decimal_of(["1,234.5"], ","), decimal_of(["1,234"], ",")
    (',', '.', '.')
    """
    commas = points = weak = 0
    for cell in cells:
        text = cell.strip()
        commas += bool(_COMMA.match(text))
        points += bool(_POINT.match(text))
        weak += bool(re.fullmatch(r"[-+]?\d{1,3},\d{3}", text))
    if commas == points:
        return "," if weak and not points and delimiter != "," else "."
    return "," if commas > points else "."


def _day_first(cells: Iterable[str], european: bool) -> bool:
    """Whether dates begin with the day: some are after the 12th; else dots and decimal commas suggest it."""
    days = months = dots = 0
    for cell in cells:
        match = _NUMERIC_DATE.match(cell.strip())
        if match:
            days += int(match[1]) > 12
            months += int(match[3]) > 12
            dots += match[2] == "."
    return (european or dots > 0) if days == months else days > months
