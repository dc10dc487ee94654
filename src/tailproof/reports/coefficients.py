"""Coefficients with standard errors and intervals: as text, HTML, data frame and section of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.inference import CoefficientErrors, norms_of_columns
from tailproof.core.lookup import optional
from tailproof.reports.pages import Grid, Section, number, spans
from tailproof.reports.text import Printable, TextTable

_MOST_SHOWN = 25  # coefficients of a page
_NO_ERROR = 1e-7  # of the largest: the error of a sum of coefficients that no fit moves
_PART = 1e-3  # of such a sum, that a coefficient has
_LOOSE = "Left open by these rows, since a column is constant or a sum of others"
_MEAN_NOTHING = (
    "Neither these coefficients nor their intervals mean anything; where they are of all categories of one "
    "column, differences between them do."
)
_RATIOS = {"log": "relativity", "logit": "odds ratio"}


@dataclass(frozen=True, eq=False, repr=False)
class Coefficient:
    """One coefficient: estimate, standard error and interval."""

    estimate: float
    se: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Printable):
    """Coefficients of a linear model, with how sure they are.

    Attributes
    ----------
    names : tuple of str
    estimate, se, low, high : arrays
        Coefficients, their standard errors and the ends of (1 − δ) intervals; NaN where errors are not known.
    intercepts : tuple of Coefficient
        One for each output.
    delta : float
        One minus the confidence of each interval.
    link : str
        "identity"; "log", where exp(coefficient) is a relativity: the factor by which the mean grows with
        one unit of the column; or "logit", where it is an odds ratio.
    notes : tuple of str
        What the numbers mean, and what they are not good for.
    """

    names: tuple[str, ...]
    estimate: Array
    se: Array
    low: Array
    high: Array
    intercepts: tuple[Coefficient, ...]
    delta: float
    link: str
    notes: tuple[str, ...]

    @property
    def frame(self) -> Any:
        """A pandas frame: one row a coefficient, with relativities or odds ratios where there are any."""
        pandas = optional("pandas", extra="cli")
        columns = {name: getattr(self, name) for name in ("estimate", "se", "low", "high")}
        if self.link in _RATIOS:
            ratio = _RATIOS[self.link].replace(" ", "_")
            with np.errstate(over="ignore"):
                columns |= {
                    ratio: np.exp(self.estimate),
                    f"{ratio}_low": np.exp(self.low),
                    f"{ratio}_high": np.exp(self.high),
                }
        return pandas.DataFrame(columns, index=list(self.names))

    @property
    def intercept(self) -> Coefficient:
        """The intercept of the first output."""
        return self.intercepts[0]

    def records(self) -> list[dict[str, Any]]:
        """One record a coefficient, the intercepts last."""
        ends = [
            Coefficient(*map(float, row))
            for row in zip(self.estimate, self.se, self.low, self.high, strict=True)
        ]
        several = len(self.intercepts) > 1
        others = [f"intercept {j}" if several else "intercept" for j in range(len(self.intercepts))]
        return [
            self._record(name, one)
            for name, one in zip((*self.names, *others), (*ends, *self.intercepts), strict=True)
        ]

    def _record(self, name: str, one: Coefficient) -> dict[str, Any]:
        percent = f"{100 * (1 - self.delta):.3g}%"
        record = {
            "coefficient": name,
            "estimate": one.estimate,
            "se": one.se,
            f"{percent} low": one.low,
            f"{percent} high": one.high,
        }
        if self.link in _RATIOS:
            with np.errstate(over="ignore"):
                ratio = {end: float(np.exp(getattr(one, end))) for end in ("estimate", "low", "high")}
            record[_RATIOS[self.link]] = ratio["estimate"]
            record[f"{_RATIOS[self.link]} low"] = ratio["low"]
            record[f"{_RATIOS[self.link]} high"] = ratio["high"]
        return record

    def as_text(self) -> TextTable:
        """A line for each coefficient, and what the numbers mean."""
        return TextTable.of(self.records(), ["", *self.notes])

    def to_html(self) -> str:
        """The table as markup."""
        return self.as_text().to_html()

    def section(self, spread: Array, words: str = "") -> Section:
        """Coefficients by importance, with their intervals as bars, for an HTML page.

        Parameters
        ----------
        spread : array
            Standard deviation of the column of each coefficient.
        words : str
            What there is to add.
        """
        matter = np.abs(self.estimate) * spread
        order = np.argsort(-matter, kind="stable")[:_MOST_SHOWN]
        unit = spread[order]
        bars = spans(*(unit * ends[order] for ends in (self.estimate, self.low, self.high)), zero=True)
        lines = [
            (
                self.names[j],
                bar,
                number(float(self.estimate[j])),
                number(float(self.se[j])),
                number(float(matter[j])),
            )
            for j, bar in zip(order, bars, strict=True)
        ]
        sentence = (
            "Coefficients for the data as given, sorted by importance: coefficient times standard deviation "
            f"of its column. The bar is the importance, with its {100 * (1 - self.delta):.3g}% interval: one "
            "that does not touch the line is not zero by chance. se is the standard error of the coefficient."
        )
        left = self.estimate.size - order.size
        more = [f"{left} less important ones are not shown."] if left > 0 else []
        grid = Grid(("column", "importance with interval", "coefficient", "se", "importance"), lines)
        return Section("Coefficients", [f"{sentence} {words}".strip()], grid=grid, notes=[*self.notes, *more])


def summarise(
    coef: Array,
    intercept: Array,
    errors: CoefficientErrors | str,
    names: Sequence[str],
    delta: float,
    link: str,
) -> Summary:
    """A summary of a model from its coefficients and their errors, or the reason why there are none.

    Parameters
    ----------
    coef : array of shape (outputs, d)
    intercept : array of shape (outputs,)
    errors : CoefficientErrors or str
    names : sequence of str
        Of all coefficients, output by output.
    delta : float
    link : {"identity", "log", "logit"}
    """
    together = np.column_stack([coef, intercept])
    se = low = high = np.full(together.shape, np.nan)
    if isinstance(errors, str):
        notes: tuple[str, ...] = (errors,)
    else:
        se, centre = errors.se.reshape(together.shape), errors.centre.reshape(together.shape)
        reach = errors.reach(delta)
        low, high = centre - reach * se, centre + reach * se
        outside = (together < low) | (together > high)
        loose = np.array([_undetermined(part[:, :-1]) for part in np.split(errors.factor, len(coef), axis=1)])
        notes = (_meaning(delta, link), errors.how, *_loose(names, loose.ravel()))
        notes += tuple(_outside(names, (outside[:, :-1] & ~loose).ravel()))
    intercepts = tuple(
        Coefficient(*map(float, (together[j, -1], se[j, -1], low[j, -1], high[j, -1])))
        for j in range(len(together))
    )
    coefs, errors_of, lows, highs = (values[:, :-1].ravel() for values in (together, se, low, high))
    return Summary(tuple(names), coefs, errors_of, lows, highs, intercepts, delta, link, notes)


def _undetermined(factor: Array) -> NDArray[np.bool_]:
    """Whether rows leave coefficients open: of constant columns, and of those that are sums of others.

    Of such columns a fit takes the smallest coefficients; their errors lie in fewer dimensions than they are.
    """
    size = norms_of_columns(factor)
    loose = (size == 0) & bool(size.any())
    vary = np.flatnonzero((size > 0) & np.isfinite(size))
    if 0 < vary.size <= len(factor):
        _, values, vectors = np.linalg.svd(factor[:, vary] / size[vary], full_matrices=False)
        open_ways = vectors[values <= _NO_ERROR * values[0]]
        loose[vary] = (np.abs(open_ways) > _PART).any(axis=0)
    return loose


def _loose(names: Sequence[str], loose: NDArray[np.bool_]) -> list[str]:
    named = _few(names, loose)
    return [f"{_LOOSE}: {named}. {_MEAN_NOTHING}"] * bool(named)


def _few(names: Sequence[str], chosen: NDArray[np.bool_]) -> str:
    named = [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def _outside(names: Sequence[str], outside: NDArray[np.bool_]) -> list[str]:
    named = _few(names, outside)
    return [f"Outside its interval: {named}. Trust the interval there."] * bool(named)


def _meaning(delta: float, link: str) -> str:
    words = {
        "identity": "A coefficient is what the mean of the target grows by with one unit of its column",
        "log": "A relativity, exp(coefficient), is the factor by which the mean grows with one unit",
        "logit": "An odds ratio, exp(coefficient), is the factor by which the odds grow with one unit",
    }[link]
    return (
        f"{words}, the other columns being equal; in {100 * (1 - delta):.3g}% of samples such an interval "
        "holds the value that infinitely many rows would give. se, the standard error, is how far an "
        "estimate is off in a typical sample."
    )
