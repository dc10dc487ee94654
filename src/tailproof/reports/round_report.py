"""How one round went: candidates from a common start, and the point that they were merged into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array


@dataclass(frozen=True, eq=False)
class RoundReport:
    """How the candidates lay around the point that they were merged into.

    Attributes
    ----------
    number : int
        From 1.
    radius : float
        Majority radius: the smallest ball around the merged point with more than half of the candidates.
    distances : array of shape (k,)
        Of each candidate from the merged point; infinite for one that diverged in this round.
    stand_out : array of int
        Blocks more than three majority radii away.
    diverged : array of int
        Blocks whose candidate was not finite and had no part in the merge; they start again with the others.
    validation_risk : float or None
        Robust risk of the merged model, where validation rows are given.
    """

    number: int
    radius: float
    distances: Array
    stand_out: NDArray[np.intp]
    diverged: NDArray[np.intp]
    validation_risk: float | None = None

    def __str__(self) -> str:
        risk = "" if self.validation_risk is None else f", validation risk {self.validation_risk:.4g}"
        blocks = ", ".join(map(str, self.stand_out)) or "none"
        return (
            f"round {self.number}: majority radius {self.radius:.4g}, blocks that stand out: {blocks}{risk}"
        )
