"""Newton's method for a few fits at a time, on few enough rows to stay in the processor's cache.

Products with many fits at once are faster only where rows have to come from further away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tailproof.native.arrays import CODE, COUNT, F64, I64, NUMBER, POINTER, check, declare, read, written
from tailproof.native.searches import Fits

Array = NDArray[Any]

_search_fits = declare(
    "search_fits",
    *(POINTER, COUNT, COUNT, POINTER, COUNT, POINTER, *[POINTER] * 3, COUNT, POINTER, POINTER),
    *(*[NUMBER] * 6, COUNT, COUNT, CODE, POINTER, POINTER),
)
_search_start = declare(
    "search_start",
    *(POINTER, COUNT, COUNT, COUNT, COUNT, NUMBER, POINTER, POINTER),
    *(NUMBER, NUMBER, COUNT, NUMBER, POINTER, POINTER),
)


@dataclass(frozen=True, eq=False)
class Penalised:
    """Rows in double precision, and λ(diag(inverse) − constant constant'), the penalty of every fit.

    Attributes
    ----------
    X : array of shape (n, d)
    inverse, constant : arrays of shape (d,)
    damping : float
        Added to the diagonal of every system.
    cg_steps : int
        Of conjugate gradients, at most.
    """

    X: Array
    inverse: Array
    constant: Array
    damping: float
    cg_steps: int

    def _arrays(self) -> tuple[tuple[int, int, int], tuple[int, int]]:
        """Addresses of the rows, with their numbers, and of the penalty."""
        n, d = self.X.shape
        penalty = read("inverse", self.inverse, F64, (d,)), read("constant", self.constant, F64, (d,))
        return (read("X", self.X, F64, (n, d)), n, d), penalty


@dataclass(frozen=True)
class Steps:
    """How far Newton's steps go.

    Attributes
    ----------
    searches : int
        Steps after the first, at most.
    corrected, close : float
        Shares of the first gradient, and of one whose step is about as long as φ, that are small enough.
    finer, rough : float
        Shares that a system may leave: of what is small enough, and of the gradient if that is more.
    floor : float
        Of ψ′ in systems.
    whole : bool
        Whether the first step is, and whether the damping pulls φ itself to zero in it.
    """

    searches: int
    corrected: float
    close: float
    finer: float
    rough: float
    floor: float
    whole: bool


def search_fits(
    rows: Penalised, fits: Fits, ridge: Array, steps: Steps, phi: Array, residuals: Array
) -> None:
    """Move φ and residuals of every fit, a row each, to where the penalised mean loss falls no further.

    Parameters
    ----------
    rows : Penalised
    fits : Fits
        Residuals of rows without a share stay as they are.
    ridge : array of shape (fits,)
        λ.
    steps : Steps
    phi : array of shape (fits, d)
    residuals : array of shape (fits, n)

    Examples
    --------
    >>> import numpy as np
    >>> table = Penalised(np.eye(2), np.zeros(2), np.zeros(2), 0.0, 9)
    >>> none, r, phi = np.zeros(1), np.array([[3.0, 4.0]]), np.zeros((1, 2))
    >>> least_squares = Fits(np.full((1, 2), 0.5), np.zeros(1, dtype=np.int64), np.full(1, np.inf), none)
    >>> search_fits(table, least_squares, none, Steps(3, 1e-6, 0.0, 0.5, 0.2, 0.01, False), phi, r)
    >>> phi.tolist()
    [[3.0, 4.0]]
    """
    (X, n, d), vectors = rows._arrays()
    count, parts = len(phi), len(fits.shares)
    check(
        _search_fits(
            X, n, d, read("shares", fits.shares, F64, (parts, n)), parts,
            read("part", fits.part, I64, (count,)),
            *(read("levels", a, F64, (count,)) for a in (fits.tau, fits.tukey, ridge)), count,
            *vectors, rows.damping, steps.floor, steps.corrected, steps.close, steps.finer, steps.rough,
            steps.searches, rows.cg_steps, steps.whole,
            written("phi", phi, F64, (count, d)), written("residuals", residuals, F64, (count, n)),
        )
    )  # fmt: skip


def search_start(
    rows: Penalised,
    rank: int,
    rounds: int,
    ridge: float,
    tolerance: float,
    close: float,
    phi: Array,
    residuals: Array,
) -> None:
    """Move φ and residuals to Huber's regression whose τ is the residual of a rank, by reweighting.

    Rounds end before where a step is shorter than the share ``close`` of φ; ``tolerance`` is the share that
    systems may leave.

    Examples
    --------
    >>> import numpy as np
    >>> table = Penalised(np.ones((5, 1)), np.zeros(1), np.zeros(1), 0.0, 9)
    >>> phi, r = np.zeros(1), np.array([1.0, 2.0, 3.0, 4.0, 1e6])
    >>> search_start(table, 3, 30, 0.0, 0.01, 0.01, phi, r)
    >>> bool(2.0 < phi[0] < 4.0)
    True
    """
    (X, n, d), vectors = rows._arrays()
    check(
        _search_start(
            X, n, d, rank, rounds, ridge, *vectors, rows.damping, tolerance, rows.cg_steps, close,
            written("phi", phi, F64, (d,)), written("residuals", residuals, F64, (n,)),
        )
    )  # fmt: skip
