"""Sums over rows that slopes need where the noise is s(x) times one law."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    COUNT,
    F64,
    I64,
    NUMBER,
    POINTER,
    address,
    at_least_one,
    check,
    declare,
    read,
)

Array = NDArray[Any]

_PADDING = 8  # columns that sized_rows.h multiplies together, or a multiple of these
_ROWS = (POINTER, COUNT, COUNT)

_sizes_of_rows = declare("sizes_of_rows", *_ROWS, POINTER, POINTER)
_lengths_of_rows = declare("lengths_of_rows", *_ROWS, POINTER, POINTER, COUNT, POINTER)
_size_sums = declare("size_sums", *_ROWS, *[POINTER] * 5)
_sized_score_sums = declare("sized_score_sums", *_ROWS, *[POINTER] * 5)


class _Record(ctypes.Structure):
    """``struct size_model`` of sized_rows.h."""

    _fields_ = [
        ("columns", POINTER),
        ("count", COUNT),
        ("both_sides", COUNT),
        ("gamma", POINTER),
        *((name, NUMBER) for name in ("reach", "least", "largest", "kappa", "tau", "offset", "middle")),
    ]


class _Slopes(ctypes.Structure):
    """``struct slopes`` of sized_rows.h."""

    _fields_ = [*((name, POINTER) for name in ("theta", "plain", "matrix")), ("padded", COUNT)]


class _Score(ctypes.Structure):
    """``struct score`` of sized_rows.h."""

    _fields_ = [
        *((name, POINTER) for name in ("slopes", "knots", "steepness")),
        ("count", COUNT),
        *((name, NUMBER) for name in ("first", "kappa")),
    ]


class SizeModel(NamedTuple):
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


def sizes_of_rows(Z: Array, model: SizeModel) -> Array:
    """s(x) of rows.

    Examples
    --------
    >>> model = SizeModel(np.array([0]), False, np.array([1.0, 0.0]), 2.0, -1.0, 100.0)
    >>> np.log(sizes_of_rows(np.array([[-5.0], [0.5], [3.0]]), model)).tolist()
    [-1.0, 0.5, 3.0]
    """
    n, width = Z.shape
    sizes, record = np.empty(n), model.record(width)
    rows = read("Z", Z, F64, (n, width)), n, width
    check(_sizes_of_rows(*rows, ctypes.addressof(record), address("sizes", sizes)))
    return sizes


def lengths_of_rows(Z: Array, model: SizeModel, matrix: Array) -> Array:
    """Square norms of z/s, 1 and f times a matrix, of every row; f is what log s(x) is linear in.

    Examples
    --------
    >>> model = SizeModel(np.array([0]), False, np.zeros(2), 2.0, -1.0, 100.0)
    >>> lengths_of_rows(np.array([[0.5], [3.0]]), model, np.ones((4, 1))).tolist()
    [9.0, 49.0]
    """
    (n, width), record, factors = Z.shape, model.record(Z.shape[1]), with_padding(matrix)
    if len(factors) != width + 1 + model.features:
        raise ValueError(f"matrix must have {width + 1 + model.features} rows; got {len(factors)}")
    lengths = np.empty(n)
    rows = read("Z", Z, F64, (n, width)), n, width, ctypes.addressof(record)
    given = address("matrix", factors), factors.shape[1], address("lengths", lengths)
    check(_lengths_of_rows(*rows, *given))
    return lengths


def with_padding(matrix: Array) -> Array:
    """With columns of zeros, so that columns can be taken together."""
    rows, columns = matrix.shape
    padded = np.zeros((rows, -(-columns // _PADDING) * _PADDING))
    padded[:, :columns] = matrix
    return padded


def size_sums(
    Z: Array, y: Array, v: Array, theta: Array, plain: Array, model: SizeModel, matrix: Array | None = None
) -> Array:
    """Sums over rows z with targets y and weights v, with u = (y − z'θ)/s − κ and its truncation ψ(u).

    Parameters
    ----------
    Z : array of shape (n, width)
    y, v : arrays of shape (n,)
    theta, plain : arrays of shape (width,)
        Slopes, and others to compare with.
    model : SizeModel
    matrix : array of shape (2 width + 1 + m, any), optional
        What ψ(u)z/s, (y − z'plain)z, u + κ and tf are multiplied with, for squares.

    Returns
    -------
    array
        Σ vψ(u)z/s, v(u + κ), vtf with t = log(|u| + c) less its middle, v and v²; and then Σ v² times the
        squares of these products, if there is a matrix.
    """
    (n, width), record = Z.shape, model.record(Z.shape[1])
    slopes = SizeSlopes.of(theta, plain, model, matrix)
    sums, compared = slopes.no_sums(), slopes.record()
    rows = read("Z", Z, F64, (n, width)), n, width, read("y", y, F64, (n,)), read("v", v, F64, (n,))
    given = ctypes.addressof(record), ctypes.addressof(compared)
    check(_size_sums(*rows, *given, address("sums", sums)))
    return slopes.without_padding(sums)


class SizeSlopes(NamedTuple):
    """Slopes whose scores are asked for, others to compare with, and a matrix for squares, or none.

    See :func:`size_sums`; the matrix has ``columns`` columns before its padding.
    """

    theta: Array
    plain: Array
    features: int
    matrix: Array | None
    columns: int

    @classmethod
    def of(cls, theta: Array, plain: Array, model: SizeModel, matrix: Array | None = None) -> SizeSlopes:
        """Check that the matrix fits, and pad it."""
        rows = 2 * theta.size + 1 + model.features
        if matrix is not None and len(matrix) != rows:
            raise ValueError(f"matrix must have {rows} rows; got {len(matrix)}")
        columns, padded = (0, None) if matrix is None else (matrix.shape[1], with_padding(matrix))
        return cls(np.ascontiguousarray(theta), np.ascontiguousarray(plain), model.features, padded, columns)

    @property
    def padded(self) -> int:
        """Columns of the matrix with its padding."""
        return 0 if self.matrix is None else self.matrix.shape[1]

    def record(self) -> _Slopes:
        """For C, good while this lives."""
        width = self.theta.size
        slopes = read("theta", self.theta, F64, (width,)), read("plain", self.plain, F64, (width,))
        matrix = None if self.matrix is None else address("matrix", self.matrix)
        return _Slopes(*slopes, matrix, self.padded)

    def no_sums(self) -> Array:
        """The sums over no row."""
        return np.zeros(self.theta.size + self.features + 3 + self.padded)

    def without_padding(self, sums: Array) -> Array:
        """Sums, and squares of as many columns as the matrix had."""
        return sums[: sums.size - self.padded + self.columns]


class SizedScore(NamedTuple):
    """A score ψ of u = (y − z'θ)/s − κ: linear between knots, where it has values, and constant beyond."""

    theta: Array
    kappa: float
    knots: Array
    values: Array
    steepness: Array

    @classmethod
    def of(cls, theta: Array, kappa: float, knots: Array, values: Array) -> SizedScore:
        """With what is between the knots."""
        at_least_one("the number of knots", knots.size)
        steepness = np.append(np.diff(values) / np.diff(knots), 0.0)
        return cls(np.ascontiguousarray(theta), kappa, knots, values, steepness)

    def beyond(self, theta: Array) -> SizedScore:
        """The same for what other slopes leave of targets."""
        return self._replace(theta=self.theta - theta)

    def record(self, width: int) -> _Score:
        """For C, good while this lives, for rows of so many columns."""
        count = self.knots.size
        slopes = read("theta", self.theta, F64, (width,)), read("knots", self.knots, F64, (count,))
        between = read("values", self.steepness, F64, (count,))
        return _Score(*slopes, between, count, float(self.values[0]), self.kappa)


def sized_score_sums(Z: Array, y: Array, v: Array, sizes: Array, score: SizedScore) -> Array:
    """Σ vψ(u)z/s and Σ vψ(u) over rows z with targets y and weights v, whose noise has sizes s.

    Examples
    --------
    >>> one, clip = np.ones(1), np.array([-1.0, 1.0])
    >>> score = SizedScore.of(0 * one, 0.25, clip, clip)
    >>> sized_score_sums(np.full((1, 1), 3.0), 2 * one, one, 4 * one, score).tolist()
    [0.1875, 0.25]
    """
    (n, width), record, sums = Z.shape, score.record(Z.shape[1]), np.zeros(Z.shape[1] + 1)
    rows = (read(name, a, F64, (n,)) for name, a in (("y", y), ("v", v), ("sizes", sizes)))
    tables = read("Z", Z, F64, (n, width)), n, width
    check(_sized_score_sums(*tables, *rows, ctypes.addressof(record), address("sums", sums)))
    return sums
