"""What the four SGD estimators share: input, training, folding back, partial_fit, prediction."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, assert_all_finite, check_is_fitted, validate_data

from tailproof import fitting
from tailproof.boost import Candidates, train
from tailproof.engines.local import LocalEngine
from tailproof.learners.sgd import SGDLearner
from tailproof.losses import Loss
from tailproof.report import Report
from tailproof.scaling import expected_square_norm, robust_columns, sample_rows, unscaled
from tailproof.sets import AllSpace, get_set
from tailproof.sgd_stream import Stream
from tailproof.steps import get_steps
from tailproof.types import Block

Array = NDArray[np.floating]
_NO_WEIGHTS = np.empty(0)

PARAMETER_CONSTRAINTS: dict[str, Any] = {
    "loss": [str],
    "loss_parameter": [Interval(Real, None, None, closed="neither"), None],
    "k": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "delta": [Interval(Real, 0, 1, closed="neither")],
    "step_size": "no_validation",
    "max_iter": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "average": ["boolean"],
    "update": [StrOptions({"implicit", "explicit"})],
    "constraint": "no_validation",
    "penalty": [StrOptions({"l1", "l2", "elasticnet"}), None],
    "alpha": [Interval(Real, 0, None, closed="left")],
    "l1_ratio": [Interval(Real, 0, 1, closed="both")],
    "scale_features": ["boolean"],
    "fit_intercept": ["boolean"],
    "recentre": ["boolean"],
    "shuffle": ["boolean"],
    "init": "no_validation",
    "warm_start": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [Integral, None],
    "verbose": ["verbose"],
}


class LinearSGD(BaseEstimator):
    """Base of the estimators: how blocks become candidates; subclasses say how candidates become one."""

    # Parameters and hooks that the estimators define; scikit-learn wants every __init__ written out.
    loss: str
    loss_parameter: float | None
    k: int | str
    delta: float
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
    fit_intercept: bool
    recentre: bool
    shuffle: bool
    init: Any
    warm_start: bool
    random_state: Any
    n_jobs: int | None
    verbose: int

    _is_regression: bool
    _encode: Callable[..., tuple[Loss, Array, int]]
    _shape_model: Callable[[Array, Array], tuple[Any, Any]]
    _name: Callable[[], str]
    _rows: Callable[..., tuple[Any, Any]]
    _combine: Callable[..., dict[str, Any]]
    _combine_stream: Callable[..., None]
    _theorem: Callable[[int, int], str]

    _method = "dc"
    _least_rows = 1
    _stream: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

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
        X, y = self._check_input(X, y, reset=True, min_rows=self._least_rows)
        X, y, weights = _check_weights(sample_weight, X, y)
        loss, target, outputs = self._encode(y)
        seed, (n, d) = _seed_sequence(self.random_state), X.shape
        self._stream = None
        with _naming_bad_input(X):
            trained, held_out = self._rows(n, seed)
            k, why = self._number_of_blocks(n if trained is None else trained.size, d, loss)
            parts = fitting.blocks_of(trained, n, k, seed, self.shuffle, d)
            learner = self._learner(X, target, weights, loss, outputs, parts)
            prepared = time.perf_counter()
            candidates = self._train(learner, parts)
            if candidates.kept.size < k:
                # Bad input, or divergence; only the data can tell.
                assert_all_finite(X, input_name="X")
            done = time.perf_counter()
            found = self._combine(learner, candidates, parts, held_out)
        warn_about(candidates, k)
        self.n_iter_, self.t_ = candidates.passes, candidates.states[0].updates
        self.report_ = Report(
            method=self._name(),
            k=k,
            why_k=why,
            delta=float(self.delta),
            block_sizes=np.array([len(part) for part in parts]),
            seed=_entropy(seed),
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

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> LinearSGD:
        first, fresh = self._stream is None, not hasattr(self, "coef_")
        # A batch is small, and bad rows must not reach the running candidates: look before.
        X, y = self._check_input(X, y, reset=fresh, ensure_all_finite=True)
        X, y, weights = _check_weights(sample_weight, X, y)
        loss, target, outputs = self._encode(y, classes=classes, first=fresh, stream=True)
        if first:
            seed, (n, d) = _seed_sequence(self.random_state), X.shape
            k = self._number_of_blocks(n, d, loss)[0] if self.k == "auto" else int(self.k)
            parts = fitting.blocks_of(None, n, min(k, n), seed, self.shuffle, d)
            learner = self._learner(X, target, weights, loss, outputs, parts, go_on=not fresh)
            self._stream = Stream(learner, k, seed)
        learner = self._stream.learner_on(X, target, weights)
        candidates = self._stream.feed(learner, self._hold_out(learner, np.arange(len(target))))
        self._combine_stream(learner, candidates)
        self.t_, self.n_iter_ = max(state.updates for state in self._stream.states), 1
        return self

    def _check_input(
        self, X: Any, y: Any, reset: bool, min_rows: int = 1, ensure_all_finite: bool = False
    ) -> tuple[Any, Any]:
        # Looking for NaN reads all of X, which takes as long as training; the candidates will show it.
        X, y = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            ensure_all_finite=ensure_all_finite,
            ensure_min_samples=min_rows,
            y_numeric=self._is_regression,
        )
        if sparse.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X, y

    def _number_of_blocks(self, n: int, d: int, loss: Loss) -> tuple[int, str]:
        return fitting.number_of_blocks(self.k, self.delta, n, d, self._method, loss)

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
        if not np.all(np.isfinite(columns.scale)):
            assert_all_finite(X, input_name="X")
        go_on = (go_on or self.warm_start) and hasattr(self, "coef_")
        coef, intercept = self._start(loss, y, parts, outputs, d, go_on)
        bend = fitting.loss_curvature(loss, y, float(intercept.mean()))
        typical = float(weights.mean()) if weights.size else 1.0
        norm = float(self.fit_intercept) + expected_square_norm(sample, columns)
        l1, l2 = _penalties(self.penalty, self.alpha, self.l1_ratio)
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

    def _start(
        self, loss: Loss, y: Array, parts: list[Block], outputs: int, d: int, go_on: bool
    ) -> tuple[Array, Array]:
        """Warm start, the start given, or zero with the best constant prediction as intercept."""
        if go_on:
            coef, intercept = np.copy(self.coef_), np.atleast_1d(np.copy(self.intercept_))
        elif self.init is not None:
            coef, intercept = self.init if _is_pair(self.init) else (self.init, np.zeros(outputs))
        else:
            constant = fitting.start_intercept(loss, y, parts) if self.fit_intercept else 0.0
            coef, intercept = np.zeros((outputs, d)), np.full(outputs, constant)
        try:
            shaped = np.array(coef, dtype=np.float64).reshape(outputs, d)
            offset = np.array(intercept, dtype=np.float64).reshape(outputs) * float(self.fit_intercept)
            assert_all_finite(np.append(shaped.ravel(), offset))
            return shaped, offset
        except (ValueError, TypeError):
            raise ValueError(
                f"the start must be {outputs} × {d} finite coefficients and {outputs} finite intercepts: "
                "give init=(coef, intercept), or turn warm_start off"
            ) from None

    def _train(self, learner: SGDLearner, parts: list[Block]) -> Candidates:
        passes = None if self.max_iter == "auto" else int(self.max_iter)
        with _progress(self.verbose, passes) as on_pass:
            return train(learner, parts, LocalEngine(self.n_jobs), passes, on_pass)

    def _set_model(self, learner: SGDLearner, vector: Array) -> None:
        coef, intercept = learner.unpack(vector)
        coef = learner.constraint.project(coef)  # not every merge of points of the set lies in it
        if not self.fit_intercept:
            intercept = np.zeros_like(intercept)
        self.coef_, self.intercept_ = self._shape_model(coef, intercept)

    def _recentre(self, learner: SGDLearner, parts: list[Block]) -> None:
        """Set the intercept by its own condition; losses with bounded slopes have no skew to correct."""
        if self.recentre and self.fit_intercept and learner.loss.unbounded:
            self.intercept_ += fitting.intercept_shift(
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

    def _hold_out(self, learner: SGDLearner, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        return rows

    def _decision(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False, dtype=[np.float64, np.float32])
        scores = X @ np.atleast_2d(self.coef_).T + np.atleast_1d(self.intercept_)
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)


@contextmanager
def _naming_bad_input(X: Any) -> Iterator[None]:
    """Name NaN and infinity in X as scikit-learn does, when a fit fails because of them."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except ValueError:
        assert_all_finite(X, input_name="X")
        raise


def warn_about(candidates: Candidates, k: int) -> None:
    if candidates.kept.size < k:
        warnings.warn(
            f"{k - candidates.kept.size} of {k} candidates diverged and were left out: "
            "use update='implicit' or a smaller step_size",
            ConvergenceWarning,
            stacklevel=4,
        )


def _check_weights(sample_weight: ArrayLike | None, X: Any, y: Any) -> tuple[Any, Any, Array]:
    """Rows of positive weight, and their weights (empty where all count the same)."""
    if sample_weight is None:
        return X, y, _NO_WEIGHTS
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: at least one must be positive")
    if weights.all():
        return X, y, weights
    kept = np.flatnonzero(weights)
    return X[kept], y[kept], weights[kept]


def _is_pair(init: Any) -> bool:
    return isinstance(init, tuple) and len(init) == 2


def _seed_sequence(random_state: Any) -> np.random.SeedSequence:
    """Entropy from an int or a RandomState; fresh entropy for None, leaving NumPy's global state alone."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return np.random.SeedSequence(None if random_state is None else int(random_state))
    draws = check_random_state(random_state).randint(0, 2**31 - 1, size=4)
    return np.random.SeedSequence(draws.tolist())


def _entropy(seed: np.random.SeedSequence) -> tuple[int, ...]:
    entropy: Any = seed.entropy
    return tuple(entropy) if isinstance(entropy, list) else (entropy,)


def _penalties(penalty: str | None, alpha: float, l1_ratio: float) -> tuple[float, float]:
    share = {None: (0.0, 0.0), "l2": (0.0, 1.0), "l1": (1.0, 0.0), "elasticnet": (l1_ratio, 1.0 - l1_ratio)}
    first, second = share[penalty]
    return alpha * first, alpha * second


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
