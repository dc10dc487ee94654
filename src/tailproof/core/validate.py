"""Robust validation: (n, k) losses on held-out rows and a robust mean → risks, intervals, the winner."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.means import (
    MEANS,
    Interval,
    catoni,
    catoni_width,
    half_width,
    mean_for,
    scale_blocks,
    undoubted_interval,
    values_needed,
)
from tailproof.core.merge import within_majority
from tailproof.core.numerics.m_estimates import (
    BEYOND_TAILS,
    LEAST_SCALE,
    effective_size,
    guarded_scale,
    near_lengths,
    near_majorities,
    robust_scale,
    small_blocks,
    step_of_some,
)
from tailproof.core.tails import variance_is_in_doubt
from tailproof.native import m_estimates as native
from tailproof.native.m_estimates import Resistance, block_sums

_BLOCK_ROWS = 250  # of a resistant mean: with 1 outlying row in 1,000, most blocks have none
_UNTIED_ROWS = 5  # of such a block, on average
RARE = 0.05  # of the rows: where fewer differ in their target, most small blocks would have none of them
_SMALL_BLOCK_LENGTHS = (
    20.0  # Catoni's mean of squared log-normal(1.75) values is 10 away, and they are honest
)


@dataclass(frozen=True)
class Validation:
    """Estimated risk of every candidate, and which is least.

    Attributes
    ----------
    risk, low, high : arrays of shape (k,)
        Robust mean of the losses, with its interval (NaN where the mean has none).
    best : int
        The candidate of least risk; ties go to the first.
    mean : str
        The mean that was used: the one asked for, or what it fell back to on a small sample.
    in_doubt : array of bool or None
        Whose losses may have an infinite variance, where :func:`validate_with_safe_intervals` tested for
        it: their intervals are longer, and may still cover less often than 1 − δ.
    """

    risk: Array
    low: Array
    high: Array
    best: int
    mean: str
    in_doubt: NDArray[np.bool_] | None = None


def validate(
    losses: Sequence[Array], mean: str = "catoni", delta: float = 0.05, weights: Array | None = None
) -> Validation:
    """Score candidates by a robust mean of their losses (Algorithm 5, third line).

    Parameters
    ----------
    losses : sequence of k arrays
        The losses of each candidate; samples may differ in length (cross-validation).
    mean : str
        A name in ``MEANS``. On a sample too small for it, the next that needs fewer rows takes its place.
    delta : float
        One minus the confidence of each interval.
    weights : array, optional
        Of the rows, for samples of one length.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = validate([rng.pareto(2.5, 400), 1 + rng.pareto(2.5, 400)])
    >>> found.best, found.mean
    (0, 'catoni')
    """
    MEANS[mean]
    losses, weights = _present(losses, weights)
    usable = [sample if np.all(np.isfinite(sample)) else np.empty(0) for sample in losses]
    smallest = min((len(sample) for sample in usable if len(sample)), default=0)
    used = mean_for(mean, _effective_size(smallest, weights), delta)
    scores = np.array([_score(sample, used, delta, weights) for sample in usable])
    return Validation(scores[:, 0], scores[:, 1], scores[:, 2], int(np.argmin(scores[:, 0])), used)


def validate_with_safe_intervals(
    losses: Sequence[Array],
    mean: str = "catoni",
    delta: float = 0.05,
    weights: Array | None = None,
    *,
    resistant: bool = False,
    untied_share: float = 1.0,
) -> Validation:
    """Score as :func:`validate` does, with intervals that the tails of the losses allow.

    Where the variance of the losses may be infinite (see :func:`tailproof.core.tails.tails`) or is too large
    for the sample to show, Catoni's interval is too short: then it is as long as that of the median of means,
    3.8 times as long at δ = 0.05. It does not go below zero where no loss does. Risks and winner are those of
    :func:`validate`; ``resistant`` ones of :func:`resist`, which up to 1% of bad rows do not move. Where most
    targets are equal and a share of ``untied_share`` differs, means of groups stand for rows: claims among
    zeros are few, and no bad rows.

    Notes
    -----
    Share of 300 samples in which the 95% interval covers the true risk, Catoni's alone and this one, where
    the losses follow the law named, or are squared errors under noise of that law:

    =====  ================  ============  =========================  ====================
    rows   log-normal(1.75)  Pareto(2.1)   log-normal(1.75), squared  Pareto(2.1), squared
    =====  ================  ============  =========================  ====================
    200    0.98, 0.98        0.99, 0.99    0.50, 0.88                 0.26, 0.67
    1,000  1.00, 1.00        1.00, 1.00    0.69, 0.98                 0.27, 0.74
    5,000  1.00, 1.00        1.00, 1.00    0.81, 1.00                 0.32, 0.78
    =====  ================  ============  =========================  ====================

    Losses of the last column have no variance (tail index 1.05): no interval can be relied on there.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> light, heavy = rng.standard_normal(1_000) ** 2, rng.lognormal(0, 1.75, 1_000) ** 2
    >>> found = validate_with_safe_intervals([light, heavy])
    >>> ((found.high - found.low) / found.risk).round(1).tolist()
    [0.4, 7.1]
    """
    losses, weights = _present(losses, weights)
    losses = [means_of_groups(sample, untied_share) for sample in losses] if weights is None else losses
    validation = validate(losses, mean, delta, weights)
    validation = resist(validation, losses, delta, weights) if resistant else validation
    finite = np.isfinite(validation.risk)
    doubt = [good and variance_is_in_doubt(u) for good, u in zip(finite.tolist(), losses, strict=True)]
    positive = [good and np.min(u) >= 0 for good, u in zip(finite.tolist(), losses, strict=True)]
    return widen_intervals(validation, np.array(doubt), np.array(positive), delta)


def resist(
    validation: Validation, losses: Sequence[Array], delta: float, weights: Array | None = None
) -> Validation:
    """Risks kept near the means of most blocks of 30 losses, with intervals that bad rows do not stretch.

    Examples
    --------
    >>> losses = np.random.default_rng(0).exponential(size=3_000)
    >>> losses[::300] = 3e4
    >>> found = validate([losses], "mean")
    >>> found.risk.round().tolist(), resist(found, [losses], 0.05).risk.round().tolist()
    ([101.0], [1.0])
    """
    risk, low, high = validation.risk.copy(), validation.low.copy(), validation.high.copy()
    shares = np.empty(0) if weights is None else weights
    for j in np.flatnonzero(np.isfinite(risk)).tolist():
        sample, count = losses[j], small_blocks(len(losses[j]))
        if not count:
            continue
        kept = _near_small_blocks(risk[[j]], sample[None], weights, 1.0)[0]
        spread = float(robust_scale(sample[None], shares, count)[0])
        half = half_width("catoni", delta) * spread / math.sqrt(_effective_size(len(sample), weights))
        if kept != risk[j] or high[j] - low[j] > BEYOND_TAILS * half > 0:
            risk[j], low[j], high[j] = kept, kept - half, kept + half
    return replace(validation, risk=risk, low=low, high=high, best=int(np.argmin(risk)))


def widen_intervals(
    validation: Validation, in_doubt: NDArray[np.bool_], positive: NDArray[np.bool_], delta: float
) -> Validation:
    """Longer intervals where the variance is in doubt, and none below zero where no loss is."""
    in_doubt = in_doubt & np.isfinite(validation.low)
    longer = half_width("median_of_means", delta) / half_width("catoni", delta)
    factor = np.where(in_doubt & (validation.mean == "catoni"), longer, 1.0)
    with np.errstate(invalid="ignore"):  # infinite risks have infinite ends
        low = np.where(
            factor > 1, validation.risk - factor * (validation.risk - validation.low), validation.low
        )
        high = np.where(
            factor > 1, validation.risk + factor * (validation.high - validation.risk), validation.high
        )
    low = np.where(positive, np.maximum(low, 0.0), low)  # which keeps the NaN of a mean without interval
    return replace(validation, low=low, high=high, in_doubt=in_doubt)


def interval_warning(in_doubt: NDArray[np.bool_] | None, what: str = "candidates") -> str | None:
    """A warning about intervals of losses with infinite variance; None where there is no reason for one.

    Examples
    --------
    >>> interval_warning(np.array([False, False])), interval_warning(np.array([True, False]), "models")[:37]
    (None, 'the losses of 1 of 2 models may have ')
    """
    if in_doubt is None or not in_doubt.any():
        return None
    return (
        f"the losses of {in_doubt.sum()} of {in_doubt.size} {what} may have an infinite variance: no "
        "interval can be relied on there, and theirs may cover less often than they say"
    )


def means_of_groups(values: Array, untied_share: float) -> Array:
    """Means of groups of rows, such that 5% of the groups have a target that is not tied; else the values."""
    size = math.ceil(RARE / untied_share) if untied_share > 0 else 1
    count = values.size // size
    return values if size == 1 or not count else values[: size * count].reshape(size, count).mean(axis=0)


def _present(losses: Sequence[Array], weights: Array | None) -> tuple[Sequence[Array], Array | None]:
    """Samples and weights without the rows of weight zero."""
    if weights is None or np.all(weights) or not np.any(weights):
        return losses, weights
    there = np.asarray(weights) != 0
    return [sample[there] for sample in losses], weights[there]


def _present_rows(losses: Array, weights: Array | None) -> tuple[Array, Array | None]:
    losses = np.asarray(losses, dtype=np.float64)
    if weights is None or np.all(weights):
        return losses, weights
    columns, weights = _present(list(losses.T), weights)
    return np.column_stack(columns), weights


def paired_differences(
    losses: Array,
    reference: int,
    mean: str = "catoni",
    delta: float = 0.05,
    weights: Array | None = None,
    *,
    ignore_nan: bool = False,
    untied_share: float | None = None,
) -> Interval:
    """Risk of every model minus that of a reference, from the losses of all of them on the same rows.

    Two predictions share most of their error: what a row does to all models alike cancels, and the
    difference has much lighter tails than either loss (for squares it is linear in the target).

    Parameters
    ----------
    losses : array of shape (n, m)
        Loss of each row (first axis) under each model.
    reference : int
        Column to compare with; its own difference is exactly zero.
    mean, delta
        As in :func:`validate`; the interval of each difference, Student's with a correction for skewness,
        holds with probability 1 − δ on its own.
    weights : array of shape (n,), optional
    ignore_nan : bool
        Leave out rows on which either loss is NaN: they were not held out.
    untied_share : float, optional
        Centre the intervals on :func:`resistant_mean`, given this share of targets that differ.

    Returns
    -------
    Interval
        Of arrays of shape (m,); a model with a loss that is not finite is infinitely worse.

    Examples
    --------
    >>> noise = np.random.default_rng(0).pareto(2.1, 500)
    >>> gaps = paired_differences(np.column_stack([noise, noise + 0.1]), 0)
    >>> gaps.estimate.round(3).tolist(), bool(gaps.low[1] > 0)
    ([0.0, 0.1], True)
    """
    losses, weights = _present_rows(losses, weights)
    ends = np.full((3, losses.shape[1]), np.inf)
    complete: NDArray[np.bool_] = np.all(np.isfinite(losses), axis=0)
    together = complete & complete[reference] & (untied_share is not None)
    if untied_share is not None and together.any():
        used = mean_for(mean, _effective_size(len(losses), weights), delta)
        every = (losses[:, together] - losses[:, [reference]]).T
        ends[:, together] = _resistant_intervals(every, used, delta, weights, untied_share)
    for j in np.flatnonzero(~together):
        gaps, shares = row_differences(losses[:, j], losses[:, reference], weights, ignore_nan)
        if np.all(np.isfinite(gaps)):
            used = mean_for(mean, _effective_size(gaps.size, shares), delta)
            ends[:, j] = _score(gaps, used, delta, shares, "student" if untied_share is None else "skewed")
            if untied_share is not None:
                centre = resistant_mean(gaps, delta, shares, float(ends[0, j]), untied_share)
                half = 0.5 * (ends[2, j] - ends[1, j])
                ends[:, j] = centre, centre - half, centre + half
    return Interval(*ends)


def _resistant_intervals(
    gaps: Array, mean: str, delta: float, weights: Array | None, untied_share: float
) -> Array:
    """Intervals about resistant means of every row, with the work of all rows in one call."""
    around = undoubted_interval(gaps, mean, delta, axis=1, weights=weights, method="skewed")
    centre = resistant_means(gaps, delta, weights, untied_share, around.estimate)
    half = 0.5 * (around.high - around.low)
    return np.stack([centre, centre - half, centre + half])


def row_differences(
    losses: Array, reference: Array, weights: Array | None, ignore_nan: bool = False
) -> tuple[Array, Array | None]:
    """Differences of two losses row by row, with the weights of the rows; infinite where both losses are."""
    missing = np.isnan(losses) | np.isnan(reference)
    with np.errstate(invalid="ignore"):
        gaps = losses - reference
    gaps = np.where(np.isnan(gaps) & ~missing, np.inf, gaps)
    if not ignore_nan or not missing.any():
        return gaps, weights
    return gaps[~missing], None if weights is None else weights[~missing]


def paired_winner(
    losses: Array, mean: str = "catoni", delta: float = 0.05, weights: Array | None = None
) -> int:
    """Return the model whose worst paired difference to any other is least: a tournament of robust means.

    Examples
    --------
    >>> noise = np.random.default_rng(0).pareto(2.1, 500)
    >>> paired_winner(np.column_stack([noise + 0.2, noise, noise + 0.1]))
    1
    """
    losses, weights = _present_rows(losses, weights)
    m, used = losses.shape[1], mean_for(mean, _effective_size(len(losses), weights), delta)
    finite = np.flatnonzero(np.isfinite(losses).all(axis=0))
    worst = np.full(m, np.inf)
    worst[finite] = 0.0
    for place, i in enumerate(finite):
        for j in finite[place + 1 :]:
            gap = float(MEANS[used](losses[:, i] - losses[:, j], delta=delta, weights=weights))
            worst[i], worst[j] = max(worst[i], gap), max(worst[j], -gap)
    return int(np.argmin(worst))


def _effective_size(n: int, weights: Array | None) -> float:
    """Effective sample size of weighted rows."""
    return float(n) if weights is None or n == 0 else min(n, effective_size(np.empty((1, n)), weights))


def _score(
    sample: Array, mean: str, delta: float, weights: Array | None = None, method: str = "lemma"
) -> tuple[float, float, float]:
    """Risk and interval; a candidate with a loss that overflowed has infinite risk."""
    if len(sample) == 0:
        return math.inf, math.inf, math.inf
    if mean != "median" and len(sample) > 1:
        ends = undoubted_interval(sample, mean, delta, weights=weights, method=method)
        return float(ends.estimate), float(ends.low), float(ends.high)
    return float(MEANS[mean](sample, delta=delta, weights=weights)), math.nan, math.nan


def resistant_mean(
    u: Array,
    delta: float,
    weights: Array | None = None,
    pooled: float | None = None,
    untied_share: float = 1.0,
) -> float:
    """:func:`resistant_means` of one sample.

    Examples
    --------
    >>> values = np.random.default_rng(0).exponential(size=5_000)
    >>> values[:50] = 1e6
    >>> abs(resistant_mean(np.random.default_rng(1).permutation(values), 0.05) - 1) < 0.1
    True
    """
    around = None if pooled is None else np.array([pooled])
    return float(resistant_means(u[None], delta, weights, untied_share, around)[0])


def resistant_means(
    values: Array,
    delta: float,
    weights: Array | None = None,
    untied_share: float = 1.0,
    pooled: Array | None = None,
) -> Array:
    """Catoni's mean (or ``pooled``) of every row of an (m, n) array, kept near the means of most blocks.

    A few outlying values inflate Catoni's scale, and with it their influence; most blocks have none of them.
    Blocks of 250 are for 1 bad value in 1,000. Blocks of 30 survive 1 in 100, but of a skewed law most have a
    mean below its own: what they say is kept to within 20 lengths of the interval that holds most of them.
    Where most targets are tied, a share of ``untied_share`` differs: every block should hold some of those.

    Examples
    --------
    >>> values = np.random.default_rng(0).pareto(2.1, (2, 1_000))
    >>> singly = [resistant_mean(row, 0.05) for row in values]
    >>> bool(np.allclose(resistant_means(values, 0.05), singly))
    True
    """
    if pooled is None and _is_plain(values, weights, delta):
        return _with_care(
            native.resistant_means(values, resistance(values.shape[1], delta, untied_share)),
            values,
            delta,
            untied_share,
        )
    return _resistant_means(values, delta, weights, untied_share, pooled)


def _is_plain(values: Array, weights: Array | None, delta: float) -> bool:
    """Whether a compiled mean takes the values."""
    plain = weights is None and values.dtype == np.float64 and values.flags.c_contiguous
    return plain and values.shape[1] >= values_needed("catoni", delta)


def _with_care(found: Array, values: Array, delta: float, untied_share: float) -> Array:
    """Means that are not known yet, since something about their values is unusual, as well."""
    unusual = np.flatnonzero(np.isnan(found))
    if unusual.size:
        found[unusual] = _resistant_means(values[unusual], delta, None, untied_share, None)
    return found


def means_of_differences(
    values: Array, reference: int, delta: float, untied_share: float, blocks: int
) -> tuple[Array, Array] | None:
    """:func:`resistant_means` of every row less one of them, and robust scales of so many blocks.

    None where something about the differences is unusual.

    Examples
    --------
    >>> values = np.random.default_rng(0).pareto(2.1, (3, 1_000))
    >>> means, _ = means_of_differences(values, 1, 0.05, 1.0, 9)
    >>> bool(np.allclose(means, resistant_means(values - values[1], 0.05)))
    True
    """
    if not _is_plain(values, None, delta):
        return None
    how = resistance(values.shape[1], delta, untied_share)
    means, scales = native.means_of_differences(values, reference, min(blocks, values.shape[1]), how)
    others = np.arange(len(values)) != reference
    usual = np.isfinite(means).all() and (scales[others] > LEAST_SCALE).all()
    return (means, scales) if usual else None


def resistance(n: int, delta: float, untied_share: float) -> Resistance:
    """How the resistant mean of n values is found."""
    step, large = step_of_some(n), _resistant_blocks(n, untied_share)
    looked_at = small_blocks(-(-n // step)) if small_blocks(n) else 0
    return Resistance(
        few=scale_blocks(delta),
        looked_at=looked_at,
        step=step,
        large=large,
        small=_small_blocks(n, untied_share),
        width=catoni_width(n, delta),
        spoilt=BEYOND_TAILS,
        near_large=near_lengths(large),
        near_small=_SMALL_BLOCK_LENGTHS,
    )


def _resistant_means(
    values: Array, delta: float, weights: Array | None, untied_share: float, pooled: Array | None
) -> Array:
    n = values.shape[1]
    if pooled is None:
        size = effective_size(values, np.empty(0) if weights is None else weights[weights > 0])
        pooled = MEANS[mean_for("catoni", size, delta)](values, delta=delta, axis=1, weights=weights)
    kept = _near_blocks(np.asarray(pooled), values, weights, _resistant_blocks(n, untied_share))
    return _near_small_blocks(kept, values, weights, untied_share)


def means_of_neighbours(
    samples: Iterable[Array], delta: float, weights: Array | None = None, untied_share: float = 1.0
) -> Array:
    """:func:`resistant_means` of samples that hardly differ: the residuals of close models on the same rows.

    The scale of the first serves all, and where the means of its blocks have nothing to say against Catoni's
    mean, those of the others are not asked.

    Examples
    --------
    >>> values = np.random.default_rng(0).pareto(2.1, 1_000)
    >>> moved = means_of_neighbours([values, values + 0.25], 0.05)
    >>> round(float(moved[1] - moved[0]), 9)
    0.25
    """
    found: list[float] = []
    sigma, spoilt = 0.0, True
    for sample in samples:
        if sigma == 0:
            sigma = _known_scale(sample, delta, weights)
        mean = float(catoni(sample, sigma, delta, weights=weights)) if sigma else None
        kept = resistant_mean(sample, delta, weights, mean, untied_share) if spoilt or mean is None else mean
        spoilt = kept != mean
        found.append(kept)
    return np.array(found)


def _known_scale(sample: Array, delta: float, weights: Array | None) -> float:
    """The scale that Catoni's mean would find; 0 where it needs more values, or there is none."""
    shares = np.empty(0) if weights is None else weights
    if effective_size(sample[None], shares) < values_needed("catoni", delta):
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        sigma = float(guarded_scale(sample[None], shares, scale_blocks(delta))[0])
    return sigma if math.isfinite(sigma) else 0.0


def _near_blocks(
    pooled: Array, values: Array, weights: Array | None, count: int, lengths: float | None = None
) -> Array:
    """Each value, kept near the means of most of so many blocks of its row."""
    if count < 3:
        return pooled
    block_means = _block_means(values, weights, count)
    if np.isfinite(block_means).all():
        return near_majorities(pooled, block_means, lengths)
    pairs = zip(pooled, block_means, strict=True)
    return np.array([within_majority(float(mean), row[np.isfinite(row)], lengths) for mean, row in pairs])


def _near_small_blocks(pooled: Array, values: Array, weights: Array | None, untied_share: float) -> Array:
    """The same for small blocks, unless that would lead away from the median: then most of them are bad."""
    count = _small_blocks(values.shape[1], untied_share)
    kept = _near_blocks(pooled, values, weights, count, _SMALL_BLOCK_LENGTHS)
    for j in np.flatnonzero(kept != pooled):
        middle = float(np.median(values[j]))
        if abs(kept[j] - middle) > abs(pooled[j] - middle):
            kept[j] = pooled[j]
    return kept


def _block_means(values: Array, weights: Array | None, count: int) -> Array:
    """Means of blocks, a row a row; values are assigned in turn, so that sorted ones do no harm."""
    used = values.shape[1] // count * count
    with np.errstate(over="ignore", invalid="ignore"):
        if weights is None:
            values = np.ascontiguousarray(values, dtype=np.float64)
            sums, totals = block_sums(values, np.empty(0), count, np.zeros(len(values)), False)
            return np.asarray(sums / totals)
        blocks = values[:, :used].reshape(len(values), -1, count)
        shares = weights[:used].reshape(-1, count)
        return np.asarray((blocks * shares).sum(axis=1) / shares.sum(axis=0))


def _resistant_blocks(n: int, untied_share: float) -> int:
    count = max(n // _BLOCK_ROWS, min(n // 50, 20))
    return min(count, int(untied_share * n / _UNTIED_ROWS))


def _small_blocks(n: int, untied_share: float) -> int:
    return min(small_blocks(n), int(untied_share * n / _UNTIED_ROWS))
