"""Losses and slopes of many predictions; codes are those of :mod:`tailproof.core.losses`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import CODE, COUNT, F64, NUMBER, POINTER, Function, address, check, declare, read

Array = NDArray[np.floating]

_ELEMENTWISE = (CODE, NUMBER, POINTER, POINTER, COUNT, POINTER)
_values = declare("loss_values", *_ELEMENTWISE)
_slopes = declare("loss_slopes", *_ELEMENTWISE)
_implicit_slopes = declare("implicit_slopes", CODE, NUMBER, POINTER, POINTER, POINTER, COUNT, POINTER)
_BY_CLASS = (POINTER, POINTER, COUNT, COUNT, POINTER)
_softmax_values = declare("softmax_values", *_BY_CLASS)
_softmax_slopes = declare("softmax_slope_rows", *_BY_CLASS)


def loss_values(code: int, c: float, p: Array, y: Array) -> Array:
    """ℓ(p, y) of every prediction.

    Examples
    --------
    >>> loss_values(0, 0.0, np.array([1.0, 3.0]), np.zeros(2)).tolist()
    [0.5, 4.5]
    """
    return _elementwise(_values, code, c, p, y)


def loss_slopes(code: int, c: float, p: Array, y: Array) -> Array:
    """∂ℓ/∂p of every prediction."""
    return _elementwise(_slopes, code, c, p, y)


def implicit_slopes(code: int, c: float, p: Array, y: Array, r: Array) -> Array:
    """The s with s = ℓ′(p − r s): the slope where a proximal step of length r ends."""
    slopes = np.empty(p.size)
    pointers = [read(name, array, F64, slopes.shape) for name, array in (("p", p), ("y", y), ("r", r))]
    check(_implicit_slopes(code, c, *pointers, p.size, address("found", slopes)))
    return slopes


def softmax_values(p: Array, y: Array) -> Array:
    """Log Σ exp(p) − p[y] for every row of p; y holds class numbers."""
    values = np.empty(len(p))
    _by_class(_softmax_values, p, y, values)
    return values


def softmax_slopes(p: Array, y: Array) -> Array:
    """softmax(p) − e_y for every row of p; y holds class numbers."""
    slopes = np.empty(p.shape)
    _by_class(_softmax_slopes, p, y, slopes)
    return slopes


def _elementwise(function: Function, code: int, c: float, p: Array, y: Array) -> Array:
    out = np.empty(p.size)
    pointers = read("p", p, F64, out.shape), read("y", y, F64, out.shape)
    check(function(code, c, *pointers, p.size, address("found", out)))
    return out


def _by_class(function: Function, p: Array, y: Array, out: Array) -> None:
    n, classes = p.shape
    pointers = read("p", p, F64, (n, classes)), read("y", y, F64, (n,))
    check(function(*pointers, n, classes, address("found", out)))
