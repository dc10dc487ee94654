"""Minimising Σ wⱼ‖v − uⱼ‖ over v in a few dimensions: the numerical core of :mod:`tailproof.merge`.

The sum is convex, and smooth except at the points themselves. If the best of the points is not the minimiser,
every place with a lower sum than it has, so also the way down from there, is free of points: Newton's method
with a line search stays fast however close together some of the points are. Sorting and linear algebra are
written out, or left to NumPy before the start: numba takes many times longer to compile its own.
"""

from __future__ import annotations

import numpy as np

from tailproof.core import Array
from tailproof.core.numerics.compiled import compiled

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
    reach = np.sqrt(np.einsum("ij,ij->i", points, points))
    order = reach.argsort(kind="stable")
    # Half of the points are nearer to the origin than this: a scale that those far away do not move.
    typical = reach[order[reach.size // 2]]
    found = _descend(points, mass, reach, order[:_CANDIDATES], typical, tol, max_iter)
    return found[0], int(found[1]), int(found[2]), bool(found[3])


@compiled()
def _descend(points, mass, reach, near, typical, tol, max_iter):
    total = 0.0
    for j in range(len(mass)):
        total += mass[j]
    v = _start(points, mass, reach, near, typical, total)
    distances, gradient, curvature = _slope(points, mass, v)
    for iteration in range(max_iter):
        nearest = _smallest(distances)
        if distances[nearest] == 0.0:
            # The minimiser, or too close to it for the way there to be seen.
            return distances, nearest, iteration, True
        size = np.sqrt(_product(gradient, gradient))
        step = _newton_step(points, mass, v, distances, gradient, curvature)
        small = np.sqrt(_product(step, step)) <= tol * typical
        if size <= tol * total and (small or size <= 4e-16 * len(points) * total):
            return _slope(points, mass, v - step)[0], -1, iteration, True
        v, moved = _go_down(points, mass, v, distances, gradient, step, gradient / curvature)
        if not moved:
            # Rounding hides any further descent.
            return distances, -1, iteration, size <= max(tol, 1e-12) * total
        distances, gradient, curvature = _slope(points, mass, v)
        nearest = _smallest(distances)
        if distances[nearest] == 0.0:
            v = _leave(points, mass, nearest, total)[0]
            distances, gradient, curvature = _slope(points, mass, v)
    return distances, -1, max_iter, False


@compiled()
def _start(points, mass, reach, near, typical, total):
    """Return the point that is the minimiser, or a start below every point."""
    origin, height = np.zeros(points.shape[1]), np.empty(near.size)
    for i in range(near.size):
        height[i] = _change(points, mass, origin, points[near[i]], reach)
    lowest = _smallest(height)
    # Rounding cannot order points closer together than this: any of them may be the minimiser.
    slack = height[lowest] + 1e-13 * total * typical
    for i in range(near.size):
        if height[i] <= slack:
            v, stays = _leave(points, mass, near[i], total)
            if stays:
                return v
    if height[lowest] > 0.0:
        return origin
    return _leave(points, mass, near[lowest], total)[0]


@compiled()
def _leave(points, mass, j, total):
    """Kuhn's test of point j: itself if it is the minimiser, else Vardi & Zhang's step away from it."""
    _, force, curvature = _slope(points, mass, points[j])
    size = np.sqrt(_product(force, force))
    if size - mass[j] <= _AT_POINT * total:
        return points[j].copy(), True
    return points[j] - (1.0 - mass[j] / size) / curvature * force, False


@compiled()
def _slope(points, mass, v):
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
def _change(points, mass, v, step, distances):
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
def _newton_step(points, mass, v, distances, gradient, curvature):
    # Hessian Σ w/d (I − r rᵀ) with r the unit vector from the point.
    hessian, row = np.zeros((v.size, v.size)), np.empty(v.size)
    for j in range(len(points)):
        share = np.sqrt(mass[j] / distances[j]) / distances[j]
        for i in range(v.size):
            row[i] = (v[i] - points[j, i]) * share
        for i in range(v.size):
            for m in range(v.size):
                hessian[i, m] -= row[i] * row[m]
    for i in range(v.size):
        hessian[i, i] += curvature * (1.0 + 1e-15)
    return _solved(hessian, gradient.copy())


@compiled()
def _solved(A, b):
    """Gauss's elimination with row exchanges, in place; zeros where A is singular."""
    p = b.size
    for c in range(p):
        best = c
        for i in range(c + 1, p):
            best = i if abs(A[i, c]) > abs(A[best, c]) else best
        if A[best, c] == 0.0:
            return np.zeros(p)
        for m in range(c, p):
            A[c, m], A[best, m] = A[best, m], A[c, m]
        b[c], b[best] = b[best], b[c]
        for i in range(c + 1, p):
            share = A[i, c] / A[c, c]
            for m in range(c + 1, p):
                A[i, m] -= share * A[c, m]
            b[i] -= share * b[c]
    for c in range(p - 1, -1, -1):
        for m in range(c + 1, p):
            b[c] -= A[c, m] * b[m]
        b[c] /= A[c, c]
    return b


@compiled()
def _go_down(points, mass, v, distances, gradient, newton, weiszfeld):
    """Move by Newton's step, halved until it lowers the sum as its slope promises; else by Weiszfeld's."""
    shortest = 2e-16 * np.sqrt(_product(v, v))  # what adding to v can still be seen
    for step in (newton, weiszfeld):
        slope, length = _product(gradient, step), np.sqrt(_product(step, step))
        share = 1.0
        while slope > 0.0 and share * length > shortest and share > 1e-18:
            if _change(points, mass, v, -share * step, distances) <= -0.1 * share * slope:
                return v - share * step, True
            share *= 0.5
    return v, False


@compiled()
def _product(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@compiled()
def _smallest(values):
    found = 0
    for i in range(values.size):
        found = i if values[i] < values[found] else found
    return found
