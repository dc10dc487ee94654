"""What RGDRegressor and RGDClassifier share: fit around the loop of gradient descent."""

from __future__ import annotations

import math
import time
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import assert_all_finite

from tailproof.core import Array, automatic
from tailproof.core.losses import ABSOLUTE, HINGE, LOG, PINBALL, SOFTMAX, Loss
from tailproof.core.numerics.m_estimates import PSI, SCALES
from tailproof.core.partition import Block
from tailproof.core.scaling import robust_columns, sample_rows, unscaled
from tailproof.core.sets import AllSpace, get_set
from tailproof.core.steps import Auto, get_steps
from tailproof.core.theory import blocks_for
from tailproof.estimators.baselines.aggregators import AGGREGATES, WIDTHS, Options
from tailproof.estimators.baselines.descent import Callback, Descent, Model, Update, iterate, updates_at_most
from tailproof.estimators.baselines.row_gradients import Rows, Sample, largest_moment
from tailproof.estimators.inputs import (
    PARAMETER_CONSTRAINTS,
    LinearModel,
    check_weights,
    entropy,
    naming_bad_input,
    penalties,
    seed_sequence,
)
from tailproof.estimators.parallel import LocalEngine
from tailproof.estimators.sklearn_private import Interval, StrOptions, fit_context
from tailproof.reports.fit_report import Report

_KINKED = (ABSOLUTE, PINBALL, HINGE)
_SMOOTHNESS = {LOG: 0.25, SOFTMAX: 0.5}  # largest curvature, where automatic SGD steps take another
_LOG_LINK_MARGIN = 4.0  # curvature grows with the prediction: a margin over that of the start
_SHARED = (
    "loss loss_parameter k delta step_size constraint penalty alpha l1_ratio scale_features fit_intercept "
    "shuffle init warm_start random_state n_jobs"
)
CONSTRAINTS = {name: PARAMETER_CONSTRAINTS[name] for name in _SHARED.split()} | {
    "aggregate": [StrOptions(set(AGGREGATES))],
    "max_iter": [Interval(Integral, 1, None, closed="left"), None],
    "tol": [Interval(Real, 0, None, closed="left")],
    "budget": [Interval(Real, 0, None, closed="neither"), None],
    "callback": [callable, None],
    "m_psi": [StrOptions(set(PSI))],
    "m_scale": [StrOptions(set(SCALES))],
    "m_width": [StrOptions(set(WIDTHS))],
    "middle": [StrOptions({"lower", "upper"})],
}


class GradientDescent(LinearModel):
    """What the two estimators share."""

    loss: str
    loss_parameter: float | None
    aggregate: str
    k: int | str
    step_size: Any
    max_iter: int | None
    tol: float
    budget: float | None
    callback: Callback | None
    constraint: Any
    penalty: str | None
    alpha: float
    l1_ratio: float
    scale_features: bool
    shuffle: bool
    m_psi: str
    m_scale: str
    m_width: str
    middle: str
    random_state: Any
    n_jobs: int | None

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> GradientDescent:
        """Fit on (X, y).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Dense rows are read in place if C-ordered float64.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows in means of gradients and losses; a row of weight zero is as if absent.

        Returns
        -------
        self
        """
        started = time.perf_counter()
        X, y = self._check_input(X, y, reset=True)
        X, y, weights = check_weights(sample_weight, X, y)
        loss, target, outputs = self._encode(y)
        seed, (n, d) = seed_sequence(self.random_state), X.shape
        with naming_bad_input(X):
            parts, why = self._parts(n, d, loss, seed)
            sample = self._sample(_double(X), target, weights, loss, outputs, parts)
            start = self._first_model(sample, parts)
            sizes = self._step_sizes(sample, start)
            prepared = time.perf_counter()
            found = self._descend(sample, start, sizes)
        if found.diverged:
            # Bad input, or steps that are too long; only the data can tell.
            assert_all_finite(X, input_name="X")
            _warn_of_divergence(found.n_iter)
        self._keep(found)
        self.report_ = Report(
            method=f"gradient descent, aggregate={self.aggregate}",
            k=len(sample.blocks),
            why_k=why,
            delta=float(self.delta),
            block_sizes=np.array([sample.y[part].size for part in sample.blocks]),
            seed=entropy(seed),
            excluded=np.empty(0, dtype=np.intp),
            passes=found.n_iter,
            converged=found.converged,
            gradient_evaluations=found.cost,
            seconds={"prepare": prepared - started, "train": time.perf_counter() - prepared},
            theorem="none: a baseline",
        )
        return self

    def _parts(self, n: int, d: int, loss: Loss, seed: Any) -> tuple[list[Block], str]:
        """Blocks, which all methods need for a robust start and robust scales."""
        k, why = automatic.number_of_blocks(self.k, self.delta, n, d, "dc", loss)
        if self.k == "auto" and k > blocks_for(self.delta, "dc"):
            k, why = blocks_for(self.delta, "dc"), "k(δ)"
        parts = automatic.blocks_of(None, n, k, seed, self.shuffle, d)
        return parts, why if AGGREGATES[self.aggregate].blockwise else "no blocks are needed"

    def _sample(
        self, X: Any, y: Array, weights: Array, loss: Loss, outputs: int, parts: list[Block]
    ) -> Sample:
        columns = unscaled(X.shape[1])
        if self.scale_features:
            centred = self.fit_intercept and not sparse.issparse(X)
            common = not isinstance(get_set(self.constraint), AllSpace)
            order = np.concatenate([part.rows for part in parts])
            columns = robust_columns(sample_rows(X, order), centred=centred, common=common)
        if not np.all(np.isfinite(columns.scale)):
            assert_all_finite(X, input_name="X")
        return Sample(X, y, weights, loss, outputs, columns, bool(self.fit_intercept), self._blocks(parts))

    def _blocks(self, parts: list[Block]) -> list[Rows]:
        """One block where the aggregator needs no more; slices where rows keep their order."""
        if not AGGREGATES[self.aggregate].blockwise:
            return [slice(0, sum(len(part) for part in parts))]
        return [part.rows if self.shuffle else slice(part.rows[0], part.rows[-1] + 1) for part in parts]

    def _first_model(self, sample: Sample, parts: list[Block]) -> Model:
        d, constraint = sample.X.shape[1], get_set(self.constraint)
        go_on = self.warm_start and hasattr(self, "coef_")
        coef, intercept = self._start(sample.loss, sample.y, parts, sample.outputs, d, go_on)
        if not isinstance(constraint, AllSpace):
            coef = constraint.project(coef)
        return Model(coef, intercept + coef @ sample.columns.centre, sample.columns)

    def _step_sizes(self, sample: Sample, start: Model) -> Array:
        steps = get_steps(self.step_size)
        numbers = np.arange(updates_at_most(self.max_iter, self.budget, sample))
        n, k = sample.size, len(sample.blocks)
        if not isinstance(steps, Auto):
            return steps.sizes(numbers, sample.X.shape[1], n, k)
        # A block of few rows has a larger eigenvalue than all rows together.
        moment = largest_moment(sample, rows=-(-n // k), robust=AGGREGATES[self.aggregate].robust)
        longest = 2.0 * steps.c / max(_smoothness(sample, start) * moment, 1e-300)
        return longest / np.sqrt(1.0 + numbers * (sample.loss.code in _KINKED))

    def _descend(self, sample: Sample, start: Model, sizes: Array) -> Descent:
        run = LocalEngine(self.n_jobs).run
        options = Options(float(self.delta), self.m_psi, self.m_scale, self.m_width, self.middle, run)
        aggregate = AGGREGATES[self.aggregate](sample, options)
        return iterate(
            lambda model: aggregate(sample.scores(model.coef, model.intercept)),
            Update(*penalties(self.penalty, self.alpha, self.l1_ratio), get_set(self.constraint)),
            start,
            sizes,
            tol=self.tol,
            budget=math.inf if self.budget is None else self.budget,
            see=self._see if self.callback else None,
        )

    def _see(self, cost: int, model: Model) -> None:
        if self.callback is not None:
            offset = model.offset() if self.fit_intercept else np.empty(0)
            self.callback(cost, np.concatenate([model.coef.ravel(), offset]))

    def _keep(self, found: Descent) -> None:
        offset = found.model.offset()
        intercept = offset if self.fit_intercept else np.zeros_like(offset)
        self.coef_, self.intercept_ = self._shape_model(found.model.coef, intercept)
        self.n_iter_, self.cost_, self.converged_ = found.n_iter, found.cost, found.converged


def _double(X: Any) -> Any:
    return X.astype(np.float64, copy=False)


def _smoothness(sample: Sample, start: Model) -> float:
    if sample.loss.code in _SMOOTHNESS:
        return _SMOOTHNESS[sample.loss.code]
    bend = automatic.loss_curvature(sample.loss, sample.y, float(start.offset().mean()))
    return bend * (_LOG_LINK_MARGIN if sample.loss.link == "log" else 1.0)


def _warn_of_divergence(updates: int) -> None:
    warnings.warn(
        f"gradient descent diverged after {updates} updates: the model is the last one that is finite; use a "
        "smaller step_size",
        ConvergenceWarning,
        stacklevel=3,
    )
