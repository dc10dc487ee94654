"""DC and RV for any ``nn.Module``: k candidates, trained at once, merged or validated."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from tailproof.core.algorithms import DivergedError
from tailproof.core.lookup import lookup
from tailproof.core.merge import MERGES, Merged
from tailproof.core.partition import Block, Seed, blocks, seed_sequence
from tailproof.core.theory import blocks_for
from tailproof.core.validate import Validation, interval_warning, validate_with_safe_intervals
from tailproof.estimators.progress import progress
from tailproof.reports.fit_report import Report
from tailproof.torch.batches import BatchSource, batch_size_for, batch_source
from tailproof.torch.stacked_modules import (
    LossFunction,
    Stack,
    as_tensor,
    flatten,
    make_modules,
    seeded_randomness,
    torch_seed,
    unflatten,
)
from tailproof.torch.training import MakeOptimizer, Trainer, check_counts

PLAIN_SGD = functools.partial(torch.optim.SGD, lr=0.01)
_INIT = 0  # key of the seed that initialises a candidate; its passes use 1, 2, ...
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
        loss_fn: LossFunction,
        *,
        optimizer: MakeOptimizer = PLAIN_SGD,
        epochs: int = 1,
        batch_size: int | None = None,
        schedule: Callable[[Any], Any] | None = None,
        schedule_each: str = "epoch",
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
            Of a DataLoader the data set, the collation, the workers and the batch size are used; the sampler
            is not, since each candidate sees only its block, shuffled anew each epoch.
        loss_fn : callable
            ``loss_fn(output, target)`` of one candidate's batch: a mean over rows, or one number per row.
        optimizer : callable
            Makes an optimiser of a list of tensors: ``lambda w: torch.optim.Adam(w, lr=1e-3)``.
        epochs : int
        batch_size : int, optional
            Rows per step and candidate; by default that of the loader, or 32.
        schedule : callable, optional
            Makes a learning-rate scheduler of the optimiser.
        schedule_each : {"epoch", "batch"}
            When the scheduler steps.
        device, dtype
            Where and in which precision to train; floating-point data are converted.
        verbose : int
            Show a progress bar (needs rich).
        """
        start = time.perf_counter()
        device, seed = torch.device(device), seed_sequence(self.random_state)
        check_counts(self.k, epochs, batch_size, schedule_each)
        if not callable(loss_fn):
            raise TypeError(f"loss_fn must be callable; got {type(loss_fn).__name__}")
        # Children of the seeds of the blocks.
        initial_seeds = [torch_seed(child, _INIT) for child in seed_sequence(seed).spawn(self.k + 1)[1:]]
        modules = make_modules(self.make_module, initial_seeds, device, dtype)
        source = batch_source(data, device, next(modules[0].parameters()).dtype)
        parts = blocks(len(source), self.k, seed)
        self._stack = Stack(modules, average=self.average, vectorise=self.vectorise)
        self._linear, self._loss_fn, self.kept = is_linear(modules[0]), loss_fn, np.arange(self.k)
        trainer = Trainer(self._stack, loss_fn, optimizer, schedule, schedule_each)
        with (
            seeded_randomness(torch_seed(seed, self.k + 1), device),
            progress(verbose, epochs, "epochs") as on_pass,
        ):
            for epoch in range(epochs):
                trainer.run(source.batches(self._orders(parts, epoch), batch_size_for(batch_size, data)))
                self._drop_diverged(trainer, source)
                on_pass(epoch + 1)
        self.report = self._first_report(parts, seed, epochs, time.perf_counter() - start)
        self._warn_diverged()
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
            If the module is not a single linear layer: distances between parameters of non-convex models
            mean nothing, and the merged module is typically no better than chance (section 4.3).
        """
        start = time.perf_counter()
        stack, combine = self._fitted(), lookup("merge", how, MERGES)
        if not self._linear:
            warnings.warn(
                "merging parameters is meant for a single linear layer; this module is not one, and the "
                "result may be no better than chance: use select instead",
                UserWarning,
                stacklevel=2,
            )
        whole = combine(flatten(stack.candidates))
        values = (
            _merge_each(stack.candidates, combine) if per_tensor else unflatten(whole.point, stack.candidates)
        )
        module = stack.build(values, _merge_each(stack.buffers, combine))
        self.report = self._merge_report(how, whole, time.perf_counter() - start)
        return module

    def select(self, validation_data: Any, *, mean: str = "catoni", delta: float = 0.05) -> Selected:
        """Choose the candidate of least robust risk on held-out rows (third line of Algorithm 5).

        Parameters
        ----------
        validation_data
            Rows that trained none of the candidates, as in :meth:`fit`.
        mean : str
            A name in ``MEANS``; on a sample too small for it, one that needs fewer rows takes its place.
        delta : float
            One minus the confidence of each interval.
        """
        start = time.perf_counter()
        found = validate_with_safe_intervals(list(self.row_losses(validation_data)), mean, delta)
        best = found.best
        if not np.isfinite(found.risk[best]):
            raise ValueError(
                "no candidate has a finite risk on the validation rows: look there for NaN and infinity, "
                "and at what loss_fn makes of one row"
            )
        low, high = float(found.low[best]), float(found.high[best])
        index = int(self.kept[best])
        chosen = Selected(self._stack.member(best), index, float(found.risk[best]), low, high, found)
        self.report = self._select_report(chosen, delta, time.perf_counter() - start)
        return chosen

    def row_losses(self, data: Any) -> NDArray[np.floating]:
        """Losses of every candidate on every row, shape (candidates kept, rows)."""
        stack = self._fitted()
        leaf = next(iter(stack.parameters.values()))
        source = batch_source(data, leaf.device, leaf.dtype)
        every_row = np.arange(len(source))[None]
        losses = []
        for batch in source.batches(every_row, _ROWS_AT_ONCE):
            *inputs, target = (tensor[0] for tensor in batch)
            losses.append(stack.row_losses(self._loss_fn, tuple(inputs), target).double().cpu().numpy())
        return np.concatenate(losses, axis=1)

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

    def _orders(self, parts: list[Block], epoch: int) -> NDArray[np.intp]:
        shortest = min(map(len, parts))
        return np.stack([parts[j].order(epoch)[:shortest] for j in self.kept])

    def _drop_diverged(self, trainer: Trainer, source: BatchSource) -> None:
        finite = self._stack.finite()
        if finite.all():
            return
        source.check_finite()
        self.kept = self.kept[finite]
        if self.kept.size * 2 <= self.k:
            raise DivergedError(
                f"{self.k - self.kept.size} of {self.k} candidates diverged: use a smaller learning rate"
            )
        trainer.keep(finite)

    def _warn_diverged(self) -> None:
        if self.kept.size < self.k:
            warnings.warn(
                f"{self.k - self.kept.size} of {self.k} candidates diverged and were left out: "
                "use a smaller learning rate",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _first_report(
        self, parts: list[Block], seed: np.random.SeedSequence, epochs: int, seconds: float
    ) -> Report:
        entropy: Any = seed.entropy
        return Report(
            method="candidates",
            k=self.k,
            why_k="as asked",
            delta=math.exp(-self.k / 8),
            block_sizes=np.array([len(part) for part in parts]),
            seed=entropy,
            excluded=np.setdiff1d(np.arange(self.k), self.kept),
            passes=epochs,
            converged=True,
            gradient_evaluations=epochs * self.k * min(map(len, parts)),
            seconds={"train": seconds},
            theorem="none yet: merge or select the candidates",
        )

    def _merge_report(self, how: str, found: Merged, seconds: float) -> Report:
        confidence = f"δ = exp(−k/8) = {self.report.delta:.3g}"
        convex = f"Lemma boost_conf_sc at {confidence}, if the risk is strongly convex"
        return replace(
            self.report,
            method=f"DC, merge={how}",
            seconds=self.report.seconds | {"merge": seconds},
            theorem=convex
            if self._linear
            else "none: the risk of this module is not convex in its parameters",
            radius=found.radius,
            distances=np.linalg.norm(flatten(self._stack.candidates) - found.point, axis=1),
        )

    def _select_report(self, chosen: Selected, delta: float, seconds: float) -> Report:
        found, least = chosen.validation, blocks_for(delta, "rv")
        enough = f"Lemma boost_conf_unbounded: k = {self.k} ≥ {least}; no convexity is asked for"
        return replace(
            self.report,
            method=f"RV{', averaged' if self.average else ''}, mean={found.mean}",
            delta=delta,
            seconds=self.report.seconds | {"validate": seconds},
            theorem=enough if self.k >= least else f"none: k = {self.k} is below {least}",
            validation_risk=found.risk,
            validation_low=found.low,
            validation_high=found.high,
            best=chosen.index,
            mean=found.mean,
            caution=interval_warning(found.in_doubt),
        )


def is_linear(module: nn.Module) -> bool:
    """Whether all parameters belong to one ``nn.Linear``.

    Examples
    --------
    >>> is_linear(nn.Sequential(nn.Flatten(), nn.Linear(4, 2))), is_linear(nn.Conv2d(1, 1, 3))
    (True, False)
    """
    owners = [part for part in module.modules() if any(True for _ in part.parameters(recurse=False))]
    return len(owners) == 1 and isinstance(owners[0], nn.Linear)


def _merge_each(tensors: dict[str, Tensor], combine: Callable[..., Merged]) -> dict[str, Tensor]:
    """Merge each tensor on its own; counters are those of the first candidate."""
    return {
        name: as_tensor(combine(flatten({name: tensor})).point, tensor)
        if tensor.is_floating_point()
        else tensor[0]
        for name, tensor in tensors.items()
    }
