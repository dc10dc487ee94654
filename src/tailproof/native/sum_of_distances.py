"""Distances, and the search for the point with the smallest sum of them.

Σ wⱼ‖v − uⱼ‖ is convex, and smooth except at the points themselves. If the best of the points is not the
minimiser, every place with a lower sum than it has, so also the way down from there, is free of points:
Newton's method with a line search stays fast however close together some of the points are.
"""

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
_CANDIDATES = 256  # points that may be the best: those nearest to the origin, which is near the majority

_distances = declare("distances", POINTER, COUNT, COUNT, POINTER, POINTER)
_coordinates = declare("coordinates", POINTER, COUNT, COUNT, POINTER, POINTER, POINTER)
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


def coordinates(points: Array, reference: Array) -> Array | None:
    """As many coordinates as points, with the same distances from each other and from the reference, at 0.

    None where rounding would spoil them: points that nearly depend on others, or are very near or far.

    Examples
    --------
    >>> np.abs(coordinates(np.array([[3.0, 4.0, 1.0], [0.0, 0.0, 3.0]]), np.array([0.0, 0.0, 1.0]))).tolist()
    [[5.0, 0.0], [0.0, 2.0]]
    """
    (k, d), found = points.shape, np.zeros(1, dtype=np.int64)
    factor = np.empty((k, k))
    pointers = read("points", points, F64, (k, d)), k, d, read("reference", reference, F64, (d,))
    check(_coordinates(*pointers, address("factor", factor), address("found", found)))
    return factor if found[0] else None


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


def minimise_sum(points: Array, mass: Array, tol: float, max_iter: int) -> tuple[Array, int, int, bool]:
    """:func:`minimise` with starts and scale from the distances of the points to the origin."""
    reach = np.sqrt(np.einsum("ij,ij->i", points, points))
    order = reach.argsort(kind="stable")
    # Half of the points are nearer to the origin than this: a scale that those far away do not move.
    typical = reach[order[reach.size // 2]]
    return minimise(points, mass, reach, order[:_CANDIDATES], typical, tol, max_iter)
