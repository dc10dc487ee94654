"""Robust means: Algorithms "mom", "cat" and "LM" of the paper, and intervals around them.

Each takes a sample along any axis of an array and estimates its *expectation*, under no more than a
finite variance, with an error of order sqrt(σ² log(1/δ) / n) with probability 1 − δ
(Lemma "valid_basic_prop"). ``MEANS`` lists them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailproof.core import Array
from tailproof.core.lookup import Registry
from tailproof.core.numerics.m_estimates import (
    PSI,
    SCALES,
    effective_size,
    guarded_means,
    m_estimates,
    means_of_rows,
    medians_of_means,
    reduce_axis,
    upper_sd,
)
from tailproof.core.numerics.quantiles import outer_quantiles, weighted_median
from tailproof.core.numerics.student import skewness_corrected_ends
from tailproof.core.tails import variance_is_in_doubt
from tailproof.core.theory import VALIDATION_CONSTANTS

__all__ = [
    "FALLBACKS",
    "FEW_VALUES",
    "INTERVALS",
    "MEANS",
    "OUTSIDE",
    "Interval",
    "catoni",
    "catoni_width",
    "half_width",
    "interval",
    "mean",
    "mean_for",
    "median",
    "median_of_means",
    "reduce_axis",
    "robust_mean",
    "scale_blocks",
    "truncated_mean",
    "undoubted_interval",
    "values_needed",
]

FEW_VALUES = 30  # that differ from the most common one, below which no interval can be trusted
_TOO_FEW = "an interval needs at least 2 values with positive weight; got 1"
_SMALLEST = 1e-100  # a σ below it (or above its inverse) gives, to all digits, the median (or the mean)


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its (1 − δ) interval; scalars, or arrays of one shape.

    ``doubtful`` says where the interval cannot be trusted: :func:`interval` looks at the values for it.
    """

    estimate: Array
    low: Array
    high: Array
    doubtful: NDArray[np.bool_] | bool = False


def mean(u: ArrayLike, delta: float = 0.05, axis: int = 0, weights: ArrayLike | None = None) -> Array:
    """Plain weighted mean: the reference that one bad value can ruin (``delta`` is not used).

    Examples
    --------
    >>> float(mean([1.0, 2.0, 6.0]))
    3.0
    """
    return reduce_axis(means_of_rows, u, axis, weights, delta)


def median(u: ArrayLike, delta: float = 0.05, axis: int = 0, weights: ArrayLike | None = None) -> Array:
    """Median, midpoint for an even count: robust, but it estimates the median (``delta`` is not used).

    Examples
    --------
    >>> float(median([1.0, 2.0, 6.0, 100.0]))
    4.0
    """
    return reduce_axis(_median_rows, u, axis, weights, delta)


def median_of_means(
    u: ArrayLike,
    k: int | None = None,
    *,
    delta: float = 0.05,
    axis: int = 0,
    weights: ArrayLike | None = None,
) -> Array:
    """Median of the means of k disjoint blocks (Algorithm "mom").

    Values are dealt to the blocks in turn (in short runs where there are many), so that a sorted sample
    does no harm.

    Parameters
    ----------
    u : array-like
        The sample; at least one dimension.
    k : int, optional
        Number of blocks, 1 ≤ k ≤ n. Default ⌈log(1/δ)⌉, which needs n ≥ 2(1 + log(1/δ)); where so few blocks
        are all spoilt, by values that no tail explains, blocks of 30 take their place, which up to 1% of bad
        values do not move. A k that is given is Algorithm "mom" as printed.
    delta : float
        One minus the confidence.
    axis : int
        The axis along which the sample runs.
    weights : array-like of shape (n,), optional
        Block means and their median are weighted; zero means absent.

    Returns
    -------
    float or array
        One estimate for each of the other positions, in the precision of ``u``.

    Examples
    --------
    >>> import numpy as np
    >>> u = np.array([1.0, 2.0, 3.0, 2.0, 1.0, 1e6, 3.0, 2.0, 1.0])
    >>> float(median_of_means(u, k=3))
    2.0
    """

    def rows(values: Array, weights: Array) -> Array:
        n = values.shape[1]
        if k is None:
            _require_values("median_of_means", n, delta)
        blocks = math.ceil(-math.log(delta)) if k is None else _check_blocks(k, n)
        means = medians_of_means(values, weights, blocks)
        return means if k is not None else guarded_means(means, values, weights)

    return reduce_axis(rows, u, axis, weights, delta)


def catoni(
    u: ArrayLike,
    sigma: ArrayLike | None = None,
    delta: float = 0.05,
    axis: int = 0,
    scale: str = "robust",
    psi: str = "polynomial",
    weights: ArrayLike | None = None,
) -> Array:
    """Catoni's M-estimate of the mean (Algorithm "cat").

    Solves Σ ψ((uᵢ − θ)/s) = 0 for θ, where s² = n(σ² + q²)/(2 log(2/δ)) and
    q² = 2σ² log(2/δ)/(n − 2 log(2/δ)). Needs n ≥ 4 log(2/δ).

    Parameters
    ----------
    u : array-like
        The sample; at least one dimension.
    sigma : float or array, optional
        Standard deviation, where it is known. A tiny one gives the median, a huge one the mean.
    delta : float
        One minus the confidence.
    axis : int
        The axis along which the sample runs.
    scale : {"robust", "sd", "m-scale"}
        What stands for an unknown sigma. "robust" is the root of a median of means of squares, of few blocks,
        or of blocks of 30 where values that no tail explains have spoilt those: up to 1% of the values may be
        anything; "sd" is the sample standard deviation; "m-scale" Geman's M-estimate of scale about the mean,
        used as s itself.
    psi : {"polynomial", "wide", "gudermannian"}
        x − x³/6 up to √2 and constant beyond, or ``sign(x) log(1 + |x| + x²/2)``, or 2 atan(exp x) − π/2.
    weights : array-like of shape (n,), optional
        Weights of the terms; n becomes (Σw)²/Σw².

    Returns
    -------
    float or array
        One estimate for each of the other positions, in the precision of ``u``.

    Notes
    -----
    Where more than half of the blocks behind the robust scale hold one repeated value only, that scale is
    zero and the sample standard deviation takes its place: a few claims among many zeros are then not
    lost, but a wild value among exact ties is not fended off either. The mean of 299 ones and 1e9 comes
    out near 1e6. No rule can do both, since the two samples look alike; give ``sigma`` where you know it.

    Examples
    --------
    >>> import numpy as np
    >>> claims = np.random.default_rng(0).pareto(2.1, size=10_000)  # mean 1 / 1.1
    >>> round(float(catoni(claims)), 2)
    0.89
    """
    find_scale = SCALES[scale]
    code = PSI[psi]

    def rows(values: Array, weights: Array, *known: Array) -> Array:
        n = effective_size(values, weights)
        _require_values("catoni", n, delta)
        blocks = scale_blocks(delta)
        starts = medians_of_means(values, weights, blocks)
        widths = _nan_out_of_range(known[0]) if known else find_scale(values, weights, blocks, starts)
        if known or scale != "m-scale":
            widths = widths * catoni_width(n, delta)
        return m_estimates(values, weights, starts, widths, code)

    return reduce_axis(rows, u, axis, weights, delta, sigma)


def catoni_width(n: float, delta: float) -> float:
    """The s of Catoni's mean of n values over their standard deviation."""
    log_term = 2 * (math.log(2) - math.log(delta))
    return math.sqrt(n / log_term * (1 + log_term / (n - log_term)))


def truncated_mean(
    u: ArrayLike,
    delta: float = 0.05,
    axis: int = 0,
    outside: str = "clip",
    weights: ArrayLike | None = None,
) -> Array:
    """Mean of one half of the sample, truncated at quantiles of the other half (Algorithm "LM").

    The quantiles have levels β and 1 − β with β = 32 log(8/δ)/(3n); β < 1/2 needs n > (64/3) log(8/δ).

    Parameters
    ----------
    u : array-like
        The sample; at least one dimension. Even positions are averaged, odd ones give the quantiles.
    delta : float
        One minus the confidence.
    axis : int
        The axis along which the sample runs.
    outside : {"clip", "drop"}
        Values outside become the nearer quantile (Lugosi & Mendelson; where bad values have spoilt even that,
        blocks of 30 take its place, up to 1% of them), or count as zero (as the paper prints it; then the
        estimate does not move along with a shift of the data).
    weights : array-like of shape (n,), optional
        Weights of mean and quantiles; zero means absent.

    Returns
    -------
    float or array
        One estimate for each of the other positions, in the precision of ``u``.

    Examples
    --------
    >>> import numpy as np
    >>> u = np.random.default_rng(0).standard_normal(1_000)
    >>> u[0] = 1e9
    >>> abs(float(truncated_mean(u))) < 0.2
    True
    """
    replace = OUTSIDE[outside]

    def rows(values: Array, weights: Array) -> Array:
        n = values.shape[1]
        log_term = math.log(8) - math.log(delta)
        _require_values("truncated_mean", n, delta)
        level = 32 * log_term / (3 * n)
        low, high = outer_quantiles(values[:, 1::2], weights[1::2], level)
        kept = replace(values[:, ::2], low[:, None], high[:, None])
        bad = ~np.isfinite(values.sum(axis=1, dtype=np.float64))
        means = np.where(bad, np.nan, means_of_rows(kept, weights[::2]))
        return guarded_means(means, values, weights) if outside == "clip" else means

    return reduce_axis(rows, u, axis, weights, delta)


def interval(
    u: ArrayLike,
    mean: str = "catoni",
    delta: float = 0.05,
    axis: int = 0,
    weights: ArrayLike | None = None,
    method: str = "lemma",
) -> Interval:
    """Estimate with a (1 − δ) interval for the expectation.

    "lemma" reaches c·sqrt((1 + log(1/δ)) σ²/n) on either side, where c is the constant of Lemma
    "valid_basic_prop" (2 for "catoni", 2√2·e for "median_of_means", 9√2 for "truncated_mean"; for "mean"
    Chebyshev's sqrt(σ²/(nδ))). "student" is Student's interval, corrected for skewness and stretched to hold
    the estimate: half as long as Catoni's under normal data. "skewed" is the same, but takes every sample
    that looks skewed for a skewed law: longer where symmetric tails are heavy.

    Notes
    -----
    At a nominal 0.95 "student" covered the mean in 0.94 to 0.96 of samples of 50 and 500 normal or
    exponential values, and in 0.93 of 200 values of a log-normal(1.75) or Pareto(2.5) law, where Student's
    own covers in 0.85 and 0.90; in 0.95 where 3% of 200 values are claims (0.77); but in 0.87 of 50 values
    of a log-normal(2.2) law (0.66): so few values of so heavy a tail have no interval to be trusted, and
    ``doubtful`` says so. It is true where fewer than 30 values differ from the most common one, or where the
    tail looks like one without variance (:func:`tailproof.diagnose.tails`). That a single value carries the
    variance is no such sign: intervals miss in the samples that have not drawn their large value yet.

    The lemma's σ is the true one; this is a plug-in, with an estimate on the safe side: the larger of a
    robust one and the sample variance plus twice its standard error. What a sample has not seen no
    estimate can know: where most of the variance comes from a few rare values, the interval covers less
    often than 1 − δ. At a nominal 0.95, "catoni" covered the mean in 0.99 of samples of 400 values of a
    log-normal(1.75) law and in more under Pareto(2.1) and Student t(2.5) laws, but in 0.94 where one value
    in 20 is a log-normal(7, 1.5) claim and the others are zero, and in 0.89 with 200 values of that. The
    wider intervals of "median_of_means" covered in all of these cases.

    Examples
    --------
    >>> import numpy as np
    >>> found = interval(np.random.default_rng(0).standard_normal(10_000))
    >>> bool(found.low < 0 < found.high), bool(found.doubtful)
    (True, False)
    """
    found = undoubted_interval(u, mean, delta, axis, weights, method)
    doubtful = reduce_axis(_doubtful_rows, u, axis, weights, delta) > 0
    return replace(found, doubtful=doubtful)


def undoubted_interval(
    u: ArrayLike,
    mean: str,
    delta: float,
    axis: int = 0,
    weights: ArrayLike | None = None,
    method: str = "lemma",
) -> Interval:
    """:func:`interval` without a look at whether it can be trusted."""
    estimate = MEANS[mean](u, delta=delta, axis=axis, weights=weights)
    if mean == "median":
        raise ValueError("'median' has no interval for the expectation; use another mean")
    low, high = INTERVALS[method](estimate, u, mean, delta, axis, weights)
    return Interval(estimate, low, high)


def _doubtful_rows(values: Array, weights: Array) -> Array:
    """1 for rows whose mean no interval is known to cover as often as it says, 0 for others."""
    present = values[:, weights > 0] if weights.size else values
    return np.array([float(_is_doubtful(row)) for row in present])


def _is_doubtful(row: Array) -> bool:
    differing = row.size - int(np.unique(row, return_counts=True)[1].max())
    return differing < FEW_VALUES or variance_is_in_doubt(row)


def _lemma_ends(
    estimate: Array, u: ArrayLike, mean: str, delta: float, axis: int, weights: ArrayLike | None
) -> tuple[Array, Array]:
    spread = reduce_axis(_standard_error, u, axis, weights, delta) * half_width(mean, delta)
    return estimate - spread, estimate + spread


def _student_ends(
    estimate: Array,
    u: ArrayLike,
    mean: str,
    delta: float,
    axis: int,
    weights: ArrayLike | None,
    doubted: bool = True,
) -> tuple[Array, Array]:
    low, high = reduce_axis(
        partial(_both_student_ends, delta=delta, doubted=doubted), u, axis, weights, delta
    )
    return np.minimum(low, estimate), np.maximum(high, estimate)


def _both_student_ends(values: Array, weights: Array, delta: float, doubted: bool) -> Array:
    if values.shape[1] < 2:
        raise ValueError(_TOO_FEW)
    return np.stack(skewness_corrected_ends(values, weights, delta, doubted))


# Methods of ``interval``.
INTERVALS: Registry[Callable[..., tuple[Array, Array]]] = Registry(
    "method",
    {"lemma": _lemma_ends, "student": _student_ends, "skewed": partial(_student_ends, doubted=False)},
)


def half_width(mean: str, delta: float) -> float:
    """Half of the interval in units of σ/√n: the lemma's, or Chebyshev's for the plain mean."""
    if mean == "mean":
        return 1 / math.sqrt(delta)
    return VALIDATION_CONSTANTS[mean] * math.sqrt(1 - math.log(delta))


MEANS: Registry[Callable[..., Array]] = Registry(
    "mean",
    {
        "catoni": catoni,
        "median_of_means": median_of_means,
        "truncated_mean": truncated_mean,
        "mean": mean,
        "median": median,
    },
)


def values_needed(mean: str, delta: float) -> float:
    """How many values a mean needs at confidence 1 − δ: an effective number where there are weights.

    Examples
    --------
    >>> values_needed("mean", 0.05), values_needed("truncated_mean", 0.05)
    (1, 109)
    """
    log_term = -math.log(delta)
    needed = {
        "median_of_means": 2 * (1 + log_term),
        "catoni": 4 * (math.log(2) + log_term),
        # A level below one half, strictly.
        "truncated_mean": math.floor(64 / 3 * (math.log(8) + log_term)) + 1,
    }
    return needed.get(mean, 1)


def _require_values(mean: str, n: float, delta: float) -> None:
    needed = values_needed(mean, delta)
    if n < needed:
        raise ValueError(
            f"{mean} needs at least {math.ceil(needed)} values at delta={delta:g}; got {n:g}: "
            "give more values, a larger delta, or another mean"
        )


def _check_blocks(k: int, n: int) -> int:
    if not 1 <= k <= n or k != int(k):
        raise ValueError(f"k must be a whole number from 1 to the number of values, {n}; got {k}")
    return int(k)


def scale_blocks(delta: float) -> int:
    # A median of fewer than three block means is a plain mean.
    return max(3, math.ceil(-math.log(delta)))


def _median_rows(values: Array, weights: Array) -> Array:
    medians = weighted_median(values, weights if weights.size else None)
    return np.where(np.isfinite(values.sum(axis=1, dtype=np.float64)), medians, np.nan)


def _nan_out_of_range(sigma: Array) -> Array:
    # It leads to a second try, at scale one.
    return np.where((sigma >= _SMALLEST) & (sigma <= 1 / _SMALLEST), sigma, np.nan)


def _standard_error(values: Array, weights: Array) -> Array:
    if values.shape[1] < 2:
        raise ValueError(_TOO_FEW)
    spread = upper_sd(values, weights, min(scale_blocks(0.05), values.shape[1]))
    return spread / math.sqrt(effective_size(values, weights))


def _zero_outside(values: Array, low: Array, high: Array) -> Array:
    return np.where((values >= low) & (values <= high), values, 0)


# What a mean falls back to when a sample is too small for it: from many rows needed to few.
FALLBACKS = {"truncated_mean": "catoni", "catoni": "median_of_means", "median_of_means": "mean"}

OUTSIDE: Registry[Callable[..., Array]] = Registry("outside", {"clip": np.clip, "drop": _zero_outside})


def mean_for(mean: str, n: float, delta: float) -> str:
    """Return the mean, or the first of its fallbacks that n values are enough for.

    Examples
    --------
    >>> mean_for("catoni", 100, 0.05), mean_for("catoni", 10, 0.05), mean_for("catoni", 3, 0.05)
    ('catoni', 'median_of_means', 'mean')
    """
    while mean in FALLBACKS and n < values_needed(mean, delta):
        mean = FALLBACKS[mean]
    return mean


def robust_mean(u: Array, delta: float, weights: Array | None = None) -> float:
    """Catoni's mean, or what a small sample allows."""
    size = effective_size(u[None], np.empty(0) if weights is None else weights[weights > 0])
    return float(MEANS[mean_for("catoni", size, delta)](u, delta=delta, weights=weights))
