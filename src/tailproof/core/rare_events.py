"""Rare events: claims among far smaller noise or zeros, the few rows that are informative about the mean.

Errors of measurement look alike. They are fewer, or lie beyond a gap, and befall any row.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from tailproof.core import Array
from tailproof.core.resistant import RARE

_LOOKED_AT = 2_000  # values for a centre and a scale, of which 3% more or less do not matter
_SCALES = 100.0  # robust scales that rare events are away, at least: below that no gap makes an error either
_DECADE, _FEWER = 10.0, 2.0  # values from a tenth to one, over those beyond: less than that is no tail
_LEAST, _LEAST_SHARE = 15, 0.002  # rare events: one row in a thousand may be an error, and is to do no harm
_ONE_SIDED = 3.0  # standard errors of a fair coin: noise of two sizes lies on both sides, claims on one
_CLIPPED = 3.0  # robust scales of features, so that no few rows decide


def share_of_rare_events(residuals: Array) -> float:
    """Share of the residuals that are rare events among far smaller ones; 1 where no such thing shows.

    In a tail of index α there are 10^α − 1 times as many values from b/10 to b as beyond b: nine times as
    many or more, if the law has a mean. Where b is 100 robust scales or more and less than twice as many lie
    there as beyond, together at most 5%, those beyond are claims among noise of another size, if they are at
    least fifteen and 0.2%, and lie on one side beyond chance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.standard_normal(5_000)
    >>> share_of_rare_events(noise + 1e3 * rng.lognormal(size=5_000) * (rng.random(5_000) < 0.01))
    0.0108
    >>> share_of_rare_events(rng.lognormal(0.0, 1.75, 5_000))
    1.0
    """
    values, scale = _far_values(residuals)
    far, places = np.abs(values), np.arange(values.size)
    beyond, between = far.size - places, places - np.searchsorted(far, far / _DECADE)
    one_side = np.abs(np.cumsum(np.sign(values)[::-1])[::-1])
    apart = (far >= _SCALES * scale) & (between < _FEWER * beyond)
    apart &= one_side > _ONE_SIDED * np.sqrt(beyond)
    apart &= beyond >= max(_LEAST, _LEAST_SHARE * residuals.size)
    apart &= beyond + between <= RARE * residuals.size
    return float(beyond[np.argmax(apart)] / residuals.size) if apart.any() else 1.0


def _far_values(values: Array) -> tuple[Array, float]:
    """Values less their centre that matter beside rare events, the nearest first; and a robust scale."""
    few = values[:: 1 + values.size // _LOOKED_AT]
    middle = float(np.median(few))
    scale = float(np.median(np.abs(few - middle)))
    away = values - middle
    far = away[np.abs(away) > _SCALES / _DECADE * scale]
    return far[np.argsort(np.abs(far))], scale


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
