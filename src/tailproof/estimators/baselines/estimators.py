"""The methods that the paper compares with: one gradient-descent loop, four estimates of the gradient.

w ← proj(w − αₜ Ĝ(w)), equation rgd_defn, where Ĝ is an entry of ``AGGREGATES``:

===============================  =======  =========  =======================
``aggregate``                    method   equation   gradients an update
===============================  =======  =========  =======================
``"mean"``                       ERM-GD              n
``"geometric_median_of_means"``  RGD-MoM  rgd_mom    n
``"m_estimate"``                 RGD-M    rgd_cat    n
``"median_block"``               RGD-Lec  rgd_lecue  n/k, the chosen block's
===============================  =======  =========  =======================

``descend`` is the loop as a function on arrays, with the paper's settings; the estimators add scaling, an
intercept, weights, penalties, sparse rows and several classes.

Single-process SGD, the fifth of the paper's baselines, is DC-SGD with one block and plain steps, its cost one
gradient an update:

>>> from tailproof import DCSGDRegressor
>>> plain = {"update": "explicit", "average": False, "fit_intercept": False, "scale_features": False}
>>> sgd = DCSGDRegressor(k=1, step_size=("over_root_d", 0.01), max_iter=2, **plain)
>>> sgd.fit([[1.0], [1.0]], [1.0, 1.0]).coef_.round(8).tolist()  # 1 − 0.99⁴
[0.03940399]
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import assert_all_finite

from tailproof.core import Array, automatic
from tailproof.core.losses import ABSOLUTE, HINGE, LOG, PINBALL, SOFTMAX, Loss
from tailproof.core.numerics.m_estimates import PSI, SCALES
from tailproof.core.partition import Block, slices
from tailproof.core.scaling import robust_columns, sample_rows, unscaled
from tailproof.core.sets import AllSpace, get_set
from tailproof.core.steps import Auto, get_steps
from tailproof.core.theory import blocks_for
from tailproof.estimators.baselines.aggregators import AGGREGATES, WIDTHS, AggregatorOptions
from tailproof.estimators.baselines.descent import (
    Callback,
    Descent,
    Model,
    Update,
    descend,
    iterate,
    updates_at_most,
)
from tailproof.estimators.baselines.row_gradients import RowGradients, RowIndex, largest_moment
from tailproof.estimators.inputs import (
    PARAMETER_CONSTRAINTS,
    Classification,
    LinearModel,
    Regression,
    naming_bad_input,
    penalties,
    rows_with_weight,
    seed_from_random_state,
    with_default_loss,
)
from tailproof.estimators.parallel import LocalEngine
from tailproof.estimators.screening import after_fit, near_parts, screen_for
from tailproof.estimators.sklearn_private import Interval, StrOptions, fit_context
from tailproof.reports.fit_report import Clock, Report

__all__ = ["AGGREGATES", "AggregatorOptions", "RGDClassifier", "RGDRegressor", "descend"]

_KINKED = (ABSOLUTE, PINBALL, HINGE)
_SMOOTHNESS = {LOG: 0.25, SOFTMAX: 0.5}  # largest curvature, where automatic SGD steps take another
_LOG_LINK_MARGIN = 4.0  # curvature grows with the prediction: a margin over that of the start
_SHARED = (
    "loss loss_parameter k delta step_size constraint penalty alpha l1_ratio scale_features fit_intercept "
    "shuffle init warm_start drop_glitches random_state n_jobs"
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
        clock, seed = Clock(), seed_from_random_state(self.random_state)
        with clock("prepare"):
            X, y = self._check_input(X, y, reset=True)
            X, y, weights = rows_with_weight(sample_weight, X, y)
            loss, target, outputs = self._encode(y)
            screened = screen_for(self, X, target, loss, sample_weight)
            labels = np.zeros_like(target) if self._is_regression else target
            screened = screened.without_far(labels)  # no step suits rows a million scales apart
            X, target, weights = screened.rows_of(X, target, weights)
        with naming_bad_input(lambda: assert_all_finite(X, input_name="X")):
            with clock("prepare"):
                n, d = X.shape
                parts, why = self._parts(n, d, loss, seed)
                double = X.astype(np.float64, copy=False)
                near = near_parts([part.rows for part in parts], screened)
                sample = self._sample(double, target, weights, loss, outputs, parts, near)
                start = self._first_model(sample, parts)
                sizes = self._step_sizes(sample, start)
            with clock("train"):
                descent = self._descend(sample, start, sizes)
        if descent.diverged:
            # Bad input, or steps that are too long; only the data can tell.
            assert_all_finite(X, input_name="X")
            warnings.warn(
                f"gradient descent diverged after {descent.n_iter} updates: the model is the one that it "
                "started from; use a smaller step_size",
                ConvergenceWarning,
                stacklevel=2,
            )
            descent = replace(descent, model=start)
        self._keep(descent)
        screened = after_fit(screened, self, X, target, loss)
        self.report_ = Report.of(
            [sample.y[part].size for part in sample.blocks],
            seed,
            clock,
            passes=descent.n_iter,
            converged=descent.converged,
            gradient_evaluations=descent.cost,
            method=f"gradient descent, aggregate={self.aggregate}",
            why_k=why,
            delta=float(self.delta),
            theorem="none: a baseline",
            **screened.facts(),
        )
        if self.drop_glitches:
            screened.warn()
        return self

    def _parts(self, n: int, d: int, loss: Loss, seed: Any) -> tuple[list[Block], str]:
        """Blocks, which all methods need for a robust start and robust scales."""
        k, why = automatic.number_of_blocks(self.k, self.delta, n, d, "dc", loss)
        if self.k == "auto" and k > blocks_for(self.delta, "dc"):
            k, why = blocks_for(self.delta, "dc"), "k(δ)"
        parts = automatic.blocks_of(None, n, k, seed, self.shuffle, d)
        return parts, why if AGGREGATES[self.aggregate].blockwise else "no blocks are needed"

    def _sample(
        self,
        X: Any,
        y: Array,
        weights: Array,
        loss: Loss,
        outputs: int,
        parts: list[Block],
        near: list[NDArray[np.intp]],
    ) -> RowGradients:
        columns = unscaled(X.shape[1])
        if self.scale_features:
            centred = self.fit_intercept and not sparse.issparse(X)
            common = not isinstance(get_set(self.constraint), AllSpace)
            columns = robust_columns(sample_rows(X, near), centred=centred, common=common)
        if not np.all(np.isfinite(columns.scale)):
            assert_all_finite(X, input_name="X")
        return RowGradients(
            X, y, weights, loss, outputs, columns, bool(self.fit_intercept), self._blocks(parts)
        )

    def _blocks(self, parts: list[Block]) -> list[RowIndex]:
        """One block where the aggregator needs no more; slices where rows keep their order."""
        blockwise, n = AGGREGATES[self.aggregate].blockwise, sum(len(part) for part in parts)
        if blockwise and self.shuffle:
            return [part.rows for part in parts]
        return [*slices(n, len(parts) if blockwise else 1)]

    def _first_model(self, sample: RowGradients, parts: list[Block]) -> Model:
        d, constraint = sample.X.shape[1], get_set(self.constraint)
        go_on = self.warm_start and hasattr(self, "coef_")
        coef, intercept = self._start(sample.loss, sample.y, parts, sample.outputs, d, go_on)
        if not isinstance(constraint, AllSpace):
            coef = constraint.project(coef)
        return Model(coef, intercept + coef @ sample.columns.centre, sample.columns)

    def _step_sizes(self, sample: RowGradients, start: Model) -> Array:
        steps = get_steps(self.step_size)
        numbers = np.arange(updates_at_most(self.max_iter, self.budget, sample))
        n, k = sample.size, len(sample.blocks)
        if not isinstance(steps, Auto):
            return steps.sizes(numbers, sample.X.shape[1], n, k)
        # A block of few rows has a larger eigenvalue than all rows together.
        moment = largest_moment(sample, rows=-(-n // k), robust=AGGREGATES[self.aggregate].robust)
        longest = 2.0 * steps.c / max(_smoothness(sample, start) * moment, 1e-300)
        return longest / np.sqrt(1.0 + numbers * (sample.loss.code in _KINKED))

    def _descend(self, sample: RowGradients, start: Model, sizes: Array) -> Descent:
        run = LocalEngine(self.n_jobs).run
        options = AggregatorOptions(
            float(self.delta), self.m_psi, self.m_scale, self.m_width, self.middle, run
        )
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

    def _keep(self, descent: Descent) -> None:
        offset = descent.model.offset()
        intercept = offset if self.fit_intercept else np.zeros_like(offset)
        self.coef_, self.intercept_ = self._shape_model(descent.model.coef, intercept)
        self.n_iter_, self.cost_, self.converged_ = descent.n_iter, descent.cost, descent.converged


def _smoothness(sample: RowGradients, start: Model) -> float:
    if sample.loss.code in _SMOOTHNESS:
        return _SMOOTHNESS[sample.loss.code]
    bend = automatic.loss_curvature(sample.loss, sample.y, float(start.offset().mean()))
    return bend * (_LOG_LINK_MARGIN if sample.loss.link == "log" else 1.0)


class RGDRegressor(Regression, GradientDescent):
    """Linear regression by gradient descent with a robust (or plain) estimate of the gradient.

    Parameters
    ----------
    loss : str or tuple
        "squared_error", "huber", "absolute_error", "pinball", "poisson", "gamma" or "tweedie" (the last three
        with log link).
    loss_parameter : float, optional
        Threshold of "huber", quantile of "pinball", power of "tweedie"; or ``loss=("pinball", 0.9)``.
    aggregate : str
        A name in ``AGGREGATES``: "mean" (ERM-GD), "geometric_median_of_means" (RGD-MoM), "m_estimate"
        (RGD-M) or "median_block" (RGD-Lec).
    k : int or "auto"
        Number of blocks, for RGD-MoM and RGD-Lec; the partition is the same at every update. "auto" is
        k(δ) = ⌈8 log(1/δ)⌉, fewer where a block would get under 5 rows a parameter.
    delta : float
        One minus the confidence: of k(δ), and of the M-estimate.
    step_size : float, str, tuple or schedule
        In scaled coordinates: a constant, a name in ``STEPS``, or a name with numbers. "auto" is one over the
        largest curvature of the risk, falling as 1/√t where the loss has a kink.
    max_iter : int or None
        Updates at most; None for as many as the budget allows.
    tol : float
        Stop when an update moves no (scaled) coefficient by more than ``tol`` times the largest; 0 for never.
    budget : float, optional
        Stop at the first update with at least this many gradients evaluated, a row's gradient counting one.
    callback : callable, optional
        Called with (gradients evaluated so far, parameters) at the start and after each update: a copy
        of the coefficients of every output, then intercepts if there are any, in the units of the data.
    constraint : None, tuple or set
        Projection of the coefficients after each step: ``("ball", 5.0)``, ``("box", 0.0, 1.0)``,
        ``("l1_ball", r)``, ``("simplex", total)``, or an object of ``tailproof.sets``. Columns then share
        one scale.
    penalty : {"l2", "l1", "elasticnet"}, optional
        Proximal penalty on ``coef_``: α(l1_ratio ‖w‖₁ + (1 − l1_ratio)‖w‖²/2).
    alpha, l1_ratio : float
        Strength and mix of the penalty.
    scale_features : bool
        Train on robustly centred and scaled columns; ``coef_`` is for the data as given.
    fit_intercept : bool
    shuffle : bool
        Deal rows to blocks at random. False cuts them where they stand, as the paper does: for rows that are
        independent draws.
    m_psi : {"gudermannian", "polynomial", "wide"}
        ψ of RGD-M: 2 atan(exp x) − π/2 (its integral is linear at infinity, as the paper asks), or one of
        :func:`tailproof.means.catoni`.
    m_scale : {"m-scale", "sd", "robust"}
        Scale σ of the centred partial derivatives in RGD-M: Geman's M-scale (Holland & Ikeda), the standard
        deviation, or the root of a median of means of squares.
    m_width : {"holland-ikeda", "cat"}
        How s of RGD-M grows with n and δ: s = σ sqrt(n/log(1/δ)), or as in Algorithm "cat",
        s² = n(σ² + q²)/(2 log(2/δ)), for n ≥ 4 log(2/δ).
    middle : {"lower", "upper"}
        Which of the two middle blocks RGD-Lec takes when k is even. Ties go to the first block.
    init : array or tuple, optional
        Start: coefficients, or (coefficients, intercept).
    warm_start : bool
        Start from the last fit.
    drop_glitches : bool
        Leave rows out that are errors of measurement, with a warning, as :class:`DCSGDRegressor` does. False
        keeps all: the methods as the paper has them.
    random_state : int, RandomState or None
        For the blocks, and for the rows that scales are estimated from.
    n_jobs : int, optional
        Threads of RGD-M (the others are products: NumPy's threads). The result does not depend on it.

    Attributes
    ----------
    coef_, intercept_
        The model.
    n_iter_, cost_ : int
        Updates, and gradients evaluated.
    converged_ : bool
        Whether ``tol`` was met.
    report_ : Report
        How the fit went.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((5_000, 3))
    >>> y = X.sum(axis=1) + rng.lognormal(0, 1.75, 5_000)
    >>> model = RGDRegressor(aggregate="m_estimate").fit(X, y)
    >>> bool(np.abs(model.coef_ - 1).max() < 0.5)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = CONSTRAINTS

    def __init__(
        self,
        loss: str | tuple[str, float] = "squared_error",
        *,
        loss_parameter: float | None = None,
        aggregate: str = "mean",
        k: int | str = "auto",
        delta: float = 0.01,
        step_size: Any = "auto",
        max_iter: int | None = 100,
        tol: float = 1e-6,
        budget: float | None = None,
        callback: Callback | None = None,
        constraint: Any = None,
        penalty: str | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.15,
        scale_features: bool = True,
        fit_intercept: bool = True,
        shuffle: bool = True,
        m_psi: str = "gudermannian",
        m_scale: str = "m-scale",
        m_width: str = "holland-ikeda",
        middle: str = "lower",
        init: Any = None,
        warm_start: bool = False,
        drop_glitches: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.loss = loss
        self.loss_parameter = loss_parameter
        self.aggregate = aggregate
        self.k = k
        self.delta = delta
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.budget = budget
        self.callback = callback
        self.constraint = constraint
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.scale_features = scale_features
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.m_psi = m_psi
        self.m_scale = m_scale
        self.m_width = m_width
        self.middle = middle
        self.init = init
        self.warm_start = warm_start
        self.drop_glitches = drop_glitches
        self.random_state = random_state
        self.n_jobs = n_jobs


class RGDClassifier(Classification, GradientDescent):
    """Linear classification by gradient descent with a robust (or plain) estimate of the gradient.

    Parameters
    ----------
    loss : str
        "log_loss" (softmax for several classes), "hinge", "squared_hinge" or "modified_huber" (one class
        against the rest for several).
    loss_parameter : None
        These losses have none.
    **others
        As in :class:`RGDRegressor`.

    Attributes
    ----------
    coef_, intercept_
        The model: one row, or one for each of several classes.
    classes_ : array
    others
        As in :class:`RGDRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_t(2.5, (2_000, 3))
    >>> y = X.sum(axis=1) + rng.logistic(size=2_000) > 0
    >>> model = RGDClassifier(aggregate="geometric_median_of_means", random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = CONSTRAINTS

    __init__ = with_default_loss(RGDRegressor.__init__, "log_loss")
