"""A first look at data in pieces: how many rows, a sample for scales and start, sortedness."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.engines.batch import Batch

Array = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Seen:
    """What a piece shows of itself: how many rows, a few of them, and moments of its target."""

    rows: int
    X: Any
    y: Array
    weights: Array
    moments: Array


@dataclass(frozen=True)
class Survey:
    """A first look at the data: sizes, a small sample for scales and start, and whether pieces look alike.

    Parameters
    ----------
    sample : int
        Rows to bring back from each of the pieces that are looked at.
    at_most : int
        Pieces to look at, where a look is a read.
    first_rows : int
        The sample comes from this many rows at the beginning of a piece: a look must be short.
    """

    sample: int
    at_most: int = 200
    first_rows: int = 4_096

    def pieces(self, count: int) -> list[int]:
        """Pieces to look at, evenly spaced."""
        return np.unique(np.linspace(0, count - 1, min(count, self.at_most)).astype(int)).tolist()

    def over_piece(self, batches: Iterable[Batch]) -> Seen | None:
        """Sample of the first rows; sizes and moments of all that are given; None without rows."""
        rows, moments, first = 0, np.zeros(3), None
        for batch in batches:
            good = batch.usable(np.arange(len(batch)))
            rows += len(batch) if len(batch) else batch.dropped
            # On a scale on which a heavy tail does not drown the difference that is looked for.
            size = np.sign(batch.y[good]) * np.log1p(np.abs(batch.y[good]))
            moments += [good.size, size.sum(), (size**2).sum()]
            if first is None:
                early = good[good < self.first_rows]
                spaced = np.linspace(0, early.size - 1, min(self.sample, early.size)).astype(np.intp)
                share = batch.weights[early[spaced]] if batch.weights.size else batch.weights
                first = (batch.X[early[spaced]], batch.y[early[spaced]], share)
        return None if first is None else Seen(rows, *first, moments)


def unlike_chance(moments: Array) -> float:
    """How much more the pieces' mean targets differ than chance would have it; about 1 where it is chance.

    The F statistic of one-way analysis of variance, for moments of shape (pieces, 3): count, sum, squares.
    """
    counts, sums, squares = moments[moments[:, 0] > 1].T
    if counts.size < 2:
        return 1.0
    means = sums / counts
    within = (squares - counts * means**2).sum() / (counts.sum() - counts.size)
    between = (counts * (means - sums.sum() / counts.sum()) ** 2).sum() / (counts.size - 1)
    return float(between / within) if within > 0 else (1.0 if between == 0 else np.inf)
