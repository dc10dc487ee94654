"""A model for tables: the encoding of the columns, the estimator, and what the target is."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
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
from tailproof.tables.columns import (
    RowError,
    TableError,
    check_present,
    column_type,
    is_classes,
    is_counts,
    numbers_of,
    target_numbers,
)
from tailproof.tables.dialect import Dialect
from tailproof.tables.encoding import Encoding, learn_encoding, with_codes
from tailproof.tables.frames import as_table
from tailproof.tables.reading import read_files
from tailproof.tables.sizes import warn_of_sizes
from tailproof.tables.values import convert

REGRESSION, CLASSIFICATION = "regression", "classification"
TASKS = {"auto": None, REGRESSION: REGRESSION, CLASSIFICATION: CLASSIFICATION}
# Names that --method takes, and the estimator of each for a task.
CLI_METHODS: dict[str, dict[str, type]] = {
    "auto": {REGRESSION: RobustRegressor, CLASSIFICATION: DCSGDClassifier},
    "dc": {REGRESSION: DCSGDRegressor, CLASSIFICATION: DCSGDClassifier},
    "rv": {REGRESSION: RVSGDRegressor, CLASSIFICATION: RVSGDClassifier},
}
_DAY = 86_400e6  # microseconds
_NO_DATE = np.datetime64("NaT", "us")
LEAST_ROWS = 10  # with fewer, no method has anything to learn from
_MOST_CLASSES = 1000


class OptionError(ValueError):
    """An option of the command line that does not go with the others."""


@dataclass(frozen=True)
class Roles:
    """Columns that are not learned from, by what they are for; an empty name is none.

    Attributes
    ----------
    weight : str
        Weight of each row's loss.
    exposure : str
        Time or sum at risk: what is learned is the target for each unit of it.
    offset : str
        Logarithm of an exposure.
    """

    weight: str = ""
    exposure: str = ""
    offset: str = ""

    @property
    def names(self) -> list[str]:
        """Columns that have a role."""
        return [name for name in (self.weight, self.exposure, self.offset) if name]

    def exposures(self, table: Any) -> Array | None:
        """Exposure of each row; None where there is none, or the column is not there."""
        name = self.exposure or self.offset
        if not name or name not in table.column_names:
            return None
        values = numbers_of(name, table.column(name))
        exposures = np.exp(values) if self.offset else values
        if not np.all((exposures > 0) & np.isfinite(exposures)):
            raise TableError(f"column {name!r} must hold exposures above zero: correct it or leave rows out")
        return exposures


@dataclass(frozen=True, eq=False)
class PreparedTable:
    """A table ready to learn from: numbers, target and task.

    Attributes
    ----------
    X, y : arrays
    encoding : Encoding
    target, task, why : str
        Name of the target, "regression" or "classification", and what decided it.
    rows : array of int
        Indices in the table of the rows with a target.
    without_target : int
        How many rows were left out.
    weights : array or None
        Of the rows.
    roles : Roles
        What other columns than the target are for.
    target_type : str
        A name in ``COLUMN_TYPES``.
    sampled : bool
        Whether these are a few of the rows that are learned from, which others read.
    """

    X: Array
    y: NDArray[Any]
    encoding: Encoding
    target: str
    task: str
    why: str
    rows: NDArray[np.intp]
    without_target: int = 0
    weights: Array | None = None
    roles: Roles = Roles()
    target_type: str = "number"
    sampled: bool = False


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
    dialect : Dialect
        How the files were written that it learned from.
    roles : Roles
    target_type : str
        "date" where predictions are dates.
    non_negative : bool
        Whether the target was never below zero.
    whole_days : bool
        Whether the target had dates without a time of day: predictions have none either.
    """

    encoding: Encoding
    estimator: Any
    target: str
    task: str
    made: dict[str, Any]
    dialect: Dialect = field(default_factory=Dialect)
    roles: Roles = Roles()
    target_type: str = "number"
    non_negative: bool = False
    whole_days: bool = False

    @classmethod
    def of(
        cls, rows: PreparedTable, estimator: Any, made: dict[str, Any], dialect: Dialect | None = None
    ) -> TableModel:
        """Put together what was prepared and what was fitted."""
        lowest = rows.task == REGRESSION and float(rows.y.min()) >= 0 and rows.target_type == "number"
        facts = rows.encoding, estimator, rows.target, rows.task, made, dialect or Dialect()
        whole = rows.target_type == "date" and bool(np.all(rows.y == np.floor(rows.y)))
        return cls(*facts, rows.roles, rows.target_type, bool(lowest), whole)

    def predict(self, table: Any, interval: float | None = None) -> dict[str, NDArray[Any]]:
        """Predictions for the rows of a table or data frame, and probabilities of the classes if it has any.

        With ``interval``, a share such as 0.9, also the ends "low" and "high" of intervals that hold so many
        targets of new rows.

        Examples
        --------
        >>> import pyarrow as pa
        >>> size = np.arange(60.0)
        >>> table = pa.table({"size": size, "colour": ["red", "blue"] * 30, "cost": size})
        >>> model = fit_table(prepare(table, "cost"), "auto", {"random_state": 0})
        >>> sorted(model.predict(pa.table({"size": [3.0, None], "colour": ["green", "red"]})))
        ['prediction']
        """
        table = self.converted(table)
        predicted = self.predictions(table, interval)
        warn_of_sizes(self.encoding.samples(table))
        return predicted

    def converted(self, table: Any) -> Any:
        """A table or data frame with numbers and dates where the model has them."""
        table = as_table(table)
        others = frozenset(table.column_names) - self.numbers
        return convert(table, self.dialect.as_learned, others)[0]

    def predictions(self, table: Any, interval: float | None = None) -> dict[str, NDArray[Any]]:
        """What :meth:`predict` returns, for a table that is converted, without a look at its numbers."""
        X = self.encoding.matrix(table)
        predicted = self.estimator.predict(X)
        columns = {"prediction": predicted}
        if interval is not None:
            ends = self.estimator.predict_interval(X, interval)
            columns |= {"low": ends[:, 0], "high": ends[:, 1]}
        exposures = self.roles.exposures(table)
        if exposures is not None:
            columns = {name: values * exposures for name, values in columns.items()}
        if self.target_type == "date":
            columns = {name: _dates(values, self.whole_days) for name, values in columns.items()}
        if self.task == CLASSIFICATION and hasattr(self.estimator, "predict_proba"):
            shares = self.estimator.predict_proba(X)
            columns |= {f"share {label}": shares[:, j] for j, label in enumerate(self.estimator.classes_)}
        return columns

    @property
    def texts(self) -> list[str]:
        """Columns that stay strings whatever new rows hold."""
        return [column.name for column in self.encoding.columns if column.kind == "category"]

    @property
    def numbers(self) -> frozenset[str]:
        """Columns that are numbers or dates for the model."""
        columns = (column.name for column in self.encoding.columns if column.kind != "category")
        return frozenset([*columns, *self.roles.names])

    def predict_files(self, paths: Any) -> NDArray[Any]:
        """Predictions for the rows of files: what :func:`tailproof.predict` calls."""
        read = read_files(paths, self.dialect.as_learned, as_text=self.texts, used=self.numbers)
        return self.predict(read.table)["prediction"]


def _dates(days: Array, whole: bool = False) -> NDArray[Any]:
    """Days as dates, the nearest ones if they are to be whole; a day that is not finite is none."""
    known = np.isfinite(days)
    days = np.where(known, days, 0.0)
    unit, count = ("D", 1.0) if whole else ("us", _DAY)
    found = np.round(days * count).astype(f"datetime64[{unit}]")
    return np.where(known, found, _NO_DATE.astype(found.dtype))


def prepare(
    table: Any,
    target: str,
    task: str = "auto",
    leave_out: Iterable[str] = (),
    *,
    weight: str = "",
    exposure: str = "",
    offset: str = "",
) -> PreparedTable:
    """Turn a table into numbers, without the rows that have no target, and decide the task.

    Parameters
    ----------
    table : pyarrow.Table
    target : str
        Name of the column to learn.
    task : {"auto", "regression", "classification"}
    leave_out : iterable of str
        Columns not to learn from.
    weight, exposure, offset : str
        Columns for the weight of each row, for its exposure, or for the logarithm of that: with one, the
        target for each unit of exposure is learned.
    """
    roles = Roles(weight, exposure, offset)
    skipped = list(dict.fromkeys(leave_out))
    _check_names(table.column_names, target, skipped, roles)
    table = with_codes(table.drop_columns(skipped))
    values = table.column(target)
    rows = _not_missing(values)
    if rows.size < LEAST_ROWS:
        raise TableError(
            f"{rows.size} rows have a value of the target {target!r}: learning needs at least {LEAST_ROWS}"
        )
    without = table.num_rows - rows.size
    if without:
        table = table.take(rows)
        values = table.column(target)
    try:
        kind, why = _kind_of_task(values, target, lookup("task", task, TASKS))
        y = TARGETS[kind](target, values)
        y, weights = _weighted(table, y, kind, roles)
        encoding = learn_encoding(table, leave_out=[target, *roles.names])
        target_type = column_type(target, values) if kind == REGRESSION else "category"
        X = encoding.matrix(table)
    except RowError as error:  # which counts the rows that have a target
        raise error.among(rows) from None
    return PreparedTable(X, y, encoding, target, kind, why, rows, without, weights, roles, target_type)


def _weighted(table: Any, y: NDArray[Any], kind: str, roles: Roles) -> tuple[NDArray[Any], Array | None]:
    """Target for each unit of exposure, and weights."""
    weights = numbers_of(roles.weight, table.column(roles.weight)) if roles.weight else None
    if weights is not None and (np.any(weights < 0) or not np.any(weights > 0)):
        raise TableError(f"column {roles.weight!r} must hold weights that are not negative, some above zero")
    exposures = roles.exposures(table)
    if exposures is None:
        return y, weights
    if kind != REGRESSION:
        raise OptionError("--exposure and --offset are for regressions, such as of counts: see --task")
    # A count with an exposure is a rate that weighs as much as its exposure.
    return y / exposures, exposures if weights is None else weights * exposures


def fit_table(
    rows: PreparedTable, method: str, settings: dict[str, Any], made: dict[str, Any] | None = None
) -> TableModel:
    """Fit the estimator of a method; settings that are None keep its defaults."""
    estimator = make_estimator(rows.task, method, settings)
    more = {} if rows.weights is None else {"sample_weight": rows.weights}
    return TableModel.of(rows, estimator.fit(rows.X, rows.y, **more), dict(made or {}))


def make_estimator(task: str, method: str, settings: dict[str, Any]) -> Any:
    """Estimator of a method for a task; a setting that it does not have is an error.

    Examples
    --------
    >>> make_estimator("regression", "dc", {"k": 9, "delta": None})
    DCSGDRegressor(k=9)
    """
    cls = lookup("method", method, CLI_METHODS)[task]
    given = {name: value for name, value in settings.items() if value is not None}
    foreign = sorted(set(given) - set(inspect.signature(cls).parameters))
    if foreign:
        raise OptionError(
            f"--{foreign[0]} does not go with --method {method} for {task} ({cls.__name__}): "
            "take --method dc or rv, or leave it out"
        )
    _check_loss(cls, task, method, given.get("loss"))
    estimator = cls(**given)
    try:
        estimator._validate_params()
        get_loss(estimator.loss, None, task)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return estimator


def _check_loss(cls: type, task: str, method: str, loss: str | None) -> None:
    """Refuse a loss that is none for the task, or that another method would take, and name those that are."""
    suited = [name for name, known in LOSSES.items() if known.task == task]
    if loss is not None and loss not in suited:
        raise OptionError(f"--loss {loss} is none for {task}: there are {', '.join(suited)}")
    takes = getattr(cls._parameter_constraints["loss"][0], "options", None)  # type: ignore[attr-defined]
    if loss is not None and takes and loss not in takes:
        raise OptionError(
            f"--loss {loss} does not go with --method {method} ({cls.__name__}), which takes "
            f"{', '.join(sorted(takes))}: take another loss or method"
        )


def _check_names(names: list[str], target: str, skipped: list[str], roles: Roles) -> None:
    if target in skipped:
        raise OptionError(f"--drop {target} would leave the target out: it is never learned from")
    if roles.exposure and roles.offset:
        raise OptionError("--exposure and --offset say the same thing: give one of them")
    taken = [target, *skipped, *roles.names]
    check_present(names, taken)
    if len({*taken}) < len(taken):
        name = next(name for name in taken if taken.count(name) > 1)
        raise OptionError(f"column {name!r} cannot be two things at once")
    if set(names) <= {*taken}:
        raise TableError(f"{target!r} is the only column: there is nothing to learn it from")


def _not_missing(values: Any) -> NDArray[np.intp]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())  # half precision has no sum, and Arrow 16 finds no NaN in it
    numbers = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if numbers and not values.null_count and math.isfinite(pc.sum(values).as_py() or 0):
        return np.arange(len(values))  # a finite sum settles that none is NaN
    return np.flatnonzero(pc.invert(pc.is_null(values, nan_is_null=True)).to_numpy(zero_copy_only=False))


def _kind_of_task(values: Any, target: str, asked: str | None) -> tuple[str, str]:
    if asked:
        return asked, "as asked"
    if is_classes(target, values):
        instead = "" if column_type(target, values) == "category" else "; --task regression overrides"
        return CLASSIFICATION, f"{target!r} has {len(values.unique())} different values{instead}"
    words = "a number"
    if column_type(target, values) == "date":
        words = "a date, counted in days"
    elif is_counts(values):
        words = "a count (--loss poisson may suit it)"
    return REGRESSION, f"{target!r} is {words}; --task classification overrides"


def _numbers(target: str, values: Any) -> Array:
    if column_type(target, values) == "category":
        raise TableError(f"the target {target!r} is text: a regression needs numbers, see --task")
    return target_numbers(target, values)


def _labels(target: str, values: Any) -> NDArray[Any]:
    labels = np.asarray(values.to_numpy(zero_copy_only=False))
    labels = np.char.strip(labels.astype(str)) if labels.dtype.kind == "O" else labels
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
