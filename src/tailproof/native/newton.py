"""Newton's method for all levels of truncation at once, where columns are few and rows in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import BOOL, COUNT, F64, NUMBER, POINTER, address, check, declare, optional, read

Array = NDArray[Any]

_newton_levels = declare(
    "newton_levels",
    *(POINTER, POINTER, POINTER, COUNT, COUNT),
    *(POINTER, POINTER, POINTER, COUNT, NUMBER),
    *(POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER),
    *(POINTER, POINTER, POINTER, POINTER),
)
_robust_start = declare(
    "robust_start",
    *(POINTER, POINTER, COUNT, COUNT, POINTER),
    *(COUNT, COUNT, NUMBER, NUMBER, POINTER),
)
_NO_WEIGHTS = np.empty(0)


@dataclass(frozen=True, eq=False)
class Search:
    """How to search, and what for: Σ vψ(r)z/Σv = λSφ for every level.

    Attributes
    ----------
    tau, tukey, ridge : arrays of shape (levels,)
        ψ is Huber's, or Tukey's where ``tukey`` is not zero; the last is λ.
    slopes : array of shape (d, d)
        S.
    floor : float
        ψ′ counts for at least so much in Hessians, unless it is Tukey's and ``chord`` is set.
    tolerance : array of shape (levels,)
        A level has settled where its step is within this share of φ.
    polished : float
        Or where the last two tell that no more than so many roots of its mean loss are left.
    lean : array of shape (d, levels), or None
        Added to Σ vψ(r)z/Σv.
    passes, tukey_steps : int
        At most; the second for levels with Tukey's ψ.
    chord : bool
        Keep the first Hessian of every level.
    corrects : bool
        Correct steps by what earlier ones have achieved, as Broyden's method does.
    always : bool
        Make a new one for every step; else only where steps do not shrink by ``contraction``.
    damping : float
        Added to the diagonal of Hessians over Σv.
    reused : float
        Share of the tolerance for steps by Hessians that were used before.
    """

    tau: Array
    tukey: Array
    ridge: Array
    slopes: Array
    floor: float
    tolerance: Array
    polished: float
    lean: Array | None
    passes: int
    tukey_steps: int
    chord: bool
    corrects: bool
    always: bool
    damping: float
    reused: float
    contraction: float


@dataclass(frozen=True, eq=False)
class Found:
    """φ, sums of the last pass of every level, the last Hessians (levels first), and which levels settled."""

    phi: Array
    value: Array
    gradient: Array
    hessian: Array
    settled: NDArray[np.bool_]


def newton_levels(
    Z: Array, y: Array, weights: Array | None, total: float, phi: Array, search: Search, systems: Array | None
) -> Found:
    """Search from φ, of shape (d, levels), with first Hessians over Σv, of shape (levels, d, d), if given.

    An ``ArithmeticError`` says that a Hessian is singular.

    Examples
    --------
    >>> one, zero = np.ones(1), np.zeros(1)
    >>> search = Search(
    ...     *(one, zero, zero, np.zeros((1, 1)), 0.0, 1e-9 * one, 0.0, None),
    ...     *(50, 50, False, False, False, 0.0, 0.1, 0.2),
    ... )
    >>> Z, y = np.ones((4, 1)), np.array([0.0, 0.2, 0.4, 9.0])
    >>> newton_levels(Z, y, None, 4.0, np.zeros((1, 1)), search, None).phi.round(6).tolist()
    [[0.533333]]
    """
    (n, d), count = Z.shape, search.tau.size
    phi = np.array(phi, dtype=np.float64, order="C")
    found = Found(phi, np.zeros(count), np.zeros((d, count)), np.zeros((d, d, count)), np.zeros(count, BOOL))
    every, square = (count,), (d, d)
    numbers = np.array([total, search.damping, search.reused, search.contraction, search.polished])
    kinds = (search.chord, search.always, search.corrects)
    choices = np.array([search.passes, search.tukey_steps, *kinds], dtype=np.int64)
    check(
        _newton_levels(
            read("Z", Z, F64, (n, d)), read("y", y, F64, (n,)),
            optional("weights", _NO_WEIGHTS if weights is None else weights, n), n, d,
            read("phi", phi, F64, (d, count)), read("tau", search.tau, F64, every),
            read("tukey", search.tukey, F64, every), count, search.floor,
            read("ridge", search.ridge, F64, every), read("slopes", search.slopes, F64, square),
            None if systems is None else read("systems", systems, F64, (count, *square)),
            read("tolerance", search.tolerance, F64, every),
            None if search.lean is None else read("lean", search.lean, F64, (d, count)),
            address("numbers", numbers), address("choices", choices),
            *(address("found", part) for part in (found.value, found.gradient, found.hessian, found.settled)),
        )
    )  # fmt: skip
    return Found(phi, found.value, found.gradient, np.moveaxis(found.hessian, -1, 0), found.settled)


def robust_start(
    Z: Array, y: Array, phi: Array, rank: int, rounds: int, ridge: float, damping: float, slopes: Array
) -> Array:
    """φ of Huber's regression, from another: τ is the size of that rank among those of all residuals.

    Examples
    --------
    >>> Z, y = np.ones((5, 1)), np.array([1.0, 2.0, 3.0, 4.0, 90.0])
    >>> bool(2 < robust_start(Z, y, np.zeros(1), 3, 30, 0.0, 0.0, np.zeros((1, 1)))[0] < 5)
    True
    """
    (n, d), phi = Z.shape, np.array(phi, dtype=np.float64, order="C")
    if not 0 <= rank < n:
        raise ValueError(f"rank must be from 0 to {n - 1}; got {rank}")
    check(
        _robust_start(
            read("Z", Z, F64, (n, d)), read("y", y, F64, (n,)), n, d, read("phi", phi, F64, (d,)), rank,
            rounds, ridge, damping, read("slopes", slopes, F64, (d, d)),
        )
    )  # fmt: skip
    return phi
