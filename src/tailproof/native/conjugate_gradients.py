"""Weighted normal equations of many fits by conjugate gradients: Hessians are applied, never formed.

All fits move together, so that their products with the rows are products of matrices, which are left to
whoever makes these fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, NUMBER, POINTER, REALS, address, declare_for, read, written

Array = NDArray[Any]

_TABLE = (COUNT, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER, NUMBER)
_start = declare_for(REALS, "start_equations", *_TABLE, *[POINTER] * 7, returns=COUNT)
_weigh = declare_for(
    REALS, "weigh_predictions", *(COUNT, COUNT, POINTER, POINTER, POINTER, POINTER), returns=COUNT
)
_advance = declare_for(REALS, "advance_equations", *_TABLE, *[POINTER] * 10, returns=COUNT)

_FEW = 4  # rows, below which a product of matrices takes longer than one after the other


@dataclass(frozen=True, eq=False)
class Equations:
    """(X'CX + λ(diag(inverse) − constant constant') + damping) x = b for every fit.

    Attributes
    ----------
    X : array of shape (n, d), or what has products with arrays on both sides as one has
        In single precision products take half the time, and tolerances below 1e-5 mean nothing.
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

    def solve(self, b: Array, tolerance: Array, steps: int, room: Room | None = None) -> Solved:
        """Solutions from zero on, in up to so many steps.

        Parameters
        ----------
        b : array of shape (fits, d)
        tolerance : array of shape (fits,)
            Share of b that may be left, in the norm of the preconditioner, which is about the diagonal.
        steps : int
        room : Room, optional
            Where predictions are until its next use; new memory without it.

        Examples
        --------
        >>> one, zero = np.ones((1, 2)), np.zeros(2)
        >>> equations = Equations(np.eye(2), one, np.zeros(1), zero, zero, 1.0)
        >>> equations.solve(np.array([[1.0, 2.0]]), np.full(1, 1e-9), 9).x.tolist()
        [[0.5, 1.0]]
        """
        count, n = self.curvature.shape
        walk = _Walk(self, b, tolerance, room or Room(count, n, precision_of(self.X)))
        for _ in range(steps):
            if not walk.open:
                break
            walk.step()
        return Solved(walk.x, walk.fitted)


class Room:
    """Memory for products of fits with rows: to get it anew for every system takes as long as to fill it.

    Parameters
    ----------
    count, n : int
        Fits at most, and rows.
    dtype : dtype
        Of the rows.
    """

    def __init__(self, count: int, n: int, dtype: np.dtype[Any] = F64) -> None:
        self.predictions, self.weighted = np.empty((2, count, n), dtype)
        self.fitted = np.empty((count, n))


class _Walk:
    """The fits of equations on their way; those that still move come first in what products are made of."""

    def __init__(self, equations: Equations, b: Array, tolerance: Array, room: Room) -> None:
        (count, n), d, dtype = equations.curvature.shape, equations.inverse.size, precision_of(equations.X)
        self.X, self.n, self.d = equations.X, n, d
        self.x, self.fitted = np.zeros((count, d)), room.fitted[:count]
        self.fitted[:] = 0.0
        self.direction, self.image = np.zeros((2, count, d), dtype)
        self.predictions, self.weighted = room.predictions[:count], room.weighted[:count]
        curvature, constant = map(np.ascontiguousarray, (equations.curvature, equations.constant))
        diagonal, left = curvature.sum(axis=1) + equations.damping, np.array(b, dtype=F64, order="C")
        (product, enough, unit), moving = np.empty((3, count)), np.empty(count, dtype=np.int64)
        self._alive = (curvature, constant, diagonal, left, product, moving)
        self._system = (
            *(read("ridge", a, F64, (count,)) for a in (equations.ridge, diagonal)),
            *(read("inverse and constant", a, F64, (d,)) for a in (equations.inverse, constant)),
            equations.damping,
        )
        self._curvature, self._left = (
            read("curvature", curvature, F64, (count, n)),
            read("b", left, F64, (count, d)),
        )
        self._numbers = tuple(address("numbers", a) for a in (product, enough, unit, moving))
        predictions, weighted = (
            written("room", a, dtype, (count, n)) for a in (self.predictions, self.weighted)
        )
        fitted = written("room", self.fitted, F64, (count, n))
        self._images = (predictions, weighted, address("image", self.image))
        self._found = (address("x", self.x), fitted, address("direction", self.direction))
        self._weigh, self._advance = _weigh[dtype], _advance[dtype]
        least, (*numbers, places) = read("tolerance", tolerance, F64, (count,)), self._numbers
        sums = (self._left, *numbers, self._found[2], places)
        self.open = int(_start[dtype](n, d, count, *self._system, least, *sums))

    def step(self) -> None:
        """One step of all that move."""
        (predicted, weighted, image), (product, enough, unit, moving) = self._images, self._numbers
        multiply(self.direction[: self.open], self.X.T, self.predictions[: self.open])
        self._weigh(self.n, self.open, moving, self._curvature, predicted, weighted)
        multiply(self.weighted[: self.open], self.X, self.image[: self.open])
        sums = (enough, unit, predicted, image, self._left, product, *self._found, moving)
        self.open = int(self._advance(self.n, self.d, self.open, *self._system, *sums))


def precision_of(X: Any) -> np.dtype[Any]:
    """Of products with the rows."""
    return X.dtype if isinstance(X, np.ndarray) else F64


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
