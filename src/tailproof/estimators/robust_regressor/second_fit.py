"""Slopes on many rows by what a few of them have learned about the noise, and whether all contradict that.

The rows that choose learn the law of the noise, or how its size grows
(:mod:`~tailproof.estimators.robust_regressor.refinement`). From there a few steps on all rows lead to where
the sums of the same scores over all rows vanish: each takes one pass, and the inverse that the few have. All
rows then say far better than the few whether such a fit is biased, by its distance to least squares.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.core.automatic import share_of_untied_targets
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.noise_equations import ByScore, BySize
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath, normal_score
from tailproof.estimators.robust_regressor.tuning import Tuning

_STEPS = 16
_CLOSE = 0.003  # of the error of a fit: what steps may leave; each shrinks by the factor of the one before
_CLOSE_BY_SIZE = 0.0005  # the same: few rows decide how large that error is, and they may say ten times it
_CONTRACTS = 0.4  # a step that is longer than this share of the one before wants the derivatives of all rows
_MIXED = 6  # steps of a fit by size
_STEPS_BY_SIZE, _NEARLY_BY_SIZE = 32, 0.1  # at most so many; what the last one may have been, in errors
_FRESH = 4  # times that they are made, at most
_MANY = 50_000  # rows from which on every tenth is asked first
_ALL = slice(None)
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Learned:
    """What the rows that choose have learned about the noise.

    Attributes
    ----------
    equations : Equations
        At their own solution.
    weight : float
        Share of the second fit that has the least predicted risk.
    share : float
        What is left of that after their doubts.
    variance, covariance : float
        By how much one row moves the distance of the slopes to those of the levels, squared; and times how
        much it moves the former alone.
    left_out : array or None
        What the slopes change in the predictions of those rows when they are held out.
    """

    equations: ByScore | BySize
    weight: float
    share: float
    variance: float
    covariance: float
    left_out: Array | None


@dataclass(frozen=True, eq=False)
class SecondFit:
    """Slopes by what was learned, on all rows.

    Attributes
    ----------
    equations : Equations
        At the solution.
    mean_row : array of shape (width,)
        Of scaled columns.
    size : float
        Effective number of rows.
    agreement : float
        From 1, all rows do not contradict, to 0.
    learned : Learned
    level : Level, optional
        If sizes of the noise are known.
    """

    equations: ByScore | BySize
    mean_row: Array
    size: float
    agreement: float
    learned: Learned
    level: Level | None = None


@dataclass(frozen=True)
class Level:
    """Mean of what slopes leave of rows weighted by 1/s(x)², and the error of its distance to all's."""

    mean: float
    error: float


def agreement_of(conflict: float, tuning: Tuning) -> float:
    """From 1, chance explains a normal score, to 0, it does not."""
    span = tuning.conflict_certain - tuning.conflict_tolerated
    return float(np.clip((tuning.conflict_certain - conflict) / span, 0.0, 1.0))


def agreement_of_slopes(path: TruncationPath, distance: Array, variance: float) -> float:
    """The same for the distance of two slopes, whose coordinates have the variance given."""
    apart = path.slopes_alone(distance[:, None])[:, 0]
    chi = np.asarray(apart @ apart / max(variance, _TINY))
    return agreement_of(float(normal_score(chi, max(path.basis.rank - 1, 1))), path.rows.tuning)


def second_fit(
    path: TruncationPath, learned: Learned, reach: Array, slopes: Array, errors: Array, delta: float
) -> SecondFit | None:
    """The slopes on the rows of a path, and whether these contradict; None where steps do not settle.

    Parameters
    ----------
    path : TruncationPath
        Fitted on all rows, with least squares among its levels.
    learned : Learned
    reach : array of shape (n,)
        How far every row is from the mean one.
    slopes, errors : arrays
        Of sizes of residuals along columns, and their standard errors.
    delta : float
    """
    rows, size = path.rows, float(path.rows.weights.sum() ** 2 / (path.rows.weights @ path.rows.weights))
    equations = learned.equations
    if misses_directions(equations, rows) or not equations.suits(slopes, errors, size):
        return None
    least_squares = int(np.flatnonzero(np.isinf(path.levels.tau))[0])
    plain = path.basis.map @ path.phi[:, least_squares]
    found = solved(
        _from_some(equations, rows, plain, reach),
        lambda here: sums_over_rows(here, rows, plain, reach),
        rows,
    )
    if found is None:
        return None
    there, sums = found
    apart = float(rows.covariances((there.theta - plain)[:, None])[0, 0])
    agreement = agreement_of(there.conflict(sums, plain, apart), rows.tuning)
    level = _level(there, rows, delta) if isinstance(there, BySize) else None
    mean_row = rows.tile_to_columns(rows.mean_tile)
    return SecondFit(there, mean_row, size, agreement, learned, level)


def solved_on_sample(
    path: TruncationPath, X: Any, learned: Learned
) -> tuple[ByScore | BySize, ScaledRows] | None:
    """The equations at their solution on the rows of a path, and these as steps have read them.

    ``X`` has the features of the rows as they are. None where steps do not settle. Unlike in
    :func:`second_fit` nothing is judged.
    """
    equations = learned.equations
    if misses_directions(equations, path.rows):
        return None
    rows = in_scaled_columns(path.rows, X) if isinstance(equations, BySize) else path.rows
    reach, none = np.ones(rows.n), np.zeros(rows.width)
    start = _from_some(equations, rows, none, reach)
    found = solved(start, lambda here: sums_for_steps(here, rows, none, reach), rows)
    return None if found is None else (found[0], rows)


def misses_directions(equations: ByScore | BySize, rows: ScaledRows) -> bool:
    """Whether rows vary along a column that was constant where the equations were learned."""
    return rows.parameters > equations.map.shape[1]


def _from_some(equations: ByScore | BySize, rows: ScaledRows, plain: Array, reach: Array) -> ByScore | BySize:
    """Where a tenth of many rows leads: from there, fewer passes over all of them are left."""
    if rows.n < _MANY:
        return equations
    part, far = rows.tenth, reach[::10].copy()
    found = solved(equations, lambda here: sums_for_steps(here, part, plain, far), part)
    return equations if found is None else found[0]


def solved(
    equations: ByScore | BySize, sums_at: Callable[[ByScore | BySize], Array], rows: ScaledRows
) -> tuple[ByScore | BySize, Array] | None:
    """Where sums vanish, and those before the last step; None if steps do not settle.

    Where steps hardly shrink, the derivatives of the rows are made, which may know more than the few that the
    equations are from; then steps are halved, since a rare category may have all its rows at an edge of ψ.

    Parameters
    ----------
    equations : ByScore or BySize
    sums_at : function
        Of equations on their way.
    rows : ScaledRows
    """
    if isinstance(equations, BySize):
        return _solved_by_size(equations, sums_at, rows)
    before, fresh, share = _TINY, 0, 1.0
    for _ in range(_STEPS):
        sums = sums_at(equations)
        there, length = equations.stepped(sums, share)
        if length <= _CLOSE or (share == 1.0 and _CLOSE * before >= length**2):
            return there, sums
        if before > _TINY and length > _CONTRACTS * before and fresh < _FRESH:
            fresh += 1
            share = 1.0 if fresh == 1 else 0.5
            equations, before = equations.curved(curvature_of_rows(equations, rows)), _TINY
        else:
            equations, before = there, length
    return None


def _solved_by_size(
    start: BySize, sums_at: Callable[[ByScore | BySize], Array], rows: ScaledRows
) -> tuple[BySize, Array] | None:
    """The same for sizes: where a few rows with next to no noise decide, steps shrink slowly.

    What the last ones have told of how steps depend on places makes up for that (Anderson's mixing).
    """
    place: Array = np.zeros(len(start.inverse))
    places: list[Array] = []
    steps: list[Array] = []
    before = math.inf
    for number in range(_STEPS_BY_SIZE):
        here = start.after(place)
        sums = sums_at(here)
        step = here.step(sums)
        length = here.length(step, sums)
        if length <= _CLOSE_BY_SIZE or (number == 1 and _CLOSE_BY_SIZE * before >= length**2):
            return here.after(step), sums
        if number == 1 and length > _CONTRACTS * before:
            start, places, steps = start.curved(curvature_of_rows(here, rows)), [], []
            step = replace(here, inverse=start.inverse).step(sums)
        places, steps, before = [*places, place][-_MIXED:], [*steps, step][-_MIXED:], length
        place = mixed(places, steps)
    return (here.after(step), sums) if length <= _NEARLY_BY_SIZE else None


def mixed(places: Sequence[Array], steps: Sequence[Array]) -> Array:
    """Where a step would vanish if steps were linear in places, next to where the last one leads."""
    there = places[-1] + steps[-1]
    if len(steps) == 1:
        return there
    change = np.diff(steps, axis=0)
    share = np.linalg.lstsq(change.T, steps[-1])[0]
    return np.asarray(there - share @ (np.diff(places, axis=0) + change))


def curvature_of_rows(equations: ByScore | BySize, rows: ScaledRows) -> Array:
    """Sums over rows that make the derivatives of the conditions."""
    parts = (equations.curvature(Z, rows.y[part], rows.weights[part]) for part, Z in scaled_tiles(rows))
    return np.asarray(functools.reduce(np.add, parts))


def led_by_some(equations: BySize, sums: Array, some: ScaledRows) -> tuple[BySize, float, Array] | None:
    """Where sums vanish if they change as those of some rows do; None if steps do not settle.

    Some rows know more than derivatives do: a row that hardly has noise may be truncated here and not there.

    Parameters
    ----------
    equations : BySize
    sums : array
        Of all rows, here.
    some : ScaledRows
        With weights in proportion to what each stands for.

    Returns
    -------
    BySize, float, array
        With the length of the way in standard errors, and what it changes in θ.
    """
    here, unknowns = scores_over_rows(equations, some), len(equations.inverse)
    factor = equations.total(sums) / float(some.weights.sum())

    def sums_at(there: ByScore | BySize) -> Array:
        assert isinstance(there, BySize)
        changed = sums.copy()
        changed[:unknowns] += factor * (scores_over_rows(there, some) - here)
        return changed

    found = _solved_by_size(equations, sums_at, some)
    if found is None:  # derivatives may be those of other rows
        found = _solved_by_size(equations.curved(curvature_of_rows(equations, some)), sums_at, some)
    if found is None:
        return None
    change = found[0].theta - equations.theta
    return found[0], equations.length(np.linalg.lstsq(equations.map, change)[0], sums), change


def scores_over_rows(equations: BySize, rows: ScaledRows) -> Array:
    """The part of the sums that a solution makes vanish."""
    parts = (equations.score_sums(Z, rows.y[part], rows.weights[part]) for part, Z in _long_tiles(rows))
    return np.asarray(functools.reduce(np.add, parts))


def sums_for_steps(equations: ByScore | BySize, rows: ScaledRows, plain: Array, reach: Array) -> Array:
    """One pass over rows, without the squares that judge a fit by size: these take most of its time."""
    if isinstance(equations, ByScore):
        return sums_over_rows(equations, rows, plain, reach)
    parts = (equations.step_sums(Z, rows.y[part], rows.weights[part]) for part, Z in _long_tiles(rows))
    return np.asarray(functools.reduce(np.add, parts))


def sums_over_rows(equations: ByScore | BySize, rows: ScaledRows, plain: Array, reach: Array) -> Array:
    """One pass over rows."""
    if isinstance(equations, ByScore) and rows.in_basis:
        return equations.sums_of_white(rows.whitening, rows.X, rows.y, rows.uneven(_ALL), plain, reach)
    parts = [
        equations.sums(Z, rows.y[part], rows.weights[part], plain, reach[part])
        for part, Z in scaled_tiles(rows)
    ]
    return np.asarray(np.sum(parts, axis=0))


def scaled_tiles(rows: ScaledRows) -> Iterator[tuple[slice, Array]]:
    """Scaled columns with that of ones, a few rows at a time, whatever rows are kept as."""
    back = (rows.whitening.map / rows.whitening.inverse).T if rows.in_basis else None
    for part, Z in rows.tiles():
        yield part, Z if back is None else Z @ back


def _long_tiles(rows: ScaledRows) -> Iterator[tuple[slice, Array]]:
    """The same, all at once where that is no copy."""
    return iter([(_ALL, rows.X)]) if rows.ready and not rows.in_basis else scaled_tiles(rows)


def in_scaled_columns(rows: ScaledRows, X: Any) -> ScaledRows:
    """The same as scaled columns with that of ones, for several passes; X has their features as they are."""
    return replace(rows, basis=None).others(X, rows.y, rows.weights) if rows.in_basis else rows


def rest_of_rows(equations: ByScore | BySize, rows: ScaledRows) -> tuple[Array, Array]:
    """What slopes leave of rows at hand, and their weights by the size of the noise."""
    rest, w = np.empty(rows.n), rows.weights.copy()
    for part, Z in scaled_tiles(rows):
        rest[part] = rows.y[part] - Z[:, :-1] @ equations.theta[:-1]
        if isinstance(equations, BySize):
            w[part] /= equations.sizes(Z) ** 2
    return rest, w


def _level(equations: BySize, rows: ScaledRows, delta: float) -> Level:
    rest, v = rest_of_rows(equations, rows)
    mean = resistant_mean(rest, delta, v, untied_share=share_of_untied_targets(rows.y))
    apart = (v / v.sum() - rows.weights / rows.weights.sum()) * (rest - mean)
    return Level(mean, float(np.linalg.norm(apart)))
