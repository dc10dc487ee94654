"""Predictions of rows by the levels of a path that were fitted without them, fold by fold."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.automatic import robust_shifts
from tailproof.core.means import values_needed
from tailproof.core.validate import resistance
from tailproof.estimators.robust_regressor.fold_search import has_few_rows, is_searched, searched_without
from tailproof.estimators.robust_regressor.levels import Scores, fold_scores, is_narrow, level_scores
from tailproof.estimators.robust_regressor.newton import System, capped, forms_hessians
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath
from tailproof.native.levels import gradients_of_rest, means_of_rest

_MEAN_ALLOWED = 1.1  # mean prediction of the log link over the mean of the targets; noise makes it vary
_FINER = 0.5  # of what is small enough: what a step by conjugate gradients may leave of a gradient


def held_out_predictions(path: TruncationPath, folds: Sequence[NDArray[np.intp]], delta: float) -> Array:
    """Linear predictions of every row by fits that its fold was left out of, recentred; a row a level."""
    order = np.concatenate(folds)
    rows, inside = path.rows, path.rows.take(order)
    phi = _left_out(path, folds, inside)
    # As many rows as keep the error of an intercept small, spread evenly over the folds.
    step = 1 + (rows.n - 1) // rows.tuning.recentre_rows
    part = inside if step == 1 else inside.take(np.arange(0, rows.n, step))
    ends = -(-np.cumsum([fold.size for fold in folds]) // step)
    together = part.predictions(np.concatenate(phi, axis=1)).reshape(len(folds), len(path.levels), -1)
    starts = [0, *ends[:-1].tolist()]
    left_out = [FoldFit(part, *fit) for fit in zip(together, starts, ends.tolist(), strict=True)]
    shifts = _shifts_of_folds(left_out, together, path, delta)
    found = [
        fit.limited(fit.inside if step == 1 else rows.take(fold).predictions(phi[k]), shifts[k][:, None])
        for k, (fold, fit) in enumerate(zip(folds, left_out, strict=True))
    ]
    # From the order of folds to that of rows, at once.
    places = np.empty(rows.n, dtype=np.intp)
    places[order] = np.arange(rows.n)
    return np.concatenate(found, axis=1).take(places, axis=1)


def _left_out(path: TruncationPath, folds: Sequence[NDArray[np.intp]], inside: ScaledRows) -> list[Array]:
    """φ of every level without each of the folds; ``inside`` has the rows in their order."""
    rows, narrow, few = path.rows, is_narrow(path.rows), _is_few(path)
    if is_searched(rows) or (few and not narrow and rows.in_basis and rows.loss.link == "identity"):
        return list(searched_without(rows, path.levels, path.phi, path.residuals, folds))
    if not narrow or (few and not rows.in_basis):
        number = _fold_numbers(folds, rows.n)
        return [_without(path, fold, number != k) for k, fold in enumerate(folds)]
    return list(_steps_without(path, np.cumsum([fold.size for fold in folds]), inside))


def _steps_without(path: TruncationPath, ends: NDArray[np.intp], inside: ScaledRows) -> Array:
    """The Newton steps of :func:`_without` for all folds of narrow rows at once, the first axis."""
    rows, levels, basis, damping = path.rows, path.levels, path.basis, path.rows.tuning.fold_damping
    sums = fold_scores(inside, path.phi, levels, ends)
    total = rows.total - np.add.reduceat(inside.weights, np.append(0, ends[:-1]))
    g = (sums.gradient.sum(axis=0) - sums.gradient) / total[:, None, None]
    H = (sums.hessian.sum(axis=0) - sums.hessian) / total[:, None, None, None]
    H += levels.ridge[:, None, None] * basis.slopes_matrix() + damping * np.eye(basis.rank)
    inverses, g = _inverses(H), g - levels.ridge * basis.slopes(path.phi)
    enough = rows.tuning.corrected * np.linalg.norm(g, axis=1, keepdims=True)
    phi = path.phi + _steps(inverses, g - damping * path.phi)
    open_ones = np.arange(len(levels) if _is_few(path) else 0)
    for _ in range(rows.tuning.corrections):
        if not open_ones.size:
            break
        here, some = np.ascontiguousarray(phi[..., open_ones]), levels.only(open_ones.tolist())
        weights, psi = inside.uneven(slice(None)), (some.tau, some.bisquare)
        g = gradients_of_rest(inside.X, inside.y, weights, ends, here, *psi) / total[:, None, None]
        g -= some.ridge * (basis.slopes_matrix() @ here)
        large = np.linalg.norm(g, axis=1, keepdims=True) > enough[..., open_ones]
        phi[..., open_ones] = here + _steps(inverses[:, open_ones], g * large)
        # What is small enough without any of the folds stays where it is.
        open_ones = open_ones[large.any(axis=(0, 1))]
    return phi


def _is_few(path: TruncationPath) -> bool:
    """Whether leaving a fold out takes more than one Newton step."""
    rows = path.rows
    return has_few_rows(rows) or rows.loss.link != "identity"


def _without(path: TruncationPath, fold: NDArray[np.intp], seen: NDArray[np.bool_]) -> Array:
    """φ of every level without the fold: one Newton step, corrected where rows are few."""
    rows, levels, basis = path.rows, path.levels, path.basis
    formed = forms_hessians(rows)
    few = _is_few(path)
    held_out = level_scores(rows.take(fold), path.phi, levels, formed)
    rest = rows.take(np.flatnonzero(seen)) if few or not formed else rows
    total = rows.total - rows.weights[fold].sum()
    system = System(rest, levels, _scores_of_rest(path, held_out, seen), total, rows.tuning.fold_damping)
    g = (path.scores.gradient - held_out.gradient) / total - levels.ridge * basis.slopes(path.phi)
    # The damping pulls φ itself towards zero, so that directions absent from the other rows vanish.
    phi = path.phi + system.solve(g - rows.tuning.fold_damping * path.phi)
    return _corrected(phi, rest, system, rows.tuning.corrected * np.linalg.norm(g, axis=0)) if few else phi


def _corrected(phi: Array, rest: ScaledRows, system: System, enough: Array) -> Array:
    """Further steps of the levels whose gradients over the other rows are not small enough."""
    open_ones = np.arange(enough.size)
    for _ in range(rest.tuning.corrections):
        levels, g = system.levels.only(open_ones.tolist()), np.zeros_like(phi)
        sums = level_scores(rest, phi[:, open_ones], levels, hessian=False).gradient
        g[:, open_ones] = sums / system.total - levels.ridge * rest.whitening.slopes(phi[:, open_ones])
        large = np.linalg.norm(g, axis=0) > enough
        open_ones = np.flatnonzero(large)
        if not open_ones.size:
            break
        phi = phi + capped(rest.loss, system.solve(g * large, _FINER * enough))
    return phi


def _scores_of_rest(path: TruncationPath, held_out: Scores, seen: NDArray[np.bool_]) -> Scores:
    scores = path.scores
    if scores.hessian.size:
        return replace(scores, hessian=scores.hessian - held_out.hessian)
    return replace(scores, curvature=scores.curvature[:, seen])


def _fold_numbers(folds: Sequence[NDArray[np.intp]], n: int) -> NDArray[np.int64]:
    number = np.empty(n, dtype=np.int64)
    for k, fold in enumerate(folds):
        number[fold] = k
    return number


def _inverses(H: Array) -> Array:
    """Inverses, which serve several steps; in the sense of least squares where a matrix is singular."""
    try:
        return np.linalg.inv(H)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(H, hermitian=True)


def _steps(inverses: Array, g: Array) -> Array:
    """Steps of every fold and level, the last axis of the gradients."""
    return np.asarray(np.moveaxis((inverses @ np.moveaxis(g, -1, 1)[..., None])[..., 0], 1, -1))


@dataclass(frozen=True)
class FoldFit:
    """Predictions of rows by the levels that were fitted without a fold, which is a slice of the rows."""

    rows: ScaledRows
    predictions: Array
    start: int
    stop: int

    def seen(self, values: Array) -> Array:
        """What belongs to the other rows, on the last axis."""
        return np.concatenate([values[..., : self.start], values[..., self.stop :]], axis=-1)

    @property
    def inside(self) -> Array:
        """Predictions of the rows of the fold."""
        return self.predictions[:, self.start : self.stop]

    def limited(self, predictions: Array, shift: Array) -> Array:
        """Predictions, shifted, within what the other rows support: those of the log link run away."""
        if self.rows.loss.link == "identity":
            return predictions + shift
        weights = None if self.rows.even else self.seen(self.rows.weights)
        low, high = prediction_range(self.seen(self.predictions) + shift, self.y, weights)
        return np.clip(predictions + shift, low[:, None], high[:, None])

    @functools.cached_property
    def y(self) -> Array:
        """Targets of the other rows."""
        return self.seen(self.rows.y)


def _shifts_of_folds(fits: Sequence[FoldFit], p: Array, path: TruncationPath, delta: float) -> Array:
    """What moves the intercepts of truncated fits to the mean, a row a fold; an untruncated one is there.

    ``p`` has their predictions.
    """
    levels = path.levels
    rows, cut = fits[0].rows, levels.truncated
    if not (rows.fit_intercept and cut.size):
        return np.zeros((len(fits), len(levels)))
    informative_share = path.informative_share
    shifts = np.full((len(fits), len(levels)), np.nan)
    sizes = [fit.rows.n - (fit.stop - fit.start) for fit in fits]
    if rows.even and rows.loss.link == "identity" and min(sizes) >= values_needed("catoni", delta):
        of_size = {size: resistance(size, delta, informative_share) for size in set(sizes)}
        how = [of_size[size] for size in sizes]
        # One scale serves levels of one penalty: residuals of others differ by more than what is truncated.
        alike = bool(np.ptp(levels.ridge) == 0)
        shifts = means_of_rest(p, rows.y, np.array([fit.stop for fit in fits]), levels.tau, alike, how)
    for k in np.flatnonzero(np.isnan(shifts).any(axis=1)).tolist():
        shifts[k] = 0.0
        shifts[k, cut] = _shifts_of_fold(fits[k], cut, delta, informative_share)
    return shifts


def _shifts_of_fold(fit: FoldFit, cut: NDArray[np.intp], delta: float, informative_share: float) -> Array:
    weights = None if fit.rows.even else fit.seen(fit.rows.weights)
    return robust_shifts(
        fit.rows.loss, fit.seen(fit.predictions[cut]), fit.y, weights, delta, informative_share
    )


def prediction_range(predictions: Array, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
    """Linear predictions of the log link that the rows support, a row a model: least and largest.

    exp turns a slope that is a little too long into any number for a row a little beyond the others. The
    limits are the predictions of the rows fitted, and no mean is above the largest target nor below the
    smallest, with a factor of two to spare. Where a few rows with enormous means lift the mean of all
    predictions above that of the targets, as the gamma and Tweedie likelihoods let them, the upper limit is
    lower: so that the two means agree.
    """
    with np.errstate(divide="ignore"):
        low = np.maximum(predictions.min(axis=1), np.log(y.min()))
        high = np.minimum(predictions.max(axis=1), np.log(y.max()))
        high = np.maximum(high, low) + math.log(2.0)
    v = np.ones(y.size) if weights is None else weights
    mean = _MEAN_ALLOWED * float(np.average(y, weights=v))
    for m in range(high.size):
        mu = np.exp(np.minimum(predictions[m], high[m]))
        if np.average(mu, weights=v) > mean > 0:
            high[m] = max(_limit_of_mean(mu, v, mean), low[m])
    return low - math.log(2.0), high


def _limit_of_mean(mu: Array, v: Array, mean: float) -> float:
    """Logarithm of the C at which the mean of min(μ, C), with weights v, is as given."""
    order = np.argsort(mu)
    mu, v = mu[order], v[order]
    below, beyond = np.cumsum(v * mu), np.append(np.cumsum(v[:0:-1])[::-1], 0.0)
    # The first that is cut: the last at the most, whatever rounding says.
    first = min(int(np.searchsorted(below + mu * beyond, mean * v.sum())), mu.size - 1)
    done, rest = (below[first - 1], beyond[first - 1]) if first else (0.0, v.sum())
    return math.log((mean * v.sum() - done) / rest)
