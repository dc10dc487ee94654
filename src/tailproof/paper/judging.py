"""Verdicts: a quantity, its bootstrap interval over trials, and the range in which a claim holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.paper.simulated import seed_of
from tailproof.paper.store import Curves, Methods, Resampled, Results

_RESAMPLES = 1000
_LEVEL = 0.95
_FEWEST = 3  # trials below which nothing is decided


@dataclass(frozen=True)
class Reading:
    """The same claim under another reading of the paper: another number, another range, or other trials.

    Attributes
    ----------
    name : str
    measure : callable
    low, high : float
    trials_of : str
        Ends the names of the settings whose trials are looked at, where they are not those of the claim.
    """

    name: str
    measure: Callable[..., float]
    low: float
    high: float
    trials_of: str = ""

    def settings(self, claim: Claim) -> list[str]:
        """The settings to look at."""
        return [f"{setting}{self.trials_of}" for setting in claim.settings]


@dataclass(frozen=True)
class Line:
    """What a claim says of any setting: a row of a table of claims.

    Attributes
    ----------
    where : str
        Where the paper makes it; "why" for a measurement that explains.
    text, quantity : str
        What is claimed, and the number that decides. ``{}`` stands for the first setting, ``{first}`` for its
        first word, ``{last}`` for the last word of the last setting.
    measure : callable
        The number, of the methods of each setting.
    low, high : float
        Range of the number in which the claim holds; NaN for a measurement without a verdict.
    readings : tuple of Reading
        Where they disagree, the verdict is "depends".
    exact : bool
        The number is a count, the same in every trial, so that one trial is enough.
    """

    where: str
    text: str
    quantity: str
    measure: Callable[..., float]
    low: float = math.nan
    high: float = math.nan
    readings: tuple[Reading, ...] = ()
    exact: bool = False


@dataclass(frozen=True)
class Claim(Line):
    """A line about one experiment's setting, or about a pair of them; trials of each are resampled apart."""

    experiment: str = ""
    settings: tuple[str, ...] = ()


def about(experiment: str, settings: Iterable[str | tuple[str, ...]], *lines: Line) -> list[Claim]:
    """Make a claim of each line about each setting; setting after setting."""
    groups = [(at,) if isinstance(at, str) else at for at in settings]
    return [
        Claim(**(vars(line) | {"text": _named(line.text, at)}), experiment=experiment, settings=at)
        for at in groups
        for line in lines
    ]


def _named(text: str, at: tuple[str, ...]) -> str:
    return text.format(at[0], first=at[0].split()[0], last=at[-1].split()[-1]) if at else text


@dataclass(frozen=True)
class Measured:
    """A number, its bootstrap interval, and whether that lies inside the range of a claim."""

    value: float
    low: float
    high: float
    verdict: str

    def __str__(self) -> str:
        interval = "" if self.low == self.high else f" [{_short(self.low)}, {_short(self.high)}]"
        return f"{_short(self.value)}{interval}"


@dataclass(frozen=True)
class Verdict(Measured):
    """A claim with its number and verdict under the default reading, and under the others."""

    claim: Claim
    readings: Mapping[str, Measured]
    trials: int = 0

    @property
    def conclusion(self) -> str:
        """The verdict, or "depends" where one reading holds and another fails."""
        decided = {self.verdict, *(other.verdict for other in self.readings.values())}
        return "depends" if {"holds", "fails"} <= decided else self.verdict


_NOT_RUN = Measured(math.nan, math.nan, math.nan, "not run")


def judge(claim: Claim, results: Results, resamples: int = _RESAMPLES) -> Verdict:
    """Measure a claim under each of its readings and compare the intervals with the ranges."""
    if any(setting not in results for setting in claim.settings):
        return Verdict(**vars(_NOT_RUN), claim=claim, readings={})
    readings = [Reading("", claim.measure, claim.low, claim.high), *claim.readings]
    names = {name for reading in readings for name in reading.settings(claim) if name in results}
    here = {name: results[name] for name in sorted(names)}
    values = {reading: _value(claim, reading, here) for reading in readings}
    run = [reading for reading, value in values.items() if value is not None]
    # Readings look at the same resamples, one after the other, since they share most of what they compute.
    random = np.random.default_rng(seed_of("bootstrap", claim.experiment, claim.text, claim.quantity))
    resampled = (_resampled(here, random) for _ in range(resamples if here else 1))
    draws = np.array([[_value(claim, reading, drawn) for reading in run] for drawn in resampled])
    judged = {
        reading.name: _judged(
            reading,
            float(values[reading] or 0),
            draws[:, j],
            claim.exact or _fewest(here, reading.settings(claim)) >= _FEWEST,
        )
        for j, reading in enumerate(run)
    }
    trials = int(_fewest(here, claim.settings)) if claim.settings else 0
    return Verdict(**vars(judged.pop("", _NOT_RUN)), claim=claim, readings=judged, trials=trials)


def _value(claim: Claim, reading: Reading, results: Results) -> float | None:
    """The number of a reading; None where trials are those of a version without one of its methods."""
    try:
        return reading.measure(*(results[setting] for setting in reading.settings(claim)))
    except KeyError:
        return None


def _judged(reading: Reading, value: float, draws: Array, enough: bool) -> Measured:
    # With infinities (a level never reached) quantiles must not interpolate.
    ends = np.quantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], method="inverted_cdf")
    low, high = map(float, ends)
    return Measured(value, low, high, _verdict(reading, low, high, enough))


def _fewest(results: Results, settings: Iterable[str]) -> float:
    """Least number of trials; a number that no trials enter is as sure as with any."""
    return min((_trials(results[setting]) for setting in settings), default=math.inf)


def _trials(methods: Methods) -> int:
    return next(iter(methods.values())).final.size


def _verdict(range_: Reading, low: float, high: float, enough: bool) -> str:
    if math.isnan(range_.low):
        return "measured"
    if enough and range_.low <= low and high <= range_.high:
        return "holds"
    return "fails" if enough and (high < range_.low or low > range_.high) else "undecided"


class _Drawn(Mapping[str, Curves]):
    """Curves with trials drawn anew, made when asked for: a claim looks at few of the methods."""

    def __init__(self, methods: Methods, trials: NDArray[np.intp]) -> None:
        self.methods, self.trials, self.made = methods, trials, dict[str, Curves]()

    def __getitem__(self, name: str) -> Curves:
        if name not in self.made:
            self.made[name] = Resampled(self.methods[name], self.trials)
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.methods)

    def __len__(self) -> int:
        return len(self.methods)


def _resampled(results: Results, random: np.random.Generator) -> Results:
    """Draw trials with replacement; the methods of a trial stay together, since they share its data."""
    drawn = {}
    for setting, methods in results.items():
        trials = _trials(methods)
        drawn[setting] = _Drawn(methods, random.integers(0, trials, trials))
    return drawn


HEADING = (
    "experiment", "paper", "claim", "quantity", "trials", "measured", "holds if in",
    "other readings", "verdict",
)  # fmt: skip


def cells(verdict: Verdict) -> list[str]:
    """One row of a table, in the order of ``HEADING``."""
    claim = verdict.claim
    ends = "" if math.isnan(claim.low) else f"[{_short(claim.low)}, {_short(claim.high)}]"
    others = "; ".join(f"{name}: {other}, {other.verdict}" for name, other in verdict.readings.items())
    first = [claim.experiment, claim.where, claim.text, claim.quantity, str(verdict.trials or "")]
    return [*first, str(verdict), ends, others, _explained(verdict)]


def _explained(judged: Verdict) -> str:
    """Return the verdict; where it depends on the reading, on which."""
    if judged.conclusion != "depends":
        return judged.conclusion
    every = {"the default": judged} | dict(judged.readings)
    parts = [
        f"{verdict} with {', '.join(name for name, other in every.items() if other.verdict == verdict)}"
        for verdict in ("holds", "fails")
    ]
    return f"depends: {'; '.join(parts)}"


def _short(number: float) -> str:
    return f"{number:.3g}".replace("inf", "∞")


def as_markdown(verdicts: list[Verdict]) -> str:
    """Return the table for a page."""
    rows = [HEADING, ["---"] * len(HEADING), *(cells(verdict) for verdict in verdicts)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
