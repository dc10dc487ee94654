"""Partial derivatives of the losses of rows."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, POINTER, check, declare, read, written

Array = NDArray[Any]

_partials = declare("partials", POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, COUNT, COUNT, POINTER)


def partials(X: Array, slopes: Array, centre: Array, inverse_scale: Array, first: int, into: Array) -> None:
    """Slope × scaled feature of some columns from ``first`` on, one row of ``into`` for each of them."""
    (n, d), width = X.shape, len(into)
    if not 0 <= first <= d - width:
        raise IndexError(f"columns {first} to {first + width - 1} are not all among the {d} of X")
    columns = read("centre", centre, F64, (d,)), read("inverse_scale", inverse_scale, F64, (d,))
    rows = read("X", X, F64, (n, d)), n, d, read("slopes", slopes, F64, (n,))
    check(_partials(*rows, *columns, first, width, written("into", into, F64, (width, n))))
