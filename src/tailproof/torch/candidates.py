"""DC and RV for any ``nn.Module``: k candidates, trained at once, merged or validated."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tailproof.core.merge import MERGES
from tailproof.core.partition import Seed, seed_sequence
from tailproof.core.validate import Validation, validate_with_safe_intervals
from tailproof.estimators.inputs import warn_of_divergence
from tailproof.estimators.progress import progress
from tailproof.reports.fit_report import Clock
from tailproof.torch.batches import batch_size_for, batch_source
from tailproof.torch.block_batches import BlockBatches, check_sample_weight, deal_blocks
from tailproof.torch.candidate_reports import merged_report, selected_report, trained_report
from tailproof.torch.checks import check_counts
from tailproof.torch.losses import LossFunction, batch_loss
from tailproof.torch.rounds import merge_stack
from tailproof.torch.stacked_modules import Stack, flatten, make_modules, seeded_randomness, torch_seed
from tailproof.torch.training import ClipNorm, MakeOptimizer, Trainer
from tailproof.torch.training_run import EpochRecord, Plan, TrainingRun, diverged_advice

PLAIN_SGD = functools.partial(torch.optim.SGD, lr=0.01)
_INIT = 0  # key of the seed that initialises a candidate; its passes use 1, 2, ...
_ROUNDING = 1e-3  # of row weights that a loss shows in float32
_ROWS_AT_ONCE = 4096  # of the validation rows


@dataclass(frozen=True)
class Selected:
    """The winner of robust validation.

    Attributes
    ----------
    module : nn.Module
        In evaluation mode.
    index : int
        Block that it was trained on.
    risk, low, high : float
        Robust mean of its losses on the validation rows, and the interval of
        :func:`tailproof.core.validate.validate_with_safe_intervals`, which says how often it covers.
    validation : Validation
        The same for every candidate.
    """

    module: nn.Module
    index: int
    risk: float
    low: float
    high: float
    validation: Validation


class Candidates:
    """k copies of a module with initial values of their own, each trained on its own block of the rows.

    Parameters are stacked along a first axis and run by ``torch.func.vmap``: one forward and one backward
    pass for all candidates. Then either :meth:`merge` them (Algorithm 1) or :meth:`select` one (Algorithm 5).

    Parameters
    ----------
    make_module : callable
        Makes one module; called k times, each time with PyTorch's generator freshly seeded.
    k : int
        Number of candidates.
    average : bool
        A candidate is the mean of its path, (1/T) Σ_t ŵ_t, as in RV-SGDAve. Buffers are the last ones.
    vectorise : bool
        False trains the candidates one after the other: slower, for modules that vmap cannot trace.
    random_state : int, SeedSequence or None
        Blocks, shuffles, initial values and dropout follow from it; no global generator is touched.

    Attributes
    ----------
    kept : array of int
        Blocks of the candidates that are finite.
    report : Report
        How the last fit, merge or selection went.

    Examples
    --------
    >>> X = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    >>> y = (X.sum(dim=1) > 0).long()
    >>> candidates = Candidates(lambda: nn.Linear(3, 2), k=5, random_state=0)
    >>> sgd = functools.partial(torch.optim.SGD, lr=0.3)
    >>> candidates = candidates.fit((X, y), nn.functional.cross_entropy, optimizer=sgd, epochs=20)
    >>> model = candidates.merge("geometric_median")
    >>> bool((model(X).argmax(dim=1) == y).float().mean() > 0.9)
    True
    """

    def __init__(
        self,
        make_module: Callable[[], nn.Module],
        k: int,
        *,
        average: bool = False,
        vectorise: bool = True,
        random_state: Seed = None,
    ) -> None:
        if not callable(make_module):
            raise TypeError(f"make_module must be callable; got {type(make_module).__name__}")
        self.make_module = make_module
        self.k = k
        self.average = average
        self.vectorise = vectorise
        self.random_state = random_state

    def fit(
        self,
        data: Any,
        loss_fn: LossFunction | None = None,
        *,
        model_loss: Callable[..., Tensor] | None = None,
        optimizer: MakeOptimizer = PLAIN_SGD,
        epochs: int = 1,
        batch_size: int | None = None,
        schedule: Callable[[Any], Any] | None = None,
        schedule_each: str = "epoch",
        clip_norm: ClipNorm = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        rounds: int | None = None,
        merge: str = "geometric_median",
        keep_optimizer: bool = False,
        validation_data: Any = None,
        patience: int | None = None,
        callbacks: Sequence[Callable[[EpochRecord, Stack], Any]] = (),
        checkpoint: str | Path | None = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        verbose: int = 0,
    ) -> Candidates:
        """Train all candidates from fresh initial values.

        Every candidate takes floor(n/k) rows of its block each epoch, so that all batches have one size: a
        block with one row more leaves one out, another one each time.

        Parameters
        ----------
        data : (inputs, targets), Dataset, DataLoader or iterable of batches
            Of a DataLoader the data set, the collation, the workers, the batch size and a
            ``SubsetRandomSampler`` are used; other samplers are refused. An ``IterableDataset`` is read anew
            each epoch and never held in memory; other iterables are read once. Inputs may be dicts.
        loss_fn : callable
            ``loss_fn(output, target)`` of one candidate's batch: a mean over rows, or one number per row.
        model_loss : callable
            Instead of ``loss_fn``: ``model_loss(model, batch)`` for batches and outputs of any structure.
        optimizer : callable
            Makes an optimiser of a list of tensors: ``lambda w: torch.optim.Adam(w, lr=1e-3)``.
        epochs : int
            In all, or of each round.
        batch_size : int, optional
            Rows per step and candidate; by default that of the loader, or 32.
        schedule : callable, optional
            Makes a learning-rate scheduler of the optimiser.
        schedule_each : {"epoch", "batch"}
            When the scheduler steps.
        clip_norm : float, "auto", ("quantile", q) or None
            Clip the gradient of each candidate to this norm, or to a quantile of its own last 200 norms.
        sample_weight : array of shape (n,), optional
            Weights of the rows in the gradient; rows of weight zero are as if absent.
        groups : array of shape (n,), optional
            Block of each row, by any k labels (client, file, day); by default blocks are dealt at random.
        rounds : int, optional
            Train in rounds from a common start: after ``epochs`` epochs the candidates are merged, and the
            merged point is the start of the next round. This makes merging meaningful for any module.
        merge : str
            A name in ``MERGES``, for rounds.
        keep_optimizer : bool
            Whether the optimiser keeps its state (momentum, second moments) from round to round.
        validation_data : optional
            Rows that train none of the candidates: the robust risk on them is kept in :attr:`history`, or in
            :attr:`rounds`.
        patience : int, optional
            Stop once no risk has become smaller for this many epochs (or rounds); every candidate goes back
            to where its risk was least.
        callbacks : sequence of callables
            Called as ``callback(record, stack)`` after every epoch; training stops if one returns True.
        checkpoint : path, optional
            File that is replaced after every epoch. Called again with the same arguments, fit goes on from
            there, with the same result as if it had never been interrupted.
        device, dtype
            Where and in which precision to train; floating-point data are converted.
        verbose : int
            Show a progress bar (needs rich).
        """
        device, seed = torch.device(device), seed_sequence(self.random_state)
        counts = {
            "k": self.k,
            "epochs": epochs,
            "batch_size": batch_size,
            "rounds": rounds,
            "patience": patience,
        }
        check_counts({name: value for name, value in counts.items() if value is not None}, schedule_each)
        MERGES[merge]
        if checkpoint is not None and self.random_state is None:
            raise ValueError("a checkpoint needs a random_state: else no second call could go on from it")
        if patience is not None and validation_data is None:
            raise ValueError("patience needs validation_data: their robust risk decides when to stop")
        self._loss = batch_loss(loss_fn, model_loss)
        modules = self._make_modules(seed, rounds, device, dtype)
        source = batch_source(data, device, next(modules[0].parameters()).dtype)
        parts = deal_blocks(source, self.k, seed, groups, sample_weight)
        self._stack = Stack(modules, average=self.average, vectorise=self.vectorise)
        self._mergeable = rounds is not None or is_linear(modules[0])
        plan = Plan(
            epochs,
            rounds,
            merge,
            keep_optimizer,
            batch_size_for(batch_size, data),
            patience,
            callbacks,
            None if checkpoint is None else Path(checkpoint),
        )
        run = TrainingRun(
            plan,
            Trainer(self._stack, self._loss, optimizer, schedule, schedule_each, clip_norm=clip_norm),
            parts,
            None if validation_data is None else functools.partial(self._validation_losses, validation_data),
            self._fingerprint(plan, parts, seed),
            source.check_finite,
        )
        self._clock = Clock()
        with (
            self._clock("train"),
            seeded_randomness(torch_seed(seed, self.k + 1), device),
            progress(verbose, plan.total, "epochs") as on_pass,
        ):
            for epoch in run.epochs():
                on_pass(epoch)
        self.kept, self.history, self.rounds = run.kept, run.history, run.rounds
        self.report = trained_report(parts, seed, self._clock, self.kept, len(run.history))
        warn_of_divergence(self.kept.size, self.k, diverged_advice(self._stack), stacklevel=3)
        return self

    def merge(self, how: str = "geometric_median", *, per_tensor: bool = False) -> nn.Module:
        """Merge the candidates into one module (last line of Algorithm 1).

        Parameters
        ----------
        how : str
            A name in ``MERGES``.
        per_tensor : bool
            Merge each parameter tensor on its own, not the vector of all. Buffers (batch norm) always are.

        Warns
        -----
        UserWarning
            If the candidates had different starts and the module is not a single linear layer: networks from
            different starts number their units differently, and their mean or median is no better than
            chance (section 4.3). Train in rounds, from a common start, or use :meth:`select`.
        """
        stack, combine = self._fitted(), MERGES[how]
        if not self._mergeable:
            warnings.warn(
                "these candidates are networks from different starts, and merging them may be no better than "
                "chance: use select instead, or fit(rounds=...), which starts all of them at one point",
                UserWarning,
                stacklevel=2,
            )
        with self._clock("merge"):
            finite = stack.finite()
            merged = merge_stack(stack, combine, per_tensor=per_tensor, finite=finite)
            module = stack.build(merged.parameters, merged.buffers)
        self.report = merged_report(
            self.report,
            self._clock,
            how,
            merged.merged,
            flatten(stack.candidates)[finite],
            linear=is_linear(stack.module),
            rounds=len(self.rounds),
        )
        return module

    def select(
        self,
        validation_data: Any,
        *,
        mean: str = "catoni",
        delta: float = 0.05,
        sample_weight: ArrayLike | None = None,
    ) -> Selected:
        """Choose the candidate of least robust risk on held-out rows (third line of Algorithm 5).

        Parameters
        ----------
        validation_data
            Rows that trained none of the candidates, as in :meth:`fit`.
        mean : str
            A name in ``MEANS``; on a sample too small for it, one that needs fewer rows takes its place.
        delta : float
            One minus the confidence of each interval.
        sample_weight : array of shape (n,), optional
            Weights of the rows. Those that the loss itself gives to rows (class weights, ``ignore_index``)
            count in any case.
        """
        stack = self._fitted()
        with self._clock("validate"):
            losses, weights = self._validation_losses(validation_data, stack, sample_weight)
            risks = validate_with_safe_intervals(list(losses), mean, delta, weights, resistant=True)
        best = risks.best
        if not np.isfinite(risks.risk[best]):
            raise ValueError(
                "no candidate has a finite risk on the validation rows: look there for NaN and infinity, "
                "and at what loss_fn makes of one row"
            )
        low, high = float(risks.low[best]), float(risks.high[best])
        index = int(self.kept[best])
        chosen = Selected(self._stack.member(best), index, float(risks.risk[best]), low, high, risks)
        self.report = selected_report(
            self.report, self._clock, risks, index, delta, average=self.average, rows=losses.shape[1]
        )
        return chosen

    def row_losses(self, data: Any) -> NDArray[np.floating]:
        """Losses of every candidate on every row, shape (candidates kept, rows).

        A row that the loss ignores (``ignore_index``) has the loss zero, and no weight in :meth:`select`.
        """
        return self._validation_losses(data, self._fitted())[0]

    def _validation_losses(
        self, data: Any, stack: Stack, sample_weight: ArrayLike | None = None
    ) -> tuple[NDArray[np.floating], NDArray[np.floating] | None]:
        """Row losses of every candidate, and the weights of the rows, None if all are equal."""
        leaf = next(iter(stack.parameters.values()))
        source = batch_source(data, leaf.device, leaf.dtype)
        losses, weights, reference = [], [], None
        for number, batch in enumerate(source.in_order(_ROWS_AT_ONCE)):
            losses.append(stack.row_losses(self._loss, batch).double().cpu().numpy())
            if number == 0:
                reference = stack.first_candidate(self._loss.reference, batch)
            if reference is not None:
                weights.append(stack.first_candidate(self._loss.row_weights, batch, reference).cpu().numpy())
        return _weighted(np.concatenate(losses, axis=1), weights, sample_weight)

    def module(self, index: int) -> nn.Module:
        """The candidate of one block as a module of its own."""
        stack, where = self._fitted(), np.flatnonzero(self.kept == index)
        if where.size == 0:
            raise IndexError(f"there is no finite candidate of block {index}: see kept")
        return stack.member(int(where[0]))

    def _fitted(self) -> Stack:
        if not hasattr(self, "report"):
            raise RuntimeError("these candidates are not trained yet: call fit first")
        return self._stack

    def _make_modules(
        self,
        seed: np.random.SeedSequence,
        rounds: int | None,
        device: torch.device,
        dtype: torch.dtype | None,
    ) -> list[nn.Module]:
        """Make k modules: with rounds all from one start, else each from its own."""
        # Children of the seeds of the blocks.
        seeds = [torch_seed(child, _INIT) for child in seed_sequence(seed).spawn(self.k + 1)[1:]]
        modules = make_modules(
            self.make_module, seeds if rounds is None else seeds[:1] * self.k, device, dtype
        )
        for module in modules[1:] if rounds is not None else []:
            module.load_state_dict(modules[0].state_dict())  # whatever make_module draws from
        return modules

    def _fingerprint(self, plan: Plan, parts: BlockBatches, seed: np.random.SeedSequence) -> dict[str, Any]:
        """What must be the same for a fit to go on from a checkpoint."""
        return {
            "k": self.k,
            "average": self.average,
            "random_state": [str(seed.entropy), list(seed.spawn_key)],
            "block sizes": parts.sizes.tolist(),
            "batch_size": plan.batch_size,
            "epochs": plan.epochs if plan.rounds else None,
            "rounds": plan.rounds is not None,
            "merge": plan.merge if plan.rounds else None,
            "module": {name: list(leaf.shape) for name, leaf in self._stack.parameters.items()},
        }


def is_linear(module: nn.Module) -> bool:
    """Whether all parameters belong to one ``nn.Linear``.

    Examples
    --------
    >>> is_linear(nn.Sequential(nn.Flatten(), nn.Linear(4, 2))), is_linear(nn.Conv2d(1, 1, 3))
    (True, False)
    """
    owners = [part for part in module.modules() if any(True for _ in part.parameters(recurse=False))]
    return len(owners) == 1 and isinstance(owners[0], nn.Linear)


def _weighted(
    losses: NDArray[np.floating], shares: list[NDArray[np.floating]], sample_weight: ArrayLike | None
) -> tuple[NDArray[np.floating], NDArray[np.floating] | None]:
    """Losses, zero where a row has no weight, and the weights, None if all are equal."""
    weights = np.concatenate(shares) if shares else np.ones(losses.shape[1])
    # The weights that a loss gives are known up to rounding.
    weights = np.ones(weights.size) if np.ptp(weights) <= _ROUNDING * weights.max() else weights
    if sample_weight is not None:
        weights = weights * check_sample_weight(sample_weight, weights.size)
    if np.ptp(weights) == 0:
        return losses, None
    return np.where(weights == 0, 0.0, losses), weights
