"""How sure a blend of levels is, and how much every row counts in it.

A level solves Σ vᵢ ψ(rᵢ) cᵢ zᵢ = 0, so a row moves it by A⁻¹ ψ(rᵢ) cᵢ zᵢ with A = Σ v ψ′ c² zz', and a blend
by the weighted sum of these over its levels. The sum of their squares over rows is the covariance of the
blend: a sandwich with truncated scores, which exists whatever the tails of the noise. Each score is divided
by one minus its leverage, as in HC3. Noise need not be alike in all rows.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.automatic import intercept_condition
from tailproof.core.inference import CoefficientErrors
from tailproof.estimators.robust_regressor.candidates import FittedLevel, LinearFit, RegressionTask
from tailproof.estimators.robust_regressor.dependent_noise import Correction, noise_correction
from tailproof.estimators.robust_regressor.levels import (
    influence,
    is_narrow,
    psi_slopes,
    working_residuals,
)
from tailproof.estimators.robust_regressor.noise_growth import columns_of, told_columns
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram
from tailproof.estimators.robust_regressor.small_systems import product
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath
from tailproof.native.levels import level_weights

if TYPE_CHECKING:
    from tailproof.estimators.robust_regressor.refinement import Refinement

_TILE = 16_384  # rows at a time: residuals of all levels stay in the processor's cache
MOSTLY_PLAIN = 0.9  # share of least squares in a blend from which there is no bias to correct
_HOW = "Standard errors are a sandwich of truncated scores: noise may have heavy tails and depend on x."
_PENALISED = (
    "The model is penalised, which draws coefficients towards zero: intervals are about the values without "
    "that pull."
)


@dataclass(frozen=True)
class Blend:
    """Levels of one path with their weights, which add up to one, fitted on n rows.

    ``refinement`` is what was done to their slopes afterwards, and ``ridge`` the share of ridge regression in
    the model beside them.
    """

    path: TruncationPath
    weights: Array
    level: FittedLevel
    n: int
    refinement: Refinement | None = None
    ridge: float = 0.0

    @property
    def rows(self) -> ScaledRows:
        """What they were fitted on, or a sample of that."""
        return self.path.rows

    @property
    def phi(self) -> Array:
        """Of their weighted mean."""
        return np.asarray(self.path.phi @ self.weights)

    def taken(self, rows: NDArray[np.intp]) -> Blend:
        """The same with some of its rows, and no other."""
        return self._with(self.rows.take(rows))

    def sampled(self) -> Blend:
        """The same with as many rows as covariances need, and no other."""
        return self._with(_sample(self.rows))

    def _with(self, rows: ScaledRows) -> Blend:
        path = replace(self.path, rows=rows)
        return replace(self, path=path, level=replace(self.level, path=path))


def blend_of(model: LinearFit) -> Blend | None:
    """The levels behind a fit; None for one that has none, such as SGD's."""
    parts = _leaves(model)
    levels = [part.level for _, part in parts if part.level is not None]
    if len(levels) < len(parts):
        return None
    weights = np.zeros(len(levels[0].path.levels))
    for (weight, _), level in zip(parts, levels, strict=True):
        weights[level.member] += weight
    used = np.flatnonzero(weights).tolist()
    path = levels[0].path.only(used)
    return Blend(path, weights[used], levels[0], path.rows.n)


def _leaves(model: LinearFit) -> list[tuple[float, LinearFit]]:
    """The fits that are no blends themselves, with their weights."""
    if not model.parts:
        return [(1.0, model)]
    return [(outer * inner, leaf) for outer, part in model.parts for inner, leaf in _leaves(part)]


def row_weights(blend: Blend) -> Array:
    """How much every row counts: 1 as in least squares, 0 not at all."""
    of_levels = _weights_of_levels(blend)
    return blend.ridge + (1.0 - blend.ridge) * of_levels if blend.ridge else of_levels


def _weights_of_levels(blend: Blend) -> Array:
    """ψ(r)/r of every row."""
    rows, levels = blend.rows, blend.path.levels
    kept = np.empty(rows.n)
    if is_narrow(rows):
        phi = rows.multiplier(blend.path.phi)
        for part, Z in rows.tiles():
            kept[part] = level_weights(Z, rows.y[part], phi, levels.tau, levels.bisquare, blend.weights)
        return np.clip(kept, 0.0, 1.0, out=kept)
    for part, r in _residuals(blend):
        shares = np.divide(influence(r, levels)[0], r, out=np.ones_like(r), where=r != 0)
        kept[part] = blend.weights @ shares
    return np.clip(kept, 0.0, 1.0, out=kept)


def _residuals(blend: Blend) -> Iterator[tuple[slice, Array]]:
    """Residuals to truncate, a row a level, for some rows after the others."""
    rows = blend.rows
    if rows.loss.link == "identity":
        for start in range(0, rows.n, _TILE):
            part = slice(start, start + _TILE)
            yield part, blend.path.residuals[:, part]
        return
    theta = rows.multiplier(blend.path.phi)
    for part, Z in rows.tiles():
        yield part, working_residuals(rows.loss, theta.T @ Z.T, rows.y[part])[0]


def row_shares(task: RegressionTask, scores: Array) -> Array:
    """Share of every row in the sum of all losses: of squared errors, for the identity link."""
    with np.errstate(over="ignore"):
        losses = task.loss.value(scores, task.y)
    if task.loss.link == "log":
        # A likelihood is known up to a constant: that of a perfect prediction is zero here.
        losses = losses - task.loss.least(task.y)
    return shares_of_losses(losses, task.shares())


def shares_of_losses(losses: Array, weights: Array | None) -> Array:
    """Losses of rows over their sum; the array itself is changed, since rows may be many."""
    np.maximum(losses, 0.0, out=losses)
    if weights is not None:
        losses *= weights
    total = float(losses.sum())
    if 0.0 < total < np.inf:
        losses /= total
        return losses
    np.nan_to_num(losses, copy=False, posinf=1e300)
    largest = float(losses.max())
    if largest > 0:
        losses /= max(largest, 1e-300)
        losses /= losses.sum()
    return np.asarray(losses)


def coefficient_errors(blend: Blend, estimates: Array) -> CoefficientErrors | None:
    """Errors of the coefficients, the intercept last; None where rows are too few or columns too many."""
    sample, tuning = _sample(blend.rows), blend.rows.tuning
    freedom = blend.n - blend.path.basis.rank
    if blend.n < tuning.inference_rows_per_column * sample.width or sample.width > tuning.inference_columns:
        return None
    scored, middle = _scored(blend, sample), _middle(blend, sample)
    refinement, correction = blend.refinement, None
    if middle is not None and not _is_alike_in_all(blend):
        correction = (refinement and refinement.correction) or _correction(blend, sample)
    covariance = _covariance(blend, sample, scored, middle, correction, refinement) * (sample.n / blend.n)
    left = 1.0 - refinement.share if refinement else 1.0  # of the blend in the model
    pull = left * _pull(blend, scored.breads)
    done = refinement.share * refinement.phi if refinement else 0.0
    if correction is None and not pull.any() and np.isfinite(blend.path.levels.tau).any():
        covariance *= tuning.inference_choice**2
    _widen(covariance, blend, sample)
    to_data = _to_data(blend)
    # Not of the covariance in the coordinates of the data, where columns of unlike sizes drown each other.
    values, vectors = np.linalg.eigh(covariance)
    vectors[np.diag(covariance) == 0] = 0.0  # of constant columns, where some processors leave rounding
    factor = (to_data @ (vectors * np.sqrt(np.maximum(values, 0.0)))).T
    # All rows have corrected the slopes themselves, better than a sample of them could.
    centred = None if blend.level.corrected else correction
    moved = blend.path.basis.least_slopes @ (pull if centred is None else centred.phi - done)
    if middle is not None:
        moved[-1] = -middle.row @ moved[:-1]  # the mean stays where it was recentred to
    centre = estimates + to_data @ moved
    if not (np.isfinite(factor).all() and np.isfinite(centre).all()):
        return None
    how = [_HOW, *([centred.why] if centred else [_PENALISED] if pull.any() else [])]
    return CoefficientErrors(centre, factor, float(freedom), " ".join(how))


def _widen(covariance: Array, blend: Blend, sample: ScaledRows) -> None:
    """Give columns that too few rows of a sample tell of the variance that least squares has, at least.

    A sample may have one row of a category, or none: its own residual says nothing.
    """
    v = sample.weights / sample.weights.sum()
    untold = np.setdiff1d(np.arange(sample.width - 1), told_columns(columns_of(sample), v))
    if not untold.size or sample.loss.link != "identity":
        return
    r = sample.y - sample.predictions(blend.phi[:, None])[0]
    noise = float(v @ r**2) - float(v @ r) ** 2
    lengths = (blend.path.basis.least_slopes[untold] ** 2).sum(axis=1)
    covariance[untold, untold] = np.maximum(covariance[untold, untold], noise * lengths / blend.n)


def _is_alike_in_all(blend: Blend) -> bool:
    """Whether all rows have judged that noise does not grow, which a sample of them need not ask again."""
    return blend.level.second is not None and blend.refinement is not None and bool(blend.refinement.score)


def _correction(blend: Blend, sample: ScaledRows) -> Correction | None:
    """For noise that grows with x: if it is skewed, the slopes of truncated fits are biased."""
    if sample.loss.link != "identity" or blend.path.basis.rank > sample.tuning.hessian_columns:
        return None
    if blend.weights[np.isinf(blend.path.levels.tau)].sum() >= MOSTLY_PLAIN:
        return None  # least squares has no such bias
    Q = np.concatenate([tile for _, tile in whitened_rows(sample)])
    residuals = sample.y - blend.weights @ (blend.path.phi.T @ Q.T)
    second = blend.level.second
    models_size = blend.path.tells_sizes and (second is None or second.sizes_hold)
    return noise_correction(sample, Q, residuals, models_size=models_size)


def _sample(rows: ScaledRows) -> ScaledRows:
    """As many rows as covariances need."""
    wanted = max(rows.tuning.inference_rows, rows.tuning.start_rows_per_column * rows.width)
    if rows.n <= wanted:
        return rows
    chosen = np.random.default_rng(0).choice(rows.n, wanted, replace=False)
    return rows.take(np.sort(chosen))


@dataclass(frozen=True)
class _Tile:
    """Whitened rows, and ψc and ψ′c² of these, a row a level."""

    part: slice
    Q: Array
    psi: Array
    slopes: Array


@dataclass(frozen=True)
class _Scored:
    """Tiles of rows, and A⁻¹ of every level over the mean row, in whitened coordinates."""

    tiles: list[_Tile]
    breads: Array


def _scored(blend: Blend, sample: ScaledRows, whitened: Array | None = None) -> _Scored:
    rows = whitened_rows(sample) if whitened is None else [(slice(0, sample.n), whitened)]
    tiles = [_Tile(part, Q, *_scores(blend, sample, part, Q)) for part, Q in rows]
    return _Scored(tiles, _breads(blend, sample, tiles))


def _breads(blend: Blend, sample: ScaledRows, tiles: list[_Tile]) -> Array:
    rank, total = blend.path.basis.rank, sample.weights.sum()
    formed = rank <= sample.tuning.hessian_columns
    sums = np.zeros((len(blend.weights), rank, rank) if formed else len(blend.weights))
    for tile in tiles:
        weights = tile.slopes * sample.weights[tile.part]
        if formed:
            _add_grams(sums, tile.Q, weights)
        else:
            # With many columns, as if ψ′ did not depend on x: the Gram matrix of whitened rows is 1.
            sums += weights.sum(axis=1)
    return _inverses(sums / total) if formed else 1.0 / np.maximum(sums / total, 1e-3)


def _add_grams(sums: Array, Q: Array, weights: Array) -> None:
    """Σ wqq' of every level; weights may be negative for Tukey's ψ."""
    for level, of_level in enumerate(weights):
        sums[level] += gram(Q, np.maximum(of_level, 0.0))
        below = np.flatnonzero(of_level < 0)
        if below.size:
            sums[level] -= gram(Q[below], -of_level[below])


def _inverses(matrices: Array) -> Array:
    """Inverses of symmetric matrices, with eigenvalues kept above a share of their mean."""
    values, vectors = np.linalg.eigh(matrices)
    values = np.maximum(values, 0.02 * np.maximum(values.mean(axis=1), 1e-3)[:, None])
    return np.asarray((vectors / values[:, None, :]) @ vectors.transpose(0, 2, 1))


def _scores(blend: Blend, rows: ScaledRows, part: slice, Q: Array) -> tuple[Array, Array]:
    """ψc and ψ′c², a row a level."""
    r, factor = working_residuals(rows.loss, blend.path.phi.T @ Q.T, rows.y[part])
    psi = influence(r, blend.path.levels)[0]
    slopes = psi_slopes(r, blend.path.levels, None, exact=True)
    if factor is not None:
        psi, slopes = psi * factor, slopes * factor**2
    return psi, slopes


def whitened_rows(rows: ScaledRows) -> list[tuple[slice, Array]]:
    """Tiles of whitened rows."""
    return [(part, Z if rows.in_basis else Z @ rows.whitening.map) for part, Z in rows.tiles()]


def blend_moves(blend: Blend, rows: ScaledRows, whitened: Array) -> Array:
    """How far every row moves φ of the blend."""
    scored, v = _scored(blend, rows, whitened), rows.weights / rows.weights.sum()
    return _moves(blend, scored.breads, scored.tiles[0], v)


def _covariance(
    blend: Blend,
    sample: ScaledRows,
    scored: _Scored,
    middle: _Middle | None,
    correction: Correction | None,
    refinement: Refinement | None,
) -> Array:
    """Sum of squares of the influences of rows on θ, in scaled columns with recentred intercepts."""
    B, total = blend.path.basis.least_slopes, sample.weights.sum()
    sandwich = np.zeros((sample.width, sample.width))
    for tile in scored.tiles:
        part, Q = tile.part, tile.Q
        v = sample.weights[part] / total
        if correction is None:
            moves = _moves(blend, scored.breads, tile, v)
            if refinement and refinement.score:
                r = sample.y[part] - Q @ (blend.phi + refinement.phi)
                moves += refinement.share * (refinement.score.moves(Q, r, v) - moves)
            elif refinement and refinement.moves is not None:
                moves += refinement.share * refinement.moves[part]
            theta = moves @ B.T
        else:
            theta = correction.moves[part] @ B.T
        if middle is not None:
            theta[:, -1] = v * middle.residuals[part] - theta[:, :-1] @ middle.row
        sandwich += theta.T @ theta
    return sandwich


def _moves(blend: Blend, breads: Array, tile: _Tile, v: Array) -> Array:
    """How far every row moves φ of the blend."""
    Q, parts = tile.Q, []
    for weight, A, psi, slope in zip(blend.weights, breads, tile.psi, tile.slopes, strict=True):
        pulled = product(Q, A) if np.ndim(A) else A * Q
        leverage = v * slope * np.einsum("ij,ij->i", pulled, Q)
        pulled *= (weight * v * psi / np.maximum(1.0 - leverage, 0.1))[:, None]
        parts.append(pulled)
    return functools.reduce(operator.iadd, parts)


@dataclass(frozen=True)
class _Middle:
    """What recentring fixes: residuals that average to zero, and the row at which the mean is predicted."""

    residuals: Array
    row: Array


def _middle(blend: Blend, sample: ScaledRows) -> _Middle | None:
    """The mean row, weighted as the condition of the intercept has it, and its residuals."""
    truncated = bool(np.isfinite(blend.path.levels.tau).any())
    if not (blend.level.recentred and sample.fit_intercept and truncated):
        return None
    loss, B = sample.loss, blend.path.basis.map
    p = np.concatenate([blend.weights @ (blend.path.phi.T @ Q.T) for _, Q in whitened_rows(sample)])
    v = sample.weights / sample.weights.sum()
    if loss.link == "identity":
        e, share = sample.y - p, v
    else:
        top, bottom = intercept_condition(loss, p, sample.y)
        shift = math.log(max(float(v @ top), 1e-300) / max(float(v @ bottom), 1e-300))
        top, bottom = intercept_condition(loss, p + shift, sample.y)
        e, share = (top - bottom) / (v @ bottom), v * bottom / (v @ bottom)
    mean = sum(share[part] @ Q for part, Q in whitened_rows(sample))
    # Q = ZB with columns of B orthogonal: Z's mean row follows from Q's.
    row = (mean / blend.path.basis.inverse) @ B.T
    return _Middle(e - v @ e, row[:-1])


def _pull(blend: Blend, breads: Array) -> Array:
    """What penalties took from φ: A⁻¹λSφ, by one Newton step without them."""
    path = blend.path
    taken = np.zeros(path.basis.rank)
    for weight, A, ridge, phi in zip(blend.weights, breads, path.levels.ridge, path.phi.T, strict=True):
        if ridge:
            side = ridge * path.basis.slopes(phi[:, None])[:, 0]
            taken += weight * (A @ side if np.ndim(A) else A * side)
    return taken


def _to_data(blend: Blend) -> Array:
    """The matrix that turns θ of scaled columns into coefficients and intercept in the unit of the data."""
    rows, unit = blend.rows, blend.level.unit
    factor = 1.0 if unit.log else unit.scale
    matrix = np.diag(np.append(1.0 / rows.columns.scale, float(rows.fit_intercept)))
    matrix[-1, :-1] = -rows.columns.centre / rows.columns.scale
    return factor * matrix
