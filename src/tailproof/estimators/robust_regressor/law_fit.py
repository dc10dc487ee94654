"""A fit by size with the law of its noise, where more rows are to have both.

Where all rows choose, law and size are learned together
(:mod:`~tailproof.estimators.robust_regressor.joint_noise`). For a fit on more rows the sizes stay those of
the fit by size, and the law improves the slopes across the columns that the noise grows along: there an error
of the model of sizes is no bias (:mod:`~tailproof.estimators.robust_regressor.law_equations`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.estimators.robust_regressor.dependent_noise import SizeFit, WeightedFit
from tailproof.estimators.robust_regressor.law_equations import (
    ByLaw,
    share_of_least_risk,
)
from tailproof.estimators.robust_regressor.monotone_score import MonotoneScore, learn_score
from tailproof.estimators.robust_regressor.noise_equations import (
    constant_of,
    inverse_beside,
    slopes_told,
    without_constant,
)
from tailproof.estimators.robust_regressor.noise_growth import ROWS_PER_COLUMN
from tailproof.estimators.robust_regressor.scaled_rows import gram

_ROUNDS = 6
_SETTLED = 0.01  # of the variance of slopes: steps whose squares are smaller are not taken
_LEARNED = 1.15  # factor of standard errors, as for a law without sizes
_TINY = 1e-300


@dataclass(frozen=True)
class LawFit:
    """Slopes by the law of the noise over its size, across the columns that it grows along.

    Attributes
    ----------
    start : SizeFit
    phi : array of shape (rank,)
        To be added to φ of the truncated fit.
    moves : array of shape (n, rank)
        How far rows move it, across these columns.
    score : MonotoneScore
        Of noise over its size, with mean zero.
    across : array of shape (rank, rank)
        Projection to functions of rows that these columns tell nothing of.
    """

    start: SizeFit
    phi: Array
    moves: Array
    score: MonotoneScore
    across: Array

    @property
    def variance(self) -> float:
        """Of the slopes, beside that of the same slopes by size alone."""
        return float(np.sum(self.moves**2)) / max(float(np.sum((self.start.moves @ self.across) ** 2)), _TINY)

    def weighted(self) -> WeightedFit:
        """The fit by size with its share of these slopes, as ``ByLaw`` has it."""
        start, distance = self.start, self.across @ (self.phi - self.start.phi)
        own = start.moves @ self.across
        gain, variance = self._of_distance(own)
        share = share_of_least_risk(gain, float(distance @ distance), variance)
        phi, family = start.phi + share * distance, start.family
        noise = (family.y - family.Q @ phi) / start.sizes
        return WeightedFit(phi, start.moves + share * (self.moves - own), start.sizes, noise, family)

    def _of_distance(self, own: Array) -> tuple[float, float]:
        apart = own - self.moves
        return float(np.sum(own * apart)), float(np.sum(apart**2))

    def equations(self, phi: Array, to_columns: Array) -> ByLaw:
        """What it solves, for more rows; see ``SizeFit.equations``."""
        squares = float(np.sum(self.start.family.v**2))
        own = self.start.moves @ self.across
        gain, variance = self._of_distance(own)
        moves = self.start.moves - own + self.moves
        return ByLaw(
            score=self.score,
            theta=to_columns @ (phi + self.phi),
            kappa=0.0,
            map=to_columns,
            across=self.across,
            inverse=np.eye(phi.size + 1),
            gain=gain / squares,
            variance=variance / squares,
            error=math.sqrt(float(np.sum(self.moves**2)) / squares),
            whole_error=float(np.linalg.norm(without_constant(to_columns, moves))) / math.sqrt(squares),
        )


def fit_law(start: SizeFit, to_columns: Array, told: NDArray[np.intp] | None = None) -> LawFit | None:
    """Learn ψ of what a fit by size leaves and take a step by it, in turn; None where that is for nothing.

    Parameters
    ----------
    start : SizeFit
    to_columns : array of shape (width, rank)
        B with θ = Bφ for scaled columns.
    told : array of int, optional
        Columns that more than a few rows tell of; all by default.
    """
    told = np.arange(len(to_columns) - 1) if told is None else told
    projection = slopes_told(to_columns, told, start.columns)
    if not (np.trace(projection) > 0.5 and _enough_rows_decide(start)):
        return None
    rows = _SizedRows(start, constant_of(to_columns))
    phi = start.phi
    for left in reversed(range(_ROUNDS)):
        found = rows.learn(phi)
        if found is None:
            return None
        score, pull = found
        step = rows.step(pull)
        ours = projection @ step
        if not left or ours @ ours <= _SETTLED * rows.variance(pull, projection):
            return LawFit(start, phi, _LEARNED * (rows.moves(pull) @ projection), score, projection)
        phi = phi + step
    return None


class _SizedRows:
    """Rows over the sizes that a fit has found, which tell slopes, and ones, which tell κ."""

    def __init__(self, start: SizeFit, constant: Array) -> None:
        self.family, self.sizes = start.family, start.sizes
        self.a = np.column_stack([self.family.Q / self.sizes[:, None], np.ones(len(self.sizes))])
        self.products = gram(self.a, self.family.v)
        self.inverse = inverse_beside(self.products, np.append(constant, 0.0))

    def learn(self, phi: Array) -> tuple[MonotoneScore, Array] | None:
        """ψ of what φ leaves, with mean zero, and ψ/E ψ′ of every row times its share."""
        family, v = self.family, self.family.v
        noise = (family.y - family.Q @ phi) / self.sizes
        score = learn_score(noise, v)
        if score is None:
            return None
        psi, slopes = score.both(noise)
        mean = float(v @ psi)
        pull = v * (psi - mean) / max(float(v @ slopes), _TINY)
        return replace(score, values=score.values - mean), pull

    def step(self, pull: Array) -> Array:
        """Of φ."""
        return np.asarray((pull @ self.a) @ self.inverse[:, :-1])

    def moves(self, pull: Array) -> Array:
        """How far every row moves φ."""
        return np.asarray((self.a * pull[:, None]) @ self.inverse[:, :-1])

    def variance(self, pull: Array, projection: Array) -> float:
        """Of a part of φ, if what pulls does not depend on x."""
        part = self.inverse[:, :-1] @ projection
        return float(pull @ pull) * float(np.sum(part * (self.products @ part)))


def _enough_rows_decide(start: SizeFit) -> bool:
    """Whether rows with next to no noise are many, as weights 1/s(x)² have it: few have no law."""
    w = start.family.v / start.sizes**2
    return bool(w.sum() ** 2 >= ROWS_PER_COLUMN * start.family.unknowns * (w @ w))
