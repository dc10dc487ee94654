"""Rows as scaled columns with that of ones, whatever coordinates they are kept in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tailproof.core import Array
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows

_ALL = slice(None)


def scaled_tiles(rows: ScaledRows) -> Iterator[tuple[slice, Array]]:
    """Scaled columns with that of ones, a few rows at a time, whatever rows are kept as."""
    back = (rows.whitening.map / rows.whitening.inverse).T if rows.in_basis else None
    for part, Z in rows.tiles():
        yield part, Z if back is None else Z @ back


def long_tiles(rows: ScaledRows) -> Iterator[tuple[slice, Array]]:
    """The same, all at once where that is no copy."""
    return iter([(_ALL, rows.X)]) if rows.ready and not rows.in_basis else scaled_tiles(rows)


def in_scaled_columns(rows: ScaledRows, X: Any) -> ScaledRows:
    """The same as scaled columns with that of ones, for several passes; X has their features as they are."""
    return replace(rows, basis=None).others(X, rows.y, rows.weights) if rows.in_basis else rows
