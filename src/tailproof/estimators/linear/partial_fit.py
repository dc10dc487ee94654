"""partial_fit: k running candidates to which the rows of a stream are assigned, batch by batch."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array, automatic
from tailproof.core.algorithms import TrainedCandidates, finite_candidates
from tailproof.core.losses import Loss
from tailproof.core.partition import Block, Dealer, seed_sequence
from tailproof.core.sgd import SGDLearner, State
from tailproof.core.theory import blocks_for
from tailproof.estimators.inputs import LinearModel, rows_with_weight, seed_from_random_state
from tailproof.estimators.screening import screen_for
from tailproof.reports.fit_report import Clock

_FORGET = 2  # averages weigh update t as t^_FORGET, so that the start is forgotten
_MOST_EARLY_ROWS = 2_000  # of a stream that has not settled on scales and blocks yet
_KEPT_FOR_VALIDATION = 20_000  # rows that are kept to score candidates on


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one call or of several; no weights mean that all count the same."""

    X: Any
    y: Array
    weights: Array
    loss: Loss
    outputs: int

    def take(self, rows: Any) -> Batch:
        """Some of the rows."""
        weights = self.weights[rows] if self.weights.size else self.weights
        return replace(self, X=self.X[rows], y=self.y[rows], weights=weights)

    def joined(self, other: Batch) -> Batch:
        """Rows of both; where only some have weights, the others count once.

        Examples
        --------
        >>> from tailproof.losses import LOSSES
        >>> plain = Batch(np.ones((1, 2)), np.ones(1), np.empty(0), LOSSES["squared_error"], 1)
        >>> plain.joined(replace(plain, weights=np.array([3.0]))).weights.tolist()
        [1.0, 3.0]
        """
        both = [self.X, other.X]
        X: Any = sparse.vstack(both).tocsr() if any(map(sparse.issparse, both)) else np.vstack(both)
        weights = self.weights
        if self.weights.size or other.weights.size:
            parts = [part.weights if part.weights.size else np.ones(part.y.size) for part in (self, other)]
            weights = np.concatenate(parts)
        return replace(self, X=X, y=np.concatenate([self.y, other.y]), weights=weights)


class Stream:
    """Candidates, the dealer of rows, and (for RV) the rows held out so far.

    Parameters
    ----------
    learner : SGDLearner
        Settings and start; its data are those of the first call.
    k, why : int, str
        Number of candidates, and what decided it.
    seed : SeedSequence
    early : Batch or None
        All rows so far, where they are too few to settle on scales and k.
    """

    def __init__(
        self, learner: SGDLearner, k: int, why: str, seed: np.random.SeedSequence, early: Batch | None = None
    ) -> None:
        self.why, self.seed, self.early, self._began_with = why, seed, early, learner.y.size
        # Rows so far, how many went to each candidate, and the time that they took.
        self.seen, self.dealt, self.seconds = 0, np.zeros(k, dtype=np.intp), dict[str, float]()
        dealing, tossing, *children = seed_sequence(seed).spawn(k + 2)
        nothing = np.empty(0, dtype=np.intp)
        self.dealer, self.coin = Dealer(k, dealing), np.random.default_rng(tossing)
        self.states = [learner.start(Block(j, nothing, child)) for j, child in enumerate(children)]
        self.held_out: Batch | None = None
        self._settings = replace(learner, X=learner.X[:0], y=learner.y[:0], weights=learner.weights[:0])

    @property
    def has_doubled(self) -> bool:
        """Whether the rows so far are twice those that the candidates began with."""
        return self.early is not None and self.early.y.size >= 2 * self._began_with

    def with_early(self, batch: Batch) -> Stream:
        """A copy that remembers more rows; the candidates are shared until they are fed."""
        stream = copy.copy(self)
        stream.early = self.early.joined(batch) if self.early is not None else None
        return stream

    def learner_on(self, batch: Batch) -> SGDLearner:
        """The learner with the data of one call."""
        return replace(self._settings, X=batch.X, y=batch.y, weights=batch.weights)

    def hold_out(self, batch: Batch, fraction: float) -> NDArray[np.intp]:
        """Keep a random share of the rows, the latest of them, for validation; return the others."""
        rows = np.arange(batch.y.size)
        if not fraction:
            return rows
        held = self.coin.random(rows.size) < fraction
        if held.any():
            weights = batch.weights if batch.weights.size else np.ones(rows.size)
            chosen = replace(batch, weights=weights).take(rows[held])
            every = chosen if self.held_out is None else self.held_out.joined(chosen)
            self.held_out = every.take(slice(-_KEPT_FOR_VALIDATION, None))
        return rows[~held]

    def feed(self, learner: SGDLearner, rows: NDArray[np.intp]) -> TrainedCandidates:
        """Deal the rows, let every candidate take its share, and return those that are finite."""
        dealt = self.dealer.deal(rows.size)
        states = [_more_rows(learner, state, rows[dealt == j]) for j, state in enumerate(self.states)]
        # Candidates without a row so far are left out.
        begun = [state for state in states if state.updates] or states[:1]
        candidates = finite_candidates(learner, begun, passes=1, converged=True)
        self.states, self.seen = states, self.seen + learner.y.size
        self.dealt = self.dealt + np.bincount(dealt, minlength=len(states))
        return replace(candidates, kept=np.array([begun[j].block.index for j in candidates.kept]))


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


class PartialFit(LinearModel):
    """What ``partial_fit`` does; the estimators say how candidates are made and become one."""

    _stream: Stream | None = None

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Any:
        clock, fresh = Clock(), not hasattr(self, "coef_")
        with clock("prepare"):
            # A batch is small, and bad rows must not reach the running candidates: check it first.
            X, y = self._check_input(X, y, reset=fresh, ensure_all_finite=True)
            X, y, weights = rows_with_weight(sample_weight, X, y)
            loss, target, outputs = self._encode(y, classes=classes, first=fresh, stream=True)
            screened = screen_for(self, X, target, loss, sample_weight)
            X, target, weights = screened.rows_of(X, target, weights)
            batch, stream = Batch(X, target, weights, loss, outputs), self._stream
            if stream is None:
                stream = self._new_stream(batch, go_on=not fresh)
            elif stream.early is not None:
                stream = stream.with_early(batch)
                if stream.early is not None and stream.has_doubled:
                    batch = self._without_glitches(stream.early)
                    stream = self._new_stream(batch, go_on=False)
            learner = stream.learner_on(batch)
        with clock("train"):
            candidates = stream.feed(learner, stream.hold_out(batch, self._share_to_hold_out(streaming=True)))
        with clock("combine"):
            facts = self._combine_stream(stream, learner, candidates) | {"why_k": stream.why}
        self._stream, self.t_, self.n_iter_ = stream, max(state.updates for state in stream.states), 1
        for stage, spent in stream.seconds.items():
            clock.seconds[stage] += spent
        stream.seconds = clock.seconds
        facts |= screened.facts()
        self.report_ = self._report(stream.dealt, stream.seed, clock, candidates, stream.seen, facts)
        if self.drop_glitches:
            screened.warn()
        return self

    def _without_glitches(self, batch: Batch) -> Batch:
        """Early rows of small calls, which only together tell which of them are errors."""
        kept = screen_for(self, batch.X, batch.y, batch.loss, None).kept
        return batch if kept is None else batch.take(kept)

    def _new_stream(self, batch: Batch, go_on: bool) -> Stream:
        """Candidates for the rows of a first batch, or of a few small ones.

        A first batch may be too small for scales, and for k(δ) blocks: until there are enough rows they are
        kept, and whenever they have doubled the stream begins anew with all of them.
        """
        n, d = batch.X.shape
        k, least = self.k, blocks_for(self.delta, self._method)
        enough = go_on or n >= min(least * automatic.ROWS_PER_PARAMETER * (d + 1), _MOST_EARLY_ROWS)
        why = f"k(δ) = {least}" if k == "auto" else "set by the user"
        if k == "auto":
            k, why = (least, why) if enough else self._number_of_blocks(n, batch)
        seed = self._stream.seed if self._stream is not None else seed_from_random_state(self.random_state)
        size = automatic.row_bytes(batch.X)
        parts = automatic.blocks_of(None, n, min(int(k), n), seed, self.shuffle, size)
        learner = self._learner(batch, parts, go_on=go_on)
        return Stream(learner, int(k), why, seed, None if enough else batch)
