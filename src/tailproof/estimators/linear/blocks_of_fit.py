"""Which rows were in which block of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core.losses import LOSSES
from tailproof.estimators.linear.fit import LinearSGD, RowsInMemory


def rows_of_blocks(model: LinearSGD, X: Any) -> list[NDArray[np.intp]]:
    """Rows of every block of a fit on X, assigned again from the seed in its report."""
    left_out = model.report_.left_out
    kept = np.arange(X.shape[0]) if left_out is None else np.delete(np.arange(X.shape[0]), left_out)
    seed, nothing = np.random.SeedSequence(model.report_.seed), np.empty(kept.size)
    rows = RowsInMemory(X[kept], nothing, nothing, LOSSES["squared_error"], 1, seed, model.shuffle)
    rows.hold_out(model._share_to_hold_out())
    return [kept[block.rows] for block in rows.assign(model.report_.k)]
