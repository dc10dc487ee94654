"""What truncation does to slopes where skewed noise grows with x, and how sure that is.

If the noise at x is s(x) times one skewed law, a truncated fit is off the mean by κ s(x), and so its slopes
by the slopes of that. The size s(x) is known far better than the mean of the noise, from logarithms of
absolute residuals; κ is one number, the mean of r/s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from tailproof.core import Array
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows

_ROWS_PER_COLUMN = 5
_FAR = 10.0  # scales of a column, beyond which noise is as at its end
_OFFSET = 0.05  # of the median residual: those near zero would have logarithms without limit
_ENDS = (0.001, 0.999)  # quantiles of log s(x) beyond which it is not trusted
_CERTAIN = 1e-4  # chance that noise which does not depend on x seems to


@dataclass(frozen=True)
class Correction:
    """What is to be added to φ, and what every row adds to that (for an effective sum over rows)."""

    phi: Array
    moves: Array


def noise_correction(rows: ScaledRows, Q: Array, residuals: Array) -> Correction | None:
    """The correction of slopes; None where there is no sign that noise grows along a column.

    Parameters
    ----------
    rows : ScaledRows
    Q : array of shape (n, rank)
        The same, whitened.
    residuals : array of shape (n,)
        Of the truncated fit, before its intercept is recentred.
    """
    width = 2 * rows.width - 1
    v = rows.weights / rows.weights.sum()
    away = np.abs(residuals - np.median(residuals))
    typical = float(np.median(away))
    if rows.n < _ROWS_PER_COLUMN * width or not 0 < typical < np.inf:
        return None
    features = _features(rows)
    bread = np.linalg.inv((features.T * v) @ features + 1e-9 * np.eye(width))
    target = np.log(away + _OFFSET * typical)
    gamma = bread @ (features.T @ (v * target))
    pulls = (features * (v * (target - features @ gamma))[:, None]) @ bread
    if not _grows(gamma, pulls, rows.width - 1):
        return None
    sizes = features @ gamma
    s = np.exp(np.clip(sizes, *np.quantile(sizes, _ENDS)))
    kappa = float(v @ (residuals / s))
    slopes = Q.T @ (v * s)
    by_gamma = (Q * (v * s)[:, None]).T @ features
    moves = kappa * pulls @ by_gamma.T + np.outer(v * (residuals / s - kappa), slopes)
    return Correction(kappa * slopes, moves)


def _features(rows: ScaledRows) -> Array:
    """Scaled columns, their absolute values, and ones."""
    Z = np.concatenate([tile for _, tile in rows.tiles()])
    if rows.in_basis:
        Z = (Z / rows.whitening.inverse) @ rows.whitening.map.T
    z = np.clip(Z[:, :-1], -_FAR, _FAR)
    return np.column_stack([z, np.abs(z), np.ones(len(z))])


def _grows(gamma: Array, pulls: Array, d: int) -> bool:
    """Wald's test that log s(x) has no slope along any column."""
    covariance = pulls[:, :d].T @ pulls[:, :d]
    distance = float(gamma[:d] @ np.linalg.lstsq(covariance, gamma[:d], rcond=None)[0])
    return bool(stats.chi2.sf(distance, d) < _CERTAIN)
