"""Statistics of every row of an (m, n) array: block means, scales and M-estimates.

The numerical core of :mod:`tailproof.means`; what is compiled is in ``native/c/m_estimates.c``. Weights are
an array of n positive numbers, or an empty one where all rows count the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tailproof.core import Array
from tailproof.core.lookup import Registry
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.native import m_estimates as native

_VANISHED = 1e-9  # share of the standard deviation below which an M-scale is rounding
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


def medians_of_means(values: Array, weights: Array, k: int, centres: Array, squared: bool) -> Array:
    """Median of means of u − c, or of (u − c)², for every row; NaN where a block is not finite."""
    sums, totals = native.block_sums(values, weights, min(k, values.shape[1]), centres, squared)
    found = weighted_median(sums / totals, totals if weights.size else None)
    return np.where(np.isfinite(sums).all(axis=1), found, np.nan)


def robust_scale(values: Array, weights: Array, k: int) -> Array:
    """Root of the median of means of squares about a median-of-means centre.

    Where more than half of the blocks are constant (a few claims among many zeros) it would vanish, and
    the sample standard deviation stands in.
    """
    centres = medians_of_means(values, weights, k, np.zeros(values.shape[0]), False)
    found = np.sqrt(medians_of_means(values, weights, k, centres, True))
    if np.any(found == 0):
        found = np.where(found == 0, sample_sd(values, weights, k), found)
    return _nan_where_squares_vanished(found, values)


def sample_sd(values: Array, weights: Array, k: int) -> Array:
    return _sd_about(means_of_rows(values, weights), values, weights)


def _sd_about(centres: Array, values: Array, weights: Array) -> Array:
    found = np.sqrt(native.variances(values, weights, centres))
    return _nan_where_squares_vanished(np.where(np.isfinite(found), found, np.nan), values)


def _nan_where_squares_vanished(found: Array, values: Array) -> Array:
    # NaN, as where squares overflow, asks the caller to try again with values of size one.
    if np.all(found > 1e-140):
        return found
    tiny = (found < 1e-140) & (np.abs(values).max(axis=1) < 1e-120)
    return np.where(tiny & (values.min(axis=1) < values.max(axis=1)), np.nan, found)


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
    values: Array, weights: Array, k: int, near: Array | None = None, centres: Array | None = None
) -> Array:
    """Geman's M-scale about the mean: the s with mean χ((u − ū)/s) = E χ(Z), χ(x) = x²/(1 + x²).

    Where more than 1 − E χ(Z) of the values equal the mean there is none, and the standard deviation stands
    in. ``near`` are guesses and ``centres`` the means, which save time and change nothing else.
    """
    centres = means_of_rows(values, weights) if centres is None else centres
    limit = _sd_about(centres, values, weights)
    starts = limit if near is None else np.where((near > 0) & (near < np.inf), near, limit)
    found = native.m_scales(values, weights, centres, starts, limit)
    return np.where(found > _VANISHED * limit, found, limit)


SCALES: Registry[Callable[..., Array]] = Registry(
    "scale",
    {
        "robust": robust_scale,
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
    found, flat = native.m_estimates(values, weights, starts, scales, code)
    for row in np.flatnonzero(flat):
        # A scale so small that no value was within reach: the roots surround the median.
        one = values[row : row + 1]
        middle = np.asarray(weighted_median(one, weights if weights.size else None), dtype=np.float64)
        found[row] = native.m_estimates(one, weights, middle, scales[row : row + 1], code)[0][0]
    return found
