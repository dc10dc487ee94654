"""Student's interval for a mean, corrected for skewness."""

from __future__ import annotations

import numpy as np
from scipy import special

from tailproof.core import Array

_SMALL = 0.1  # beside the largest value, whose cube is a thousand times as large


def skewness_corrected_ends(
    values: Array, weights: Array, delta: float, doubted: bool = True
) -> tuple[Array, Array]:
    r"""Ends of (1 − δ) intervals for the means of the rows of an array.

    With m the mean, s its standard error and γ the skewness *of the mean* (that of the values over √n),
    T = (m − μ)/s becomes nearly symmetric as g(T) = T + γT²/3 + γ²T³/27 + γ/6 (Hall, 1992), which has an
    inverse in closed form. The interval is from the lower to the higher end of Student's and of this one:
    where values are symmetric it is Student's, and on the side of a long tail it reaches farther.

    Of a heavy tail the largest value alone makes a sample look skewed. So γ is ``doubted``: it counts as far
    as the values farthest from the median lie on one side, fully if all do, not at all if half of them do.

    Parameters
    ----------
    values : array of shape (m, n)
    weights : array of shape (n,), or an empty one
    delta : float
    doubted : bool

    Examples
    --------
    >>> low, high = skewness_corrected_ends(np.array([[0.0, 0.0, 0.0, 0.0, 10.0]]), np.empty(0), 0.05)
    >>> bool(high[0] - 2.0 > 2.0 - low[0])
    True
    """
    shares = weights / weights.sum() if weights.size else np.full(values.shape[1], 1 / values.shape[1])
    n = 1 / np.sum(shares**2)
    means = values @ shares
    parts = values - means[:, None]
    parts *= shares
    # Scaled first: cubes of small parts vanish.
    size = np.maximum(np.maximum(parts.max(axis=1), -parts.min(axis=1)), 1e-300)
    parts /= size[:, None]
    square = parts * parts
    squares, cubes = square.sum(axis=1), np.einsum("ij,ij->i", square, parts)
    error = size * np.sqrt(squares * n / max(n - 1, 1e-9))
    skewness = cubes / np.where(squares > 0, squares, 1.0) ** 1.5
    if doubted:
        skewness *= _one_sidedness(values, np.sign(skewness))
    reach = float(special.stdtrit(max(n - 1, 1.0), 1 - delta / 2))
    low = means - error * np.maximum(_inverse(reach, skewness), reach)
    high = means - error * np.minimum(_inverse(-reach, skewness), -reach)
    return low, high


def _one_sidedness(values: Array, side: Array) -> Array:
    """Of the values that carry the skewness of their row: the share on that side less that on the other.

    These are the √n farthest from the median, without those that are small beside the farthest.
    """
    away = values - np.median(values, axis=1)[:, None]
    count = max(int(np.sqrt(values.shape[1])), 1)
    places = np.argpartition(np.abs(away), -count, axis=1)[:, -count:]
    far = np.take_along_axis(away, places, axis=1)
    signs = np.sign(far) * (np.abs(far) >= _SMALL * np.abs(far).max(axis=1)[:, None])
    return np.maximum(side * signs.sum(axis=1) / np.maximum(np.abs(signs).sum(axis=1), 1.0), 0.0)


def _inverse(y: float, skewness: Array) -> Array:
    """T with g(T) = y."""
    z = y - skewness / 6
    small = np.abs(skewness) < 1e-6  # where the formula would lose its digits, its series has them
    gamma = np.where(small, 1.0, skewness)
    return np.where(small, z - skewness * z**2 / 3, 3 * (np.cbrt(1 + gamma * z) - 1) / gamma)
