"""Algorithms 1 and 5: train a candidate for each block, then merge or select.

The learner and the engine arrive as arguments; nothing here knows what a candidate is beyond a vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.merge import MERGES, Merged
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.core.partition import Block, slices
from tailproof.core.validate import Validation, validate_with_safe_intervals
from tailproof.native.rows import ends_and_square
from tailproof.native.sum_of_distances import distances as distances_from

MOST_PASSES = 60  # of max_iter="auto"
FAR = 3.0  # majority radii: a candidate farther away is an outlier
PATIENCE = 2  # passes in a row that do not lower the risk end training, where the risk decides
_LEAST_FALL = 1e-3  # of the risk, that counts as one
_HUGE = 1e150  # its square is finite
_DRIFT = 0.03  # passes end when all candidates together move by less than this share of their standard error


class DivergedError(ValueError):
    """At least half of the candidates are not finite."""


@runtime_checkable
class Engine(Protocol):
    """Where candidates are made: runs a function over tasks, in any order; results keep the tasks' order.

    One that says ``at_once``, how many tasks keep it busy, is given several candidates in a task, if the
    learner can take them.
    """

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        """Return ``[function(task) for task in tasks]``."""
        ...


class Learner(Protocol):
    """What makes a candidate out of a block, one pass at a time.

    One that is quicker with several states at a time has ``advance_several`` as well, from list to list, and
    ``vectors``, from list to rows.
    """

    def start(self, block: Block) -> Any:
        """State before the first pass."""
        ...

    def advance(self, state: Any) -> Any:
        """State after one more pass over the block."""
        ...

    def vector(self, state: Any) -> NDArray[np.floating]:
        """The candidate as a vector, in coordinates in which distances mean something."""
        ...


@dataclass(frozen=True)
class TrainedCandidates:
    """k candidates, finite ones only.

    Attributes
    ----------
    states : list
        Of the finite candidates, as the learner keeps them.
    vectors : array of shape (finite candidates, p)
    kept : array of int
        Which blocks they come from.
    passes : int
    converged : bool
        False if an automatic number of passes ran into the cap.
    """

    states: list[Any]
    vectors: Array
    kept: NDArray[np.intp]
    passes: int
    converged: bool


Risk = Callable[[TrainedCandidates], float]


def train(
    learner: Learner,
    blocks: Sequence[Block],
    engine: Engine,
    passes: int | Risk | None,
    on_pass: Callable[[int, list[Any]], None] = lambda number, states: None,
) -> TrainedCandidates:
    """One cheap process per block, run by the engine, pass by pass.

    Parameters
    ----------
    learner, blocks, engine
    passes : int, None or callable
        None: until a pass moves the candidates, as a group, by much less than they differ. Their spread
        is the statistical error, so more passes would buy nothing. The risk of candidates, on other rows:
        until ``PATIENCE`` passes in a row have not lowered it; the candidates are those of the least.
    on_pass : callable
        Told the number of each finished pass, and the states after it.
    """
    states = [learner.start(block) for block in blocks]
    if callable(passes):
        return _while_risk_falls(learner, states, engine, passes, on_pass)
    if passes is not None:
        for number in range(1, passes + 1):
            states = _one_pass(learner, engine, states)
            on_pass(number, states)
        return finite_candidates(learner, states, passes, converged=True)
    start = vectors = _vectors(learner, states)
    for number in range(1, MOST_PASSES + 1):
        states = _one_pass(learner, engine, states)
        before, vectors = vectors, _vectors(learner, states)
        on_pass(number, states)
        if number > 1 and _has_settled(before, vectors, start):
            return finite_candidates(learner, states, number, converged=True)
    return finite_candidates(learner, states, MOST_PASSES, converged=False)


def _one_pass(learner: Learner, engine: Engine, states: list[Any]) -> list[Any]:
    """All states after one more pass, in no more calls than keep the engine busy."""
    several, at_once = getattr(learner, "advance_several", None), getattr(engine, "at_once", None)
    if several is None or at_once is None:
        return engine.run(learner.advance, states)
    groups = [states[part] for part in slices(len(states), min(at_once, len(states)))]
    return list(chain.from_iterable(engine.run(several, groups)))


def _while_risk_falls(
    learner: Learner, states: list[Any], engine: Engine, risk: Risk, on_pass: Callable[[int, list[Any]], None]
) -> TrainedCandidates:
    best, least = None, math.inf
    for number in range(1, MOST_PASSES + 1):
        states = _one_pass(learner, engine, states)
        candidates = finite_candidates(learner, states, number, converged=True)
        on_pass(number, states)
        value = risk(candidates)
        if best is None or least - value > _LEAST_FALL * abs(least):
            best, least = candidates, value
        elif number == best.passes + PATIENCE:
            return replace(best, passes=number)
    return replace(best or candidates, passes=MOST_PASSES, converged=False)


def _vectors(learner: Learner, states: list[Any]) -> Array:
    together = getattr(learner, "vectors", None)
    return np.array([learner.vector(state) for state in states]) if together is None else together(states)


def finite_candidates(learner: Learner, states: list[Any], passes: int, converged: bool) -> TrainedCandidates:
    """Leave out candidates that are not finite; raise if they are half of all or more."""
    vectors = _vectors(learner, states)
    if _surely_finite(vectors):
        return TrainedCandidates(list(states), vectors, np.arange(len(states)), passes, converged)
    finite = is_finite(vectors)
    raise_if_most_diverged(finite)
    kept = np.flatnonzero(finite)
    return TrainedCandidates([states[j] for j in kept], vectors[kept], kept, passes, converged)


def is_finite(vectors: Array) -> Any:
    """Whether candidates are finite, and not so large that their squares overflow."""
    return (np.abs(vectors) < _HUGE).all(axis=-1)


def _surely_finite(vectors: Array) -> bool:
    """Whether the sum of all squares shows it for every candidate, in a tenth of the time."""
    return ends_and_square(vectors.ravel())[2] < 0.5 * _HUGE**2  # half of it: rounding decides nothing


def raise_if_most_diverged(finite: NDArray[np.bool_]) -> None:
    """Raise if half of the candidates are not finite, or more."""
    count = int(finite.sum())
    if count * 2 <= finite.size:
        raise DivergedError(
            f"{finite.size - count} of {finite.size} candidates diverged: use update='implicit' or smaller "
            "steps"
        )


def _has_settled(before: Array, after: Array, start: Array) -> bool:
    """Whether the move that the candidates share is small beside the standard error of their centre.

    The differences between their moves come from the order of the rows: noise, whose share in the mean
    move is subtracted.
    """
    finite = np.isfinite(before).all(axis=1) & np.isfinite(after).all(axis=1)
    moves, points = (after - before)[finite], after[finite]
    k = len(moves)
    if k < 3:
        # Too few to separate noise from drift: compare with their size and their way from the start.
        size, way = np.linalg.norm(points), np.linalg.norm(points - start[finite])
        return bool(np.linalg.norm(moves) <= 1e-2 * min(size, way) + 1e-10 * size)
    shared = weighted_median(moves.T)
    noise = np.median(np.linalg.norm(moves - shared, axis=1))
    spread = np.median(np.linalg.norm(points - weighted_median(points.T), axis=1))
    drift = max(float(shared @ shared) - 1.5 * noise**2 / k, 0.0)
    return bool(drift <= _DRIFT**2 * spread**2 / k)


def merge(candidates: TrainedCandidates, how: str, *, trim: bool = False) -> Merged:
    """Last line of Algorithm 1.

    With ``trim``, candidates more than ``FAR`` majority radii away are left out and the others merged again,
    until none is left: an outlying candidate carries no information about the answer and still biases it.
    """
    combine = MERGES[how]
    points = candidates.vectors
    centre = combine(points)
    while trim and centre.radius > 0:
        near = distances_from(points, centre.point) <= FAR * centre.radius
        if near.all() or near.sum() * 2 <= len(candidates.vectors):
            break
        points = points[near]
        centre = combine(points)
    return centre


def select(
    losses: Sequence[Array], mean: str, delta: float, *, resistant: bool = True, untied_share: float = 1.0
) -> Validation:
    """Third line of Algorithm 5, with intervals that the tails of the losses allow.

    ``resistant`` risks are not moved by up to 1% of bad rows, and are otherwise those of the mean. Where most
    targets are equal, ``untied_share`` of them are not.
    """
    return validate_with_safe_intervals(losses, mean, delta, resistant=resistant, untied_share=untied_share)
