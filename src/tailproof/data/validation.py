"""Robust validation on data in pieces: robust means of losses from a few rounds of sums.

A median of means needs the sums of its blocks, Catoni's estimate one round for its scale and one for every
Newton step. A round is a few numbers for each candidate, however many rows there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from tailproof.core import Array
from tailproof.core.lookup import lookup
from tailproof.core.means import half_width, mean_for
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.core.populations import LIMITS, hill_count
from tailproof.core.tails import excess_is_in_doubt, tail_size
from tailproof.core.validate import Validation, widen_intervals
from tailproof.data.sums import Influence, Losses, Moments

Reduce = Callable[[Any], Array]  # sums of a measure over all pieces
Looked = TypeVar("Looked", bound=Losses)
_ROUNDS = 30  # of Newton steps; three are the rule
# Losses by their distance from the centre, in steps of an eighth of a doubling from 2⁻¹⁰ to 2⁵⁴ scales.
_BINS, _STEP, _LOWEST = 512, math.log(2) / 8, -10 * math.log(2)


@dataclass(frozen=True, eq=False, kw_only=True)
class TailMoments(Moments):
    """Moments, and what tells of the tail in the same look at the data: (k, 5·parts + 3·bins + 1).

    For each bin of distances from the centre a count and the sums of their logarithms and squares of these,
    and last how many losses are negative.
    """

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros((len(self.kept), 5 * self.parts + 3 * _BINS + 1))

    def of_model(self, model: int, values: Array) -> Array:
        """Return the sums over the losses of one model."""
        below_zero = np.count_nonzero(values < (0.0 - self.centre[model]) / self.scale[model])
        return np.concatenate([super().of_model(model, values).ravel(), _tail_sums(values), [below_zero]])

    def split(self, sums: Array) -> tuple[Array, Array, Array]:
        """Powers (k, parts, 5), tails (k, bins, 3) and counts of negative losses (k,)."""
        powers, tails, negative = np.split(sums, [5 * self.parts, sums.shape[1] - 1], axis=1)
        return (
            powers.reshape(-1, self.parts, 5),
            tails.reshape(-1, _BINS, 3),
            negative[:, 0],
        )


def _tail_sums(values: Array) -> Array:
    distances = np.abs(values[np.isfinite(values) & (values != 0)])
    logs = np.log(distances)
    bins = np.clip((logs - _LOWEST) / _STEP, 0, _BINS - 1).astype(np.intp)
    weights = (np.ones_like(logs), logs, logs**2)
    sums = [np.bincount(bins, weight, _BINS) for weight in weights]
    return np.column_stack(sums).astype(np.float64).ravel()


def tail_is_in_doubt(tail: Array, n: float) -> bool:
    """Whether the variance may be infinite, as :func:`tailproof.core.tails.variance_is_in_doubt` has it.

    The tail begins at the edge of a bin, the one that leaves most nearly the right number of values.
    """
    above = tail[::-1].cumsum(axis=0)[::-1]
    if above[0, 0] == 0:
        return False
    wanted = tail_size(int(n), int(above[0, 0]))
    start = int(np.argmin(np.where(above[:, 0] > 0, np.abs(above[:, 0] - wanted), np.inf)))
    size, first, second = above[start]
    edge = _LOWEST + start * _STEP
    mean = first / size
    return excess_is_in_doubt(int(n), int(size), mean - edge, second / size - edge * (2 * mean - edge))


def gap_in_tail(tail: Array, n: float) -> float:
    """A distance from the centre in a gap that no tail has, at most 1% of the losses beyond; else infinite.

    What :func:`tailproof.core.populations.beyond_a_gap` says of values, told from counts in bins: of losses
    the gap is the square of one of residuals. One that a tail as heavy as the losses below it has by chance
    is none.
    """
    counts, logs = tail[:, 0], tail[:, 1]
    occupied = np.flatnonzero(counts)
    below, above = occupied[:-1], occupied[1:]
    width = (above - below - 1) * _STEP
    beyond = counts[::-1].cumsum()[::-1][above]
    far = _LOWEST + above * _STEP > 2 * math.log(LIMITS.scales)
    for place in np.flatnonzero(
        far & (width > 2 * math.log(LIMITS.gap)) & (beyond <= LIMITS.target_share * n)
    ):
        first = below[place] + 1
        index = _index_of_bins(counts[:first], logs[:first])
        if width[place] * beyond[place] * index > -math.log(LIMITS.error):
            return math.exp(_LOWEST + first * _STEP)
    return math.inf


def _index_of_bins(counts: Array, logs: Array) -> float:
    """Hill's index of the largest values in bins, a lower limit of it."""
    above = counts[::-1].cumsum()[::-1]
    start = int(np.flatnonzero(above >= hill_count(int(above[0])))[-1])
    excess = float(logs[start:].sum() / above[start]) - (_LOWEST + start * _STEP)
    return (1.0 - 2.0 / math.sqrt(above[start])) / max(excess, 1e-3) if above[start] > 4 else 1.0


@dataclass(frozen=True)
class LossSummary:
    """Of the losses of k candidates: counts, means of parts, and moments about the mean."""

    n: Array
    part_means: Array
    part_squares: Array
    mean: Array
    variance: Array
    fourth: Array

    @property
    def robust_sd(self) -> Array:
        """Root of the median of means of squares about a median of means; else the sample's."""
        centre = weighted_median(self.part_means)
        about = self.part_squares - (2 * self.part_means - centre[:, None]) * centre[:, None]
        variance = weighted_median(np.maximum(about, 0.0))
        return np.sqrt(np.where(variance > 0, variance, self.variance))

    @property
    def upper_sd(self) -> Array:
        """A standard deviation on the safe side, as the intervals of :mod:`tailproof.means` take it."""
        error = np.sqrt(np.maximum(self.fourth - self.variance**2, 0.0) / self.n)
        return np.maximum(self.robust_sd, np.sqrt(self.variance + 2 * error))


def summary(sums: Array) -> LossSummary:
    """Read off sums of powers of shape (k, parts, 5), counts first."""
    counts = np.maximum(sums[:, :, 0], 1.0)
    first, second, third, fourth = (sums[:, :, 1:].sum(axis=1) / sums[:, :, 0].sum(axis=1)[:, None]).T
    return LossSummary(
        n=sums[:, :, 0].sum(axis=1),
        part_means=sums[:, :, 1] / counts,
        part_squares=sums[:, :, 2] / counts,
        mean=first,
        variance=np.maximum(second - first**2, 0.0),
        fourth=fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4,
    )


def _plain(reduce: Reduce, losses: Losses, summary: LossSummary, delta: float) -> Array:
    return summary.mean


def _median_of_means(reduce: Reduce, losses: Losses, summary: LossSummary, delta: float) -> Array:
    return weighted_median(summary.part_means)


def _catoni(reduce: Reduce, losses: Losses, summary: LossSummary, delta: float) -> Array:
    """Newton's method inside a shrinking bracket, for all candidates at once."""
    log_term = 2 * math.log(2 / delta)
    factor = summary.n / log_term * (1 + log_term / (summary.n - log_term))
    theta, width = weighted_median(summary.part_means), summary.robust_sd * np.sqrt(factor)
    width = np.where(np.isfinite(theta) & np.isfinite(width), width, 0.0)
    low, high = np.full_like(theta, -np.inf), np.full_like(theta, np.inf)
    for _ in range(_ROUNDS):
        total, slope = reduce(_as(Influence, losses, theta=theta, width=width)).T
        low, high = np.where(total > 0, theta, low), np.where(total < 0, theta, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            following = np.where(slope > 0, theta + width * total / slope, theta)
            middle = 0.5 * (low + high)
        inside = ((low <= following) & (following <= high)) | ~np.isfinite(middle)
        following = np.where(inside, following, middle)
        moved, theta = np.abs(following - theta), following
        if np.all((moved <= 1e-10 * width) | (width == 0)):
            break
    return theta


# How each mean is made of sums; the others need all losses in one place.
BY_SUMS: dict[str, Callable[[Reduce, Losses, LossSummary, float], Array]] = {
    "catoni": _catoni,
    "median_of_means": _median_of_means,
    "mean": _plain,
}


def validate_by_sums(
    reduce: Reduce, losses: Losses, mean: str, delta: float, *, resistant: bool = False
) -> Validation:
    """Score candidates by a robust mean of their losses (Algorithm 5, third line).

    Parameters
    ----------
    reduce : callable
        Sums a measure over all data.
    losses : Losses
        Candidates, and a rough centre and scale of their losses.
    mean : str
        A name in ``BY_SUMS``; on few rows it falls back to a mean that needs fewer.
    delta : float
    resistant : bool
        Leave out up to 1% of the losses of a candidate, where they lie beyond a gap that no tail has. It
        takes one more look at the data, if there is such a gap.

    Returns
    -------
    Validation
        With the intervals of :func:`tailproof.core.validate.validate_with_safe_intervals`.
    """
    lookup("mean (of data in pieces)", mean, BY_SUMS)
    parts = max(1 if mean == "median_of_means" else 3, math.ceil(-math.log(delta)))
    look = _as(TailMoments, losses, parts=parts)
    powers, tails, negative = look.split(reduce(look))
    cut = np.array([gap_in_tail(tail, n) for tail, n in zip(tails, powers[:, :, 0].sum(axis=1), strict=True)])
    if resistant and np.isfinite(cut).any():
        losses, look = replace(losses, cut=cut), replace(look, cut=cut)
        powers, tails, negative = look.split(reduce(look))
    with np.errstate(invalid="ignore", over="ignore"):
        moments = summary(powers)
        used = mean_for(mean, int(moments.n.min()), delta)
        risk = BY_SUMS[used](reduce, losses, moments, delta)
        spread = moments.upper_sd / np.sqrt(moments.n) * half_width(used, delta)
        at, reach = losses.centre + losses.scale * risk, losses.scale * spread
    # A candidate with a loss that overflowed has infinite risk.
    bad = ~np.isfinite(moments.mean) | ~np.isfinite(at)
    risk, low, high = (np.where(bad, np.inf, values) for values in (at, at - reach, at + reach))
    doubt = [tail_is_in_doubt(tail, n) for tail, n in zip(tails, moments.n, strict=True)]
    plain = Validation(risk, low, high, int(np.argmin(risk)), used)
    return widen_intervals(plain, np.array(doubt), negative == 0, delta)


def _as(kind: type[Looked], losses: Losses, **more: Any) -> Looked:
    known = {field.name: getattr(losses, field.name) for field in fields(Losses)}
    return kind(**known, **more)
