"""Slopes on many rows by what a few of them have learned about the noise, and whether all contradict that.

The rows that choose learn the law of the noise, or how its size grows
(:mod:`~tailproof.estimators.robust_regressor.refinement`). From there a few steps on all rows lead to where
the sums of the same scores over all rows vanish: each takes one pass, and the inverse that the few have. All
rows then say far better than the few whether such a fit is biased, by its distance to least squares.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.law_equations import ByLaw
from tailproof.estimators.robust_regressor.noise_equations import (
    BySize,
    seen_columns,
    with_more_directions,
)
from tailproof.estimators.robust_regressor.row_tiles import (
    as_scaled_columns,
    in_scaled_columns,
    long_tiles,
    scaled_tiles,
)
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.score_equations import ByScore
from tailproof.estimators.robust_regressor.score_steps import (
    curvature_of_rows,
    own_curvature_of_rows,
    solved_by_score,
)
from tailproof.estimators.robust_regressor.size_misfit import trusted_share
from tailproof.estimators.robust_regressor.sized_steps import (
    MANY,
    solved_by_law,
    solved_by_steps,
    with_sizes_held,
)
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath, normal_score
from tailproof.estimators.robust_regressor.tuning import Tuning

_ASTRAY = 10.0  # standard errors from least squares, where nothing else has judged a slope
_HOLDS = 0.5  # share of slopes that are trusted, below which intervals do without sizes of the noise
_ALL = slice(None)
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Learned:
    """What the rows that choose have learned about the noise.

    Attributes
    ----------
    equations : ByScore or BySize
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
    across : LearnedAcross or None
        Of slopes across the columns that the noise grows along, if it does.
    """

    equations: ByScore | BySize
    weight: float
    share: float
    variance: float
    covariance: float
    left_out: Array | None
    across: LearnedAcross | None = None

    def on(self, rows: ScaledRows, plain: Array) -> Learned:
        """For rows that may vary along columns that were constant, where slopes begin at ``plain``.

        Derivatives along columns that the few hardly knew are those of the rows.
        """
        directions, seen = self.equations.map.shape[1], seen_columns(self.equations.map)
        told = self.equations.told
        hardly = told is not None and bool(np.setdiff1d(np.flatnonzero(seen), told).size)
        if rows.parameters <= directions and not (hardly and isinstance(self.equations, BySize)):
            return self
        more = (max(rows.parameters, directions) - 1) / max(directions - 1, 1)
        equations = replace(
            self.equations,
            theta=np.where(np.append(seen, True), self.equations.theta, plain),
            map=with_more_directions(self.equations.map, rows.whitening),
        )
        if isinstance(equations, BySize):
            equations = equations.curved(curvature_of_rows(equations, rows))
            moves, error = equations.inverse[: equations.map.shape[1]], math.sqrt(more) * equations.error
            equations = replace(equations, to_moves=moves, error=error)
        across = None if self.across is None else self.across.on(equations, more)
        variance, covariance = more * self.variance, more * self.covariance
        return replace(self, equations=equations, variance=variance, covariance=covariance, across=across)


@dataclass(frozen=True, eq=False)
class LearnedAcross:
    """What they have learned about slopes across the columns that the noise grows along.

    Attributes
    ----------
    law : ByLaw or None
        Of noise over its size, if that is worth it.
    variance, covariance : float
        As those of ``Learned``, of these slopes.
    """

    law: ByLaw | None
    variance: float
    covariance: float

    def on(self, sizes: ByScore | BySize, more: float) -> LearnedAcross:
        """The same where a fit by size knows so many times as many directions."""
        assert isinstance(sizes, BySize)
        law = None if self.law is None else self.law.on(sizes, more)
        return LearnedAcross(law, more * self.variance, more * self.covariance)


@dataclass(frozen=True, eq=False)
class SecondFit:
    """Slopes by what was learned, on all rows.

    Attributes
    ----------
    equations : ByScore or BySize
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
    agreement_across : float, optional
        The same for slopes across the columns that the noise grows along, if it does.
    trusted : float
        What slopes along these columns are multiplied with beside it, since sizes may not be as modelled.
    """

    equations: ByScore | BySize
    mean_row: Array
    size: float
    agreement: float
    learned: Learned
    level: Level | None = None
    agreement_across: float | None = None
    trusted: float = 1.0

    @property
    def sizes_hold(self) -> bool:
        """Whether sizes of the noise are as modelled, or nearly."""
        return self.trusted > _HOLDS


@dataclass(frozen=True)
class Level:
    """Mean of what slopes leave of rows weighted by 1/s(x)², and the error of its distance to all's.

    ``share`` of that distance has the least variance: where few rows have most of the weight, little.
    """

    mean: float
    error: float
    share: float

    @classmethod
    def of(cls, mean: float, own: float, both: float, even: float) -> Level:
        """Given the variances of the two means, the former first, and their covariance."""
        square = max(own - 2.0 * both + even, 0.0)
        share = float(np.clip((even - both) / max(square, _TINY), 0.0, 1.0))
        return cls(mean, math.sqrt(square), share)


def agreement_of(conflict: float, tuning: Tuning) -> float:
    """From 1, chance explains a normal score, to 0, it does not."""
    span = tuning.conflict_certain - tuning.conflict_tolerated
    return float(np.clip((tuning.conflict_certain - conflict) / span, 0.0, 1.0))


def agreement_of_slopes(path: TruncationPath, square: float, variance: float) -> float:
    """The same for two slopes, given the square of their distance over all rows and its mean by chance."""
    score = normal_score(np.asarray(square / max(variance, _TINY)), max(path.basis.rank - 1, 1))
    return agreement_of(float(score), path.rows.tuning)


def second_fit(
    path: TruncationPath,
    learned: Learned,
    reach: Array,
    slopes: Array,
    errors: Array,
    delta: float,
    judges: Callable[[], NDArray[np.intp]],
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
    judges : function
        Gives the rows that say whether sizes are as modelled.
    """
    rows, size = path.rows, float(path.rows.weights.sum() ** 2 / (path.rows.weights @ path.rows.weights))
    plain = plain_theta(path)
    learned = learned.on(rows, plain)
    equations = learned.equations
    if not equations.suits(slopes, errors, size):
        return None
    columns = as_scaled_columns(rows) if isinstance(equations, BySize) else rows
    found = solved(
        _from_some(equations, columns, plain, reach),
        lambda here: sums_for_steps(here, columns, plain, reach),
        columns,
    )
    if found is None:
        return None
    there, sums = found
    if isinstance(there, BySize):
        sums = sums_over_rows(there, columns, plain, reach)
    apart = float(rows.covariances((there.theta - plain)[:, None])[0, 0])
    agreement = agreement_of(there.conflict(sums, plain, apart), rows.tuning)
    mean_row = rows.tile_to_columns(rows.mean_tile)
    there = kept_near(there, sums, plain, mean_row)
    if isinstance(there, ByScore):
        return SecondFit(there, mean_row, size, agreement, learned)
    errors = there.distance_errors(sums)
    trusted = trusted_share(there, columns.take(judges()), errors, rows.tuning)
    law = learned.across.law if learned.across else None
    by_law = None if law is None else solved_by_law(law, there, columns)
    there, across = with_law(there, by_law, sums, plain, size, rows.tuning)
    level = _level(there, columns, delta, path.informative_share)
    return SecondFit(there, mean_row, size, agreement, learned, level, across, trusted)


def kept_near(there: ByScore | BySize, sums: Array, plain: Array, mean_row: Array) -> ByScore | BySize:
    """Slopes with those of least squares along columns that the few hardly knew, where they are far off.

    All rows of a category may lie where a score is flat, and steps then end anywhere.
    """
    every = np.arange(there.theta.size - 1)
    untold = np.setdiff1d(every, every if there.told is None else there.told)
    apart = (plain - there.theta)[untold]
    added = np.where(np.abs(apart) > _ASTRAY * there.distance_errors(sums)[untold], apart, 0.0)
    if not added.any():
        return there
    theta = there.theta.copy()
    theta[untold] += added
    theta[-1] -= mean_row[untold] @ added
    return replace(there, theta=theta)


def with_law(
    there: BySize, law: ByLaw | None, sums: Array, plain: Array, size: float, tuning: Tuning
) -> tuple[BySize, float]:
    """A fit by size, with slopes by a law if there is one, and whether least squares bears those across."""
    there = there if law is None else law.taken_over(there, size)
    return there, agreement_of(there.conflict_across(sums, plain), tuning)


def solved_on_sample(
    path: TruncationPath, X: Any, learned: Learned
) -> tuple[ByScore | BySize, ScaledRows] | None:
    """The equations at their solution on the rows of a path, and these as steps have read them.

    ``X`` has the features of the rows as they are. None where steps do not settle. Unlike in
    :func:`second_fit` nothing is judged.
    """
    equations = learned.equations
    rows = in_scaled_columns(path.rows, X) if isinstance(equations, BySize) else path.rows
    reach, none = np.ones(rows.n), np.zeros(rows.width)
    start = _from_some(equations, rows, none, reach)
    found = solved(start, lambda here: sums_for_steps(here, rows, none, reach), rows)
    return None if found is None else (found[0], rows)


def plain_theta(path: TruncationPath) -> Array:
    """Least squares, which is among the levels of a path."""
    return np.asarray(path.basis.map @ path.phi[:, np.flatnonzero(np.isinf(path.levels.tau))[0]])


def _from_some(equations: ByScore | BySize, rows: ScaledRows, plain: Array, reach: Array) -> ByScore | BySize:
    """Where a tenth of many rows leads: from there, fewer passes over all of them are left."""
    if rows.n < MANY or (isinstance(equations, BySize) and not equations.know_all):
        return equations
    part, far = rows.tenth, reach[rows.places_of_tenth]
    found = solved(equations, lambda here: sums_for_steps(here, part, plain, far), part)
    return equations if found is None else found[0]


def solved(
    equations: ByScore | BySize, sums_at: Callable[[ByScore | BySize], Array], rows: ScaledRows
) -> tuple[ByScore | BySize, Array] | None:
    """Where sums vanish, and those before the last step; None if steps do not settle.

    Where steps hardly shrink, the derivatives of the rows are made, which may know more than the few that the
    equations are from.

    Parameters
    ----------
    equations : ByScore or BySize
    sums_at : function
        Of equations on their way.
    rows : ScaledRows
    """
    if isinstance(equations, ByScore):
        return solved_by_score(
            equations,
            sums_at,
            lambda: curvature_of_rows(equations, rows),
            lambda here: own_curvature_of_rows(here, rows) / rows.weights.sum(),
        )
    curved = curved_by(rows)
    return solved_by_steps(equations, sums_at, curved) or solved_by_steps(
        curved(with_sizes_held(equations, rows)), sums_at, curved
    )


def curved_by(rows: ScaledRows) -> Callable[[BySize], BySize]:
    """With the derivatives of rows."""
    return lambda here: here.curved(curvature_of_rows(here, rows))


def sums_for_steps(equations: ByScore | BySize, rows: ScaledRows, plain: Array, reach: Array) -> Array:
    """One pass over rows, without the squares that judge a fit by size: these take most of its time."""
    if isinstance(equations, ByScore):
        return sums_over_rows(equations, rows, plain, reach)
    parts = (equations.step_sums(Z, rows.y[part], rows.weights[part]) for part, Z in long_tiles(rows))
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


def rest_of_rows(equations: ByScore | BySize, rows: ScaledRows) -> tuple[Array, Array]:
    """What slopes leave of rows at hand, and their weights by the size of the noise."""
    rest, w = np.empty(rows.n), rows.weights.copy()
    for part, Z in scaled_tiles(rows):
        rest[part] = rows.y[part] - Z[:, :-1] @ equations.theta[:-1]
        if isinstance(equations, BySize):
            w[part] /= equations.sizes(Z) ** 2
    return rest, w


def _level(equations: BySize, rows: ScaledRows, delta: float, informative_share: float) -> Level:
    rest, v = rest_of_rows(equations, rows)
    mean = resistant_mean(rest, delta, v, informative_share=informative_share)
    own, even = v / v.sum() * (rest - mean), rows.weights / rows.weights.sum() * (rest - mean)
    return Level.of(mean, float(own @ own), float(own @ even), float(even @ even))
