"""DC-SGD and RV-SGDAve as scikit-learn estimators (Algorithms 1 and 5)."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from tailproof import fitting
from tailproof.boost import Candidates, merge, select
from tailproof.learners.sgd import SGDLearner
from tailproof.losses import LOSSES, SOFTMAX_LOSS, Loss, get_loss
from tailproof.means import MEANS
from tailproof.merge import MERGES
from tailproof.partition import train_validation
from tailproof.sgd_base import (
    PARAMETER_CONSTRAINTS,
    LinearSGD,
    check_regression_target,
    raise_if_bad_input,
)
from tailproof.theory import blocks_for
from tailproof.types import Block

Array = NDArray[np.floating]
_KEPT_FOR_VALIDATION = 20_000  # rows that partial_fit of RV keeps to score its candidates on


class _Regression(RegressorMixin):
    _is_regression = True

    def _encode(self, y: Array, classes: Any = None, first: bool = True) -> tuple[Loss, Array, int]:
        loss = get_loss(self.loss, self.loss_parameter, "regression")
        return loss, check_regression_target(loss, y), 1

    def _shape_model(self, coef: Array, intercept: Array) -> tuple[Array, float]:
        return coef[0], float(intercept[0])

    def predict(self, X: ArrayLike) -> Array:
        """Predict the target: ⟨coef_, x⟩ + intercept_, exponentiated for losses with the log link."""
        scores = self._decision(X)
        return np.exp(scores) if LOSSES[self.loss].link == "log" else scores


class _Classification(ClassifierMixin):
    _is_regression = False

    def _encode(self, y: Array, classes: Any = None, first: bool = True) -> tuple[Loss, Array, int]:
        check_classification_targets(y)
        loss = get_loss(self.loss, self.loss_parameter, "classification")
        if first:
            self.classes_ = np.unique(y if classes is None else classes)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least 2 classes; got 1 class, {self.classes_[0]!r}")
        numbers = np.searchsorted(self.classes_, y)
        known = self.classes_[np.minimum(numbers, len(self.classes_) - 1)] == y
        if not np.all(known):
            raise ValueError(f"y has labels that are not in classes: {np.unique(np.asarray(y)[~known])[:5]}")
        if len(self.classes_) == 2:
            return loss, 2.0 * numbers - 1.0, 1
        return (SOFTMAX_LOSS if loss.name == "log_loss" else loss), numbers.astype(float), len(self.classes_)

    def _shape_model(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        return coef, intercept

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores: positive for ``classes_[1]``, or one column per class."""
        return self._decision(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class of the largest score."""
        scores = self._decision(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def predict_proba(self, X: ArrayLike) -> Array:
        """Class probabilities, for ``loss="log_loss"``."""
        check_is_fitted(self)
        if self.loss != "log_loss":
            raise AttributeError(f"probabilities need loss='log_loss'; this model has loss={self.loss!r}")
        scores = self._decision(X)
        columns = np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores
        powers = np.exp(columns - columns.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of :meth:`predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), 1e-300))


class _Merging(LinearSGD):
    """DC: candidates from all rows, merged (Algorithm 1)."""

    _method = "dc"

    def _name(self) -> str:
        return f"DC-SGD, merge={self.merge}"

    def _rows(self, rows: Any, n: int, seed: Any) -> tuple[Any, Any]:
        return rows, None

    def _combine(
        self, learner: SGDLearner, candidates: Candidates, parts: list[Block], held_out: Any
    ) -> dict[str, Any]:
        raise_if_bad_input(learner, candidates, len(parts))
        found = merge(candidates, self.merge)
        self._set_candidates(learner, candidates.vectors)
        self._set_model(learner, found.point)
        if self.recentre and self.fit_intercept and learner.outputs == 1:
            self._recentre(learner)
        distances = np.linalg.norm(candidates.vectors - found.point, axis=1)
        return {
            "radius": found.radius,
            "distances": distances,
            "stand_out": candidates.kept[distances > 3 * max(found.radius, 1e-300)],
        }

    def _recentre(self, learner: SGDLearner) -> None:
        if not learner.loss.recentres:
            return
        self.intercept_ += fitting.intercept_shift(
            learner.loss, learner.X, learner.y, learner.weights, self.coef_, self.intercept_, self.delta
        )

    def _combine_stream(self, learner: SGDLearner, candidates: Candidates) -> None:
        self._set_candidates(learner, candidates.vectors)
        self._set_model(learner, merge(candidates, self.merge).point)

    def _theorem(self, k: int, n: int) -> str:
        least = blocks_for(self.delta, "dc")
        if self.merge == "centroid":
            return "none: the centroid has no guarantee"
        if k < least:
            return f"none: Theorems 1 and 2 need k ≥ {least} at δ = {self.delta:g}, here k = {k}"
        return (
            f"Lemma boost_conf_sc: k = {k} ≥ ⌈8 log(1/δ)⌉ = {least}, n ≥ k; Theorems 1 and 2 also ask for "
            "a strongly convex risk and their own steps"
        )


class _Validating(LinearSGD):
    """RV: candidates from part of the rows, the winner by a robust mean on the others (Algorithm 5)."""

    _method = "rv"
    _least_rows = 2

    def _name(self) -> str:
        return f"{'RV-SGDAve' if self.average else 'RV-SGD'}{'-CV' if self.cross_validate else ''}, mean={self.mean}"

    def _rows(self, rows: Any, n: int, seed: Any) -> tuple[Any, Any]:
        every = np.arange(n) if rows is None else rows
        if self.cross_validate:
            return every, None
        train, validation = train_validation(
            n, self.validation_fraction, seed.spawn(1)[0], shuffle=self.shuffle
        )
        return every[train], every[validation]

    def _combine(
        self, learner: SGDLearner, candidates: Candidates, parts: list[Block], held_out: Any
    ) -> dict[str, Any]:
        raise_if_bad_input(learner, candidates, len(parts))
        rows = [held_out] * len(candidates.kept)
        if self.cross_validate:
            every = np.concatenate([part.rows for part in parts])
            rows = [np.setdiff1d(every, parts[j].rows) if len(parts) > 1 else every for j in candidates.kept]
        return self._choose(learner, candidates, self._losses(learner, candidates, rows))

    def _choose(self, learner: SGDLearner, candidates: Candidates, losses: list[Array]) -> dict[str, Any]:
        found = select(losses, self.mean, self.delta)
        self._set_candidates(learner, candidates.vectors)
        self._set_model(learner, candidates.vectors[found.best])
        self.best_index_, self.validation_risk_ = int(candidates.kept[found.best]), found.risk
        return {
            "validation_risk": found.risk,
            "validation_low": found.low,
            "validation_high": found.high,
            "best": self.best_index_,
            "mean": found.mean,
        }

    def _losses(
        self, learner: SGDLearner, candidates: Candidates, rows: list[NDArray[np.intp]]
    ) -> list[Array]:
        """Losses of each candidate on its rows, times the weights of the rows."""
        found = []
        for vector, chosen in zip(candidates.vectors, rows, strict=True):
            coef, intercept = learner.unpack(vector)
            scores = np.asarray(learner.X[chosen] @ coef.T) + intercept
            found.append(_row_losses(learner, scores, chosen))
        return found

    def _stream_extras(self) -> dict[str, Any]:
        return {"held_out": []}

    def _hold_out(self, learner: SGDLearner, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Deal a random share of the rows to validation, of which the latest are kept."""
        held = self._stream["coin"].random(rows.size) < self.validation_fraction
        if rows.size > 1 and held.all():
            held[0] = False
        kept = self._stream["held_out"]
        chosen = rows[held]
        weights = learner.weights[chosen] if learner.weights.size else np.ones(chosen.size)
        kept.append((learner.X[chosen], learner.y[chosen], weights))
        while len(kept) > 1 and sum(part[1].size for part in kept[1:]) >= _KEPT_FOR_VALIDATION:
            kept.pop(0)
        return rows[~held]

    def _combine_stream(self, learner: SGDLearner, candidates: Candidates) -> None:
        losses: list[list[Array]] = [[] for _ in candidates.kept]
        for X, y, weights in self._stream["held_out"]:
            part = SGDLearner(**{**vars(learner), "X": X, "y": y, "weights": weights})
            every = [np.arange(y.size)] * len(losses)
            for mine, more in zip(losses, self._losses(part, candidates, every), strict=True):
                mine.append(more)
        self._choose(learner, candidates, [np.concatenate(mine) for mine in losses])

    def _theorem(self, k: int, n: int) -> str:
        least = blocks_for(self.delta, "rv")
        if self.cross_validate:
            return "none: scoring candidates on each other's training rows is a heuristic"
        if self.delta > 1 / 3 or k < least or n < 2 * k:
            return f"none: Theorem 3 needs δ ≤ 1/3, k ≥ {least} and n ≥ 2k; here k = {k}, n = {n}"
        return (
            f"Lemma boost_conf_unbounded: k = {k} ≥ {least}, n ≥ 2k; Theorem 3 also asks for a smooth risk, "
            "averaging and its own steps"
        )


def _row_losses(learner: SGDLearner, scores: Array, rows: NDArray[np.intp]) -> Array:
    y = learner.y[rows]
    if learner.outputs == 1:
        losses = learner.loss.value(scores[:, 0], y)
    elif learner.loss is SOFTMAX_LOSS:
        losses = learner.loss.value(scores, y)
    else:
        signs = np.where(y[:, None] == np.arange(learner.outputs), 1.0, -1.0)
        losses = learner.loss.value(scores, signs).sum(axis=1)
    return losses * learner.weights[rows] if learner.weights.size else losses


MERGE_CONSTRAINTS = PARAMETER_CONSTRAINTS | {"merge": [StrOptions(set(MERGES))]}
MEAN_CONSTRAINTS = {name: value for name, value in PARAMETER_CONSTRAINTS.items() if name != "recentre"} | {
    "mean": [StrOptions(set(MEANS))],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "cross_validate": ["boolean"],
}


class DCSGDRegressor(_Regression, _Merging):
    """Linear regression by robust divide and conquer (DC-SGD, Algorithm 1).

    Splits the rows into k blocks, runs SGD on each, merges the k candidates robustly.

    Parameters
    ----------
    loss : str
        "squared_error", "huber", "absolute_error", "pinball", "poisson", "gamma" or "tweedie" (the last three
        with log link).
    loss_parameter : float, optional
        Threshold of "huber", quantile of "pinball", power of "tweedie".
    k : int or "auto"
        Number of blocks. "auto" is k(δ) = ⌈8 log(1/δ)⌉, more where rows are plenty, fewer where
        a block would get under 5 rows a parameter.
    delta : float
        One minus the confidence.
    merge : str
        A name in ``MERGES``: "geometric_median", "smallest_ball", "coordinate_median", "centroid".
    step_size : float, str, tuple or schedule
        "auto", a constant, a name in ``STEPS``, or a name with numbers: ``("theorem2", 4.0, 1.0)``.
    max_iter : int or "auto"
        Passes over the data; "auto" passes until the candidates, as a group, move much less than they differ.
    batch_size : int
        Rows a step.
    average : bool
        A candidate is the mean of its path over the last pass.
    update : {"implicit", "explicit"}
        Proximal steps, which no row can make too long, or gradient steps exactly as asked.
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
    shuffle : bool
        Deal rows to blocks at random. False keeps their order, for rows that are independent draws.
    init : array or tuple, optional
        Start: coefficients, or (coefficients, intercept).
    warm_start : bool
        Start from the last fit.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads. The result does not depend on it.
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
        loss: str = "squared_error",
        *,
        loss_parameter: float | None = None,
        k: int | str = "auto",
        delta: float = 0.05,
        merge: str = "geometric_median",
        step_size: Any = "auto",
        max_iter: int | str = "auto",
        batch_size: int = 1,
        average: bool = True,
        update: str = "implicit",
        constraint: Any = None,
        penalty: str | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.15,
        scale_features: bool = True,
        fit_intercept: bool = True,
        recentre: bool = True,
        shuffle: bool = True,
        init: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.loss_parameter = loss_parameter
        self.k = k
        self.delta = delta
        self.merge = merge
        self.step_size = step_size
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.average = average
        self.update = update
        self.constraint = constraint
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.scale_features = scale_features
        self.fit_intercept = fit_intercept
        self.recentre = recentre
        self.shuffle = shuffle
        self.init = init
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose


class DCSGDClassifier(_Classification, _Merging):
    """Linear classification by robust divide and conquer (DC-SGD, Algorithm 1).

    Splits the rows into k blocks, runs SGD on each, merges the k candidates robustly.

    Parameters
    ----------
    loss : str
        "log_loss" (softmax for several classes), "hinge", "squared_hinge" or "modified_huber" (one class against
        the rest for several).
    loss_parameter : float, optional
        Not used by these losses.
    k : int or "auto"
        Number of blocks. "auto" is k(δ) = ⌈8 log(1/δ)⌉, more where rows are plenty, fewer where
        a block would get under 5 rows a parameter.
    delta : float
        One minus the confidence.
    merge : str
        A name in ``MERGES``: "geometric_median", "smallest_ball", "coordinate_median", "centroid".
    step_size : float, str, tuple or schedule
        "auto", a constant, a name in ``STEPS``, or a name with numbers: ``("theorem2", 4.0, 1.0)``.
    max_iter : int or "auto"
        Passes over the data; "auto" passes until the candidates, as a group, move much less than they differ.
    batch_size : int
        Rows a step.
    average : bool
        A candidate is the mean of its path over the last pass.
    update : {"implicit", "explicit"}
        Proximal steps, which no row can make too long, or gradient steps exactly as asked.
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
    shuffle : bool
        Deal rows to blocks at random. False keeps their order, for rows that are independent draws.
    init : array or tuple, optional
        Start: coefficients, or (coefficients, intercept).
    warm_start : bool
        Start from the last fit.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads. The result does not depend on it.
    verbose : int
        Show a progress bar (needs rich).

    Attributes
    ----------
    coef_, intercept_
        The model.
    classes_ : array
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
    >>> X = rng.standard_t(2.5, (2_000, 3))
    >>> y = X.sum(axis=1) + rng.logistic(size=2_000) > 0
    >>> model = DCSGDClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = MERGE_CONSTRAINTS

    def __init__(
        self,
        loss: str = "log_loss",
        *,
        loss_parameter: float | None = None,
        k: int | str = "auto",
        delta: float = 0.05,
        merge: str = "geometric_median",
        step_size: Any = "auto",
        max_iter: int | str = "auto",
        batch_size: int = 1,
        average: bool = True,
        update: str = "implicit",
        constraint: Any = None,
        penalty: str | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.15,
        scale_features: bool = True,
        fit_intercept: bool = True,
        recentre: bool = True,
        shuffle: bool = True,
        init: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.loss_parameter = loss_parameter
        self.k = k
        self.delta = delta
        self.merge = merge
        self.step_size = step_size
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.average = average
        self.update = update
        self.constraint = constraint
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.scale_features = scale_features
        self.fit_intercept = fit_intercept
        self.recentre = recentre
        self.shuffle = shuffle
        self.init = init
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose


class RVSGDRegressor(_Regression, _Validating):
    """Linear regression by robust validation (RV-SGDAve, Algorithm 5).

    Runs averaged SGD on k blocks of one part of the rows, scores the k candidates by a robust mean of their
    losses on the other part, and keeps the best.

    Parameters
    ----------
    loss : str
        "squared_error", "huber", "absolute_error", "pinball", "poisson", "gamma" or "tweedie" (the last three
        with log link).
    loss_parameter : float, optional
        Threshold of "huber", quantile of "pinball", power of "tweedie".
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
    step_size : float, str, tuple or schedule
        "auto", a constant, a name in ``STEPS``, or a name with numbers: ``("theorem2", 4.0, 1.0)``.
    max_iter : int or "auto"
        Passes over the data; "auto" passes until the candidates, as a group, move much less than they differ.
    batch_size : int
        Rows a step.
    average : bool
        A candidate is the mean of its path over the last pass; False is RV-SGD.
    update : {"implicit", "explicit"}
        Proximal steps, which no row can make too long, or gradient steps exactly as asked.
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
        Deal rows to blocks at random. False keeps their order, for rows that are independent draws.
    init : array or tuple, optional
        Start: coefficients, or (coefficients, intercept).
    warm_start : bool
        Start from the last fit.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads. The result does not depend on it.
    verbose : int
        Show a progress bar (needs rich).

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
    >>> y = X.sum(axis=1) + rng.lognormal(0, 1.75, 5_000)
    >>> model = RVSGDRegressor(random_state=0).fit(X, y)
    >>> bool(np.abs(model.coef_ - 1).max() < 0.5)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = MEAN_CONSTRAINTS

    def __init__(
        self,
        loss: str = "squared_error",
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
        constraint: Any = None,
        penalty: str | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.15,
        scale_features: bool = True,
        fit_intercept: bool = True,
        shuffle: bool = True,
        init: Any = None,
        warm_start: bool = False,
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
        self.constraint = constraint
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.scale_features = scale_features
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.init = init
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose


class RVSGDClassifier(_Classification, _Validating):
    """Linear classification by robust validation (RV-SGDAve, Algorithm 5).

    Runs averaged SGD on k blocks of one part of the rows, scores the k candidates by a robust mean of their
    losses on the other part, and keeps the best.

    Parameters
    ----------
    loss : str
        "log_loss" (softmax for several classes), "hinge", "squared_hinge" or "modified_huber" (one class against
        the rest for several).
    loss_parameter : float, optional
        Not used by these losses.
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
    step_size : float, str, tuple or schedule
        "auto", a constant, a name in ``STEPS``, or a name with numbers: ``("theorem2", 4.0, 1.0)``.
    max_iter : int or "auto"
        Passes over the data; "auto" passes until the candidates, as a group, move much less than they differ.
    batch_size : int
        Rows a step.
    average : bool
        A candidate is the mean of its path over the last pass; False is RV-SGD.
    update : {"implicit", "explicit"}
        Proximal steps, which no row can make too long, or gradient steps exactly as asked.
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
        Deal rows to blocks at random. False keeps their order, for rows that are independent draws.
    init : array or tuple, optional
        Start: coefficients, or (coefficients, intercept).
    warm_start : bool
        Start from the last fit.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads. The result does not depend on it.
    verbose : int
        Show a progress bar (needs rich).

    Attributes
    ----------
    coef_, intercept_
        The model.
    classes_ : array
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
    >>> X = rng.standard_t(2.5, (2_000, 3))
    >>> y = X.sum(axis=1) + rng.logistic(size=2_000) > 0
    >>> model = RVSGDClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = MEAN_CONSTRAINTS

    def __init__(
        self,
        loss: str = "log_loss",
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
        constraint: Any = None,
        penalty: str | None = None,
        alpha: float = 0.0,
        l1_ratio: float = 0.15,
        scale_features: bool = True,
        fit_intercept: bool = True,
        shuffle: bool = True,
        init: Any = None,
        warm_start: bool = False,
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
        self.constraint = constraint
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.scale_features = scale_features
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.init = init
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
