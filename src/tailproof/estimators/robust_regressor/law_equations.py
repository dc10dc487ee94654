"""Conditions of slopes where the noise is s(x) times one law whose score was learned, s(x) being known.

With u = (y − z'θ)/s(x) − κ they are Σ v ψ(u) z/s = 0 and Σ v ψ(u) = 0: minima of a convex loss. The constant
of θ, which rows hardly tell from κ, stays as the fit by size has it. Where s(x) is not quite as modelled,
slopes are off along the columns that it depends on, as far as the law is skewed. So a fit by size
(:class:`~tailproof.estimators.robust_regressor.noise_equations.BySize`) takes over the slopes across these
columns alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.monotone_score import MonotoneScore
from tailproof.estimators.robust_regressor.noise_equations import (
    BySize,
    constant_of,
    coordinates_of,
    inverse_beside,
    seen_columns,
    slopes_told,
    without_constant,
)
from tailproof.estimators.robust_regressor.row_tiles import long_tiles
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram, over_sizes
from tailproof.native.size_scores import SizedScore, sized_score_sums

_LEAST_SLOPE = 0.1  # of the mean ψ′: what rows have at least, so that no direction is without any
_LEAK = 0.1  # of a step of slopes along columns: what reaches those across, derivatives being of other rows
_LOOKED_AT = 5_000  # rows that tell where to begin
_HALVINGS, _NEAR = 40, 0.01  # at most; of the error of a mean, what may be left of it
_TINY = 1e-300


def share_of_least_risk(gain: float, square: float, variance: float) -> float:
    """(V − C)/max(D², V_D) of a fit beside another one, from no share to all.

    V is the variance of the other fit, C the covariance of the two and D their distance, whose variance is
    V_D; V − C is the gain.
    """
    return float(np.clip(gain / max(square, variance, _TINY), 0.0, 1.0))


def _middle(score: MonotoneScore, noise: Array, v: Array) -> float:
    """The κ for which the mean of ψ of noise − κ vanishes, which falls as κ grows; 0 if ψ is flat there."""
    low, high = float(noise.min()) - float(score.knots[-1]), float(noise.max()) - float(score.knots[0])
    kappa = 0.0
    for number in range(_HALVINGS):
        psi, slopes = score.both(noise - kappa)
        rest, steepness = float(v @ psi), float(v @ slopes)
        flat = not number and not (steepness > 0 and low < kappa < high)
        if flat or abs(rest) <= _NEAR * float(np.linalg.norm(v * psi)):
            break
        low, high = (kappa, high) if rest > 0 else (low, kappa)
        there = kappa + rest / steepness if steepness > 0 else math.inf
        kappa = there if low < there < high else 0.5 * (low + high)
    return kappa


@dataclass(frozen=True, eq=False)
class ByLaw:
    """Slopes by the law of the noise over its size, as far as a fit by size takes them over.

    Attributes
    ----------
    score : MonotoneScore
        ψ of u, with mean zero.
    theta : array of shape (width,)
    kappa : float
    map : array of shape (width, rank)
        To white coordinates.
    across : array of shape (rank, rank)
        Projection to what a fit by size may take over.
    inverse : array of shape (rank + 1, rank + 1)
        Of the derivatives of the conditions by φ and κ, where the constant stays.
    gain, variance, error, whole_error : float
        By how much one row moves the fit by size times how much it moves the distance of both, the latter
        squared, the slopes across by this fit alone, and all slopes of the fit by size with these; the last
        two are standard errors and not variances.
    """

    score: MonotoneScore
    theta: Array
    kappa: float
    map: Array
    across: Array
    inverse: Array
    gain: float
    variance: float
    error: float
    whole_error: float

    @property
    def sized(self) -> SizedScore:
        """For compiled sums."""
        return SizedScore.of(self.theta, self.kappa, self.score.knots, self.score.values)

    def sums_over(self, rows: ScaledRows, sizes: Array) -> Array:
        """Σ vψz/s, vψ, v and v² of rows with sizes s, in whatever coordinates these are."""
        tiles, score = long_tiles(rows), self.sized
        parts = (
            sized_score_sums(Z, rows.y[part], rows.weights[part], sizes[part], score) for part, Z in tiles
        )
        return np.concatenate([sum(parts), [rows.total, rows.total**2 / rows.size]])

    def curved(self, Z: Array, y: Array, v: Array, sizes: Array) -> ByLaw:
        """The same with the derivatives that rows have."""
        a = over_sizes(Z, self.map, sizes)
        slopes = self.score.slopes((y - Z @ self.theta) / sizes - self.kappa)
        total = max(float(v.sum()), _TINY)
        least = _LEAST_SLOPE * float(v @ slopes) / total
        derivatives = gram(a, v * np.maximum(slopes, least)) / total
        return replace(self, inverse=inverse_beside(derivatives, np.append(constant_of(self.map), 0.0)))

    def on(self, sizes: BySize, more: float) -> ByLaw:
        """In the coordinates of sizes, so many times as many, with derivatives to be made."""
        known, longer = np.append(seen_columns(self.map), True), math.sqrt(more)
        return replace(
            self,
            theta=np.where(known, self.theta, sizes.theta),
            map=sizes.map,
            across=slopes_told(sizes.map, sizes.asked, sizes.columns),
            inverse=np.zeros((sizes.map.shape[1] + 1,) * 2),
            gain=more * self.gain,
            variance=more * self.variance,
            error=longer * self.error,
            whole_error=longer * self.whole_error,
        )

    def levelled(self, size: BySize) -> ByLaw:
        """With the constant of a fit by size, and its slopes along columns that the few hardly knew."""
        told = np.append(np.isin(np.arange(self.theta.size - 1), size.asked), True)
        theta, constant = np.where(told, self.theta, size.theta), constant_of(self.map)
        gap = constant @ coordinates_of(self.map, size.theta - theta)
        return replace(self, theta=theta + self.map @ (gap * constant))

    def begun(self, size: BySize, rows: ScaledRows, sizes: Array) -> ByLaw:
        """Where a fit by size is, but for slopes across, with the κ for which the mean of ψ vanishes."""
        theta, noise = size.theta + self.map @ self.part_across(self.theta - size.theta), np.empty(rows.n)
        for part, Z in long_tiles(rows):
            noise[part] = (rows.y[part] - Z @ theta) / sizes[part]
        few = np.s_[:: max(rows.n // _LOOKED_AT, 1)]
        return replace(self, theta=theta, kappa=_middle(self.score, noise[few], rows.weights[few]))

    def step(self, sums: Array) -> Array:
        """Of φ and κ."""
        return np.asarray(self.inverse @ self._scores(sums)) / self.total(sums)

    def descent(self, sums: Array, step: Array) -> float:
        """How fast the loss falls along a step: less than nothing where that has gone too far."""
        return float(self._scores(sums) @ step)

    def _scores(self, sums: Array) -> Array:
        return np.append(self.map.T @ sums[:-3], sums[-3])

    def after(self, step: Array) -> ByLaw:
        """Where a step of φ and κ leads."""
        return replace(self, theta=self.theta + self.map @ step[:-1], kappa=self.kappa + float(step[-1]))

    def length(self, step: Array, sums: Array) -> float:
        """Of what a fit by size may take over of a step, in standard errors."""
        return float(np.linalg.norm(self.across @ step[: len(self.across)])) / self._spread(self.error, sums)

    def way_to(self, there: ByLaw, sums: Array) -> float:
        """The same of the way to others, or of all slopes what reaches those across, if that is more.

        It is in standard errors of all slopes that a fit by size then has.
        """
        way = without_constant(self.map, coordinates_of(self.map, there.theta - self.theta))
        longer = max(float(np.linalg.norm(self.across @ way)), _LEAK * float(np.linalg.norm(way)))
        return longer / self._spread(self.whole_error, sums)

    def _spread(self, error: float, sums: Array) -> float:
        """A standard error on so many rows."""
        return max(error * math.sqrt(float(sums[-1])) / self.total(sums), _TINY)

    def total(self, sums: Array) -> float:
        """Σ v."""
        return max(float(sums[-2]), _TINY)

    def part_across(self, theta: Array) -> Array:
        """What a fit by size may take over of a change of θ, in white coordinates."""
        return np.asarray(self.across @ coordinates_of(self.map, theta))

    def taken_over(self, size: BySize, rows: float) -> BySize:
        """A fit by size on so many rows with its share of these slopes."""
        distance = self.part_across(self.theta - size.theta)
        share = share_of_least_risk(self.gain / rows, float(distance @ distance), self.variance / rows)
        return replace(size, theta=size.theta + share * (self.map @ distance))
