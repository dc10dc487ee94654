"""Weighted normal equations of all levels of truncation by conjugate gradients."""

from __future__ import annotations

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
