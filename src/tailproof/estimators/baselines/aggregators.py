"""Estimates of the gradient of the risk of a linear model; ``AGGREGATES`` lists them by name."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tailproof.core import Array
from tailproof.core.merge import geometric_median
from tailproof.core.numerics.m_estimates import (
    PSI,
    SCALES,
    effective_size,
    m_estimates,
    means_of_rows,
    row_sizes,
)
from tailproof.estimators.baselines.row_gradients import RowGradients
from tailproof.native.row_gradients import m_gradient

_TILE_CELLS = 160_000  # partial derivatives held at a time
_CACHED_CELLS = 80_000  # of them as many as the second cache holds
_COMPILED_SCALES = ("sd", "m-scale")
_LINE = 8  # columns at least, since memory comes in lines of eight numbers


def _one_by_one(function: Callable[[Any], Any], tasks: list[Any]) -> list[Any]:
    return [function(task) for task in tasks]


@dataclass(frozen=True)
class AggregatorOptions:
    """What the aggregators can be told.

    Attributes
    ----------
    delta : float
        One minus the confidence of the M-estimate.
    psi, scale, width : str
        Names in ``PSI``, ``SCALES`` and ``WIDTHS``.
    middle : {"lower", "upper"}
        Which of the two middle blocks is the median of an even number.
    run : callable
        Runs a function over tasks, in any order; an engine's.
    """

    delta: float = 0.01
    psi: str = "gudermannian"
    scale: str = "m-scale"
    width: str = "holland-ikeda"
    middle: str = "lower"
    run: Callable[[Callable[[Any], Any], list[Any]], object] = _one_by_one


@dataclass(frozen=True)
class Estimate:
    """A gradient, one row per output, and how many gradients of rows it took."""

    gradient: Array
    cost: int


class Aggregator:
    """How the gradients of rows become one; made once for a sample, called once for each update.

    Attributes
    ----------
    blockwise : bool
        Whether it works on k blocks.
    robust : bool
        Whether a few long rows leave it as it is, so that they need not shorten automatic steps.
    """

    blockwise = False
    robust = True

    def __init__(self, sample: RowGradients, options: AggregatorOptions) -> None:
        self.sample = sample

    def __call__(self, scores: Array) -> Estimate:
        """Return the estimate where the model has these scores."""
        raise NotImplementedError


class Mean(Aggregator):
    """The mean of all gradients (ERM-GD)."""

    robust = False

    def __call__(self, scores: Array) -> Estimate:
        """Return the estimate where the model has these scores."""
        return Estimate(self.sample.mean_gradient(self.sample.slopes(scores)), self.sample.size)


class GeometricMedianOfMeans(Aggregator):
    """Geometric median of the blocks' mean gradients (RGD-MoM, equation rgd_mom)."""

    blockwise = True

    def __call__(self, scores: Array) -> Estimate:
        """Return the estimate where the model has these scores; NaN where a block mean is not finite."""
        means = self.sample.block_gradients(self.sample.slopes(scores))
        finite = np.all(np.isfinite(means))
        point = geometric_median(means, tol=1e-9).point if finite else np.full(means.shape[1], np.nan)
        return Estimate(point.reshape(self.sample.outputs, -1), self.sample.size)


class MedianBlock(Aggregator):
    """Mean gradient of the block whose mean loss is the median (RGD-Lec, MoM-by-GD, equation rgd_lecue).

    The lower of the two middle blocks where their number is even (or the upper); the first of equal ones.
    Only that block's gradients are evaluated, and counted.
    """

    blockwise = True

    def __init__(self, sample: RowGradients, options: AggregatorOptions) -> None:
        super().__init__(sample, options)
        k = len(sample.blocks)
        self.rank = k // 2 if options.middle == "upper" else (k - 1) // 2

    def __call__(self, scores: Array) -> Estimate:
        """Return the estimate where the model has these scores; NaN where a loss is not a number."""
        risks = self.sample.block_means(self.sample.losses(scores))
        rows = self.sample.blocks[int(np.argsort(risks, kind="stable")[self.rank])]
        slopes = self.sample.slopes(scores, rows)
        gradient = self.sample.mean_gradient(slopes, rows)
        return Estimate(gradient * (np.nan if np.isnan(risks).any() else 1.0), len(slopes))


def holland_ikeda_width(n: float, delta: float) -> float:
    """Sqrt(n/log(1/δ)): the scale of Holland & Ikeda, over that of the partial derivatives."""
    return math.sqrt(n / -math.log(delta))


def cat_width(n: float, delta: float) -> float:
    """Algorithm "cat": s/σ, s² = n(σ² + q²)/(2 log(2/δ)), q² = 2σ² log(2/δ)/(n − 2 log(2/δ))."""
    twice = 2.0 * (math.log(2.0) - math.log(delta))
    if n < 2.0 * twice:
        raise ValueError(
            f"the width of Algorithm cat needs {math.ceil(2 * twice)} rows at delta={delta}; got {n:g}: "
            "raise delta or take 'holland-ikeda'"
        )
    return n / math.sqrt(twice * (n - twice))


WIDTHS: dict[str, Callable[[float, float], float]] = {
    "holland-ikeda": holland_ikeda_width,
    "cat": cat_width,
}


class MEstimate(Aggregator):
    """M-estimate of every partial derivative (RGD-M, equation rgd_cat).

    θⱼ solves Σ ψ((∂ⱼ − θ)/sⱼ) = 0 with sⱼ a scale of the centred partial derivatives times a width that
    grows with n and falls with log(1/δ).
    The last answers are where the next search starts, for the scale with the factor by which the last one
    grew; that saves time and changes nothing else.
    """

    def __init__(self, sample: RowGradients, options: AggregatorOptions) -> None:
        super().__init__(sample, options)
        self.options, self._own = options, threading.local()
        coordinates = sample.X.shape[1] + sample.intercept
        self.scale = np.full((sample.outputs, coordinates), np.nan)
        self.growth = np.ones((sample.outputs, coordinates))  # of the scale, in the last update
        self.offset = np.zeros((sample.outputs, coordinates))  # of the M-estimate from the mean
        size = effective_size(sample.y[None], sample.weights)
        self.widen = WIDTHS[options.width](size, options.delta)
        self.blocks = max(3, math.ceil(-math.log(options.delta)))

    def __call__(self, scores: Array) -> Estimate:
        """Return the estimate where the model has these scores."""
        slopes = np.ascontiguousarray(self.sample.slopes(scores).reshape(self.sample.size, -1).T)
        gradient = np.empty_like(self.scale)

        def fill(tile: tuple[int, int, int]) -> None:
            output, first, last = tile
            at = (output, slice(first, last))
            if not self._compiled(slopes[output], first, at, gradient[at]):
                values = self.sample.partials(slopes[output], first, last, self._scratch())
                gradient[at] = self._centres(values, at)

        self.options.run(fill, self._tiles())
        return Estimate(gradient, self.sample.size)

    def _compiled(self, slopes: Array, first: int, at: Any, gradient: Array) -> bool:
        """Fill a part of the gradient in one call; False where that takes more care, or is not compiled."""
        sample, scale = self.sample, self.options.scale
        if sparse.issparse(sample.X) or scale not in _COMPILED_SCALES or first == sample.X.shape[1]:
            return False
        scales, offsets = self._near(at), self.offset[at].copy()
        plain = m_gradient(
            sample.X, slopes, sample.columns.centre, sample.inverse_scale, sample.weights, first,
            self._scratch()[: max(_LINE, _CACHED_CELLS // sample.size)], scales, offsets, gradient,
            by_m_scale=scale == "m-scale", widen=self.widen, psi=PSI[self.options.psi],
        )  # fmt: skip
        if plain:
            self._keep(at, scales, offsets)
        return plain

    def _near(self, at: Any) -> Array:
        return np.asarray(self.scale[at] * self.growth[at])

    def _keep(self, at: Any, scales: Array, offsets: Array) -> None:
        known = (self.scale[at] > 0) & (scales > 0)
        self.growth[at] = np.divide(scales, self.scale[at], out=np.ones_like(scales), where=known)
        self.scale[at], self.offset[at] = scales, offsets

    @property
    def _width(self) -> int:
        return max(_LINE, _TILE_CELLS // self.sample.size)

    def _scratch(self) -> Array:
        """Room for one tile, one for each thread: fresh memory would cost more than what is done in it."""
        if not hasattr(self._own, "tile"):
            self._own.tile = np.empty((min(self._width, self.sample.X.shape[1]), self.sample.size))
        tile: Array = self._own.tile
        return tile

    def _tiles(self) -> list[tuple[int, int, int]]:
        """Output, first and last coordinate of each tile; the intercept is a tile of its own."""
        d, width = self.sample.X.shape[1], self._width
        ranges = [(first, min(first + width, d)) for first in range(0, d, width)]
        ranges += [(d, d + 1)] if self.sample.intercept else []
        return [(output, *ends) for output in range(self.sample.outputs) for ends in ranges]

    def _centres(self, values: Array, at: Any) -> Array:
        centres = self._solve(values, at)
        if np.all(np.isfinite(centres)):
            return centres
        # Squares may have left the range of floats: once more, with values of size one.
        sizes = row_sizes(values)
        self.scale[at], self.offset[at] = np.nan, 0.0
        centres = sizes * self._solve(values / sizes[:, None], at)
        self.scale[at], self.offset[at] = np.nan, 0.0
        return centres

    def _solve(self, values: Array, at: Any) -> Array:
        weights, means = self.sample.weights, means_of_rows(values, self.sample.weights)
        known = {"near": self._near(at), "centres": means} if self.options.scale == "m-scale" else {}
        scale = SCALES[self.options.scale](values, weights, self.blocks, **known)
        starts = np.where(scale > 0, means + self.offset[at], means)
        estimates = m_estimates(values, weights, starts, self.widen * scale, PSI[self.options.psi])
        self._keep(at, scale, estimates - means)
        return estimates


AGGREGATES: dict[str, type[Aggregator]] = {
    "mean": Mean,
    "geometric_median_of_means": GeometricMedianOfMeans,
    "m_estimate": MEstimate,
    "median_block": MedianBlock,
}
