"""k running candidates to which the rows of a stream are dealt: what partial_fit keeps between calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.boost import Candidates, finite_candidates
from tailproof.learners.sgd import SGDLearner, State
from tailproof.partition import Dealer
from tailproof.types import Block

Array = NDArray[np.floating]
_FORGET = 2  # averages weigh update t as t^_FORGET, so that the start is forgotten


class Stream:
    """Candidates, the dealer of rows, and (for RV) the rows held out so far.

    Parameters
    ----------
    learner : SGDLearner
        Settings and start; its data are those of the first call.
    k : int
    seed : SeedSequence
    """

    def __init__(self, learner: SGDLearner, k: int, seed: np.random.SeedSequence) -> None:
        dealing, tossing, *own = seed.spawn(k + 2)
        nothing = np.empty(0, dtype=np.intp)
        self.dealer, self.coin = Dealer(k, dealing), np.random.default_rng(tossing)
        self.states = [learner.start(Block(j, nothing, child)) for j, child in enumerate(own)]
        self.held_out: list[tuple[Any, Array, Array]] = []
        self._settings = replace(learner, X=learner.X[:0], y=learner.y[:0], weights=learner.weights[:0])

    def learner_on(self, X: Any, y: Array, weights: Array) -> SGDLearner:
        """The learner with the data of one call."""
        return replace(self._settings, X=X, y=y, weights=weights)

    def feed(self, learner: SGDLearner, rows: NDArray[np.intp]) -> Candidates:
        """Deal the rows, let every candidate take its share, and return those that are finite."""
        dealt = self.dealer.deal(rows.size)
        states = [_more_rows(learner, state, rows[dealt == j]) for j, state in enumerate(self.states)]
        # Candidates that have seen no row yet have nothing to say.
        begun = [state for state in states if state.updates] or states[:1]
        candidates = finite_candidates(learner, begun, passes=1, converged=True)
        self.states = states
        return candidates

    def keep(self, X: Any, y: Array, weights: Array, at_most: int) -> None:
        """Remember rows to validate on, the latest ``at_most`` or a batch more."""
        self.held_out.append((X, y, weights))
        while sum(part[1].size for part in self.held_out[1:]) >= at_most:
            self.held_out.pop(0)


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
