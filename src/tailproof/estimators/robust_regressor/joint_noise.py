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

import math
from dataclasses import dataclass

import numpy as np

from tailproof.core import Array
from tailproof.core.numerics.quantiles import quantiles
from tailproof.estimators.robust_regressor.dependent_noise import SizeFit, WeightedFit
from tailproof.estimators.robust_regressor.monotone_score import learn_score
from tailproof.estimators.robust_regressor.scale_family import SIZE_ENDS
from tailproof.estimators.robust_regressor.scaled_rows import gram
from tailproof.estimators.robust_regressor.small_systems import rank_of, regular_inverse, solved

_ROUNDS = 6
_SETTLED = 0.01  # of the variance of slopes: steps whose squares are smaller are not taken
_ALIKE = 1e-10  # of the largest variance: what directions have that are not told apart
_APART = 1e-8  # inverse condition number of directions that surely are
_LEARNED = 1.4  # factor of standard errors: squares of errors were 1 to 2.5 times those without it
_TINY = 1e-300


@dataclass(frozen=True)
class _Place:
    """φ and γ, and what they make of rows: sizes, ε, a − m beside f, m, h and h′."""

    phi: Array
    gamma: Array
    sizes: Array
    noise: Array
    design: Array
    mean_row: Array
    h: Array
    slope: Array


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

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def at(self, phi: Array, gamma: Array) -> _Place | None:
        """What rows are like there; None where nothing can be learned."""
        log = self.features @ gamma
        low, high = quantiles(log, SIZE_ENDS)
        sizes = np.exp(np.clip(log, low, high))
        noise = (self.y - self.Q @ phi) / sizes
        score = learn_score(noise, self.v) if np.isfinite(noise).all() else None
        if score is None:
            return None
        psi, slope = score.both(noise)
        rank = self.Q.shape[1]
        design = np.empty((noise.size, rank + gamma.size))
        rows = np.divide(self.Q, sizes[:, None], out=design[:, :rank])
        mean_row = self.v @ rows
        rows -= mean_row
        design[:, rank:] = self.features
        return _Place(phi, gamma, sizes, noise, design, mean_row, psi - self.v @ psi, slope)

    def scores(self, place: _Place) -> Array:
        """Of every row, times its share, φ's before γ's."""
        rank, e, v = self.Q.shape[1], place.noise, self.v
        tall, both = place.h * e, np.empty_like(place.design)
        np.multiply(place.design[:, :rank], (v * place.h)[:, None], out=both[:, :rank])
        np.multiply(place.design[:, rank:], (v * (tall - v @ tall))[:, None], out=both[:, rank:])
        both[:, :rank] += np.multiply.outer(v * e, place.mean_row / self._spread(e))
        return both

    def derivatives(self, place: _Place) -> Array:
        """Of their mean, if ε does not depend on x, with the other sign."""
        rank, v, e, slope = self.Q.shape[1], self.v, place.noise, place.slope
        by, size = np.arange(len(place.design.T)) < rank, float(v @ (slope * e))
        tall = float(v @ (slope * e**2) + v @ (place.h * e))
        factors = np.where(np.logical_and.outer(by, by), float(v @ slope), size)
        factors[rank:, rank:] = tall
        found = gram(place.design, v) * factors
        found[:rank, :rank] += np.outer(place.mean_row, place.mean_row) / self._spread(e)
        return np.asarray(found)

    @property
    def _few(self) -> float:
        """Factor of standard errors for unknowns that rows tell as well, as far as these differ."""
        unknowns = self.Q.shape[1] + rank_of(gram(self.features, self.v))
        return math.sqrt(1.0 / max(1.0 - unknowns * float(self.v @ self.v), 0.1))

    def _spread(self, noise: Array) -> float:
        return max(float(self.v @ (noise - self.v @ noise) ** 2), _TINY)

    def solve(self, phi: Array, gamma: Array, constant: Array) -> tuple[_Place, Array] | None:
        """Where steps from φ and γ lead, and how far every row moves φ there; None where they lead nowhere.

        ``constant`` is the direction of the intercept, of length one: only slopes have to settle.
        """
        rank = phi.size
        for left in reversed(range(_ROUNDS)):
            place = self.at(phi, gamma)
            inverse = None if place is None else _inverse(self.derivatives(place))
            if place is None or inverse is None:
                return None
            scores, of_phi = self.scores(place), inverse[:, :rank]
            slopes = scores @ (of_phi - np.multiply.outer(of_phi @ constant, constant))
            along = slopes.sum(axis=0)
            if not left or along @ along <= _SETTLED * float(np.vdot(slopes, slopes)):
                return place, (self._few * _LEARNED) * (scores @ of_phi)
            step = scores.sum(axis=0) @ inverse
            phi, gamma = phi + step[:rank], gamma + step[rank:]
        return None


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
    f = np.column_stack([z, np.abs(z), np.log1p(np.abs(z))]) if both_sides else z
    joint = JointNoise(family.Q, family.y, f - v @ f, v)
    log = np.log(start.sizes)
    gamma = solved(gram(joint.features, v), joint.features.T @ (v * (log - v @ log)))
    found = joint.solve(start.phi, gamma, constant)
    if found is None:
        return None
    place, moves = found
    return WeightedFit(place.phi, moves, place.sizes, place.noise, family)
