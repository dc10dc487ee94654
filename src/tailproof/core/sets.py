"""Constraint sets W with exact Euclidean projections; ``SETS`` lists them by name.

A set is a frozen record with an integer code and two numbers, which is all that the kernels see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tailproof.core import Array
from tailproof.core.lookup import lookup
from tailproof.core.numerics.compiled import compiled

NONE, BALL, BOX, L1_BALL, SIMPLEX = range(5)


class ConvexSet:
    """What every constraint set has: a code, two numbers, membership and a projection."""

    code: ClassVar[int]

    @property
    def bounds(self) -> tuple[float, float]:
        """The two numbers that the kernels need."""
        raise TypeError(f"{type(self).__name__} is not a set of its own: use one of {sorted(SETS)}")

    def project(self, w: ArrayLike) -> Array:
        """Return the point of the set nearest to w.

        Examples
        --------
        >>> Ball(1.0).project([3.0, 4.0]).tolist()
        [0.6000000000000001, 0.8]
        """
        point = np.array(w, dtype=np.float64)
        if self.code != NONE:  # else there is no need to load compiled code
            project(self.code, *self.bounds, point.reshape(-1))
        return point


@dataclass(frozen=True)
class AllSpace(ConvexSet):
    """No constraint."""

    code = NONE
    bounds = (0.0, 0.0)


@dataclass(frozen=True)
class Ball(ConvexSet):
    """{w : ‖w‖₂ ≤ radius}."""

    radius: float = 1.0
    code = BALL

    def __post_init__(self) -> None:
        _check_size("radius", self.radius)

    @property
    def bounds(self) -> tuple[float, float]:
        """Radius, nothing."""
        return float(self.radius), 0.0


@dataclass(frozen=True)
class Box(ConvexSet):
    """{w : low ≤ wⱼ ≤ high for every j}."""

    low: float = -1.0
    high: float = 1.0
    code = BOX

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"a box needs low ≤ high; got {self.low} and {self.high}")

    @property
    def bounds(self) -> tuple[float, float]:
        """Low, high."""
        return float(self.low), float(self.high)


@dataclass(frozen=True)
class L1Ball(ConvexSet):
    """{w : Σ|wⱼ| ≤ radius}."""

    radius: float = 1.0
    code = L1_BALL

    def __post_init__(self) -> None:
        _check_size("radius", self.radius)

    @property
    def bounds(self) -> tuple[float, float]:
        """Radius, nothing."""
        return float(self.radius), 0.0


@dataclass(frozen=True)
class Simplex(ConvexSet):
    """{w : wⱼ ≥ 0, Σwⱼ = total}."""

    total: float = 1.0
    code = SIMPLEX

    def __post_init__(self) -> None:
        _check_size("total", self.total)

    @property
    def bounds(self) -> tuple[float, float]:
        """Total, nothing."""
        return float(self.total), 0.0


SETS: dict[str, type[ConvexSet]] = {
    "none": AllSpace,
    "ball": Ball,
    "box": Box,
    "l1_ball": L1Ball,
    "simplex": Simplex,
}


def get_set(constraint: object) -> ConvexSet:
    """Return the set that ``constraint`` names: None, a name, a tuple ``(name, *numbers)``, or a set.

    Examples
    --------
    >>> get_set(("box", 0.0, 1.0))
    Box(low=0.0, high=1.0)
    """
    if constraint is None:
        return AllSpace()
    if isinstance(constraint, ConvexSet):
        return constraint
    name, *numbers = (
        (constraint,) if not isinstance(constraint, (tuple, list)) or not constraint else constraint
    )
    try:
        return lookup("constraint", name, SETS)(*numbers)
    except TypeError:
        raise ValueError(
            f"constraint {constraint!r} does not fit {name!r}: give ('{name}', numbers)"
        ) from None


def _check_size(name: str, size: float) -> None:
    if not 0 < size < math.inf:
        raise ValueError(f"{name} must be positive and finite; got {size}")


@compiled()
def project(code, first, second, w):
    """Move w, in place, to the nearest point of the set."""
    if code == BALL:
        norm = _norm(w)
        if norm > first:
            w *= first / norm
    elif code == BOX:
        for j in range(w.size):
            w[j] = min(max(w[j], first), second)
    elif code == L1_BALL:
        sizes = np.abs(w)
        if sizes.sum() > first:
            threshold = _simplex_threshold(sizes, first)
            for j in range(w.size):
                w[j] = np.sign(w[j]) * max(sizes[j] - threshold, 0.0)
    elif code == SIMPLEX:
        threshold = _simplex_threshold(w, first)
        for j in range(w.size):
            w[j] = max(w[j] - threshold, 0.0)


@compiled()
def _norm(w):
    """Relative to the largest entry: squares may overflow."""
    largest, total = 0.0, 0.0
    for j in range(w.size):
        # Turned round, so that NaN wins.
        largest = largest if abs(w[j]) <= largest else abs(w[j])
    for j in range(w.size if largest > 0.0 else 0):
        total += (w[j] / largest) ** 2
    return largest * np.sqrt(total)


@compiled()
def _simplex_threshold(w, total):
    """The τ with Σ max(wⱼ − τ, 0) = total: the largest entries share what is over.

    By Michelot's rounds: entries below the τ of all that are left drop out, until none does. Sorting them
    would take as long, and longer to compile.
    """
    threshold, left = -np.inf, w.size + 1
    while True:
        over, count = -total, 0
        for j in range(w.size):
            if not w[j] <= threshold:
                over += w[j]
                count += 1
        if count in (0, left):
            return threshold
        threshold, left = over / count, count
