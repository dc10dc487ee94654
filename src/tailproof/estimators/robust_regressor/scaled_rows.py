"""Rows for the truncation path: scaled tile by tile, with a column of ones; and glitches to leave out."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.core.scaling import FeatureScale, robust_columns, sample_rows
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning


@dataclass(frozen=True)
class ScaledRows:
    """Rows to fit, with positive ``weights``; few enough, they are scaled once and ``ready``."""

    X: Any
    y: Array
    weights: Array
    columns: FeatureScale
    loss: Loss
    fit_intercept: bool
    ready: bool = False
    tuning: Tuning = DEFAULT

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def width(self) -> int:
        """Number of columns, with the intercept's."""
        return int(self.columns.centre.size) + 1

    def take(self, rows: NDArray[np.intp]) -> ScaledRows:
        """The same for a part of the rows."""
        return replace(self, X=self.X[rows], y=self.y[rows], weights=self.weights[rows])

    def others(self, X: Any, y: Array, weights: Array) -> ScaledRows:
        """Other rows of the same columns."""
        return replace(self, X=X, y=y, weights=weights, ready=False).scaled()

    def uneven(self, part: slice) -> Array | None:
        """Weights of a slice of rows; None where all are one, which saves a product."""
        return None if self._even else self.weights[part]

    @functools.cached_property
    def _even(self) -> bool:
        return bool(np.all(self.weights == 1.0))

    def tiles(self) -> Iterator[tuple[slice, Array]]:
        """Scaled rows, a few at a time."""
        size = max(64, self.tuning.tile_bytes // (8 * self.width))
        for start in range(0, self.n, size):
            part = slice(start, min(start + size, self.n))
            yield part, self._scaled(self.X[part])

    def scaled(self) -> ScaledRows:
        """The same, scaled for good if that takes little memory."""
        if self.ready or 8 * self.n * self.width > self.tuning.ready_bytes:
            return self
        return replace(self, X=self._scaled(self.X), ready=True)

    def _scaled(self, chosen: Any) -> Array:
        if self.ready:
            return np.asarray(chosen)
        dense = chosen.toarray() if sparse.issparse(chosen) else chosen
        Z = np.empty((dense.shape[0], self.width))
        np.subtract(dense, self.columns.centre, out=Z[:, :-1])
        Z[:, :-1] /= self.columns.scale
        Z[:, -1] = float(self.fit_intercept)
        return Z

    def linear(self, theta: Array) -> Array:
        """Zθ, transposed: one row for each column of θ."""
        predictions = np.empty((theta.shape[1], self.n))
        for part, Z in self.tiles():
            predictions[:, part] = theta.T @ Z.T
        return predictions

    def unscaled(self, theta: Array) -> tuple[Array, Array]:
        """Coefficients, one row for each column of θ, and intercepts, for the columns as given."""
        coef = (theta[:-1] / self.columns.scale[:, None]).T
        return coef, float(self.fit_intercept) * theta[-1] - coef @ self.columns.centre


@dataclass(frozen=True)
class Whitening:
    """Coordinates φ with θ = Bφ in which the Gram matrix is the identity and collinear directions are gone.

    Attributes
    ----------
    map : array of shape (width, rank)
        B.
    slopes : array of shape (rank, rank)
        The quadratic form ‖slopes of scaled columns‖²: what a ridge penalty needs.
    """

    map: Array
    slopes: Array


def rows_of(
    X: Any, y: Array, weights: Array, loss: Loss, fit_intercept: bool, tuning: Tuning = DEFAULT
) -> ScaledRows:
    """Rows with a robust centre and scale for every column."""
    sample = sample_rows(X, np.arange(X.shape[0]))
    columns = robust_columns(sample, centred=fit_intercept)
    if sparse.issparse(sample) and fit_intercept:
        columns = _with_full_columns(columns, sample)
    return ScaledRows(X, y, weights, columns, loss, fit_intercept, tuning=tuning).scaled()


def _with_full_columns(columns: FeatureScale, sample: Any) -> FeatureScale:
    """Sparse columns without zeros are centred as dense ones: they may lie far from zero."""
    full = np.flatnonzero(np.bincount(sample.indices, minlength=sample.shape[1]) == sample.shape[0])
    dense = robust_columns(sample[:, full].toarray())
    centre, scale = columns.centre.copy(), columns.scale.copy()
    centre[full], scale[full] = dense.centre, dense.scale
    return replace(columns, centre=centre, scale=scale)


def whitening_of(rows: ScaledRows) -> Whitening:
    """Whiten, so that every later system is well conditioned, whatever the columns."""
    total = np.zeros((rows.width, rows.width))
    for part, Z in rows.tiles():
        total += gram(Z, rows.uneven(part))
    values, vectors = linalg.eigh(total / rows.weights.sum())
    kept = values > rows.tuning.collinear * values[-1]
    B = vectors[:, kept] / np.sqrt(values[kept])
    return Whitening(B, B[:-1].T @ B[:-1])


def gram(Z: Array, weights: Array | None) -> Array:
    """Z' diag(weights) Z, as one symmetric product; no weights are ones."""
    A = Z if weights is None else Z * np.sqrt(weights)[:, None]
    return np.asarray(A.T @ A)


def glitches(X: Any, tuning: Tuning = DEFAULT) -> NDArray[np.intp]:
    """Rows with a measurement error: a feature far beyond all others of its column.

    A feature counts as a glitch if it is more than 100 robust scales from the centre, in at most 1% of the
    rows (or one), and beyond a gap: 30 times as far as the next one. Heavy tails rarely have such a gap, and
    a column that is constant apart from such rows is a rare indicator.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_t(3, (1_000, 2))
    >>> X[[3, 7], 1] = 1e6
    >>> glitches(X).tolist()
    [3, 7]
    """
    columns = robust_columns(sample_rows(X, np.arange(X.shape[0])))
    with np.errstate(invalid="ignore", over="ignore"):
        reach = np.maximum(_dense(X.max(axis=0)) - columns.centre, columns.centre - _dense(X.min(axis=0)))
        suspects = np.flatnonzero(reach > tuning.glitch_scales * columns.scale)
    rows = [
        _beyond_a_gap(
            _dense(X[:, [j]] if sparse.issparse(X) else X[:, j]), columns.centre[j], columns.scale[j], tuning
        )
        for j in suspects
    ]
    return np.unique(np.concatenate(rows)) if rows else np.empty(0, dtype=np.intp)


def _dense(part: Any) -> Array:
    return np.ravel(part.toarray() if sparse.issparse(part) else part)


def _beyond_a_gap(values: Array, centre: float, scale: float, tuning: Tuning) -> NDArray[np.intp]:
    most = max(1, int(tuning.glitch_share * values.size))
    away = np.abs(values - centre)
    order = np.argsort(-away, kind="stable")[: most + 1]
    far = away[order]
    gaps = np.flatnonzero(
        (far[:-1] > tuning.glitch_scales * scale) & (far[:-1] > tuning.glitch_gap * far[1:])
    )
    if gaps.size == 0:
        return np.empty(0, dtype=np.intp)
    flagged = order[: gaps[-1] + 1]
    others = np.delete(values, flagged)
    return flagged if np.any(others != others[0]) else np.empty(0, dtype=np.intp)
