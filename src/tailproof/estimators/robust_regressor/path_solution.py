"""All levels of a path solved: a robust start, the truncations that its residuals suggest, and penalties."""

from __future__ import annotations

import math

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.fold_search import is_searched, searched
from tailproof.estimators.robust_regressor.levels import (
    Levels,
    Scores,
    is_narrow,
    levels_of,
    rank_of_quantile,
    weighted_quantiles,
    working_residuals,
)
from tailproof.estimators.robust_regressor.newton import System, capped, forms_hessians, newton
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath
from tailproof.native.fit_search import search_start
from tailproof.native.newton import robust_start

_CLOSE = 1e-2  # of φ: the last step of a robust start


def solve_path(rows: ScaledRows, random: np.random.Generator, penalised: bool = True) -> TruncationPath:
    """All levels, from a robust start and, where rows are many, from the path of a part of them."""
    white = rows.whitened()
    rows, ridges = white, _ridges(rows, white.parameters) if penalised else (0.0,)
    wanted = max(rows.tuning.start_rows, rows.tuning.start_rows_per_column * rows.width)
    part = rows.take(np.sort(random.choice(rows.n, wanted, replace=False))) if rows.n > wanted else rows
    start = _supported_start(rows, _robust_start(part, ridges[0]))
    away = np.abs(working_residuals(rows.loss, rows.predictions(start)[0], rows.y)[0])
    levels = levels_of(rows, away, ridges)
    start = np.repeat(start, len(levels), axis=1)
    if rows.loss.link == "log":
        # Where most counts are zero the robust start predicts zero; the likelihood starts at the mean.
        start[:, np.isinf(levels.tau)] = _constant(rows)
    if rows.n > 3 * wanted:
        start = newton(part, start, levels, passes=5, faint=rows.tuning.fold_damping).phi
        start = _supported_start(rows, start)
    if is_searched(rows):
        # Close to the solution a step or two in double precision are left.
        solution = newton(rows, searched(rows, levels, start), levels, begun=rows.tuning.bisquare_steps)
    else:
        solution = newton(rows, start, levels)
    return TruncationPath(rows, levels, solution.phi, solution.scores, solution.settled)


def _robust_start(rows: ScaledRows, ridge: float) -> Array:
    """Huber's regression whose τ moves along with the residuals, by reweighting, which cannot run away."""
    if is_narrow(rows) and rows.in_basis and rows.even:
        found = _compiled_start(rows, ridge)
        if found is not None:
            return found
    if is_searched(rows) and rows.even:
        return _searched_start(rows, ridge)
    phi, basis, total = _constant(rows), rows.whitening, rows.total
    level = Levels(np.array([np.inf]), np.zeros(1), np.array([ridge]), np.zeros(1))
    for _ in range(rows.tuning.start_rounds):
        r, factor = working_residuals(rows.loss, rows.predictions(phi)[0], rows.y)
        factor = np.ones(1) if factor is None else factor
        away = np.maximum(np.abs(r), 1e-300)
        share = np.array([1.0 - rows.tuning.strongest_share])
        tau = max(weighted_quantiles(away, rows.weights, share)[0], 1e-9 * away.max())
        v = rows.weights * np.minimum(1.0, tau / away)
        scores = _weighted_scores(rows, v * r * factor, v * factor**2)
        g = scores.gradient / total - ridge * basis.slopes(phi)
        step = capped(rows.loss, System(rows, level, scores, total, rows.tuning.fold_damping).solve(g))
        step = _supported(rows, phi, step)
        phi = phi + step
        if np.linalg.norm(step) <= _CLOSE * np.linalg.norm(phi):
            break
    return phi


def _supported(rows: ScaledRows, phi: Array, step: Array) -> Array:
    """Steps from φ, shortened for the log link where they lead to means that are beyond all targets.

    From there Newton's method comes back by a factor e at a time.
    """
    if rows.loss.link == "identity":
        return step
    here, change = rows.predictions(phi), rows.predictions(step)
    limit = max(math.log(2.0 * max(float(rows.y.max()), 1e-300)), float(here.max()) + 1.0)
    shares = np.minimum((limit - here) / np.maximum(change, 1e-300), 1.0)
    return step * shares.min(axis=1)


def _supported_start(rows: ScaledRows, phi: Array) -> Array:
    """The start of some of the rows, as far as all of them support it."""
    if rows.loss.link == "identity":
        return phi
    constant = _constant(rows)
    return constant + _supported(rows, constant, phi - constant)


def _searched_start(rows: ScaledRows, ridge: float) -> Array:
    """The same for rows that stay in the cache, by conjugate gradients."""
    tuning, start = rows.tuning, _constant(rows)
    phi, residuals = start[:, 0].copy(), rows.y - rows.predictions(start)[0]
    rank = rank_of_quantile(rows.n, 1.0 - tuning.strongest_share)
    table = rows.for_searches(tuning.fold_damping)
    search_start(table, rank, tuning.start_rounds, ridge, tuning.cg_tolerance, _CLOSE, phi, residuals)
    return phi[:, None]


def _compiled_start(rows: ScaledRows, ridge: float) -> Array | None:
    """The same for rows of few columns, at once; None where a system is singular."""
    tuning, phi = rows.tuning, _constant(rows)[:, 0]
    rank = rank_of_quantile(rows.n, 1.0 - tuning.strongest_share)
    try:
        found = robust_start(
            *(rows.X, rows.y, phi, rank, tuning.start_rounds, ridge, tuning.fold_damping),
            rows.whitening.slopes_matrix(),
        )
    except ArithmeticError:
        return None
    return found[:, None]


def _weighted_scores(rows: ScaledRows, pull: Array, curvature: Array) -> Scores:
    """Gradient and Hessian (or curvature) of one level with the given weights of rows."""
    size = rows.whitening.rank if rows.in_basis else rows.width
    formed = forms_hessians(rows)
    gradient, hessian = np.zeros((size, 1)), np.zeros((int(formed), size, size))
    for part, Z in rows.tiles():
        gradient[:, 0] += Z.T @ pull[part]
        if formed:
            hessian[0] += gram(Z, curvature[part])
    if not rows.in_basis:
        B = rows.whitening.map
        gradient, hessian = B.T @ gradient, B.T @ hessian @ B
    return Scores(np.zeros(1), gradient, hessian, curvature[None][: not formed])


def _constant(rows: ScaledRows) -> Array:
    """The coordinates of the best constant; without an intercept, of zero."""
    constant = np.zeros((rows.width, 1))
    constant[-1] = _middle(rows)
    return rows.whitening.coordinates(constant)


def _middle(rows: ScaledRows) -> float:
    if not rows.fit_intercept:
        return 0.0
    if rows.loss.link == "identity":
        return float(weighted_quantiles(rows.y, rows.weights, np.array([0.5]))[0])
    return math.log(max(float(np.average(rows.y, weights=rows.weights)), 1e-300))


def _ridges(rows: ScaledRows, parameters: int) -> tuple[float, ...]:
    """Penalties for rows that are not whitened yet."""
    tuning = rows.tuning
    below = tuning.ridge_below if rows.loss.link == "identity" else tuning.ridge_below_of_log_link
    if rows.n >= below * parameters:
        return (0.0,)
    # Gram matrices are expensive with many columns: a single ridge penalty unless rows are very few.
    wide = parameters > tuning.wide_columns and rows.n >= tuning.wide_rows * parameters
    chosen = (tuning.ridges[tuning.middle_ridge],) if wide else tuning.ridges
    light = () if rows.n < tuning.no_plain_fit_below * parameters else (tuning.light_ridge,)
    return tuple(ridge * rows.square_norm / rows.n for ridge in (*light, *chosen))
