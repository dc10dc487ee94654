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

_size_pass_sums = declare("size_pass_sums", POINTER, COUNT, COUNT, *[POINTER] * 12)


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
    differentiated : bool
        Whether to add up derivatives as well, for :func:`size_derivatives` and :func:`score_derivatives`.
    """

    def __init__(
        self,
        model: SizeModel,
        slopes: SizeSlopes,
        asked: SizePass,
        score: SizedScore | None = None,
        differentiated: bool = False,
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
        counts = numbers_of_derivatives(width, model.features)
        self.derivatives = np.zeros(sum(counts[: 1 if score is None else 2]) if differentiated else 0)

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
        sums = self._scores, self.level, self.of_score, self.derivatives
        into = (address("sums", some) if some.size else None for some in sums)
        check(_size_pass_sums(*rows, *given, score, *into, written("leverages", leverages, F64, (n,))))


def numbers_of_derivatives(width: int, features: int) -> tuple[int, int]:
    """How many sums derivatives take, those by size and those of a score.

    Examples
    --------
    >>> numbers_of_derivatives(2, 1)
    (15, 9)
    """
    triangle = (width + 1) * (width + 2) // 2
    by_size = triangle + features * (2 * width + 1 + features) + width + features
    return by_size, triangle + features * width + features


def size_derivatives(sums: Array, width: int, features: int) -> Array:
    """Minus the derivatives of Σ vψ(u)z/s, v(u + κ) and vtf, one a row, by θ, κ and γ.

    With a = z/s, b = (a, 1) and l = sign(u)/(|u| + c), the derivative of log(|u| + c), these are the sums of
    vψ′ab' and v(ψ′(u + κ) + ψ)af'; of va', 0 and v(u + κ)f'; and of vlfb' and vl(u + κ)ff'. Where columns
    are beyond their reach, s counts as constant.

    Parameters
    ----------
    sums : array
        Of a pass.
    width, features : int
        Numbers of θ and of γ.
    """
    both = width + 1
    counts = both * (both + 1) // 2, features * width, features * both, features**2, width, features
    own, wide, tall, taller, row, size = np.split(sums, np.cumsum(counts)[:-1])
    found = np.zeros((both + features, both + features))
    found[:width, :both] = _symmetric(own, both)[:width]
    found[:width, both:] = wide.reshape(features, width).T
    found[width, :width], found[width, both:] = row, size
    found[both:, :both] = tall.reshape(features, both)
    found[both:, both:] = taller.reshape(features, features)
    return found


def score_derivatives(sums: Array, width: int, features: int) -> Array:
    """Minus the derivatives of Σ vψ(u)z/s and vψ(u) with a score ψ, one a row, by its θ, its κ and by γ."""
    both = width + 1
    own, wide, last = np.split(sums, np.cumsum([both * (both + 1) // 2, features * width]))
    by_sizes = np.vstack([wide.reshape(features, width).T, last])
    return np.hstack([_symmetric(own, both), by_sizes])


def _symmetric(lower: Array, side: int) -> Array:
    """A matrix, given the numbers up to its diagonal, row by row."""
    found = np.zeros((side, side))
    found[np.tril_indices(side)] = lower
    return found + np.tril(found, -1).T
