"""Verdicts: a quantity, its bootstrap interval over trials, and the range in which a claim holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.paper.simulated import seed_of
from tailproof.paper.store import Curves, Methods, Results

_RESAMPLES = 1000
_LEVEL = 0.95
_FEWEST = 3  # trials below which nothing is decided


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
    """

    where: str
    text: str
    quantity: str
    measure: Callable[..., float]
    low: float = math.nan
    high: float = math.nan


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
class Verdict:
    """A claim with its number, the interval of the number, and what follows."""

    claim: Claim
    value: float
    low: float
    high: float
    verdict: str


def judge(claim: Claim, results: Results, resamples: int = _RESAMPLES) -> Verdict:
    """Measure a claim and compare its interval with its range."""
    if any(setting not in results for setting in claim.settings):
        return Verdict(claim, math.nan, math.nan, math.nan, "not run")
    here = {setting: results[setting] for setting in claim.settings}
    value = _measured(claim, here)
    random = np.random.default_rng(seed_of("bootstrap", claim.experiment, claim.text, claim.quantity))
    draws = [_measured(claim, _resampled(here, random)) for _ in range(resamples if here else 1)]
    # With infinities (a level never reached) quantiles must not interpolate.
    low, high = np.quantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], method="inverted_cdf")
    enough = all(_trials(methods) >= _FEWEST for methods in here.values())
    verdict = _verdict(claim, float(low), float(high), enough)
    return Verdict(claim, value, float(low), float(high), verdict)


def _measured(claim: Claim, results: Results) -> float:
    return claim.measure(*(results[setting] for setting in claim.settings))


def _trials(methods: Methods) -> int:
    return next(iter(methods.values())).final.size


def _verdict(claim: Claim, low: float, high: float, enough: bool) -> str:
    if math.isnan(claim.low):
        return "measured"
    if enough and claim.low <= low and high <= claim.high:
        return "holds"
    return "fails" if enough and (high < claim.low or low > claim.high) else "undecided"


class _Drawn(Mapping[str, Curves]):
    """Curves with trials drawn anew, made when asked for: a claim looks at few of the methods."""

    def __init__(self, methods: Methods, trials: NDArray[np.intp]) -> None:
        self.methods, self.trials = methods, trials

    def __getitem__(self, name: str) -> Curves:
        return self.methods[name].resampled(self.trials)

    def __iter__(self) -> Iterator[str]:
        return iter(self.methods)

    def __len__(self) -> int:
        return len(self.methods)


def _resampled(results: Results, random: np.random.Generator) -> Results:
    """Draw trials with replacement; the methods of a trial stay together, since they share its data."""
    found = {}
    for setting, methods in results.items():
        trials = _trials(methods)
        found[setting] = _Drawn(methods, random.integers(0, trials, trials))
    return found


def cells(found: Verdict) -> list[str]:
    """One row of a table: experiment, place, claim, quantity, number with interval, range, verdict."""
    claim = found.claim
    interval = "" if found.low == found.high else f" [{_short(found.low)}, {_short(found.high)}]"
    ends = "" if math.isnan(claim.low) else f"[{_short(claim.low)}, {_short(claim.high)}]"
    number = f"{_short(found.value)}{interval}"
    return [claim.experiment, claim.where, claim.text, claim.quantity, number, ends, found.verdict]


def _short(number: float) -> str:
    return f"{number:.3g}".replace("inf", "∞")


def as_markdown(verdicts: list[Verdict]) -> str:
    """Return the table for a page."""
    heading = ["experiment", "paper", "claim", "quantity", "measured", "holds if in", "verdict"]
    rows = [heading, ["---"] * len(heading), *(cells(found) for found in verdicts)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
