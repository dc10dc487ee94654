"""Rows of any kind as an Arrow table: data frames, dictionaries, records, arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tailproof.core.lookup import optional
from tailproof.tables.columns import TableError, check_unique


def as_table(X: Any) -> Any:
    """Rows of any kind as a ``pyarrow.Table``; columns of an array are named x0, x1 and so on.

    Examples
    --------
    >>> as_table({"size": [1, 2]}).to_pylist() == as_table([{"size": 1}, {"size": 2}]).to_pylist()
    True
    """
    pa = optional("pyarrow", extra="cli")
    if isinstance(X, pa.Table):
        return X
    if hasattr(X, "to_arrow"):
        return X.to_arrow()
    if isinstance(X, dict):
        return pa.table(X)
    if isinstance(X, list) and X and all(isinstance(row, dict) for row in X):
        return pa.Table.from_pylist(X)
    if hasattr(X, "columns"):
        return _of_frame(X)
    if isinstance(X, str):
        raise TableError(
            f"X must be a table, and {X[:80]!r} is text: tailproof.predict(model, path) reads files"
        )
    array = np.asarray(X)
    if array.ndim != 2:
        raise TableError(
            f"X must be a table or a two-dimensional array; got {type(X).__name__} of shape {array.shape}"
        )
    return pa.table({f"x{j}": array[:, j].tolist() for j in range(array.shape[1])})


def _of_frame(X: Any) -> Any:
    """A data frame of pandas; categories that are intervals, as ``pandas.cut`` makes them, become text."""
    pa = optional("pyarrow", extra="cli")
    frame = X.rename(columns=str)
    check_unique(map(str, frame.columns), "X")
    cut = [name for name, kind in frame.dtypes.items() if "interval" in str(getattr(kind, "categories", ""))]
    frame = frame.assign(**{name: frame[name].cat.rename_categories(str) for name in cut})
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TableError(f"{error.args[-1]}: make its values all numbers, or all text") from None
    return table.replace_schema_metadata(None)
