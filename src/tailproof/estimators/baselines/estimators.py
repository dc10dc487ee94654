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

from typing import Any, ClassVar

from tailproof.estimators.baselines.aggregators import AGGREGATES, Options
from tailproof.estimators.baselines.base import CONSTRAINTS, GradientDescent
from tailproof.estimators.baselines.descent import Callback, descend
from tailproof.estimators.targets import Classification, Regression

__all__ = ["AGGREGATES", "Options", "RGDClassifier", "RGDRegressor", "descend"]


class RGDRegressor(Regression, GradientDescent):
    """Linear regression by gradient descent with a robust (or plain) estimate of the gradient.

    Parameters
    ----------
    loss : str
        "squared_error", "huber", "absolute_error", "pinball", "poisson", "gamma" or "tweedie" (the last three
        with log link).
    loss_parameter : float, optional
        Threshold of "huber", quantile of "pinball", power of "tweedie".
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
        loss: str = "squared_error",
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

    def __init__(
        self,
        loss: str = "log_loss",
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
        self.random_state = random_state
        self.n_jobs = n_jobs
