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
