"""Newton's method on all levels at once, in whitened coordinates.

One pass over tiles of rows gives the gradients of all levels, as one matrix product, and their Hessians. With
many columns Hessians are never formed: conjugate gradients apply them to all levels together, preconditioned
by their diagonal, which in whitened coordinates is nearly all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.estimators.robust_regressor.levels import Levels, Scores, level_scores
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows

_CHOLESKY_FROM = 48  # coordinates; below, one call for all levels is faster


@dataclass(frozen=True)
class Solution:
    """φ of every level, the sums of the last pass, and whether the last step was short."""

    phi: Array
    scores: Scores
    settled: NDArray[np.bool_]


def newton(
    rows: ScaledRows,
    phi: Array,
    levels: Levels,
    passes: int | None = None,
    faint: float = 0.0,
    chord: bool = False,
) -> Solution:
    """Newton's method on every level, each with its own step halving.

    From a start that is close, the first Hessian serves all steps (``chord``): gradients are cheaper.
    """
    total, formed = rows.weights.sum(), forms_hessians(rows)
    # The log mean of a category whose targets are all zero is −∞, and its curvature vanishes on the way.
    faint = max(faint, rows.tuning.vanishing_damping) if rows.loss.link == "log" else faint
    accepted, step = np.array(phi, dtype=np.float64), np.zeros_like(phi)
    phi, best = accepted.copy(), np.full(len(levels), np.inf)
    system: System | None = None
    for _ in range(rows.tuning.passes if passes is None else passes):
        again = system is None or not chord
        scores = level_scores(rows, phi, levels, again and formed, again and not formed, exact=chord)
        if system is None or not chord:
            system = System(rows, levels, scores, total, faint)
        pull = levels.ridge * rows.whitening.slopes(phi)
        g = scores.gradient / total - pull
        fresh = system.solve(g)
        merit = _merit(rows.loss, scores.value / total + 0.5 * (phi * pull).sum(axis=0), fresh, g)
        better = merit <= best + 1e-12 * np.abs(best)
        accepted[:, better], best = phi[:, better], np.where(better, merit, best)
        step = np.where(better, capped(rows.loss, fresh), 0.5 * step)
        phi = accepted + step
        settled = np.linalg.norm(step, axis=0) <= rows.tuning.tolerance * np.linalg.norm(accepted, axis=0)
        if settled.all():
            break
    return Solution(phi, scores, settled)


def forms_hessians(rows: ScaledRows) -> bool:
    """Whether Hessians are formed, or only applied: that takes whitened rows in memory."""
    return not rows.in_basis or rows.whitening.rank <= rows.tuning.hessian_columns


@dataclass(frozen=True)
class System:
    """(H + λS + damping) x = b for every level, where H is in the scores as Hessians or as curvatures."""

    rows: ScaledRows
    levels: Levels
    scores: Scores
    total: float
    damping: float

    def solve(self, b: Array) -> Array:
        """One right-hand side a level, as columns."""
        if self.scores.hessian.size:
            return solve_levels(self._matrices(), b)
        return self._conjugate_gradients(b)

    def _matrices(self) -> Array:
        ridge = self.levels.ridge[:, None, None] * self.rows.whitening.slopes_matrix()
        return self.scores.hessian / self.total + ridge + self.damping * np.eye(self.rows.whitening.rank)

    def _apply(self, x: Array) -> Array:
        image = self.rows.X @ x
        image *= self.scores.curvature.T
        penalty = self.levels.ridge * self.rows.whitening.slopes(x)
        return self.rows.X.T @ image / self.total + penalty + self.damping * x

    def _conjugate_gradients(self, b: Array) -> Array:
        tuning, basis = self.rows.tuning, self.rows.whitening
        diagonal = self.scores.curvature.sum(axis=1) / self.total + self.damping
        diagonal = diagonal + basis.inverse[:, None] * self.levels.ridge
        x, residual = np.zeros_like(b), b.copy()
        z = residual / diagonal
        direction, product = z.copy(), (residual * z).sum(axis=0)
        enough = tuning.cg_tolerance**2 * product
        for _ in range(tuning.cg_steps):
            image = self._apply(direction)
            step = product / np.maximum((direction * image).sum(axis=0), 1e-300)
            x += step * direction
            residual -= step * image
            z = residual / diagonal
            before, product = product, (residual * z).sum(axis=0)
            if np.all(product <= enough):
                break
            direction = z + product / np.maximum(before, 1e-300) * direction
        return x


def solve_levels(H: Array, b: Array) -> Array:
    """Solve one positive definite system for every level; a singular one in the sense of least squares."""
    try:
        if H.shape[1] < _CHOLESKY_FROM:
            return np.linalg.solve(H, b.T[:, :, None])[:, :, 0].T
        return np.column_stack([_cholesky(matrix, side) for matrix, side in zip(H, b.T, strict=True)])
    except np.linalg.LinAlgError:
        return np.column_stack(
            [np.linalg.lstsq(matrix, side, rcond=None)[0] for matrix, side in zip(H, b.T, strict=True)]
        )


def _cholesky(H: Array, b: Array) -> Array:
    factor = linalg.cho_factor(H, check_finite=False)
    return np.asarray(linalg.cho_solve(factor, b, check_finite=False))


def _merit(loss: Loss, value: Array, step: Array, gradient: Array) -> Array:
    """What a step must not raise: the objective, or Newton's decrement where a truncated score has none."""
    return value if loss.link == "identity" else (step * gradient).sum(axis=0)


def capped(loss: Loss, step: Array) -> Array:
    """The step, shortened for the log link: exp overflows on long ones."""
    norm = np.linalg.norm(step, axis=0)
    return step if loss.link == "identity" else step / np.maximum(norm, 1.0)
