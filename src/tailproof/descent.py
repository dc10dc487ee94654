"""Minimising Σ wⱼ‖v − uⱼ‖ over v in a few dimensions: the numerical core of :mod:`tailproof.merge`.

The sum is convex, and smooth except at the points themselves. If the best of the points is not the minimiser,
every place with a lower sum than it has, so also the way down from there, is free of points: Newton's method
with a line search stays fast however close together some of the points are. Only the loops over points are
compiled: what NumPy does as well would take longer to compile than most users' data take to fit.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dgesv

from tailproof.compiled import compiled

Array = NDArray[np.floating]

_AT_POINT = 1e-13  # share of the weight by which rounding may spoil the optimality condition at a point
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
    total = float(mass.sum())
    v = _start(points, mass, total)
    distances, gradient, curvature = _slope(points, mass, v)
    for iteration in range(max_iter):
        nearest = int(distances.argmin())
        if distances[nearest] == 0.0:
            # The minimiser, or too close to it for the way there to be seen.
            return distances, nearest, iteration, True
        size = _norm(gradient)
        step = _newton_step(points, mass, v, distances, gradient, curvature)
        small = _norm(step) <= tol * _median(distances)
        if size <= tol * total and (small or size <= 4e-16 * len(points) * total):
            return _slope(points, mass, v - step)[0], -1, iteration, True
        down = _go_down(points, mass, v, distances, gradient, step, gradient / curvature)
        if down is None:
            # Rounding hides any further descent.
            return distances, -1, iteration, size <= max(tol, 1e-12) * total
        v = down
        distances, gradient, curvature = _slope(points, mass, v)
        if distances.min() == 0.0:
            v = _leave(points, mass, int(distances.argmin()), total)
            distances, gradient, curvature = _slope(points, mass, v)
    return distances, -1, max_iter, False


def _start(points: Array, mass: Array, total: float) -> Array:
    """Return the point that is the minimiser, or a start below every point."""
    origin = np.zeros(points.shape[1])
    reach = np.sqrt(np.einsum("ij,ij->i", points, points))
    near = reach.argsort(kind="stable")[:_CANDIDATES]
    height = _changes(points, mass, origin, points[near], reach)
    # Rounding cannot order points closer together than this: any of them may be the minimiser.
    slack = height.min() + 1e-13 * total * _median(reach)
    for j in near[height <= slack].tolist():
        v = _leave(points, mass, j, total)
        if np.array_equal(v, points[j]):
            return v
    if height.min() > 0.0:
        return origin
    return _leave(points, mass, int(near[height.argmin()]), total)


def _leave(points: Array, mass: Array, j: int, total: float) -> Array:
    """Kuhn's test of point j: itself if it is the minimiser, else Vardi & Zhang's step away from it."""
    _, force, curvature = _slope(points, mass, points[j])
    size = _norm(force)
    if size - mass[j] <= _AT_POINT * total:
        return points[j].copy()
    return np.asarray(points[j] - (1.0 - mass[j] / size) / curvature * force)


def _newton_step(
    points: Array, mass: Array, v: Array, distances: Array, gradient: Array, curvature: float
) -> Array:
    # Hessian Σ w/d (I − r rᵀ) with r the unit vector from the point.
    rows = _pulls(points, mass, v, distances)
    hessian = -rows.T.dot(rows)
    hessian.flat[:: v.size + 1] += curvature * (1.0 + 1e-15)
    # numpy.linalg.solve is the same, and takes longer to find that out.
    return np.asarray(dgesv(hessian, gradient, overwrite_a=True)[2])


def _go_down(
    points: Array, mass: Array, v: Array, distances: Array, gradient: Array, newton: Array, weiszfeld: Array
) -> Array | None:
    """Move by Newton's step, halved until it lowers the sum as its slope promises; else by Weiszfeld's."""
    shortest = 2e-16 * _norm(v)  # what adding to v can still be seen
    for step in (newton, weiszfeld):
        slope, length = float(gradient.dot(step)), _norm(step)
        share = 1.0
        while slope > 0.0 and share * length > shortest and share > 1e-18:
            lower = _changes(points, mass, v, -share * step[None], distances)[0]
            if lower <= -0.1 * share * slope:
                return np.asarray(v - share * step)
            share *= 0.5
    return None


def _norm(v: Array) -> float:
    return math.sqrt(v.dot(v))


def _median(values: Array) -> float:
    """The middle value, or the upper one of two: quicker than numpy.median, and good enough for a scale."""
    return float(np.partition(values, values.size // 2)[values.size // 2])


@compiled()
def _slope(points, mass, v):  # type: ignore[no-untyped-def]
    """Distances from v, Σ w (v − u)/d and Σ w/d, both over the points that are not v itself."""
    k, p = points.shape
    distances = np.empty(k)
    gradient = np.zeros(p)
    curvature = 0.0
    for j in range(k):
        square = 0.0
        for i in range(p):
            square += (v[i] - points[j, i]) ** 2
        distances[j] = np.sqrt(square)
        if square > 0.0:
            pull = mass[j] / distances[j]
            curvature += pull
            for i in range(p):
                gradient[i] += pull * (v[i] - points[j, i])
    return distances, gradient, curvature


@compiled()
def _pulls(points, mass, v, distances):  # type: ignore[no-untyped-def]
    """Unit vectors from the points to v, times √(w/d)."""
    rows = np.empty_like(points)
    for j in range(len(points)):
        share = np.sqrt(mass[j] / distances[j]) / distances[j]
        for i in range(v.size):
            rows[j, i] = (v[i] - points[j, i]) * share
    return rows


@compiled()
def _changes(points, mass, v, steps, distances):  # type: ignore[no-untyped-def]
    """The sum at v + step minus the sum at v, for every step, without the cancellation of that difference."""
    changes = np.zeros(len(steps))
    for s in range(len(steps)):
        for j in range(len(points)):
            square, product = 0.0, 0.0
            for i in range(v.size):
                away = v[i] - points[j, i]
                square += (away + steps[s, i]) ** 2
                product += steps[s, i] * (2.0 * away + steps[s, i])
            both = np.sqrt(square) + distances[j]
            if both > 0.0:
                changes[s] += mass[j] * product / both
    return changes
