"""Merges: k points to one that stays close to the majority (Algorithms "geomed", "smball", "median").

All but the centroid and Krum satisfy Lemma "merge_requirement": ‖û − u‖ ≤ c_γ Δ(u; γ) for any u, where
Δ(u; γ) is the radius of the smallest ball around u that holds more than k(1/2 + γ) of the points.
``MERGES`` lists them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailproof.core import Array
from tailproof.core.lookup import Registry
from tailproof.core.numerics.m_estimates import near_majorities
from tailproof.core.numerics.quantiles import check_weights, midpoint, weighted_median, weighted_quantiles
from tailproof.native.rows import ends_and_square
from tailproof.native.sum_of_distances import coordinates, minimise_sum
from tailproof.native.sum_of_distances import distances as distances_from

__all__ = [
    "MERGES",
    "Merged",
    "ball_mean",
    "centroid",
    "check_points",
    "coordinate_median",
    "geometric_median",
    "krum",
    "majority_radius",
    "mean_around_median",
    "merged",
    "smallest_ball",
    "trimmed_mean",
    "within_majority",
]

_TIED = 1 + 1e-9  # distances that differ by rounding alone are equal
_TILE = 16384  # columns at a time: k differences of this length stay in cache
_FEW = 32  # points whose products take less time than a call of linear algebra
_PROBES = 64  # coordinates that are enough to tell a central point from one far away
_PARALLEL = 1e-8  # sine of an angle below which float64 cannot tell points from collinear ones
_CANCELLED = 1e2  # ratio of distances beyond which the square of the shorter one has lost 4 of 16 digits
_PASSES = 4  # over the points at most: one, unless distances lost digits
_BATCH = 256  # points whose distances to all others are held at a time


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
    u, w = check_points(points, weights)
    return merged(u, w, (w / w.sum()) @ u)


def coordinate_median(points: ArrayLike, weights: ArrayLike | None = None) -> Merged:
    """Median of each coordinate (Algorithm "median"), the midpoint for an even count.

    Examples
    --------
    >>> coordinate_median([[0.0, 1.0], [1.0, 0.0], [1e12, 1e12]]).point.tolist()
    [1.0, 1.0]
    """
    u, w = check_points(points, weights)
    return merged(u, w, weighted_median(u.T, None if weights is None else w))


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
    u, w = check_points(points, weights)
    if beta is not None and not 0 < beta < 0.5:
        raise ValueError(f"beta must lie strictly between 0 and 1/2; got {beta}")
    radii = np.concatenate([_radii_around(u[i : i + _BATCH], u, w, beta) for i in range(0, len(u), _BATCH)])
    # A point without weight is absent: it may not be the answer.
    return merged(u, w, u[int(np.argmin(np.where(w > 0, radii, np.inf)))])


def geometric_median(
    points: ArrayLike, weights: ArrayLike | None = None, tol: float = 1e-9, max_iter: int = 1000
) -> Merged:
    """Minimise v ↦ Σ wⱼ‖v − uⱼ‖ (Algorithm "geomed").

    Newton's method with a line search, from the best of the points downwards, unless Kuhn's condition shows
    that this point is the answer. Many coordinates are first reduced, by one k×k product of differences
    from a central point, to at most k − 1 in which all distances are the same, so that an iteration never
    costs more than O(k³). Where distances lost digits on the way (points that nearly coincide, points far
    away) the answer becomes the new central point and the search is repeated.
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
    _check_search(tol, max_iter)
    u, w = check_points(points, weights)
    distinct, mass = _without_duplicates(u, w)
    if len(distinct) == 1:
        return merged(u, w, u[distinct[0]])
    apart = u if len(distinct) == len(u) else u[distinct]
    reference = _central(apart, mass)
    n_iter = 0
    for attempt in range(_PASSES):
        reduced = _reduce_dimension(apart, reference)
        if reduced.shape[1] == 0:
            return _at_scale_one(u, w, reference, tol, max_iter)
        if reduced.shape[1] == 1 and attempt == 0:
            return merged(u, w, _middle_of_line(apart, reduced[:, 0], mass))
        distances, at, taken, converged = minimise_sum(reduced, mass, tol, max_iter)
        n_iter += taken
        reference = apart[at] if at >= 0 else _weiszfeld(apart, mass / distances)
        if not _lost_digits(reduced, distances):
            break
    index = int(distinct[at]) if at >= 0 else None
    return Merged(
        reference.copy(), float(_majority_radii(distances[None], mass)[0]), index, n_iter, converged
    )


def trimmed_mean(points: ArrayLike, trim: float = 0.4, weights: ArrayLike | None = None) -> Merged:
    """Mean of each coordinate without a share of the weight at either end.

    Parameters
    ----------
    points : array-like of shape (k, d)
    trim : float
        Share at either end, 0 < trim < 1/2: up to so many points may be anywhere.
    weights : array-like of shape (k,), optional

    Examples
    --------
    >>> trimmed_mean([[0.0], [1.0], [2.0], [3.0], [1e12]], trim=0.2).point.round(9).tolist()
    [2.0]
    """
    if not 0 < trim < 0.5:
        raise ValueError(f"trim must lie strictly between 0 and 1/2; got {trim}")
    u, w = check_points(points, weights)
    ranks = u.argsort(axis=0)
    share = (w / w.sum())[ranks]
    until = share.cumsum(axis=0)
    # What lies between the two quantiles, of a point on the edge in part.
    kept = np.minimum(until, 1.0 - trim) - np.maximum(until - share, trim)
    kept = np.maximum(kept, 0.0)
    return merged(u, w, (kept / kept.sum(axis=0) * np.take_along_axis(u, ranks, axis=0)).sum(axis=0))


def mean_around_median(points: ArrayLike, weights: ArrayLike | None = None) -> Merged:
    """Mean of each coordinate over the majority that is nearest to its median.

    Examples
    --------
    >>> mean_around_median([[0.0], [1.0], [1.5], [9.0], [1e12]]).point.tolist()
    [0.8333333333333334]
    """
    u, w = check_points(points, weights)
    median = weighted_median(u.T, None if weights is None else w)
    away = np.abs(u / 2 - median / 2)
    near = away <= _majority_radii(np.ascontiguousarray(away.T), w) * _TIED
    held = np.where(near, (w / w.sum())[:, None], 0.0)
    return merged(u, w, median + (held / held.sum(axis=0) * (u - median)).sum(axis=0))


def ball_mean(points: ArrayLike, weights: ArrayLike | None = None) -> Merged:
    """Mean of the points in the smallest ball around one of them that holds a majority.

    Examples
    --------
    >>> ball_mean([[0.0], [1.0], [1.5], [9.0], [1.2]]).point.round(3).tolist()
    [1.233]
    """
    u, w = check_points(points, weights)
    ball = smallest_ball(u, weights=w)
    held = np.where(distances_from(u, ball.point) <= ball.radius * _TIED, w / w.sum(), 0.0)
    return merged(u, w, ball.point + (held / held.sum()) @ (u - ball.point))


def krum(points: ArrayLike, weights: ArrayLike | None = None) -> Merged:
    """Return the point with the least mean square of distances to the nearest half of the weight.

    It is known from federated learning. One point of all decides, so its constant in the lemma would grow
    with √k; a point counts itself, ties go to the lowest index.

    Examples
    --------
    >>> krum([[0.0], [1.0], [1.5], [9.0], [1.2]]).index
    4
    """
    u, w = check_points(points, weights)
    scores = np.array([_nearest_half(distances_from(u, point), w) for point in u])
    lowest = np.where(w > 0, scores, np.inf)
    return merged(u, w, u[int(np.argmin(lowest))])


def _nearest_half(distances: Array, w: Array) -> float:
    """Root of the mean square of the smallest distances, over half of the weight."""
    ranks = distances.argsort()
    until = (w / w.sum())[ranks].cumsum()
    share = np.minimum(until, 0.5) - np.minimum(np.append(0.0, until[:-1]), 0.5)
    largest = float(distances[ranks][share > 0][-1])
    if largest == 0.0:
        return 0.0
    return largest * float(np.sqrt(share @ np.where(share > 0, distances[ranks] / largest, 0.0) ** 2))


MERGES: Registry[Callable[..., Merged]] = Registry(
    "merge",
    {
        "geometric_median": geometric_median,
        "smallest_ball": smallest_ball,
        "coordinate_median": coordinate_median,
        "trimmed_mean": trimmed_mean,
        "mean_around_median": mean_around_median,
        "ball_mean": ball_mean,
        "krum": krum,
        "centroid": centroid,
    },
)


def majority_radius(
    points: ArrayLike, centre: ArrayLike, weights: ArrayLike | None = None, *, gamma: float = 0.0
) -> float:
    """Δ(u; γ): the radius of the smallest ball around ``centre`` with more than 1/2 + γ of the weight.

    Parameters
    ----------
    points : array-like of shape (k, d)
    centre : array-like of shape (d,)
    weights : array-like of shape (k,), optional
    gamma : float
        0 ≤ γ < 1/2: by how much the majority exceeds a half.

    Examples
    --------
    >>> points = [[0.0], [1.0], [5.0]]
    >>> majority_radius(points, [0.0]), majority_radius(points, [0.0], gamma=0.2)
    (1.0, 5.0)
    """
    if not 0 <= gamma < 0.5:
        raise ValueError(f"gamma must lie in [0, 1/2); got {gamma}")
    u, w = check_points(points, weights)
    c = np.asarray(centre, dtype=np.float64)
    if c.shape != (u.shape[1],) or not np.all(np.isfinite(c)):
        raise ValueError(f"centre must be {u.shape[1]} finite numbers; got shape {c.shape}")
    # k(1/2 + γ) in floats may come out a bit too small, which would miss by one point.
    share = min((0.5 + gamma) * (1 + 1e-12), 1.0)
    return float(_within(distances_from(u, c)[None], w, share)[0])


def check_points(points: ArrayLike, weights: ArrayLike | None) -> tuple[Array, Array]:
    if np.ma.isMaskedArray(points) or np.iscomplexobj(points):
        raise ValueError("points must be real numbers, none of them masked: leave other candidates out")
    u = np.ascontiguousarray(points, dtype=np.float64)
    if u.ndim != 2 or u.size == 0:
        raise ValueError(f"points must be a non-empty array of shape (k, d); got shape {u.shape}")
    # One pass: NaN and infinity fail it.
    if not math.isfinite(ends_and_square(u.ravel())[2]) and not np.all(np.isfinite(u)):
        raise ValueError("points must be finite: leave other candidates out")
    checked = check_weights(weights, len(u))
    return u, np.ones(len(u)) if checked is None else checked


def _check_search(tol: float, max_iter: int) -> None:
    if not 0 < tol < np.inf:
        raise ValueError(f"tol must be positive and finite; got {tol}")
    if not max_iter >= 1:
        raise ValueError(f"max_iter must be at least 1; got {max_iter}")


def merged(u: Array, w: Array, point: Array, n_iter: int = 0, converged: bool = True) -> Merged:
    distances = distances_from(u, point)
    index = int(np.argmin(distances)) if distances.min() == 0 else None
    return Merged(point.copy(), float(_majority_radii(distances[None], w)[0]), index, n_iter, bool(converged))


def _radii_around(centres: Array, u: Array, w: Array, beta: float | None = None) -> Array:
    return _majority_radii(np.stack([distances_from(u, centre) for centre in centres]), w, beta)


def _majority_radii(distances: Array, w: Array, beta: float | None = None) -> Array:
    """For every row of distances the smallest one within which the majority of the weight lies."""
    # k(1/2 + β) in floats may come out a bit too large, and k/2 too small: both would miss by one point.
    share = 0.5 * (1 + 1e-12) if beta is None else (0.5 + beta) * (1 - 1e-12)
    return _within(distances, w, share)


def _within(values: Array, w: Array, share: float) -> Array:
    """For every row the smallest value up to which that share of the weight lies."""
    if (w == w[0]).all():
        held = w.cumsum()
        place = int(held.searchsorted(share * held[-1]))
        return np.partition(values, place, axis=1)[:, place]
    ranks = values.argsort(axis=1)
    held = w[ranks].cumsum(axis=1)
    place = (held < share * held[:, -1:]).sum(axis=1)
    rows = np.arange(len(values))
    return np.asarray(values[rows, ranks[rows, place]])


def _without_duplicates(u: Array, w: Array) -> tuple[NDArray[np.intp], Array]:
    """First index and total weight of each distinct point with positive weight."""
    if w.all() and len(set(u[:, 0].tolist())) == len(u):
        return np.arange(len(u)), w
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


def _central(u: Array, w: Array) -> Array:
    """Return a point near the majority, judged by some of the coordinates: differences from it are short."""
    probes = np.ascontiguousarray(u[:, :: -(-u.shape[1] // _PROBES)])
    return u[np.argmin(distances_from(probes, _within(probes.T, w, 0.5)))]


def _reduce_dimension(u: Array, reference: Array) -> Array:
    """Coordinates of the points about the reference with the same mutual distances, at most k of them.

    One means that points and reference are collinear; none that squares leave the range of floats.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if u.shape[1] < len(u):
            return _along_line(u - reference)
        few = 2 < len(u) <= _FEW and u.shape[1] <= _TILE  # two points are a line
        simple = coordinates(u, reference) if few else None
        if simple is not None:
            return simple
        gram = _gram_of_differences(u, reference)
    reach = np.sqrt(gram.diagonal())
    if not _in_range(reach):
        return np.empty((len(u), 0))
    # Scaled to unit diagonal, a point at 1e12 costs the points near 1 no digits.
    unit = np.where(reach > 0, reach, reach.max())
    values, vectors = np.linalg.eigh(gram / (unit[:, None] * unit))
    first = int(values.searchsorted(len(u) * 4e-16 * values[-1], side="right"))
    return np.ascontiguousarray(reach[:, None] * vectors[:, first:] * np.sqrt(values[first:]))


def _in_range(lengths: Array) -> bool:
    return 1e-120 < float(lengths.max()) < 1e150


def _along_line(shifted: Array) -> Array:
    """Positions along their line as one column if the shifted points are collinear, else the points."""
    lengths = np.sqrt(np.einsum("ij,ij->i", shifted, shifted))
    if not _in_range(lengths):
        return np.empty((len(shifted), 0))
    farthest = int(np.argmax(lengths))
    direction = shifted[farthest] / lengths[farthest]
    position = shifted @ direction
    off = shifted - position[:, None] * direction
    if (np.einsum("ij,ij->i", off, off) <= (_PARALLEL * lengths) ** 2).all():
        return position[:, None]
    return shifted


def _lost_digits(reduced: Array, distances: Array) -> bool:
    """Whether a point much nearer to the answer than to the reference had its distance from differences."""
    reach = np.sqrt(np.einsum("ij,ij->i", reduced, reduced))
    return bool(((distances > 0) & (reach > _CANCELLED * distances)).any())


def _at_scale_one(u: Array, w: Array, reference: Array, tol: float, max_iter: int) -> Merged:
    """Return the geometric median where squares of differences leave the range of floats."""
    halves = u / 2 - reference / 2
    size = np.abs(halves).max()
    scaled = geometric_median(halves / size, w, tol, max_iter)
    point = 2 * (reference / 2 + size * scaled.point) if scaled.index is None else u[scaled.index].copy()
    return Merged(point, float(2 * size * scaled.radius), scaled.index, scaled.n_iter, scaled.converged)


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


def within_majority(pooled: float, block_values: Array, lengths: float | None = None) -> float:
    """The pooled value, if it lies near the shortest interval that holds most of the blocks' values.

    Else their mean over that interval. ``lengths`` of the interval are near; by default a little over one.
    """
    return float(near_majorities(np.array([pooled]), block_values[None], lengths)[0])
