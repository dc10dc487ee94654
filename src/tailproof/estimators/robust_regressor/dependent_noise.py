"""Slopes where noise may grow with x, which biases truncated fits if it is skewed, and how sure they are.

If the noise at x is s(x) times one law with mean zero, a truncated fit settles at p(x) + κ s(x) instead of
the mean p(x) = q'φ: its slopes are off by κ times those of s. With log s(x) = γ'f(x), f being every scaled
column and its absolute value, three conditions find φ, κ and γ, where u = (y − q'φ)/s(x) − κ:

    Σ v ψ(u) q/s = 0,        Σ v (u + κ) = 0,        Σ v (log(|u| + c) − mean) f = 0.

The first is Huber's and settles φ up to κ, the second says that the noise has mean zero, and the third that
no column tells how large u is. The squares of their influences, summed, are the covariance: γ and κ are
estimates as φ is. Where rows are too few for that, or it is in doubt whether noise grows at all, least
squares with HC3 errors assumes nothing.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.numerics.quantiles import quantiles
from tailproof.estimators.robust_regressor.bent_mean import score_of_mean
from tailproof.estimators.robust_regressor.noise_equations import (
    BySize,
    slopes_told,
)
from tailproof.estimators.robust_regressor.noise_growth import (
    CERTAIN,
    DOUBTFUL,
    FAR,
    PROBABLE,
    ROWS_PER_COLUMN,
    ROWS_PER_UNKNOWN,
    Growth,
    Slopes,
    exclusive_sets,
    growth_of_noise,
)
from tailproof.estimators.robust_regressor.scale_family import SIZE_ENDS, Moves, ScaleFamily, Solution
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram
from tailproof.estimators.robust_regressor.small_systems import (
    inverse_of,
    product,
    squared_distance,
    squared_lengths,
)
from tailproof.estimators.robust_regressor.truncation_path import normal_score

_WITHIN_CHANCE = 3.0  # standard errors

_GROWS = (
    "The noise grows with some columns, where truncated fits are biased if it is skewed: intervals are about "
    "a fit that models its size, and not in the middle of the estimates."
)
_MAY_GROW = (
    "The noise may grow with some columns, where truncated fits are biased if it is skewed: intervals are "
    "those of least squares with HC3 errors, and not in the middle of the estimates."
)
_NOT_LINEAR = (
    "The noise grows with some columns; a fit that models its size contradicts least squares, or leaves "
    "noise whose mean is not zero, so the mean bends along some column: intervals are those of least squares "
    "with HC3 errors, which are about the best straight line."
)
_CONTRADICTION = 4.0  # normal score of the distance of slopes
_ALIKE = 1e-10  # of the largest variance: what directions have that rows do not tell apart
_BENT = 2.5  # of the mean of the noise; intervals of least squares are the safe ones


@dataclass(frozen=True)
class WeightedFit:
    """A fit that knows the size of the noise.

    Attributes
    ----------
    phi : array of shape (rank,)
        To be added to φ of the truncated fit.
    moves : array of shape (n, rank)
        By how much every row moves it.
    sizes : array of shape (n,)
        Of the noise at every row, up to a factor.
    noise : array of shape (n,)
        Over its size.
    family : ScaleFamily
    """

    phi: Array
    moves: Array
    sizes: Array
    noise: Array
    family: ScaleFamily

    @functools.cached_property
    def predicted_noise(self) -> Array:
        """Standard deviation of the noise of every row, if it is s(x) times one law."""
        return np.asarray(self.sizes * math.sqrt(float(self.family.v @ self.noise**2)))

    def predicted_covariance_of_least_squares(self, inverse: Array) -> Array:
        """Of the step to least squares, by such noise, given the inverse of the Gram matrix of the rows."""
        Q, v = self.family.Q, self.family.v
        return np.asarray(inverse @ gram(Q, (v * self.predicted_noise) ** 2) @ inverse)

    def towards(self, other: WeightedFit, share: float, beside: float, part: Array) -> WeightedFit:
        """With a share of another fit, and another one in a part of φ, given the projection to that."""
        shares = share * np.eye(len(part)) + (beside - share) * part
        phi = self.phi + shares @ (other.phi - self.phi)
        moves = other.moves - self.moves
        moved = np.multiply(moves, share, out=moves) if beside == share else product(moves, shares)
        moved += self.moves
        sizes = self.sizes * (other.sizes / self.sizes) ** share
        return WeightedFit(phi, moved, sizes, (self.family.y - self.family.Q @ phi) / sizes, self.family)


@dataclass(frozen=True)
class SizeFit(WeightedFit):
    """A fit that models the size of the noise, and truncates what is left over it.

    Attributes
    ----------
    solution : Solution
    columns : array of int
        Along which noise grows.
    moves_of_all : Moves
        By how much every row moves κ and γ too.
    """

    solution: Solution
    columns: NDArray[np.intp]
    moves_of_all: Moves

    @classmethod
    def of(
        cls, family: ScaleFamily, solution: Solution, columns: NDArray[np.intp], moves: Moves | None = None
    ) -> SizeFit:
        """A solution, and how far rows move it, if that is known."""
        moves, noise = moves or family.moves(solution), solution.u + solution.kappa
        of_phi = moves.of(slice(family.Q.shape[1]))
        return cls(solution.phi, of_phi, solution.s, noise, family, solution, columns, moves)

    @functools.cached_property
    def score_of_mean(self) -> float:
        """Of its noise, in standard errors: far from zero where the mean is no line."""
        return score_of_mean(self.family, self.solution, self.moves_of_all)

    def chance_of_growth(self, asked: int) -> float:
        """That sizes grow so along its columns by chance, of all columns or sets of them that were asked."""
        sets = exclusive_sets(self.family.features[:, : self.columns.size])
        found = _chance_of_growth(self.family, self.solution, self.moves_of_all, sets)
        return found * asked / len(sets)

    def equations(self, phi: Array, to_columns: Array, told: NDArray[np.intp] | None = None) -> BySize:
        """What it solves, for more rows.

        Parameters
        ----------
        phi : array of shape (rank,)
            Where the residuals are from that it was fitted to.
        to_columns : array of shape (width, rank)
            B with θ = Bφ for scaled columns.
        told : array of int, optional
            Columns that more than a few rows tell of; all by default.
        """
        told = np.arange(len(to_columns) - 1) if told is None else told
        moves = product(self.moves, slopes_told(to_columns, told))
        family, found = self.family, self.solution
        inverse = inverse_of(family.expected_derivatives(found))
        return BySize(
            theta=to_columns @ (phi + found.phi),
            kappa=found.kappa,
            gamma=found.gamma,
            map=to_columns,
            inverse=inverse,
            to_moves=inverse[: to_columns.shape[1]],
            tau=found.tau,
            offset=found.offset,
            middle=float(family.v @ found.log_sizes),
            least=self._least_size(),
            reach=FAR,
            columns=self.columns,
            both_sides=family.features.shape[1] > self.columns.size + 1,
            error=float(np.linalg.norm(moves) / np.linalg.norm(family.v)),
            told=told,
        )

    def _least_size(self) -> float:
        """The least log s(x) of rows, less what it may be off by.

        Where noise grows up to the end of a column, more rows may well find less of it there. If no slope can
        make it that small, slopes run away in search of it.
        """
        family, gamma = self.family, self.solution.gamma
        log = family.features @ gamma
        least = quantiles(log, SIZE_ENDS[:1])[0]
        covariance = self.moves_of_all.covariance(slice(-gamma.size, None), np.eye(gamma.size))
        variances = squared_lengths(family.features[log <= least], covariance)
        return least - _WITHIN_CHANCE * math.sqrt(float(variances.max()))


@dataclass(frozen=True)
class Correction:
    """What is to be added to φ, by how much every row moves the sum of both, and why.

    ``modelled`` is the fit that models the size of the noise, if there is one: where it is in doubt whether
    that grows, intervals are about least squares all the same.
    """

    phi: Array
    moves: Array
    why: str
    modelled: SizeFit | None = None


def noise_correction(
    rows: ScaledRows,
    Q: Array,
    residuals: Array,
    growth: Growth | None = None,
    plain: tuple[Array, Array] | None = None,
    *,
    models_size: bool = True,
) -> Correction | None:
    """Slopes without bias; None where there is no sign that noise grows along a column.

    Parameters
    ----------
    rows : ScaledRows
    Q : array of shape (n, rank)
        The same, whitened.
    residuals : array of shape (n,)
        Of the truncated fit, before its intercept is recentred.
    growth : Growth, optional
        What a quick look at them has found.
    plain : pair of arrays, optional
        The step to least squares, and how far rows move it.
    models_size : bool
        Whether to model how the size of the noise depends on columns, if that is probable.
    """
    v = rows.weights / rows.weights.sum()
    growth = growth or growth_of_noise(rows, residuals)
    if growth is None or growth.chance > DOUBTFUL:
        return None
    if not models_size:
        plain = plain or least_squares_step(Q, residuals, v)
        return Correction(*plain, _MAY_GROW) if growth.doubtful() else None
    z, chance, sets = growth.z, growth.chance, growth.along.sets
    if growth.told.size < z.shape[1]:
        z = z[:, growth.told]
        sets = exclusive_sets(z)
    family = ScaleFamily(Q, residuals, _features(z), v)
    solution = family.solve(growth.sizes) if rows.n >= ROWS_PER_UNKNOWN * family.unknowns else None
    if solution is not None:
        moves = family.moves(solution)
        chance = _chance_of_growth(family, solution, moves, sets)
    if not growth.doubtful(chance):
        return None
    plain = plain or least_squares_step(Q, residuals, v)
    if solution is None:
        few = _fit_of_few(Q, residuals, growth, v) if chance <= CERTAIN else None
        return Correction(*plain, _MAY_GROW, few)
    if chance < CERTAIN and contradicts(*plain, solution.phi, slopes_told(rows.whitening.map, growth.told)):
        return Correction(*plain, _NOT_LINEAR)
    modelled = SizeFit.of(family, solution, growth.told, moves) if chance <= PROBABLE else None
    if modelled is None or chance >= CERTAIN:
        return Correction(*plain, _MAY_GROW, modelled)
    if abs(modelled.score_of_mean) > _BENT:
        return Correction(*plain, _NOT_LINEAR, modelled)
    return Correction(modelled.phi, modelled.moves, _GROWS, modelled)


def fit_on_both_sides(Q: Array, residuals: Array, v: Array, growth: Growth) -> SizeFit | None:
    """The fit by size along the columns that it seems to depend on; None where rows are few."""
    family = ScaleFamily(Q, residuals, _features(growth.z[:, growth.columns]), v)
    solution = family.solve(growth.sizes) if len(Q) >= ROWS_PER_UNKNOWN * family.unknowns else None
    return None if solution is None else SizeFit.of(family, solution, growth.columns)


def _features(z: Array) -> Array:
    """What log s(x) is linear in: columns, their absolute values, and a constant."""
    n, d = z.shape
    f = np.ones((n, 2 * d + 1), order="F")
    f[:, :d] = z
    np.abs(f[:, :d], out=f[:, d:-1])
    return f


def _fit_of_few(Q: Array, residuals: Array, growth: Growth, v: Array) -> SizeFit | None:
    """The fit where noise grows along a few columns alone: rows do not tell more."""
    columns = np.flatnonzero(growth.along.signs)
    z = growth.z[:, columns]
    family = ScaleFamily(Q, residuals, np.column_stack([z, np.ones(len(z))]), v)
    solution = family.solve(growth.sizes) if len(z) >= ROWS_PER_COLUMN * family.unknowns else None
    return None if solution is None else SizeFit.of(family, solution, columns)


def contradicts(plain: Array, moves: Array, phi: Array, slopes: Array) -> bool:
    """Whether slopes of least squares are further from others than their own errors allow.

    Where the mean is linear both estimate the same, and the others at least as well (Hausman's test).
    ``slopes`` is the projection to those that are asked.
    """
    freedom = round(float(np.trace(slopes)))
    if freedom < 1:
        return False
    apart, spread = slopes @ (phi - plain), slopes @ gram(moves, None) @ slopes
    chi = squared_distance(apart, spread, _ALIKE)
    return bool(normal_score(np.asarray(chi), freedom) > _CONTRADICTION)


def _chance_of_growth(
    family: ScaleFamily, solution: Solution, moves: Moves, sets: tuple[NDArray[np.intp], ...]
) -> float:
    """The tests again, with how far the sizes depend on where the middle was found to be."""
    f = family.features
    # Without means, since columns that add up to a constant would have a share of the level of sizes.
    z = f[:, : f.shape[1] // 2]
    straight = z - z.mean(axis=0)
    along = inverse_of(gram(straight, None)) @ (straight.T @ f)
    covariance = moves.covariance(slice(-f.shape[1], None), along)
    return Slopes(along @ solution.gamma, covariance, sets).chance(len(f), family.Q.shape[1])


def least_squares_step(
    Q: Array, residuals: Array, v: Array, inverse: Array | None = None
) -> tuple[Array, Array]:
    """The step to least squares, and the influence of every row on that, with HC3's leverages."""
    inverse = inverse_of(gram(Q, v)) if inverse is None else inverse
    phi = inverse @ ((v * residuals) @ Q)
    pulled = product(Q, inverse)
    leverage = v * np.einsum("ij,ij->i", pulled, Q)
    pulled *= (v * (residuals - Q @ phi) / np.maximum(1.0 - leverage, 0.1))[:, None]
    return phi, pulled
