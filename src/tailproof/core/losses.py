"""Losses ℓ(p, y) of a linear prediction p, with their slopes in p; ``LOSSES`` lists them by name.

Each loss has an integer code, so that one compiled kernel serves all of them (a branch on an integer is
predicted perfectly and hits the disk cache; functions passed as arguments do neither). ``value``,
``slope`` and ``curvature`` are stable for ``|p|`` up to 1e3 and beyond. ``implicit_slope`` is the slope at
the *end* of a proximal step: the s with s = ℓ′(p − r s), which exists and is unique for every convex loss
and keeps any row, whatever its size, from throwing a candidate away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tailproof.core import Array
from tailproof.core.lookup import lookup
from tailproof.core.numerics.compiled import compiled

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
        What the automatic step takes for the second derivative (for the logistic losses four times its
        maximum: small blocks overfit, and shorter steps shrink); 0 where the scale of y takes its place.
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
            scores, labels = np.atleast_2d(np.asarray(p, float)), np.atleast_1d(np.asarray(y, float))
            return np.asarray(softmax_values(scores, labels))
        return _apply(_values, self, p, y)

    def slope(self, p: ArrayLike, y: ArrayLike) -> Array:
        """∂ℓ/∂p, a subgradient where there is a kink; for softmax one column per class."""
        if self.code == SOFTMAX:
            scores, labels = np.atleast_2d(np.asarray(p, float)), np.atleast_1d(np.asarray(y, float))
            return np.asarray(softmax_slope_rows(scores, labels))
        return _apply(_slopes, self, p, y)

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
SOFTMAX_LOSS = Loss("log_loss", SOFTMAX, "classification", curvature=2.0)

# What the parameter of a loss may be, with the words for an error.
_RANGES = {
    HUBER: (0.0, math.inf, "a positive threshold"),
    PINBALL: (0.0, 1.0, "a quantile strictly between 0 and 1"),
    TWEEDIE: (1.0, 2.0, "a power strictly between 1 and 2"),
}


def get_loss(loss: str, parameter: float | None, task: str) -> Loss:
    """Return the loss of that name for the task, with its parameter set where one is given.

    Examples
    --------
    >>> get_loss("pinball", 0.9, "regression").parameter
    0.9
    """
    found = lookup("loss", loss, {name: x for name, x in LOSSES.items() if x.task == task})
    if parameter is None:
        return found
    if found.code not in _RANGES:
        raise ValueError(f"loss {loss!r} takes no loss_parameter; got {parameter}")
    low, high, words = _RANGES[found.code]
    if not low < parameter < high:
        raise ValueError(f"loss_parameter of {loss!r} must be {words}; got {parameter}")
    return Loss(found.name, found.code, found.task, float(parameter), found.curvature, found.link)


def check_target(loss: Loss, y: Array) -> None:
    """Refuse targets for which the loss is not defined."""
    if loss.code in (POISSON, TWEEDIE) and np.any(y < 0):
        raise ValueError(f"loss {loss.name!r} needs targets that are not negative")
    if loss.code == GAMMA and np.any(y <= 0):
        raise ValueError("loss 'gamma' needs positive targets")


def _apply(function: Callable[..., Array], loss: Loss, p: ArrayLike, y: ArrayLike) -> Array:
    p, y = np.broadcast_arrays(np.asarray(p, float), np.asarray(y, float))
    flat = function(loss.code, loss.parameter, np.ravel(p), np.ravel(y))
    return np.reshape(flat, p.shape)[()]


@compiled()
def _tilted(c, p, y):
    """Y exp((1 − c)p), and 0 for y = 0 even where the exponential overflows."""
    return y * np.exp((1.0 - c) * p) if y != 0.0 else 0.0


@compiled()
def value(code, c, p, y):
    """ℓ(p, y); c is the loss's parameter."""
    if code == SQUARED:
        return 0.5 * (p - y) * (p - y)
    if code == HUBER:
        r = abs(p - y)
        return 0.5 * r * r if r <= c else c * (r - 0.5 * c)
    if code == ABSOLUTE:
        return abs(p - y)
    if code == PINBALL:
        return c * (y - p) if y > p else (1.0 - c) * (p - y)
    if code == POISSON:
        return np.exp(p) - y * p
    if code == GAMMA:
        return p + y * np.exp(-p)
    if code == TWEEDIE:
        return np.exp((2.0 - c) * p) / (2.0 - c) - _tilted(c, p, y) / (1.0 - c)
    margin = y * p
    if code == LOG:
        return np.log1p(np.exp(-margin)) if margin > 0.0 else -margin + np.log1p(np.exp(margin))
    short = max(1.0 - margin, 0.0)
    if code == HINGE:
        return short
    if code == SQUARED_HINGE:
        return short * short
    return short * short if margin >= -1.0 else -4.0 * margin  # modified Huber


@compiled()
def slope(code, c, p, y):
    """∂ℓ/∂p; c is the loss's parameter."""
    if code == SQUARED:
        return p - y
    if code == HUBER:
        return min(max(p - y, -c), c)
    if code == ABSOLUTE:
        return np.sign(p - y)
    if code == PINBALL:
        return 1.0 - c if p > y else (-c if p < y else 0.0)
    if code == POISSON:
        return np.exp(p) - y
    if code == GAMMA:
        return 1.0 - y * np.exp(-p)
    if code == TWEEDIE:
        return np.exp((2.0 - c) * p) - _tilted(c, p, y)
    margin = y * p
    if code == LOG:
        return -y * (
            np.exp(-margin) / (1.0 + np.exp(-margin)) if margin > 0.0 else 1.0 / (1.0 + np.exp(margin))
        )
    if margin >= 1.0:
        return 0.0
    if code == HINGE:
        return -y
    if code == SQUARED_HINGE or margin >= -1.0:
        return -2.0 * y * (1.0 - margin)
    return -4.0 * y  # modified Huber


@compiled()
def curvature(code, c, p, y):
    """∂²ℓ/∂p² of the smooth losses that have no explicit proximal step."""
    if code == POISSON:
        return np.exp(p)
    if code == GAMMA:
        return y * np.exp(-p)
    if code == TWEEDIE:
        return (2.0 - c) * np.exp((2.0 - c) * p) + (c - 1.0) * _tilted(c, p, y)
    decay = np.exp(-abs(p))
    return decay / ((1.0 + decay) * (1.0 + decay))  # logistic


@compiled()
def implicit_slope(code, c, p, y, r):
    """The s with s = ℓ′(p − r s): the slope where a proximal step of length r ends."""
    if code == SQUARED:
        return (p - y) / (1.0 + r)
    if r <= 0.0:
        return slope(code, c, p, y)
    if code == HUBER:
        return min(max((p - y) / (1.0 + r), -c), c)
    if code == ABSOLUTE:
        return min(max((p - y) / r, -1.0), 1.0)
    if code == PINBALL:
        return min(max((p - y) / r, -c), 1.0 - c)
    if code == HINGE:
        return -y * min(max((1.0 - y * p) / r, 0.0), 1.0)
    if code == SQUARED_HINGE:
        return -y * 2.0 * max(1.0 - y * p, 0.0) / (1.0 + 2.0 * r)
    if code == MODIFIED_HUBER:
        return -y * min(2.0 * max(1.0 - y * p, 0.0) / (1.0 + 2.0 * r), 4.0)
    return _solve_implicit(code, c, p, y, r)


@compiled()
def _solve_implicit(code, c, p, y, r):
    """Newton's method, with bisection where it crawls, for q + r ℓ′(q) = p."""
    low, high = _implicit_bracket(code, c, p, y, r)
    q, before = 0.5 * low + 0.5 * high, high - low
    for _ in range(200):
        gap = q + r * slope(code, c, q, y) - p
        if gap > 0.0:
            high = q
        else:
            low = q
        following = q - gap / (1.0 + r * curvature(code, c, q, y))
        if not (low <= following <= high and abs(following - q) <= 0.5 * before):
            following = 0.5 * low + 0.5 * high
        before = abs(following - q)
        q = following
        if before <= 1e-15 * (1.0 + abs(q)):
            break
    return (p - q) / r


@compiled()
def _implicit_bracket(code, c, p, y, r):
    """Where a proximal step from p can end: before the explicit step does, and not past the minimum."""
    steep = slope(code, c, p, y)
    ends = p - r * steep
    if code == LOG:
        return min(p, ends), max(p, ends)
    minimum = np.log(y) if y > 0.0 else -np.inf
    if steep <= 0.0:
        return p, min(ends, minimum)
    if code != GAMMA:
        # With a the growth rate, r exp(aq) ≤ 1 at this q, so that the sum is still below p.
        minimum = max(minimum, min(p - 1.0, -np.log(r) / (1.0 if code == POISSON else 2.0 - c)))
    return max(ends, minimum), p


@compiled()
def _values(code, c, p, y):
    found = np.empty(p.size)
    if code == SQUARED:  # a loop of its own vectorises
        for i in range(p.size):
            found[i] = 0.5 * (p[i] - y[i]) * (p[i] - y[i])
        return found
    for i in range(p.size):
        found[i] = value(code, c, p[i], y[i])
    return found


@compiled()
def _slopes(code, c, p, y):
    found = np.empty(p.size)
    if code == SQUARED:
        for i in range(p.size):
            found[i] = p[i] - y[i]
        return found
    for i in range(p.size):
        found[i] = slope(code, c, p[i], y[i])
    return found


@compiled()
def softmax_values(p, y):
    """Log Σ exp(p) − p[y] for every row of p; y holds class numbers."""
    found = np.empty(len(p))
    for i in range(len(p)):
        top = p[i].max()
        found[i] = np.log(np.exp(p[i] - top).sum()) + top - p[i, int(y[i])]
    return found


@compiled()
def softmax_slopes(p, label, into):
    """softmax(p) − e_label, written into an array of the same length."""
    top = p.max()
    total = 0.0
    for j in range(p.size):
        into[j] = np.exp(p[j] - top)
        total += into[j]
    for j in range(p.size):
        into[j] /= total
    into[label] -= 1.0


@compiled()
def softmax_slope_rows(p, y):
    """softmax(p) − e_y for every row of p; y holds class numbers."""
    found = np.empty(p.shape)
    for i in range(len(p)):
        softmax_slopes(p[i], int(y[i]), found[i])
    return found
