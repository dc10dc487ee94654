"""Losses ℓ(p, y) of a linear prediction p, with their slopes in p; ``LOSSES`` lists them by name.

Each loss has an integer code, so that one compiled kernel serves all of them; the formulas are in
``native/c/losses.h``. Values and slopes are stable for ``|p|`` up to 1e3 and beyond. The implicit slope is
the slope at the *end* of a proximal step: the s with s = ℓ′(p − r s), which exists and is unique for every
convex loss and keeps any row, whatever its size, from throwing a candidate away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tailproof.core import Array
from tailproof.core.lookup import Registry
from tailproof.native.losses import (
    implicit_slopes,
    loss_slopes,
    loss_values,
    softmax_slopes,
    softmax_values,
)

__all__ = ["LOSSES", "SOFTMAX_LOSS", "Loss", "check_target", "get_loss", "loss_name"]

SQUARED, HUBER, ABSOLUTE, PINBALL, POISSON, GAMMA, TWEEDIE = range(7)
LOG, HINGE, SQUARED_HINGE, MODIFIED_HUBER, SOFTMAX = range(10, 15)


@dataclass(frozen=True)
class Loss:
    """One loss: its code, its task, and what the step size and the start need to know about it.

    Attributes
    ----------
    name : str
    code : int
    task : {"regression", "classification"}
        Targets of classification losses are −1 and +1 (class numbers for softmax).
    parameter : float
        Huber's threshold, the pinball quantile or the Tweedie power; 0 where there is none.
    curvature : float
        What the automatic step takes for the second derivative (for the logistic loss four times its maximum,
        for softmax twice: small blocks overfit, and shorter steps shrink); 0 where the scale of y takes its
        place.
    link : {"identity", "log"}
        For regression, how the prediction p maps to the mean of y.
    """

    name: str
    code: int
    task: str
    parameter: float = 0.0
    curvature: float = 1.0
    link: str = "identity"

    @property
    def unbounded(self) -> bool:
        """Whether the slope is unbounded in y: one row can move a block, and skew moves its intercept."""
        return self.code == SQUARED or self.link == "log"

    def value(self, p: ArrayLike, y: ArrayLike) -> Array:
        """ℓ(p, y), element by element; for softmax p has one column per class."""
        if self.code == SOFTMAX:
            return softmax_values(*_scores_and_labels(p, y))
        return _apply(loss_values, self, p, y)

    def least(self, y: Array) -> Array:
        """The least ℓ(·, y), that of a perfect prediction: losses less this are zero at best.

        For the log link twice that excess is the deviance. Other losses have zero, some in the limit.

        Examples
        --------
        >>> poisson, y = LOSSES["poisson"], np.array([0.0, 2.0])
        >>> (poisson.value(np.log([0.5, 2.0]), y) - poisson.least(y)).round(12).tolist()
        [0.5, 0.0]
        """
        if self.link != "log":
            return np.zeros_like(y)
        # At y = 0, where the logarithm is −∞, the least of Poisson's and of Tweedie's loss is zero.
        found = self.value(np.log(np.where(y > 0, y, 1.0)), y)
        return np.where(y > 0, found, 0.0)

    def slope(self, p: ArrayLike, y: ArrayLike) -> Array:
        """∂ℓ/∂p, a subgradient where there is a kink; for softmax one column per class."""
        if self.code == SOFTMAX:
            return softmax_slopes(*_scores_and_labels(p, y))
        return _apply(loss_slopes, self, p, y)

    def implicit_slope(self, p: ArrayLike, y: ArrayLike, r: ArrayLike) -> Array:
        """The s with s = ℓ′(p − r s): the slope where a proximal step of length r ends."""
        return _apply(implicit_slopes, self, p, y, r)

    def of_rows(self, scores: Array, y: Array) -> Array:
        """Loss of every row, from its scores (n, outputs) and its target or class number.

        One output, softmax, or one class against the rest, summed over the classes.

        Examples
        --------
        >>> LOSSES["hinge"].of_rows(np.array([[2.0, -2.0, 0.5]]), np.array([0.0])).tolist()
        [1.5]
        """
        if scores.shape[1] == 1:
            return self.value(scores[:, 0], y)
        values = self.value(scores, self.targets(y, scores.shape[1]))
        return values if values.ndim == 1 else values.sum(axis=1)

    def targets(self, y: Array, outputs: int) -> Array:
        """Y as ``value`` and ``slope`` expect it: of several classes ±1 in a column each, unless softmax."""
        if self.code == SOFTMAX or outputs == 1:
            return y
        return np.where(y[:, None] == np.arange(outputs), 1.0, -1.0)


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("squared_error", SQUARED, "regression"),
        Loss("huber", HUBER, "regression", parameter=1.35),
        Loss("absolute_error", ABSOLUTE, "regression", curvature=0.0),
        Loss("pinball", PINBALL, "regression", parameter=0.5, curvature=0.0),
        Loss("poisson", POISSON, "regression", parameter=1.0, link="log"),
        Loss("gamma", GAMMA, "regression", parameter=2.0, link="log"),
        Loss("tweedie", TWEEDIE, "regression", parameter=1.5, link="log"),
        Loss("log_loss", LOG, "classification"),
        Loss("hinge", HINGE, "classification"),
        Loss("squared_hinge", SQUARED_HINGE, "classification", curvature=2.0),
        Loss("modified_huber", MODIFIED_HUBER, "classification", curvature=2.0),
    )
}
_OF_TASK = {
    task: Registry("loss", {name: loss for name, loss in LOSSES.items() if loss.task == task})
    for task in ("regression", "classification")
}
SOFTMAX_LOSS = Loss("log_loss", SOFTMAX, "classification")

# What the parameter of a loss may be, with the words for an error.
_RANGES = {
    HUBER: (0.0, math.inf, "a positive threshold"),
    PINBALL: (0.0, 1.0, "a quantile strictly between 0 and 1"),
    TWEEDIE: (1.0, 2.0, "a power strictly between 1 and 2"),
}


def loss_name(loss: Any) -> Any:
    """Name of a loss that is given as a name or as ``(name, parameter)``."""
    return loss[0] if isinstance(loss, (tuple, list)) and loss else loss


def get_loss(loss: Any, parameter: float | None, task: str) -> Loss:
    """Return the loss for the task: ``name`` or ``(name, parameter)``, the parameter as its own argument too.

    Examples
    --------
    >>> get_loss("pinball", 0.9, "regression") == get_loss(("pinball", 0.9), None, "regression")
    True
    """
    if isinstance(loss, (tuple, list)):
        if len(loss) != 2 or parameter is not None:
            raise ValueError(f"loss must be a name or (name, parameter), with one parameter; got {loss!r}")
        loss, parameter = loss
    known = _OF_TASK[task][loss]
    if parameter is None:
        return known
    if known.code not in _RANGES:
        raise ValueError(f"loss {loss!r} takes no loss_parameter; got {parameter}")
    low, high, words = _RANGES[known.code]
    if not low < parameter < high:
        raise ValueError(f"loss_parameter of {loss!r} must be {words}; got {parameter}")
    return Loss(known.name, known.code, known.task, float(parameter), known.curvature, known.link)


def check_target(loss: Loss, y: Array) -> None:
    """Refuse targets for which the loss is not defined."""
    if loss.code in (POISSON, TWEEDIE) and np.any(y < 0):
        raise ValueError(f"loss {loss.name!r} needs targets that are not negative")
    if loss.code == GAMMA and np.any(y <= 0):
        raise ValueError("loss 'gamma' needs positive targets")


def _apply(function: Callable[..., Array], loss: Loss, *arrays: ArrayLike) -> Array:
    together = [np.asarray(a, dtype=np.float64) for a in arrays]
    if any(a.shape != together[0].shape for a in together):  # rarely, and it takes longer than a few losses
        together = list(np.broadcast_arrays(*together))
    flat = function(loss.code, loss.parameter, *(np.ascontiguousarray(np.ravel(a)) for a in together))
    return np.reshape(flat, together[0].shape)[()]


def _scores_and_labels(p: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    scores = np.atleast_2d(np.ascontiguousarray(p, dtype=np.float64))
    return scores, np.atleast_1d(np.ascontiguousarray(y, dtype=np.float64))
