"""Glitches: rows with a feature that is a measurement error, far beyond all others of its column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.scaling import FeatureScale, robust_columns, sample_rows
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning

_HILL_SHARE, _HILL_LEAST, _HILL_MOST = 0.05, 10, 200  # values of a tail, for its index
_COVARIANCE_DAMPING = 1e-9  # of the mean eigenvalue: collinear columns
_ROUNDING = 1e-6  # of a target, where there is no noise: what damping does to a prediction


def glitches(X: Any, y: Array | None = None, tuning: Tuning = DEFAULT) -> NDArray[np.intp]:
    """Rows with a measurement error: a feature far beyond all others of its column.

    A feature is suspect if it is more than 100 robust scales from the centre, in at most 1% of the rows (or
    one), and beyond a gap: 30 times as far as the next one, or further where the tail below is heavy. In a
    tail of index α the j-th largest of n values is g times the next with probability g^{−jα}; g is such that
    honest columns, however many, have such a gap in at most 0.5% of draws. A column that is constant apart
    from such rows is a rare indicator, and a suspect row whose target is what the other rows predict for it
    is real.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
    y : array of shape (n,), optional
        Targets with a linear mean; without them every suspect row is a glitch.
    tuning : Tuning

    Returns
    -------
    array of int
        Rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_t(3, (1_000, 2))
    >>> X[[3, 7], 1] = 1e6
    >>> glitches(X).tolist()
    [3, 7]
    >>> glitches(X, X.sum(axis=1)).tolist()
    []
    """
    columns = robust_columns(sample_rows(X, [np.arange(X.shape[0])]))
    with np.errstate(invalid="ignore", over="ignore"):
        reach = np.maximum(_dense(X.max(axis=0)) - columns.centre, columns.centre - _dense(X.min(axis=0)))
        far = np.flatnonzero(reach > tuning.glitch_scales * columns.scale)
    suspects = [
        _beyond_a_gap(_column(X, j), columns.centre[j], columns.scale[j], X.shape[1], tuning)
        for j in far.tolist()
    ]
    suspicious = np.unique(np.concatenate(suspects)) if suspects else np.empty(0, dtype=np.intp)
    if suspicious.size and y is not None:
        return suspicious[~_agree(X, y, suspicious, tuning)]
    return suspicious


def _column(X: Any, j: int) -> Array:
    return _dense(X[:, [j]] if sparse.issparse(X) else X[:, j])


def _dense(part: Any) -> Array:
    return np.ravel(part.toarray() if sparse.issparse(part) else part)


def _beyond_a_gap(values: Array, centre: float, scale: float, d: int, tuning: Tuning) -> NDArray[np.intp]:
    most = max(1, int(tuning.glitch_share * values.size))
    with np.errstate(over="ignore"):
        away = np.abs(values - centre)
    order = np.argsort(-away, kind="stable")
    far = away[order[: most + 1]]
    place = np.arange(1, far.size)
    with np.errstate(over="ignore"):
        needed = (d / tuning.glitch_error) ** (1.0 / (place * _tail_index(away[order], most)))
        wide = far[:-1] > np.maximum(tuning.glitch_gap, needed) * far[1:]
    gaps = np.flatnonzero((far[:-1] > tuning.glitch_scales * scale) & wide)
    if gaps.size == 0:
        return np.empty(0, dtype=np.intp)
    flagged = order[: gaps[-1] + 1]
    others = np.delete(values, flagged)
    return flagged if np.any(others != others[0]) else np.empty(0, dtype=np.intp)


def feature_limits(X: Any, far: Any, n: int, columns: FeatureScale, tuning: Tuning = DEFAULT) -> Array:
    """How far from its centre a feature may be, in scales of its column, to be no glitch among n rows.

    The rows X are a sample of m of them. In a tail of index α, n rows hold one that is g times as far as the
    farthest of the sample with probability (n/m) g^{−α}; g is such that this hardly happens, and at least 30.
    Where the sample itself has glitches, the limit is halfway (in logarithms) to them.

    Parameters
    ----------
    X : array or sparse matrix of shape (m, d)
        Without glitches.
    far : array or sparse matrix of shape (any, d)
        Rows that are glitches.
    n : int
        Rows in all.
    columns : FeatureScale
    tuning : Tuning

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((1_000, 1))
    >>> unit = FeatureScale(np.zeros(1), np.ones(1))
    >>> feature_limits(X, np.empty((0, 1)), 10**6, unit).round(-1).tolist()
    [130.0]
    """
    limits = np.full(X.shape[1], np.inf)
    chance = tuning.glitch_error * X.shape[0] / (n * X.shape[1])
    for j in range(X.shape[1]):
        away, beyond = (np.abs(_column(part, j) - columns.centre[j]) / columns.scale[j] for part in (X, far))
        reach = float(away.max())
        if reach == 0.0:
            continue  # a constant column: others than its value may be rare
        count = _hill_count(away.size)
        top = np.sort(np.partition(away, away.size - count - 1)[away.size - count - 1 :])[::-1]
        gap = max(tuning.glitch_gap, chance ** (-1.0 / _hill_index(top, count)))
        beyond = beyond[beyond > tuning.glitch_gap * reach]
        halfway = np.sqrt(reach * beyond.min()) if beyond.size else np.inf
        limits[j] = max(min(gap * reach, halfway), tuning.glitch_scales)
    return limits


def _hill_count(size: int) -> int:
    return int(min(max(_HILL_SHARE * size, _HILL_LEAST), _HILL_MOST, size - 1))


def _tail_index(ordered: Array, skipped: int) -> float:
    """Hill's index of a tail in falling order, without the values under suspicion."""
    return _hill_index(ordered[skipped:], _hill_count(ordered.size - skipped))


def _hill_index(ordered: Array, count: int) -> float:
    """A lower limit of Hill's index, from the first values of a tail in falling order."""
    if count < 5 or ordered[count] <= 0:
        return 1.0
    excess = float(np.mean(np.log(ordered[:count] / ordered[count])))
    return (1.0 - 2.0 / np.sqrt(count)) / max(excess, 1e-3)


def _agree(X: Any, y: Array, suspects: NDArray[np.intp], tuning: Tuning) -> NDArray[np.bool_]:
    """Whether the target of each suspect is what the other rows predict, within the error of that."""
    others = np.delete(np.arange(X.shape[0]), suspects)
    wanted = max(tuning.glitch_rows, tuning.glitch_rows_per_column * X.shape[1])
    others = others[:: max(1, others.size // wanted)]
    if others.size < 2 * (X.shape[1] + 1):
        return np.zeros(suspects.size, dtype=bool)
    columns = robust_columns(sample_rows(X, [others]))

    def scaled(rows: NDArray[np.intp]) -> Array:
        part = X[rows].toarray() if sparse.issparse(X) else np.asarray(X[rows], dtype=np.float64)
        return np.column_stack([(part - columns.centre) / columns.scale, np.ones(rows.size)])

    with np.errstate(over="ignore", invalid="ignore"):
        Z, far = scaled(others), scaled(suspects)
        gram = Z.T @ Z
        gram += _COVARIANCE_DAMPING * np.trace(gram) / len(gram) * np.eye(len(gram))
        coef = np.linalg.solve(gram, Z.T @ y[others])
        spread = np.sum((y[others] - Z @ coef) ** 2) / max(others.size - Z.shape[1], 1)
        leverage = np.einsum("ij,ji->i", far, np.linalg.solve(gram, far.T))
        off = np.abs(y[suspects] - far @ coef)
        error = tuning.glitch_agreement * np.sqrt(spread * (1.0 + leverage))
        return np.asarray(off <= error + _ROUNDING * np.abs(y[suspects]))
