"""Partial derivatives of the losses of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    CODE,
    COUNT,
    F64,
    NUMBER,
    POINTER,
    address,
    at_least_one,
    check,
    declare,
    optional,
    read,
    written,
)

Array = NDArray[Any]

_partials = declare("partials", POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, COUNT, COUNT, POINTER)

_m_gradient = declare(
    "m_gradient", POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER, COUNT, COUNT, CODE, NUMBER, CODE,
    POINTER, COUNT, POINTER, POINTER, POINTER, POINTER,
)  # fmt: skip


def partials(X: Array, slopes: Array, centre: Array, inverse_scale: Array, first: int, into: Array) -> None:
    """Slope × scaled feature of some columns from ``first`` on, one row of ``into`` for each of them."""
    (n, d), width = X.shape, len(into)
    if not 0 <= first <= d - width:
        raise IndexError(f"columns {first} to {first + width - 1} are not all among the {d} of X")
    columns = read("centre", centre, F64, (d,)), read("inverse_scale", inverse_scale, F64, (d,))
    rows = read("X", X, F64, (n, d)), n, d, read("slopes", slopes, F64, (n,))
    check(_partials(*rows, *columns, first, width, written("into", into, F64, (width, n))))


def m_gradient(
    X: Array, slopes: Array, centre: Array, inverse_scale: Array, weights: Array, first: int, tile: Array,
    scales: Array, offsets: Array, gradient: Array, *, by_m_scale: bool, widen: float, psi: int,
) -> bool:  # fmt: skip
    """M-estimates of the partial derivatives of as many columns, from ``first`` on, as ``gradient`` has.

    ``scales`` are guesses, and ``offsets`` those of the estimates from the means; both become what was found.
    ``tile`` is room for the partial derivatives of a few columns. False where a column takes more care than
    is taken here: nothing in the three arrays is to be relied on then.
    """
    (n, d), width, plain = X.shape, gradient.size, np.empty(1, dtype=np.bool_)
    if not 0 <= first <= d - width:
        raise IndexError(f"columns {first} to {first + width - 1} are not all among the {d} of X")
    height = at_least_one("the number of columns in a tile", len(tile))
    rows = read("X", X, F64, (n, d)), n, d, read("slopes", slopes, F64, (n,))
    columns = read("centre", centre, F64, (d,)), read("inverse_scale", inverse_scale, F64, (d,))
    found = [written("scales, offsets and gradient", a, F64, (width,)) for a in (scales, offsets, gradient)]
    check(
        _m_gradient(
            *rows, *columns, optional("weights", weights, n), first, width, by_m_scale, widen, psi,
            written("tile", tile, F64, (height, n)), height, *found, address("plain", plain),
        )
    )  # fmt: skip
    return bool(plain[0])
