"""Rows of a linear model and their gradients, which are slope × centred row and never held all at once.

Block means are one product for all blocks of a size; partial derivatives come a few columns at a time, as
many as a cache holds. Gradients are in scaled coordinates (see :mod:`tailproof.core.scaling`): one row per
output, the intercept last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.core.scaling import FeatureScale, expected_square_norm
from tailproof.native.row_gradients import partials

RowIndex = slice | NDArray[np.intp]

_PROBE_CELLS = 1_000_000  # numbers to estimate the largest eigenvalue from
_POWER_STEPS = 15
_CLIP = 4.0  # rows longer than this many mean squares count less in a robust second moment


@dataclass(frozen=True)
class RowGradients:
    """Rows, targets and all that a gradient needs to know about them.

    Parameters
    ----------
    X : float64 array, C-ordered, or CSR array, of shape (n, d)
    y : array of shape (n,)
    weights : array of shape (n,), positive, or empty
    loss : Loss
    outputs : int
        1, or the number of classes.
    columns : FeatureScale
        Centre and scale of the features.
    intercept : bool
    blocks : list of slices that follow each other, or of arrays of row numbers
    """

    X: Any
    y: Array
    weights: Array
    loss: Loss
    outputs: int
    columns: FeatureScale
    intercept: bool
    blocks: list[RowIndex]

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.y.size

    @cached_property
    def targets(self) -> Array:
        """Y as the loss wants it: ±1 in one column for each of several classes, unless it is softmax."""
        return self.loss.targets(self.y, self.outputs)

    @cached_property
    def by_column(self) -> Any:
        """Sparse X with its columns side by side."""
        return self.X.tocsc()

    @cached_property
    def inverse_scale(self) -> Array:
        """One over the scale of every column."""
        return 1.0 / self.columns.scale

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

    def slopes(self, scores: Array, rows: RowIndex | None = None) -> Array:
        """∂ℓ/∂score of every row, or of some."""
        if rows is None:
            return self.loss.slope(scores, self.targets)
        return self.loss.slope(scores[rows], self.targets[rows])

    def mean_gradient(self, slopes: Array, rows: RowIndex | None = None) -> Array:
        """Weighted mean over the rows, whose slopes are given: one product."""
        part = self.X if rows is None else self.X[rows]
        pulls, total = self._weighted(slopes, rows)
        return self._scaled(np.asarray(pulls.T @ part) / total, pulls.sum(axis=0) / total)

    def block_gradients(self, slopes: Array) -> Array:
        """Mean gradient of each block, flat, one row a block."""
        if sparse.issparse(self.X) or not isinstance(self.blocks[0], slice):
            return self._dealt_gradients(slopes)
        pulls, k = self._weighted(slopes, None)[0], len(self.blocks)
        parts = [self._products(pulls, *group) for group in self._groups]
        products, sums = (np.concatenate(part) / self._totals for part in zip(*parts, strict=True))
        gradients = self._scaled(products.reshape(k * self.outputs, -1), sums.ravel())
        return gradients.reshape(k, -1)

    def block_means(self, values: Array) -> Array:
        """Weighted mean of the values of the rows of each block."""
        mine = values if self.weights.size == 0 else values * self.weights
        starts = [rows.start for rows in self.blocks if isinstance(rows, slice)]
        sums = np.add.reduceat(mine, starts) if starts else [mine[rows].sum() for rows in self.blocks]
        return np.asarray(sums / self._totals[:, 0, 0])

    def partials(self, slopes: Array, first: int, last: int, into: Array) -> Array:
        """Partial derivatives of the coordinates first..last − 1 in all rows, one row a coordinate."""
        if first == self.X.shape[1]:
            return np.array(slopes[None])
        inverse = self.inverse_scale
        if sparse.issparse(self.X):
            return self.by_column[:, first:last].toarray().T * slopes * inverse[first:last, None]
        partials(self.X, slopes, self.columns.centre, inverse, first, into[: last - first])
        return into[: last - first]

    def _weighted(self, slopes: Array, rows: RowIndex | None) -> tuple[Array, float]:
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
    def _groups(self) -> list[tuple[slice, int]]:
        """Rows of blocks that follow each other and have the same size, and how many blocks they are."""
        groups, start = [], 0
        for size, group in groupby(self.y[rows].size for rows in self.blocks):
            count = len(list(group))
            groups.append((slice(start, start + size * count), count))
            start += size * count
        return groups

    @cached_property
    def _totals(self) -> Array:
        """Weight of each block, in the shape of a column."""
        weights = self.weights if self.weights.size else np.ones(self.size)
        return np.array([weights[rows].sum() for rows in self.blocks])[:, None, None]

    def _products(self, pulls: Array, rows: slice, count: int) -> tuple[Array, Array]:
        """Sums of slope × row, and of slopes, block by block: one call of BLAS for all blocks of a size."""
        mine = pulls[rows].reshape(count, -1, self.outputs).transpose(0, 2, 1)
        return mine @ self.X[rows].reshape(count, -1, self.X.shape[1]), mine.sum(axis=2)[..., None]

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
        shape, gradients = (len(self.blocks), self.size), []
        for mine in slopes.reshape(self.size, -1).T:
            deal = sparse.csr_array((share * mine[order], order, ends), shape=shape)
            products = deal @ self.X
            dense = products.toarray() if sparse.issparse(products) else products
            gradients.append(self._scaled(dense, deal.sum(axis=1)))
        return np.concatenate(gradients, axis=1)


def largest_moment(sample: RowGradients, *, rows: int, robust: bool) -> float:
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
