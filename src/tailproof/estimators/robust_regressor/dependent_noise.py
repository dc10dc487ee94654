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
from scipy import special

from tailproof.core import Array
from tailproof.core.numerics.quantiles import quantiles, weighted_median
from tailproof.estimators.robust_regressor.noise_equations import (
    BySize,
    expected_derivatives,
    without_constant,
)
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram
from tailproof.estimators.robust_regressor.truncation_path import normal_score

_ROWS_PER_COLUMN = 10
_ROWS_PER_UNKNOWN = 20  # of the three conditions
_FAR = 10.0  # scales of a column, beyond which noise is as at its end
_OFFSET = 0.5  # of the median |u|: the size of those near zero depends on where exactly the middle is
_ENDS = (0.001, 0.999)  # quantiles of log s(x) beyond which it is not trusted
_DOUBTFUL = 0.1  # chance that noise seems to grow where it does not; 2/√n for many rows, which show more
_CERTAIN = 1e-3
_PROBABLE = 0.01
_SIGN = 2.5  # standard errors of a slope of sizes
_TRUNCATED = 0.25  # share of the rows
_ROUNDING = 1e-9  # of the largest standard error: what a column of one value has
_ROUNDS = 60
_SETTLED = 1e-3  # change of log s(x)
_CLOSE = 1e-6  # step of φ and κ, of the largest of them

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
class SizeFit:
    """A fit that models the size of the noise.

    Attributes
    ----------
    phi : array of shape (rank,)
        To be added to φ of the truncated fit.
    moves : array of shape (n, rank)
        By how much every row moves it.
    sizes : array of shape (n,)
        Of the noise at every row, up to a factor.
    family : ScaleFamily
    solution : Solution
    columns : array of int
        Along which noise grows.
    """

    phi: Array
    moves: Array
    sizes: Array
    family: ScaleFamily
    solution: Solution
    columns: NDArray[np.intp]

    @classmethod
    def of(
        cls, family: ScaleFamily, solution: Solution, columns: NDArray[np.intp], moves: Array | None = None
    ) -> SizeFit:
        """A solution, and how far rows move it, if that is known."""
        moves = family.moves(solution) if moves is None else moves
        return cls(solution.phi, moves[:, : family.Q.shape[1]], solution.s, family, solution, columns)

    @functools.cached_property
    def predicted_noise(self) -> Array:
        """Standard deviation of the noise of every row, if it is s(x) times one law."""
        noise = self.solution.u + self.solution.kappa
        return np.asarray(self.sizes * math.sqrt(float(self.family.v @ noise**2)))

    def predicted_moves_of_least_squares(self) -> Array:
        """How far every row moves the step to least squares by such noise."""
        Q, v = self.family.Q, self.family.v
        inverse = np.linalg.pinv((Q.T * v) @ Q, hermitian=True)
        return np.asarray((Q @ inverse) * (v * self.predicted_noise)[:, None])

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
        offset = _OFFSET * float(np.median(np.abs(found.u)))
        inverse = np.linalg.pinv(family.expected_derivatives(found))
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
            least=float(np.quantile(family.features @ found.gamma, _ENDS[0])),
            reach=_FAR,
            columns=self.columns,
            both_sides=family.features.shape[1] > self.columns.size + 1,
            error=float(np.linalg.norm(without_constant(to_columns, self.moves)) / np.linalg.norm(family.v)),
        )


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


@dataclass(frozen=True)
class Growth:
    """How far the sizes of residuals grow along columns z, and the chance of that if they do not."""

    z: Array
    sizes: Array
    slopes: Array
    errors: Array
    chance: float

    @property
    def probable(self) -> bool:
        """Whether it takes a fit to tell."""
        return self.chance <= _PROBABLE

    def doubtful(self, chance: float | None = None) -> bool:
        """Whether chance hardly explains it, or a chance that was found since then."""
        limit = min(_DOUBTFUL, 2.0 / math.sqrt(self.sizes.size))
        return (self.chance if chance is None else chance) <= limit


def growth_of_noise(rows: ScaledRows, residuals: Array) -> Growth | None:
    """A quick look at residuals; None where rows are too few for it."""
    v = rows.weights / rows.weights.sum()
    away = np.abs(residuals - weighted_median(residuals))
    typical = float(weighted_median(away))
    if rows.n < _ROWS_PER_COLUMN * rows.parameters or not 0 < typical < np.inf:
        return None
    z, sizes = _columns(rows), np.log(away + _OFFSET * typical)
    slopes, errors = _slopes_of_sizes(z, sizes, v, rows.parameters)
    return Growth(z, sizes, slopes, errors, _chance(slopes, errors, rows.n, rows.parameters))


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
    if growth is None or growth.chance > _DOUBTFUL:
        return None
    z, chance = growth.z, growth.chance
    family = ScaleFamily(Q, residuals, _features(z), v)
    solution = family.solve(growth.sizes) if rows.n >= _ROWS_PER_UNKNOWN * family.unknowns else None
    modelled = None
    if solution is not None:
        moves = family.moves(solution)
        modelled = SizeFit.of(family, solution, np.arange(z.shape[1]), moves)
        chance = _chance_of_growth(z, family, solution, moves)
        if chance < _CERTAIN:
            plain = least_squares_step(Q, residuals, v)
            if _contradicts(*plain, solution.phi, v @ Q):
                return Correction(*plain, _NOT_LINEAR)
            return Correction(modelled.phi, modelled.moves, _GROWS, modelled)
    if not growth.doubtful(chance):
        return None
    if chance > (_CERTAIN if modelled is None else _PROBABLE):
        modelled = None
    elif modelled is None:
        modelled = _fit_of_few(Q, residuals, growth, v)
    return Correction(*least_squares_step(Q, residuals, v), _MAY_GROW, modelled)


def _features(z: Array) -> Array:
    """What log s(x) is linear in: columns, their absolute values, and a constant."""
    return np.column_stack([z, np.abs(z), np.ones(len(z))])


def _fit_of_few(Q: Array, residuals: Array, growth: Growth, v: Array) -> SizeFit | None:
    """The fit where noise grows along a few columns alone: rows do not tell more."""
    columns = np.flatnonzero(np.abs(growth.slopes) > _SIGN * growth.errors)
    z = growth.z[:, columns]
    family = ScaleFamily(Q, residuals, np.column_stack([z, np.ones(len(z))]), v)
    solution = family.solve(growth.sizes) if len(z) >= _ROWS_PER_COLUMN * family.unknowns else None
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
    """The test again, with how far the sizes depend on where the middle was found to be."""
    along = np.linalg.lstsq(np.column_stack([z, np.ones(len(z))]), family.features)[0][:-1]
    of_gamma = moves[:, -family.features.shape[1] :] @ along.T
    errors = np.sqrt(np.sum(of_gamma**2, axis=0))
    return _chance(along @ solution.gamma, errors, len(z), family.Q.shape[1])


def _chance(slopes: Array, errors: Array, n: int, parameters: int) -> float:
    """That slopes without a true one are as far from zero, by the largest of them and Bonferroni."""
    known = errors > _ROUNDING * errors.max(initial=0.0)
    t = float(np.max(np.abs(slopes[known]) / errors[known], initial=0.0))
    return float(min(2.0 * max(parameters - 1, 1) * special.stdtr(max(n - parameters, 1), -t), 1.0))


def _slopes_of_sizes(z: Array, sizes: Array, v: Array, parameters: int) -> tuple[Array, Array]:
    """Slopes of the sizes along the columns, and their standard errors; zeros for columns of zeros."""
    design = np.column_stack([z, np.ones(len(z))])
    inverse = np.linalg.pinv((design.T * v) @ design, hermitian=True)
    gamma = inverse @ (design.T @ (v * sizes))
    size = 1.0 / float(v @ v)
    spread = float(v @ (sizes - design @ gamma) ** 2) / max(size - parameters, 1.0)
    varies = z.any(axis=0)
    return gamma[:-1] * varies, np.sqrt(np.maximum(np.diag(inverse)[:-1] * varies * spread, 0.0))


def least_squares_step(Q: Array, residuals: Array, v: Array) -> tuple[Array, Array]:
    """The step to least squares, and the influence of every row on that, with HC3's leverages."""
    inverse = np.linalg.pinv((Q.T * v) @ Q, hermitian=True)
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
        inverse = np.linalg.pinv((self.features.T * self.v) @ self.features, hermitian=True)
        leverage = self.v * np.einsum("ij,jk,ik->i", self.features, inverse, self.features)
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
            sizes = np.log(s) + np.log(np.abs(u) + _OFFSET * middle)
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
        low, high = quantiles(fitted, _ENDS)
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
            weighted = A * weights
            slopes, side = weighted @ A.T, weighted @ u
            slopes[-1], slopes[-1, -1] = plain, 0.0
            side[-1] = self.v @ (u + place[-1])
            if not (np.isfinite(slopes).all() and np.isfinite(side).all()):
                return None  # sizes that differ beyond what numbers can hold
            step = np.linalg.lstsq(slopes, side)[0]
            place = place + step
            if np.abs(step).max() <= _CLOSE * np.abs(place).max():
                break  # sizes that are known better move it by far more
        return place, tau

    def derivatives(self, solution: Solution) -> Array:
        """Of the conditions, by φ, κ and γ."""
        u, kappa = solution.u, solution.kappa
        v, f, scaled, rank = self.v, self.features, self.Q / solution.s[:, None], self.Q.shape[1]
        offset = _OFFSET * float(np.median(np.abs(u)))
        inside, pull = v * (np.abs(u) <= solution.tau), v * np.sign(u) / (np.abs(u) + offset)
        by = np.column_stack([scaled, np.ones(len(u)), f * (u + kappa)[:, None]])  # −du of φ, κ and γ
        slopes = np.vstack([(scaled.T * inside) @ by, v @ by, (f.T * pull) @ by])
        slopes[rank, rank:] = 0.0  # κ cancels in u + κ, and s only scales what has mean zero
        return np.asarray(slopes)

    def expected_derivatives(self, solution: Solution) -> Array:
        """The same if u does not depend on x, with less noise."""
        u, v, size = solution.u, self.v, solution.u + solution.kappa
        offset = _OFFSET * float(np.median(np.abs(u)))
        inside, pull = v * (np.abs(u) <= solution.tau), v * np.sign(u) / (np.abs(u) + offset)
        every = np.column_stack([self.Q / solution.s[:, None], np.ones(len(u)), self.features])
        means = (float(inside.sum()), float(inside @ size), float(pull.sum()), float(pull @ size))
        return expected_derivatives(gram(every, v), self.Q.shape[1], *means)

    def moves(self, solution: Solution) -> Array:
        """How far every row moves φ, κ and γ: scores times the inverse of the conditions' derivatives."""
        u, kappa, tau = solution.u, solution.kappa, solution.tau
        v, f, scaled, rank = self.v, self.features, self.Q / solution.s[:, None], self.Q.shape[1]
        sizes = np.log(np.abs(u) + _OFFSET * float(np.median(np.abs(u))))
        huber = scaled * np.clip(u, -tau, tau)[:, None]
        scores = np.column_stack([huber, u + kappa, f * (sizes - v @ sizes)[:, None]])
        slopes = self.derivatives(solution)
        inverse = np.linalg.pinv(slopes[:rank, :rank], hermitian=True)
        leverage = v * (np.abs(u) <= tau) * np.einsum("ij,jk,ik->i", scaled, inverse, scaled)
        few = math.sqrt(1.0 / max(1.0 - self.unknowns * float(v @ v), 0.1))
        weights = few * v / np.maximum(1.0 - leverage, 0.1)
        return np.asarray((weights[:, None] * scores) @ np.linalg.pinv(slopes).T)


def _columns(rows: ScaledRows) -> Array:
    """Scaled columns, without values far out."""
    Z = rows.gathered()
    if rows.in_basis:
        Z = (Z / rows.whitening.inverse) @ rows.whitening.map.T
    return np.asarray(np.clip(Z[:, :-1], -_FAR, _FAR))
