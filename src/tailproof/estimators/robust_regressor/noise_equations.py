"""Conditions of slopes where the noise is s(x) times one law: scores that vanish in sum over all rows.

A step takes the sums of one pass over the rows, wherever these are
(:mod:`~tailproof.estimators.robust_regressor.second_fit`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tailproof.core import Array
from tailproof.estimators.robust_regressor.scaled_rows import Whitening, gram, over_sizes
from tailproof.estimators.robust_regressor.small_systems import inverse_of, solved
from tailproof.native.size_pass import SizePass, SizePassSums
from tailproof.native.size_scores import (
    SizedScore,
    SizeModel,
    SizeSlopes,
    lengths_of_rows,
    size_sums,
    sizes_of_rows,
)

_CONSTANT = 1e-9  # variance of a scaled column of one value, which rounding may leave
_ALIKE = 1e-9  # of the largest: what directions have that columns do not span
_LARGEST = 100.0  # of log s(x): squares of s are numbers
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class BySize:
    """Slopes where the noise is s(x) times one law: the three conditions of ``dependent_noise``.

    Attributes
    ----------
    theta : array of shape (width,)
    kappa : float
    gamma : array of shape (m,)
    map : array of shape (width, rank)
        To white coordinates.
    inverse : array of shape (rank + 1 + m, rank + 1 + m)
        Of the derivatives of the conditions.
    to_moves : array of shape (rank, rank + 1 + m)
        What scores are multiplied with to tell how far a row moves slopes: an inverse that stays while steps
        change theirs, since errors must not depend on which rows, wherever they are, have led the last step.
    tau, offset, middle : float
        Truncation of u, what is added to |u| before its logarithm, and the mean of that, which stays as the
        few have it: it tells s(x) and the truncation apart.
    least : float
        Of log s(x): no row is to weigh more than one of the few. How large it may be has no limit, since rows
        whose noise is taken for less than it is would decide about κ.
    reach : float
        Of columns, in their scales; beyond it s(x) grows but does not shrink.
    columns : array of int
        Along which noise grows.
    both_sides : bool
        Whether absolute values of the columns count too.
    error : float
        Standard error of the slopes, as a length in white coordinates, times the root of the number of rows.
    told : array of int, optional
        Columns that more than a few of the few rows told of: along these least squares may contradict.
    """

    theta: Array
    kappa: float
    gamma: Array
    map: Array
    inverse: Array
    to_moves: Array
    tau: float
    offset: float
    middle: float
    least: float
    reach: float
    columns: NDArray[np.intp]
    both_sides: bool
    error: float
    told: NDArray[np.intp] | None = None

    def features(self, Z: Array) -> Array:
        """What log s(x) is linear in."""
        z = np.clip(Z[:, self.columns], -self.reach, self.reach)
        return np.column_stack([z, *([np.abs(z)] if self.both_sides else []), np.ones(len(z))])

    def sizes(self, Z: Array) -> Array:
        """s(x) of rows."""
        return sizes_of_rows(Z, self._model)

    @cached_property
    def _model(self) -> SizeModel:
        sizes = self.columns.astype(np.int64, copy=False), self.both_sides, np.ascontiguousarray(self.gamma)
        ends = self.reach, self.least, _LARGEST
        return SizeModel(*sizes, *ends, self.kappa, self.tau, self.offset, self.middle)

    def sums(self, Z: Array, y: Array, v: Array, plain: Array, reach: Array) -> Array:
        """Of scores, v and v², and of squares of what rows move the distance to least squares by."""
        return self._in_coordinates(size_sums(Z, y, v, self.theta, plain, self._model, self._distances))

    def step_sums(self, Z: Array, y: Array, v: Array) -> Array:
        """The same with zeros for squares: these judge slopes, lead nowhere, and take most of the time."""
        return self._in_coordinates(size_sums(Z, y, v, self.theta, self.theta, self._model))

    def score_sums(self, Z: Array, y: Array, v: Array) -> Array:
        """Of scores alone."""
        return self.step_sums(Z, y, v)[: len(self.inverse)]

    def adding(self, asked: SizePass, plain: Array, judged: bool, score: SizedScore | None) -> SizePassSums:
        """What adds rows of a pass to the same sums, and to others that the pass asks for."""
        matrix = self._distances if judged else None
        slopes = SizeSlopes.of(self.theta, plain, self._model, matrix)
        return SizePassSums(self._model, slopes, asked, score)

    def added(self, adding: SizePassSums) -> Array:
        """The sums that it has by now."""
        return self._in_coordinates(adding.scores)

    def _in_coordinates(self, sums: Array) -> Array:
        """Sums over columns as sums over white coordinates, and zeros for squares that are not there."""
        width = self.theta.size
        pulls, others = sums[:width], sums[width:]
        squares = np.zeros(len(self.inverse) - self.map.shape[1] + 2 + width - others.size)
        return np.concatenate([pulls @ self.map, others, squares])

    @cached_property
    def _distances(self) -> Array:
        """What makes moves of the distance to least squares of the parts of a row's scores."""
        rank = self.map.shape[1]
        by_scores = (self.map @ self.to_moves).T
        return np.vstack([self.map @ by_scores[:rank], -self.map @ self.map.T, by_scores[rank:]])

    def _parts(self, sums: Array) -> list[Array]:
        end = len(self.inverse)
        return [sums[:end], sums[end : end + 2], sums[end + 2 :]]

    def stepped(self, sums: Array, share: float = 1.0) -> tuple[BySize, float]:
        """A step by the inverse of the derivatives, or a share of it; its length is that of slopes alone."""
        step = self.step(sums)
        return self.after(share * step), self.length(step, sums)

    def step(self, sums: Array) -> Array:
        """Of φ, κ and γ."""
        return np.asarray(self.inverse @ sums[: len(self.inverse)]) / self.total(sums)

    def after(self, step: Array) -> BySize:
        """Where a step of φ, κ and γ leads."""
        phi, kappa, gamma = np.split(step, [self.map.shape[1], self.map.shape[1] + 1])
        return replace(
            self,
            theta=self.theta + self.map @ phi,
            kappa=self.kappa + float(kappa[0]),
            gamma=self.gamma + gamma,
        )

    def length(self, step: Array, sums: Array) -> float:
        """Of the slopes in a step, in standard errors."""
        _, (_, squares), _ = self._parts(sums)
        error = self.error * math.sqrt(float(squares)) / self.total(sums)
        slopes = without_constant(self.map, step[: self.map.shape[1]])
        return float(np.linalg.norm(slopes)) / max(error, _TINY)

    def total(self, sums: Array) -> float:
        """Σ v."""
        return max(float(self.weights_of(sums)[0]), _TINY)

    def weights_of(self, sums: Array) -> Array:
        """Σ v and Σ v²."""
        return self._parts(sums)[1]

    def lengths(self, Z: Array, to: Array) -> Array:
        """Squares of rows for which white rows over s, 1 and f are long, after a product with a matrix."""
        return lengths_of_rows(Z, self._model, self.of_columns(to))

    def of_columns(self, to: Array) -> Array:
        """What rows over s, 1 and f are multiplied with, given that for white rows."""
        rank = self.map.shape[1]
        return np.vstack([self.map @ to[:rank], to[rank:]])

    def curvature(self, Z: Array, y: Array, v: Array) -> Array:
        """Products of white rows over s, 1 and f; and last sums of what multiplies them."""
        s, f = self.sizes(Z), self.features(Z)
        u = (y - Z @ self.theta) / s - self.kappa
        every = over_sizes(Z, self.map, s, f)
        inside, pull = np.abs(u) <= self.tau, np.sign(u) / (np.abs(u) + self.offset)
        size = u + self.kappa
        means = np.zeros(every.shape[1])
        means[:5] = v.sum(), v @ inside, (v * inside) @ size, v @ pull, (v * pull) @ size
        return np.vstack([gram(every, v), means])

    def curved(self, sums: Array) -> BySize:
        """Derivatives if u does not depend on x: means of products are products of means."""
        total, *means = sums[-1, :5]
        shares = (float(mean) / float(total) for mean in means)
        derivatives = expected_derivatives(sums[:-1] / total, self.map.shape[1], *shares)
        return replace(self, inverse=inverse_of(derivatives))

    def conflict(self, sums: Array, plain: Array, apart: float) -> float:
        """By the largest distance along a column, in its own standard errors, and Bonferroni."""
        return self._conflict_along(self.asked, sums, plain)

    def conflict_across(self, sums: Array, plain: Array) -> float:
        """The same along the columns that the noise does not grow along."""
        return self._conflict_along(np.setdiff1d(self.asked, self.columns), sums, plain)

    @property
    def know_all(self) -> bool:
        """Whether the few told enough of every column; else a part of more rows may lack a category too."""
        return bool(np.isin(np.flatnonzero(seen_columns(self.map)), self.asked).all())

    @property
    def asked(self) -> NDArray[np.intp]:
        """Columns along which least squares may contradict."""
        return np.arange(self.theta.size - 1) if self.told is None else self.told

    def _conflict_along(self, columns: NDArray[np.intp], sums: Array, plain: Array) -> float:
        errors = self.distance_errors(sums)[columns]
        t = float(np.max(np.abs(self.theta - plain)[columns] / np.maximum(errors, _TINY), initial=0.0))
        chance = 2.0 * max(self.map.shape[1] - 1, 1) * float(special.ndtr(-t))
        return float(-special.ndtri(np.clip(chance, 1e-300, 0.5)))

    def part_across(self, theta: Array) -> Array:
        """What of a change of θ is across the columns that the noise grows along, in white coordinates."""
        return np.asarray(self._across @ coordinates_of(self.map, theta))

    @cached_property
    def _across(self) -> Array:
        return across(self.map, self.columns)

    def distance_errors(self, sums: Array) -> Array:
        """Standard errors of the distance to least squares along columns."""
        *_, squares = self._parts(sums)
        return np.asarray(np.sqrt(squares) / self.total(sums))

    def suits(self, slopes: Array, errors: Array, size: float) -> bool:
        """Always: it is what the few rows have found."""
        return True


def expected_derivatives(
    products: Array, rank: int, inside: float, inside_size: float, pull: float, pull_size: float
) -> Array:
    """Derivatives of the three conditions by φ, κ and γ, if u does not depend on x.

    Parameters
    ----------
    products : array of shape (rank + 1 + m, rank + 1 + m)
        Means of products of rows over s(x), 1 and f.
    rank : int
    inside, inside_size : float
        Share of rows that are not truncated, and the mean of u + κ over these, times their share.
    pull, pull_size : float
        Means of the derivative of log(|u| + c), and of that times u + κ.
    """
    by = np.arange(len(products)) <= rank  # φ and κ, or else γ
    found = products * np.where(by, pull, pull_size)
    found[:rank] = products[:rank] * np.where(by, inside, inside_size)
    found[rank] = np.where(np.arange(len(products)) < rank, products[rank], 0.0)
    return np.asarray(found)


def inverse_beside(derivatives: Array, direction: Array) -> Array:
    """Of derivatives, where one direction, of length one, stays."""
    free = np.eye(len(derivatives)) - np.outer(direction, direction)
    return np.linalg.pinv(free @ derivatives @ free, rcond=_ALIKE, hermitian=True)


def without_constant(to_columns: Array, phi: Array) -> Array:
    """φ, or rows of it, without the direction of the constant, given B with θ = Bφ for scaled columns."""
    constant = constant_of(to_columns)
    return np.asarray(phi - np.multiply.outer(phi @ constant, constant))


def across(to_columns: Array, columns: NDArray[np.intp]) -> Array:
    """Projection of φ to functions of rows that are not correlated with some columns, nor with the constant.

    Parameters
    ----------
    to_columns : array of shape (width, rank)
        B with θ = Bφ for scaled columns, white rows having coordinates φ.
    columns : array of int
    """
    along = without_constant(to_columns, coordinates_of(to_columns, np.eye(len(to_columns))[columns]))
    _, lengths, directions = np.linalg.svd(along, full_matrices=False)
    spanned = directions[lengths > _ALIKE * lengths.max(initial=_TINY)]
    return without_constant(to_columns, np.eye(to_columns.shape[1])) - spanned.T @ spanned


def slopes_told(to_columns: Array, told: NDArray[np.intp], along: NDArray[np.intp] | tuple[()] = ()) -> Array:
    """Projection of φ to slopes without those of columns that too few rows tell of.

    Of a category with one row, least squares leaves a residual of zero, which says nothing of its error.

    Parameters
    ----------
    to_columns : array of shape (width, rank)
    told : array of int
        The other columns.
    along : array of int, optional
        Columns whose slopes are left out as well.
    """
    untold = np.setdiff1d(np.flatnonzero(seen_columns(to_columns)), told)
    aside = np.union1d(untold, along).astype(np.intp)
    if aside.size:
        return across(to_columns, aside)
    return without_constant(to_columns, np.eye(to_columns.shape[1]))


def seen_columns(to_columns: Array) -> NDArray[np.bool_]:
    """Which columns varied where the map was made: a constant one may have a part of the constant."""
    columns = without_constant(to_columns, coordinates_of(to_columns, np.eye(len(to_columns))[:-1]))
    return np.asarray((columns**2).sum(axis=1) > _CONSTANT)


def with_more_directions(to_columns: Array, basis: Whitening) -> Array:
    """Also for other directions that rows vary in: there they are white, and not correlated with these."""
    others = np.linalg.svd(basis.coordinates(to_columns))[0][:, to_columns.shape[1] :]
    return np.hstack([to_columns, basis.map @ others])


def constant_of(to_columns: Array) -> Array:
    """That direction in white coordinates, of length one."""
    constant = coordinates_of(to_columns, np.eye(len(to_columns))[-1])
    return np.asarray(constant / max(float(np.linalg.norm(constant)), _TINY))


def coordinates_of(to_columns: Array, theta: Array) -> Array:
    """The φ closest to θ, or to rows of these, given B, whose columns are independent."""
    return solved(to_columns.T @ to_columns, (theta @ to_columns).T).T
