"""The contamination mode: a fit of the majority of the rows, whatever the others are (an MM-estimate).

Least trimmed squares finds the h rows that agree best, from starts that are computed, not drawn: half of the
rows, those nearest to the centre by several robust correlations of features and target (Hubert, Rousseeuw &
Verdonck, 2012), and those with the smallest residuals of a robust regression. From the best of them Tukey's
bisquare at 5.2 robust scales makes the fit efficient: 97% of least squares on normal noise (Yohai, 1987).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tailproof.core import Array
from tailproof.core.automatic import share_of_untied_targets
from tailproof.core.losses import LOSSES
from tailproof.core.means import Interval
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.candidates import (
    FittedLevel,
    LinearFit,
    RegressionTask,
    refitted,
    unit_of,
)
from tailproof.estimators.robust_regressor.choice import Choice, compared
from tailproof.estimators.robust_regressor.levels import NORMAL_QUARTILE, Levels, level_scores
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram, rows_of
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath

_BISQUARE = 5.2  # scales: 97% efficiency at the normal law, so that 50 rows a column cost under 10%
_S_BISQUARE = 1.547  # scales of the M-scale that half of the rows cannot move
_START_ROWS, _START_ROWS_PER_COLUMN = 10_000, 50
_STEPS, _ROUNDS = 50, 100  # of trimming and of reweighting
_TOLERANCE = 1e-9
_LEVERAGE_ROWS = 10  # a column, to tell rows of bad leverage from others
_OFF = 5.0  # scales of the residuals of the majority
_FAR, _NORMAL_REACH = 1.3, 0.9999  # times the distance that a normal law hardly exceeds
_LEAST_BAD, _LEAST_BAD_SHARE = 5, 0.005
_TIED = 0.75  # with fewer targets that differ, the majority has no scale
_RIDGE = 1e-10  # against columns that are constant in the rows kept

GUARANTEE = (
    "No guarantee of the paper holds: the fit describes the rows that agree with each other, and is not the "
    "mean of all of them."
)
OF_MAJORITY = "They are about the fit of the majority, which is not the mean of all rows."


def choose_majority(task: RegressionTask, share: float) -> Choice:
    """The one candidate of the contamination mode, with its held-out predictions."""
    name = f"majority, {100 * share:.3g}% may be wrong"
    candidate = refitted(task, name, lambda part: fit_majority(part, share))
    seen = ~np.isnan(candidate.held_out)
    risk = math.nan
    if seen.any():
        losses = task.loss.value(candidate.held_out[seen], task.y[seen])
        risk = resistant_mean(losses, task.delta, task.weights[seen] if task.weights.size else None)
    why = (
        f"As asked, the fit of the majority: up to {100 * share:.3g}% of the rows may be wrong in features "
        "and target without a say. If far rows are draws of the law and not errors, it is not the mean."
    )
    zero = np.zeros(1)
    alone = functools.partial(compared, np.array([risk]), Interval(zero, zero, zero))
    return Choice((name,), 0, why, alone, 0, candidate.fit, candidate.held_out)


def fit_majority(task: RegressionTask, share: float) -> LinearFit:
    """The MM-estimate on all rows of a task.

    Parameters
    ----------
    task : RegressionTask
        With the identity link.
    share : float
        Largest share of wrong rows, below 1/2.

    Examples
    --------
    >>> from tailproof.core.automatic import share_of_untied_targets
    >>> from tailproof.core.losses import LOSSES
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> y = X.sum(axis=1) + rng.standard_normal(500)
    >>> X[:100], y[:100] = 10.0, -100.0
    >>> seed = np.random.SeedSequence(0)
    >>> task = RegressionTask(X, y, np.empty(0), LOSSES["squared_error"], True, 0.05, (), seed)
    >>> bool(np.abs(fit_majority(task, 0.25).coef - 1).max() < 0.2)
    True
    """
    unit = unit_of(task)
    weights = task.weights if task.weights.size else np.ones(task.n)
    rows = rows_of(task.X, unit.to_unit(task.y), weights, task.loss, task.fit_intercept, task.tuning)
    theta, scale = _trimmed_fit(rows, share)
    theta = _reweighted(rows, theta, _BISQUARE * scale)
    level = FittedLevel(_as_path(rows, theta, _BISQUARE * scale), 0, unit, recentred=False)
    coef, intercept = rows.unscaled(theta[:, None])
    return unit.from_unit(LinearFit(coef[0], float(intercept[0]), level))


def _as_path(rows: ScaledRows, theta: Array, tau: float) -> TruncationPath:
    """The fit as a path of one level, from which standard errors follow as from any other."""
    rows = rows.whitened()
    levels = Levels(np.array([tau]), np.zeros(1), np.zeros(1), np.array([_BISQUARE]))
    phi = rows.whitening.coordinates(theta[:, None])
    return TruncationPath(rows, levels, phi, level_scores(rows, phi, levels, False), np.ones(1, dtype=bool))


def _trimmed_fit(rows: ScaledRows, share: float) -> tuple[Array, float]:
    """Least trimmed squares on a sample of the rows: θ, and a robust scale of the residuals."""
    wanted = max(_START_ROWS, _START_ROWS_PER_COLUMN * rows.width)
    if rows.n > wanted:
        rows = rows.take(np.sort(np.random.default_rng(0).choice(rows.n, wanted, replace=False)))
    Z, y = rows.gathered(), rows.y
    kept = max(math.ceil((1.0 - share) * rows.n), min(rows.n, rows.width + 1))
    fits = [_concentrated(Z, y, rows.weights, start, kept) for start in _starts(Z, y, rows.width)]
    theta = min(fits, key=lambda fit: fit[0])[1]
    return theta, _m_scale(np.abs(y - Z @ theta), rows.width)


def _starts(Z: Array, y: Array, width: int) -> list[NDArray[np.intp]]:
    """Halves of the rows that a majority without errors is likely to have made up."""
    half = min(len(y), max(len(y) // 2, width + 1))
    together = np.column_stack([Z[:, :-1], y])
    centre = np.median(together, axis=0)
    scale = np.median(np.abs(together - centre), axis=0) / NORMAL_QUARTILE
    U = (together - centre) / np.where(scale > 0, scale, np.maximum(together.std(axis=0), 1e-300))
    near = [_nearest(U, transform(U), half) for transform in _TRANSFORMS]
    residuals = np.abs(y - Z @ _least_deviations(Z, y))
    return [*near, np.argsort(residuals, kind="stable")[:half]]


def _nearest(U: Array, transformed: Array, half: int) -> NDArray[np.intp]:
    """Rows nearest to the centre in the metric of a robust correlation, with robust scales along its axes."""
    centred = transformed - transformed.mean(axis=0)
    vectors = np.linalg.eigh(centred.T @ centred / len(centred))[1]
    V = U @ vectors
    V = V - np.median(V, axis=0)
    scale = np.median(np.abs(V), axis=0)
    V = V / np.where(scale > 1e-9, scale, np.maximum(V.std(axis=0), 1e-9))
    return np.argsort((V**2).sum(axis=1), kind="stable")[:half]


def _ranks(U: Array) -> Array:
    return stats.rankdata(U, axis=0) / (len(U) + 1.0) - 0.5


def _signs(U: Array) -> Array:
    return U / np.maximum(np.linalg.norm(U, axis=1), 1e-300)[:, None]


def _central_half(U: Array) -> Array:
    return U[np.argsort(np.linalg.norm(U, axis=1), kind="stable")[: len(U) // 2 + 1]]


_TRANSFORMS: tuple[Callable[[Array], Array], ...] = (
    np.tanh,
    _ranks,
    lambda U: np.asarray(stats.norm.ppf(_ranks(U) + 0.5)),
    _signs,
    _central_half,
)


def _least_deviations(Z: Array, y: Array) -> Array:
    """Least absolute deviations by reweighting."""
    theta = _solve(Z, y, np.ones(len(y)))
    for _ in range(20):
        away = np.abs(y - Z @ theta)
        theta = _solve(Z, y, 1.0 / np.maximum(away, 1e-3 * max(float(np.median(away)), 1e-300)))
    return theta


def _solve(Z: Array, y: Array, weights: Array) -> Array:
    """Weighted least squares, with next to no penalty."""
    A = gram(Z, weights)
    A += _RIDGE * max(float(np.trace(A)) / len(A), 1e-300) * np.eye(len(A))
    return np.asarray(np.linalg.solve(A, Z.T @ (weights * y)))


def _concentrated(
    Z: Array, y: Array, weights: Array, start: NDArray[np.intp], kept: int
) -> tuple[float, Array]:
    """Fit the rows kept, keep those that fit best, and again, until the sum of their squares is least."""
    rows, best = start, math.inf
    theta: Array = np.zeros(Z.shape[1])
    for _ in range(_STEPS):
        fit = _solve(Z[rows], y[rows], weights[rows])
        squares = (y - Z @ fit) ** 2
        rows = np.argpartition(squares, kept - 1)[:kept]
        value = float(squares[rows] @ weights[rows])
        if not value < best * (1.0 - _TOLERANCE):
            break
        best, theta = value, fit
    return best, theta


def _m_scale(away: Array, width: int) -> float:
    """S with mean ρ(r/s) = 1/2 over the residual degrees of freedom, ρ being Tukey's, up to one."""
    freedom = max(len(away) - width, 1)
    scale = float(np.median(away)) / NORMAL_QUARTILE
    if scale <= 0:
        return float(away.max()) * 1e-6 + 1e-300
    for _ in range(_ROUNDS):
        u = np.minimum((away / (_S_BISQUARE * scale)) ** 2, 1.0)
        now = scale * math.sqrt(float((1.0 - (1.0 - u) ** 3).sum()) / (0.5 * freedom))
        if abs(now - scale) <= 1e-9 * scale:
            break
        scale = now
    return max(scale, 1e-300)


def _reweighted(rows: ScaledRows, theta: Array, tau: float) -> Array:
    """Tukey's M-estimate from a start in the right valley, by reweighting."""
    for _ in range(_ROUNDS):
        A, side = np.zeros((rows.width, rows.width)), np.zeros(rows.width)
        for part, Z in rows.tiles():
            u = np.maximum(1.0 - ((rows.y[part] - Z @ theta) / tau) ** 2, 0.0)
            pull = rows.weights[part] * u**2
            A += gram(Z, pull)
            side += Z.T @ (pull * rows.y[part])
        A += _RIDGE * max(float(np.trace(A)) / len(A), 1e-300) * np.eye(len(A))
        before, theta = theta, np.linalg.solve(A, side)
        if np.linalg.norm(theta - before) <= 1e-8 * (np.linalg.norm(theta) + tau):
            break
    return theta


def bad_leverage(X: Array, y: Array) -> NDArray[np.intp]:
    """Rows far from the others in their features, and off what the majority predicts for them.

    Heavy-tailed noise puts rows off the majority wherever their features are, and heavy-tailed features put
    rows far away on the same plane; rows that are both, and hardly any far rows that are not, are another
    population, or errors. They are named if at least half of the far rows are off, and far rows are off at
    least three times as often as others.

    Parameters
    ----------
    X : array of shape (n, d)
        Without missing values.
    y : array of shape (n,)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3))
    >>> y = X.sum(axis=1) + rng.standard_normal(500)
    >>> bad_leverage(X, y).size
    0
    >>> X[:25], y[:25] = X[:25] + 10, -50.0
    >>> bad_leverage(X, y).tolist() == list(range(25))
    True
    """
    nothing = np.empty(0, dtype=np.intp)
    if len(y) < _LEVERAGE_ROWS * (X.shape[1] + 1) or share_of_untied_targets(y) < _TIED:
        return nothing
    rows = rows_of(X, y, np.ones(len(y)), LOSSES["squared_error"], True)
    Z = rows.gathered()
    theta, scale = _trimmed_fit(rows, 0.25)
    off = np.abs(y - Z @ theta) > _OFF * scale
    far = _distances(Z[:, :-1]) > _FAR
    bad = far & off
    enough = bad.sum() >= max(_LEAST_BAD, _LEAST_BAD_SHARE * len(y))
    others = float(np.mean(off[~far])) if not far.all() else 1.0
    if not enough or bad.sum() < 0.5 * far.sum() or np.mean(off[far]) < 3.0 * others:
        return nothing
    return np.flatnonzero(bad)


def _distances(Z: Array) -> Array:
    """Distances of rows from the centre of the half that is nearest to it, in units of the median one."""
    centre = np.median(Z, axis=0)
    scale = np.median(np.abs(Z - centre), axis=0) / NORMAL_QUARTILE
    U = (Z - centre) / np.where(scale > 0, scale, np.maximum(Z.std(axis=0), 1e-300))
    half = U[_nearest(U, np.tanh(U), len(U) // 2)]
    covariance = np.atleast_2d(np.cov(half, rowvar=False))
    covariance += 1e-6 * max(float(np.trace(covariance)) / len(covariance), 1e-300) * np.eye(len(covariance))
    gaps = U - half.mean(axis=0)
    squares = np.einsum("ij,ji->i", gaps, np.linalg.solve(covariance, gaps.T))
    return np.sqrt(squares / max(float(np.median(squares)), 1e-300) * stats.chi2.ppf(0.5, Z.shape[1])) / (
        math.sqrt(float(stats.chi2.ppf(_NORMAL_REACH, Z.shape[1])))
    )
