"""The loss of any fitted estimator, row by row, from what it predicts; ``ROW_LOSSES`` lists them by name.

:mod:`tailproof.losses` takes linear scores; here the same losses take whatever scikit-learn estimators
give: means (whose logarithm is the score where the loss has a log link), probabilities or margins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from tailproof.core import Array
from tailproof.core.lookup import lookup
from tailproof.core.losses import LOSSES, Loss, check_target

RowLoss = Callable[[Any, Any, Any], Array]


class LossError(ValueError):
    """A loss that is not one number per row, or not made for the estimator or the targets."""


def row_losses(estimator: Any, X: Any, y: Any, loss: str | Callable[..., Any] = "auto") -> Array:
    """Losses of a fitted estimator on given rows.

    Parameters
    ----------
    estimator : fitted estimator
    X, y
        The rows.
    loss : str or callable
        A name in ``ROW_LOSSES``; "auto" (see :func:`auto_loss`); or ``loss(y, predicted)``, which is given
        what ``estimator.predict`` returns and answers with one number per row.

    Returns
    -------
    array of shape (n,)
        With several outputs, averages over them.

    Notes
    -----
    "squared_error" is (p − y)²/2, as everywhere in this package: half of scikit-learn's.

    Examples
    --------
    >>> from sklearn.dummy import DummyRegressor
    >>> model = DummyRegressor(strategy="constant", constant=1.0).fit([[0.0]], [1.0])
    >>> row_losses(model, [[0.0], [0.0]], [1.0, 3.0]).tolist()
    [0.0, 2.0]
    """
    if callable(loss):
        return _checked(loss(y, estimator.predict(X)), len(np.asarray(y)))
    name = auto_loss(estimator) if loss == "auto" else loss
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return lookup("loss", name, ROW_LOSSES)(estimator, X, y)


def auto_loss(estimator: Any) -> str:
    """Name the loss that goes with an estimator's type.

    Squared error for regressors; for classifiers the log loss where they give probabilities, else zero-one.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> auto_loss(LinearSVC())
    'zero_one'
    """
    if not is_classifier(estimator):
        return "squared_error"
    return "log_loss" if hasattr(estimator, "predict_proba") else "zero_one"


def _checked(losses: Any, n: int) -> Array:
    """What a callable gave, if it is one number per row."""
    checked = np.asarray(losses)
    if checked.shape != (n,):
        raise LossError(f"loss must return one number per row, shape ({n},); got shape {checked.shape}")
    if checked.dtype.kind not in "fiub":
        raise LossError(f"loss must return numbers; got an array of dtype {checked.dtype}")
    missing = int(np.isnan(checked).sum())
    if missing:
        raise LossError(f"loss returned NaN for {missing} of {n} rows: return a number for every row")
    return checked.astype(np.float64)


def _of_predictions(loss: Loss, estimator: Any, X: Any, y: Any) -> Array:
    target = _numbers(loss, y)
    predicted = np.asarray(estimator.predict(X), dtype=np.float64)
    if predicted.size != target.size:
        raise LossError(
            f"predict of {type(estimator).__name__} returned shape {predicted.shape} for targets of shape "
            f"{target.shape}"
        )
    target = target.reshape(predicted.shape)
    if loss.link == "log":
        # A mean of zero or less is outside the loss; the least positive one costs as much as can be.
        predicted = np.log(np.maximum(predicted, np.finfo(np.float64).tiny))
    losses = loss.value(predicted, target)
    return losses if losses.ndim == 1 else losses.mean(axis=1)


def _numbers(loss: Loss, y: Any) -> Array:
    """Targets that the loss is defined for."""
    try:
        target = np.asarray(y, dtype=np.float64)
    except ValueError:
        raise LossError(
            f"loss {loss.name!r} needs targets that are numbers: for classes use 'log_loss' or 'zero_one'"
        ) from None
    try:
        check_target(loss, target)
    except ValueError as error:
        raise LossError(str(error)) from None
    return target


def _method(estimator: Any, name: str, loss: str) -> Callable[[Any], Any]:
    if not hasattr(estimator, name):
        raise LossError(
            f"loss {loss!r} needs an estimator with {name}; {type(estimator).__name__} has none: "
            "use another loss"
        )
    return getattr(estimator, name)


def _of_probabilities(estimator: Any, X: Any, y: Any) -> Array:
    probabilities = np.asarray(_method(estimator, "predict_proba", "log_loss")(X))
    of_label = probabilities[np.arange(len(probabilities)), _class_numbers(estimator, y)]
    return -np.log(np.maximum(of_label, np.finfo(probabilities.dtype).eps), dtype=np.float64)


def _of_margins(loss: Loss, estimator: Any, X: Any, y: Any) -> Array:
    scores = np.asarray(_method(estimator, "decision_function", loss.name)(X), dtype=np.float64)
    numbers = _class_numbers(estimator, y)
    if scores.ndim == 1:
        return loss.value(scores, 2.0 * numbers - 1.0)
    return loss.of_rows(scores, numbers.astype(np.float64))


def _of_labels(estimator: Any, X: Any, y: Any) -> Array:
    return (np.asarray(estimator.predict(X)) != np.asarray(y)).astype(np.float64)


def _class_numbers(estimator: Any, y: Any) -> NDArray[np.intp]:
    classes, labels = np.asarray(estimator.classes_), np.asarray(y)
    numbers = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    unknown = classes[numbers] != labels
    if np.any(unknown):
        raise LossError(f"y has labels that the estimator has not seen: {np.unique(labels[unknown])[:5]}")
    return numbers


ROW_LOSSES: dict[str, RowLoss] = {
    name: partial(_of_predictions if loss.task == "regression" else _of_margins, loss)
    for name, loss in LOSSES.items()
} | {"log_loss": _of_probabilities, "zero_one": _of_labels}


@dataclass(frozen=True, eq=False)
class ScoreTask:
    """A fitted estimator, or the error of its fit, and the rows to score it on."""

    estimator: Any
    X: Any
    y: Any
    loss: str | Callable[..., Any]
    error: Exception | None = None


@dataclass(frozen=True, eq=False)
class Scored:
    """Losses, or the error that fit or prediction raised."""

    losses: Array
    error: Exception | None = None


def score_rows(task: ScoreTask) -> Scored:
    """Score one candidate: one whose predict fails is excluded; an invalid loss function raises."""
    if task.error is not None:
        return Scored(np.empty(0), task.error)
    try:
        return Scored(row_losses(task.estimator, task.X, task.y, task.loss))
    except LossError:
        raise
    except Exception as error:
        return Scored(np.empty(0), error)
