"""Algorithms 1 and 5 over any scikit-learn estimator: ``DivideAndConquer`` and ``RobustValidation``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor

from tailproof.core import Array
from tailproof.core.algorithms import TrainedCandidates, merge, select
from tailproof.core.held_out import held_out_errors
from tailproof.core.means import MEANS
from tailproof.core.merge import MERGES
from tailproof.core.partition import Block, blocks, train_validation
from tailproof.core.sanity import surely_greater
from tailproof.core.theory import guarantee
from tailproof.core.validate import Validation
from tailproof.estimators.inputs import seed_from_random_state
from tailproof.estimators.intervals import CandidateIntervals, PredictionIntervals
from tailproof.estimators.meta.base import (
    BlockwiseEstimator,
    FitData,
    check_rows,
    raise_first,
    screened,
    warn_of_failures,
)
from tailproof.estimators.meta.learner import Fitted, SklearnLearner, coefficients, set_coefficients
from tailproof.estimators.meta.merging import (
    Preprocessed,
    merged_candidates,
    preprocess,
    recentred,
    scaled_learner,
    without_centre,
)
from tailproof.estimators.parallel import JoblibEngine
from tailproof.estimators.row_losses import ROW_LOSSES, ScoreTask, score_rows
from tailproof.estimators.screening import Screened, without
from tailproof.estimators.sklearn_private import HasMethods, Interval, StrOptions, fit_context
from tailproof.reports.fit_report import Clock, Report, merge_facts, validation_facts

_CONSTRAINTS: dict[str, Any] = {
    "estimator": [HasMethods(["fit", "predict"])],
    "k": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "delta": [Interval(Real, 0, 1, closed="neither")],
    "drop_glitches": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [Integral, None],
}


class DivideAndConquer(CandidateIntervals, BlockwiseEstimator):
    """Fit any linear estimator on k blocks and merge the coefficients robustly (Algorithm 1).

    Lemma "boost_conf_sc" holds for any learner that comes close to the best coefficients on most blocks.
    The merge takes place in coordinates in which every column has scale one.

    Parameters
    ----------
    estimator : estimator
        A regressor or classifier that predicts from ``coef_`` and ``intercept_``, or a ``Pipeline`` with such
        a last step, whose other steps are then fitted once, before the rows are cut into blocks.
    k : int or "auto"
        Blocks. "auto": k(δ), more where rows are plenty and fewer where a block would have fewer than 5 rows
        a coefficient or miss a class, where rows with a common target or a label tell less and count less;
        ``report_`` says why.
    delta : float
        One minus the confidence.
    merge : str
        A name in ``MERGES``.
    recentre : bool
        For regressors whose residuals average to zero on every block, as least squares with an intercept
        does: set the intercept so that a robust mean of all residuals is zero. Skewed noise pulls each block
        intercept, and a merge of skewed intercepts is biased towards their median.
    preprocess_fraction : float
        Share of the rows, the most central ones, on which the first steps of a pipeline are fitted. Less
        than 1 keeps far-out rows from spoiling a scaler.
    drop_glitches : bool
        Leave rows out that are errors of measurement, as :class:`DCSGDRegressor` does, where columns are
        numbers. False keeps every row.
    random_state : int, RandomState or None
        Deals the rows, and seeds every ``random_state`` of the estimator that is None.
    n_jobs : int or None
        As in joblib; the result does not depend on it.

    Attributes
    ----------
    estimator_ : estimator
        Fitted, with merged coefficients; other attributes are those of the candidate next to them.
    coef_, intercept_ : arrays
    candidates_ : array of shape (k, d + 1) or (k, outputs, d + 1)
        Coefficients and intercept of each block that did not fail.
    report_ : Report
    classes_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2_000, 3))
    >>> y = X @ [1.0, 2.0, 3.0] + rng.standard_t(2.1, 2_000)
    >>> model = DivideAndConquer(LinearRegression(), random_state=0).fit(X, y)
    >>> model.coef_.round(1).tolist(), model.report_.k
    ([1.0, 2.0, 3.0], 96)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = _CONSTRAINTS | {
        "merge": [StrOptions(set(MERGES))],
        "recentre": ["boolean"],
        "preprocess_fraction": [Interval(Real, 0, 1, closed="right")],
    }
    _method = "dc"
    _common_error = 0.0

    def __init__(
        self,
        estimator: Any,
        *,
        k: int | str = "auto",
        delta: float = 0.05,
        merge: str = "geometric_median",
        recentre: bool = True,
        preprocess_fraction: float = 1.0,
        drop_glitches: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.k = k
        self.delta = delta
        self.merge = merge
        self.recentre = recentre
        self.preprocess_fraction = preprocess_fraction
        self.drop_glitches = drop_glitches
        self.random_state = random_state
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, **fit_params: Any) -> DivideAndConquer:
        """Fit on k blocks, merge.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), or (n_samples, n_outputs) for regressors that take it
        **fit_params
            For ``fit`` of the estimator, such as ``sample_weight``; rows of weight zero are as if absent.

        Returns
        -------
        self
        """
        clock = Clock()
        with clock("prepare"):
            data = self._check_input(X, y, fit_params)
            data, screening = screened(self, data, fit_params.get("sample_weight"))
            ready = preprocess(self.estimator, data, self.preprocess_fraction)
            data, seed = ready.data, seed_from_random_state(self.random_state)
            k, why = self._number_of_blocks(data, screening.far.size)
            parts = blocks(len(data), k, seed, labels=data.labels)
            learner = scaled_learner(ready.estimator, data, parts, screening)
        with clock("train"):
            fits = [fit for fit in self._fit_blocks(learner, parts, data) if fit.error is None]
        with clock("combine"):
            learner = without_centre(learner, fits)
            candidates = merged_candidates(learner, fits, data.X)
            point = merge(candidates, self.merge).point
            self._set_model(learner, candidates, point, parts, ready)
        self.report_ = Report.of(
            [len(part) for part in parts],
            seed,
            clock,
            kept=candidates.kept,
            gradient_evaluations=None,
            method=f"DC over {type(ready.estimator).__name__}, merge={self.merge}",
            why_k=why,
            delta=float(self.delta),
            theorem=guarantee("dc", k, len(data), self.delta, merge=self.merge),
            **merge_facts(candidates.vectors, candidates.kept, point),
            **screening.facts(),
        )
        if self.drop_glitches:
            screening.warn()
        return self

    def _set_model(
        self,
        learner: SklearnLearner,
        candidates: TrainedCandidates,
        point: Array,
        parts: list[Block],
        ready: Preprocessed,
    ) -> None:
        coef, intercept = learner.unpack(point)
        if self.recentre and ready.data.labels is None:
            intercept = recentred(learner, candidates, parts, coef, intercept, self.delta)
        nearest = int(np.argmin(np.linalg.norm(candidates.vectors - point, axis=1)))
        model = copy.deepcopy(candidates.states[nearest].estimator)
        if len(candidates.states) > 1:
            set_coefficients(model, coef, intercept)
        self.coef_, self.intercept_ = model.coef_, getattr(model, "intercept_", 0.0)
        stacked = np.stack([np.column_stack(coefficients(state.estimator)) for state in candidates.states])
        self.candidates_ = stacked[:, 0] if stacked.shape[1] == 1 else stacked
        self.estimator_ = ready.assemble(model)


class RobustValidation(PredictionIntervals, BlockwiseEstimator):
    """Fit any estimator on k blocks and keep the one of least robust risk on other rows (Algorithm 5).

    Lemma "boost_conf_unbounded" holds for any learner at all: trees, boosting, pipelines, networks.

    Parameters
    ----------
    estimator : estimator
        A regressor or classifier.
    loss : str or callable
        Loss of a row: a name in ``ROW_LOSSES``, ``loss(y, predicted) -> (n,)``, or "auto": squared error
        for regressors, log loss for classifiers with probabilities, zero-one for others.
    k : int or "auto"
        Blocks of the training rows. "auto": k(δ) of Theorem 3, fewer where a block would have fewer than 5
        rows a column or miss a class; ``report_`` says why.
    delta : float
        One minus the confidence.
    mean : str
        A name in ``MEANS``.
    validation_fraction : float
        Share of the rows that validate.
    whole : bool
        Also try one candidate fitted on all training rows. It costs one more fit, the lemma holds as before,
        and where tails are light it is usually the winner. False is the algorithm as printed.
    drop_glitches : bool
        Leave rows out that are errors of measurement, as :class:`DCSGDRegressor` does, where columns are
        numbers, and validate by risks that up to 1% of bad rows do not move. False is Algorithm 5.
    random_state : int, RandomState or None
        Deals the rows, and seeds every ``random_state`` of the estimator that is None.
    n_jobs : int or None
        As in joblib; the result does not depend on it. Of joblib's backends "multiprocessing" is not for
        estimators with OpenMP (histogram gradient boosting, LightGBM): in a fork they may wait for ever.

    Attributes
    ----------
    estimator_ : estimator
        The winner, as fitted on its block.
    candidates_ : list
        Fitted estimators, one for each block and then the one of all training rows; None where a fit failed.
    best_index_ : int
        The winner's place in ``candidates_``.
    validation_risk_ : array
        Robust mean of the validation losses of each candidate; infinite where it failed.
    validation_interval_ : array of shape (candidates, 2)
        Ends of their (1 − δ) intervals, wider where the tail of the losses asks for it: see
        :func:`tailproof.core.validate.validate_with_safe_intervals`, which says how often they cover. Where
        the variance of the losses is infinite, 95% intervals covered the risk in 67% to 78% of samples.
    report_ : Report
        Its ``caution`` says whether that may be so here, and ``worse_than_constant`` whether every candidate
        is surely worse than one prediction for all rows.
    classes_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1_000, 2))
    >>> y = X[:, 0] + rng.standard_t(2.1, 1_000)
    >>> model = RobustValidation(DecisionTreeRegressor(max_depth=3), random_state=0).fit(X, y)
    >>> len(model.candidates_), bool(model.validation_risk_[model.best_index_] < 3)
    (6, True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = _CONSTRAINTS | {
        "loss": [StrOptions({"auto", *ROW_LOSSES}), callable],
        "mean": [StrOptions(set(MEANS))],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "whole": ["boolean"],
    }
    _method = "rv"

    def __init__(
        self,
        estimator: Any,
        *,
        loss: str | Callable[..., Any] = "auto",
        k: int | str = "auto",
        delta: float = 0.05,
        mean: str = "catoni",
        validation_fraction: float = 0.5,
        whole: bool = True,
        drop_glitches: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.loss = loss
        self.k = k
        self.delta = delta
        self.mean = mean
        self.validation_fraction = validation_fraction
        self.whole = whole
        self.drop_glitches = drop_glitches
        self.random_state = random_state
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, **fit_params: Any) -> RobustValidation:
        """Fit on k blocks of one part of the rows, choose on the other.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), or (n_samples, n_outputs) for regressors that take it
        **fit_params
            For ``fit`` of the estimator, such as ``sample_weight``, which also weighs the validation losses;
            rows of weight zero are as if absent.

        Returns
        -------
        self
        """
        clock = Clock()
        with clock("prepare"):
            data, seed = self._check_input(X, y, fit_params), seed_from_random_state(self.random_state)
            check_rows(self, data.X, 2)
            data, apart = screened(self, data, fit_params.get("sample_weight"))
            training, validation = self._split(data, seed, apart)
            k, why = self._number_of_blocks(training)
            parts = self._with_whole(blocks(len(training), k, seed, labels=training.labels), seed)
            learner = SklearnLearner(self.estimator, training.X, training.y, training.params)
        with clock("train"):
            fits = self._fit_blocks(learner, parts, data)
        with clock("combine"):
            kept, choice = self._choose(fits, validation)
            facts = validation_facts(choice, self.best_index_, kept)
            if self.drop_glitches and self._is_worse_than_constant(training, validation):
                facts["worse_than_constant"] = True
        self.report_ = Report.of(
            [len(part) for part in parts[:k]],
            seed,
            clock,
            excluded=np.setdiff1d(np.arange(len(parts)), kept),
            gradient_evaluations=None,
            method=f"RV over {type(self.estimator).__name__}, mean={self.mean}",
            why_k=why,
            delta=float(self.delta),
            theorem=guarantee("rv", k, len(data), self.delta),
            **facts,
            **apart.facts(),
        )
        if self.drop_glitches:
            apart.warn()
        return self

    def _split(
        self, data: FitData, seed: np.random.SeedSequence, screening: Screened
    ) -> tuple[FitData, FitData]:
        """Rows to fit on, and rows to judge by: none with far features."""
        # A key that the blocks do not use: their shuffle must not repeat this one.
        apart = np.random.SeedSequence(seed.entropy, spawn_key=(2**32 - 1,))
        training, validation = train_validation(
            len(data), self.validation_fraction, apart, labels=data.labels
        )
        if validation.size == 0:
            raise ValueError(
                "no class has enough rows to hold any out for validation: give more rows, or a larger "
                f"validation_fraction than {self.validation_fraction:g}"
            )
        if self.k != "auto" and int(self.k) > training.size:
            raise ValueError(
                f"k={self.k} blocks need at least as many rows to train on; {training.size} of n_samples="
                f"{len(data)} train and the others validate: use a smaller k or validation_fraction"
            )
        return data.take(training), data.take(without(validation, screening))

    def _with_whole(self, parts: list[Block], seed: np.random.SeedSequence) -> list[Block]:
        """Blocks, and all of them as one more where there are several."""
        if not self.whole or len(parts) == 1:
            return parts
        apart = np.random.SeedSequence(seed.entropy, spawn_key=(2**32 - 2,))
        rows = np.concatenate([part.rows for part in parts])
        return [*parts, Block(len(parts), rows, apart)]

    def _choose(self, fits: list[Fitted], held_out: FitData) -> tuple[NDArray[np.intp], Validation]:
        """Set the candidates, their risks and the winner; return which of them there are, and the scores."""
        tasks = (ScoreTask(fit.estimator, held_out.X, held_out.y, self.loss, fit.error) for fit in fits)
        scored = JoblibEngine(self.n_jobs).run(score_rows, tasks)
        good = [score.error is None for score in scored]
        if not any(good):
            raise_first([replace(fit, error=s.error) for fit, s in zip(fits, scored, strict=True)], "scores")
        if sum(good) < sum(fit.error is None for fit in fits):
            warn_of_failures([replace(fit, error=s.error) for fit, s in zip(fits, scored, strict=True)])
        share = 1.0 if held_out.weights is None else held_out.weights / held_out.weights.mean()
        losses = [score.losses * share for score in scored]
        untied_share, resistant = held_out.untied_share, self.drop_glitches
        choice = select(losses, self.mean, self.delta, resistant=resistant, untied_share=untied_share)
        if not np.isfinite(choice.risk[choice.best]):
            raise ValueError("no candidate has a finite risk: its predictions or losses are not finite")
        self.candidates_ = [fit.estimator for fit in fits]
        self.best_index_, self.validation_risk_ = choice.best, choice.risk
        self.validation_interval_ = np.column_stack([choice.low, choice.high])
        self.estimator_ = fits[choice.best].estimator
        self._keep_errors(held_out)
        return np.flatnonzero(good), choice

    def _is_worse_than_constant(self, training: FitData, held_out: FitData) -> bool:
        """Whether the winner is surely worse than one prediction for all rows."""
        constant = DummyRegressor() if held_out.labels is None else DummyClassifier(strategy="prior")
        constant.fit(np.empty((len(training), 0)), training.y, sample_weight=training.weights)
        ours, other = (
            score_rows(ScoreTask(model, X, held_out.y, self.loss))
            for model, X in ((self.estimator_, held_out.X), (constant, np.empty((len(held_out), 0))))
        )
        scored = ours.error is None and other.error is None
        return scored and surely_greater(ours.losses, other.losses, held_out.untied_share)

    def _keep_errors(self, held_out: FitData) -> None:
        """What ``predict_interval`` needs, for a regression of one target."""
        self.__dict__.pop("held_out_errors_", None)  # of an earlier fit
        if held_out.labels is None and np.ndim(held_out.y) == 1:
            predicted = np.asarray(self.estimator_.predict(held_out.X), dtype=np.float64)
            errors = held_out_errors(np.asarray(held_out.y), predicted, 0.0, held_out.weights, held_out.X)
            if errors is not None:
                self.held_out_errors_ = errors
