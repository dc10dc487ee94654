"""What sums of levels over all rows tell: how rows lie, where means are, how noise grows, what is biased."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tailproof.core import Array
from tailproof.core.automatic import share_of_informative_rows
from tailproof.core.means import values_needed
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.core.validate import resistant_means
from tailproof.data.level_sums import Columns, LevelSums, LevelTotals
from tailproof.estimators.robust_regressor.all_rows import AllRowsEvidence, LevelMeans, Reach, told_apart
from tailproof.estimators.robust_regressor.covariances import carried_over, covariances_by
from tailproof.estimators.robust_regressor.log_noise import LogNoise, longer_errors
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath


def theta_of(path: TruncationPath, phi: Array) -> Array:
    """Slopes and intercepts for scaled columns; no intercept where there is none."""
    theta = path.basis.map @ phi
    theta[-1] *= float(path.rows.fit_intercept)
    return theta


def for_scaled_columns(sums: Array, columns: Columns, rows: ScaledRows) -> Array:
    """Sums over features, and last over ones, as sums over scaled features and the column of ones."""
    scaled = (sums[..., :-1] - sums[..., -1:] * columns.offset) / columns.scale.scale
    return np.concatenate([scaled, sums[..., -1:] * float(rows.fit_intercept)], axis=-1)


def mean_row(totals: LevelTotals, columns: Columns, rows: ScaledRows) -> Array:
    """Of scaled columns and that of ones."""
    return for_scaled_columns(np.append(totals.row / totals.sizes[0], 1.0), columns, rows)


def _variances(totals: LevelTotals, columns: Columns, rows: ScaledRows) -> Array:
    """Of scaled columns; mean squares without an intercept."""
    total, centred = totals.sizes[0], float(rows.fit_intercept)
    variance = totals.row_squares / total - centred * (totals.row / total) ** 2
    varies = rows.whitening.map[:-1].any(axis=1)  # rounding of a constant would pass for a variance
    return np.asarray(np.maximum(variance, 0.0) / columns.scale.scale**2 * varies)


def reach_of(rows: ScaledRows, columns: Columns, totals: LevelTotals) -> Reach:
    """How far rows are in the coordinates of a pass."""
    mean, variance = mean_row(totals, columns, rows)[:-1], _variances(totals, columns, rows)
    return Reach.of_columns(columns.scale, mean * float(rows.fit_intercept), variance).moved(columns.origin)


def evidence_of(
    path: TruncationPath, second: Array | None, measure: LevelSums, totals: LevelTotals
) -> AllRowsEvidence:
    """What the last pass tells of biases, by a path on rows that stand for all, and θ of a second fit."""
    total, noise = float(totals.sizes[0]), noise_of(path, measure, totals)
    typical = max(float(totals.reach[0]) / total, 1e-300)
    slope, inside = totals.curves.T / total
    means = LevelMeans.of(slope, inside, totals.products / (typical * total**2))
    theta, row = theta_of(path, path.phi), mean_row(totals, measure.columns, path.rows)
    # Rows that are not truncated are those of the pass, but for a few: what the last step left them is less.
    means = replace(means, inside=means.inside - row @ (theta - measure.theta))
    slopes = told_apart(path.basis.map @ path.phi, measure.plain, noise, second)
    return AllRowsEvidence(means, row, noise, _covariances(path.rows, slopes, measure, totals))


def _covariances(rows: ScaledRows, slopes: Array, measure: LevelSums, totals: LevelTotals) -> Array:
    """Of slopes where the last step has led, over all rows, which know those of the pass before it."""
    sums = totals.apart_products, totals.apart, float(totals.sizes[0])
    found, basis = covariances_by(*sums, rows.fit_intercept), rows.whitening
    return carried_over(basis.of_slopes(measure.slopes), found, basis.of_slopes(slopes))


def noise_of(path: TruncationPath, measure: LevelSums, totals: LevelTotals) -> LogNoise:
    """How sizes of residuals depend on columns, after one more pass."""
    total = float(totals.sizes[0])
    mean = for_scaled_columns(totals.sizes_by_column, measure.columns, path.rows) / total
    square = float(totals.size_squares[0]) / total
    longer = longer_errors(path.rows, _variances(totals, measure.columns, path.rows))
    return measure.noise.moved(path.basis, mean, square, totals.effective_rows, longer)


def mean_equation(totals: LevelTotals, delta: float) -> tuple[Array, Array]:
    """Start and scale of Catoni's equation for the mean residuals, from the sums of the first pass.

    As in memory, the scale comes from a median of means of squares. From a start that is a median of means
    one Newton step solves the equation, which is nearly linear within many scales.
    """
    means = totals.residuals / totals.weights
    start = weighted_median(means)
    squares = np.maximum(totals.squares / totals.weights - (2 * means - start[:, None]) * start[:, None], 0.0)
    spread = np.sqrt(weighted_median(squares))
    spread = np.where(spread > 0, spread, np.sqrt(squares.mean(axis=1)))
    n, log_term = totals.effective_rows, 2 * math.log(2 / delta)
    enough = n >= values_needed("catoni", delta)
    factor = math.sqrt(n / log_term * (1 + log_term / (n - log_term))) if enough else 0.0
    return start, np.nan_to_num(spread * factor, posinf=0.0)


def recentred(
    rows: ScaledRows, path: TruncationPath, measure: LevelSums, totals: LevelTotals, delta: float
) -> Array:
    """θ of every level, with the intercept at Catoni's mean of all residuals, from the last pass.

    It is kept near what most small blocks of the sample's rows say, as in memory.
    """
    theta, cut = theta_of(path, path.phi), path.levels.truncated
    if not rows.fit_intercept or cut.size == 0:
        return theta
    top, slope = totals.psi[cut].T
    step = np.where(slope > 0, measure.reach[cut] * top / np.where(slope > 0, slope, 1.0), 0.0)
    moved = mean_row(totals, measure.columns, rows) @ (theta - measure.theta)[:, cut]
    pooled = measure.centre[cut] + step - moved
    r = rows.y - rows.predictions(rows.whitening.coordinates(theta[:, cut]))
    weights = None if np.ptp(rows.weights) == 0 else rows.weights
    informative_share = share_of_informative_rows(rows.y, r[0], weights)
    if not np.all(np.isfinite(pooled)):
        pooled = np.where(np.isfinite(pooled), pooled, resistant_means(r, delta, weights, informative_share))
    theta[-1, cut] += resistant_means(r, delta, weights, informative_share, pooled=pooled)
    return theta
