"""A model for tables: the encoding of the columns, the estimator, and what the target is."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.lookup import lookup
from tailproof.core.losses import LOSSES, get_loss
from tailproof.estimators.linear.estimators import (
    DCSGDClassifier,
    DCSGDRegressor,
    RVSGDClassifier,
    RVSGDRegressor,
)
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.tables.columns import TableError, is_classes, kind_of, target_numbers
from tailproof.tables.encoding import Encoding, learn_encoding, with_codes

REGRESSION, CLASSIFICATION = "regression", "classification"
TASKS = {"auto": None, REGRESSION: REGRESSION, CLASSIFICATION: CLASSIFICATION}
# What --method says, and the estimator for each task.
METHODS: dict[str, dict[str, type]] = {
    "auto": {REGRESSION: RobustRegressor, CLASSIFICATION: DCSGDClassifier},
    "dc": {REGRESSION: DCSGDRegressor, CLASSIFICATION: DCSGDClassifier},
    "rv": {REGRESSION: RVSGDRegressor, CLASSIFICATION: RVSGDClassifier},
}
LEAST_ROWS = 10  # with fewer, no method has anything to learn from
_MOST_CLASSES = 1000


class OptionError(ValueError):
    """An option that does not go with the others."""


@dataclass(frozen=True, eq=False)
class Task:
    """Rows ready to learn from.

    Attributes
    ----------
    X, y : arrays
    encoding : Encoding
    target, task, why : str
        Name of the target, "regression" or "classification", and what decided it.
    rows : array of int
        Which rows of the table they are: those with a target.
    without_target : int
        How many rows were left out.
    """

    X: Array
    y: NDArray[Any]
    encoding: Encoding
    target: str
    task: str
    why: str
    rows: NDArray[np.intp]
    without_target: int = 0


@dataclass(frozen=True, eq=False)
class TableModel:
    """An estimator with everything that raw rows need to become its input.

    Attributes
    ----------
    encoding : Encoding
    estimator : estimator
        Fitted.
    target, task : str
    made : dict
        How: method, number of rows, seed, command.
    """

    encoding: Encoding
    estimator: Any
    target: str
    task: str
    made: dict[str, Any]

    def predict(self, table: Any) -> dict[str, NDArray[Any]]:
        """Predictions for the rows of a ``pyarrow.Table``, and shares of the classes where there are any.

        Examples
        --------
        >>> import pyarrow as pa
        >>> size = np.arange(60.0)
        >>> table = pa.table({"size": size, "colour": ["red", "blue"] * 30, "cost": size})
        >>> model = fit_table(prepare(table, "cost"), "auto", {"random_state": 0})
        >>> sorted(model.predict(pa.table({"size": [3.0, None], "colour": ["green", "red"]})))
        ['prediction']
        """
        X = self.encoding.matrix(table)
        found = {"prediction": self.estimator.predict(X)}
        if self.task == CLASSIFICATION and hasattr(self.estimator, "predict_proba"):
            shares = self.estimator.predict_proba(X)
            found |= {f"share {label}": shares[:, j] for j, label in enumerate(self.estimator.classes_)}
        return found


def prepare(table: Any, target: str, task: str = "auto", leave_out: Iterable[str] = ()) -> Task:
    """Rows with a target, as numbers, and what kind of task they make.

    Parameters
    ----------
    table : pyarrow.Table
    target : str
        Name of the column to learn.
    task : {"auto", "regression", "classification"}
    leave_out : iterable of str
        Columns not to learn from.
    """
    skipped = list(dict.fromkeys(leave_out))
    _check_names(table, target, skipped)
    table = with_codes(table.drop_columns(skipped))
    values = table.column(target)
    rows = np.flatnonzero(_present(values))
    if rows.size < LEAST_ROWS:
        raise TableError(
            f"{rows.size} rows have a value of the target {target!r}: learning needs at least {LEAST_ROWS}"
        )
    without = table.num_rows - rows.size
    if without:
        table = table.take(rows)
        values = table.column(target)
    kind, why = _kind_of_task(values, target, lookup("task", task, TASKS))
    y = TARGETS[kind](target, values)
    encoding = learn_encoding(table, leave_out=[target])
    return Task(encoding.matrix(table), y, encoding, target, kind, why, rows, without)


def fit_table(
    task: Task, method: str, settings: dict[str, Any], made: dict[str, Any] | None = None
) -> TableModel:
    """Fit the estimator of a method with the settings that were given (those that are None were not)."""
    estimator = make_estimator(task.task, method, settings)
    estimator.fit(task.X, task.y)
    return TableModel(task.encoding, estimator, task.target, task.task, dict(made or {}))


def make_estimator(task: str, method: str, settings: dict[str, Any]) -> Any:
    """Estimator of a method for a task; a setting that it does not have is an error.

    Examples
    --------
    >>> make_estimator("regression", "dc", {"k": 9, "delta": None})
    DCSGDRegressor(k=9)
    """
    cls = lookup("method", method, METHODS)[task]
    given = {name: value for name, value in settings.items() if value is not None}
    foreign = sorted(set(given) - set(inspect.signature(cls).parameters))
    if foreign:
        raise OptionError(
            f"--{foreign[0]} does not go with --method {method} for {task} ({cls.__name__}): "
            "take --method dc or rv, or leave it out"
        )
    _check_loss(cls, method, given.get("loss"))
    estimator = cls(**given)
    try:
        estimator._validate_params()
        get_loss(estimator.loss, None, task)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return estimator


def _check_loss(cls: type, method: str, loss: str | None) -> None:
    """Refuse a loss that another method would take, and name that method."""
    takes = getattr(cls._parameter_constraints["loss"][0], "options", None)  # type: ignore[attr-defined]
    if loss in LOSSES and takes and loss not in takes:
        raise OptionError(
            f"--loss {loss} does not go with --method {method} ({cls.__name__}), which takes "
            f"{', '.join(sorted(takes))}: take another loss or method"
        )


def _check_names(table: Any, target: str, skipped: list[str]) -> None:
    names = table.column_names
    if target in skipped:
        raise OptionError(f"--drop {target} would leave the target out: it is never learned from")
    for name in [target, *skipped]:
        if name not in names:
            near = ", ".join(repr(known) for known in names[:8]) + (", ..." if len(names) > 8 else "")
            raise TableError(f"there is no column {name!r}: the columns are {near}")
    if set(names) <= {target, *skipped}:
        raise TableError(f"{target!r} is the only column: there is nothing to learn it from")


def _present(values: Any) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    return np.asarray(pc.invert(pc.is_null(values, nan_is_null=True)).to_numpy(zero_copy_only=False))


def _kind_of_task(values: Any, target: str, asked: str | None) -> tuple[str, str]:
    if asked:
        return asked, "as asked"
    if is_classes(target, values):
        is_text = kind_of(target, values) == "category"  # which no option can make numbers of
        instead = "" if is_text else "; --task regression overrides"
        return CLASSIFICATION, f"{target!r} has {len(values.unique())} different values{instead}"
    said = "a date, counted in days" if kind_of(target, values) == "date" else "a number"
    return REGRESSION, f"{target!r} is {said}; --task classification overrides"


def _numbers(target: str, values: Any) -> Array:
    if kind_of(target, values) == "category":
        raise TableError(f"the target {target!r} is a text: a regression needs numbers, see --task")
    return target_numbers(target, values)


def _labels(target: str, values: Any) -> NDArray[Any]:
    labels = np.asarray(values.to_numpy(zero_copy_only=False))
    labels = labels.astype(str) if labels.dtype.kind == "O" else labels
    classes, counts = np.unique(labels, return_counts=True)
    if classes.size == 1:
        raise TableError(f"the target {target!r} has one value only, {classes[0]!s}: nothing to tell apart")
    if classes.size > min(_MOST_CLASSES, labels.size // 2):
        raise TableError(
            f"the target {target!r} has {classes.size:,} different values in {labels.size:,} rows: too many "
            "to be classes; for numbers give --task regression"
        )
    if counts.min() == 1:
        rare = classes[counts.argmin()]
        raise TableError(f"the target {target!r} is {str(rare)!r} in one row only: a class needs two or more")
    return labels


TARGETS = {REGRESSION: _numbers, CLASSIFICATION: _labels}
