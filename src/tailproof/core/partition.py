"""Rows to k disjoint, exchangeable blocks, each with a seed of its own.

Data in files are rarely in random order, so rows are shuffled (or assigned at random, where they arrive as a
stream) before they are cut into blocks. Everything here depends on the seed alone, never on who computes
a block or when.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.rows import rows_of_runs

__all__ = [
    "Block",
    "Dealer",
    "Seed",
    "blocks",
    "picked",
    "seed_sequence",
    "shuffle_runs",
    "slices",
    "train_validation",
]

Seed = int | None | np.random.SeedSequence


@dataclass(frozen=True, eq=False)
class Block:
    """One of the k disjoint parts of the data.

    Attributes
    ----------
    index : int
        Which of the k blocks, from 0.
    rows : array of int
        The rows it holds, in the order in which they are to be visited.
    source : SeedSequence
        The seed of the block, or of the partition.
    run : int
        Neighbouring rows that stay together when the block is shuffled.
    child : int or None
        Which child of the source is the block's own seed; None: the source is.
    """

    index: int
    rows: NDArray[np.intp]
    source: np.random.SeedSequence
    run: int = 1
    child: int | None = None

    def __len__(self) -> int:
        return self.rows.size

    @property
    def seed(self) -> np.random.SeedSequence:
        """The block's own source of randomness; made when asked for, since a single pass needs none."""
        return self.source if self.child is None else _child_of(self.source, self.child)

    def order(self, number: int) -> NDArray[np.intp]:
        """Rows in the order of pass ``number``: as assigned the first time, freshly shuffled after that."""
        if number == 0:
            return self.rows
        return shuffle_runs(self.rows, self.run, np.random.default_rng(_child_of(self.seed, number)))


def _child_of(seed: np.random.SeedSequence, number: int) -> np.random.SeedSequence:
    """The child of a seed that the first ``spawn`` numbers so, however often it has spawned before."""
    key = (*seed.spawn_key, number)
    return np.random.SeedSequence(seed.entropy, spawn_key=key, pool_size=seed.pool_size)


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
    shuffled = np.empty_like(rows)
    np.take(
        rows[: runs * run].reshape(runs, run),
        random.permutation(runs),
        axis=0,
        out=shuffled[: runs * run].reshape(runs, run),
        mode="clip",
    )
    shuffled[runs * run :] = rows[runs * run :]
    return shuffled


def _shuffled_range(n: int, run: int, random: np.random.Generator) -> NDArray[np.intp]:
    """:func:`shuffle_runs` of 0..n−1, without that range."""
    if run == 1:
        return random.permutation(n)
    runs = n // run
    shuffled = np.empty(n, dtype=np.intp)
    starts = random.permutation(runs) * run
    rows_of_runs(starts, run, shuffled[: runs * run])
    shuffled[runs * run :] = np.arange(runs * run, n)
    return shuffled


def blocks(
    n: int,
    k: int,
    seed: Seed = None,
    *,
    shuffle: bool = True,
    run: int = 1,
    labels: NDArray[Any] | None = None,
) -> list[Block]:
    """Split rows 0..n−1 into k disjoint blocks of n/k rows, give or take one (Algorithm 1, first line).

    Parameters
    ----------
    n, k : int
        1 ≤ k ≤ n.
    seed : int, SeedSequence or None
        Where the shuffle and the blocks' own seeds come from.
    shuffle : bool
        False keeps the order of the rows: for data that are known to be independent draws.
    run : int
        Rows that stay together when shuffled. Neighbours in memory are read several times faster than
        scattered rows; with hundreds of runs in a block, blocks are practically exchangeable.
    labels : array of shape (n,), optional
        Classes of the rows: each is assigned to the blocks in equal numbers, give or take one.

    Returns
    -------
    list of Block
        Sizes as :func:`numpy.array_split` makes them.

    Examples
    --------
    >>> [block.rows.tolist() for block in blocks(5, 2, shuffle=False)]
    [[0, 1, 2], [3, 4]]
    """
    n, k = _check_blocks(n, k)
    source = seed_sequence(seed)
    random = np.random.default_rng(_child_of(source, 0)) if shuffle else None
    rows = np.arange(n) if random is None else _shuffled_range(n, run, random)
    parts = [rows[part] for part in slices(n, k)] if labels is None else _deal_classes(rows, k, labels)
    return [Block(j, part, source, run, child=j + 1) for j, part in enumerate(parts)]


def picked(values: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """``values[rows]`` for rows of blocks, which are known to exist: quicker, since that is not looked at.

    Examples
    --------
    >>> picked(np.array([1.0, 2.0, 3.0]), np.array([2, 0])).tolist()
    [3.0, 1.0]
    """
    return values.take(rows, mode="clip")


def slices(n: int, k: int) -> list[slice]:
    """Cut rows 0..n−1 into k blocks of consecutive rows, with the sizes of :func:`numpy.array_split`.

    Examples
    --------
    >>> slices(5, 2)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    n, k = _check_blocks(n, k)
    size, longer = divmod(n, k)
    ends = [size * j + min(j, longer) for j in range(k + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]


def train_validation(
    n: int,
    validation_fraction: float = 0.5,
    seed: Seed = None,
    *,
    shuffle: bool = True,
    labels: NDArray[Any] | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to train on and rows to validate on (Algorithm 5 takes one half each).

    The validation part has n·fraction rows, a half rounded up; both get at least one row, so n ≥ 2.
    With ``shuffle=False`` the first rows are for training. With ``labels`` every class is split that way,
    but with halves rounded down, so that no class is missing from training.

    Examples
    --------
    >>> train, validation = train_validation(5, 0.4, shuffle=False)
    >>> train.tolist(), validation.tolist()
    ([0, 1, 2], [3, 4])
    """
    n = _count("n", n)
    if n < 2:
        raise ValueError(f"a training and a validation part need at least 2 rows; got {n}")
    if not 0 < validation_fraction < 1:
        raise ValueError(f"validation_fraction must lie strictly between 0 and 1; got {validation_fraction}")
    # round() rounds halves to even; the small term forgives a rounding error in n·fraction.
    held_out = min(max(math.floor(n * validation_fraction + 0.5 + 1e-9), 1), n - 1)
    rows = np.random.default_rng(seed_sequence(seed)).permutation(n) if shuffle else np.arange(n)
    if labels is None:
        return rows[: n - held_out], rows[n - held_out :]
    apart = _last_of_classes(rows, validation_fraction, labels)
    return rows[~apart], rows[apart]


class Dealer:
    """Assigns the rows of an unbounded stream to k blocks, at random but balanced.

    Every k rows in a row go to the k blocks in a fresh random order, so block sizes never differ by more
    than one. How the stream is cut into batches makes no difference.

    Parameters
    ----------
    k : int
        Number of blocks.
    seed : int, SeedSequence or None

    Examples
    --------
    >>> whole, dealer = Dealer(3, seed=0).deal(7), Dealer(3, seed=0)
    >>> pieces = [dealer.deal(size) for size in (2, 0, 5)]
    >>> bool(np.array_equal(whole, np.concatenate(pieces)))
    True
    """

    def __init__(self, k: int, seed: Seed = None) -> None:
        self.k = _count("k", k)
        self._random = np.random.default_rng(seed_sequence(seed))
        self._left = np.empty(0, dtype=np.intp)

    def deal(self, n: int) -> NDArray[np.intp]:
        """Block numbers of the next n rows."""
        n = _count("n", n, at_least=0)
        if n <= self._left.size:
            queue, self._left = self._left[:n], self._left[n:]
            return queue
        rounds = max(math.ceil((n - self._left.size) / self.k), 0)
        fresh = np.tile(np.arange(self.k, dtype=np.intp), (rounds, 1))
        queue = np.concatenate([self._left, self._random.permuted(fresh, axis=1).ravel()])
        self._left = queue[n:]
        return queue[:n]


def _deal_classes(rows: NDArray[np.intp], k: int, labels: NDArray[Any]) -> list[NDArray[np.intp]]:
    """Assign the rows of each class to the k blocks in turn; blocks keep the order given."""
    number = np.empty(rows.size, dtype=np.intp)
    number[np.argsort(labels[rows], kind="stable")] = np.arange(rows.size) % k
    return [rows[number == j] for j in range(k)]


def _last_of_classes(rows: NDArray[np.intp], fraction: float, labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a row is among the last n·fraction of its class."""
    _, classes, sizes = np.unique(labels[rows], return_inverse=True, return_counts=True)
    order = np.argsort(classes, kind="stable")
    rank = np.empty(rows.size, dtype=np.intp)
    rank[order] = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    held_out = np.minimum(np.floor(sizes * fraction + 1e-9), sizes - 1)
    return rank >= (sizes - held_out)[classes]


def seed_sequence(seed: Seed) -> np.random.SeedSequence:
    """Return a seed sequence with no children yet, so that the same seed spawns the same children."""
    if isinstance(seed, np.random.SeedSequence):
        return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key, pool_size=seed.pool_size)
    if seed is not None and not isinstance(seed, int | np.integer):
        raise ValueError(f"seed must be None, a whole number or a SeedSequence; got {type(seed).__name__}")
    if seed is not None and seed < 0:
        raise ValueError(f"seed must not be negative; got {seed}")
    return np.random.SeedSequence(None if seed is None else int(seed))


def _check_blocks(n: int, k: int) -> tuple[int, int]:
    n, k = _count("n", n), _count("k", k)
    if k > n:
        raise ValueError(f"cannot make {k} blocks of {n} rows: k must be at most the number of rows")
    return n, k


def _count(name: str, value: int, at_least: int = 1) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number; got {value!r}") from None
    if count < at_least:
        raise ValueError(f"{name} must be at least {at_least}; got {value}")
    return count
