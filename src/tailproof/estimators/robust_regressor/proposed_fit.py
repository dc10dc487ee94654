"""A second fit of slopes that residuals of a blend propose, and what these are."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.blend import standard_errors
from tailproof.estimators.robust_regressor.dependent_noise import SizeFit, WeightedFit, least_squares_step
from tailproof.estimators.robust_regressor.inference import MOSTLY_PLAIN, Blend
from tailproof.estimators.robust_regressor.law_fit import LawFit
from tailproof.estimators.robust_regressor.monotone_score import ScoreFit
from tailproof.estimators.robust_regressor.noise_equations import BySize, slopes_told
from tailproof.estimators.robust_regressor.noise_growth import Growth, columns_of, exclusive_sets
from tailproof.estimators.robust_regressor.scaled_rows import gram
from tailproof.estimators.robust_regressor.score_equations import ByScore
from tailproof.estimators.robust_regressor.second_fit import LearnedAcross
from tailproof.estimators.robust_regressor.small_systems import inverse_of, product
from tailproof.estimators.robust_regressor.truncation_path import normal_score
from tailproof.estimators.robust_regressor.tuning import Tuning

_RELIEF = 2.5  # normal scores that trust in sizes can take back
_TINY = 1e-300


@dataclass(frozen=True)
class Proposal:
    """A second fit.

    Attributes
    ----------
    phi : array of shape (rank,)
        Where it is from the blend.
    moves : array of shape (n, rank)
        How far rows move that distance.
    weight : float
        Its share in the model that has the least predicted risk.
    agreement : float
        From 1, least squares does not contradict it, to 0.
    variance, covariance : float
        Of the distance, and of that with the second fit itself.
    score, size : ScoreFit or SizeFit
        One of the two.
    trust : float
        In sizes of the noise, from 0 to 1, where they say how sure least squares and held-out rows are.
    law : LawFit or None
        What a fit by size that is to be continued on more rows has taken slopes over from.
    """

    phi: Array
    moves: Array
    weight: float
    agreement: float
    variance: float
    covariance: float
    score: ScoreFit | None = None
    size: WeightedFit | None = None
    trust: float = 0.0
    law: LawFit | None = None

    @property
    def share(self) -> float:
        """In the model."""
        return self.weight * self.agreement

    def equations(self, residuals: Residuals) -> ByScore | BySize:
        """What it solves, for more rows."""
        blend = residuals.blend
        size = self.law.start if self.law else self.size
        if isinstance(size, SizeFit):
            return size.equations(blend.phi, blend.path.basis.map, residuals.growth.told)
        assert self.score is not None
        B, fit, sets = blend.path.basis.least_slopes, self.score, exclusive_sets(columns_of(blend.rows))
        middle = blend.rows.tile_to_columns(blend.rows.mean_tile)
        theta, told = B @ (blend.phi + self.phi), residuals.growth.told
        return ByScore(fit.score, theta, B, fit.mean, fit.information, sets, middle, told)

    def learned_across(self, residuals: Residuals) -> LearnedAcross | None:
        """What is known for more rows of slopes across the columns that noise grows along, if it does."""
        blend, told = residuals.blend, residuals.growth.told
        start, to_columns = self.law.start if self.law else self.size, blend.path.basis.map
        if self.size is None or not isinstance(start, SizeFit) or start.columns.size + 1 >= len(to_columns):
            return None
        part = slopes_told(to_columns, told, start.columns)
        squares = float(np.sum(self.size.family.v**2))
        apart, modelled = product(self.moves, part), product(self.size.moves, part)
        law = self.law.equations(blend.phi, to_columns) if self.law else None
        variance, covariance = float(np.vdot(apart, apart)), float(np.vdot(modelled, apart))
        return LearnedAcross(law, variance / squares, covariance / squares)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Of a blend: whitened rows Q, residuals r, shares v of the rows, and what it missed held-out rows by.

    The constant of ``missed`` does not matter; rows of one fold are held out together. ``growth`` is what a
    quick look at the residuals has found.
    """

    blend: Blend
    Q: Array
    r: Array
    v: Array
    missed: Array
    folds: Sequence[NDArray[np.intp]]
    growth: Growth

    @functools.cached_property
    def slopes_told(self) -> Array:
        """Projection of φ to slopes that more than a few rows tell of."""
        return slopes_told(self.blend.path.basis.map, self.growth.told)

    @functools.cached_property
    def freedom(self) -> int:
        """How many these are, or one."""
        return max(round(float(np.trace(self.slopes_told))), 1)

    @functools.cached_property
    def tell_all_slopes(self) -> bool:
        """Whether they do so of all slopes."""
        return bool(np.isin(np.flatnonzero(self.blend.path.basis.seen), self.growth.told).all())

    @property
    def tuning(self) -> Tuning:
        """Numbers of the estimator."""
        return self.blend.rows.tuning

    @functools.cached_property
    def step_to_least_squares(self) -> tuple[Array, Array]:
        """From the blend, and how far rows move it."""
        return least_squares_step(self.Q, self.r, self.v, self.inverse)

    @functools.cached_property
    def inverse(self) -> Array:
        """Of the Gram matrix of the rows."""
        return inverse_of(gram(self.Q, self.v))

    @property
    def mostly_plain(self) -> bool:
        """Whether the blend is least squares but for a little: there is no score to gain from."""
        return bool(self.blend.weights[np.isinf(self.blend.path.levels.tau)].sum() >= MOSTLY_PLAIN)

    def conflict(self, distance: Array, variance: float) -> float:
        """Normal score of a distance of slopes, whose coordinates have the variance given."""
        known = distance if self.tell_all_slopes else self.slopes_told @ distance
        chi = known @ known / max(variance, _TINY)
        return float(normal_score(np.array(chi), self.freedom))

    def left_out(self, found: Proposal) -> Array:
        """What the second fit changes in the predictions of held-out rows, but for a constant.

        Leaving a fold out takes away what its rows have moved.
        """
        kept = np.maximum(1.0 - self._inside @ self.v, _TINY)
        moved = (self._inside @ found.moves) / kept[:, None]
        change = self.Q @ found.phi - np.einsum("ij,ij->j", self._inside, moved @ self.Q.T)
        return np.asarray(change - self.v @ change)

    @functools.cached_property
    def _inside(self) -> Array:
        """Ones where folds, as rows, have rows, as columns."""
        inside = np.zeros((len(self.folds), self.r.size))
        for k, fold in enumerate(self.folds):
            inside[k, fold] = 1.0
        return inside

    def worse(self, found: Proposal, change: Array, delta: float) -> float:
        """By how many standard errors a change of their predictions makes losses of held-out rows worse."""
        gaps = (change * (change - 2.0 * self.missed))[None]
        weights = None if self.blend.rows.even else self.blend.rows.weights
        error = float(standard_errors(gaps, weights, self.tuning)[0])
        if not error > 0:
            return 0.0
        mean = resistant_mean(gaps[0], delta, weights, informative_share=self.blend.path.informative_share)
        if found.size is None:
            return mean / error
        predicted = 2.0 * float(np.linalg.norm(self.v * change * found.size.predicted_noise))
        return relieved(mean / error, mean / max(error, predicted), found.trust)


def relieved(score: float, predicted: float, trust: float) -> float:
    """A normal score by residuals, or the lesser one by predicted errors, if it is not too far below.

    A mean that bends along a column has scores of twenty, quiet rows of four.
    """
    return max(score - trust * _RELIEF, min(score, predicted))
