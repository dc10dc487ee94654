"""What the four SGD estimators share: input, training, folding back, partial_fit, prediction."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import assert_all_finite

from tailproof.core import Array, automatic
from tailproof.core.algorithms import TrainedCandidates, merge, train
from tailproof.core.intercept import intercept_shift
from tailproof.core.losses import Loss
from tailproof.core.partition import Block
from tailproof.core.scaling import expected_square_norm, robust_columns, sample_rows, unscaled, with_whitening
from tailproof.core.sets import AllSpace, ConvexSet, get_set
from tailproof.core.sgd import SGDLearner
from tailproof.core.steps import get_steps
from tailproof.core.theory import blocks_for
from tailproof.estimators.inputs import (
    LinearModel,
    check_weights,
    entropy,
    naming_bad_input,
    penalties,
    seed_sequence,
)
from tailproof.estimators.linear.partial_fit import Rows, Stream
from tailproof.estimators.parallel import LocalEngine
from tailproof.estimators.progress import progress
from tailproof.estimators.sklearn_private import fit_context
from tailproof.reports.fit_report import Report

_MOST_EARLY_ROWS = 2_000  # of a stream that has not settled on scales and blocks yet


class LinearSGD(LinearModel):
    """Base of the estimators: how blocks become candidates; subclasses say how candidates become one."""

    # Parameters and hooks that the estimators define; scikit-learn wants every __init__ written out.
    loss: str
    loss_parameter: float | None
    k: int | str
    step_size: Any
    max_iter: int | str
    batch_size: int
    average: bool
    update: str
    constraint: Any
    penalty: str | None
    alpha: float
    l1_ratio: float
    scale_features: bool
    recentre: bool
    shuffle: bool
    random_state: Any
    n_jobs: int | None
    verbose: int

    _name: Callable[[], str]
    _rows: Callable[..., tuple[Any, Any]]
    _combine: Callable[..., dict[str, Any]]
    _combine_stream: Callable[..., dict[str, Any]]
    _theorem: Callable[[int, int], str]

    _method = "dc"
    _stream: Any = None

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
        started = time.perf_counter()
        X, y = self._check_input(X, y, reset=True, min_rows=self._least_rows)
        X, y, weights = check_weights(sample_weight, X, y)
        loss, target, outputs = self._encode(y)
        seed, (n, d) = seed_sequence(self.random_state), X.shape
        self._stream = None
        with naming_bad_input(X):
            trained, held_out = self._rows(n, seed)
            k, why = self._number_of_blocks(n if trained is None else trained.size, d, loss, target, outputs)
            row_bytes = automatic.row_bytes(X)
            parts = automatic.blocks_of(trained, n, k, seed, self.shuffle, row_bytes)
            learner = self._learner(X, target, weights, loss, outputs, parts)
            prepared = time.perf_counter()
            candidates = self._train(learner, parts)
            least = blocks_for(self.delta, self._method)
            if self.k == "auto" and k > least and not candidates.converged:
                k, why = least, f"k(δ) = {least}, since more blocks, of fewer rows each, did not settle"
                parts = automatic.blocks_of(trained, n, k, seed, self.shuffle, row_bytes)
                learner, candidates = self._train_on(learner, candidates, parts)
            if candidates.kept.size < k:
                # Bad input, or divergence; only the data can tell.
                assert_all_finite(X, input_name="X")
            done = time.perf_counter()
            found = self._combine(learner, candidates, parts, held_out)
        warn_about(candidates, k)
        self.n_iter_, self.t_ = candidates.passes, candidates.states[0].updates
        seconds = {
            "prepare": prepared - started,
            "train": done - prepared,
            "combine": time.perf_counter() - done,
        }
        sizes = np.array([len(part) for part in parts])
        self.report_ = self._report(k, why, seed, n, sizes, candidates, seconds, found)
        return self

    def _report(
        self,
        k: int,
        why: str,
        seed: np.random.SeedSequence,
        n: int,
        sizes: NDArray[np.intp],
        candidates: TrainedCandidates,
        seconds: dict[str, float],
        found: dict[str, Any],
    ) -> Report:
        return Report(
            method=self._name(),
            k=k,
            why_k=why,
            delta=float(self.delta),
            block_sizes=sizes,
            seed=entropy(seed),
            excluded=np.setdiff1d(np.arange(k), candidates.kept),
            passes=candidates.passes,
            converged=candidates.converged,
            gradient_evaluations=candidates.passes * int(sizes.sum()),
            seconds=seconds,
            theorem=self._theorem(k, n),
            **found,
        )

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> LinearSGD:
        started, fresh = time.perf_counter(), not hasattr(self, "coef_")
        # A batch is small, and bad rows must not reach the running candidates: look before.
        X, y = self._check_input(X, y, reset=fresh, ensure_all_finite=True)
        X, y, weights = check_weights(sample_weight, X, y)
        loss, target, outputs = self._encode(y, classes=classes, first=fresh, stream=True)
        rows, stream = (X, target, weights), self._stream
        if stream is None:
            stream = self._new_stream(rows, loss, outputs, go_on=not fresh)
        elif stream.early is not None:
            stream = stream.with_early(rows)
            if stream.has_doubled:
                rows = stream.early
                stream = self._new_stream(rows, loss, outputs, go_on=False)
        learner = stream.learner_on(*rows)
        prepared = time.perf_counter()
        candidates = stream.feed(learner, self._hold_out(stream, learner, np.arange(len(rows[1]))))
        done = time.perf_counter()
        found = self._combine_stream(stream, learner, candidates)
        self._stream, self.t_, self.n_iter_ = stream, max(state.updates for state in stream.states), 1
        stream.clock(prepare=prepared - started, train=done - prepared, combine=time.perf_counter() - done)
        self.report_ = self._report(
            len(stream.states),
            stream.why,
            stream.seed,
            stream.seen,
            stream.dealt,
            candidates,
            dict(stream.seconds),
            found,
        )
        return self

    def _new_stream(self, rows: Rows, loss: Loss, outputs: int, go_on: bool) -> Stream:
        """Candidates for the rows of a first batch, or of a few small ones.

        A first batch may be too small for scales, and for k(δ) blocks: until there are enough rows they are
        kept, and whenever they have doubled the stream begins anew with all of them.
        """
        X, y, weights = rows
        n, d = X.shape
        k, least = self.k, blocks_for(self.delta, self._method)
        enough = go_on or n >= min(least * automatic.ROWS_PER_PARAMETER * (d + 1), _MOST_EARLY_ROWS)
        why = f"k(δ) = {least}" if k == "auto" else "as asked"
        if k == "auto":
            k, why = (least, why) if enough else self._number_of_blocks(n, d, loss, y, outputs)
        seed = self._stream.seed if self._stream is not None else seed_sequence(self.random_state)
        parts = automatic.blocks_of(None, n, min(int(k), n), seed, self.shuffle, automatic.row_bytes(X))
        learner = self._learner(X, y, weights, loss, outputs, parts, go_on=go_on)
        return Stream(learner, int(k), why, seed, None if enough else rows)

    def _number_of_blocks(self, n: int, d: int, loss: Loss, y: Array, outputs: int) -> tuple[int, str]:
        if self.k == "auto":
            n = int(n * automatic.information_per_row(loss, y))
        parameters = max(outputs - 1, 1) * (d + 1)
        return automatic.number_of_blocks(self.k, self.delta, n, parameters - 1, self._method, loss)

    def _learner(
        self,
        X: Any,
        y: Array,
        weights: Array,
        loss: Loss,
        outputs: int,
        parts: list[Block],
        go_on: bool = False,
    ) -> SGDLearner:
        d = X.shape[1]
        constraint, steps = get_set(self.constraint), get_steps(self.step_size)
        free = isinstance(constraint, AllSpace)
        sample = sample_rows(X, np.concatenate([part.rows for part in parts]))
        columns = unscaled(d)
        if self.scale_features:
            centred = self.fit_intercept and not sparse.issparse(X)
            columns = robust_columns(sample, centred=centred, common=not free)
            if free and self.penalty is None and not sparse.issparse(X):
                columns = with_whitening(sample, columns)
        if not np.all(np.isfinite(columns.scale)):
            assert_all_finite(X, input_name="X")
        go_on = (go_on or self.warm_start) and hasattr(self, "coef_")
        coef, intercept = self._start(loss, y, parts, outputs, d, go_on)
        coef, intercept = projected(constraint, coef, intercept, columns.centre)
        bend = automatic.loss_curvature(loss, y, float(np.mean(intercept + coef @ columns.centre)))
        typical = float(weights.mean()) if weights.size else 1.0
        norm = float(self.fit_intercept) + expected_square_norm(sample, columns)
        l1, l2 = penalties(self.penalty, self.alpha, self.l1_ratio)
        return SGDLearner(
            X=X,
            y=y,
            weights=weights,
            loss=loss,
            columns=columns,
            steps=steps,
            curvature=max(bend * typical * norm, 1e-300),
            n_blocks=len(parts),
            outputs=outputs,
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

    def _train(self, learner: SGDLearner, parts: list[Block]) -> TrainedCandidates:
        passes = None if self.max_iter == "auto" else int(self.max_iter)
        with progress(self.verbose, passes, "passes over the data") as on_pass:
            return train(learner, parts, LocalEngine(self.n_jobs, learner.X.size), passes, on_pass)

    def _train_on(
        self, learner: SGDLearner, before: TrainedCandidates, parts: list[Block]
    ) -> tuple[SGDLearner, TrainedCandidates]:
        """Go on with other blocks, from where the candidates merge."""
        start = learner.unpack(merge(before, "geometric_median").point)
        coef, intercept = projected(learner.constraint, *start, learner.columns.centre)
        learner = replace(learner, start_coef=coef, start_intercept=intercept, n_blocks=len(parts))
        found = self._train(learner, parts)
        return learner, replace(found, passes=before.passes + found.passes)

    def _set_model(self, learner: SGDLearner, vector: Array) -> None:
        # Not every merge of points of the set lies in it.
        coef, intercept = projected(learner.constraint, *learner.unpack(vector), learner.columns.centre)
        if not self.fit_intercept:
            intercept = np.zeros_like(intercept)
        self.coef_, self.intercept_ = self._shape_model(coef, intercept)

    def _recentre(self, learner: SGDLearner, parts: list[Block]) -> None:
        """Set the intercept by its own condition; losses with bounded slopes have no skew to correct."""
        if self.recentre and self.fit_intercept and learner.loss.unbounded:
            self.intercept_ += intercept_shift(
                learner.loss,
                learner.X,
                learner.y,
                learner.weights,
                parts,
                self.coef_,
                self.intercept_,
                self.delta,
            )

    def _set_candidates(self, learner: SGDLearner, vectors: Array) -> None:
        models = [np.column_stack(learner.unpack(vector)) for vector in vectors]
        stacked = np.stack(models)
        self.candidates_ = stacked[:, 0] if learner.outputs == 1 else stacked

    def _hold_out(self, stream: Stream, learner: SGDLearner, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        return rows


def projected(constraint: ConvexSet, coef: Array, intercept: Array, centre: Array) -> tuple[Array, Array]:
    """Coefficients in the set, and the intercept that keeps what is predicted at the centre."""
    inside = constraint.project(coef)
    return inside, intercept + (coef - inside) @ centre


def warn_about(candidates: TrainedCandidates, k: int) -> None:
    # With one or two candidates, noise in their path cannot be told from drift.
    if not candidates.converged and k > 2:
        warnings.warn(
            f"the candidates had not settled after {candidates.passes} passes: set max_iter, or look at the "
            "scale of the data",
            ConvergenceWarning,
            stacklevel=4,
        )
    if candidates.kept.size < k:
        warnings.warn(
            f"{k - candidates.kept.size} of {k} candidates diverged and were left out: "
            "use update='implicit' or a smaller step_size",
            ConvergenceWarning,
            stacklevel=4,
        )
