"""SGD processes that can be stopped anywhere: the sequential half of the methods.

k walks, one per block, advance together, one gradient each a round, so that what a method would return can
be looked at for any cost. Between two looks the compiled pass of :mod:`tailproof.core.sgd_kernels` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.losses import SQUARED
from tailproof.core.partition import Block, blocks
from tailproof.core.sgd_kernels import dense_pass

Run = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]

_NO_WEIGHTS = np.empty(0)
_NO_INTERCEPT = 0.0


class Walk:
    """SGD over one block, w ← w − α∇ℓ(w; zᵢ): pass after pass, freshly shuffled from the second on."""

    def __init__(self, X: Array, y: Array, block: Block, start: Array, step: float) -> None:
        self.X, self.y, self.block = X, y, block
        self.w, self.step = np.array(start, dtype=np.float64), np.array([step])
        self.sum, self.counted = np.zeros_like(self.w), 0
        self._order, self._at, self._passes = block.order(0), 0, 0
        self._centre, self._gain = np.zeros(self.w.size), np.ones(self.w.size)

    def advance(self, updates: int) -> Walk:
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
        mean, bias, mean_bias = np.empty_like(self.w), np.zeros(1), np.zeros(1)
        state = (self.w, bias, mean, mean_bias, self.step)
        source = (self.X, self.y, _NO_WEIGHTS, rows, self._centre, self._gain)
        dense_pass(*source, *state, SQUARED, 0.0, False, _NO_INTERCEPT)
        self.sum += rows.size * mean
        self.counted += rows.size


class Walks:
    """k walks over k contiguous blocks, in step."""

    def __init__(
        self, X: Array, y: Array, k: int, starts: Array, step: float, seed: np.random.SeedSequence
    ) -> None:
        # A copy of the seed: spawning from it must not depend on who spawned before.
        fresh = np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
        self.blocks = blocks(len(X), k, fresh, shuffle=False)
        begin = np.broadcast_to(starts, (k, X.shape[1])) if len(starts) == 1 else starts[:k]
        self.walks = [Walk(X, y, b, w, step) for b, w in zip(self.blocks, begin, strict=True)]
        self.rounds = 0

    @property
    def cost(self) -> int:
        """Gradients evaluated so far."""
        return self.rounds * len(self.walks)

    def advance_to(self, rounds: int, run: Run | None = None) -> None:
        """Go on until every walk has made that many updates; ``run`` may be an engine's."""
        more = rounds - self.rounds
        if run is None:
            for walk in self.walks:
                walk.advance(more)
        else:
            run(lambda walk: walk.advance(more), self.walks)
        self.rounds = rounds

    def forget(self) -> None:
        """Begin all averages anew."""
        for walk in self.walks:
            walk.forget()

    def iterates(self) -> Array:
        """Return where the walks are, one row each."""
        return np.stack([walk.w for walk in self.walks])

    def averages(self) -> Array:
        """Return the averages of the walks, one row each."""
        return np.stack([walk.average() for walk in self.walks])
