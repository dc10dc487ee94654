"""The intercept, set by its own optimality condition in robust mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.core.means import robust_mean
from tailproof.core.merge import within_majority
from tailproof.core.partition import Block
from tailproof.core.validate import resistant_mean, resistant_means
from tailproof.native.rows import scores_of_rows

_CELLS = 500_000  # numbers of X to read for the intercept
_EXPONENT = 150.0  # of a small mean: its square does not underflow


def rows_for_intercept(n: int, d: int) -> int:
    """As many rows as keep the error of an intercept well below that of the other d coefficients."""
    return max(min(20_000, _CELLS // d), 4 * n // d)


def intercept_shift(
    loss: Loss,
    X: Any,
    y: Array,
    weights: Array,
    parts: Sequence[Block],
    coef: Array,
    intercept: float,
    delta: float,
) -> float:
    """What to add to the intercept so that its own optimality condition holds in robust mean.

    The merge of k skewed block intercepts is biased towards their median; the condition E ℓ′(p, y) = 0 is
    one-dimensional, so a robust mean over many rows solves it directly: the mean residual, or its analogue
    Σ y μ^{1−ρ} / Σ μ^{2−ρ} for the log link with power ρ. Where that value lies far from the solutions of
    most blocks, the blocks decide.
    """
    each = max(1, rows_for_intercept(*X.shape) // len(parts))
    parts_read = [part.rows[:each] for part in parts]
    rows = np.concatenate(parts_read)
    sides = intercept_condition(loss, _scores(X, rows, coef, intercept), y[rows])
    shares = weights[rows] if weights.size else None
    pooled = [robust_mean(side, delta, shares) for side in sides]
    sizes = [part.size for part in parts_read]
    begins = list(accumulate(sizes[:-1], initial=0))
    totals = np.array(sizes) if shares is None else np.add.reduceat(shares, begins)
    sums = [np.add.reduceat(side if shares is None else side * shares, begins) for side in sides]
    shifts = [_solve_shift(*block) for block in zip(*(part / totals for part in sums), strict=True)]
    return within_majority(_solve_shift(*pooled), np.array(shifts))


def _scores(X: Any, rows: NDArray[np.intp], coef: Array, intercept: float) -> Array:
    # Rows of a data frame are not contiguous, which the compiled scores need.
    if sparse.issparse(X) or not X.flags.c_contiguous:
        return np.asarray(X[rows] @ coef) + intercept
    return np.asarray(scores_of_rows(X, rows, coef, float(intercept)))


def robust_shift(
    loss: Loss, p: Array, y: Array, weights: Array | None, delta: float, untied_share: float = 1.0
) -> float:
    """The shift of the intercept that makes its optimality condition hold in resistant mean."""
    sides = intercept_condition(loss, p, y)
    return _solve_shift(*(resistant_mean(side, delta, weights, untied_share=untied_share) for side in sides))


def robust_shifts(
    loss: Loss, p: Array, y: Array, weights: Array | None, delta: float, untied_share: float = 1.0
) -> Array:
    """:func:`robust_shift` of several models, whose linear predictions are the rows of p."""
    if len(p) == 0:
        return np.zeros(0)
    sides = intercept_condition(loss, p, y)
    means = [resistant_means(side, delta, weights, untied_share) for side in sides]
    return np.array([_solve_shift(*(float(mean) for mean in model)) for model in zip(*means, strict=True)])


def block_intercept_shift(loss: Loss, p: Array, y: Array, weights: Array | None) -> float:
    """The shift of the intercept that is optimal for the rows of one block."""
    return _solve_shift(*_averages(intercept_condition(loss, p, y), weights))


def _averages(side: tuple[Array, ...], weights: Array | None) -> list[float]:
    if weights is None:
        return [float(part.mean()) for part in side]
    return [float(np.average(part, weights=weights)) for part in side]


def intercept_condition(loss: Loss, p: Array, y: Array) -> tuple[Array, ...]:
    """The residuals, or numerator and denominator of the log link's condition, row by row."""
    if loss.link == "identity":
        return (y - p,)
    mu = np.exp(np.clip(p, -_EXPONENT, 700.0))
    return y * mu ** (1 - loss.parameter), mu ** (2 - loss.parameter)


def _solve_shift(top: float, bottom: float | None = None) -> float:
    if bottom is None:
        return top
    return math.log(top / bottom) if top > 0 and bottom > 0 else 0.0


def intercept_shift_from_sums(sides: Sequence[Array], totals: Array, delta: float) -> float:
    """Return the same as :func:`intercept_shift`, from sums over groups of rows.

    A robust mean of the means of small groups errs no more than one of all rows: their variance is smaller
    by as much as they are fewer.

    Parameters
    ----------
    sides : sequence of arrays of shape (k, groups)
        Sums over groups of rows of every block: of residuals, or of both sides of the log link's condition.
    totals : array of shape (k, groups)
        Sums of their weights.
    delta : float
    """
    used = totals > 0
    pooled = [robust_mean(side[used] / totals[used], delta, totals[used]) for side in sides]
    return within_majority(_solve_shift(*pooled), block_intercept_shifts(sides, totals)[used.any(axis=1)])


def block_intercept_shifts(sides: Sequence[Array], totals: Array) -> Array:
    """The optimal shift of the intercept for each block, from sums; zero for a block without rows."""
    whole = np.maximum(totals.sum(axis=1), 1e-300)
    means = [side.sum(axis=1) / whole for side in sides]
    return np.array([_solve_shift(*(float(value) for value in block)) for block in zip(*means, strict=True)])
