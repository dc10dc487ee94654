"""Choosing among candidates by robust means of paired differences of held-out losses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.deferred import Make
from tailproof.core.means import Interval, robust_mean
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.core.validate import RARE, paired_differences, row_differences
from tailproof.estimators.robust_regressor.blend import blend_weights, standard_errors
from tailproof.estimators.robust_regressor.candidates import (
    Candidate,
    LinearFit,
    RegressionTask,
    blended,
    fit_together,
)
from tailproof.estimators.robust_regressor.truncation_path import Evidence, stricter_where_rare

_IN_THE_RUNNING = 0.01  # weight of a candidate that held-out rows do not refute
_ABSURD = 100.0  # times the least median of their losses


@dataclass(frozen=True)
class Choice:
    """What was compared, and which is the model.

    ``compared`` makes risk and paired differences of all candidates, for a report, of so many ``numbers``.
    """

    names: tuple[str, ...]
    best: int
    why: str
    compared: Make
    numbers: int
    fit: Callable[[RegressionTask], Any]
    held_out: Array


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
    complete = [not np.isnan(candidate.held_out).any() for candidate in linear]
    others = [
        *(candidate for candidate, all_known in zip(linear, complete, strict=True) if not all_known),
        *others,
    ]
    linear = [candidate for candidate, all_known in zip(linear, complete, strict=True) if all_known]
    linear = linear or [others.pop(0)]
    losses, informative_share = _losses(linear, task), task.informative_share(linear[0].held_out)
    weights = _weights(linear, _beyond_least(linear, losses, task).T, informative_share, task)
    blend = _blend(linear, weights)
    names = [candidate.name for candidate in linear]
    field = [*linear, *([] if blend.name in names else [blend]), *others]
    # Transposed, so that the losses of one candidate are contiguous.
    columns = np.concatenate([losses, _losses(field[len(linear) :], task)]).T
    first = [candidate.name for candidate in field].index(blend.name)
    best = _winner(columns, first, len(others), informative_share, task) if others else first
    return Choice(
        names=tuple(candidate.name for candidate in field),
        best=best,
        why=_why(linear, weights, field[best], best == first),
        compared=functools.partial(_compared, columns, best, task.delta, task.weights, informative_share),
        numbers=columns.size,
        fit=field[best].fit,
        held_out=field[best].held_out,
    )


def _winner(losses: Array, first: int, others: int, informative_share: float, task: RegressionTask) -> int:
    """The first one, or the best of the others, which come last, where it is surely better."""
    against = _paired(losses, first, task.delta, task.shares(), informative_share)
    rivals = range(losses.shape[1] - others, losses.shape[1])
    surely = [_surely(against, losses, j, first, task) for j in rivals]
    return [first, *rivals][int(np.nanargmin([0.0, *surely]))]


def _compared(
    losses: Array, best: int, delta: float, weights: Array, informative_share: float
) -> dict[str, Any]:
    """Risks, and paired differences to the best one, as a report has them."""
    shares = weights if weights.size else None
    against = _paired(losses, best, delta, shares, informative_share)
    risk = _risk(losses[:, best], delta, weights) + against.estimate
    return compared(risk, against)


def compared(risk: Array, against: Interval) -> dict[str, Any]:
    """The same under the names of a report."""
    return {"risk": risk, "difference": against.estimate, "low": against.low, "high": against.high}


def _weights(
    linear: Sequence[Candidate], losses: Array, informative_share: float, task: RegressionTask
) -> Array:
    """Weights of the linear candidates; none for those that were stopped, or whose means are absurd.

    Losses are those beyond a perfect prediction's, so that their ratios have a meaning.
    ``informative_share`` is that of the rows which are informative about the mean.
    """
    fitted = [j for j, candidate in enumerate(linear) if not candidate.stopped] or range(len(linear))
    some = losses if len(fitted) == losses.shape[1] else losses[:, fitted]
    sane = np.array(fitted)[sane_candidates(some, task)]
    tuning = stricter_where_rare(informative_share, task.tuning)
    evidence = Evidence(
        variance=np.array([linear[j].variance for j in sane]),
        conflict=np.array([linear[j].conflict for j in sane]),
    )
    plain = [j for j in range(sane.size) if _untruncated(linear[sane[j]])]
    reference = plain[int(np.argmin(_plain_means(losses[:, sane[plain]], task)))] if plain else sane.size - 1
    weights = np.zeros(len(linear))
    weights[sane] = blend_weights(
        losses[:, sane], reference, task.delta, task.shares(), informative_share, tuning, evidence
    )
    # Most rows know nothing of claims: what they are better off with may be far from the mean.
    return weights if informative_share <= RARE else without_absurd(weights, losses, task)


def without_absurd(weights: Array, losses: Array, task: RegressionTask) -> Array:
    """The weights without candidates that miss most rows by far more than others in the running do.

    Where noise has no variance, held-out losses tell hardly anything apart, and least squares may miss slopes
    by thousands. Where a few rows do tell that it is better, others are not in the running.
    """
    some = losses.T[:, task.folds[0]]
    typical = weighted_median(np.where(np.isnan(some), np.inf, some))
    least = float(np.min(typical[weights >= _IN_THE_RUNNING]))
    absurd = (weights > 0) & (typical > _ABSURD * least) & (least > 0)
    if not absurd.any():
        return weights
    kept = np.where(absurd, 0.0, weights)
    return np.asarray(kept / kept.sum())


def sane_candidates(losses: Array, task: RegressionTask) -> NDArray[np.intp]:
    """Candidates that no plain mean speaks against, over all rows and in the worst fold.

    A robust mean does not notice a few rows with absurd predictions (a direction that one fold has not seen).
    Where noise dominates, plain means of losses are nearly equal, whatever its tails.

    Parameters
    ----------
    losses : array of shape (n, m)
        Held-out losses.
    task : RegressionTask

    Returns
    -------
    array of int
        At least one.
    """
    means = _plain_means(losses, task)
    least = np.min(means)
    if not math.isfinite(least):
        return np.arange(means.size)
    folds = _means_of_folds(losses, task)
    with np.errstate(invalid="ignore", divide="ignore"):
        against = folds / np.nanmin(np.where(np.isfinite(folds), folds, np.nan), axis=1)[:, None]
        worst = np.max(np.where(np.isnan(against), 1.0, against), axis=0)
    sane = (means <= task.tuning.veto_mean * least) & (worst <= task.tuning.veto_fold)
    return np.flatnonzero(sane if sane.any() else means <= least)


def _plain_means(losses: Array, task: RegressionTask) -> Array:
    with np.errstate(over="ignore"):
        if not task.weights.size:
            return np.asarray(losses.mean(axis=0))
        return np.asarray((task.weights / task.weights.sum()) @ losses)


def _means_of_folds(losses: Array, task: RegressionTask) -> Array:
    """Plain means of every fold, a row each: rows in the order of folds, which are then added up in turn."""
    order, sizes = np.concatenate(task.folds), np.array([fold.size for fold in task.folds])
    starts, ordered = np.cumsum(sizes) - sizes, losses.T.take(order, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        if not task.weights.size:
            return np.asarray(np.add.reduceat(ordered, starts, axis=1) / sizes).T
        weights = task.weights[order]
        sums = np.add.reduceat(ordered * weights, starts, axis=1)
        return np.asarray(sums / np.add.reduceat(weights, starts)).T


def _paired(
    losses: Array, reference: int, delta: float, weights: Array | None, informative_share: float
) -> Interval:
    return paired_differences(
        losses, reference, "catoni", delta, weights, ignore_nan=True, untied_share=informative_share
    )


def _surely(against: Interval, losses: Array, j: int, first: int, task: RegressionTask) -> float:
    """Upper limit of how much worse than the first one a rival is; below zero, it is better."""
    if np.isnan(losses[:, j]).any() or not np.isfinite(against.estimate[j]):
        return float(against.high[j])
    gaps, shares = row_differences(losses[:, j], losses[:, first], task.shares(), True)
    return float(against.estimate[j] + standard_errors(gaps[None], shares, task.tuning)[0])


def _blend(linear: Sequence[Candidate], weights: Array) -> Candidate:
    """The weighted mean of linear models, which is one; a single candidate stays what it is."""
    used = [(float(w), candidate) for w, candidate in zip(weights, linear, strict=True) if w > 0]
    if len(used) == 1:
        return used[0][1]

    def fit(task: RegressionTask) -> LinearFit:
        fits = fit_together([candidate for _, candidate in used], task)
        return blended(np.array([w for w, _ in used]), fits)

    held_out = np.sum([w * candidate.held_out for w, candidate in used], axis=0)
    return Candidate(f"blend of {len(used)}", held_out, fit)


def _untruncated(candidate: Candidate) -> bool:
    return candidate.name.startswith("untruncated")


def _unvalidated(linear: Sequence[Candidate], others: Sequence[Candidate], task: RegressionTask) -> Choice:
    plain = [j for j, candidate in enumerate(linear) if _untruncated(candidate)]
    best, none = plain[0] if plain else len(linear) - 1, np.full(len(linear), np.nan)
    dropped = f" or to fit {', '.join(other.name for other in others)} beside it" if others else ""
    rows = f"{task.n} rows" + (f" (by their weights {task.size:.2g})" if task.weights.size else "")
    why = f"Chosen: {linear[best].name}, since {rows} are too few to hold any out{dropped}."
    names = tuple(candidate.name for candidate in linear)
    nothing = functools.partial(compared, none, Interval(none, none, none))
    return Choice(names, best, why, nothing, 0, linear[best].fit, np.full(task.n, np.nan))


def _losses(candidates: Sequence[Candidate], task: RegressionTask) -> Array:
    """Held-out losses, a row a candidate; NaN for rows that were not held out."""
    held_out = np.array([candidate.held_out for candidate in candidates]).reshape(-1, task.n)
    with np.errstate(over="ignore"):
        losses = task.loss.value(held_out, task.y)
    if np.isnan(held_out.sum()):
        losses[np.isnan(held_out)] = np.nan
    return losses


def _beyond_least(candidates: Sequence[Candidate], losses: Array, task: RegressionTask) -> Array:
    """Losses less those of perfect predictions: for the log link half a deviance, of targets of mean one."""
    if task.loss.link == "identity":
        return losses
    unit = float(np.mean(task.y)) or 1.0
    predicted = np.array([candidate.held_out for candidate in candidates]) - math.log(unit)
    y = task.y / unit
    with np.errstate(over="ignore"):
        return np.maximum(task.loss.value(predicted, y) - task.loss.least(y), 0.0)


def _risk(losses: Array, delta: float, weights: Array) -> float:
    """Catoni's mean of held-out losses, which is what scorers and comparisons call a risk."""
    seen = ~np.isnan(losses)
    if not np.all(np.isfinite(losses[seen])):
        return math.inf
    return robust_mean(losses[seen], delta, weights[seen] if weights.size else None)


def _why(linear: Sequence[Candidate], weights: Array, winner: Candidate, blended: bool) -> str:
    if not blended:
        return (
            f"Chosen: {winner.name}, with a lower robust mean of paired losses than every linear candidate."
        )
    leader = linear[int(np.argmax(weights))]
    if np.count_nonzero(weights) == 1 and _untruncated(leader):
        return f"Chosen: {leader.name}, which no other beats on held-out rows."
    if np.count_nonzero(weights) == 1:
        return f"Chosen: {leader.name}; by a robust estimate of the noise, all others are worse."
    return (
        f"Chosen: a weighted mean of {np.count_nonzero(weights)} linear fits that held-out rows cannot tell "
        f"apart, with most weight ({100 * weights.max():.3g}%) on {leader.name}."
    )
