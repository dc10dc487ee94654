"""partial_fit: k running candidates to which the rows of a stream are assigned, batch by batch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array, automatic
from tailproof.core.algorithms import (
    TrainedCandidates,
    finite_candidates,
    is_finite,
    raise_if_most_diverged,
)
from tailproof.core.losses import Loss
from tailproof.core.partition import Block, Dealer, seed_sequence
from tailproof.core.sgd import SGDLearner, State
from tailproof.core.theory import blocks_for
from tailproof.estimators.inputs import LinearModel, rows_with_weight, seed_from_random_state
from tailproof.estimators.linear.drift import Drift, DriftWarning, ErrorMonitor
from tailproof.estimators.screening import screen_for
from tailproof.reports.fit_report import Clock

_FORGET = 2  # averages weigh update t as t^_FORGET, so that the start is forgotten
_MOST_EARLY_ROWS = 2_000  # of a stream that has not settled on scales and blocks yet
_KEPT_FOR_VALIDATION = 20_000  # rows that are kept to score candidates on
_LEAST_KEPT = 100  # of them, however fast the past is forgotten
_COMBINED = ("coef_", "intercept_", "candidates_", "report_", "best_index_", "validation_risk_")
_ADVICE = "set forget='auto', or forget= a half-life in rows, so that the model follows"
_FORGOTTEN = "what was learnt before is forgotten"


def _followed(rows: float) -> str:
    """What happens where a half-life is set."""
    return f"the model follows by half every {rows:,.0f} rows; forget='auto' would begin anew"


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
    age, updates : int
        Of an earlier fit that the stream goes on from: updates that each candidate begins with, its share of
        all in one pass, and those that a candidate had there in all passes, for the schedule of steps.
    """

    def __init__(
        self,
        learner: SGDLearner,
        k: int,
        why: str,
        seed: np.random.SeedSequence,
        early: Batch | None = None,
        age: int = 0,
        updates: int = 0,
    ) -> None:
        self.why, self.seed, self.early, self._began_with = why, seed, early, learner.y.size
        # Rows so far, how many went to each candidate, and the time that they took.
        self.seen, self.dealt, self.seconds = 0, np.zeros(k, dtype=np.intp), dict[str, float]()
        dealing, tossing, *children = seed_sequence(seed).spawn(k + 2)
        nothing = np.empty(0, dtype=np.intp)
        self.dealer, self.coin = Dealer(k, dealing), np.random.default_rng(tossing)
        self.states = [learner.start(Block(j, nothing, child)) for j, child in enumerate(children)]
        if updates:
            self.states = [replace(state, updates=updates, passes=1) for state in self.states]
        # Updates that an average stands for: fewer than there were, where some are forgotten.
        self.ages, self.finite = np.full(k, float(age)), np.ones(k, dtype=bool)
        self.monitor, self.drift = ErrorMonitor(), ""
        self.outlying = dict[str, Any]()  # what the rows of the last call show
        self.held_out: Batch | None = None
        self._settings = replace(learner, X=learner.X[:0], y=learner.y[:0], weights=learner.weights[:0])

    @property
    def has_doubled(self) -> bool:
        """Whether the rows so far are twice those that the candidates began with."""
        return self.early is not None and self.early.y.size >= 2 * self._began_with

    @property
    def learner(self) -> SGDLearner:
        """The settings, without rows."""
        return self._settings

    def spend(self, clock: Clock) -> None:
        """Add the time of some stages."""
        for stage, seconds in clock.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @property
    def updates(self) -> int:
        """Where the candidates are in the schedule of steps."""
        return max(state.updates for state in self.states)

    def with_early(self, batch: Batch) -> Stream:
        """A copy that remembers more rows; the candidates are shared until they are fed."""
        stream = copy.copy(self)
        stream.early = self.early.joined(batch) if self.early is not None else None
        return stream

    def learner_on(self, batch: Batch) -> SGDLearner:
        """The learner with the data of one call."""
        return replace(self._settings, X=batch.X, y=batch.y, weights=batch.weights)

    def hold_out(self, batch: Batch, fraction: float, most: int) -> NDArray[np.intp]:
        """Keep a random share of the rows, the latest of them, for validation; return the others."""
        rows = np.arange(batch.y.size)
        if not fraction:
            return rows
        held = self.coin.random(rows.size) < fraction
        if held.any():
            weights = batch.weights if batch.weights.size else np.ones(rows.size)
            chosen = replace(batch, weights=weights).take(rows[held])
            every = chosen if self.held_out is None else self.held_out.joined(chosen)
            self.held_out = every.take(slice(-most, None))
        return rows[~held]

    def feed(self, batch: Batch, fraction: float, forget: Any) -> Drift | None:
        """Assign the rows to candidates, which take a step each; return where errors rose, if they did.

        Parameters
        ----------
        batch : Batch
        fraction : float
            Share of the rows to hold out.
        forget : None, "auto" or float
            Of the estimator.
        """
        learner, half_life = self.learner_on(batch), float(forget) if isinstance(forget, Real) else np.inf
        rows = self.hold_out(batch, fraction, int(min(_KEPT_FOR_VALIDATION, max(2 * half_life, _LEAST_KEPT))))
        dealt = self.dealer.deal(rows.size)
        oldest = self._oldest(half_life * (1 - fraction))
        drift = self._look_for_drift(learner, rows, dealt)
        start = 0
        if drift is not None and forget == "auto":
            start = drift.row
            self._train(learner, rows[:start], dealt[:start], oldest)
            self._forget_everything(batch.y.size - int(rows[start]) - (rows.size - start))
        # The mean over a long batch would remember all of it.
        step = rows.size if half_life == np.inf else max(int(half_life / 4), 1)
        for begin in range(start, rows.size, step or 1):
            piece = slice(begin, begin + step)
            self._train(learner, rows[piece], dealt[piece], oldest)
        self.seen += batch.y.size
        return None if drift is None else replace(drift, row=int(rows[drift.row]))

    def _oldest(self, half_life: float) -> float:
        """Updates that the average of a candidate may stand for, given a half-life in rows to train on.

        A new update then weighs (1 + _FORGET)/oldest, and one row in k comes to a candidate.
        """
        updates = half_life / len(self.states) / self._settings.batch_size
        return max((1 + _FORGET) * updates / np.log(2), 1.0)

    def _look_for_drift(
        self, learner: SGDLearner, rows: NDArray[np.intp], dealt: NDArray[np.intp]
    ) -> Drift | None:
        """Whether candidates are far worse on the rows that they are about to get than on earlier ones."""
        if not self.seen or self.early is not None:
            return None
        losses = np.empty(rows.size)
        for j, places in _shares(dealt):
            mine = rows[places]
            scores = learner.scores(learner.vector(self.states[j]), mine)
            losses[places] = learner.loss.of_rows(scores, learner.y[mine])
        return self.monitor.first_rise(losses)

    def _forget_everything(self, held_since: int) -> None:
        """Averages and steps begin anew where the candidates are; of the rows held out the latest stay."""
        self.ages = np.zeros(len(self.states))
        self.states = [
            replace(state, updates=0, mean_coef=state.coef, mean_intercept=state.intercept)
            for state in self.states
        ]
        if self.held_out is not None:
            self.held_out = self.held_out.take(slice(-held_since, None)) if held_since else None

    def _train(
        self, learner: SGDLearner, rows: NDArray[np.intp], dealt: NDArray[np.intp], oldest: float
    ) -> None:
        """Let every candidate take its share of the rows; raise where half of them are not finite."""
        sizes = np.bincount(dealt, minlength=len(self.states))
        states, ages, finite = list(self.states), self.ages.copy(), self.finite.copy()
        for j, places in _shares(dealt):
            mine = Block(j, rows[places], states[j].block.seed)
            states[j] = _more_rows(learner, states[j], mine, ages[j], oldest)
            ages[j] = min(ages[j] + -(-len(mine) // learner.batch_size), oldest)
            finite[j] = is_finite(learner.vector(states[j]))
        if not finite.all():
            raise_if_most_diverged(finite[_begun(states)])
        self.states, self.ages, self.finite, self.dealt = states, ages, finite, self.dealt + sizes

    def candidates(self) -> TrainedCandidates:
        """Return those that are finite, without those that have had no row so far."""
        begun = _begun(self.states)
        candidates = finite_candidates(self._settings, [self.states[j] for j in begun], 1, converged=True)
        return replace(candidates, kept=begun[candidates.kept])


def _shares(dealt: NDArray[np.intp]) -> Iterator[tuple[int, Any]]:
    """Candidates that get rows, with the places of these."""
    if dealt.size == 1:  # the way of a stream of single rows
        yield int(dealt[0]), slice(None)
        return
    for j in np.flatnonzero(np.bincount(dealt)).tolist():
        yield j, dealt == j


def _begun(states: list[State]) -> NDArray[np.intp]:
    """Candidates that have learnt something; the first one where there is none."""
    begun = [j for j, state in enumerate(states) if state.passes]
    return np.array(begun or [0])


def _more_rows(learner: SGDLearner, state: State, block: Block, age: float, oldest: float) -> State:
    """The candidate after more rows; its average so far counts as that of ``age`` updates."""
    before = replace(state, block=block, passes=0, updates=int(min(state.updates, oldest)))
    after = learner.advance(before)
    new = after.updates - before.updates
    share = (1 + _FORGET) * new / (age + new + _FORGET * new)
    return replace(
        after,
        mean_coef=(1 - share) * state.mean_coef + share * after.mean_coef,
        mean_intercept=(1 - share) * state.mean_intercept + share * after.mean_intercept,
    )


class Combined:
    """An attribute that is made of the candidates of a stream when it is first asked for.

    Setting it makes it one like all others.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, owner: type) -> Any:
        if model is not None:
            model._settle()
            if self.name in vars(model):
                return vars(model)[self.name]
        raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")


class PartialFit(LinearModel):
    """What ``partial_fit`` does; the estimators say how candidates are made and become one.

    The candidates are combined when the model is first asked for: a row at a time would cost ten times as
    much otherwise.
    """

    _stream: Stream | None = None
    forget: Any

    coef_, intercept_, candidates_, report_, best_index_, validation_risk_ = (Combined() for _ in _COMBINED)

    def __getstate__(self) -> Any:
        self._settle()
        return super().__getstate__()

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Any:
        if getattr(self, "rounds", 1) != 1:
            raise ValueError(f"partial_fit sees a row once, so it has no rounds; got rounds={self.rounds!r}")
        if self._stream is None:
            self._validate_params()
        clock, fresh = Clock(), self._stream is None and not hasattr(self, "coef_")
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
        with clock("train"):
            before = stream.seen
            drift = stream.feed(batch, self._share_to_hold_out(streaming=True), self.forget)
        for name in _COMBINED:
            self.__dict__.pop(name, None)
        self._keep_held_out(None)
        self._stream, self.t_, self.n_iter_ = stream, stream.updates, 1
        stream.spend(clock)
        if drift is not None:
            stream.drift = _drift_sentence(drift, before)
            advice = {"auto": _FORGOTTEN, None: _ADVICE}.get(self.forget) or _followed(self.forget)
            warnings.warn(f"{stream.drift}: {advice}", DriftWarning, stacklevel=3)
        stream.outlying = screened.facts()
        if self.drop_glitches:
            screened.warn()
        return self

    def _without_glitches(self, batch: Batch) -> Batch:
        """Early rows of small calls, which only together tell which of them are errors."""
        kept = screen_for(self, batch.X, batch.y, batch.loss, None).kept
        return batch if kept is None else batch.take(kept)

    def _settle(self) -> None:
        """Combine the candidates of the stream, unless that is done."""
        stream = self._stream
        if stream is None or "coef_" in vars(self):
            return
        clock = Clock()
        with clock("combine"):
            candidates = stream.candidates()
            facts = self._combine_stream(stream, stream.learner, candidates) | {"why_k": stream.why}
        stream.spend(clock)
        clock.seconds = stream.seconds
        facts |= {"drift": stream.drift or None} | stream.outlying
        self.report_ = self._report(stream.dealt, stream.seed, clock, candidates, stream.seen, facts)

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
        updates = int(getattr(self, "t_", 0)) if go_on else 0
        age = self._updates_of_all() // int(k) if updates else 0
        return Stream(learner, int(k), why, seed, None if enough else batch, age, updates)

    def _updates_of_all(self) -> int:
        """Of all candidates of an earlier fit, which may have had more of them than the stream, in one pass.

        The coefficients that the stream begins with stand for all; a second pass over a row tells little.
        """
        return self.t_ * self.report_.k // max(self.n_iter_, 1)


def _drift_sentence(drift: Drift, behind: int) -> str:
    return (
        f"errors from about row {behind + drift.row:,} of the stream on are far above those before (a median "
        f"loss of {drift.after:.3g} instead of {drift.before:.3g})"
    )
