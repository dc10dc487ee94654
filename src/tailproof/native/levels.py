"""Sums over rows for all levels of truncation at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    CODE,
    COUNT,
    F64,
    I64,
    NUMBER,
    POINTER,
    address,
    check,
    declare,
    optional,
    read,
)

Array = NDArray[Any]

_level_sums = declare(
    "level_sums",
    *(POINTER, POINTER, POINTER, POINTER, COUNT, COUNT, COUNT),
    *(POINTER, POINTER, POINTER, COUNT, NUMBER, CODE),
    *(POINTER, POINTER, POINTER),
)
_level_gradients = declare(
    "level_gradients",
    *(POINTER, POINTER, POINTER, COUNT, COUNT, POINTER, POINTER, NUMBER),
    *(POINTER, POINTER, POINTER, COUNT, POINTER, POINTER),
)
_NO_WEIGHTS = np.empty(0)


@dataclass(frozen=True, eq=False)
class LevelSums:
    """Σ vρ(r), Σ vψ(r)z and Σ vψ′(r)zz' of every fold (first axis) and level (last axis).

    ψ is Huber's, max(−τ, min(r, τ)), or where ``tukey`` is not zero Tukey's, r(1 − (r/τ)²)² up to τ.

    Attributes
    ----------
    phi : array of shape (d, levels)
        Residuals are y − φ'z.
    tau, tukey : arrays of shape (levels,)
    floor : float
        ψ′ counts for at least so much, unless it is ``exact`` and Tukey's.
    exact : bool
    value : array of shape (folds, levels)
    gradient : array of shape (folds, d, levels)
    hessian : array of shape (folds, d, d, levels), or empty

    Examples
    --------
    >>> sums = LevelSums.zero(np.zeros((1, 2)), np.array([1.0, np.inf]), np.zeros(2), 0.0, False, 1, True)
    >>> sums.add(np.array([[1.0], [2.0]]), np.array([3.0, 0.5]))
    >>> sums.gradient.tolist(), sums.hessian.tolist()
    ([[[2.0, 4.0]]], [[[[4.0, 5.0]]]])
    """

    phi: Array
    tau: Array
    tukey: Array
    floor: float
    exact: bool
    value: Array
    gradient: Array
    hessian: Array

    @classmethod
    def zero(
        cls, phi: Array, tau: Array, tukey: Array, floor: float, exact: bool, folds: int, hessian: bool
    ) -> LevelSums:
        """Sums over no rows."""
        d, count = phi.shape
        square = np.zeros((folds, d, d, count) if hessian else (0, d, d, count))
        value, gradient = np.zeros((folds, count)), np.zeros((folds, d, count))
        return cls(np.ascontiguousarray(phi), tau, tukey, floor, exact, value, gradient, square)

    def add(
        self, Z: Array, y: Array, weights: Array | None = None, fold: NDArray[np.int64] | None = None
    ) -> None:
        """Add rows, and say which fold each is in, if there are several."""
        (n, d), (folds, count) = Z.shape, self.value.shape
        rows = read("Z", Z, F64, (n, d)), read("y", y, F64, (n,))
        shares = optional("weights", _NO_WEIGHTS if weights is None else weights, n)
        place = None if fold is None else read("fold", fold, I64, (n,))
        levels = (
            read("phi", self.phi, F64, (d, count)),
            *(read("tau", a, F64, (count,)) for a in (self.tau, self.tukey)),
        )
        found = (address("value", self.value, True), address("gradient", self.gradient, True))
        square = address("hessian", self.hessian, True) or None
        check(
            _level_sums(
                *rows, shares, place, n, d, folds, *levels, count, self.floor, self.exact, *found, square
            )
        )


def level_gradients(
    X: Array,
    y: Array,
    weights: Array,
    centre: Array,
    scale: Array,
    constant: float,
    theta: Array,
    tau: Array,
    tukey: Array,
) -> tuple[Array, Array]:
    """Σ vρ(r) and Σ vψ(r)z of every level (last axis), in one pass over rows; for a few levels.

    r = y − θ'z with z = ((x − centre)/scale, constant), and ψ is that of :class:`LevelSums`. No weights are
    ones.

    Examples
    --------
    >>> X, y, none = np.array([[1.0], [2.0]]), np.array([3.0, 0.5]), np.empty(0)
    >>> tau = np.array([1.0, np.inf])
    >>> sums = level_gradients(X, y, none, np.zeros(1), np.ones(1), 1.0, np.zeros((2, 2)), tau, np.zeros(2))
    >>> sums[1].tolist()
    [[2.0, 4.0], [1.5, 3.5]]
    """
    (n, d), count = X.shape, tau.size
    value, gradient = np.empty(count), np.empty((d + 1, count))
    rows = read("X", X, F64, (n, d)), read("y", y, F64, (n,)), optional("weights", weights, n)
    columns = read("centre", centre, F64, (d,)), read("scale", scale, F64, (d,))
    levels = read("theta", theta, F64, (d + 1, count)), read("tau", tau, F64, (count,))
    found = address("value", value, True), address("gradient", gradient, True)
    tukeys = read("tukey", tukey, F64, (count,))
    check(_level_gradients(*rows, n, d, *columns, constant, *levels, tukeys, count, *found))
    return value, gradient
