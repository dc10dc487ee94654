"""Student's interval for a mean, corrected for skewness."""

from __future__ import annotations

import numpy as np
from scipy import special

from tailproof.core import Array


def skewness_corrected_ends(values: Array, weights: Array, delta: float) -> tuple[Array, Array]:
    r"""Ends of (1 − δ) intervals for the means of the rows of an array.

    With m the mean, s its standard error and γ the skewness *of the mean* (that of the values over √n),
    T = (m − μ)/s becomes nearly symmetric as g(T) = T + γT²/3 + γ²T³/27 + γ/6 (Hall, 1992), which has an
    inverse in closed form. The interval is from the lower to the higher end of Student's and of this one:
    where values are symmetric it is Student's, and on the side of a long tail it reaches farther.

    Parameters
    ----------
    values : array of shape (m, n)
    weights : array of shape (n,), or an empty one
    delta : float

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
    reach = float(special.stdtrit(max(n - 1, 1.0), 1 - delta / 2))
    low = means - error * np.maximum(_inverse(reach, skewness), reach)
    high = means - error * np.minimum(_inverse(-reach, skewness), -reach)
    return low, high


def _inverse(y: float, skewness: Array) -> Array:
    """T with g(T) = y."""
    z = y - skewness / 6
    small = np.abs(skewness) < 1e-6  # where the formula would lose its digits, its series has them
    gamma = np.where(small, 1.0, skewness)
    return np.where(small, z - skewness * z**2 / 3, 3 * (np.cbrt(1 + gamma * z) - 1) / gamma)
