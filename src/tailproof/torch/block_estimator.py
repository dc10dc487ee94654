"""Estimators over candidates on blocks of rows: what divide and conquer and robust validation share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from tailproof.core.theory import blocks_for
from tailproof.estimators.sklearn_private import Interval, StrOptions
from tailproof.torch.candidates import Candidates
from tailproof.torch.estimator_base import CONSTRAINTS, DTYPES, TorchEstimator
from tailproof.torch.training_run import EpochRecord

Array = NDArray[Any]
Seed = np.random.SeedSequence

BLOCK_CONSTRAINTS = CONSTRAINTS | {
    "k": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "loss_fn": [callable, None],
    "average": ["boolean"],
    "clip_norm": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"}), tuple, None],
}
CLASS_CONSTRAINTS = {"class_weight": [dict, StrOptions({"balanced"}), None]}


class BlockEstimator(TorchEstimator):
    """Candidates on blocks of rows."""

    _loss_default: Callable[..., Tensor]
    _method: str

    @property
    def history_(self) -> list[EpochRecord]:
        """Losses of every candidate, epoch by epoch."""
        return self.candidates_.history

    def _train(
        self,
        make: Callable[[], nn.Module],
        inputs: Tensor,
        targets: Tensor,
        weights: Array | None,
        seed: Seed,
        **rounds: Any,
    ) -> Candidates:
        k, why = self._count_blocks(len(inputs) if weights is None else int(np.count_nonzero(weights)))
        candidates = Candidates(make, k, average=self.average, vectorise=self.vectorise, random_state=seed)
        chosen = {} if self.optimizer is None else {"optimizer": self.optimizer}
        candidates.fit(
            (inputs, targets),
            type(self)._loss_default if self.loss_fn is None else self.loss_fn,
            batch_size=self.batch_size,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
            sample_weight=weights,
            device=self.device,
            dtype=DTYPES[self.dtype],
            verbose=self.verbose,
            **({"epochs": self.epochs} | rounds),
            **chosen,
        )
        candidates.report = replace(candidates.report, why_k=why)
        return candidates

    def _count_blocks(self, n: int) -> tuple[int, str]:
        """Return k and the reason for it: k(δ), or fewer where a block would not fill a batch."""
        if self.k != "auto":
            return int(self.k), "set by the user"
        wanted, most = blocks_for(self.delta, self._method), max(1, n // self.batch_size)
        if most < wanted:
            return most, f"fewer than k(δ) = {wanted}, to fill a batch of {self.batch_size} in a block"
        return wanted, f"k(δ) = {wanted}"
