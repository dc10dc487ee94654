"""Minimising Σ wⱼ‖v − uⱼ‖ over v in a few dimensions: the numerical core of :mod:`tailproof.merge`.

The sum is convex, and smooth except at the points themselves. If the best of the points is not the minimiser,
every place with a lower sum than it has, so also the way down from there, is free of points: Newton's method
with a line search stays fast however close together some of the points are.
"""

from __future__ import annotations

import numpy as np

from tailproof.compiled import compiled

_AT_POINT = 1e-13  # share of the weight by which rounding may spoil the optimality condition at a point
_CANDIDATES = 256  # points that may be the best: those nearest to the origin, which is near the majority


@compiled()
def minimise(points, mass, tol, max_iter):  # type: ignore[no-untyped-def]
    """Distances from the minimiser to the points, the point that it equals or -1, iterations, converged.

    Parameters
    ----------
    points : array of shape (k, p)
        Distinct, not collinear, and shifted so that the origin is near the majority.
    mass : array of shape (k,)
    tol, max_iter
        As in :func:`tailproof.merge.geometric_median`.
    """
    total = mass.sum()
    v = _start(points, mass, total)
    distances, gradient, curvature = _slope(points, mass, v)
    for iteration in range(max_iter):
        nearest = np.argmin(distances)
        if distances[nearest] == 0.0:
            # The minimiser, or too close to it for the way there to be seen.
            return distances, nearest, iteration, True
        size = np.linalg.norm(gradient)
        step = _newton_step(points, mass, v, distances, gradient, curvature)
        small = np.linalg.norm(step) <= tol * np.median(distances)
        if size <= tol * total and (small or size <= 4e-16 * len(points) * total):
            return _slope(points, mass, v - step)[0], -1, iteration, True
        v, moved = _go_down(points, mass, v, distances, gradient, step, gradient / curvature)
        if not moved:
            # Rounding hides any further descent.
            return distances, -1, iteration, size <= max(tol, 1e-12) * total
        distances, gradient, curvature = _slope(points, mass, v)
        if distances.min() == 0.0:
            v = _leave(points, mass, np.argmin(distances), total)
            distances, gradient, curvature = _slope(points, mass, v)
    return distances, -1, max_iter, False


@compiled()
def _start(points, mass, total):  # type: ignore[no-untyped-def]
    """Return the point that is the minimiser, or a start below every point."""
    origin = np.zeros(points.shape[1])
    reach = np.sqrt((points**2).sum(axis=1))
    near = np.argsort(reach)[:_CANDIDATES]
    height = np.empty(near.size)
    for i in range(near.size):
        height[i] = _change(points, mass, origin, points[near[i]], reach)
    # Rounding cannot order points closer together than this: any of them may be the minimiser.
    slack = height.min() + 1e-13 * total * np.median(reach)
    for j in near[height <= slack]:
        v = _leave(points, mass, j, total)
        if np.all(v == points[j]):
            return v
    if height.min() > 0.0:
        return origin
    return _leave(points, mass, near[np.argmin(height)], total)


@compiled()
def _leave(points, mass, j, total):  # type: ignore[no-untyped-def]
    """Kuhn's test of point j: itself if it is the minimiser, else Vardi & Zhang's step away from it."""
    _, force, curvature = _slope(points, mass, points[j])
    size = np.linalg.norm(force)
    if size - mass[j] <= _AT_POINT * total:
        return points[j].copy()
    return points[j] - (1.0 - mass[j] / size) / curvature * force


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
def _change(points, mass, v, step, distances):  # type: ignore[no-untyped-def]
    """Return the sum at v + step minus the sum at v, without the cancellation of that difference."""
    change = 0.0
    for j in range(len(points)):
        square, product = 0.0, 0.0
        for i in range(v.size):
            away = v[i] - points[j, i]
            square += (away + step[i]) ** 2
            product += step[i] * (2.0 * away + step[i])
        both = np.sqrt(square) + distances[j]
        change += mass[j] * product / both if both > 0.0 else 0.0
    return change


@compiled()
def _newton_step(points, mass, v, distances, gradient, curvature):  # type: ignore[no-untyped-def]
    # Hessian Σ w/d (I − r rᵀ) with r the unit vector from the point.
    rows = np.empty_like(points)
    for j in range(len(points)):
        rows[j] = (v - points[j]) * np.sqrt(mass[j] / distances[j]) / distances[j]
    hessian = -np.dot(rows.T, rows)
    for i in range(v.size):
        hessian[i, i] += curvature * (1.0 + 1e-15)
    return np.linalg.solve(hessian, gradient)


@compiled()
def _go_down(points, mass, v, distances, gradient, newton, weiszfeld):  # type: ignore[no-untyped-def]
    """Move by Newton's step, halved until it lowers the sum as its slope promises; else by Weiszfeld's."""
    shortest = 2e-16 * np.linalg.norm(v)  # what adding to v can still be seen
    for step in (newton, weiszfeld):
        slope, length = np.dot(gradient, step), np.linalg.norm(step)
        share = 1.0
        while slope > 0.0 and share * length > shortest and share > 1e-18:
            if _change(points, mass, v, -share * step, distances) <= -0.1 * share * slope:
                return v - share * step, True
            share *= 0.5
    return v, False
