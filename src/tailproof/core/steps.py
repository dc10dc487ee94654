"""Step sizes αₜ, t = 0, 1, ...; ``STEPS`` lists them by name.

``sizes(t, d, n, k)`` takes update numbers and the size of the problem: d parameters, n rows, k blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.lookup import Registry

__all__ = [
    "STEPS",
    "Auto",
    "Constant",
    "Decaying",
    "OverRootD",
    "Schedule",
    "Theorem1",
    "Theorem2",
    "Theorem3",
    "get_steps",
]


@dataclass(frozen=True)
class Constant:
    """αₜ = size.

    Examples
    --------
    >>> Constant(0.1).sizes(np.arange(3), d=4, n=100, k=5).tolist()
    [0.1, 0.1, 0.1]
    """

    size: float = 0.01

    def __post_init__(self) -> None:
        _positive(size=self.size)

    def sizes(self, t: NDArray[np.integer], d: int, n: int, k: int) -> Array:
        """The size, whatever t."""
        return np.full(len(t), float(self.size))


@dataclass(frozen=True)
class OverRootD:
    """αₜ = size/√d, as in the paper's simulations."""

    size: float = 0.01

    def __post_init__(self) -> None:
        _positive(size=self.size)

    def sizes(self, t: NDArray[np.integer], d: int, n: int, k: int) -> Array:
        """The size over √d, whatever t."""
        return np.full(len(t), self.size / math.sqrt(d))


@dataclass(frozen=True)
class Decaying:
    """αₜ = size/(1 + t)^power over all passes, for several of them (Lin and Rosasco, 2017).

    Examples
    --------
    >>> Decaying(0.1, 0.5).sizes(np.array([0, 3]), d=4, n=100, k=5).tolist()
    [0.1, 0.05]
    """

    size: float = 0.1
    power: float = 0.5

    def __post_init__(self) -> None:
        _positive(size=self.size, power=self.power)
        if self.power > 1:
            raise ValueError(
                f"power of a step size must be at most 1, or steps end too soon; got {self.power}"
            )

    def sizes(self, t: NDArray[np.integer], d: int, n: int, k: int) -> Array:
        """Falling as a power of t."""
        return self.size / (1.0 + np.asarray(t)) ** self.power


@dataclass(frozen=True)
class Theorem1:
    """αₜ = 1/(κ max(1, t))."""

    strong_convexity: float = 1.0

    def __post_init__(self) -> None:
        _positive(strong_convexity=self.strong_convexity)

    def sizes(self, t: NDArray[np.integer], d: int, n: int, k: int) -> Array:
        """Falling as 1/t."""
        return 1.0 / (self.strong_convexity * np.maximum(1, t))


@dataclass(frozen=True)
class Theorem2:
    """α₀ = 1/(2λ₁), αₜ = a/(κt + b) with b = 2aλ₁ (the paper prints κn: an erratum)."""

    smoothness: float = 1.0
    strong_convexity: float = 1.0
    a: float = 2.0

    def __post_init__(self) -> None:
        _positive(smoothness=self.smoothness, strong_convexity=self.strong_convexity, a=self.a)
        if self.a < 2:
            raise ValueError(f"a of Theorem 2 must be at least 2 for its bound to hold; got {self.a}")

    def sizes(self, t: NDArray[np.integer], d: int, n: int, k: int) -> Array:
        """Falling as 1/t from 1/(2λ₁); the formula gives α₀ as well."""
        return self.a / (self.strong_convexity * np.asarray(t) + 2 * self.a * self.smoothness)


@dataclass(frozen=True)
class Theorem3:
    """αₜ = 1/(λ₁ + 1/a), a = Δ/sqrt(nσ_G²/(2k))."""

    smoothness: float = 1.0
    diameter: float = 1.0
    gradient_sd: float = 1.0

    def __post_init__(self) -> None:
        _positive(smoothness=self.smoothness, diameter=self.diameter, gradient_sd=self.gradient_sd)

    def sizes(self, t: NDArray[np.integer], d: int, n: int, k: int) -> Array:
        """Constant in t; smaller for larger blocks."""
        inverse = math.sqrt(n * self.gradient_sd**2 / (2 * k)) / self.diameter
        return np.full(len(t), 1.0 / (self.smoothness + inverse))


@dataclass(frozen=True)
class Auto:
    """c/(L(1 + E‖z‖²)) in the first pass, falling with the number of passes.

    z are the scaled features and L the curvature of the loss, both estimated from the data by the learner,
    which calls :meth:`for_pass`. With implicit updates any c from 0.1 to 2 is stable. Steps fall as one over
    the number of passes where the slope of the loss is unbounded, so that heavy noise is averaged away, and
    as its power 0.7 where it is bounded and noise is no danger.
    """

    c: float = 0.5

    def __post_init__(self) -> None:
        _positive(c=self.c)

    def for_pass(self, curvature: float, number: int, *, bounded: bool) -> float:
        """The step of pass ``number``, where ``curvature`` is L(1 + E‖z‖²)."""
        return self.c / (curvature * (1 + number) ** (0.7 if bounded else 1.0))


Schedule = Constant | OverRootD | Decaying | Theorem1 | Theorem2 | Theorem3 | Auto

STEPS: Registry[Callable[..., Schedule]] = Registry(
    "step_size",
    {
        "constant": Constant,
        "over_root_d": OverRootD,
        "decaying": Decaying,
        "theorem1": Theorem1,
        "theorem2": Theorem2,
        "theorem3": Theorem3,
        "auto": Auto,
    },
)


def get_steps(step_size: object) -> Schedule:
    """Return the schedule: a number (constant), a name, a tuple ``(name, *numbers)``, or a schedule.

    Examples
    --------
    >>> get_steps(("theorem2", 4.0, 1.0))
    Theorem2(smoothness=4.0, strong_convexity=1.0, a=2.0)
    """
    if isinstance(step_size, Schedule):
        return step_size
    if isinstance(step_size, (int, float, np.integer, np.floating)):
        return Constant(float(step_size))
    name, *numbers = (step_size,) if not isinstance(step_size, (tuple, list)) or not step_size else step_size
    try:
        return STEPS[name](*numbers)
    except TypeError:
        raise ValueError(f"step_size {step_size!r} does not fit {name!r}: give ('{name}', numbers)") from None


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} of a step size must be positive and finite; got {value}")
