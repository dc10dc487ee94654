"""Sparse rows for the truncation path, where columns are too many for a Gram matrix.

Nothing is made dense: products with the entries alone give gradients, and conjugate gradients solve the
weighted normal equations of all levels together, preconditioned by their diagonal. Columns are scaled by
their entries, not by their variance: a rare category is then drawn to zero more than a frequent one, as it
should be, since a penalty says that all effects are of one size.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.core.scaling import FeatureScale, robust_columns, sample_rows
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, Whitening
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning


@dataclass(frozen=True, eq=False)
class SparseTable:
    """The rows (x − centre)/scale with a constant beside them, of which x/scale alone is kept.

    Parameters
    ----------
    entries : sparse array of shape (n, d)
        x/scale.
    offset : array of shape (d,)
        centre/scale.
    constant : float

    Examples
    --------
    >>> table = SparseTable(sparse.csr_array(np.eye(2)), np.array([0.5, 0.0]), 1.0)
    >>> (table @ np.eye(3)).tolist()
    [[0.5, 0.0, 1.0], [-0.5, 1.0, 1.0]]
    >>> (table.T @ np.array([1.0, 2.0])).tolist()
    [-0.5, 2.0, 3.0]
    """

    entries: Any
    offset: Array
    constant: float
    __array_ufunc__ = None  # products with arrays are this class's own

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, the constant among them."""
        return int(self.entries.shape[0]), int(self.entries.shape[1]) + 1

    @functools.cached_property
    def centred(self) -> NDArray[np.intp]:
        """Columns that are centred: few, if any."""
        return np.flatnonzero(self.offset)

    @property
    def T(self) -> TransposedTable:  # noqa: N802
        """The transpose, for products."""
        return TransposedTable(self)

    def __getitem__(self, rows: Any) -> SparseTable:
        return replace(self, entries=self.entries[rows])

    def __rmatmul__(self, v: Array) -> Array:
        return (self.T @ v.T).T

    def __matmul__(self, x: Array) -> Array:
        return np.asarray(self.entries @ x[:-1] + (self.constant * x[-1] - self.offset @ x[:-1]))


@dataclass(frozen=True, eq=False)
class TransposedTable:
    """The transpose of a table: products with arrays on both sides."""

    table: SparseTable
    __array_ufunc__ = None

    def __matmul__(self, v: Array) -> Array:
        table, total = self.table, np.sum(v, axis=0, keepdims=True)
        image = table.entries.T @ v
        if table.centred.size:
            image[table.centred] -= np.multiply.outer(table.offset[table.centred], total[0])
        return np.concatenate([image, table.constant * total])

    def __rmatmul__(self, x: Array) -> Array:
        return (self.table @ x.T).T


@dataclass(frozen=True)
class DiagonalWhitening(Whitening):
    """Coordinates in which every column has mean square one, whatever their products are."""

    @classmethod
    def of(cls, mean_squares: Array) -> DiagonalWhitening:
        """From the mean squares of scaled columns, the constant last."""
        inverse = 1.0 / np.where(mean_squares > 0, mean_squares, 1.0)
        return cls(
            sparse.dia_array((np.sqrt(inverse)[None], [0]), shape=(inverse.size, inverse.size)), inverse
        )

    @property
    def constant(self) -> Array:
        """The last row of the map."""
        row = np.zeros(self.rank)
        row[-1] = np.sqrt(self.inverse[-1])
        return row

    def slopes(self, phi: Array) -> Array:
        """Sφ, where φ'Sφ is the square norm of the slopes of the scaled columns."""
        pull = self.inverse[:, None] * phi
        pull[-1] = 0.0
        return pull


@dataclass(frozen=True)
class SparseRows(ScaledRows):
    """Rows in a :class:`SparseTable`, always whitened column by column.

    ``mean_square`` is the mean square norm of scaled rows.
    """

    mean_square: float = 1.0

    @property
    def square_norm(self) -> float:
        """Mean square norm of a scaled row: sparse ones are short, however many columns there are."""
        return self.mean_square

    def tiles(self) -> Any:
        """All rows at once: they take little memory."""
        yield slice(0, self.n), self.X

    def scaled(self) -> ScaledRows:
        """The same."""
        return self

    def whitened(self) -> ScaledRows:
        """The same."""
        return self

    def others(self, X: Any, y: Array, weights: Array) -> ScaledRows:
        """Other rows of the same columns, in the same basis."""
        table = _table(X, self.columns, self.whitening, self.fit_intercept)
        return replace(self, X=table, y=y, weights=weights)

    def predictions(self, phi: Array) -> Array:
        """Linear predictions, one row for each column of φ."""
        return np.ascontiguousarray((self.X @ phi).T)


def is_kept_sparse(X: Any, loss: Loss, tuning: Tuning = DEFAULT) -> bool:
    """Whether rows are fitted by their entries alone: sparse ones that would take long as dense ones."""
    return bool(sparse.issparse(X)) and (X.shape[1] > tuning.gram_columns or _is_slow_dense(X, loss, tuning))


def _is_slow_dense(X: Any, loss: Loss, tuning: Tuning) -> bool:
    """Whether many columns are mostly zeros, beyond the processor's cache, and rows too few for more fits."""
    n, columns = X.shape
    return bool(
        columns > tuning.sparse_columns
        and loss.link == "identity"
        and 4 * n * columns > tuning.cached_bytes
        and n < tuning.second_fit_rows * columns
        and X.nnz <= tuning.sparse_share * n * columns
    )


def sparse_rows_of(
    X: Any, y: Array, weights: Array, loss: Loss, fit_intercept: bool, tuning: Tuning = DEFAULT
) -> SparseRows:
    """Rows of a sparse matrix, as they are fitted.

    Parameters
    ----------
    X : sparse matrix of shape (n, d)
    y, weights : arrays of shape (n,)
    loss : Loss
    fit_intercept : bool
    tuning : Tuning
    """
    X = sparse.csr_array(X)
    columns = _columns_of(X, fit_intercept)
    total = weights.sum()
    table = _table(X, columns, None, fit_intercept)
    squares = table.entries.power(2).T @ weights / total
    means = table.entries.T @ weights / total
    squares = np.maximum(squares + (table.offset - 2.0 * means) * table.offset, 0.0)
    basis = DiagonalWhitening.of(np.append(squares, 1.0))
    table = _table(X, columns, basis, fit_intercept)
    norm = max(float(squares.sum()), 1e-300)
    return SparseRows(table, y, weights, columns, loss, fit_intercept, True, tuning, basis, norm)


def _table(X: Any, columns: FeatureScale, basis: Whitening | None, fit_intercept: bool) -> SparseTable:
    factor = np.ones(X.shape[1] + 1) if basis is None else np.sqrt(basis.inverse)
    factor[:-1] /= columns.scale
    entries = sparse.csr_array(
        sparse.csr_array(X) @ sparse.dia_array((factor[None, :-1], [0]), shape=(X.shape[1],) * 2)
    )
    return SparseTable(entries, columns.centre * factor[:-1], float(fit_intercept) * float(factor[-1]))


def _columns_of(X: Any, fit_intercept: bool) -> FeatureScale:
    """Root mean squares of entries; columns without zeros are centred as dense ones."""
    n, d = X.shape
    scale, centre = entry_scales(X), np.zeros(d)
    full = np.flatnonzero(np.bincount(X.indices, minlength=d) == n)
    if full.size and fit_intercept:
        dense = robust_columns(sample_rows(X, [np.arange(n)])[:, full].toarray())
        centre[full], scale[full] = dense.centre, dense.scale
    return FeatureScale(centre, scale)


def entry_scales(X: Any) -> Array:
    """Root mean squares of the entries of every column; 1 for those without."""
    counts = np.bincount(X.indices, minlength=X.shape[1])
    with np.errstate(over="ignore"):
        scale = np.sqrt(np.bincount(X.indices, X.data**2, X.shape[1]) / np.maximum(counts, 1))
    return np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
