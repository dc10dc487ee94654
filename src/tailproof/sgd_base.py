"""What the four SGD estimators share: input, training, folding back, partial_fit, prediction."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import assert_all_finite

from tailproof import fitting
from tailproof.boost import Candidates, train
from tailproof.engines.local import LocalEngine
from tailproof.learners.sgd import SGDLearner
from tailproof.linear_base import (
    LinearModel,
    check_weights,
    entropy,
    naming_bad_input,
    penalties,
    seed_sequence,
)
from tailproof.losses import Loss
from tailproof.report import Report
from tailproof.scaling import expected_square_norm, robust_columns, sample_rows, unscaled
from tailproof.sets import AllSpace, get_set
from tailproof.sgd_stream import Stream
from tailproof.steps import get_steps
from tailproof.types import Block

Array = NDArray[np.floating]


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
    shuffle: bool
    random_state: Any
    n_jobs: int | None
    verbose: int

    _name: Callable[[], str]
    _rows: Callable[..., tuple[Any, Any]]
    _combine: Callable[..., dict[str, Any]]
    _combine_stream: Callable[..., None]
    _theorem: Callable[[int, int], str]

    _method = "dc"
    _stream: Any = None

    @_fit_context(prefer_skip_nested_validation=True)
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
        X, y = self._check_input(X, y, reset=True)
        loss, target, outputs = self._encode(y)
        weights, rows = check_weights(sample_weight, X)
        seed = seed_sequence(self.random_state)
        self._stream = None
        n = X.shape[0] if rows is None else rows.size
        with naming_bad_input(X):
            trained, held_out = self._rows(rows, n, seed)
            k, why = self._number_of_blocks(n if trained is None else trained.size, X.shape[1], loss)
            learner = self._learner(X, target, weights, loss, outputs, k)
            parts = fitting.blocks_of(trained, n, k, seed, self.shuffle, X.shape[1])
            prepared = time.perf_counter()
            candidates = self._train(learner, parts)
            if candidates.kept.size < k:
                # Bad input, or divergence; only the data can tell.
                assert_all_finite(X, input_name="X")
            done = time.perf_counter()
            found = self._combine(learner, candidates, parts, held_out)
        _warn_about(candidates, k)
        self.n_iter_, self.t_ = candidates.passes, candidates.states[0].updates
        self.report_ = Report(
            method=self._name(),
            k=k,
            why_k=why,
            delta=float(self.delta),
            block_sizes=np.array([len(part) for part in parts]),
            seed=entropy(seed),
            excluded=np.setdiff1d(np.arange(k), candidates.kept),
            passes=candidates.passes,
            converged=candidates.converged,
            gradient_evaluations=candidates.passes * sum(len(part) for part in parts),
            seconds={
                "prepare": prepared - started,
                "train": done - prepared,
                "combine": time.perf_counter() - done,
            },
            theorem=self._theorem(k, n),
            **found,
        )
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> LinearSGD:
        """One pass over more rows, dealt at random to k running candidates.

        Scales, k and start are set by the first call; the step schedule continues from ``t_``; ``coef_`` is
        the combination of the candidates so far.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        classes : array-like, optional
            All the classes that will ever come; classifiers need them in the first call.

        Returns
        -------
        self
        """
        first = self._stream is None
        X, y = self._check_input(X, y, reset=first)
        weights, rows = check_weights(sample_weight, X)
        loss, target, outputs = self._encode(y, classes=classes, first=first)
        with naming_bad_input(X):
            if first:
                k, _ = self._number_of_blocks(X.shape[0], X.shape[1], loss)
                learner = self._learner(X, target, weights, loss, outputs, k)
                self._stream = Stream(learner, k, seed_sequence(self.random_state))
            self._continue_stream(X, target, weights, np.arange(X.shape[0]) if rows is None else rows)
        return self

    def _number_of_blocks(self, n: int, d: int, loss: Loss) -> tuple[int, str]:
        return fitting.number_of_blocks(self.k, self.delta, n, d, self._method, loss)

    def _learner(self, X: Any, y: Array, weights: Array, loss: Loss, outputs: int, k: int) -> SGDLearner:
        d = X.shape[1]
        constraint, steps = get_set(self.constraint), get_steps(self.step_size)
        free = isinstance(constraint, AllSpace)
        sample = sample_rows(X)
        columns = unscaled(d)
        if self.scale_features:
            centred = self.fit_intercept and not sparse.issparse(X)
            columns = robust_columns(sample, centred=centred, common=not free)
        if not np.all(np.isfinite(columns.scale)):
            assert_all_finite(X, input_name="X")
        coef, intercept = self._start(loss, y, weights, outputs, d)
        bend = fitting.loss_curvature(loss, y, float(intercept.mean())) if y.size else 1.0
        typical = float(weights[weights > 0].mean()) if weights.size else 1.0
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
            n_blocks=k,
            outputs=outputs,
            start_coef=coef if free else constraint.project(coef),
            start_intercept=intercept,
            average=bool(self.average),
            implicit=self.update == "implicit",
            batch_size=int(self.batch_size),
            l1=l1,
            l2=l2,
            constraint=constraint,
            fit_intercept=bool(self.fit_intercept),
        )

    def _train(self, learner: SGDLearner, parts: list[Block]) -> Candidates:
        passes = None if self.max_iter == "auto" else int(self.max_iter)
        with _progress(self.verbose, passes) as on_pass:
            return train(learner, parts, LocalEngine(self.n_jobs), passes, on_pass)

    def _set_model(self, learner: SGDLearner, vector: Array) -> None:
        coef, intercept = learner.unpack(vector)
        if not self.fit_intercept:
            intercept = np.zeros_like(intercept)
        self.coef_, self.intercept_ = self._shape_model(coef, intercept)

    def _set_candidates(self, learner: SGDLearner, vectors: Array) -> None:
        models = [np.column_stack(learner.unpack(vector)) for vector in vectors]
        stacked = np.stack(models)
        self.candidates_ = stacked[:, 0] if learner.outputs == 1 else stacked

    def _continue_stream(self, X: Any, y: Array, weights: Array, rows: NDArray[np.intp]) -> None:
        stream = self._stream
        learner = stream.learner_on(X, y, weights)
        candidates = stream.feed(learner, self._hold_out(learner, rows))
        self._combine_stream(learner, candidates)
        self.t_, self.n_iter_ = max(state.updates for state in stream.states), 1

    def _hold_out(self, learner: SGDLearner, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        return rows


def _warn_about(candidates: Candidates, k: int) -> None:
    if candidates.kept.size < k:
        warnings.warn(
            f"{k - candidates.kept.size} of {k} candidates diverged and were left out: "
            "use update='implicit' or a smaller step_size",
            ConvergenceWarning,
            stacklevel=3,
        )


@contextmanager
def _progress(verbose: int, passes: int | None) -> Iterator[Callable[[int], None]]:
    """Give a callback for finished passes: a bar where it is wanted and rich is installed."""
    try:
        from rich.progress import Progress  # noqa: PLC0415
    except ImportError:
        verbose = 0
    if not verbose:
        yield lambda number: None
        return
    with Progress() as bar:
        task = bar.add_task("passes over the data", total=passes)
        yield lambda number: bar.update(task, completed=number)
