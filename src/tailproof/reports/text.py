"""Results as text and as HTML: rows of cells in, ``__str__`` and ``_repr_html_`` out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_VALUES = 12  # of an array that is printed


@dataclass(frozen=True)
class TextTable:
    """Rows of text with notes below them.

    Attributes
    ----------
    rows : sequence of rows of str
    headings : sequence of str
        Of the columns; without any, the first cell of each row is its heading.
    notes : sequence of str
        Lines below the table; an empty one is a blank line.

    Examples
    --------
    >>> print(TextTable.of([{"model": "a", "risk": 1.0}, {"model": "longer", "risk": 0.25}], ["Done."]))
    model   risk
    a       1
    longer  0.25
    Done.
    """

    rows: Sequence[Sequence[str]]
    headings: Sequence[str] = ()
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, records: Sequence[dict[str, Any]], notes: Sequence[str] = ()) -> TextTable:
        """Table of records with the same keys."""
        headings = [key.replace("_", " ") for key in records[0]] if records else []
        return cls([[cell(value) for value in record.values()] for record in records], headings, notes)

    def __str__(self) -> str:
        lines = [self.headings, *self.rows] if self.headings else self.rows
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
        return "\n".join([*aligned, *self.notes])

    def to_html(self) -> str:
        """The table and its notes as markup; everything in them is escaped."""
        lines = [_line(self.headings, "th", "th")] if self.headings else []
        lines += [_line(row, "td" if self.headings else "th", "td") for row in self.rows]
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes if note)
        return f"<table>{''.join(lines)}</table>{notes}" if lines else notes


class Printable:
    """A result that prints, and shows itself in a notebook, as the table of ``as_text``."""

    def as_text(self) -> TextTable:
        """What is printed."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.as_text())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.as_text().to_html()


def cell(value: Any) -> str:
    """A value as a reader wants it: numbers to four digits, seconds with their unit, long arrays cut.

    Examples
    --------
    >>> cell(0.123456), cell({"train": 1.5}), cell(()), cell(np.arange(2.0))
    ('0.1235', 'train 1.5 s', 'none', '0, 1')
    """
    if isinstance(value, dict):
        return ", ".join(f"{name} {seconds:.3g} s" for name, seconds in value.items())
    if isinstance(value, np.ndarray):
        return _array_cell(value)
    if isinstance(value, tuple):
        words = all(isinstance(part, str) for part in value)
        return (", " if words else "; ").join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def carried(rows: NDArray[Any] | None) -> list[str]:
    """A sentence about the few rows that carry half of the loss, if there are such.

    Examples
    --------
    >>> carried(np.array([7])), carried(None)
    (['Half of the squared residuals come from row 7.'], [])
    """
    if rows is None:
        return []
    return [f"Half of the squared residuals come from row{'s' * (rows.size > 1)} {_array_cell(rows)}."]


def _array_cell(values: NDArray[Any]) -> str:
    if values.size == 0:
        return "none"
    more = f", ... ({values.size} in all)" if values.size > _MOST_VALUES else ""
    whole = values.dtype.kind in "iu"
    return ", ".join(str(value) if whole else f"{value:.4g}" for value in values[:_MOST_VALUES]) + more


def _line(cells: Sequence[str], first: str, other: str) -> str:
    tags = [first, *[other] * (len(cells) - 1)]
    marked = (
        f'<{tag} style="text-align:left">{escape(text)}</{tag}>'
        for tag, text in zip(tags, cells, strict=True)
    )
    return f"<tr>{''.join(marked)}</tr>"
