"""One self-contained HTML page: a verdict, facts, and sections of words, figures, tables and code.

Everything that comes from outside is text and is escaped by the template; figures are drawn by
``tailproof.reports.svg``, which escapes its own labels. jinja2 is imported when a page is rendered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np

from tailproof.core.lookup import optional

Cell = Any  # a text, or a Span
_OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")  # which a line may not end in
_BREAKS = re.compile(r"([=_/])(?=\w)")  # where a long name may go on in the next line
_LONG = 1e7  # from here on numbers have powers of ten
# What is set flush left; figures, also with a word in front, are set flush right.
_WORDS = re.compile(r"^(?!(?:about|below) )[^\W\d]|, |\(")


@dataclass(frozen=True)
class Span:
    """An interval as a bar on the common axis of its column, all in percent of the axis.

    Attributes
    ----------
    left, width, dot : float
    zero : float or None
        Where zero is, if it is on the axis.
    cut : bool
        Whether the axis ends before the interval does.
    text : str
    """

    left: float
    width: float
    dot: float
    zero: float | None
    cut: bool
    text: str


@dataclass(frozen=True)
class Grid:
    """A table; the marked row is the one that was chosen."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    mark: int | None = None


@dataclass(frozen=True)
class Section:
    """A heading with words, figures, a table and code below it, each of them optional.

    One that opens a part of the page, such as its details, has a larger heading.
    """

    title: str
    words: Sequence[str] = ()
    figures: Sequence[str] = ()
    grid: Grid | None = None
    code: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    opens_part: bool = False


@dataclass(frozen=True)
class Page:
    """All of it; the verdict comes first."""

    title: str
    subtitle: str
    verdict: Sequence[str]
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = field(default_factory=tuple)


def _with_whole_options(words: str) -> str:
    """Words as HTML, with options such as --target in one piece at the end of a line."""
    escape = optional("markupsafe", extra="cli").escape
    return _OPTION.sub(r"<span>\g<0></span>", str(escape(words)))


def render(page: Page) -> str:
    """The page as HTML: no script, nothing from the network, light and dark.

    Examples
    --------
    >>> html = render(Page("A <b>title</b>", "", ["All is well."]))
    >>> "A &lt;b&gt;title&lt;/b&gt;" in html, "<script" in html
    (True, False)
    """
    jinja2, escape = optional("jinja2", extra="cli"), optional("markupsafe", extra="cli").escape
    source = resources.files("tailproof.reports").joinpath("templates/report.html.j2").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["span"] = lambda cell: isinstance(cell, Span)
    environment.filters["breakable"] = lambda cell: _BREAKS.sub(r"\1<wbr>", str(escape(cell)))
    environment.filters["whole_options"] = _with_whole_options
    environment.tests["words"] = lambda cell: bool(_WORDS.search(str(cell)))
    return environment.from_string(source).render(page=page)


def spans(middle: Any, low: Any, high: Any, *, zero: bool = False, with_text: bool = True) -> list[Span]:
    """Intervals as bars on one axis; one that is far longer than most is cut, so that the others show.

    Examples
    --------
    >>> [round(span.dot) for span in spans([1.0, 2.0], [0.0, 1.0], [2.0, 4.0])]
    [25, 50]
    """
    middle, low, high = (np.asarray(ends, dtype=np.float64) for ends in (middle, low, high))
    # Means without an interval have NaN for its ends.
    low, high = np.where(np.isfinite(low), low, middle), np.where(np.isfinite(high), high, middle)
    start, stop = _axis(middle, low, high, zero)
    share = 100 / (stop - start)
    result, words = [], numbers([*low, *high])
    for m, a, b, *ends in zip(middle, low, high, words[: low.size], words[low.size :], strict=True):
        left, right = (min(max((end - start) * share, 0.0), 100.0) for end in (a, b))
        dot = min(max((m - start) * share, 0.0), 100.0) if math.isfinite(m) else 100.0
        text = " to ".join(ends) if with_text and b > a else ""
        place = -start * share if zero else None
        result.append(Span(left, right - left, dot, place, bool(b > stop or a < start), text))
    return result


def _axis(middle: Any, low: Any, high: Any, zero: bool) -> tuple[float, float]:
    ends = np.concatenate([low, high, middle, [0.0] if zero else []])
    ends = ends[np.isfinite(ends)]
    if ends.size == 0:
        return 0.0, 1.0
    start, stop = float(ends.min()), float(ends.max())
    typical = (
        float(np.quantile(high[np.isfinite(high)], 0.5, method="lower")) if np.isfinite(high).any() else stop
    )
    reach = typical - start
    if reach > 0 and stop > start + 8 * reach:
        stop = start + 3 * reach
    return (start, stop) if stop - start > 1e-290 else (start - 0.5, start + 0.5)


def numbers(values: Any) -> list[str]:
    """Numbers of one column in the same style: with powers of ten where the largest needs them.

    Examples
    --------
    >>> numbers([2.8e9, 3556577.0, 0.0]), numbers([1234.5, 0.25])
    (['2.800e9', '3.557e6', '0'], ['1,234', '0.25'])
    """
    values = [float(value) for value in values]
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return [_with_power(value) if largest >= _LONG and value else number(value) for value in values]


def _with_power(value: float) -> str:
    if not math.isfinite(value):
        return number(value)
    digits, power = f"{value:.3e}".split("e")
    return f"{digits}e{int(power)}".replace("-", "−")


def number(value: float) -> str:
    """A number as a reader wants it: four digits, thousands apart.

    Examples
    --------
    >>> number(123456.7), number(2.5e9), number(0.00012345), number(12.3456), number(float("inf"))
    ('123,457', '2.5e9', '0.0001234', '12.35', '∞')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if 1000 <= abs(value) < _LONG:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.4g}".replace("e+0", "e").replace("e+", "e").replace("-", "−")


def explained(share: float) -> str:
    """A share of the variation that a model explains, in percent; a trifle below zero is about none.

    Examples
    --------
    >>> explained(0.1749), explained(-0.0033), explained(-0.061)
    ('17%', 'about 0%', '−6%')
    """
    return "about 0%" if -0.01 < share < 0 else percent(share)


def percent(share: float) -> str:
    """A share in percent: whole ones, and two digits of what is below one.

    Examples
    --------
    >>> percent(0.1749), percent(0.0024), percent(-0.061), percent(0.0)
    ('17%', '0.24%', '−6%', '0%')
    """
    value = 100 * share
    text = f"{value:.0f}" if abs(value) >= 1 or value == 0 else f"{value:.2g}"
    return f"{text}%".replace("-", "−")
