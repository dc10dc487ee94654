"""Assign rows to k blocks one batch at a time.

Data come in *pieces* (a row group of a file, a partition of a cluster), a piece in *batches* of a fixed
number of rows. The assignment depends only on the seed and the numbers of piece, batch and pass, so that a
stream, a Dask worker and a Spark task that read the same batch assign its rows alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tailproof.core.partition import shuffle_runs

T = TypeVar("T")
HELD_OUT = -1  # the label of rows that validate
BATCH_ROWS = 65_536
_BATCH_CELLS = 1 << 23  # numbers in a batch, 64 MB: several are held
_FEWEST_ROWS = 256  # of a batch: each costs every candidate a step of its own
HELD = 4  # batches of a piece, from which the next one is drawn
_VISITS, _GROUPS, _LABELS, _ORDER, _BATCHES = range(5)  # first number of the key of each kind of draw
_KEY = 2**32 - 2  # apart from the keys that blocks and the split of RV use


def rows_of_a_batch(most: int, width: int) -> int:
    """Rows that are dealt and visited together: fewer where dense rows are so wide that they fill the memory.

    Examples
    --------
    >>> rows_of_a_batch(65_536, 100), rows_of_a_batch(65_536, 1_000)
    (65536, 8388)
    """
    return min(most, max(_BATCH_CELLS // width, _FEWEST_ROWS))


@dataclass(frozen=True)
class Dealing:
    """How rows are assigned ("dealt") to k blocks.

    Parameters
    ----------
    k : int
        Number of blocks.
    pieces : int
        Number of pieces.
    entropy : int
        Of the seed.
    run : int
        Neighbouring rows that go to one block together.
    whole_pieces : bool
        Blocks are groups of whole pieces (parts of a piece where there are fewer pieces than blocks), so
        that k candidates can be trained at once, each where its rows are. False deals the rows of every
        batch to all blocks.
    held_out : float
        Share of the rows of every batch that is kept for validation.
    occupied : tuple of int, optional
        Pieces that hold rows to learn from, where others do not: blocks of whole pieces are made of these.
    bounds : Bounds, optional
        Rows beyond them go to no block.
    judged : Bounds, optional
        Rows beyond them may train, but judge nothing.

    Examples
    --------
    >>> dealing = Dealing(k=2, pieces=3, entropy=0)
    >>> batch = dealing.deal(piece=1, batch=0, n=5, number=0)
    >>> sorted(np.concatenate(list(batch.rows.values())).tolist())
    [0, 1, 2, 3, 4]
    """

    k: int
    pieces: int
    entropy: int
    run: int = 1
    whole_pieces: bool = False
    held_out: float = 0.0
    occupied: tuple[int, ...] | None = None
    bounds: Any = None
    judged: Any = None

    def far_rows(self, batch: Any) -> NDArray[np.intp]:
        """Rows of a batch to leave out, since they are too far from the others."""
        return np.empty(0, dtype=np.intp) if self.bounds is None else self.bounds.far_rows(batch)

    def without_far(self, batch: Any) -> Any:
        """A batch without rows to leave out, or that judge nothing."""
        return self.without_unfit_to_judge(batch.without(self.far_rows(batch)))

    def without_unfit_to_judge(self, batch: Any) -> Any:
        """A batch without rows that may train, but judge nothing."""
        return batch if self.judged is None else batch.without(self.judged.far_rows(batch))

    def visits(self, number: int) -> list[int]:
        """Pieces in the order of pass ``number``."""
        return self._random(_VISITS, number).permutation(self.pieces).tolist()

    def batch_order(self, batches: Iterable[T], piece: int, number: int) -> Iterator[T]:
        """Batches of a piece in the order of pass ``number``.

        A few are held, and one of them at random comes next: a piece is read from its beginning to its end,
        and only as much of it may be in memory.
        """
        batches = iter(batches)
        held = list(islice(batches, HELD - 1))
        if len(held) < 2:  # most pieces of a cluster: a seed would take longer than their rows
            yield from held
            return
        random = self._random(_BATCHES, piece, number)
        for batch in batches:
            held.append(batch)
            yield held.pop(int(random.integers(HELD)))
        for place in random.permutation(len(held)):
            yield held[place]

    def blocks(self, piece: int) -> list[int]:
        """Blocks that get rows of the piece."""
        if not self.whole_pieces:
            return list(range(self.k))
        place, count = int(self._places[piece]), self.pieces if self.occupied is None else len(self.occupied)
        if place < 0:  # a piece without rows needs some block to count the rows that were dropped there
            return [piece % self.k]
        return [place % self.k] if count >= self.k else list(range(place, self.k, count))

    def branch(self, piece: int, branches: int) -> int:
        """Which of so many branches of its block's candidate visits a piece: each in turn."""
        place = max(int(self._places[piece]), 0)
        return (place // self.k if self.whole_pieces else place) % branches

    def most_branches(self) -> int:
        """Branches that have a piece each."""
        count = self.pieces if self.occupied is None else len(self.occupied)
        return max(count // self.k if self.whole_pieces else count, 1)

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        """Place of each piece with rows in one random order of them; -1 for the others."""
        order = self._random(_GROUPS).permutation(self.pieces)
        if self.occupied is not None:
            order = order[np.isin(order, self.occupied)]
        places = np.full(self.pieces, -1)
        places[order] = np.arange(order.size)
        return places

    def __getstate__(self) -> dict[str, Any]:
        """What travels with every task: places are found again, in less time."""
        return {name: value for name, value in vars(self).items() if name != "_places"}

    def labels(self, piece: int, batch: int, n: int) -> NDArray[Any]:
        """Block of each of the n rows of a batch, or ``HELD_OUT``."""
        random = self._random(_LABELS, piece, batch)
        order = shuffle_runs(np.arange(n), self.run, random)
        held = int(np.floor(self.held_out * n + random.random()))
        # Short numbers are sorted in one sweep.
        labels = np.full(n, HELD_OUT, dtype=np.int16 if self.k < 2**15 else np.int32)
        # In turn from a random one on, so that no block gets the longer share of every batch.
        takers = np.roll(self.blocks(piece), random.integers(self.k))
        # As even as np.array_split would have it.
        sizes = (n - held) // len(takers) + (np.arange(len(takers)) < (n - held) % len(takers))
        labels[order[held:]] = np.repeat(takers, sizes)
        return np.asarray(labels)

    def deal(self, piece: int, batch: int, n: int, number: int) -> Dealt:
        """Rows of a batch by block, each in the order in which pass ``number`` visits them."""
        labels = self.labels(piece, batch, n)
        order = shuffle_runs(np.arange(n), self.run, self._random(_ORDER, piece, batch, number))
        by_block = order[np.argsort(labels[order], kind="stable")]
        ends = np.searchsorted(labels[by_block], np.arange(self.k + 1))
        blocks = self.blocks(piece)
        return Dealt(by_block[: ends[0]], {j: by_block[ends[j] : ends[j + 1]] for j in blocks})

    def _random(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.entropy, spawn_key=(_KEY, *key)))


@dataclass(frozen=True, eq=False)
class Dealt:
    """Rows of one batch: those held out, and those of each block."""

    held_out: NDArray[np.intp]
    rows: dict[int, NDArray[np.intp]]
