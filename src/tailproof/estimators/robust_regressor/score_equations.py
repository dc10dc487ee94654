"""Conditions of slopes by the score of the law of the noise, which does not depend on x."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.estimators.robust_regressor.monotone_score import MonotoneScore, ScoreFit
from tailproof.estimators.robust_regressor.noise_equations import constant_of, inverse_beside
from tailproof.estimators.robust_regressor.noise_growth import Slopes
from tailproof.estimators.robust_regressor.scaled_rows import Whitening, gram
from tailproof.estimators.robust_regressor.truncation_path import normal_score
from tailproof.native.scores import score_sums

_LEAST_SLOPE = 0.1  # of the mean ψ′: what rows have at least, so that no direction is without any
_DOUBTFUL = 0.1  # chance that sizes seem to grow where they do not; 2/√n for many rows
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class ByScore:
    """Slopes by an increasing score ψ of the law of the noise, if that does not depend on x.

    They solve Σ v(ψ − ψ̄)z = 0; where rows are white, the Hessian is E ψ′ times the identity.

    Attributes
    ----------
    score : MonotoneScore
    theta : array of shape (width,)
    map : array of shape (width, rank)
        To white coordinates.
    mean, information : float
        E ψ and E ψ′.
    sets : tuple of arrays of int
        Columns that are asked together whether sizes grow along them.
    middle : array of shape (width,), optional
        The mean row of those that learned the score: the prediction for it stays, since where steps lead must
        not depend on the way there.
    told : array of int, optional
        Columns that more than a few of the few rows told of.
    inverse : array of shape (rank, rank), optional
        Of the derivatives by white coordinates, where the ψ′ of rows is known.
    """

    score: MonotoneScore
    theta: Array
    map: Array
    mean: float
    information: float
    sets: tuple[NDArray[np.intp], ...] = ()
    middle: Array | None = None
    told: NDArray[np.intp] | None = None
    inverse: Array | None = None

    def sums(self, Z: Array, y: Array, v: Array | None, plain: Array, reach: Array) -> Array:
        """Σ vψz and Σ vz; Σ v, vψ, vψ′, v²ψ², v²ψ, v²; and Σ vh, v²h(a − r)² with the pull a of a row."""
        slopes, psi = (self.theta, np.ascontiguousarray(plain)), (self.score.knots, self.score.values)
        return score_sums(Z, y, v, reach, *slopes, *psi, self.mean, self.information)

    def sums_of_white(
        self, basis: Whitening, Q: Array, y: Array, v: Array | None, plain: Array, reach: Array
    ) -> Array:
        """The same from whitened rows Q = ZB: slopes and sums change coordinates, rows need not."""
        theta, plain = np.ascontiguousarray(basis.coordinates(np.column_stack([self.theta, plain])).T)
        sums = replace(self, theta=theta).sums(Q, y, v, plain, reach)
        rows = (sums[: 2 * basis.rank].reshape(2, -1) / basis.inverse) @ basis.map.T
        return np.concatenate([rows.ravel(), sums[2 * basis.rank :]])

    def stepped(self, sums: Array, share: float = 1.0) -> tuple[ByScore, float]:
        """A Newton step, or a share of it."""
        step = self.step(sums)
        return self.after(share * step).with_means(sums), self.length(step, sums)

    def with_means(self, sums: Array) -> ByScore:
        """With the E ψ and E ψ′ that sums have."""
        total, psi, slope, *_ = self._numbers(sums)
        return replace(self, mean=psi / total, information=slope / total)

    def step(self, sums: Array) -> Array:
        """Of φ."""
        if self.inverse is None:
            return np.asarray(self._scores(sums) / self._steepness(sums))
        return np.asarray(self.inverse @ self._scores(sums)) / self.total(sums)

    def _steepness(self, sums: Array) -> float:
        """Σ vψ′, or a tenth of what it was: where steps go astray, all rows may lie where ψ is flat."""
        total, _, slope, *_ = self._numbers(sums)
        return max(slope, _LEAST_SLOPE * self.information * total, _TINY)

    def after(self, step: Array) -> ByScore:
        """Where a step of φ leads."""
        theta = self.theta + self.map @ step
        if self.middle is not None:
            theta[-1] -= self.middle @ (theta - self.theta)
        return replace(self, theta=theta)

    def length(self, step: Array, sums: Array) -> float:
        """Of a step, in standard errors."""
        total, psi, _, squares, both, even = self._numbers(sums)
        mean = psi / total
        spread = squares - 2.0 * mean * both + mean**2 * even
        error = math.sqrt(max(spread * step.size, 0.0)) / self._steepness(sums)
        return float(np.linalg.norm(step)) / max(error, _TINY)

    def descent(self, sums: Array, step: Array) -> float:
        """How fast the loss falls along a step: less than nothing where that has gone too far.

        With the prediction for the mean row held, the conditions are the derivatives of Σ vρ(r), ρ′ = ψ,
        which is convex.
        """
        return float(self._scores(sums) @ step)

    def total(self, sums: Array) -> float:
        """Σ v."""
        return self._numbers(sums)[0]

    def _scores(self, sums: Array) -> Array:
        """Σ v(ψ − ψ̄)z in white coordinates."""
        width, (total, psi, *_) = self.theta.size, self._numbers(sums)
        return np.asarray(self.map.T @ (sums[:width] - psi / total * sums[width : 2 * width]))

    def _numbers(self, sums: Array) -> tuple[float, float, float, float, float, float]:
        """Σ v, vψ, vψ′, v²ψ², v²ψ and v²."""
        total, psi, slope, squares, both, even = map(float, sums[2 * self.theta.size :][:6])
        return max(total, _TINY), psi, slope, squares, both, even

    def curvature(self, Z: Array, y: Array, v: Array) -> Array:
        """Σ vzz'."""
        return gram(Z, v)

    def curved(self, sums: Array) -> ByScore:
        """White coordinates for all rows; directions that the few have not seen stay as they are."""
        return replace(self, map=self.map @ _inverse_root(self.map.T @ sums @ self.map / sums[-1, -1]))

    def own_curvature(self, Z: Array, y: Array, v: Array) -> Array:
        """Σ vψ′zz'; no row has less than a tenth of the mean ψ′."""
        slopes = self.score.slopes(y - Z @ self.theta)
        return gram(Z, v * np.maximum(slopes, _LEAST_SLOPE * self.information))

    def curved_by_own(self, mean: Array) -> ByScore:
        """With derivatives by the ψ′ of rows, which may be far from the mean one in a rare category."""
        return replace(self, inverse=inverse_beside(self.map.T @ mean @ self.map, constant_of(self.map)))

    def expected_change(self, there: ByScore, products: Array) -> Array:
        """Of sums, on the way to others, by the mean ψ′ and Σ vzz' of rows."""
        width = self.theta.size
        pulled, change = self.information * products @ (there.theta - self.theta), np.zeros(2 * width + 8)
        change[:width], change[2 * width + 1] = -pulled, -pulled[-1]
        return change

    def conflict(self, sums: Array, plain: Array, apart: float) -> float:
        """By a χ² law with as many degrees of freedom as slopes; all rows are taken to be alike."""
        chi = np.asarray(apart / max(self._distance_variance(sums), _TINY))
        return float(normal_score(chi, max(self.map.shape[1] - 1, 1)))

    def _distance_variance(self, sums: Array) -> float:
        """Of a coordinate of the distance to least squares."""
        far, moves = sums[-2:]
        return float(moves) / max(float(far) * self.total(sums), _TINY)

    def distance_errors(self, sums: Array) -> Array:
        """Standard errors of the distance to least squares along columns."""
        return np.asarray(np.sqrt(self._distance_variance(sums) * (self.map[:-1] ** 2).sum(axis=1)))

    def fit(self) -> ScoreFit:
        """For intervals."""
        return ScoreFit(np.empty(0), self.score, self.mean, self.information, np.empty(0))

    def suits(self, slopes: Array, errors: Array, size: float) -> bool:
        """Unless sizes grow along a column, which chance hardly explains."""
        B = self.map[:-1]
        sizes = np.divide(errors, np.linalg.norm(B, axis=1), out=np.zeros_like(errors), where=errors > 0)
        found = Slopes(slopes, (B @ B.T) * np.multiply.outer(sizes, sizes), self.sets)
        chance = found.chance_of_any(round(size), self.map.shape[1])
        return chance > min(_DOUBTFUL, 2.0 / math.sqrt(size))


def _inverse_root(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1])))
