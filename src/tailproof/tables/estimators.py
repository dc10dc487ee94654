"""Estimators for tables with text, dates and missing values, as scikit-learn has them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from tailproof.estimators.linear.estimators import DCSGDClassifier
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.tables.columns import TableError, column_type, is_text, numbers_of
from tailproof.tables.dialect import Dialect
from tailproof.tables.encoding import learn_encoding, with_codes
from tailproof.tables.frames import as_table
from tailproof.tables.reading import read_files
from tailproof.tables.sizes import warn_of_sizes
from tailproof.tables.values import convert


def _one_column(y: Any) -> NDArray[Any]:
    """The target as one array, also from a frame of one column; a value that is missing is an error."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype == object and values.ndim == 1:
        _check_none_missing(sum(map(_is_missing, values.tolist())))
    return values


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float) and np.isnan(value)
    return value is None or bool(is_nan) or type(value).__name__ in ("NAType", "NaTType")  # those of pandas


def _check_none_missing(count: int) -> None:
    if count:
        rows = "1 row" if count == 1 else f"{count:,} rows"
        raise TableError(f"the target has no value in {rows}: leave out the rows without one")


class _TableEstimator(BaseEstimator):
    """Columns to numbers, then an estimator; what both kinds share."""

    def __init__(self, estimator: Any = None, decimal: str | None = None) -> None:
        self.estimator = estimator
        self.decimal = decimal

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Learn how columns become numbers, and fit the estimator on them.

        Parameters
        ----------
        X : data frame of pandas or polars, Arrow table, or array
            Strings that are numbers or dates are read as such; other strings are categories.
        y : array-like of shape (n_samples,)
        sample_weight : array-like, optional
        """
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be '.' or ','; got {self.decimal!r}")
        table = as_table(X)
        if not table.num_columns:
            raise TableError("X has no columns: there is nothing to learn from")
        if not table.num_rows:
            raise TableError("X has no rows: there is nothing to learn from")
        texts = [field.name for field in table.schema if is_text(field.type)]
        table, self.dialect_, _ = convert(table, Dialect(decimal=self.decimal))
        self.texts_ = tuple(name for name in texts if is_text(table.schema.field(name).type))
        table = with_codes(table)
        self.encoding_ = learn_encoding(table)
        self.n_features_in_ = table.num_columns
        self.feature_names_in_ = np.array(table.column_names, dtype=object)
        weights = {} if sample_weight is None else {"sample_weight": np.asarray(sample_weight)}
        estimator = self._default() if self.estimator is None else clone(self.estimator)
        self.estimator_ = estimator.fit(self.encoding_.matrix(table), self._target(_one_column(y)), **weights)
        return self

    def _default(self) -> Any:
        raise NotImplementedError

    def _target(self, y: NDArray[Any]) -> NDArray[Any]:
        """The target as the estimator takes it."""
        return y

    def transform_rows(self, X: Any) -> NDArray[np.floating]:
        """Numbers for the rows of a table, as the estimator sees them."""
        check_is_fitted(self)
        table = as_table(X)
        if not table.num_rows:
            raise TableError("X has no rows: there is nothing to predict")
        others = frozenset(table.column_names) - self._numbers
        table, _, _ = convert(table, self.dialect_.as_learned, others)
        matrix = self.encoding_.matrix(table)
        self._warn_of_new_categories(table)
        warn_of_sizes(self.encoding_.samples(table))
        return matrix

    def _warn_of_new_categories(self, table: Any) -> None:
        """A category that the model does not know, perhaps another spelling, is predicted as another one."""
        for column in self.encoding_.columns:
            if column.kind == "category" and (gap := column.gap(table.column(column.name))).unknown:
                warnings.warn(str(replace(gap, missing=0)), UserWarning, stacklevel=4)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions for the rows of a table."""
        rows = self.transform_rows(X)
        return np.asarray(self.estimator_.predict(rows))

    def predict_files(self, paths: Any) -> NDArray[Any]:
        """Predictions for the rows of files: what :func:`tailproof.predict` calls."""
        check_is_fitted(self)
        read = read_files(paths, self.dialect_.as_learned, as_text=self.texts_, used=self._numbers)
        return self.predict(read.table)

    @property
    def _numbers(self) -> frozenset[str]:
        """Columns that are numbers or dates for the model."""
        return frozenset(column.name for column in self.encoding_.columns if column.kind != "category")


class TableRegressor(RegressorMixin, _TableEstimator):
    """A regressor for tables: text, dates and missing values in, predictions out.

    Parameters
    ----------
    estimator : regressor, optional
        Fitted on the numbers; default :class:`RobustRegressor`.
    decimal : {".", ","}, optional
        Decimal mark of numbers in text; found by default, and a warning says where it had to be guessed.

    Attributes
    ----------
    encoding_ : Encoding
        How columns become numbers.
    estimator_ : regressor
    dialect_ : Dialect
        How strings become numbers and dates.
    texts_ : tuple of str
        Columns that stay strings.

    Examples
    --------
    >>> import numpy as np, pandas as pd, tailproof as tp
    >>> rng = np.random.default_rng(0)
    >>> colours = rng.choice(["red", "blue"], 200)
    >>> frame = pd.DataFrame({"size": rng.standard_normal(200), "colour": colours})
    >>> frame.loc[3, "size"] = np.nan
    >>> y = 2 * frame["size"].fillna(0) + (frame["colour"] == "red")
    >>> model = tp.TableRegressor(tp.DCSGDRegressor(random_state=0)).fit(frame, y)
    >>> bool(abs(model.predict(pd.DataFrame({"size": [1.0], "colour": ["red"]}))[0] - 3) < 0.2)
    True
    """

    def _default(self) -> Any:
        return RobustRegressor(random_state=0)

    def _target(self, y: NDArray[Any]) -> NDArray[Any]:
        """Numbers; text such as $1,234.50 is read as in the columns."""
        if not (y.ndim == 1 and y.size and all(isinstance(value, str) for value in y.tolist())):
            return y
        table, _, _ = convert(as_table(y[:, None]), self.dialect_.as_learned)
        values = table.column(0)
        if column_type("the target", values) != "number":
            raise TableError(
                f"the target is text such as {str(y[0])[:40]!r}, and a regression needs numbers: "
                "TableClassifier learns classes"
            )
        _check_none_missing(values.null_count)
        return numbers_of("the target", values)

    def summary(self, delta: float | None = None) -> Any:
        """Coefficients with standard errors and intervals, for an estimator that has them."""
        check_is_fitted(self)
        return self.estimator_.summary(delta, names=self.encoding_.names)

    def predict_interval(self, X: Any, coverage: float = 0.9, scaled: bool = False) -> NDArray[np.floating]:
        """Intervals that hold the targets of new rows, for an estimator that has them."""
        rows = self.transform_rows(X)
        return np.asarray(self.estimator_.predict_interval(rows, coverage, scaled))


class TableClassifier(ClassifierMixin, _TableEstimator):
    """A classifier for tables: text, dates and missing values in, classes out.

    Parameters
    ----------
    estimator : classifier, optional
        Fitted on the numbers; default :class:`DCSGDClassifier`.
    decimal : {".", ","}, optional
        Decimal mark of numbers in text; found by default, and a warning says where it had to be guessed.

    Attributes
    ----------
    encoding_, estimator_, dialect_, texts_
        As for :class:`TableRegressor`.
    classes_ : array
    """

    def _default(self) -> Any:
        return DCSGDClassifier(random_state=0)

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes."""
        labels: NDArray[Any] = self.estimator_.classes_
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Probabilities of the classes."""
        rows = self.transform_rows(X)
        return np.asarray(self.estimator_.predict_proba(rows))

    def decision_function(self, X: Any) -> NDArray[np.floating]:
        """Scores of the classes."""
        rows = self.transform_rows(X)
        return np.asarray(self.estimator_.decision_function(rows))
