"""What a report says of a model with the log link: its limits, and whether it has converged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.candidates import FittedLevel, LinearFit, RegressionTask

UNSETTLED = (
    "The model stopped before it converged: coefficients are not those of the loss. Columns with a few rows "
    "far from the others are the usual reason: take logarithms of them, or divide them into classes."
)


def log_link_remarks(model: LinearFit, limits: Array, task: RegressionTask) -> tuple[str, ...]:
    """Sentences on a model whose linear predictions are kept within limits."""
    stopped = any(level.path.stopped[level.member] for level in _levels(model))
    return (_on_limits(model.scores(task.X), limits), *((UNSETTLED,) if stopped else ()))


def _levels(model: LinearFit) -> Iterator[FittedLevel]:
    """The levels that a model is made of."""
    if model.level is not None:
        yield model.level
    for _, part in model.parts:
        yield from _levels(part)


def _on_limits(scores: Array, limits: Array) -> str:
    least, largest = np.exp(limits).tolist()
    reached = int(np.count_nonzero((scores < limits[0]) | (scores > limits[1])))
    held = f" {reached} of the {scores.size} rows fitted would be beyond that." if reached else ""
    return f"Predicted means are kept from {least:.3g} to {largest:.3g}, which the rows support.{held}"
