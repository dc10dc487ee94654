"""A path of linear fits from strongly robust to untruncated, with the same fits for folds left out.

What a level solves is in :mod:`tailproof.estimators.robust_regressor.levels`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.automatic import robust_shifts, share_of_untied_targets
from tailproof.core.means import values_needed
from tailproof.core.validate import means_of_neighbours, resistance, resistant_means
from tailproof.estimators.robust_regressor.levels import (
    Levels,
    Scores,
    fold_scores,
    influence,
    is_narrow,
    level_scores,
    levels_of,
    psi_slopes,
    rank_of_quantile,
    weighted_quantiles,
    working_residuals,
)
from tailproof.estimators.robust_regressor.newton import System, capped, forms_hessians, newton
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, Whitening, gram
from tailproof.native.levels import gradients_of_rest, means_of_rest
from tailproof.native.newton import robust_start

if TYPE_CHECKING:
    from tailproof.estimators.robust_regressor.second_fit import SecondFit


@dataclass(frozen=True)
class Evidence:
    """What the fits themselves tell about each level, where noise is assumed to be independent of X.

    Attributes
    ----------
    variance : array
        Predicted excess risk of the slopes, E(prediction − mean)², from the variance of ψ.
    conflict : array
        Largest normal score of the distance to a level of larger variance: about 2 or more says that the
        level is biased, since the noise does depend on X. NaN where the theory does not hold (penalties,
        log links).
    """

    variance: Array
    conflict: Array


@dataclass(frozen=True)
class TruncationPath:
    """Fits at every level: θ = Bφ for scaled columns, before the intercepts are recentred.

    The last step of a level that is ``settled`` was short.
    """

    rows: ScaledRows
    levels: Levels
    phi: Array
    scores: Scores
    settled: NDArray[np.bool_]

    @property
    def basis(self) -> Whitening:
        """The whitening of the rows."""
        return self.rows.whitening

    @functools.cached_property
    def residuals(self) -> Array:
        """Targets less predictions, a row a level: identity link, before intercepts are recentred."""
        predictions = self.rows.predictions(self.phi)
        return np.subtract(self.rows.y, predictions, out=predictions)

    def residuals_of(self, level: int) -> Array:
        """The same of one level, without those of the others unless they are known."""
        if "residuals" in vars(self):
            return np.asarray(self.residuals[level])
        predictions = self.rows.predictions(self.phi[:, [level]])[0]
        return np.subtract(self.rows.y, predictions, out=predictions)

    def only(self, chosen: Sequence[int]) -> TruncationPath:
        """The path with some of its levels."""
        kept, scores = list(chosen), self.scores
        if kept == list(range(len(self.levels))):
            return self
        return replace(
            self,
            levels=self.levels.only(kept),
            phi=self.phi[:, kept],
            scores=Scores(
                scores.value[kept],
                scores.gradient[:, kept],
                scores.hessian[kept] if scores.hessian.size else scores.hessian,
                scores.curvature[kept] if scores.curvature.size else scores.curvature,
            ),
            settled=self.settled[kept],
        )

    def moved(self, X: Any, y: Array, weights: Array) -> TruncationPath:
        """The path on more rows, which include its own: a step or two from here."""
        rows, phi = self.rows.others(X, y, weights), self.phi
        if self.basis.rank < min(rows.width, rows.n):
            # Columns that are constant or collinear in the sample need not be so in all rows.
            rows, phi = self._whitened_anew(X, y, weights, self.basis.map @ phi)
        identity = rows.loss.link == "identity"
        passes = rows.tuning.polishing_identity if identity else rows.tuning.polishing_log
        polished = rows.tuning.polished if identity else 0.0
        system = self._system() if phi is self.phi and identity and forms_hessians(rows) else None
        solution = newton(rows, phi, self.levels, passes=passes, chord=True, system=system, polished=polished)
        scores = solution.scores
        if identity and not solution.settled.all():
            phi = solution.phi
            if system is not None:
                # Of rare categories and heavy-tailed columns a sample knows too little.
                rows, phi = self._whitened_anew(X, y, weights, self.basis.map @ phi)
            solution = newton(rows, phi, self.levels, passes=_MORE * passes, polished=polished)
            scores = solution.scores
        elif system is not None:
            larger = rows.weights.sum() / system.total
            scores = replace(scores, hessian=larger * system.scores.hessian)
        return TruncationPath(rows, self.levels, solution.phi, scores, solution.settled)

    def _whitened_anew(self, X: Any, y: Array, weights: Array, theta: Array) -> tuple[ScaledRows, Array]:
        """Other rows in a basis of their own, and φ of θ in it."""
        rows = replace(self.rows, basis=None).others(X, y, weights).whitened()
        return rows, rows.whitening.coordinates(theta)

    def _system(self) -> System:
        """What gives Newton steps, by these rows."""
        scores = level_scores(self.rows, self.phi, self.levels, exact=True)
        return System(self.rows, self.levels, scores, float(self.rows.weights.sum()), 0.0)

    def recentred(self, delta: float) -> Array:
        """θ of every level, with the intercept at the resistant mean of the residuals."""
        theta, cut = self.basis.map @ self.phi, self.levels.truncated
        if not (self.rows.fit_intercept and cut.size):
            return theta
        if self.rows.loss.link == "identity":
            theta[-1, cut] += self._mean_residuals(cut, delta)
        else:
            predictions = self.rows.predictions(self.phi[:, cut])
            theta[-1, cut] += _shifts(self.rows, predictions, delta)
        return theta

    def _mean_residuals(self, levels: NDArray[np.intp], delta: float) -> Array:
        """Resistant means of the residuals of some levels: one after the other where columns are few.

        There residuals of all levels would take more memory than the rows do.
        """
        rows = self.rows
        weights = None if rows.even else rows.weights
        share = share_of_untied_targets(rows.y)
        if 8 * rows.n * levels.size <= rows.tuning.tile_bytes:
            return resistant_means(self.residuals[levels], delta, weights, share)
        few = len(self.levels) > rows.width
        residuals = (self.residuals_of(level) if few else self.residuals[level] for level in levels.tolist())
        return means_of_neighbours(residuals, delta, weights, share)

    def refit(self, delta: float) -> Refit:
        """The levels as they are, recentred."""
        return Refit(self, self.recentred(delta), np.eye(len(self.levels)))

    def held_out(self, folds: Sequence[NDArray[np.intp]], delta: float) -> Array:
        """Linear predictions of every row by fits that its fold was left out of, recentred; a row a level."""
        rows, cut, inside = self.rows, self.levels.truncated, self.rows.take(np.concatenate(folds))
        phi = self._left_out(folds, inside)
        # As many rows as keep the error of an intercept small, spread evenly over the folds.
        step = 1 + (rows.n - 1) // rows.tuning.recentre_rows
        part = inside if step == 1 else inside.take(np.arange(0, rows.n, step))
        ends = -(-np.cumsum([fold.size for fold in folds]) // step)
        together = part.predictions(np.concatenate(phi, axis=1)).reshape(len(folds), len(self.levels), -1)
        starts = [0, *ends[:-1].tolist()]
        left_out = [FoldFit(part, *fit) for fit in zip(together, starts, ends.tolist(), strict=True)]
        predictions = np.empty((len(self.levels), rows.n))
        for k, (fold, fit) in enumerate(zip(folds, left_out, strict=True)):
            found = together[k][:, fit.start : fit.stop] if step == 1 else rows.take(fold).predictions(phi[k])
            predictions[:, fold] = found
        if rows.fit_intercept and cut.size:
            alike = np.ptp(self.levels.ridge) == 0  # else residuals differ by more than what is truncated
            shifts = _shifts_of_folds(left_out, together, self.levels, delta, bool(alike))
            for k, fold in enumerate(folds):
                predictions[:, fold] += shifts[k][:, None]
        if rows.loss.link == "log":
            for fold, fit in zip(folds, left_out, strict=True):
                low, high = prediction_range(fit.seen(fit.predictions), fit.y)
                predictions[:, fold] = np.clip(predictions[:, fold], low[:, None], high[:, None])
        return predictions

    def nothing_held_out(self) -> Array:
        """NaN in place of predictions."""
        return np.full((len(self.levels), self.rows.n), np.nan)

    def _left_out(self, folds: Sequence[NDArray[np.intp]], inside: ScaledRows) -> list[Array]:
        """φ of every level without each of the folds; ``inside`` has the rows in their order."""
        if not is_narrow(self.rows) or (self._few and not self.rows.in_basis):
            number = _fold_numbers(folds, self.rows.n)
            return [self._without(fold, number != k) for k, fold in enumerate(folds)]
        return list(self._steps_without(np.cumsum([fold.size for fold in folds]), inside))

    def _steps_without(self, ends: NDArray[np.intp], inside: ScaledRows) -> Array:
        """The Newton steps of :meth:`_without` for all folds of narrow rows at once, the first axis."""
        rows, levels, basis, damping = self.rows, self.levels, self.basis, self.rows.tuning.fold_damping
        sums = fold_scores(inside, self.phi, levels, ends)
        total = rows.weights.sum() - np.add.reduceat(inside.weights, np.append(0, ends[:-1]))
        g = (sums.gradient.sum(axis=0) - sums.gradient) / total[:, None, None]
        H = (sums.hessian.sum(axis=0) - sums.hessian) / total[:, None, None, None]
        H += levels.ridge[:, None, None] * basis.slopes_matrix() + damping * np.eye(basis.rank)
        inverses = _inverses(H)
        phi = self.phi + _steps(inverses, g - levels.ridge * basis.slopes(self.phi) - damping * self.phi)
        for _ in range(rows.tuning.corrections if self._few else 0):
            weights, psi = inside.uneven(slice(None)), (levels.tau, levels.bisquare)
            phi = np.ascontiguousarray(phi)
            g = gradients_of_rest(inside.X, inside.y, weights, ends, phi, *psi) / total[:, None, None]
            phi = phi + _steps(inverses, g - levels.ridge * (basis.slopes_matrix() @ phi))
        return phi

    @property
    def _few(self) -> bool:
        """Whether leaving a fold out takes more than one Newton step."""
        rows = self.rows
        return rows.n < rows.tuning.one_step_rows * rows.width or rows.loss.link != "identity"

    def _without(self, fold: NDArray[np.intp], seen: NDArray[np.bool_]) -> Array:
        """φ of every level without the fold: one Newton step, corrected where rows are few."""
        rows, levels, basis = self.rows, self.levels, self.basis
        formed = forms_hessians(rows)
        held_out = level_scores(rows.take(fold), self.phi, levels, formed)
        few = self._few
        rest = rows.take(np.flatnonzero(seen)) if few or not formed else rows
        total = rows.weights.sum() - rows.weights[fold].sum()
        system = System(rest, levels, self._scores_of_rest(held_out, seen), total, rows.tuning.fold_damping)
        g = (self.scores.gradient - held_out.gradient) / total - levels.ridge * basis.slopes(self.phi)
        # The damping pulls φ itself towards zero, so that directions absent from the other rows vanish.
        phi = self.phi + system.solve(g - rows.tuning.fold_damping * self.phi)
        for _ in range(rows.tuning.corrections if few else 0):
            g = level_scores(rest, phi, levels, hessian=False).gradient / total
            phi = phi + capped(rows.loss, system.solve(g - levels.ridge * basis.slopes(phi)))
        return phi

    def _scores_of_rest(self, held_out: Scores, seen: NDArray[np.bool_]) -> Scores:
        scores = self.scores
        if scores.hessian.size:
            return replace(scores, hessian=scores.hessian - held_out.hessian)
        return replace(scores, curvature=scores.curvature[:, seen])

    def evidence(self) -> Evidence:
        """Predicted excess risk of every level, and how much it contradicts less robust ones.

        If the noise is independent of X, all levels estimate the same slopes; that of level m errs by a mean
        of a_m(r) q over whitened rows q, a = ψ/E ψ′. Then the squared distance of two levels over
        E(a_m − a_l)²/n has a χ² law with as many degrees of freedom as slopes.
        """
        rows, levels = self.rows, self.levels
        freedom = self.basis.rank - int(rows.fit_intercept)
        nothing = np.full(len(levels), np.nan)
        few = rows.n < rows.tuning.evidence_rows * rows.width
        if few or rows.loss.link != "identity" or freedom < 1:
            return Evidence(nothing, nothing)
        r = rows.y - rows.predictions(self.phi)
        a = influence(r, levels)[0]
        a /= self.mean_slopes(r)[:, None]
        shares = rows.weights / rows.weights.sum()
        a -= (a @ shares)[:, None]
        a *= shares
        spread = a @ a.T
        phi = self.slopes_alone(self.phi)
        distance = ((phi[:, :, None] - phi[:, None, :]) ** 2).sum(axis=0)
        variance = np.diag(spread)
        with np.errstate(divide="ignore", invalid="ignore"):
            chi = distance / (variance[:, None] + variance - 2 * spread)
        larger = (variance > variance[:, None]) & (levels.ridge == levels.ridge[:, None])
        score = np.where(larger & np.isfinite(chi), normal_score(chi, freedom), -np.inf)
        plain = levels.ridge == levels.ridge.min()
        conflict = np.maximum(score.max(axis=1), 0.0)
        return Evidence(np.where(plain, freedom * variance, np.nan), np.where(plain, conflict, np.nan))

    def slopes_alone(self, phi: Array) -> Array:
        """φ without the direction of the constant."""
        if not self.rows.fit_intercept:
            return phi
        # In whitened coordinates the mean row is the direction of the constant.
        constant = _constant_direction(self.basis)
        return phi - np.outer(constant, constant @ phi)

    def mean_slopes(self, r: Array) -> Array:
        """Mean ψ′ of every level at its residuals."""
        rows = self.rows
        slopes = psi_slopes(r, self.levels, rows.tuning, exact=True)
        return np.maximum(np.average(slopes, axis=1, weights=rows.weights), LEAST_SLOPE)


@dataclass(frozen=True)
class Refit:
    """Levels fitted on all rows, and how the fits that were asked for are made of them.

    Attributes
    ----------
    path : TruncationPath
    theta : array of shape (width, levels)
        Recentred.
    shares : array of shape (fits, levels)
        Weights, which add up to one: a fit may be drawn towards another level.
    corrected : bool
        Whether slopes are corrected for noise that grows along some columns.
    second : SecondFit, optional
        Slopes by what was learned about the noise.
    """

    path: TruncationPath
    theta: Array
    shares: Array
    corrected: bool = False
    second: SecondFit | None = None


_MORE = 4  # times the passes, where a sample knows too little of all rows
LEAST_SLOPE = 0.02  # mean of ψ′: a bisquare level with less has next to no rows left


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


def _constant_direction(basis: Whitening) -> Array:
    direction = basis.constant / basis.inverse
    return np.asarray(direction / max(float(np.linalg.norm(direction)), 1e-300))


def normal_score(chi: Array, freedom: int) -> Array:
    """Wilson and Hilferty: a χ² value as a standard normal one."""
    spread = 2.0 / (9.0 * freedom)
    return np.asarray((np.cbrt(np.maximum(chi, 0.0) / freedom) - (1.0 - spread)) / math.sqrt(spread))


def prediction_range(predictions: Array, y: Array) -> tuple[Array, Array]:
    """Linear predictions of the log link that the rows support, with a factor of two to spare.

    exp turns a slope that is a little too long into any number for a row a little beyond the others. The
    limits are the predictions of the rows fitted, and no mean is above the largest target nor below the
    smallest.
    """
    with np.errstate(divide="ignore"):
        low = np.maximum(predictions.min(axis=1), np.log(y.min()))
        high = np.minimum(predictions.max(axis=1), np.log(y.max()))
    return low - math.log(2.0), np.maximum(high, low) + math.log(2.0)


def solve_path(rows: ScaledRows, random: np.random.Generator, penalised: bool = True) -> TruncationPath:
    """All levels, from a robust start and, where rows are many, from the path of a part of them."""
    rows, ridges = rows.whitened(), _ridges(rows) if penalised else (0.0,)
    wanted = max(rows.tuning.start_rows, rows.tuning.start_rows_per_column * rows.width)
    part = rows.take(np.sort(random.choice(rows.n, wanted, replace=False))) if rows.n > wanted else rows
    start = _robust_start(part, ridges[0])
    away = np.abs(working_residuals(rows.loss, rows.predictions(start)[0], rows.y)[0])
    levels = levels_of(rows, away, ridges)
    start = np.repeat(start, len(levels), axis=1)
    if rows.loss.link == "log":
        # Where most counts are zero the robust start predicts zero; the likelihood starts at the mean.
        start[:, np.isinf(levels.tau)] = _constant(rows)
    if rows.n > 3 * wanted:
        start = newton(part, start, levels, passes=5, faint=rows.tuning.fold_damping).phi
    solution = newton(rows, start, levels)
    return TruncationPath(rows, levels, solution.phi, solution.scores, solution.settled)


def _robust_start(rows: ScaledRows, ridge: float) -> Array:
    """Huber's regression whose τ moves along with the residuals, by reweighting, which cannot run away."""
    if is_narrow(rows) and rows.in_basis and rows.even:
        found = _compiled_start(rows, ridge)
        if found is not None:
            return found
    phi, basis, total = _constant(rows), rows.whitening, rows.weights.sum()
    level = Levels(np.array([np.inf]), np.zeros(1), np.array([ridge]), np.zeros(1))
    for _ in range(rows.tuning.start_rounds):
        r, factor = working_residuals(rows.loss, rows.predictions(phi)[0], rows.y)
        factor = np.ones(1) if factor is None else factor
        away = np.maximum(np.abs(r), 1e-300)
        share = np.array([1.0 - rows.tuning.strongest_share])
        tau = max(weighted_quantiles(away, rows.weights, share)[0], 1e-9 * away.max())
        v = rows.weights * np.minimum(1.0, tau / away)
        scores = _weighted_scores(rows, v * r * factor, v * factor**2)
        g = scores.gradient / total - ridge * basis.slopes(phi)
        step = capped(rows.loss, System(rows, level, scores, total, rows.tuning.fold_damping).solve(g))
        phi = phi + step
        if np.linalg.norm(step) <= 1e-2 * np.linalg.norm(phi):
            break
    return phi


def _compiled_start(rows: ScaledRows, ridge: float) -> Array | None:
    """The same for rows of few columns, at once; None where a system is singular."""
    tuning, phi = rows.tuning, _constant(rows)[:, 0]
    rank = rank_of_quantile(rows.n, 1.0 - tuning.strongest_share)
    try:
        found = robust_start(
            *(rows.X, rows.y, phi, rank, tuning.start_rounds, ridge, tuning.fold_damping),
            rows.whitening.slopes_matrix(),
        )
    except ArithmeticError:
        return None
    return found[:, None]


def _weighted_scores(rows: ScaledRows, pull: Array, curvature: Array) -> Scores:
    """Gradient and Hessian (or curvature) of one level with the given weights of rows."""
    size = rows.whitening.rank if rows.in_basis else rows.width
    formed = forms_hessians(rows)
    gradient, hessian = np.zeros((size, 1)), np.zeros((int(formed), size, size))
    for part, Z in rows.tiles():
        gradient[:, 0] += Z.T @ pull[part]
        if formed:
            hessian[0] += gram(Z, curvature[part])
    if not rows.in_basis:
        B = rows.whitening.map
        gradient, hessian = B.T @ gradient, B.T @ hessian @ B
    return Scores(np.zeros(1), gradient, hessian, curvature[None][: not formed])


def _constant(rows: ScaledRows) -> Array:
    """The coordinates of the best constant; without an intercept, of zero."""
    constant = np.zeros((rows.width, 1))
    constant[-1] = _middle(rows)
    return rows.whitening.coordinates(constant)


def _middle(rows: ScaledRows) -> float:
    if not rows.fit_intercept:
        return 0.0
    if rows.loss.link == "identity":
        return float(weighted_quantiles(rows.y, rows.weights, np.array([0.5]))[0])
    return math.log(max(float(np.average(rows.y, weights=rows.weights)), 1e-300))


def _ridges(rows: ScaledRows) -> tuple[float, ...]:
    tuning = rows.tuning
    if rows.n >= tuning.ridge_below * rows.width:
        return (0.0,)
    # Gram matrices are expensive with many columns: a single ridge penalty unless rows are very few.
    wide = rows.width > tuning.wide_columns and rows.n >= tuning.wide_rows * rows.width
    chosen = (tuning.ridges[tuning.middle_ridge],) if wide else tuning.ridges
    light = () if rows.n < tuning.no_plain_fit_below * rows.width else (tuning.light_ridge,)
    return tuple(ridge * rows.square_norm / rows.n for ridge in (*light, *chosen))


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

    @functools.cached_property
    def y(self) -> Array:
        """Targets of the other rows."""
        return self.seen(self.rows.y)


def _shifts_of_folds(fits: Sequence[FoldFit], p: Array, levels: Levels, delta: float, alike: bool) -> Array:
    """What moves the intercepts of truncated fits to the mean, a row a fold; an untruncated one is there.

    ``p`` has their predictions. One scale serves levels that are ``alike``.
    """
    rows, cut = fits[0].rows, levels.truncated
    share = share_of_untied_targets(rows.y)
    shifts = np.full((len(fits), len(levels)), np.nan)
    sizes = [fit.rows.n - (fit.stop - fit.start) for fit in fits]
    if rows.even and rows.loss.link == "identity" and min(sizes) >= values_needed("catoni", delta):
        how = [resistance(size, delta, share) for size in sizes]
        shifts = means_of_rest(p, rows.y, np.array([fit.stop for fit in fits]), levels.tau, alike, how)
    for k in np.flatnonzero(np.isnan(shifts).any(axis=1)).tolist():
        shifts[k] = 0.0
        shifts[k, cut] = _shifts_of_fold(fits[k], cut, delta, share)
    return shifts


def _shifts_of_fold(fit: FoldFit, cut: NDArray[np.intp], delta: float, share: float) -> Array:
    weights = None if fit.rows.even else fit.seen(fit.rows.weights)
    return robust_shifts(fit.rows.loss, fit.seen(fit.predictions[cut]), fit.y, weights, delta, share)


def _shifts(rows: ScaledRows, p: Array, delta: float) -> Array:
    """The same for fits on all rows."""
    weights = None if rows.even else rows.weights
    return robust_shifts(rows.loss, p, rows.y, weights, delta, share_of_untied_targets(rows.y))
