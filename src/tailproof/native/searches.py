"""Steps of many fits at once, each with a level of truncation and shares of the rows of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, I64, NUMBER, POINTER, address, check, declare, read, written

Array = NDArray[Any]

_pulls_of_fits = declare(
    "pulls_of_fits",
    *(POINTER, POINTER, COUNT, POINTER, COUNT),
    *(POINTER, POINTER, COUNT, NUMBER, POINTER, POINTER),
)
_losses_of_fits = declare(
    "losses_of_fits", *(POINTER, POINTER, COUNT, POINTER, COUNT, POINTER, POINTER, COUNT, POINTER)
)
_step_lengths = declare(
    "step_lengths",
    *(POINTER, POINTER, POINTER, COUNT, POINTER),
    *(COUNT, POINTER, POINTER, POINTER, POINTER, COUNT, POINTER),
)


@dataclass(frozen=True, eq=False)
class Fits:
    """What fits differ in.

    Attributes
    ----------
    shares : array of shape (parts, n)
        Of the rows in the mean loss, for every part of the rows that fits may be on.
    part : array of int of shape (fits,)
    tau, tukey : arrays of shape (fits,)
        ψ is Huber's, or Tukey's where ``tukey`` is not zero.
    """

    shares: Array
    part: Array
    tau: Array
    tukey: Array

    def only(self, kept: Array) -> Fits:
        """Some of them."""
        return Fits(self.shares, self.part[kept], self.tau[kept], self.tukey[kept])


def pulls_of_fits(
    residuals: Array, fits: Fits, floor: float, room: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Shares times ψ(r), and times ψ′(r), which counts for at least the floor; a row a fit.

    Both take the first rows of ``room``, if there is any.

    Examples
    --------
    >>> huber = Fits(np.full((1, 3), 0.5), np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1))
    >>> pull, curvature = pulls_of_fits(np.array([[0.5, 3.0, -2.0]]), huber, 0.01)
    >>> pull.tolist(), curvature.tolist()
    ([[0.25, 0.5, -0.5]], [[0.5, 0.005, 0.005]])
    """
    count, n = residuals.shape
    pull, curvature = (a[:count] for a in room) if room else (np.empty((count, n)), np.empty((count, n)))
    check(
        _pulls_of_fits(
            read("residuals", residuals, F64, (count, n)), *_parts(fits, n), n,
            *(read("levels", a, F64, (count,)) for a in (fits.tau, fits.tukey)), count, floor,
            written("pull", pull, F64, (count, n)), written("curvature", curvature, F64, (count, n)),
        )
    )  # fmt: skip
    return pull, curvature


def losses_of_fits(residuals: Array, fits: Fits) -> Array:
    """Sums of shares times ρ(r), the integral of ψ, of every fit.

    Examples
    --------
    >>> huber = Fits(np.full((1, 2), 0.5), np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1))
    >>> losses_of_fits(np.array([[0.5, -3.0]]), huber).tolist()
    [1.3125]
    """
    count, n = residuals.shape
    losses = np.empty(count)
    check(
        _losses_of_fits(
            read("residuals", residuals, F64, (count, n)), *_parts(fits, n), n,
            *(read("levels", a, F64, (count,)) for a in (fits.tau, fits.tukey)), count,
            address("losses", losses),
        )
    )  # fmt: skip
    return losses


def step_lengths(residuals: Array, change: Array, fits: Fits, penalty: Array, penalty_slope: Array) -> Array:
    """Shares of steps, a whole one at most, at which penalised mean losses fall no further.

    Parameters
    ----------
    residuals, change : arrays of shape (fits, n)
        At the start, and what a whole step takes off them.
    fits : Fits
    penalty, penalty_slope : arrays of shape (fits,)
        First and second derivatives of the penalty along the step.

    Examples
    --------
    >>> huber = Fits(np.ones((1, 2)), np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1))
    >>> nothing, r, change = np.zeros(1), np.array([[1.0, 0.0]]), np.array([[4.0, 0.0]])
    >>> length = step_lengths(r, change, huber, nothing, nothing)
    >>> bool(abs(length[0] - 0.25) < 0.02)
    True
    """
    count, n = residuals.shape
    length = np.empty(count)
    check(
        _step_lengths(
            *(read("residuals and change", a, F64, (count, n)) for a in (residuals, change)),
            *_parts(fits, n), n,
            *(read("levels", a, F64, (count,)) for a in (fits.tau, fits.tukey, penalty, penalty_slope)),
            count, address("length", length),
        )
    )  # fmt: skip
    return length


def _parts(fits: Fits, n: int) -> tuple[int, int, int]:
    parts = len(fits.shares)
    return (
        read("shares", fits.shares, F64, (parts, n)),
        parts,
        read("part", fits.part, I64, fits.tau.shape),
    )
