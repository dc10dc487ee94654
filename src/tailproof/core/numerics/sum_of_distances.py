"""Minimising Σ wⱼ‖v − uⱼ‖ over v in a few dimensions: the numerical core of :mod:`tailproof.merge`.

The sum is convex, and smooth except at the points themselves. If the best of the points is not the minimiser,
every place with a lower sum than it has, so also the way down from there, is free of points: Newton's method
with a line search stays fast however close together some of the points are. The search is in
``native/c/sum_of_distances.c``.
"""

from __future__ import annotations

import numpy as np

from tailproof.core import Array
from tailproof.native import sum_of_distances as native

_CANDIDATES = 256  # points that may be the best: those nearest to the origin, which is near the majority


def minimise(points: Array, mass: Array, tol: float, max_iter: int) -> tuple[Array, int, int, bool]:
    """Distances from the minimiser to the points, the point that it equals or -1, iterations, converged.

    Parameters
    ----------
    points : array of shape (k, p)
        Distinct, not collinear, and shifted so that the origin is near the majority.
    mass : array of shape (k,)
    tol, max_iter
        As in :func:`tailproof.merge.geometric_median`.
    """
    reach = np.sqrt(np.einsum("ij,ij->i", points, points))
    order = reach.argsort(kind="stable")
    # Half of the points are nearer to the origin than this: a scale that those far away do not move.
    typical = reach[order[reach.size // 2]]
    return native.minimise(points, mass, reach, order[:_CANDIDATES], typical, tol, max_iter)
