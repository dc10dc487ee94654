"""Data in memory: tables of pandas, polars and Arrow, and which of their columns are what."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tailproof.data.readers.batches import Batch, Reading


@dataclass(frozen=True)
class Columns:
    """Which columns are what."""

    features: tuple[str, ...]
    target: str
    weight: str


def columns_of(opened: Any, options: Any) -> Columns:
    """Columns that the options ask for, checked against those that are there.

    Parameters
    ----------
    opened : object
        With ``columns``, a list of names, or with ``width`` where columns have no names.
    options : Options
    """
    names = getattr(opened, "columns", None)
    if names is None:
        made_up = tuple(f"feature {j}" for j in range(opened.width))
        return Columns(made_up, "y", "weight" if options.weight is not None else "")
    if not isinstance(options.target, str):
        raise ValueError("target must be the name of a column of the data")
    if not (options.weight is None or isinstance(options.weight, str)):
        raise ValueError("sample_weight must be the name of a column of the data")
    weight = options.weight or ""
    features = options.features
    if features is None:
        features = tuple(name for name in names if name not in (options.target, weight))
    for name in [*features, *([options.target] if options.target else []), *([weight] if weight else [])]:
        if name not in names:
            raise ValueError(f"there is no column {name!r} in the data; their columns are {_listed(names)}")
    strange = sorted(set(options.categories) - set(features))
    if strange:
        raise ValueError(f"categories are declared for {strange}, which are not among the features")
    if not features:
        raise ValueError("there is no feature to learn from: the target is the only column")
    return Columns(tuple(features), options.target, weight)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


@dataclass(frozen=True, eq=False)
class Here:
    """Rows in memory, as an estimator wants them."""

    X: Any
    y: Any
    weights: Any
    dropped: int | None = None
    columns: tuple[str, ...] | None = None
    names: list[str] | None = None


def fit_here(estimator: Any, data: Any, options: Any) -> Any:
    """Plain ``fit`` on arrays and frames."""
    here = _gather(data, options)
    more = {} if here.weights is None else {"sample_weight": here.weights}
    estimator.fit(here.X, here.y, **more)
    if here.names is not None:
        estimator.feature_names_in_ = np.array(here.names, dtype=object)
    remember(estimator, here.columns, options.categories)
    if here.dropped is not None and hasattr(estimator, "report_"):
        estimator.report_ = replace(estimator.report_, dropped_rows=here.dropped)
    return estimator


def remember(estimator: Any, columns: tuple[str, ...] | None, categories: dict[str, Any]) -> None:
    """Keep what predict and score need to find their way in the same kind of data."""
    if columns is None:
        for name in ("columns_", "categories_"):
            estimator.__dict__.pop(name, None)
        return
    estimator.columns_, estimator.categories_ = columns, categories


def score_here(estimator: Any, data: Any, options: Any) -> float:
    """Plain ``score`` on arrays and frames."""
    here = _gather(data, options)
    model = estimator if here.names is None else without_names(estimator)
    return float(model.score(here.X, here.y, sample_weight=here.weights))


def predict_here(estimator: Any, data: Any, features: Any = None) -> Any:
    """Plain ``predict`` on arrays and frames."""
    chosen = features or getattr(estimator, "columns_", None)
    categories = getattr(estimator, "categories_", {})
    if chosen is None or not (_is_arrow(data) or hasattr(data, "columns")):
        return estimator.predict(data)
    if not categories and not _is_arrow(data):
        return estimator.predict(data[list(chosen)])
    table = _as_table(data)
    reading = Reading(tuple(chosen), "", "", categories, False, np.asarray, max(table.num_rows, 1))
    return without_names(estimator).predict(_one_batch(table, reading).X)


def without_names(estimator: Any) -> Any:
    """Return the fitted estimator without names of features, which batches do not have."""
    bare = copy.copy(estimator)
    bare.__dict__.pop("feature_names_in_", None)
    return bare


def _gather(data: Any, options: Any) -> Here:
    if hasattr(data, "collect_schema") and not hasattr(data, "shape"):
        raise TypeError("a LazyFrame has no rows yet: give its collect(), or the path it is scanned from")
    if not hasattr(data, "columns") and not _is_arrow(data):
        return _gather_arrays(data, options)
    names = [str(name) for name in (data.column_names if _is_arrow(data) else data.columns)]
    columns = columns_of(_Named(names), options)
    if not options.categories and not options.drop and not _is_arrow(data):
        weights = data[columns.weight] if columns.weight else None
        chosen = list(columns.features)
        return Here(data[chosen], data[columns.target], weights, columns=columns.features)
    table = _as_table(data)
    reading = Reading(
        columns.features,
        columns.target,
        columns.weight,
        options.categories,
        options.drop,
        np.asarray,
        max(len(data), 1),
    )
    batch = _one_batch(table, reading)
    rows = np.setdiff1d(np.arange(len(batch)), batch.missing)
    weights = batch.weights[rows] if batch.weights.size else None
    return Here(batch.X[rows], batch.y[rows], weights, batch.dropped, columns.features, reading.names)


def _gather_arrays(data: Any, options: Any) -> Here:
    X, y = data if isinstance(data, tuple) and len(data) == 2 else (data, options.target)
    if isinstance(y, str):
        raise ValueError(
            "for arrays give the target itself: fit(estimator, (X, y)) or fit(estimator, X, target=y)"
        )
    if not options.drop:
        return Here(X, y, options.weight)
    width = X.shape[1] if hasattr(X, "shape") else len(X[0])
    names = tuple(f"feature {j}" for j in range(width))
    reading = Reading(names, "y", "weight", {}, True, np.asarray, max(len(y), 1))
    batch = next(iter(reading.array_batches(0, "the data", X, y, options.weight)))
    rows = np.setdiff1d(np.arange(len(batch)), batch.missing)
    return Here(
        batch.X[rows], batch.y[rows], batch.weights[rows] if batch.weights.size else None, batch.dropped
    )


@dataclass(frozen=True)
class _Named:
    columns: list[str]


def _one_batch(table: Any, reading: Reading) -> Batch:
    return next(reading.arrow_batches(0, "the data", iter(table.to_batches())))


def _is_arrow(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow.lib")


def _as_table(data: Any) -> Any:
    """Arrow table of a frame."""
    if _is_arrow(data):
        return data
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    import pyarrow as pa

    return pa.Table.from_pandas(data, preserve_index=False)
