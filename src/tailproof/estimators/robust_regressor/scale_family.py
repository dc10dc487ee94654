"""Slopes, and the size of the noise as a function of columns, where noise is s(x) times one law.

The conditions are those of :mod:`~tailproof.estimators.robust_regressor.dependent_noise`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tailproof.core import Array
from tailproof.core.numerics.quantiles import quantiles, weighted_median
from tailproof.estimators.robust_regressor.noise_equations import expected_derivatives
from tailproof.estimators.robust_regressor.noise_growth import OFFSET
from tailproof.estimators.robust_regressor.scaled_rows import gram
from tailproof.estimators.robust_regressor.small_systems import (
    inverse_of,
    product,
    rank_of,
    solved,
    squared_lengths,
)
from tailproof.native.size_steps import Pace, Steps, size_rounds, size_steps, smooth_sizes

SIZE_ENDS = (0.001, 0.999)  # quantiles of log s(x) beyond which it is not trusted
_TRUNCATED = 0.25  # share of the rows
_ROUNDS = 20  # of 492 fits 99% settle in nine or fewer, and one of the others settles later than this
_FIRST, _LATER = 4, 2  # steps of φ and κ before sizes are smoothed
_WITH_ONE_MATRIX = 2  # of these: it hardly changes from one to the next
_SETTLED = 0.02  # change of log s(x): rows are weighted by what errs by a few percent, whoever stops where
_LEAST_AHEAD, _MOST_AHEAD = -0.5, 2.0  # of the last change, which the next one goes on by
_CLOSE = 1e-6  # step of φ and κ, of the largest of them: sizes that are known better move them by far more
_TINY = 1e-300


@dataclass(frozen=True)
class Solution:
    """φ, κ and γ, the size of the noise of every row, what is left of it, and its truncation."""

    phi: Array
    kappa: float
    gamma: Array
    s: Array
    u: Array
    tau: float

    @functools.cached_property
    def offset(self) -> float:
        """What |u| gets before its logarithm is taken."""
        return OFFSET * float(weighted_median(np.abs(self.u)))

    @functools.cached_property
    def log_sizes(self) -> Array:
        """log(|u| + c)."""
        return np.log(np.abs(self.u) + self.offset)


@dataclass(frozen=True)
class Moves:
    """How far every row moves φ, κ and γ: its scores times a matrix."""

    scores: Array
    matrix: Array

    def of(self, part: slice) -> Array:
        """Of some of them."""
        return product(self.scores, self.matrix[:, part])

    def covariance(self, part: slice, functions: Array) -> Array:
        """Of linear functions of some of them, as rows."""
        moved = self.scores @ (self.matrix[:, part] @ functions.T)
        return np.asarray(moved.T @ moved)

    def of_sizes(self, function: Array) -> Array:
        """Of a linear function of γ."""
        return np.asarray(self.scores @ (self.matrix[:, -function.size :] @ function))


class _Ahead:
    """Steps that go on as far as changes, which shrink from round to round, would add up to (Anderson)."""

    def __init__(self) -> None:
        self._change: Array = np.zeros(0)
        self._step: Array = np.zeros(0)

    def after(self, change: Array) -> Array:
        """The step, where a round would make that change."""
        step = change
        if self._change.size:
            less = self._change - change
            share = float(change @ less) / max(float(less @ less), _TINY)
            step = change + min(max(share, _LEAST_AHEAD), _MOST_AHEAD) * (self._step - less)
        self._change, self._step = change, step
        return step


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
        return self.Q.shape[1] + 1 + rank_of(self._products)

    @functools.cached_property
    def _products(self) -> Array:
        return gram(self.features, self.v)

    @functools.cached_property
    def _inverse(self) -> Array:
        return np.ascontiguousarray(inverse_of(self._products))

    @functools.cached_property
    def _own_share(self) -> Array:
        """Of a row in its own size, over that of the others."""
        leverage = self.v * squared_lengths(self.features, self._inverse)
        return np.minimum(leverage / np.maximum(1.0 - leverage, 0.1), 1.0)

    def solve(self, sizes: Array, settled: float = _SETTLED) -> Solution | None:
        """φ and κ, then s(x), in turn, from logarithms of sizes; None if they do not settle."""
        pace = Pace(_ROUNDS, _FIRST, _LATER, _WITH_ONE_MATRIX, 1.0 - _TRUNCATED, _CLOSE, settled)
        Q, y, features = self._contiguous
        smooth, given = self._smooth(sizes), (self._inverse, self.v, self._own_share)
        found = size_rounds(Q, y, features, *given, smooth, OFFSET, SIZE_ENDS, pace)
        if not found.known:
            return self._solve_with_care(smooth, settled)
        return self._solution(found.place, found.log, found.s, found.u, found.tau) if found.settled else None

    def _solution(self, place: Array, log: Array, s: Array, u: Array, tau: float) -> Solution:
        gamma = self._inverse @ (self.features.T @ (self.v * log))
        return Solution(place[:-1], float(place[-1]), gamma, s, u, tau)

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def _solve_with_care(self, log: Array, settled: float) -> Solution | None:
        """The same from smooth sizes, round by round: systems may be singular."""
        place, steps = np.zeros(self.Q.shape[1] + 1), _Ahead()
        for number in range(_ROUNDS):
            s = np.exp(log)
            u, tau = self._step(place, s, _LATER if number else _FIRST)
            change = self._smooth(log, u) - log
            change -= change.mean()
            largest = np.abs(change).max()
            if not (math.isfinite(tau) and math.isfinite(largest)):
                return None
            if largest < settled:
                return self._solution(place, log, s, u, tau)
            log = log + steps.after(change)
        return None

    def _smooth(self, sizes: Array, u: Array | None = None) -> Array:
        """Logarithms of s(x) from the sizes of the others: no row has a say in its own weight."""
        f, given = self._contiguous[2], (self._inverse, self.v, self._own_share, sizes)
        return smooth_sizes(f, *given, u, OFFSET, SIZE_ENDS)

    def _step(self, place: Array, s: Array, steps: int) -> tuple[Array, float]:
        """Move φ and κ by reweighted steps towards the first two conditions; u, and the last truncation.

        That is NaN where sizes differ beyond what numbers can hold.
        """
        found = self._compiled_steps(place, s, steps)
        tau = found.tau
        while found.left and math.isfinite(tau):
            # The system of the next step may be singular.
            step = solved(found.matrix, found.side)
            place += step
            settled = np.abs(step).max() <= _CLOSE * np.abs(place).max()
            left = 0 if settled else found.left - 1
            found = self._compiled_steps(place, s, left)
            tau = found.tau if left else tau
        return found.u, tau

    def _compiled_steps(self, place: Array, s: Array, steps: int) -> Steps:
        Q, y, _ = self._contiguous
        return size_steps(Q, y, self.v, s, place, steps, 1 - _TRUNCATED, _CLOSE, _WITH_ONE_MATRIX)

    @functools.cached_property
    def _contiguous(self) -> tuple[Array, Array, Array]:
        """Rows, targets and features in the layout of compiled functions."""
        columns = np.asfortranarray
        return columns(self.Q), np.ascontiguousarray(self.y), columns(self.features)

    def sizes(self, solution: Solution) -> Array:
        """s(x) by its model: unlike those of the solution, what a row misses it by has no say."""
        log = self.features @ solution.gamma
        low, high = quantiles(log, SIZE_ENDS)
        return np.exp(np.clip(log, low, high))

    def derivatives(self, solution: Solution) -> Array:
        """Of the conditions, by φ, κ and γ."""
        (rank, u, v, f), m = (self.Q.shape[1], solution.u, self.v, self.features), self.features.shape[1]
        inside, pull = v * (np.abs(u) <= solution.tau), v * np.sign(u) / (np.abs(u) + solution.offset)
        size = (u + solution.kappa)[:, None]  # −du of γ over f; that of φ is q/s, and that of κ is 1
        beside = np.empty((len(u), 2 + 2 * m), order="F")
        beside[:, 0], beside[:, 1] = inside, v
        np.multiply(f, inside[:, None] * size, out=beside[:, 2 : 2 + m])
        pulled = np.multiply(f, pull[:, None], out=beside[:, 2 + m :])
        of_sizes = np.column_stack([pulled.sum(axis=0), pulled.T @ (f * size)])
        beside /= solution.s[:, None]
        across = self.Q.T @ beside
        slopes = np.zeros(
            (rank + 1 + m, rank + 1 + m)
        )  # κ cancels in u + κ, s only scales what has mean zero
        slopes[:rank, :rank] = gram(self.Q, inside / solution.s**2)
        slopes[:rank, rank], slopes[:rank, rank + 1 :] = across[:, 0], across[:, 2 : 2 + m]
        slopes[rank, :rank], slopes[rank + 1 :, :rank] = across[:, 1], across[:, 2 + m :].T
        slopes[rank + 1 :, rank:] = of_sizes
        return slopes

    def expected_derivatives(self, solution: Solution) -> Array:
        """The same if u does not depend on x, with less noise."""
        u, v, size = solution.u, self.v, solution.u + solution.kappa
        inside, pull = v * (np.abs(u) <= solution.tau), v * np.sign(u) / (np.abs(u) + solution.offset)
        every = np.column_stack([self.Q / solution.s[:, None], np.ones(len(u)), self.features])
        means = (float(inside.sum()), float(inside @ size), float(pull.sum()), float(pull @ size))
        return expected_derivatives(gram(every, v), self.Q.shape[1], *means)

    def moves(self, solution: Solution) -> Moves:
        """How far every row moves φ, κ and γ: scores times the inverse of the conditions' derivatives."""
        u, tau, v, f, (n, rank) = solution.u, solution.tau, self.v, self.features, self.Q.shape
        slopes = self.derivatives(solution)
        inside = v * (np.abs(u) <= tau) / solution.s**2
        leverage = inside * squared_lengths(self.Q, inverse_of(slopes[:rank, :rank]))
        few = math.sqrt(1.0 / max(1.0 - self.unknowns * float(v @ v), 0.1))
        weights = few * v / np.maximum(1.0 - leverage, 0.1)
        scores = np.empty((n, len(slopes)), order="F")
        np.multiply(self.Q, (weights * np.clip(u, -tau, tau) / solution.s)[:, None], out=scores[:, :rank])
        scores[:, rank] = weights * (u + solution.kappa)
        tall = weights * (solution.log_sizes - v @ solution.log_sizes)
        np.multiply(f, tall[:, None], out=scores[:, rank + 1 :])
        return Moves(scores, inverse_of(slopes).T)
