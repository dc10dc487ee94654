"""Whether noise that grows has mean zero around a straight line, or the mean bends as its size does.

Costs have means and noise that grow alike: y = m(x)ε with E ε = 1. A fit by size takes m(x) for a line with
skewed noise around it, s(x) times one law, and weighs the rows with little noise most: it finds the line that
is best there, not the one that is best over all rows. The conditions of such a fit are one more than its
unknowns, and the one that is left over tells (Hansen's test): Huber's fit of y/s(x) on q/s(x) and a constant
finds φ whatever the law of the noise is, and what it leaves, (y − q'φ)/s(x), has mean zero if the line is the
mean. Where the mean bends as s(x) does, the constant takes it up, and what is left has a mean of its own.
"""

from __future__ import annotations

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.scale_family import Moves, ScaleFamily, Solution
from tailproof.estimators.robust_regressor.scaled_rows import gram
from tailproof.estimators.robust_regressor.small_systems import inverse_of, squared_lengths
from tailproof.native.columns import huber_steps

_STEPS = 5  # each leaves about a quarter of the way, the share of rows that are truncated
_TINY = 1e-300


def score_of_mean(family: ScaleFamily, solution: Solution, moves: Moves) -> float:
    """Mean of the noise over its size, in standard errors, with slopes that do not depend on that mean.

    With A = (q/s, 1), u what Huber's fit leaves of y/s, and H = Σ v 1{|u| ≤ τ} AA', a row moves the mean by
    v(e − ē) − ā'H⁻¹ vψ(u)A, where e = (y − q'φ)/s and ā is the mean of A but for the constant; and by what it
    moves γ, times Σ v e(1{|u| ≤ τ} ā'H⁻¹A − 1)f: skewed noise over a size that is off has no middle. What
    rows move γ by is among the ``moves`` of the solution.
    """
    v, s = family.v, family.sizes(solution)
    A = np.ones((s.size, family.Q.shape[1] + 1), order="F")
    np.divide(family.Q, s[:, None], out=A[:, :-1])
    place, u = _huber(A, family.y / s, v, np.append(solution.phi, solution.kappa), solution.tau)
    noise, inside = u + place[-1], v * (np.abs(u) <= solution.tau)
    inverse = inverse_of(gram(A, inside))
    leverage = inside * squared_lengths(A, inverse)
    pull = np.clip(u, -solution.tau, solution.tau) / np.maximum(1.0 - leverage, 0.1)
    to_mean = A @ (inverse @ np.append((v @ A)[:-1], 0.0))
    mean = float(v @ noise)
    by_sizes = (noise * (inside * to_mean - v)) @ family.features
    moved = v * (noise - mean - pull * to_mean) + moves.of_sizes(by_sizes)
    return mean / max(float(np.linalg.norm(moved)), _TINY)


def _huber(A: Array, y: Array, v: Array, place: Array, tau: float) -> tuple[Array, Array]:
    """Huber's fit by steps with the Hessian of least squares, which no curvature exceeds; what it leaves."""
    return huber_steps(A, y, v, place, tau, inverse_of(gram(A, v)), _STEPS)
