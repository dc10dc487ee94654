"""Rows of another population: looked for before a fit, and in its residuals after it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.core.numerics.quantiles import (
    carriers,
    carriers_of_squares,
    surely_spread,
    weighted_median,
)
from tailproof.core.populations import LEAST_ROWS, LIMITS, TwoPopulationsWarning, two_populations, unexplained
from tailproof.core.scaling import FeatureScale, far_columns, has_far_values, surely_near
from tailproof.native.rows import ends_and_square

_MATTERS = 5.0  # times the median deviation of the targets: a residual of another population
ADVICE = "look at them, and leave errors out; drop_glitches=False keeps all rows without this warning"
_LOOKED_BACK = 20_000_000  # numbers of X for which residuals are looked at after the fit
_TINY, _HUGE = 1e-100, 1e150  # squares between them are numbers, and finite
_NONE = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Screened:
    """What was found in the rows.

    Attributes
    ----------
    kept : array of int or None
        Rows that are no errors of measurement; None for all.
    numbers : array of int or None
        What the caller calls the rows kept; None where they are counted alike.
    far : array of int
        Rows with far features among those kept, counted there: scales and judgements do without them.
    left_out : array of int
        Rows left out, as the caller counts them.
    outlying : str or None
        What to say.
    carriers : array of int or None
        The few rows that carry half of the squared residuals, as the caller counts them.
    """

    kept: NDArray[np.intp] | None
    numbers: NDArray[np.intp] | None
    far: NDArray[np.intp] = field(default_factory=lambda: _NONE)
    left_out: NDArray[np.intp] = field(default_factory=lambda: _NONE)
    outlying: str | None = None
    carriers: NDArray[np.intp] | None = None

    def rows_of(self, *parts: Any) -> tuple[Any, ...]:
        """The rows kept of X, targets, weights; what is empty stays so."""
        if self.kept is None:
            return parts
        return tuple(part[self.kept] if part.size else part for part in parts)

    def called(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """What the caller calls some of the rows kept."""
        return rows if self.numbers is None else self.numbers[rows]

    def without_far(self, labels: Array) -> Screened:
        """The same without rows of far features, for what cannot learn from them beside the others.

        Where they are all rows of a label, they stay.
        """
        near = np.delete(labels if self.kept is None else labels[self.kept], self.far)
        if not self.far.size or self.numbers is None or np.unique(near).size < np.unique(labels).size:
            return self
        kept = np.arange(self.numbers.size) if self.kept is None else self.kept
        return replace(
            self,
            kept=np.delete(kept, self.far),
            numbers=np.delete(self.numbers, self.far),
            far=_NONE,
            outlying=f"{self.outlying}; those with far features gave no gradients",
        )

    def after(self, residuals: Array, y: Array) -> Screened:
        """What the residuals of the rows kept say beside: a gap in them, and who carries most of the loss.

        A gap matters where the residuals beyond it are large beside the spread of the targets.
        """
        low, high, squares = ends_and_square(residuals)
        largest = max(high, -low)
        if not 0 < largest < np.inf:
            return self
        few = self.called(_carriers(residuals, largest, squares))
        sentence = self.outlying
        if sentence is None and has_far_values(residuals, LIMITS.scales, (low, high)):
            sentence = unexplained(residuals, y).sentence(False, self.numbers)
            sentence = sentence if sentence and _matters(largest, y) else None
        if sentence == self.outlying and not few.size:
            return self
        return replace(self, outlying=sentence, carriers=few if few.size else None)

    def warn(self, stacklevel: int = 3) -> None:
        """Say that there are two populations, unless there are not."""
        if self.outlying is not None:
            warnings.warn(f"{self.outlying}: {ADVICE}", TwoPopulationsWarning, stacklevel=stacklevel + 1)

    @property
    def tells(self) -> bool:
        """Whether there is anything to report."""
        return self.left_out.size > 0 or self.outlying is not None or self.carriers is not None

    def facts(self) -> dict[str, Any]:
        """What a report says about it."""
        left_out = self.left_out if self.left_out.size else None
        return {"left_out": left_out, "outlying": self.outlying, "carriers": self.carriers}


def _carriers(residuals: Array, largest: float, squares: float) -> NDArray[np.intp]:
    """The few rows that carry half of the squares, without a copy of all where there are none."""
    if largest > _TINY and largest * residuals.size < _HUGE:
        spread = surely_spread(squares, residuals.size, largest**2)
        return _NONE if spread else carriers_of_squares(residuals, squares)
    shares = residuals / largest
    shares *= shares
    return carriers(shares)


def _matters(residual: float, y: Array) -> bool:
    return residual > _MATTERS * float(weighted_median(np.abs(y - weighted_median(y))))


def screen(
    X: Any,
    y: Array | None,
    drop: bool,
    sample_weight: ArrayLike | None = None,
    *,
    linear: bool = True,
    labels: NDArray[Any] | None = None,
) -> Screened:
    """Look for rows of another population, in targets (none for labels) and features.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
        Rows of positive weight.
    y : array of shape (n,) or None
    drop : bool
        Whether those that are errors are to be left out.
    sample_weight : array-like, optional
        Of all rows of the caller.
    linear : bool
        Whether the mean of the targets is linear in X.
    labels : array of shape (n,), optional
        Classes: none of them is left out as a whole.
    """
    numbers = np.arange(X.shape[0])
    weights = np.asarray(1.0 if sample_weight is None else sample_weight)
    if X.shape[0] < weights.size:
        numbers = np.flatnonzero(weights)
    if X.shape[0] < LEAST_ROWS:
        return Screened(None, numbers)
    far = far_columns(X, LIMITS.scales)
    if not far.size and (y is None or not has_far_values(y, LIMITS.scales)):
        return Screened(None, numbers)
    populations = two_populations(X, y, linear=linear, far=far)
    errors = populations.errors if drop else _NONE
    if labels is not None and np.unique(np.delete(labels, errors)).size < np.unique(labels).size:
        errors = _NONE
    if not errors.size:
        # Without arrays as long as the rows: to get their memory takes longer than the look itself.
        far = populations.far_features if drop else _NONE
        return Screened(None, numbers, far=far, outlying=populations.sentence(False, numbers))
    kept = np.delete(np.arange(X.shape[0]), errors)
    return Screened(
        kept,
        numbers[kept],
        far=np.flatnonzero(np.isin(kept, populations.far_features)) if drop else _NONE,
        left_out=numbers[errors],
        outlying=populations.sentence(True, numbers),
    )


def screen_for(model: Any, X: Any, target: Array, loss: Loss, sample_weight: ArrayLike | None) -> Screened:
    """Look for them as a linear model does; where slopes are bounded, far targets do no harm."""
    labels = None if model._is_regression else target
    y = target if model._is_regression and loss.unbounded else None
    linear = loss.link == "identity"
    return screen(X, y, model.drop_glitches, sample_weight, linear=linear, labels=labels)


class FarFeaturesError(Exception):
    """Training met rows with far features, which it is to do without."""


@dataclass(eq=False)
class Watch:
    """Far features are looked for in the first pass of training, which reads all rows anyway.

    Attributes
    ----------
    X : array or sparse matrix
    look : callable
        The look at all rows that is made where a value of that pass is too large not to be looked at.
    screened : Screened
        What is known so far.
    """

    X: Any
    look: Callable[[], Screened]
    screened: Screened
    watching: bool = True

    def after_pass(self, states: list[Any], columns: FeatureScale) -> None:
        """Raise if the pass met rows to do without."""
        if not self.watching:
            return
        if surely_near(self.X, LIMITS.scales, columns, max(state.farthest for state in states)):
            self.watching = False
        elif self.has_bad_rows():
            raise FarFeaturesError

    def has_bad_rows(self) -> bool:
        """Look at all rows, and say whether some are to be done without that training had not left out."""
        if not self.watching:
            return False
        self.screened, self.watching = self.look(), False
        return self.screened.kept is not None or self.screened.far.size > 0


def watch_for(model: Any, X: Any, target: Array, loss: Loss, sample_weight: ArrayLike | None) -> Watch:
    """Look at the targets alone, if nothing is far there; and for features in training."""
    watch = Watch(X, partial(screen_for, model, X, target, loss, sample_weight), Screened(None, None))
    all_weigh = sample_weight is None or X.shape[0] == np.asarray(sample_weight).size
    far = model._is_regression and loss.unbounded and has_far_values(target, LIMITS.scales)
    if X.shape[0] < LEAST_ROWS or far or not (all_weigh and model._trains_on_all_rows):
        watch.has_bad_rows()
    return watch


def after_fit(
    screened: Screened, model: Any, X: Any, target: Array, loss: Loss, scores: Array | None = None
) -> Screened:
    """What the residuals of a linear model say beside, where they are of the targets and not too many.

    ``scores`` are its predictions, where they are known; the residuals take their place.
    """
    if not residuals_tell(X, loss):
        return screened
    if scores is None:
        scores = np.asarray(X @ model.coef_) + model.intercept_
    return screened.after(np.subtract(target, scores, out=scores), target)


def residuals_tell(X: Any, loss: Loss) -> bool:
    """Whether residuals are looked at after a fit."""
    of_targets = loss.task == "regression" and loss.link == "identity" and loss.unbounded
    return of_targets and X.size <= _LOOKED_BACK


def near_parts(parts: Sequence[NDArray[np.intp]], rows: Any) -> list[NDArray[np.intp]]:
    """Parts of rows without those of far features; without parts that have no other, if some have."""
    far = getattr(rows, "far", _NONE)
    near = [part[~np.isin(part, far)] for part in parts] if far.size else list(parts)
    return [part for part in near if part.size] or list(parts)


def without(order: NDArray[np.intp], rows: Any) -> NDArray[np.intp]:
    """Rows in their order, without those of far features: neither scales nor judgements depend on them."""
    far = getattr(rows, "far", np.empty(0))
    near = order[~np.isin(order, far)] if far.size else order
    return near if near.size else order
