"""Levels of truncation: ψ of every fit, and the sums over rows that Newton's method needs.

Level τ solves Σ vᵢ ψ_τ(rᵢ) cᵢ zᵢ = λ(slopes), ψ_τ(r) = max(−τ, min(r, τ)), for rows of weight v: Huber's
regression for the identity link (r = y − p, c = 1), and for the log link with variance power ρ the score of
the generalised linear model with its Pearson residuals truncated (r = (y − μ)μ^{−ρ/2}, c = μ^{1−ρ/2},
μ = exp p). τ = ∞ is least squares, or the maximum of the likelihood. Bisquare levels have Tukey's
ψ(r) = r(1 − (r/τ)²)² for |r| < τ and zero beyond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram
from tailproof.estimators.robust_regressor.tuning import Tuning
from tailproof.native.levels import LevelSums
from tailproof.native.searches import Fits, losses_of_fits, pulls_of_fits

NORMAL_QUARTILE = 0.6745  # median absolute deviation of the standard normal law
_LARGEST_EXPONENT = 300.0  # of a linear prediction: exp stays finite, and so do products of two


@dataclass(frozen=True)
class Levels:
    """Truncation τ, share of rows beyond it, and ridge penalty λ of every fit.

    ``bisquare`` is zero for Huber's ψ; for Tukey's it is τ in robust scales of the residuals.
    """

    tau: Array
    share: Array
    ridge: Array
    bisquare: Array

    def __len__(self) -> int:
        return self.tau.size

    @property
    def truncated(self) -> NDArray[np.intp]:
        """Which levels are not least squares: their intercepts need recentring."""
        return np.flatnonzero(np.isfinite(self.tau))

    def names(self) -> list[str]:
        """What to call each."""
        return [
            _psi_name(share, bisquare) + (f", ridge {ridge:.2g}" if ridge else "")
            for share, bisquare, ridge in zip(self.share, self.bisquare, self.ridge, strict=True)
        ]

    def only(self, kept: Sequence[int]) -> Levels:
        """Some of the levels."""
        index = list(kept)
        return Levels(self.tau[index], self.share[index], self.ridge[index], self.bisquare[index])


def _psi_name(share: float, bisquare: float) -> str:
    if bisquare:
        return f"bisquare {bisquare:.2g}"
    return f"{100 * share:.2g}% truncated" if share else "untruncated"


def levels_of(rows: ScaledRows, away: Array, ridges: tuple[float, ...]) -> Levels:
    """τ as quantiles of the absolute residuals of a robust fit, and as multiples of their median."""
    tuning = rows.tuning
    affordable = tuning.gram_bytes // (8 * rows.whitening.rank**2) // len(ridges)
    few = len(ridges) > 1 or affordable < len(tuning.shares) + len(tuning.bisquares) + 1
    shares = np.array(tuning.shares_with_ridges if few else tuning.shares)
    shares = shares[shares * rows.n >= tuning.smallest_level_rows]
    scales = np.array(tuning.bisquares_with_ridges if few else tuning.bisquares)
    scales = scales if rows.loss.link == "identity" else scales[:0]
    quantiles = weighted_quantiles(away, rows.weights, np.append(1.0 - shares, 0.5))
    tau = np.concatenate([scales * quantiles[-1] / NORMAL_QUARTILE, quantiles[:-1], [np.inf]])
    share = np.concatenate([np.zeros(scales.size), shares, [0.0]])
    bisquare = np.concatenate([scales, np.zeros(shares.size + 1)])
    largest = float(away.max())
    if rows.loss.link == "log":
        # Pearson residuals are without limit where a mean is next to zero, and one row may say nothing of τ.
        largest = min(largest, float(rows.y.max()))
    kept = tau > 1e-9 * max(largest, 1e-300)
    times = len(ridges)
    return Levels(
        tau=np.tile(tau[kept], times),
        share=np.tile(share[kept], times),
        ridge=np.repeat(np.array(ridges), np.count_nonzero(kept)),
        bisquare=np.tile(bisquare[kept], times),
    )


def with_least_squares(levels: Levels, members: Sequence[int]) -> list[int]:
    """Some levels, and least squares if it is not among them: all rows may prefer it."""
    return list(dict.fromkeys([*members, int(np.flatnonzero(np.isinf(levels.tau))[-1])]))


def weighted_quantiles(values: Array, weights: Array, at: Array) -> Array:
    """Quantiles of weighted values."""
    if np.all(weights == weights[0]):
        ranks = [rank_of_quantile(values.size, share) for share in at.tolist()]
        # To find several places takes longer than to find all.
        return np.asarray((np.partition(values, ranks) if len(ranks) == 1 else np.sort(values))[ranks])
    return np.asarray(np.quantile(values, at, method="inverted_cdf", weights=weights))


def rank_of_quantile(n: int, share: float) -> int:
    """Place of a quantile among n sorted values, from 0: the first k with (k + 1)/n at least the share.

    Examples
    --------
    >>> rank_of_quantile(10, 0.5), rank_of_quantile(10, 0.51), rank_of_quantile(3, 0.0)
    (4, 5, 0)
    """
    rank = max(math.ceil(share * n) - 1, 0)
    return rank + ((rank + 1) / n < share) - (rank > 0 and rank / n >= share)


@dataclass(frozen=True)
class Scores:
    """Objective (identity link), gradient and Hessian of every level, summed over rows.

    ``curvature`` has the weight of every row (second axis) in the Hessian of every level, where the Hessian
    itself would be too large.
    """

    value: Array
    gradient: Array
    hessian: Array
    curvature: Array


def level_scores(
    rows: ScaledRows,
    phi: Array,
    levels: Levels,
    hessian: bool = True,
    curvature: bool = False,
    exact: bool = False,
) -> Scores:
    """Value and gradient of every level at its own φ, and Hessians or curvatures, in one pass over rows."""
    if is_narrow(rows) and not curvature:
        sums = fold_scores(rows, phi, levels, np.array([rows.n]), hessian, exact)
        return Scores(sums.value[0], sums.gradient[0], sums.hessian[0], sums.curvature)
    if curvature and not (hessian or exact) and rows.in_basis and rows.loss.link == "identity":
        return _with_curvatures(rows, phi, levels)
    theta, count = rows.multiplier(phi), len(levels)
    size = theta.shape[0]
    value, gradient = np.zeros(count), np.zeros((size, count))
    hessians = np.zeros((count * hessian, size, size))
    curvatures = np.empty((count * curvature, rows.n))
    for part, Z in rows.tiles():
        v = rows.uneven(part)
        # One row a level: long loops, and no stride between neighbours.
        r, factor = working_residuals(rows.loss, theta.T @ Z.T, rows.y[part])
        psi, rho = influence(r, levels)
        pull = psi if v is None else psi * v
        value += (rho if v is None else rho * v).sum(axis=1)
        gradient += Z.T @ (pull if factor is None else pull * factor).T
        if hessian:
            _add_hessians(hessians, Z, v, factor, psi_slopes(r, levels, rows.tuning, exact))
        if curvature:
            weights = psi_slopes(r, levels, rows.tuning, exact)
            weights = weights if factor is None else weights * factor**2
            curvatures[:, part] = weights if v is None else weights * v
    if rows.in_basis:
        return Scores(value, gradient, hessians, curvatures)
    B = rows.whitening.map
    return Scores(value, B.T @ gradient, B.T @ hessians @ B, curvatures)


def _with_curvatures(rows: ScaledRows, phi: Array, levels: Levels) -> Scores:
    """The same with curvatures, of whitened rows and the identity link, by compiled loops over residuals."""
    predictions = rows.predictions(phi)
    r = np.subtract(rows.y, predictions, out=predictions)
    every = np.zeros(len(levels), dtype=np.int64)
    fits = Fits(np.ascontiguousarray(rows.weights)[None], every, levels.tau, levels.bisquare)
    pull, curvature = pulls_of_fits(r, fits, rows.tuning.truncated_curvature)
    rank = rows.whitening.rank
    gradient = np.asarray(pull @ rows.X).T
    return Scores(losses_of_fits(r, fits), gradient, np.zeros((0, rank, rank)), curvature)


def is_narrow(rows: ScaledRows) -> bool:
    """Whether all levels take one compiled pass: with more columns matrix products are faster."""
    return rows.loss.link == "identity" and rows.width <= rows.tuning.narrow_columns


def fold_scores(
    rows: ScaledRows,
    phi: Array,
    levels: Levels,
    ends: NDArray[np.int64],
    hessian: bool = True,
    exact: bool = False,
) -> Scores:
    """:func:`level_scores` for every fold (first axis) of narrow rows, which are in the order of folds."""
    tuning, B, folds = rows.tuning, rows.whitening.map, ends.size
    sums = LevelSums.zero(
        rows.multiplier(phi), levels.tau, levels.bisquare, tuning.truncated_curvature, exact, folds, hessian
    )
    for part, Z in rows.tiles():
        sums.add(Z, rows.y[part], rows.uneven(part), np.clip(ends, part.start, part.stop) - part.start)
    gradient, hessians = sums.gradient, np.moveaxis(sums.hessian, -1, 1)
    if not hessian:
        hessians = np.empty((folds, 0, *hessians.shape[2:]))
    if not rows.in_basis:
        gradient, hessians = B.T @ gradient, B.T @ hessians @ B
    return Scores(sums.value, gradient, hessians, np.empty((0, rows.n)))


def working_residuals(loss: Loss, p: Array, y: Array) -> tuple[Array, Array | None]:
    """Residuals to truncate, and what multiplies them in the score, if that is not one."""
    if loss.link == "identity":
        return y - p, None
    half, p = 0.5 * loss.parameter, np.clip(p, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    return (y - np.exp(p)) * np.exp(-half * p), np.exp((1.0 - half) * p)


def influence(r: Array, levels: Levels) -> tuple[Array, Array]:
    """ψ(r) and its integral ρ(r), a row a level."""
    psi = np.clip(r, -levels.tau[:, None], levels.tau[:, None])
    rho = psi * (r - 0.5 * psi)
    for m in np.flatnonzero(levels.bisquare):
        u = np.maximum(1.0 - (r[m] / levels.tau[m]) ** 2, 0.0)
        psi[m], rho[m] = r[m] * u**2, levels.tau[m] ** 2 / 6 * (1 - u * u * u)  # u**3 takes ten times as long
    return psi, rho


def psi_of(r: Array, tau: float, bisquare: float) -> Array:
    """ψ(r) of one level."""
    if not bisquare:
        return np.clip(r, -tau, tau)
    u = r / tau
    u *= -u
    u += 1.0
    np.maximum(u, 0.0, out=u)
    u *= u
    return np.asarray(u * r)


def psi_slopes(r: Array, levels: Levels, tuning: Tuning | None, exact: bool = False) -> Array:
    """ψ′(r), a row a level, but at least a little, unless there is no ``tuning``: Hessians stay positive.

    ``exact`` keeps what is negative of Tukey's ψ′: close to a solution Newton's method is faster with it.
    """
    floor = tuning.truncated_curvature if tuning else 0.0
    slopes = np.where(np.abs(r) <= levels.tau[:, None], 1.0, floor)
    for m in np.flatnonzero(levels.bisquare):
        u = np.maximum(1.0 - (r[m] / levels.tau[m]) ** 2, 0.0)
        slopes[m] = u * (5 * u - 4) if exact else np.maximum(u * (5 * u - 4), floor)
    return slopes


def _add_hessians(hessians: Array, Z: Array, v: Array | None, factor: Array | None, slopes: Array) -> None:
    if factor is not None:
        slopes = slopes * factor**2
        for level, weights in enumerate(slopes):
            hessians[level] += gram(Z, weights if v is None else v * weights)
        return
    # Few rows are beyond τ, so take them away from the Gram matrix that all levels share.
    hessians += gram(Z, v)
    for level, weights in enumerate(slopes):
        rows = np.flatnonzero(weights < 1.0)
        if rows.size:
            less = 1.0 - weights[rows]
            hessians[level] -= gram(Z[rows], less if v is None else v[rows] * less)
