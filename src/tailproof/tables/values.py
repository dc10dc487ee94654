"""Strings as numbers and dates, the way people write them: currencies, thousands, percent, local dates."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tailproof.core.lookup import optional
from tailproof.tables.columns import NAME_IN_DIGITS, Coded, coded, is_number, is_text
from tailproof.tables.dates import dates_of, durations_of, nearly_dates
from tailproof.tables.dialect import Dialect, with_decimal, with_order
from tailproof.tables.marks import Evidence, doubt_of, evidence_in_column
from tailproof.tables.numbers import (
    PERCENT,
    different_units,
    number_words,
    numbers,
    style_of,
    unit_in,
    unit_of,
)

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
_FIRST_ROWS = 1_000  # among which two of the same number spare a look at all rows
_MOSTLY = 0.5  # a column of which more are numbers, but not all, is worth a remark
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
    evidence = evidence_in(table, given, as_text)
    dialect = with_decimal(given, evidence, None, "the table")
    return converted(table, dialect, as_text, evidence.guessed(None) == ",")


def converted(
    table: Any, dialect: Dialect, as_text: frozenset[str], european: bool
) -> tuple[Any, Dialect, list[ReadAs]]:
    """The same with a decimal mark that is settled.

    ``european`` says that dates begin with the day where none of them shows an order. The dialect that is
    returned has none then: it is a guess about these rows, and not about others.
    """
    shown = dialect if dialect.day_first is not None else with_order(dialect, _some_cells(table))
    dialect = replace(shown, day_first=european) if shown.day_first is None else shown
    read, checked = list[ReadAs](), list[str]()
    for place, field in enumerate(table.schema):
        original = column = table.column(place)
        words, remark = plain_words(field.type), ""
        if is_text(field.type) and field.name not in as_text:
            column, words, remark = _converted(column, dialect)
            checked += [field.name] if words.startswith("number") else []
        elif is_number(field.type):
            column, words, remark = _plain_numbers(column, words, dialect)
        if column is not original:
            table = table.set_column(place, field.name, column)
        read.append(ReadAs(field.name, words, remark))
    units = {column.name: unit for column in read if (unit := unit_in(column.words))}
    if dialect.units is not None:
        warn_of_units(units, dialect.units, checked)
    return table, replace(shown, units=units), read


def warn_of_units(here: dict[str, str], learned: dict[str, str], numbers: Iterable[str]) -> None:
    """Warn of numbers that have another unit than when a model learned; percent signs may not come or go."""
    for name in numbers:
        unit, before = here.get(name, ""), learned.get(name, "")
        if unit != before and (PERCENT in (unit, before) or (unit and before)):
            had = f"was in {before!r}" if before else "had no unit"
            has = f"is in {unit!r}" if unit else "has no unit"
            read = ": 5% is read as 0.05, and 5 as 5" if PERCENT in (unit, before) else ""
            warnings.warn(f"column {name!r} {has} here, and {had} when the model learned{read}", stacklevel=2)


def evidence_in(table: Any, dialect: Dialect, as_text: frozenset[str] = frozenset()) -> Evidence:
    """What the strings of a table say of their decimal mark: the first, or all where those say nothing."""
    first, *more = (_FIRST_ROWS, table.num_rows) if table.num_rows > _FIRST_ROWS else (table.num_rows,)
    texts = [field.name for field in table.schema if is_text(field.type) and field.name not in as_text]
    for count in (first, *more):
        parts = (_known(coded(table.column(name).slice(0, count)), dialect)[1] for name in texts)
        found = sum((evidence_in_column(cells) for cells in parts if len(cells)), Evidence())
        if found.shown:
            break
    return found


def _some_cells(table: Any) -> list[str]:
    cells: list[str] = []
    for place, field in enumerate(table.schema):
        if is_text(field.type):
            cells += [
                str(cell) for cell in table.column(place).slice(0, 1000).to_pylist() if cell is not None
            ]
    return cells


def plain_words(kind: Any) -> str:
    """What columns of an Arrow type hold."""
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
    text, cells = _known(codes, dialect)
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


def _known(codes: Coded, dialect: Dialect) -> tuple[Any, Any]:
    """Different strings, null where they mean a missing value, and those that do not."""
    pc = optional("pyarrow.compute", extra="cli")
    text = _tidied(codes.categories)
    known = pc.invert(pc.is_in(pc.utf8_lower(text), value_set=_marks(dialect)))
    return pc.if_else(known, text, None), text.filter(known)


Found = tuple[Any, str, str]  # values of the categories, how they were read, and a remark


def _as_numbers(text: Any, cells: Any, dialect: Dialect) -> Found | None:
    pc = optional("pyarrow.compute", extra="cli")
    style, share = style_of(cells, dialect)
    unit = unit_of(cells) if share < 1 else ""
    if unit:
        cells, text = (pc.replace_substring(part, unit, "") for part in (cells, text))
        style, share = style_of(cells, dialect)
    if style is None or share < 1:
        return None
    percent = pc.match_substring(cells, "%")
    some = pc.any(percent).as_py() and not pc.all(percent).as_py()
    remark = "some cells have a %, others none: 5% is read as 0.05" if some else ""
    doubt = evidence_in_column(cells).doubtful if dialect.guessed else ""
    remark = doubt_of(doubt, style.decimal) if doubt else remark
    words = number_words(cells, style, unit)
    return numbers(text, style), words, remark


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
    style, share = style_of(cells, dialect)
    if style is None or share == 0:
        return different_units(cells) or _nearly_dates(cells, dialect)
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


def _spread(codes: Coded, values: Any) -> Any:
    """Values of the categories, for each row."""
    pa = optional("pyarrow", extra="cli")
    return pa.chunked_array([values.take(chunk) for chunk in codes.codes.chunks], values.type)


def remembered(dialect: Dialect, given: Dialect) -> Dialect:
    """What predictions need to read new files alike: all that was given, and the marks that cells showed."""
    return replace(
        given,
        decimal=dialect.decimal,
        guessed=dialect.guessed,
        asked=dialect.asked,
        day_first=dialect.day_first,
        usual=None,
        units=dialect.units,
    )


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
