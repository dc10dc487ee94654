"""Rows that stand for all: the near ones of a sample, and those of large leverage, which a pass has drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tailproof.data.level_sums import LevelSums, LevelTotals
from tailproof.estimators.robust_regressor.candidates import RegressionTask
from tailproof.estimators.robust_regressor.row_tiles import in_scaled_columns
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath


@dataclass(frozen=True, eq=False)
class Standing:
    """A path on such rows, whose weights stand for all.

    Attributes
    ----------
    path : TruncationPath
    drawn : int
        How many of its last rows have a large leverage.
    task : RegressionTask
        The sample's.
    before : ScaledRows or None
        The rows before they were whitened, if they are not just the sample's.
    """

    path: TruncationPath
    drawn: int
    task: RegressionTask
    before: ScaledRows | None

    @property
    def rows(self) -> ScaledRows:
        """Whitened."""
        return self.path.rows

    @cached_property
    def scaled(self) -> ScaledRows:
        """As scaled columns."""
        return in_scaled_columns(self.rows, self.task.X) if self.before is None else self.before

    @cached_property
    def far(self) -> ScaledRows | None:
        """Those of large leverage, if there are any."""
        return self.rows.take(np.arange(self.rows.n - self.drawn, self.rows.n)) if self.drawn else None


def standing_for_all(
    path: TruncationPath, task: RegressionTask, measure: LevelSums, totals: LevelTotals
) -> Standing:
    """The near rows of the sample that a path is of, and the far ones of all."""
    far = measure.leverage.is_far(measure.leverages(measure.columns.moved(task.X)))
    if not (far.any() or totals.far.size):
        return Standing(path, 0, task, None)
    near, drawn = np.flatnonzero(~far), totals.far
    weights = path.rows.weights[near] * ((totals.sizes[0] - totals.sizes[4]) / path.rows.weights[near].sum())
    features = drawn[:, 3:] if measure.columns.origin is None else drawn[:, 3:] + measure.columns.origin
    scaled = replace(path.rows, basis=None).others(
        np.concatenate([task.X[near], features]),
        np.concatenate([path.rows.y[near], drawn[:, 2]]),
        np.concatenate([weights, drawn[:, 1]]),
    )
    rows = scaled.whitened()
    standing = replace(path, rows=rows, phi=rows.whitening.coordinates(path.basis.map @ path.phi))
    return Standing(standing, len(drawn), task, scaled)
