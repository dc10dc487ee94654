"""How the size of the noise grows along columns: logarithms of residuals as a linear function of these."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tailproof.core import Array
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.estimators.robust_regressor.levels import Levels, is_narrow, psi_of, psi_slopes
from tailproof.estimators.robust_regressor.noise_growth import columns_of, told_columns
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, Whitening
from tailproof.estimators.robust_regressor.truncation_path import LEAST_SLOPE, TruncationPath
from tailproof.native.levels import SizeMeasure, log_size_sums

_OFFSET = 0.5  # of the median residual: the size of those near zero depends on where exactly the middle is
LOG_NOISE_LEVEL = 0  # the most robust of the levels: its residuals tell the size of the noise
_WITHIN_CHANCE = 1.5  # standard errors of slopes of sizes, which no limit is below
_STEPS, _CLOSE = 4, 0.02  # to slopes of sizes, at most; of their errors, a step that is the last one
_TINY = 1e-300


@dataclass(frozen=True)
class LogNoise:
    """The size t = log(|r − middle| + offset) − cψ(r) of residuals r as a linear function of scaled columns.

    An error of the slopes of a level moves the logarithms of skewed noise as well, in proportion to its ψ.
    With the right c that cancels: sums of ψ(r)z vanish where the level is fitted, and what is left of t has
    the variance that slopes of t have.

    Attributes
    ----------
    slopes, errors : arrays of shape (width,)
        The last is the constant; standard errors.
    level : Levels
        The one whose residuals these are.
    middle, offset, share : float
        The last is c.
    told : array of shape (width,) or float
        Zero for columns that too few of the rows that choose tell anything of: slopes along these and their
        errors are zero. A level may be far from its solution along a category that they hardly knew.
    """

    slopes: Array
    errors: Array
    level: Levels
    middle: float
    offset: float
    share: float = 0.0
    told: Array | float = 1.0

    @property
    def along_columns(self) -> tuple[Array, Array]:
        """Slopes and errors without those of the constant."""
        return self.slopes[:-1], self.errors[:-1]

    def sizes(self, r: Array) -> Array:
        """What the linear function is about."""
        away = r - self.middle
        np.abs(away, out=away)
        away += self.offset
        psi = psi_of(r, float(self.level.tau[0]), float(self.level.bisquare[0]))
        psi *= self.share
        sizes = np.log(away, out=away)
        sizes -= psi
        return np.asarray(sizes)

    def moved(
        self, basis: Whitening, mean: Array, square: float, size: float, longer: Array | float = 1.0
    ) -> LogNoise:
        """The function of a sample, moved to where all rows have it.

        Parameters
        ----------
        basis : Whitening
            Of rows that stand for all.
        mean : array of shape (width,)
            Of tz over all rows, t being what the sample's function leaves of the logarithms.
        square : float
            Mean of t².
        size : float
            Of all rows.
        longer : array of shape (width,), optional
            See :func:`longer_errors`.
        """
        step = basis.least_slopes @ (basis.map.T @ mean)
        left = max(square - float(step @ mean), 0.0)
        errors = longer * _errors(basis, left / size)
        return replace(self, slopes=self.told * (self.slopes + step), errors=self.told * errors)


def log_noise(
    path: TruncationPath, r: Array, noise: LogNoise, longer: Array | float = 1.0
) -> tuple[LogNoise, Array]:
    """The linear function by the rows of a path, from their residuals by one level; and their mean row.

    ``noise`` says how sizes are measured; see :func:`longer_errors` for the last.
    """
    rows = path.rows
    first = _sums_of_sizes(rows, r, replace(noise, slopes=np.zeros(rows.width)))
    constant = first.mean * float(rows.fit_intercept)
    here = replace(noise, slopes=np.append(np.zeros(rows.width - 1), constant))
    sums = first.less(constant)
    for _ in range(_STEPS):
        # The basis may be that of a few of the rows: each step leaves the share that it errs by.
        found = _moved_to(rows, here, sums, longer)
        step = np.abs(found.slopes - here.slopes)
        if np.all(step <= _CLOSE * found.errors) or not _may_grow(found):
            break
        here, sums = found, _sums_of_sizes(rows, r, found)
    return found, rows.tile_to_columns(first.row)


def _may_grow(noise: LogNoise) -> bool:
    """Whether any digit of slopes could matter: those within chance are not used."""
    slopes, errors = noise.along_columns
    return bool(np.any(np.abs(slopes) > _WITHIN_CHANCE * errors))


@dataclass(frozen=True)
class _SizeSums:
    """Means over rows of what a linear function leaves of sizes t: t, t², tz and z, the last two of tiles."""

    mean: float
    square: float
    by_row: Array
    row: Array

    def less(self, constant: float) -> _SizeSums:
        """The same of t less a constant."""
        square = self.square - constant * (2.0 * self.mean - constant)
        return _SizeSums(self.mean - constant, square, self.by_row - constant * self.row, self.row)


def _sums_of_sizes(rows: ScaledRows, r: Array, noise: LogNoise) -> _SizeSums:
    """The means, a few rows at a time."""
    slopes = np.ascontiguousarray(rows.multiplier(rows.whitening.coordinates(noise.slopes[:, None]))[:, 0])
    add = _narrow_size_sums if is_narrow(rows) else _size_sums
    parts = [add(noise, Z, r[part], rows.uneven(part), slopes) for part, Z in rows.tiles()]
    sums = np.sum(parts, axis=0) / rows.total
    return _SizeSums(float(sums[0]), float(sums[1]), *np.split(sums[2:], 2))


def _narrow_size_sums(noise: LogNoise, Z: Array, r: Array, v: Array | None, slopes: Array) -> Array:
    """Σ vt, Σ vt², Σ vtz and Σ vz, in one compiled pass."""
    psi = float(noise.level.tau[0]), float(noise.level.bisquare[0])
    return log_size_sums(Z, r, v, SizeMeasure(*psi, noise.middle, noise.offset, noise.share), slopes)


def _size_sums(noise: LogNoise, Z: Array, r: Array, v: Array | None, slopes: Array) -> Array:
    t, v = noise.sizes(r) - Z @ slopes, np.ones(r.size) if v is None else v
    return np.concatenate([[v @ t, (v * t) @ t], Z.T @ (v * t), Z.T @ v])


def _moved_to(rows: ScaledRows, noise: LogNoise, sums: _SizeSums, longer: Array | float) -> LogNoise:
    """The function where rows have it, of whose logarithms it leaves the sums given."""
    return noise.moved(rows.whitening, rows.tile_to_columns(sums.by_row), sums.square, rows.size, longer)


def measure_of_size(path: TruncationPath) -> LogNoise:
    """Middle, offset and c = E[d log/dr]/E ψ′ for residuals of one level, by the rows of a path.

    These are to be the rows that choose: the measure is then the same wherever all the others are.
    """
    level, none = path.levels.only([LOG_NOISE_LEVEL]), np.zeros(path.rows.width)
    r, shares = path.residuals_of(LOG_NOISE_LEVEL), path.rows.weights / path.rows.total
    uneven = None if path.rows.even else shares  # equal ones need no sorting
    middle = float(weighted_median(r, uneven))
    away = r - middle
    offset = max(_OFFSET * float(weighted_median(np.abs(away), uneven)), _TINY)
    change = float(shares @ (np.sign(away) / (np.abs(away) + offset)))
    slope = float(psi_slopes(r[None], level, path.rows.tuning, exact=True)[0] @ shares)
    told = np.isin(np.arange(path.rows.width), told_columns(columns_of(path.rows), shares))
    told[-1] = True
    return LogNoise(none, none, level, middle, offset, change / max(slope, LEAST_SLOPE), told.astype(float))


def _errors(basis: Whitening, variance: float) -> Array:
    """Standard errors of least squares, the inverse of whose Gram matrix is BB'."""
    return np.asarray(np.sqrt(variance * (basis.least_slopes**2).sum(axis=1)))


def longer_errors(rows: ScaledRows, variance: Array) -> Array:
    """What errors of slopes in the basis of rows are multiplied with if scaled columns have such variances.

    Far rows, which a few may lack, decide about variances far more than about correlations.
    """
    basis = rows.whitening
    products = basis.map / basis.inverse**2
    mean = (products @ basis.constant)[:-1] * float(rows.fit_intercept)
    own = (products * basis.map).sum(axis=1)[:-1] - mean**2
    known = (own > 0) & (variance > 0)
    return np.append(np.sqrt(np.divide(own, variance, out=np.ones_like(own), where=known)), 1.0)
