"""Means that up to 1% of bad values do not move: of losses, of their differences, of residuals.

Catoni's mean, unless it lies far from what most blocks of the values say, and then those: large blocks, and
small ones, of which most have no bad value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tailproof.core import Array
from tailproof.core.means import MEANS, catoni, catoni_width, mean_for, scale_blocks, values_needed
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
from tailproof.native import m_estimates as native
from tailproof.native.m_estimates import Resistance, block_sums

RARE = 0.05  # of the rows: where fewer are informative, most small blocks would have none of them
_BLOCK_ROWS = 250  # of a resistant mean: with 1 outlying row in 1,000, most blocks have none
_INFORMATIVE_ROWS = 5  # of such a block, on average
_SMALL_BLOCK_LENGTHS = (
    20.0  # Catoni's mean of squared log-normal(1.75) values is 10 away, and they are honest
)


def resistant_mean(
    u: Array,
    delta: float,
    weights: Array | None = None,
    pooled: float | None = None,
    informative_share: float = 1.0,
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
    return float(resistant_means(u[None], delta, weights, informative_share, around)[0])


def resistant_means(
    values: Array,
    delta: float,
    weights: Array | None = None,
    informative_share: float = 1.0,
    pooled: Array | None = None,
) -> Array:
    """Catoni's mean (or ``pooled``) of every row of an (m, n) array, kept near the means of most blocks.

    A few outlying values inflate Catoni's scale, and with it their influence; most blocks have none of them.
    Blocks of 250 are for 1 bad value in 1,000. Blocks of 30 survive 1 in 100, but of a skewed law most have a
    mean below its own: what they say is kept to within 20 lengths of the interval that holds most of them.
    Where few rows are informative about the mean, such as claims among zeros or among small noise, every
    block should hold some of them: ``informative_share`` is their share.

    Examples
    --------
    >>> values = np.random.default_rng(0).pareto(2.1, (2, 1_000))
    >>> singly = [resistant_mean(row, 0.05) for row in values]
    >>> bool(np.allclose(resistant_means(values, 0.05), singly))
    True
    """
    if pooled is not None or not _is_plain(values, weights):
        return _resistant_means(values, delta, weights, informative_share, pooled)
    size = effective_size(values, np.empty(0) if weights is None else weights)
    if size < values_needed("catoni", delta):
        return _resistant_means(values, delta, weights, informative_share, pooled)
    how = resistance(values.shape[1], delta, informative_share)._replace(width=catoni_width(size, delta))
    found = native.resistant_means(values, how, weights)
    # What is not known yet, since something about the values is unusual.
    unusual = np.flatnonzero(np.isnan(found))
    if unusual.size:
        found[unusual] = _resistant_means(values[unusual], delta, weights, informative_share, None)
    return found


def _is_plain(values: Array, weights: Array | None) -> bool:
    """Whether a compiled mean takes the values, if they are enough."""
    plain = values.dtype == np.float64 and values.flags.c_contiguous and values.shape[1] > 0
    return plain and (weights is None or bool(weights.dtype == np.float64 and weights.min() > 0))


def means_of_differences(
    values: Array, reference: int, delta: float, informative_share: float, blocks: int
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
    if not _is_plain(values, None) or values.shape[1] < values_needed("catoni", delta):
        return None
    how = resistance(values.shape[1], delta, informative_share)
    means, scales = native.means_of_differences(values, reference, min(blocks, values.shape[1]), how)
    others = np.arange(len(values)) != reference
    usual = np.isfinite(means).all() and (scales[others] > LEAST_SCALE).all()
    return (means, scales) if usual else None


def resistance(n: int, delta: float, informative_share: float) -> Resistance:
    """How the resistant mean of n values is found."""
    step, large = step_of_some(n), _resistant_blocks(n, informative_share)
    looked_at = small_blocks(-(-n // step)) if small_blocks(n) and informative_share > RARE else 0
    return Resistance(
        few=scale_blocks(delta),
        looked_at=looked_at,
        step=step,
        large=large,
        small=_small_blocks(n, informative_share),
        width=catoni_width(n, delta),
        spoilt=BEYOND_TAILS,
        near_large=near_lengths(large),
        near_small=_SMALL_BLOCK_LENGTHS,
    )


def _resistant_means(
    values: Array, delta: float, weights: Array | None, informative_share: float, pooled: Array | None
) -> Array:
    n = values.shape[1]
    if pooled is None:
        size = effective_size(values, np.empty(0) if weights is None else weights[weights > 0])
        mean = mean_for("catoni", size, delta)
        rare = mean == "catoni" and informative_share <= RARE
        known = _scale_of_rare(values, delta, weights) if rare else {}
        pooled = MEANS[mean](values, delta=delta, axis=1, weights=weights, **known)
    kept = _near_blocks(np.asarray(pooled), values, weights, _resistant_blocks(n, informative_share))
    return near_small_blocks(kept, values, weights, informative_share)


def means_of_neighbours(
    samples: Iterable[Array], delta: float, weights: Array | None = None, informative_share: float = 1.0
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
            sigma = _known_scale(sample, delta, weights, informative_share)
        mean = float(catoni(sample, sigma, delta, weights=weights)) if sigma else None
        if spoilt or mean is None:
            kept = resistant_mean(sample, delta, weights, mean, informative_share)
        else:
            kept = mean
        spoilt = kept != mean
        found.append(kept)
    return np.array(found)


def _known_scale(sample: Array, delta: float, weights: Array | None, informative_share: float) -> float:
    """The scale that Catoni's mean would find; 0 where it needs more values, or there is none."""
    shares = np.empty(0) if weights is None else weights
    if effective_size(sample[None], shares) < values_needed("catoni", delta):
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        find = robust_scale if informative_share <= RARE else guarded_scale
        sigma = float(find(sample[None], shares, scale_blocks(delta))[0])
    return sigma if math.isfinite(sigma) else 0.0


def _scale_of_rare(values: Array, delta: float, weights: Array | None) -> dict[str, Array]:
    """The scale for Catoni's mean where few rows are informative: most small blocks have none of them."""
    shares = np.empty(0) if weights is None else weights
    with np.errstate(over="ignore", invalid="ignore"):
        sigma = robust_scale(values, shares, scale_blocks(delta))
    return {"sigma": sigma} if np.isfinite(sigma).all() else {}


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


def near_small_blocks(pooled: Array, values: Array, weights: Array | None, informative_share: float) -> Array:
    """The same for small blocks, unless that would lead away from the median: then most of them are bad."""
    count = _small_blocks(values.shape[1], informative_share)
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


def _resistant_blocks(n: int, informative_share: float) -> int:
    count = max(n // _BLOCK_ROWS, min(n // 50, 20))
    return min(count, int(informative_share * n / _INFORMATIVE_ROWS))


def _small_blocks(n: int, informative_share: float) -> int:
    return min(small_blocks(n), int(informative_share * n / _INFORMATIVE_ROWS))
