"""What no candidate may be: absurd in its predictions, or surely worse than a constant."""

from __future__ import annotations

import math

import numpy as np

from tailproof.core import Array
from tailproof.core.numerics.m_estimates import robust_scale, small_blocks
from tailproof.core.validate import means_of_groups, resistant_mean

_ORDERS = 100.0  # times the range of the targets: no prediction of a mean is so far out


def leaves_range(predictions: Array, y: Array) -> bool:
    """Whether more than a tenth of some predictions lie orders of magnitude outside the range of the targets.

    Examples
    --------
    >>> y = np.random.default_rng(0).standard_normal(100)
    >>> leaves_range(2 * y, y), leaves_range(1e4 * y, y), leaves_range(np.append(y, 1e9), y)
    (False, True, False)
    """
    low, high = np.quantile(y, (0.01, 0.99))
    reach = _ORDERS * (high - low or float(np.ptp(y)))
    with np.errstate(invalid="ignore"):
        outside = (predictions < low - reach) | (predictions > high + reach)
    return bool(reach > 0 and np.mean(outside) > 0.1)


def surely_greater(losses: Array, others: Array, untied_share: float = 1.0) -> bool:
    """Whether the resistant mean of paired differences is above zero by more than three standard errors.

    ``untied_share`` is that of :func:`tailproof.core.validate.validate_with_safe_intervals`.

    Examples
    --------
    >>> losses = np.random.default_rng(0).exponential(size=500)
    >>> surely_greater(losses + 0.5, losses[::-1]), surely_greater(losses, losses[::-1])
    (True, False)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = means_of_groups(losses - others, untied_share)
    if not np.isfinite(gaps).all():
        return bool(np.isfinite(others).all())
    spread = float(robust_scale(gaps[None], np.empty(0), max(small_blocks(gaps.size), 3))[0])
    return resistant_mean(gaps, 0.05) > 3.0 * spread / math.sqrt(gaps.size)
