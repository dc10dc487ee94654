"""Distances, and the search for the point with the smallest sum of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    COUNT,
    F64,
    I64,
    NUMBER,
    POINTER,
    address,
    at_least_one,
    check,
    declare,
    read,
)

Array = NDArray[Any]

_distances = declare("distances", POINTER, COUNT, COUNT, POINTER, POINTER)
_CLOUD = (POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, COUNT)
_minimise = declare("minimise", *_CLOUD, NUMBER, NUMBER, COUNT, POINTER, POINTER)


def distances(points: Array, centre: Array) -> Array:
    """‖u − centre‖ for every point.

    Examples
    --------
    >>> distances(np.array([[3.0, 4.0]]), np.zeros(2)).tolist()
    [5.0]
    """
    (k, d), out = points.shape, np.empty(len(points))
    pointers = read("points", points, F64, (k, d)), read("centre", centre, F64, (d,))
    check(_distances(pointers[0], k, d, pointers[1], address("found", out)))
    return out


def minimise(
    points: Array, mass: Array, reach: Array, near: Array, typical: float, tol: float, max_iter: int
) -> tuple[Array, int, int, bool]:
    """Distances from the minimiser of Σ wⱼ‖v − uⱼ‖, the point that it equals or −1, iterations, converged.

    Parameters
    ----------
    points : array of shape (k, p)
        Distinct, not collinear, and shifted so that the origin is near the majority.
    mass, reach : arrays of shape (k,)
        Weights, and distances from the origin.
    near : array of int
        Points that may be the best.
    typical : float
        A scale that points far away do not move.
    tol, max_iter
        As in :func:`tailproof.merge.geometric_median`.
    """
    k, p = points.shape
    weights, outcome = np.empty(k), np.empty(3, dtype=np.int64)
    at_least_one("the size of near", near.size)
    cloud = read("points", points, F64, (k, p)), k, p, read("mass", mass, F64, (k,))
    starts = read("reach", reach, F64, (k,)), read("near", near, I64, (near.size,)), near.size
    results = address("found", weights), address("outcome", outcome)
    check(_minimise(*cloud, *starts, typical, tol, max_iter, *results))
    at, iterations, converged = outcome.tolist()
    return weights, at, iterations, bool(converged)
