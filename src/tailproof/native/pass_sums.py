"""Sums over rows in pieces: all that one pass asks for levels of truncation and for what judges them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields
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

NOT_LEVELS = 2  # directions beside those of levels, as pass_sums.c has them
_NO_WEIGHTS = np.empty(0)

_pass_sums = declare("pass_sums", POINTER, COUNT, *[POINTER] * 4, CODE, POINTER, POINTER)


class _Pass(ctypes.Structure):
    """``struct pass`` of pass_sums.c."""

    _fields_ = [
        *((n, COUNT) for n in ("columns", "levels", "guards", "blocks", "run", "plain", "directions")),
        *((name, POINTER) for name in ("slopes", "constants", "shifts", "tau", "tukey", "centre", "reach")),
        *((n, POINTER) for n in ("far_centre", "far_weight", "to_leverage", "leverage_constants")),
        *((name, NUMBER) for name in ("floor", "size_tau", "middle", "offset", "share")),
        ("size_tukey", COUNT),
    ]


@dataclass(frozen=True, eq=False)
class PassTotals:
    """Where sums over rows go, for m levels, d columns, g guards and k blocks.

    See :class:`tailproof.data.level_sums.LevelTotals`, whose names these are. Blocks are filled in the first
    pass alone, and what follows them in others alone.
    """

    gradient: Array
    value: Array
    row: Array
    row_squares: Array
    sizes_by_column: Array
    size_squares: Array
    sizes: Array
    residuals: Array
    squares: Array
    weights: Array
    psi: Array
    curves: Array
    products: Array
    reach: Array
    apart: Array
    apart_products: Array


class _Totals(ctypes.Structure):
    """``struct totals`` of pass_sums.c."""

    _fields_ = [(field.name, POINTER) for field in fields(PassTotals)]


@dataclass(frozen=True, eq=False)
class PassQuery:
    """What a pass asks of rows.

    Attributes
    ----------
    slopes, constants : arrays of shape (m + NOT_LEVELS + 1, d) and (m + NOT_LEVELS + 1,)
        Of the m levels, whose residuals are y − constant − x'slopes; of other directions; and of what is
        taken from t, the sizes of residuals.
    shifts : array of shape (m + NOT_LEVELS,)
        What is taken from the directions: least squares less each level, and the others.
    tau, tukey : arrays of shape (m,)
    floor : float
        ψ′ of Huber's ψ beyond τ.
    centre, reach : arrays of shape (m,)
        θ and s of Catoni's equation; none where s is zero.
    plain : int
        Which level is least squares.
    far_centre, far_weight : arrays of shape (d,)
        The reach of a row is Σ weight (x − centre)².
    to_leverage, leverage_constants : arrays of shape (any, d) and (any,)
        The leverage of a row is the square norm of x'map + constants.
    size_tau, size_tukey, middle, offset, share : float
        t = log(|r − middle| + offset) − share ψ(r) for residuals r of the first level.
    guards, blocks, run : int
        Rows go to a guard by their numbers, and to a block by runs of them.
    """

    slopes: Array
    constants: Array
    shifts: Array
    tau: Array
    tukey: Array
    floor: float
    centre: Array
    reach: Array
    plain: int
    far_centre: Array
    far_weight: Array
    to_leverage: Array
    leverage_constants: Array
    size_tau: float
    size_tukey: bool
    middle: float
    offset: float
    share: float
    guards: int
    blocks: int
    run: int

    def record(self) -> _Pass:
        """For C, good while this lives."""
        m, d = self.tau.size, self.slopes.shape[1]
        every, k = m + NOT_LEVELS + 1, self.leverage_constants.size
        if not 0 <= self.plain < m or min(self.guards, self.blocks, self.run, d) < 1:
            raise ValueError("a pass needs a column, a guard, a block, a run, and a level of least squares")
        slopes = read("slopes", self.slopes, F64, (every, d))
        constants = read("constants", self.constants, F64, (every,))
        shifts = read("shifts", self.shifts, F64, (every - 1,))
        of_levels = (
            read(name, getattr(self, name), F64, (m,)) for name in ("tau", "tukey", "centre", "reach")
        )
        of_columns = (read(name, getattr(self, name), F64, (d,)) for name in ("far_centre", "far_weight"))
        leverage = address("to_leverage", self.to_leverage), address("constants", self.leverage_constants)
        if self.to_leverage.shape != (k, d):
            raise ValueError(f"to_leverage must have shape ({k}, {d}); got {self.to_leverage.shape}")
        counts = d, m, self.guards, self.blocks, self.run, self.plain, k
        numbers = self.floor, self.size_tau, self.middle, self.offset, self.share, self.size_tukey
        return _Pass(*counts, slopes, constants, shifts, *of_levels, *of_columns, *leverage, *numbers)


class PassSums:
    """Adds rows to the totals of a pass, the first one or another.

    Parameters
    ----------
    query : PassQuery
    into : PassTotals
    first : bool
    """

    def __init__(self, query: PassQuery, into: PassTotals, first: bool) -> None:
        m, d = query.tau.size, query.slopes.shape[1]
        apart = m + NOT_LEVELS
        shapes = [(m, d + 1), (m, query.guards), (d,), (d,), (d + 1,), (1,), (5,)]
        shapes += [(m, query.blocks), (m, query.blocks), (query.blocks,)]
        shapes += [(m, 2), (m, 2), (m, m), (1,), (apart,), (apart, apart)]
        named = zip(fields(PassTotals), shapes, strict=True)
        self._kept, self._columns, self._first, self._record = (query, into), d, first, query.record()
        places = [read(f.name, getattr(into, f.name), F64, shape, writable=True) for f, shape in named]
        self._into = _Totals(*places)

    def add(self, X: Array, y: Array, v: Array | None, numbers: NDArray[np.int64]) -> Array:
        """Add rows; returns the leverage of each, or after the first pass its reach."""
        n, away = len(y), np.empty(len(y))
        rows = read("X", X, F64, (n, self._columns)), n, read("y", y, F64, (n,))
        weights = optional("weights", _NO_WEIGHTS if v is None else v, n)
        given = ctypes.addressof(self._record), self._first, ctypes.addressof(self._into)
        places = read("numbers", numbers, I64, (n,))
        check(_pass_sums(*rows, weights, places, *given, address("away", away)))
        return away
