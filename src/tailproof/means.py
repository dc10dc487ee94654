"""Robust means: Algorithms "mom", "cat" and "LM" of the paper, and intervals around them.

Each takes a sample along any axis of an array and estimates its *expectation*, under no more than a
finite variance, with an error of order sqrt(σ² log(1/δ) / n) with probability 1 − δ
(Lemma "valid_basic_prop"). ``MEANS`` lists them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailproof.order import check_weights, weighted_median, weighted_quantiles
from tailproof.registry import choose
from tailproof.rowstats import (
    PSI,
    SCALES,
    effective_size,
    m_estimates,
    means_of_rows,
    medians_of_means,
    robust_scale,
)

Array = NDArray[np.floating]

_NO_WEIGHTS = np.empty(0)


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its (1 − δ) interval; scalars, or arrays of one shape."""

    estimate: Array
    low: Array
    high: Array


def mean(u: ArrayLike, delta: float = 0.05, axis: int = 0, weights: ArrayLike | None = None) -> Array:
    """Plain weighted mean: the reference that one bad value can ruin (``delta`` is not used).

    Examples
    --------
    >>> float(mean([1.0, 2.0, 6.0]))
    3.0
    """
    return _reduce(means_of_rows, u, axis, weights, delta)


def median(u: ArrayLike, delta: float = 0.05, axis: int = 0, weights: ArrayLike | None = None) -> Array:
    """Median, midpoint for an even count: robust, but it estimates the median (``delta`` is not used).

    Examples
    --------
    >>> float(median([1.0, 2.0, 6.0, 100.0]))
    4.0
    """
    return _reduce(_median_rows, u, axis, weights, delta)


def median_of_means(
    u: ArrayLike,
    k: int | None = None,
    *,
    delta: float = 0.05,
    axis: int = 0,
    weights: ArrayLike | None = None,
) -> Array:
    """Median of the means of k disjoint blocks (Algorithm "mom").

    Values are dealt to the blocks in turn, so that a sorted sample does no harm.

    Parameters
    ----------
    u : array-like
        The sample; at least one dimension.
    k : int, optional
        Number of blocks, 1 ≤ k ≤ n. Default ⌈log(1/δ)⌉, which needs n ≥ 2(1 + log(1/δ)).
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
            _require_rows("median_of_means", n, 2 * (1 + math.log(1 / delta)), delta)
        blocks = math.ceil(math.log(1 / delta)) if k is None else _check_blocks(k, n)
        return medians_of_means(values, weights, blocks, np.zeros(values.shape[0]), False)

    return _reduce(rows, u, axis, weights, delta)


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
        Standard deviation, where it is known.
    delta : float
        One minus the confidence.
    axis : int
        The axis along which the sample runs.
    scale : {"robust", "sd", "m-scale"}
        What stands for an unknown sigma. "robust" is the root of a median of means of squares; "sd" the
        sample standard deviation; "m-scale" Geman's M-estimate of scale about the mean, used as s itself.
    psi : {"polynomial", "wide"}
        x − x³/6 up to √2 and constant beyond, or sign(x) log(1 + |x| + x²/2).
    weights : array-like of shape (n,), optional
        Weights of the terms; n becomes (Σw)²/Σw².

    Returns
    -------
    float or array
        One estimate for each of the other positions, in the precision of ``u``.

    Examples
    --------
    >>> import numpy as np
    >>> claims = np.random.default_rng(0).pareto(2.1, size=10_000)  # mean 1 / 1.1
    >>> round(float(catoni(claims)), 2)
    0.89
    """
    find_scale = choose("scale", scale, SCALES)
    code = choose("psi", psi, PSI)

    def rows(values: Array, weights: Array) -> Array:
        n = effective_size(values, weights)
        log_term = 2 * math.log(2 / delta)
        _require_rows("catoni", n, 2 * log_term, delta)
        blocks = _scale_blocks(delta)
        starts = medians_of_means(values, weights, blocks, np.zeros(values.shape[0]), False)
        if sigma is None:
            widths = find_scale(values, weights, blocks)
        else:
            widths = _given_scale(sigma, values.shape[0])
        if sigma is not None or scale != "m-scale":
            widths = widths * math.sqrt(n / log_term * (1 + log_term / (n - log_term)))
        return m_estimates(values, weights, starts, widths, code)

    return _reduce(rows, u, axis, weights, delta)


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
        Values outside become the nearer quantile (Lugosi & Mendelson), or count as zero (as the paper
        prints it; then the estimate does not move along with a shift of the data).
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
    replace = choose("outside", outside, OUTSIDE)

    def rows(values: Array, weights: Array) -> Array:
        n = values.shape[1]
        _require_rows("truncated_mean", n, 64 / 3 * math.log(8 / delta), delta, strict=True)
        level = 32 * math.log(8 / delta) / (3 * n)
        low, high = _outer_quantiles(values[:, 1::2], weights[1::2], level)
        kept = replace(values[:, ::2], low[:, None], high[:, None])
        bad = ~np.isfinite(values.sum(axis=1, dtype=np.float64))
        return np.where(bad, np.nan, means_of_rows(kept, weights[::2]))

    return _reduce(rows, u, axis, weights, delta)


def interval(
    u: ArrayLike,
    mean: str = "catoni",
    delta: float = 0.05,
    axis: int = 0,
    weights: ArrayLike | None = None,
) -> Interval:
    """Estimate with a (1 − δ) interval: c·sqrt((1 + log(1/δ)) σ²/n) on either side.

    c is the constant of Lemma "valid_basic_prop" (2 for "catoni", 2√2·e for "median_of_means", 9√2 for
    "truncated_mean"; for "mean" Chebyshev's sqrt(σ²/(nδ))), σ² a median of means of squares.

    Examples
    --------
    >>> import numpy as np
    >>> found = interval(np.random.default_rng(0).standard_normal(10_000))
    >>> bool(found.low < 0 < found.high)
    True
    """
    estimate = choose("mean", mean, MEANS)(u, delta=delta, axis=axis, weights=weights)
    if mean not in HALF_WIDTHS:
        raise ValueError(f"{mean!r} has no interval for the expectation; use one of {sorted(HALF_WIDTHS)}")
    spread = _reduce(_standard_error, u, axis, weights, delta) * HALF_WIDTHS[mean](delta)
    return Interval(estimate, estimate - spread, estimate + spread)


# Half-widths of the interval in units of σ/√n (Lemma "valid_basic_prop"; Chebyshev for the plain mean).
HALF_WIDTHS: dict[str, Callable[[float], float]] = {
    "catoni": lambda delta: 2 * math.sqrt(1 + math.log(1 / delta)),
    "median_of_means": lambda delta: 2 * math.sqrt(2) * math.e * math.sqrt(1 + math.log(1 / delta)),
    "truncated_mean": lambda delta: 9 * math.sqrt(2) * math.sqrt(1 + math.log(1 / delta)),
    "mean": lambda delta: 1 / math.sqrt(delta),
}

MEANS: dict[str, Callable[..., Array]] = {
    "catoni": catoni,
    "median_of_means": median_of_means,
    "truncated_mean": truncated_mean,
    "mean": mean,
    "median": median,
}


def _reduce(
    rows: Callable[..., Array], u: ArrayLike, axis: int, weights: ArrayLike | None, delta: float
) -> Array:
    """Apply ``rows(values of shape (m, n), weights)`` along an axis; restore shape and precision."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta}")
    values, shape = _as_rows(u, axis)
    checked = check_weights(weights, values.shape[1])
    if checked is None:
        checked = _NO_WEIGHTS
    elif not checked.all():
        values, checked = np.ascontiguousarray(values[:, checked > 0]), checked[checked > 0]
    with np.errstate(over="ignore", invalid="ignore"):
        estimates = rows(values, checked)
        if not np.all(np.isfinite(estimates)):
            estimates = _retry_scaled(rows, values, checked)
    return estimates.astype(values.dtype, copy=False).reshape(shape)[()]


def _as_rows(u: ArrayLike, axis: int) -> tuple[Array, tuple[int, ...]]:
    array = np.asarray(u)
    if array.ndim == 0:
        raise ValueError("a sample needs at least one dimension; got a single number")
    if array.dtype.kind == "c":
        raise ValueError("complex values have no robust mean here; pass real and imaginary part separately")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    moved = np.moveaxis(array, axis, -1)
    if moved.shape[-1] == 0:
        raise ValueError("the sample is empty: at least one value is needed")
    return np.ascontiguousarray(moved).reshape(-1, moved.shape[-1]), moved.shape[:-1]


def _retry_scaled(rows: Callable[..., Array], values: Array, weights: Array) -> Array:
    """Name the bad input, or, where finite values overflowed in a sum, compute at scale one."""
    if not np.all(np.isfinite(values)):
        kind = "NaN" if np.isnan(values).any() else "infinity"
        raise ValueError(f"the sample contains {kind}: remove or replace such values first")
    size = float(np.abs(values).max())
    return rows(values.astype(np.float64) / size, weights) * size


def _require_rows(name: str, n: float, needed: float, delta: float, strict: bool = False) -> None:
    if n < needed or (strict and n == needed):
        at_least = math.floor(needed) + 1 if strict else math.ceil(needed)
        raise ValueError(
            f"{name} needs at least {at_least} values at delta={delta:g}; got {n:g}: "
            "give more values, a larger delta, or another mean"
        )


def _check_blocks(k: int, n: int) -> int:
    if k != int(k) or not 1 <= k <= n:
        raise ValueError(f"k must be a whole number from 1 to the number of values, {n}; got {k}")
    return int(k)


def _scale_blocks(delta: float) -> int:
    # A median of fewer than three block means is a plain mean.
    return max(3, math.ceil(math.log(1 / delta)))


def _median_rows(values: Array, weights: Array) -> Array:
    found = weighted_median(values, weights if weights.size else None)
    return np.where(np.isfinite(values.sum(axis=1, dtype=np.float64)), found, np.nan)


def _given_scale(sigma: ArrayLike, m: int) -> Array:
    given = np.broadcast_to(np.asarray(sigma, dtype=np.float64).ravel(), (m,))
    if not np.all(np.isfinite(given)) or np.any(given < 0):
        raise ValueError("sigma must be finite and not negative")
    return given


def _standard_error(values: Array, weights: Array) -> Array:
    k = min(_scale_blocks(0.05), values.shape[1])
    return robust_scale(values, weights, k) / math.sqrt(effective_size(values, weights))


def _outer_quantiles(values: Array, weights: Array, level: float) -> tuple[Array, Array]:
    if weights.size:
        return weighted_quantiles(values, weights, level)
    n = values.shape[1]
    rank = int(level * n)
    ordered = np.partition(values, (rank, n - 1 - rank), axis=1)
    return ordered[:, rank], ordered[:, n - 1 - rank]


def _zero_outside(values: Array, low: Array, high: Array) -> Array:
    return np.where((values >= low) & (values <= high), values, 0)


OUTSIDE: dict[str, Callable[[Array, Array, Array], Array]] = {"clip": np.clip, "drop": _zero_outside}
