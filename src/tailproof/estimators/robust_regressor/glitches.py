"""How far a feature of rows that were not in a sample may be, to be no error of measurement."""

from __future__ import annotations

from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.core.populations import column_of, hill_count, tail_index
from tailproof.core.scaling import FeatureScale
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning


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
        away, beyond = (
            np.abs(column_of(part, j) - columns.centre[j]) / columns.scale[j] for part in (X, far)
        )
        reach = float(away.max())
        if reach == 0.0:
            continue  # a constant column: others than its value may be rare
        count = hill_count(away.size)
        top = np.sort(np.partition(away, away.size - count - 1)[away.size - count - 1 :])[::-1]
        gap = max(tuning.glitch_gap, chance ** (-1.0 / tail_index(top, count)))
        beyond = beyond[beyond > tuning.glitch_gap * reach]
        halfway = np.sqrt(reach * beyond.min()) if beyond.size else np.inf
        limits[j] = max(min(gap * reach, halfway), tuning.glitch_scales)
    return limits
