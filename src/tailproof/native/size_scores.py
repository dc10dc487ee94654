"""Sums over rows that slopes need where the noise is s(x) times one law."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, I64, NUMBER, POINTER, address, check, declare, read

Array = NDArray[Any]

_PADDING = 8  # columns that size_scores.c multiplies together, or a multiple of these
_ROWS = (POINTER, COUNT, COUNT)

_sizes_of_rows = declare("sizes_of_rows", *_ROWS, POINTER, POINTER)
_lengths_of_rows = declare("lengths_of_rows", *_ROWS, POINTER, POINTER, COUNT, POINTER)
_size_sums = declare("size_sums", *_ROWS, *[POINTER] * 6, COUNT, POINTER, POINTER)


class _Record(ctypes.Structure):
    """``struct law`` of size_scores.c."""

    _fields_ = [
        ("columns", POINTER),
        ("count", COUNT),
        ("both_sides", COUNT),
        ("gamma", POINTER),
        *((name, NUMBER) for name in ("reach", "least", "largest", "kappa", "tau", "offset", "middle")),
    ]


class SizeLaw(NamedTuple):
    """How sizes of the noise depend on columns, and what is asked of residuals over sizes, u.

    log s(x) is linear in some columns, their absolute values if both sides count, and 1, with coefficients
    gamma; columns count up to a reach, beyond which s(x) may grow, but not shrink.
    """

    columns: NDArray[np.int64]
    both_sides: bool
    gamma: Array
    reach: float
    least: float
    largest: float
    kappa: float = 0.0
    tau: float = 1.0
    offset: float = 1.0
    middle: float = 0.0

    @property
    def features(self) -> int:
        """What log s(x) is linear in, 1 included."""
        return self.columns.size * (2 if self.both_sides else 1) + 1

    def record(self, width: int) -> _Record:
        """For C, good while this lives, for rows of so many columns."""
        if self.columns.size and not 0 <= self.columns.min() <= self.columns.max() < width:
            raise IndexError(f"columns must be from 0 to {width - 1}")
        columns = read("columns", self.columns, I64, (self.columns.size,))
        gamma = read("gamma", self.gamma, F64, (self.features,))
        return _Record(columns, self.columns.size, self.both_sides, gamma, *self[3:])


def sizes_of_rows(Z: Array, law: SizeLaw) -> Array:
    """s(x) of rows.

    Examples
    --------
    >>> law = SizeLaw(np.array([0]), False, np.array([1.0, 0.0]), 2.0, -1.0, 100.0)
    >>> np.log(sizes_of_rows(np.array([[-5.0], [0.5], [3.0]]), law)).tolist()
    [-1.0, 0.5, 3.0]
    """
    n, width = Z.shape
    sizes, record = np.empty(n), law.record(width)
    rows = read("Z", Z, F64, (n, width)), n, width
    check(_sizes_of_rows(*rows, ctypes.addressof(record), address("sizes", sizes)))
    return sizes


def lengths_of_rows(Z: Array, law: SizeLaw, matrix: Array) -> Array:
    """Square norms of z/s, 1 and f times a matrix, of every row; f is what log s(x) is linear in.

    Examples
    --------
    >>> law = SizeLaw(np.array([0]), False, np.zeros(2), 2.0, -1.0, 100.0)
    >>> lengths_of_rows(np.array([[0.5], [3.0]]), law, np.ones((4, 1))).tolist()
    [9.0, 49.0]
    """
    (n, width), record, factors = Z.shape, law.record(Z.shape[1]), _padded(matrix)
    if len(factors) != width + 1 + law.features:
        raise ValueError(f"matrix must have {width + 1 + law.features} rows; got {len(factors)}")
    lengths = np.empty(n)
    rows = read("Z", Z, F64, (n, width)), n, width, ctypes.addressof(record)
    given = address("matrix", factors), factors.shape[1], address("lengths", lengths)
    check(_lengths_of_rows(*rows, *given))
    return lengths


def _padded(matrix: Array) -> Array:
    """With columns of zeros, so that columns can be taken together."""
    rows, columns = matrix.shape
    padded = np.zeros((rows, -(-columns // _PADDING) * _PADDING))
    padded[:, :columns] = matrix
    return padded


def size_sums(
    Z: Array, y: Array, v: Array, theta: Array, plain: Array, law: SizeLaw, matrix: Array | None = None
) -> tuple[Array, Array]:
    """Sums over rows z with targets y and weights v, with u = (y − z'θ)/s − κ and its truncation ψ(u).

    Parameters
    ----------
    Z : array of shape (n, width)
    y, v : arrays of shape (n,)
    theta, plain : arrays of shape (width,)
        Slopes, and others to compare with.
    law : SizeLaw
    matrix : array of shape (2 width + 1 + m, any), optional
        What ψ(u)z/s, (y − z'plain)z, u + κ and tf are multiplied with, for squares.

    Returns
    -------
    sums : array
        Σ vψ(u)z/s, v(u + κ), vtf with t = log(|u| + c) less its middle, vz, v and v²; and then Σ v² times the
        squares of these products, if there is a matrix.
    sizes : array of shape (n,)
        s(x) of the rows.
    """
    (n, width), record = Z.shape, law.record(Z.shape[1])
    columns, factors = (0, None) if matrix is None else (matrix.shape[1], _padded(matrix))
    if factors is not None and len(factors) != 2 * width + 1 + law.features:
        raise ValueError(f"matrix must have {2 * width + 1 + law.features} rows; got {len(factors)}")
    padded = 0 if factors is None else factors.shape[1]
    sums, sizes = np.empty(2 * width + law.features + 3 + padded), np.empty(n)
    rows = read("Z", Z, F64, (n, width)), n, width, read("y", y, F64, (n,)), read("v", v, F64, (n,))
    slopes = read("theta", theta, F64, (width,)), read("plain", plain, F64, (width,))
    given = None if factors is None else address("matrix", factors), padded
    into = address("sizes", sizes), address("sums", sums)
    check(_size_sums(*rows, *slopes, ctypes.addressof(record), *given, *into))
    return sums[: sums.size - padded + columns], sizes
