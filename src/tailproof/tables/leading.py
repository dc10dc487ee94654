"""Which rows of a table count less than others in a fit, and what they carry of its error."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.tables.model import PreparedTable


def leading_rows(rows: PreparedTable, estimator: Any, most: int | None = None) -> dict[str, NDArray[Any]]:
    """Rows that count less than in least squares, those that count least first, as columns of a table.

    Parameters
    ----------
    rows : PreparedTable
        What the estimator was fitted on.
    estimator : RobustRegressor
    most : int, optional
        Rows at most; by default all that count less, and 20 at least.

    Returns
    -------
    dict of arrays
        "row", counted from 1 as in the data; "weight"; the target, "prediction", and "share of squared
        error".

    Examples
    --------
    >>> import pyarrow as pa
    >>> from tailproof.tables.model import fit_table, prepare
    >>> size = np.arange(60.0)
    >>> cost = size + np.cos(7 * size)
    >>> cost[4] = 60.0
    >>> rows = prepare(pa.table({"size": size, "cost": cost}), "cost")
    >>> leading_rows(rows, fit_table(rows, "auto", {"random_state": 0}).estimator, 1)["row"].tolist()
    [5]
    """
    weights, predicted = estimator.row_weights_, estimator.predict(rows.X)
    squares = (rows.y - predicted) ** 2 * (1.0 if rows.weights is None else rows.weights)
    count = max(int(np.sum(weights < 0.999)), 20) if most is None else most
    first = np.lexsort((-squares, weights))[:count]
    total = float(squares.sum())
    return {
        "row": rows.rows[first] + 1,
        "weight": weights[first],
        rows.target: rows.y[first],
        "prediction": predicted[first],
        "share of squared error": squares[first] / (total if total > 0 else 1.0),
    }
