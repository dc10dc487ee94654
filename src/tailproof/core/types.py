"""The small records that travel between the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class DivergedError(ValueError):
    """At least half of the candidates are not finite."""


@dataclass(frozen=True, eq=False)
class Block:
    """One of the k disjoint parts of the data.

    Attributes
    ----------
    index : int
        Which of the k blocks, from 0.
    rows : array of int
        The rows it holds, in the order in which they are to be visited.
    seed : SeedSequence
        The block's own source of randomness, a child of the seed of the partition.
    run : int
        Neighbouring rows that stay together when the block is shuffled.
    """

    index: int
    rows: NDArray[np.intp]
    seed: np.random.SeedSequence
    run: int = 1

    def __len__(self) -> int:
        return self.rows.size

    def order(self, number: int) -> NDArray[np.intp]:
        """Rows in the order of pass ``number``: as dealt the first time, freshly shuffled after that."""
        if number == 0:
            return self.rows
        key = (*self.seed.spawn_key, number)
        return shuffle_runs(self.rows, self.run, np.random.default_rng(self._child(key)))

    def _child(self, key: tuple[int, ...]) -> np.random.SeedSequence:
        # Not spawn(), which would make the result depend on how often it was called before.
        return np.random.SeedSequence(self.seed.entropy, spawn_key=key, pool_size=self.seed.pool_size)


def shuffle_runs(rows: NDArray[np.intp], run: int, random: np.random.Generator) -> NDArray[np.intp]:
    """Shuffle rows in runs of neighbours; a last, shorter run stays last.

    Examples
    --------
    >>> sorted(shuffle_runs(np.arange(7), 3, np.random.default_rng(0)).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    if run == 1:
        return random.permutation(rows)
    runs = rows.size // run
    found = np.empty_like(rows)
    np.take(
        rows[: runs * run].reshape(runs, run),
        random.permutation(runs),
        axis=0,
        out=found[: runs * run].reshape(runs, run),
        mode="clip",
    )
    found[runs * run :] = rows[runs * run :]
    return found


@runtime_checkable
class Engine(Protocol):
    """Where candidates are made: runs a function over tasks, in any order; results keep the tasks' order."""

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        """Return ``[function(task) for task in tasks]``."""
        ...


class Learner(Protocol):
    """What makes a candidate out of a block, one pass at a time."""

    def start(self, block: Block) -> Any:
        """State before the first pass."""
        ...

    def advance(self, state: Any) -> Any:
        """State after one more pass over the block."""
        ...

    def vector(self, state: Any) -> NDArray[np.floating]:
        """The candidate as a vector, in coordinates in which distances mean something."""
        ...
