"""What the bounds of the theorems ask of their arguments, and how they say what is wrong."""

from __future__ import annotations

import math


class TooFewRowsError(ValueError):
    """A theorem's condition on the number of rows does not hold."""


def require(n: float, needed: float, condition: str) -> None:
    """Raise where a theorem's condition on the number of rows does not hold."""
    if not n < math.inf:
        raise ValueError(f"n must be a finite number of rows; got {n}")
    if n < needed:
        raise TooFewRowsError(f"the theorem needs {condition}, here at least {math.ceil(needed)}; got n={n}")


def check_majority(k: int, failure: float, gamma: float) -> None:
    """Refuse what no majority of k candidates can be, each of which is bad with that probability."""
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    if not 0 <= failure < 0.5:
        raise ValueError(f"failure, the probability of a bad candidate, must lie in [0, 1/2); got {failure}")
    if not 0 <= gamma < 0.5 - failure:
        raise ValueError(f"gamma must lie in [0, 1/2 - failure) = [0, {0.5 - failure:g}); got {gamma}")


def check_numerator(a: float, where: str) -> None:
    """Refuse step sizes a / (λ(t + M)) for which the recursion behind a bound does not hold."""
    if not 2 <= a < math.inf:
        raise ValueError(f"{where} needs step sizes with a finite numerator a ≥ 2; got {a}")


def check_problem(**values: float) -> None:
    """Refuse constants that are not positive and finite."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite; got {value}")


def check_not_negative(**values: float) -> None:
    """Refuse constants that are negative or infinite."""
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and not negative; got {value}")


def check_conditioning(strong_convexity: float, smoothness: float) -> None:
    """Refuse κ > λ₁, which no risk has."""
    if strong_convexity > smoothness:
        raise ValueError(
            f"strong_convexity must not exceed smoothness; got {strong_convexity} > {smoothness}"
        )


def dimension(d: int | None) -> int:
    """Return d, which the constant of the coordinate median needs."""
    if d is None or not d >= 1:
        raise ValueError(f"the constant of the coordinate median needs d, the number of parameters; got {d}")
    return d
