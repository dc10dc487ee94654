"""All sums that a pass over rows in pieces asks for where the noise is s(x) times one law."""

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
    check,
    declare,
    read,
    written,
)
from tailproof.native.size_scores import SizedScore, SizeModel, SizeSlopes, with_padding

Array = NDArray[Any]

_size_pass_sums = declare("size_pass_sums", POINTER, COUNT, COUNT, *[POINTER] * 11)


class _Pass(ctypes.Structure):
    """``struct pass`` of size_pass.c."""

    _fields_ = [
        *((name, POINTER) for name in ("offset", "scale", "to_leverage")),
        *((name, COUNT) for name in ("directions", "blocks", "run")),
        *((name, NUMBER) for name in ("centre", "reach")),
    ]


class SizePass(NamedTuple):
    """What a pass over rows in pieces asks of these as they are.

    Attributes
    ----------
    offset, scale : arrays of shape (d,)
        Scaled columns are (x − offset)/scale, with one of ones behind them.
    to_leverage : array of shape (d + 2 + m, any) or None
        What z/s, 1 and f are multiplied with: square norms are leverages.
    blocks, run : int
        Rows go to blocks in runs of their numbers.
    centre, reach : float
        θ and s of Catoni's equation for the mean of y − z'θ without θ's constant; s is zero where it is not
        known, and sums by block are to tell.
    """

    offset: Array
    scale: Array
    to_leverage: Array | None
    blocks: int
    run: int
    centre: float
    reach: float

    def record(self) -> _Pass:
        """For C, good while this lives."""
        d = self.offset.size
        columns = read("offset", self.offset, F64, (d,)), read("scale", self.scale, F64, (d,))
        if min(self.blocks, self.run) < 1:
            raise ValueError("a pass needs a block, and a run")
        to, directions = None, 0
        if self.to_leverage is not None:
            to, directions = address("to_leverage", self.to_leverage), self.to_leverage.shape[1]
        return _Pass(*columns, to, directions, self.blocks, self.run, self.centre, self.reach)


class SizePassSums:
    """Adds rows of a pass to its sums: those of ``size_sums``, and those that a mean needs.

    The latter are, with r = y − z'θ but for θ's constant, w = v/s² and e = r less the centre: Σ wr, Σ wr² and
    Σ w by block, or once the reach is known only the last, in the first block; Σ wψ and Σ wψ′ of Catoni's
    equation; and Σ w², (we)², we·ve, (ve)² and v. With a score there are those of ``sized_score_sums``. See
    :mod:`tailproof.native.size_scores`.

    Parameters
    ----------
    model : SizeModel
    slopes : SizeSlopes
    asked : SizePass
    score : SizedScore, optional
    """

    def __init__(
        self,
        model: SizeModel,
        slopes: SizeSlopes,
        asked: SizePass,
        score: SizedScore | None = None,
    ) -> None:
        self._columns, width = asked.offset.size, slopes.theta.size
        if width != self._columns + 1:
            raise ValueError(f"slopes must be as many as columns and one; got {width} and {self._columns}")
        if asked.to_leverage is not None:
            rows = width + 1 + model.features
            if len(asked.to_leverage) != rows:
                raise ValueError(f"to_leverage must have {rows} rows; got {len(asked.to_leverage)}")
            asked = asked._replace(to_leverage=with_padding(asked.to_leverage))
        score = score and score.beyond(slopes.theta)
        self._score, self.of_score = score and score.record(width), np.zeros(width + 1)
        self._kept, self._slopes = (model, slopes, asked, score), slopes
        self._records = model.record(width), slopes.record(), asked.record()
        self._scores, self.level = slopes.no_sums(), np.zeros(3 * asked.blocks + 7)

    @property
    def scores(self) -> Array:
        """The sums of ``size_sums`` so far."""
        return self._slopes.without_padding(self._scores)

    def add(self, X: Array, y: Array, v: Array | None, numbers: NDArray[np.int64], leverages: Array) -> None:
        """Add rows; leverages become theirs where these are larger, if the pass asks for them."""
        n = len(y)
        rows = read("X", X, F64, (n, self._columns)), n, self._columns, read("y", y, F64, (n,))
        weights = None if v is None else read("v", v, F64, (n,))
        given = (weights, read("numbers", numbers, I64, (n,)), *map(ctypes.addressof, self._records))
        score = None if self._score is None else ctypes.addressof(self._score)
        into = (address("sums", some) for some in (self._scores, self.level, self.of_score))
        check(_size_pass_sums(*rows, *given, score, *into, written("leverages", leverages, F64, (n,))))
