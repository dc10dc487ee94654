"""RobustRegressor: linear fits from robust to least squares, chosen by robust validation."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import RegressorMixin, is_regressor
from sklearn.utils.validation import assert_all_finite, check_is_fitted, validate_data

from tailproof.core import Array
from tailproof.core.deferred import Deferred
from tailproof.core.lookup import lookup
from tailproof.core.losses import Loss, get_loss, loss_name
from tailproof.estimators.inputs import (
    LinearModel,
    encode_numbers,
    naming_bad_input,
    rows_with_weight,
    seed_from_random_state,
)
from tailproof.estimators.intervals import CoefficientIntervals, PredictionIntervals
from tailproof.estimators.robust_regressor.all_rows import CORRECTED
from tailproof.estimators.robust_regressor.candidates import (
    Candidate,
    LinearFit,
    RegressionTask,
    check_dense,
    estimator_candidate,
    linear_predictions,
    path_candidates,
    sgd_candidates,
)
from tailproof.estimators.robust_regressor.choice import Choice, choose_candidate
from tailproof.estimators.robust_regressor.inference import Blend, blend_of, row_shares, shares_of_losses
from tailproof.estimators.robust_regressor.lasso_candidates import lasso_candidates
from tailproof.estimators.robust_regressor.majority import GUARANTEE, OF_MAJORITY, choose_majority
from tailproof.estimators.robust_regressor.on_demand import (
    errors_of_coefficients,
    errors_of_held_out_rows,
    kept,
    only,
    weights_of_rows,
)
from tailproof.estimators.robust_regressor.refinement import learn, refined
from tailproof.estimators.robust_regressor.truncation_path import prediction_range
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning
from tailproof.estimators.screening import screen
from tailproof.estimators.sklearn_private import Interval, StrOptions, fit_context
from tailproof.reports.choice_report import RobustReport

_LARGEST = 1e150  # target
_LATER = np.empty(0)  # in place of what a report makes when it is asked for
_FITTED = (
    "coef_",
    "intercept_",
    "estimator_",
    "score_range_",
    "coefficient_errors_",
    "held_out_errors_",
    "row_weights_",
    "_later",
)
_LOSSES = {"squared_error", "poisson", "gamma", "tweedie"}
# What gradient boosting has of each loss.
_BOOSTING = {"squared_error": "squared_error", "poisson": "poisson", "gamma": "gamma", "tweedie": "poisson"}
_LEMMA = (
    "Lemma 'boost_conf_unbounded' covers a choice by held-out rows that no candidate has seen; here folds "
    "take turns, and the choice is followed by a fit on all rows: a heuristic of the same form."
)


class RobustRegressor(Deferred, CoefficientIntervals, PredictionIntervals, RegressorMixin, LinearModel):
    """Regression for heavy-tailed targets: many candidates, chosen by robust validation.

    Linear fits from strongly robust to plain least squares, each recentred to target the *mean*, and DC-SGD
    are scored by a robust mean of paired differences of their held-out losses. Where the data can tell
    candidates apart, the best wins; where they cannot, their weighted mean does. 5,000 rows at random (or 100
    a column; 100,000 with the log link or other candidates) are enough to choose by; the chosen one is fitted
    on all, which then judge its bias. ``tailproof.fit`` does so for files larger than memory, chunks, Dask
    and Spark, with 100,000.

    Parameters
    ----------
    loss : {"squared_error", "poisson", "gamma", "tweedie"}
        The last three have the log link, for targets that are not negative.
    loss_parameter : float, optional
        Power of "tweedie", strictly between 1 and 2.
    candidates : {"linear", "auto"} or list
        "linear" is the path and DC-SGD; "auto" adds gradient boosting; a list adds its regressors, given as
        estimators or as (name, estimator). They see X as an array, without names of columns.
    delta : float
        One minus the confidence of means and intervals.
    fit_intercept : bool
    contamination : float, optional
        Fit the majority instead of the mean: this share of the rows, below 1/2, may be wrong in features and
        target without a say. An MM-estimate takes the place of all candidates; squared error only.
    drop_glitches : bool
        Leave rows out that are errors of measurement, with a warning: targets in up to 1% of the rows, or one
        of the features in up to 5%, beyond a gap that no tail has (more than 100 robust scales from the
        centre and 30 times as far as any other row), unless the other rows predict them. False keeps all.
    random_state : int, RandomState or None
        Assigns rows to folds, and seeds DC-SGD.

    Attributes
    ----------
    coef_, intercept_
        The model, if a linear one was chosen.
    score_range_ : array of shape (2,)
        For the log link: ``⟨coef_, x⟩ + intercept_`` is kept within these limits, twice what the predictions
        for the rows fitted reach, before it is exponentiated. New rows a little beyond them get no
        absurd mean.
    row_weights_ : array of shape (n_samples,)
        How much each row counted in a linear fit: 1 as in least squares, 0 not at all.
    coefficient_errors_, held_out_errors_
        What :meth:`summary` and :meth:`predict_interval` need.
    estimator_ : object
        The chosen regressor, if it is one of the others.
    report_ : RobustReport
        Every candidate with its robust risk and its paired difference to the chosen one.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2_000, 3))
    >>> y = X.sum(axis=1) + rng.lognormal(0, 1.75, 2_000)
    >>> model = RobustRegressor(random_state=0).fit(X, y)
    >>> bool(np.abs(model.coef_ - 1).max() < 0.2)
    True
    """

    _is_regression = True
    _tuning: ClassVar[Tuning] = DEFAULT  # replaced by studies and tests
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "loss": [StrOptions(_LOSSES), tuple, list],
        "loss_parameter": [Interval(Real, None, None, closed="neither"), None],
        "candidates": [StrOptions({"linear", "auto"}), list, tuple],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "fit_intercept": ["boolean"],
        "contamination": [Interval(Real, 0, 0.5, closed="neither"), None],
        "drop_glitches": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        loss: str | tuple[str, float] = "squared_error",
        *,
        loss_parameter: float | None = None,
        candidates: Any = "linear",
        delta: float = 0.05,
        fit_intercept: bool = True,
        contamination: float | None = None,
        drop_glitches: bool = True,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.loss_parameter = loss_parameter
        self.candidates = candidates
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.contamination = contamination
        self.drop_glitches = drop_glitches
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> RobustRegressor:
        """Fit all candidates, choose, and fit the chosen one on all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
            Scales the loss of each row; a row of weight zero is as if absent.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, seed_from_random_state(self.random_state))

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None,
        seed: np.random.SeedSequence,
        all_rows: Callable[[RegressionTask, Any, NDArray[np.intp]], Any] | None = None,
    ) -> RobustRegressor:
        """Choose by these rows, and fit on them or on others.

        ``all_rows`` gets the task, the features of its glitches and the numbers of its rows, and gives the
        task to fit the chosen candidate on, where these rows are a sample.
        """
        started = time.perf_counter()
        X, y = self._check_input(X, y, reset=True, ensure_all_finite=True)
        n_rows = X.shape[0]
        X, y, weights = rows_with_weight(sample_weight, X, y)
        weights = weights.copy()  # they are needed later, and the caller may change his own
        loss, y, _ = self._encode(y)
        _check_squares(loss, y)
        screening = screen(X, y, self.drop_glitches, sample_weight, linear=loss.link == "identity")
        task = RegressionTask(
            X, y, weights, loss, bool(self.fit_intercept), float(self.delta), (), seed, self._tuning
        )
        task = task if screening.kept is None else task.taken(screening.kept)
        far = X[np.delete(np.arange(y.size), screening.kept)] if screening.kept is not None else X[:0]
        whole = task if all_rows is None else all_rows(task, far, screening.called(np.arange(task.n)))
        others = _others(self.candidates, task)
        _check_contamination(self.contamination, loss, others)
        levels_alone = not others and self.contamination is None and loss.link == "identity"
        part = _with_folds(whole.compared(levels_alone))
        prepared = time.perf_counter()
        with naming_bad_input(lambda: assert_all_finite(X, input_name="X")):
            linear = [] if self.contamination is not None else _linear(part)
            rivals = [estimator_candidate(part, name, model) for name, model in others]
            held_out = time.perf_counter()
            choice = (
                choose_candidate(linear, rivals, part)
                if self.contamination is None
                else choose_majority(part, float(self.contamination))
            )
            knows = levels_alone and part.folds and (all_rows is not None or whole.X is not part.X)
            learned = learn(choice.fit(part), part, choice.held_out) if knows else None
            model = choice.fit(whole.knowing(learned))
        blend = blend_of(model) if isinstance(model, LinearFit) else None
        if blend is not None and all_rows is None:
            model, blend = refined(model, blend, task, choice.held_out, part.folds)
        self._keep(model, task)
        self._keep_errors(model, blend, choice, part)
        told = dict.fromkeys(("risk", "difference", "low", "high"), kept(choice.numbers, choice.compared))
        if all_rows is None and (blend is not None or loss.link == "identity"):
            scores = np.ravel(linear_predictions(model, task.X, loss))
            residuals = task.y - scores if loss.link == "identity" else None
            if blend is not None:
                used = np.arange(task.n) if screening.numbers is None else screening.numbers
                weigh = weights_of_rows(blend, n_rows, used, _shares(task, scores, residuals))
                self._defer(only(weigh, "row_weights_"))
                told |= only(weigh, "leading_rows", "leading_weights", "leading_shares")
            if residuals is not None:
                screening = screening.after(residuals, task.y)
        self.report_ = RobustReport(
            candidates=choice.names,
            chosen=choice.best,
            why=choice.why,
            risk=_LATER,
            difference=_LATER,
            low=_LATER,
            high=_LATER,
            delta=float(self.delta),
            folds=len(part.folds),
            compared=part.n,
            glitches=screening.left_out,
            outlying=screening.outlying,
            carriers=screening.carriers,
            seconds={
                "prepare": prepared - started,
                "candidates": held_out - prepared,
                "choice": time.perf_counter() - held_out,
            },
            unsettled=tuple(candidate.name for candidate in linear if not candidate.settled),
            remarks=_remarks(blend),
            guarantee=GUARANTEE
            if self.contamination is not None
            else _LEMMA
            if part.folds
            else "No guarantee: with so few rows nothing was held out.",
        )
        self.report_._defer(told)
        if self.drop_glitches and self.contamination is None:
            screening.warn(stacklevel=4)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Predict the mean of the target."""
        check_is_fitted(self)
        if hasattr(self, "estimator_"):
            X = validate_data(self, X, accept_sparse="csr", reset=False, dtype=[np.float64, np.float32])
            return np.asarray(self.estimator_.predict(X))
        scores = self._decision(X)
        if loss_name(self.loss) == "squared_error":
            return scores
        # Models saved by earlier versions have no limits.
        return np.exp(np.clip(scores, *getattr(self, "score_range_", (-np.inf, np.inf))))

    def plot(self, ax: Any = None) -> Any:
        """Draw every candidate's paired difference to the chosen one (needs matplotlib).

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; new axes without it.

        Returns
        -------
        ax
        """
        check_is_fitted(self)
        return self.report_.plot(ax)

    def _encode(self, y: Any, **streaming: Any) -> tuple[Loss, Array, int]:
        """Loss, targets as it wants them, and the number of outputs."""
        lookup("loss", loss_name(self.loss), dict.fromkeys(_LOSSES))
        loss = get_loss(self.loss, self.loss_parameter, "regression")
        return loss, encode_numbers(loss, y), 1

    def _keep(self, model: Any, task: RegressionTask) -> None:
        for name in _FITTED:
            self.__dict__.pop(name, None)  # of an earlier fit
        if isinstance(model, LinearFit):
            _check_finite(model)
            self.coef_, self.intercept_ = np.asarray(model.coef), model.intercept
            if task.loss.link == "log":
                self.score_range_ = np.concatenate(prediction_range(model.scores(task.X)[None], task.y))
        else:
            self.estimator_ = model

    def _keep_errors(self, model: Any, blend: Blend | None, choice: Choice, part: RegressionTask) -> None:
        """What intervals need: errors of coefficients, and of predictions of rows that were held out."""
        refinement, held_out = blend.refinement if blend else None, choice.held_out
        if refinement is not None and refinement.left_out is not None:
            held_out = held_out + refinement.left_out
        later = {"held_out_errors_": errors_of_held_out_rows(model, held_out, part)}
        if blend is not None:
            remark = OF_MAJORITY if self.contamination is not None else ""
            later["coefficient_errors_"] = errors_of_coefficients(blend, model, remark)
        self._defer(later)


def _remarks(blend: Blend | None) -> tuple[str, ...]:
    if blend is None:
        return ()
    corrected = (CORRECTED,) if blend.level.corrected else ()
    return corrected + (blend.refinement.remark if blend.refinement else ())


def _shares(task: RegressionTask, scores: Array, residuals: Array | None) -> Callable[[], Array]:
    """Makes the shares of the rows in the sum of all losses, without a look at the caller's rows."""
    if residuals is None:
        return functools.partial(np.asarray, row_shares(task, scores))
    return functools.partial(_shares_of_squares, residuals, task.shares())


def _shares_of_squares(residuals: Array, weights: Array | None) -> Array:
    with np.errstate(over="ignore"):
        return shares_of_losses(residuals**2, weights)


def _check_squares(loss: Loss, y: Array) -> None:
    largest = float(np.abs(y).max())
    if loss.link == "identity" and largest > _LARGEST:
        raise ValueError(f"targets as large as {largest:.2g} have no finite squares: divide y by a constant")


def _check_contamination(share: float | None, loss: Loss, others: list[Any]) -> None:
    if share is not None and loss.link != "identity":
        raise ValueError(f"contamination is for loss='squared_error'; got {loss.name!r}")
    if share is not None and others:
        raise ValueError("contamination has one candidate of its own: leave candidates as 'linear'")


def _check_finite(model: LinearFit) -> None:
    if not (np.all(np.isfinite(model.coef)) and np.isfinite(model.intercept)):
        raise ValueError("no candidate has a finite fit: divide columns with huge values by a constant")


def _with_folds(task: RegressionTask) -> RegressionTask:
    """Assign the rows to folds at random; more folds for few rows, none for very few."""
    if task.size < task.tuning.least_rows:
        return task
    tuning = task.tuning
    few = task.n < tuning.few_rows and task.X.shape[1] < tuning.few_columns
    count = tuning.folds_of_few_rows if few else tuning.folds
    order = np.random.default_rng(task.seed.spawn(1)[0]).permutation(task.n)
    return replace(task, folds=tuple(np.sort(order[k::count]) for k in range(count)))


def _linear(task: RegressionTask) -> list[Candidate]:
    """The path, or with too many dense columns for it, SGD."""
    wide = task.X.shape[1] > task.tuning.gram_columns
    found = sgd_candidates(task) if wide and not sparse.issparse(task.X) else path_candidates(task)
    return [*lasso_candidates(task), *found]


def _others(candidates: Any, task: RegressionTask) -> list[tuple[str, Any]]:
    """Names and regressors next to the linear ones."""
    if isinstance(candidates, str):
        return [("gradient boosting", _boosting(task))] if candidates == "auto" else []
    pairs = [entry if isinstance(entry, tuple) else (type(entry).__name__, entry) for entry in candidates]
    for pair in pairs:
        if (
            len(pair) != 2
            or not isinstance(pair[0], str)
            or not (hasattr(pair[1], "fit") and is_regressor(pair[1]))
        ):
            raise ValueError(
                f"candidates must be 'linear', 'auto' or a list of regressors, named or not; got {pair!r}"
            )
    taken = [name for name, _ in pairs]
    return [
        (name if taken.count(name) == 1 else f"{name} ({taken[: i + 1].count(name)})", model)
        for i, (name, model) in enumerate(pairs)
    ]


def _boosting(task: RegressionTask) -> Any:
    check_dense(task.X)
    # Imported on demand: it takes longer than all of this package.
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        loss=_BOOSTING[task.loss.name], random_state=int(task.seed.generate_state(1)[0] % 2**31)
    )
