"""What a RobustRegressor asks of all rows in pieces: sums of its levels.

They depend on the numbers of the rows in the data, never on the pieces that hold them: the same rows give the
same sums on every engine, but for rounding.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.scaling import FeatureScale
from tailproof.data.leverage import Leverage
from tailproof.data.random_sample import RowNumbers
from tailproof.data.readers.batches import Batch
from tailproof.data.second_sums import PassRows, ScoreSums, SecondPass, SizeSums
from tailproof.data.sums import Sums
from tailproof.estimators.robust_regressor.all_rows import Reach, slopes_apart
from tailproof.estimators.robust_regressor.candidates import Unit
from tailproof.estimators.robust_regressor.compared import priorities
from tailproof.estimators.robust_regressor.levels import Levels
from tailproof.estimators.robust_regressor.log_noise import LogNoise
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning
from tailproof.native.pass_sums import NOT_LEVELS, PassQuery, PassSums, PassTotals
from tailproof.native.scaling import scale_rows

GUARD_BLOCKS = 32  # of rows, each of which says whether the fit on all rows is better than the sample's
_NOT_FEATURES_OF_FAR = 3  # columns of far rows before the features: number, weight, target
# The compiled block sums deal rows in such runs; the same here gives the scale of a fit in memory.
_LONGEST_RUN, _ROUNDS = 256, 1_000
_TILE_BYTES = 2**22  # of features at a time: they stay in a cache that several cores share
_FAR_FROM_ZERO = 10.0  # scales, from which on a column is centred
_SURELY = 0.9  # of a limit: glitch limits are at least 100 scales


@dataclass(frozen=True, eq=False)
class Columns:
    """Coordinates of a pass: features as they are, but for those far from zero, which are centred.

    Attributes
    ----------
    scale : FeatureScale
        The sample's: levels are solved for z = (x − centre)/scale and a column of ones.
    origin : array or None
        What is taken from x; None if that is nothing, which saves a copy of all rows.
    """

    scale: FeatureScale
    origin: Array | None

    @classmethod
    def of(cls, scale: FeatureScale) -> Columns:
        """Centre the columns whose offset would cost digits."""
        origin = np.where(np.abs(scale.centre) > _FAR_FROM_ZERO * scale.scale, scale.centre, 0.0)
        return cls(scale, origin if origin.any() else None)

    @property
    def offset(self) -> Array:
        """What is left of the centre."""
        return self.scale.centre if self.origin is None else self.scale.centre - self.origin

    def moved(self, X: Any) -> Array:
        """Features in these coordinates."""
        dense = X.toarray() if sparse.issparse(X) else X
        return np.ascontiguousarray(dense if self.origin is None else dense - self.origin, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class LevelTotals:
    """Sums over all rows for m levels: weights v, features x in the coordinates of the pass, residuals r.

    Attributes
    ----------
    length : array of shape (1,)
        Of all sums together: far rows follow.
    gradient : array of shape (m, d + 1)
        Σ v ψ(r) x, and last Σ v ψ(r).
    value : array of shape (m, GUARD_BLOCKS)
        Σ v ρ(r), by block of rows.
    row, row_squares : arrays of shape (d,)
        Σ v x and Σ v x².
    residuals, squares, weights : arrays of shape (m, k), (m, k) and (k,)
        Σ v r, Σ v r² and Σ v, by block of rows; in the first pass.
    psi : array of shape (m, 2)
        Σ v ψ and Σ v ψ′ of Catoni's equation for the mean residual; after the first pass.
    curves : array of shape (m, 2)
        Σ v ψ′ and Σ v ψ′r; after the first pass.
    products, reach : arrays of shape (m, m) and (1,)
        Σ v² h ψ(r) ψ(r) of every two levels, and Σ v h, where h is how far a row is from the others; after
        the first pass.
    sizes_by_column, size_squares : arrays of shape (d + 1,) and (1,)
        Σ v t x with Σ v t last, and Σ v t², where t is what the linear function of the sample leaves of the
        sizes of residuals.
    apart, apart_products : arrays of shape (k,) and (k, k)
        Σ v a and Σ v aa', where the k numbers a = z't of a row are by slopes t of ``LevelSums.slopes``; after
        the first pass.
    second : array
        Of a second fit; see ``SecondPass``.
    sizes : array of shape (5,)
        Σ v, Σ v², rows used, glitches left out, and Σ v of far rows, which is found in the first pass.
    far : array of shape (any, d + 3)
        Number, weight, target and features of the far rows that were drawn, in the order of their numbers;
        in the first pass.
    """

    length: Array
    gradient: Array
    value: Array
    row: Array
    row_squares: Array
    residuals: Array
    squares: Array
    weights: Array
    psi: Array
    curves: Array
    products: Array
    reach: Array
    sizes_by_column: Array
    size_squares: Array
    apart: Array
    apart_products: Array
    second: Array
    sizes: Array
    far: Array

    @property
    def of_pass(self) -> PassTotals:
        """The parts that the compiled pass adds to."""
        return PassTotals(**{part.name: getattr(self, part.name) for part in fields(PassTotals)})

    @property
    def effective_rows(self) -> float:
        """How many rows of one weight would tell as much."""
        return float(self.sizes[0] ** 2 / self.sizes[1])

    @classmethod
    def views(cls, flat: Array, m: int, d: int, k: int, second: int = 0) -> LevelTotals:
        """A vector of all sums, cut into its parts without a copy but for far rows."""
        parts, end = [], 0
        for shape in cls.shapes(m, d, k, second):
            start, end = end, end + math.prod(shape)
            parts.append(flat[start:end].reshape(shape))
        far = flat[end:].reshape(-1, d + _NOT_FEATURES_OF_FAR)
        return cls(*[*parts, far[np.argsort(far[:, 0])]])

    @staticmethod
    def shapes(m: int, d: int, k: int, second: int = 0) -> list[tuple[int, ...]]:
        """Shape of every part but the last."""
        of_levels = [(1,), (m, d + 1), (m, GUARD_BLOCKS), (d,), (d,), (m, k), (m, k), (k,), (m, 2), (m, 2)]
        directions = m + NOT_LEVELS
        apart: list[tuple[int, ...]] = [(directions,), (directions, directions)]
        return [*of_levels, (m, m), (1,), (d + 1,), (1,), *apart, (second,), (5,)]


@dataclass(frozen=True, eq=False)
class LevelSums(Sums):
    """One pass over all rows: gradients of levels, and what their guard and their recentring need.

    Parameters
    ----------
    columns : Columns
    levels : Levels
    theta : array of shape (d + 1, m)
        Where each level is, for scaled columns; the last row is the intercepts.
    unit : Unit
        Of the target.
    limits : array of shape (d,)
        Of features, in scales from the centre: rows beyond are glitches.
    numbers : RowNumbers
    blocks : int
        Of rows, for robust scales of the residuals.
    centre, reach : arrays of shape (m,)
        θ and s of Catoni's equation; no sums for it where s is zero.
    far : Reach
    leverage : Leverage
    noise : LogNoise
        The sample's.
    key : int
        For the far rows that are drawn.
    number : int
        Of the pass.
    second : SecondPass, optional
        Another fit beside the levels.
    alone : bool
        Whether that fit alone has something left to add up: other sums are zero.
    tuning : Tuning
    """

    columns: Columns
    levels: Levels
    theta: Array
    unit: Unit
    limits: Array
    numbers: RowNumbers
    blocks: int
    centre: Array
    reach: Array
    far: Reach
    leverage: Leverage
    noise: LogNoise
    key: int
    number: int = 0
    second: SecondPass | None = None
    alone: bool = False
    tuning: Tuning = DEFAULT

    @property
    def name(self) -> str:
        """Under which a checkpoint keeps the sums."""
        return f"pass {self.number}"

    def nothing(self) -> Array:
        """Return the sums over no row."""
        flat = np.zeros(self._length)
        flat[0] = flat.size
        return flat

    @functools.cached_property
    def _length(self) -> int:
        """Of all sums together."""
        return sum(math.prod(shape) for shape in LevelTotals.shapes(*self._size))

    @staticmethod
    def add(parts: list[Array]) -> Array:
        """Sums of a few parts, and all their far rows."""
        length = int(parts[0][0])
        sums = np.sum([part[:length] for part in parts], axis=0)
        sums[0] = length
        return np.concatenate([sums, *(part[length:] for part in parts)])

    def totals(self, flat: Array) -> LevelTotals:
        """The parts of a vector of sums."""
        if int(flat[0]) != self._length:
            raise ValueError("these are sums of another version: delete the checkpoint they are from")
        return LevelTotals.views(flat, *self._size)

    @property
    def _size(self) -> tuple[int, int, int, int]:
        return len(self.levels), self.limits.size, self.blocks, self.second.count if self.second else 0

    @property
    def plain(self) -> int:
        """Which level is least squares."""
        return int(np.flatnonzero(np.isinf(self.levels.tau))[0])

    @property
    def slopes(self) -> Array:
        """Whose products over all rows are asked for, at the positions of the pass; see ``slopes_apart``."""
        second = self.second.equations.theta if self.second else None
        return slopes_apart(self.theta, self.plain, self.noise, second)

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        flat = self.nothing()
        into, drawn = self.totals(flat), []
        adding = PassSums(self._query, into.of_pass, self.number == 0)
        numbers, y = self.numbers.of_batch(batch), self.unit.to_unit(batch.y)
        size = max(64, _TILE_BYTES // (8 * self.limits.size))
        second = self._second_sums()
        checked = self._may_hold_glitches(batch)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(batch), size):
                part: Any = slice(start, start + size)
                if batch.missing.size:
                    part = batch.usable(np.arange(start, min(start + size, len(batch))))
                x, v = self.columns.moved(batch.X[part]), batch.weights[part] if batch.weights.size else None
                near = self._within_limits(x) if checked else None
                if near is not None:
                    into.sizes[3] += len(x) - near.size
                    part = np.arange(len(batch))[part][near]
                    x, v = x[near], None if v is None else v[near]
                away = np.empty(len(x)) if self.alone else adding.add(x, y[part], v, numbers[part])
                if second is not None:
                    second.add(x, y[part], v, numbers[part], away)
                if self.number == 0:
                    drawn.append(self._drawn(into, x, y[part], v, numbers[part], away))
        if second is not None:
            into.second[:] = second.total
        return np.concatenate([flat, *drawn])

    @functools.cached_property
    def _query(self) -> PassQuery:
        """What the compiled pass is asked for, in its coordinates."""
        scale, offset, noise = self.columns.scale.scale, self.columns.offset, self.noise
        every = np.column_stack([self.theta, self.slopes[:, -NOT_LEVELS:], noise.slopes])
        slopes = np.ascontiguousarray((every[:-1] / scale[:, None]).T)
        apart = np.vstack([slopes[self.plain] - slopes[: len(self.levels)], slopes[len(self.levels) : -1]])
        first = self.number == 0  # when it is not known how far rows are
        return PassQuery(
            slopes=slopes,
            constants=every[-1] - slopes @ offset,
            shifts=apart @ offset,
            tau=self.levels.tau,
            tukey=self.levels.bisquare,
            floor=self.tuning.truncated_curvature,
            centre=self.centre,
            reach=self.reach,
            plain=self.plain,
            far_centre=np.zeros_like(offset) if first else self.far.centre,
            far_weight=np.zeros_like(offset) if first else self.far.weight,
            to_leverage=np.ascontiguousarray(self.leverage.map.T),
            leverage_constants=self.leverage.constant,
            size_tau=float(noise.level.tau[0]),
            size_tukey=bool(noise.level.bisquare[0]),
            middle=noise.middle,
            offset=noise.offset,
            share=noise.share,
            guards=GUARD_BLOCKS,
            blocks=self.blocks,
            run=self._run,
        )

    def _second_sums(self) -> ScoreSums | SizeSums | None:
        """What adds up rows for the fit beside the levels, if there is one."""
        if self.second is None:
            return None
        rows = PassRows(self.columns.offset, self.columns.scale.scale, self._run)
        return self.second.adding(rows, self.theta[:, self.plain], self.number == 0)

    def leverages(self, x: Array) -> Array:
        """Of rows: for the levels, or for the fit beside them where that is larger."""
        leverages = self.leverage.of(x)
        if self.second is None:
            return leverages
        Z = scale_rows(x, self.columns.offset, self.columns.scale.scale, 1.0)
        return np.maximum(leverages, self.second.leverages(Z), out=leverages)

    def _drawn(
        self,
        into: LevelTotals,
        x: Array,
        y: Array,
        v: Array | None,
        numbers: NDArray[np.int64],
        leverages: Array,
    ) -> Array:
        """Far rows by chance, with weights that stand for those not drawn, in one vector."""
        far = np.flatnonzero(self.leverage.is_far(leverages))
        if not far.size:
            return np.empty(0)
        weights = np.ones(far.size) if v is None else v[far]
        into.sizes[4] += weights.sum()
        chances = self.leverage.chances(leverages[far])
        drawn = np.flatnonzero(priorities(numbers[far], self.key) < chances)
        rows = far[drawn]
        return np.column_stack([numbers[rows], weights[drawn] / chances[drawn], y[rows], x[rows]]).ravel()

    def _may_hold_glitches(self, batch: Batch) -> bool:
        """Whether some row may lie beyond a limit: no where the reader has seen that columns do not."""
        if np.isinf(self.limits).all():
            return False
        if batch.extremes is None:
            return True
        low, high = batch.extremes
        reach, centre = _SURELY * self.limits * self.columns.scale.scale, self.columns.scale.centre
        return not bool(np.all((low - centre >= -reach) & (high - centre <= reach)))

    def _within_limits(self, x: Array) -> NDArray[np.intp] | None:
        """Rows that are no glitches; None for all."""
        reach = self.limits * self.columns.scale.scale
        # Cheap, and nearly always true: what is left of a centre is a small share of a limit.
        if np.max(x**2 @ (1.0 / (_SURELY * reach) ** 2), initial=0.0) <= 1.0:
            return None
        return np.flatnonzero((np.abs(x - self.columns.offset) <= reach).all(axis=1))

    @property
    def _run(self) -> int:
        """Rows that go to one block together."""
        return min(max(self.numbers.total // (_ROUNDS * self.blocks), 1), _LONGEST_RUN)
