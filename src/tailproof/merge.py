"""Merges: k points to one that stays close to the majority (Algorithms "geomed", "smball", "median").

Every merge but the centroid satisfies Lemma "merge_requirement": ‖û − u‖ ≤ c_γ Δ(u; γ) for any u, where
Δ(u; γ) is the radius of the smallest ball around u that holds more than k(1/2 + γ) of the points.
``MERGES`` lists them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from tailproof.order import check_weights, midpoint, weighted_median, weighted_quantiles

Array = NDArray[np.floating]

_TILE = 16384  # columns at a time: k differences of this length stay in cache
_PARALLEL = 1e-8  # sine of an angle below which float64 cannot tell points from collinear ones
_CANCELLED = 1e4  # ratio of squared distances beyond which the shorter one has lost 4 of 16 digits
_LARGEST = 1e150  # norm of all points together; squares beyond it overflow


@dataclass(frozen=True)
class Merged:
    """The merged point and how it sits among the points.

    Attributes
    ----------
    point : array of shape (d,)
    radius : float
        Majority radius: the smallest ball around ``point`` with more than half of the weight.
    index : int or None
        The first of the input points that ``point`` equals, if any.
    n_iter : int
        Iterations taken; 0 where the answer is explicit.
    converged : bool
        False if the iteration cap came first.
    """

    point: Array
    radius: float
    index: int | None
    n_iter: int = 0
    converged: bool = True


def centroid(points: ArrayLike, weights: ArrayLike | None = None) -> Merged:
    """Weighted mean of the points: the reference that one bad point can carry anywhere.

    Examples
    --------
    >>> centroid([[0.0, 0.0], [2.0, 4.0]]).point.tolist()
    [1.0, 2.0]
    """
    u, w = _check_points(points, weights)
    return _merged(u, w, (w / w.sum()) @ u)


def coordinate_median(points: ArrayLike, weights: ArrayLike | None = None) -> Merged:
    """Median of each coordinate (Algorithm "median"), the midpoint for an even count.

    Examples
    --------
    >>> coordinate_median([[0.0, 1.0], [1.0, 0.0], [1e12, 1e12]]).point.tolist()
    [1.0, 1.0]
    """
    u, w = _check_points(points, weights)
    return _merged(u, w, weighted_median(u.T, None if weights is None else w))


def smallest_ball(points: ArrayLike, beta: float | None = None, weights: ArrayLike | None = None) -> Merged:
    """Return the point with the smallest ball around it that holds a majority (Algorithm "smball").

    Parameters
    ----------
    points : array-like of shape (k, d)
    beta : float, optional
        Hold at least k(1/2 + β) points, 0 < β < 1/2. Default: the smallest strict majority, which is what
        the lemma's constant 3 needs at every γ. A point counts itself; ties go to the lowest index.
    weights : array-like of shape (k,), optional
        Weight held instead of number of points.

    Examples
    --------
    >>> smallest_ball([[0.0], [1.0], [1.5], [9.0], [1.2]]).index
    4
    """
    u, w = _check_points(points, weights)
    if beta is not None and not 0 < beta < 0.5:
        raise ValueError(f"beta must lie strictly between 0 and 1/2; got {beta}")
    radii = _majority_radii(np.stack([_distances(u, point) for point in u]), w, beta)
    # A point without weight is absent: it may not be the answer.
    return _merged(u, w, u[int(np.argmin(np.where(w > 0, radii, np.inf)))])


def geometric_median(
    points: ArrayLike, weights: ArrayLike | None = None, tol: float = 1e-9, max_iter: int = 1000
) -> Merged:
    """Minimise v ↦ Σ wⱼ‖v − uⱼ‖ (Algorithm "geomed").

    Newton's method, with Weiszfeld's step (and Vardi & Zhang's where an iterate meets a point) wherever
    Newton's does not halve the gradient. Many coordinates are first reduced, by one k×k product of
    differences from a central point, to at most k − 1 in which all distances are the same, so that an
    iteration never costs more than O(k³). Distances that lost digits on the way are then
    computed again from the points.
    Collinear points have a median interval; its midpoint is the answer.

    Parameters
    ----------
    points : array-like of shape (k, d)
    weights : array-like of shape (k,), optional
    tol : float
        Relative accuracy of the point, and of the optimality condition ‖Σ wⱼ(v − uⱼ)/‖v − uⱼ‖‖ ≤ tol Σwⱼ.
    max_iter : int
        Cap, reported by ``converged=False``.

    Examples
    --------
    >>> geometric_median([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]]).point.tolist()
    [1.0, 1.0]
    """
    u, w = _check_points(points, weights)
    distinct, mass = _without_duplicates(u, w)
    if len(distinct) == 1:
        return _merged(u, w, u[distinct[0]])
    apart = u if len(distinct) == len(u) else u[distinct]
    reduced = _reduce_dimension(apart, mass)
    if reduced.shape[1] == 1:
        return _merged(u, w, _middle_of_line(apart, reduced[:, 0], mass))
    start = weighted_median(reduced.T, mass)
    distances, at, n_iter, converged = _descend(reduced, mass, start, tol, max_iter)
    if at >= 0:
        return _merged(u, w, apart[at], n_iter, converged)
    point = _weiszfeld(apart, mass / distances)
    if np.any((reduced**2).sum(axis=1) > _CANCELLED * distances**2):
        # A distance much shorter than those in the product lost digits in it: once more, exactly.
        distances = _distances(apart, point)
        point = _weiszfeld(apart, mass / distances) if distances.all() else point
    return Merged(point, float(_majority_radii(distances[None], mass)[0]), None, n_iter, bool(converged))


MERGES: dict[str, Callable[..., Merged]] = {
    "geometric_median": geometric_median,
    "smallest_ball": smallest_ball,
    "coordinate_median": coordinate_median,
    "centroid": centroid,
}


def majority_radius(points: ArrayLike, centre: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Δ(u; 0): the radius of the smallest ball around ``centre`` with more than half of the weight.

    Examples
    --------
    >>> majority_radius([[0.0], [1.0], [5.0]], [0.0])
    1.0
    """
    u, w = _check_points(points, weights)
    return float(_majority_radii(_distances(u, np.asarray(centre, dtype=np.float64))[None], w)[0])


def _check_points(points: ArrayLike, weights: ArrayLike | None) -> tuple[Array, Array]:
    u = np.asarray(points, dtype=np.float64)
    if u.ndim != 2 or u.size == 0:
        raise ValueError(f"points must be a non-empty array of shape (k, d); got shape {u.shape}")
    flat = np.ravel(u, order="K")
    if not flat @ flat <= _LARGEST**2:  # one pass: NaN, infinity and squares that overflow all fail it
        raise ValueError(f"points must be finite and below {_LARGEST:g} in size: leave other candidates out")
    checked = check_weights(weights, len(u))
    return u, np.ones(len(u)) if checked is None else checked


def _merged(u: Array, w: Array, point: Array, n_iter: int = 0, converged: bool = True) -> Merged:
    distances = _distances(u, point)
    index = int(np.argmin(distances)) if distances.min() == 0 else None
    return Merged(point.copy(), float(_majority_radii(distances[None], w)[0]), index, n_iter, bool(converged))


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _distances(points, centre):  # type: ignore[no-untyped-def]
    """Distances by differences; a squared norm minus twice a product would cancel."""
    found = np.empty(len(points))
    for j in range(len(points)):
        total = 0.0
        for i in range(centre.size):
            total += (points[j, i] - centre[i]) ** 2
        found[j] = np.sqrt(total)
    return found


def _majority_radii(distances: Array, w: Array, beta: float | None = None) -> Array:
    """For every row of distances the smallest one within which the majority of the weight lies."""
    if beta is None:
        return weighted_quantiles(distances, w, 0.5)[0]
    ranks = np.argsort(distances, axis=1, kind="stable")
    held = np.cumsum(w[ranks], axis=1)
    # k(1/2 + β) in floats may come out a bit too large and ask for one point more.
    first = np.argmax(held >= held[:, -1:] * (0.5 + beta) * (1 - 1e-12), axis=1)
    return np.take_along_axis(distances, ranks, axis=1)[np.arange(len(distances)), first]


def _without_duplicates(u: Array, w: Array) -> tuple[NDArray[np.intp], Array]:
    """First index and total weight of each distinct point with positive weight."""
    first: dict[bytes, int] = {}
    mass: dict[int, float] = {}
    for j in np.flatnonzero(w).tolist():
        # A short prefix tells most points apart; only equal prefixes need the whole row.
        key = (u[j, :64] + 0.0).tobytes()
        same = first.setdefault(key, j)
        if same != j and not np.array_equal(u[j], u[same]):
            same = first.setdefault((u[j] + 0.0).tobytes(), j)
        mass[same] = mass.get(same, 0.0) + w[j]
    return np.array(list(mass), dtype=np.intp), np.array(list(mass.values()))


def _reduce_dimension(u: Array, w: Array) -> Array:
    """Coordinates of the points with the same mutual distances, at most k − 1; one means collinear."""
    if u.shape[1] < len(u):
        shifted = u - u[np.argmin(_distances(u, weighted_median(u.T, w)))]
        return _along_line(shifted)
    gram = _gram_around_majority(u, w)
    # Scaled to unit diagonal, a point at 1e12 costs the points near 1 no digits.
    reach = np.sqrt(np.diag(gram))
    reach[reach == 0] = 1.0
    values, vectors = np.linalg.eigh(gram / np.outer(reach, reach))
    keep = values > len(u) * 4e-16 * values[-1]
    return np.ascontiguousarray(reach[:, None] * vectors[:, keep] * np.sqrt(values[keep]))


def _along_line(shifted: Array) -> Array:
    """Positions along their line as one column if the shifted points are collinear, else the points."""
    lengths = np.linalg.norm(shifted, axis=1)
    farthest = int(np.argmax(lengths))
    position = shifted @ (shifted[farthest] / lengths[farthest])
    off = shifted - np.outer(position, shifted[farthest] / lengths[farthest])
    if np.all(np.linalg.norm(off, axis=1) <= _PARALLEL * lengths):
        return position[:, None]
    return shifted


def _gram_around_majority(u: Array, w: Array) -> Array:
    """Inner products of differences from a point well inside the majority.

    Differences from a far-away point would lose the digits that tell the others apart, so a reference
    that turns out to be far away (seen in the product itself) is replaced.
    """
    reference = 0
    for _ in range(3):
        gram = _gram_of_differences(u, u[reference])
        squares = np.diag(gram)[:, None] + np.diag(gram) - 2 * gram
        radii = _majority_radii(np.sqrt(np.maximum(squares, 0.0)), w)
        central = int(np.argmin(radii))
        if gram[central, central] <= 100.0 * radii[central] ** 2:
            break
        reference = central
    return gram


def _gram_of_differences(u: Array, reference: Array) -> Array:
    gram = np.zeros((len(u), len(u)))
    for start in range(0, u.shape[1], _TILE):
        columns = slice(start, start + _TILE)
        differences = u[:, columns] - reference[columns]
        gram += differences @ differences.T
    return gram


def _middle_of_line(u: Array, position: Array, mass: Array) -> Array:
    low, high = weighted_quantiles(position, mass, 0.5)
    return midpoint(u[np.argmin(np.abs(position - low))], u[np.argmin(np.abs(position - high))])


def _weiszfeld(u: Array, pull: Array) -> Array:
    return (pull / pull.sum()) @ u


@njit(nogil=True, cache=True)
def _descend(points, mass, v, tol, max_iter):  # type: ignore[no-untyped-def]
    """Distances from the minimiser to the points, the point that it equals or -1, iterations, converged."""
    total = mass.sum()
    tested = np.zeros(len(points), dtype=np.bool_)
    for iteration in range(max_iter):
        distances, gradient, curvature = _slope(points, mass, v)
        nearest = np.argmin(distances)
        scale = np.median(distances)
        if not tested[nearest]:
            tested[nearest] = True
            _, force, weiszfeld = _slope(points, mass, points[nearest])
            excess = np.linalg.norm(force) - mass[nearest]
            if excess <= 1e-13 * total:
                return distances, nearest, iteration, True
        if distances[nearest] <= 1e-14 * scale:
            # Vardi & Zhang: leave a point that is not the minimiser along the pull of the others.
            _, force, weiszfeld = _slope(points, mass, points[nearest])
            share = 1.0 - mass[nearest] / np.linalg.norm(force)
            v = points[nearest] - share * force / weiszfeld
            continue
        step = _newton_step(points, mass, v, distances, gradient, curvature)
        size = np.linalg.norm(gradient)
        moved = np.linalg.norm(step)
        if size <= tol * total and (moved <= tol * scale or size <= 4e-16 * len(points) * total):
            return _slope(points, mass, v - step)[0], -1, iteration, True
        v = _accept(points, mass, v, step, size, gradient / curvature)
    return distances, -1, max_iter, False


@njit(nogil=True, cache=True)
def _slope(points, mass, v):  # type: ignore[no-untyped-def]
    """Distances from v, Σ w (v − u)/d and Σ w/d, both over the points that are not v itself."""
    distances = np.empty(len(points))
    gradient = np.zeros(v.size)
    curvature = 0.0
    for j in range(len(points)):
        away = v - points[j]
        distances[j] = np.linalg.norm(away)
        if distances[j] > 0.0:
            gradient += mass[j] / distances[j] * away
            curvature += mass[j] / distances[j]
    return distances, gradient, curvature


@njit(nogil=True, cache=True)
def _newton_step(points, mass, v, distances, gradient, curvature):  # type: ignore[no-untyped-def]
    # Hessian Σ w/d (I − r rᵀ) with r the unit vector from the point.
    rows = np.empty_like(points)
    for j in range(len(points)):
        rows[j] = (v - points[j]) * np.sqrt(mass[j] / distances[j]) / distances[j]
    hessian = -np.dot(rows.T, rows)
    for i in range(v.size):
        hessian[i, i] += curvature * (1.0 + 1e-15)
    return np.linalg.solve(hessian, gradient)


@njit(nogil=True, cache=True)
def _accept(points, mass, v, step, size, fallback):  # type: ignore[no-untyped-def]
    """Newton's step, shortened until it halves the gradient or clearly lowers the sum; else Weiszfeld's."""
    objective = (mass * _slope(points, mass, v)[0]).sum()
    share = 1.0
    for _ in range(6):
        distances, gradient, _ = _slope(points, mass, v - share * step)
        lower = (mass * distances).sum() < objective * (1.0 - 1e-12)
        if np.linalg.norm(gradient) <= 0.5 * size or lower:
            return v - share * step
        share *= 0.5
    return v - fallback
