"""Rows of another population in data read in pieces: a sample tells how far is too far, wherever rows are.

In memory a gap between rows shows two populations (:mod:`tailproof.core.populations`). In pieces nobody has
all rows at once; but from a sample it is known how far out the farthest of n rows may lie, and what the
sample itself shows beyond a gap is left out of all rows alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.populations import LEAST_ROWS, LIMITS, Limits, Populations, hill_count
from tailproof.data.readers.batches import Batch
from tailproof.data.sums import Sums
from tailproof.native.rows import column_extremes

_CELLS = 5_000_000  # of a sample that is looked at as a dense table
_BINS_OF_DOUBLING = 8
_BEYOND, _NEAR_LABEL, _FAR_LABEL = -1.0, -2.0, -3.0  # bins of what else is counted


@dataclass(frozen=True, eq=False)
class Bounds:
    """How far from the middle of a sample features, and last the target, may lie.

    Attributes
    ----------
    centre, reach : arrays of shape (d + 1,)
        Reach is infinite where nothing is too far.
    farthest, index, least : arrays of shape (d + 1,)
        Distance of the farthest near row of the sample, lower limits of the indices of tails, and how far a
        number must be, at least, to be too far.
    gap : float
        Times as far as any other, at least, a target must be.
    """

    centre: Array
    reach: Array
    farthest: Array
    index: Array
    least: Array
    gap: float

    @classmethod
    def of_sample(
        cls,
        X: Array,
        y: Array | None,
        found: Populations,
        n: int,
        *,
        linear: bool = True,
        limits: Limits = LIMITS,
    ) -> Bounds:
        """From a sample of n rows, and what was found in it.

        In a tail of index α, n rows hold one that is g times as far out as the farthest of m of them with
        probability (n/m) g^{−α}; g is such that this hardly happens, and as wide as a gap. Where the sample
        has rows beyond a gap, the bound is halfway to them, in logarithms.

        Examples
        --------
        >>> X = np.random.default_rng(0).standard_normal((1_000, 1))
        >>> Bounds.of_sample(X, None, Populations(1_000), 10**6).reach.round(-1).tolist()
        [170.0, inf]
        """
        values = np.column_stack([X, np.zeros(len(X)) if y is None else y])
        near, gap = np.delete(values, found.rows, axis=0), limits.gap if linear else limits.log_gap
        if len(near) < LEAST_ROWS:
            near = np.zeros((LEAST_ROWS, values.shape[1]))
        centre = np.median(near, axis=0)
        away = np.sort(np.abs(near - centre), axis=0)[::-1]
        index, least = _tail_indices(away), limits.scales * _spreads(away)
        chance = limits.error * len(near) / (max(n, len(near)) * values.shape[1])
        gaps = np.maximum(np.append(np.full(X.shape[1], limits.gap), gap), chance ** (-1.0 / index))
        with np.errstate(over="ignore"):
            reach = np.minimum(gaps * away[0], _halfway(values, centre, away[0], found))
        reach = np.where(away[0] > 0, np.maximum(reach, least), np.inf)
        return cls(centre, reach, np.where(away[0] > 0, away[0], np.inf), index, least, gap)

    def kept(self, columns: NDArray[np.bool_]) -> Bounds:
        """The same, but for some columns in which nothing is too far."""
        return replace(self, reach=np.where(columns, np.inf, self.reach))

    def of_features(self) -> Bounds:
        """The same, but for targets, of which none is too far."""
        return self.kept(np.arange(self.reach.size) == self.reach.size - 1)

    def beyond(self, batch: Batch) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row and column of every number of a batch that is too far; rows that are missing are not looked at.

        One quick look at the extremes of its columns tells that a batch has none.
        """
        rows, columns = _far_features(batch, self.centre[:-1], self.reach[:-1])
        targets = np.flatnonzero(np.abs(batch.y - self.centre[-1]) > self.reach[-1])
        rows = np.concatenate([rows, targets])
        columns = np.concatenate([columns, np.full(targets.size, self.reach.size - 1)])
        used = ~np.isin(rows, batch.missing)
        return rows[used], columns[used]

    def reaches(self) -> Bounds:
        """What tells far rows, and no more: it travels with every task of a pass."""
        nothing = self.reach[:0]
        return replace(self, farthest=nothing, index=nothing, least=nothing)

    def far_rows(self, batch: Batch) -> NDArray[np.intp]:
        """Rows of a batch to leave out."""
        return np.unique(self.beyond(batch)[0])

    def described(self, counts: Array, names: list[str]) -> str:
        """What some columns, those with counts, must not be."""
        chosen = np.flatnonzero(counts)[:3]
        parts = [f"{names[j]} further than {self.reach[j]:.3g} from {self.centre[j]:.3g}" for j in chosen]
        return " or ".join(parts)


def _tail_indices(away: Array) -> Array:
    """Lower limits of Hill's index of every column, from its largest distances."""
    count = hill_count(len(away))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = np.mean(np.log(away[:count] / away[count]), axis=0)
    # Where most values are equal, there is no tail to tell from.
    index = (1.0 - 2.0 / np.sqrt(count)) / np.maximum(excess, 1e-3)
    return np.where(away[count] > 0, index, 1.0)


def _spreads(away: Array) -> Array:
    """Median distance of every column; where most are zero, a higher quantile."""
    quantiles = np.quantile(away, (0.5, 0.75, 0.9), axis=0)
    return np.asarray(quantiles[np.argmax(quantiles > 0, axis=0), np.arange(away.shape[1])])


def _halfway(values: Array, centre: Array, farthest: Array, found: Populations) -> Array:
    """Between the near rows and the nearest one beyond the gap of every column, in logarithms."""
    halfway = np.full(centre.size, np.inf)
    for gap in found.gaps:
        j = _column(gap.what)
        nearest = float(np.abs(values[gap.rows, j] - centre[j]).min())
        halfway[j] = np.sqrt(farthest[j]) * np.sqrt(nearest)
    return halfway


def too_many(found: Populations, columns: int) -> NDArray[np.bool_]:
    """Columns of a sample, and last its target, with more rows beyond a gap than are taken for errors."""
    many = np.zeros(columns, dtype=np.bool_)
    for gap in found.gaps:
        many[_column(gap.what)] |= not np.isin(gap.rows, found.errors).all()
    return many


def _column(what: str) -> int:
    return -1 if what == "targets" else int(what.removeprefix("feature "))


def _far_features(batch: Batch, centre: Array, reach: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    X = batch.X
    if sparse.issparse(X):
        far = np.flatnonzero(np.abs(X.data - centre[X.indices]) > reach[X.indices])
        return np.searchsorted(X.indptr, far, side="right") - 1, X.indices[far].astype(np.intp)
    X = np.require(X, requirements=["C", "A"])  # what a cluster sends may lie anywhere
    low, high = batch.extremes or column_extremes(X)
    columns = np.flatnonzero((high - centre > reach) | (centre - low > reach))
    rows, places = np.nonzero(np.abs(X[:, columns] - centre[columns]) > reach[columns])
    return rows, columns[places]


@dataclass(frozen=True, eq=False)
class TailCounts(Sums):
    """How many numbers lie how far out, by columns: a table of column, bin and count, of those above zero.

    A bin is an eighth of a doubling of the distance, from the farthest row of the sample on. Beside them come
    the numbers beyond the present bounds, by column, and the rows on either side, by label.
    """

    bounds: Bounds
    labels: Array

    def nothing(self) -> Array:
        """Return the table over no row."""
        return np.zeros((0, 3))

    def on_batch(self, batch: Batch) -> Array:
        """Return the table over one batch."""
        bounds = self.bounds
        rows, columns = replace(bounds, reach=bounds.farthest).beyond(batch)
        away = _distances(batch, rows, columns, bounds.centre)
        beyond = away > bounds.reach[columns]
        far = np.unique(rows[beyond])
        near = np.setdiff1d(batch.usable(np.arange(len(batch))), far)
        bins = np.floor(np.log2(away / bounds.farthest[columns]) * _BINS_OF_DOUBLING)
        parts = [_counted(columns, bins), _counted(columns[beyond], _BEYOND)]
        if self.labels.size:
            of_rows = np.argmax(batch.y[:, None] == self.labels, axis=1)
            parts += [_counted(of_rows[near], _NEAR_LABEL), _counted(of_rows[far], _FAR_LABEL)]
        return self.add(parts)

    @staticmethod
    def add(parts: list[Array]) -> Array:
        """One table of several, without a line twice."""
        table = np.concatenate(parts)
        keys, place = np.unique(table[:, :2], axis=0, return_inverse=True)
        return np.column_stack([keys, np.bincount(place.ravel(), table[:, 2], len(keys))])

    def loses_a_class(self, table: Array) -> bool:
        """Whether a label has far rows alone."""
        near, far = (table[table[:, 1] == kind, 0] for kind in (_NEAR_LABEL, _FAR_LABEL))
        return np.setdiff1d(far, near).size > 0

    def settled(self, table: Array, limits: Limits = LIMITS) -> tuple[Array, Array, Array]:
        """Reach of every column by the gaps in all rows, numbers beyond it, and those beyond the present one.

        Where there is no gap, nothing is too far, and no number is beyond.
        """
        width = self.bounds.reach.size
        reach, beyond, before = np.full(width, np.inf), np.zeros(width), np.zeros(width)
        now = table[table[:, 1] == _BEYOND]
        before[now[:, 0].astype(np.intp)] = now[:, 2]
        for j in np.flatnonzero(before):
            of_column = table[(table[:, 0] == j) & (table[:, 1] >= 0), 1:]
            reach[j], beyond[j] = self._gap(int(j), of_column[:, 0], of_column[:, 1], limits)
        return reach, beyond, before

    def _gap(self, j: int, bins: Array, counts: Array, limits: Limits) -> tuple[float, float]:
        """Middle of the innermost gap, in logarithms, and the numbers beyond it; as among rows in memory."""
        last = j == self.bounds.reach.size - 1
        below, width = np.append(-1.0, bins[:-1]), np.log(2.0) / _BINS_OF_DOUBLING
        above = counts[::-1].cumsum()[::-1]
        wide = (bins - below - 1) * width
        least = np.log(self.bounds.gap if last else limits.gap)
        chance = np.log((1 if last else self.bounds.reach.size - 1) / limits.error)
        far = self.bounds.farthest[j] * np.exp(bins * width) > self.bounds.least[j]
        found = np.flatnonzero(far & (wide > least) & (wide * above * self.bounds.index[j] > chance))
        if not found.size:
            return np.inf, 0.0
        middle = (below[found[0]] + 1 + bins[found[0]]) / 2 * width
        return float(self.bounds.farthest[j] * np.exp(middle)), float(above[found[0]])


def _distances(batch: Batch, rows: NDArray[np.intp], columns: NDArray[np.intp], centre: Array) -> Array:
    d = centre.size - 1
    away, of_features = np.abs(batch.y[rows] - centre[-1]), columns < d
    values = np.asarray(batch.X[rows[of_features], columns[of_features]]).ravel()
    away[of_features] = np.abs(values - centre[columns[of_features]])
    return np.asarray(away)


def _counted(places: NDArray[np.intp], bins: Array | float) -> Array:
    """A table of so many places and bins, a line each; :meth:`TailCounts.add` brings them together."""
    return np.column_stack([places, np.broadcast_to(bins, places.shape), np.ones(places.size)])


def many_columns(by_column: Array, n: int, limits: Limits = LIMITS) -> NDArray[np.bool_]:
    """Columns with more far rows than are taken for errors; all, where the rows are too many in all.

    Examples
    --------
    >>> many_columns(np.array([40.0, 10.0, 40.0]), 1_000).tolist()
    [False, False, True]
    """
    shares = np.full(by_column.size, limits.feature_share)
    shares[-1] = limits.target_share
    return np.asarray(by_column > np.maximum(1.0, shares * n))


def dense(X: Any) -> Array | None:
    """A sample as a dense table; None where that would be large."""
    if not sparse.issparse(X):
        return np.asarray(X)
    return np.asarray(X.toarray()) if X.shape[0] * X.shape[1] <= _CELLS else None
