"""The choices that a fit makes so that the user need not: blocks, start, step, intercept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core.losses import HUBER, PINBALL, Loss
from tailproof.core.means import MEANS
from tailproof.core.numerics.m_estimates import effective_size
from tailproof.core.partition import blocks
from tailproof.native.rows import scores_of_rows
from tailproof.core.theory import blocks_for
from tailproof.core.types import Block
from tailproof.core.validate import mean_for

Array = NDArray[np.floating]

ROWS_PER_PARAMETER = 5  # in a block; below that, splitting costs more than it protects
_SPARE = (
    4  # k(δ) is the least that the theorem needs; where rows are plenty, DC takes up to this many times more
)
_RUN_BYTES = 25_600  # neighbours read together: long enough for the memory to keep up
_CELLS = 500_000  # numbers of X to read for the intercept
_BLOCK_ROWS = 250  # of a resistant mean: with 1 wild row in 1,000, most blocks have none
_TELLING_ROWS = 5  # of such a block, on average
_START_ROWS = 2_000  # of a block, for the start
_LOOKED_AT = 10_000  # targets, for the share of them that differ from the most common one
_LABEL = 0.25  # of what a number tells
_EXPONENT = 300.0  # largest of a curvature: beyond, steps of any size are wrong
_RUNS_PER_BLOCK = 500  # and still enough of them for blocks to be exchangeable


def number_of_blocks(k: object, delta: float, n: int, d: int, method: str, loss: Loss) -> tuple[int, str]:
    """Return k and the reason for it.

    k(δ) is the least that the theorem needs. Where the slope of the loss is unbounded, so that one row can
    spoil a block, DC takes more blocks while rows are plenty.
    """
    if k != "auto":
        count = int(k)  # type: ignore[call-overload]
        if count > n:
            raise ValueError(f"k={count} blocks need at least as many rows; got n_samples={n}")
        return count, "as asked"
    least = blocks_for(delta, method)
    affordable = max(1, n // (ROWS_PER_PARAMETER * (d + 1)))
    if affordable < least:
        return (
            affordable,
            f"fewer than k(δ) = {least}, to keep {ROWS_PER_PARAMETER} rows a parameter in a block",
        )
    most = _SPARE * least if method == "dc" and loss.unbounded else least
    if affordable < most:
        return affordable, f"k(δ) = {least}, and more while a block has {ROWS_PER_PARAMETER} rows a parameter"
    return most, f"k(δ) = {least}" + (f", times {_SPARE} since rows are plenty" if most > least else "")


def informative_share(loss: Loss, y: Array) -> float:
    """What a row tells, on average, against one with a number of its own for a target.

    Among many equal targets (no claim) it is the others that decide, and of two classes the smaller one: a
    block needs enough of those. A label tells less than a number, and blocks that classes can be told apart
    in have no best coefficients.

    Examples
    --------
    >>> from tailproof.losses import LOSSES
    >>> informative_share(LOSSES["squared_error"], np.repeat([0.0, 7.0], [98, 2]))
    0.03
    """
    some = np.sort(y[:: max(1, y.size // _LOOKED_AT)])
    if loss.task == "classification":
        counts = np.unique(some, return_counts=True)[1]
        return _LABEL * (2.0 * float(counts.min()) / some.size if counts.size == 2 else 1.0)
    # The common value tells something once.
    return float(1 + np.count_nonzero(some != some[some.size // 2])) / some.size


def run_length(n: int, k: int, row_bytes: int) -> int:
    """Neighbouring rows to keep together in the shuffle."""
    return max(1, min(_RUN_BYTES // max(row_bytes, 1), n // (k * _RUNS_PER_BLOCK)))


def row_bytes(X: Any) -> int:
    """What a row takes in memory."""
    size = X.data.nbytes + X.indices.nbytes if sparse.issparse(X) else X.nbytes
    return int(size // X.shape[0])


def blocks_of(
    rows: NDArray[np.intp] | None, n: int, k: int, seed: np.random.SeedSequence, shuffle: bool, row_bytes: int
) -> list[Block]:
    """K blocks of the given rows, or of all n."""
    count = n if rows is None else rows.size
    parts = blocks(count, k, seed, shuffle=shuffle, run=run_length(count, k, row_bytes))
    if rows is None:
        return parts
    return [Block(part.index, rows[part.rows], part.seed, part.run) for part in parts]


def robust_mean(u: Array, delta: float, weights: Array | None = None) -> float:
    """Catoni's mean, or what a small sample allows."""
    size = effective_size(u[None], np.empty(0) if weights is None else weights[weights > 0])
    return float(MEANS[mean_for("catoni", size, delta)](u, delta=delta, weights=weights))


def telling_share(y: Array) -> float:
    """Share of the targets that differ from the most common one, if that is most of them.

    Examples
    --------
    >>> telling_share(np.repeat([0.0, 7.0, 8.0], [98, 1, 1]))
    0.02
    """
    return float(np.mean(y != np.partition(y, y.size // 2)[y.size // 2]))


def resistant_mean(
    u: Array,
    delta: float,
    weights: Array | None = None,
    pooled: float | None = None,
    telling: float = 1.0,
) -> float:
    """Catoni's mean (or the one given), kept near what most of many small blocks say.

    Catoni's scale grows with a few wild rows, and then so does their pull; most blocks have none of them.
    Among many zeros it is a few other targets that tell, a share of ``telling``: no block goes without.
    """
    count = max(u.size // _BLOCK_ROWS, min(u.size // 50, 20))
    count = min(count, int(telling * u.size / _TELLING_ROWS))
    pooled = robust_mean(u, delta, weights) if pooled is None else pooled
    if count < 3:
        return pooled
    # Dealt in turn, so that sorted rows do no harm.
    size = u.size // count
    values = u[: count * size].reshape(size, count)
    shares = None if weights is None else weights[: count * size].reshape(size, count)
    with np.errstate(over="ignore", invalid="ignore"):
        own = values.mean(axis=0) if shares is None else (values * shares).sum(axis=0) / shares.sum(axis=0)
    return _within_majority(pooled, own[np.isfinite(own)])


def start_intercept(loss: Loss, y: Array, parts: Sequence[Block]) -> float:
    """The best constant prediction of most blocks: bad blocks, and bad rows, do not move it."""
    if loss.task == "classification":
        return 0.0
    if not loss.unbounded:
        some = np.concatenate([y[part.rows[:_START_ROWS]] for part in parts])
        return float(np.quantile(some, loss.parameter if loss.code == PINBALL else 0.5))
    means = [y[part.rows[:_START_ROWS]].mean() for part in parts]
    # Where most blocks saw nothing but zeros, all of them together have seen more.
    centre = float(np.median(means) or np.mean(means))
    return math.log(max(centre, 1e-12 * float(y.max()), 1e-300)) if loss.link == "log" else centre


def loss_curvature(loss: Loss, y: Array, start: float) -> float:
    """Typical ∂²ℓ/∂p² at the start, where ``start`` is what is predicted at the centre of the features.

    A slope that is bounded by c changes by that much over the scale of y.
    """
    if loss.link == "log":
        return math.exp(min(max((2.0 - loss.parameter) * start, -_EXPONENT), _EXPONENT))
    if loss.curvature and loss.code != HUBER:
        return loss.curvature
    gaps = np.abs(y - start)
    scale = float(np.median(gaps)) or float(gaps.mean())
    bound = loss.parameter if loss.code == HUBER else 1.0
    return min(bound / scale, loss.curvature or math.inf) if scale > 0 else 1.0


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
    Σ y μ^{1−ρ} / Σ μ^{2−ρ} for the log link with power ρ. A mean of all rows is only as good as most rows;
    where most blocks say something else, they are right.
    """
    each = max(1, rows_for_intercept(*X.shape) // len(parts))
    rows = [part.rows[:each] for part in parts]
    sides = [balance(loss, _scores(X, some, coef, intercept), y[some]) for some in rows]
    shares = [weights[some] if weights.size else None for some in rows]
    together = weights[np.concatenate(rows)] if weights.size else None
    pooled = [robust_mean(np.concatenate(side), delta, together) for side in zip(*sides, strict=True)]
    own = [_solve_shift(*_averages(side, share)) for side, share in zip(sides, shares, strict=True)]
    return _within_majority(_solve_shift(*pooled), np.array(own))


def _scores(X: Any, rows: NDArray[np.intp], coef: Array, intercept: float) -> Array:
    if sparse.issparse(X):
        return np.asarray(X[rows] @ coef) + intercept
    return np.asarray(scores_of_rows(X, rows, coef, float(intercept)))


def robust_shift(
    loss: Loss, p: Array, y: Array, weights: Array | None, delta: float, telling: float = 1.0
) -> float:
    """The shift of the intercept that makes its optimality condition hold in resistant mean."""
    sides = balance(loss, p, y)
    return _solve_shift(*(resistant_mean(side, delta, weights, telling=telling) for side in sides))


def own_shift(loss: Loss, p: Array, y: Array, weights: Array | None) -> float:
    """The shift of the intercept that one block's own rows ask for."""
    return _solve_shift(*_averages(balance(loss, p, y), weights))


def _averages(side: tuple[Array, ...], weights: Array | None) -> list[float]:
    if weights is None:
        return [float(part.mean()) for part in side]
    return [float(np.average(part, weights=weights)) for part in side]


def balance(loss: Loss, p: Array, y: Array) -> tuple[Array, ...]:
    """The residuals, or numerator and denominator of the log link's condition, row by row."""
    if loss.link == "identity":
        return (y - p,)
    mu = np.exp(np.clip(p, -_EXPONENT / 2, 700.0))
    return y * mu ** (1 - loss.parameter), mu ** (2 - loss.parameter)


def _solve_shift(top: float, bottom: float | None = None) -> float:
    if bottom is None:
        return top
    return math.log(top / bottom) if top > 0 and bottom > 0 else 0.0


def _within_majority(pooled: float, own: Array) -> float:
    """The pooled value, if it lies near the shortest interval with most of the blocks' own values.

    Else their mean over that interval.
    """
    ordered = np.sort(own)
    most = ordered.size // 2 + 1
    lengths = ordered[most - 1 :] - ordered[: ordered.size - most + 1]
    first = int(np.argmin(lengths))
    low, high = ordered[first], ordered[first + most - 1]
    # A few blocks may lie close together by chance.
    reach = (1 + 10 / len(own)) * (high - low) + 1e-9 * abs(high)
    if len(own) < 3 or low - reach <= pooled <= high + reach:
        return pooled
    return float(ordered[first : first + most].mean())


def grouped_shift(sides: Sequence[Array], totals: Array, delta: float) -> float:
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
    return _within_majority(_solve_shift(*pooled), own_shifts(sides, totals)[used.any(axis=1)])


def own_shifts(sides: Sequence[Array], totals: Array) -> Array:
    """The shift of the intercept that each block's own rows ask for, from sums; zero for one without rows."""
    whole = np.maximum(totals.sum(axis=1), 1e-300)
    means = [side.sum(axis=1) / whole for side in sides]
    return np.array([_solve_shift(*(float(value) for value in block)) for block in zip(*means, strict=True)])
