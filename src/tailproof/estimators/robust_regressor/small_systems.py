"""Square systems of a few dozen unknowns: factorised, or solved by least squares where they are singular.

A singular value decomposition tells the rank of any matrix, but takes ten to thirty times as long as a
factorisation, whose condition number tells whether there is a doubt.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from tailproof.core import Array
from tailproof.native.columns import by_columns, column_lengths

_REGULAR = 1e-13  # inverse condition number, above which rounding leaves the solution


def solved(matrix: Array, side: Array) -> Array:
    """The solution of matrix · x = side, or the shortest one of least squares.

    Examples
    --------
    >>> solved(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0])).tolist()
    [1.0, 2.0]
    >>> solved(np.ones((2, 2)), np.array([2.0, 4.0])).round(12).tolist()
    [1.5, 1.5]
    """
    factors = _factors(matrix)
    if factors is None:
        return np.asarray(np.linalg.lstsq(matrix, side, rcond=_REGULAR)[0])
    return np.asarray(lapack.dgetrs(*factors, side)[0])


def inverse_of(matrix: Array) -> Array:
    """The inverse, or the pseudo-inverse.

    Examples
    --------
    >>> inverse_of(np.diag([2.0, 4.0])).diagonal().tolist()
    [0.5, 0.25]
    >>> inverse_of(np.diag([2.0, 0.0])).diagonal().tolist()
    [0.5, 0.0]
    """
    inverse = regular_inverse(matrix)
    return np.linalg.pinv(matrix, rcond=_REGULAR) if inverse is None else inverse


def regular_inverse(matrix: Array, least: float = _REGULAR) -> Array | None:
    """The inverse; None where the inverse condition number is not above the least one.

    Examples
    --------
    >>> regular_inverse(np.diag([1.0, 1e-6])).diagonal().round().tolist()
    [1.0, 1000000.0]
    >>> regular_inverse(np.diag([1.0, 1e-6]), 1e-5)
    """
    factors = _factors(matrix, least)
    return None if factors is None else np.asarray(lapack.dgetri(*factors)[0])


def rank_of(matrix: Array) -> int:
    """How many rows of a matrix that is not negative tell something of their own.

    Examples
    --------
    >>> rank_of(np.diag([2.0, 4.0])), rank_of(np.diag([2.0, 0.0])), rank_of(np.empty((0, 0)))
    (2, 1, 0)
    """
    regular = not len(matrix) or _factors(matrix) is not None
    return len(matrix) if regular else int(np.linalg.matrix_rank(matrix, hermitian=True))


def squared_distance(step: Array, covariance: Array, alike: float) -> float:
    """The length step' covariance⁻¹ step, without directions whose variance is such a share of the largest.

    Examples
    --------
    >>> squared_distance(np.array([2.0, 1.0]), np.diag([4.0, 0.0]), 1e-9)
    1.0
    """
    values, directions = np.linalg.eigh(covariance)
    sizes = np.abs(values)
    kept = sizes > alike * sizes.max(initial=0.0)
    return float(np.sum((step @ directions[:, kept]) ** 2 / values[kept]))


def squared_lengths(rows: Array, matrix: Array) -> Array:
    """The length x' matrix x of every row x.

    Examples
    --------
    >>> squared_lengths(np.array([[1.0, 2.0], [0.0, 3.0]]), np.eye(2)).tolist()
    [5.0, 9.0]
    """
    if by_columns(rows):
        return column_lengths(rows, matrix)
    return np.asarray(np.einsum("ij,ij->i", product(rows, matrix), rows))


def product(rows: Array, matrix: Array) -> Array:
    """Rows times a matrix, in the layout of the rows: arrays of one layout are read together the fastest.

    Examples
    --------
    >>> row_by_row, column_by_column = np.ones((3, 2)), np.asfortranarray(np.ones((3, 2)))
    >>> [product(rows, np.eye(2)).flags.f_contiguous for rows in (row_by_row, column_by_column)]
    [False, True]
    """
    return np.asarray(rows @ matrix if rows.flags.c_contiguous else (matrix.T @ rows.T).T)


def _factors(matrix: Array, least: float = _REGULAR) -> tuple[Array, Array] | None:
    """L, U and the order of rows; None for a matrix that is singular, or nearly so, or empty."""
    if not matrix.size:
        return None  # LAPACK would complain on standard error
    factor, order, failed = lapack.dgetrf(matrix)
    if failed:
        return None
    regular, _ = lapack.dgecon(factor, np.abs(matrix).sum(axis=0).max())
    return (factor, order) if regular > least else None
