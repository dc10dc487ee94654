"""What all rows tell about levels that a sample of them chose: how biased they are.

Held-out losses do not tell the variances of two levels apart any better on more rows: the difference of their
risks and its standard error both fall like 1/n. A bias stays as it is while least squares gets better, and so
all rows must judge it. Slopes of truncated fits are biased where skewed noise grows along some columns. How
fast it grows is known far better than its mean, from sizes of residuals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from tailproof.core import Array
from tailproof.core.scaling import FeatureScale
from tailproof.estimators.robust_regressor.levels import Levels, influence, is_narrow, psi_slopes
from tailproof.estimators.robust_regressor.log_noise import (
    LOG_NOISE_LEVEL,
    LogNoise,
    log_noise,
    longer_errors,
    measure_of_size,
)
from tailproof.estimators.robust_regressor.second_fit import Learned, SecondFit, second_fit
from tailproof.estimators.robust_regressor.truncation_path import (
    LEAST_SLOPE,
    Refit,
    TruncationPath,
    normal_score,
)
from tailproof.estimators.robust_regressor.tuning import Tuning
from tailproof.native.levels import LevelMoments
from tailproof.native.scaling import square_norms

_CHANCE = 0.002  # that the noise seems to grow along any column where it does not
_DOUBTED, _REFUTED = 1.0, 2.0  # standard errors between a correction and least squares
_TINY = 1e-300
_REACH_NUMBERS = 2**16  # of rows at a time whose distance from the mean one is measured
_TILE = 2**14  # residuals of a level at a time: they stay in the processor's cache

CORRECTED = (
    "By all rows the noise grows along some columns, where truncated fits are biased if it is skewed: slopes "
    "are corrected for that."
)


@dataclass(frozen=True, eq=False)
class Reach:
    """How far a row is from the mean one, on average over columns: h(x) = Σ weight (x − centre)².

    A row moves slopes in proportion. Where far rows have heavy-tailed noise, distances of slopes are larger
    than they would be if all rows were equally far.
    """

    centre: Array
    weight: Array

    @classmethod
    def of_columns(cls, columns: FeatureScale, mean: Array, variance: Array) -> Reach:
        """In variances of the columns, given those of scaled ones and their means."""
        variance = variance * columns.scale**2
        weight = np.divide(1.0, variance * variance.size, out=np.zeros_like(variance), where=variance > 0)
        return cls(columns.centre + columns.scale * mean, weight)

    def moved(self, origin: Array | None) -> Reach:
        """The same for features less an origin."""
        return self if origin is None else Reach(self.centre - origin, self.weight)

    def of(self, X: Any) -> Array:
        """H of every row, a few rows at a time: a copy of all would take longer than the rest."""
        reach = np.empty(X.shape[0])
        with np.errstate(divide="ignore"):
            scale = 1.0 / np.sqrt(self.weight)  # infinite for a column of one value, which counts as nothing
        count = max(_REACH_NUMBERS // X.shape[1], 1)
        for start in range(0, reach.size, count):
            part = X[start : start + count]
            rows = np.ascontiguousarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64)
            reach[start : start + count] = square_norms(rows, self.centre, scale)
        return reach


@dataclass(frozen=True)
class LevelMeans:
    """Means of every level: ψ′, and ψ′r over that of ψ′; and Σ v²hψψ/(h̄(Σ v)²) of every two levels.

    h is the reach of a row, and h̄ its mean. Of two truncated levels that sum may be left out.
    """

    slope: Array
    inside: Array
    products: Array

    @classmethod
    def of(cls, slope: Array, inside: Array, products: Array) -> LevelMeans:
        """From means of ψ′ and of ψ′r."""
        slope = np.maximum(slope, LEAST_SLOPE)
        return cls(slope, inside / slope, products)

    def variances_to(self, plain: int) -> Array:
        """Of coordinates of the distances of levels to least squares, if noise does not depend on rows."""
        spread = self.products / np.outer(self.slope, self.slope)
        return np.maximum(np.diag(spread) + spread[plain, plain] - 2 * spread[:, plain], 0.0)


def least_squares_of(levels: Levels) -> int:
    """Which of them it is."""
    return int(np.flatnonzero(np.isinf(levels.tau))[0])


def level_means(path: TruncationPath, reach: Array) -> LevelMeans:
    """The means over the rows of a path, given how far each row is."""
    rows = path.rows
    sums = _narrow_moments if is_narrow(rows) else _moments
    slope, inside, products = sums(path, reach)
    typical = max(rows.mean(reach), _TINY)
    return LevelMeans.of(slope / rows.total, inside / rows.total, products / (typical * rows.total**2))


def _narrow_moments(path: TruncationPath, reach: Array) -> tuple[Array, Array, Array]:
    """Σ vψ′, Σ vψ′r and Σ v²hψψ, in one compiled pass; the last of least squares and each of the others."""
    rows, levels, plain = path.rows, path.levels, least_squares_of(path.levels)
    floor = rows.tuning.truncated_curvature
    sums = LevelMoments.zero(rows.multiplier(path.phi), levels.tau, levels.bisquare, plain, floor)
    for part, Z in rows.tiles():
        sums.add(Z, rows.y[part], rows.uneven(part), reach[part])
    products = np.diag(sums.products[0])
    products[plain], products[:, plain] = sums.products[1], sums.products[1]
    return sums.slope, sums.inside, products


def _moments(path: TruncationPath, reach: Array) -> tuple[Array, Array, Array]:
    """The same from residuals, a few at a time."""
    r, levels, count = path.residuals, path.levels, len(path.levels)
    slope, inside, products = np.zeros(count), np.zeros(count), np.zeros((count, count))
    for start in range(0, r.shape[1], _TILE):
        part = slice(start, start + _TILE)
        here, v = r[:, part], path.rows.weights[part]
        slopes = psi_slopes(here, levels, path.rows.tuning, exact=True)
        psi = influence(here, levels)[0] * (v * np.sqrt(reach[part]))
        slope += slopes @ v
        inside += (slopes * here) @ v
        products += psi @ psi.T
    return slope, inside, products


@dataclass(frozen=True)
class AllRowsEvidence:
    """Sums over all rows that tell how biased levels are.

    Attributes
    ----------
    means : LevelMeans
    mean_row : array of shape (width,)
        Of scaled columns.
    noise : LogNoise
    covariances : array
        Of :func:`told_apart` over all rows.
    """

    means: LevelMeans
    mean_row: Array
    noise: LogNoise
    covariances: Array


@dataclass(frozen=True)
class Judgement:
    """What is to be added to θ of every level, and its share to be replaced by least squares."""

    change: Array
    pull: Array

    @property
    def corrects(self) -> bool:
        """Whether any slope is changed."""
        return bool(self.change.any())

    def only(self, levels: NDArray[np.bool_]) -> Judgement:
        """The same for some levels; the others stay as they are."""
        return Judgement(self.change * levels, self.pull * levels)

    def refit(self, path: TruncationPath, theta: Array, plain: int, members: int) -> Refit:
        """The first levels of a path, whose recentred θ is given, with this done to them."""
        shares = np.diag(1.0 - self.pull)
        shares[:, plain] += self.pull
        return Refit(path, theta + self.change, shares[:members], self.corrects)


def slopes_apart(theta: Array, plain: int, noise: LogNoise, second: Array | None = None) -> Array:
    """θ of least squares less that of every level; how fast the noise grows; and less that of a second fit.

    The last is zero where there is none.
    """
    least_squares = theta[:, plain]
    others = [_growth(noise), least_squares - (least_squares if second is None else second)]
    return np.column_stack([least_squares[:, None] - theta, *others])


def told_apart(theta: Array, plain: int, noise: LogNoise, second: Array | None = None) -> Array:
    """The same without columns that the rows that chose hardly knew: levels may not be solved along these."""
    apart = slopes_apart(theta, plain, noise, second)
    return apart * np.broadcast_to(noise.told, len(apart))[:, None]


def judge(path: TruncationPath, theta: Array, found: AllRowsEvidence, plain: int) -> Judgement:
    """Correct the slopes of every level, and say how far to draw it towards least squares.

    If the noise at x is s(x) times one law, level τ is off the mean by Δ(s), with the derivative
    Δ′ = E r − E ψ′r/E ψ′ at s = 1, where E r is what recentring has moved the intercept by. So its slopes are
    off by Δ′ times those of log s. Where least squares contradicts that, its own slope in the same direction
    counts instead.

    If noise is otherwise independent of the features, what is left between the slopes of a level and those of
    least squares follows a χ² law (see :class:`Evidence`), in units of a variance that allows for far rows.
    Where it is beyond chance, what exceeds its expectation is a bias, and the share is that of James and
    Stein, which weighs it against the variance of least squares.

    Parameters
    ----------
    path : TruncationPath
        Fitted on all rows.
    theta : array of shape (width, levels)
        Recentred.
    found : AllRowsEvidence
    plain : int
        Which level is least squares.
    """
    rows = path.rows
    freedom = path.basis.rank - int(rows.fit_intercept)
    variance = found.means.variances_to(plain)
    growth = _growth(found.noise)
    bias = _bias_by_scale(path, theta, found.means)
    levels, last = np.arange(len(path.levels)), len(path.levels)
    distance, square = found.covariances[levels, levels], float(found.covariances[last, last])
    if growth.any() and square > 0:
        along = found.covariances[levels, last] / square
        distance = distance - along**2 * square
        along -= bias
        bias += _refuted(along * math.sqrt(square), variance) * along
    change = np.outer(growth, bias)
    change[-1] = -float(rows.fit_intercept) * (found.mean_row[:-1] @ change[:-1])
    freedom -= bool(growth.any())
    return Judgement(change, _james_stein(distance, variance, freedom, rows.tuning))


def solved_along_all(path: TruncationPath, noise: LogNoise, means: LevelMeans, plain: int) -> TruncationPath:
    """A path whose levels have the slopes of least squares along columns where they are not solved.

    Where all rows of a category are truncated, which the rows that chose hardly knew, a level stays where it
    was: its distance to least squares is beyond chance.
    """
    basis, tuning = path.basis, path.rows.tuning
    unknown = np.flatnonzero(np.broadcast_to(noise.told, path.rows.width) == 0)
    theta = basis.map @ path.phi
    apart = theta[unknown][:, [plain]] - theta[unknown]
    errors = np.sqrt(
        np.multiply.outer((basis.least_slopes[unknown] ** 2).sum(axis=1), means.variances_to(plain))
    )
    far = np.divide(np.abs(apart), errors, out=np.zeros_like(apart), where=errors > 0)
    span = tuning.conflict_certain - tuning.conflict_tolerated
    added = np.clip((far - tuning.conflict_tolerated) / span, 0.0, 1.0) * apart
    if not added.any():
        return path
    theta[unknown] += added
    mean_row = path.rows.tile_to_columns(path.rows.mean_tile)
    theta[-1] -= float(path.rows.fit_intercept) * (mean_row[unknown] @ added)
    return replace(path, phi=basis.coordinates(theta))


def _growth(noise: LogNoise) -> Array:
    """Slopes of log s(x) that are beyond chance; zero for the others and the constant."""
    limit = -special.ndtri(0.5 * _CHANCE / max(int(np.count_nonzero(noise.errors[:-1])), 1))
    growth = np.where(np.abs(noise.slopes) > limit * noise.errors, noise.slopes, 0.0)
    growth[-1] = 0.0
    return growth


def _bias_by_scale(path: TruncationPath, theta: Array, means: LevelMeans) -> Array:
    """Δ′ of every level: what recentring moved, less the mean residual of rows that are not truncated."""
    moved = theta[-1] - path.basis.constant @ path.phi
    biased = np.isfinite(path.levels.tau) & path.rows.fit_intercept
    return np.where(biased, moved - means.inside, 0.0)


def _refuted(distance: Array, variance: Array) -> Array:
    """From 0, least squares does not contradict, to 1."""
    errors = np.divide(np.abs(distance), np.sqrt(variance), out=np.zeros_like(distance), where=variance > 0)
    return np.clip((errors - _DOUBTED) / (_REFUTED - _DOUBTED), 0.0, 1.0)


def _james_stein(distance: Array, variance: Array, freedom: int, tuning: Tuning) -> Array:
    if freedom < 1:
        return np.zeros_like(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        chi = np.where(variance > 0, distance / variance, 0.0)
        surely = normal_score(chi, freedom) - tuning.conflict_tolerated
        certainty = np.clip(surely / (tuning.conflict_certain - tuning.conflict_tolerated), 0.0, 1.0)
        return np.nan_to_num(certainty * np.maximum(1.0 - freedom / chi, 0.0))


def judged_in_memory(
    path: TruncationPath,
    X: Any,
    members: int,
    delta: float,
    measure: LogNoise,
    learned: Learned | None,
    judges: Callable[[], NDArray[np.intp]],
) -> Refit:
    """The first levels of a path that was fitted on all rows, after these have judged.

    Parameters
    ----------
    path : TruncationPath
        With least squares among its levels.
    X : array or sparse matrix
        The features of its rows, as they are.
    members : int
    delta : float
    measure : LogNoise
        How the rows that chose measure sizes of residuals.
    learned : Learned or None
        What the rows that chose tell of the noise, for a second fit on all.
    judges : function
        Gives the rows that say whether that holds.
    """
    first = path.residuals_of(LOG_NOISE_LEVEL)
    noise, mean_row, reach = _noise_and_reach(path, X, first, measure)
    plain, means = least_squares_of(path.levels), level_means(path, reach)
    solved = solved_along_all(path, noise, means, plain)
    theta = solved.recentred(delta, first if solved is path else None)
    apart = path.rows.covariances(told_apart(path.basis.map @ path.phi, plain, noise))
    found = AllRowsEvidence(means, mean_row, noise, apart)
    refit = judge(solved, theta, found, plain).refit(solved, theta, plain, members)
    if learned is None:
        return refit
    return replace(refit, second=second_fit(path, learned, reach, *noise.along_columns, delta, judges))


def second_in_memory(
    path: TruncationPath, X: Any, learned: Learned, delta: float, judges: Callable[[], NDArray[np.intp]]
) -> SecondFit | None:
    """A second fit on the rows of a path; see :func:`judged_in_memory`."""
    noise, _, reach = _noise_and_reach(path, X, path.residuals_of(LOG_NOISE_LEVEL), measure_of_size(path))
    return second_fit(path, learned, reach, *noise.along_columns, delta, judges)


def _noise_and_reach(
    path: TruncationPath, X: Any, r: Array, measure: LogNoise
) -> tuple[LogNoise, Array, Array]:
    """The noise by all rows with the features given, their mean, and how far each is; r is of one level."""
    rows, variance = path.rows, path.rows.variances(X)
    noise, mean_row = log_noise(path, r, measure, longer_errors(rows, variance))
    return noise, mean_row, Reach.of_columns(rows.columns, mean_row[:-1], variance).of(X)
