"""Dates and lengths of time the way people write them: any order, names of months, with a time or without."""

from __future__ import annotations

import re
from typing import Any

from tailproof.core.lookup import optional
from tailproof.tables.dialect import Dialect

_FIRST = 20  # strings that are tried before all are
_SURVEYED = 1_000  # strings that tell whether a column is mostly dates
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
# How months begin in English, German, French, Spanish, Italian, Portuguese and Dutch.
_MONTHS = {
    "Jan": "jan|jän|ene|gen",
    "Feb": "feb|fév|fev",
    "Mar": "mar|mär|mrz|mrt|maa",
    "Apr": "apr|avr|abr",
    "May": "may|mai|mei|mag",
    "Jun": "jun|juin|giu",
    "Jul": "jul|juil|lug",
    "Aug": "aug|aoû|ago",
    "Sep": "sep|set",
    "Oct": "oct|okt|ott|out",
    "Nov": "nov",
    "Dec": "dec|dez|déc|dic",
}
# What is replaced in a date before its forms are tried: commas, weekdays, the dot or the letters behind a
# day, fractions of seconds; a month alone is its first day.
_PLAIN_DATES = [
    (r", *", " "),
    (r"^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\.? +", ""),
    (r"^(\d{1,2})(?:st|nd|rd|th|\.)? +", r"\1 "),
    (r"(:\d\d)\.\d{1,9}$", r"\1"),
    (r"^((?:19|20)\d\d)[-/](\d{1,2})$", r"\1-\2-1"),
    (r"^(\d{1,2})[-/.]((?:19|20)\d\d)$", r"\2-\1-1"),
    (rf"^({_MONTH})[ -](\d{{2}}|\d{{4}})$", r"1-\1-\2"),
]
# Days that some months do not have, and the first days of a month, which they would be taken for.
_LATE_DAY, _TAKEN_FOR = "29|30|31", 3
_PLAIN_FORMAT = re.compile(r"(?:[^%]|%[dmYyHMSIpbB])*")  # of which dates can be written again
_DURATION = re.compile(r"(\d{1,4}):([0-5]\d)(?::([0-5]\d))?")
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
    (rf"\d{{1,2}}{_MONTH}\d{{4}}", "%d%b%Y", "%d%b%Y"),
    (rf"\d{{1,2}}-{_MONTH}-\d{{2}}", "%d-%b-%y", "%d-%b-%y"),
    (rf"{_MONTH} \d{{1,2}} \d{{4}}", "%b %d %Y", "%b %d %Y"),
]


def dates_of(text: Any, dialect: Dialect) -> Any:
    """Strings as timestamps if all that are not missing are dates; each form is tried on its own."""
    known = text.drop_null()
    if len(known) > _FIRST and _parsed(known[:_FIRST], dialect).null_count:
        return None  # which spares long texts the rest
    dates = _parsed(text, dialect)
    return dates if dates.null_count == text.null_count else None


def _parsed(text: Any, dialect: Dialect) -> Any:
    """Strings as timestamps, null where they are no dates."""
    pa, pc = optional("pyarrow", extra="cli"), optional("pyarrow.compute", extra="cli")
    plain = text if dialect.date_format else _plain_dates(text)
    dates = pa.nulls(len(text), pa.timestamp("us"))
    for pattern, form in _forms(dialect):
        fits = pc.match_substring_regex(plain, pattern)
        if pc.any(fits).as_py():
            dates = pc.coalesce(dates, _by_form(pc.if_else(fits, plain, None), form))
    return dates


def _by_form(text: Any, form: str) -> Any:
    """Strings of one form as timestamps; 31 April is none, though the parser takes it for 1 May."""
    pa, pc = optional("pyarrow", extra="cli"), optional("pyarrow.compute", extra="cli")
    dates = pc.strptime(text, format=form, unit="us", error_is_null=True)
    early = pc.less_equal(pc.day(dates), _TAKEN_FOR)
    doubtful = pc.fill_null(pc.and_(early, pc.match_substring_regex(text, _LATE_DAY)), False)
    if not pc.any(doubtful).as_py() or not _PLAIN_FORMAT.fullmatch(form):
        return dates
    again = pc.strftime(pc.if_else(doubtful, dates, None).cast(pa.timestamp("s")), format=form)
    wrong = pc.fill_null(pc.not_equal(_bare(again), _bare(text)), False)
    return pc.if_else(wrong, None, dates)


def _bare(text: Any) -> Any:
    """Dates without what may be written or not: capitals, blanks, zeros in front."""
    pc = optional("pyarrow.compute", extra="cli")
    packed = pc.replace_substring_regex(pc.utf8_lower(text), r"(^|\D)0+(\d)", r"\1\2")
    return pc.replace_substring(packed, " ", "")


def nearly_dates(cells: Any, dialect: Dialect) -> str:
    """A cell that is no date among some that mostly are; empty where there is none, or they are not."""
    pc = optional("pyarrow.compute", extra="cli")
    some = cells[:_SURVEYED]
    bad = pc.is_null(_parsed(some, dialect))
    if 2 * pc.sum(bad).as_py() >= len(some) or not pc.any(bad).as_py():
        return ""
    return str(some.filter(bad)[0].as_py())


def _plain_dates(text: Any) -> Any:
    """Strings with English months of three letters, and without what no form of a date has."""
    pc = optional("pyarrow.compute", extra="cli")
    if pc.any(pc.match_substring_regex(text, r"\d.*\pL|\pL.*\d")).as_py():
        for month, starts in _MONTHS.items():
            text = pc.replace_substring_regex(text, rf"(?i)(^|[^\pL])(?:{starts})\pL*\.?", rf"\1{month}")
    for pattern, plain in _PLAIN_DATES:
        text = pc.replace_substring_regex(text, pattern, plain)
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(text, " +", " "))


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


def durations_of(text: Any) -> Any:
    """Strings as lengths of time if all that are not missing are hours, minutes and perhaps seconds."""
    known = text.drop_null()
    if not len(known) or not _DURATION.fullmatch(known[0].as_py()):
        return None
    found = [None if cell is None else _DURATION.fullmatch(cell) for cell in text.to_pylist()]
    if sum(match is not None for match in found) < len(known):
        return None
    seconds = [m and 3600 * int(m[1]) + 60 * int(m[2]) + int(m[3] or 0) for m in found]
    pa = optional("pyarrow", extra="cli")
    return pa.array(seconds, pa.duration("s"))
