"""Partial effects: what the model predicts on average as one column of the table takes other values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from tailproof.core import Array
from tailproof.tables.encoding import Column
from tailproof.tables.model import PreparedTable

_ROWS = 400  # that predictions are averaged over
_MOST_COLUMNS = 40  # whose effects are computed
_POINTS = np.linspace(0.02, 0.98, 13)  # quantiles at which a number is set
_MOST_LEVELS = 8  # categories that are shown
_DAYS = 366  # beyond which a number of days is a date


@dataclass(frozen=True, eq=False)
class Effect:
    """Mean prediction where a column has a value, all other columns being as they are.

    Attributes
    ----------
    name : str
        Of the column.
    values : array, or list of str
        Numbers or categories.
    predicted : array
        Mean prediction at each.
    strength : float
        Standard deviation of the mean prediction as the column varies over the rows.
    are_days : bool
        Whether the values are days since 1970, of dates.
    """

    name: str
    values: Any
    predicted: Array
    strength: float
    are_days: bool = False


def partial_effects(rows: PreparedTable, estimator: Any, most: int = 6) -> list[Effect]:
    """Effects of the columns that move predictions most, strongest first.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from tailproof.tables.model import fit_table, prepare
    >>> size = np.arange(60.0)
    >>> rows = prepare(pa.table({"size": size, "hue": ["red", "blue"] * 30, "cost": 2 * size}), "cost")
    >>> effect = partial_effects(rows, fit_table(rows, "auto", {"random_state": 0}).estimator)[0]
    >>> effect.name, round(float(np.ptp(effect.predicted) / np.ptp(effect.values)), 2)
    ('size', 2.0)
    """
    predict, blocks = predicted_mean(estimator, rows), _blocks(rows)
    sample = rows.X[:: max(1, len(rows.X) // _ROWS)][:_ROWS]
    effects = [
        _effect(column, rows.X[:, block], block, sample, predict)
        for column, block in _leading(rows, estimator, blocks)
    ]
    return sorted((e for e in effects if e.strength > 0), key=lambda effect: -effect.strength)[:most]


def predicted_class(estimator: Any, rows: PreparedTable) -> Any:
    """The class whose probability is shown: the second of two, or the most frequent; None for numbers."""
    if not is_classifier(estimator):
        return None
    if len(estimator.classes_) == 2:
        return estimator.classes_[1]
    labels, counts = np.unique(rows.y, return_counts=True)
    return labels[counts.argmax()]


def predicted_mean(estimator: Any, rows: PreparedTable) -> Callable[[Array], float]:
    """From rows to the mean of their predictions, or of the probabilities of one class."""
    label = predicted_class(estimator, rows)
    if label is None:
        return lambda X: float(np.mean(estimator.predict(X)))
    place = int(np.flatnonzero(estimator.classes_ == label)[0])
    return lambda X: float(np.mean(estimator.predict_proba(X)[:, place]))


def _blocks(rows: PreparedTable) -> list[tuple[Column, slice]]:
    """Every column of the table, and the columns of the matrix that it became."""
    widths = [len(column.names) for column in rows.encoding.columns]
    ends = np.cumsum(widths)
    places = [slice(int(end - width), int(end)) for end, width in zip(ends, widths, strict=True)]
    return list(zip(rows.encoding.columns, places, strict=True))


def _leading(
    rows: PreparedTable, estimator: Any, blocks: list[tuple[Column, slice]]
) -> list[tuple[Column, slice]]:
    """The columns that coefficients say matter, where there are many."""
    if len(blocks) <= _MOST_COLUMNS or not hasattr(estimator, "coef_"):
        return blocks[:_MOST_COLUMNS]
    weight = np.abs(np.atleast_2d(estimator.coef_)).sum(axis=0) * rows.X.std(axis=0)
    return sorted(blocks, key=lambda item: -float(weight[item[1]].sum()))[:_MOST_COLUMNS]


def _effect(
    column: Column, own: Array, block: slice, sample: Array, predict: Callable[[Array], float]
) -> Effect:
    values, settings, shares = (_levels if column.kind == "category" else _points)(column, own)
    changed, predicted = sample.copy(), np.empty(len(settings))
    for j, setting in enumerate(settings):
        changed[:, block] = setting
        predicted[j] = predict(changed)
    middle = np.average(predicted, weights=shares)
    strength = float(np.sqrt(np.average((predicted - middle) ** 2, weights=shares)))
    # Times of day and lengths of time are dates, too, and small.
    are_days = column.kind == "date" and float(np.abs(values).max()) > _DAYS
    return Effect(column.name, values, predicted, strength, are_days)


def _points(column: Column, own: Array) -> tuple[Array, Array, Array]:
    """Quantiles of a number where it is not missing, as rows of the matrix."""
    present = own[own[:, 1] == 0, 0] if column.indicator else own[:, 0]
    values = np.unique(np.quantile(present, _POINTS, method="nearest"))
    if values.size == 1:  # one value in nearly all rows: its ends
        values = np.unique([present.min(), present.max()])
    settings = np.zeros((values.size, own.shape[1]))
    settings[:, 0] = values
    near = np.abs(np.searchsorted((values[1:] + values[:-1]) / 2, present))
    return values, settings, np.bincount(near, minlength=values.size).astype(np.float64)


def _levels(column: Column, values: Array) -> tuple[list[str], Array, Array]:
    """The most frequent categories, as rows of the matrix."""
    counts = np.append(values.sum(axis=0), len(values) - values.sum())
    settings = np.vstack([np.eye(values.shape[1]), np.zeros((1, values.shape[1]))])
    names = [*column.levels, column.reference]
    shown = np.argsort(-counts, kind="stable")[:_MOST_LEVELS]
    return [names[j] for j in shown], settings[shown], counts[shown]
