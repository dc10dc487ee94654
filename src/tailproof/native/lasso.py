"""Accelerated proximal steps for truncated residuals with an l1 penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, NUMBER, POINTER, check, declare, read

Array = NDArray[Any]

_proximal_steps = declare(
    "proximal_steps",
    *(POINTER, POINTER, POINTER, COUNT, COUNT, NUMBER),
    *(POINTER, COUNT, NUMBER, POINTER),
)


def proximal_steps(
    A: Array, y: Array, shares: Array, tau: float, limit: Array, start: Array, steps: int, tolerance: float
) -> Array:
    """θ that minimises Σ vρ(y − Aθ) + Σ limit|θ|, with Huber's ρ and shares v of the rows.

    Parameters
    ----------
    A : array of shape (n, d)
    y, shares : arrays of shape (n,)
    tau : float
        Residuals count linearly beyond it; infinite for squares.
    limit, start : arrays of shape (d,)
    steps : int
        At most.
    tolerance : float
        Of the last step, against θ.

    Examples
    --------
    >>> y, half = np.array([3.0, 0.2]), np.full(2, 0.5)
    >>> proximal_steps(np.eye(2), y, half, np.inf, half, np.zeros(2), 300, 1e-9).round(6).tolist()
    [2.0, 0.0]
    """
    (n, d), theta = A.shape, np.array(start, dtype=np.float64)
    check(
        _proximal_steps(
            read("A", A, F64, (n, d)), *(read("y and shares", a, F64, (n,)) for a in (y, shares)), n, d, tau,
            read("limit", limit, F64, (d,)), steps, tolerance, read("start", theta, F64, (d,)),
        )
    )  # fmt: skip
    return theta
