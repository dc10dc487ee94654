"""How sure: ``summary``, ``predict_mean_interval`` and ``predict_interval`` of the estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from tailproof.core import Array
from tailproof.core.held_out import HeldOutErrors
from tailproof.core.inference import CoefficientErrors, errors_of_merge
from tailproof.core.losses import LOSSES, loss_name
from tailproof.estimators.sklearn_private import is_pipeline
from tailproof.reports.coefficients import Summary, summarise

NOT_KEPT = "This model has no intervals: it comes from a version that kept none, so fit it again."
_NO_MEAN = "Intervals of a mean are for regressors with one target: predict_proba says how sure a class is."
_IN_ROUNDS = (
    "This model has no intervals: the candidates of its last round shared a start, and vary less than "
    "estimates do; fit it with rounds=1."
)
_FEW_BLOCKS = "This model has no intervals: it takes the candidates of 5 blocks or more to see how they vary."


class CoefficientIntervals:
    """Intervals for the coefficients of a linear model, and for the mean that it predicts."""

    def summary(self, delta: float | None = None, names: Sequence[str] | None = None) -> Summary:
        """Coefficients with standard errors and intervals.

        Parameters
        ----------
        delta : float, optional
            One minus the confidence of each interval; by default that of the estimator.
        names : sequence of str, optional
            Of the columns; by default those of the fit, or x0, x1, ...

        Returns
        -------
        Summary
            Prints as a table; ``frame`` is a pandas frame with the columns estimate, se, low and high.
        """
        check_is_fitted(self)
        delta = _checked_share("delta", self.delta if delta is None else delta)  # type: ignore[attr-defined]
        if not hasattr(self, "coef_"):
            raise ValueError("the chosen model is not linear: it has no coefficients to summarise")
        coef, intercept = _coefficients(self)
        columns = _column_names(self, coef.shape[1]) if names is None else list(names)
        labels = [""] if len(coef) == 1 else [f"{label}: " for label in _outputs(self, len(coef))]
        every = [f"{label}{name}" for label in labels for name in columns]
        return summarise(coef, intercept, self._coefficient_errors(), every, delta, _link(self))

    def predict_mean_interval(self, X: Any, coverage: float = 0.95) -> Array:
        """Intervals for the *mean* of the target at every row: how sure the prediction itself is.

        A new target scatters about that mean: :meth:`predict_interval` has intervals for it.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        coverage : float
            Probability with which each interval holds the mean of a correct linear model.

        Returns
        -------
        array of shape (n_samples, 2)
        """
        check_is_fitted(self)
        share = 1.0 - _checked_share("coverage", coverage)
        without = {0: NOT_KEPT, 2: _NO_MEAN}  # by the dimensions of the coefficients
        errors = without.get(np.ndim(getattr(self, "coef_", 0.0))) or self._coefficient_errors()
        if isinstance(errors, str):
            raise ValueError(errors[0].lower() + errors[1:].rstrip("."))
        rows = _rows_seen(self, X)
        middle = np.asarray(rows @ errors.centre[:-1]) + errors.centre[-1]
        off = np.asarray(rows @ errors.factor[:, :-1].T) + errors.factor[:, -1]
        reach = errors.reach(share) * np.sqrt(np.sum(off**2, axis=1))
        ends = np.column_stack([middle - reach, middle + reach])
        if _link(self) != "log":
            return ends
        # As predictions are: beyond the training rows exp soon has no meaning.
        return np.exp(np.clip(ends, *getattr(self, "score_range_", (-np.inf, np.inf))))

    def _coefficient_errors(self) -> CoefficientErrors | str:
        """Errors of ``coef_``, each output's followed by its intercept's, or why there are none."""
        errors = getattr(self, "coefficient_errors_", None)
        return NOT_KEPT if errors is None else errors


class CandidateIntervals(CoefficientIntervals):
    """The same from ``candidates_``, which estimators with blocks keep anyway."""

    # Of the candidates, in standard errors: passes of SGD end while they still drift together.
    _common_error = 0.6

    def _coefficient_errors(self) -> CoefficientErrors | str:
        model: Any = self
        if getattr(getattr(model, "report_", None), "rounds", None) is not None:
            return _IN_ROUNDS
        candidates = np.atleast_1d(getattr(model, "candidates_", ()))
        point = np.column_stack(_coefficients(model)).ravel()
        if candidates.size == 0 or candidates.size != len(candidates) * point.size:
            return _FEW_BLOCKS
        flat = candidates.reshape(-1, point.size)
        distances = getattr(getattr(model, "report_", None), "distances", None)
        if distances is None:
            # One of them was selected, and varies as they do.
            away = np.abs(flat - np.median(flat, axis=0))
            distances = np.linalg.norm(away / np.maximum(np.median(away, axis=0), 1e-300), axis=1)
        if np.shape(distances) != (len(flat),):
            return _FEW_BLOCKS
        merge = getattr(model, "merge", "smallest_ball")
        errors = errors_of_merge(flat, point, distances, merge, self._common_error)
        return _FEW_BLOCKS if errors is None else errors


class PredictionIntervals:
    """Intervals for targets of new rows, from the errors of rows that were held out."""

    held_out_errors_: HeldOutErrors

    def predict_interval(self, X: Any, coverage: float = 0.9, scaled: bool = False) -> Array:
        """Intervals that hold the targets of new rows (conformal prediction).

        The ends are the prediction plus quantiles of the errors of rows that were held out, each end with
        its own: skewed noise gets an interval that is longer on its long side.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float
            Share of new rows whose target lies in its interval, if they are like those of the fit.
        scaled : bool
            Longer intervals where noise is larger: its size is learned as a function of x.

        Returns
        -------
        array of shape (n_samples, 2)
            Infinite where too few rows were held out for so large a coverage.
        """
        check_is_fitted(self)
        coverage = _checked_share("coverage", coverage)
        if is_classifier(self):
            raise AttributeError("intervals are for regressors: predict_proba says how sure a class is")
        errors = getattr(self, "held_out_errors_", None)
        if errors is None:
            raise ValueError(
                "this model has no errors of held-out rows: fit it again, on rows in memory, with enough "
                "of them to hold some out, and without rounds"
            )
        predicted = np.asarray(self.predict(X), dtype=np.float64)  # type: ignore[attr-defined]
        if predicted.ndim != 1:
            raise ValueError("intervals are for one target: fit one model for each")
        return errors.interval(predicted, X if sparse.issparse(X) else np.asarray(X), coverage, scaled)


def _checked_share(name: str, value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1; got {value}")
    return float(value)


def _coefficients(model: Any) -> tuple[Array, Array]:
    """Coefficients, one row an output, and as many intercepts."""
    coef = np.atleast_2d(model.coef_)
    return coef, np.broadcast_to(np.ravel(model.intercept_), (len(coef),))


def _column_names(model: Any, d: int) -> list[str]:
    names = getattr(model, "feature_names_in_", ())
    return list(map(str, names)) if len(names) == d else [f"x{j}" for j in range(d)]


def _outputs(model: Any, count: int) -> list[Any]:
    return list(getattr(model, "classes_", range(count)))


def _rows_seen(model: Any, X: Any) -> Any:
    """Rows as the coefficients see them, after a prediction has checked them: transformed by a pipeline."""
    model.predict(X)
    inner: Any = getattr(model, "estimator_", None)
    rows = inner[:-1].transform(X) if is_pipeline(inner) and len(inner) > 1 else X
    return rows if sparse.issparse(rows) else np.asarray(rows, dtype=np.float64)


def _link(model: Any) -> str:
    inner = getattr(model, "estimator_", model)
    inner = inner[-1] if is_pipeline(inner) else inner
    if type(inner).__name__ in _LINKS:
        return _LINKS[type(inner).__name__]
    loss = loss_name(getattr(inner, "loss", "squared_error"))
    if is_classifier(model):
        return "logit" if loss == "log_loss" else "identity"
    return LOSSES[loss].link if loss in LOSSES else "identity"


# What coefficients of scikit-learn's estimators mean, where their loss does not say it.
_LINKS = {
    "LogisticRegression": "logit",
    "PoissonRegressor": "log",
    "GammaRegressor": "log",
    "TweedieRegressor": "log",
}
