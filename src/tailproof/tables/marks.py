"""Is 1.668 less than two, or more than a thousand? What cells say of their decimal mark, and guesses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tailproof.core.lookup import optional

# Around a number: a sign, a currency, a percent sign, a unit.
_BEFORE, _BEHIND = r"^[^\d.,]{0,6}", r"[^\d.,]{0,6}$"
_BARE_SHORT = _BEFORE + r"\d{1,3}" + _BEHIND
_BARE_LONG = _BEFORE + r"\d{4,}" + _BEHIND
_DOTTED_DATE = r"^\d{1,2}\.\d{1,2}\.(?:\d{4}|\d\d)(?:\D|$)"
_OTHER = {".": ",", ",": "."}


def _decimal(mark: str, other: str) -> str:
    """Cells in which this can only be the decimal mark.

    One digit, two or more than three behind it, a zero or nothing or more than three digits before it, an
    exponent behind, or groups of three by the other mark.
    """
    m, o = re.escape(mark), re.escape(other)
    digits = rf"\d+{m}(?:\d{{1,2}}|\d{{4,}})|(?:0+|\d{{4,}})?{m}\d+|\d+{m}\d+[eE][-+]?\d+"
    groups = rf"[1-9]\d{{0,2}}(?:{o}\d{{3}})+{m}\d*|[1-9]\d{{0,2}}(?:{o}\d{{3}}){{2,}}"
    return rf"{_BEFORE}(?:{digits}|{groups}){_BEHIND}"


def _open(mark: str, ending: str = r"\d{3}") -> str:
    """Cells such as 1.668 in which this mark is either of the two."""
    return rf"{_BEFORE}[1-9]\d{{0,2}}{re.escape(mark)}{ending}{_BEHIND}"


_DECIMAL = {".": _decimal(".", ","), ",": _decimal(",", ".")}
_OPEN = {mark: _open(mark) for mark in _OTHER}
_ROUND = {mark: _open(mark, r"\d\d0") for mark in _OTHER}
_DECIMAL_CELL = {mark: re.compile(pattern) for mark, pattern in _DECIMAL.items()}
_OPEN_CELL = re.compile("|".join(_OPEN.values()))


@dataclass(frozen=True)
class Evidence:
    """What cells say of their decimal mark.

    Attributes
    ----------
    points, commas : int
        Cells that leave no doubt that it is a point, or a comma.
    doubtful : str
        A cell such as 1.668 of a column in which nothing decides; empty where there is none.
    among_small : bool
        Whether such a column has whole numbers below 1,000 as well, as columns with thousands have.
    dotted : bool
        Whether there are dates such as 31.12.1999, which are written where decimal commas are.
    """

    points: int = 0
    commas: int = 0
    doubtful: str = ""
    among_small: bool = False
    dotted: bool = False

    def __add__(self, other: Evidence) -> Evidence:
        """What both say together."""
        return Evidence(
            self.points + other.points,
            self.commas + other.commas,
            self.doubtful or other.doubtful,
            self.among_small or other.among_small,
            self.dotted or other.dotted,
        )

    @property
    def shown(self) -> str | None:
        """The decimal mark, where some cells leave no doubt and none contradicts them."""
        if bool(self.points) == bool(self.commas):
            return None
        return "." if self.points else ","

    def guessed(self, delimiter: str | None) -> str | None:
        """The mark that is more likely; None where no cell has any.

        Of cells such as 1.668 and nothing else, files with semicolons, which leave the comma free for
        decimals, mean thousands, and so do columns with whole numbers below 1,000 beside them.

        Examples
        --------
        >>> [Evidence(doubtful="1.668").guessed(mark) for mark in (";", ",")], Evidence().guessed(";")
        ([',', '.'], None)
        >>> [Evidence(doubtful="1,668").guessed(mark) for mark in (";", ",")]
        [',', '.']
        """
        if self.points or self.commas:
            return "," if self.commas > self.points else "."
        if not self.doubtful:
            return None
        if self.among_small:
            return _OTHER["." if "." in self.doubtful else ","]
        return "," if delimiter == ";" or self.dotted else "."


def evidence_in_rows(rows: Iterable[Sequence[str]]) -> Evidence:
    """What the first rows of a file say, whose columns are not known in full: no cell of theirs is doubtful.

    Examples
    --------
    >>> evidence_in_rows([["1.668", "0,5"], ["2.010", "3"]]).shown
    ','
    """
    cells = [cell.strip() for row in rows for cell in row]
    found = {mark: sum(map(bool, map(cell.match, cells))) for mark, cell in _DECIMAL_CELL.items()}
    return Evidence(found["."], found[","])


def columns_that_show(mark: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> set[str]:
    """Columns with a cell in which this can only be the decimal mark."""
    shows = _DECIMAL_CELL[mark].match
    places = {j for row in rows for j, cell in enumerate(row) if shows(cell.strip())}
    return {name for j, name in enumerate(header) if j in places}


def open_cell(rows: Iterable[Sequence[str]]) -> str:
    """The first cell such as 1.668, which could be either; empty where there is none."""
    return next((cell for row in rows for cell in row if _OPEN_CELL.match(cell.strip())), "")


def has_open_cells(text: Any) -> bool:
    """Whether a column of strings has cells such as 1.668."""
    return any(_any(text, pattern) for pattern in _OPEN.values())


def evidence_in_column(cells: Any) -> Evidence:
    """What the different strings of a column say.

    In a column of cells such as 1.668, whole numbers of four digits say that the mark separates no
    thousands; whole numbers below 1,000 beside cells such as 1.670, which ends in a zero that fractions do
    not have when others have none at all, say that it does.

    Examples
    --------
    >>> import pyarrow as pa
    >>> others = "0.5", "1668", "2.010", "1.668.000"
    >>> [evidence_in_column(pa.array(["1.668", other])).shown for other in others]
    ['.', '.', None, ',']
    >>> evidence_in_column(pa.array(["850", "1.668", "2.010"])).shown
    ','
    """
    found = {mark: _count(cells, pattern) for mark, pattern in _DECIMAL.items()}
    if not any(found.values()):
        for mark, pattern in _OPEN.items():
            if count := _count(cells, pattern):
                return _evidence_of_doubtful(cells, mark, count)
    return Evidence(found["."], found[","], dotted=_any(cells, _DOTTED_DATE))


def _evidence_of_doubtful(cells: Any, mark: str, count: int) -> Evidence:
    pc = optional("pyarrow.compute", extra="cli")
    first = cells.filter(pc.match_substring_regex(cells, _OPEN[mark]))[0].as_py()
    if 2 * (count + _count(cells, _BARE_SHORT) + _count(cells, _BARE_LONG)) < len(cells):
        return Evidence()  # no column of numbers
    small = _any(cells, _BARE_SHORT)
    if _any(cells, _BARE_LONG):
        return _sure(mark, count)
    if small and _any(cells, _ROUND[mark]):
        return _sure(_OTHER[mark], count)
    return Evidence(doubtful=first, among_small=small)


def _sure(mark: str, count: int) -> Evidence:
    return Evidence(points=count) if mark == "." else Evidence(commas=count)


def both_ways(cell: str, decimal: str) -> tuple[str, str]:
    """A cell such as 1.668 as it is read with this decimal mark, and with the other.

    Examples
    --------
    >>> both_ways("$1.668", "."), both_ways("1.668", ",")
    (('1.668', '1668'), ('1668', '1.668'))
    """
    digits = re.sub(r"[^\d.,]", "", cell)
    whole, fraction = re.sub(r"\D", "", digits), digits.replace(",", ".")
    return (fraction, whole) if decimal in digits else (whole, fraction)


def doubt_of(cell: str, decimal: str, option: str = "--decimal {}") -> str:
    """What was guessed of a cell such as 1.668, and the option that turns it round.

    Examples
    --------
    >>> doubt_of("1.668", ",")
    "'1.668' is read as 1668, which is a guess: --decimal . reads it as 1.668"
    """
    this, other = both_ways(cell, decimal)
    turned = option.format(_OTHER[decimal])
    return f"{cell!r} is read as {this}, which is a guess: {turned} reads it as {other}"


def _count(cells: Any, pattern: str) -> int:
    pc = optional("pyarrow.compute", extra="cli")
    return int(pc.sum(pc.match_substring_regex(cells, pattern)).as_py() or 0)


def _any(cells: Any, pattern: str) -> bool:
    return _count(cells, pattern) > 0
