"""Checks of what drives training: counts, optimisers, schedules, modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tailproof.torch.stacked_modules import make_modules

Optimizer = torch.optim.Optimizer
_SCHEDULE_UNITS = {"epoch", "batch"}


def check_counts(counts: dict[str, Any], schedule_each: str = "epoch") -> None:
    """Raise unless all are whole numbers, at least 1."""
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")
    if schedule_each not in _SCHEDULE_UNITS:
        raise ValueError(f"schedule_each must be one of {sorted(_SCHEDULE_UNITS)}; got {schedule_each!r}")


def check_optimizer(make: Callable[[list[Tensor]], Optimizer], leaves: list[Tensor]) -> Optimizer:
    """Make the optimiser; raise if it is none, or if the steps of one candidate depend on another."""
    # An optimiser that exists already would step other tensors.
    optimizer = make(leaves) if callable(make) else make
    if not callable(make) or not isinstance(optimizer, Optimizer):
        raise TypeError(
            "optimizer must be a callable from tensors to a torch.optim optimiser, such as "
            "functools.partial(torch.optim.SGD, lr=0.1); "
            f"{'it returned' if callable(make) else 'got'} {type(optimizer).__name__}"
        )
    if _mixes_candidates(make, leaves):
        raise ValueError(
            f"{type(optimizer).__name__} would mix the candidates: a step of one depends on the gradients of "
            "the others. Use an optimiser that treats every number on its own, such as SGD, Adam or AdamW; "
            "fit(clip_norm=...) clips the gradient of each candidate by its own norm"
        )
    return optimizer


def check_schedule(scheduler: Any) -> Any:
    """Raise for a schedule that looks at one loss of all candidates."""
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise ValueError("ReduceLROnPlateau would tie the candidates to one another: use another schedule")
    return scheduler


def check_outputs(make: Callable[[], nn.Module], row: Tensor, outputs: int) -> None:
    """Raise if a module does not take a row of features or does not return ``outputs`` numbers for it."""
    module = make_modules(make, [0], row.device, row.dtype)[0].eval()
    shape = row.shape[1] if row.ndim == 2 else tuple(row.shape[1:])
    try:
        with torch.no_grad():
            output = module(row)
    except RuntimeError as error:
        raise ValueError(f"module does not take rows of {shape} features: {error}") from error
    if not torch.is_tensor(output) or output.shape != (1, outputs):
        got = tuple(output.shape) if torch.is_tensor(output) else type(output).__name__
        raise ValueError(
            f"module(n_features={shape}, n_outputs={outputs}) must answer a row with {outputs} "
            f"number{'s' * (outputs > 1)}, shape (1, {outputs}); got {got}"
        )


def _mixes_candidates(make: Callable[[list[Tensor]], Optimizer], leaves: list[Tensor]) -> bool:
    """Whether steps of a small stand-in for candidate 0 change with the gradients of two others."""
    shapes = [(3, *(min(size, 3) for size in leaf.shape[1:])) for leaf in leaves]

    def first_after(seed: int, size: float) -> list[Tensor]:
        stand_ins = [
            torch.ones(shape, dtype=leaf.dtype).requires_grad_()
            for shape, leaf in zip(shapes, leaves, strict=True)
        ]
        optimizer = make(stand_ins)
        mine, others = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
        for _ in range(3):
            for tensor in stand_ins:
                tensor.grad = torch.randn(tensor.shape, generator=mine).to(tensor.dtype)
                tensor.grad[1:] = size * torch.randn(tensor[1:].shape, generator=others).to(tensor.dtype)
            optimizer.step()
        return [tensor.detach()[0] for tensor in stand_ins]

    try:
        pairs = zip(first_after(1, 1.0), first_after(2, 1e4), strict=True)
        return not all(torch.allclose(one, other, rtol=1e-5, atol=1e-12) for one, other in pairs)
    except TypeError:
        return True  # step() needs a closure, as in LBFGS, which searches along one line for all
