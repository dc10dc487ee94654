"""Choosing among candidates by robust means of paired differences of held-out losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.core.means import interval, mean_for
from tailproof.core.numerics.m_estimates import effective_size, robust_scale
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.candidates import (
    Candidate,
    LinearFit,
    RegressionTask,
    fit_together,
)
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning


@dataclass(frozen=True)
class Paired:
    """Robust means of loss differences with their intervals; one of each a candidate."""

    difference: Array
    low: Array
    high: Array


def paired(
    losses: Array, reference: int, delta: float, weights: Array | None = None, telling: float = 1.0
) -> Paired:
    """Compare every column of losses with one of them, row by row.

    Two predictions share most of their error, and so do their losses: the difference has much lighter tails
    than either (for squares, (f − g)(f + g − 2y) is linear in the target). Rows on which either loss is NaN
    were not held out and do not count.

    Examples
    --------
    >>> noise = np.random.default_rng(0).pareto(2.1, 1_000)
    >>> compared = paired(np.column_stack([noise, noise + 0.1]), 0, 0.05)
    >>> round(float(compared.difference[1]), 3), bool(compared.low[1] > 0)
    (0.1, True)
    """
    scores = np.zeros((losses.shape[1], 3))
    for j in np.delete(np.arange(losses.shape[1]), reference):
        scores[j] = _with_interval(_gap(losses, j, reference), delta, weights, telling)
    return Paired(*scores.T)


def _gap(losses: Array, j: Any, reference: int) -> Array:
    """Differences row by row; infinite where both losses are."""
    with np.errstate(invalid="ignore"):
        gap = losses[:, j] - losses[:, reference]
    missing = np.isnan(losses[:, j]) | np.isnan(losses[:, reference])
    return np.where(np.isnan(gap) & ~missing, np.inf, gap)


def _with_interval(
    sample: Array, delta: float, weights: Array | None, telling: float
) -> tuple[float, float, float]:
    values, shares = _seen(sample, weights)
    if not np.all(np.isfinite(values)) or values.size < 2:
        return math.inf, math.nan, math.nan
    catoni = interval(values, mean_for("catoni", _size(values, shares), delta), delta, weights=shares)
    centre = resistant_mean(values, delta, shares, float(catoni.estimate), telling)
    half = 0.5 * float(catoni.high - catoni.low)
    return centre, centre - half, centre + half


def _difference(sample: Array, delta: float, weights: Array | None, telling: float) -> float:
    values, shares = _seen(sample, weights)
    if not np.all(np.isfinite(values)):
        return math.inf
    return resistant_mean(values, delta, shares, untied_share=telling)


def _error(sample: Array, weights: Array | None, tuning: Tuning) -> float:
    """Standard error of a mean, from a robust scale."""
    values, shares = _seen(sample, weights)
    known = np.empty(0) if shares is None else shares
    scale = robust_scale(values[None], known, min(tuning.scale_blocks, values.size))
    return float(scale[0]) / math.sqrt(_size(values, shares))


def _seen(sample: Array, weights: Array | None) -> tuple[Array, Array | None]:
    missing = np.isnan(sample)
    if not missing.any():
        return sample, weights
    return sample[~missing], None if weights is None else weights[~missing]


def _size(values: Array, weights: Array | None) -> float:
    return effective_size(values[None], np.empty(0) if weights is None else weights)


@dataclass(frozen=True)
class Choice:
    """What was compared, and which is the model."""

    names: tuple[str, ...]
    best: int
    why: str
    risk: Array
    paired: Paired
    fit: Callable[[RegressionTask], Any]


def choose_candidate(
    linear: Sequence[Candidate], others: Sequence[Candidate], task: RegressionTask
) -> Choice:
    """Blend the linear candidates, then let the blend compete with the others.

    One of the others must be better by more than a standard error; one that was held out once only, and so
    was compared on few rows and by one fit, by the whole of its interval.

    Parameters
    ----------
    linear : sequence of Candidate
        From the most robust to the least: the last of the path is what the blend falls back to.
    others : sequence of Candidate
    task : RegressionTask

    Returns
    -------
    Choice
    """
    if not task.folds:
        return _unvalidated(linear, others, task)
    others = [*(candidate for candidate in linear if not _complete(candidate)), *others]
    linear = [candidate for candidate in linear if _complete(candidate)] or [others.pop(0)]
    losses = [_losses(candidate, task) for candidate in linear]
    # Transposed, so that the losses of one candidate are contiguous.
    weights = blend_weights(
        np.stack(losses).T, _reference(linear), task.delta, task.shares(), task.telling, task.tuning
    )
    blend = _blend(linear, weights)
    names = [candidate.name for candidate in linear]
    field = [*linear, *([] if blend.name in names else [blend]), *others]
    losses += [_losses(candidate, task) for candidate in field[len(linear) :]]
    columns = np.stack(losses).T
    first = [candidate.name for candidate in field].index(blend.name)
    against = paired(columns, first, task.delta, task.shares(), task.telling)
    rivals = range(len(field) - len(others), len(field))
    surely = [_surely(against, columns, j, first, task) for j in rivals]
    best = [first, *rivals][int(np.nanargmin([0.0, *surely]))]
    if best != first:
        against = paired(columns, best, task.delta, task.shares(), task.telling)
    return Choice(
        names=tuple(candidate.name for candidate in field),
        best=best,
        why=_why(linear, weights, field[best], best == first),
        risk=_risk(columns[:, best], task) + against.difference,
        paired=against,
        fit=field[best].fit,
    )


def _surely(against: Paired, losses: Array, j: int, first: int, task: RegressionTask) -> float:
    """Upper limit of how much worse than the first one a rival is; below zero, it is better."""
    if np.isnan(losses[:, j]).any():
        return float(against.high[j])
    return float(against.difference[j]) + _error(_gap(losses, j, first), task.shares(), task.tuning)


def blend_weights(
    losses: Array,
    reference: int,
    delta: float,
    weights: Array | None = None,
    telling: float = 1.0,
    tuning: Tuning = DEFAULT,
) -> Array:
    """Weights of candidates: e^{−2z} for one that is z standard errors worse than the best.

    Where the best is less than two standard errors better than the reference (least squares), the weights
    are drawn towards the reference, in proportion.

    Examples
    --------
    >>> noise = np.random.default_rng(0).standard_normal((1_000, 3))
    >>> np.round(blend_weights(noise + [1.0, 0.0, 2.0], 2, 0.05), 3).tolist()
    [0.0, 1.0, 0.0]
    """
    gaps = [_gap(losses, j, reference) for j in range(losses.shape[1])]
    best = int(np.argmin([_difference(gap, delta, weights, telling) for gap in gaps]))
    z = np.zeros(losses.shape[1])
    for j in np.delete(np.arange(z.size), best):
        gap = _gap(losses, j, best)
        worse = _difference(gap, delta, weights, telling)
        error = _error(gap, weights, tuning) if worse < math.inf else 0.0
        if worse > 0:
            z[j] = worse / error if error > 0 else math.inf
    shares = np.exp(-tuning.blend_sharpness * z)
    trust = min(1.0, z[reference] / tuning.convinced)
    shares *= trust / shares.sum()
    shares[reference] += 1.0 - trust
    shares[shares < tuning.negligible] = 0.0
    return np.asarray(shares / shares.sum())


def _blend(linear: Sequence[Candidate], weights: Array) -> Candidate:
    """The weighted mean of linear models, which is one; a single candidate stays what it is."""
    used = [(float(w), candidate) for w, candidate in zip(weights, linear, strict=True) if w > 0]
    if len(used) == 1:
        return used[0][1]

    def fit(task: RegressionTask) -> LinearFit:
        fits = fit_together([candidate for _, candidate in used], task)
        shares = [w for w, _ in used]
        return LinearFit(
            sum(w * fit.coef for w, fit in zip(shares, fits, strict=True)),
            sum(w * fit.intercept for w, fit in zip(shares, fits, strict=True)),
        )

    held_out = np.sum([w * candidate.held_out for w, candidate in used], axis=0)
    return Candidate(f"blend of {len(used)}", held_out, fit)


def _reference(linear: Sequence[Candidate]) -> int:
    """The first untruncated fit; where there is no path, the last candidate by SGD."""
    plain = [j for j, candidate in enumerate(linear) if candidate.name.startswith("untruncated")]
    return plain[0] if plain else len(linear) - 1


def _unvalidated(linear: Sequence[Candidate], others: Sequence[Candidate], task: RegressionTask) -> Choice:
    best, none = _reference(linear), np.full(len(linear), np.nan)
    dropped = f" or to fit {', '.join(other.name for other in others)} beside it" if others else ""
    rows = f"{task.n} rows" + (f" (by their weights {task.size:.2g})" if task.weights.size else "")
    why = f"Chosen: {linear[best].name}, since {rows} are too few to hold any out{dropped}."
    names = tuple(candidate.name for candidate in linear)
    return Choice(names, best, why, none, Paired(none, none, none), linear[best].fit)


def _complete(candidate: Candidate) -> bool:
    return not np.isnan(candidate.held_out).any()


def _losses(candidate: Candidate, task: RegressionTask) -> Array:
    """Held-out losses; NaN for rows that were not held out."""
    seen = ~np.isnan(candidate.held_out)
    losses = np.full(task.n, np.nan)
    with np.errstate(over="ignore"):
        losses[seen] = task.loss.value(candidate.held_out[seen], task.y[seen])
    return losses


def _risk(losses: Array, task: RegressionTask) -> float:
    seen = ~np.isnan(losses)
    if not np.all(np.isfinite(losses[seen])):
        return math.inf
    return resistant_mean(
        losses[seen], task.delta, task.weights[seen] if task.weights.size else None, untied_share=task.telling
    )


def _why(linear: Sequence[Candidate], weights: Array, winner: Candidate, blended: bool) -> str:
    if not blended:
        return (
            f"Chosen: {winner.name}, with a lower robust mean of paired losses than every linear candidate."
        )
    first = int(np.argmax(weights))
    leader = linear[first].name
    if np.count_nonzero(weights) == 1 and first == _reference(linear):
        return f"Chosen: {leader}, which no other beats on held-out rows."
    if np.count_nonzero(weights) == 1:
        return f"Chosen: {leader}; by a robust estimate of the noise, all others are worse on held-out rows."
    return (
        f"Chosen: a weighted mean of {np.count_nonzero(weights)} linear fits that held-out rows cannot tell "
        f"apart, with most weight ({100 * weights.max():.3g}%) on {leader}."
    )
