"""Quantities that claims are decided by: functions of the results of an experiment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from tailproof.core import Array
from tailproof.paper import experiments as ex
from tailproof.paper.simulated import LEVELS, noise_width
from tailproof.paper.store import Curves, Methods, Results

Measure = Callable[[Results], float]

ROBUST = ("RGD-MoM", "RGD-M", "RGD-Lec")
COMPARABLE = 1.25  # the factor within which two excess risks are called comparable
VISIBLE = 0.01  # of the excess risk of the start: less than that cannot be seen in a figure


def _average(curves: Curves) -> Array:
    return curves.excess.mean(axis=0)


def _sd(curves: Curves) -> Array:
    return curves.excess.std(axis=0)


def _median(curves: Curves) -> Array:
    return np.asarray(np.median(curves.excess, axis=0))


_STATISTICS = {"average": _average, "sd": _sd, "median": _median}


def _end(methods: Methods, name: str, statistic: str) -> float:
    return float(_STATISTICS[statistic](methods[name])[-1])


def _best_end(methods: Methods, names: Iterable[str], statistic: str) -> float:
    return min(_end(methods, name, statistic) for name in names)


def _first_cost(curves: Curves, level: float, statistic: str) -> float:
    """Least cost from which on a statistic stays at or below a level; infinite if it ends above."""
    above = np.flatnonzero(_STATISTICS[statistic](curves) > level)
    if above.size == 0:
        return float(curves.costs[0])
    return float(curves.costs[above[-1] + 1]) if above[-1] + 1 < curves.costs.size else math.inf


def _ratio(above: float, below: float) -> float:
    """Infinite, or not a number, where nothing is below: few trials, all alike."""
    if below == 0:
        return math.inf if above > 0 else math.nan
    return above / below


def passes_to_match(setting: str, name: str, statistic: str) -> Measure:
    """Return passes (cost over n) until a method is comparable with what the best RGD method ends with."""

    def measure(results: Results) -> float:
        methods = results[setting]
        level = COMPARABLE * _best_end(methods, ROBUST, statistic)
        return _first_cost(methods[name], level, statistic) / ex.SMALL_N

    return measure


def cost_share(setting: str, name: str) -> Measure:
    """Cost of a method over the least cost of an RGD method, to where the method's average ends."""

    def measure(results: Results) -> float:
        methods = results[setting]
        level = COMPARABLE * max(_end(methods, name, "average"), _best_end(methods, ROBUST, "average"))
        theirs = min(_first_cost(methods[other], level, "average") for other in ROBUST)
        return _first_cost(methods[name], level, "average") / theirs

    return measure


def end_ratio(setting: str, name: str, others: tuple[str, ...], statistic: str = "median") -> Measure:
    """A method's statistic at the end over the least of others."""
    return lambda results: _ratio(
        _end(results[setting], name, statistic), _best_end(results[setting], others, statistic)
    )


def across(first: str, second: str, name: str, statistic: str = "median") -> Measure:
    """A method's statistic at the end in the second setting over that in the first."""
    return lambda results: _end(results[second], name, statistic) / _end(results[first], name, statistic)


def lead(setting: str, name: str) -> Measure:
    """Median of the best batch method over that of the proposed one: above 1 the proposed one leads."""
    return lambda results: _ratio(
        _best_end(results[setting], ex.BATCH, "median"), _end(results[setting], name, "median")
    )


def lead_growth(first: str, second: str, name: str) -> Measure:
    """Lead in the second setting over that in the first."""
    return lambda results: lead(second, name)(results) / lead(first, name)(results)


def passed_on(setting: str, name: str, passes: float) -> Measure:
    """A method's average at the end over its average after so many passes."""
    return lambda results: float(
        results[setting][name].final.mean() / _at_cost(results[setting][name], passes * ex.SMALL_N).mean()
    )


def passes_until_invisible(setting: str, name: str) -> Measure:
    """Return passes until a method's average is as good as the best RGD's end on the scale of a figure."""

    def measure(results: Results) -> float:
        methods = results[setting]
        # Batch methods have not moved at the first look.
        level = _best_end(methods, ROBUST, "average") + VISIBLE * float(_average(methods["true GD"])[0])
        return _first_cost(methods[name], level, "average") / ex.SMALL_N

    return measure


def _at_cost(curves: Curves, cost: float) -> Array:
    """Excess risk at the last look with at most that cost."""
    return np.asarray(curves.excess[:, np.searchsorted(curves.costs, cost, side="right") - 1])


def same_progress(setting: str, name: str, other: str, cost: float) -> Measure:
    """Median of a batch method, stopped at a cost, over the final median of the proposed one."""
    return lambda results: float(
        np.median(_at_cost(results[setting][other], cost)) / np.median(results[setting][name].final)
    )


def over_start(setting: str, name: str) -> Measure:
    """Return the final median of a method over the median excess risk of the start itself."""
    return lambda results: float(
        np.median(results[setting][name].final) / np.median(results[setting]["true GD"].excess[:, 0])
    )


def seconds_ratio(setting: str, name: str, other: str, clock: str = "processor") -> Measure:
    """Median time of another method over that of the proposed one; clock "processor" or "seconds"."""
    return lambda results: float(
        np.median(getattr(results[setting][other], clock)) / np.median(getattr(results[setting][name], clock))
    )


def seconds_across(first: str, second: str, name: str) -> Measure:
    """A method's median time in the second setting over that in the first."""
    return lambda results: float(
        np.median(results[second][name].processor) / np.median(results[first][name].processor)
    )


def seconds_lead_growth(first: str, second: str, name: str) -> Measure:
    """Factor by which the lead in time over the fastest RGD method grows between two settings."""

    def in_time(results: Results, setting: str) -> float:
        return min(seconds_ratio(setting, name, other)(results) for other in ROBUST)

    return lambda results: in_time(results, second) / in_time(results, first)


def width_ratio(level: str) -> Measure:
    """Inter-quartile range of log-Normal noise over that of Normal noise, both exact."""
    widths = [noise_width(noise, levels[level]) for noise, levels in LEVELS.items()]
    return lambda results: widths[1] / widths[0]
