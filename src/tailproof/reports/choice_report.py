"""The report of a choice among candidates by robust validation: as text, HTML, data and plot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.deferred import Deferred
from tailproof.reports.drawing import draw_intervals, new_axes
from tailproof.reports.pages import Grid, Page, Section, number, numbers, render, spans
from tailproof.reports.text import Printable, TextTable, carried

_KEPT = (
    "If such rows are draws of the law, the mean includes them; if they are errors, "
    "RobustRegressor(contamination=...) fits the majority without them, and the two readings differ."
)
_LEFT_OUT = (
    "Rows left out are taken for errors; if they are draws of the law, the mean includes them "
    "(drop_glitches=False), and the two readings differ."
)
_HEADINGS = ("candidate", "robust risk", "minus the chosen one's", "interval")


@dataclass(frozen=True, eq=False, repr=False)
class RobustReport(Deferred, Printable):
    """Every candidate that an estimator compared, and which one it chose.

    What nothing but the report needs (risks, differences, leading rows) may be made when it is asked for.

    Attributes
    ----------
    candidates : tuple of str
        Names, from the most robust to the least.
    chosen : int
        Which of them is the model.
    why : str
        The reason, in one sentence.
    risk : array
        Catoni's mean of the held-out losses, as in :func:`tailproof.model_selection.compare`: of the chosen
        one, plus the paired difference for the others.
    difference, low, high : arrays
        Robust mean of the paired differences of loss to the chosen one, with (1 − δ) intervals.
    delta : float
        One minus the confidence of each interval.
    folds : int
        Folds of the validation; 0 where rows are too few to hold any out.
    compared : int
        Rows used for the choice; the chosen model is fitted on all.
    glitches : array of int
        Indices of rows left out as errors of measurement.
    seconds : dict
        Time of each stage.
    guarantee : str
        What follows from Lemma "boost_conf_unbounded", and what does not.
    unsettled : tuple of str
        Candidates whose solver stopped before it converged; they are compared as they are.
    outlying : str or None
        What there is to say about rows of another population than the others.
    carriers : array of int or None
        The few rows that carry half of the squared residuals, the largest first.
    dropped_rows : int or None
        Rows left out for missing values, by ``tp.fit(..., on_missing="drop")``.
    data : str
        What the data were, where they were read in pieces.
    remarks : tuple of str
        How the fit on all rows went, where they were read in pieces.
    skipped_files : tuple of str
        Files that could not be read.
    estimator : str
        Whose report it is, for its title.
    leading_rows : array of int or None
        The rows, at most 20, that count least in the chosen linear fit, those of the largest error first.
    leading_weights : array or None
        How much each of them counts: 1 as in least squares, 0 not at all.
    leading_shares : array or None
        Their shares of the sum of squared errors (of the loss, for losses with the log link).
    """

    candidates: tuple[str, ...]
    chosen: int
    why: str
    risk: Array
    difference: Array
    low: Array
    high: Array
    delta: float
    folds: int
    compared: int
    glitches: NDArray[np.intp]
    seconds: dict[str, float]
    guarantee: str
    unsettled: tuple[str, ...] = ()
    outlying: str | None = None
    carriers: NDArray[np.intp] | None = None
    dropped_rows: int | None = None
    data: str = ""
    remarks: tuple[str, ...] = ()
    skipped_files: tuple[str, ...] = ()
    estimator: str = "RobustRegressor"
    # Not by plain defaults, which would be there before they are made.
    leading_rows: NDArray[np.intp] | None = field(default_factory=lambda: None)
    leading_weights: Array | None = field(default_factory=lambda: None)
    leading_shares: Array | None = field(default_factory=lambda: None)

    def headings(self) -> tuple[str, ...]:
        """Column headings of :meth:`rows`; names alone where nothing was held out."""
        return _HEADINGS if self.folds else _HEADINGS[:1]

    def rows(self) -> list[tuple[str, ...]]:
        """One row of text for each candidate; the chosen one has a star."""
        return [
            (
                name + (" *" if i == self.chosen else ""),
                f"{self.risk[i]:.4g}",
                f"{self.difference[i]:+.3g}",
                f"{self.low[i]:+.3g} to {self.high[i]:+.3g}" if np.isfinite(self.low[i]) else "none",
            )[: len(self.headings())]
            for i, name in enumerate(self.candidates)
        ]

    def notes(self) -> list[str]:
        """Choice, rows left out, fits that did not converge, guarantee and times, a sentence each."""
        left_out = f"{_rows(self.glitches.size)} left out, beyond a gap that no tail has."
        populations = "" if self.outlying is None else f"{self.outlying[0].upper()}{self.outlying[1:]}."
        stopped = f"Stopped before they converged: {'; '.join(self.unsettled)}."
        times = ", ".join(f"{stage} {seconds:.3g} s" for stage, seconds in self.seconds.items())
        return [
            self.why,
            *([left_out] if self.glitches.size else []),
            *([populations] if populations else []),
            *carried(self.carriers),
            *([f"{_rows(self.dropped_rows)} dropped for missing values."] if self.dropped_rows else []),
            *([f"Files that could not be read: {', '.join(self.skipped_files)}."] * bool(self.skipped_files)),
            *([stopped] if self.unsettled else []),
            *self.remarks,
            *self._two_readings(),
            self.guarantee,
            f"Time: {times}.",
        ]

    def _two_readings(self) -> list[str]:
        """Say that rows may be draws of the law or errors, if few carry the loss or some stand apart."""
        carrying = self._carrying()
        if self.leading_rows is None or self.candidates[self.chosen].startswith("majority"):
            return carrying
        if self.glitches.size:
            return [*carrying, _LEFT_OUT]
        return [*carrying, _KEPT] if carrying or self.outlying else []

    def _carrying(self) -> list[str]:
        """Say which rows carry most of the loss, if few do."""
        if self.leading_rows is None or self.leading_shares is None or self.leading_shares.sum() < 0.5:
            return []
        few = int(np.searchsorted(np.cumsum(self.leading_shares), 0.5)) + 1
        named = ", ".join(f"{row:,}" for row in self.leading_rows[: min(few, 5)])
        rows = f"{_rows(few)} carr{'ies' if few == 1 else 'y'}"
        return [f"{rows} half of the loss (counted from 0: {named}{', ...' * (few > 5)})."]

    def as_text(self) -> TextTable:
        """The candidates, and the notes below them."""
        return TextTable(self.rows(), self.headings(), self.notes())

    def verdict(self) -> list[str]:
        """The sentences to read first: choice, rows left out, fits that did not converge."""
        return self.notes()[:-2]

    def sections(self) -> list[Section]:
        """The candidates side by side, and how the fit went, for an HTML page."""
        facts = [
            *([("data", self.data)] if self.data else []),
            ("rows to choose by", f"{self.compared:,}, in {self.folds} folds" if self.folds else "none"),
            ("delta", number(self.delta)),
            ("rows left out as glitches", str(self.glitches.size)),
            ("seconds", ", ".join(f"{stage} {seconds:.3g}" for stage, seconds in self.seconds.items())),
            ("guarantee", self.guarantee),
        ]
        return [self._side_by_side(), Section("How it was fitted", grid=Grid(("", ""), facts))]

    def _side_by_side(self) -> Section:
        if not self.folds:
            words = "Candidates from robust to plain; with so few rows, none was scored."
            return Section("Candidates", [words], grid=Grid(self.headings(), self.rows(), self.chosen))
        bars = spans(self.difference, self.low, self.high, zero=True)
        names = [row[0] for row in self.rows()]
        rows = list(zip(names, bars, numbers(self.difference), numbers(self.risk), strict=True))
        words = (
            "Candidates from robust to plain, scored on rows that they did not see. The bar is the paired "
            "difference of loss to the chosen one, with its interval: right of the line is worse."
        )
        grid = Grid((_HEADINGS[0], "difference with interval", *_HEADINGS[2:0:-1]), rows, self.chosen)
        return Section("Candidates", [words], grid=grid)

    def to_html(self) -> str:
        """The report as a self-contained HTML page (needs jinja2)."""
        return render(Page(self.estimator, "How one fit went.", self.verdict(), (), self.sections()))

    def plot(self, ax: Any = None) -> Any:
        """Draw the paired differences with their intervals; left of zero is better than the chosen one."""
        ax = new_axes(ax)
        names = [row[0] for row in self.rows()]
        draw_intervals(ax, names, self.difference, self.low, self.high, self.chosen)
        ax.axvline(0.0, linewidth=0.8, color="grey")
        ax.set_xlabel("held-out loss minus that of the chosen candidate")
        return ax


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
