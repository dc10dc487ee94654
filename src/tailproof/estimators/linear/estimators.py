"""DC-SGD and RV-SGDAve as scikit-learn estimators (Algorithms 1 and 5)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

from tailproof.core.means import MEANS
from tailproof.core.merge import MERGES
from tailproof.estimators.inputs import (
    PARAMETER_CONSTRAINTS,
    ClassificationOfStreams,
    RegressionOfStreams,
    with_default_loss,
)
from tailproof.estimators.linear.early_stopping import EARLY_STOPPING
from tailproof.estimators.linear.fit import Merging
from tailproof.estimators.linear.validating import Validating
from tailproof.estimators.sklearn_private import Interval, StrOptions

_CONSTRAINTS = PARAMETER_CONSTRAINTS | {
    "forget": [None, StrOptions({"auto"}), Interval(Real, 1, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto", EARLY_STOPPING})],
}
MERGE_CONSTRAINTS = _CONSTRAINTS | {
    "merge": [StrOptions(set(MERGES))],
    "trim": ["boolean"],
    "rounds": [Interval(Integral, 1, None, closed="left"), tuple, list],
}
MEAN_CONSTRAINTS = _CONSTRAINTS | {
    "mean": [StrOptions(set(MEANS))],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "cross_validate": ["boolean"],
}


class DCSGDRegressor(RegressionOfStreams, Merging):
    """Linear regression by robust divide and conquer (DC-SGD, Algorithm 1).

    Splits the rows into k blocks, runs SGD on each, merges the k candidates robustly.

    Parameters
    ----------
    loss : str or tuple
        "squared_error", "huber", "absolute_error", "pinball", "poisson", "gamma" or "tweedie" (the last three
        with log link).
    loss_parameter : float, optional
        Threshold of "huber", quantile of "pinball", power of "tweedie"; or ``loss=("pinball", 0.9)``.
    k : int or "auto"
        Number of blocks. "auto" is k(δ) = ⌈8 log(1/δ)⌉, more where rows are plenty, fewer where
        a block would get under 5 rows a parameter.
    delta : float
        One minus the confidence.
    merge : str
        A name in ``MERGES``: "geometric_median", "smallest_ball", "coordinate_median", "trimmed_mean", ...
    trim : bool
        Leave out candidates more than three majority radii away and merge the others again. False is the
        one merge of Algorithm 1.
    rounds : int or sequence of int
        Rounds in which all candidates start where those of the round before merge, with steps from the first
        on; or the number of blocks of each round. More than one pays where blocks are small beside the
        number of parameters (under 5 rows for each). A round then has ``max_iter`` passes, "auto" being 2.
    step_size : float, str, tuple or schedule
        "auto", a constant, a name in ``STEPS``, or a name with numbers: ``("theorem2", 4.0, 1.0)``.
    max_iter : int, "auto" or "early_stopping"
        Passes over the data; "auto" passes until the candidates, as a group, move much less than they differ;
        "early_stopping" until the robust risk of a held-out tenth of the rows has not fallen for two passes.
    batch_size : int
        Rows a step.
    average : bool
        A candidate is the mean of its path over the last pass.
    update : {"implicit", "explicit"}
        Proximal steps, which no row can make too long, or gradient steps of exactly the given size.
    learner : str, tuple or rule
        What a sub-process does with a gradient: "sgd"; "clipped" or ``("clipped", level)``; "mirror" or
        ``("mirror", p)`` for mirror descent in the p-norm; "entropy" on the simplex; "momentum" or
        ``("momentum", beta)``; "truncated" or ``("truncated", level, p)`` for truncated mirror descent.
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
    recentre : bool
        Set the intercept of the merged model by a robust mean of residuals ("squared_error" and log-link
        losses). False is the merge alone, as in Algorithm 1.
    drop_glitches : bool
        Leave rows out that are errors of measurement, with a warning: targets in up to 1% of the rows, or one
        of the features in up to 5%, beyond a gap that no tail has (more than 100 robust scales from the
        centre and 30 times as far as any other row), unless the other rows predict them. False keeps all.
    shuffle : bool
        Deal rows to blocks at random. False keeps their order, for rows that are independent draws.
    init : array or tuple, optional
        Start: coefficients, or (coefficients, intercept).
    warm_start : bool
        Start from the last fit.
    forget : None, "auto" or float
        For ``partial_fit``: a half-life in rows, after which what was learnt counts half; "auto" forgets
        everything before a rise of the errors that has been noticed; None nothing.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads; None takes all cores where the data are large, except inside a job of joblib's. The result
        does not depend on it.
    verbose : int
        Show a progress bar (needs rich).

    Attributes
    ----------
    coef_, intercept_
        The model.
    candidates_ : array
        One row for each candidate that did not diverge: coefficients, then intercept.
    report_ : Report
        How the fit went.
    n_iter_, t_ : int
        Passes, and updates of each candidate.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((5_000, 3))
    >>> y = X.sum(axis=1) + rng.lognormal(0, 1.75, 5_000)
    >>> model = DCSGDRegressor(random_state=0).fit(X, y)
    >>> bool(np.abs(model.coef_ - 1).max() < 0.5)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = MERGE_CONSTRAINTS

    def __init__(
        self,
        loss: str | tuple[str, float] = "squared_error",
        *,
        loss_parameter: float | None = None,
        k: int | str = "auto",
        delta: float = 0.05,
        merge: str = "geometric_median",
        trim: bool = True,
        rounds: int | tuple[int, ...] = 1,
        step_size: Any = "auto",
        max_iter: int | str = "auto",
        batch_size: int = 1,
        average: bool = True,
        update: str = "implicit",
        learner: Any = "sgd",
        constraint: Any = None,
        penalty: str | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.15,
        scale_features: bool = True,
        fit_intercept: bool = True,
        recentre: bool = True,
        drop_glitches: bool = True,
        shuffle: bool = True,
        init: Any = None,
        warm_start: bool = False,
        forget: float | str | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.loss_parameter = loss_parameter
        self.k = k
        self.delta = delta
        self.merge = merge
        self.trim = trim
        self.rounds = rounds
        self.step_size = step_size
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.average = average
        self.update = update
        self.learner = learner
        self.constraint = constraint
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.scale_features = scale_features
        self.fit_intercept = fit_intercept
        self.recentre = recentre
        self.drop_glitches = drop_glitches
        self.shuffle = shuffle
        self.init = init
        self.warm_start = warm_start
        self.forget = forget
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose


class DCSGDClassifier(ClassificationOfStreams, Merging):
    """Linear classification by robust divide and conquer (DC-SGD, Algorithm 1).

    Splits the rows into k blocks, runs SGD on each, merges the k candidates robustly.

    Parameters
    ----------
    loss : str
        "log_loss" (softmax for several classes), "hinge", "squared_hinge" or "modified_huber" (one class
        against the rest for several).
    loss_parameter : None
        These losses have none.
    **others
        As in :class:`DCSGDRegressor`.

    Attributes
    ----------
    coef_, intercept_
        The model: one row, or one for each of several classes.
    classes_ : array
    others
        As in :class:`DCSGDRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_t(2.5, (2_000, 3))
    >>> y = X.sum(axis=1) + rng.logistic(size=2_000) > 0
    >>> model = DCSGDClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = MERGE_CONSTRAINTS

    __init__ = with_default_loss(DCSGDRegressor.__init__, "log_loss")


class RVSGDRegressor(RegressionOfStreams, Validating):
    """Linear regression by robust validation (RV-SGDAve, Algorithm 5).

    Runs averaged SGD on k blocks of one part of the rows, scores the k candidates by a robust mean of their
    losses on the other part, and keeps the best.

    Parameters
    ----------
    loss : str or tuple
        "squared_error", "huber", "absolute_error", "pinball", "poisson", "gamma" or "tweedie" (the last three
        with log link).
    loss_parameter : float, optional
        Threshold of "huber", quantile of "pinball", power of "tweedie"; or ``loss=("pinball", 0.9)``.
    k : int or "auto"
        Number of blocks. "auto" is k(δ) = ⌈log(2⌈log(1/δ)⌉/δ)⌉, fewer where a block would
        get under 5 rows a parameter.
    delta : float
        One minus the confidence.
    mean : str
        A name in ``MEANS``: how losses on held-out rows are averaged. On few rows it falls back to a mean
        that needs fewer, and ``report_.mean`` says so.
    validation_fraction : float
        Share of the rows that validate.
    cross_validate : bool
        Train on all rows and score each candidate on the rows outside its block: the heuristic of section
        4.2 (E4), which the paper warns about, since those rows trained the other candidates.
    recentre : bool
        Give each candidate the intercept that fits its own block best ("squared_error" and log-link
        losses). False is the SGD path alone, as in Algorithm 5.
    drop_glitches : bool
        Leave rows out as :class:`DCSGDRegressor` does; then validate by risks that up to 1% of bad rows do
        not move, without candidates whose predictions are far outside the range of the targets, and take the
        best constant prediction if it is surely better. False is validation as in Algorithm 5.
    max_iter : int, "auto" or "early_stopping"
        As in :class:`DCSGDRegressor`; the risk that stops early is the least of the candidates, on the rows
        that validate.
    average : bool
        False keeps the last iterate of each path instead of its mean: RV-SGD.
    others
        As in :class:`DCSGDRegressor`.

    Attributes
    ----------
    coef_, intercept_
        The model.
    candidates_ : array
        One row for each candidate that did not diverge: coefficients, then intercept.
    best_index_ : int
        Block of the winner.
    validation_risk_ : array
        Robust risk of each candidate.
    report_ : Report
        How the fit went.
    n_iter_, t_ : int
        Passes, and updates of each candidate.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((5_000, 3))
    >>> y = X.sum(axis=1) + rng.standard_t(3, 5_000)
    >>> model = RVSGDRegressor(random_state=0).fit(X, y)
    >>> bool(np.abs(model.coef_ - 1).max() < 0.5)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = MEAN_CONSTRAINTS

    def __init__(
        self,
        loss: str | tuple[str, float] = "squared_error",
        *,
        loss_parameter: float | None = None,
        k: int | str = "auto",
        delta: float = 0.05,
        mean: str = "catoni",
        validation_fraction: float = 0.5,
        cross_validate: bool = False,
        step_size: Any = "auto",
        max_iter: int | str = "auto",
        batch_size: int = 1,
        average: bool = True,
        update: str = "implicit",
        learner: Any = "sgd",
        constraint: Any = None,
        penalty: str | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.15,
        scale_features: bool = True,
        fit_intercept: bool = True,
        recentre: bool = True,
        drop_glitches: bool = True,
        shuffle: bool = True,
        init: Any = None,
        warm_start: bool = False,
        forget: float | str | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.loss_parameter = loss_parameter
        self.k = k
        self.delta = delta
        self.mean = mean
        self.validation_fraction = validation_fraction
        self.cross_validate = cross_validate
        self.step_size = step_size
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.average = average
        self.update = update
        self.learner = learner
        self.constraint = constraint
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.scale_features = scale_features
        self.fit_intercept = fit_intercept
        self.recentre = recentre
        self.drop_glitches = drop_glitches
        self.shuffle = shuffle
        self.init = init
        self.warm_start = warm_start
        self.forget = forget
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose


class RVSGDClassifier(ClassificationOfStreams, Validating):
    """Linear classification by robust validation (RV-SGDAve, Algorithm 5).

    Runs averaged SGD on k blocks of one part of the rows, scores the k candidates by a robust mean of their
    losses on the other part, and keeps the best.

    Parameters
    ----------
    loss : str
        "log_loss" (softmax for several classes), "hinge", "squared_hinge" or "modified_huber" (one class
        against the rest for several).
    loss_parameter : None
        These losses have none.
    **others
        As in :class:`RVSGDRegressor`.

    Attributes
    ----------
    coef_, intercept_
        The model: one row, or one for each of several classes.
    classes_ : array
    others
        As in :class:`RVSGDRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_t(2.5, (2_000, 3))
    >>> y = X.sum(axis=1) + rng.logistic(size=2_000) > 0
    >>> model = RVSGDClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = MEAN_CONSTRAINTS

    __init__ = with_default_loss(RVSGDRegressor.__init__, "log_loss")
