"""Choices that a fit makes so that the user need not: how many blocks, which rows, where to start.

And last the intercept, set by its own optimality condition in robust mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.losses import HUBER, PINBALL, Loss
from tailproof.core.means import robust_mean
from tailproof.core.merge import within_majority
from tailproof.core.numerics.quantiles import weighted_median, weighted_quantiles
from tailproof.core.partition import Block, blocks, picked
from tailproof.core.rare_events import share_of_rare_events, uneven
from tailproof.core.resistant import resistant_mean, resistant_means
from tailproof.core.theory import blocks_for
from tailproof.native.rows import scores_of_rows

_CELLS = 500_000  # numbers of X to read for the intercept
_EXPONENT = 150.0  # of a small mean: its square does not underflow
ROWS_PER_PARAMETER = 5  # in a block; below that, splitting costs more than it protects
_SPARE = 4  # times k(δ), the least that the theorem needs: what DC takes at most where rows are plenty
_RUN_BYTES = 25_600  # of neighbouring rows read together: long enough to read memory at full speed
_RUNS_PER_BLOCK = 500  # at least, so that blocks remain exchangeable
_START_ROWS = 2_000  # of a block, for the start
_LOOKED_AT = (
    10_000  # targets sampled, or evenly spaced, for the share of them that differ from the most common one
)
# Where in them to look first: a hundred show most often that no value is common.
_FIRST_LOOK = np.arange(1, 101) * ((math.sqrt(5) - 1) / 2) % 1.0
_MOSTLY = 0.5  # information in a row, below which most targets are tied
_LABEL = 0.25  # information in a label, relative to a number
MOST_EXPONENT = 300.0  # of a curvature: beyond, steps of any size are wrong


def number_of_blocks(
    k: object, delta: float, n: int, d: int, method: str, loss: Loss, information: float = 1.0
) -> tuple[int, str]:
    """Return k and the reason for it.

    k(δ) is the least that the theorem needs. Where the slope of the loss is unbounded, so that one row can
    spoil a block, DC takes more blocks while rows are plenty; but not where most targets are tied (no claim):
    there the candidates of small blocks are skewed, and what is merged of them is nearer to zero than the
    mean. Rows count by their :func:`information_per_row`.
    """
    if k != "auto":
        count = int(k)  # type: ignore[call-overload]
        if count > n:
            raise ValueError(f"k={count} blocks need at least as many rows; got n_samples={n}")
        return count, "set by the user"
    least = blocks_for(delta, method)
    affordable = max(1, int(n * information) // (ROWS_PER_PARAMETER * (d + 1)))
    if affordable < least:
        return (
            affordable,
            f"fewer than k(δ) = {least}, to keep {ROWS_PER_PARAMETER} rows a parameter in a block",
        )
    spares = method == "dc" and loss.unbounded
    if spares and loss.task == "regression" and information < _MOSTLY:
        return least, f"k(δ) = {least}, and no more since most targets are equal"
    most = _SPARE * least if spares else least
    if affordable < most:
        return affordable, f"k(δ) = {least}, and more while a block has {ROWS_PER_PARAMETER} rows a parameter"
    return most, f"k(δ) = {least}" + (f", times {_SPARE} since rows are plenty" if most > least else "")


def blocks_sentence(k: int, why: str) -> str:
    """Say how many blocks there are, and why: the same words wherever k is told.

    Examples
    --------
    >>> blocks_sentence(24, "k(δ) = 24")
    'The rows make k = 24 blocks, each fitted on its own (k(δ) = 24).'
    """
    return f"The rows make k = {k} block{'s' * (k != 1)}, each fitted on its own ({why})."


def information_per_row(loss: Loss, y: Array) -> float:
    """Information per row relative to a continuous target: less for labels and for tied targets.

    Where most targets are equal (no claim), the others determine the fit, and of two classes the smaller one:
    a block needs enough of those. A label carries less information than a number, and in a block whose
    classes are separable the best coefficients are infinite.

    Examples
    --------
    >>> from tailproof.losses import LOSSES
    >>> information_per_row(LOSSES["squared_error"], np.repeat([0.0, 7.0], [98, 2]))
    0.03
    """
    sample = y[:: max(1, y.size // _LOOKED_AT)]
    if loss.task == "classification":
        counts = np.unique(sample, return_counts=True)[1]
        return _LABEL * (2.0 * float(counts.min()) / sample.size if counts.size == 2 else 1.0)
    middle = np.partition(sample, sample.size // 2)[sample.size // 2]
    # The common value counts once.
    return float(1 + np.count_nonzero(sample != middle)) / sample.size


def tied_targets_caution(loss: Loss, y: Array) -> str | None:
    """What to know of slopes merged from blocks where most targets are equal; None where they are not.

    Examples
    --------
    >>> from tailproof.losses import LOSSES
    >>> tied_targets_caution(LOSSES["squared_error"], np.repeat([0.0, 7.0], [95, 5]))[:31]
    '94% of the targets are equal: s'
    >>> tied_targets_caution(LOSSES["squared_error"], np.arange(9.0)) is None
    True
    """
    if loss.task != "regression" or loss.link != "identity" or not loss.unbounded:
        return None
    if _surely_untied(y):
        return None
    untied = information_per_row(loss, y)
    if untied >= _MOSTLY:
        return None
    return (
        f"{1 - untied:.0%} of the targets are equal: slopes merged from blocks lean towards zero (by a tenth "
        "to a quarter in trials with claims in 5% of the rows). Where effects multiply, "
        "RobustRegressor(loss='tweedie') with its log link does not; nor does least squares on clean rows"
    )


def _surely_untied(y: Array) -> bool:
    """Whether a hundred targets tell that no value is that of most: a fifth of them would have it.

    Which ones, the golden ratio says: an even step would fall in with targets that repeat in a rhythm.
    """
    few = np.sort(y[(_FIRST_LOOK * y.size).astype(np.intp)])
    fifth = few.size // 5
    return not (few[fifth:] == few[:-fifth]).any()


def share_of_untied_targets(y: Array, weights: Array | None = None) -> float:
    """Share of the targets that differ from the most common one, if that is most of them.

    Where rows have weights, it is the lesser of their share of the rows and of the weight: see
    :func:`tailproof.core.rare_events.share_of_rare_events`.

    Examples
    --------
    >>> share_of_untied_targets(np.repeat([0.0, 7.0, 8.0], [98, 1, 1]))
    0.02
    >>> share_of_untied_targets(np.array([0.0, 7.0, 8.0]), np.array([98.0, 1.0, 1.0]))
    0.02
    """
    step = 1 + y.size // _LOOKED_AT
    few = y[::step]  # a value that most rows have is the median of many of them too
    by_rows = float(np.count_nonzero(y != np.partition(few, few.size // 2)[few.size // 2]) / y.size)
    weights = uneven(weights)
    if weights is None:
        return by_rows
    common = weighted_quantiles(few, weights[::step], 0.5)[0]
    return min(by_rows, float(weights[y != common].sum() / weights.sum()))


def share_of_informative_rows(y: Array, residuals: Array, weights: Array | None = None) -> float:
    """Share of the rows that are informative about the mean: untied ones, or rare events among small noise.

    Examples
    --------
    >>> claims = np.repeat([0.0, 7.0], [980, 20])
    >>> share_of_informative_rows(claims, claims - 0.1 * np.sin(np.arange(1_000)))
    0.02
    """
    return min(share_of_untied_targets(y, weights), share_of_rare_events(residuals, weights))


def run_length(n: int, k: int, row_bytes: int) -> int:
    """Neighbouring rows to keep together in the shuffle."""
    return max(1, min(_RUN_BYTES // max(row_bytes, 1), n // (k * _RUNS_PER_BLOCK)))


def row_bytes(X: Any) -> int:
    """Bytes of a row in memory."""
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
    return [replace(part, rows=rows[part.rows]) for part in parts]


def start_intercept(loss: Loss, y: Array, parts: Sequence[Block]) -> float:
    """The best constant prediction of most blocks: bad blocks, and bad rows, do not move it."""
    if loss.task == "classification":
        return 0.0
    if not loss.unbounded:
        targets = np.concatenate([y[part.rows[:_START_ROWS]] for part in parts])
        return float(np.quantile(targets, loss.parameter if loss.code == PINBALL else 0.5))
    starts = [part.rows[:_START_ROWS] for part in parts if len(part)]
    sizes = [rows.size for rows in starts]
    targets = picked(y, np.concatenate(starts))
    means = np.add.reduceat(targets, [0, *accumulate(sizes[:-1])]) / sizes
    # Where most blocks hold only zeros, take the mean over all blocks.
    centre = float(weighted_median(means) or means.mean())
    return math.log(max(centre, 1e-12 * float(y.max()), 1e-300)) if loss.link == "log" else centre


def loss_curvature(loss: Loss, y: Array, start: float) -> float:
    """Typical ∂²ℓ/∂p² at the start, where ``start`` is what is predicted at the centre of the features.

    A slope that is bounded by c changes by that much over the scale of y.
    """
    if loss.link == "log":
        return math.exp(min(max((2.0 - loss.parameter) * start, -MOST_EXPONENT), MOST_EXPONENT))
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
    scores: Array | None = None,
) -> float:
    """What to add to the intercept so that its own optimality condition holds in robust mean.

    The merge of k skewed block intercepts is biased towards their median; the condition E ℓ′(p, y) = 0 is
    one-dimensional, so a robust mean over many rows solves it directly: the mean residual, or its analogue
    Σ y μ^{1−ρ} / Σ μ^{2−ρ} for the log link with power ρ. Where that value lies far from the solutions of
    most blocks, the blocks decide. ``scores`` are the linear predictions of all rows, where they are known.
    """
    each = max(1, rows_for_intercept(*X.shape) // len(parts))
    parts_read = [part.rows[:each] for part in parts]
    rows = np.concatenate(parts_read)
    p = _scores(X, rows, coef, intercept) if scores is None else picked(scores, rows)
    sides = intercept_condition(loss, p, picked(y, rows))
    shares = weights[rows] if weights.size else None
    pooled = [robust_mean(side, delta, shares) for side in sides]
    sizes = [part.size for part in parts_read]
    begins = list(accumulate(sizes[:-1], initial=0))
    totals = np.array(sizes) if shares is None else np.add.reduceat(shares, begins)
    sums = [np.add.reduceat(side if shares is None else side * shares, begins) for side in sides]
    shifts = [_solve_shift(*block) for block in zip(*(part / totals for part in sums), strict=True)]
    return within_majority(_solve_shift(*pooled), np.array(shifts))


def _scores(X: Any, rows: NDArray[np.intp], coef: Array, intercept: float) -> Array:
    if _is_read_in_place(X):
        return linear_scores(X, coef, intercept, rows)
    return linear_scores(X[rows], coef, intercept)


def linear_scores(X: Any, coef: Array, intercept: float, rows: NDArray[np.intp] | None = None) -> Array:
    """Linear predictions of all rows of X, or of some of them where they can be read in place."""
    # Rows of a data frame are not contiguous, which the compiled scores need.
    if not _is_read_in_place(X):
        return np.asarray(X @ coef) + intercept
    return np.asarray(scores_of_rows(X, rows, coef, float(intercept)))


def _is_read_in_place(X: Any) -> bool:
    return not sparse.issparse(X) and X.flags.c_contiguous


def robust_shift(
    loss: Loss, p: Array, y: Array, weights: Array | None, delta: float, informative_share: float = 1.0
) -> float:
    """The shift of the intercept that makes its optimality condition hold in resistant mean."""
    sides = intercept_condition(loss, p, y)
    return _solve_shift(
        *(resistant_mean(side, delta, weights, informative_share=informative_share) for side in sides)
    )


def robust_shifts(
    loss: Loss, p: Array, y: Array, weights: Array | None, delta: float, informative_share: float = 1.0
) -> Array:
    """:func:`robust_shift` of several models, whose linear predictions are the rows of p."""
    if len(p) == 0:
        return np.zeros(0)
    sides = intercept_condition(loss, p, y)
    means = [resistant_means(side, delta, weights, informative_share) for side in sides]
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
