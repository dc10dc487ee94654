"""Steps to where the sums of scores of the noise vanish, by its size or by its law."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.law_equations import ByLaw
from tailproof.estimators.robust_regressor.monotone_score import MonotoneScore
from tailproof.estimators.robust_regressor.noise_equations import BySize
from tailproof.estimators.robust_regressor.row_tiles import long_tiles
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.score_equations import ByScore

MANY = 50_000  # rows from which on every tenth is asked first
CONTRACTS = 0.4  # a step that is longer than this share of the one before wants the derivatives of all rows
_CLOSE = 0.0005  # of the error of a fit: few rows decide how large that is, and they may say ten times it
_BEGIN = 0.3  # the same where other steps follow
_MIXED = 6  # steps
_STEPS, _NEARLY = 32, 0.1  # at most so many; what the last one may have been, in errors
_TOLD_APART = 0.01  # of the largest change of steps: smaller ones would be rounding, made large
_TOO_FAR, _FALLS_ON = 0.5, 0.5  # how fast a loss may rise after a step, or fall, of its fall before
_SHORTEST, _LONGEST = 0.01, 1_000.0  # share of a step

_Sized = TypeVar("_Sized", BySize, ByLaw)
_Convex = TypeVar("_Convex", ByScore, ByLaw)


def solved_by_steps(
    start: _Sized,
    sums_at: Callable[[_Sized], Array],
    curved: Callable[[_Sized], _Sized],
    close: float = _CLOSE,
) -> tuple[_Sized, Array] | None:
    """Where sums vanish, and those before the last step; None if steps do not settle.

    Where a few rows with next to no noise decide, steps shrink slowly. What the last ones have told of how
    steps depend on places makes up for that (Anderson's mixing).

    Parameters
    ----------
    start : BySize or ByLaw
    sums_at : function
        Of equations on their way.
    curved : function
        Gives equations the derivatives that rows have there.
    close : float
        What a step may be that is the last one.
    """
    place: Array = np.zeros(len(start.inverse))
    places: list[Array] = []
    steps: list[Array] = []
    before = math.inf
    for number in range(_STEPS):
        here = start.after(place)
        sums = sums_at(here)
        step = here.step(sums)
        length = here.length(step, sums)
        if length <= close or (number == 1 and close * before >= length**2):
            return here.after(step), sums
        if number == 1 and length > CONTRACTS * before:
            start, places, steps = replace(start, inverse=curved(here).inverse), [], []
            step = replace(here, inverse=start.inverse).step(sums)
        places, steps, before = [*places, place][-_MIXED:], [*steps, step][-_MIXED:], length
        place = mixed(places, steps)
    return (here.after(step), sums) if length <= _NEARLY else None


def mixed(places: Sequence[Array], steps: Sequence[Array]) -> Array:
    """Where a step would vanish if steps were linear in places, next to where the last one leads."""
    there = places[-1] + steps[-1]
    if len(steps) == 1:
        return there
    change = np.diff(steps, axis=0)
    share = np.linalg.lstsq(change.T, steps[-1], rcond=_TOLD_APART)[0]
    return np.asarray(there - share @ (np.diff(places, axis=0) + change))


def least_loss(
    start: _Convex,
    sums_at: Callable[[_Convex], Array],
    curved: Callable[[_Convex], _Convex],
    close: float = _CLOSE,
) -> tuple[_Convex, Array] | None:
    """The same by Newton's method, where a steep piece of ψ makes steps with one curvature go to and fro."""
    here, sums = start, sums_at(start)
    for _ in range(_STEPS):
        here = curved(here)
        step = here.step(sums)
        if here.length(step, sums) <= close:
            return here.after(step), sums
        here, sums = _along(here, step, sums, sums_at)
    return None


def _along(
    here: _Convex, step: Array, sums: Array, sums_at: Callable[[_Convex], Array]
) -> tuple[_Convex, Array]:
    """Where a step leads, and the sums there.

    It is halved where it has gone far beyond the least loss along its way, which is convex, and doubled where
    the loss falls on nearly as before: ψ may be flat for all rows that a slope is of.
    """
    falls, share = here.descent(sums, step), 1.0
    there = here.after(step)
    reached = sums_at(there)
    while share > _SHORTEST and here.descent(reached, step) < -_TOO_FAR * falls:
        share *= 0.5
        there = here.after(share * step)
        reached = sums_at(there)
    while 1.0 <= share < _LONGEST and here.descent(reached, step) > _FALLS_ON * falls:
        share *= 2.0
        further = here.after(share * step)
        beyond = sums_at(further)
        if here.descent(beyond, step) < -_TOO_FAR * falls:
            break
        there, reached = further, beyond
    return there, reached


def solved_either_way(
    start: ByLaw, sums_at: Callable[[ByLaw], Array], curved: Callable[[ByLaw], ByLaw], close: float = _CLOSE
) -> ByLaw | None:
    """Where sums of a law vanish, by steps of either kind; None if neither settles.

    None also where no row has a part in ψ′, so that every step is zero.
    """
    found = solved_by_steps(start, sums_at, curved, close) or least_loss(start, sums_at, curved, close)
    return found[0] if found is not None and found[0].inverse.any() else None


def with_sizes_held(equations: BySize, rows: ScaledRows) -> BySize:
    """Slopes by Huber's ψ of noise over sizes that stay, from where other steps may settle.

    A category of which the few had one row may begin where all its rows are truncated, and derivatives say
    nothing; with sizes held, slopes have the least of a convex loss.
    """
    ends, rank = np.array([-equations.tau, equations.tau]), equations.map.shape[1]
    law = ByLaw(
        score=MonotoneScore(ends, ends),
        theta=equations.theta,
        kappa=equations.kappa,
        map=equations.map,
        across=np.eye(rank),
        inverse=np.zeros((rank + 1, rank + 1)),
        gain=0.0,
        variance=0.0,
        error=equations.error,
        whole_error=equations.error,
    )
    found = solved_by_law(law, equations, rows, _BEGIN)
    return equations if found is None else replace(equations, theta=found.theta, kappa=found.kappa)


def solved_by_law(law: ByLaw, size: BySize, rows: ScaledRows, close: float = _CLOSE) -> ByLaw | None:
    """Slopes by a law, given sizes; first on a tenth of many rows, which has the derivatives for all."""
    few = _few_of(rows, size)
    curved, sizes = curved_by_law(size, few), sizes_over_rows(size, few)
    start = curved(law.begun(size, few, sizes))
    found = solved_either_way(start, lambda here: here.sums_over(few, sizes), curved, close)
    if found is None or few is rows:
        return found
    sizes = sizes_over_rows(size, rows)
    return solved_either_way(found, lambda here: here.sums_over(rows, sizes), curved, close)


def curved_by_law(size: BySize, rows: ScaledRows) -> Callable[[ByLaw], ByLaw]:
    """With the derivatives of rows, or of a tenth of many, whose noise has such sizes."""
    few = _few_of(rows, size)
    Z = np.concatenate([tile for _, tile in long_tiles(few)])
    sizes = size.sizes(Z)
    return lambda here: here.curved(Z, few.y, few.weights, sizes)


def _few_of(rows: ScaledRows, size: BySize) -> ScaledRows:
    """The rows, or a tenth of many."""
    return rows.tenth if rows.n >= MANY and size.know_all else rows


def sizes_over_rows(equations: BySize, rows: ScaledRows) -> Array:
    """s(x) of rows."""
    return np.concatenate([equations.sizes(Z) for _, Z in long_tiles(rows)])
