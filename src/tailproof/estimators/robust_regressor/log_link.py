"""What a report says of a model with the log link: its limits, and whether it has converged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.candidates import FittedLevel, LinearFit, RegressionTask
from tailproof.estimators.robust_regressor.newton import System

UNSETTLED = (
    "The model stopped before it converged: coefficients are not those of the loss. Columns with a few rows "
    "far from the others are the usual reason: take logarithms of them, or divide them into classes."
)
_NOTHING = 1e-6  # a row, of the loss of targets whose mean is one


def log_link_remarks(model: LinearFit, limits: Array, task: RegressionTask) -> tuple[str, ...]:
    """Sentences on a model whose linear predictions are kept within limits."""
    stopped = any(_matters(level) for level in _levels(model))
    return (_on_limits(model.scores(task.X), limits), *((UNSETTLED,) if stopped else ()))


def _levels(model: LinearFit) -> Iterator[FittedLevel]:
    """The levels that a model is made of."""
    if model.level is not None:
        yield model.level
    for _, part in model.parts:
        yield from _levels(part)


def _matters(level: FittedLevel) -> bool:
    """Whether a level has stopped where another step would still gain something.

    The log mean of a category whose targets are all zero is −∞: its slope goes on for ever, for nothing.
    """
    path = level.path.only([level.member])
    if path.settled.all():
        return False
    rows, levels, scores = path.rows, path.levels, path.scores
    g = scores.gradient / rows.total - levels.ridge * path.basis.slopes(path.phi)
    step = System(rows, levels, scores, rows.total, rows.tuning.vanishing_damping).solve(g)
    return not float((g * step).sum()) <= _NOTHING


def _on_limits(scores: Array, limits: Array) -> str:
    least, largest = np.exp(limits).tolist()
    reached = int(np.count_nonzero((scores < limits[0]) | (scores > limits[1])))
    held = f" {reached} of the {scores.size} rows fitted would be beyond that." if reached else ""
    return f"Predicted means are kept from {least:.3g} to {largest:.3g}, which the rows support.{held}"
