"""Weights of a blend: held-out losses, and what the fits themselves tell, to one weight a candidate."""

from __future__ import annotations

import math

import numpy as np

from tailproof.core import Array
from tailproof.core.numerics.m_estimates import effective_size, robust_scale
from tailproof.core.validate import means_of_differences, resistant_means
from tailproof.estimators.robust_regressor.truncation_path import Evidence
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning


def blend_weights(
    losses: Array,
    reference: int,
    delta: float,
    weights: Array | None = None,
    informative_share: float = 1.0,
    tuning: Tuning = DEFAULT,
    evidence: Evidence | None = None,
) -> Array:
    """Weights of candidates: e^{−az} for one that is z standard errors worse than the best.

    Differences are robust means of paired held-out losses. Where the slopes of a level do not contradict
    those of less robust ones (``evidence``), noise is taken to be independent of X, and the difference of
    their predicted risks, which is known with far less noise, takes the place of most of the held-out one.
    Where they do, and the best is less than a standard error better than the reference (least squares), the
    weights are drawn towards the reference, in proportion.

    Parameters
    ----------
    losses : array of shape (n, m)
        Held-out losses.
    reference : int
        Which candidate is least squares.
    delta : float
    weights : array of shape (n,), optional
    informative_share : float
    tuning : Tuning
    evidence : Evidence, optional
        In the unit of the losses.

    Returns
    -------
    array of shape (m,)

    Examples
    --------
    >>> noise = np.random.default_rng(0).standard_normal((1_000, 3))
    >>> np.round(blend_weights(noise + [1.0, 0.0, 2.0], 2, 0.05), 3).tolist()
    [0.0, 1.0, 0.0]
    """
    count = losses.shape[1]
    agreement, predicted = _agreement(evidence, tuning, count)

    def worse_than(other: int) -> tuple[Array, Array]:
        trusted = tuning.prediction_share * np.minimum(agreement, agreement[other])
        difference, error = _paired(losses, other, delta, weights, informative_share, tuning)
        change = np.where(trusted > 0, predicted - predicted[other], 0.0)
        with np.errstate(invalid="ignore"):
            return (1.0 - trusted) * difference + trusted * change, (1.0 - trusted) * error

    beside_reference = worse_than(reference)
    best = int(np.argmin(beside_reference[0]))
    worse, error = beside_reference if best == reference else worse_than(best)
    z = np.zeros(count)
    for j in np.flatnonzero(worse > 0):
        z[j] = worse[j] / error[j] if error[j] > 0 else math.inf
    z[best] = 0.0
    shares = np.exp(-tuning.blend_sharpness * z)
    convinced = 1.0 if best == reference else max(min(1.0, z[reference] / tuning.convinced), agreement[best])
    shares *= convinced / shares.sum()
    shares[reference] += 1.0 - convinced
    shares[shares < tuning.negligible] = 0.0
    return np.asarray(shares / shares.sum())


def _agreement(evidence: Evidence | None, tuning: Tuning, count: int) -> tuple[Array, Array]:
    """From 1, no sign of bias, to 0 for every candidate; and predicted risks."""
    if evidence is None:
        return np.zeros(count), np.zeros(count)
    conflict = np.where(np.isnan(evidence.conflict), np.inf, evidence.conflict)
    span = tuning.conflict_certain - tuning.conflict_tolerated
    agreement = np.clip((tuning.conflict_certain - conflict) / span, 0.0, 1.0)
    return agreement, np.nan_to_num(0.5 * evidence.variance)


def _paired(
    losses: Array, other: int, delta: float, weights: Array | None, informative_share: float, tuning: Tuning
) -> tuple[Array, Array]:
    """Robust means of the differences to one candidate, and their standard errors."""
    together = None
    if weights is None:
        with np.errstate(invalid="ignore"):
            together = means_of_differences(losses.T, other, delta, informative_share, tuning.scale_blocks)
    if together is not None:
        return together[0], together[1] / math.sqrt(len(losses))
    gaps, error = _gaps(losses, other), np.zeros(losses.shape[1])
    difference = _differences(gaps, delta, weights, informative_share)
    finite = np.isfinite(difference)
    error[finite] = standard_errors(gaps[finite], weights, tuning)
    return difference, error


def _gaps(losses: Array, reference: int) -> Array:
    """Differences to one candidate, a row a candidate; infinite where both losses are."""
    with np.errstate(invalid="ignore"):
        gaps = losses.T - losses[:, reference]
    return np.where(np.isnan(gaps), np.inf, gaps)


def _differences(gaps: Array, delta: float, weights: Array | None, informative_share: float) -> Array:
    difference = np.full(len(gaps), np.inf)
    finite = np.isfinite(gaps).all(axis=1)
    if finite.any():
        difference[finite] = resistant_means(gaps[finite], delta, weights, informative_share)
    return difference


def standard_errors(gaps: Array, weights: Array | None, tuning: Tuning) -> Array:
    """Standard errors of means, a row each, from a robust scale."""
    shares = np.empty(0) if weights is None else weights
    size = effective_size(gaps, shares)
    return robust_scale(gaps, shares, min(tuning.scale_blocks, gaps.shape[1])) / math.sqrt(size)
