"""Rows as scaled columns with that of ones, whatever coordinates they are kept in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows

_ALL = slice(None)


def scaled_tiles(rows: ScaledRows) -> Iterator[tuple[slice, Array]]:
    """Scaled columns with that of ones, a few rows at a time, whatever rows are kept as."""
    back = _back(rows) if rows.in_basis else None
    for part, Z in rows.tiles():
        yield part, Z if back is None else Z @ back


def long_tiles(rows: ScaledRows) -> Iterator[tuple[slice, Array]]:
    """The same, all at once where that is no copy."""
    return iter([(_ALL, rows.X)]) if rows.ready and not rows.in_basis else scaled_tiles(rows)


def as_scaled_columns(rows: ScaledRows) -> ScaledRows:
    """The same as scaled columns with that of ones, for several passes, if they are kept at all."""
    return replace(rows, X=rows.X @ _back(rows), basis=None) if rows.in_basis else rows


def _back(rows: ScaledRows) -> Array:
    """From white coordinates to scaled columns."""
    return np.asarray((rows.whitening.map / rows.whitening.inverse).T)


def in_scaled_columns(rows: ScaledRows, X: Any) -> ScaledRows:
    """The same made from their features X as they are, so that pieces of them have the same numbers."""
    return replace(rows, basis=None).others(X, rows.y, rows.weights) if rows.in_basis else rows
