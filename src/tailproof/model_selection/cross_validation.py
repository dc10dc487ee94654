"""Cross-validation row by row: the folds that models share, and the losses on the rows held out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils import indexable

from tailproof.core import Array
from tailproof.core.lookup import lookup
from tailproof.core.means import MEANS
from tailproof.core.numerics.meaning import check_not_masked
from tailproof.core.validate import interval_warning, validate, validate_with_safe_intervals
from tailproof.estimators.parallel import JoblibEngine, warn_of_forks
from tailproof.estimators.row_losses import ROW_LOSSES, row_losses
from tailproof.estimators.sklearn_private import check_method_params, check_sample_weight, safe_indexing
from tailproof.reports.text import Printable, TextTable

Loss = str | Callable[..., Any]


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation(Printable):
    """What ``robust_cross_validate`` found.

    Attributes
    ----------
    risk, low, high : float
        Robust mean of the pooled losses with its (1 − δ) interval, wider where the tail asks for it: see
        :func:`tailproof.core.validate.validate_with_safe_intervals`.
    losses : array of shape (n,)
        Loss of each row under the models that did not see it, averaged where there are several; NaN for rows
        that no fold tests.
    fold_risk : array of shape (folds,)
        Robust mean of each fold on its own.
    fit_seconds : array of shape (folds,)
    mean : str
        The mean that was used.
    estimators : list
        The fitted models, if asked for.
    in_doubt : bool
        Whether the variance of the losses may be infinite. Where it is, 95% intervals covered the risk in 67%
        to 78% of samples.
    """

    risk: float
    low: float
    high: float
    losses: Array
    fold_risk: Array
    fit_seconds: Array
    mean: str
    estimators: list[Any]
    in_doubt: bool = False

    def as_text(self) -> TextTable:
        """The risk in one line, and what its interval is not good for."""
        line = (
            f"risk {self.risk:.4g}, interval {self.low:.4g} to {self.high:.4g}, mean={self.mean}, "
            f"{self.fold_risk.size} folds, {self.fit_seconds.mean():.3g} s a fit"
        )
        warning = interval_warning(np.array([self.in_doubt]), "model")
        return TextTable([], notes=[line] if warning is None else [line, warning])


@dataclass(frozen=True, eq=False)
class FoldTask:
    """A clone, the rows to fit it on and the rows to score it on."""

    estimator: Any
    train: tuple[Any, Any]
    test: tuple[Any, Any]
    params: dict[str, Any]
    loss: Loss


@dataclass(frozen=True, eq=False)
class Fold:
    """One fitted model with its losses on the rows it did not see."""

    estimator: Any
    losses: Array
    seconds: float


def _fit_and_score(task: FoldTask) -> Fold:
    started = time.perf_counter()
    estimator = task.estimator.fit(*task.train, **task.params)
    seconds = time.perf_counter() - started
    return Fold(estimator, row_losses(estimator, *task.test, task.loss), seconds)


@dataclass(frozen=True, eq=False)
class RiskRule:
    """How losses become a risk; ``weights`` are those of the tested rows."""

    loss: Loss
    mean: str
    delta: float
    weights: Array | None

    @classmethod
    def of(cls, loss: Loss, mean: str, delta: float, splits: Splits, sample_weight: Any) -> RiskRule:
        """Check and put together."""
        check_rule(loss, mean, delta)
        if sample_weight is None:
            return cls(loss, mean, delta, None)
        weights = check_sample_weight(sample_weight, splits.X, dtype=np.float64, ensure_non_negative=True)
        return cls(loss, mean, delta, weights[splits.tested])


@dataclass(frozen=True, eq=False)
class Splits:
    """The rows and the folds that all models share."""

    X: Any
    y: Any
    folds: list[tuple[NDArray[np.intp], NDArray[np.intp]]]
    tested: NDArray[np.intp]

    @classmethod
    def of(cls, X: Any, y: Any, estimator: Any, cv: Any, groups: Any) -> Splits:
        """Folds as scikit-learn makes them for the estimator."""
        from sklearn.model_selection import check_cv

        check_estimator(estimator)
        if y is None:
            raise ValueError("y is needed: without targets there are no losses")
        check_not_masked(X=X, y=y)
        X, y, groups = indexable(X, y, groups)
        target = np.asarray(y)
        folds = list(check_cv(cv, target, classifier=is_classifier(estimator)).split(X, target, groups))
        return cls(X, target, folds, np.unique(np.concatenate([test for _, test in folds])))

    def run(
        self,
        models: list[Any],
        rule: RiskRule,
        params: Mapping[str, Any] | None,
        n_jobs: int | None,
        keep: bool = False,
    ) -> list[CrossValidation]:
        """Fit every model on every fold, all through joblib, and pool the losses of each model."""
        for model in models:
            warn_of_forks(model, n_jobs)
        tasks = (self._task(model, fold, rule.loss, params) for model in models for fold in self.folds)
        done = JoblibEngine(n_jobs).run(_fit_and_score, tasks)
        size = len(self.folds)
        return [self._pool(done[i * size : (i + 1) * size], rule, keep) for i in range(len(models))]

    def _task(self, model: Any, fold: Any, loss: Loss, params: Mapping[str, Any] | None) -> FoldTask:
        (train, test), X = fold, self.X
        fold_params = check_method_params(X, dict(params or {}), indices=train)
        rows = [(safe_indexing(X, part), self.y[part]) for part in (train, test)]
        return FoldTask(clone(model), rows[0], rows[1], fold_params, loss)

    def _pool(self, done: list[Fold], rule: RiskRule, keep: bool) -> CrossValidation:
        total, times = np.zeros(len(self.y)), np.zeros(len(self.y))
        for (_, test), fold in zip(self.folds, done, strict=True):
            total[test] += fold.losses
            times[test] += 1
        # A row that several splits test has several losses, but it is one row.
        losses = np.divide(total, times, out=np.full(len(self.y), np.nan), where=times > 0)
        pooled = validate_with_safe_intervals([losses[self.tested]], rule.mean, rule.delta, rule.weights)
        return CrossValidation(
            float(pooled.risk[0]),
            float(pooled.low[0]),
            float(pooled.high[0]),
            losses,
            validate([fold.losses for fold in done], rule.mean, rule.delta).risk,
            np.array([fold.seconds for fold in done]),
            pooled.mean,
            [fold.estimator for fold in done] if keep else [],
            bool(pooled.in_doubt is not None and pooled.in_doubt[0]),
        )


def check_estimator(model: Any) -> None:
    """Refuse what cannot be fitted and asked for predictions."""
    if not hasattr(model, "fit") or not hasattr(model, "predict"):
        raise TypeError(f"every model must be an estimator with fit and predict; got {model!r}")


def check_rule(loss: Loss, mean: str, delta: float) -> None:
    """Refuse a loss, a mean or a δ that is none."""
    if not callable(loss):
        lookup("loss", loss, dict.fromkeys(["auto", *ROW_LOSSES]))
    MEANS[mean]
    if not isinstance(delta, Real) or not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta!r}")
