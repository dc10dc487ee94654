"""SGD that can be stopped after any update: the sub-processes of DC-SGD and RV-SGD.

k sub-processes, one per block, advance together, one gradient each a round, so that what a method would
return can be recorded at any cost. Between two records the compiled pass of
:mod:`tailproof.native.sgd` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.losses import SQUARED
from tailproof.core.partition import Block, blocks
from tailproof.native.sgd import Iterate, Objective, Problem, dense_pass

Run = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]

_EXPLICIT = Objective(SQUARED, 0.0, False, 0.0)  # gradient steps, no intercept


class StoppableSGD:
    """SGD over one block, w ← w − α∇ℓ(w; zᵢ): pass after pass, freshly shuffled from the second on."""

    def __init__(self, X: Array, y: Array, block: Block, start: Array, step: float) -> None:
        self.block = block
        self.w, self.step = np.array(start, dtype=np.float64), np.array([step])
        self.sum, self.counted = np.zeros_like(self.w), 0
        self._order, self._at, self._passes = block.order(0), 0, 0
        d = self.w.size
        self._problem = Problem(X, y, np.empty(0), np.zeros(d), np.ones(d), _EXPLICIT)

    def advance(self, updates: int) -> StoppableSGD:
        """Make that many more updates."""
        while updates > 0:
            if self._at == self._order.size:
                self._passes += 1
                self._order, self._at = self.block.order(self._passes), 0
            rows = self._order[self._at : self._at + updates]
            self._run(rows)
            self._at += rows.size
            updates -= rows.size
        return self

    def average(self) -> Array:
        """Mean of ŵ₁, ŵ₂, ... since the start or the last :meth:`forget`; the iterate if there is none."""
        return self.sum / self.counted if self.counted else self.w

    def forget(self) -> None:
        """Begin the average anew."""
        self.sum, self.counted = np.zeros_like(self.w), 0

    def _run(self, rows: NDArray[np.intp]) -> None:
        at = Iterate(self.w, np.zeros(1), np.empty_like(self.w), np.zeros(1))
        dense_pass(self._problem, rows, at, self.step)
        self.sum += rows.size * at.mean_w
        self.counted += rows.size


Make = Callable[[Array, Array, Block, Array, float], StoppableSGD]


@dataclass(frozen=True, eq=False)
class Look:
    """k processes at one moment.

    Attributes
    ----------
    blocks : list of Block
    cost : int
        Gradients evaluated so far.
    iterates, averages : arrays of shape (k, d)
    """

    blocks: list[Block]
    cost: int
    iterates: Array
    averages: Array


class SubProcesses:
    """k processes over k contiguous blocks, each with as many updates as the others."""

    def __init__(
        self,
        X: Array,
        y: Array,
        k: int,
        starts: Array,
        step: float,
        seed: np.random.SeedSequence,
        make: Make = StoppableSGD,
    ) -> None:
        self.blocks = blocks(len(X), k, seed, shuffle=False)
        begin = np.broadcast_to(starts, (k, X.shape[1])) if len(starts) == 1 else starts[:k]
        self.members = [
            _over_own_rows(X, y, block, w, step, make) for block, w in zip(self.blocks, begin, strict=True)
        ]
        self.rounds = 0

    @property
    def cost(self) -> int:
        """Gradients evaluated so far."""
        return self.rounds * len(self.members)

    def advance_to(self, rounds: int, run: Run | None = None) -> None:
        """Go on until every process has made that many updates; ``run`` may be an engine's, or a pool's."""
        more = rounds - self.rounds
        # Those that come back may be copies, from worker processes.
        self.members = (run or _one_by_one)(partial(_advanced, more), self.members)
        self.rounds = rounds

    def forget(self) -> None:
        """Begin all averages anew."""
        for member in self.members:
            member.forget()

    def look(self) -> Look:
        """Where all of them are now."""
        iterates = np.stack([member.w for member in self.members])
        averages = np.stack([member.average() for member in self.members])
        return Look(self.blocks, self.cost, iterates, averages)


def _over_own_rows(X: Array, y: Array, block: Block, start: Array, step: float, make: Make) -> StoppableSGD:
    """A process that holds the rows of its block alone, so that it can be sent elsewhere."""
    rows = slice(block.rows[0], block.rows[-1] + 1)
    return make(X[rows], y[rows], replace(block, rows=np.arange(len(block))), start, step)


def _advanced(updates: int, member: StoppableSGD) -> StoppableSGD:
    return member.advance(updates)


def _one_by_one(function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
    return [function(task) for task in tasks]
