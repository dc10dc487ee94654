"""One fit of the SGD estimators for rows in memory and in pieces: blocks, candidates, one model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import assert_all_finite

from tailproof.core import Array, automatic
from tailproof.core.algorithms import DivergedError, Risk, TrainedCandidates, merge, select, train
from tailproof.core.automatic import (
    block_intercept_shift,
    intercept_shift,
    linear_scores,
    share_of_untied_targets,
)
from tailproof.core.held_out import HeldOutErrors, LeftOut, errors_of_rows, without_block
from tailproof.core.losses import Loss
from tailproof.core.partition import Block, train_validation
from tailproof.core.rules import get_rule
from tailproof.core.sanity import leaves_range, surely_greater
from tailproof.core.scaling import (
    expected_square_norm,
    norms_of_sample,
    robust_columns,
    sample_rows,
    unscaled,
    with_whitening,
)
from tailproof.core.sets import ALL_SPACE, AllSpace, Simplex, get_set
from tailproof.core.sgd import PLAIN, SGDLearner, State
from tailproof.core.start_gradients import with_rule
from tailproof.core.steps import get_steps
from tailproof.core.theory import blocks_for, guarantee
from tailproof.core.validate import Validation
from tailproof.estimators.inputs import (
    naming_bad_input,
    penalties,
    projected,
    rows_with_weight,
    seed_from_random_state,
    warn_of_training,
)
from tailproof.estimators.intervals import CandidateIntervals, PredictionIntervals
from tailproof.estimators.linear.early_stopping import EARLY_STOPPING, HELD_OUT
from tailproof.estimators.linear.partial_fit import PartialFit, Stream
from tailproof.estimators.linear.rounds import arranged, restarted
from tailproof.estimators.linear.training_rows import TrainingRows
from tailproof.estimators.parallel import LocalEngine
from tailproof.estimators.progress import progress
from tailproof.estimators.screening import (
    FarFeaturesError,
    Screened,
    Watch,
    after_fit,
    near_parts,
    residuals_tell,
    watch_for,
    without,
)
from tailproof.estimators.sklearn_private import fit_context
from tailproof.reports.fit_report import Clock, Report, merge_facts

_NORMS = 1000  # rows whose gradients say where to clip


@dataclass(eq=False)
class RowsInMemory:
    """Rows of an array; see :class:`TrainingRows`."""

    X: Any
    y: Array
    weights: Array
    loss: Loss
    outputs: int
    seed: np.random.SeedSequence
    shuffle: bool = True
    n_jobs: int | None = None
    trained: NDArray[np.intp] | None = None
    held_out: NDArray[np.intp] | None = None
    blocks: tuple[Block, ...] = ()
    far: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    resistant: bool = True
    watch: Watch | None = None
    scores: Array | None = None
    left_out: LeftOut | None = None

    @property
    def n(self) -> int:
        """Rows in all."""
        return len(self.y)

    @cached_property
    def _engine(self) -> LocalEngine:
        """Threads that share what takes long."""
        return LocalEngine(self.n_jobs, self.X.size)

    def kept(self, screened: Screened) -> RowsInMemory:
        """The rows that a fit is made on."""
        if screened.kept is None and not screened.far.size:
            return self
        X, y, weights = screened.rows_of(self.X, self.y, self.weights)
        return replace(self, X=X, y=y, weights=weights, far=screened.far)

    def hold_out(self, fraction: float) -> int:
        """Keep a share of the rows for validation; return how many are left to train on."""
        if not fraction:
            return self.n
        # A key that the blocks do not use: their shuffle must not repeat this one.
        apart = np.random.SeedSequence(self.seed.entropy, spawn_key=(2**32 - 1,))
        self.trained, self.held_out = train_validation(self.n, fraction, apart, shuffle=self.shuffle)
        return self.trained.size

    def assign(self, k: int) -> list[Block]:
        """Assign the training rows to k blocks."""
        size = automatic.row_bytes(self.X)
        self.blocks = tuple(automatic.blocks_of(self.trained, self.n, k, self.seed, self.shuffle, size))
        return list(self.blocks)

    def train(self, learner: SGDLearner, passes: int | Risk | None, verbose: int) -> TrainedCandidates:
        """One candidate for each block, in threads."""

        def look(number: int, states: list[State]) -> None:
            if self.watch is not None:
                self.watch.after_pass(states, learner.columns)

        if not verbose:
            return train(learner, self.blocks, self._engine, passes, look)
        count = passes if isinstance(passes, int) else None
        with progress(verbose, count, "passes over the data") as on_pass:

            def look_and_tell(number: int, states: list[State]) -> None:
                look(number, states)
                on_pass(number)

            return train(learner, self.blocks, self._engine, passes, look_and_tell)

    def sizes(self) -> list[int]:
        """Rows of every block."""
        return [len(block) for block in self.blocks]

    def voters(self, candidates: TrainedCandidates) -> TrainedCandidates:
        """Candidates without those of blocks most of whose rows have far features, if others are left."""
        if not self.far.size:
            return candidates
        far = np.array([np.isin(self.blocks[j].rows, self.far).mean() > 0.5 for j in candidates.kept])
        if not far.any() or far.all():
            return candidates
        good = np.flatnonzero(~far)
        return replace(
            candidates,
            states=[candidates.states[j] for j in good],
            vectors=candidates.vectors[good],
            kept=candidates.kept[good],
        )

    def intercept_shift(
        self,
        learner: SGDLearner,
        candidates: TrainedCandidates,
        point: Array,
        model: tuple[Array, float],
        delta: float,
    ) -> float:
        """What to add to the intercept of a model so that its optimality condition holds in robust mean."""
        parts = self.blocks
        if self.far.size:
            near = near_parts([block.rows for block in parts], self)
            parts = tuple(replace(parts[0], rows=rows) for rows in near)
        if residuals_tell(self.X, self.loss):
            self.scores = self._look_back(learner, candidates, point, model)
        rows = self.X, self.y, self.weights, parts
        shift = intercept_shift(self.loss, *rows, *model, delta, self.scores)
        if self.scores is not None:
            self.scores += shift
        return shift

    def _look_back(
        self, learner: SGDLearner, candidates: TrainedCandidates, point: Array, model: tuple[Array, float]
    ) -> Array:
        """Predictions of all rows; in the same reading those of every block without its candidate."""
        if self.held_out is None:
            self.left_out = without_block(learner, self.blocks, candidates, point, model, self._engine)
        every = None if self.left_out is None else self.left_out.every
        return linear_scores(self.X, *model) if every is None else every

    def block_shifts(self, learner: SGDLearner, vectors: Array, kept: NDArray[np.intp]) -> Array:
        """What to add to the intercept of each candidate so that it fits its own block best."""
        shifts = np.empty(len(vectors))
        for place, (vector, j) in enumerate(zip(vectors, kept, strict=True)):
            coef, intercept = learner.unpack(vector)
            rows = self.blocks[j].rows
            scores = np.asarray(self.X[rows] @ coef[0]) + intercept[0]
            weights = self.weights[rows] if self.weights.size else None
            shifts[place] = block_intercept_shift(self.loss, scores, self.y[rows], weights)
        return shifts

    def validate(
        self, learner: SGDLearner, vectors: Array, kept: NDArray[np.intp], mean: str, delta: float
    ) -> Validation:
        """Score candidates on the rows held out, or, if there are none, on those of the other blocks."""
        losses, absurd = [], []
        for vector, j in zip(vectors, kept, strict=True):
            rows = without(self._others(j) if self.held_out is None else self.held_out, self)
            scores = learner.scores(vector, rows)
            if not np.all(np.isfinite(scores)):
                self.check_finite()
            absurd.append(self.resistant and self.has_a_range and leaves_range(scores[:, 0], self.y[rows]))
            losses.append(learner.losses(scores, rows))
        if not all(absurd):
            losses = [np.full(u.size, np.inf) if bad else u for u, bad in zip(losses, absurd, strict=True)]
        untied_share = share_of_untied_targets(self.y)
        return select(losses, mean, delta, resistant=self.resistant, untied_share=untied_share)

    @property
    def has_a_range(self) -> bool:
        """Whether scores are to lie in the range of the targets."""
        return self.loss.task == "regression" and self.loss.link == "identity"

    def better_start(self, learner: SGDLearner, vector: Array) -> Array | None:
        """Where training began, if a model is surely worse."""
        if not self.resistant:
            return None
        rows = without(np.arange(self.n) if self.held_out is None else self.held_out, self)
        start = learner.vector(learner.start(self.blocks[0]))
        ours, constant = (learner.losses(learner.scores(one, rows), rows) for one in (vector, start))
        return start if surely_greater(ours, constant, share_of_untied_targets(self.y)) else None

    def _others(self, j: int) -> NDArray[np.intp]:
        """Rows of all blocks but one; of that one, if there is no other."""
        every = np.concatenate([block.rows for block in self.blocks])
        return np.setdiff1d(every, self.blocks[j].rows) if len(self.blocks) > 1 else every

    def held_out_errors(
        self, learner: SGDLearner, candidates: TrainedCandidates, point: Array, shift: float
    ) -> HeldOutErrors | None:
        """Errors of the rows held out, or of those of every block under the merge of the others."""
        if self.held_out is None:
            found = self.left_out or without_block(learner, self.blocks, candidates, point)
            return None if found is None else errors_of_rows(learner, found.scores + shift, found.rows)
        return errors_of_rows(learner, learner.scores(point, self.held_out)[:, 0] + shift, self.held_out)

    def check_finite(self) -> None:
        """Raise if X holds NaN or infinity."""
        assert_all_finite(self.X, input_name="X")

    def facts(self) -> dict[str, Any]:
        """Nothing to say: the user gave the rows."""
        return {}


def fit_rows(model: LinearSGD, rows: TrainingRows, clock: Clock) -> LinearSGD:
    """Algorithms 1 and 5 on rows in memory or in pieces: k blocks, a candidate each, one model, a report."""
    model._stream = None
    if getattr(model, "rounds", 1) != 1 or model.max_iter == EARLY_STOPPING:
        rows = arranged(rows, model)
    with naming_bad_input(rows.check_finite):
        with clock("prepare"):
            trained = rows.hold_out(model._share_to_hold_out())
            k, why = model._number_of_blocks(trained, rows)
            learner = model._learner(rows, rows.assign(k))
            if (learner.n_blocks, rows.y.size) != (k, rows.n):
                learner = replace(learner, n_blocks=k, n_rows=rows.n)
        with clock("train"):
            passes = None if isinstance(model.max_iter, str) else int(model.max_iter)
            candidates = rows.train(learner, passes, model.verbose)
            least = blocks_for(model.delta, model._method)
            if model.k == "auto" and k > least and not candidates.converged:
                k, why = least, f"k(δ) = {least}, since more blocks, of fewer rows each, did not settle"
                rows.assign(k)
                point, before = merge(candidates, "geometric_median").point, candidates.passes
                learner = restarted(learner, point, k)
                candidates = rows.train(learner, passes, model.verbose)
                candidates = replace(candidates, passes=before + candidates.passes)
            k = len(rows.sizes())  # fewer, where blocks had no rows
            if candidates.kept.size < k:
                # Bad input, or divergence; only the data can tell.
                rows.check_finite()
        with clock("combine"):
            facts = model._combine(rows, learner, candidates)
    warn_of_training(candidates, k)
    model.n_iter_, model.t_ = candidates.passes, candidates.states[0].updates
    facts |= {"why_k": why} | rows.facts()
    model.report_ = model._report(rows.sizes(), rows.seed, clock, candidates, rows.n, facts)
    return model


class LinearSGD(CandidateIntervals, PredictionIntervals, PartialFit):
    """Base of the estimators: how blocks become candidates; subclasses say how candidates become one."""

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LinearSGD:
        """Fit on (X, y).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Dense rows are read in place if C-ordered float32 or float64.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
            Scales the loss of each row; a row of weight zero is as if absent.

        Returns
        -------
        self
        """
        clock = Clock()
        with clock("prepare"):
            X, y = self._check_input(X, y, reset=True, min_rows=self._least_rows)
            X, y, weights = rows_with_weight(sample_weight, X, y)
            loss, target, outputs = self._encode(y)
            watch = watch_for(self, X, target, loss, sample_weight)
        seed = seed_from_random_state(self.random_state)
        rows = RowsInMemory(X, target, weights, loss, outputs, seed, self.shuffle, self.n_jobs)
        rows.resistant, rows.watch = self.drop_glitches, watch
        try:
            rows = rows.kept(watch.screened)
            fit_rows(self, rows, clock)
        except (FarFeaturesError, DivergedError) as error:
            if not (isinstance(error, FarFeaturesError) or watch.has_bad_rows()):
                raise
            rows = rows.kept(watch.screened)
            fit_rows(self, rows, clock)
        screened = after_fit(watch.screened, self, rows.X, rows.y, loss, rows.scores)
        if screened.tells:
            self.report_ = replace(self.report_, **screened.facts())
        if self.drop_glitches:
            screened.warn()
        return self

    @property
    def _trains_on_all_rows(self) -> bool:
        """Whether every row is read by the first pass of training."""
        return not self._share_to_hold_out() and getattr(self, "rounds", 1) == 1

    def _report(
        self,
        sizes: Any,
        seed: np.random.SeedSequence,
        clock: Clock,
        candidates: TrainedCandidates,
        n: int,
        facts: dict[str, Any],
    ) -> Report:
        return Report.of(
            sizes,
            seed,
            clock,
            kept=candidates.kept,
            passes=candidates.passes,
            converged=candidates.converged,
            method=self._name(),
            delta=float(self.delta),
            theorem=self._guarantee(len(sizes), n),
            **facts,
        )

    def _number_of_blocks(self, n: int, rows: TrainingRows) -> tuple[int, str]:
        information = automatic.information_per_row(rows.loss, rows.y) if self.k == "auto" else 1.0
        parameters = max(rows.outputs - 1, 1) * (rows.X.shape[1] + 1)
        size = n, parameters - 1
        return automatic.number_of_blocks(self.k, self.delta, *size, self._method, rows.loss, information)

    def _learner(self, rows: TrainingRows, parts: list[Block], go_on: bool = False) -> SGDLearner:
        """SGD with scales, start and steps from the rows at hand."""
        X, d = rows.X, rows.X.shape[1]
        constraint = ALL_SPACE if self.constraint is None else get_set(self.constraint)
        free = isinstance(constraint, AllSpace)
        rule = PLAIN if self.learner == "sgd" else get_rule(self.learner)
        if rule is not PLAIN:
            penalised, simplex = self.penalty is not None, isinstance(constraint, Simplex)
            rule.check(simplex=simplex, penalised=penalised, outputs=rows.outputs)
        sample = sample_rows(X, near_parts([part.rows for part in parts], rows))
        columns, norms = unscaled(d), None
        if self.scale_features:
            centred = self.fit_intercept and not sparse.issparse(X)
            columns = robust_columns(sample, centred=centred, common=not free)
            norms = None if sparse.issparse(X) else norms_of_sample(sample, columns)
            if free and self.penalty is None and not (sparse.issparse(X) or rule.changes_geometry):
                columns = with_whitening(sample, columns, norms)
        if not np.all(np.isfinite(columns.scale)):
            assert_all_finite(X, input_name="X")
        if not np.all(columns.inverse_square_scale):
            raise DivergedError("values of X have no finite squares: divide columns by a constant")
        if not np.all(np.isfinite(columns.inverse_square_scale)):
            raise DivergedError(
                "values of X are so small that squares vanish: multiply columns by a constant"
            )
        go_on = (go_on or self.warm_start) and hasattr(self, "coef_")
        coef, intercept = self._start(rows.loss, rows.y, parts, rows.outputs, d, go_on)
        coef, intercept = projected(constraint, coef, intercept, columns.centre)
        bend = automatic.loss_curvature(rows.loss, rows.y, float(np.mean(intercept + coef @ columns.centre)))
        typical = float(rows.weights.mean()) if rows.weights.size else 1.0
        norm = float(self.fit_intercept) + expected_square_norm(sample, columns, norms)
        l1, l2 = penalties(self.penalty, self.alpha, self.l1_ratio)
        learner = SGDLearner(
            X=X,
            y=rows.y,
            weights=rows.weights,
            loss=rows.loss,
            columns=columns,
            steps=get_steps(self.step_size),
            curvature=max(bend * typical * norm, 1e-300),
            n_blocks=len(parts),
            outputs=rows.outputs,
            start_coef=coef,
            start_intercept=intercept,
            average=bool(self.average),
            implicit=self.update == "implicit",
            batch_size=int(self.batch_size),
            l1=l1,
            l2=l2,
            constraint=constraint,
            fit_intercept=bool(self.fit_intercept),
        )
        if rule is PLAIN:
            return learner
        rows_looked_at = np.concatenate([part.rows[: _NORMS // len(parts) + 1] for part in parts])
        return with_rule(learner, rule, rows_looked_at, getattr(rows, "n", rows.y.size) / len(parts))

    def _recentres(self, loss: Loss) -> bool:
        """Whether intercepts are set by their own condition: bounded slopes leave no skew to correct."""
        return bool(self.recentre and self.fit_intercept and loss.unbounded)

    def _set_model(self, learner: SGDLearner, vector: Array) -> None:
        # Not every merge of points of the set lies in it.
        coef, intercept = projected(learner.constraint, *learner.unpack(vector), learner.columns.centre)
        if not self.fit_intercept:
            intercept = np.zeros_like(intercept)
        self.coef_, self.intercept_ = self._shape_model(coef, intercept)

    def _set_candidates(self, learner: SGDLearner, vectors: Array) -> None:
        coef, intercept = learner.unpack(vectors)
        stacked = np.concatenate([coef, intercept[..., None]], axis=-1)
        self.candidates_ = stacked[:, 0] if learner.outputs == 1 else stacked


class Merging(LinearSGD):
    """DC: candidates from all rows, merged (Algorithm 1)."""

    _method = "dc"

    def _share_to_hold_out(self, streaming: bool = False) -> float:
        return HELD_OUT if self.max_iter == EARLY_STOPPING and not streaming else 0.0

    def _name(self) -> str:
        return f"DC-SGD, merge={self.merge}"

    def _guarantee(self, k: int, n: int) -> str:
        if self.rounds != 1:
            return "none: from the second round on, all candidates share a start that their own rows made"
        return guarantee("dc", k, n, self.delta, merge=self.merge, sgd=True)

    def _combine(
        self, rows: TrainingRows | None, learner: SGDLearner, candidates: TrainedCandidates
    ) -> dict[str, Any]:
        candidates = candidates if rows is None else rows.voters(candidates)
        point = merge(candidates, self.merge, trim=self.trim).point
        self._set_candidates(learner, candidates.vectors)
        self._set_model(learner, point)
        shift = 0.0
        if rows is not None and self._recentres(learner.loss):
            model = self.coef_, float(self.intercept_)
            shift = rows.intercept_shift(learner, candidates, point, model, self.delta)
            self.intercept_ += shift
        self._keep_held_out(None if rows is None else rows.held_out_errors(learner, candidates, point, shift))
        facts = merge_facts(candidates.vectors, candidates.kept, point)
        if rows is not None and candidates.kept.size > 1:
            facts["caution"] = automatic.tied_targets_caution(learner.loss, rows.y)
        return facts

    def _combine_stream(self, stream: Stream, learner: SGDLearner, candidates: Any) -> dict[str, Any]:
        return self._combine(None, learner, candidates)
