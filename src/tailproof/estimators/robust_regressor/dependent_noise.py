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
from tailproof.core.numerics.quantiles import quantiles, weighted_median
from tailproof.estimators.robust_regressor.noise_equations import (
    BySize,
    expected_derivatives,
    without_constant,
)
from tailproof.estimators.robust_regressor.noise_growth import (
    CERTAIN,
    DOUBTFUL,
    FAR,
    OFFSET,
    PROBABLE,
    ROWS_PER_COLUMN,
    ROWS_PER_UNKNOWN,
    Growth,
    Slopes,
    exclusive_sets,
    growth_of_noise,
)
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram
from tailproof.estimators.robust_regressor.small_systems import inverse_of, solved, squared_lengths
from tailproof.estimators.robust_regressor.truncation_path import normal_score

SIZE_ENDS = (0.001, 0.999)  # quantiles of log s(x) beyond which it is not trusted
_TRUNCATED = 0.25  # share of the rows
_ROUNDS = 60
_SETTLED = 1e-3  # change of log s(x)
_CLOSE = 1e-6  # step of φ and κ, of the largest of them
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
    "The noise grows with some columns; a fit that models its size contradicts least squares, so the mean "
    "bends along some column: intervals are those of least squares with HC3 errors, which are about the best "
    "straight line."
)
_CONTRADICTION = 4.0  # normal score of the distance of slopes


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

    def predicted_moves_of_least_squares(self) -> Array:
        """How far every row moves the step to least squares by such noise."""
        Q, v = self.family.Q, self.family.v
        inverse = inverse_of(gram(Q, v))
        return np.asarray((Q @ inverse) * (v * self.predicted_noise)[:, None])

    def towards(self, other: WeightedFit, share: float, beside: float, part: Array) -> WeightedFit:
        """With a share of another fit, and another one in a part of φ, given the projection to that."""
        shares = share * np.eye(len(part)) + (beside - share) * part
        phi = self.phi + shares @ (other.phi - self.phi)
        moves = self.moves + (other.moves - self.moves) @ shares
        sizes = self.sizes * (other.sizes / self.sizes) ** share
        return WeightedFit(phi, moves, sizes, (self.family.y - self.family.Q @ phi) / sizes, self.family)


@dataclass(frozen=True)
class SizeFit(WeightedFit):
    """A fit that models the size of the noise, and truncates what is left over it.

    Attributes
    ----------
    solution : Solution
    columns : array of int
        Along which noise grows.
    """

    solution: Solution
    columns: NDArray[np.intp]

    @classmethod
    def of(
        cls, family: ScaleFamily, solution: Solution, columns: NDArray[np.intp], moves: Array | None = None
    ) -> SizeFit:
        """A solution, and how far rows move it, if that is known."""
        moves = family.moves(solution) if moves is None else moves
        noise = solution.u + solution.kappa
        return cls(solution.phi, moves[:, : family.Q.shape[1]], solution.s, noise, family, solution, columns)

    def equations(self, phi: Array, to_columns: Array) -> BySize:
        """What it solves, for more rows.

        Parameters
        ----------
        phi : array of shape (rank,)
            Where the residuals are from that it was fitted to.
        to_columns : array of shape (width, rank)
            B with θ = Bφ for scaled columns.
        """
        family, found = self.family, self.solution
        offset = OFFSET * float(np.median(np.abs(found.u)))
        inverse = inverse_of(family.expected_derivatives(found))
        return BySize(
            theta=to_columns @ (phi + found.phi),
            kappa=found.kappa,
            gamma=found.gamma,
            map=to_columns,
            inverse=inverse,
            to_moves=inverse[: to_columns.shape[1]],
            tau=found.tau,
            offset=offset,
            middle=float(family.v @ np.log(np.abs(found.u) + offset)),
            least=self._least_size(),
            reach=FAR,
            columns=self.columns,
            both_sides=family.features.shape[1] > self.columns.size + 1,
            error=float(np.linalg.norm(without_constant(to_columns, self.moves)) / np.linalg.norm(family.v)),
        )

    def _least_size(self) -> float:
        """The least log s(x) of rows, less what it may be off by.

        Where noise grows up to the end of a column, more rows may well find less of it there. If no slope can
        make it that small, slopes run away in search of it.
        """
        family, gamma = self.family, self.solution.gamma
        log = family.features @ gamma
        least = float(np.quantile(log, SIZE_ENDS[0]))
        moves = family.moves(self.solution)[:, -gamma.size :] @ family.features[log <= least].T
        return least - _WITHIN_CHANCE * float(np.linalg.norm(moves, axis=0).max())


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
    rows: ScaledRows, Q: Array, residuals: Array, growth: Growth | None = None
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
    """
    v = rows.weights / rows.weights.sum()
    growth = growth or growth_of_noise(rows, residuals)
    if growth is None or growth.chance > DOUBTFUL:
        return None
    z, chance = growth.z, growth.chance
    family = ScaleFamily(Q, residuals, _features(z), v)
    solution = family.solve(growth.sizes) if rows.n >= ROWS_PER_UNKNOWN * family.unknowns else None
    modelled = None
    if solution is not None:
        moves = family.moves(solution)
        modelled = SizeFit.of(family, solution, np.arange(z.shape[1]), moves)
        chance = _chance_of_growth(z, family, solution, moves)
        if chance < CERTAIN:
            plain = least_squares_step(Q, residuals, v)
            if _contradicts(*plain, solution.phi, v @ Q):
                return Correction(*plain, _NOT_LINEAR)
            return Correction(modelled.phi, modelled.moves, _GROWS, modelled)
    if not growth.doubtful(chance):
        return None
    if chance > (CERTAIN if modelled is None else PROBABLE):
        modelled = None
    elif modelled is None:
        modelled = _fit_of_few(Q, residuals, growth, v)
    return Correction(*least_squares_step(Q, residuals, v), _MAY_GROW, modelled)


def fit_on_both_sides(Q: Array, residuals: Array, v: Array, growth: Growth) -> SizeFit | None:
    """The fit by size along the columns that it seems to depend on; None where rows are few."""
    family = ScaleFamily(Q, residuals, _features(growth.z[:, growth.columns]), v)
    solution = family.solve(growth.sizes) if len(Q) >= ROWS_PER_UNKNOWN * family.unknowns else None
    return None if solution is None else SizeFit.of(family, solution, growth.columns)


def _features(z: Array) -> Array:
    """What log s(x) is linear in: columns, their absolute values, and a constant."""
    return np.column_stack([z, np.abs(z), np.ones(len(z))])


def _fit_of_few(Q: Array, residuals: Array, growth: Growth, v: Array) -> SizeFit | None:
    """The fit where noise grows along a few columns alone: rows do not tell more."""
    columns = np.flatnonzero(growth.along.signs)
    z = growth.z[:, columns]
    family = ScaleFamily(Q, residuals, np.column_stack([z, np.ones(len(z))]), v)
    solution = family.solve(growth.sizes) if len(z) >= ROWS_PER_COLUMN * family.unknowns else None
    return None if solution is None else SizeFit.of(family, solution, columns)


def _contradicts(plain: Array, moves: Array, phi: Array, mean_row: Array) -> bool:
    """Whether slopes of least squares are further from others than their own errors allow.

    Where the mean is linear both estimate the same, and the others at least as well (Hausman's test).
    """
    constant = mean_row / max(float(np.linalg.norm(mean_row)), 1e-300)
    slopes = np.eye(plain.size) - np.outer(constant, constant)
    apart, spread = slopes @ (phi - plain), moves @ slopes
    freedom = plain.size - 1
    if freedom < 1:
        return False
    chi = apart @ np.linalg.pinv(spread.T @ spread, rcond=1e-10, hermitian=True) @ apart
    return bool(normal_score(np.asarray(chi), freedom) > _CONTRADICTION)


def _chance_of_growth(z: Array, family: ScaleFamily, solution: Solution, moves: Array) -> float:
    """The tests again, with how far the sizes depend on where the middle was found to be."""
    # Without means, since columns that add up to a constant would have a share of the level of sizes.
    straight = z - z.mean(axis=0)
    along = inverse_of(gram(straight, None)) @ (straight.T @ family.features)
    moves_of_slopes = moves[:, -family.features.shape[1] :] @ along.T
    covariance = moves_of_slopes.T @ moves_of_slopes
    slopes = Slopes(along @ solution.gamma, covariance, exclusive_sets(z))
    return slopes.chance(len(z), family.Q.shape[1])


def least_squares_step(Q: Array, residuals: Array, v: Array) -> tuple[Array, Array]:
    """The step to least squares, and the influence of every row on that, with HC3's leverages."""
    inverse = inverse_of(gram(Q, v))
    phi = inverse @ (Q.T @ (v * residuals))
    pulled = Q @ inverse
    leverage = v * np.einsum("ij,ij->i", pulled, Q)
    return phi, pulled * (v * (residuals - Q @ phi) / np.maximum(1.0 - leverage, 0.1))[:, None]


@dataclass(frozen=True)
class Solution:
    """φ, κ and γ, the size of the noise of every row, what is left of it, and its truncation."""

    phi: Array
    kappa: float
    gamma: Array
    s: Array
    u: Array
    tau: float


@dataclass(frozen=True)
class ScaleFamily:
    """Rows whose noise is s(x) times one law.

    Attributes
    ----------
    Q : array of shape (n, rank)
        Whitened rows.
    y : array of shape (n,)
    features : array of shape (n, m)
        What log s(x) is linear in.
    v : array of shape (n,)
        Shares of the rows, which add up to one.
    """

    Q: Array
    y: Array
    features: Array
    v: Array

    @functools.cached_property
    def unknowns(self) -> int:
        """Of φ, κ and γ, the latter as far as they can be told apart."""
        return self.Q.shape[1] + 1 + int(np.linalg.matrix_rank(gram(self.features, self.v), hermitian=True))

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def solve(self, sizes: Array) -> Solution | None:
        """φ and κ, then s(x), in turn, from logarithms of sizes; None if they do not settle."""
        inverse = inverse_of(gram(self.features, self.v))
        leverage = self.v * squared_lengths(self.features, inverse)
        s, place = np.exp(self._smooth(sizes, inverse, leverage)), np.zeros(self.Q.shape[1] + 1)
        for number in range(_ROUNDS):
            found = self._stepped(place, s, 2 if number else 20)
            if found is None:
                return None
            place, tau = found
            phi, kappa = place[:-1], float(place[-1])
            u = (self.y - self.Q @ phi) / s - kappa
            middle = float(weighted_median(np.abs(u)))
            if not (np.isfinite(u).all() and middle > 0):
                return None
            sizes = np.log(s) + np.log(np.abs(u) + OFFSET * middle)
            change = self._smooth(sizes, inverse, leverage) - np.log(s)
            change -= change.mean()
            if np.abs(change).max() < _SETTLED:
                gamma = inverse @ (self.features.T @ (self.v * np.log(s)))
                return Solution(phi, kappa, gamma, s, u, tau)
            s = s * np.exp(change)
        return None

    def _smooth(self, sizes: Array, inverse: Array, leverage: Array) -> Array:
        """Logarithms of s(x) from the sizes of the others: no row has a say in its own weight."""
        fitted = self.features @ (inverse @ (self.features.T @ (self.v * sizes)))
        own = np.minimum(leverage / np.maximum(1.0 - leverage, 0.1), 1.0) * (sizes - fitted)
        low, high = quantiles(fitted, SIZE_ENDS)
        return np.asarray(np.clip(fitted, low, high) - own)

    def _stepped(self, place: Array, s: Array, steps: int) -> tuple[Array, float] | None:
        """So many reweighted steps of φ and κ towards the first two conditions, and the last truncation."""
        # Long rows, which are the same for all steps: white ones over s(x), and ones.
        A, y = np.vstack([self.Q.T / s, np.ones_like(s)]), self.y / s
        plain = A @ self.v
        for _ in range(steps):
            u = y - place @ A
            if not np.isfinite(u).all():
                return None
            away = np.abs(u)
            tau = quantiles(away, (1 - _TRUNCATED,))[0]
            weights = self.v * np.minimum(1.0, tau / np.maximum(away, 1e-300))
            root = np.sqrt(weights)
            weighted = A * root
            slopes, side = weighted @ weighted.T, weighted @ (root * u)
            slopes[-1], slopes[-1, -1] = plain, 0.0
            side[-1] = self.v @ (u + place[-1])
            if not (np.isfinite(slopes).all() and np.isfinite(side).all()):
                return None  # sizes that differ beyond what numbers can hold
            step = solved(slopes, side)
            place = place + step
            if np.abs(step).max() <= _CLOSE * np.abs(place).max():
                break  # sizes that are known better move it by far more
        return place, tau

    def derivatives(self, solution: Solution) -> Array:
        """Of the conditions, by φ, κ and γ."""
        u, kappa = solution.u, solution.kappa
        v, f, scaled, rank = self.v, self.features, self.Q / solution.s[:, None], self.Q.shape[1]
        offset = OFFSET * float(np.median(np.abs(u)))
        inside, pull = v * (np.abs(u) <= solution.tau), v * np.sign(u) / (np.abs(u) + offset)
        by = np.column_stack([scaled, np.ones(len(u)), f * (u + kappa)[:, None]])  # −du of φ, κ and γ
        slopes = np.vstack([(scaled.T * inside) @ by, v @ by, (f.T * pull) @ by])
        slopes[rank, rank:] = 0.0  # κ cancels in u + κ, and s only scales what has mean zero
        return np.asarray(slopes)

    def expected_derivatives(self, solution: Solution) -> Array:
        """The same if u does not depend on x, with less noise."""
        u, v, size = solution.u, self.v, solution.u + solution.kappa
        offset = OFFSET * float(np.median(np.abs(u)))
        inside, pull = v * (np.abs(u) <= solution.tau), v * np.sign(u) / (np.abs(u) + offset)
        every = np.column_stack([self.Q / solution.s[:, None], np.ones(len(u)), self.features])
        means = (float(inside.sum()), float(inside @ size), float(pull.sum()), float(pull @ size))
        return expected_derivatives(gram(every, v), self.Q.shape[1], *means)

    def moves(self, solution: Solution) -> Array:
        """How far every row moves φ, κ and γ: scores times the inverse of the conditions' derivatives."""
        u, kappa, tau = solution.u, solution.kappa, solution.tau
        v, f, scaled, rank = self.v, self.features, self.Q / solution.s[:, None], self.Q.shape[1]
        sizes = np.log(np.abs(u) + OFFSET * float(np.median(np.abs(u))))
        huber = scaled * np.clip(u, -tau, tau)[:, None]
        scores = np.column_stack([huber, u + kappa, f * (sizes - v @ sizes)[:, None]])
        slopes = self.derivatives(solution)
        leverage = v * (np.abs(u) <= tau) * squared_lengths(scaled, inverse_of(slopes[:rank, :rank]))
        few = math.sqrt(1.0 / max(1.0 - self.unknowns * float(v @ v), 0.1))
        weights = few * v / np.maximum(1.0 - leverage, 0.1)
        return np.asarray((weights[:, None] * scores) @ inverse_of(slopes).T)
