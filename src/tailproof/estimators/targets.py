"""Regression and classification on top of linear scores: targets in, predictions out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from tailproof.core import Array
from tailproof.core.losses import LOSSES, SOFTMAX_LOSS, Loss, check_target, get_loss
from tailproof.estimators.sklearn_private import fit_context


def _streams(model: Any) -> bool:
    return hasattr(model, "_partial_fit")


class Regression(RegressorMixin):
    """Numbers in, numbers out."""

    loss: str
    loss_parameter: float | None
    _decision: Callable[[Any], Array]
    _partial_fit: Callable[..., Any]
    _is_regression = True

    def _encode(self, y: Any, **streaming: Any) -> tuple[Loss, Array, int]:
        loss = get_loss(self.loss, self.loss_parameter, "regression")
        target = np.ascontiguousarray(y, dtype=np.float64)
        check_target(loss, target)
        return loss, target, 1

    @available_if(_streams)
    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """One pass over more rows, dealt at random to k running candidates.

        Scales, k and start are set by the first call; the step schedule continues from ``t_``; ``coef_`` is
        the combination of the candidates so far.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, None, sample_weight)

    def _shape_model(self, coef: Array, intercept: Array) -> tuple[Array, float]:
        return coef[0], float(intercept[0])

    def predict(self, X: ArrayLike) -> Array:
        """Predict the target: ``⟨coef_, x⟩ + intercept_``, exponentiated for losses with the log link."""
        scores = self._decision(X)
        return np.exp(scores) if LOSSES[self.loss].link == "log" else scores


def _gives_probabilities(model: Any) -> bool:
    if model.loss != "log_loss":
        raise AttributeError(f"probabilities need loss='log_loss'; this model has loss={model.loss!r}")
    return True


class Classification(ClassifierMixin):
    """Labels in, labels out: ±1 inside for two classes, class numbers for more."""

    loss: str
    loss_parameter: float | None
    _decision: Callable[[Any], Array]
    _partial_fit: Callable[..., Any]
    _is_regression = False

    def _encode(
        self, y: Any, classes: Any = None, first: bool = True, stream: bool = False
    ) -> tuple[Loss, Array, int]:
        check_classification_targets(y)
        loss = get_loss(self.loss, self.loss_parameter, "classification")
        if stream:
            self._check_classes(classes, first)
        if first:
            self.classes_ = np.unique(y if classes is None else classes)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least 2 classes; got 1 class, {self.classes_[0]!r}")
        numbers = np.searchsorted(self.classes_, y)
        known = self.classes_[np.minimum(numbers, len(self.classes_) - 1)] == y
        if not np.all(known):
            raise ValueError(f"y has labels that are not in classes: {np.unique(np.asarray(y)[~known])[:5]}")
        if len(self.classes_) == 2:
            return loss, 2.0 * numbers - 1.0, 1
        return (SOFTMAX_LOSS if loss.name == "log_loss" else loss), numbers.astype(float), len(self.classes_)

    @available_if(_streams)
    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Any:
        """One pass over more rows, dealt at random to k running candidates.

        Scales, k and start are set by the first call; the step schedule continues from ``t_``; ``coef_`` is
        the combination of the candidates so far.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        classes : array-like, optional
            All the labels that will ever come; needed in the first call.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, classes, sample_weight)

    def _check_classes(self, classes: Any, first: bool) -> None:
        if first and classes is None:
            raise ValueError(
                "the first call of partial_fit needs classes: all the labels that will ever come"
            )
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes differ from those of the first call, {self.classes_.tolist()}")

    def _shape_model(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        return coef, intercept

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores: positive for ``classes_[1]``, or one column per class."""
        return self._decision(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class of the largest score."""
        scores = self._decision(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    @available_if(_gives_probabilities)
    def predict_proba(self, X: ArrayLike) -> Array:
        """Class probabilities, for ``loss="log_loss"``."""
        scores = self._decision(X)
        columns = np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores
        powers = np.exp(columns - columns.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of :meth:`predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), 1e-300))
