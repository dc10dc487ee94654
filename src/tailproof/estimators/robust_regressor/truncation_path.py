"""A path of linear fits from strongly robust to untruncated, with the same fits for folds left out.

Level τ solves Σ vᵢ ψ_τ(rᵢ) cᵢ zᵢ = λ(slopes), ψ_τ(r) = max(−τ, min(r, τ)), for rows of weight v: Huber's
regression for the identity link (r = y − p, c = 1), and for the log link with variance power ρ the score of
the generalised linear model with its Pearson residuals truncated (r = (y − μ)μ^{−ρ/2}, c = μ^{1−ρ/2},
μ = exp p). τ = ∞ is least squares, or the maximum of the likelihood. Newton's method runs on all levels at
once: one pass over tiles of rows gives all gradients, as one matrix product, and all weighted Gram matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.automatic import share_of_untied_targets
from tailproof.core.intercept import robust_shift
from tailproof.core.losses import Loss
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, Whitening, gram, whitening_of
from tailproof.estimators.robust_regressor.tuning import Tuning

NORMAL_QUARTILE = 0.6745  # median absolute deviation of the standard normal law


@dataclass(frozen=True)
class Levels:
    """Truncation τ, share of rows beyond it, and ridge penalty λ of every fit.

    A level with ``bisquare`` > 0 has Tukey's ψ(r) = r(1 − (r/τ)²)², which vanishes beyond τ = bisquare robust
    scales.
    """

    tau: Array
    share: Array
    ridge: Array
    bisquare: Array

    def __len__(self) -> int:
        return self.tau.size

    def names(self) -> list[str]:
        """What to call each."""
        return [
            _psi_name(share, bisquare) + (f", ridge {ridge:.2g}" if ridge else "")
            for share, bisquare, ridge in zip(self.share, self.bisquare, self.ridge, strict=True)
        ]

    def only(self, kept: list[int]) -> Levels:
        """Some of the levels."""
        return Levels(self.tau[kept], self.share[kept], self.ridge[kept], self.bisquare[kept])


def _psi_name(share: float, bisquare: float) -> str:
    if bisquare:
        return f"bisquare {bisquare:.2g}"
    return f"{100 * share:.2g}% truncated" if share else "untruncated"


@dataclass(frozen=True)
class Scores:
    """Objective (identity link), gradient and Hessian of every level, summed over rows."""

    value: Array
    gradient: Array
    hessian: Array


@dataclass(frozen=True)
class TruncationPath:
    """Fits at every level: θ = Bφ for scaled columns, before the intercepts are recentred.

    The last step of a level that is ``settled`` was short.
    """

    rows: ScaledRows
    basis: Whitening
    levels: Levels
    phi: Array
    scores: Scores
    settled: NDArray[np.bool_]

    def only(self, chosen: Sequence[int]) -> TruncationPath:
        """The path with some of its levels."""
        kept, levels, scores = list(chosen), self.levels, self.scores
        return replace(
            self,
            levels=levels.only(kept),
            phi=self.phi[:, kept],
            scores=Scores(scores.value[kept], scores.gradient[:, kept], scores.hessian[kept]),
            settled=self.settled[kept],
        )

    def moved(self, X: Any, y: Array, weights: Array) -> TruncationPath:
        """The path on more rows, which include its own: a step or two from here."""
        rows = self.rows.others(X, y, weights)
        whole = self.basis.map.shape[1] == rows.width
        passes = rows.tuning.polishing_identity if rows.loss.link == "identity" else rows.tuning.polishing_log
        # Columns that are constant or collinear in the sample need not be so in all rows.
        basis = self.basis if whole else whitening_of(rows)
        phi = self.phi if whole else np.linalg.lstsq(basis.map, self.basis.map @ self.phi, rcond=None)[0]
        return newton(rows, basis, phi, self.levels, passes=passes, chord=True)

    def recentred(self, delta: float) -> Array:
        """θ of every level, with the intercept at the resistant mean of the residuals."""
        theta = self.basis.map @ self.phi
        cut = np.flatnonzero(np.isfinite(self.levels.tau))
        if self.rows.fit_intercept and cut.size:
            theta[-1, cut] += _shifts(self.rows, self.rows.linear(theta[:, cut]), slice(None), delta)
        return theta

    def held_out(self, folds: Sequence[NDArray[np.intp]], delta: float) -> Array:
        """Linear predictions of every row by fits that its fold was left out of, recentred; a row a level."""
        rows, count = self.rows, len(self.levels)
        thetas = [self.basis.map @ self._without(fold) for fold in folds]
        if rows.fit_intercept:
            # One product for all folds, on as many rows as keep the error of an intercept small.
            sample = np.arange(0, rows.n, max(1, rows.n // rows.tuning.recentre_rows))
            part, seen = rows.take(sample), np.zeros(rows.n, dtype=bool)
            cut = np.flatnonzero(np.isfinite(self.levels.tau))
            scores = part.linear(np.hstack([theta[:, cut] for theta in thetas]))
            for k, fold in enumerate(folds):
                seen[:] = True
                seen[fold] = False
                of_fold = slice(k * cut.size, (k + 1) * cut.size)
                thetas[k][-1, cut] += _shifts(part, scores[of_fold], seen[sample], delta)
        predictions = np.empty((count, rows.n))
        for fold, theta in zip(folds, thetas, strict=True):
            predictions[:, fold] = rows.take(fold).linear(theta)
        return predictions

    def _without(self, fold: NDArray[np.intp]) -> Array:
        """φ of every level without the fold: one Newton step, corrected where rows are few."""
        rows, B, levels = self.rows, self.basis.map, self.levels
        held_out = level_scores(rows.take(fold), B @ self.phi, levels)
        total = rows.weights.sum() - rows.weights[fold].sum()
        H = B.T @ (self.scores.hessian - held_out.hessian) @ B / total
        g = B.T @ (self.scores.gradient - held_out.gradient) / total
        # Solved for φ itself, so that directions absent from the other rows go to zero.
        damped = (
            H
            + levels.ridge[:, None, None] * self.basis.slopes
            + rows.tuning.fold_damping * np.eye(B.shape[1])
        )
        phi = _solve(damped, np.einsum("mij,jm->im", H, self.phi) + g)
        if rows.n >= rows.tuning.one_step_rows * rows.width and rows.loss.link == "identity":
            return phi
        rest = rows.take(np.delete(np.arange(rows.n), fold))
        for _ in range(rows.tuning.corrections):
            g = B.T @ level_scores(rest, B @ phi, levels, hessian=False).gradient / total
            phi = phi + _capped(rows.loss, _solve(damped, g - levels.ridge * (self.basis.slopes @ phi)))
        return phi


def solve_path(rows: ScaledRows, random: np.random.Generator) -> TruncationPath:
    """All levels, from a robust start and, where rows are many, from the path of a part of them."""
    basis, ridges = whitening_of(rows), _ridges(rows)
    wanted = max(rows.tuning.start_rows, rows.tuning.start_rows_per_column * rows.width)
    part = rows.take(np.sort(random.choice(rows.n, wanted, replace=False))) if rows.n > wanted else rows
    start = _robust_start(part, basis, ridges[0])
    away = np.abs(_working(rows.loss, rows.linear(basis.map @ start)[0], rows.y)[0])
    levels = _levels(rows, away, ridges)
    start = np.repeat(start, len(levels), axis=1)
    if rows.loss.link == "log":
        # Where most counts are zero the robust start predicts zero; the likelihood starts at the mean.
        start[:, np.isinf(levels.tau)] = _constant(rows, basis)
    if rows.n > 3 * wanted:
        start = newton(part, basis, start, levels, passes=5, faint=rows.tuning.fold_damping).phi
    return newton(rows, basis, start, levels)


def newton(
    rows: ScaledRows,
    basis: Whitening,
    phi: Array,
    levels: Levels,
    passes: int | None = None,
    faint: float = 0.0,
    chord: bool = False,
) -> TruncationPath:
    """Newton's method on every level, each with its own step halving.

    From a start that is close, the first Hessian serves all steps (``chord``): gradients are cheaper.
    """
    B, total = basis.map, rows.weights.sum()
    # The log mean of a category whose targets are all zero is −∞, and its curvature vanishes on the way.
    faint = max(faint, rows.tuning.vanishing_damping) if rows.loss.link == "log" else faint
    ridge, eye = levels.ridge, faint * np.eye(B.shape[1])
    accepted, step = np.array(phi, dtype=np.float64), np.zeros_like(phi)
    phi, best = accepted.copy(), np.full(len(levels), np.inf)
    for done in range(rows.tuning.passes if passes is None else passes):
        scores = level_scores(rows, B @ phi, levels, hessian=not (chord and done))
        pull = ridge * (basis.slopes @ phi)
        g = B.T @ scores.gradient / total - pull
        if scores.hessian.size:
            H = B.T @ scores.hessian @ B / total + ridge[:, None, None] * basis.slopes + eye
        fresh = _solve(H, g)
        merit = _merit(rows.loss, scores.value / total + 0.5 * (phi * pull).sum(axis=0), fresh, g)
        better = merit <= best + 1e-12 * np.abs(best)
        accepted[:, better], best = phi[:, better], np.where(better, merit, best)
        step = np.where(better, _capped(rows.loss, fresh), 0.5 * step)
        phi = accepted + step
        settled = np.linalg.norm(step, axis=0) <= rows.tuning.tolerance * np.linalg.norm(accepted, axis=0)
        if settled.all():
            break
    return TruncationPath(rows, basis, levels, phi, scores, settled)


def _solve(H: Array, g: Array) -> Array:
    """One system for every level."""
    return np.linalg.solve(H, g.T[:, :, None])[:, :, 0].T


def level_scores(rows: ScaledRows, theta: Array, levels: Levels, hessian: bool = True) -> Scores:
    """Value, gradient and Hessian (or none) of every level at its own θ, in one pass over the rows."""
    width, count = theta.shape
    scores = Scores(np.zeros(count), np.zeros((width, count)), np.zeros((count * hessian, width, width)))
    for part, Z in rows.tiles():
        v = rows.uneven(part)
        # One row a level: long loops, and no stride between neighbours.
        r, factor = _working(rows.loss, theta.T @ Z.T, rows.y[part])
        psi = np.clip(r, -levels.tau[:, None], levels.tau[:, None])
        cut = psi != r
        inside = _bisquare(r, psi, levels)
        pull = psi if v is None else psi * v
        scores.value[:] += np.einsum("mi,mi->m", pull, r) - 0.5 * np.einsum("mi,mi->m", pull, psi)
        for m, u in inside.items():
            rho = levels.tau[m] ** 2 / 6 * (1 - u**3)
            scores.value[m] += (rho if v is None else v * rho).sum() - (pull[m] * (r[m] - 0.5 * psi[m])).sum()
        scores.gradient[:] += Z.T @ (pull if factor is None else pull * factor).T
        if hessian:
            _add_hessians(rows.tuning, scores.hessian, Z, v, factor, cut, inside)
    return scores


def _bisquare(r: Array, psi: Array, levels: Levels) -> dict[int, Array]:
    """1 − (r/τ)², or zero beyond τ, of each level with Tukey's ψ; its row of ψ is set."""
    inside = {}
    for m in np.flatnonzero(levels.bisquare).tolist():
        u = np.maximum(1.0 - (r[m] / levels.tau[m]) ** 2, 0.0)
        psi[m], inside[m] = r[m] * u**2, u
    return inside


def _add_hessians(
    tuning: Tuning,
    hessian: Array,
    Z: Array,
    v: Array | None,
    factor: Array | None,
    cut: NDArray[np.bool_],
    inside: dict[int, Array],
) -> None:
    if factor is not None:
        for level, beyond in enumerate(cut):
            curvature = factor[level] ** 2 * np.where(beyond, tuning.truncated_curvature, 1.0)
            hessian[level] += gram(Z, curvature if v is None else v * curvature)
        return
    # Few rows are beyond τ, so take them away from the Gram matrix that all levels share.
    hessian += gram(Z, v)
    for level, beyond in enumerate(cut):
        if level in inside:
            # ψ′ = u(5u − 4) is negative near τ: without that part the Hessian stays positive.
            u = inside[level]
            less = 1.0 - np.maximum(u * (5 * u - 4), tuning.truncated_curvature)
            hessian[level] -= gram(Z, less if v is None else v * less)
            continue
        rows = np.flatnonzero(beyond)
        if rows.size:
            hessian[level] -= (1.0 - tuning.truncated_curvature) * gram(
                Z[rows], None if v is None else v[rows]
            )


def _working(loss: Loss, p: Array, y: Array) -> tuple[Array, Array | None]:
    """Residuals to truncate, and what multiplies them in the score, if that is not one."""
    if loss.link == "identity":
        return y - p, None
    half, p = 0.5 * loss.parameter, np.clip(p, -300.0, 300.0)
    return (y - np.exp(p)) * np.exp(-half * p), np.exp((1.0 - half) * p)


def _merit(loss: Loss, value: Array, step: Array, gradient: Array) -> Array:
    """What a step must not raise: the objective, or Newton's decrement where a truncated score has none."""
    return value if loss.link == "identity" else (step * gradient).sum(axis=0)


def _capped(loss: Loss, step: Array) -> Array:
    # Cap the step: exp overflows on long ones.
    norm = np.linalg.norm(step, axis=0)
    return step if loss.link == "identity" else step / np.maximum(norm, 1.0)


def _robust_start(rows: ScaledRows, basis: Whitening, ridge: float) -> Array:
    """Huber's regression whose τ moves along with the residuals, by reweighting, which cannot run away."""
    Z = np.vstack([tile for _, tile in rows.tiles()])
    phi = _constant(rows, basis)
    Z, damping = Z @ basis.map, ridge * basis.slopes + rows.tuning.fold_damping * np.eye(phi.size)
    for _ in range(rows.tuning.start_rounds):
        r, factor = _working(rows.loss, Z @ phi[:, 0], rows.y)
        factor = np.ones(1) if factor is None else factor
        away = np.maximum(np.abs(r), 1e-300)
        tau = max(
            _quantiles(away, rows.weights, np.array([1.0 - rows.tuning.strongest_share]))[0],
            1e-9 * away.max(),
        )
        v = rows.weights * np.minimum(1.0, tau / away) / rows.weights.sum()
        g = (Z.T @ (v * r * factor))[:, None] - ridge * (basis.slopes @ phi)
        step = _capped(rows.loss, np.linalg.solve(gram(Z, v * factor**2) + damping, g))
        phi = phi + step
        if np.linalg.norm(step) <= 1e-2 * np.linalg.norm(phi):
            break
    return phi


def _constant(rows: ScaledRows, basis: Whitening) -> Array:
    """The coordinates of the best constant; without an intercept, of zero."""
    constant = np.zeros((rows.width, 1))
    constant[-1] = _middle(rows)
    return np.asarray(np.linalg.lstsq(basis.map, constant, rcond=None)[0])


def _middle(rows: ScaledRows) -> float:
    if not rows.fit_intercept:
        return 0.0
    if rows.loss.link == "identity":
        return float(_quantiles(rows.y, rows.weights, np.array([0.5]))[0])
    return math.log(max(float(np.average(rows.y, weights=rows.weights)), 1e-300))


def _levels(rows: ScaledRows, away: Array, ridges: tuple[float, ...]) -> Levels:
    """τ as quantiles of the absolute residuals of a robust fit: each is beyond a fifth as many rows."""
    tuning = rows.tuning
    affordable = tuning.gram_bytes // (8 * rows.width**2) // len(ridges)
    few = len(ridges) > 1 or affordable < len(tuning.shares) + len(tuning.bisquares) + 1
    shares = np.array(tuning.shares_with_ridges if few else tuning.shares)
    shares = shares[shares * rows.n >= tuning.smallest_level_rows]
    scales = np.array(
        () if rows.loss.link == "log" else tuning.bisquares_with_ridges if few else tuning.bisquares
    )
    deviation = _quantiles(away, rows.weights, np.array([0.5]))[0] / NORMAL_QUARTILE
    tau = np.concatenate([scales * deviation, _quantiles(away, rows.weights, 1.0 - shares), [np.inf]])
    kept = tau > 1e-9 * max(float(away.max()), 1e-300)
    repeat = partial(np.tile, reps=len(ridges))
    return Levels(
        repeat(tau[kept]),
        repeat(np.concatenate([0 * scales, shares, [0.0]])[kept]),
        np.repeat(np.array(ridges), np.count_nonzero(kept)),
        repeat(np.concatenate([scales, 0 * shares, [0.0]])[kept]),
    )


def _ridges(rows: ScaledRows) -> tuple[float, ...]:
    tuning = rows.tuning
    if rows.n >= tuning.ridge_below * rows.width:
        return (0.0,)
    # Gram matrices are expensive with many columns: a single ridge penalty unless rows are very few.
    wide = rows.width > tuning.wide_columns and rows.n >= tuning.wide_rows * rows.width
    chosen = (tuning.ridges[tuning.middle_ridge],) if wide else tuning.ridges
    ridges = tuple(ridge * rows.width / rows.n for ridge in chosen)
    return ridges if rows.n < tuning.no_plain_fit_below * rows.width else (0.0, *ridges)


def _quantiles(values: Array, weights: Array, levels: Array) -> Array:
    return np.asarray(np.quantile(values, levels, method="inverted_cdf", weights=weights))


def _shifts(rows: ScaledRows, p: Array, seen: NDArray[np.bool_] | slice, delta: float) -> Array:
    """What moves the intercepts of truncated fits to the mean; an untruncated one is there already."""
    weights = None if np.ptp(rows.weights) == 0 else rows.weights[seen]
    y = rows.y[seen]
    telling = share_of_untied_targets(y)
    return np.array([robust_shift(rows.loss, scores[seen], y, weights, delta, telling) for scores in p])
