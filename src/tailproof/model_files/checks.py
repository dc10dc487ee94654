"""Whether what a file describes is a model: types, shapes, finiteness, and parts that fit together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from math import comb
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import PolynomialFeatures

from tailproof.core.held_out import HeldOutErrors, NoiseScale
from tailproof.core.inference import CoefficientErrors
from tailproof.estimators.sklearn_private import validate_parameter_constraints
from tailproof.model_files import torch_modules
from tailproof.reports.choice_report import RobustReport
from tailproof.reports.fit_report import Report
from tailproof.tables.columns import COLUMN_TYPES
from tailproof.tables.dialect import Dialect
from tailproof.tables.encoding import Column, Encoding
from tailproof.tables.model import CLASSIFICATION, REGRESSION, TableModel

_MOST_FEATURES = 10_000_000  # no table is wider; bounds the memory of the trial prediction
_MOST_BLOCKS = 1_000_000
_MOST_DEGREES = 100
_LARGEST = 1e150  # of a coefficient: products with the values of a table must not overflow
_LARGEST_LOG = 700.0  # of the size of noise
_MADE_UP = (1.0, 0.0, 0.5, -1.0)  # numbers of a made-up row, until one of them will do
_NOT_FINITE = "it predicts NaN"
_KINDS = {np.floating: "f", np.integer: "iu", np.bool_: "b"}


def check_record(record: Any) -> None:
    """Refuse a record whose fields are not of the types that its class declares, or contradict each other."""
    cls: Any = type(record)
    if cls.__name__ in torch_modules.TORCH_CLASSES:
        return
    for name, hint in _declared(cls):
        if not conforms(getattr(record, name), hint):
            raise ValueError(f"{cls.__name__}.{name} is of the wrong type")
    _RECORDS.get(cls, lambda _: None)(record)


@cache
def _declared(cls: Any) -> list[tuple[str, Any]]:
    """Fields with their types, read once: a wide table has a record for each column."""
    hints = get_type_hints(cls)
    return [(field.name, hints[field.name]) for field in fields(cls)]


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type.

    Examples
    --------
    >>> conforms((1, 2), tuple[int, ...]), conforms({"a": "b"}, dict[str, float]), conforms(None, int | None)
    (True, False, True)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(conforms(value, kind) for kind in inner)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and _is_array_of(value, get_args(inner[1])[0])
    if origin is tuple:
        kinds = inner[:1] * len(value) if isinstance(value, tuple) and inner[-1] is ... else inner
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(conforms, value, kinds))
    if origin is dict:
        return isinstance(value, dict) and all(
            conforms(key, inner[0]) and conforms(item, inner[1]) for key, item in value.items()
        )
    if hint in (None, NoneType):
        return value is None
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is hint if hint in (int, bool) else isinstance(value, origin or hint)


def _is_array_of(array: NDArray[Any], scalar: Any) -> bool:
    kinds = next(
        (kinds for base, kinds in _KINDS.items() if isinstance(scalar, type) and issubclass(scalar, base)),
        None,
    )
    return kinds is None or array.size == 0 or array.dtype.kind in kinds


def _check_column(column: Column) -> None:
    if column.kind not in COLUMN_TYPES:
        raise ValueError(f"column {column.name[:40]!r} is of an unknown kind")
    if not abs(column.fill) <= _LARGEST:
        raise ValueError(f"column {column.name[:40]!r} is filled with a number that is not finite")
    _needs(len(column.sizes) in (0, 3) and all(0 < size < np.inf for size in column.sizes), "sizes are none")
    if column.kind == "category" and (not column.levels or len({*column.levels}) < len(column.levels)):
        raise ValueError(f"column {column.name[:40]!r} has no categories, or one twice")


def _check_encoding(encoding: Encoding) -> None:
    names = [column.name for column in encoding.columns]
    if not names or len({*names}) < len(names):
        raise ValueError("the table that it learned from has no columns, or two of the same name")


def _check_dialect(dialect: Dialect) -> None:
    _needs(dialect.decimal in (None, ".", ","), "its tables have a decimal mark that is neither . nor ,")
    _needs(isinstance(dialect.units, (dict, type(None))), "the units of its columns are no table")


def _check_report(report: Report | RobustReport) -> None:
    """A report is there to be read: whatever does not fit together shows when it is printed."""
    _needs(getattr(report, "k", 1) in range(1, _MOST_BLOCKS), "its report has no proper number of blocks")
    try:
        str(report), report.verdict(), report.sections()
    except Exception:
        raise ValueError("its report contradicts itself") from None


def _check_errors(errors: CoefficientErrors) -> None:
    centre, factor = errors.centre, errors.factor
    fits = centre.ndim == 1 and factor.ndim == 2 and factor.shape[1] == centre.size and errors.freedom > 0
    _needs(fits and _is_bounded(centre) and _is_bounded(factor), "its standard errors contradict each other")


def _check_held_out(errors: HeldOutErrors) -> None:
    sorted_ones = [errors.plain, *([] if errors.noise is None else [errors.scaled])]
    fits = all(
        knots.ndim == 1 and knots.size and np.isfinite(knots).all() and (np.diff(knots) >= 0).all()
        for knots in sorted_ones
    )
    fits = fits and 1 <= errors.rows < _LARGEST and 0 <= errors.power <= 2 and errors.lowest in (0.0, -np.inf)
    _needs(bool(fits), "its errors of held-out rows contradict each other")


def _check_noise(noise: NoiseScale) -> None:
    d = noise.centre.size
    shapes = noise.centre.shape == noise.scale.shape == (d,) and noise.coef.shape == (2 * d + 1,)
    arrays = noise.centre, noise.scale, noise.coef
    fits = shapes and all(map(_is_bounded, arrays)) and (noise.scale > 0).all()
    _needs(
        bool(fits and abs(noise.low) <= _LARGEST_LOG and abs(noise.high) <= _LARGEST_LOG),
        "the size of its noise is not what a fit makes",
    )


def _check_table_model(model: TableModel) -> None:
    _needs(isinstance(model.estimator, BaseEstimator), "TableModel.estimator is no estimator")
    report = getattr(model.estimator, "report_", None)
    _needs(isinstance(report, Report | RobustReport), "the estimator has no report")
    wide = len(model.encoding.names) == getattr(model.estimator, "n_features_in_", None)
    _needs(wide, "the estimator has another number of columns than the table")
    task = CLASSIFICATION if is_classifier(model.estimator) else REGRESSION
    _needs(model.task == task, f"it says that it is for {model.task[:40]!r}, which its estimator is not")


def _check_module(saved: torch_modules.SavedModule) -> None:
    _needs(saved.tensors.keys() == saved.types.keys(), "a tensor of the module has no type")
    if saved.linear is not None:
        inputs, outputs, _ = saved.linear
        _needs(0 <= saved.members <= len(saved.tensors), "it is a blend of another number of modules")
        names = [f"members.{j}.weight" for j in range(saved.members)] or ["weight"]
        shapes = {getattr(saved.tensors.get(name), "shape", None) for name in names}
        _needs(shapes == {(outputs, inputs)}, "the weights of the linear module have another shape")


def _needs(fits: bool, otherwise: str) -> None:
    if not fits:
        raise ValueError(otherwise)


_RECORDS: dict[type, Callable[[Any], None]] = {
    Column: _check_column,
    Encoding: _check_encoding,
    Dialect: _check_dialect,
    Report: _check_report,
    RobustReport: _check_report,
    TableModel: _check_table_model,
    torch_modules.SavedModule: _check_module,
    CoefficientErrors: _check_errors,
    HeldOutErrors: _check_held_out,
    NoiseScale: _check_noise,
}


def check_estimator(model: BaseEstimator) -> None:
    """Refuse parameters that the class does not take, and fitted attributes that contradict each other."""
    cls = type(model)
    # None stands for what a file does not keep, such as estimators; intervals need δ.
    parameters = model.get_params(deep=False).items()
    given = {name: value for name, value in parameters if value is not None or name == "delta"}
    constraints = getattr(model, "_parameter_constraints", {})
    validate_parameter_constraints(constraints, given, caller_name=cls.__name__)
    for name, check in _ATTRIBUTES.items():
        if name in vars(model):
            _needs(check(model, vars(model)[name]), f"{cls.__name__}.{name} is not what a fit makes")
    arrays = [
        value for value in vars(model).values() if isinstance(value, np.ndarray) and value.dtype.kind == "f"
    ]
    large = any(_size(array) > _LARGEST for array in arrays if hasattr(model, "transform"))
    _needs(not large, f"{cls.__name__} holds numbers that are too large")
    if hasattr(model, "encoding_"):
        width = getattr(getattr(model, "estimator_", None), "n_features_in_", None)
        fits = isinstance(model.encoding_, Encoding) and len(model.encoding_.names) == width
        _needs(fits, f"{cls.__name__} turns a table into another number of columns than it learned from")
        _needs(isinstance(model.dialect_, Dialect), f"{cls.__name__} does not know how tables are written")
    if isinstance(model, Pipeline):
        parts = [step for _, step in model.steps if step not in (None, "passthrough")]
        _needs(
            bool(parts) and all(isinstance(part, BaseEstimator) for part in parts), "a step is no estimator"
        )
        *first, last = parts
        transform = all(hasattr(part, "transform") for part in first)
        _needs(transform, "a step before the last of its pipeline does not transform")
        useful = hasattr(last, "predict") or hasattr(last, "transform")
        _needs(useful, "the last step of its pipeline neither predicts nor transforms")
    if isinstance(model, PolynomialFeatures) and hasattr(model, "n_output_features_"):
        _check_polynomials(model)


def _check_polynomials(model: PolynomialFeatures) -> None:
    """Their number of columns follows from the degree, which a file can make as large as it likes."""
    lowest, highest = (0, model.degree) if isinstance(model.degree, int) else model.degree
    ends = model._min_degree, model._max_degree
    _needs(ends == (lowest, highest) and all(type(end) is int for end in ends), "its degrees do not agree")
    outputs = (
        comb(model.n_features_in_ + highest, highest) if highest <= _MOST_DEGREES else _MOST_FEATURES + 1
    )
    _needs(outputs <= _MOST_FEATURES, f"it would make {outputs:,} columns of polynomials")


def _is_count(_: Any, value: Any) -> bool:
    return type(value) is int and 1 <= value <= _MOST_FEATURES


def _is_coef(model: Any, coef: Any) -> bool:
    if not (isinstance(coef, np.ndarray) and coef.ndim in (1, 2) and coef.size > 0 and _is_bounded(coef)):
        return False
    rows, classes = len(np.atleast_2d(coef)), np.size(getattr(model, "classes_", ()))
    # Two classes need one row of coefficients, more need one each.
    fits = classes == 2 if rows == 1 and classes else classes in (0, rows)
    # Those of a pipeline's last step belong to the columns that the steps before make.
    inner = hasattr(model, "estimator_")
    return fits and (inner or coef.shape[-1] == getattr(model, "n_features_in_", coef.shape[-1]))


def _is_bounded(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype.kind in "fiu" and _size(array) <= _LARGEST


def _size(array: NDArray[Any]) -> float:
    """Largest absolute value, NaN where there is one; a limit of float64 is none of float32."""
    return float(np.max(np.abs(array), initial=0))


def _is_intercept(model: Any, value: Any) -> bool:
    array = np.asarray(value)
    rows = len(np.atleast_2d(model.coef_)) if hasattr(model, "coef_") else array.size
    return _is_bounded(array) and array.size in (1, rows) and array.ndim < 2


def _is_classes(_: Any, value: Any) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.size == 0:
        return False
    return len({*value.tolist()}) == value.size


def _is_names(model: Any, value: Any) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim != 1 or not all(isinstance(v, str) for v in value):
        return False
    return value.size == getattr(model, "n_features_in_", value.size)


def _are_errors_of(model: Any, value: Any) -> bool:
    sizes = np.size(getattr(model, "coef_", ())), np.size(getattr(model, "intercept_", ()))
    return isinstance(value, CoefficientErrors) and value.centre.size == sum(sizes)


def _are_held_out(model: Any, value: Any) -> bool:
    if not isinstance(value, HeldOutErrors):
        return False
    width = getattr(model, "n_features_in_", None)
    return value.noise is None or width is None or value.noise.centre.size == width


_ATTRIBUTES: Mapping[str, Callable[[Any, Any], Any]] = {
    "n_features_in_": _is_count,
    "n_output_features_": _is_count,
    "coef_": _is_coef,
    "intercept_": _is_intercept,
    "classes_": _is_classes,
    "feature_names_in_": _is_names,
    "coefficient_errors_": _are_errors_of,
    "held_out_errors_": _are_held_out,
    "report_": lambda _, value: isinstance(value, Report | RobustReport),
    "estimator_": lambda _, value: isinstance(value, BaseEstimator) and hasattr(value, "predict"),
}


class UntriedError(ValueError):
    """No made-up row is among those that a model takes: what it predicts could not be checked."""


def try_out(model: Any) -> None:
    """Predict for, or transform, a made-up row; whatever goes wrong with all of them raises a ValueError.

    What is checked part by part may still not fit together: a scaler of three columns before a model of four.

    Raises
    ------
    UntriedError
        If only the values of the rows are to blame: an unknown category, a logarithm of zero.
    """
    model = model.estimator if isinstance(model, TableModel) else model
    model = model.estimator_ if hasattr(model, "encoding_") else model
    if not isinstance(model, BaseEstimator) or type(model).__name__ in torch_modules.TORCH_CLASSES:
        return
    reasons = []
    for value in _MADE_UP:
        try:
            with np.errstate(all="ignore"):
                _run(model, made_up_row(model, value))
            return
        except Exception as error:
            reasons.append((str(error).splitlines() or [""])[0][:150] or type(error).__name__)
    words = f"{type(model).__name__} cannot be used: {reasons[0]}"
    raise (UntriedError if all(map(_blames_values, reasons)) else ValueError)(words)


def _blames_values(reason: str) -> bool:
    return reason == _NOT_FINITE or reason.startswith("Found unknown categor")


def _run(model: Any, row: Any) -> Any:
    if isinstance(model, Pipeline):
        *first, (_, last) = [step for step in model.steps if step[1] not in (None, "passthrough")]
        for _, step in first:
            row = _run(step, row)
        return _run(last, row)
    bare = _nameless(model) if isinstance(row, np.ndarray) else model
    if not hasattr(bare, "predict"):
        return bare.transform(row)
    predicted = np.asarray(bare.predict(row))
    _needs(predicted.shape[:1] == (1,), "it does not predict one value for a row")
    _needs(predicted.dtype.kind not in "fc" or bool(np.isfinite(predicted).all()), _NOT_FINITE)
    return predicted


def _nameless(model: Any) -> Any:
    """A copy without names of columns, which a made-up row does not have."""
    bare = copy.copy(model)
    vars(bare).pop("feature_names_in_", None)
    if hasattr(bare, "estimator_"):
        bare.estimator_ = _nameless(bare.estimator_)
    return bare


def made_up_row(model: Any, value: float = 1.0) -> Any:
    """One row that a model takes: the value given, or the first category of each column."""
    if isinstance(model, Pipeline):
        first = next(step for _, step in model.steps if step not in (None, "passthrough"))
        return made_up_row(first, value)
    if isinstance(model, FeatureUnion):
        return made_up_row(model.transformer_list[0][1], value)
    if isinstance(model, ColumnTransformer):
        return _row_by_columns(model, value)
    for inner in ("estimator_", "regressor_"):
        if hasattr(model, inner):
            return made_up_row(getattr(model, inner), value)
    values = [value] * model.n_features_in_
    if hasattr(model, "categories_") and isinstance(model.categories_, list):
        values = [categories[0] for categories in model.categories_]
    elif value == _MADE_UP[-1] or getattr(model, "statistics_", np.empty(0)).dtype.kind == "O":
        values = list(getattr(model, "statistics_", values))  # of an imputer: they may be categories
    numeric = all(isinstance(one, (int, float, np.number)) for one in values)
    return np.array([values], dtype=np.float64 if numeric else object)


def _row_by_columns(model: ColumnTransformer, value: float) -> Any:
    """A row put together from those of the parts, with names if the columns are known by name."""
    row = np.array([[value] * model.n_features_in_], dtype=object)
    for name, part, _ in model.transformers_:
        if isinstance(part, BaseEstimator):
            places = model._transformer_to_input_indices[name]
            _needs(len(places) == part.n_features_in_, f"{name[:40]!r} takes another number of columns")
            row[0, places] = made_up_row(part, value)[0]
    if not hasattr(model, "feature_names_in_"):
        return row if any(isinstance(one, str) for one in row[0]) else row.astype(np.float64)
    import pandas as pd

    return pd.DataFrame(row, columns=list(model.feature_names_in_)).infer_objects()
