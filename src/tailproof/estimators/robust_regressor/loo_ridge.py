"""Least squares with the ridge penalty that leaving out one row at a time prefers.

Columns are divided by their standard deviations. One decomposition of the rows gives the fits for all
penalties, the errors of every row when it is left out alone, and when its fold is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack

from tailproof.core import Array

# Of the number of rows: from no penalty to speak of to a few percent left of the slopes.
_PENALTIES = 10.0 ** np.arange(-4.5, 2.0, 0.5)
_COLLINEAR = 1e-12  # of the largest eigenvalue
_LEAST_LEFT = 1e-9  # of a row's residual, where its leverage is nearly one


@dataclass(frozen=True)
class LooRidge:
    """⟨coef, x⟩ + intercept, and predictions of rows by the same fit without their fold.

    ``parameters`` are the directions of the rows, the constant among them, and ``least`` is the least
    eigenvalue of the correlations of the columns, or 0 where rows are fewer.
    """

    coef: Array
    intercept: float
    held_out: Array
    parameters: int
    least: float = 0.0


@dataclass(frozen=True)
class _Decomposed:
    """Centred and scaled rows √v z = U√s V', with targets √v t alike.

    ``constant`` has the coordinates of the constant, which is not penalised.
    """

    U: Array
    squares: Array
    t: Array
    constant: Array

    def kept(self, penalty: float) -> Array:
        """Share of every direction that a penalty leaves."""
        return np.asarray(self.squares / (self.squares + penalty))

    def residuals(self, penalty: float) -> Array:
        """Of all rows, times √v."""
        return np.asarray(self.t - self.U @ (self.kept(penalty) * (self.U.T @ self.t)))

    def left_out_alone(self, penalties: Array) -> Array:
        """Mean square of the errors of rows that are left out one at a time, for every penalty."""
        kept = self.squares[:, None] / (self.squares[:, None] + penalties)
        leverage = (self.constant**2)[:, None] + self.U**2 @ kept
        errors = self.t[:, None] - self.U @ (kept * (self.U.T @ self.t)[:, None])
        errors /= np.maximum(1.0 - leverage, _LEAST_LEFT)
        return np.asarray((errors**2).mean(axis=0))

    def left_out(self, penalty: float, folds: Sequence[NDArray[np.intp]]) -> Array:
        """Errors of rows whose fold is left out, times √v."""
        residuals, root = self.residuals(penalty), np.sqrt(self.kept(penalty))
        # Times its transpose, it is what rows predict of each other.
        half = np.empty((self.t.size, root.size + 1))
        np.multiply(self.U, root, out=half[:, :-1])
        half[:, -1] = self.constant
        errors = np.empty_like(residuals)
        for fold in folds:
            errors[fold] = _without(half.take(fold, axis=0), residuals[fold])
        return errors


def _without(half: Array, residuals: Array) -> Array:
    """(1 − AA')⁻¹r, by the smaller of the two systems: (1 − AA')⁻¹ = 1 + A(1 − A'A)⁻¹A'."""
    if half.shape[0] <= half.shape[1]:
        return _solved(np.eye(len(half)) - half @ half.T, residuals)
    inner = _solved(np.eye(half.shape[1]) - half.T @ half, half.T @ residuals)
    return np.asarray(residuals + half @ inner)


def _solved(A: Array, b: Array) -> Array:
    """A⁻¹b of a positive definite matrix; where rounding says that it is none, as of any other."""
    *_, x, failed = lapack.dposv(A, b, lower=True)
    return np.linalg.solve(A, b) if failed else np.asarray(x)


def loo_ridge(
    X: Any, y: Array, weights: Array, fit_intercept: bool, folds: Sequence[NDArray[np.intp]]
) -> LooRidge | None:
    """Fit it; None where squares overflow, or the rows of one fold carry all weight.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
    y, weights : arrays of shape (n,)
    fit_intercept : bool
    folds : sequence of arrays
        Rows that are held out together. The penalty, which all rows choose, stays.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> y = X @ [1.0, 2.0] + 3.0 + 0.1 * rng.standard_normal(200)
    >>> fit = loo_ridge(X, y, np.ones(200), True, [np.arange(100), np.arange(100, 200)])
    >>> np.round(fit.coef, 1).tolist(), round(fit.intercept, 1), bool(np.std(y - fit.held_out) < 0.12)
    ([1.0, 2.0], 3.0, True)
    """
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    shares = weights / weights.sum()
    root = np.sqrt(shares * y.size)
    with np.errstate(over="ignore", invalid="ignore"):
        centre = shares @ dense if fit_intercept else np.zeros(dense.shape[1])
        Z = dense - centre
        scale = np.sqrt(shares @ Z**2)
        constant = scale <= _COLLINEAR * np.abs(centre)
        Z[:, constant], scale[constant] = 0.0, 1.0  # what is left of it is rounding
        if np.ptp(weights) > 0:
            Z *= root[:, None]
        Z /= scale
        middle = float(shares @ y) if fit_intercept else 0.0
        t = root * (y - middle)
    if not (np.isfinite(Z).all() and np.isfinite(t @ t)):
        return None
    ones = root / np.sqrt(y.size) if fit_intercept else np.zeros(y.size)
    rows = _decomposed(Z, t, ones)
    if rows is None:
        return None
    penalty = float(y.size * _PENALTIES[rows.left_out_alone(y.size * _PENALTIES).argmin()])
    inside = (rows.U.T @ t) / (rows.squares + penalty)
    coef = (Z.T @ (rows.U @ inside)) / scale
    try:
        held_out = y - rows.left_out(penalty, folds) / root
    except np.linalg.LinAlgError:
        return None
    parameters = rows.squares.size + int(fit_intercept)
    least = float(rows.squares.min()) / y.size if rows.squares.size == dense.shape[1] else 0.0
    return LooRidge(coef, middle - float(centre @ coef), held_out, parameters, least)


def _decomposed(Z: Array, t: Array, constant: Array) -> _Decomposed | None:
    """By the smaller of the two Gram matrices; None for rows without a direction."""
    n, d = Z.shape
    values, vectors = np.linalg.eigh(Z.T @ Z if d <= n else Z @ Z.T)
    seen = values > _COLLINEAR * values[-1]
    if not (values[-1] > 0 and seen.any()):
        return None
    squares, vectors = values[seen], vectors[:, seen]
    return _Decomposed(Z @ (vectors / np.sqrt(squares)) if d <= n else vectors, squares, t, constant)
