"""What a RobustRegressor chooses from: the path of truncation levels, SGD, and any regressor."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import has_fit_parameter

from tailproof.core import Array
from tailproof.core.algorithms import DivergedError
from tailproof.core.automatic import robust_shift, share_of_informative_rows, share_of_untied_targets
from tailproof.core.losses import Loss
from tailproof.core.numerics.m_estimates import effective_size
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.core.theory import blocks_for
from tailproof.estimators.linear.estimators import DCSGDRegressor
from tailproof.estimators.robust_regressor.all_rows import judged_in_memory, second_in_memory
from tailproof.estimators.robust_regressor.compared import (
    few_rows,
    is_surprising,
    most_rows,
    rows_to_compare,
    steps_of,
)
from tailproof.estimators.robust_regressor.left_out import held_out_predictions
from tailproof.estimators.robust_regressor.levels import Levels, with_least_squares
from tailproof.estimators.robust_regressor.log_noise import measure_of_size
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.second_fit import Learned, SecondFit
from tailproof.estimators.robust_regressor.sparse_rows import is_kept_sparse, sparse_rows_of
from tailproof.estimators.robust_regressor.truncation_path import Refit, TruncationPath
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning

_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class RegressionTask:
    """Rows, the loss, and the folds that take turns to be held out (none: nothing is).

    ``learned`` is what other rows have learned about the noise of these. Fits for ``slopes_alone`` leave the
    intercepts of levels where they are.
    """

    X: Any
    y: Array
    weights: Array
    loss: Loss
    fit_intercept: bool
    delta: float
    folds: tuple[NDArray[np.intp], ...]
    seed: np.random.SeedSequence
    tuning: Tuning = DEFAULT
    learned: Learned | None = None
    slopes_alone: bool = False

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def is_kept_sparse(self) -> bool:
        """Whether rows are fitted by their entries alone."""
        return is_kept_sparse(self.X, self.loss, self.tuning)

    def shares(self) -> Array | None:
        """Weights, or None where all rows count the same."""
        return self.weights if self.weights.size else None

    @functools.cached_property
    def size(self) -> float:
        """Effective sample size of the weighted rows."""
        return effective_size(self.y[None], self.weights)

    @functools.cached_property
    def untied_share(self) -> float:
        """Share of the targets that differ from the most common one, if that is most of them."""
        return share_of_untied_targets(self.y)

    def informative_share(self, predicted: Array) -> float:
        """Share of the rows that are informative about the mean, given predictions of all."""
        if self.loss.link != "identity":
            return share_of_untied_targets(self.y, self.shares())
        return share_of_informative_rows(self.y, self.y - predicted, self.shares())

    def without(self, rows: NDArray[np.intp]) -> RegressionTask:
        """The task on the other rows, with nothing held out."""
        return self.taken(np.delete(np.arange(self.n), rows))

    def compared(self, levels_alone: bool) -> RegressionTask:
        """The rows to choose by: few where all rows judge the choice afterwards, and hold no surprise."""
        few, most = rows_to_compare(self.X.shape[1], levels_alone, self.tuning)
        if self.n <= few:
            return self
        for rows in few_rows(self.n, steps_of(few, min(most, self.n)), self.seed):
            part = self.taken(rows)
            if not is_surprising(float(self.y.min()), float(self.y.max()), part.y, self.tuning):
                return part
        return self if self.n <= most else self.taken(most_rows(self.n, most, self.seed))

    def refitted(self, path: TruncationPath, members: tuple[int, ...], unit: Unit) -> Refit:
        """Some levels of a path that was solved on a sample of these rows, on all of them."""
        if self.loss.link == "log":
            return path.only(members).moved(self.X, unit.to_unit(self.y), weights_of(self)).refit(self.delta)
        path = path.only(with_least_squares(path.levels, members))
        whole = path.moved(self.X, unit.to_unit(self.y), weights_of(self)).cautious()
        judged = whole, self.X, len(members), self.delta, measure_of_size(path), self.learned
        return judged_in_memory(*judged, self._judges)

    def recentred(self, path: TruncationPath, members: tuple[int, ...]) -> Refit:
        """Some levels of a path that was solved on these rows."""
        some = path.only(members)
        fitted = some.as_it_is() if self.slopes_alone else some.refit(self.delta)
        if self.learned is None:
            return fitted
        whole = path.only(with_least_squares(path.levels, members))
        return replace(fitted, second=second_in_memory(whole, self.X, self.learned, self.delta, self._judges))

    def _judges(self) -> NDArray[np.intp]:
        """Rows that say whether what the few have learned holds: those that choose where these miss much."""
        few, most = rows_to_compare(self.X.shape[1], True, self.tuning)
        steps = steps_of(few, min(most, self.n))
        return list(few_rows(self.n, steps, self.seed))[-1] if steps else most_rows(self.n, most, self.seed)

    def knowing(self, learned: Learned | None) -> RegressionTask:
        """The task with what some of its rows have learned about the noise."""
        return replace(self, learned=learned)

    def taken(self, rows: NDArray[np.intp]) -> RegressionTask:
        """The task on some of the rows, with nothing held out."""
        weights = self.weights[rows] if self.weights.size else self.weights
        return replace(self, X=self.X[rows], y=self.y[rows], weights=weights, folds=())


@dataclass(frozen=True)
class LinearFit:
    """⟨coef, x⟩ + intercept, before the link.

    ``level`` is where it comes from, and ``parts`` are the fits that it blends, with their weights.
    """

    coef: Array
    intercept: float
    level: FittedLevel | None = None
    parts: tuple[tuple[float, LinearFit], ...] = ()

    def scores(self, X: Any) -> Array:
        """Linear predictions."""
        if X.shape[1] == 1 and not sparse.issparse(X):
            scores = np.multiply(X[:, 0], self.coef[0], dtype=np.float64)  # what a product takes longer for
        else:
            scores = np.asarray(X @ self.coef)
        scores += self.intercept
        return scores


def blended(shares: Array, fits: Sequence[LinearFit]) -> LinearFit:
    """The weighted mean of linear fits, which is one; a single fit stays what it is."""
    parts = tuple((float(share), fit) for share, fit in zip(shares, fits, strict=True) if share > 0)
    if len(parts) == 1:
        return parts[0][1]
    return LinearFit(
        np.asarray(sum(share * fit.coef for share, fit in parts)),
        float(sum(share * fit.intercept for share, fit in parts)),
        parts=parts,
    )


@dataclass(frozen=True)
class Candidate:
    """A name, predictions (before the link) of rows when they were held out, and how to fit a task.

    Predictions are NaN for rows that were never held out. Candidates with one ``family`` share the passes
    over the rows when several ``members`` of it are fitted. One that was ``stopped`` is not at its solution.
    ``variance`` and ``conflict`` are what the fit itself tells of its risk, in the unit of the data (see
    ``Evidence``).
    """

    name: str
    held_out: Array
    fit: Callable[[RegressionTask], Any]
    family: Family | None = None
    member: int = 0
    settled: bool = True
    stopped: bool = False
    variance: float = math.nan
    conflict: float = math.nan


Family = Callable[[RegressionTask, tuple[int, ...]], "list[LinearFit]"]


def fit_together(candidates: Sequence[Candidate], task: RegressionTask) -> list[Any]:
    """Fit every one of the candidates on the task, and no other."""
    families = {candidate.family for candidate in candidates if candidate.family}
    members = {
        family: tuple(candidate.member for candidate in candidates if candidate.family is family)
        for family in families
    }
    fits = {
        family: dict(zip(levels, family(task, levels), strict=True)) for family, levels in members.items()
    }
    return [
        fits[candidate.family][candidate.member] if candidate.family else candidate.fit(task)
        for candidate in candidates
    ]


def path_candidates(task: RegressionTask) -> list[Candidate]:
    """The levels of the path, from the most robust to the untruncated."""
    unit = unit_of(task)
    prepare = sparse_rows_of if task.is_kept_sparse else rows_of
    rows = prepare(task.X, unit.to_unit(task.y), weights_of(task), task.loss, task.fit_intercept, task.tuning)
    path = solve_path(rows, np.random.default_rng(task.seed), penalised=bool(task.folds)).cautious()
    held_out = held_out_predictions(path, task.folds, task.delta) if task.folds else path.nothing_held_out()
    predictions = unit.scores(held_out)
    evidence = path.evidence()

    def fits(whole: RegressionTask, members: tuple[int, ...]) -> list[LinearFit]:
        here = whole.X is task.X
        fitted = whole.recentred(path, members) if here else whole.refitted(path, members, unit)
        coef, intercept = fitted.path.rows.unscaled(fitted.theta)
        sources = [
            FittedLevel(fitted.path, m, unit, corrected=fitted.corrected, second=fitted.second)
            for m in range(len(fitted.path.levels))
        ]
        levels = [
            unit.from_unit(LinearFit(*fit)) for fit in zip(coef, intercept.tolist(), sources, strict=True)
        ]
        return [blended(shares, levels) for shares in fitted.shares]

    def level(m: int, name: str) -> Candidate:
        alone = functools.partial(_first, fits, m)
        return Candidate(
            name,
            predictions[m],
            alone,
            family=fits,
            member=m,
            settled=bool(path.settled[m]),
            stopped=bool(path.stopped[m]),
            variance=float(unit.scale * (unit.scale * evidence.variance[m])),
            conflict=float(evidence.conflict[m]),
        )

    return [level(m, name) for m, name in enumerate(path.levels.names())]


def _first(family: Family, member: int, task: RegressionTask) -> LinearFit:
    return family(task, (member,))[0]


def weights_of(task: RegressionTask) -> Array:
    """Weights of the rows, ones where all count the same."""
    return task.weights if task.weights.size else np.ones(task.n)


@dataclass(frozen=True)
class Unit:
    """The scale in which a path is solved, so that tolerances mean the same for every target."""

    centre: float
    scale: float
    log: bool

    def to_unit(self, y: Array) -> Array:
        """The target in this unit."""
        moved = y - self.centre
        moved /= self.scale
        return np.asarray(moved)

    def scores(self, p: Array) -> Array:
        """Linear predictions in the unit of the data."""
        return p + math.log(self.scale) if self.log else self.centre + self.scale * p

    def from_unit(self, fit: LinearFit) -> LinearFit:
        """The model in the unit of the data."""
        factor = 1.0 if self.log else self.scale
        return replace(fit, coef=factor * fit.coef, intercept=float(self.scores(np.array(fit.intercept))))


@dataclass(frozen=True)
class FittedLevel:
    """One level of a path, the unit in which that was solved, and what was changed afterwards.

    Its intercept was ``recentred``, and its slopes ``corrected`` for noise that grows along columns. There
    may be a ``second`` fit beside it.
    """

    path: TruncationPath
    member: int
    unit: Unit
    recentred: bool = True
    corrected: bool = False
    second: SecondFit | None = None


def unit_of(task: RegressionTask) -> Unit:
    """The unit for the targets of a task."""
    if task.loss.link == "log":
        # A factor of the mean is an intercept, which there may not be.
        largest = max(float(np.median(task.y)), float(np.mean(task.y)), _TINY)
        return Unit(0.0, largest if task.fit_intercept else 1.0, True)
    centre = float(weighted_median(task.y)) if task.fit_intercept else 0.0
    away = np.abs(task.y - centre)
    return Unit(centre, float(weighted_median(away)) or float(away.max()) or 1.0, False)


def sgd_candidates(task: RegressionTask) -> list[Candidate]:
    """DC-SGD, and where there are too many columns for the path, Huber's loss by the same kernels."""
    settings: dict[str, Any] = {
        "fit_intercept": task.fit_intercept,
        "delta": task.delta,
        "random_state": _number(task.seed),
    }
    if task.n > task.tuning.all_folds_rows:
        # What the theorem needs, and quick.
        settings |= {"k": blocks_for(task.delta, "dc"), "max_iter": task.tuning.quick_sgd_passes}
    power = task.loss.parameter if task.loss.name == "tweedie" else None
    plain = DCSGDRegressor(task.loss.name, loss_parameter=power, **settings)
    candidates = [refitted(task, "DC-SGD", lambda part: _sgd(part, plain))]
    if task.X.shape[1] > task.tuning.gram_columns and task.loss.link == "identity":
        levels = [_sgd_level(task, share, settings) for share in task.tuning.shares_with_ridges]
        candidates = [*levels, *candidates]
    return candidates


def _sgd_level(task: RegressionTask, share: float, settings: dict[str, Any]) -> Candidate:
    """Huber's loss with the given share of the targets' deviations beyond τ, recentred."""
    away = np.abs(task.y - np.median(task.y))
    tau = max(float(np.quantile(away, 1 - share)), float(away.mean()), _TINY)

    def fit(part: RegressionTask) -> LinearFit:
        linear = _sgd(part, DCSGDRegressor("huber", loss_parameter=tau, **settings))
        if not (part.fit_intercept and math.isfinite(linear.intercept)):
            return linear
        untied_share = share_of_untied_targets(part.y, part.shares())
        shift = robust_shift(
            part.loss, linear.scores(part.X), part.y, part.shares(), part.delta, untied_share
        )
        return replace(linear, intercept=linear.intercept + shift)

    names = Levels(np.array([tau]), np.array([share]), np.zeros(1), np.zeros(1)).names()
    return refitted(task, names[0] + " (SGD)", fit)


def estimator_candidate(task: RegressionTask, name: str, estimator: Any) -> Candidate:
    """Any regressor, cloned for every fit."""
    try:
        return refitted(task, name, lambda part: _fit(part, estimator))
    except Exception as error:
        error.add_note(f"Raised by candidate {name!r}, fitted on folds of {task.n} rows given as an array.")
        raise


def refitted(task: RegressionTask, name: str, fit: Callable[[RegressionTask], Any]) -> Candidate:
    """A candidate that is fitted anew for every fold; on many rows, for one fold only."""
    held_out = np.full(task.n, np.nan)
    for fold in task.folds[: 1 if task.n > task.tuning.all_folds_rows else None]:
        predicted = linear_predictions(fit(task.without(fold)), task.X[fold], task.loss)
        if predicted.size != fold.size:
            raise ValueError(f"candidate {name!r} predicts {predicted.size} values for {fold.size} rows")
        # NaN marks rows that were not held out; a prediction that is not finite is infinitely bad.
        held_out[fold] = np.where(np.isfinite(predicted), predicted, np.inf)
    return Candidate(name, held_out, fit)


def _fit(task: RegressionTask, estimator: Any) -> Any:
    weighted = task.weights.size and has_fit_parameter(estimator, "sample_weight")
    if task.weights.size and not weighted:
        raise ValueError(
            f"candidate {type(estimator).__name__} takes no sample_weight: fit without, or leave it out"
        )
    with warnings.catch_warnings():
        # Held-out rows judge a candidate that has not converged; its warning would only confuse.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(estimator).fit(task.X, task.y, **({"sample_weight": task.weights} if weighted else {}))


def _sgd(task: RegressionTask, estimator: DCSGDRegressor) -> LinearFit:
    """The fit by SGD; NaN where it diverges, so that it is never chosen."""
    try:
        model = _fit(task, estimator)
    except DivergedError:
        return LinearFit(np.full(task.X.shape[1], np.nan), math.nan)
    return LinearFit(model.coef_, float(model.intercept_))


def linear_predictions(model: Any, X: Any, loss: Loss) -> Array:
    """Predictions before the link."""
    if isinstance(model, LinearFit):
        return model.scores(X)
    predicted = np.ravel(np.asarray(model.predict(X), dtype=np.float64))
    return np.log(np.maximum(predicted, _TINY)) if loss.link == "log" else predicted


def check_dense(X: Any) -> None:
    """Gradient boosting reads no sparse rows."""
    if sparse.issparse(X):
        raise ValueError("candidates='auto' adds gradient boosting, which needs dense X: pass X.toarray()")


def _number(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1)[0] % (2**31 - 1))
