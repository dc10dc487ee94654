"""Constraint sets W with exact Euclidean projections; ``SETS`` lists them by name.

A set is a frozen record with an integer code and two numbers, which is all that the compiled projections in
``native/c/sets.c`` see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tailproof.core import Array
from tailproof.core.lookup import Registry
from tailproof.native.sets import project

__all__ = ["ALL_SPACE", "SETS", "AllSpace", "Ball", "Box", "ConvexSet", "L1Ball", "Simplex", "get_set"]

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
        project(self.code, *self.bounds, point.reshape(-1))
        return point


@dataclass(frozen=True)
class AllSpace(ConvexSet):
    """No constraint."""

    code = NONE
    bounds = (0.0, 0.0)


ALL_SPACE = AllSpace()


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


SETS: Registry[type[ConvexSet]] = Registry(
    "constraint",
    {
        "none": AllSpace,
        "ball": Ball,
        "box": Box,
        "l1_ball": L1Ball,
        "simplex": Simplex,
    },
)


def get_set(constraint: object) -> ConvexSet:
    """Return the set that ``constraint`` names: None, a name, a tuple ``(name, *numbers)``, or a set.

    Examples
    --------
    >>> get_set(("box", 0.0, 1.0))
    Box(low=0.0, high=1.0)
    """
    if constraint is None:
        return ALL_SPACE
    if isinstance(constraint, ConvexSet):
        return constraint
    name, *numbers = (
        (constraint,) if not isinstance(constraint, (tuple, list)) or not constraint else constraint
    )
    try:
        return SETS[name](*numbers)
    except TypeError:
        raise ValueError(
            f"constraint {constraint!r} does not fit {name!r}: give ('{name}', numbers)"
        ) from None


def _check_size(name: str, size: float) -> None:
    if not 0 < size < math.inf:
        raise ValueError(f"{name} must be positive and finite; got {size}")
