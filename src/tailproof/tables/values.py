"""Strings as numbers and dates, the way people write them: currencies, thousands, percent, local dates."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tailproof.core.lookup import optional
from tailproof.tables.columns import Coded, TableError, coded, is_text
from tailproof.tables.dialect import Dialect, with_marks

# Words for a missing value in columns of numbers or dates; a column of categories keeps them.
MISSING_MARKS = (
    *(
        "",
        "-",
        "--",
        "---",
        ".",
        "..",
        "...",
        "*",
        "–",
        "—",
        "n.a.",
        "n.a",
        "na",
        "n/a",
        "#n/a",
        "nan",
        "null",
        "nil",
    ),
    *("none", "missing", "unknown", "not available", "(null)", "(blank)"),
    *("#value!", "#div/0!", "#ref!", "#num!", "#name?"),
)
_CURRENCY = r"(?:US\$|R\$|[$€£¥₹₽₩₺]|USD|EUR|GBP|CHF|JPY|CAD|AUD|SEK|NOK|DKK|PLN|INR|Rs\.?|kr\.?|zł)"
_THOUSANDS = (",", ".", " ", "'")
_IDENTIFIER = r"^0\d+$"
_MOSTLY = 0.9  # a column of which more are numbers, but not all, is worth a remark
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
# Pattern of a date, and its formats with the day first and with the month first.
_DATES = [
    (r"\d{4}-\d{1,2}-\d{1,2}", "%Y-%m-%d", "%Y-%m-%d"),
    (r"\d{4}/\d{1,2}/\d{1,2}", "%Y/%m/%d", "%Y/%m/%d"),
    (r"\d{1,2}/\d{1,2}/\d{4}", "%d/%m/%Y", "%m/%d/%Y"),
    (r"\d{1,2}\.\d{1,2}\.\d{4}", "%d.%m.%Y", "%m.%d.%Y"),
    (r"\d{1,2}-\d{1,2}-\d{4}", "%d-%m-%Y", "%m-%d-%Y"),
    (r"\d{1,2}/\d{1,2}/\d{2}", "%d/%m/%y", "%m/%d/%y"),
    (r"\d{1,2}\.\d{1,2}\.\d{2}", "%d.%m.%y", "%m.%d.%y"),
    (rf"\d{{1,2}} {_MONTH} \d{{4}}", "%d %b %Y", "%d %b %Y"),
    (rf"\d{{1,2}}-{_MONTH}-\d{{4}}", "%d-%b-%Y", "%d-%b-%Y"),
    (rf"\d{{1,2}}-{_MONTH}-\d{{2}}", "%d-%b-%y", "%d-%b-%y"),
    (rf"{_MONTH} \d{{1,2}} \d{{4}}", "%b %d %Y", "%b %d %Y"),
]


@dataclass(frozen=True)
class ReadAs:
    """How a column was read, for people.

    Attributes
    ----------
    name, words : str
    remark : str
        What a reader should check; empty where there is nothing.
    """

    name: str
    words: str
    remark: str = ""


@dataclass(frozen=True)
class Style:
    """How numbers are written."""

    decimal: str
    thousands: str

    @property
    def pattern(self) -> str:
        """Regular expression of a number with sign, currency or percent."""
        point, mark = re.escape(self.decimal), re.escape(self.thousands)
        grouped = rf"\d{{1,3}}(?:{mark}\d{{3}})+|\d{{1,2}}(?:{mark}\d{{2}})+{mark}\d{{3}}|" if mark else ""
        digits = rf"(?:(?:{grouped}\d+)(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?"
        return rf"^\(?[-+]? ?(?:{_CURRENCY} ?)?[-+]?{digits} ?(?:{_CURRENCY}|%)?-?\)?$"


def convert(
    table: Any, given: Dialect, as_text: frozenset[str] = frozenset()
) -> tuple[Any, Dialect, list[ReadAs]]:
    """Columns of strings as numbers or dates where they are, and how every column was read.

    Parameters
    ----------
    table : pyarrow.Table
    given : Dialect
    as_text : set of str
        Columns that stay strings.
    """
    dialect = (
        given if given.decimal and given.day_first is not None else with_marks(given, _some_cells(table))
    )
    read = []
    for place, field in enumerate(table.schema):
        column, words, remark = table.column(place), _plain_words(field.type), ""
        if is_text(field.type) and field.name not in as_text:
            column, words, remark = _converted(column, dialect)
            table = table.set_column(place, field.name, column)
        read.append(ReadAs(field.name, words, remark))
    return table, dialect, read


def _some_cells(table: Any) -> list[str]:
    cells: list[str] = []
    for place, field in enumerate(table.schema):
        if is_text(field.type):
            cells += [
                str(cell) for cell in table.column(place).slice(0, 1000).to_pylist() if cell is not None
            ]
    return cells


def _plain_words(kind: Any) -> str:
    pt = optional("pyarrow.types", extra="cli")
    names = {
        pt.is_boolean: "yes or no",
        pt.is_integer: "whole number",
        pt.is_floating: "number",
        pt.is_decimal: "number",
        pt.is_temporal: "date",
        pt.is_null: "nothing: no value at all",
    }
    return next((words for test, words in names.items() if test(kind)), "category")


def _converted(column: Any, dialect: Dialect) -> tuple[Any, str, str]:
    """The column as numbers, dates or strings, in words, and a remark."""
    pc = optional("pyarrow.compute", extra="cli")
    codes = coded(column)
    text = _tidied(codes.categories)
    known = pc.invert(pc.is_in(pc.utf8_lower(text), value_set=_marks(dialect)))
    cells = text.filter(known)
    if len(cells) == 0:
        return column, "category", ""
    if pc.any(pc.match_substring_regex(cells, _IDENTIFIER)).as_py():
        return column, "category", _leading_zeros(cells)
    style, share = _style_of(cells, dialect)
    if style is not None and share == 1.0:
        numbers = _numbers(pc.if_else(known, text, None), style)
        return _spread(codes, numbers), _number_words(cells, style), ""
    dates = _dates(pc.if_else(known, text, None), dialect)
    if dates is not None:
        order = "day first" if dialect.day_first else "month first"
        doubtful = (
            re.match(r"^\d{1,2}[/.-]\d{1,2}[/.-]", cells[0].as_py()) is not None and not dialect.date_format
        )
        return _spread(codes, dates), f"date, {order}" if doubtful else "date", ""
    remark = ""
    if style is not None and share >= _MOSTLY:
        odd = cells.filter(pc.invert(pc.match_substring_regex(cells, style.pattern)))[0].as_py()
        remark = f"mostly numbers, but {odd[:40]!r} is none: --na {odd[:40]!r} makes it a missing value"
    return column, "category", remark


def _tidied(text: Any) -> Any:
    """Strings without blanks around them, with plain blanks, apostrophes and minus signs inside."""
    pc = optional("pyarrow.compute", extra="cli")
    for odd, plain in (("[\u00a0\u202f\u2009]", " "), ("\u2212", "-"), ("\u2019", "'")):
        text = pc.replace_substring_regex(text, odd, plain)
    return pc.utf8_trim_whitespace(text)


def _marks(dialect: Dialect) -> Any:
    words = {*MISSING_MARKS, *(word.lower() for word in dialect.missing)}
    return optional("pyarrow", extra="cli").array(sorted(words))


def _leading_zeros(cells: Any) -> str:
    pc = optional("pyarrow.compute", extra="cli")
    if pc.all(pc.match_substring_regex(cells, r"^\d+$")).as_py():
        return "digits with leading zeros, such as postcodes, are names and not numbers"
    return ""


def _style_of(cells: Any, dialect: Dialect) -> tuple[Style | None, float]:
    """The style that most cells are written in, that of the file first, and the share of them."""
    pc = optional("pyarrow.compute", extra="cli")
    decimals = [str(dialect.decimal)] + (
        [] if dialect.thousands else [{".": ",", ",": "."}[str(dialect.decimal)]]
    )
    best, most = None, 0.0
    for decimal in decimals:
        marks = ("", dialect.thousands) if dialect.thousands else ("", *_THOUSANDS)
        for mark in marks:
            if mark == decimal:
                continue
            style = Style(decimal, mark)
            share = pc.mean(pc.match_substring_regex(cells, style.pattern).cast("float64")).as_py()
            best, most = (style, share) if share > most else (best, most)
    return best, most


def _numbers(text: Any, style: Style) -> Any:
    pa, pc = optional("pyarrow", extra="cli"), optional("pyarrow.compute", extra="cli")
    percent = pc.fill_null(pc.match_substring(text, "%"), False)
    negative = pc.fill_null(pc.match_substring_regex(text, r"^\(.*\)$|-$|^[^\d]*-"), False)
    plain = pc.replace_substring_regex(text, _CURRENCY, "")
    if style.thousands:
        plain = pc.replace_substring(plain, style.thousands, "")
    plain = pc.replace_substring(plain, style.decimal, ".")
    plain = pc.replace_substring_regex(plain, r"^[^\d.]+|[^\d.]+$", "")
    numbers = plain.cast(pa.float64())
    numbers = pc.if_else(negative, pc.negate(numbers), numbers)
    return pc.if_else(percent, pc.divide(numbers, 100.0), numbers)


def _number_words(cells: Any, style: Style) -> str:
    pc = optional("pyarrow.compute", extra="cli")
    words = []
    if pc.all(pc.match_substring(cells, "%")).as_py():
        words.append("percent")
    if pc.any(pc.match_substring_regex(cells, _CURRENCY)).as_py():
        words.append("an amount of money")
    if style.decimal == "," and pc.any(pc.match_substring(cells, ",")).as_py():
        words.append("decimal comma")
    if style.thousands and pc.any(pc.match_substring(cells, style.thousands)).as_py():
        words.append(f"thousands by {style.thousands!r}")
    return ", ".join(["number", *words])


def _dates(text: Any, dialect: Dialect) -> Any:
    """Strings as timestamps if all that are not missing are dates; each form is tried on its own."""
    pa, pc = optional("pyarrow", extra="cli"), optional("pyarrow.compute", extra="cli")
    plain = pc.replace_substring_regex(pc.replace_substring(text, ",", " "), " +", " ")
    dates = pa.nulls(len(text), pa.timestamp("us"))
    for pattern, form in _forms(dialect):
        fits = pc.match_substring_regex(plain, pattern)
        if pc.any(fits).as_py():
            short = pc.replace_substring_regex(pc.if_else(fits, plain, None), r"([A-Z][a-z]{2})[a-z]+", r"\1")
            dates = pc.coalesce(dates, pc.strptime(short, format=form, unit="us", error_is_null=True))
    return dates if dates.null_count == text.null_count else None


def _forms(dialect: Dialect) -> list[tuple[str, str]]:
    """Patterns with their formats, each with and without a time of day."""
    if dialect.date_format:
        return [("", dialect.date_format)]
    forms = []
    for pattern, *formats in _DATES:
        form = formats[0 if dialect.day_first else 1]
        forms += [
            (rf"^{pattern}$", form),
            (rf"^{pattern} \d{{1,2}}:\d\d$", f"{form} %H:%M"),
            (rf"^{pattern} \d{{1,2}}:\d\d:\d\d$", f"{form} %H:%M:%S"),
            (rf"^{pattern} \d{{1,2}}:\d\d ?[AaPp][Mm]$", f"{form} %I:%M %p"),
            (rf"^{pattern} \d{{1,2}}:\d\d:\d\d ?[AaPp][Mm]$", f"{form} %I:%M:%S %p"),
        ]
    return forms


def _spread(codes: Coded, values: Any) -> Any:
    """Values of the categories, for each row."""
    pa = optional("pyarrow", extra="cli")
    return pa.chunked_array([values.take(chunk) for chunk in codes.codes.chunks], values.type)


def remembered(dialect: Dialect, given: Dialect) -> Dialect:
    """What predictions need to read new files alike: all that was given, and the marks that were found."""
    return replace(given, decimal=dialect.decimal, day_first=dialect.day_first)


def is_identifier(name: str, column: Any) -> bool:
    """Whether a column numbers the rows: whole numbers, no two of them the same."""
    pt = optional("pyarrow.types", extra="cli")
    if not pt.is_integer(column.type) or column.null_count or len(column) < 20:
        return False
    values = column.to_numpy()
    return bool(np.unique(values).size == values.size) and (
        bool(np.all(np.abs(np.diff(values)) == 1))
        or re.search(r"(^|[_\W])(id|nr|no|key|code)([_\W]|$)", name.lower()) is not None
    )


def as_table(X: Any) -> Any:
    """Rows of any kind as a ``pyarrow.Table``; columns of an array are named x0, x1 and so on."""
    pa = optional("pyarrow", extra="cli")
    if isinstance(X, pa.Table):
        return X
    if hasattr(X, "to_arrow"):
        return X.to_arrow()
    if hasattr(X, "columns"):
        frame = X.rename(columns=str)
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(f"{error.args[-1]}: make its values all numbers, or all text") from None
        return table.replace_schema_metadata(None)
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"X must be a table or a two-dimensional array; got shape {array.shape}")
    return pa.table({f"x{j}": array[:, j].tolist() for j in range(array.shape[1])})
