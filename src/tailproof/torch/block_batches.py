"""Blocks of rows for k candidates: dealt at random, given by groups, or dealt from a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailproof.core.partition import Block, Dealer, blocks
from tailproof.torch.batches import Batch, BatchSource, StreamSource
from tailproof.torch.nested import map_tensors, tensors_in

Seed = np.random.SeedSequence
WeightedBatch = tuple[Batch, Tensor | None]


class BlockBatches(Protocol):
    """Batches of k blocks, epoch by epoch."""

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows of each block."""
        ...

    @property
    def rows_per_epoch(self) -> int:
        """Rows that each candidate takes in an epoch."""
        ...

    def epoch(self, number: int, kept: NDArray[np.intp], batch_size: int) -> Iterator[WeightedBatch]:
        """Yield batches of the kept blocks, shape (candidates, batch, ...), and the weights of their rows."""
        ...


@dataclass(frozen=True)
class IndexedBlocks:
    """Blocks of row numbers: any row can be read at any time.

    Every candidate takes as many rows each epoch: the size of the smallest block where blocks are dealt, that
    of the median block where they are given. A smaller block repeats its rows.
    """

    source: BatchSource
    parts: list[Block]
    weights: Tensor | None = None
    rows_per_epoch: int = field(init=False)

    def __post_init__(self) -> None:
        sizes = self.sizes
        dealt = sizes.max() - sizes.min() <= 1
        object.__setattr__(self, "rows_per_epoch", int(sizes.min() if dealt else np.median(sizes)))

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows of each block."""
        return np.array([len(part) for part in self.parts])

    def epoch(self, number: int, kept: NDArray[np.intp], batch_size: int) -> Iterator[WeightedBatch]:
        """Yield the blocks' rows in a fresh order."""
        orders = np.stack([np.resize(self.parts[j].order(number), self.rows_per_epoch) for j in kept])
        for step, batch in enumerate(self.source.batches(orders, batch_size)):
            rows = orders[:, step * batch_size : (step + 1) * batch_size]
            yield batch, None if self.weights is None else self.weights[torch.from_numpy(rows)]


@dataclass
class StreamedBlocks:
    """Blocks of a stream: every k rows in turn go to the k blocks in random order, the same each epoch."""

    source: StreamSource
    k: int
    seed: Seed
    rows_per_epoch: int = 0

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows of each block, known after the first epoch."""
        return np.full(self.k, self.rows_per_epoch)

    def epoch(self, number: int, kept: NDArray[np.intp], batch_size: int) -> Iterator[WeightedBatch]:
        """Yield the rows as they come; fewer than k rows at the end are left out."""
        dealer, self.rows_per_epoch = Dealer(self.k, self.seed), 0
        for batch in self.source.in_order(self.k * batch_size):
            rows = len(tensors_in(batch)[0]) // self.k
            if rows == 0:
                break
            self.rows_per_epoch += rows
            places = np.argsort(dealer.deal(rows * self.k), kind="stable").reshape(self.k, rows)[kept]
            index = torch.from_numpy(places)
            yield map_tensors(lambda tensor, i=index: tensor[i.to(tensor.device)], batch), None
        if self.rows_per_epoch == 0:
            raise ValueError(
                f"the stream has fewer than k={self.k} rows: give one that can be read each epoch"
            )


def deal_blocks(
    source: BatchSource | StreamSource,
    k: int,
    seed: Seed,
    groups: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> BlockBatches:
    """Assign rows to k blocks.

    Parameters
    ----------
    source : BatchSource or StreamSource
    k : int
    seed : SeedSequence
    groups : array of shape (n,), optional
        Block of each row, by any k labels: client, file, day. By default rows are dealt at random.
    weights : array of shape (n,), optional
        Row weights; rows of weight zero are left out, the others count relative to their mean.
    """
    if isinstance(source, StreamSource):
        if groups is not None or weights is not None:
            raise ValueError("groups and sample_weight need data of known length, not an IterableDataset")
        return StreamedBlocks(source, k, seed)
    n = len(source)
    labels = None if groups is None else _check_groups(groups, n, k)
    if weights is None:
        return IndexedBlocks(source, _parts(np.arange(n), k, seed, labels))
    checked = check_sample_weight(weights, n)
    there = np.flatnonzero(checked)
    parts = _parts(there, k, seed, None if labels is None else labels[there])
    return IndexedBlocks(source, parts, torch.as_tensor(checked / checked[there].mean()))


def check_sample_weight(weights: ArrayLike, n: int) -> NDArray[np.float64]:
    """Return row weights as an array, or raise."""
    checked = np.asarray(weights, dtype=np.float64)
    if checked.shape != (n,) or not np.all(np.isfinite(checked)) or checked.min() < 0 or checked.max() == 0:
        raise ValueError(
            f"sample_weight must be {n} finite numbers, one for each row, none negative and not all zero"
        )
    return checked


def _check_groups(groups: ArrayLike, n: int, k: int) -> NDArray[np.intp]:
    labels, codes = np.unique(np.asarray(groups), return_inverse=True)
    if codes.shape != (n,):
        raise ValueError(f"groups must have one label for each of the {n} rows; got shape {codes.shape}")
    if labels.size != k:
        raise ValueError(f"groups has {labels.size} different labels and k is {k}: they must be equal")
    return codes


def _parts(rows: NDArray[np.intp], k: int, seed: Seed, labels: NDArray[Any] | None) -> list[Block]:
    if labels is None:
        return [
            Block(part.index, rows[part.rows], part.seed, part.run) for part in blocks(rows.size, k, seed)
        ]
    seeds = blocks(k, k, seed)
    mine = [rows[labels == j] for j in range(k)]
    if any(part.size == 0 for part in mine):
        raise ValueError("a group has no row of positive weight: leave it out of groups, and lower k")
    return [
        Block(j, np.random.default_rng(seeds[j].seed).permutation(part), seeds[j].seed)
        for j, part in enumerate(mine)
    ]
