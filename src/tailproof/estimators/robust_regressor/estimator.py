"""RobustRegressor: linear fits from robust to least squares, chosen by robust validation."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import assert_all_finite, check_is_fitted, validate_data

from tailproof.core import Array
from tailproof.core.deferred import Deferred, Make
from tailproof.core.lookup import lookup
from tailproof.core.losses import Loss, get_loss, loss_name
from tailproof.estimators.choice_plot import ChoicePlot
from tailproof.estimators.inputs import (
    LinearModel,
    check_finite_model,
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
    estimator_candidate,
    linear_predictions,
)
from tailproof.estimators.robust_regressor.choice import Choice, choose_candidate
from tailproof.estimators.robust_regressor.inference import Blend, blend_of, row_shares, shares_of_losses
from tailproof.estimators.robust_regressor.left_out import prediction_range
from tailproof.estimators.robust_regressor.light_penalty import GUARDED, lightly_penalised
from tailproof.estimators.robust_regressor.log_link import UNSETTLED, log_link_remarks
from tailproof.estimators.robust_regressor.majority import GUARANTEE, OF_MAJORITY, choose_majority
from tailproof.estimators.robust_regressor.on_demand import (
    errors_of_coefficients,
    errors_of_held_out_rows,
    kept,
    only,
    weights_of_rows,
)
from tailproof.estimators.robust_regressor.preparation import (
    check_contamination,
    check_squares,
    in_usual_unit,
    linear_candidates,
    other_candidates,
    with_folds,
)
from tailproof.estimators.robust_regressor.refinement import learn, refined
from tailproof.estimators.robust_regressor.second_fit import Learned
from tailproof.estimators.robust_regressor.towards_ridge import OF_CANDIDATES, TowardsRidge, towards_ridge
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning
from tailproof.estimators.screening import Screened, screen
from tailproof.estimators.sklearn_private import Interval, StrOptions, fit_context
from tailproof.reports.choice_report import RobustReport
from tailproof.reports.fit_report import Clock

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
_LEMMA = (
    "Lemma 'boost_conf_unbounded' covers a choice by held-out rows that no candidate has seen; here folds "
    "take turns, and the choice is followed by a fit on all rows: a heuristic of the same form."
)


@dataclass(frozen=True)
class Given:
    """The caller's rows as a task, without glitches; what was found in them, and how many they were."""

    task: RegressionTask
    screening: Screened
    glitches: Any
    n_rows: int

    @property
    def used(self) -> NDArray[np.intp]:
        """What the caller calls the rows of the task."""
        numbers = self.screening.numbers
        return np.arange(self.task.n) if numbers is None else numbers


class RobustRegressor(
    Deferred, ChoicePlot, CoefficientIntervals, PredictionIntervals, RegressorMixin, LinearModel
):
    """Regression for heavy-tailed targets: many candidates, chosen by robust validation.

    Linear fits from strongly robust to plain least squares, each recentred to target the *mean*, and DC-SGD
    are scored by a robust mean of paired differences of their held-out losses. Where the data can tell
    candidates apart, the best wins; where they cannot, their weighted mean does. 5,000 rows at random (or 100
    a column; 20,000 or 100,000 where these have missed large targets, and 100,000 with the log link or other
    candidates) are enough to choose by; the chosen one is fitted on all, which then judge its bias.
    ``tailproof.fit`` does so for files larger than memory, chunks, Dask and Spark.

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
        For the log link: ``⟨coef_, x⟩ + intercept_`` is kept within these limits before it is exponentiated:
        twice what the predictions for the rows fitted reach, or less where a few of these would lift the mean
        prediction above the mean target. New rows a little beyond others get no absurd mean.
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
        clock = Clock()
        with clock("prepare"):
            given = self._given(X, y, sample_weight, seed)
            task = given.task
            whole = task if all_rows is None else all_rows(task, given.glitches, given.used)
            others = other_candidates(self.candidates, task)
            check_contamination(self.contamination, task.loss, others)
            levels_alone = not others and self.contamination is None and task.loss.link == "identity"
            part = with_folds(whole.compared(levels_alone))
        with naming_bad_input(lambda: assert_all_finite(task.X, input_name="X")):
            with clock("candidates"):
                linear = [] if self.contamination is not None else linear_candidates(part)
                rivals = [estimator_candidate(part, name, model) for name, model in others]
            with clock("choice"):
                choice = self._choose(linear, rivals, part)
                model = choice.fit(
                    whole.knowing(self._learned(choice, part, whole) if levels_alone else None)
                )
        with clock("choice"):
            model, blend, remarks = self._kept(model, choice, task, part, whole)
            told, screening = self._told(model, blend, choice, given, looks_back=all_rows is None)
        unsettled = tuple(candidate.name for candidate in linear if not candidate.settled)
        self.report_ = self._report(choice, part, screening, remarks, unsettled, clock)
        self.report_._defer(told)
        if self.drop_glitches and self.contamination is None:
            screening.warn(stacklevel=4)
        if UNSETTLED in remarks:
            warnings.warn(UNSETTLED, ConvergenceWarning, stacklevel=4)
        return self

    def _given(self, X: Any, y: Any, sample_weight: ArrayLike | None, seed: np.random.SeedSequence) -> Given:
        """Check the caller's rows, and look for rows of another population."""
        X, y = self._check_input(X, y, reset=True, ensure_all_finite=True)
        n_rows = X.shape[0]
        X, y, weights = rows_with_weight(sample_weight, X, y)
        loss, y, _ = self._encode(y)
        check_squares(loss, y)
        screening = screen(X, y, self.drop_glitches, sample_weight, linear=loss.link == "identity")
        # Weights are needed later, and the caller may change his own.
        rows = (X, y, in_usual_unit(weights.copy()))
        task = RegressionTask(
            *rows, loss, bool(self.fit_intercept), float(self.delta), (), seed, self._tuning
        )
        if screening.kept is None:
            return Given(task, screening, X[:0], n_rows)
        glitches = X[np.delete(np.arange(y.size), screening.kept)]
        return Given(task.taken(screening.kept), screening, glitches, n_rows)

    def _choose(self, linear: list[Candidate], rivals: list[Candidate], part: RegressionTask) -> Choice:
        if self.contamination is not None:
            return choose_majority(part, float(self.contamination))
        return choose_candidate(linear, rivals, part)

    def _learned(self, choice: Choice, part: RegressionTask, whole: Any) -> Learned | None:
        """What the rows that choose tell about the noise, where there are more than that takes."""
        if not part.folds or (part.X is whole.X and part.n <= part.tuning.inference_rows):
            return None
        return learn(choice.fit(replace(part, slopes_alone=True)), part, choice.held_out)

    def _kept(
        self, model: Any, choice: Choice, task: RegressionTask, part: RegressionTask, whole: Any
    ) -> tuple[Any, Blend | None, tuple[str, ...]]:
        """Keep the model, refined if it is a blend of levels fitted on the task; and remarks on it."""
        if isinstance(model, LinearFit):
            check_finite_model(model.coef, model.intercept, task.X)
        blend = blend_of(model) if isinstance(model, LinearFit) else None
        if blend is not None and (whole is task or blend.level.second is not None):
            model, blend = refined(model, blend, task, choice.held_out, part.folds)
        found = TowardsRidge(model, _held_out(choice, blend))
        if isinstance(model, LinearFit) and part.X is task.X and self.contamination is None:
            found = towards_ridge(model, found.held_out, task, part.folds)
        if blend is not None:
            blend = replace(blend, ridge=found.share)
        remarks = _remarks(blend) + found.remark
        if isinstance(model, LinearFit) and self.contamination is None:
            light, held_out = lightly_penalised(found.model, found.held_out, part, whole.size, found.least)
            remarks += () if light is found.model else (GUARDED,)
            found = replace(found, model=light, held_out=held_out)
        self._keep(found.model, task)
        self._keep_errors(model, blend, found, part)
        if hasattr(self, "score_range_"):
            remarks += log_link_remarks(found.model, self.score_range_, task)
        return found.model, blend, remarks

    def _told(
        self, model: Any, blend: Blend | None, choice: Choice, given: Given, looks_back: bool
    ) -> tuple[dict[str, Make], Screened]:
        """What the report makes when it is asked, and what residuals say about the rows."""
        task, screening = given.task, given.screening
        told = dict.fromkeys(("risk", "difference", "low", "high"), kept(choice.numbers, choice.compared))
        identity = task.loss.link == "identity"
        if not (looks_back and (blend is not None or identity)):
            return told, screening
        scores = np.ravel(linear_predictions(model, task.X, task.loss))
        residuals = np.subtract(task.y, scores, out=scores) if identity else None
        if blend is not None:
            weigh = weights_of_rows(blend, given.n_rows, given.used, _shares(task, scores, residuals))
            self._defer(only(weigh, "row_weights_"))
            told |= only(weigh, "leading_rows", "leading_weights", "leading_shares")
        return told, screening if residuals is None else screening.after(residuals, task.y)

    def _report(
        self,
        choice: Choice,
        part: RegressionTask,
        screening: Screened,
        remarks: tuple[str, ...],
        unsettled: tuple[str, ...],
        clock: Clock,
    ) -> RobustReport:
        return RobustReport(
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
            seconds=clock.seconds,
            unsettled=unsettled,
            remarks=remarks,
            guarantee=self._guarantee(part),
        )

    def _guarantee(self, part: RegressionTask) -> str:
        if self.contamination is not None:
            return GUARANTEE
        return _LEMMA if part.folds else "No guarantee: with so few rows nothing was held out."

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

    def _encode(self, y: Any, **streaming: Any) -> tuple[Loss, Array, int]:
        """Loss, targets as it wants them, and the number of outputs."""
        lookup("loss", loss_name(self.loss), dict.fromkeys(_LOSSES))
        loss = get_loss(self.loss, self.loss_parameter, "regression")
        return loss, encode_numbers(loss, y), 1

    def _keep(self, model: Any, task: RegressionTask) -> None:
        for name in _FITTED:
            self.__dict__.pop(name, None)  # of an earlier fit
        if isinstance(model, LinearFit):
            check_finite_model(model.coef, model.intercept, task.X)
            self.coef_, self.intercept_ = np.asarray(model.coef), model.intercept
            if task.loss.link == "log":
                limits = prediction_range(model.scores(task.X)[None], task.y, task.shares())
                self.score_range_ = np.concatenate(limits)
        else:
            self.estimator_ = model

    def _keep_errors(
        self, model: Any, blend: Blend | None, found: TowardsRidge, part: RegressionTask
    ) -> None:
        """What intervals need: errors of coefficients, and of predictions of rows that were held out."""
        later = {"held_out_errors_": errors_of_held_out_rows(found.model, found.held_out, part)}
        if blend is not None:
            remark = OF_MAJORITY if self.contamination is not None else ""
            remark = OF_CANDIDATES if found.share else remark
            later["coefficient_errors_"] = errors_of_coefficients(blend, model, remark)
        self._defer(later)


def _held_out(choice: Choice, blend: Blend | None) -> Array:
    """Predictions of held-out rows by what was chosen, refined as it is."""
    refinement = blend.refinement if blend else None
    if refinement is None or refinement.left_out is None:
        return choice.held_out
    return np.asarray(choice.held_out + refinement.left_out)


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
