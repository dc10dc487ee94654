"""Weighted normal equations of many fits by conjugate gradients: Hessians are applied, never formed.

All fits move together, so that their products with the rows are products of matrices, which are left to
whoever makes these fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, NUMBER, POINTER, address, declare, read

Array = NDArray[Any]

_start = declare(
    "start_equations",
    *(COUNT, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER, NUMBER, POINTER),
    *(POINTER, POINTER, POINTER, POINTER, POINTER),
    returns=COUNT,
)
_weigh = declare("weigh_predictions", *(COUNT, COUNT, POINTER, POINTER, POINTER, POINTER), returns=COUNT)
_advance = declare(
    "advance_equations",
    *(COUNT, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER, NUMBER, POINTER),
    *(POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER),
    returns=COUNT,
)

_FEW = 4  # rows, below which a product of matrices takes longer than one after the other


@dataclass(frozen=True, eq=False)
class Equations:
    """(X'CX + λ(diag(inverse) − constant constant') + damping) x = b for every fit.

    Attributes
    ----------
    X : array of shape (n, d), or what has products with arrays on both sides as one has
    curvature : array of shape (fits, n)
        The diagonals of C.
    ridge : array of shape (fits,)
        λ.
    inverse, constant : arrays of shape (d,)
    damping : float
    """

    X: Any
    curvature: Array
    ridge: Array
    inverse: Array
    constant: Array
    damping: float

    def solve(self, b: Array, tolerance: Array, steps: int) -> Solved:
        """Solutions from zero on, in up to so many steps.

        Parameters
        ----------
        b : array of shape (fits, d)
        tolerance : array of shape (fits,)
            Share of b that may be left, in the norm of the preconditioner, which is about the diagonal.
        steps : int

        Examples
        --------
        >>> one, zero = np.ones((1, 2)), np.zeros(2)
        >>> equations = Equations(np.eye(2), one, np.zeros(1), zero, zero, 1.0)
        >>> equations.solve(np.array([[1.0, 2.0]]), np.full(1, 1e-9), 9).x.tolist()
        [[0.5, 1.0]]
        """
        (count, n), d = self.curvature.shape, self.inverse.size
        diagonal, left = self.curvature.sum(axis=1) + self.damping, np.array(b, dtype=F64, order="C")
        constant, diagonals = np.ascontiguousarray(self.constant), np.ascontiguousarray(self.curvature)
        product, enough, moving = np.empty(count), np.empty(count), np.empty(count, dtype=np.int64)
        direction, image = np.empty((count, d)), np.empty((count, d))
        predictions, weighted = np.empty((count, n)), np.empty((count, n))
        found = Solved(np.zeros((count, d)), np.zeros((count, n)))
        shared = (
            *(read("ridge", a, F64, (count,)) for a in (self.ridge, diagonal)),
            *(read("inverse and constant", a, F64, (d,)) for a in (self.inverse, constant)),
            self.damping,
        )
        own = (product, enough, direction, moving, predictions, weighted, image, found.x, found.predictions)
        products, limits, directions, numbers, predicted, weights, images, x, fitted = (
            address("own", a) for a in own
        )
        curvature, sides = (
            read("curvature", diagonals, F64, (count, n)),
            read("b", left, F64, (count, d)),
        )
        least = read("tolerance", tolerance, F64, (count,))
        open_ones = _start(n, d, count, *shared, least, sides, products, limits, directions, numbers)
        for _ in range(steps):
            if not open_ones:
                break
            multiply(direction[:open_ones], self.X.T, predictions[:open_ones])
            _weigh(n, open_ones, numbers, curvature, predicted, weights)
            multiply(weighted[:open_ones], self.X, image[:open_ones])
            progress = (predicted, images, sides, products, x, fitted, directions, numbers)
            open_ones = _advance(n, d, open_ones, *shared, limits, *progress)
        return found


def multiply(left: Array, right: Any, out: Array) -> None:
    """Left times right, where that is to be: row by row where there are few."""
    if not isinstance(right, np.ndarray):
        out[:] = left @ right
    elif len(left) < _FEW:
        for row, place in zip(left, out, strict=True):
            np.matmul(row, right, out=place)
    else:
        np.matmul(left, right, out=out)


@dataclass(frozen=True, eq=False)
class Solved:
    """x of every fit, and Xx, both a row a fit."""

    x: Array
    predictions: Array
