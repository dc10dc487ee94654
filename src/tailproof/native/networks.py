"""One epoch of SGD for softmax regression and small feed-forward networks, a whole network at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    COUNT,
    I64,
    NUMBER,
    POINTER,
    REALS,
    address,
    at_least_one,
    check,
    declare_for,
    function_for,
    read,
    written,
)

Array = NDArray[Any]

_network_pass = declare_for(
    REALS, "network_pass", POINTER, COUNT, COUNT, POINTER, POINTER, COUNT, COUNT, POINTER, COUNT, POINTER,
    POINTER, COUNT, NUMBER,
)  # fmt: skip


def parameters_of(sizes: Sequence[int]) -> int:
    """Number of parameters of a network with these widths, the input's first.

    Examples
    --------
    >>> parameters_of([784, 10, 10])
    7960
    """
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))


def network_pass(
    X: Array,
    y: Array,
    rows: Array,
    sizes: Sequence[int],
    w: Array,
    step: float,
    *,
    batch_size: int = 1,
    mean: Array | None = None,
    updates: int = 0,
) -> int:
    """Make one pass of mini-batch SGD on the cross-entropy of a network with rectified hidden layers.

    Parameters
    ----------
    X : C-ordered array of shape (n, d), float32 or float64
    y : array of int64, shape (n,)
        Class numbers.
    rows : array of int64
        Which rows, in which order.
    sizes : sequence of int
        d, the widths of the hidden layers, the number of classes.
    w : array of the type of X
        All parameters, which move: for each layer its weights, output by output, then its biases.
    step : float
    batch_size : int
    mean : array like w, optional
        The average of all iterates, of which ``updates`` were made before; it is brought up to date.

    Returns
    -------
    int
        Updates made in all.

    Examples
    --------
    >>> w = np.zeros(4)
    >>> network_pass(np.array([[2.0]]), np.array([1]), np.array([0]), [1, 2], w, 0.5)
    1
    >>> w.tolist()
    [-0.5, 0.5, -0.25, 0.25]
    """
    n, d = X.shape
    widths = np.array(sizes, dtype=np.int64)
    if widths.size < 2 or widths.min() < 1 or widths[0] != d:
        raise ValueError(
            f"sizes must begin with the {d} columns of X and name at least one layer; got {sizes}"
        )
    m, count = at_least_one("the number of rows", rows.size), parameters_of(sizes)
    averages = None if mean is None else written("mean", mean, X.dtype, (count,))
    check(
        function_for(_network_pass, X.dtype)(
            address("X", X), n, d, read("y", y, I64, (n,)), read("rows", rows, I64, (m,)), m,
            at_least_one("batch_size", batch_size), address("sizes", widths), widths.size - 1,
            written("w", w, X.dtype, (count,)), averages, updates, step,
        )
    )  # fmt: skip
    return updates + -(-m // batch_size)
