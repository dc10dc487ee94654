"""Measures of predictions on held-out rows: errors, order, deviance, calibration, confusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, mean_tweedie_deviance, roc_auc_score

from tailproof.core import Array
from tailproof.core.means import mean_for, undoubted_interval
from tailproof.core.numerics.quantiles import weighted_median

_GROUPS = 10
_FEWEST = 5  # rows of a group
_CONFIDENCE = 0.95
_TINY = 1e-300
# Power of the variance that belongs to a loss, where its deviance has a name.
POWERS = {"poisson": 1.0, "gamma": 2.0, "tweedie": 1.5}


@dataclass(frozen=True)
class Group:
    """Rows with neighbouring predictions.

    Attributes
    ----------
    rows : int
    predicted, actual : float
        Means of the predictions and of the targets.
    low, high : float
        95% interval of the actual mean.
    """

    rows: int
    predicted: float
    actual: float
    low: float
    high: float


@dataclass(frozen=True)
class Confusion:
    """How many rows of each class were predicted to be of which.

    Attributes
    ----------
    labels : list of str
    counts : list of list of int
        A list for each true class, with a count for each predicted one.
    """

    labels: list[str]
    counts: list[list[int]]


def power_of(estimator: Any) -> float | None:
    """Power of the variance by the loss of an estimator; None where that has no deviance with a name."""
    loss = str(getattr(estimator, "loss", ""))
    asked = getattr(estimator, "loss_parameter", None) if loss == "tweedie" else None
    return POWERS.get(loss) if asked is None else float(asked)


def regression_scores(y: Any, predicted: Any, weights: Any = None) -> dict[str, float]:
    """R², root of the mean squared error, mean and median absolute error; Gini index and lift if y ≥ 0.

    Examples
    --------
    >>> regression_scores(np.array([0.0, 2.0, 4.0]), np.array([0.0, 2.0, 3.0]))["median_error"]
    0.0
    """
    gaps, middle = np.abs(y - predicted), np.average(y, weights=weights)
    squares, spread = np.average(gaps**2, weights=weights), np.average((y - middle) ** 2, weights=weights)
    scores = {
        "r2": float(1 - squares / spread) if spread > 0 else float("nan"),
        "rmse": float(np.sqrt(squares)),
        "mae": float(np.average(gaps, weights=weights)),
        "median_error": float(weighted_median(gaps, weights)),
    }
    if np.min(y) >= 0 < middle:
        scores |= {"gini": gini(y, predicted, weights), "lift": lift(y, predicted, weights)}
    return scores


def gini(y: Array, predicted: Array, weights: Array | None = None) -> float:
    """One minus twice the area below the Lorenz curve of the targets, in the order of the predictions.

    0 where the order says nothing about the targets; the better the order, the nearer to that of the targets
    themselves. Rows with equal predictions count as in random order.

    Examples
    --------
    >>> y = np.array([0.0, 0.0, 0.0, 8.0])
    >>> gini(y, y), gini(y, -y), gini(y, np.ones(4))
    (0.75, -0.75, 0.0)
    """
    weights = np.ones(len(y)) if weights is None else weights
    groups = np.unique(predicted, return_inverse=True)[1]
    mass, total = np.bincount(groups, weights), np.bincount(groups, weights * y)
    shares = np.concatenate([[0.0], np.cumsum(total) / total.sum()])
    return float(1 - np.sum(mass / mass.sum() * (shares[1:] + shares[:-1])))


def lift(y: Array, predicted: Array, weights: Array | None = None, top: float = 0.1) -> float:
    """Mean target of the tenth of the rows with the highest predictions, over that of all rows.

    Rows with equal predictions count as in random order.

    Examples
    --------
    >>> lift(np.arange(20.0), np.arange(20.0)) == 18.5 / 9.5
    True
    """
    weights = np.ones(len(y)) if weights is None else weights
    groups = np.unique(predicted, return_inverse=True)[1]
    level = (np.bincount(groups, weights * y) / np.maximum(np.bincount(groups, weights), _TINY))[groups]
    order = np.argsort(-predicted, kind="stable")
    enough = top * weights.sum() * (1 - 1e-9)
    first = order[: int(np.searchsorted(np.cumsum(weights[order]), enough)) + 1]
    return float(np.average(level[first], weights=weights[first]) / np.average(y, weights=weights))


def deviance(y: Array, predicted: Array, power: float, weights: Array | None = None) -> float:
    """Mean deviance of the family whose variance is the mean to this power: 1 Poisson, 2 gamma.

    Examples
    --------
    >>> deviance(np.array([1.0, 2.0]), np.array([1.0, 2.0]), 1.0)
    0.0
    """
    safe = np.maximum(predicted, _TINY)
    return float(mean_tweedie_deviance(y, safe, sample_weight=weights, power=power))


def class_scores(
    y: NDArray[Any], classes: NDArray[Any], predicted: NDArray[Any], shares: Array, weights: Any = None
) -> dict[str, float]:
    """Accuracy, mean log loss, and for two classes the area under the ROC curve."""
    places = np.searchsorted(classes, y)
    of_label = np.maximum(shares[np.arange(len(y)), places], np.finfo(np.float64).eps)
    scores = {
        "accuracy": float(accuracy_score(y, predicted, sample_weight=weights)),
        "log_loss": float(np.average(-np.log(of_label), weights=weights)),
    }
    if len(classes) == 2 and np.unique(places).size == 2:
        scores["auc"] = float(roc_auc_score(places, shares[:, 1], sample_weight=weights))
    return scores


def calibration(y: Array, predicted: Array, weights: Array | None = None) -> list[Group]:
    """Rows in ten groups of equal weight by their predictions: what was predicted, and what came.

    The actual mean has Student's interval, corrected for skewness.

    Examples
    --------
    >>> groups = calibration(np.arange(200.0), np.arange(200.0))
    >>> len(groups), groups[0].predicted, groups[0].actual
    (10, 9.5, 9.5)
    """
    mass = np.ones(len(y)) if weights is None else weights
    order = np.argsort(predicted, kind="stable")
    count = min(_GROUPS, len(y) // _FEWEST)
    if count < 2:
        return []
    limits = mass.sum() * np.arange(1, count) / count * (1 + 1e-12)
    ends = np.searchsorted(np.cumsum(mass[order]), limits, side="right")
    parts = [part for part in np.split(order, ends) if part.size >= _FEWEST and mass[part].sum() > 0]
    return [_group(y[part], predicted[part], None if weights is None else weights[part]) for part in parts]


def _group(y: Array, predicted: Array, weights: Array | None) -> Group:
    actual, delta = float(np.average(y, weights=weights)), 1 - _CONFIDENCE
    low = high = actual
    if np.ptp(y) > 0:
        estimate = undoubted_interval(
            y, mean_for("mean", len(y), delta), delta, weights=weights, method="student"
        )
        # A mean is within the values that it is of: of counts not below zero, of shares not above one.
        low = max(float(estimate.low), float(y.min()))
        high = (
            min(float(estimate.high), 1.0)
            if float(y.max()) == 1.0 and float(y.min()) >= 0
            else float(estimate.high)
        )
    return Group(len(y), float(np.average(predicted, weights=weights)), actual, low, high)


def confusion(y: Any, predicted: Any, classes: Any, most: int = 12) -> Confusion:
    """Counts of true and predicted classes; where there are many, those of the most frequent ones.

    Examples
    --------
    >>> confusion(["a", "b", "b"], ["a", "a", "b"], ["a", "b"])
    Confusion(labels=['a', 'b'], counts=[[1, 0], [1, 1]])
    """
    table = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(table, (np.searchsorted(classes, y), np.searchsorted(classes, predicted)), 1)
    kept = np.sort(np.argsort(-table.sum(axis=1), kind="stable")[:most])
    return Confusion([str(classes[j]) for j in kept], table[np.ix_(kept, kept)].tolist())


def driving_rows(y: Array, predicted: Array, weights: Array | None = None) -> NDArray[np.intp]:
    """The fewest rows that have half of all squared error, largest first: they drive an ordinary fit.

    Examples
    --------
    >>> driving_rows(np.array([0.0, 9.0, 1.0, -1.0]), np.zeros(4)).tolist()
    [1]
    """
    squares = np.square(y - predicted)
    if weights is not None:
        squares *= weights
    half = squares.sum() / 2
    if half == 0:
        return np.empty(0, dtype=np.intp)
    # Where they are few they are among the largest hundredth, and the others need no order.
    largest = np.sort(np.argpartition(-squares, min(len(y) // 100 + 8, len(y) - 1))[: len(y) // 100 + 8])
    if squares[largest].sum() < half:
        largest = np.arange(len(y))
    order = largest[np.argsort(-squares[largest], kind="stable")]
    return order[: int(np.searchsorted(np.cumsum(squares[order]), half)) + 1]
