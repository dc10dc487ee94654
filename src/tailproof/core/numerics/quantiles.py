"""Order statistics with weights: what means and merges both need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.native.rows import places_outside

# Rounding in a running sum must not decide a tie: half of {.1, .2, .3} is .3, not a bit more.
_ABOVE = 1 + 1e-12
_WELL_ABOVE = 4.0  # times the mean loss: few are, and among them are the largest


def check_weights(weights: object, n: int) -> Array | None:
    """Weights as a float array of length ``n`` (None stays None); bad ones raise ``ValueError``."""
    if weights is None:
        return None
    if np.ma.isMaskedArray(weights):
        raise ValueError("masked weights are not supported: set the weights of absent values to 0")
    checked = np.asarray(weights, dtype=np.float64)
    if checked.shape != (n,):
        raise ValueError(f"weights must be one number per value, shape ({n},); got shape {checked.shape}")
    if not np.all(np.isfinite(checked)) or np.any(checked < 0):
        raise ValueError("weights must be finite and not negative")
    if not np.any(checked):
        raise ValueError("at least one weight must be positive; all of them are zero")
    # A power of two keeps every digit, and sums of weights stay finite.
    return np.ldexp(checked, -int(np.frexp(checked.max())[1]))


def midpoint(a: Array, b: Array) -> Array:
    """Return (a + b) / 2 without overflow where a and b are huge."""
    return a / 2 + b / 2


def weighted_quantiles(values: Array, weights: Array, level: float) -> tuple[Array, Array]:
    """Lower and upper quantile of each row: the first value, from either end, to pass the level.

    Parameters
    ----------
    values : array of shape (..., n)
    weights : array of shape (n,)
        Positive.
    level : float
        Fraction of the weight to pass, in [0, 1/2].

    Returns
    -------
    lower, upper : arrays of shape (...)
        ``lower`` is the smallest value v with weight{u ≤ v} > level·W; ``upper`` is the largest v with
        weight{u ≥ v} > level·W. Both are observed values.
    """
    if values.size == weights.size:
        lower, upper = _quantiles_of_one(values.ravel(), weights, level)
        return np.full(values.shape[:-1], lower), np.full(values.shape[:-1], upper)
    ranks = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, ranks, axis=-1)
    share = weights[ranks]
    lower = _first_past(ordered, share, level)
    return lower, _first_past(ordered[..., ::-1], share[..., ::-1], level)


def _quantiles_of_one(values: Array, weights: Array, level: float) -> tuple[Array, Array]:
    """The same of one row, which takes far fewer calls."""
    ranks = np.argsort(values)
    share = weights[ranks]
    first, last = _passes(share, level), values.size - 1 - _passes(share[::-1], level)
    return values[ranks[first]], values[ranks[last]]


def _passes(share: Array, level: float) -> int:
    """Which running sum is the first to pass the level."""
    total = np.cumsum(share)
    return int(np.argmax(total > level * total[-1] * _ABOVE))


def _first_past(ordered: Array, share: Array, level: float) -> Array:
    total = np.cumsum(share, axis=-1)
    first = np.argmax(total > level * total[..., -1:] * _ABOVE, axis=-1)
    return np.take_along_axis(ordered, first[..., None], axis=-1)[..., 0]


def outer_quantiles(values: Array, weights: Array, level: float) -> tuple[Array, Array]:
    """Lower and upper quantile of each row, as :func:`weighted_quantiles`; no weights mean equal ones."""
    if weights.size:
        return weighted_quantiles(values, weights, level)
    n = values.shape[1]
    rank = int(level * n)
    ordered = np.partition(values, (rank, n - 1 - rank), axis=1)
    return ordered[:, rank], ordered[:, n - 1 - rank]


def weighted_median(values: Array, weights: Array | None = None) -> Array:
    """Median of each row, the midpoint where two values share the middle.

    Examples
    --------
    >>> import numpy as np
    >>> float(weighted_median(np.array([1.0, 2.0, 10.0, 20.0])))
    6.0
    >>> float(weighted_median(np.array([1.0, 2.0, 10.0]), np.array([1.0, 1.0, 5.0])))
    10.0
    """
    if weights is None:
        upper = values.shape[-1] // 2
        parts = np.partition(values, upper, axis=-1)
        if values.shape[-1] % 2:
            return parts[..., upper]
        # One place at a time is far quicker than two.
        return midpoint(parts[..., :upper].max(axis=-1), parts[..., upper])
    return midpoint(*weighted_quantiles(values, weights, 0.5))


def quantiles(values: Array, shares: Sequence[float]) -> list[float]:
    """Quantiles with linear interpolation, as NumPy's, which takes several times as long for few values.

    Examples
    --------
    >>> import numpy as np
    >>> quantiles(np.array([4.0, 1.0, 3.0]), (0.25, 1.0))
    [2.0, 4.0]
    """
    return [_quantile(values, share) for share in shares]


def _quantile(values: Array, share: float) -> float:
    """Between the value at a place and the least of those after it: two places at once take far longer."""
    place = share * (values.size - 1)
    below = min(int(place), max(values.size - 2, 0))
    parts = np.partition(values, below)
    at = float(parts[below])
    after = float(parts[below + 1 :].min()) if place > below else at
    return at + (place - below) * (after - at)


def first_spread(away: Array) -> float:
    """Median of distances from a centre; where most of them are zero, a higher quantile; 0 for hardly any.

    Examples
    --------
    >>> import numpy as np
    >>> first_spread(np.array([0.0, 1.0, 1.0, 2.0, 50.0])), first_spread(np.array([0.0, 0.0, 0.0, 3.0, 3.0]))
    (1.0, 3.0)
    """
    middle = float(weighted_median(away))
    return middle or next((float(size) for size in np.quantile(away, (0.75, 0.9)) if size > 0), 0.0)


def _few(size: int, share: float) -> int:
    return max(1, int(share * size))


def surely_spread(total: float, size: int, largest: float, share: float = 0.001) -> bool:
    """Whether so few losses cannot carry half of all, however they are chosen, by the largest of them.

    Examples
    --------
    >>> surely_spread(100.0, 10, 12.0), surely_spread(100.0, 10, 60.0)
    (True, False)
    """
    return total > 2 * _few(size, share) * largest * (1 + 1e-9)  # rounding of the total decides nothing


def carriers(losses: Array, share: float = 0.001) -> NDArray[np.intp]:
    """Rows that carry half of all losses, the largest first, if they are at most this share of them, or one.

    Examples
    --------
    >>> import numpy as np
    >>> carriers(np.array([1.0, 2.0, 90.0, 3.0])).tolist(), carriers(np.ones(4)).tolist()
    ([2], [])
    """
    if surely_spread(float(losses.sum()), losses.size, float(losses.max(initial=0.0)), share):
        return np.empty(0, dtype=np.intp)
    most = _few(losses.size, share)
    above = np.flatnonzero(losses > _WELL_ABOVE * losses.mean())
    above = above if above.size >= most else np.arange(losses.size)
    return above[_carriers_among(losses[above], most, float(losses.sum()))]


def carriers_of_squares(r: Array, total: float, share: float = 0.001) -> NDArray[np.intp]:
    """:func:`carriers` of squares whose sum is known: those of rows well above the mean are enough.

    Examples
    --------
    >>> import numpy as np
    >>> carriers_of_squares(np.array([1.0, -2.0, 9.0, 3.0]), 95.0).tolist()
    [2]
    """
    limit, most = np.sqrt(_WELL_ABOVE * total / r.size), _few(r.size, share)
    above = places_outside(np.ascontiguousarray(r, dtype=np.float64), -limit, limit)
    if above.size < most:
        return carriers(r * r, share)
    return above[_carriers_among(np.square(r[above]), most, total)]


def _carriers_among(losses: Array, most: int, total: float) -> NDArray[np.intp]:
    """The largest losses that carry half of the total, if they are no more than so many."""
    largest = np.argpartition(losses, losses.size - most)[losses.size - most :]
    largest = largest[np.argsort(-losses[largest], kind="stable")]
    enough = np.flatnonzero(np.cumsum(losses[largest]) >= 0.5 * total)
    return largest[: enough[0] + 1] if enough.size and losses[largest[0]] > 0 else largest[:0]
