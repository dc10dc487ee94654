"""Rows for the truncation path: scaled tile by tile, with a column of ones, and whitened."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.core.scaling import FeatureScale, robust_columns, sample_rows
from tailproof.estimators.robust_regressor.covariances import covariances_by
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning
from tailproof.native.columns import by_columns, column_products
from tailproof.native.fit_search import Penalised
from tailproof.native.levels import row_products
from tailproof.native.rows import ends_and_square
from tailproof.native.scaling import scale_and_map_rows, scale_rows

_CONSTANT = 1e-9  # variance of a scaled column of one value, which rounding may leave
_ROUNDING = 1e-24  # of the largest square: what centring leaves of a constant column
_FEW_COLUMNS = 8  # below, a product of matrices takes longer than a plain loop
_MANY_FUNCTIONS = 32  # of rows, whose products take as long as those of so many columns
_ADDS_UP = 1e-3  # of a constant: the part of it that columns add up to, if they do
_LONGEST = 1e3  # root mean square of a scaled column: what is longer would pass for all there is
_LARGEST_SINGLE = 1e9  # coordinate or target of rows in single precision, whose largest number is 3e38
_GOLDEN = 0.6180339887498949  # multiples of it, less their integer parts, are spread evenly


@dataclass(frozen=True)
class Whitening:
    """Coordinates φ with θ = Bφ in which the Gram matrix is the identity and collinear directions are gone.

    Attributes
    ----------
    map : array of shape (width, rank)
        B, whose columns are orthogonal.
    inverse : array of shape (rank,)
        The diagonal of B'B: inverse eigenvalues of the Gram matrix.
    """

    map: Any
    inverse: Array

    @property
    def rank(self) -> int:
        """Number of coordinates."""
        return int(self.inverse.size)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Columns that are not constant in the rows that the coordinates are from."""
        parts = self.of_slopes(np.eye(len(self.map))[:, :-1])
        return np.asarray((parts**2).sum(axis=0) > _CONSTANT)

    @property
    def constant(self) -> Array:
        """The last row of the map: what a change of φ does to the constant."""
        return np.asarray(self.map[-1])

    @property
    def least_slopes(self) -> Array:
        """The map to θ of the same predictions whose slopes are the least, and not its constant with them.

        Where columns add up to a constant, as those of all categories do, the map itself gives them a share
        of that, and with it the error of the intercept.
        """
        lost = -self.map @ (self.constant / self.inverse)
        lost[-1] += 1.0  # what collinear columns leave of a constant, which adds nothing to predictions
        square = float(lost[:-1] @ lost[:-1])
        if square <= _ADDS_UP**2:
            return np.asarray(self.map)
        return np.asarray(self.map - np.outer(lost, lost[:-1] @ self.map[:-1]) / square)

    def coordinates(self, theta: Array) -> Array:
        """The φ closest to θ."""
        return np.asarray((self.map.T @ theta) / self.inverse[:, None])

    @property
    def direction_of_constant(self) -> Array:
        """φ of a constant, of length one."""
        direction = self.constant / self.inverse
        return np.asarray(direction / max(float(np.linalg.norm(direction)), 1e-300))

    def without_constant(self, phi: Array) -> Array:
        """φ without the direction of the constant, which is that of the mean row."""
        direction = self.direction_of_constant
        return np.asarray(phi - np.outer(direction, direction @ phi))

    def of_slopes(self, theta: Array) -> Array:
        """The φ closest to θ, without the constant: inner products are those of slopes over rows."""
        return self.without_constant(self.coordinates(theta))

    def slopes(self, phi: Array) -> Array:
        """Sφ, where φ'Sφ is the square norm of the slopes of the scaled columns: the gradient of a ridge."""
        return self.inverse[:, None] * phi - np.outer(self.constant, self.constant @ phi)

    def slopes_matrix(self) -> Array:
        """S itself."""
        return np.diag(self.inverse) - np.outer(self.constant, self.constant)


@dataclass(frozen=True)
class ScaledRows:
    """Rows to fit, with positive ``weights``.

    Few enough, they are ``ready``: ``X`` holds them scaled, and whitened once there is a ``basis``. Otherwise
    they are scaled tile by tile at every pass.
    """

    X: Any
    y: Array
    weights: Array
    columns: FeatureScale
    loss: Loss
    fit_intercept: bool
    ready: bool = False
    tuning: Tuning = DEFAULT
    basis: Whitening | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def width(self) -> int:
        """Number of columns, with the intercept's."""
        return int(self.columns.centre.size) + 1

    @property
    def parameters(self) -> int:
        """Directions of the rows, which constant and collinear columns add nothing to."""
        return self.whitening.rank

    @property
    def square_norm(self) -> float:
        """Mean square norm of a scaled row, which a penalty is measured in; not of whitened rows."""
        if not self.ready:
            return float(self.width)
        if "products" in vars(self):
            return float(np.count_nonzero(np.diag(self.products)[:-1]) + 1)
        return float(np.count_nonzero(self.X[:, :-1].any(axis=0)) + 1)

    @property
    def whitening(self) -> Whitening:
        """The basis, once there is one."""
        if self.basis is None:
            raise ValueError("these rows have no basis yet: call whitened() first")
        return self.basis

    @property
    def in_basis(self) -> bool:
        """Whether tiles are whitened rows."""
        return self.ready and self.basis is not None

    def take(self, rows: NDArray[np.intp]) -> ScaledRows:
        """The same for a part of the rows."""
        X = self.X.take(rows, axis=0) if isinstance(self.X, np.ndarray) else self.X[rows]
        return replace(self, X=X, y=self.y.take(rows), weights=self.weights.take(rows))

    @functools.cached_property
    def tenth(self) -> ScaledRows:
        """The same for one row in ten, made once."""
        return self.take(self.places_of_tenth)

    @functools.cached_property
    def places_of_tenth(self) -> NDArray[np.intp]:
        """One row of every ten, each time another of them: columns of weekdays or turns vary in it too."""
        tens = np.arange(-(-self.n // 10))
        turns = _GOLDEN * tens
        which = (10 * (turns - np.floor(turns))).astype(np.intp)
        return np.minimum(10 * tens + which, self.n - 1)

    def with_scales_of(self, X: Any) -> ScaledRows:
        """The same with scales of other rows for columns that are constant in these, which tell none."""
        constant = np.flatnonzero(~self.whitening.seen)
        scale = self.columns.scale.copy()
        for column in constant:
            scale[column] = _spread(X[:, [column]], self.columns.centre[column]) or scale[column]
        return replace(self, columns=replace(self.columns, scale=scale)) if constant.size else self

    def others(self, X: Any, y: Array, weights: Array) -> ScaledRows:
        """Other rows of the same columns, in the same basis."""
        given = replace(self, X=X, y=y, weights=weights, ready=False, basis=None)
        if self.basis is not None and given._is_quickly_mapped(self.basis):
            columns, by = self.columns, np.ascontiguousarray(self.basis.map)
            mapped = scale_and_map_rows(X, columns.centre, columns.scale, float(self.fit_intercept), by)
            return replace(given, X=mapped, basis=self.basis, ready=True)
        scaled = given.scaled()
        if self.basis is None:
            return scaled
        if not scaled.ready or self.basis.rank < self.width:
            return scaled.in_coordinates(self.basis)
        for part, Z in scaled.tiles():
            # These rows are nobody else's: to get memory for others takes longer than the product.
            scaled.X[part] = Z @ self.basis.map
        return replace(scaled, basis=self.basis)

    def _is_quickly_mapped(self, basis: Whitening) -> bool:
        """Whether rows as given are scaled and whitened in one pass: few columns, all of them kept."""
        return basis.rank == self.width <= _FEW_COLUMNS and self._fits_ready() and _is_plain(self.X)

    @functools.cached_property
    def for_steps(self) -> Any:
        """Whitened rows for products that only lead to the next step, which sums in full precision judge.

        In single precision these take half the time. What is not an array stays as it is, and so do rows of
        hardly any weight, whose coordinates may be beyond it, or with targets that are.
        """
        return self.X.astype(np.float32) if self._fits_single else self.X

    @functools.cached_property
    def _fits_single(self) -> bool:
        if not isinstance(self.X, np.ndarray):
            return False
        largest = max(max(a.max(initial=0.0), -a.min(initial=0.0)) for a in (self.X, self.y))
        return bool(largest <= _LARGEST_SINGLE)

    @property
    def stays_in_cache(self) -> bool:
        """Whether whitened rows do in single precision, while one fit after the other takes its steps."""
        few = 4 * self.n * self.width <= self.tuning.cached_bytes
        return few and self.in_basis and self.loss.link == "identity" and self._fits_single

    def for_searches(self, damping: float) -> Penalised:
        """Whitened rows and their penalty, for compiled steps of fits."""
        basis = self.whitening
        X, constant = np.ascontiguousarray(self.X), np.ascontiguousarray(basis.constant)
        return Penalised(X, basis.inverse, constant, damping, self.tuning.cg_steps)

    def uneven(self, part: slice) -> Array | None:
        """Weights of a slice of rows; None where all are one, which saves a product."""
        return None if self.even and self.weights[0] == 1.0 else self.weights[part]

    @functools.cached_property
    def even(self) -> bool:
        """Whether all weights are equal."""
        low, high, _ = self._ends_of_weights
        return low == high

    @functools.cached_property
    def _ends_of_weights(self) -> tuple[float, float, float]:
        """The least and the largest weight, and the sum of squares, in one reading."""
        return ends_and_square(np.ascontiguousarray(self.weights))

    def mean(self, values: Array) -> float:
        """Weighted mean of a number of every row."""
        return float(self.weights @ values) / self.total

    @functools.cached_property
    def total(self) -> float:
        """Sum of the weights."""
        return self.n * float(self.weights[0]) if self.even else float(self.weights.sum())

    @functools.cached_property
    def size(self) -> float:
        """Effective number of rows."""
        return float(self.total**2 / self._ends_of_weights[2])

    @functools.cached_property
    def mean_tile(self) -> Array:
        """The weighted mean of the rows of tiles, made once."""
        if self.width <= _FEW_COLUMNS:
            return np.asarray(self._sums_and_products[0] / self.total)
        sums = np.zeros(self.whitening.rank if self.in_basis else self.width)
        for part, Z in self.tiles():
            sums += self.weights[part] @ Z
        return sums / self.total

    def tile_to_columns(self, row: Array) -> Array:
        """A mean row of tiles, for scaled columns."""
        return np.asarray((row / self.whitening.inverse) @ self.whitening.map.T if self.in_basis else row)

    def tiles(self) -> Iterator[tuple[slice, Array]]:
        """Scaled rows, whitened if they are ready, a few at a time; the next take the place of the last."""
        size = max(64, self.tuning.tile_bytes // (8 * self.width))
        # In memory that is there already: to get it anew takes as long as to scale the rows.
        place = np.empty((0 if self.ready else min(size, self.n), self.width))
        for start in range(0, self.n, size):
            part = slice(start, min(start + size, self.n))
            yield part, self._scaled(self.X[part], place[: part.stop - start])

    def gathered(self) -> Array:
        """All scaled rows, whitened if they are ready, as one array."""
        return self._scaled(self.X)

    def scaled(self) -> ScaledRows:
        """The same, scaled for good if that takes little memory."""
        if self.ready or not self._fits_ready():
            return self
        return replace(self, X=self._scaled(self.X), ready=True)

    def _fits_ready(self) -> bool:
        wide = self.width > self.tuning.hessian_columns
        most = self.tuning.ready_bytes_of_wide if wide else self.tuning.ready_bytes
        return 8 * self.n * self.width <= most

    def whitened(self) -> ScaledRows:
        """The same in whitened coordinates, by the smaller of the two Gram matrices."""
        dual = self.ready and self.n < self.width
        return self.in_coordinates(_dual_whitening(self) if dual else _whitening(self))

    def in_coordinates(self, basis: Whitening) -> ScaledRows:
        """The same in the coordinates of a basis."""
        return replace(self, X=self.X @ basis.map if self.ready else self.X, basis=basis)

    def _scaled(self, chosen: Any, place: Array | None = None) -> Array:
        if self.ready:
            return np.asarray(chosen)
        dense = chosen.toarray() if sparse.issparse(chosen) else chosen
        columns, constant = self.columns, float(self.fit_intercept)
        if _is_plain(dense):
            return scale_rows(dense, columns.centre, columns.scale, constant, place)
        Z = np.empty((dense.shape[0], self.width)) if place is None else place
        np.subtract(dense, columns.centre, out=Z[:, :-1])
        Z[:, :-1] /= columns.scale
        Z[:, -1] = constant
        return Z

    def multiplier(self, phi: Array) -> Array:
        """What a tile is multiplied with to predict: φ, or θ = Bφ."""
        return phi if self.in_basis else self.whitening.map @ phi

    def predictions(self, phi: Array) -> Array:
        """Linear predictions, one row for each column of φ."""
        theta = self.multiplier(phi)
        if self.in_basis and phi.shape[1] == 1:
            return np.asarray(self.X @ theta[:, 0])[None]
        predictions = np.empty((phi.shape[1], self.n))
        for part, Z in self.tiles():
            np.matmul(theta.T, Z.T, out=predictions[:, part])
        return predictions

    def covariances(self, theta: Array) -> Array:
        """Of linear functions of the rows, one for each column of θ, or mean products without an intercept.

        In whitened coordinates they would be inner products, but for rows that the basis is not from: a basis
        of m rows errs by √(2/m) along any direction.
        """
        slopes = theta.copy()
        slopes[-1] = 0.0
        multiplier = self.multiplier(self.whitening.coordinates(slopes))
        if self.width <= _MANY_FUNCTIONS:
            products = multiplier.T @ self.products @ multiplier
        else:
            products = np.sum([gram(Z @ multiplier, self.uneven(part)) for part, Z in self.tiles()], axis=0)
        return covariances_by(
            products, self.total * (self.mean_tile @ multiplier), self.total, self.fit_intercept
        )

    @functools.cached_property
    def products(self) -> Array:
        """Sums of products of the columns of tiles."""
        if self.width <= _FEW_COLUMNS:
            return self._sums_and_products[1]
        return np.asarray(functools.reduce(np.add, (gram(Z, self.uneven(part)) for part, Z in self.tiles())))

    @functools.cached_property
    def _sums_and_products(self) -> tuple[Array, Array]:
        """Sums of the columns of tiles and of their products, in one reading of short rows."""
        parts = [row_products(Z, self.uneven(part)) for part, Z in self.tiles()]
        return functools.reduce(np.add, [sums for sums, _ in parts]), functools.reduce(
            np.add, [products for _, products in parts]
        )

    def variances(self, X: Any) -> Array:
        """Of scaled columns, whose features are given as they are; mean squares without an intercept."""
        mean = self.tile_to_columns(self.mean_tile) * float(self.fit_intercept)
        return np.asarray(np.maximum(self._squares(X) / self.total - mean**2, 0.0)[:-1])

    def _squares(self, X: Any) -> Array:
        """Sums of squares of scaled columns."""
        if self.in_basis and self.parameters == self.width <= _MANY_FUNCTIONS:
            back = self.whitening.map / self.whitening.inverse
            return np.einsum("ij,jk,ik->i", back, self.products, back)
        squares = np.zeros(self.width)
        for part, Z in replace(self, X=X, ready=False, basis=None).tiles():
            squares += np.einsum("ij,ij->j", Z, Z) if self.uneven(part) is None else self.weights[part] @ Z**2
        return squares

    def unscaled(self, theta: Array) -> tuple[Array, Array]:
        """Coefficients, one row for each column of θ, and intercepts, for the columns as given."""
        coef = (theta[:-1] / self.columns.scale[:, None]).T
        return coef, float(self.fit_intercept) * theta[-1] - coef @ self.columns.centre


def rows_of(
    X: Any, y: Array, weights: Array, loss: Loss, fit_intercept: bool, tuning: Tuning = DEFAULT
) -> ScaledRows:
    """Rows with a robust centre and scale for every column, whether they are kept sparse or not."""
    sample = sample_rows(X, [np.arange(X.shape[0])], dense=True)
    columns = robust_columns(sample, centred=fit_intercept)
    return _shortened(ScaledRows(X, y, weights, columns, loss, fit_intercept, tuning=tuning).scaled())


def _shortened(rows: ScaledRows) -> ScaledRows:
    """The same with larger scales for columns whose far rows make them many times as long as others.

    A robust scale does not see a part of the rows that is a million scales away. Beside such a column all
    others would count as rounding, and collinear.
    """
    squares = np.zeros(rows.width)
    for _, Z in rows.tiles():
        squares += np.einsum("ij,ij->j", Z, Z)
    times = np.sqrt(squares[:-1] / rows.n) / _LONGEST
    if not (times > 1.0).any():
        return rows
    times = np.where(np.isfinite(times), np.maximum(times, 1.0), 1.0)
    columns = replace(rows.columns, scale=rows.columns.scale * times)
    return replace(rows, X=rows.X / np.append(times, 1.0) if rows.ready else rows.X, columns=columns)


def _is_plain(X: Any) -> bool:
    """Whether compiled loops take rows as they are."""
    return isinstance(X, np.ndarray) and X.dtype == np.float64 and X.flags.c_contiguous and X.flags.aligned


def _whitening(rows: ScaledRows) -> Whitening:
    values, vectors = np.linalg.eigh(rows.products / rows.total)
    values, kept = _kept(values, rows.tuning)
    vectors = vectors[:, kept] * _varies(np.diag(rows.products))[:, None]
    return Whitening(vectors / np.sqrt(values[kept]), 1.0 / values[kept])


def _dual_whitening(rows: ScaledRows) -> Whitening:
    """The same from inner products of rows, where columns exceed rows."""
    weights = rows.weights / rows.weights.sum()
    A = rows.X * np.sqrt(weights)[:, None]
    values, vectors = np.linalg.eigh(A @ A.T)
    values, kept = _kept(values, rows.tuning)
    columns = A.T * _varies(np.einsum("ij,ij->j", A, A))[:, None]
    return Whitening(columns @ (vectors[:, kept] / values[kept]), 1.0 / values[kept])


def _kept(values: Array, tuning: Tuning) -> tuple[Array, NDArray[np.bool_]]:
    """Eigenvalues, and which directions stay: where rows are all zero, one that changes nothing."""
    if values[-1] > 0:
        return values, values > tuning.collinear * values[-1]
    return np.ones_like(values), np.arange(values.size) == values.size - 1


def _varies(squares: Array) -> NDArray[np.bool_]:
    """Which columns do, by their sums of squares: rounding of a constant would pass for a slope."""
    return np.asarray(squares > _ROUNDING * squares.max(initial=0.0))


def over_sizes(Z: Array, by: Array, sizes: Array, features: Array | None = None) -> Array:
    """Rows times a matrix over their sizes, a one, and features, if any; column by column."""
    rows, one = (by.T @ Z.T) / sizes, np.ones((1, len(Z)))
    return np.concatenate([rows, one] if features is None else [rows, one, features.T]).T


def gram(Z: Array, weights: Array | None) -> Array:
    """Z' diag(weights) Z, as one symmetric product; no weights are ones."""
    if by_columns(Z):
        return column_products(Z, weights)
    A = Z if weights is None else Z * np.sqrt(weights)[:, None]
    return np.asarray(A.T @ A)


def _spread(column: Any, centre: float) -> float:
    """Root mean square of the distances to a centre; zero for a constant."""
    values = column.toarray() if sparse.issparse(column) else np.asarray(column, dtype=np.float64)
    away = np.abs(values - centre)
    largest = float(away.max(initial=0.0))
    return largest * float(np.sqrt(np.mean((away / largest) ** 2))) if 0 < largest < np.inf else 0.0
