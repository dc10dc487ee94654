"""What a RobustRegressor makes ready: checks of what it was given, folds, and the candidates asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import is_regressor

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.estimators.robust_regressor.candidates import (
    Candidate,
    RegressionTask,
    check_dense,
    path_candidates,
    sgd_candidates,
)
from tailproof.estimators.robust_regressor.lasso_candidates import lasso_candidates

_LARGEST = 1e150  # target
_USUAL = 1e-100, 1e100  # largest weights whose squares and sums are finite, and not zero
# What gradient boosting has of each loss.
_BOOSTING = {"squared_error": "squared_error", "poisson": "poisson", "gamma": "gamma", "tweedie": "poisson"}


def check_squares(loss: Loss, y: Array) -> None:
    """Refuse targets whose squares overflow."""
    largest = max(float(y.max()), -float(y.min()))
    if loss.link == "identity" and largest > _LARGEST:
        raise ValueError(f"targets as large as {largest:.2g} have no finite squares: divide y by a constant")


def in_usual_unit(weights: Array) -> Array:
    """Weights of rows, which mean the same in any unit, in one that sums of squares can be made in.

    Examples
    --------
    >>> in_usual_unit(np.array([1e300, 5e299])).tolist(), in_usual_unit(np.array([3.0])).tolist()
    ([1.0, 0.5], [3.0])
    """
    largest = float(weights.max(initial=0.0))
    usual = weights.size == 0 or _USUAL[0] < largest < _USUAL[1]
    return weights if usual else np.maximum(weights / largest, np.finfo(float).tiny)


def check_contamination(share: float | None, loss: Loss, others: list[Any]) -> None:
    """Refuse what a fit of the majority cannot do."""
    if share is not None and loss.link != "identity":
        raise ValueError(f"contamination is for loss='squared_error'; got {loss.name!r}")
    if share is not None and others:
        raise ValueError("contamination has one candidate of its own: leave candidates as 'linear'")


def with_folds(task: RegressionTask) -> RegressionTask:
    """Assign the rows to folds at random; more folds for few rows, none for very few."""
    if task.size < task.tuning.least_rows:
        return task
    tuning = task.tuning
    few = task.n < tuning.few_rows and task.X.shape[1] < tuning.few_columns
    count = tuning.folds_of_few_rows if few else tuning.folds
    order = np.random.default_rng(task.seed.spawn(1)[0]).permutation(task.n)
    return replace(task, folds=tuple(np.sort(order[k::count]) for k in range(count)))


def linear_candidates(task: RegressionTask) -> list[Candidate]:
    """The path, or with too many dense columns for it, SGD."""
    wide = task.X.shape[1] > task.tuning.gram_columns
    found = sgd_candidates(task) if wide and not sparse.issparse(task.X) else path_candidates(task)
    return [*lasso_candidates(task), *found]


def other_candidates(candidates: Any, task: RegressionTask) -> list[tuple[str, Any]]:
    """Names and regressors next to the linear ones."""
    if isinstance(candidates, str):
        return [("gradient boosting", _boosting(task))] if candidates == "auto" else []
    pairs = [entry if isinstance(entry, tuple) else (type(entry).__name__, entry) for entry in candidates]
    for pair in pairs:
        if (
            len(pair) != 2
            or not isinstance(pair[0], str)
            or not (hasattr(pair[1], "fit") and is_regressor(pair[1]))
        ):
            raise ValueError(
                f"candidates must be 'linear', 'auto' or a list of regressors, named or not; got {pair!r}"
            )
    taken = [name for name, _ in pairs]
    return [
        (name if taken.count(name) == 1 else f"{name} ({taken[: i + 1].count(name)})", model)
        for i, (name, model) in enumerate(pairs)
    ]


def _boosting(task: RegressionTask) -> Any:
    check_dense(task.X)
    # Imported on demand: it takes longer than all of this package.
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        loss=_BOOSTING[task.loss.name], random_state=int(task.seed.generate_state(1)[0] % 2**31)
    )
