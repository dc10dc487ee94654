"""Whether the sizes of residuals depend on columns: a quick look at them, before any fit that models it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.linalg import lapack

from tailproof.core import Array
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram

ROWS_PER_COLUMN = 10
ROWS_PER_UNKNOWN = 20
FAR = 10.0  # scales of a column, beyond which noise is as at its end
OFFSET = 0.5  # of the median |u|: the size of those near zero depends on where exactly the middle is
DOUBTFUL = 0.1  # chance that noise seems to grow where it does not; 2/√n for many rows, which show more
CERTAIN = 1e-3
PROBABLE = 0.01
_FEWEST_ROWS = 10.0  # that tell what sizes are along a column, as an effective number
_SIGN = 2.5  # standard errors of a slope of sizes
_CERTAIN_OF_ALL = 1e-6  # less than for one slope, since errors of many add up
_BY_ERRORS = 1e6  # factor of a chance that errors of slopes can make small
_ALIKE = 1e-9  # of the largest variance: what directions have that features do not tell apart
_CONSTANT = 1e-9  # variance of a scaled column of one value, which rounding may leave
_LOOKED_AT = 20  # rows
_TWO_VALUES = 1e-6  # of the distance of two values: what rounding may add
_ROUNDING = 1e-9  # of the largest standard error: what a column of one value has


@dataclass(frozen=True)
class Slopes:
    """Of sizes of residuals along features, with their covariance, and the sets of :func:`exclusive_sets`."""

    values: Array
    covariance: Array
    sets: tuple[NDArray[np.intp], ...] = ()

    @property
    def errors(self) -> Array:
        """Standard errors."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def signs(self) -> NDArray[np.bool_]:
        """Which are further from zero than most would be by chance."""
        return np.asarray(np.abs(self.values) > _SIGN * self.errors)

    def chance_of_any(self, n: int, parameters: int) -> float:
        """That some would be as far from zero without a true one, by Bonferroni; those of a set together."""
        errors = self.errors
        known = errors > _ROUNDING * errors.max(initial=0.0)
        sets = [part for part in (each[known[each]] for each in self._sets) if part.size]
        tests, freedom = min(len(sets), max(parameters - 1, 1)), max(n - parameters, 1)
        alone = [int(part[0]) for part in sets if part.size == 1]
        # The largest of all is the least probable.
        largest = float((np.abs(self.values[alone]) / errors[alone]).max(initial=0.0))
        chances = [self._chance_of(part, freedom) for part in sets if part.size > 1]
        return min([1.0, *(tests * chance for chance in (2.0 * special.stdtr(freedom, -largest), *chances))])

    @property
    def _sets(self) -> Sequence[NDArray[np.intp]]:
        """Those given, or every slope as one."""
        return self.sets or tuple(np.arange(self.values.size)[:, None])

    def _chance_of(self, part: NDArray[np.intp], freedom: int) -> float:
        """That these would be as far from zero together."""
        chi, of_part = Slopes(self.values[part], self.covariance[np.ix_(part, part)])._wald()
        return float(special.fdtrc(of_part, freedom, chi / of_part))

    def chance_of_all(self, n: int) -> float:
        """That they would be as far from zero together, by Wald's test: columns may share what they tell."""
        chi, freedom = self._wald()
        return float(special.fdtrc(freedom, max(n - freedom - 1, 1), chi / freedom))

    def _wald(self) -> tuple[float, int]:
        """Sum of squares of independent normal scores, and how many there are."""
        factor, failed = lapack.dpotrf(self.covariance, lower=True, clean=False)
        diagonal = np.abs(np.diag(factor))
        if not failed and diagonal.min(initial=np.inf) ** 2 > math.sqrt(_ALIKE) * np.trace(self.covariance):
            scores, _ = lapack.dtrtrs(factor, self.values, lower=True)
            return float(scores @ scores), max(self.values.size, 1)
        variances, directions = _told_apart(self.covariance)
        chi = max(float(np.sum((self.values @ directions) ** 2 / variances)), 0.0)
        return chi, max(variances.size, 1)

    def chance(self, n: int, parameters: int) -> float:
        """By the first test, unless the second finds far less: small errors of many slopes add up in it.

        These shift the middle of residuals, and with it their sizes, a little along every column.
        """
        return min(self.chance_of_any(n, parameters), _BY_ERRORS * self.chance_of_all(n))


@dataclass(frozen=True)
class Growth:
    """How far logarithms of sizes of residuals grow along columns.

    Attributes
    ----------
    z : array of shape (n, d)
        Scaled columns, without values far out; zero for those that too few rows tell anything of.
    told : array of int
        The others.
    sizes : array of shape (n,)
    along : Slopes
        Along columns.
    chance : float
        Of these, if there is no true one.
    columns : array of int
        Along which, or along whose absolute values, sizes grow, if chance does not explain that.
    """

    z: Array
    told: NDArray[np.intp]
    sizes: Array
    along: Slopes
    chance: float
    columns: NDArray[np.intp]

    @property
    def probable(self) -> bool:
        """Whether it takes a fit to tell."""
        return self.chance <= PROBABLE

    def doubtful(self, chance: float | None = None) -> bool:
        """Whether chance hardly explains it, or a chance that was found since then."""
        limit = min(DOUBTFUL, 2.0 / math.sqrt(self.sizes.size))
        return (self.chance if chance is None else chance) <= limit


def growth_of_noise(rows: ScaledRows, residuals: Array) -> Growth | None:
    """A quick look at residuals; None where rows are too few for it."""
    v = rows.weights / rows.weights.sum()
    away = np.abs(residuals - weighted_median(residuals))
    typical = float(weighted_median(away))
    if rows.n < ROWS_PER_COLUMN * rows.parameters or not 0 < typical < np.inf:
        return None
    z, sizes = columns_of(rows), np.log(away + OFFSET * typical)
    told = told_columns(z, v)
    if not told.size:
        return Growth(z, told, sizes, Slopes(np.zeros(0), np.zeros((0, 0))), 1.0, told)
    z = z if told.size == z.shape[1] else z * np.isin(np.arange(z.shape[1]), told)
    if rows.n < ROWS_PER_UNKNOWN * rows.parameters:
        along = replace(slopes_of_sizes(z, sizes, v, rows.parameters), sets=exclusive_sets(z))
        return Growth(z, told, sizes, along, along.chance_of_any(rows.n, rows.parameters), np.arange(0))
    f = np.concatenate([z.T, np.abs(z.T)]).T
    moments = _moments(f, sizes, v, rows.even)
    along = replace(_slopes(*moments, z.shape[1], rows.parameters, v), sets=exclusive_sets(z))
    both = _slopes(*moments, f.shape[1], 2 * rows.parameters - 1, v)
    certain = both.chance_of_all(rows.n) <= _CERTAIN_OF_ALL
    columns = np.flatnonzero(both.signs.reshape(2, -1).any(axis=0) & certain)
    # Rounding may be all there is along a column of one value.
    columns = np.intersect1d(columns, told, assume_unique=True)
    return Growth(z, told, sizes, along, along.chance(rows.n, rows.parameters), columns)


def told_columns(z: Array, v: Array) -> NDArray[np.intp]:
    """Columns along which enough rows are away from the mean.

    Of a category with one row or two, nothing tells whether their noise is large or small by chance.
    """
    squares = np.square(z - v @ z)
    variance, alone = v @ squares, v**2 @ np.square(squares)
    return np.flatnonzero((variance > _CONSTANT) & (variance**2 >= _FEWEST_ROWS * alone))


def exclusive_sets(z: Array) -> tuple[NDArray[np.intp], ...]:
    """Columns that are asked together: indicators of which a row has one at most, or else every column alone.

    They are the categories of one column. What these tell together does not depend on whether all of them are
    there, or which one was left out; what each tells beside the others does.

    Examples
    --------
    >>> z = np.array([[1.0, 0, 0, 0.3], [0, 1, 0, 0.5], [0, 0, 1, 0.2]])
    >>> [part.tolist() for part in exclusive_sets(z)]
    [[0, 1, 2], [3]]
    """
    two, share = _of_two_values(z)
    if not two.size:
        return tuple(np.arange(z.shape[1])[:, None])
    both = gram(np.rint(share), None) > 0
    sets: list[list[int]] = []
    for one in range(len(both)):
        fitting = next((each for each in sets if not both[one, each].any()), None)
        if fitting is None:
            sets.append([one])
        else:
            fitting.append(one)
    together = [two[each] for each in sets]
    others = np.setdiff1d(np.arange(z.shape[1]), two, assume_unique=True)
    return tuple(sorted([*together, *others[:, None]], key=lambda part: int(part[0])))


def _of_two_values(z: Array) -> tuple[NDArray[np.intp], Array]:
    """Columns that have two values, from 0 to 1; a few rows tell of most others that they have more."""
    two, share = np.arange(z.shape[1]), np.empty((0, 0))
    for rows in (z[:_LOOKED_AT], z):
        if not two.size:
            break
        values = rows[:, two]
        low, high = values.min(axis=0, initial=np.inf), values.max(axis=0, initial=-np.inf)
        few = rows is not z
        # Few rows may have one value of two, or of many, which columns in other coordinates have by rounding.
        varies = high - low > (_TWO_VALUES * (1.0 + np.abs(high)) if few else 0.0)
        share = (values - low) / np.where(varies, high - low, 1.0)
        fits = np.minimum(share, 1.0 - share).max(axis=0, initial=0.0) <= _TWO_VALUES * (1 + few)
        fits = np.where(varies, fits, few)
        two, share = two[fits], share[:, fits]
    return two, share


def slopes_of_sizes(f: Array, sizes: Array, v: Array, parameters: int) -> Slopes:
    """By least squares with a constant, which is one of so many parameters; zero along columns of zeros."""
    return _slopes(*_moments(f, sizes, v, even=False), f.shape[1], parameters, v)


def _moments(f: Array, sizes: Array, v: Array, even: bool) -> tuple[Array, Array, float]:
    """Covariances of features, with sizes, and the variance of these."""
    f, sizes = f - v @ f, sizes - float(v @ sizes)
    products = v[0] * gram(f, None) if even else gram(f, v)
    return products, (v * sizes) @ f, float(v @ sizes**2)


def _slopes(products: Array, side: Array, total: float, count: int, parameters: int, v: Array) -> Slopes:
    """Along the first features."""
    inverse = _inverse(products[:count, :count])
    slopes = inverse @ side[:count]
    left = max(total - float(slopes @ side[:count]), 0.0)
    return Slopes(slopes, inverse * left / max(1.0 / float(v @ v) - parameters, 1.0))


def _inverse(products: Array) -> Array:
    """Of covariances of features, but for what these do not tell apart: Cholesky's if they tell all apart."""
    factor, failed = lapack.dpotrf(products, lower=True, clean=True)
    if not failed:
        inverse, _ = lapack.dpotri(factor, lower=True)
        # The least eigenvalue is at least one over the trace of the inverse.
        if np.trace(inverse) * np.trace(products) * _ALIKE < 1.0:
            return np.asarray(inverse + np.tril(inverse, -1).T)
    variances, directions = _told_apart(products)
    return np.asarray((directions / variances) @ directions.T)


def _told_apart(symmetric: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of a matrix, without those that are as good as zero."""
    values, vectors = np.linalg.eigh(symmetric)
    sizes = np.abs(values)
    kept = sizes > _ALIKE * sizes.max(initial=0.0)
    return values[kept], vectors[:, kept]


def columns_of(rows: ScaledRows) -> Array:
    """Scaled columns, without values far out, one after the other."""
    Z, count = rows.gathered().T, rows.width - 1
    if rows.in_basis:
        Z = (rows.whitening.map / rows.whitening.inverse)[:-1] @ Z
    return np.clip(Z[:count], -FAR, FAR, order="C").T
