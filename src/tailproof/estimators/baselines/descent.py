"""The loop of gradient descent (equation rgd_defn), and the same as one function on arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tailproof.core import Array
from tailproof.core.lookup import lookup
from tailproof.core.losses import LOSSES
from tailproof.core.partition import slices
from tailproof.core.scaling import FeatureScale, unscaled
from tailproof.core.sets import AllSpace, ConvexSet, get_set
from tailproof.core.steps import Auto, get_steps
from tailproof.estimators.baselines.aggregators import AGGREGATES, AggregatorOptions, Estimate
from tailproof.estimators.baselines.row_gradients import RowGradients, RowIndex

Callback = Callable[[int, Array], object]


@dataclass(frozen=True)
class Model:
    """Coefficients (outputs, d) in the units of the data, and intercepts of centred features."""

    coef: Array
    intercept: Array
    columns: FeatureScale

    @property
    def finite(self) -> bool:
        """Whether every parameter is a number."""
        return bool(np.all(np.isfinite(self.coef)) and np.all(np.isfinite(self.intercept)))

    def offset(self) -> Array:
        """Intercepts of features that are not centred."""
        return self.intercept - self.coef @ self.columns.centre

    def distance(self, other: Model) -> float:
        """Largest difference of two parameters, in scaled coordinates."""
        coef = np.abs((self.coef - other.coef) * self.columns.scale).max(initial=0.0)
        return float(max(coef, np.abs(self.intercept - other.intercept).max()))


@dataclass(frozen=True)
class Update:
    """One step of size α: gradient, proximal step of the penalties, projection."""

    l1: float
    l2: float
    constraint: ConvexSet

    def __call__(self, model: Model, gradient: Array, alpha: float) -> Model:
        """Return the model after the step."""
        d, columns = model.coef.shape[1], model.columns
        coef: Array = model.coef - alpha * gradient[:, :d] / columns.scale
        if self.l1 or self.l2:
            short = np.maximum(np.abs(coef) - alpha * self.l1 * columns.inverse_square_scale, 0.0)
            coef = np.copysign(short, coef) / (1.0 + alpha * self.l2 * columns.inverse_square_scale)
        if not isinstance(self.constraint, AllSpace):
            coef = self.constraint.project(coef)
        moves = gradient.shape[1] > d
        return Model(coef, model.intercept - alpha * gradient[:, d] if moves else model.intercept, columns)


@dataclass(frozen=True)
class Descent:
    """Where the loop ended, and why.

    Attributes
    ----------
    model : Model
        The last one that is finite.
    n_iter, cost : int
        Updates, and gradients of rows evaluated.
    converged, diverged : bool
        Whether the tolerance was met; whether the next update would have left the range of numbers.
    """

    model: Model
    n_iter: int
    cost: int
    converged: bool
    diverged: bool

    @property
    def w(self) -> Array:
        """Coefficients of the first, often only, output."""
        return self.model.coef[0]


def iterate(
    gradient_at: Callable[[Model], Estimate],
    update: Update,
    start: Model,
    sizes: Array,
    tol: float = 0.0,
    budget: float = math.inf,
    see: Callable[[int, Model], object] | None = None,
) -> Descent:
    """Gradient descent: at most one update for each step size.

    It ends when an update moves no parameter by more than ``tol`` times the way from the origin (from the
    start, for the intercept), when ``budget`` gradients were evaluated, or before a parameter stops being
    finite.
    """
    model, cost, converged = start, 0, False
    origin = Model(np.zeros_like(start.coef), start.intercept, start.columns)
    see = see or (lambda cost, model: None)
    see(cost, model)
    for number, alpha in enumerate(sizes, start=1):
        gradient = gradient_at(model)
        after = update(model, gradient.gradient, alpha)
        if not after.finite:
            return Descent(model, number - 1, cost, False, True)
        converged = after.distance(model) <= tol * after.distance(origin) if tol else False
        model, cost = after, cost + gradient.cost
        see(cost, model)
        if converged or cost >= budget:
            break
    return Descent(model, number, cost, converged, False)


def updates_at_most(max_iter: int | None, budget: float | None, sample: RowGradients) -> int:
    """As many as asked for, or as the budget can pay for."""
    if max_iter is not None:
        return max_iter
    if budget is None:
        raise ValueError("gradient descent needs an end: give max_iter, budget or both")
    return math.ceil(budget / min(sample.y[rows].size for rows in sample.blocks))


def descend(
    X: ArrayLike,
    y: ArrayLike,
    init: ArrayLike,
    *,
    aggregate: str = "mean",
    loss: str = "squared_error",
    k: int = 10,
    step_size: object = ("over_root_d", 0.1),
    max_iter: int | None = None,
    budget: float | None = None,
    callback: Callback | None = None,
    constraint: object = None,
    options: AggregatorOptions | None = None,
) -> Descent:
    """Gradient descent as the paper runs it: no intercept, no scaling, k blocks of neighbouring rows.

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
        −1 and +1 for losses of classification.
    init : array-like of shape (d,)
    aggregate, loss : str
        Names in ``AGGREGATES`` and ``LOSSES``.
    k : int
        Blocks, for the aggregators that work on blocks.
    step_size : float, str, tuple or schedule
        As for the estimators, but not "auto"; by default the paper's 0.1/√d.
    max_iter : int, optional
        Updates at most; None for as many as the budget allows.
    budget : float, optional
        Stop at the first update with at least this many gradients evaluated.
    callback : callable, optional
        Called with (gradients evaluated so far, w) at the start and after each update.
    constraint : None, tuple or set
        Projection after each update.
    options : AggregatorOptions, optional
        Of the aggregators: δ, ψ, scale and width of the M-estimate, the rule for the median block.

    Returns
    -------
    Descent
        With the last finite w, the number of updates, and the cost in gradients.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> y = X.sum(axis=1) + rng.lognormal(0, 1.75, 500) - np.exp(1.75**2 / 2)
    >>> path = []
    >>> found = descend(X, y, [5.0, -3.0], aggregate="geometric_median_of_means", budget=50_000,
    ...                 callback=lambda cost, w: path.append((cost, w)))
    >>> found.n_iter, found.cost, len(path), bool(np.abs(found.w - 1).max() < 1)
    (100, 50000, 101, True)
    """
    kind, options = lookup("aggregate", aggregate, AGGREGATES), options or AggregatorOptions()
    rows, target = np.ascontiguousarray(X, dtype=np.float64), np.ascontiguousarray(y, dtype=np.float64)
    n, d = rows.shape
    cuts: list[RowIndex] = [*slices(n, k if kind.blockwise else 1)]
    sample = RowGradients(
        rows, target, np.empty(0), lookup("loss", loss, LOSSES), 1, unscaled(d), False, cuts
    )
    start = np.array(init, dtype=np.float64).reshape(1, d)
    steps = get_steps(step_size)
    if isinstance(steps, Auto):
        raise ValueError("descend takes the steps it is given: step_size='auto' is for the estimators")
    with np.errstate(over="ignore", invalid="ignore"):
        estimate = kind(sample, options)
        return iterate(
            lambda model: estimate(sample.scores(model.coef, model.intercept)),
            Update(0.0, 0.0, get_set(constraint)),
            Model(start, np.zeros(1), sample.columns),
            steps.sizes(np.arange(updates_at_most(max_iter, budget, sample)), d, n, len(cuts)),
            budget=math.inf if budget is None else budget,
            see=(lambda cost, model: callback(cost, model.coef[0])) if callback else None,
        )
