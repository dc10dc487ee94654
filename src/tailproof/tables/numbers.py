"""Strings as numbers: in which style they are written, with currencies, percent and units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tailproof.core.lookup import optional
from tailproof.tables.dialect import Dialect

_CODES = (
    "USD|EUR|GBP|CHF|JPY|CAD|AUD|NZD|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|BGN|TRY|RUB|UAH|ILS|INR|CNY|HKD|SGD|KRW|"
    "THB|IDR|MYR|PHP|VND|BRL|MXN|ARS|CLP|COP|PEN|ZAR|EGP|NGN|KES|MAD|AED|SAR"
)
_CURRENCY = rf"(?:US\$|R\$|[$€£¥₹₽₩₺₫₪₦฿₱]|{_CODES}|Rs\.?|kr\.?|zł|Kč|Ft)"
PERCENT = "%"
_IN = "in "  # before a unit in the words for a column
_THOUSANDS = (",", ".", " ", "'")
_UNIT = re.compile(r"[-+]?\d[\d.,' ]*?((?: ?[^\W\d_]| ?°)[^\d\s]{0,9})")


@dataclass(frozen=True)
class Style:
    """How numbers are written."""

    decimal: str
    thousands: str

    @property
    def pattern(self) -> str:
        """Regular expression of a number with sign, currency or percent."""
        point, mark = re.escape(self.decimal), re.escape(self.thousands)
        # Groups of three, or of two as in India, behind no zero and before no exponent.
        groups = rf"[1-9]\d{{0,2}}(?:{mark}\d{{3}})+|[1-9]\d?(?:{mark}\d{{2}})+{mark}\d{{3}}"
        plain = rf"(?:\d+(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?"
        digits = rf"(?:(?:{groups})(?:{point}\d*)?|{plain})" if mark else plain
        return rf"^(?:{_CURRENCY} ?)?\(?[-+]? ?(?:{_CURRENCY} ?)?[-+]?{digits} ?(?:{_CURRENCY}|%)?-?\)?$"


def style_of(cells: Any, dialect: Dialect) -> tuple[Style | None, float]:
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


def numbers(text: Any, style: Style) -> Any:
    """Strings of a style as floats; percent are divided by a hundred."""
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


def number_words(cells: Any, style: Style, unit: str = "") -> str:
    """How numbers are written, for people."""
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
    if unit:
        words.append(_IN + unit)
    return ", ".join(["number", *words])


def unit_in(words: str) -> str:
    """The unit that the words for a column name, "%" for percent; empty where they name none.

    Examples
    --------
    >>> unit_in("number, in kg"), unit_in("number, percent"), unit_in("category")
    ('kg', '%', '')
    """
    last = words.rsplit(", ", maxsplit=1)[-1]
    return PERCENT if "percent" in words else last[len(_IN) :] if last.startswith(_IN) else ""


def unit_of(cells: Any) -> str:
    """What stands behind the number in every cell, such as "kg"; empty where there is no such thing."""
    found = _UNIT.fullmatch(cells[0].as_py())
    if found is None:
        return ""
    pc = optional("pyarrow.compute", extra="cli")
    unit = found[1].strip()
    return unit if pc.all(pc.ends_with(cells, unit)).as_py() else ""


def different_units(cells: Any) -> str:
    """A remark on numbers with several units behind them; empty for others."""
    some = [cell.as_py() for cell in cells[:100]]
    units = {match[1].strip(): cell for cell in some if (match := _UNIT.fullmatch(cell))}
    if len(some) < 3 or len(units) < 2 or not all(map(_UNIT.fullmatch, some)):
        return ""
    first, other = list(units.values())[:2]
    return f"numbers of different units, such as {first!r} and {other!r}: write them in one"
