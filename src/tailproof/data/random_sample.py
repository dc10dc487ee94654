"""A random sample of rows in pieces, by their numbers in the data: the same rows on every engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.data.readers.batches import Batch
from tailproof.data.sums import Sums
from tailproof.estimators.robust_regressor.compared import priorities

_NOT_FEATURES = 4  # columns of a sample beside the features: number, priority, target, weight


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """Numbers of rows in the data, from zero.

    Parameters
    ----------
    first : array of int
        Number of the first row of each piece, and last how many there are in all.
    batch_rows : int
    """

    first: NDArray[np.int64]
    batch_rows: int

    @property
    def total(self) -> int:
        """Rows in all."""
        return int(self.first[-1])

    def of_batch(self, batch: Batch) -> NDArray[np.int64]:
        """Numbers of the rows of a batch."""
        start = self.first[batch.piece] + batch.number * self.batch_rows
        return np.arange(start, start + len(batch))


@dataclass(frozen=True, eq=False)
class RandomSample(Sums):
    """Rows whose priority is below a share of one, and a few given ones, as a table.

    Its columns are number, priority, features, target and weight, which is NaN where rows have none. The
    first row of the table is none of the data: it has the number of rows that were dropped because something
    is missing, and last the least target, with its sign changed, and the largest.

    Parameters
    ----------
    numbers : RowNumbers
    width : int
    key : int
        Of the priorities.
    share : float
    few : array of int
        Numbers of the given rows, in their order.
    """

    numbers: RowNumbers
    width: int
    key: int
    share: float
    few: NDArray[np.int64]

    @property
    def name(self) -> str:
        """Under which a checkpoint keeps it."""
        return f"sample {self.share!r}"

    def nothing(self) -> Array:
        """Return the table without rows."""
        table = np.zeros((1, self.width + _NOT_FEATURES))
        table[0, -2:] = -np.inf
        return table

    def on_batch(self, batch: Batch) -> Array:
        """Return the chosen rows of one batch."""
        numbers = self.numbers.of_batch(batch)
        priority = priorities(numbers, self.key)
        chosen = priority < self.share
        first, last = np.searchsorted(self.few, [numbers[0], numbers[-1] + 1]) if numbers.size else (0, 0)
        chosen[self.few[first:last] - numbers[:1]] = True
        rows = batch.usable(np.flatnonzero(chosen))
        table = np.empty((1 + rows.size, self.width + _NOT_FEATURES))
        table[0] = self._head(batch)
        features = batch.X[rows]
        table[1:, 0], table[1:, 1] = numbers[rows], priority[rows]
        table[1:, 2:-2] = features.toarray() if sparse.issparse(features) else features
        table[1:, -2], table[1:, -1] = batch.y[rows], batch.weights[rows] if batch.weights.size else np.nan
        return table

    def _head(self, batch: Batch) -> Array:
        head = self.nothing()[0]
        y = batch.y if not batch.missing.size else batch.y[batch.usable(np.arange(len(batch)))]
        head[0] = batch.dropped
        if y.size:
            head[-2:] = -y.min(), y.max()
        return head

    @staticmethod
    def add(parts: list[Array]) -> Array:
        """All rows of a few tables."""
        heads = np.concatenate([part[:1] for part in parts])
        head = heads.sum(axis=0)
        head[-2:] = heads[:, -2:].max(axis=0)
        return np.concatenate([head[None], *(part[1:] for part in parts)])
