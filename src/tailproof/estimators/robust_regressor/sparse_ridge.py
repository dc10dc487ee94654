"""Ridge regression of many sparse columns, with the penalty that held-out rows prefer, or no slopes at all.

It is what :mod:`tailproof.estimators.robust_regressor.loo_ridge` is for dense rows, without a dense copy:
conjugate gradients solve for all penalties together, and for all folds from there. Plain means of held-out
losses choose. The constant is one of the fits: where a category has more levels than rows can tell apart, the
best there is may be no better than that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.estimators.robust_regressor.candidates import LinearFit, RegressionTask, unit_of, weights_of
from tailproof.estimators.robust_regressor.fold_search import searched_without, shares_of_rest
from tailproof.estimators.robust_regressor.levels import Levels
from tailproof.estimators.robust_regressor.loo_ridge import LooRidge
from tailproof.estimators.robust_regressor.newton import newton
from tailproof.estimators.robust_regressor.sparse_rows import SparseRows, sparse_rows_of

# In mean square norms of a row: the categories of as many rows lose half of their effects.
_PENALTIES = 10.0 ** np.arange(-0.5, 3.5, 0.5)


def sparse_ridge(task: RegressionTask, folds: Sequence[NDArray[np.intp]]) -> LooRidge | None:
    """Fit it; None where squares overflow.

    Parameters
    ----------
    task : RegressionTask
        Sparse rows, with the identity link.
    folds : sequence of arrays
        Rows that are held out together.
    """
    unit, weights = unit_of(task), weights_of(task)
    y = unit.to_unit(task.y)
    rows = sparse_rows_of(task.X, y, weights, task.loss, task.fit_intercept, task.tuning)
    with np.errstate(over="ignore", invalid="ignore"):
        phi, held_out = _fits(rows, folds)
        losses = (held_out - y) ** 2 @ (weights / weights.sum())
    if not np.isfinite(losses).any():
        return None
    best = int(np.nanargmin(losses))
    coef, intercept = rows.unscaled((rows.whitening.map @ phi)[:, [best]])
    fit = unit.from_unit(LinearFit(coef[0], float(intercept[0])))
    seen = np.unique(rows.X.entries.indices).size + int(task.fit_intercept)
    return LooRidge(fit.coef, fit.intercept, unit.scores(held_out[best]), min(seen, task.n))


def _fits(rows: SparseRows, folds: Sequence[NDArray[np.intp]]) -> tuple[Array, Array]:
    """φ of all penalties, with that of the constant last, and predictions of held-out rows, a row each."""
    constant = _constants(rows, rows.weights[None] / rows.total)
    levels = _untruncated(_PENALTIES * rows.square_norm / rows.n)
    phi = newton(rows, np.repeat(constant, len(levels), axis=1), levels).phi
    without = searched_without(rows, levels, phi, rows.y - rows.predictions(phi), folds)
    constants = _constants(rows, shares_of_rest(rows.weights, folds))
    held_out = np.empty((len(levels) + 1, rows.n))
    for k, fold in enumerate(folds):
        fits = np.column_stack([without[k], constants[:, k]])
        held_out[:, fold] = rows.take(fold).predictions(fits)
    return np.column_stack([phi, constant]), held_out


def _constants(rows: SparseRows, shares: Array) -> Array:
    """φ of the mean target, a column for every row of shares; without an intercept, of zero."""
    theta = np.zeros((rows.width, len(shares)))
    theta[-1] = float(rows.fit_intercept) * (shares @ rows.y)
    return rows.whitening.coordinates(theta)


def _untruncated(ridges: Array) -> Levels:
    none = np.zeros(ridges.size)
    return Levels(np.full(ridges.size, np.inf), none, ridges, none)
