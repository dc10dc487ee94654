"""Quantities that decide claims: functions of the results of one or two settings.

``@quantity`` binds what comes after the results, so that a table of claims reads
``end_ratio("DC-SGD", ROBUST, "average")`` and is measured later, on results and on resamples of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from tailproof.core import Array
from tailproof.paper import experiments as ex
from tailproof.paper.simulated import LEVELS, noise_width
from tailproof.paper.store import Curves, Methods

Measure = Callable[..., float]  # of the methods of each setting
Rivals = tuple[str, ...]

ROBUST = ("RGD-MoM", "RGD-M", "RGD-Lec")
COMPARABLE = 1.25  # the factor within which two excess risks are called comparable
VISIBLE = 0.01  # of the excess risk of the start: less than that cannot be seen in a figure


def quantity(function: Measure) -> Callable[..., Measure]:
    """Turn ``function(*methods, *arguments)`` into ``function(*arguments)(*methods)``."""

    def bind(*arguments: object) -> Measure:
        return lambda *methods: float(function(*methods, *arguments))

    bind.__doc__ = function.__doc__
    return bind


def _end(methods: Methods, name: str, statistic: str) -> float:
    return methods[name].at_end(statistic)


def _best_end(methods: Methods, names: Iterable[str], statistic: str) -> float:
    return min(_end(methods, name, statistic) for name in names)


def _first_cost(curves: Curves, level: float, statistic: str) -> float:
    """Least cost from which on a statistic stays at or below a level; infinite if it ends above."""
    above = np.flatnonzero(curves.over_trials(statistic) > level)
    if above.size == 0:
        return float(curves.costs[0])
    return float(curves.costs[above[-1] + 1]) if above[-1] + 1 < curves.costs.size else math.inf


def _start(methods: Methods, statistic: str) -> float:
    """Excess risk of the start: batch methods have not moved at the first look."""
    return float(methods["true GD"].over_trials(statistic)[0])


def _at_cost(curves: Curves, cost: float) -> Array:
    """Excess risk at the last look with at most that cost."""
    return np.asarray(curves.excess[:, np.searchsorted(curves.costs, cost, side="right") - 1])


def _ratio(above: float, below: float) -> float:
    """Infinite, or not a number, where the denominator is zero: few trials, all alike."""
    if below == 0:
        return math.inf if above > 0 else math.nan
    return above / below


def _lead(methods: Methods, name: str) -> float:
    """Median of the best batch method over that of the proposed one: above 1 the proposed one leads."""
    return _ratio(_best_end(methods, ex.BATCH, "median"), _end(methods, name, "median"))


def _seconds_ratio(methods: Methods, name: str, other: str, clock: str = "processor") -> float:
    above, below = (getattr(methods[which], clock) for which in (other, name))
    return float(np.median(above) / np.median(below))


@quantity
def passes_to_match(methods: Methods, name: str, statistic: str, rivals: Rivals = ROBUST) -> float:
    """Return passes (cost over n) until a method is comparable with what the best RGD method ends with."""
    level = COMPARABLE * _best_end(methods, rivals, statistic)
    return _first_cost(methods[name], level, statistic) / ex.SMALL_N


@quantity
def passes_until_invisible(methods: Methods, name: str, rivals: Rivals = ROBUST) -> float:
    """Return passes until a method's average is as good as the best RGD's end on the scale of a figure."""
    level = _best_end(methods, rivals, "average") + VISIBLE * _start(methods, "average")
    return _first_cost(methods[name], level, "average") / ex.SMALL_N


@quantity
def cost_share(methods: Methods, name: str, rivals: Rivals = ROBUST) -> float:
    """Cost of a method over the least cost of an RGD method, to where the method's average ends."""
    level = COMPARABLE * max(_end(methods, name, "average"), _best_end(methods, rivals, "average"))
    theirs = min(_first_cost(methods[other], level, "average") for other in rivals)
    return _first_cost(methods[name], level, "average") / theirs


@quantity
def end_ratio(methods: Methods, name: str, others: Rivals, statistic: str = "median") -> float:
    """A method's statistic at the end over the least of others."""
    return _ratio(_end(methods, name, statistic), _best_end(methods, others, statistic))


@quantity
def visible_gap(methods: Methods, name: str, others: Rivals, statistic: str = "average") -> float:
    """How far a method ends above the least of others, as a share of the excess risk of the start."""
    gap = _end(methods, name, statistic) - _best_end(methods, others, statistic)
    return gap / _start(methods, "average")


@quantity
def across(first: Methods, second: Methods, name: str, statistic: str = "median") -> float:
    """A method's statistic at the end in the second setting over that in the first."""
    return _end(second, name, statistic) / _end(first, name, statistic)


@quantity
def lead_growth(first: Methods, second: Methods, name: str) -> float:
    """Lead over the best batch method in the second setting over that in the first."""
    return _lead(second, name) / _lead(first, name)


@quantity
def passed_on(methods: Methods, name: str, cost: float) -> float:
    """A method's average at the end over its average at a cost."""
    return _end(methods, name, "average") / float(_at_cost(methods[name], cost).mean())


@quantity
def same_progress(methods: Methods, name: str, other: str, cost: float) -> float:
    """Median of a batch method, stopped at a cost, over the final median of the proposed one."""
    return float(np.median(_at_cost(methods[other], cost))) / _end(methods, name, "median")


@quantity
def over_start(methods: Methods, name: str) -> float:
    """Return the final median of a method over the median excess risk of the start itself."""
    return _end(methods, name, "median") / _start(methods, "median")


@quantity
def seconds_ratio(methods: Methods, name: str, other: str, clock: str = "processor") -> float:
    """Median time of another method over that of the proposed one; clock "processor" or "seconds"."""
    return _seconds_ratio(methods, name, other, clock)


@quantity
def seconds_across(first: Methods, second: Methods, name: str) -> float:
    """A method's median time in the second setting over that in the first."""
    return float(np.median(second[name].processor) / np.median(first[name].processor))


@quantity
def seconds_lead_growth(first: Methods, second: Methods, name: str) -> float:
    """Factor by which the lead in time over the fastest RGD method grows between two settings."""
    then, now = (min(_seconds_ratio(m, name, other) for other in ROBUST) for m in (first, second))
    return now / then


@quantity
def width_ratio(level: str) -> float:
    """Inter-quartile range of log-Normal noise over that of Normal noise, both exact."""
    normal, lognormal = (noise_width(noise, levels[level]) for noise, levels in LEVELS.items())
    return lognormal / normal
