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
from tailproof.core.automatic import share_of_untied_targets
from tailproof.core.intercept import robust_shift
from tailproof.core.losses import Loss
from tailproof.core.numerics.m_estimates import effective_size
from tailproof.core.theory import blocks_for
from tailproof.estimators.linear.estimators import DCSGDRegressor
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.truncation_path import STRONGEST, Levels, solve_path

GRAM_COLUMNS = 3_000  # beyond, a Gram matrix costs more than it is worth: SGD alone
_ALL_FOLDS_ROWS = 10_000  # above, a candidate that is fitted anew for every fold is held out once
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Task:
    """Rows, the loss, and the folds that take turns to be held out (none: nothing is)."""

    X: Any
    y: Array
    weights: Array
    loss: Loss
    fit_intercept: bool
    delta: float
    folds: tuple[NDArray[np.intp], ...]
    seed: np.random.SeedSequence

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def shares(self) -> Array | None:
        """Weights, or None where all rows count the same."""
        return self.weights if self.weights.size else None

    @functools.cached_property
    def size(self) -> float:
        """Number of rows by what they weigh: of a heavy row and many light ones, about one."""
        return effective_size(self.y[None], self.weights)

    @functools.cached_property
    def telling(self) -> float:
        """Share of the targets that tell something, among many equal ones."""
        return share_of_untied_targets(self.y)

    def without(self, rows: NDArray[np.intp]) -> Task:
        """The task on the other rows, with nothing held out."""
        return self._take(np.delete(np.arange(self.n), rows))

    def sampled(self, most: int) -> Task:
        """The task on so many rows at random; on all, if there are no more."""
        if self.n <= most:
            return self
        random = np.random.default_rng(self.seed.spawn(1)[0])
        return self._take(np.sort(random.choice(self.n, most, replace=False)))

    def _take(self, rows: NDArray[np.intp]) -> Task:
        weights = self.weights[rows] if self.weights.size else self.weights
        return replace(self, X=self.X[rows], y=self.y[rows], weights=weights, folds=())


@dataclass(frozen=True)
class LinearFit:
    """⟨coef, x⟩ + intercept, before the link."""

    coef: Array
    intercept: float

    def scores(self, X: Any) -> Array:
        """Linear predictions."""
        return np.asarray(X @ self.coef) + self.intercept


@dataclass(frozen=True)
class Candidate:
    """A name, predictions (before the link) of rows when they were held out, and how to fit a task.

    Predictions are NaN for rows that were never held out. Candidates with one ``family`` share the passes
    over the rows when several ``members`` of it are fitted.
    """

    name: str
    held_out: Array
    fit: Callable[[Task], Any]
    family: Family | None = None
    member: int = 0
    settled: bool = True


Family = Callable[[Task, tuple[int, ...]], "list[LinearFit]"]


def fit_together(candidates: Sequence[Candidate], task: Task) -> list[Any]:
    """Fit every one of the candidates on the task, and no other."""
    families = {candidate.family for candidate in candidates if candidate.family}
    members = {
        family: tuple(candidate.member for candidate in candidates if candidate.family is family)
        for family in families
    }
    known = {family: dict(zip(some, family(task, some), strict=True)) for family, some in members.items()}
    return [
        known[candidate.family][candidate.member] if candidate.family else candidate.fit(task)
        for candidate in candidates
    ]


def path_candidates(task: Task) -> list[Candidate]:
    """The levels of the path, from the most robust to the untruncated."""
    unit = _unit(task)
    rows = rows_of(task.X, unit.shrink(task.y), _weights(task), task.loss, task.fit_intercept)
    path = solve_path(rows, np.random.default_rng(task.seed))
    nothing = np.full((len(path.levels), task.n), np.nan)
    held_out = path.held_out(task.folds, task.delta) if task.folds else nothing

    def fits(whole: Task, members: tuple[int, ...]) -> list[LinearFit]:
        some = path.only(members)
        known = some if whole.X is task.X else some.moved(whole.X, unit.shrink(whole.y), _weights(whole))
        coef, intercept = rows.unscaled(known.recentred(task.delta))
        return [unit.grow(LinearFit(*fit)) for fit in zip(coef, intercept.tolist(), strict=True)]

    def level(m: int, name: str) -> Candidate:
        alone = functools.partial(_first, fits, m)
        return Candidate(name, unit.scores(held_out[m]), alone, fits, m, bool(path.settled[m]))

    return [level(m, name) for m, name in enumerate(path.levels.names())]


def _first(family: Family, member: int, task: Task) -> LinearFit:
    return family(task, (member,))[0]


def _weights(task: Task) -> Array:
    return task.weights if task.weights.size else np.ones(task.n)


@dataclass(frozen=True)
class Unit:
    """The scale in which a path is solved, so that tolerances mean the same for every target."""

    centre: float
    scale: float
    log: bool

    def shrink(self, y: Array) -> Array:
        """The target in this unit."""
        return np.asarray((y - self.centre) / self.scale)

    def scores(self, p: Array) -> Array:
        """Linear predictions in the unit of the data."""
        return p + math.log(self.scale) if self.log else self.centre + self.scale * p

    def grow(self, fit: LinearFit) -> LinearFit:
        """The model in the unit of the data."""
        factor = 1.0 if self.log else self.scale
        return LinearFit(factor * fit.coef, float(self.scores(np.array(fit.intercept))))


def _unit(task: Task) -> Unit:
    if task.loss.link == "log":
        return Unit(0.0, max(float(np.median(task.y)), float(np.mean(task.y)), _TINY), True)
    centre = float(np.median(task.y)) if task.fit_intercept else 0.0
    away = np.abs(task.y - centre)
    return Unit(centre, float(np.median(away)) or float(away.max()) or 1.0, False)


def sgd_candidates(task: Task) -> list[Candidate]:
    """DC-SGD, and where there are too many columns for the path, Huber's loss by the same kernels."""
    settings: dict[str, Any] = {
        "fit_intercept": task.fit_intercept,
        "delta": task.delta,
        "random_state": _number(task.seed),
    }
    if task.n > _ALL_FOLDS_ROWS:
        # What the theorem needs, and quick.
        settings |= {"k": blocks_for(task.delta, "dc"), "max_iter": 2}
    power = task.loss.parameter if task.loss.name == "tweedie" else None
    plain = DCSGDRegressor(task.loss.name, loss_parameter=power, **settings)
    found = [refitted(task, "DC-SGD", lambda part: _sgd(part, plain))]
    if task.X.shape[1] > GRAM_COLUMNS and task.loss.link == "identity":
        found = [*(_sgd_level(task, share, settings) for share in (STRONGEST, STRONGEST / 5)), *found]
    return found


def _sgd_level(task: Task, share: float, settings: dict[str, Any]) -> Candidate:
    """Huber's loss with the given share of the targets' deviations beyond τ, recentred."""
    away = np.abs(task.y - np.median(task.y))
    tau = max(float(np.quantile(away, 1 - share)), float(away.mean()), _TINY)

    def fit(part: Task) -> LinearFit:
        linear = _sgd(part, DCSGDRegressor("huber", loss_parameter=tau, **settings))
        if not (part.fit_intercept and math.isfinite(linear.intercept)):
            return linear
        shift = robust_shift(
            part.loss, linear.scores(part.X), part.y, part.shares(), part.delta, part.telling
        )
        return replace(linear, intercept=linear.intercept + shift)

    names = Levels(np.array([tau]), np.array([share]), np.zeros(1)).names()
    return refitted(task, names[0] + " (SGD)", fit)


def estimator_candidate(task: Task, name: str, estimator: Any) -> Candidate:
    """Any regressor, cloned for every fit."""
    try:
        return refitted(task, name, lambda part: _fit(part, estimator))
    except Exception as error:
        error.add_note(f"This is what candidate {name!r} says of {task.n} rows dealt to folds, as an array.")
        raise


def refitted(task: Task, name: str, fit: Callable[[Task], Any]) -> Candidate:
    """A candidate that is fitted anew for every fold; on many rows, for one fold only."""
    held_out = np.full(task.n, np.nan)
    for fold in task.folds[: 1 if task.n > _ALL_FOLDS_ROWS else None]:
        found = scores_of(fit(task.without(fold)), task.X[fold], task.loss)
        if found.size != fold.size:
            raise ValueError(f"candidate {name!r} predicts {found.size} values for {fold.size} rows")
        # NaN is for rows that were not held out; no prediction is infinitely bad.
        held_out[fold] = np.where(np.isfinite(found), found, np.inf)
    return Candidate(name, held_out, fit)


def _fit(task: Task, estimator: Any) -> Any:
    weighted = task.weights.size and has_fit_parameter(estimator, "sample_weight")
    if task.weights.size and not weighted:
        raise ValueError(
            f"candidate {type(estimator).__name__} takes no sample_weight: fit without, or leave it out"
        )
    with warnings.catch_warnings():
        # Held-out rows will judge a candidate that has not settled; a user did not ask for it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(estimator).fit(task.X, task.y, **({"sample_weight": task.weights} if weighted else {}))


def _sgd(task: Task, estimator: DCSGDRegressor) -> LinearFit:
    """What SGD finds; NaN where numbers are too large for it, so that it is not chosen."""
    try:
        model = _fit(task, estimator)
    except DivergedError:
        return LinearFit(np.full(task.X.shape[1], np.nan), math.nan)
    return LinearFit(model.coef_, float(model.intercept_))


def scores_of(model: Any, X: Any, loss: Loss) -> Array:
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
