"""What one pass over all rows adds up for a second fit by what was learned about the noise.

Sums of scores are a few numbers for each column. Where sizes of the noise are modelled there are those for
the level as well, and for a law of what is left over these sizes.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.automatic import share_of_informative_rows
from tailproof.core.means import values_needed
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.core.validate import resistant_mean
from tailproof.data.leverage import root_of_leverages
from tailproof.estimators.robust_regressor.law_equations import ByLaw
from tailproof.estimators.robust_regressor.noise_equations import BySize
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.score_equations import ByScore
from tailproof.estimators.robust_regressor.score_steps import curvature_of_rows
from tailproof.estimators.robust_regressor.second_fit import Level, rest_of_rows
from tailproof.estimators.robust_regressor.sized_steps import solved_by_law
from tailproof.native.scaling import scale_rows
from tailproof.native.size_pass import SizePass, SizePassSums

_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class PassRows:
    """How a pass has its rows: scaled columns are (x − offset)/scale; so many go to one block together."""

    offset: Array
    scale: Array
    run: int


class ScoreSums:
    """Adds rows of a pass for slopes by a score.

    Parameters
    ----------
    equations : ByScore
    rows : PassRows
    plain : array of shape (width,)
        θ of least squares.
    first : bool
        Whether it is not known yet how far rows are.
    """

    def __init__(self, equations: ByScore, rows: PassRows, plain: Array, first: bool) -> None:
        self.equations, self.rows, self.plain, self.first = equations, rows, plain, first
        self._total: Array | float = 0.0
        # In memory that is there already: to get it anew takes as long as to scale the rows.
        self._place = np.empty((0, plain.size))

    def add(self, x: Array, y: Array, v: Array | None, numbers: NDArray[np.int64], away: Array) -> None:
        """Add rows, of which it is known how far each is, after the first pass."""
        if len(x) > len(self._place):
            self._place = np.empty((len(x), self.plain.size))
        Z = scale_rows(x, self.rows.offset, self.rows.scale, 1.0, self._place[: len(x)])
        far = np.ones(len(y)) if self.first else away
        self._total = self._total + self.equations.sums(Z, y, v, self.plain, far)

    @property
    def total(self) -> Array | float:
        """The sums so far."""
        return self._total


@dataclass(frozen=True, eq=False)
class SizeSums:
    """The same for slopes by sizes, compiled; so many sums are those of a law."""

    equations: BySize
    adding: SizePassSums
    of_law: int

    def add(self, x: Array, y: Array, v: Array | None, numbers: NDArray[np.int64], away: Array) -> None:
        """Add rows; in the first pass ``away`` has their leverages, which become those here if larger."""
        self.adding.add(x, y, v, numbers, away)

    @property
    def total(self) -> Array:
        """The sums so far."""
        of_law = self.adding.of_score[: self.of_law]
        return np.concatenate([self.equations.added(self.adding), of_law, self.adding.level])


@dataclass(frozen=True, eq=False)
class SecondPass:
    """What one pass adds up: scores, and where sizes of the noise are known what the level needs.

    Parameters
    ----------
    equations : ByScore or BySize
    blocks : int
        Of rows, for a robust scale of the residuals.
    centre, reach : float
        θ and s of Catoni's equation for the level; s is zero before it is known.
    to_leverage : array, optional
        What rows over s, 1 and f are multiplied with: square norms are leverages, of mean one.
    judged : bool
        Whether a fit by size may end with this pass: then it adds up what judges it, else half the time is
        saved.
    law : ByLaw, optional
        Of noise over its size.
    """

    equations: ByScore | BySize
    blocks: int
    centre: float = 0.0
    reach: float = 0.0
    to_leverage: Array | None = None
    judged: bool = True
    law: ByLaw | None = None

    @classmethod
    def of_sample(
        cls, equations: ByScore | BySize, sample: ScaledRows, blocks: int, law: ByLaw | None = None
    ) -> SecondPass:
        """The first one, by rows of a sample."""
        if isinstance(equations, ByScore):
            return cls(equations, blocks)
        curvature = curvature_of_rows(equations, sample)
        products = curvature[:-1] / float(sample.weights.sum())
        law = law and solved_by_law(law, equations, sample)
        return cls(equations.curved(curvature), blocks, to_leverage=root_of_leverages(products), law=law)

    def leverages(self, Z: Array) -> Array:
        """How far rows decide about the derivatives, beside their mean; none where all weigh the same."""
        if self.to_leverage is None or isinstance(self.equations, ByScore):
            return np.zeros(len(Z))
        return self.equations.lengths(Z, self.to_leverage)

    @functools.cached_property
    def count(self) -> int:
        """How many numbers."""
        none, width = np.empty(0), self.equations.theta.size
        scores = self.equations.sums(np.empty((0, width)), none, none, np.zeros(width), none)
        return int(scores.size) + (0 if isinstance(self.equations, ByScore) else self._beside_scores)

    @property
    def _of_level(self) -> int:
        """How many of them are for the level."""
        return 3 * self.blocks + 7

    @property
    def _of_law(self) -> int:
        """How many of them are for the law."""
        return self.equations.theta.size + 1 if self.law is not None else 0

    @property
    def _beside_scores(self) -> int:
        """How many of them are beside the scores of a fit by size."""
        return self._of_law + self._of_level

    def adding(self, rows: PassRows, plain: Array, first: bool) -> ScoreSums | SizeSums:
        """What adds up rows, given θ of least squares: in the first pass nothing that judges the fit."""
        if isinstance(self.equations, ByScore):
            return ScoreSums(self.equations, rows, plain, first)
        to = self.equations.of_columns(self.to_leverage) if first and self.to_leverage is not None else None
        asked = SizePass(rows.offset, rows.scale, to, self.blocks, rows.run, self.centre, self.reach)
        score = None if self.law is None else self.law.sized
        adding = self.equations.adding(asked, plain, self.judged and not first, score)
        return SizeSums(self.equations, adding, self._of_law)

    def of_level(self, sums: Array) -> tuple[Array, Array, Array]:
        """Sums by block, of Catoni's equation, and of squares."""
        cut = np.split(sums[-self._of_level :], [3 * self.blocks, 3 * self.blocks + 2])
        return cut[0].reshape(3, self.blocks), cut[1], cut[2]

    def of_scores(self, sums: Array) -> Array:
        """What the equations have added up."""
        if isinstance(self.equations, ByScore):
            return sums
        return sums[: sums.size - self._beside_scores]

    def of_law(self, sums: Array) -> Array:
        """What the law has added up."""
        assert isinstance(self.equations, BySize)
        end = sums.size - self._of_level
        return np.concatenate(
            [sums[end - self._of_law : end], self.equations.weights_of(self.of_scores(sums))]
        )

    def with_scale(self, sums: Array, delta: float) -> SecondPass:
        """Start and scale of Catoni's equation, by the sums of the first pass."""
        (top, squares, weights), _, (square_weights, *_) = self.of_level(sums)
        means = top / weights
        start = float(weighted_median(means))
        spread = float(
            np.sqrt(weighted_median(np.maximum(squares / weights - (2 * means - start) * start, 0.0)))
        )
        n, log_term = float(weights.sum()) ** 2 / max(float(square_weights), _TINY), 2 * math.log(2 / delta)
        if n < values_needed("catoni", delta):
            return replace(self, centre=start)
        factor = math.sqrt(n / log_term * (1 + log_term / (n - log_term)))
        return replace(self, centre=start, reach=spread * factor)

    def level(self, sums: Array, equations: BySize, rows: ScaledRows, delta: float) -> Level:
        """The mean by the last pass, kept near what most small blocks of the sample's rows say.

        ``equations`` are where the step after it has led.
        """
        _, (top, slope), (_, own, both, even, total) = self.of_level(sums)
        weight = self.of_level(sums)[0][2].sum()
        rest, w = rest_of_rows(equations, rows)
        moved = float(np.average(rest_of_rows(self.equations, rows)[0] - rest, weights=w))
        pooled = self.centre + (self.reach * float(top) / float(slope) if slope > 0 else 0.0) - moved
        informative_share = share_of_informative_rows(rows.y, rest, rows.weights)
        mean = resistant_mean(rest, delta, w, pooled, informative_share)
        return Level.of(mean, float(own) / weight**2, float(both) / (weight * total), float(even) / total**2)
