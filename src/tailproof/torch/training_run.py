"""A whole training run: epochs, rounds, early stopping, history, callbacks, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.algorithms import DivergedError
from tailproof.core.merge import MERGES
from tailproof.core.validate import validate
from tailproof.reports.round_report import RoundReport
from tailproof.torch.block_batches import BlockBatches
from tailproof.torch.checkpoints import read_checkpoint, write_checkpoint
from tailproof.torch.rounds import merge_stack
from tailproof.torch.stacked_modules import Bools, Stack, Tensors, flatten
from tailproof.torch.training import Trainer

RowLosses = Callable[[Stack], tuple[Array, Array | None]]


@dataclass(frozen=True, eq=False)
class EpochRecord:
    """What one epoch did.

    Attributes
    ----------
    epoch : int
        From 1.
    training_loss : array of shape (candidates kept,)
        Mean of the losses of the batches.
    validation_risk : array of shape (candidates kept,) or None
        Robust risk on the validation rows, where they are given and there are no rounds.
    kept : array of int
        Blocks of the candidates.
    """

    epoch: int
    training_loss: Array
    validation_risk: Array | None
    kept: NDArray[np.intp]


@dataclass(frozen=True)
class Plan:
    """What a run is to do, as in :meth:`Candidates.fit`.

    Attributes
    ----------
    epochs : int
        Of each round, or in all without rounds.
    rounds : int or None
    merge : str
    keep_optimizer : bool
        Whether optimisers keep their state (momentum) from round to round.
    batch_size : int
    patience : int or None
        Epochs, or rounds, without a better validation risk before training stops.
    callbacks : sequence of callables
    checkpoint : Path or None
    """

    epochs: int
    rounds: int | None = None
    merge: str = "geometric_median"
    keep_optimizer: bool = False
    batch_size: int = 32
    patience: int | None = None
    callbacks: Sequence[Callable[[EpochRecord, Stack], Any]] = ()
    checkpoint: Path | None = None

    @property
    def total(self) -> int:
        """Epochs in all."""
        return self.epochs * (self.rounds or 1)


@dataclass
class TrainingRun:
    """One run over blocks, which can be interrupted after any epoch and taken up again."""

    plan: Plan
    trainer: Trainer
    blocks: BlockBatches
    validation: RowLosses | None
    fingerprint: dict[str, Any]
    check_finite: Callable[[], None]
    kept: NDArray[np.intp] = field(init=False)
    history: list[EpochRecord] = field(default_factory=list)
    rounds: list[RoundReport] = field(default_factory=list)
    best: dict[str, Tensors] | None = None
    best_risk: Array | None = None
    waited: int = 0
    stopped: bool = False

    def __post_init__(self) -> None:
        self.kept = np.arange(len(self.stack))

    @property
    def stack(self) -> Stack:
        """The candidates."""
        return self.trainer.stack

    def epochs(self) -> Iterator[int]:
        """Train; yield the number of each finished epoch."""
        self._resume()
        while len(self.history) < self.plan.total and not self.stopped:
            number = len(self.history)
            if self.plan.rounds and number and number % self.plan.epochs == 0:
                self._start_round()
            batches = self.blocks.epoch(number, self.kept, self.plan.batch_size)
            losses = self.trainer.run_weighted(batches).double().cpu().numpy()
            if not self.plan.rounds:
                losses = losses[self._drop_diverged()]
            self._record(number + 1, losses)
            if self.plan.rounds and (number + 1) % self.plan.epochs == 0:
                self._end_round()
            self._save()
            yield number + 1
        if self.best is not None:
            self.stack.load(self.best)

    def _record(self, epoch: int, losses: Array) -> None:
        risk = None
        if self.validation is not None and not self.plan.rounds:
            risk = self._risks(self.stack)
            self._keep_best(risk, risk < self._best_risk(risk))
        record = EpochRecord(epoch, losses, risk, self.kept)
        self.history.append(record)
        for callback in self.plan.callbacks:
            self.stopped = bool(callback(record, self.stack)) or self.stopped

    def _end_round(self) -> None:
        finite = self._finite_majority()
        merged = merge_stack(self.stack, MERGES[self.plan.merge], finite=finite)
        risk = None
        if self.validation is not None:
            risk = self._risks(self.stack.of(merged.parameters, merged.buffers))
            self._keep_best(risk, np.repeat(risk < self._best_risk(risk), len(self.stack)))
        points = flatten(self.stack.candidates)[finite]
        number = len(self.rounds) + 1
        self.rounds.append(merged.report(number, None if risk is None else float(risk[0]), points))

    def _start_round(self) -> None:
        # Merged again and not kept from the end of the last round: a checkpoint then holds candidates only.
        merged = merge_stack(self.stack, MERGES[self.plan.merge], finite=self._finite_majority())
        self.stack.restart(merged.parameters, merged.buffers)
        if not self.plan.keep_optimizer:
            self.trainer.optimizer.state.clear()

    def _risks(self, stack: Stack) -> Array:
        assert self.validation is not None
        losses, weights = self.validation(stack)
        return validate(list(losses), "catoni", weights=weights).risk

    def _best_risk(self, like: Array) -> Array:
        return np.full(like.size, np.inf) if self.best_risk is None else self.best_risk

    def _keep_best(self, risk: Array, better: Bools) -> None:
        """Keep a copy of every candidate at its least risk, where training may stop early."""
        if self.plan.patience is None:
            return
        self.best_risk = np.minimum(risk, self._best_risk(risk))
        self.waited = 0 if better.any() else self.waited + 1
        self.stopped = self.stopped or self.waited >= self.plan.patience
        now = self.stack.state()
        if self.best is None or better.all():
            self.best = now
        elif better.any():
            chosen = torch.from_numpy(better)
            for group in ("parameters", "mean", "buffers"):
                for name, tensor in self.best[group].items():
                    tensor[chosen] = now[group][name][chosen]

    def _finite_majority(self) -> Bools:
        finite = self.stack.finite()
        if not finite.all():
            self.check_finite()
        if finite.sum() * 2 <= finite.size:
            self._raise_diverged(int(finite.size - finite.sum()))
        return finite

    def _drop_diverged(self) -> Bools:
        finite = self.stack.finite()
        if finite.all():
            return finite
        self.check_finite()
        self.kept = self.kept[finite]
        k = self.blocks.sizes.size
        if self.kept.size * 2 <= k:
            self._raise_diverged(k - self.kept.size)
        self.trainer.keep(finite)
        if self.best is not None and self.best_risk is not None:
            self.best_risk = self.best_risk[finite]
            for group in ("parameters", "mean", "buffers"):
                self.best[group] = {n: t[torch.from_numpy(finite)] for n, t in self.best[group].items()}
        return finite

    def _raise_diverged(self, count: int) -> None:
        k = self.blocks.sizes.size
        raise DivergedError(f"{count} of {k} candidates diverged: {diverged_advice(self.stack)}")

    def _save(self) -> None:
        if self.plan.checkpoint is not None:
            write_checkpoint(self.plan.checkpoint, self.fingerprint, self._state())

    def _resume(self) -> None:
        if self.plan.checkpoint is None or not self.plan.checkpoint.exists():
            return
        state = read_checkpoint(self.plan.checkpoint, self.fingerprint)
        kept = np.array(state["kept"], dtype=np.intp)
        if kept.size < self.kept.size:
            self.trainer.keep(np.isin(self.kept, kept))
        self.kept = kept
        self.stack.load(state["stack"])
        self.trainer.load(state["trainer"])
        self.history = [EpochRecord(**_arrays(saved)) for saved in state["history"]]
        self.rounds = [RoundReport(**_arrays(saved)) for saved in state["rounds"]]
        self.best, self.waited, self.stopped = state["best"], state["waited"], state["stopped"]
        self.best_risk = None if state["best_risk"] is None else np.array(state["best_risk"])

    def _state(self) -> dict[str, Any]:
        return {
            "kept": self.kept.tolist(),
            "stack": self.stack.state(),
            "trainer": self.trainer.state(),
            "history": [_plain(record) for record in self.history],
            "rounds": [_plain(record) for record in self.rounds],
            "best": self.best,
            "best_risk": None if self.best_risk is None else self.best_risk.tolist(),
            "waited": self.waited,
            "stopped": self.stopped,
        }


def _plain(record: Any) -> dict[str, Any]:
    """Fields of a record, arrays as tensors, which a checkpoint can hold."""
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in vars(record).items()
    }


def _arrays(saved: dict[str, Any]) -> dict[str, Any]:
    return {name: value.numpy() if torch.is_tensor(value) else value for name, value in saved.items()}


def diverged_advice(stack: Stack) -> str:
    """What to do about candidates that diverged."""
    if next(iter(stack.parameters.values())).dtype == torch.float16:
        return "float16 holds numbers up to 65,504 only: train in torch.bfloat16 or torch.float32"
    return "use a smaller learning rate"
