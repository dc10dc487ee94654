"""Candidates with an l1 penalty, beside the truncation path, where rows are few and columns many."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from tailproof.core import Array
from tailproof.core.scaling import FeatureScale
from tailproof.estimators.robust_regressor.candidates import (
    Candidate,
    LinearFit,
    RegressionTask,
    Unit,
    unit_of,
)
from tailproof.estimators.robust_regressor.lasso import LassoFits, LassoProblem, lasso_fits, truncation
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.sparse_rows import entry_scales


def wants_lasso(task: RegressionTask) -> bool:
    """Whether rows are few beside columns, and the link is the identity."""
    tuning, width = task.tuning, task.X.shape[1] + 1
    enough = width > tuning.lasso_columns and task.n < tuning.lasso_below * width
    return enough and task.loss.link == "identity"


def lasso_candidates(task: RegressionTask) -> list[Candidate]:
    """Levels of truncation at several l1 penalties; none where rows are not few.

    Parameters
    ----------
    task : RegressionTask
    """
    return _levels(task) if wants_lasso(task) and task.folds else []


def _levels(task: RegressionTask) -> list[Candidate]:
    unit, (Z, columns) = unit_of(task), _scaled(task)
    weights = task.weights if task.weights.size else np.ones(task.n)
    plain = LassoProblem(Z, unit.to_unit(task.y), weights / weights.sum(), np.inf)
    found: list[Candidate] = []
    for share in task.tuning.lasso_shares:
        problem = replace(plain, tau=_tau(plain, share))
        fits = lasso_fits(problem, task.tuning.lasso_penalties, task.folds, task.delta, task.loss)
        name = f"{100 * share:.2g}% truncated" if share else "untruncated"
        found += [_candidate(task, unit, columns, fits, m, name) for m in range(fits.penalties.size)]
    return found


def _tau(plain: LassoProblem, share: float) -> float:
    if not share:
        return np.inf
    return truncation(plain, share, 0.3 * plain.largest_penalty(np.zeros(plain.Z.shape[1])))


def _candidate(
    task: RegressionTask, unit: Unit, columns: FeatureScale, fits: LassoFits, m: int, name: str
) -> Candidate:
    theta = fits.theta[:, m]
    coef = theta[:-1] / columns.scale
    intercept = float(task.fit_intercept) * float(theta[-1]) - float(coef @ columns.centre)
    fit = unit.from_unit(LinearFit(coef, intercept))
    named = f"{name}, l1 {fits.penalties[m]:.2g}"
    return Candidate(named, unit.scores(fits.held_out[m]), functools.partial(_fitted, task, fit, m, name))


def _fitted(task: RegressionTask, fit: LinearFit, m: int, name: str, whole: RegressionTask) -> LinearFit:
    """The fit on the rows of the task; on others, the same level again at the same share of all penalties."""
    if whole.X is task.X:
        return fit
    again = [one for one in _levels(whole) if one.name.startswith(name)]
    return again[min(m, len(again) - 1)].fit(whole)


def _scaled(task: RegressionTask) -> tuple[Any, FeatureScale]:
    """Scaled columns and a constant, and what they were scaled by; many sparse ones are not centred."""
    if task.is_kept_sparse:
        X = sparse.csr_array(task.X)
        scale = entry_scales(X)
        ones = np.full((task.n, 1), float(task.fit_intercept))
        scaled = X @ sparse.dia_array((1.0 / scale[None], [0]), shape=(scale.size, scale.size))
        return sparse.csr_array(sparse.hstack([scaled, ones])), FeatureScale(np.zeros(scale.size), scale)
    empty: Array = np.zeros(task.n)
    rows = rows_of(task.X, empty, empty + 1.0, task.loss, task.fit_intercept, task.tuning)
    return rows.gathered(), rows.columns
