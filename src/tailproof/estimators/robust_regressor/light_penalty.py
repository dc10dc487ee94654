"""A penalty on a fitted model, as light as its own error, for directions in which rows hardly vary.

Where columns nearly make each other up (weight, length, width and height of a stone), rows say little of the
slopes along some directions, and predictions for most rows hardly depend on them. A new row with an error of
measurement in one of these columns lies far along such a direction, and is missed by far. Held-out rows do
not warn of that, unless one of them happens to have such an error.

With N rows, columns z of mean zero and variance one, Σ zz'/N = VgV' and slopes b = V'β, the penalty
λ² Σ b²/g on top of Σ g(b − b̂)² leaves g²/(g² + λ²) of every b̂: for λ = 0.001 half of it where rows have a
thousandth of the variance of a column, and all but a millionth where they have as much as that. On rows like
these it changes predictions by B(λ) = Σ (λ²/(g² + λ²))² g b̂² in mean square. λ is smaller if that would be
more than a small share of the variance which predictions have anyway. Fits without a fold tell that variance
(the jackknife), and predictions of held-out rows the slopes of these fits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack

from tailproof.core import Array
from tailproof.estimators.robust_regressor.candidates import LinearFit, RegressionTask, weights_of
from tailproof.estimators.robust_regressor.scaled_rows import gram

GUARDED = (
    "Some columns nearly make each other up: along directions in which rows hardly vary slopes are drawn "
    "towards zero, by less than their own error, since an error of measurement in a new row would lie there."
)

_PENALTY = 1e-3  # of the variance of a column
_VARIES = 0.01  # of the same: directions in which rows vary as much, and would lose 1%, are left alone
_COST = 0.05  # of the variance of predictions
_LEAST = 1e-9  # of the penalty: below it there is none
_COLLINEAR = 1e-12  # of the largest eigenvalue
_UNSEEN = 1e-9  # of what all rows tell of a direction: a fold that tells less says nothing of it
_HALVINGS = 40
_ROUNDING = 1e-9  # what is so close to a limit is looked at with care


def lightly_penalised(
    model: LinearFit, held_out: Array, part: RegressionTask, size: float, least: float = 0.0
) -> tuple[LinearFit, Array]:
    """A model under a light penalty, and its predictions for held-out rows.

    Parameters
    ----------
    model : LinearFit
    held_out : array of shape (n,)
        Predictions of rows, each by a linear fit without the fold that the row is in.
    part : RegressionTask
        The rows that were held out.
    size : float
        Effective number of rows that the model was fitted on.
    least : float
        The least eigenvalue of the correlations of the columns, where it is known.

    Returns
    -------
    LinearFit, array of shape (n,)
    """
    if least > _VARIES * (1.0 + _ROUNDING) or not (_suits(part) and np.isfinite(held_out).all()):
        return model, held_out
    with np.errstate(over="ignore", invalid="ignore"):
        rows = _Directions.of(part)
        slopes = None if rows is None else rows.vectors.T @ (model.coef * rows.scale)
        if rows is None or slopes is None:
            return model, held_out
        variance = _variance(rows, held_out - model.scores(part.X)) * rows.size / size
        lost = _affordable(rows, slopes, variance) * slopes
    if not (lost.any() and np.isfinite(lost).all()):
        return model, held_out
    change = -(rows.vectors @ lost) / rows.scale
    moved = LinearFit(change, -float(rows.centre @ change))
    coef, intercept = model.coef + change, model.intercept + moved.intercept
    return replace(model, coef=coef, intercept=intercept), held_out + moved.scores(part.X)


def _suits(part: RegressionTask) -> bool:
    """Whether predictions of every fold tell all slopes of its fit, and a copy of the rows is small."""
    n, columns = part.X.shape
    return (
        part.loss.link == "identity"
        and len(part.folds) > 1
        and columns > 1
        and min(fold.size for fold in part.folds) > columns
        and n * columns <= part.tuning.ridge_cells
    )


@dataclass(frozen=True, eq=False)
class _Directions:
    """Rows by directions in which they vary.

    Attributes
    ----------
    Z : array of shape (n, d)
        Columns less their centre, over their scale.
    centre, scale : arrays of shape (d,)
    weights : array of shape (n,)
        They add up to ``size``, the effective number of rows.
    size : float
    values, vectors : arrays of shape (rank,) and (d, rank)
        Of the Gram matrix.
    grams : array of shape (folds, d, d)
        What every fold contributes to that.
    folds : tuple of arrays
    constant : bool
        Whether models have an intercept.
    """

    Z: Array
    centre: Array
    scale: Array
    weights: Array
    size: float
    values: Array
    vectors: Array
    grams: Array
    folds: tuple[NDArray[np.intp], ...]
    constant: bool

    @classmethod
    def of(cls, part: RegressionTask) -> _Directions | None:
        """None for rows whose squares overflow, or that vary enough in every direction."""
        shares = weights_of(part) / weights_of(part).sum()
        if _surely_vary(part, shares):
            return None
        Z, centre, scale = _scaled(part, shares)
        weights = part.size * shares
        grams = np.array([(Z[fold].T * weights[fold]) @ Z[fold] for fold in part.folds])
        if not np.isfinite(grams).all():
            return None
        values, vectors = np.linalg.eigh(grams.sum(axis=0))
        seen = values > _COLLINEAR * values[-1]
        if not np.any(values[seen] < _VARIES * part.size):
            return None
        values, vectors = values[seen], vectors[:, seen]
        found = (Z, centre, scale, weights, part.size, values, vectors, grams, part.folds)
        return cls(*found, constant=part.fit_intercept)


def _surely_vary(part: RegressionTask, shares: Array) -> bool:
    """Whether rows vary enough in every direction: Cholesky's factors tell in a small part of the time.

    If they do, no eigenvalue of the correlations of the columns is too small.
    """
    X, centre = _dense(part), _centre(part, shares)
    products = gram(X - centre, shares if part.weights.size else None)
    variances = np.diag(products) / (1.0 if part.weights.size else part.n)
    if not (np.isfinite(products).all() and np.all(variances > (_COLLINEAR * np.abs(centre)) ** 2)):
        return False
    root = np.sqrt(np.diag(products))
    correlations = products / root / root[:, None]
    correlations[np.diag_indices_from(correlations)] -= _VARIES * (1.0 + _ROUNDING)
    return int(lapack.dpotrf(correlations, lower=True, clean=False, overwrite_a=True)[1]) == 0


def _dense(part: RegressionTask) -> Array:
    return part.X.toarray() if sparse.issparse(part.X) else np.asarray(part.X, dtype=np.float64)


def _centre(part: RegressionTask, shares: Array) -> Array:
    return np.asarray(shares @ part.X) if part.fit_intercept else np.zeros(part.X.shape[1])


def _scaled(part: RegressionTask, shares: Array) -> tuple[Array, Array, Array]:
    """Columns of mean zero and variance one (without an intercept, of mean square one); centre and scale."""
    centre = _centre(part, shares)
    Z = _dense(part) - centre
    scale = np.sqrt(shares @ Z**2)
    constant = scale <= _COLLINEAR * np.abs(centre)
    Z[:, constant], scale[constant] = 0.0, 1.0  # what is left of it is rounding
    Z /= scale
    return Z, centre, scale


def _variance(rows: _Directions, apart: Array) -> float:
    """Of predictions but for a constant, by the jackknife.

    ``apart`` is what fits without a fold predict for the rows of that fold beyond a model of all rows.
    """
    slopes = np.array([_slopes_in(rows, k, apart[fold]) for k, fold in enumerate(rows.folds)])
    spread = slopes.var(axis=0) * (len(slopes) - 1)
    return float(rows.values @ spread) / rows.size


def _slopes_in(rows: _Directions, number: int, predictions: Array) -> Array:
    """Slopes for directions of predictions in a fold, by least squares; none along what it does not vary in.

    They are linear, so that there is nothing left.
    """
    fold, root = rows.folds[number], np.sqrt(rows.values)
    weights, to_white = rows.weights[fold], rows.vectors / root
    gram, side = rows.grams[number], rows.Z[fold].T @ (weights * predictions)
    if rows.constant:
        sums, total = rows.Z[fold].T @ weights, float(weights.sum())
        gram = gram - np.outer(sums, sums) / total
        side = side - sums * (float(weights @ predictions) / total)
    white = to_white.T @ gram @ to_white + _UNSEEN * np.eye(root.size)
    return np.asarray(np.linalg.solve(white, to_white.T @ side) / root)


def _affordable(rows: _Directions, slopes: Array, variance: float) -> Array:
    """Shares of slopes for directions that are lost to the penalty."""
    g, most = rows.values / rows.size, _COST * variance
    squares = g * slopes**2

    def lost(penalty: float) -> Array:
        return np.where(g < _VARIES, penalty**2 / (g**2 + penalty**2), 0.0)

    def costs_too_much(penalty: float) -> bool:
        return not float(lost(penalty) ** 2 @ squares) <= most

    if not costs_too_much(_PENALTY):
        return lost(_PENALTY)
    low, high = math.log(_LEAST * _PENALTY), math.log(_PENALTY)
    if costs_too_much(math.exp(low)):
        return np.zeros_like(slopes)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if costs_too_much(math.exp(middle)) else (middle, high)
    return lost(math.exp(low))
