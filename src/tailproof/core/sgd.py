"""The cheap learner of the paper: (projected) stochastic gradient descent over one block."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.core.partition import Block, slices
from tailproof.core.rules import PlainSGD, Rule
from tailproof.core.scaling import FeatureScale, unscaled
from tailproof.core.sets import ALL_SPACE, AllSpace, ConvexSet
from tailproof.core.steps import Auto, Schedule
from tailproof.native.rows import scores_of_blocks, scores_of_rows, whitened_rows
from tailproof.native.sgd import (
    Iterate,
    Limits,
    Objective,
    Problem,
    csr_pass,
    csr_pass_many,
    csr_penalised_pass,
    dense_pass,
    dense_passes,
    general_pass,
)

PLAIN = PlainSGD()
_MOVING = ("coef", "intercept", "mean_coef", "mean_intercept")
_TILE = 65_536  # numbers of X to whiten at a time: they stay in the cache


def _stacked(arrays: list[Array]) -> Array:
    """Copies of arrays one after another; quicker where all are the same one, as they are at the start."""
    first = arrays[0]
    if all(array is first for array in arrays):
        return np.repeat(first[None], len(arrays), axis=0)
    return np.array(arrays)


def _call(task: Callable[[], Any]) -> Any:
    return task()


def _one_by_one(function: Callable[[Any], Any], tasks: list[Any]) -> list[Any]:
    return [function(task) for task in tasks]


@dataclass(frozen=True)
class State:
    """One candidate: the iterate, the average of its last pass, and how many passes and updates it has had.

    ``coef`` has shape (outputs, d), in the units of the data, or for whitened columns; ``intercept`` belongs
    to centred features; ``velocity`` is the mean of the gradients so far, for rules with momentum;
    ``farthest`` is the largest z² of a feature in the last pass, infinite where it is not known.
    """

    block: Block
    coef: Array
    intercept: Array
    mean_coef: Array
    mean_intercept: Array
    passes: int = 0
    updates: int = 0
    velocity: Array | None = None
    farthest: float = math.inf


@dataclass(frozen=True, eq=False)
class Iterates:
    """Candidates of k blocks side by side, which :meth:`SGDLearner.advance_blocks` moves in place.

    Attributes
    ----------
    coef, mean_coef : arrays of shape (k, outputs, d)
    intercept, mean_intercept : arrays of shape (k, outputs)
    velocity : array of shape (k, parameters), or None
    updates : array of int of shape (k,)
    farthest : array of shape (k,)
    """

    coef: Array
    intercept: Array
    mean_coef: Array
    mean_intercept: Array
    velocity: Array | None
    updates: NDArray[np.intp]
    farthest: Array

    @classmethod
    def of_states(cls, states: list[State]) -> Iterates:
        """Copies of what states hold."""
        arrays = {name: _stacked([getattr(state, name) for state in states]) for name in _MOVING}
        velocities = [state.velocity for state in states if state.velocity is not None]
        counts = np.array([state.updates for state in states], dtype=np.intp)
        farthest = np.array([state.farthest for state in states])
        velocity = np.stack(velocities) if velocities else None
        return cls(**arrays, velocity=velocity, updates=counts, farthest=farthest)

    def state(self, j: int, before: State) -> State:
        """Return the j-th candidate, whose block and passes are as before."""
        moved = {name: getattr(self, name)[j] for name in _MOVING}
        velocity = None if self.velocity is None else self.velocity[j]
        updates, farthest = int(self.updates[j]), float(self.farthest[j])
        return replace(before, **moved, velocity=velocity, updates=updates, farthest=farthest)

    def part(self, blocks: slice) -> Iterates:
        """Some of them, on the same memory."""
        velocity = None if self.velocity is None else self.velocity[blocks]
        means = self.mean_coef[blocks], self.mean_intercept[blocks]
        counts = self.updates[blocks], self.farthest[blocks]
        return Iterates(self.coef[blocks], self.intercept[blocks], *means, velocity, *counts)


@dataclass(frozen=True)
class SGDLearner:
    """SGD over blocks of (X, y).

    Parameters
    ----------
    X : C-ordered array or CSR array of shape (n, d)
    y : array of shape (n,)
        Targets; −1 and +1, or class numbers, for classification.
    weights : array of shape (n,), or empty
    loss : Loss
    columns : FeatureScale
        Centre and scale of the features.
    steps : Schedule
    curvature : float
        L(1 + E‖z‖²) for automatic steps.
    n_blocks : int
        k, for schedules that depend on it.
    outputs : int
        1, or the number of classes.
    average : bool
        A candidate is the mean of its last pass, not its last iterate.
    implicit : bool
        Proximal steps instead of gradient steps.
    batch_size, l1, l2, constraint, fit_intercept
        As in the estimators.
    start_coef, start_intercept : arrays
        Where every candidate starts, in the units of the data.
    n_rows : int
        Rows in all, where X is only some of them; else 0.
    rule : Rule
        What is done with a gradient.
    """

    X: Any
    y: Array
    weights: Array
    loss: Loss
    columns: FeatureScale
    steps: Schedule
    curvature: float
    n_blocks: int
    outputs: int
    start_coef: Array
    start_intercept: Array
    average: bool = True
    implicit: bool = True
    batch_size: int = 1
    l1: float = 0.0
    l2: float = 0.0
    constraint: ConvexSet = ALL_SPACE
    fit_intercept: bool = True
    n_rows: int = 0
    rule: Rule = PLAIN

    def start(self, block: Block) -> State:
        """State at the common start, whose arrays all share: a pass works on copies."""
        coef, intercept = self._common_start
        velocity = np.zeros(coef.size + intercept.size) if self.rule.has_velocity else None
        return State(block, coef, intercept, coef, intercept, velocity=velocity)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other machines: what was derived from it is derived again."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def _common_start(self) -> tuple[Array, Array]:
        """Coefficients and intercepts of all candidates before the first pass, for centred features."""
        coef = np.array(self.start_coef, dtype=np.float64)
        intercept = self.start_intercept + coef @ self.columns.centre
        whitening = self.columns.whitening
        if whitening is not None:
            coef = np.ascontiguousarray(np.linalg.solve(whitening, (coef * self.columns.scale).T).T)
        return coef, intercept

    def advance(self, state: State) -> State:
        """One more pass over the block of the state, on copies of its arrays."""
        rows = state.block.order(state.passes)
        coef, intercept = state.coef.copy(), state.intercept.copy()
        mean_coef, mean_intercept = np.empty(coef.shape), np.empty(intercept.shape)
        arrays = [coef, intercept, mean_coef, mean_intercept]
        updates = -(-rows.size // self.batch_size)
        steps = self._step_sizes(state.passes, state.updates, updates)
        velocity = None if state.velocity is None else state.velocity.copy()
        farthest = self._run_pass(rows, arrays, steps, velocity)
        done = state.passes + 1, state.updates + updates
        return State(state.block, coef, intercept, mean_coef, mean_intercept, *done, velocity, farthest)

    def advance_several(self, states: list[State]) -> list[State]:
        """What :meth:`advance` does for each; in one call, where the kernel knows how."""
        if len(states) == 1 or not self._passes_together:
            return [self.advance(state) for state in states]
        at, passes = Iterates.of_states(states), states[0].passes
        updates = self.advance_blocks(at, [state.block.order(passes) for state in states], passes)
        done = zip(
            states, at.coef, at.intercept, at.mean_coef, at.mean_intercept, updates, at.farthest, strict=True
        )
        return [
            State(before.block, w, b, mean_w, mean_b, passes + 1, before.updates + int(new), None, float(far))
            for before, w, b, mean_w, mean_b, new, far in done
        ]

    def advance_blocks(self, at: Iterates, parts: list[NDArray[np.intp]], passes: int) -> NDArray[np.intp]:
        """One more pass of each candidate over rows of its own, in place; without rows it stays where it is.

        Returns the updates that each has had. Where the kernel knows how, all pass in one call.
        """
        sizes = np.array([rows.size for rows in parts])
        updates = -(-sizes // self.batch_size)
        if self._passes_together:
            self._run_blocks(at, parts, sizes, passes)
        else:
            for j in np.flatnonzero(sizes):
                arrays = [at.coef[j], at.intercept[j], at.mean_coef[j], at.mean_intercept[j]]
                steps = self._step_sizes(passes, int(at.updates[j]), int(updates[j]))
                velocity = None if at.velocity is None else at.velocity[j]
                at.farthest[j] = self._run_pass(parts[j], arrays, steps, velocity)
        at.updates[...] += updates
        return updates

    def _run_blocks(
        self, at: Iterates, parts: list[NDArray[np.intp]], sizes: NDArray[np.intp], passes: int
    ) -> None:
        """Plain steps on dense rows, of all blocks in one call."""
        if not sizes.any():
            return
        if isinstance(self.steps, Auto):
            steps = self._step_sizes(passes, 0, 1)
        else:
            done = zip(at.updates.tolist(), sizes.tolist(), strict=True)
            steps = np.concatenate([self._step_sizes(passes, *counts) for counts in done])
        moving = Iterate(at.coef[:, 0], at.intercept[:, 0], at.mean_coef[:, 0], at.mean_intercept[:, 0])
        far = dense_passes(self._problem, parts, moving, steps)
        at.farthest[sizes > 0] = far[sizes > 0]

    def _run_pass(
        self, rows: NDArray[np.intp], arrays: list[Array], steps: Array, velocity: Array | None
    ) -> float:
        """One pass over the rows, whitened or not; the arrays and the velocity move in place."""
        memory = self.rule.memory if velocity is None else velocity
        if self.columns.whitening is None:
            return self._run(rows, arrays, steps, memory)
        self._run_whitened(rows, arrays, steps, self.columns.whitening, memory)
        return math.inf

    def vector(self, state: State) -> Array:
        """Candidate in scaled or whitened coordinates: coefficients of every output, then the intercepts."""
        coef, intercept = self.chosen(state)
        scaled = coef * self.columns.scale if self.columns.whitening is None else coef
        return np.concatenate([scaled.ravel(), intercept])

    def vectors(self, states: list[State]) -> Array:
        """What :meth:`vector` gives for each, as rows."""
        vectors = np.empty((len(states), self.start_coef.size + self.outputs))
        coef = vectors[:, : -self.outputs].reshape(len(states), self.outputs, -1)
        for j, state in enumerate(states):
            coef[j], vectors[j, -self.outputs :] = self.chosen(state)
        if self.columns.whitening is None:
            coef *= self.columns.scale
        return vectors

    def unpack(self, vector: Array) -> tuple[Array, Array]:
        """Coefficients (outputs, d) and intercepts in the units of the data; of every row, given a matrix."""
        scaled = vector[..., : -self.outputs].reshape(*vector.shape[:-1], self.outputs, -1)
        whitening = self.columns.whitening
        coef = (scaled if whitening is None else scaled @ whitening.T) / self.columns.scale
        return coef, vector[..., -self.outputs :] - coef @ self.columns.centre

    def scores(self, vector: Array, rows: NDArray[np.intp]) -> Array:
        """Linear predictions of a candidate for some rows, one column for each output."""
        coef, intercept = self.unpack(vector)
        if self.outputs == 1 and self._is_read_in_place:
            return scores_of_rows(self.X, np.ascontiguousarray(rows), coef[0], float(intercept[0]))[:, None]
        return np.asarray(self.X[rows] @ coef.T) + intercept

    def scores_of_blocks(
        self,
        vectors: Array,
        parts: list[NDArray[np.intp]],
        shared: tuple[Array, float] | None = None,
        engine: Any = None,
    ) -> tuple[Array, Array | None]:
        """Linear predictions of one output: of the first candidate for the first rows, and so on.

        Given coefficients and intercept that all share, their predictions of all rows come as well, from the
        same reading where the parts are all rows. An engine shares the work among its threads.
        """
        coef, intercept = self.unpack(vectors)
        coef, intercept = np.ascontiguousarray(coef[:, 0]), np.ascontiguousarray(intercept[:, 0])
        if self._is_read_in_place:
            return self._scores_in_place(coef, intercept, parts, shared, engine)
        rows, at = np.concatenate(parts), np.repeat(np.arange(len(parts)), [part.size for part in parts])
        each = np.asarray(self.X[rows] @ coef.T)
        every = None if shared is None else np.asarray(self.X @ shared[0]) + shared[1]
        return np.take_along_axis(each, at[:, None], axis=1)[:, 0] + intercept[at], every

    def _scores_in_place(
        self,
        coef: Array,
        intercept: Array,
        parts: list[NDArray[np.intp]],
        shared: tuple[Array, float] | None,
        engine: Any,
    ) -> tuple[Array, Array | None]:
        n, sizes = self.X.shape[0], [part.size for part in parts]
        at_once, run = (1, _one_by_one) if engine is None else (engine.at_once, engine.run)
        every = None if shared is None else np.empty(n)
        is_same_reading = shared is not None and sum(sizes) == n
        together = (*shared, every) if shared is not None and is_same_reading else ()

        def of_blocks(group: slice) -> Array:
            ends = np.array(list(accumulate(sizes[group])))
            own = np.concatenate(parts[group]), ends, coef[group], intercept[group]
            return scores_of_blocks(self.X, *own, *together)[0]

        def of_all(rows: slice, w: Array, b: float, out: Array) -> Array:
            return scores_of_rows(self.X[rows], None, w, b, out[rows])

        groups = slices(len(parts), min(at_once, len(parts)) if is_same_reading else 1)
        tasks = [partial(of_blocks, group) for group in groups]
        if shared is not None and every is not None and not is_same_reading:
            tasks += [partial(of_all, rows, *shared, every) for rows in slices(n, min(at_once, n))]
        return np.concatenate(run(_call, tasks)[: len(groups)]), every

    @cached_property
    def _is_read_in_place(self) -> bool:
        return not sparse.issparse(self.X) and self.X.flags.c_contiguous

    def losses(self, scores: Array, rows: NDArray[np.intp]) -> Array:
        """Losses of some rows with these scores, times the weights of the rows."""
        losses = self.loss.of_rows(scores, self.y[rows])
        return losses * self.weights[rows] if self.weights.size else losses

    def gradients(self, rows: NDArray[np.intp]) -> Array:
        """G(w; z) of some rows at the start, in scaled or whitened coordinates, intercepts last."""
        vector = self.vector(self.start(Block(0, rows, np.random.SeedSequence(0))))
        scores, z = self.scores(vector, rows), self.scaled_rows(rows)
        targets = self.loss.targets(self.y[rows], self.outputs)
        slopes = self.loss.slope(scores[:, 0] if self.outputs == 1 else scores, targets)
        slopes = slopes.reshape(rows.size, self.outputs)
        slopes = slopes * self.weights[rows][:, None] if self.weights.size else slopes
        of_coef = (slopes[:, :, None] * z[:, None, :]).reshape(rows.size, -1)
        return np.hstack([of_coef, slopes * float(self.fit_intercept)])

    def scaled_rows(self, rows: NDArray[np.intp]) -> Array:
        """Some rows, centred and scaled or whitened."""
        dense = self.X[rows].toarray() if sparse.issparse(self.X) else self.X[rows]
        z = (dense - self.columns.centre) / self.columns.scale
        return z if self.columns.whitening is None else z @ self.columns.whitening

    def chosen(self, state: State) -> tuple[Array, Array]:
        """Average of the last pass, or its end; the start where there was no pass."""
        if self.average and state.passes:
            return state.mean_coef, state.mean_intercept
        return state.coef, state.intercept

    def _step_sizes(self, passes: int, done: int, updates: int) -> Array:
        if isinstance(self.steps, Auto):
            size = self.steps.for_pass(self.curvature, passes, bounded=not self.loss.unbounded)
            return np.array([size])
        numbers = np.arange(done, done + updates)
        d = self.columns.centre.size
        return np.ascontiguousarray(self.steps.sizes(numbers, d, self.n_rows or self.y.size, self.n_blocks))

    def _run_whitened(
        self,
        rows: NDArray[np.intp],
        arrays: list[Array],
        steps: Array,
        whitening: Array,
        memory: Array,
    ) -> None:
        """One pass in whitened coordinates, tile by tile, so that there is never a whitened copy of X."""
        per_step, d = self.batch_size, self.columns.centre.size
        tile_size = max(_TILE // d // per_step, 1) * per_step
        whitening = np.ascontiguousarray(whitening / self.columns.scale[:, None])
        sums = [np.zeros_like(mean) for mean in arrays[2:]]
        for start in range(0, rows.size, tile_size):
            tile = rows[start : start + tile_size]
            inner = replace(
                self,
                X=whitened_rows(self.X, tile, self.columns.centre, whitening),
                y=self.y[tile],
                weights=self.weights[tile] if self.weights.size else self.weights,
                columns=unscaled(d),
            )
            sizes = steps[start // per_step :] if steps.size > 1 else steps
            inner._run(np.arange(tile.size), arrays, sizes, memory)
            for total, mean in zip(sums, arrays[2:], strict=True):
                np.add(total, mean * -(-tile.size // per_step), out=total)
        for total, mean in zip(sums, arrays[2:], strict=True):
            mean[...] = total / -(-rows.size // per_step)

    @cached_property
    def _problem(self) -> Problem:
        """Rows, targets and loss, checked for all passes."""
        X = self.X
        rows = (X.data, X.indices, X.indptr) if sparse.issparse(X) else X
        objective = Objective(self.loss.code, self.loss.parameter, self.implicit, float(self.fit_intercept))
        scale = self.columns.centre, self.columns.inverse_square_scale
        return Problem(rows, self.y, self.weights, *scale, objective)

    @cached_property
    def _is_single(self) -> bool:
        """Whether a step is the gradient of one row, without a projection."""
        free = isinstance(self.rule, PlainSGD) and isinstance(self.constraint, AllSpace)
        return free and self.batch_size == 1

    @cached_property
    def _is_plain(self) -> bool:
        return self._is_single and self.l1 == self.l2 == 0

    @cached_property
    def _passes_together(self) -> bool:
        """Whether one call takes several candidates through a pass."""
        dense = not self._problem.sparse and self.columns.whitening is None
        return dense and self._is_plain and self.outputs == 1

    def _run(self, rows: NDArray[np.intp], arrays: list[Array], steps: Array, memory: Array) -> float:
        """One pass over the rows by the quickest kernel that can do it; the arrays move in place.

        Returns the largest z² of a feature, where the kernel tells.
        """
        problem = self._problem
        if self._is_plain and self.outputs == 1:
            w, b, mean_w, mean_b = arrays
            one = Iterate(w[0], b, mean_w[0], mean_b)
            return (csr_pass if problem.sparse else dense_pass)(problem, rows, one, steps)
        at = Iterate(*arrays)
        if problem.sparse and (self._is_plain or (self._is_single and np.all(steps == steps[0]))):
            transposed = Iterate(np.ascontiguousarray(at.w.T), at.b, np.empty(at.w.T.shape), at.mean_b)
            if self._is_plain:
                csr_pass_many(problem, rows, transposed, steps)
            else:
                csr_penalised_pass(problem, rows, transposed, steps, self.l1, self.l2)
            at.w[...], at.mean_w[...] = transposed.w.T, transposed.mean_w.T
        else:
            bounds, rule = self.constraint.bounds, self.rule
            limits = Limits(
                self.batch_size, self.l1, self.l2, self.constraint.code, *bounds, rule.code, rule.strength
            )
            general_pass(problem, rows, at, steps, limits, memory)
        return math.inf
