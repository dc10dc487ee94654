"""Difference and ratio of two means when both samples have heavy tails.

Almost all of the variance of a heavy-tailed mean comes from a few values far out, and most of what they say
is luck: *how many* of them fell into a sample is informative, *how large* the largest one is is not. So the
two samples share their tails: every value beyond a threshold is replaced by the mean of all values of both
samples beyond it. The mean of the two samples taken together stays exactly what it was. A cap, in contrast,
moves it: capped means differ by less than the means do.

The difference stays unbiased if what lies beyond the threshold has the same mean in both samples: under the
null hypothesis; if one sample has more such values, but not larger ones; and, for tails that are powers,
P(x > t) ∝ t^(−α), if one sample is a multiple of the other: their excess over a threshold has one law. Where
the values look like such a power, more of them are shared; where tails are light, none are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tailproof.core import Array

TAIL = 6.0  # the TAIL·√M largest of M values that differ make the upper tail, as many the lower one
POWER_TAIL = 10.0  # the same where the tail is a power of the values, so that multiples share it exactly
POWER_DOUBT = 1.5  # standard errors that a tail may be off a power
LARGEST_SHARE = 1 / 8  # of all values, in either tail
WIDER = 1.04  # standard errors, since what is shared is seldom quite the same in both samples
WORTH_SHARING = 0.95  # of Welch's standard error; above, tails are light, and Welch's interval is used
TAILS_DIFFER = 4.0  # standard errors between the mean logarithms beyond the threshold: one chance in 16,000


@dataclass(frozen=True)
class MeanDifference:
    """Two means, their difference, and how sure they are.

    Attributes
    ----------
    means : tuple of float
        Of both samples; of the pairs' two sides, where rows are paired.
    variances : tuple of float
        Squared standard errors of the means.
    covariance : float
        Of the two means: zero unless rows are paired.
    estimate, se : float
        First mean less the second, and its standard error.
    degrees : float
        Degrees of freedom, after Welch and Satterthwaite.
    shared : int
        Values in the tails, whose sizes both samples share.
    """

    means: tuple[float, float]
    variances: tuple[float, float]
    covariance: float
    estimate: float
    se: float
    degrees: float
    shared: int

    def interval(self, delta: float, factor: float = 1.0) -> tuple[float, float]:
        """Ends of the (1 − δ) interval of the difference, ``factor`` times as long as a single look needs."""
        reach = factor * self.se * stats.t.ppf(1 - delta / 2, self.degrees)
        return self.estimate - reach, self.estimate + reach

    def ratio_interval(self, delta: float, factor: float = 1.0) -> tuple[float, float]:
        r"""Ends of the (1 − δ) interval of the ratio of the means, after Fieller.

        All r with (m₁ − r m₂)² ≤ t² (v₁ − 2rc + r² v₂); unbounded where the second mean may be zero.
        """
        t2 = (factor * stats.t.ppf(1 - delta / 2, self.degrees)) ** 2
        (m1, m2), (v1, v2), c = self.means, self.variances, self.covariance
        square, linear, constant = m2**2 - t2 * v2, m1 * m2 - t2 * c, m1**2 - t2 * v1
        if square <= 0:
            return -math.inf, math.inf
        root = math.sqrt(max(linear**2 - square * constant, 0.0))
        return (linear - root) / square, (linear + root) / square


def independent_difference(a: Array, b: Array, wa: Array, wb: Array) -> MeanDifference:
    """Mean of a less that of b, for two independent samples with weights; Welch's where tails are light.

    Parameters
    ----------
    a, b : arrays
    wa, wb : arrays of their sizes
        Positive weights.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = 1.1 * rng.lognormal(0, 1.75, 20_000), rng.lognormal(0, 1.75, 20_000)
    >>> found = independent_difference(a, b, np.ones(20_000), np.ones(20_000))
    >>> welch = np.sqrt(a.var() / a.size + b.var() / b.size)
    >>> bool(found.se < 0.8 * welch)
    True
    """
    found = _shared_tails(a, b, wa, wb)
    plain = _from_means(a, b, wa, wb)
    return found if found.se <= WORTH_SHARING * plain.se else plain


def _shared_tails(a: Array, b: Array, wa: Array, wb: Array) -> MeanDifference:
    values, weights = np.concatenate([a, b]), np.concatenate([wa, wb])
    first = np.arange(values.size) < a.size
    level = float(np.median(values))
    shared, extra = 0, 0.0
    replaced = values.astype(np.float64)
    for side in (1, -1):
        distances = side * (values - level)
        tail = _shared_tail(distances, side * values, first)
        if tail.size < 2:
            continue
        w, far = weights[tail], values[tail]
        mean = float(np.average(far, weights=w))
        replaced[tail] = mean
        shared += tail.size
        # The common mean is itself an estimate; it matters where the tails have different weight.
        gap = w[first[tail]].sum() / wa.sum() - w[~first[tail]].sum() / wb.sum()
        extra += gap**2 * float(np.sum(w**2 * (far - mean) ** 2)) / w.sum() ** 2
    return _from_means(replaced[first], replaced[~first], wa, wb, shared, extra, WIDER if shared else 1.0)


def _from_means(
    a: Array, b: Array, wa: Array, wb: Array, shared: int = 0, extra: float = 0.0, wider: float = 1.0
) -> MeanDifference:
    """Welch's estimate; ``extra`` is added to the squared standard error of the difference."""
    m1, v1, n1 = _weighted_mean(a, wa)
    m2, v2, n2 = _weighted_mean(b, wb)
    v1, v2, extra = (wider**2 * v for v in (v1, v2, extra))
    degrees = _degrees(v1, n1, v2, n2)
    return MeanDifference((m1, m2), (v1, v2), 0.0, m1 - m2, math.sqrt(v1 + v2 + extra), degrees, shared)


def paired_difference(a: Array, b: Array, w: Array) -> MeanDifference:
    """Mean of a − b over rows that belong together; rises and falls share their tails.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> size = rng.lognormal(0, 1.75, 2_000)
    >>> found = paired_difference(size + 0.5, size, np.ones(2_000))
    >>> round(found.estimate, 6), found.se < 1e-12
    (0.5, True)
    """
    gaps = a - b
    level = float(np.median(gaps))
    distances = np.abs(gaps - level)
    tail = _tail(distances)
    replaced = gaps.astype(np.float64)
    if tail.size > 1:
        replaced[tail] = level + np.sign(gaps[tail] - level) * np.average(distances[tail], weights=w[tail])
    estimate, variance, n = _weighted_mean(replaced, w)
    plain = _weighted_mean(gaps, w)
    if variance > WORTH_SHARING**2 * plain[1]:
        tail, (estimate, variance, n) = tail[:0], plain
    # For the ratio: means and variances of both sides, moved so that they differ by the estimate.
    (m1, v1, _), (m2, v2, _) = _weighted_mean(a, w), _weighted_mean(b, w)
    middle, covariance = (m1 + m2) / 2, (v1 + v2 - variance) / 2
    return MeanDifference(
        (middle + estimate / 2, middle - estimate / 2),
        (v1, v2),
        covariance,
        estimate,
        math.sqrt(variance),
        max(n - 1, 1.0),
        int(tail.size) if tail.size > 1 else 0,
    )


def looks_factor(n: float, planned: float, delta: float) -> float:
    r"""How much longer an interval must be that holds at every look, and not only at one.

    The asymptotic confidence sequence of Waudby-Smith and others (2024, "Time-uniform central limit theory"):
    after n of N planned values the interval reaches √((1 + 1/(nρ²)) · log((nρ² + 1)/δ²)) standard errors,
    with ρ² chosen so that it is shortest at N.

    Examples
    --------
    >>> 1.3 < looks_factor(1_000, 1_000, 0.05) < 1.7 < looks_factor(100, 1_000, 0.05) < 2.3
    True
    """
    rho2 = (2 * math.log(1 / delta) + math.log(2 * math.log(1 / delta) + 1)) / planned
    reach = math.sqrt((1 + 1 / (n * rho2)) * math.log((n * rho2 + 1) / delta**2))
    return reach / float(stats.norm.ppf(1 - delta / 2))


def _shared_tail(distances: Array, values: Array, first: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Places of a long tail if it is a power of the values, else of a short one; none if the tails differ."""
    tail = _tail(distances, POWER_TAIL)
    if not _is_power(values[tail]):
        tail = _tail(distances)
    return tail[:0] if _tails_differ(distances[tail], first[tail]) else tail


def _is_power(values: Array) -> bool:
    """Whether log(x/t) is exponential beyond the threshold t, as for P(x > t) ∝ t^(−α): sd and mean agree."""
    least = float(values.min(initial=math.inf))
    if not 0 < least < math.inf:
        return False
    logs = np.log(values / least)
    return bool(abs(logs.std() - logs.mean()) <= POWER_DOUBT / math.sqrt(values.size) * logs.mean())


def _tail(distances: Array, tail: float = TAIL) -> NDArray[np.intp]:
    """Places of the largest distances, beyond a positive threshold.

    Where most values are alike, as those of customers who buy nothing, only the others count: their sizes do
    tell the groups apart, but for the largest.
    """
    differing = int(np.count_nonzero(distances))
    count = math.ceil(tail * math.sqrt(differing))
    count = min(count, int(LARGEST_SHARE * distances.size))
    if count < 2:
        return np.empty(0, dtype=np.intp)
    threshold = np.partition(distances, distances.size - count - 1)[distances.size - count - 1]
    return np.flatnonzero(distances > max(float(threshold), 0.0))


def _tails_differ(distances: Array, first: NDArray[np.bool_]) -> bool:
    """Whether what lies beyond the threshold is larger in one sample, beyond doubt: then it is not shared."""
    logs = np.log(distances)
    a, b = logs[first], logs[~first]
    if min(a.size, b.size) < 2:
        return False
    error = math.sqrt(a.var(ddof=1) / a.size + b.var(ddof=1) / b.size)
    return bool(abs(a.mean() - b.mean()) > TAILS_DIFFER * error)


def _weighted_mean(values: Array, weights: Array) -> tuple[float, float, float]:
    """Mean, its squared standard error, and the effective sample size."""
    total = weights.sum()
    n = float(total**2 / np.sum(weights**2))
    mean = float(np.average(values, weights=weights))
    spread = float(np.sum(weights**2 * (values - mean) ** 2)) / total**2
    return mean, spread * n / max(n - 1, 1e-9), n


def _degrees(v1: float, n1: float, v2: float, n2: float) -> float:
    below = v1**2 / max(n1 - 1, 1e-9) + v2**2 / max(n2 - 1, 1e-9)
    return (v1 + v2) ** 2 / below if below > 0 else n1 + n2 - 2
