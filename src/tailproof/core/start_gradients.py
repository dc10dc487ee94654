"""What the gradients of a sample of rows at the start tell a rule: levels, an anchor, the smoothness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.merge import geometric_median
from tailproof.core.partition import Block
from tailproof.core.rules import Rule
from tailproof.core.sgd import SGDLearner

_GROUPS = 20  # whose means the anchor is the geometric median of


@dataclass(frozen=True, eq=False)
class StartGradients:
    """Gradients of some rows where a learner starts; see :class:`tailproof.core.rules.AtStart`."""

    learner: SGDLearner
    rows: NDArray[np.intp]
    block_rows: float

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.learner.columns.centre.size)

    @cached_property
    def _gradients(self) -> Array:
        return self.learner.gradients(self.rows)

    def norms(self) -> Array:
        """‖G‖ of the rows."""
        return np.linalg.norm(self._gradients, axis=1)

    def anchor(self) -> Array:
        """Geometric median of the mean gradients of groups of rows."""
        groups = np.array_split(self._gradients, min(_GROUPS, self.rows.size))
        return geometric_median(np.stack([group.mean(axis=0) for group in groups])).point

    def distances(self, anchor: Array, p: float) -> Array:
        """‖G − anchor‖ of the rows: the q-norm of the coefficients, 1/p + 1/q = 1, beside the intercepts."""
        gaps = self._gradients - anchor
        outputs, q = self.learner.outputs, p / (p - 1)
        return np.hypot(_norms(gaps[:, :-outputs], q), _norms(gaps[:, -outputs:], 2.0))

    def smoothness(self) -> float:
        """The largest eigenvalue of E zzᵀ, with an intercept, times the curvature of the loss."""
        z = self.learner.scaled_rows(self.rows)
        ones = np.full((self.rows.size, 1), float(self.learner.fit_intercept))
        largest = float(np.linalg.norm(np.hstack([z, ones]), 2)) ** 2 / self.rows.size
        typical = float(np.mean(np.square(z).sum(axis=1))) + float(self.learner.fit_intercept)
        return self.learner.curvature / max(typical, 1e-300) * largest

    def place(self) -> Array:
        """The start, in scaled or whitened coordinates."""
        return self.learner.vector(self.learner.start(Block(0, self.rows, np.random.SeedSequence(0))))


def _norms(rows: Array, q: float) -> Array:
    """q-norm of every row, relative to its largest entry: powers overflow."""
    largest = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1e-300)
    return largest * (np.abs(rows / largest[:, None]) ** q).sum(axis=1) ** (1 / q)


def with_rule(learner: SGDLearner, rule: Rule, rows: NDArray[np.intp], block_rows: float) -> SGDLearner:
    """The learner with a rule whose automatic numbers come from some rows; blocks have so many."""
    return replace(learner, rule=rule.prepared(StartGradients(learner, rows, block_rows)))
