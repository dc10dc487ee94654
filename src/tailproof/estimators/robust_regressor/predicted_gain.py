"""How much less the slopes of a truncated fit err than those of least squares, by residuals alone.

Where noise does not depend on x, slopes of level ψ have the variance E ψ²/(E ψ′)² beside E r² for least
squares. Residuals tell the ratio of the two far better than held-out losses do, which are mostly noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.losses import LOSSES
from tailproof.estimators.robust_regressor.levels import influence, psi_slopes
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.truncation_path import LEAST_SLOPE, TruncationPath

_RESAMPLES = 400
_RESAMPLED_AT_ONCE = 50
_TINY = 1e-300


@dataclass(frozen=True)
class PredictedGain:
    """What a truncated level takes off the squared error of the slopes of least squares, as a share of it.

    Attributes
    ----------
    level : str
        The one that surely gains the most.
    share, low, high : float
        With its 95% interval, by resampled rows.
    most : float
        Largest upper limit of any level, those that disagree among them.
    """

    level: str
    share: float
    low: float
    high: float
    most: float


def predicted_gain(X: Array, y: Array) -> PredictedGain | None:
    """The gain of the level with the largest lower limit, among those that do not contradict least squares.

    Parameters
    ----------
    X : array of shape (n, d)
    y : array of shape (n,)

    Returns
    -------
    PredictedGain or None
        None where rows are too few for their columns, or all levels disagree: then noise depends on x.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1_000, 2))
    >>> heavy = predicted_gain(X, rng.standard_t(2.5, 1_000))
    >>> light = predicted_gain(X, rng.standard_normal(1_000))
    >>> heavy.low > 0.2, light.most < 0.2
    (True, True)
    """
    rows = rows_of(X, _in_usual_unit(y), np.ones(len(y)), LOSSES["squared_error"], fit_intercept=True)
    path = solve_path(rows, np.random.default_rng(0), penalised=False).cautious()
    evidence, plain = path.evidence(), int(np.flatnonzero(np.isinf(path.levels.tau))[0])
    cut = path.levels.truncated
    agree = evidence.conflict[cut] <= path.rows.tuning.conflict_tolerated
    if not (agree.any() and evidence.variance[plain] > 0):
        return None
    low, high = _intervals(path.only([plain, *cut]))
    best = int(np.argmax(np.where(agree, low, -np.inf)))
    share = 1.0 - float(evidence.variance[cut[best]] / evidence.variance[plain])
    name = path.levels.names()[cut[best]]
    return PredictedGain(name, share, float(low[best]), float(high[best]), float(high.max()))


def _in_usual_unit(y: Array) -> Array:
    """Targets whose median is zero and whose median size is one."""
    away = y - np.median(y)
    return np.asarray(away / (float(np.median(np.abs(away))) or float(np.abs(away).max()) or 1.0))


def _intervals(path: TruncationPath) -> tuple[Array, Array]:
    """Percentiles over resampled rows of the gain of every level but the first, over the first."""
    psi = influence(path.residuals, path.levels)[0]
    slopes = psi_slopes(path.residuals, path.levels, path.rows.tuning, exact=True)
    random, size = np.random.default_rng(0), (_RESAMPLED_AT_ONCE, path.rows.n)
    parts = _RESAMPLES // _RESAMPLED_AT_ONCE
    variance = np.concatenate([_variances(psi, slopes, random.poisson(1.0, size)) for _ in range(parts)])
    gains = 1.0 - variance[:, 1:] / np.maximum(variance[:, :1], _TINY)
    low, high = np.quantile(gains, [0.025, 0.975], axis=0)
    return low, high


def _variances(psi: Array, slopes: Array, counts: NDArray[np.int64]) -> Array:
    """E ψ²/(E ψ′)² of every level, for every row of counts."""
    shares = counts / np.maximum(counts.sum(axis=1), 1)[:, None]
    spread = shares @ (psi**2).T - (shares @ psi.T) ** 2
    return np.asarray(spread / np.maximum(shares @ slopes.T, LEAST_SLOPE) ** 2)
