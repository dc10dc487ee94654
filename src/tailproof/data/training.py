"""One pass of SGD over batches of rows, wherever they are.

An engine takes :class:`Training` to the data and brings back candidates, never rows. A candidate depends only
on the rows of its block and their order, so that every engine that visits the same batches gets the same
bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.automatic import rows_for_intercept
from tailproof.core.sgd import Iterates, SGDLearner, State
from tailproof.data.dealing import Dealing
from tailproof.data.readers.batches import GROUPS, Batch
from tailproof.native.rows import add_sums_of_blocks

_NOBODY = np.empty(0, dtype=np.intp)
MOST_SUMS = 1_000_000  # columns times candidates: beyond, the sums of all groups would take gigabytes


@dataclass(frozen=True, eq=False)
class PassState:
    """A candidate in the middle of a pass.

    Attributes
    ----------
    state : State
    seen, rows : int
        Updates and rows of this pass so far.
    sums : array of shape (GROUPS, d + 2)
        Of features (less their centre), target and weight over the rows of this pass, for means of groups
        of batches; collected in the first pass only, unless columns are very many.
    dropped : int
        Rows left out because something is missing, counted by the first block of a piece.
    far : int
        Rows left out because they are too far from the others, counted alike.
    """

    state: State
    seen: int
    rows: int
    sums: Array
    dropped: int = 0
    far: int = 0


@dataclass(frozen=True, eq=False)
class PassCandidates:
    """Candidates of several blocks in the middle of a pass, in arrays that steps move in place.

    ``seen``, ``rows``, ``dropped``, ``far`` and ``sums`` are those of :class:`PassState`, one for each block.
    """

    blocks: list[int]
    before: list[State]
    at: Iterates
    seen: NDArray[np.intp]
    rows: NDArray[np.intp]
    sums: Array
    dropped: NDArray[np.intp]
    far: NDArray[np.intp]

    @classmethod
    def of_states(cls, states: dict[int, PassState]) -> PassCandidates:
        """Copies of candidates, by block."""
        before = [one.state for one in states.values()]

        def counts(name: str) -> NDArray[np.intp]:
            return np.array([getattr(one, name) for one in states.values()], dtype=np.intp)

        sums = np.stack([one.sums for one in states.values()])
        more = counts("seen"), counts("rows"), sums, counts("dropped"), counts("far")
        return cls(list(states), before, Iterates.of_states(before), *more)

    def states(self) -> dict[int, PassState]:
        """Candidates by block, which move no more: copies, unless nobody steps again."""
        found = {}
        for j, block in enumerate(self.blocks):
            counts = {name: int(getattr(self, name)[j]) for name in ("seen", "rows", "dropped", "far")}
            found[block] = PassState(self.at.state(j, self.before[j]), sums=self.sums[j], **counts)
        return found

    def copy(self) -> PassCandidates:
        """The same on other memory."""
        return self.of_states(self.states())

    def part(self, chosen: slice) -> PassCandidates:
        """Some of them, on the same memory."""
        names = ("blocks", "before", "seen", "rows", "sums", "dropped", "far")
        return replace(self, at=self.at.part(chosen), **{name: getattr(self, name)[chosen] for name in names})


@dataclass(frozen=True, eq=False)
class DealtBatch:
    """A batch that has been dealt: the learner on its rows, and those of each block in order.

    ``near`` is without rows that judge nothing, ``far`` how many were left out as too far.
    """

    batch: Batch
    near: Batch
    learner: SGDLearner
    rows: dict[int, NDArray[np.intp]]
    far: int


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
    branches : int
        Each candidate is trained in so many places at once, on pieces of its own in each, and is the mean of
        them after the pass. Engines see a block for each: number j + k·b is branch b of block j.
    """

    learner: SGDLearner
    dealing: Dealing
    number: int
    stage: int = 0
    branches: int = 1

    def blocks(self, piece: int) -> list[int]:
        """Branches of blocks that get rows of the piece."""
        first = self.dealing.k * self._branch(piece)
        return [first + block for block in self.dealing.blocks(piece)]

    def _branch(self, piece: int) -> int:
        return self.dealing.branch(piece, self.branches) if self.branches > 1 else 0

    def join(self, candidates: list[PassState]) -> list[PassState]:
        """Candidates of all blocks, each the mean of its branches."""
        k = self.dealing.k
        return [_joined(candidates[j::k]) for j in range(k)] if self.branches > 1 else candidates

    def begin(self, state: State) -> PassState:
        """Return the candidate before the first batch of the pass."""
        d = self.learner.columns.centre.size
        collects = self.number == 0 and d * self.dealing.k * self.branches <= MOST_SUMS
        return PassState(state, 0, 0, np.zeros((GROUPS if collects else 0, d + 2)))

    def end(self, candidate: PassState) -> State:
        """Return the candidate after the last batch; one without rows is where it was."""
        return replace(candidate.state, passes=self.number + 1)

    def in_pass_order(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Batches of a piece in the order of the pass."""
        batches = iter(batches)
        first = next(batches, None)
        if first is not None:
            yield from self.dealing.batch_order(chain([first], batches), first.piece, self.number)

    def deal_batch(self, batch: Batch) -> DealtBatch:
        """Deal a batch: the rows of each block in order, without those missing or too far."""
        far = self.dealing.far_rows(batch)
        batch = batch.without(far)
        near = self.dealing.without_unfit_to_judge(batch) if self.number == 0 else batch
        dealt = self.dealing.deal(batch.piece, batch.number, len(batch), self.number)
        first = self.dealing.k * self._branch(batch.piece)
        rows = {first + j: batch.usable(numbers) for j, numbers in dealt.rows.items()}
        learner = replace(self.learner, X=batch.X, y=batch.y, weights=batch.weights)
        return DealtBatch(batch, near, learner, rows, far.size)

    def step(self, candidates: PassCandidates, dealt: DealtBatch) -> None:
        """Take the candidates of some blocks over their rows of one more batch, if any, in place."""
        parts = [dealt.rows.get(block, _NOBODY) for block in candidates.blocks]
        first, at = min(dealt.rows), candidates.at
        if first in candidates.blocks:
            place = candidates.blocks.index(first)
            candidates.dropped[place] += dealt.batch.dropped
            candidates.far[place] += dealt.far
        means = at.mean_coef.copy(), at.mean_intercept.copy()
        new = dealt.learner.advance_blocks(at, parts, self.number)
        weight = np.where(new > 0, new / np.maximum(candidates.seen + new, 1), 0.0)
        for mean, old in zip((at.mean_coef, at.mean_intercept), means, strict=True):
            mean[...] = _blend(old, mean, weight)
        candidates.seen[...] += new
        candidates.rows[...] += [rows.size for rows in parts]
        if candidates.sums.size:
            share = self._share_for_sums()
            chosen = [dealt.near.usable(rows[: math.ceil(rows.size * share)]) for rows in parts]
            self._collect(candidates.sums, dealt.batch, chosen)

    def _share_for_sums(self) -> float:
        """Which share of rows goes into the sums for the intercept; all, where each block has its own."""
        n, d = self.learner.n_rows, self.learner.columns.centre.size
        if n == 0 or self.dealing.held_out:
            return 1.0
        return min(1.0, rows_for_intercept(n, d) / n)

    def _collect(self, into: Array, batch: Batch, parts: list[NDArray[np.intp]]) -> None:
        centre, group = self.learner.columns.centre, batch.group
        if isinstance(batch.X, np.ndarray):
            ends = np.cumsum([rows.size for rows in parts])
            numbers = batch.X, batch.y, batch.weights, np.concatenate(parts), ends
            add_sums_of_blocks(*numbers, centre, into, group)
            return
        for sums, rows in zip(into[:, group], parts, strict=True):
            share = batch.weights[rows] if batch.weights.size else np.ones(rows.size)
            sums[:-2] += batch.X[rows].T @ share
            sums[-2:] += share @ batch.y[rows], share.sum()

    def over_piece(self, candidates: dict[int, PassState], batches: Iterable[Batch]) -> dict[int, PassState]:
        """Return the candidates of some blocks after all batches of a piece: a task of a cluster."""
        moving = PassCandidates.of_states(candidates)
        for batch in self.in_pass_order(batches):
            self.step(moving, self.deal_batch(batch))
        return moving.states()


def _joined(branches: list[PassState]) -> PassState:
    """One candidate of several that started alike and met rows of their own: the mean by rows."""
    told = [branch for branch in branches if branch.rows]
    first, counts = (told or branches)[0], np.array([branch.rows for branch in told])

    def mean(name: str) -> Any:
        return np.average([getattr(branch.state, name) for branch in told], axis=0, weights=counts)

    if told:
        arrays = {name: mean(name) for name in ("coef", "intercept", "mean_coef", "mean_intercept")}
        if first.state.velocity is not None:
            arrays["velocity"] = mean("velocity")
        # Steps go on from those of the longest branch.
        updates, farthest = (max(getattr(b.state, name) for b in told) for name in ("updates", "farthest"))
        state = replace(first.state, **arrays, updates=updates, farthest=farthest)
        first = replace(first, state=state)
    names = ("seen", "rows", "dropped", "far")
    counted = {name: sum(getattr(branch, name) for branch in branches) for name in names}
    return PassState(first.state, sums=np.sum([branch.sums for branch in branches], axis=0), **counted)


def _blend(old: Array, new: Array, share: Array) -> Array:
    """Old and new means by the share of the new ones, exactly the one or the other where that is all."""
    weight = share.reshape(-1, *[1] * (old.ndim - 1))
    blended = old + weight * (new - old)
    return np.where(weight == 1, new, np.where(weight > 0, blended, old))
