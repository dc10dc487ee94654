"""Where rows are few for their columns, a model is drawn towards ridge regression, unless surely better.

Held-out rows that are few say the contrary of new ones too often. With 300 rows of injury claims and 36
columns, what they preferred by more than a standard error was better on new rows in a quarter of the splits.
The penalty that leaving out one row at a time prefers is a safe choice there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.blend import standard_errors
from tailproof.estimators.robust_regressor.candidates import LinearFit, RegressionTask, weights_of
from tailproof.estimators.robust_regressor.loo_ridge import LooRidge, loo_ridge
from tailproof.estimators.robust_regressor.sparse_ridge import sparse_ridge

REMARK = (
    "Rows are few for so many columns, and held-out rows do not show the candidates to be surely better than "
    "least squares with a ridge penalty, which is {:.0f}% of the model; the choice above is the rest."
)
OF_CANDIDATES = "They do not know of the ridge regression that the model is drawn towards."

_SURE = 1e6  # standard errors


@dataclass(frozen=True)
class TowardsRidge:
    """A model that is drawn towards ridge regression, and what it predicts for held-out rows.

    ``share`` is that of the ridge fit, and ``least`` the least eigenvalue of the correlations of the columns,
    where it is known.
    """

    model: LinearFit
    held_out: Array
    share: float = 0.0
    least: float = 0.0

    @property
    def remark(self) -> tuple[str, ...]:
        """A sentence for the report, if it is drawn at all."""
        return (REMARK.format(100 * self.share),) if self.share else ()


def towards_ridge(
    model: LinearFit, held_out: Array, task: RegressionTask, folds: Sequence[NDArray[np.intp]]
) -> TowardsRidge:
    """Draw a linear model towards the ridge fit, as far as held-out rows leave it in doubt.

    Parameters
    ----------
    model : LinearFit
    held_out : array of shape (n,)
        What it predicts for rows when they are held out.
    task : RegressionTask
        What it was fitted on.
    folds : sequence of arrays
        Rows that are held out together.
    """
    same = TowardsRidge(model, held_out)
    if not (_is_doubtful(task) and len(folds) and np.isfinite(held_out).all()):
        return same
    ridge = _ridge(task, folds)
    if ridge is None:
        return same
    share = _share(ridge, held_out, task)
    if share < task.tuning.negligible:
        return replace(same, least=ridge.least)
    coef = (1.0 - share) * model.coef + share * ridge.coef
    intercept = (1.0 - share) * model.intercept + share * ridge.intercept
    drawn = (1.0 - share) * held_out + share * ridge.held_out
    return TowardsRidge(replace(model, coef=coef, intercept=intercept), drawn, share, ridge.least)


def _ridge(task: RegressionTask, folds: Sequence[NDArray[np.intp]]) -> LooRidge | None:
    """The ridge fit of the rows, sparse ones as the path has them."""
    if task.is_kept_sparse:
        return sparse_ridge(task, folds)
    return loo_ridge(task.X, task.y, weights_of(task), task.fit_intercept, folds)


def _is_doubtful(task: RegressionTask) -> bool:
    """Whether rows may be few enough, and are sparse, or small enough for copies and a Gram matrix."""
    n, columns = task.X.shape
    few = _effective_rows(task) < task.tuning.too_many_rows[1] * (columns + 1)
    small = min(columns, n) <= task.tuning.gram_columns and n * columns <= task.tuning.ridge_cells
    return task.loss.link == "identity" and few and (small or task.is_kept_sparse)


def _effective_rows(task: RegressionTask) -> float:
    """Rows that count: of those with the most common target as many as there are others, as for claims."""
    return max(1.0, task.n * min(1.0, 2.0 * task.untied_share))


def _share(ridge: LooRidge, held_out: Array, task: RegressionTask) -> float:
    """Of the ridge fit: none where a few rows have carried it away, else by how sure the choice is better."""
    with np.errstate(over="ignore"):
        gaps = (ridge.held_out - task.y) ** 2 - (held_out - task.y) ** 2
    if not np.isfinite(gaps).all():
        return 0.0
    away = _between(_typical_error(ridge.held_out, held_out, task), *task.tuning.carried_away)
    # In a unit of their own: their squares are fourth powers of targets.
    gaps /= max(float(np.abs(gaps).max()), 1e-300)
    too_many = _between(_effective_rows(task) / ridge.parameters, *task.tuning.too_many_rows)
    by_gaps = _share_by_gaps(gaps, ridge, task.informative_share(held_out), task)
    return (1.0 - away) * (1.0 - too_many) * by_gaps


def _typical_error(by_ridge: Array, by_choice: Array, task: RegressionTask) -> float:
    """Median absolute error of ridge regression over that of the choice, both on held-out rows.

    Squared errors do not show that a few far rows spoil the ridge fit for all others: these rows are the
    larger part of every sum, whatever the fit.
    """
    weights = weights_of(task)
    theirs, ours = (
        float(weighted_median(np.abs(task.y - predicted), weights)) for predicted in (by_ridge, by_choice)
    )
    return theirs / ours if ours > 0 else math.inf if theirs > 0 else 1.0


def _share_by_gaps(gaps: Array, ridge: LooRidge, informative_share: float, task: RegressionTask) -> float:
    """Of the ridge fit, by how many standard errors it is worse on held-out rows."""
    tuning, rows = task.tuning, math.log(_effective_rows(task) / ridge.parameters)
    scarce = 1.0 - _between(rows, *map(math.log, tuning.scarce_rows))
    ample = _between(rows, *map(math.log, tuning.ample_rows))
    robust, plain = _by_robust_mean(gaps, informative_share, task), _by_plain_mean(gaps, task)
    # Robust means do not notice the few rows that a fit with so many parameters misses by far.
    z = robust + scarce * (min(robust, plain) - robust) + ample * (plain - robust)
    usual, if_ample = tuning.surely_better, tuning.surely_better_if_ample
    low, high = (few + ample * (many - few) for few, many in zip(usual, if_ample, strict=True))
    return 1.0 - _between(z, low, high)


def _between(z: float, low: float, high: float) -> float:
    """From 0 at the lower number to 1 at the higher one."""
    return min(max((z - low) / (high - low), 0.0), 1.0)


def _by_robust_mean(gaps: Array, informative_share: float, task: RegressionTask) -> float:
    mean = resistant_mean(gaps, task.delta, task.shares(), informative_share=informative_share)
    return _standard_errors_above_zero(
        mean, float(standard_errors(gaps[None], task.shares(), task.tuning)[0])
    )


def _by_plain_mean(gaps: Array, task: RegressionTask) -> float:
    shares = weights_of(task) / weights_of(task).sum()
    mean = float(shares @ gaps)
    return _standard_errors_above_zero(mean, float(np.linalg.norm(shares * (gaps - mean))))


def _standard_errors_above_zero(mean: float, error: float) -> float:
    """Standard errors that a mean is above zero; without an error, what is no worse is surely better."""
    if error > 0:
        return min(max(mean / error, -_SURE), _SURE)
    return _SURE if mean >= 0 else -_SURE
