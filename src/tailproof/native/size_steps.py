"""Reweighted steps of slopes and of κ, where noise over its size is truncated."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    COUNT,
    F64,
    NUMBER,
    POINTER,
    address,
    at_least_one,
    check,
    declare,
    read,
    written,
)

Array = NDArray[Any]

_size_steps = declare("size_steps", POINTER, COUNT, COUNT, *[POINTER] * 3, NUMBER, NUMBER, *[POINTER] * 4)


class Steps(NamedTuple):
    """What steps have come to: the last truncation, how many are left, and the system of the next one.

    The truncation is NaN where numbers do not hold what is asked. Otherwise, where steps are left, the system
    may be singular.
    """

    tau: float
    left: int
    matrix: Array
    side: Array


def size_steps(
    Q: Array, y: Array, v: Array, s: Array, place: Array, steps: int, share: float, close: float
) -> Steps:
    """Move φ and κ by steps to where Σ v ψ(u) q/s, Σ v ψ(u) and Σ v (u + κ) vanish, u = (y − q'φ)/s − κ.

    Parameters
    ----------
    Q : array of shape (n, rank)
    y, v, s : arrays of shape (n,)
        Targets, shares and sizes.
    place : array of shape (rank + 1,)
        φ and κ, which are moved.
    steps : int
        At most.
    share : float
        ψ truncates at the quantile of |u| of this share.
    close : float
        Of the largest of φ and κ: steps that are no longer are the last.

    Examples
    --------
    >>> one, place = np.ones(4), np.zeros(2)
    >>> found = size_steps(one[:, None], np.array([1.0, 2.0, 3.0, 10.0]), one / 4, one, place, 30, 0.5, 1e-9)
    >>> found.left, bool(np.isclose(place[0], 4.0)), bool(place[1] < -1.0)
    (0, True, True)
    """
    (n, rank), count = Q.shape, len(place)
    at_least_one("the number of rows", n)
    system, tau, left = np.empty(count * (count + 1)), NUMBER(), COUNT(steps)
    rows = (read(name, a, F64, (n,)) for name, a in (("y", y), ("v", v), ("s", s)))
    check(
        _size_steps(
            read("Q", Q, F64, (n, rank)), n, rank, *rows, share, close,
            written("place", place, F64, (rank + 1,)), address("system", system),
            ctypes.addressof(tau), ctypes.addressof(left),
        )
    )  # fmt: skip
    matrix, side = np.split(system, [count * count])
    return Steps(tau.value, left.value, matrix.reshape(count, count), side)
