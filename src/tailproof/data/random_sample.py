"""A random sample of rows in pieces, by their numbers in the data: the same rows on every engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.data.readers.batches import Batch
from tailproof.data.sums import Sums
from tailproof.estimators.robust_regressor.compared import priorities

_NOT_FEATURES = 5  # columns of a sample beside the features: number, place, priority, target, weight


def _none() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """Numbers of rows among those that are used, from zero: in memory others are not there either.

    Parameters
    ----------
    first : array of int
        Place in the data of the first row of each piece, and last how many there are in all.
    batch_rows : int
    incomplete : array of int, optional
        Place of the first row of each batch of which rows are left out, because something is missing or
        their weight is zero.
    left_out : array of int, optional
        How many, in these batches together with all before them.
    """

    first: NDArray[np.int64]
    batch_rows: int
    incomplete: NDArray[np.int64] = field(default_factory=_none)
    left_out: NDArray[np.int64] = field(default_factory=_none)

    @property
    def total(self) -> int:
        """Rows in all that are used."""
        return int(self.first[-1] - self.left_out[-1:].sum())

    def without(self, places: NDArray[np.int64], counts: NDArray[np.int64]) -> RowNumbers:
        """The same for data of which so many rows are left out in the batches that begin at these places."""
        order = np.argsort(places)
        return replace(self, incomplete=places[order], left_out=np.cumsum(counts[order]))

    def place(self, batch: Batch) -> int:
        """Place of the first row of a batch in the data."""
        return int(self.first[batch.piece] + batch.number * self.batch_rows)

    def of_batch(self, batch: Batch) -> NDArray[np.int64]:
        """Numbers of the rows of a batch; one that is left out has the number of the row before it."""
        place = self.place(batch)
        before = np.searchsorted(self.incomplete, place)
        start = place - self.left_out[before - 1] if before else place
        if not batch.missing.size:
            return np.arange(start, start + len(batch))
        used = np.ones(len(batch), dtype=np.int64)
        used[batch.missing] = 0
        return np.asarray(start - 1 + np.cumsum(used))


@dataclass(frozen=True, eq=False)
class RandomSample(Sums):
    """Rows whose priority is below a share of one, and a few given ones, as a table.

    Its columns are number, place in the data, priority, features, target and weight, which is NaN where rows
    have none. The first row of the table is none of the data: it has the number of rows that were dropped
    because something is missing, and last the least target, with its sign changed, and the largest. Nor are
    rows without a priority (NaN): they have how many rows of a batch are left out, and the batch's place.

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
        return f"sample {self.share!r} of {self.numbers.total}"

    def nothing(self) -> Array:
        """Return the table without rows."""
        table = np.zeros((1, self.width + _NOT_FEATURES))
        table[0, -2:] = -np.inf
        return table

    def on_batch(self, batch: Batch) -> Array:
        """Return the chosen rows of one batch."""
        usable = batch.usable(np.arange(len(batch)))
        left_out = (len(batch) or batch.dropped) - usable.size
        heads = [self._head(batch, usable), *([self._incomplete(batch, left_out)] if left_out else [])]
        return np.concatenate([np.stack(heads), self._chosen(batch, usable)])

    def _chosen(self, batch: Batch, usable: NDArray[np.intp]) -> Array:
        numbers = self.numbers.of_batch(batch)[usable]
        priority = priorities(numbers, self.key)
        chosen = priority < self.share
        first, last = np.searchsorted(self.few, [numbers[0], numbers[-1] + 1]) if numbers.size else (0, 0)
        chosen[self.few[first:last] - numbers[:1]] = True
        rows = usable[chosen]
        table = np.empty((rows.size, self.width + _NOT_FEATURES))
        features = batch.X[rows]
        table[:, 0], table[:, 1] = numbers[chosen], self.numbers.place(batch) + rows
        table[:, 2] = priority[chosen]
        table[:, 3:-2] = features.toarray() if sparse.issparse(features) else features
        table[:, -2], table[:, -1] = batch.y[rows], batch.weights[rows] if batch.weights.size else np.nan
        return table

    def _head(self, batch: Batch, usable: NDArray[np.intp]) -> Array:
        head = self.nothing()[0]
        y = batch.y[usable] if batch.missing.size else batch.y
        head[0] = batch.dropped
        if y.size:
            head[-2:] = -y.min(), y.max()
        return head

    def _incomplete(self, batch: Batch, left_out: int) -> Array:
        row = self.nothing()[0]
        row[:3] = left_out, self.numbers.place(batch), np.nan
        return row

    def with_left_out(self, table: Array) -> RowNumbers:
        """Numbers of rows, now that a look has told which batches have rows that are left out."""
        counts, places = table[np.isnan(table[:, 2]), :2].astype(np.int64).T
        return self.numbers.without(places, counts)

    @staticmethod
    def add(parts: list[Array]) -> Array:
        """All rows of a few tables."""
        heads = np.concatenate([part[:1] for part in parts])
        head = heads.sum(axis=0)
        head[-2:] = heads[:, -2:].max(axis=0)
        return np.concatenate([head[None], *(part[1:] for part in parts)])
