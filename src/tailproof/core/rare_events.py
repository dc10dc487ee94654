"""Rare events: claims among far smaller noise or zeros, the few rows that are informative about the mean.

Errors of measurement look alike. They are fewer, or lie beyond a gap, and befall any row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tailproof.core import Array
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.core.resistant import RARE
from tailproof.native.rows import places_outside

_LOOKED_AT = 2_000  # values for a centre and a scale, of which 3% more or less do not matter
_SCALES = 100.0  # robust scales that rare events are away, at least: below that no gap makes an error either
_DECADE, _FEWER = 10.0, 2.0  # values from a tenth to one, over those beyond: less than that is no tail
_LEAST, _LEAST_SHARE = 15, 0.002  # rare events: one row in a thousand may be an error, and is to do no harm
_ONE_SIDED = 3.0  # standard errors of a fair coin: noise of two sizes lies on both sides, claims on one
_CLIPPED = 3.0  # robust scales of features, so that no few rows decide


def share_of_rare_events(residuals: Array, weights: Array | None = None) -> float:
    """Share of the residuals that are rare events among far smaller ones; 1 where no such thing shows.

    In a tail of index α there are 10^α − 1 times as many values from b/10 to b as beyond b: nine times as
    many or more, if the law has a mean. Where b is 100 robust scales or more and less than twice as many lie
    there as beyond, together at most 5%, those beyond are claims among noise of another size, if they are at
    least fifteen and 0.2%, and lie on one side beyond chance.

    Where rows have weights, so have these shares, and fifteen is Kish's effective number: one event of weight
    fifteen is no more evidence than one. Events are rare if they are few rows or have little weight, and the
    lesser share counts: blocks of rows have to hold some of them, however much they weigh.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.standard_normal(5_000)
    >>> share_of_rare_events(noise + 1e3 * rng.lognormal(size=5_000) * (rng.random(5_000) < 0.01))
    0.0108
    >>> share_of_rare_events(rng.lognormal(0.0, 1.75, 5_000))
    1.0
    """
    n, weights = residuals.size, uneven(weights)
    total = float(n if weights is None else weights.sum())
    values, w, scale = _far_values(residuals, weights)
    sizes = np.abs(values)
    farthest = np.flatnonzero(sizes >= _SCALES * scale)
    if farthest.size < _LEAST:
        return 1.0  # however much they weigh
    farthest = farthest[np.argsort(sizes[farthest])]
    rows, own = farthest.size - np.arange(farthest.size), np.ones(farthest.size) if w is None else w[farthest]
    beyond, squares, one_side = map(_from_each_on, (own, own**2, np.sign(values[farthest]) * own))
    together, count = _weight_from(sizes, w, sizes[farthest] / _DECADE)
    apart = together - beyond < _FEWER * beyond
    apart &= np.abs(one_side) > _ONE_SIDED * np.sqrt(squares)
    apart &= (beyond**2 >= _LEAST * squares) & (beyond >= _LEAST_SHARE * total)
    apart &= (together <= RARE * total) | (count <= RARE * n)
    return float(np.minimum(beyond / total, rows / n)[np.argmax(apart)]) if apart.any() else 1.0


def uneven(weights: Array | None) -> Array | None:
    """Weights that are not all the same; None where they are."""
    return None if weights is None or np.ptp(weights) == 0 else weights


def _from_each_on(values: Array) -> Array:
    """Sums of every value and all that follow it."""
    return np.asarray(np.cumsum(values[::-1])[::-1])


def _weight_from(sizes: Array, weights: Array | None, at: Array) -> tuple[Array, NDArray[np.intp]]:
    """Weight of all values that are no smaller than each given, and how many they are."""
    if weights is None:
        count = sizes.size - np.searchsorted(np.sort(sizes), at)
        return count.astype(np.float64), count
    order = np.argsort(sizes)
    below = np.searchsorted(sizes[order], at)
    return np.append(_from_each_on(weights[order]), 0.0)[below], sizes.size - below


def _far_values(values: Array, weights: Array | None) -> tuple[Array, Array | None, float]:
    """Values less their centre that matter beside rare events; their weights, and the robust scale."""
    step = 1 + values.size // _LOOKED_AT
    few = values[::step]
    middle, scale = _centre_and_scale(few)
    if weights is not None:
        # Claims may be most of the rows, or have most of the weight: noise is what is smaller.
        weighed = _centre_and_scale(few, weights[::step])
        middle, scale = weighed if weighed[1] < scale else (middle, scale)
    near = _SCALES / _DECADE * scale
    far = places_outside(np.ascontiguousarray(values, dtype=np.float64), middle - near, middle + near)
    return values[far] - middle, None if weights is None else weights[far], scale


def _centre_and_scale(values: Array, weights: Array | None = None) -> tuple[float, float]:
    """Median, and median distance to it."""
    middle = float(weighted_median(values, weights))
    return middle, float(weighted_median(np.abs(values - middle), weights))


def least_told_apart(columns: int) -> int:
    """How many rows there must be for features to tell them from others."""
    return _LEAST + 2 * columns


def told_apart(these: Array, some: Array, chance: float) -> bool:
    """Whether features tell some rows from others: errors befall any row, claims some more often than others.

    Student's test of every clipped feature that its mean is that of others, by the larger of the spreads of
    these rows and of others: an indicator that none of these has would have no spread, and one that a few
    have by chance hardly any among others.

    Parameters
    ----------
    these, some : arrays of shape (k, d) and (m, d)
        Scaled features of the rows, and of others at random.
    chance : float
        Of rows at random to be told apart.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> some, these = rng.standard_normal((2_000, 3)), rng.standard_normal((100, 3))
    >>> told_apart(these, some, 0.005), told_apart(these + [0.0, 0.5, 0.0], some, 0.005)
    (False, True)
    """
    these, some = (np.clip(part, -_CLIPPED, _CLIPPED) for part in (these, some))
    spread = np.maximum(these.std(axis=0, ddof=1), some.std(axis=0))
    apart = np.abs(these.mean(axis=0) - some.mean(axis=0))
    errors = np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0) * np.sqrt(len(these))
    limit = -special.stdtrit(len(these) - 1, 0.5 * chance / max(errors.size, 1))
    return bool(np.any(errors > limit))
