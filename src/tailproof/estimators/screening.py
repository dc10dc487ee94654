"""Rows of another population: looked for before a fit, and in its residuals after it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.core.numerics.quantiles import carriers
from tailproof.core.populations import LEAST_ROWS, LIMITS, TwoPopulationsWarning, two_populations, unexplained
from tailproof.core.scaling import far_columns, has_far_values

_MATTERS = 5.0  # times the median deviation of the targets: a residual of another population
_ADVICE = "look at them, and leave errors out; drop_glitches=False keeps all rows without this warning"
_LOOKED_BACK = 20_000_000  # numbers of X for which residuals are looked at after the fit
_NONE = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Screened:
    """What was found in the rows.

    Attributes
    ----------
    kept : array of int or None
        Rows that are no errors of measurement; None for all.
    numbers : array of int
        What the caller calls the rows kept.
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
    numbers: NDArray[np.intp]
    far: NDArray[np.intp] = field(default_factory=lambda: _NONE)
    left_out: NDArray[np.intp] = field(default_factory=lambda: _NONE)
    outlying: str | None = None
    carriers: NDArray[np.intp] | None = None

    def rows_of(self, *parts: Any) -> tuple[Any, ...]:
        """The rows kept of X, targets, weights; what is empty stays so."""
        if self.kept is None:
            return parts
        return tuple(part[self.kept] if part.size else part for part in parts)

    def after(self, residuals: Array, y: Array) -> Screened:
        """What the residuals of the rows kept say beside: a gap in them, and who carries most of the loss.

        A gap matters where the residuals beyond it are large beside the spread of the targets.
        """
        largest = float(np.max(np.abs(residuals), initial=0.0))
        if not 0 < largest < np.inf:
            return self
        few = self.numbers[carriers((residuals / largest) ** 2)]
        sentence = self.outlying
        if sentence is None and has_far_values(residuals, LIMITS.scales):
            sentence = unexplained(residuals, y).sentence(False, self.numbers)
            sentence = sentence if sentence and _matters(largest, y) else None
        return replace(self, outlying=sentence, carriers=few if few.size else None)

    def warn(self, stacklevel: int = 3) -> None:
        """Say that there are two populations, unless there are not."""
        if self.outlying is not None:
            warnings.warn(f"{self.outlying}: {_ADVICE}", TwoPopulationsWarning, stacklevel=stacklevel + 1)

    def facts(self) -> dict[str, Any]:
        """What a report says about it."""
        left_out = self.left_out if self.left_out.size else None
        return {"left_out": left_out, "outlying": self.outlying, "carriers": self.carriers}


def _matters(residual: float, y: Array) -> bool:
    return residual > _MATTERS * float(np.median(np.abs(y - np.median(y))))


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
    kept = np.delete(np.arange(X.shape[0]), errors)
    return Screened(
        kept if errors.size else None,
        numbers[kept],
        far=np.flatnonzero(np.isin(kept, populations.far_features)) if drop else _NONE,
        left_out=numbers[errors],
        outlying=populations.sentence(errors.size > 0, numbers),
    )


def screen_for(model: Any, X: Any, target: Array, loss: Loss, sample_weight: ArrayLike | None) -> Screened:
    """Look for them as a linear model does; where slopes are bounded, far targets do no harm."""
    labels = None if model._is_regression else target
    y = target if model._is_regression and loss.unbounded else None
    linear = loss.link == "identity"
    return screen(X, y, model.drop_glitches, sample_weight, linear=linear, labels=labels)


def after_fit(screened: Screened, model: Any, X: Any, target: Array, loss: Loss) -> Screened:
    """What the residuals of a linear model say beside, where they are of the targets and not too many."""
    residuals_tell = loss.task == "regression" and loss.link == "identity" and loss.unbounded
    if not residuals_tell or X.size > _LOOKED_BACK:
        return screened
    return screened.after(target - np.asarray(X @ model.coef_) - model.intercept_, target)


def screen_sample(X: Any, y: Array | None, *, linear: bool = True) -> Screened:
    """What a sample of rows in pieces shows: a sentence without row numbers, and nothing to leave out."""
    far = far_columns(X, LIMITS.scales)
    if not far.size and (y is None or not has_far_values(y, LIMITS.scales)):
        return Screened(None, _NONE)
    populations = two_populations(X, y, linear=linear, far=far)
    sentence = populations.sentence(numbers=_NONE)
    if sentence is not None:
        sentence += ", in a sample; rows in pieces are all kept"
    return Screened(None, _NONE, far=populations.far_features, outlying=sentence)


def without(order: NDArray[np.intp], rows: Any) -> NDArray[np.intp]:
    """Rows in their order, without those of far features: neither scales nor judgements depend on them."""
    far = getattr(rows, "far", np.empty(0))
    near = order[~np.isin(order, far)] if far.size else order
    return near if near.size else order
