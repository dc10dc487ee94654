"""Sums over rows for all levels of truncation at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

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
from tailproof.native.m_estimates import Resistance

Array = NDArray[Any]

_LEVELS = (POINTER, POINTER, POINTER)
_level_sums = declare(
    "level_sums",
    *(POINTER, POINTER, POINTER, POINTER, COUNT, COUNT),
    *(*_LEVELS, COUNT, NUMBER, CODE),
    *(POINTER, POINTER, POINTER),
)
_level_moments = declare(
    "level_moments",
    *(POINTER, POINTER, POINTER, POINTER, COUNT, COUNT),
    *(*_LEVELS, COUNT, COUNT, NUMBER),
    *(POINTER, POINTER, POINTER),
)
_row_products = declare("row_products", POINTER, POINTER, COUNT, COUNT, POINTER, POINTER)
_level_weights = declare(
    "level_weights", *(POINTER, POINTER, COUNT, COUNT), *(*_LEVELS, POINTER, COUNT), POINTER
)
_level_residuals = declare("level_residuals", POINTER, POINTER, COUNT, COUNT, POINTER, POINTER)
_level_pulls = declare(
    "level_pulls", *(POINTER, POINTER, COUNT), *(POINTER, POINTER, COUNT, NUMBER), POINTER, POINTER
)
_log_size_sums = declare(
    "log_size_sums",
    *(POINTER, POINTER, POINTER, COUNT, COUNT),
    *(NUMBER, CODE, NUMBER, NUMBER, NUMBER, POINTER, POINTER),
)
_means_of_rest = declare(
    "means_of_rest",
    *(POINTER, POINTER, COUNT, POINTER, COUNT),
    *(POINTER, COUNT, CODE, POINTER, POINTER),
    POINTER,
)
_gradients_of_rest = declare(
    "gradients_of_rest",
    *(POINTER, POINTER, POINTER, COUNT, POINTER, COUNT, COUNT),
    *(*_LEVELS, COUNT),
    POINTER,
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
        self, Z: Array, y: Array, weights: Array | None = None, ends: NDArray[np.int64] | None = None
    ) -> None:
        """Add rows in the order of their folds, and say where each of these ends, if there are several."""
        (n, d), (folds, count) = Z.shape, self.value.shape
        ends = np.array([n]) if ends is None else ends
        _check_ends(ends, n)
        rows = read("Z", Z, F64, (n, d)), read("y", y, F64, (n,))
        shares = optional("weights", _NO_WEIGHTS if weights is None else weights, n)
        levels = _levels(self.phi, self.tau, self.tukey)
        found = (address("value", self.value, True), address("gradient", self.gradient, True))
        square = address("hessian", self.hessian, True) or None
        places = read("ends", ends, I64, (folds,))
        check(
            _level_sums(
                *rows, shares, places, folds, d, *levels, count, self.floor, self.exact, *found, square
            )
        )


@dataclass(frozen=True, eq=False)
class LevelMoments:
    """Σ vψ′(r) and Σ vψ′(r)r of every level, with numbers v of every row; and ``products``.

    These are Σ v²hψψ of every level with itself, and of every level with the one ``named``, with numbers h of
    every row. ``phi``, ``tau``, ``tukey`` and ``floor`` are those of :class:`LevelSums`, with exact slopes.

    Examples
    --------
    >>> moments = LevelMoments.zero(np.zeros((1, 2)), np.array([1.0, np.inf]), np.zeros(2), 1, 0.0)
    >>> moments.add(np.array([[1.0], [2.0]]), np.array([3.0, 0.5]), np.ones(2), np.ones(2))
    >>> moments.slope.tolist(), moments.inside.tolist(), moments.products.tolist()
    ([1.0, 2.0], [0.5, 3.5], [[1.25, 9.25], [3.25, 9.25]])
    """

    phi: Array
    tau: Array
    tukey: Array
    named: int
    floor: float
    slope: Array
    inside: Array
    products: Array

    @classmethod
    def zero(cls, phi: Array, tau: Array, tukey: Array, named: int, floor: float) -> LevelMoments:
        """Moments of no rows."""
        m = tau.size
        if not 0 <= named < m:
            raise IndexError(f"the level named must be from 0 to {m - 1}; got {named}")
        zeros = np.zeros(m), np.zeros(m), np.zeros((2, m))
        return cls(np.ascontiguousarray(phi), tau, tukey, named, floor, *zeros)

    def add(self, Z: Array, y: Array, v: Array | None, h: Array) -> None:
        """Add rows; no v are ones."""
        n, d = Z.shape
        found = (address("found", a, True) for a in (self.slope, self.inside, self.products))
        check(
            _level_moments(
                read("Z", Z, F64, (n, d)), read("y", y, F64, (n,)),
                None if v is None else read("v", v, F64, (n,)), read("h", h, F64, (n,)), n, d,
                *_levels(self.phi, self.tau, self.tukey), self.tau.size, self.named, self.floor, *found,
            )
        )  # fmt: skip


def row_products(Z: Array, v: Array | None) -> tuple[Array, Array]:
    """Σ vz and Σ vzz' of short rows, in one reading; no v are ones.

    Examples
    --------
    >>> sums, products = row_products(np.array([[1.0, 2.0], [3.0, 4.0]]), None)
    >>> sums.tolist(), products.tolist()
    ([4.0, 6.0], [[10.0, 14.0], [14.0, 20.0]])
    """
    n, d = Z.shape
    shares = None if v is None else read("v", v, F64, (n,))
    sums, products = np.zeros(d), np.zeros((d, d))
    found = address("sums", sums), address("products", products)
    check(_row_products(read("Z", Z, F64, (n, d)), shares, n, d, *found))
    return sums, products


def level_weights(Z: Array, y: Array, phi: Array, tau: Array, tukey: Array, shares: Array) -> Array:
    """Σ sψ(r)/r over levels with shares s, for every row.

    Examples
    --------
    >>> Z, y = np.ones((2, 1)), np.array([4.0, 0.0])
    >>> level_weights(Z, y, np.zeros((1, 1)), np.ones(1), np.zeros(1), np.ones(1)).tolist()
    [0.25, 1.0]
    """
    (n, d), found = Z.shape, np.empty(len(Z))
    rows = read("Z", Z, F64, (n, d)), read("y", y, F64, (n,))
    share = read("shares", shares, F64, tau.shape)
    levels = _levels(np.ascontiguousarray(phi), tau, tukey)
    check(_level_weights(*rows, n, d, *levels, share, tau.size, address("found", found)))
    return found


def level_residuals(Z: Array, y: Array, phi: Array) -> Array:
    """Y − z'φ of every row: where rows are short, several times as fast as a product of matrices.

    Examples
    --------
    >>> level_residuals(np.array([[1.0, 2.0]]), np.array([9.0]), np.array([3.0, 1.0])).tolist()
    [4.0]
    """
    (n, d), found = Z.shape, np.empty(len(Z))
    rows = read("Z", Z, F64, (n, d)), read("y", y, F64, (n,))
    check(_level_residuals(*rows, n, d, read("phi", phi, F64, (d,)), address("found", found)))
    return found


def level_pulls(r: Array, v: Array, tau: Array, tukey: Array, floor: float) -> tuple[Array, Array]:
    """ψ(r), a row a level, and Σ vψ′(r) of each, with exact slopes of :class:`LevelSums`.

    Examples
    --------
    >>> psi, slopes = level_pulls(np.array([[0.5, 3.0]]), np.ones(2), np.ones(1), np.zeros(1), 0.0)
    >>> psi.tolist(), slopes.tolist()
    ([[0.5, 1.0]], [1.0])
    """
    count, n = r.shape
    psi, slopes = np.empty((count, n)), np.empty(count)
    levels = (read("tau and tukey", a, F64, (count,)) for a in (tau, tukey))
    rows = read("r", r, F64, (count, n)), read("v", v, F64, (n,)), n
    check(_level_pulls(*rows, *levels, count, floor, address("psi", psi), address("slopes", slopes)))
    return psi, slopes


class SizeMeasure(NamedTuple):
    """Sizes of residuals: t = log(|r − middle| + offset) − share ψ(r), with ψ as in :class:`LevelSums`."""

    tau: float
    tukey: float
    middle: float
    offset: float
    share: float


def log_size_sums(Z: Array, r: Array, weights: Array | None, how: SizeMeasure, slopes: Array) -> Array:
    """Σ vt, Σ vt², Σ vtz and Σ vz of sizes t of residuals less z'slopes; no weights v are ones.

    Examples
    --------
    >>> how = SizeMeasure(np.inf, 0.0, 0.0, 1.0, 0.5)
    >>> log_size_sums(np.full((1, 1), 4.0), np.ones(1), None, how, np.zeros(1)).round(3).tolist()
    [0.193, 0.037, 0.773, 4.0]
    """
    (n, d), sums = Z.shape, np.zeros(2 + 2 * Z.shape[1])
    rows = read("Z", Z, F64, (n, d)), read("r", r, F64, (n,))
    shares = None if weights is None else read("weights", weights, F64, (n,))
    numbers = how.tau, bool(how.tukey), how.middle, how.offset, how.share
    along = read("slopes", slopes, F64, (d,))
    check(_log_size_sums(*rows, shares, n, d, *numbers, along, address("sums", sums)))
    return sums


def gradients_of_rest(
    Z: Array,
    y: Array,
    weights: Array | None,
    ends: NDArray[np.int64],
    phi: Array,
    tau: Array,
    tukey: Array,
) -> Array:
    """Σ vψ(r)z of every fold and level over the rows that are not in the fold.

    Parameters
    ----------
    Z : array of shape (n, d)
    y : array of shape (n,)
        Rows are in the order of folds.
    weights : array of shape (n,), optional
    ends : array of shape (folds,)
        Where each fold ends.
    phi : array of shape (folds, d, levels)
    tau, tukey : arrays of shape (levels,)

    Returns
    -------
    array of shape (folds, d, levels)

    Examples
    --------
    >>> Z, y, phi = np.ones((3, 1)), np.array([0.5, 3.0, 0.25]), np.zeros((2, 1, 1))
    >>> gradients_of_rest(Z, y, None, np.array([1, 3]), phi, np.ones(1), np.zeros(1)).ravel().tolist()
    [1.25, 0.5]
    """
    (n, d), (folds, _, count) = Z.shape, phi.shape
    _check_ends(ends, n)
    found = np.empty((folds, d, count))
    check(
        _gradients_of_rest(
            read("Z", Z, F64, (n, d)), read("y", y, F64, (n,)),
            optional("weights", _NO_WEIGHTS if weights is None else weights, n), n,
            read("ends", ends, I64, (folds,)), folds, d, read("phi", phi, F64, (folds, d, count)),
            *(read("tau and tukey", a, F64, (count,)) for a in (tau, tukey)), count, address("found", found),
        )
    )  # fmt: skip
    return found


def _check_ends(ends: NDArray[np.int64], n: int) -> None:
    places = [0, *ends.tolist()]
    if places[-1] != n or any(after < before for before, after in pairwise(places)):
        raise ValueError(f"folds must end one after the other, the last of them at {n}; got {places[1:]}")


def means_of_rest(
    p: Array, y: Array, ends: NDArray[np.int64], tau: Array, alike: bool, how: Sequence[Resistance]
) -> Array:
    """Resistant means of y − p over all rows but those of a fold, for every fold and level.

    Parameters
    ----------
    p : array of shape (folds, levels, n)
        Predictions by the fits without each fold.
    y : array of shape (n,)
        Targets, in the order of folds.
    ends : array of shape (folds,)
        Where each fold ends.
    tau : array of shape (levels,)
        Levels without truncation have a mean of 0.
    alike : bool
        Whether the scale of one level serves all.
    how : sequence of Resistance
        For each fold, by the number of the other rows.

    Returns
    -------
    array of shape (folds, levels)
        NaN where something is unusual, to be looked at with care.

    Examples
    --------
    >>> how = Resistance(1, 0, 1, 0, 0, 99.0, 1e4, 1.0, 1.0)
    >>> p, y = np.zeros((2, 1, 4)), np.array([1.0, 3.0, 4.0, 8.0])
    >>> means_of_rest(p, y, np.array([2, 4]), np.ones(1), True, [how, how]).round(3).tolist()
    [[6.0], [2.0]]
    """
    folds, count, n = p.shape
    _check_ends(ends, n)
    blocks = np.array([one[:5] for one in how], dtype=np.int64).reshape(folds, 5)
    numbers, found = np.array([one[5:] for one in how]).reshape(folds, 4), np.empty((folds, count))
    check(
        _means_of_rest(
            read("p", p, F64, (folds, count, n)), read("y", y, F64, (n,)), n,
            read("ends", ends, I64, (folds,)), folds, read("tau", tau, F64, (count,)), count, alike,
            address("blocks", blocks), address("numbers", numbers), address("found", found),
        )
    )  # fmt: skip
    return found


def _levels(phi: Array, tau: Array, tukey: Array) -> tuple[int, ...]:
    """Addresses of what tells levels apart."""
    numbers = (read("tau", a, F64, (phi.shape[1],)) for a in (tau, tukey))
    return read("phi", phi, F64, phi.shape), *numbers
