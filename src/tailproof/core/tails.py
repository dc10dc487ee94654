"""How heavy a tail is: Hill's estimate, the moment estimate, and plainer signs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailproof.core import Array
from tailproof.core.numerics.meaning import check_are_numbers

LIGHT, HEAVY, INFINITE, UNKNOWN = "light", "heavy", "variance may be infinite", "unknown"
VERDICTS = [UNKNOWN, LIGHT, HEAVY, INFINITE]  # from harmless to worst
_LEAST = 50  # values below which there is no estimate
_LEAST_TAIL = 10  # and largest distances
# γ of the squares and products of normal values comes out near 0.07 at n = 5,000: no reason for alarm.
_HARMLESS = 0.1
_VARIANCE = 0.5  # γ from which the variance is infinite
_BOUNDED = -1.0  # the γ of a uniform law; ties at the top give no estimate, and no tail
_Z = 1.645  # 90% intervals: 5% on either side
_PATH = 40  # tail sizes in the stability path
_BLOCKS = 50  # block means to look at
_NORMAL_IQR = 1.349  # interquartile range of a standard normal law


@dataclass(frozen=True)
class TailIndex:
    """Estimate of γ, one over the tail index α, with its 90% interval; ``P(|u| > x) ≈ x^(−1/γ)``.

    γ ≤ 0 is a tail lighter than any power; moments of order 1/γ and more are infinite.
    """

    gamma: float
    low: float
    high: float

    @property
    def alpha(self) -> float:
        """The tail index, infinite for a tail lighter than any power."""
        return 1 / self.gamma if self.gamma > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Tail:
    """What :func:`tails` found.

    Attributes
    ----------
    n : int
    tail_size : int
        Largest distances from the median that the estimates use.
    hill, moment : TailIndex
        Hill's estimate takes for granted that the tail is a power; the moment estimate (Dekkers, Einmahl and
        de Haan) does not, and decides.
    path_sizes, path_hill, path_moment : arrays
        The estimates at other tail sizes: a plateau means that they can be trusted.
    max_to_sum : array of shape (4,)
        Largest ``|u|^p`` as a share of the sum, for p = 1..4: near zero where the p-th moment is finite and
        the sample is large enough for it.
    block_spread : float
        Standard deviation of 50 block means, over what their middle half says it would be if they were
        normal: 1 where the mean of n/50 values is as good as normal, much more where single values carry it.
    zeros : float
        Share of exact zeros.
    verdict : str
        "light", "heavy", "variance may be infinite", or "unknown" with too few values.
    """

    n: int
    tail_size: int
    hill: TailIndex
    moment: TailIndex
    path_sizes: NDArray[np.intp]
    path_hill: Array
    path_moment: Array
    max_to_sum: Array
    block_spread: float
    zeros: float
    verdict: str


def tails(values: ArrayLike) -> Tail:
    """Judge the tails of a sample, both sides together, by distances from its median.

    With the largest ⌈n^(2/3)⌉ distances (fewer where many values are equal to the median), the verdict is
    "heavy" where γ exceeds 0.1 beyond its error and "variance may be infinite" where moreover γ ≥ 1/2.

    Parameters
    ----------
    values : array-like of shape (n,)
        Finite.

    Returns
    -------
    Tail

    Notes
    -----
    A log-normal law has all its moments, and still looks like a power law in any sample of ordinary size:
    with σ = 1.75 and 5,000 values, like one without variance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> tails(rng.standard_normal(5_000)).verdict, tails(rng.pareto(3, 5_000)).verdict
    ('light', 'heavy')
    """
    check_are_numbers(values=values)
    u = _check(values)
    distances = np.abs(u - np.median(u))
    positive = int(np.count_nonzero(distances))
    size = tail_size(u.size, positive)
    sizes = _path_sizes(size, positive)
    largest = _largest(distances, max(int(sizes[-1]), size) + 1)
    path = np.array([_estimates(largest, at) for at in sizes]).reshape(-1, 2)
    hill, index = _estimates(largest, size)[0], _moment_index(largest, size)
    return Tail(
        n=u.size,
        tail_size=size,
        hill=TailIndex(hill, *_around(hill, hill / math.sqrt(size))),
        moment=index,
        path_sizes=sizes,
        path_hill=path[:, 0],
        path_moment=path[:, 1],
        max_to_sum=_max_to_sum(u),
        block_spread=_block_spread(u),
        zeros=float(np.mean(u == 0)),
        verdict=_verdict(index, u.size, size, bool(largest[0] > 0)),
    )


def variance_is_in_doubt(values: ArrayLike) -> bool:
    """Whether :func:`tails` would say "variance may be infinite", at a fraction of its cost.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> variance_is_in_doubt(rng.exponential(size=5_000)), variance_is_in_doubt(rng.pareto(1.5, 5_000))
    (False, True)
    """
    u = _check(values)
    distances = np.abs(u - np.median(u))
    size = tail_size(u.size, int(np.count_nonzero(distances)))
    largest = _largest(distances, size + 1)
    return _verdict(_moment_index(largest, size), u.size, size, bool(largest[0] > 0)) == INFINITE


def excess_is_in_doubt(n: int, size: int, first: float, second: float) -> bool:
    """``variance_is_in_doubt`` from two moments of the log excesses, for losses that exist only as sums.

    Sums over pieces of data give these, where the values themselves never come together.
    """
    return _verdict(_index(_from_excess(first, second)[1], size), n, size, varies=size > 0) == INFINITE


def _check(values: ArrayLike) -> Array:
    u = np.asarray(values, dtype=np.float64)
    if u.ndim != 1 or u.size == 0:
        raise ValueError(f"values must be one-dimensional and not empty; got shape {u.shape}")
    if not np.all(np.isfinite(u)):
        kind = "NaN" if np.isnan(u).any() else "infinity"
        raise ValueError(f"values contain {kind}: remove or replace such values first")
    # Squares and fourth powers must stay in range.
    return u / (np.abs(u).max() or 1.0)


def _verdict(index: TailIndex, n: int, size: int, varies: bool) -> str:
    if n < _LEAST or (varies and size < _LEAST_TAIL):
        return UNKNOWN
    if not varies or index.low <= _HARMLESS:
        return LIGHT
    return INFINITE if index.gamma >= _VARIANCE else HEAVY


def tail_size(n: int, positive: int) -> int:
    """How many of n distances make the tail, where so many are not zero."""
    return max(2, min(math.ceil(n ** (2 / 3)), positive // 4))


def _largest(distances: Array, count: int) -> Array:
    """The largest ones in falling order."""
    if count < distances.size:
        distances = np.partition(distances, distances.size - count)[distances.size - count :]
    return np.sort(distances)[::-1]


def _moment_index(largest: Array, size: int) -> TailIndex:
    return _index(_estimates(largest, size)[1], size)


def _index(moment: float, size: int) -> TailIndex:
    return TailIndex(moment, *_around(moment, math.sqrt(_moment_variance(moment) / size)))


def _path_sizes(size: int, positive: int) -> NDArray[np.intp]:
    last = max(min(4 * size, positive - 1), 2)
    return np.unique(np.geomspace(max(2, min(10, last)), last, _PATH).astype(np.intp))


def _estimates(distances: Array, size: int) -> tuple[float, float]:
    """Hill's and the moment estimate of γ from the largest distances, in falling order."""
    if distances.size <= size or distances[size] <= 0:
        return 0.0, _BOUNDED
    excess = np.log(distances[:size]) - np.log(distances[size])
    return _from_excess(float(excess.mean()), float((excess**2).mean()))


def _from_excess(first: float, second: float) -> tuple[float, float]:
    """Both estimates from the mean and the mean square of the log excesses over the threshold."""
    if second == 0 or first * first >= second * (1 - 1e-12):
        return first, _BOUNDED
    return first, max(first + 1 - 0.5 / (1 - first * first / second), _BOUNDED)


def _moment_variance(gamma: float) -> float:
    """Variance of the moment estimate times the tail size (Dekkers, Einmahl and de Haan, 1989)."""
    if gamma >= 0:
        return 1 + gamma**2
    a, b, c = 1 - 2 * gamma, 1 - 3 * gamma, 1 - 4 * gamma
    return (1 - gamma) ** 2 * a * (4 - 8 * a / b + (5 - 11 * gamma) * a / (b * c))


def _around(estimate: float, error: float) -> tuple[float, float]:
    return estimate - _Z * error, estimate + _Z * error


def _max_to_sum(u: Array) -> Array:
    sizes = np.abs(u)
    return np.array([float((sizes**p).max() / (sizes**p).sum()) if sizes.any() else 0.0 for p in range(1, 5)])


def _block_spread(u: Array) -> float:
    if u.size < 4 * _BLOCKS:
        return math.nan
    # Dealt in turn: data that come in an order must not make blocks differ.
    means = np.array([u[start::_BLOCKS].mean() for start in range(_BLOCKS)])
    low, high = np.quantile(means, [0.25, 0.75])
    return float(means.std() / ((high - low) / _NORMAL_IQR)) if high > low else math.nan
