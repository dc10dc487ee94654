"""Means of two groups, or more, compared when values are heavy-tailed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tailproof.core import Array
from tailproof.core.differences import (
    MeanDifference,
    independent_difference,
    looks_factor,
    paired_difference,
)
from tailproof.core.means import FEW_VALUES
from tailproof.core.numerics.meaning import check_are_numbers
from tailproof.core.tails import tails
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.reports.pages import number
from tailproof.reports.text import Printable, TextTable

FOLDS = 5  # of the cross-fitted adjustment


@dataclass(frozen=True, repr=False)
class MeansComparison(Printable):
    """Difference and ratio of two means, as :func:`compare_means` found them; prints as a few lines.

    Attributes
    ----------
    difference, low, high : float
        Mean of ``a`` less that of ``b``, and the ends of its (1 − δ) interval.
    ratio, ratio_low, ratio_high : float
        Mean of ``a`` over that of ``b``. The interval is infinite where the mean of ``b`` may be zero; all
        three are NaN where it is zero.
    means : tuple of float
        Of ``a`` and ``b``, with the tails that they share.
    sizes : tuple of int
        Values with positive weight.
    delta : float
        One minus the confidence of each interval.
    shared : int
        Values beyond the threshold, whose sizes both groups share.
    cautions : tuple of str
        Why the interval cannot be trusted; empty where nothing speaks against it.
    """

    difference: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    means: tuple[float, float]
    sizes: tuple[int, int]
    delta: float
    shared: int
    cautions: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        return self.low > 0 or self.high < 0

    def verdict(self, first: str = "the first group", second: str = "the second") -> list[str]:
        """What it means, in sentences that call the groups by these names.

        Examples
        --------
        >>> found = compare_means(np.arange(100.0) + 50, np.arange(100.0))
        >>> found.verdict("new", "old")[0]
        'The mean of new is higher than that of old by 50 (+101%), 95% interval 41.91 to 58.09.'
        """
        percent = f" ({100 * (self.ratio - 1):+.3g}%)".replace("-", "−") if self._has_ratio else ""
        sure = f"{100 * (1 - self.delta):.4g}% interval"
        if self.decided:
            word = "higher" if self.difference > 0 else "lower"
            low, high = sorted([abs(self.low), abs(self.high)])
            sentence = (
                f"The mean of {first} is {word} than that of {second} by {number(abs(self.difference))}"
                f"{percent}, {sure} {number(low)} to {number(high)}."
            )
        else:
            sentence = (
                f"These values cannot tell the mean of {first} from that of {second}: the difference is "
                f"{number(self.difference)}{percent}, {sure} {number(self.low)} to {number(self.high)}."
            )
        return [sentence, *self.cautions]

    @property
    def _has_ratio(self) -> bool:
        return math.isfinite(self.ratio_low) and math.isfinite(self.ratio_high)

    def as_text(self) -> TextTable:
        """The verdict, the ratio and what was shared, a sentence a line."""
        return TextTable([], notes=[*self.verdict(), *self._ratio_said(), *self._shared_said()])

    def _ratio_said(self) -> list[str]:
        if not self._has_ratio:
            return []
        ends = f"{number(self.ratio_low)} to {number(self.ratio_high)}"
        return [f"The ratio of the means is {number(self.ratio)}, with the interval {ends}."]

    def _shared_said(self) -> list[str]:
        if not self.shared:
            return []
        return [
            f"{self.shared:,} values in the tails count with the mean of all of them: how many a group has "
            "is informative, how large the largest is, is luck."
        ]


def compare_means(
    a: ArrayLike,
    b: ArrayLike | Mapping[str, ArrayLike],
    delta: float = 0.05,
    paired: bool = False,
    covariates: Any = None,
    weights: Any = None,
    *,
    planned: int | None = None,
) -> Any:
    """Difference and ratio of two means with calibrated intervals, made for heavy tails.

    Values beyond a high threshold count in both groups, but their sizes are shared
    (:mod:`tailproof.core.differences`): under heavy tails the interval is much shorter than Welch's, under
    normal data as long.

    Parameters
    ----------
    a : array-like of shape (n,)
        Values of the first group.
    b : array-like of shape (m,), or mapping of name to array-like
        Values of the second group, or of several: then ``a`` is compared with each of them, every interval
        at confidence 1 − δ/groups, so that all of them hold together (Bonferroni).
    delta : float
        One minus the confidence.
    paired : bool
        Whether a[i] and b[i] belong together.
    covariates : optional
        What was known of each unit before the experiment, such as its value of an earlier period: a pair of
        arrays (of a's rows, of b's rows), one array if paired, a pair of an array and a mapping for several
        groups. What a cross-fitted :class:`RobustRegressor` predicts from them is subtracted (CUPED), which
        changes no mean and shortens the interval.
    weights : optional
        A pair of arrays, one array if paired, a pair of an array and a mapping for several groups; a value of
        weight zero is as if absent.
    planned : int, optional
        How many values both groups will have in the end. Given, the interval holds at every look at growing
        data, and not only at one chosen beforehand.

    Returns
    -------
    MeansComparison, or a dictionary of them by the names of ``b``

    Notes
    -----
    The difference of the means themselves is estimated, not that of capped means or medians. It is unbiased
    where the values beyond the threshold have the same mean in both groups. A treatment that makes the
    largest values larger, and leaves the others as they are, is underestimated, unless it is large enough to
    be seen in the tails themselves: then they are not shared and the interval is Welch's.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def spend(share): return (rng.random(20_000) < share) * rng.lognormal(0, 1.75, 20_000)
    >>> found = compare_means(spend(0.12), spend(0.10))
    >>> bool(found.low < 0.02 * np.exp(1.75**2 / 2) < found.high), found.shared > 0
    (True, True)
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta}")
    if not isinstance(b, Mapping):
        return _compare(a, b, delta, paired, covariates, weights, planned)
    if not b:
        raise ValueError("compare_means needs at least one group to compare with")
    if paired:
        raise ValueError("paired=True takes two arrays, not a mapping of groups: compare them one by one")
    estimates = {}
    for name, values in b.items():
        known, heavy = (_of_group("covariates", covariates, name), _of_group("weights", weights, name))
        estimates[name] = _compare(a, values, delta / len(b), paired, known, heavy, planned)
    return estimates


def _of_group(what: str, pair: Any, name: str) -> Any:
    if pair is None:
        return None
    first, groups = _pair(what, pair)
    if not isinstance(groups, Mapping) or name not in groups:
        raise ValueError(
            f"{what} of several groups are a pair: those of a, and a mapping with the names of b"
        )
    return first, groups[name]


def _compare(
    a: ArrayLike, b: ArrayLike, delta: float, paired: bool, covariates: Any, weights: Any, planned: int | None
) -> MeansComparison:
    first, second = _values("a", a), _values("b", b)
    if paired and first.size != second.size:
        raise ValueError(f"paired values come in pairs; got {first.size} and {second.size}")
    w1, w2 = _weights(weights, first.size, second.size, paired)
    sizes = (int((w1 > 0).sum()), int((w2 > 0).sum()))
    if min(sizes) < 2:
        raise ValueError("a comparison needs at least 2 values of positive weight in each group")
    # As measured: what covariates predict is no longer equal where values were, and hides how few differ.
    measured: list[Array] = [(first - second)[w1 > 0]] if paired else [first[w1 > 0], second[w2 > 0]]
    if covariates is not None:
        first, second = _adjusted(first, second, w1, w2, covariates, paired)
    first, second, w1, w2 = first[w1 > 0], second[w2 > 0], w1[w1 > 0], w2[w2 > 0]
    if paired:
        return _result(paired_difference(first, second, w1), sizes, delta, measured, planned)
    return _result(independent_difference(first, second, w1, w2), sizes, delta, measured, planned)


def _result(
    estimate: MeanDifference, sizes: tuple[int, int], delta: float, samples: list[Array], planned: int | None
) -> MeansComparison:
    seen = sum(sample.size for sample in samples)
    if planned is not None and planned < seen:
        raise ValueError(f"planned must be at least the {seen} values there are; got {planned}")
    factor = 1.0 if planned is None else looks_factor(seen, planned, delta)
    first, second = estimate.means
    return MeansComparison(
        estimate.estimate,
        *estimate.interval(delta, factor),
        first / second if second else math.nan,
        *(estimate.ratio_interval(delta, factor) if second else (math.nan, math.nan)),
        estimate.means,
        sizes,
        delta,
        estimate.shared,
        tuple(_cautions(samples)),
    )


def _cautions(samples: list[Array]) -> list[str]:
    cautions = []
    fewest = min(sample.size - np.unique(sample, return_counts=True)[1].max() for sample in samples)
    if fewest < FEW_VALUES:
        cautions.append(
            f"Only {fewest} values of a group differ from its most common one: no interval can be trusted."
        )
    # γ ≥ 1 is a tail without a mean.
    if max(tails(sample).moment.low for sample in samples) >= 1:
        cautions.append("The tails are so heavy that the means may not exist: no interval can be trusted.")
    return cautions


def _values(name: str, values: ArrayLike) -> Array:
    check_are_numbers(**{name: values})
    checked = np.asarray(values, dtype=np.float64)
    if checked.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional; got shape {checked.shape}")
    if not np.all(np.isfinite(checked)):
        raise ValueError(f"{name} contains NaN or infinity: remove or replace such values first")
    return checked


def _pair(what: str, pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"{what} must be a pair: those of a's rows and those of b's")
    return pair[0], pair[1]


def _weights(weights: Any, n: int, m: int, paired: bool) -> tuple[Array, Array]:
    if weights is None:
        return np.ones(n), np.ones(m)
    first, second = (weights, weights) if paired else _pair("weights", weights)
    both = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    for size, w in zip((n, m), both, strict=True):
        if w.shape != (size,) or not np.all(np.isfinite(w)) or np.any(w < 0) or not np.any(w > 0):
            raise ValueError("weights must be finite, not negative, not all zero, and one for each value")
    return both


def _adjusted(a: Array, b: Array, wa: Array, wb: Array, covariates: Any, paired: bool) -> tuple[Array, Array]:
    """Values less what covariates predict of them, by models that have not seen them; means do not change."""
    if paired:
        predicted = _cross_fitted(_matrix(covariates, a.size), a - b, wa)
        return a - predicted, b
    known = [
        _matrix(part, n) for part, n in zip(_pair("covariates", covariates), (a.size, b.size), strict=True)
    ]
    if known[0].shape[1] != known[1].shape[1]:
        raise ValueError("covariates of both groups must have the same columns")
    predicted = _cross_fitted(np.concatenate(known), np.concatenate([a, b]), np.concatenate([wa, wb]))
    return a - predicted[: a.size], b - predicted[a.size :]


def _cross_fitted(X: Array, y: Array, weights: Array) -> Array:
    """Predictions of every fold by the others; no search for errors, since what is far counts in a mean."""
    fold, predicted = np.arange(y.size) % FOLDS, np.zeros(y.size)
    for turn in range(FOLDS):
        held_out = fold == turn
        model = RobustRegressor(drop_glitches=False, random_state=0).fit(
            X[~held_out], y[~held_out], sample_weight=weights[~held_out]
        )
        predicted[held_out] = model.predict(X[held_out])
    return predicted - np.average(predicted, weights=weights)


def _matrix(covariates: Any, n: int) -> Array:
    matrix = np.asarray(covariates, dtype=np.float64)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or len(matrix) != n or not np.all(np.isfinite(matrix)):
        raise ValueError(f"covariates must be finite numbers with one row for each of {n} values")
    return matrix
