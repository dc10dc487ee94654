"""Truncated residuals with an l1 penalty, by coordinate descent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, NUMBER, POINTER, address, check, declare, read

Array = NDArray[Any]

_lasso_path = declare(
    "lasso_path",
    *(POINTER, POINTER, POINTER, COUNT, COUNT, NUMBER),
    *(POINTER, COUNT, NUMBER, POINTER, POINTER, POINTER),
)


class Limits(NamedTuple):
    """At most so many sweeps over a working set, rounds of its growth, columns in it, and columns of a fit.

    A round may add as many columns as there are, and at least ``growth``.
    """

    sweeps: int
    rounds: int
    growth: int
    room: int
    most: int


def lasso_path(
    columns: Array,
    y: Array,
    shares: Array,
    tau: float,
    penalties: Array,
    start: Array,
    tolerance: float,
    limits: Limits,
) -> Array:
    """θ, a row a penalty, that minimises Σ vρ(y − z'θ) + penalty Σ|θ|, with Huber's ρ and shares v of rows.

    Parameters
    ----------
    columns : array of shape (d, n)
        The last is a constant, which has no penalty.
    y, shares : arrays of shape (n,)
    tau : float
        Residuals count linearly beyond it; infinite for squares.
    penalties : array of shape (k,)
        From strong to weak.
    start : array of shape (d,)
    tolerance : float
        Of the last sweep, against θ, and of gradients, against the penalty.
    limits : Limits

    Returns
    -------
    array of shape (made, d)
        Up to the first fit of too many columns, which is left out.

    Examples
    --------
    >>> columns, y, half = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([3.0, 0.2]), np.full(2, 0.5)
    >>> limits = Limits(300, 12, 10, 2, 2)
    >>> lasso_path(columns, y, half, np.inf, half[:1], np.zeros(2), 1e-9, limits).round(6).tolist()
    [[2.0, 0.0]]
    """
    (d, n), count = columns.shape, penalties.size
    theta = np.zeros((count, d))
    theta[0] = start
    numbers, made = np.array(limits, dtype=np.int64), np.zeros(1, dtype=np.int64)
    check(
        _lasso_path(
            read("columns", columns, F64, (d, n)), *(read("y and shares", a, F64, (n,)) for a in (y, shares)),
            n, d, tau, read("penalties", penalties, F64, (count,)), count, tolerance,
            address("limits", numbers), address("theta", theta), address("made", made),
        )
    )  # fmt: skip
    return theta[: int(made[0])]
