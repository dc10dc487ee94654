"""A path of linear fits from strongly robust to untruncated, with the same fits for folds left out.

Level τ solves Σ vᵢ ψ_τ(rᵢ) cᵢ zᵢ = λ(slopes), ψ_τ(r) = max(−τ, min(r, τ)), for rows of weight v: Huber's
regression for the identity link (r = y − p, c = 1), and for the log link with variance power ρ the score of
the generalised linear model with its Pearson residuals truncated (r = (y − μ)μ^{−ρ/2}, c = μ^{1−ρ/2},
μ = exp p). τ = ∞ is least squares, or the maximum of the likelihood. Newton's method runs on all levels at
once: one pass over tiles of rows gives all gradients, as one matrix product, and all weighted Gram matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.fitting import robust_shift
from tailproof.losses import Loss
from tailproof.robust_rows import Basis, Rows, basis_of, gram

Array = NDArray[np.floating]

STRONGEST = 0.25  # share of the rows beyond the smallest τ
_LEVELS, _STEP = 9, 3.0  # finite levels at most; each truncates a third of the rows of the one before
_FLOOR = 0.01  # what rows beyond τ count for in a Hessian: it stays regular, and Newton's steps fast
_PASSES = 100
_TOLERANCE = 1e-10  # of a step, against the size of the solution
_START_ROWS, _START_PER_COLUMN = 3_000, 30  # rows for the robust start
_MANY_ROWS = 50  # a parameter: from here one Newton step leaves a fold out
_RIDGE_BELOW = 10  # rows a parameter: fits are penalised too
_RIDGES = (0.03, 0.3, 3.0)  # penalties, in parameters a row
_FAINT = 1e-9  # ridge towards zero for what only the fold left out has seen
_MEMORY = 2**28  # bytes for the Gram matrices of all levels
_RECENTRE_ROWS = 20_000  # enough for the intercept of a fold's fit


@dataclass(frozen=True)
class Levels:
    """Truncation τ, share of rows beyond it, and ridge penalty λ of every fit."""

    tau: Array
    share: Array
    ridge: Array

    def __len__(self) -> int:
        return self.tau.size

    def names(self) -> list[str]:
        """What to call each."""
        cut = ["untruncated" if s == 0 else f"{s:.2g} truncated" for s in 100 * self.share]
        cut = [text if text == "untruncated" else text.replace(" ", "% ") for text in cut]
        return [
            text + (f", ridge {ridge:.2g}" if ridge else "")
            for text, ridge in zip(cut, self.ridge, strict=True)
        ]


@dataclass(frozen=True)
class Scores:
    """Objective (identity link), gradient and Hessian of every level, summed over rows."""

    value: Array
    gradient: Array
    hessian: Array


@dataclass(frozen=True)
class Path:
    """Fits at every level: θ = Bφ for scaled columns, before the intercepts are recentred."""

    rows: Rows
    basis: Basis
    levels: Levels
    phi: Array
    scores: Scores
    passes: int
    converged: bool

    def recentred(self, delta: float) -> Array:
        """θ of every level, with the intercept at the resistant mean of the residuals."""
        return _recentred(self.rows, self.basis.map @ self.phi, self.levels, delta)

    def without(self, left_out: NDArray[np.intp], delta: float) -> Array:
        """θ of every level, recentred, had the given rows been left out."""
        rows, B, levels = self.rows, self.basis.map, self.levels
        rest = rows.take(np.delete(np.arange(rows.n), left_out))
        own = scores_of(rows.take(left_out), B @ self.phi, levels.tau)
        total = rest.weights.sum()
        H = B.T @ (self.scores.hessian - own.hessian) @ B / total
        g = (B.T @ (self.scores.gradient - own.gradient) / total).T
        H_ridge = H + levels.ridge[:, None, None] * self.basis.slopes
        # Solved for φ itself, so that what the other rows know nothing about goes to zero.
        right = np.einsum("mij,jm->mi", H, self.phi) + g
        faint = H_ridge + _FAINT * np.eye(B.shape[1])
        phi = np.linalg.solve(faint, right[:, :, None])[:, :, 0].T
        if rows.n < _MANY_ROWS * rows.width or rows.loss.link == "log":
            phi = newton(rest, self.basis, phi, levels, passes=5, faint=_FAINT).phi
        some = rest.take(np.arange(0, rest.n, max(1, rest.n // _RECENTRE_ROWS)))
        return _recentred(some, B @ phi, levels, delta)


def solve_path(rows: Rows, random: np.random.Generator) -> Path:
    """All levels, from a robust start on a part of the rows."""
    basis = basis_of(rows)
    ridges = _ridges(rows)
    start = _robust_start(rows, basis, ridges[0], random)
    levels = _levels(rows, np.abs(_working(rows.loss, rows.linear(basis.map @ start), rows.y[:, None])[0]), ridges)
    return newton(rows, basis, np.repeat(start, len(levels), axis=1), levels)


def newton(
    rows: Rows, basis: Basis, phi: Array, levels: Levels, passes: int = _PASSES, faint: float = 0.0
) -> Path:
    """Newton's method on every level, each with its own step halving."""
    B, total = basis.map, rows.weights.sum()
    ridge, eye = levels.ridge, faint * np.eye(B.shape[1])
    accepted, step = np.array(phi, dtype=np.float64), np.zeros_like(phi)
    phi, best, converged = accepted.copy(), np.full(len(levels), np.inf), False
    for number in range(1, passes + 1):
        found = scores_of(rows, B @ phi, levels.tau)
        pull = ridge * (basis.slopes @ phi)
        g = B.T @ found.gradient / total - pull
        H = B.T @ found.hessian @ B / total + ridge[:, None, None] * basis.slopes + eye
        fresh = np.linalg.solve(H, g.T[:, :, None])[:, :, 0].T
        merit = _merit(rows.loss, found.value / total + 0.5 * (phi * pull).sum(axis=0), fresh, g)
        better = merit <= best + 1e-12 * np.abs(best)
        accepted[:, better], best = phi[:, better], np.where(better, merit, best)
        step = np.where(better, _capped(rows.loss, fresh), 0.5 * step)
        phi = accepted + step
        size = np.linalg.norm(accepted, axis=0)
        if np.all(np.linalg.norm(step, axis=0) <= _TOLERANCE * size):
            converged = True
            break
    return Path(rows, basis, levels, phi, found, number, converged)


def scores_of(rows: Rows, theta: Array, tau: Array) -> Scores:
    """Value, gradient and Hessian of every level at its own θ, in one pass over the rows."""
    width, count = theta.shape
    found = Scores(np.zeros(count), np.zeros((width, count)), np.zeros((count, width, width)))
    for part, Z in rows.tiles():
        v = rows.weights[part]
        r, factor = _working(rows.loss, Z @ theta, rows.y[part, None])
        psi = np.clip(r, -tau, tau)
        found.value[:] += v @ (psi * (r - 0.5 * psi))
        found.gradient[:] += Z.T @ (psi * factor * v[:, None])
        _add_hessians(found.hessian, Z, v, factor, psi != r)
    return found


def _add_hessians(hessian: Array, Z: Array, v: Array, factor: Array, cut: NDArray[np.bool_]) -> None:
    if factor.size > 1:
        for level, beyond in enumerate(cut.T):
            hessian[level] += gram(Z, v * factor[:, level] ** 2 * np.where(beyond, _FLOOR, 1.0))
        return
    # Few rows are beyond τ, so take them away from the Gram matrix that all levels share.
    hessian += gram(Z, v)
    for level, beyond in enumerate(cut.T):
        rows = np.flatnonzero(beyond)
        if rows.size:
            hessian[level] -= (1.0 - _FLOOR) * gram(Z[rows], v[rows])


def _working(loss: Loss, p: Array, y: Array) -> tuple[Array, Array]:
    """Residuals to truncate, and what multiplies them in the score."""
    if loss.link == "identity":
        return y - p, np.ones(1)
    half, p = 0.5 * loss.parameter, np.clip(p, -300.0, 300.0)
    return (y - np.exp(p)) * np.exp(-half * p), np.exp((1.0 - half) * p)


def _merit(loss: Loss, value: Array, step: Array, gradient: Array) -> Array:
    """What a step must not raise: the objective, or Newton's decrement where a truncated score has none."""
    return value if loss.link == "identity" else (step * gradient).sum(axis=0)


def _capped(loss: Loss, step: Array) -> Array:
    # exp forgives no long step.
    norm = np.linalg.norm(step, axis=0)
    return step if loss.link == "identity" else step / np.maximum(norm, 1.0)


def _robust_start(rows: Rows, basis: Basis, ridge: float, random: np.random.Generator) -> Array:
    """Huber's regression whose τ moves along with the residuals, on a part of the rows."""
    wanted = max(_START_ROWS, _START_PER_COLUMN * rows.width)
    if rows.n > wanted:
        rows = rows.take(np.sort(random.choice(rows.n, wanted, replace=False)))
    constant = np.zeros((rows.width, 1))
    constant[-1] = _middle(rows)
    # The coordinates of a constant; without an intercept, of zero.
    phi = np.linalg.lstsq(basis.map, constant, rcond=None)[0]
    for _ in range(20):
        r = np.abs(_working(rows.loss, rows.linear(basis.map @ phi), rows.y[:, None])[0])
        levels = _levels(rows, r, (ridge,), count=1)
        moved = newton(rows, basis, phi, _first(levels), passes=2, faint=_FAINT).phi
        if np.linalg.norm(moved - phi) <= 1e-2 * np.linalg.norm(moved):
            return moved
        phi = moved
    return phi


def _middle(rows: Rows) -> float:
    if not rows.fit_intercept:
        return 0.0
    if rows.loss.link == "identity":
        return float(_quantiles(rows.y, rows.weights, np.array([0.5]))[0])
    return math.log(max(np.average(rows.y, weights=rows.weights), 1e-300))


def _levels(rows: Rows, away: Array, ridges: tuple[float, ...], count: int = _LEVELS) -> Levels:
    """τ as quantiles of the absolute residuals of a robust fit: each is beyond a third as many rows."""
    affordable = _MEMORY // (8 * rows.width**2) // len(ridges)
    shares = STRONGEST * _STEP ** -np.arange(count, dtype=float)
    shares = shares[shares * rows.n >= 1.5]
    if len(ridges) > 1 or affordable < shares.size + 1:
        shares = shares[: 2 * 2 : 2]  # the strongest, and one with a ninth as many rows beyond
    tau = _quantiles(away[:, 0], rows.weights, 1.0 - shares)
    kept = np.append(tau > 1e-9 * max(float(away.max()), 1e-300), True)
    tau, shares = np.append(tau, np.inf)[kept], np.append(shares, 0.0)[kept]
    return Levels(
        np.tile(tau, len(ridges)), np.tile(shares, len(ridges)), np.repeat(np.array(ridges), tau.size)
    )


def _first(levels: Levels) -> Levels:
    return Levels(levels.tau[:1], levels.share[:1], levels.ridge[:1])


def _ridges(rows: Rows) -> tuple[float, ...]:
    if rows.n >= _RIDGE_BELOW * rows.width:
        return (0.0,)
    ridges = tuple(ridge * rows.width / rows.n for ridge in _RIDGES)
    return ridges if rows.n < 2 * rows.width else (0.0, *ridges)


def _quantiles(values: Array, weights: Array, levels: Array) -> Array:
    return np.asarray(np.quantile(values, levels, method="inverted_cdf", weights=weights))


def _recentred(rows: Rows, theta: Array, levels: Levels, delta: float) -> Array:
    """Move intercepts to the mean; an untruncated fit without a penalty is there already."""
    if not rows.fit_intercept:
        return theta
    theta, p = theta.copy(), rows.linear(theta)
    weights = None if np.ptp(rows.weights) == 0 else rows.weights
    for level, tau in enumerate(levels.tau):
        if np.isfinite(tau):
            theta[-1, level] += robust_shift(rows.loss, p[:, level], rows.y, weights, delta)
    return theta
