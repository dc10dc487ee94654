"""Block sums, scales and M-estimates of every row of an (m, n) array.

Weights are n positive numbers, or an empty array where all values count the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    CODE,
    COUNT,
    F64,
    NUMBER,
    POINTER,
    REALS,
    address,
    at_least_one,
    check,
    declare,
    declare_for,
    function_for,
    optional,
    read,
)

Array = NDArray[Any]

_TABLE = (POINTER, COUNT, COUNT, POINTER)
_block_sums = declare_for(REALS, "block_sums", *_TABLE, COUNT, POINTER, CODE, POINTER, POINTER)
_MEDIANS = (POINTER, COUNT, COUNT, COUNT, POINTER, CODE, POINTER)
_medians_of_blocks = declare_for(REALS, "medians_of_blocks", *_MEDIANS)
_variances = declare_for(REALS, "variances", *_TABLE, POINTER, POINTER)
_m_scales = declare_for(REALS, "m_scales", *_TABLE, POINTER, POINTER, POINTER, POINTER)
_m_estimates = declare_for(REALS, "m_estimates", *_TABLE, POINTER, POINTER, CODE, POINTER, POINTER)
_psi_sums = declare_for(REALS, "psi_sums", POINTER, COUNT, POINTER, NUMBER, NUMBER, CODE, POINTER)
_RESISTANCE = (COUNT, COUNT, COUNT, COUNT, COUNT, NUMBER, NUMBER, NUMBER, NUMBER)
_resistant_means = declare("resistant_means", POINTER, COUNT, COUNT, POINTER, *_RESISTANCE, POINTER)
_means_of_differences = declare(
    "means_of_differences", POINTER, COUNT, COUNT, COUNT, COUNT, *_RESISTANCE, POINTER, POINTER
)


class Resistance(NamedTuple):
    """How a resistant mean of n values is found.

    Attributes
    ----------
    few : int
        Blocks behind its start and the scale.
    looked_at, step : int
        Small blocks of every so many values, whose scale tells whether bad values have spoilt that.
    large, small : int
        Blocks most of which must agree with it.
    width : float
        Of ψ, in scales.
    spoilt : float
        Times the scale of small blocks, beyond which the scale is no tail.
    near_large, near_small : float
        How many lengths of the interval that holds most blocks agree.
    """

    few: int
    looked_at: int
    step: int
    large: int
    small: int
    width: float
    spoilt: float
    near_large: float
    near_small: float


def resistant_means(values: Array, how: Resistance, weights: Array | None = None) -> Array:
    """Catoni's mean of every row; NaN where something is unusual, to be looked at with care.

    Weights are positive; no weights are ones.

    Examples
    --------
    >>> how = Resistance(3, 0, 1, 0, 0, 10.0, 1e4, 1.0, 1.0)
    >>> resistant_means(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, np.inf]]), how).tolist()
    [2.0, nan]
    """
    m, n = values.shape
    at_least_one("the number of values", n)
    means, rows = np.empty(m), read("values", values, F64, (m, n))
    shares = None if weights is None else read("weights", weights, F64, (n,))
    check(_resistant_means(rows, m, n, shares, *how, address("found", means)))
    return means


def means_of_differences(values: Array, reference: int, blocks: int, how: Resistance) -> tuple[Array, Array]:
    """:func:`resistant_means` of every row less one of them, and robust scales of so many blocks.

    Examples
    --------
    >>> how = Resistance(3, 0, 1, 0, 0, 10.0, 1e4, 1.0, 1.0)
    >>> means, scales = means_of_differences(np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]), 0, 1, how)
    >>> means.tolist(), scales.round(3).tolist()
    ([0.0, 1.0], [0.0, 0.816])
    """
    m, n = values.shape
    if not (0 <= reference < m and 1 <= blocks <= n):
        raise ValueError(f"no row {reference} of {m}, or no {blocks} blocks of {n} values")
    rows, means, scales = read("values", values, F64, (m, n)), np.empty(m), np.empty(m)
    found = address("means", means), address("scales", scales)
    check(_means_of_differences(rows, m, n, reference, blocks, *how, *found))
    return means, scales


def block_sums(values: Array, weights: Array, k: int, centres: Array, squared: bool) -> tuple[Array, Array]:
    """Sums of u − centre, or of its square, and total weights of k blocks of every row.

    Runs of values are dealt to the blocks in turn, then the rest singly.

    Examples
    --------
    >>> sums, totals = block_sums(np.array([[1.0, 2.0, 3.0]]), np.empty(0), 2, np.zeros(1), False)
    >>> sums.tolist(), totals.tolist()
    ([[4.0, 2.0]], [2.0, 1.0])
    """
    m = len(values)
    sums, totals = np.empty((m, at_least_one("k", k))), np.empty(k)
    check(
        function_for(_block_sums, values.dtype)(
            *_table(values, weights), k, read("centres", centres, F64, (m,)), squared,
            address("sums", sums), address("totals", totals),
        )
    )  # fmt: skip
    return sums, totals


def medians_of_blocks(values: Array, k: int, centres: Array | None, squared: bool) -> Array:
    """Median over k blocks of the mean of u − centre, or of its square; NaN where one is not finite.

    Examples
    --------
    >>> medians_of_blocks(np.array([[1.0, 2.0, 3.0, 8.0]]), 2, None, False).tolist()
    [3.5]
    """
    (m, n), k = values.shape, at_least_one("k", k)
    if k > n:
        raise ValueError(f"k must be at most the number of values, {n}; got {k}")
    medians, about = np.empty(m), None if centres is None else read("centres", centres, F64, (m,))
    function, found = function_for(_medians_of_blocks, values.dtype), address("found", medians)
    check(function(address("values", values), m, n, k, about, squared, found))
    return medians


def variances(values: Array, weights: Array, centres: Array) -> Array:
    """Mean of (u − centre)² of every row."""
    out = np.empty(len(values))
    table = _table(values, weights)
    check(
        function_for(_variances, values.dtype)(
            *table, read("centres", centres, F64, out.shape), address("found", out)
        )
    )
    return out


def m_scales(values: Array, weights: Array, centres: Array, starts: Array, limits: Array) -> Array:
    """Geman's M-scale of every row; the start where the limit, an sd, is zero or not finite."""
    scales = np.empty(len(values))
    given = [read("centres, starts and limits", a, F64, scales.shape) for a in (centres, starts, limits)]
    check(function_for(_m_scales, values.dtype)(*_table(values, weights), *given, address("found", scales)))
    return scales


def m_estimates(
    values: Array, weights: Array, starts: Array, scales: Array, psi: int
) -> tuple[Array, NDArray[np.bool_]]:
    """Root θ of Σ w ψ((u − θ)/s) = 0 for every row, and whether at some θ no value was within reach."""
    estimates, flat = np.empty(len(values)), np.empty(len(values), dtype=np.bool_)
    given = [read("starts and scales", a, F64, estimates.shape) for a in (starts, scales)]
    check(
        function_for(_m_estimates, values.dtype)(
            *_table(values, weights), *given, psi, address("found", estimates), address("flat", flat)
        )
    )
    return estimates, flat


def psi_sums(values: Array, weights: Array, theta: float, scale: float, psi: int) -> tuple[float, float]:
    """Σ w ψ(x) and Σ w ψ′(x) at x = (u − θ)/s."""
    n, sums = values.size, np.empty(2)
    check(
        function_for(_psi_sums, values.dtype)(
            read("values", values, values.dtype, (n,)), n, optional("weights", weights, n), theta, scale, psi,
            address("found", sums),
        )
    )  # fmt: skip
    return float(sums[0]), float(sums[1])


def _table(values: Array, weights: Array) -> tuple[Any, ...]:
    m, n = values.shape
    at_least_one("the number of values", n)
    return address("values", values), m, n, optional("weights", weights, n)
