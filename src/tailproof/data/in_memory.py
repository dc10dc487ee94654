"""Data in memory: arrays, and tables of pandas, polars and Arrow."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tailproof.data.readers.batches import BadRowsError, Reading, reading_of, remember
from tailproof.data.readers.refusals import no_row


@dataclass(frozen=True, eq=False)
class GatheredRows:
    """Rows as an estimator wants them, and how they were read where they come from a table.

    ``dropped`` counts the rows that were left out, where that was asked for; then X has no names any more.
    """

    X: Any
    y: Any
    weights: Any
    reading: Reading | None = None
    dropped: int | None = None


def fit_in_memory(estimator: Any, data: Any, options: Any) -> Any:
    """Plain ``fit`` on arrays and frames."""
    rows = _gather(data, options)
    with _naming_what_is_missing(data, options):
        estimator.fit(rows.X, rows.y, **({} if rows.weights is None else {"sample_weight": rows.weights}))
    if rows.reading is not None and rows.dropped is not None:
        estimator.feature_names_in_ = np.array(rows.reading.names, dtype=object)
    remember(estimator, rows.reading)
    if rows.dropped is not None and hasattr(estimator, "report_"):
        estimator.report_ = replace(estimator.report_, dropped_rows=rows.dropped)
    return estimator


def score_in_memory(estimator: Any, data: Any, options: Any) -> float:
    """Plain ``score`` on arrays and frames."""
    rows = _gather(data, options)
    nameless = rows.reading is not None and rows.dropped is not None
    model = without_names(estimator) if nameless else estimator
    with _naming_what_is_missing(data, options):
        return float(model.score(rows.X, rows.y, sample_weight=rows.weights))


def predict_in_memory(estimator: Any, data: Any, options: Any) -> Any:
    """Plain ``predict`` on arrays and frames."""
    if options.features is None or not (_is_arrow(data) or hasattr(data, "columns")):
        return estimator.predict(data)
    if not options.categories and not _is_arrow(data):
        return estimator.predict(data[list(options.features)])
    table = _as_table(data)
    reading = Reading(options.features, "", "", options.categories, batch_rows=max(table.num_rows, 1))
    return without_names(estimator).predict(next(_batches(table, reading)).X)


def without_names(estimator: Any) -> Any:
    """Return the fitted estimator without names of features, which batches do not have."""
    bare = copy.copy(estimator)
    bare.__dict__.pop("feature_names_in_", None)
    return bare


@contextmanager
def _naming_what_is_missing(data: Any, options: Any) -> Iterator[None]:
    """Say where something is missing if an estimator refuses it, as for rows in pieces."""
    try:
        yield
    except ValueError as error:
        refused = not options.drop and re.search(r"contains? (NaN|infinity)", str(error))
        place = _what_is_missing(data, options) if refused else None
        if place is None:
            raise
        raise place from None


def _what_is_missing(data: Any, options: Any) -> BadRowsError | None:
    try:
        _gather(data, options, as_pieces=True)
    except BadRowsError as error:
        return error
    except ImportError:  # without pyarrow the estimator's own words have to do
        return None
    return None


def _gather(data: Any, options: Any, as_pieces: bool = False) -> GatheredRows:
    """The rows as they are, or read like one piece of many, which looks for what is missing."""
    if not hasattr(data, "columns") and not _is_arrow(data):
        return _gather_arrays(data, options, as_pieces or options.drop)
    names = [str(name) for name in (data.column_names if _is_arrow(data) else data.columns)]
    reading = reading_of(names, 0, replace(options, batch_rows=max(len(data), 1)))
    if as_pieces or options.categories or options.drop or _is_arrow(data):
        return _complete_rows(_batches(_as_table(data), reading), reading)
    weights = data[reading.weight] if reading.weight else None
    return GatheredRows(data[list(reading.features)], data[reading.target], weights, reading)


def _gather_arrays(data: Any, options: Any, as_pieces: bool) -> GatheredRows:
    if isinstance(data, Mapping):
        raise ValueError(_advice_about_dict(data))
    if isinstance(data, (list, tuple)) and not data:
        raise ValueError(f"the data are an empty {type(data).__name__}: give (X, y), chunks, tables or paths")
    X, y = data if isinstance(data, tuple) and len(data) == 2 else (data, options.target)
    if not (hasattr(X, "shape") or hasattr(X, "__array__") or isinstance(X, (list, tuple))):
        raise TypeError(_advice_about_type(X))
    if isinstance(y, str):
        raise ValueError(
            "for arrays give the target itself: fit(estimator, (X, y)) or fit(estimator, X, target=y)"
        )
    if not as_pieces:
        return GatheredRows(X, y, options.weight)
    width = X.shape[1] if hasattr(X, "shape") else len(X[0])
    reading = reading_of(None, width, replace(options, batch_rows=max(len(y), 1)))
    batches = reading.array_batches(0, "the data", X, y, options.weight)
    return replace(_complete_rows(batches, reading), reading=None)


def _advice_about_type(X: Any) -> str:
    """What to give instead of something that has no rows, or does not say how to read them."""
    if inspect.isroutine(X):
        return "cannot read a function: call it, and give what it returns"
    if hasattr(X, "__getitem__") and hasattr(X, "__len__"):  # a torch Dataset
        return f"cannot read a {type(X).__name__}: give a DataLoader of it, or its arrays as (X, y)"
    return (
        f"cannot read data of type {type(X).__name__}: give arrays (X, y), a table, a path, a stream of "
        "tables, or data of Dask or Spark"
    )


def _advice_about_dict(data: Mapping[Any, Any]) -> str:
    """What to give instead: one of several tables (splits of a dataset), or columns as a table."""
    first = next(iter(data), None)
    if any(hasattr(data.get(first), name) for name in ("column_names", "columns")):
        return f"the data are {len(data)} tables in a dict: give one of them, data[{first!r}]"
    return (
        "the data are a dict of columns: give a table of them, pandas.DataFrame(data) or pyarrow.table(data)"
    )


def _complete_rows(batches: Any, reading: Reading) -> GatheredRows:
    """Rows of the only batch in which nothing is missing."""
    batch = next(batches, None)
    if batch is None:
        raise ValueError(no_row(0, 0))
    rows = np.setdiff1d(np.arange(len(batch)), batch.missing)
    if not rows.size:
        raise ValueError(no_row(max(len(batch), batch.dropped), batch.dropped))
    weights = batch.weights[rows] if batch.weights.size else None
    return GatheredRows(batch.X[rows], batch.y[rows], weights, reading, batch.dropped)


def _batches(table: Any, reading: Reading) -> Any:
    return reading.arrow_batches(0, "the data", iter(table.to_batches()))


def _is_arrow(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow.lib")


def _as_table(data: Any) -> Any:
    """Arrow table of a frame or of a single batch."""
    if _is_arrow(data) and hasattr(data, "to_batches"):
        return data
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    import pyarrow as pa

    if _is_arrow(data):
        return pa.Table.from_batches([data])
    return pa.Table.from_pandas(data, preserve_index=False)
