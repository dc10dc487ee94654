"""How far to go along the steps of levels, where a whole one may overshoot.

With few rows a column a truncated fit comes close to many of its rows, and a Newton step changes which of
them are truncated. Predictions are linear in the length of a step, so that the best one takes no further
product with the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.estimators.robust_regressor.levels import Levels, influence

_ROUNDS = 8
_CLOSE = 0.05  # of the slope at the start: what may be left of it


@dataclass(frozen=True)
class Line:
    """The penalised mean loss along the step of every level.

    Attributes
    ----------
    levels : Levels
    residuals, change : arrays of shape (levels, n)
        At the start, and what a whole step takes off them.
    weights : array of shape (n,)
        Which add up to one.
    penalty, penalty_slope : arrays of shape (levels,)
        First and second derivatives of the penalties.
    """

    levels: Levels
    residuals: Array
    change: Array
    weights: Array
    penalty: Array
    penalty_slope: Array

    def slopes(self, length: Array, some: NDArray[np.intp]) -> Array:
        """Derivatives of some levels at their lengths."""
        r = self.residuals[some] - length[some, None] * self.change[some]
        psi = influence(r, self.levels.only(some.tolist()))[0]
        psi *= self.change[some]
        return np.asarray(self.penalty[some] + length[some] * self.penalty_slope[some] - psi @ self.weights)

    def shortest(self) -> Array:
        """Lengths, a whole step at most, at which the loss falls no further, by halving and secants."""
        every = np.arange(len(self.levels))
        low, high = np.zeros(every.size), np.ones(every.size)
        falling, rising = self.slopes(low, every), self.slopes(high, every)
        enough = _CLOSE * np.abs(falling)
        length = high.copy()
        open_ones = np.flatnonzero((rising > enough) & (falling < 0))
        for number in range(_ROUNDS):
            if not open_ones.size:
                break
            a, b = falling[open_ones], rising[open_ones]
            share = np.clip(a / (a - b), 0.05, 0.95) if number % 3 < 2 else 0.5
            length[open_ones] = low[open_ones] + share * (high[open_ones] - low[open_ones])
            found = self.slopes(length, open_ones)
            falls = found < 0
            down, up = open_ones[falls], open_ones[~falls]
            low[down], falling[down] = length[down], found[falls]
            high[up], rising[up] = length[up], found[~falls]
            open_ones = open_ones[np.abs(found) > enough[open_ones]]
        return length
