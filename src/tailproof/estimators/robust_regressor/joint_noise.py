"""Slopes where noise grows with x, by its size and the law of what is left, both learned.

If the noise at x is s(x)ε, ε has one law with mean zero and log s(x) = γ'f(x), scores of φ and γ that do not
depend on what that law is (they are orthogonal to whatever else it could be) are

    h(ε)(a − m) + mε/σ²,    (h(ε)ε − mean)(f − f̄),    a = q/s(x),  m = E a,  σ² = E ε²,

with h = ψ − E ψ the score of the law. The best increasing ψ is learned from ε = (y − q'φ)/s(x)
(:mod:`~tailproof.estimators.robust_regressor.monotone_score`). Learning it and a step of φ and γ take turns.
Where ε is skewed, the edge of its short tail tells both far better than a truncated fit tells slopes, and
logarithms of |ε| tell sizes. The mean of ε, which rows in the long tail tell, counts along m alone.

If ε does not depend on x, derivatives of the sums are products of means: with C the covariance of (a, f),

    E h′ C_aa + mm'/σ²,    E h′ε C_af,    (E h′ε² + E hε) C_ff.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.dependent_noise import SizeFit, WeightedFit
from tailproof.estimators.robust_regressor.monotone_score import learn_score
from tailproof.estimators.robust_regressor.scale_family import SIZE_ENDS
from tailproof.estimators.robust_regressor.scaled_rows import gram
from tailproof.estimators.robust_regressor.small_systems import product, rank_of, regular_inverse, solved
from tailproof.native.scores import pulls_of_noise
from tailproof.native.size_steps import noise_over_sizes

_ROUNDS, _FEWEST = 6, 3
_SETTLED = 0.03  # of the variance of slopes: steps whose squares are smaller are not taken
_SHRINKS = 0.5  # of the square before, or less: others go to and fro as the law that is learned anew does
_FAR = 0.1  # change of log s(x) that covariances of rows over their sizes bear
_ALIKE = 1e-10  # of the largest variance: what directions have that are not told apart
_APART = 1e-8  # inverse condition number of directions that surely are
_LEARNED = 1.4  # factor of standard errors: squares of errors were 1 to 2.5 times those without it
_TINY = 1e-300


@dataclass(frozen=True)
class _Pulls:
    """What multiplies a − m, m and f in the scores of every row."""

    rows: Array
    mean: Array
    sizes: Array


@dataclass(frozen=True)
class _Place:
    """φ and γ, and what they make of rows: sizes, ε, m and pulls; and factors of derivatives.

    These are E h′, E h′ε, E h′ε² + E hε and 1/σ².
    """

    phi: Array
    gamma: Array
    sizes: Array
    noise: Array
    mean_row: Array
    pulls: _Pulls
    factors: tuple[float, ...]


@dataclass(frozen=True)
class JointNoise:
    """Rows whose noise is s(x) times one law.

    Attributes
    ----------
    Q : array of shape (n, rank)
        Whitened rows.
    y : array of shape (n,)
    features : array of shape (n, m)
        What log s(x) is linear in but for a constant, which the law has: their means are zero.
    v : array of shape (n,)
        Shares of the rows, which add up to one.
    """

    Q: Array
    y: Array
    features: Array
    v: Array

    def at(self, phi: Array, gamma: Array) -> _Place | None:
        """What rows are like there, None where nothing can be learned."""
        found = noise_over_sizes(self.Q, self.y, self.features, self.v, phi, gamma, SIZE_ENDS)
        score = None if found is None else learn_score(found[1], self.v)
        if found is None or score is None:
            return None
        sizes, noise, mean_row = found
        *pulls, factors = pulls_of_noise(noise, self.v, score.knots, score.values, _TINY)
        return _Place(phi, gamma, sizes, noise, mean_row, _Pulls(*pulls), tuple(factors.tolist()))

    def moved(self, place: _Place, matrix: Array) -> Array:
        """Scores of every row, φ's before γ's, times its share and a matrix."""
        pulls, rank = place.pulls, place.phi.size
        parts = np.empty((len(self.Q), rank + 1 + self.features.shape[1]), order="F")
        np.multiply(self.Q, (pulls.rows / place.sizes)[:, None], out=parts[:, :rank])
        np.subtract(pulls.mean, pulls.rows, out=parts[:, rank])
        np.multiply(self.features, pulls.sizes[:, None], out=parts[:, rank + 1 :])
        return product(parts, np.vstack([matrix[:rank], place.mean_row @ matrix[:rank], matrix[rank:]]))

    def sums(self, place: _Place) -> Array:
        """Of the scores, without an array of these."""
        pulls = place.pulls
        of_phi = (pulls.rows / place.sizes) @ self.Q + (pulls.mean - pulls.rows).sum() * place.mean_row
        return np.append(of_phi, pulls.sizes @ self.features)

    def covariance(self, place: _Place) -> Array:
        """Of a and f."""
        rank, m = place.phi.size, place.mean_row
        both = np.concatenate([self.Q.T / place.sizes, self.features.T]).T
        found = gram(both, self.v)
        found[:rank, :rank] -= np.multiply.outer(m, m)
        return np.asarray(found)

    def derivatives(self, place: _Place, covariance: Array) -> Array:
        """Of their mean, if ε does not depend on x, with the other sign."""
        return _in_parts(covariance, place.mean_row, *place.factors)

    def squares(self, place: _Place, covariance: Array) -> Array:
        """Sum of the products of scores of rows, if ε does not depend on x."""
        rows, mean, sizes = place.pulls.rows, place.pulls.mean, place.pulls.sizes
        parts = rows @ rows, rows @ sizes, sizes @ sizes, mean @ mean
        return _in_parts(covariance, place.mean_row, *map(float, parts))

    @functools.cached_property
    def products(self) -> Array:
        """Of features."""
        return gram(self.features, self.v)

    @property
    def _few(self) -> float:
        """Factor of standard errors for unknowns that rows tell as well, as far as these differ."""
        unknowns = self.Q.shape[1] + rank_of(self.products)
        return math.sqrt(1.0 / max(1.0 - unknowns * float(self.v @ self.v), 0.1))

    def solve(self, phi: Array, gamma: Array, constant: Array) -> tuple[_Place, Array] | None:
        """Where steps from φ and γ lead, and how far every row moves φ there; None where they lead nowhere.

        ``constant`` is the direction of the intercept, of length one: only slopes have to settle.
        """
        covariance: Array = np.zeros((0, 0))
        rank, change, before = phi.size, np.zeros_like(gamma), np.inf
        for number in range(1, _ROUNDS + 1):
            place = self.at(phi, gamma)
            if place is None:
                return None
            if not covariance.size or change @ self.products @ change > _FAR**2:
                covariance, change = self.covariance(place), np.zeros_like(gamma)
            inverse = _inverse(self.derivatives(place, covariance))
            if inverse is None:
                return None
            of_phi, step = inverse[:, :rank], self.sums(place) @ inverse
            of_slopes = of_phi - np.multiply.outer(of_phi @ constant, constant)
            along = step[:rank] - (step[:rank] @ constant) * constant
            variance = float(np.sum(of_slopes * (self.squares(place, covariance) @ of_slopes)))
            length = float(along @ along)
            restless = number >= _FEWEST and length > _SHRINKS * before
            if restless or number == _ROUNDS or length <= _SETTLED * variance:
                return place, self.moved(place, (self._few * _LEARNED) * of_phi)
            phi, gamma, change, before = phi + step[:rank], gamma + step[rank:], change + step[rank:], length
        return None


def _in_parts(covariance: Array, mean: Array, rows: float, both: float, sizes: float, means: float) -> Array:
    """A covariance of rows and features with a factor for each part, and mm' of the rows with another."""
    rank, found = mean.size, both * covariance
    found[:rank, :rank] = rows * covariance[:rank, :rank] + means * np.multiply.outer(mean, mean)
    found[rank:, rank:] = sizes * covariance[rank:, rank:]
    return np.asarray(found)


def _inverse(matrix: Array) -> Array | None:
    """Of a symmetric matrix whose columns have sizes of their own; None where numbers do not hold it."""
    size = np.sqrt(np.maximum(np.abs(np.diag(matrix)), _TINY))
    scaled = matrix / np.multiply.outer(size, size)
    if not np.isfinite(scaled).all():
        return None
    inverse = regular_inverse(scaled, _APART)
    if inverse is None:
        inverse = np.linalg.pinv(scaled, rcond=_ALIKE, hermitian=True)
    return np.asarray(inverse / np.multiply.outer(size, size))


def fit_jointly(start: SizeFit, constant: Array) -> WeightedFit | None:
    """A fit by size once more, with the law of its noise; None where that does not settle.

    An edge that sizes place a little off spoils slopes far more than weights that are a little off. So beside
    z and |z|, for which noise grows exponentially, log(1 + |z|) is what log s(x) is linear in.

    Parameters
    ----------
    start : SizeFit
    constant : array of shape (rank,)
        Direction of the intercept, of length one.
    """
    family, count = start.family, start.columns.size
    z, v = family.features[:, :count], family.v
    both_sides = family.features.shape[1] > count + 1
    f = np.concatenate([z.T, np.abs(z.T), np.log1p(np.abs(z.T))]).T if both_sides else z
    joint = JointNoise(family.Q, family.y, f - v @ f, v)
    log = np.log(start.sizes)
    gamma = solved(joint.products, joint.features.T @ (v * (log - v @ log)))
    found = joint.solve(start.phi, gamma, constant)
    if found is None:
        return None
    place, moves = found
    return WeightedFit(place.phi, moves, place.sizes, place.noise, family)
