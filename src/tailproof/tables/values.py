"""Strings as numbers and dates, the way people write them: currencies, thousands, percent, local dates."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tailproof.core.lookup import optional
from tailproof.tables.columns import NAME_IN_DIGITS, Coded, TableError, coded, is_number, is_text
from tailproof.tables.dates import dates_of, durations_of, nearly_dates
from tailproof.tables.dialect import Dialect, has_decimal_commas, with_marks

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
        "<na>",
        "n/d",
    ),
    *("nan", "nat", "null", "nil", "none", "missing", "unknown", "not available", "(null)", "(blank)"),
    *("#value!", "#div/0!", "#ref!", "#num!", "#name?", "#null!", "#spill!", "#calc!"),
    *("0000-00-00", "0000-00-00 00:00:00"),
)
_CODES = (
    "USD|EUR|GBP|CHF|JPY|CAD|AUD|NZD|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|BGN|TRY|RUB|UAH|ILS|INR|CNY|HKD|SGD|KRW|"
    "THB|IDR|MYR|PHP|VND|BRL|MXN|ARS|CLP|COP|PEN|ZAR|EGP|NGN|KES|MAD|AED|SAR"
)
_CURRENCY = rf"(?:US\$|R\$|[$€£¥₹₽₩₺₫₪₦฿₱]|{_CODES}|Rs\.?|kr\.?|zł|Kč|Ft)"
_THOUSANDS = (",", ".", " ", "'")
_FIRST_ROWS = 1_000  # among which two of the same number spare a look at all rows
_MOSTLY = 0.5  # a column of which more are numbers, but not all, is worth a remark
_UNIT = re.compile(r"[-+]?\d[\d.,' ]*?((?: ?[^\W\d_]| ?°)[^\d\s]{0,9})")
_ONE_MARK = r"^[-+]?\d+(?:[.,]\d+)?$"
_YES, _NO = ("yes", "true", "y", "t", "1"), ("no", "false", "n", "f", "0")


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
        return rf"^(?:{_CURRENCY} ?)?\(?[-+]? ?(?:{_CURRENCY} ?)?[-+]?{digits} ?(?:{_CURRENCY}|%)?-?\)?$"


def convert(
    table: Any, given: Dialect, as_text: frozenset[str] = frozenset(), european: bool = False
) -> tuple[Any, Dialect, list[ReadAs]]:
    """Columns of strings as numbers or dates where they are, and how every column was read.

    Parameters
    ----------
    table : pyarrow.Table
    given : Dialect
    as_text : set of str
        Columns that stay strings.
    european : bool
        Whether dates begin with the day where none of them shows an order. The dialect that is returned has
        none then: it is a guess about these rows, and not about others.
    """
    cells = [] if given.decimal and given.day_first is not None else _some_cells(table)
    shown = with_marks(given, cells)
    dialect = shown
    if shown.day_first is None:
        dialect = replace(shown, day_first=european or has_decimal_commas(cells, shown))
    read = []
    for place, field in enumerate(table.schema):
        original = column = table.column(place)
        words, remark = _plain_words(field.type), ""
        if is_text(field.type) and field.name not in as_text:
            column, words, remark = _converted(column, dialect)
        elif is_number(field.type):
            column, words, remark = _plain_numbers(column, words, dialect)
        if column is not original:
            table = table.set_column(place, field.name, column)
        read.append(ReadAs(field.name, words, remark))
    return table, shown, read


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
        pt.is_time: "time of day",
        pt.is_duration: "length of time",
        pt.is_integer: "whole number",
        pt.is_floating: "number",
        pt.is_decimal: "number",
        pt.is_temporal: "date",
        pt.is_null: "nothing: no value at all",
        pt.is_nested: "several values in a cell",
    }
    return next((words for test, words in names.items() if test(kind)), "category")


def _plain_numbers(column: Any, words: str, dialect: Dialect) -> tuple[Any, str, str]:
    """Numbers without those that mean a missing value, or as dates if that was asked for, and a remark."""
    pa, pc = optional("pyarrow", extra="cli"), optional("pyarrow.compute", extra="cli")
    absent = [float(word) for word in dialect.missing if re.fullmatch(r"[-+]?\d+(\.\d+)?", word)]
    if absent:
        known = pc.is_in(column.cast(pa.float64(), safe=False), value_set=pa.array(absent))
        column = pc.if_else(known, pa.scalar(None, column.type), column) if pc.any(known).as_py() else column
    if not pa.types.is_integer(column.type):
        return column, words, ""
    if len(re.findall("%[a-zA-Z]", dialect.date_format or "")) >= 3:
        text = column.cast(pa.string()).combine_chunks()
        dates = dates_of(text, dialect)
        remark = _nearly_dates(text.drop_null(), dialect) if dates is None else ""
        return (column, words, remark) if dates is None else (pa.chunked_array([dates]), "date", "")
    remark = "if these are dates, --date-format %Y%m%d reads them" if _are_days(column) else ""
    return column, words, remark


def _are_days(column: Any) -> bool:
    """Whether all whole numbers are dates such as 20240131, of this century or the last."""
    pc = optional("pyarrow.compute", extra="cli")
    ends = pc.min_max(column).as_py()
    if ends["min"] is None or not 19_000_101 <= ends["min"] <= ends["max"] <= 20_991_231:
        return False
    days = column.drop_null().to_numpy()
    month, day = days // 100 % 100, days % 100
    return bool(np.all((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)))


def _converted(column: Any, dialect: Dialect) -> tuple[Any, str, str]:
    """The column as numbers, answers, dates or strings, in words, and a remark."""
    pc = optional("pyarrow.compute", extra="cli")
    codes = coded(column)
    text = _tidied(codes.categories)
    known = pc.invert(pc.is_in(pc.utf8_lower(text), value_set=_marks(dialect)))
    cells, text = text.filter(known), pc.if_else(known, text, None)
    if len(cells) == 0:
        return column, "category", ""
    if pc.any(pc.match_substring_regex(cells, NAME_IN_DIGITS)).as_py():
        return column, "category", _names_in_digits(cells)
    digits = pc.any(pc.match_substring_regex(cells, r"\d")).as_py() or bool(dialect.date_format)
    for attempt in (_as_numbers, _as_answers, _as_dates) if digits else (_as_answers,):
        found = attempt(text, cells, dialect)
        if found is not None:
            values, words, remark = found
            return _spread(codes, values), words, remark
    return column, "category", _nearly_numbers(cells, dialect) if digits else ""


Found = tuple[Any, str, str]  # values of the categories, how they were read, and a remark


def _as_numbers(text: Any, cells: Any, dialect: Dialect) -> Found | None:
    pc = optional("pyarrow.compute", extra="cli")
    style, share = _style_of(cells, dialect)
    unit = _unit_of(cells) if share < 1 else ""
    if unit:
        cells, text = (pc.replace_substring(part, unit, "") for part in (cells, text))
        style, share = _style_of(cells, dialect)
    if style is None or share < 1:
        return None
    percent = pc.match_substring(cells, "%")
    some = pc.any(percent).as_py() and not pc.all(percent).as_py()
    remark = "some cells have a %, others none: 5% is read as 0.05" if some else ""
    words = _number_words(cells, style) + (f", in {unit}" if unit else "")
    return _numbers(text, style), words, remark


def _unit_of(cells: Any) -> str:
    """What stands behind the number in every cell, such as "kg"; empty where there is no such thing."""
    found = _UNIT.fullmatch(cells[0].as_py())
    if found is None:
        return ""
    pc = optional("pyarrow.compute", extra="cli")
    unit = found[1].strip()
    return unit if pc.all(pc.ends_with(cells, unit)).as_py() else ""


def _as_answers(text: Any, cells: Any, dialect: Dialect) -> Found | None:
    """Yes and no in more than one spelling; two words alone are categories, which keep their names."""
    pa, pc = optional("pyarrow", extra="cli"), optional("pyarrow.compute", extra="cli")
    words = set(pc.utf8_lower(cells[:20]).to_pylist())
    whole = words & {*_YES[:2], *_NO[:2]}  # letters alone may be codes
    if not 3 <= len(cells) <= 20 or not whole or not words <= {*_YES, *_NO}:
        return None
    yes = pc.is_in(pc.utf8_lower(text), value_set=pa.array(_YES))
    return pc.if_else(pc.is_valid(text), yes, None), "yes or no, in several spellings", ""


def _as_dates(text: Any, cells: Any, dialect: Dialect) -> Found | None:
    dates = dates_of(text, dialect)
    if dates is None:
        lengths = durations_of(text)
        return None if lengths is None else (lengths, "length of time, hours first", "")
    starts = [re.match(r"(\d{1,2})([/.-])(\d{1,2})[/.-]\d", cell) for cell in cells.to_pylist()]
    matches = [match for match in starts if match is not None]
    if not matches or dialect.date_format:
        return dates, "date", ""
    order, other = ("day first", "%m/%d/%Y") if dialect.day_first else ("month first", "%d/%m/%Y")
    settled = any(match[2] == "." or max(int(match[1]), int(match[3])) > 12 for match in matches)
    remark = "" if settled else f"each could be read the other way round: --date-format {other}"
    return dates, f"date, {order}", remark


def _nearly_numbers(cells: Any, dialect: Dialect) -> str:
    """A remark on a column of strings that are mostly numbers; empty for others."""
    pc = optional("pyarrow.compute", extra="cli")
    style, share = _style_of(cells, dialect)
    if style is None or share == 0:
        return _different_units(cells) or _nearly_dates(cells, dialect)
    plain = pc.match_substring_regex(cells, style.pattern)
    odd = cells.filter(pc.invert(plain))[0].as_py()[:40]
    if len(cells) > 2 and pc.all(pc.match_substring_regex(cells, _ONE_MARK)).as_py():
        first = cells.filter(plain)[0].as_py()[:40]
        return f"numbers of two styles, such as {first!r} and {odd!r}: write all of them alike"
    if share <= _MOSTLY:
        return ""
    return f"mostly numbers, but {odd!r} is none: --na {odd!r} makes it a missing value"


def _nearly_dates(cells: Any, dialect: Dialect) -> str:
    odd = nearly_dates(cells, dialect)[:40]
    return odd and f"mostly dates, but {odd!r} is none: --na {odd!r} makes it a missing value"


def _different_units(cells: Any) -> str:
    some = [cell.as_py() for cell in cells[:100]]
    units = {match[1].strip(): cell for cell in some if (match := _UNIT.fullmatch(cell))}
    if len(some) < 3 or len(units) < 2 or not all(map(_UNIT.fullmatch, some)):
        return ""
    first, other = list(units.values())[:2]
    return f"numbers of different units, such as {first!r} and {other!r}: write them in one"


def _tidied(text: Any) -> Any:
    """Strings without blanks around them, with plain blanks, apostrophes and minus signs inside."""
    pc = optional("pyarrow.compute", extra="cli")
    quoted = (r'^="(.*)"$', r"\1"), (r"^'([-+\d.,]+)$", r"\1")  # as spreadsheets mark text
    for odd, plain in (("[\u00a0\u202f\u2009]", " "), ("\u2212", "-"), ("\u2019", "'"), *quoted):
        text = pc.replace_substring_regex(text, odd, plain)
    return pc.utf8_trim_whitespace(text)


def _marks(dialect: Dialect) -> Any:
    words = {*MISSING_MARKS, *(word.lower() for word in dialect.missing)}
    return optional("pyarrow", extra="cli").array(sorted(words))


def _names_in_digits(cells: Any) -> str:
    pc = optional("pyarrow.compute", extra="cli")
    if not pc.all(pc.match_substring_regex(cells, r"^\d+$")).as_py():
        return ""
    if pc.any(pc.match_substring_regex(cells, r"^0\d+$")).as_py():
        return "digits with leading zeros, such as postcodes, are names and not numbers"
    return "too many digits for a number: names, such as those of accounts"


def _style_of(cells: Any, dialect: Dialect) -> tuple[Style | None, float]:
    """The style that most cells are written in, that of the file first, and the share of them."""
    pc = optional("pyarrow.compute", extra="cli")
    decimal, other = (",", ".") if dialect.decimal == "," else (".", ",")
    decimals = [decimal] if dialect.thousands else [decimal, other]
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
    negative = pc.fill_null(pc.match_substring_regex(text, r"\)$|-$|^[^\d]*-"), False)
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


def _spread(codes: Coded, values: Any) -> Any:
    """Values of the categories, for each row."""
    pa = optional("pyarrow", extra="cli")
    return pa.chunked_array([values.take(chunk) for chunk in codes.codes.chunks], values.type)


def remembered(dialect: Dialect, given: Dialect) -> Dialect:
    """What predictions need to read new files alike: all that was given, and the marks that cells showed."""
    return replace(given, decimal=dialect.decimal, day_first=dialect.day_first)


def is_identifier(name: str, column: Any) -> bool:
    """Whether a column numbers the rows: whole numbers, no two of them the same."""
    pt = optional("pyarrow.types", extra="cli")
    if not pt.is_integer(column.type) or column.null_count or len(column) < 20:
        return False
    if not _all_differ(column.slice(0, _FIRST_ROWS).to_numpy()):
        return False
    values = column.to_numpy()
    return _all_differ(values) and (
        bool(np.all(np.abs(np.diff(values)) == 1))
        or re.search(r"(^|[_\W])(id|nr|no|key|code)([_\W]|$)", name.lower()) is not None
    )


def _all_differ(values: Any) -> bool:
    return bool(np.unique(values).size == values.size)


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
