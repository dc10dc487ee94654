"""Covariances of a few linear functions of rows: distances between slopes without a Gram matrix."""

from __future__ import annotations

import numpy as np

from tailproof.core import Array

_SAME = 1e-6  # of a length: slopes that differ by less have one direction, since squares have 16 digits


def covariances_by(products: Array, sums: Array, total: float, centred: bool) -> Array:
    """From weighted sums of products of numbers of rows, of these numbers, and of weights.

    Examples
    --------
    >>> covariances_by(np.array([[10.0]]), np.array([4.0]), 2.0, True)
    array([[1.]])
    """
    mean = sums / total
    return np.asarray(products / total - float(centred) * np.outer(mean, mean))


def carried_over(known: Array, found: Array, slopes: Array) -> Array:
    """Covariances of slopes over all rows, from those of slopes nearby.

    Some rows, in whose white coordinates both are given, say how much of the known ones there is in each, and
    how long the rest is. They err by a small share of that alone.

    Parameters
    ----------
    known : array of shape (rank, k)
    found : array of shape (k, k)
        Covariances of these over all rows.
    slopes : array of shape (rank, any)

    Examples
    --------
    >>> carried_over(np.array([[1.0], [0.0]]), np.array([[4.0]]), np.array([[2.0], [3.0]]))
    array([[25.]])
    """
    if not np.isfinite(found).all():
        return np.asarray(slopes.T @ slopes)
    lengths = np.linalg.norm(known, axis=0)
    lengths[lengths == 0] = 1.0
    shares = np.linalg.lstsq(known / lengths, slopes, rcond=_SAME)[0] / lengths[:, None]
    rest = slopes - known @ shares
    return np.asarray(rest.T @ rest + shares.T @ found @ shares)
