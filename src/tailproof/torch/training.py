"""The training loop over mini-batches: clipping, schedules, and the fall back from vmap to a loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tailproof.torch.checks import check_optimizer, check_schedule
from tailproof.torch.losses import LossFunction, ModelLoss, OutputLoss, batch_loss
from tailproof.torch.nested import tensors_in, vmap_failed
from tailproof.torch.stacked_modules import Stack

Optimizer = torch.optim.Optimizer
MakeOptimizer = Callable[[list[Tensor]], Optimizer]
ClipNorm = float | str | tuple[str, float] | None
_AUTOMATIC_QUANTILE = 0.25  # of a candidate's last gradient norms, above which "auto" clips
_NORMS_KEPT = 200


class Trainer:
    """One forward pass, one backward pass and one optimiser step per mini-batch, for all candidates.

    Parameters
    ----------
    stack : Stack
    loss : callable or BatchLoss
    optimizer, schedule, schedule_each, clip_norm
        As in :meth:`Candidates.fit`.
    rates : tensor of shape (k,), optional
        Factors of the candidates' losses; with plain SGD, factors of their learning rates.
    """

    def __init__(
        self,
        stack: Stack,
        loss: LossFunction | OutputLoss | ModelLoss,
        optimizer: MakeOptimizer,
        schedule: Callable[[Any], Any] | None = None,
        schedule_each: str = "epoch",
        rates: Tensor | None = None,
        clip_norm: ClipNorm = None,
    ) -> None:
        self.stack = stack
        leaves = list(stack.parameters.values())
        self.optimizer = check_optimizer(optimizer, leaves)
        self.rates = torch.ones(len(stack)).to(leaves[0]) if rates is None else rates
        self.clip = clip_norms(clip_norm)
        self.scheduler = None if schedule is None else check_schedule(schedule(self.optimizer))
        self._schedule_each = schedule_each
        self._losses = stack.losses(loss if isinstance(loss, OutputLoss | ModelLoss) else batch_loss(loss))
        self._started = False

    def run(self, batches: Iterable[Any]) -> Tensor:
        """Train for one epoch on batches of shape (k, batch, ...); return the mean losses, shape (k,)."""
        return self.run_weighted((batch, None) for batch in batches)

    def run_weighted(self, batches: Iterable[tuple[Any, Tensor | None]]) -> Tensor:
        """Train for one epoch on batches with the weights of their rows."""
        total, steps = torch.zeros_like(self.rates), 0
        for batch, weights in batches:
            self.optimizer.zero_grad()
            losses = self._forward(batch, None if weights is None else weights.to(self.rates))
            torch.autograd.backward(losses, self.rates)
            if self.clip is not None:
                self.clip(list(self.stack.parameters.values()))
            self.optimizer.step()
            self._step_schedule("batch")
            self.stack.count_step()
            total, steps = total + losses.detach(), steps + 1
        self._step_schedule("epoch")
        return total / max(steps, 1)

    def keep(self, which: NDArray[np.bool_]) -> None:
        """Drop the other candidates."""
        rows = torch.from_numpy(which)
        self.rates = self.rates[rows.to(self.rates.device)]
        if self.clip is not None:
            self.clip.keep(rows)
        self.stack.keep(which, self.optimizer)

    def state(self) -> dict[str, Any]:
        """Everything but the stack that training changes, random generators included."""
        device = self.rates.device
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "norms": None if self.clip is None else self.clip.norms,
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.clip is not None:
            self.clip.norms = state["norms"]
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.rates.device)

    def _step_schedule(self, unit: str) -> None:
        if self.scheduler is not None and self._schedule_each == unit:
            self.scheduler.step()

    def _forward(self, batch: Any, weights: Tensor | None) -> Tensor:
        """Losses of the candidates; where vmap cannot trace the module, in a loop from the first batch on."""
        first, self._started = not self._started, True
        before = {name: buffer.clone() for name, buffer in self.stack.buffers.items()} if first else {}
        try:
            return self._losses(batch, weights)
        except ValueError as error:
            if tensors_in(batch)[0].shape[1] == 1:
                error.add_note(
                    "this batch has one row of each block: use a batch_size or k that leaves no such rest"
                )
            raise
        except RuntimeError as error:
            if not (first and self.stack.vectorised and vmap_failed(error)):
                raise
            reason = " ".join(str(error).split())[:160]
        warnings.warn(
            f"torch.func.vmap cannot batch this module or loss ({reason}): the candidates are trained one "
            "after the other; vectorise=False does so without this warning",
            UserWarning,
            stacklevel=5,
        )
        self.stack.run_in_a_loop()
        for name, buffer in before.items():
            self.stack.buffers[name].copy_(buffer)
        return self._losses(batch, weights)


class ClippedNorms:
    """Clip the gradient of each candidate to a norm of its own.

    Parameters
    ----------
    largest : float, optional
        The same for all candidates.
    quantile : float, optional
        Else this quantile of the norms of the candidate's last 200 gradients, the present one included.
    which : tensor of bool, optional
        Candidates whose gradients are clipped; all by default.
    """

    def __init__(
        self, largest: float | None = None, quantile: float | None = None, which: Tensor | None = None
    ) -> None:
        self.largest, self.quantile, self.which = largest, quantile, which
        self.norms = torch.empty(0)

    def __call__(self, leaves: list[Tensor]) -> None:
        """Rescale the gradients in place."""
        which = slice(None) if self.which is None else self.which
        whole = [leaf.grad for leaf in leaves if leaf.grad is not None]
        present = [gradient[which] for gradient in whole]
        squares = [gradient.reshape(len(gradient), -1).square().sum(dim=1) for gradient in present]
        norms = torch.stack(squares).sum(dim=0).sqrt()
        factors = (self._limit(norms) / norms.clamp_min(1e-12)).clamp_max(1.0)
        for gradient in whole:
            gradient[which] *= factors.reshape(-1, *[1] * (gradient.ndim - 1))

    def keep(self, rows: Tensor) -> None:
        """Drop the other candidates."""
        clipped = rows if self.which is None else rows[self.which]
        self.norms = self.norms[:, clipped.to(self.norms.device)] if self.norms.numel() else self.norms
        self.which = None if self.which is None else self.which[rows]

    def _limit(self, norms: Tensor) -> Tensor:
        if self.quantile is None:
            return torch.full_like(norms, self.largest or math.inf)
        last = self.norms if self.norms.numel() else norms.new_empty(0, len(norms))
        self.norms = torch.cat([last, norms[None]])[-_NORMS_KEPT:]
        return torch.nanquantile(self.norms, self.quantile, dim=0)


def clip_norms(clip_norm: Any) -> ClippedNorms | None:
    """Return how gradients are clipped.

    Examples
    --------
    >>> clip_norms(1.5).largest, clip_norms("auto").quantile, clip_norms(("quantile", 0.5)).quantile
    (1.5, 0.25, 0.5)
    """
    if clip_norm is None:
        return None
    if clip_norm == "auto":
        return ClippedNorms(quantile=_AUTOMATIC_QUANTILE)
    if isinstance(clip_norm, tuple) and len(clip_norm) == 2 and clip_norm[0] == "quantile":
        if 0 < clip_norm[1] <= 1:
            return ClippedNorms(quantile=float(clip_norm[1]))
    elif isinstance(clip_norm, int | float) and 0 < clip_norm < math.inf:
        return ClippedNorms(largest=float(clip_norm))
    raise ValueError(
        "clip_norm must be a positive number, 'auto', ('quantile', q) with 0 < q ≤ 1, or None; "
        f"got {clip_norm!r}"
    )
