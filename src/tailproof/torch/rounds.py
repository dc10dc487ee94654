"""Rounds: train every candidate from a common start, merge, and start again from the merged point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from tailproof.core import Array
from tailproof.core.algorithms import FAR
from tailproof.core.merge import Merged
from tailproof.reports.round_report import RoundReport
from tailproof.torch.stacked_modules import Bools, Stack, Tensors, as_tensor, flatten, unflatten


@dataclass(frozen=True, eq=False)
class MergedStack:
    """One point for parameters and buffers, and where the finite candidates lie."""

    parameters: Tensors
    buffers: Tensors
    merged: Merged
    finite: Bools

    def report(self, number: int, validation_risk: float | None, points: Array) -> RoundReport:
        """Describe the merge of one round."""
        distances = np.full(self.finite.size, np.inf)
        distances[self.finite] = np.linalg.norm(points - self.merged.point, axis=1)
        return RoundReport(
            number,
            self.merged.radius,
            distances,
            np.flatnonzero(self.finite & (distances > FAR * self.merged.radius)),
            np.flatnonzero(~self.finite),
            validation_risk,
        )


def merge_stack(
    stack: Stack, combine: Callable[..., Merged], *, per_tensor: bool = False, finite: Bools | None = None
) -> MergedStack:
    """Merge the finite candidates of a stack.

    Parameters
    ----------
    stack : Stack
    combine : callable
        A value of ``MERGES``.
    per_tensor : bool
        Merge each parameter tensor on its own, not the vector of all. Buffers (batch norm) always are.
    finite : array of bool, optional
        Which candidates take part; all by default.
    """
    rows = np.ones(len(stack), dtype=bool) if finite is None else finite
    candidates = {name: leaf[rows] for name, leaf in stack.candidates.items()}
    whole = combine(flatten(candidates))
    parameters = _merge_each(candidates, combine) if per_tensor else unflatten(whole.point, candidates)
    buffers = _merge_each({name: buffer[rows] for name, buffer in stack.buffers.items()}, combine)
    return MergedStack(parameters, buffers, whole, rows)


def _merge_each(tensors: Tensors, combine: Callable[..., Merged]) -> Tensors:
    """Merge each tensor on its own; counters are those of the first candidate."""
    return {name: _merge_one(name, tensor, combine) for name, tensor in tensors.items()}


def _merge_one(name: str, tensor: Tensor, combine: Callable[..., Merged]) -> Tensor:
    if not tensor.is_floating_point():
        return tensor[0]
    return as_tensor(combine(flatten({name: tensor})).point, tensor)
