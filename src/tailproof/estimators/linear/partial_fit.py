"""k running candidates to which the rows of a stream are dealt: what partial_fit keeps between calls."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.algorithms import TrainedCandidates, finite_candidates
from tailproof.core.partition import Block, Dealer, seed_sequence
from tailproof.core.sgd import SGDLearner, State

_FORGET = 2  # averages weigh update t as t^_FORGET, so that the start is forgotten


Rows = tuple[Any, Array, Array]  # X, y and weights, which may be empty


def joined(first: Rows, second: Rows) -> Rows:
    """Rows of both; where only some have weights, the others count once.

    Examples
    --------
    >>> one, none = np.ones(1), np.empty(0)
    >>> joined((np.ones((1, 2)), one, none), (np.ones((1, 2)), one, 3 * one))[2].tolist()
    [1.0, 3.0]
    """
    both = [first[0], second[0]]
    X: Any = sparse.vstack(both).tocsr() if any(map(sparse.issparse, both)) else np.vstack(both)
    y, weights = np.concatenate([first[1], second[1]]), first[2]
    if first[2].size or second[2].size:
        weights = np.concatenate(
            [part[2] if part[2].size else np.ones(part[1].size) for part in (first, second)]
        )
    return X, y, weights


class Stream:
    """Candidates, the dealer of rows, and (for RV) the rows held out so far.

    Parameters
    ----------
    learner : SGDLearner
        Settings and start; its data are those of the first call.
    k, why : int, str
        Number of candidates, and what decided it.
    seed : SeedSequence
    early : tuple or None
        All rows so far, where they are too few to settle on scales and k.
    """

    def __init__(
        self, learner: SGDLearner, k: int, why: str, seed: np.random.SeedSequence, early: Rows | None = None
    ) -> None:
        self.why, self.seed, self.early, self._began_with = why, seed, early, learner.y.size
        # Rows so far, how many went to each candidate, and the time that they took.
        self.seen, self.dealt, self.seconds = 0, np.zeros(k, dtype=np.intp), dict[str, float]()
        dealing, tossing, *own = seed_sequence(seed).spawn(k + 2)
        nothing = np.empty(0, dtype=np.intp)
        self.dealer, self.coin = Dealer(k, dealing), np.random.default_rng(tossing)
        self.states = [learner.start(Block(j, nothing, child)) for j, child in enumerate(own)]
        self.held_out: Rows | None = None
        self._settings = replace(learner, X=learner.X[:0], y=learner.y[:0], weights=learner.weights[:0])

    @property
    def has_doubled(self) -> bool:
        """Whether the rows so far are twice those that the candidates began with."""
        return self.early is not None and self.early[1].size >= 2 * self._began_with

    def with_early(self, rows: Rows) -> Stream:
        """A copy that remembers more rows; the candidates are shared until they are fed."""
        found = copy.copy(self)
        found.early = joined(self.early, rows) if self.early is not None else None
        return found

    def learner_on(self, X: Any, y: Array, weights: Array) -> SGDLearner:
        """The learner with the data of one call."""
        return replace(self._settings, X=X, y=y, weights=weights)

    def feed(self, learner: SGDLearner, rows: NDArray[np.intp]) -> TrainedCandidates:
        """Deal the rows, let every candidate take its share, and return those that are finite."""
        dealt = self.dealer.deal(rows.size)
        states = [_more_rows(learner, state, rows[dealt == j]) for j, state in enumerate(self.states)]
        # Candidates that have seen no row yet have nothing to say.
        begun = [state for state in states if state.updates] or states[:1]
        candidates = finite_candidates(learner, begun, passes=1, converged=True)
        self.states, self.seen = states, self.seen + learner.y.size
        self.dealt = self.dealt + np.bincount(dealt, minlength=len(states))
        return replace(candidates, kept=np.array([begun[j].block.index for j in candidates.kept]))

    def clock(self, **seconds: float) -> None:
        """Add the time that one call took."""
        self.seconds = {stage: self.seconds.get(stage, 0.0) + spent for stage, spent in seconds.items()}

    def keep(self, X: Any, y: Array, weights: Array, at_most: int) -> None:
        """Remember rows to validate on, the latest ``at_most``."""
        if y.size:
            every = (X, y, weights) if self.held_out is None else joined(self.held_out, (X, y, weights))
            self.held_out = (every[0][-at_most:], every[1][-at_most:], every[2][-at_most:])


def _more_rows(learner: SGDLearner, state: State, rows: NDArray[np.intp]) -> State:
    if rows.size == 0:
        return state
    block = Block(state.block.index, rows, state.block.seed)
    after = learner.advance(replace(state, block=block, passes=0))
    new = after.updates - state.updates
    share = (1 + _FORGET) * new / (after.updates + _FORGET * new)
    return replace(
        after,
        mean_coef=(1 - share) * state.mean_coef + share * after.mean_coef,
        mean_intercept=(1 - share) * state.mean_intercept + share * after.mean_intercept,
    )
