"""Slopes and κ by reweighted steps, where noise over its size is truncated; sizes from what these leave."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    COUNT,
    F64,
    NUMBER,
    POINTER,
    address,
    at_least_one,
    check,
    declare,
    read,
    written,
)

Array = NDArray[Any]

_size_steps = declare(
    "size_steps", POINTER, COUNT, COUNT, *[POINTER] * 3, NUMBER, NUMBER, COUNT, *[POINTER] * 5
)
_smooth_sizes = declare(
    "smooth_sizes", POINTER, COUNT, COUNT, *[POINTER] * 5, NUMBER, NUMBER, NUMBER, POINTER
)
_size_rounds = declare(
    "size_rounds",
    *(POINTER, COUNT, COUNT, POINTER, POINTER, COUNT, *[POINTER] * 3, *[NUMBER] * 3),
    *(*[COUNT] * 4, *[NUMBER] * 3, *[POINTER] * 6),
)
_noise_over_sizes = declare(
    "noise_over_sizes",
    *(POINTER, COUNT, COUNT, POINTER, POINTER, COUNT, *[POINTER] * 3, NUMBER, NUMBER, *[POINTER] * 4),
)
_SETTLED, _DOUBTFUL = 0, 2  # how rounds end, or else nowhere


class Steps(NamedTuple):
    """What steps have come to: u there, the last truncation, how many are left, and the next system.

    The truncation is NaN where numbers do not hold what is asked. Otherwise, where steps are left, the system
    may be singular.
    """

    u: Array
    tau: float
    left: int
    matrix: Array
    side: Array


def size_steps(
    Q: Array,
    y: Array,
    v: Array,
    s: Array,
    place: Array,
    steps: int,
    share: float,
    close: float,
    every: int = 1,
) -> Steps:
    """Move φ and κ by steps to where Σ v ψ(u) q/s, Σ v ψ(u) and Σ v (u + κ) vanish, u = (y − q'φ)/s − κ.

    Parameters
    ----------
    Q : array of shape (n, rank)
        Best column by column: the columns are read.
    y, v, s : arrays of shape (n,)
        Targets, shares and sizes.
    place : array of shape (rank + 1,)
        φ and κ, which are moved.
    steps : int
        At most.
    share : float
        ψ truncates at the quantile of |u| of this share.
    close : float
        Of the largest of φ and κ: steps that are no longer are the last.
    every : int
        So many steps have the matrix of the first of them.

    Examples
    --------
    >>> one, place = np.ones(4), np.zeros(2)
    >>> found = size_steps(one[:, None], np.array([1.0, 2.0, 3.0, 10.0]), one / 4, one, place, 30, 0.5, 1e-9)
    >>> found.left, bool(np.isclose(place[0], 4.0)), bool(place[1] < -1.0)
    (0, True, True)
    """
    (n, rank), count, columns = Q.shape, len(place), np.ascontiguousarray(Q.T)
    at_least_one("the number of rows", n)
    at_least_one("the number of steps with one matrix", every)
    u, system, tau, left = np.empty(n), np.empty(count * (count + 1)), NUMBER(), COUNT(steps)
    rows = (read(name, a, F64, (n,)) for name, a in (("y", y), ("v", v), ("s", s)))
    check(
        _size_steps(
            read("Q", columns, F64, (rank, n)), n, rank, *rows, share, close, every,
            written("place", place, F64, (rank + 1,)), address("system", system),
            ctypes.addressof(tau), ctypes.addressof(left), address("u", u),
        )
    )  # fmt: skip
    matrix, side = system[: count * count], system[count * count :]
    return Steps(u, tau.value, left.value, matrix.reshape(count, count), side)


def smooth_sizes(
    features: Array, inverse: Array, v: Array, own: Array, sizes: Array, u: Array | None, offset: float,
    ends: tuple[float, float],
) -> Array:  # fmt: skip
    """Logarithms of sizes as a linear function of features, within two quantiles and but for each one's own.

    NaN where there are none.

    Parameters
    ----------
    features : array of shape (n, m)
        Best column by column.
    inverse : array of shape (m, m)
        Of Σ vff'.
    v, own, sizes : arrays of shape (n,)
        Shares of the rows, factors of what the function leaves, and logarithms.
    u : array of shape (n,), optional
        Noise over its size: then log(|u| + c) is added to logarithms, c being ``offset`` median |u|.
    ends : pair of float
        Which quantiles.

    Examples
    --------
    >>> one, sizes = np.ones(4), np.array([0.0, 1.0, 2.0, 5.0])
    >>> smooth_sizes(one[:, None], np.ones((1, 1)), one / 4, 0 * one, sizes, None, 0.5, (0.0, 1.0)).tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    (n, m), columns = features.shape, np.ascontiguousarray(features.T)
    at_least_one("the number of rows", n)
    smooth = np.empty(n)
    rows = (read(name, a, F64, (n,)) for name, a in (("v", v), ("own", own), ("sizes", sizes)))
    check(
        _smooth_sizes(
            read("features", columns, F64, (m, n)), n, m, read("inverse", inverse, F64, (m, m)), *rows,
            None if u is None else read("u", u, F64, (n,)), offset, *ends, address("smooth", smooth),
        )
    )  # fmt: skip
    return smooth


class Pace(NamedTuple):
    """How rounds of steps and smoothing go on.

    Attributes
    ----------
    rounds : int
        At most.
    first, later : int
        Steps of the first round, and of every other.
    every : int
        So many steps have the matrix of the first of them.
    share, close : float
        As those of :func:`size_steps`.
    settled : float
        Largest change of a logarithm, but for a constant, below which sizes have settled.
    """

    rounds: int
    first: int
    later: int
    every: int
    share: float
    close: float
    settled: float


class Rounds(NamedTuple):
    """Where rounds of steps and smoothing have led to; ``known`` says whether anything may be unusual."""

    known: bool
    settled: bool
    place: Array
    log: Array
    s: Array
    u: Array
    tau: float


def size_rounds(
    Q: Array, y: Array, features: Array, inverse: Array, v: Array, own: Array, sizes: Array, offset: float,
    ends: tuple[float, float], pace: Pace,
) -> Rounds:  # fmt: skip
    """:func:`size_steps` and :func:`smooth_sizes` in turn, from smooth logarithms of sizes until they settle.

    What changes would add up to is made of the last two of them. Where a system may be singular, or numbers
    do not hold sizes, the outcome is not known.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> one, y, v, none = np.ones((500, 1)), rng.exponential(size=500), np.full(500, 1 / 500), np.zeros(500)
    >>> pace = Pace(20, 4, 2, 2, 0.75, 1e-6, 0.02)
    >>> given = np.ones((1, 1)), v, none, none, 0.5, (0.001, 0.999), pace
    >>> found = size_rounds(one, y, one, *given)
    >>> found.settled, bool(abs(found.place[0] - y.mean()) < 1e-6)
    (True, True)
    """
    (n, rank), m = Q.shape, features.shape[1]
    at_least_one("the number of rows", n)
    at_least_one("the number of steps with one matrix", pace.every)
    place, log, s, u = np.zeros(rank + 1), sizes.copy(), np.empty(n), np.empty(n)
    tau, outcome = NUMBER(np.nan), COUNT()
    tables = (
        *(read("Q", Q.T, F64, (rank, n)), n, rank, read("y", y, F64, (n,))),
        *(read("features", features.T, F64, (m, n)), m, read("inverse", inverse, F64, (m, m))),
    )
    rows = (read(name, a, F64, (n,)) for name, a in (("v", v), ("own", own)))
    moved = (address(name, a) for name, a in (("place", place), ("sizes", log), ("s", s), ("u", u)))
    numbers = ctypes.addressof(tau), ctypes.addressof(outcome)
    check(_size_rounds(*tables, *rows, offset, *ends, *pace, *moved, *numbers))
    return Rounds(outcome.value != _DOUBTFUL, outcome.value == _SETTLED, place, log, s, u, tau.value)


def noise_over_sizes(
    Q: Array, y: Array, features: Array, v: Array, phi: Array, gamma: Array, ends: tuple[float, float]
) -> tuple[Array, Array, Array] | None:
    """s(x) = exp γ'f within two quantiles, (y − q'φ)/s(x) and Σ vq/s(x); None where numbers do not hold them.

    Examples
    --------
    >>> one, two = np.ones((2, 1)), np.array([2.0, 4.0])
    >>> s, noise, mean = noise_over_sizes(one, two, one, two / 6, np.ones(1), np.zeros(1), (0.0, 1.0))
    >>> s.tolist(), noise.tolist(), mean.tolist()
    ([1.0, 1.0], [1.0, 3.0], [1.0])
    """
    (n, rank), m = Q.shape, features.shape[1]
    at_least_one("the number of rows", n)
    columns, f = np.ascontiguousarray(Q.T), np.ascontiguousarray(features.T)
    s, noise, mean_row, known = np.empty(n), np.empty(n), np.empty(rank), COUNT()
    check(
        _noise_over_sizes(
            *(read("Q", columns, F64, (rank, n)), n, rank, read("y", y, F64, (n,))),
            *(read("features", f, F64, (m, n)), m, read("v", v, F64, (n,))),
            *(read("phi", phi, F64, (rank,)), read("gamma", gamma, F64, (m,)), *ends),
            *(address(name, a) for name, a in (("s", s), ("noise", noise), ("mean", mean_row))),
            ctypes.addressof(known),
        )
    )
    return (s, noise, mean_row) if known.value else None
