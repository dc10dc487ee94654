"""The training loop over mini-batches, and checks of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailproof.torch.stacked_modules import LossFunction, Stack, make_modules

Optimizer = torch.optim.Optimizer
MakeOptimizer = Callable[[list[Tensor]], Optimizer]

_SCHEDULE_UNITS = {"epoch", "batch"}
# A step of these depends on several numbers at once, so that one candidate would change another's steps.
_MIXING_OPTIMIZERS = {"LBFGS", "Adafactor", "Muon"}


class Trainer:
    """One forward pass, one backward pass and one optimiser step per mini-batch, for all candidates.

    Parameters
    ----------
    stack, loss_fn
    optimizer, schedule, schedule_each
        As in :meth:`Candidates.fit`.
    rates : tensor of shape (k,), optional
        Factors of the candidates' losses; with plain SGD, factors of their learning rates.
    """

    def __init__(
        self,
        stack: Stack,
        loss_fn: LossFunction,
        optimizer: MakeOptimizer,
        schedule: Callable[[Any], Any] | None = None,
        schedule_each: str = "epoch",
        rates: Tensor | None = None,
    ) -> None:
        self.stack = stack
        leaves = list(stack.parameters.values())
        self.optimizer = _optimizer_over(leaves, optimizer)
        self.rates = torch.ones(len(stack)).to(leaves[0]) if rates is None else rates
        scheduler = _scheduler(self.optimizer, schedule)
        self._after_epoch = scheduler.step if scheduler and schedule_each == "epoch" else _nothing
        self._after_batch = scheduler.step if scheduler and schedule_each == "batch" else _nothing
        self._losses = stack.losses(loss_fn)

    def run(self, batches: Iterable[tuple[Tensor, ...]]) -> None:
        """Train for one epoch on batches of shape (k, batch, ...)."""
        for *inputs, target in batches:
            self.optimizer.zero_grad()
            losses = self._forward(tuple(inputs), target)
            torch.autograd.backward(losses, self.rates)
            self.optimizer.step()
            self._after_batch()
            self.stack.count_step()
        self._after_epoch()

    def _forward(self, inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        try:
            return self._losses(inputs, target)
        except RuntimeError as error:
            if "atching rule" in str(error) or "vmap" in str(error):
                error.add_note("vmap cannot trace this module or loss: train in a loop, with vectorise=False")
            raise
        except ValueError as error:
            if target.shape[1] == 1:
                error.add_note(
                    "this batch has one row of each block: use a batch_size or k that leaves no such rest"
                )
            raise

    def keep(self, which: NDArray[np.bool_]) -> None:
        """Drop the other candidates."""
        self.rates = self.rates[torch.from_numpy(which).to(self.rates.device)]
        self.stack.keep(which, self.optimizer)


def _optimizer_over(leaves: list[Tensor], make: MakeOptimizer) -> Optimizer:
    # An optimiser that exists already would step other tensors.
    optimizer = make(leaves) if callable(make) else make
    if not callable(make) or not isinstance(optimizer, Optimizer):
        raise TypeError(
            "optimizer must be a callable from tensors to a torch.optim optimiser, such as "
            "functools.partial(torch.optim.SGD, lr=0.1); "
            f"{'it returned' if callable(make) else 'got'} {type(optimizer).__name__}"
        )
    if type(optimizer).__name__ in _MIXING_OPTIMIZERS:
        raise ValueError(
            f"{type(optimizer).__name__} would mix the candidates: use an optimiser that treats every number "
            "on its own, such as SGD, Adam or AdamW"
        )
    return optimizer


def _scheduler(optimizer: Optimizer, schedule: Callable[[Any], Any] | None) -> Any:
    if schedule is None:
        return None
    scheduler = schedule(optimizer)
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise ValueError("ReduceLROnPlateau would tie the candidates to one another: use another schedule")
    return scheduler


def _nothing() -> None:
    return None


def check_counts(k: int, epochs: int, batch_size: int | None, schedule_each: str) -> None:
    counts = {"k": k, "epochs": epochs, "batch_size": 1 if batch_size is None else batch_size}
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")
    if schedule_each not in _SCHEDULE_UNITS:
        raise ValueError(f"schedule_each must be one of {sorted(_SCHEDULE_UNITS)}; got {schedule_each!r}")


def check_outputs(make: Callable[[], nn.Module], row: Tensor, outputs: int) -> None:
    """Raise if a module does not take a row of features or does not return ``outputs`` numbers for it."""
    module = make_modules(make, [0], row.device, row.dtype)[0].eval()
    try:
        with torch.no_grad():
            output = module(row)
    except RuntimeError as error:
        raise ValueError(f"module does not take rows of {row.shape[1]} features: {error}") from error
    if not torch.is_tensor(output) or output.shape != (1, outputs):
        shape = tuple(output.shape) if torch.is_tensor(output) else type(output).__name__
        raise ValueError(
            f"module(n_features={row.shape[1]}, n_outputs={outputs}) must answer a row with {outputs} "
            f"number{'s' * (outputs > 1)}, shape (1, {outputs}); got {shape}"
        )
