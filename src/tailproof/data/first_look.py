"""First look at data in pieces: their size, a sample for scales and start, and whether rows are sorted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.data.readers.batches import Batch

_MATTERS = 0.01  # variance between parts against that inside


@dataclass(frozen=True, eq=False)
class Seen:
    """What a piece shows of itself.

    Attributes
    ----------
    rows : int
    X, y, weights : arrays
        A few of the rows.
    moments : array of shape (3,)
        Of the target: count, sum, squares.
    dense : bool
    parts : array of shape (parts, columns, 3)
        Of consecutive parts of the first rows, for each column and the target: count, mean, and squares
        about the mean.
    drift : array of shape (batches, columns, 3)
        The same of consecutive batches, for the target and a few columns.
    """

    rows: int
    X: Any
    y: Array
    weights: Array
    moments: Array
    dense: bool = True
    parts: Array = field(default_factory=lambda: np.empty((0, 0, 3)))
    drift: Array = field(default_factory=lambda: np.empty((0, 1, 3)))


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
    parts : int
        Into which the first rows are cut to see whether they are in some order; 0 for no such look.
    sampled : frozenset of int, optional
        Pieces to bring rows back from; of the others, sizes and moments alone. Default all.
    """

    sample: int
    at_most: int = 200
    first_rows: int = 4_096
    parts: int = 0
    sampled: frozenset[int] | None = None

    def pieces(self, count: int) -> list[int]:
        """Pieces to look at, evenly spaced."""
        return np.unique(np.linspace(0, count - 1, min(count, self.at_most)).astype(int)).tolist()

    def over_piece(self, batches: Iterable[Batch]) -> Seen | None:
        """Sample of the first rows; sizes and moments of all that are given; None without rows."""
        rows, moments, first = 0, np.zeros(3), None
        for batch in batches:
            good = batch.usable(np.arange(len(batch)))
            rows += len(batch) if len(batch) else batch.dropped
            size = _signed_log(batch.y[good])
            moments += [good.size, size.sum(), (size**2).sum()]
            if first is None:
                early = good[good < self.first_rows]
                wanted = self.sample if self.sampled is None or batch.piece in self.sampled else 0
                spaced = np.linspace(0, early.size - 1, min(wanted, early.size)).astype(np.intp)
                share = batch.weights[early[spaced]] if batch.weights.size else batch.weights
                first = (batch.X[early[spaced]], batch.y[early[spaced]], share)
                dense = isinstance(batch.X, np.ndarray)
                parts = self._parts(batch, early) if dense and self.parts else np.empty((0, 0, 3))
        return None if first is None else Seen(rows, *first, moments, dense, parts)

    def _parts(self, batch: Batch, rows: NDArray[np.intp]) -> Array:
        return _moments(np.array_split(np.column_stack([batch.X[rows], batch.y[rows]]), self.parts))

    def most_drifting_features(self, seen: list[Seen]) -> list[int]:
        """Features whose mean changes most along the first rows, in that order; none for sparse rows."""
        parts = [piece.parts for piece in seen if piece.parts.size]
        if len(parts) < len(seen):
            return []
        return np.argsort(-_excess(np.concatenate(parts))[:-1], kind="stable").tolist()

    def with_drift(self, seen: Seen, samples: Iterable[Array]) -> Seen:
        """What a piece shows, with target and a few features of its batches."""
        return replace(seen, drift=_moments(list(samples)))


def usable_rows(seen: list[Seen | None]) -> Array:
    """Rows to learn from in each of the pieces that were read to their end."""
    return np.array([0.0 if piece is None else piece.moments[0] for piece in seen])


def _moments(parts: list[Array]) -> Array:
    """Count, mean and squares about the mean of every column of each part."""
    moments = []
    for part in parts:
        if len(part) > 1:
            values = _signed_log(part)
            mean = values.mean(axis=0)
            count = np.full(mean.size, len(part))
            moments.append(np.column_stack([count, mean, ((values - mean) ** 2).sum(axis=0)]))
    return np.stack(moments) if moments else np.empty((0, 1, 3))


def _signed_log(values: Array) -> Array:
    """Signed logarithm, so that a heavy tail does not hide a difference of means."""
    return np.asarray(np.sign(values) * np.log1p(np.abs(values)))


def look_sorted(seen: list[Seen]) -> bool:
    """Whether rows are in some order: by target or by a feature, between pieces or inside them.

    The means of consecutive parts differ more than chance would have it, and by enough to matter: a tenth of
    the standard deviation inside a part.
    """
    looks = (
        [piece.parts for piece in seen if piece.parts.size],
        [piece.drift for piece in seen if piece.drift.size],
    )
    return any(_unlike(np.concatenate(parts)) for parts in looks if sum(len(part) for part in parts) > 1)


def _unlike(moments: Array) -> bool:
    excess = _excess(moments)
    size = (excess - 1) / moments[:, 0, 0].mean()
    return bool(np.any((excess > beyond_chance(len(moments))) & (size > _MATTERS)))


def _excess(moments: Array) -> Array:
    """F statistic of every column."""
    columns = np.moveaxis(moments, 1, 0)
    return np.array([_f_statistic(*column.T) if len(column) > 1 else 1.0 for column in columns])


def beyond_chance(groups: int) -> float:
    """F statistic of this many groups that chance practically never exceeds."""
    return 1 + 8 * float(np.sqrt(2 / (groups - 1)))


def unlike_chance(moments: Array) -> float:
    """How much more the mean targets of pieces differ than by chance; about 1 where it is chance.

    The F statistic of one-way analysis of variance, for moments of shape (pieces, 3): count, sum, squares.
    """
    counts, sums, squares = moments[moments[:, 0] > 1].T
    if counts.size < 2:
        return 1.0
    means = sums / counts
    return _f_statistic(counts, means, squares - counts * means**2)


def _f_statistic(counts: Array, means: Array, squares: Array) -> float:
    """F of groups with these means and squares about them."""
    within = squares.sum() / max(counts.sum() - counts.size, 1)
    between = (counts * (means - counts @ means / counts.sum()) ** 2).sum() / (counts.size - 1)
    # Equal numbers may differ from their mean by a rounding.
    within, between = (0.0 if v <= 1e-24 * np.max(means**2) else v for v in (within, between))
    return float(between / within) if within > 0 else (1.0 if between == 0 else np.inf)
