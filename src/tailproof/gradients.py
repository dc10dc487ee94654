"""Estimates of the gradient of the risk of a linear model; ``AGGREGATORS`` lists them by name.

The gradient of one row is slope × centred row, so nothing here ever holds n × d of them: block means are one
product per block, and the coordinate-wise M-estimate sees a few columns at a time, as many as a cache holds.
Gradients are in scaled coordinates (see :mod:`tailproof.scaling`): one row per output, the intercept last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from tailproof.losses import SOFTMAX, Loss
from tailproof.merge import geometric_median
from tailproof.rowstats import PSI, SCALES, effective_size, m_estimates, means_of_rows, row_sizes
from tailproof.scaling import Columns, expected_square_norm

Array = NDArray[np.floating]
Rows = slice | NDArray[np.intp]

_TILE_CELLS = 1 << 17  # partial derivatives held at a time: 1 MB
_LINE = 8  # columns at least, since memory comes in lines of eight numbers
_PROBE_CELLS = 1_000_000  # numbers to estimate the largest eigenvalue from
_POWER_STEPS = 15
_CLIP = 4.0  # rows longer than this many mean squares count less in a robust second moment


@dataclass(frozen=True)
class Sample:
    """Rows, targets and all that a gradient needs to know about them.

    Parameters
    ----------
    X : float64 array, C-ordered, or CSR array, of shape (n, d)
    y : array of shape (n,)
    weights : array of shape (n,), positive, or empty
    loss : Loss
    outputs : int
        1, or the number of classes.
    columns : Columns
        Centre and scale of the features.
    intercept : bool
    blocks : list of slices or arrays of row numbers
    """

    X: Any
    y: Array
    weights: Array
    loss: Loss
    outputs: int
    columns: Columns
    intercept: bool
    blocks: list[Rows]

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.y.size

    @cached_property
    def targets(self) -> Array:
        """Y as the loss wants it: ±1 in one column for each of several classes, unless it is softmax."""
        if self.loss.code == SOFTMAX or self.outputs == 1:
            return self.y
        return np.where(self.y[:, None] == np.arange(self.outputs), 1.0, -1.0)

    @cached_property
    def by_column(self) -> Any:
        """Sparse X with its columns side by side."""
        return self.X.tocsc()

    def scores(self, coef: Array, intercept: Array) -> Array:
        """⟨w, x − centre⟩ + b for every row, (n,) or (n, outputs)."""
        shift = intercept - coef @ self.columns.centre
        scores = np.asarray(self.X @ (coef[0] if self.outputs == 1 else coef.T))
        scores += shift[0] if self.outputs == 1 else shift
        return scores

    def losses(self, scores: Array) -> Array:
        """Loss of every row."""
        values = self.loss.value(scores, self.targets)
        return values if values.ndim == 1 else values.sum(axis=1)

    def slopes(self, scores: Array, rows: Rows | None = None) -> Array:
        """∂ℓ/∂score of every row, or of some."""
        if rows is None:
            return self.loss.slope(scores, self.targets)
        return self.loss.slope(scores[rows], self.targets[rows])

    def mean_gradient(self, slopes: Array, rows: Rows | None = None) -> Array:
        """Weighted mean over the rows, whose slopes are given: one product."""
        part = self.X if rows is None else self.X[rows]
        pulls, total = self._weighted(slopes, rows)
        return self._scaled(np.asarray(pulls.T @ part) / total, pulls.sum(axis=0) / total)

    def block_gradients(self, slopes: Array) -> Array:
        """Mean gradient of each block, flat, one row a block."""
        if sparse.issparse(self.X) or not isinstance(self.blocks[0], slice):
            return self._dealt_gradients(slopes)
        if self.outputs > 1:
            return np.stack([self.mean_gradient(slopes[rows], rows).ravel() for rows in self.blocks])
        products, sums = np.empty((len(self.blocks), self.X.shape[1])), np.empty(len(self.blocks))
        for j, rows in enumerate(self.blocks):
            pulls, total = self._weighted(slopes[rows], rows)
            products[j], sums[j] = pulls @ self.X[rows] / total, pulls.sum() / total
        return self._scaled(products, sums)

    def partials(self, slopes: Array, first: int, last: int) -> Array:
        """Partial derivatives of the coordinates first..last − 1 in all rows, one row a coordinate."""
        if first == self.X.shape[1]:
            return np.array(slopes[None])
        centre, inverse = self.columns.centre[first:last], 1.0 / self.columns.scale[first:last]
        if sparse.issparse(self.X):
            return self.by_column[:, first:last].toarray().T * slopes * inverse[:, None]
        return np.asarray(_gather(self.X[:, first:last], slopes, centre, inverse))

    def _weighted(self, slopes: Array, rows: Rows | None) -> tuple[Array, float]:
        if self.weights.size == 0:
            return slopes, float(len(slopes))
        weights = self.weights if rows is None else self.weights[rows]
        return (slopes.T * weights).T, float(weights.sum())

    def _scaled(self, products: Array, sums: Array) -> Array:
        """Means of slope × row, and of slopes, to gradients; one more column for the intercept."""
        level = np.atleast_1d(sums)[:, None]
        centred = (np.atleast_2d(products) - level * self.columns.centre) / self.columns.scale
        return np.hstack([centred, level]) if self.intercept else centred

    @cached_property
    def _dealt(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
        """Rows block by block, where each block starts and ends, and the share of each row in its block."""
        parts = [np.arange(self.size)[rows] for rows in self.blocks]
        order, sizes = np.concatenate(parts), [part.size for part in parts]
        weights = self.weights[order] if self.weights.size else np.ones(order.size)
        ends = np.cumsum([0, *sizes])
        return order, ends, weights / np.repeat(np.add.reduceat(weights, ends[:-1]), sizes)

    def _dealt_gradients(self, slopes: Array) -> Array:
        """Block gradients where a block's rows are not neighbours: one sparse product, no copy of X."""
        order, ends, share = self._dealt
        shape, found = (len(self.blocks), self.size), []
        for mine in slopes.reshape(self.size, -1).T:
            deal = sparse.csr_array((share * mine[order], order, ends), shape=shape)
            products = deal @ self.X
            dense = products.toarray() if sparse.issparse(products) else products
            found.append(self._scaled(dense, deal.sum(axis=1)))
        return np.concatenate(found, axis=1)


def _one_by_one(function: Callable[[Any], Any], tasks: list[Any]) -> list[Any]:
    return [function(task) for task in tasks]


@dataclass(frozen=True)
class Options:
    """What the aggregators can be told.

    Attributes
    ----------
    delta : float
        One minus the confidence of the M-estimate.
    psi, scale : str
        Names in ``PSI`` and ``SCALES``.
    middle : {"lower", "upper"}
        Which of the two middle blocks is the median of an even number.
    run : callable
        Runs a function over tasks, in any order; an engine's.
    """

    delta: float = 0.01
    psi: str = "gudermannian"
    scale: str = "m-scale"
    middle: str = "lower"
    run: Callable[[Callable[[Any], Any], list[Any]], object] = _one_by_one


@dataclass(frozen=True)
class Estimate:
    """A gradient, one row per output, and how many gradients of rows it took."""

    gradient: Array
    cost: int


class Mean:
    """The mean of all gradients (ERM-GD)."""

    def __init__(self, sample: Sample, options: Options) -> None:
        self.sample = sample

    def __call__(self, scores: Array) -> Estimate:
        """Return the estimate where the model has these scores."""
        return Estimate(self.sample.mean_gradient(self.sample.slopes(scores)), self.sample.size)


class GeometricMedianOfMeans:
    """Geometric median of the blocks' mean gradients (RGD-MoM, equation rgd_mom)."""

    def __init__(self, sample: Sample, options: Options) -> None:
        self.sample = sample

    def __call__(self, scores: Array) -> Estimate:
        """Return the estimate where the model has these scores; NaN where a block mean is not finite."""
        means = self.sample.block_gradients(self.sample.slopes(scores))
        finite = np.all(np.isfinite(means))
        point = geometric_median(means, tol=1e-9).point if finite else np.full(means.shape[1], np.nan)
        return Estimate(point.reshape(self.sample.outputs, -1), self.sample.size)


class MedianBlock:
    """Mean gradient of the block whose mean loss is the median (RGD-Lec, MoM-by-GD, equation rgd_lecue).

    The lower of the two middle blocks where their number is even (or the upper); the first of equal ones.
    Only that block's gradients are evaluated, and counted.
    """

    def __init__(self, sample: Sample, options: Options) -> None:
        self.sample = sample
        k = len(sample.blocks)
        self.rank = k // 2 if options.middle == "upper" else (k - 1) // 2

    def __call__(self, scores: Array) -> Estimate:
        """Return the estimate where the model has these scores; NaN where a loss is not a number."""
        risks = self._risks(self.sample.losses(scores))
        rows = self.sample.blocks[int(np.argsort(risks, kind="stable")[self.rank])]
        slopes = self.sample.slopes(scores, rows)
        gradient = self.sample.mean_gradient(slopes, rows)
        return Estimate(gradient * (np.nan if np.any(np.isnan(risks)) else 1.0), len(slopes))

    def _risks(self, losses: Array) -> Array:
        weights = self.sample.weights
        if weights.size == 0:
            return np.array([losses[rows].mean() for rows in self.sample.blocks])
        return np.array([losses[rows] @ weights[rows] / weights[rows].sum() for rows in self.sample.blocks])


class MEstimate:
    """M-estimate of every partial derivative (RGD-M, equation rgd_cat).

    θⱼ solves Σ ψ((∂ⱼ − θ)/sⱼ) = 0 with sⱼ = sqrt(n/log(1/δ)) × a scale of the centred partial derivatives.
    The last answers are where the next search starts, which saves time and changes nothing else.
    """

    def __init__(self, sample: Sample, options: Options) -> None:
        self.sample, self.options = sample, options
        coordinates = sample.X.shape[1] + sample.intercept
        self.scale = np.full((sample.outputs, coordinates), np.nan)
        self.offset = np.zeros((sample.outputs, coordinates))  # of the M-estimate from the mean
        size = effective_size(sample.y[None], sample.weights)
        self.widen = math.sqrt(size / -math.log(options.delta))
        self.blocks = max(3, math.ceil(-math.log(options.delta)))

    def __call__(self, scores: Array) -> Estimate:
        """Return the estimate where the model has these scores."""
        slopes = np.ascontiguousarray(self.sample.slopes(scores).reshape(self.sample.size, -1).T)
        gradient = np.empty_like(self.scale)

        def fill(tile: tuple[int, int, int]) -> None:
            output, first, last = tile
            at = (output, slice(first, last))
            gradient[at] = self._centres(self.sample.partials(slopes[output], first, last), at)

        self.options.run(fill, self._tiles())
        return Estimate(gradient, self.sample.size)

    def _tiles(self) -> list[tuple[int, int, int]]:
        """Output, first and last coordinate of each tile; the intercept is a tile of its own."""
        d, width = self.sample.X.shape[1], max(_LINE, _TILE_CELLS // self.sample.size)
        ranges = [(first, min(first + width, d)) for first in range(0, d, width)]
        ranges += [(d, d + 1)] if self.sample.intercept else []
        return [(output, *ends) for output in range(self.sample.outputs) for ends in ranges]

    def _centres(self, values: Array, at: Any) -> Array:
        found = self._solve(values, at)
        if np.all(np.isfinite(found)):
            return found
        # Squares may have left the range of floats: once more, with values of size one.
        sizes = row_sizes(values)
        self.scale[at], self.offset[at] = np.nan, 0.0
        found = sizes * self._solve(values / sizes[:, None], at)
        self.scale[at], self.offset[at] = np.nan, 0.0
        return found

    def _solve(self, values: Array, at: Any) -> Array:
        weights, means = self.sample.weights, means_of_rows(values, self.sample.weights)
        known = {"near": self.scale[at], "centres": means} if self.options.scale == "m-scale" else {}
        scale = SCALES[self.options.scale](values, weights, self.blocks, **known)
        starts = np.where(scale > 0, means + self.offset[at], means)
        found = m_estimates(values, weights, starts, self.widen * scale, PSI[self.options.psi])
        self.scale[at], self.offset[at] = scale, found - means
        return found


AGGREGATORS: dict[str, Callable[[Sample, Options], Callable[[Array], Estimate]]] = {
    "mean": Mean,
    "geometric_median_of_means": GeometricMedianOfMeans,
    "m_estimate": MEstimate,
    "median_block": MedianBlock,
}


def largest_moment(sample: Sample, *, rows: int, robust: bool) -> float:
    """Largest eigenvalue of the second moment of scaled rows, as it is in samples of that many rows.

    Robust: rows that are much longer than most are shortened.
    """
    n, d = sample.X.shape
    chosen = np.linspace(0, n - 1, min(rows, max(_PROBE_CELLS // d, 100))).astype(np.intp)
    part = sample.X[chosen]
    dense = np.asarray(part.toarray() if sparse.issparse(part) else part)
    scaled = (dense - sample.columns.centre) / sample.columns.scale
    z = np.column_stack([scaled, np.full(len(dense), float(sample.intercept))])
    share = sample.weights[chosen] / sample.weights[chosen].mean() if sample.weights.size else np.ones(len(z))
    if robust:
        limit = _CLIP * (expected_square_norm(dense, sample.columns) + sample.intercept)
        share = np.minimum(share, limit / np.maximum(np.einsum("ij,ij->i", z, z), 1e-300))
    return _power(z, share)


def _power(z: Array, share: Array) -> float:
    """Largest eigenvalue of Σ share z zᵀ / m, from below."""
    direction, size = np.random.default_rng(0).standard_normal((1, z.shape[1])), 1.0
    for _ in range(_POWER_STEPS):
        image = (share * (direction @ z.T)) @ z / len(z)
        size = max(float(np.linalg.norm(image)), 1e-300)
        direction = np.asarray(image / size)
    return size


@njit(nogil=True, cache=True)
def _gather(X, slopes, centre, inverse):  # type: ignore[no-untyped-def]
    """Return slope × scaled feature, transposed, so that every column is read in one run from now on."""
    found = np.empty((X.shape[1], len(X)))
    for i in range(len(X)):
        for j in range(X.shape[1]):
            found[j, i] = slopes[i] * (X[i, j] - centre[j]) * inverse[j]
    return found
