"""Statistics of every row of an (m, n) array: block means, scales and M-estimates.

The numerical core of :mod:`tailproof.means`; what is compiled is in ``native/c/m_estimates.c``. Weights are
an array of n positive numbers, or an empty one where all rows count the same.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailproof.core import Array
from tailproof.core.lookup import Registry
from tailproof.core.numerics.quantiles import check_weights, weighted_median
from tailproof.native import m_estimates as native

_NO_WEIGHTS = np.empty(0)
_SMALLEST = 1e-100  # of a scale, relative to the values
LEAST_SCALE = 1e-140  # below, squares have vanished
_VANISHED = 1e-9  # share of the standard deviation below which an M-scale is rounding
SMALL_BLOCK = 30  # rows: with 1% of bad ones, 74% of such blocks have none
_LEAST_SMALL_BLOCKS = 16
BEYOND_TAILS = 1e4  # times: by so much no tail makes large blocks differ from small ones
_LOOKED_AT = 60_000  # values, of larger samples: 2,000 small blocks
_FIRST, _DOUBT = 6_000, 0.1  # values of a first look, and how much sooner it doubts
_GOLDEN = (math.sqrt(5) - 1) / 2
_BAD = 100.0  # scales of small blocks: what has spoilt large ones
PSI = Registry("psi", {"polynomial": 0, "wide": 1, "gudermannian": 2})
psi_sums = native.psi_sums


def effective_size(values: Array, weights: Array) -> float:
    if weights.size == 0:
        return float(values.shape[1])
    relative = weights / weights.max()
    return float(relative.sum() ** 2 / (relative**2).sum())


def means_of_rows(values: Array, weights: Array) -> Array:
    if weights.size == 0:
        return values.mean(axis=1, dtype=np.float64)
    return np.asarray(values @ (weights / weights.sum()), dtype=np.float64)


def medians_of_means(
    values: Array, weights: Array, k: int, centres: Array | None = None, squared: bool = False
) -> Array:
    """Median of means of u − c, or of (u − c)², for every row; NaN where a block is not finite."""
    k = min(k, values.shape[1])
    if weights.size == 0:
        return native.medians_of_blocks(values, k, centres, squared)
    about = np.zeros(values.shape[0]) if centres is None else centres
    sums, totals = native.block_sums(values, weights, k, about, squared)
    medians = weighted_median(sums / totals, totals)
    return np.where(np.isfinite(sums).all(axis=1), medians, np.nan)


def robust_scale(values: Array, weights: Array, k: int, middles: Array | None = None) -> Array:
    """Root of the median of means of squares about a median-of-means centre.

    Where more than half of the blocks are constant (a few claims among many zeros) it would vanish, and
    the sample standard deviation stands in. ``middles`` are the centres, which save time.
    """
    centres = middles
    if centres is None:
        centres = medians_of_means(values, weights, k)
    scales = np.sqrt(medians_of_means(values, weights, k, centres, True))
    flat = np.flatnonzero(scales == 0)
    if flat.size:
        scales[flat] = sample_sd(values[flat], weights, k)
    return _nan_where_squares_vanished(scales, values)


def small_blocks(n: int) -> int:
    """How many small blocks there are to look at; 0 for too few."""
    return n // SMALL_BLOCK if n >= SMALL_BLOCK * _LEAST_SMALL_BLOCKS else 0


def guarded_scale(values: Array, weights: Array, k: int, middles: Array | None = None) -> Array:
    """:func:`robust_scale` of k blocks, or of many small ones where bad values have spoilt most of the k.

    The scale of large blocks exceeds that of blocks of 30 values by a factor of 20 for log-normal(2.5) laws
    and of 30 for Cauchy's; beyond 10,000 it is no tail. Up to 1% of the values may be anything. A wide ψ
    would let many bad values add up: with more than k of them the scale is smaller by the root of that.
    """
    scales, count = robust_scale(values, weights, k, middles), small_blocks(values.shape[1])
    if count <= k:
        return scales
    sample, shares = _some(values, weights)
    blocks = small_blocks(sample.shape[1])
    middle = medians_of_means(sample, shares, blocks)
    small = np.sqrt(medians_of_means(sample, shares, blocks, middle, True))
    spoilt = np.flatnonzero((small > 0) & (scales > BEYOND_TAILS * small))
    for row in spoilt:
        bad = int(np.count_nonzero(np.abs(values[row] - middle[row]) > _BAD * small[row]))
        scales[row] = small[row] * math.sqrt(min(1.0, k / max(bad, 1)))
    return scales


def guarded_means(means: Array, values: Array, weights: Array) -> Array:
    """The means found, or medians of means of many small blocks where no tail explains the difference."""
    n = values.shape[1]
    if not small_blocks(n):
        return means
    # Few values tell that a mean is far from spoilt, which nearly all are.
    if n > _LOOKED_AT and not _spoilt(means, *_some(values, weights, _FIRST), _DOUBT * BEYOND_TAILS)[0].any():
        return means
    spoilt, middle = _spoilt(means, *_some(values, weights), BEYOND_TAILS)
    return np.where(spoilt, middle, means)


def _spoilt(means: Array, values: Array, weights: Array, limit: float) -> tuple[NDArray[np.bool_], Array]:
    """Whether means differ from the median of small blocks by so many times their spread; that median."""
    low, middle, high = _small_means(values, weights)
    spread = high - low
    # Blocks of few different values may have the same mean, up to rounding.
    spread = np.where(spread > 1e-9 * np.abs(middle), spread, np.inf)
    return np.abs(means - middle) > limit * spread, middle


def step_of_some(n: int, wanted: int = _LOOKED_AT) -> int:
    """Of so many values, one in how many tells what most small blocks are like."""
    return max(1, n // wanted)


def _some(values: Array, weights: Array, wanted: int = _LOOKED_AT) -> tuple[Array, Array]:
    """As many values as tell what most small blocks are like."""
    places = _spread_out(values.shape[1], wanted)
    return values.take(places, axis=1), weights.take(places) if weights.size else weights


@functools.lru_cache(maxsize=16)
def _spread_out(n: int, wanted: int) -> NDArray[np.intp]:
    """One place in each of about so many intervals of n.

    Where in its interval is a multiple of the golden ratio: an even step would fall in with bad values that
    are evenly spaced, too.
    """
    step = step_of_some(n, wanted)
    interval = np.arange(n // step)
    return (step * (interval + interval * _GOLDEN % 1.0)).astype(np.intp)


def _small_means(values: Array, weights: Array) -> Array:
    """Median of the means of small blocks, and what lies closely about it, a column a row of values."""
    count = small_blocks(values.shape[1])
    sums, totals = native.block_sums(values, weights, count, np.zeros(values.shape[0]), False)
    ordered = np.sort(sums / totals, axis=1)
    places = (count - 1) * np.array([0.4, 0.5, 0.6])
    below = places.astype(np.intp)
    share = places - below
    means = (1 - share) * ordered[:, below] + share * ordered[:, np.minimum(below + 1, count - 1)]
    return np.ascontiguousarray(means.T)


def near_majorities(pooled: Array, block_values: Array, lengths: float | None = None) -> Array:
    """Each pooled value, if it lies near the shortest interval that holds most values of its row.

    Else their mean over that interval. ``lengths`` of the interval are near; by default a little over one.
    """
    size = block_values.shape[1]
    if size < 3:
        return pooled
    ordered, most = np.sort(block_values, axis=1), size // 2 + 1
    rows, near = np.arange(len(pooled)), pooled.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        first = np.argmin(ordered[:, most - 1 :] - ordered[:, : size - most + 1], axis=1)
        low, high = ordered[rows, first], ordered[rows, first + most - 1]
        reach = (lengths or near_lengths(size)) * (high - low) + 1e-9 * np.abs(high)
        is_near = (low - reach <= pooled) & (pooled <= high + reach)
    for j in np.flatnonzero(~is_near):
        near[j] = ordered[j, first[j] : first[j] + most].mean()
    return near


def near_lengths(size: int) -> float:
    """How many lengths of an interval that holds most of so many values are near: few lie close by chance."""
    return 1 + 10 / max(size, 1)


def sample_sd(values: Array, weights: Array, k: int, middles: Array | None = None) -> Array:
    return _sd_about(means_of_rows(values, weights), values, weights)


def _sd_about(centres: Array, values: Array, weights: Array) -> Array:
    sds = np.sqrt(native.variances(values, weights, centres))
    return _nan_where_squares_vanished(np.where(np.isfinite(sds), sds, np.nan), values)


def _nan_where_squares_vanished(sds: Array, values: Array) -> Array:
    # NaN, as where squares overflow, asks the caller to try again with values of size one.
    doubted = np.flatnonzero(~(sds > LEAST_SCALE))
    for row in doubted.tolist():
        low, high = values[row].min(), values[row].max()
        if sds[row] < LEAST_SCALE and max(-low, high) < 1e-120 and low < high:
            sds[row] = np.nan
    return sds


def upper_sd(values: Array, weights: Array, k: int) -> Array:
    """Return a standard deviation on the safe side: the robust one, or the sample's plus its own error.

    The sample variance has a standard error, sqrt(E(x² − σ²)²/n); two of them are added. A heavy tail that
    shows in the sample at all thus widens the result, by up to √3, and a light one hardly does.
    """
    size = row_sizes(values)
    centred = values / size[:, None]
    centred -= means_of_rows(centred, weights)[:, None]
    reach = row_sizes(centred)
    squares = (centred / reach[:, None]) ** 2
    variance = means_of_rows(squares, weights)
    error = np.sqrt(
        means_of_rows((squares - variance[:, None]) ** 2, weights) / effective_size(values, weights)
    )
    robust = robust_scale(centred, weights, k)
    return size * np.maximum(robust, reach * np.sqrt(variance + 2 * error))


def row_sizes(values: Array) -> Array:
    """Largest absolute value of every row, in double precision; 1 for a row of zeros."""
    sizes = np.abs(values).max(axis=1).astype(np.float64)
    sizes[sizes == 0] = 1.0
    return sizes


def m_scale(
    values: Array,
    weights: Array,
    k: int,
    middles: Array | None = None,
    *,
    near: Array | None = None,
    centres: Array | None = None,
) -> Array:
    """Geman's M-scale about the mean: the s with mean χ((u − ū)/s) = E χ(Z), χ(x) = x²/(1 + x²).

    Where more than 1 − E χ(Z) of the values equal the mean there is none, and the standard deviation stands
    in. ``near`` are guesses and ``centres`` the means, which save time and change nothing else.
    """
    centres = means_of_rows(values, weights) if centres is None else centres
    limit = _sd_about(centres, values, weights)
    starts = limit if near is None else np.where((near > 0) & (near < np.inf), near, limit)
    scales = native.m_scales(values, weights, centres, starts, limit)
    return np.where(scales > _VANISHED * limit, scales, limit)


SCALES: Registry[Callable[..., Array]] = Registry(
    "scale",
    {
        "robust": guarded_scale,
        "sd": sample_sd,
        "m-scale": m_scale,
    },
)


def m_estimates(values: Array, weights: Array, starts: Array, scales: Array, code: int) -> Array:
    """For every row the root θ of Σ w ψ((u − θ)/s) = 0; the start where the scale is zero, NaN where NaN.

    Parameters
    ----------
    values : array of shape (m, n)
    weights : array of shape (n,), or empty
    starts, scales : arrays of shape (m,)
    code : int
        Which ψ: a value of ``PSI``.
    """
    starts = np.where(np.isnan(scales), np.nan, starts)
    estimates, flat = native.m_estimates(values, weights, starts, scales, code)
    for row in flat.nonzero()[0]:
        # A scale so small that no value was within reach: the roots surround the median.
        one = values[row : row + 1]
        middle = np.asarray(weighted_median(one, weights if weights.size else None), dtype=np.float64)
        estimates[row] = native.m_estimates(one, weights, middle, scales[row : row + 1], code)[0][0]
    return estimates


def reduce_axis(
    rows: Callable[..., Array],
    u: ArrayLike,
    axis: int,
    weights: ArrayLike | None,
    delta: float,
    sigma: ArrayLike | None = None,
) -> Array:
    """Apply ``rows(values of shape (m, n), weights[, sigma])`` along an axis; restore shape, precision.

    The last axis of what ``rows`` returns, one number for each of m, becomes the other axes of u.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta}")
    values, shape = _as_rows(u, axis)
    given = check_weights(weights, values.shape[1])
    checked = _NO_WEIGHTS if given is None else given
    if not checked.all():
        values, checked = np.ascontiguousarray(values[:, checked > 0]), checked[checked > 0]
    known = () if sigma is None else (_given_scale(sigma, values.shape[0]),)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        estimates = rows(values, checked, *known)
        finite = np.isfinite(estimates)
        if not finite.all():
            bad = ~finite.reshape(-1, len(values)).all(axis=0)
            again = _retry_scaled(rows, values[bad], checked, *(given[bad] for given in known))
            estimates[..., bad] = again
    return estimates.astype(values.dtype, copy=False).reshape(estimates.shape[:-1] + shape)[()]


def _as_rows(u: ArrayLike, axis: int) -> tuple[Array, tuple[int, ...]]:
    if np.ma.isMaskedArray(u):
        raise ValueError(
            "masked arrays are not supported: pass u.compressed(), or weights of 0 for absent values"
        )
    array = np.asarray(u)
    if array.ndim == 0:
        raise ValueError("a sample needs at least one dimension; got a single number")
    if array.dtype.kind == "c":
        raise ValueError("complex values have no robust mean here; pass real and imaginary part separately")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    place = _whole("axis", axis)
    # One axis is in its place, whatever it is called, and moving it takes long.
    moved = array if array.ndim == 1 and place in (0, -1) else np.moveaxis(array, place, -1)
    if moved.shape[-1] == 0:
        raise ValueError("the sample is empty: at least one value is needed")
    return np.ascontiguousarray(moved).reshape(-1, moved.shape[-1]), moved.shape[:-1]


def _retry_scaled(rows: Callable[..., Array], values: Array, weights: Array, *known: Array) -> Array:
    """Name the bad input, or, where sums or squares left the range of floats, compute at scale one."""
    if not np.all(np.isfinite(values)):
        kind = "NaN" if np.isnan(values).any() else "infinity"
        raise ValueError(f"the sample contains {kind}: remove or replace such values first")
    sizes = row_sizes(values)
    relative = (np.clip(given / sizes, _SMALLEST, 1 / _SMALLEST) for given in known)
    return rows(values / sizes[:, None], weights, *relative) * sizes


def _given_scale(sigma: ArrayLike, m: int) -> Array:
    given = np.broadcast_to(np.asarray(sigma, dtype=np.float64).ravel(), (m,))
    if np.all(np.isfinite(given)) and np.all(given >= 0):
        return given
    raise ValueError("sigma must be finite and not negative")


def _whole(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number; got {value!r}") from None
