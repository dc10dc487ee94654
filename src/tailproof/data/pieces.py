"""What is done with a batch of rows, wherever it is: train candidates, collect sums, measure losses.

An engine takes these functions to the data and brings back candidates and sums, never rows. A candidate is
the result of its rows in their order, batch by batch, so that every engine that visits the same batches
gets it to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.intercept import intercept_condition, rows_for_intercept
from tailproof.core.losses import SOFTMAX_LOSS, Loss
from tailproof.core.numerics.compiled import compiled
from tailproof.core.numerics.m_estimates import PSI, psi_sums
from tailproof.core.partition import Block
from tailproof.core.sgd import SGDLearner, State
from tailproof.data.dealing import HELD_OUT, Dealing
from tailproof.data.readers.batches import GROUPS, Batch


@dataclass(frozen=True, eq=False)
class Segment(Block):
    """Rows of a block that lie in one batch, in the order given."""

    def order(self, number: int) -> NDArray[np.intp]:
        """The rows as they are: the dealing has put them in the order of the pass."""
        return self.rows


@dataclass(frozen=True, eq=False)
class Walk:
    """A candidate in the middle of a pass.

    Attributes
    ----------
    state : State
    seen, rows : int
        Updates and rows of this pass so far.
    sums : array of shape (GROUPS, d + 2)
        Of features (less their centre), target and weight over the rows of this pass, for means of groups
        of batches; collected in the first pass only.
    dropped : int
        Rows left out because something is missing, counted by the first block of a piece.
    """

    state: State
    seen: int
    rows: int
    sums: Array
    dropped: int = 0


@dataclass(frozen=True, eq=False)
class Meeting:
    """A batch that has been dealt: the learner on its rows, and those of each block in order."""

    batch: Batch
    learner: SGDLearner
    rows: dict[int, NDArray[np.intp]]


@dataclass(frozen=True, eq=False)
class Training:
    """One pass of SGD: what happens to the candidate of a block when it meets a batch.

    Parameters
    ----------
    learner : SGDLearner
        Settings; its own rows play no part.
    dealing : Dealing
    number : int
        Of the pass, from 0.
    stage : int
        0, or 1 where passes begin anew with fewer blocks.
    """

    learner: SGDLearner
    dealing: Dealing
    number: int
    stage: int = 0

    def begin(self, state: State) -> Walk:
        """Return the candidate before the first batch of the pass."""
        d = self.learner.columns.centre.size
        return Walk(state, 0, 0, np.zeros((GROUPS if self.number == 0 else 0, d + 2)))

    def end(self, walk: Walk) -> State:
        """Return the candidate after the last batch; one without rows is where it was."""
        return replace(walk.state, passes=self.number + 1)

    def arranged(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Batches of a piece in the order of the pass."""
        batches = iter(batches)
        first = next(batches, None)
        if first is not None:
            yield from self.dealing.mixed(chain([first], batches), first.piece, self.number)

    def meet(self, batch: Batch) -> Meeting:
        """Deal a batch: the rows of each block in order, without the missing ones."""
        dealt = self.dealing.deal(batch.piece, batch.number, len(batch), self.number)
        rows = {j: batch.usable(some) for j, some in dealt.rows.items()}
        learner = replace(self.learner, X=batch.X, y=batch.y, weights=batch.weights)
        return Meeting(batch, learner, rows)

    def step(self, walk: Walk, meeting: Meeting, block: int) -> Walk:
        """Return the candidate of a block after its rows of one more batch."""
        rows, state = meeting.rows[block], walk.state
        first = block == min(meeting.rows)
        dropped = walk.dropped + (meeting.batch.dropped if first else 0)
        if rows.size == 0:
            return replace(walk, dropped=dropped)
        segment = Segment(state.block.index, rows, state.block.seed)
        after = meeting.learner.advance(replace(state, block=segment, passes=self.number))
        new = after.updates - state.updates
        share = new / (walk.seen + new)
        after = replace(
            after,
            block=state.block,
            passes=state.passes,
            mean_coef=_blend(state.mean_coef, after.mean_coef, share),
            mean_intercept=_blend(state.mean_intercept, after.mean_intercept, share),
        )
        sums = walk.sums
        if self.number == 0:
            sums = sums.copy()  # a task of a cluster may run twice
            self._collect(sums[meeting.batch.group], meeting.batch, rows[: self._telling(rows.size)])
        return Walk(after, walk.seen + new, walk.rows + rows.size, sums, dropped)

    def _telling(self, count: int) -> int:
        """How many of so many rows go into the sums for the intercept; all, where each block has its own."""
        n, d = self.learner.n_rows, self.learner.columns.centre.size
        if n == 0 or self.dealing.held_out:
            return count
        return math.ceil(count * min(1.0, rows_for_intercept(n, d) / n))

    def _collect(self, into: Array, batch: Batch, rows: NDArray[np.intp]) -> None:
        centre = self.learner.columns.centre
        if isinstance(batch.X, np.ndarray):
            add_sums(batch.X, batch.y, batch.weights, rows, centre, into)
            return
        share = batch.weights[rows] if batch.weights.size else np.ones(rows.size)
        into[:-2] += batch.X[rows].T @ share
        into[-2:] += share @ batch.y[rows], share.sum()

    def over_piece(self, walks: dict[int, Walk], batches: Iterable[Batch]) -> dict[int, Walk]:
        """Return the candidates of some blocks after all batches of a piece: a task of a cluster."""
        for batch in self.arranged(batches):
            meeting = self.meet(batch)
            walks = {block: self.step(walk, meeting, block) for block, walk in walks.items()}
        return walks


def _blend(old: Array, new: Array, share: float) -> Array:
    return new if share == 1 else old + share * (new - old)


@compiled(frozenset({"contract", "nsz"}))
def add_sums(X, y, weights, rows, centre, into):
    """Add Σ w (x − centre), Σ w y and Σ w over the rows to an array of d + 2 numbers."""
    d = centre.size
    for t in range(rows.size):
        i = rows[t]
        weight = weights[i] if weights.size else 1.0
        for j in range(d):
            into[j] += weight * (X[i, j] - centre[j])
        into[d] += weight * y[i]
        into[d + 1] += weight


class Sums:
    """Base of what is summed over batches; subclasses say what a batch adds."""

    def over_piece(self, batches: Iterable[Batch]) -> Array:
        """Sum over the batches of a piece, in their order."""
        return self.add([self.on_batch(batch) for batch in batches] or [self.nothing()])

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        raise NotImplementedError

    def nothing(self) -> Array:
        """Return the sums over no row."""
        raise NotImplementedError

    @staticmethod
    def add(parts: list[Array]) -> Array:
        """Sum of a few parts, in their order."""
        return np.sum(parts, axis=0)

    def total(self, parts: list[Any], add: Callable[[list[Any]], Any] | None = None) -> Any:
        """Sum of the parts of all pieces, eight at a time in their order: the same bits everywhere."""
        while len(parts) > 1:
            parts = [(add or self.add)(parts[i : i + 8]) for i in range(0, len(parts), 8)]
        return parts[0]


@dataclass(frozen=True, eq=False)
class Measure(Sums):
    """Sums that depend on models, each looked at on rows of its own.

    Parameters
    ----------
    loss : Loss
    coef : array of shape (k, outputs, d)
    intercept : array of shape (k, outputs)
    kept : array of int
        Block of each model.
    dealing : Dealing
    """

    loss: Loss
    coef: Array
    intercept: Array
    kept: NDArray[np.intp]
    dealing: Dealing

    def labels(self, batch: Batch) -> NDArray[Any]:
        """Block of each row; rows that are missing get a label that nobody has."""
        found = self.dealing.labels(batch.piece, batch.number, len(batch))
        found[batch.missing] = HELD_OUT - 1
        return found

    def scores(self, batch: Batch, model: int, rows: NDArray[np.intp]) -> Array:
        """Linear predictions of one model."""
        return np.asarray(batch.X[rows] @ self.coef[model].T) + self.intercept[model]


@dataclass(frozen=True, eq=False)
class Balance(Measure):
    """Both sides of the intercept's condition, for every model on the rows of its own block.

    Sums have shape (k, GROUPS, 3): numerator, denominator, weight.
    """

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros((len(self.kept), GROUPS, 3))

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        found, labels = self.nothing(), self.labels(batch)
        for model, block in enumerate(self.kept):
            rows = np.flatnonzero(labels == block)
            sides = intercept_condition(self.loss, self.scores(batch, model, rows)[:, 0], batch.y[rows])
            share = batch.weights[rows] if batch.weights.size else np.ones(rows.size)
            found[model, batch.group] = share @ sides[0], share @ sides[1], share.sum()
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Losses(Measure):
    """Losses of every model on the rows held out, or on those of the other blocks.

    Losses are taken as (ℓ − centre)/scale, so that sums of powers keep their digits.
    """

    centre: Array
    scale: Array
    others: bool = False

    def values(self, batch: Batch) -> list[Array]:
        """Losses of each model, times the weights of the rows."""
        labels = self.labels(batch)
        found = []
        for model, block in enumerate(self.kept):
            chosen = (labels >= 0) & (labels != block) if self.others else labels == HELD_OUT
            rows = np.flatnonzero(chosen)
            losses = row_losses(self.loss, self.scores(batch, model, rows), batch.y[rows])
            weighted = losses * batch.weights[rows] if batch.weights.size else losses
            found.append((weighted - self.centre[model]) / self.scale[model])
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Moments(Losses):
    """Counts and sums of four powers of the losses, in parts for medians of means: (k, parts, 5)."""

    parts: int = 1

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros((len(self.kept), self.parts, 5))

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.stack([self.of_model(model, values) for model, values in enumerate(self.values(batch))])

    def of_model(self, model: int, values: Array) -> Array:
        """Return the sums over the losses of one model."""
        parts = [values[part :: self.parts] for part in range(self.parts)]
        return np.array([[some.size, *((some**power).sum() for power in (1, 2, 3, 4))] for some in parts])


@dataclass(frozen=True, eq=False, kw_only=True)
class Influence(Losses):
    """Σ ψ and Σ ψ′ of the losses at θ, for one step of Catoni's equation: (k, 2)."""

    theta: Array
    width: Array

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros((len(self.kept), 2))

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        code, even = PSI["polynomial"], np.empty(0)
        found = self.nothing()
        for model, values in enumerate(self.values(batch)):
            if self.width[model] > 0:
                found[model] = psi_sums(values, even, self.theta[model], self.width[model], code)
        return found


def row_losses(loss: Loss, scores: Array, y: Array) -> Array:
    """Loss of every row: one output, softmax, or one class against the rest."""
    outputs = scores.shape[1]
    if outputs == 1:
        return loss.value(scores[:, 0], y)
    if loss is SOFTMAX_LOSS or loss == SOFTMAX_LOSS:
        return loss.value(scores, y)
    signs = np.where(y[:, None] == np.arange(outputs), 1.0, -1.0)
    return np.asarray(loss.value(scores, signs).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Score(Sums):
    """What ``score`` needs: weight, Σ w v, Σ w v² and Σ w e², or weight and hits.

    Parameters
    ----------
    model : estimator
        Fitted, without feature names.
    near : float
        About the mean of the target, so that squares keep their digits; NaN for classification.
    """

    model: Any
    near: float

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros(4)

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        rows = batch.usable(np.arange(len(batch)))
        if rows.size == 0:
            return self.nothing()
        share = batch.weights[rows] if batch.weights.size else np.ones(rows.size)
        predicted, y = self.model.predict(batch.X[rows]), batch.y[rows]
        if np.isnan(self.near):
            return np.array([share.sum(), share @ (predicted == y), 0.0, 0.0])
        v = y - self.near
        return np.array([share.sum(), share @ v, share @ v**2, share @ (y - predicted) ** 2])

    def value(self, sums: Array) -> float:
        """R², or the share of hits."""
        weight, first, second, errors = sums
        if np.isnan(self.near):
            return float(first / weight)
        return float(1 - errors / (second - first**2 / weight))
