"""Weighted normal equations of all levels of truncation by conjugate gradients, and steps by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, NUMBER, POINTER, address, check, declare, read

Array = NDArray[Any]

_conjugate_gradients = declare(
    "conjugate_gradients",
    *(POINTER, COUNT, COUNT, POINTER, POINTER, COUNT),
    *(POINTER, POINTER, POINTER),
    *(NUMBER, NUMBER, POINTER, COUNT, POINTER),
)

_searched_levels = declare(
    "searched_levels",
    *(POINTER, POINTER, POINTER, COUNT, COUNT),
    *(POINTER, POINTER, POINTER, COUNT),
    *(POINTER, POINTER, NUMBER, NUMBER, NUMBER),
    *(NUMBER, NUMBER, NUMBER, NUMBER, COUNT, COUNT, POINTER),
)


@dataclass(frozen=True)
class Steps:
    """How levels are searched for.

    Attributes
    ----------
    floor : float
        ψ′ counts for at least so much.
    damping : float
        Added to the diagonal of Hessians; the first step draws φ towards zero by it.
    corrected : float
        Levels rest whose gradient is within this share of the first.
    rough, finer, tolerance : float
        Share of a gradient that conjugate gradients leave, or of what is small enough, and the least.
    searches : int
        Steps after the first one, at most.
    steps : int
        Of conjugate gradients, at most.
    """

    floor: float
    damping: float
    corrected: float
    rough: float
    finer: float
    tolerance: float
    searches: int
    steps: int


def searched_levels(
    X: Array,
    y: Array,
    weights: Array,
    phi: Array,
    tau: Array,
    tukey: Array,
    ridge: Array,
    inverse: Array,
    constant: Array,
    how: Steps,
) -> Array:
    """Φ of every level by Newton steps, each as long as is best, from one of other rows.

    Parameters
    ----------
    X : array of shape (n, d)
    y, weights : arrays of shape (n,)
    phi : array of shape (levels, d)
    tau, tukey, ridge : arrays of shape (levels,)
        ψ is Huber's, or Tukey's where ``tukey`` is not zero; the last is λ.
    inverse, constant : arrays of shape (d,)
        What λ multiplies is diag(inverse) − constant constant'.
    how : Steps

    Returns
    -------
    array of shape (levels, d)

    Examples
    --------
    >>> one, none = np.ones(1), np.zeros(1)
    >>> how = Steps(0.01, 0.0, 1e-9, 0.0, 0.0, 1e-12, 20, 50)
    >>> X, y = np.ones((3, 1)), np.array([0.0, 1.0, 50.0])
    >>> found = searched_levels(X, y, np.ones(3), np.zeros((1, 1)), one, none, none, one, none, how)
    >>> round(float(found[0, 0]), 6)
    1.0
    """
    (n, d), count = X.shape, ridge.size
    found = np.array(phi, dtype=F64, order="C")
    check(
        _searched_levels(
            read("X", X, F64, (n, d)), *(read("y and weights", a, F64, (n,)) for a in (y, weights)), n, d,
            *(read("levels", a, F64, (count,)) for a in (tau, tukey, ridge)), count,
            *(read("inverse and constant", a, F64, (d,)) for a in (inverse, constant)), float(weights.sum()),
            how.damping, how.floor, how.corrected, how.rough, how.finer, how.tolerance, how.searches,
            how.steps, address("found", found),
        )
    )  # fmt: skip
    return found


def conjugate_gradients(
    X: Array,
    weights: Array,
    ridge: Array,
    b: Array,
    inverse: Array,
    constant: Array,
    total: float,
    damping: float,
    tolerance: Array,
    steps: int,
) -> Array:
    """X of every level with (X'CX/total + λ(diag(inverse) − constant constant') + damping) x = b.

    Parameters
    ----------
    X : array of shape (n, d)
    weights : array of shape (levels, n)
        The diagonals of C.
    ridge : array of shape (levels,)
        λ.
    b : array of shape (levels, d)
    inverse, constant : arrays of shape (d,)
    total, damping : float
    tolerance : array of shape (levels,)
        Share of b that may be left, in the norm of the preconditioner, which is about the diagonal.
    steps : int
        At most.

    Returns
    -------
    array of shape (levels, d)

    Examples
    --------
    >>> X, one, zero = np.eye(2), np.ones((1, 2)), np.zeros(2)
    >>> b, none = np.array([[1.0, 2.0]]), np.zeros(1)
    >>> conjugate_gradients(X, one, none, b, zero, zero, 1.0, 1.0, none + 1e-9, 9).tolist()
    [[0.5, 1.0]]
    """
    (n, d), count = X.shape, ridge.size
    found = np.empty((count, d))
    check(
        _conjugate_gradients(
            read("X", X, F64, (n, d)), n, d, read("weights", weights, F64, (count, n)),
            read("ridge", ridge, F64, (count,)), count, read("b", b, F64, (count, d)),
            read("inverse", inverse, F64, (d,)), read("constant", constant, F64, (d,)), total, damping,
            read("tolerance", tolerance, F64, (count,)), steps, address("found", found),
        )
    )  # fmt: skip
    return found
