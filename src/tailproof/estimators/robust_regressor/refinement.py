"""Slopes of a blend once more, by what its residuals tell about the noise: its law, or how its size grows.

Levels truncate on both sides alike, and give every row that is not truncated the same weight. Two fits do
better where they hold. If noise does not depend on x, the best increasing score of its law
(:mod:`~tailproof.estimators.robust_regressor.monotone_score`). If its size grows along columns, rows weighted
by that (:mod:`~tailproof.estimators.robust_regressor.dependent_noise`). Their share in the model is the one
of least predicted risk, unless their slopes contradict those of least squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.blend import standard_errors
from tailproof.estimators.robust_regressor.candidates import LinearFit, RegressionTask
from tailproof.estimators.robust_regressor.dependent_noise import (
    Correction,
    SizeFit,
    growth_of_noise,
    least_squares_step,
    noise_correction,
)
from tailproof.estimators.robust_regressor.inference import (
    MOSTLY_PLAIN,
    Blend,
    blend_moves,
    whitened_rows,
)
from tailproof.estimators.robust_regressor.levels import influence
from tailproof.estimators.robust_regressor.monotone_score import ScoreFit, fit_by_score
from tailproof.estimators.robust_regressor.truncation_path import normal_score
from tailproof.estimators.robust_regressor.tuning import Tuning

_WORTH = 0.75  # of the variance of the blend: with more there is little to gain from a learned score
_WORSE, _WORST = 2.0, 3.0  # standard errors on held-out rows: from the first on less of it, then nothing
_TINY = 1e-300

BY_SCORE = (
    "Slopes are fitted once more with the score that suits the noise best, which is learned from residuals "
    "({:.0f}% of the model)."
)
BY_SIZE = (
    "The noise grows along some columns: slopes are fitted once more with weights for that ({:.0f}% of the "
    "model)."
)


@dataclass(frozen=True)
class Refinement:
    """What residuals told about the noise of a blend, and what was done to its slopes.

    Attributes
    ----------
    correction : Correction or None
        For intervals, where noise grows or may grow along columns; None also where it was not looked for.
    share : float
        Of the second fit in the model.
    phi : array of shape (rank,)
        From the blend to the second fit.
    score : ScoreFit or None
        The second fit, if noise does not grow.
    left_out : array of shape (n,) or None
        What it changed in the predictions of held-out rows, but for a constant.
    """

    correction: Correction | None
    share: float
    phi: Array
    score: ScoreFit | None = None
    left_out: Array | None = None

    @property
    def remark(self) -> tuple[str, ...]:
        """A sentence for the report, if anything was done."""
        text = BY_SIZE if self.score is None else BY_SCORE
        return (text.format(100 * self.share),) if self.share else ()


@dataclass(frozen=True)
class Proposal:
    """A second fit: where it is from the blend, how rows move the distance, and the share that is best."""

    phi: Array
    moves: Array
    share: float
    score: ScoreFit | None = None
    sizes: Array | None = None


@dataclass(frozen=True, eq=False)
class Residuals:
    """Of a blend: whitened rows Q, residuals r, shares v of the rows, and what it missed held-out rows by.

    The constant of ``missed`` does not matter; rows of one fold are held out together.
    """

    blend: Blend
    Q: Array
    r: Array
    v: Array
    missed: Array
    folds: Sequence[NDArray[np.intp]]

    @property
    def tuning(self) -> Tuning:
        """Numbers of the estimator."""
        return self.blend.rows.tuning

    def conflict(self, distance: Array, variance: float) -> float:
        """Normal score of a distance of slopes, whose coordinates have the variance given."""
        chi = distance @ distance / max(variance, _TINY)
        return float(normal_score(np.array(chi), max(self.Q.shape[1] - 1, 1)))

    def left_out(self, found: Proposal) -> Array:
        """What the second fit changes in the predictions of held-out rows, but for a constant.

        Leaving a fold out takes away what its rows have moved.
        """
        change = np.empty_like(self.r)
        for fold in self.folds:
            kept = max(1.0 - float(self.v[fold].sum()), _TINY)
            change[fold] = self.Q[fold] @ (found.phi - found.moves[fold].sum(axis=0) / kept)
        return np.asarray(change - self.v @ change)

    def worse(self, change: Array, delta: float) -> float:
        """By how many standard errors a change of their predictions makes losses of held-out rows worse."""
        gaps = (change * (change - 2.0 * self.missed))[None]
        weights = None if self.blend.rows.even else self.blend.rows.weights
        error = float(standard_errors(gaps, weights, self.tuning)[0])
        return resistant_mean(gaps[0], delta, weights) / error if error > 0 else 0.0


def refined(
    model: LinearFit, blend: Blend, task: RegressionTask, held_out: Array, folds: Sequence[NDArray[np.intp]]
) -> tuple[LinearFit, Blend]:
    """A blend of levels with its slopes refined, as far as residuals and held-out rows support that.

    Parameters
    ----------
    model : LinearFit
    blend : Blend
        The levels behind it.
    task : RegressionTask
        What it was fitted on.
    held_out : array
        Predictions of rows when they were held out.
    folds : sequence of arrays
        Which rows these are, together.

    Returns
    -------
    LinearFit, Blend
        The latter with its ``refinement``, unless the residuals were not asked.
    """
    if held_out.size != task.n or not (np.isfinite(held_out).all() and _suits(blend)):
        return model, blend
    rows = blend.rows
    Q, v = np.concatenate([tile for _, tile in whitened_rows(rows)]), rows.weights / rows.weights.sum()
    r = rows.y - blend.weights @ (blend.path.phi.T @ Q.T)
    missed = (task.y - held_out) / blend.level.unit.scale
    residuals = Residuals(blend, Q, r, v, missed - float(v @ missed), folds)
    growth, found, correction = growth_of_noise(rows, r), None, None
    if growth is None:
        return model, blend
    if growth.probable:
        correction = noise_correction(rows, Q, r, growth)
        found = _by_size(residuals, correction.modelled) if correction and correction.modelled else None
    if correction is None and (growth.probable or not growth.doubtful()):
        found = _by_score(residuals)
    return _applied(found, correction, model, residuals, task)


def _suits(blend: Blend) -> bool:
    """Whether residuals are enough to learn from, and slopes few enough for it."""
    rows, tuning = blend.rows, blend.rows.tuning
    return (
        rows.loss.link == "identity"
        and rows.fit_intercept
        and blend.level.recentred
        and not blend.level.corrected
        and 1 < blend.path.basis.rank <= tuning.hessian_columns
        and tuning.evidence_rows * rows.width <= rows.n <= tuning.inference_rows
        and blend.weights[np.isinf(blend.path.levels.tau)].sum() < MOSTLY_PLAIN
    )


def _by_score(residuals: Residuals) -> Proposal | None:
    """The fit by the best score, if it has far less variance than the blend and contradicts nothing."""
    Q, r, v = residuals.Q, residuals.r, residuals.v
    ours, plain = _pull_of_blend(residuals.blend), r - float(v @ r)
    with np.errstate(over="ignore"):
        fit = fit_by_score(Q, r, v, _WORTH * float(np.sum((v * ours) ** 2)))
        if fit is None:
            return None
        change = v * (fit.pull - ours)
        step = fit.phi - residuals.blend.path.slopes_alone(((v * plain) @ Q)[:, None])[:, 0]
        conflict = max(
            residuals.conflict(fit.phi, float(change @ change)),
            residuals.conflict(step, float(np.sum((v * (fit.pull - plain)) ** 2))),
        )
    share = float(np.clip(-(v * ours) @ change / max(float(change @ change), _TINY), 0.0, 1.0))
    agreement = agreement_of(conflict, residuals.tuning)
    return Proposal(fit.phi, change[:, None] * Q, share * agreement, score=fit)


def _pull_of_blend(blend: Blend) -> Array:
    """The pull (ψ − E ψ)/E ψ′ of every row, summed over the levels with their weights."""
    path = blend.path
    r = path.residuals
    a = influence(r, path.levels)[0] / path.mean_slopes(r)[:, None]
    pull = blend.weights @ a
    return np.asarray(pull - np.average(pull, weights=path.rows.weights))


def _by_size(residuals: Residuals, fit: SizeFit) -> Proposal:
    """The fit that models the size of the noise, in the share that has the least predicted risk.

    V being variances, w times that fit and 1 − w times the blend have the risk w²V + (1 − w)²(V′ + b²) +
    2w(1 − w)C, where b² = max(D² − V_D, 0) is what the distance D of the two exceeds its variance by: where
    noise grows, it is the blend that is biased. So w = 1 − (V − C)/max(D², V_D).
    """
    blend, path = residuals.blend, residuals.blend.path
    modelled = path.slopes_alone(fit.moves.T).T
    apart = modelled - path.slopes_alone(blend_moves(blend, blend.rows).T).T
    distance = path.slopes_alone(fit.phi[:, None])[:, 0]
    far = max(float(distance @ distance), float(np.sum(apart**2)), _TINY)
    share = float(np.clip(1.0 - np.sum(modelled * apart) / far, 0.0, 1.0))
    phi, moves = least_squares_step(residuals.Q, residuals.r, residuals.v)
    change = path.slopes_alone((fit.moves - moves).T).T
    step = distance - path.slopes_alone(phi[:, None])[:, 0]
    chi = step @ np.linalg.pinv(change.T @ change, rcond=1e-9, hermitian=True) @ step
    conflict = float(normal_score(np.array(chi), max(path.basis.rank - 1, 1)))
    return Proposal(distance, apart, share * agreement_of(conflict, residuals.tuning), sizes=fit.sizes)


def _applied(
    found: Proposal | None,
    correction: Correction | None,
    model: LinearFit,
    residuals: Residuals,
    task: RegressionTask,
) -> tuple[LinearFit, Blend]:
    """The model with its slopes moved, and its intercept at the mean of its residuals again."""
    blend = residuals.blend
    if found is None or not found.share > 0:
        nothing = Refinement(correction, 0.0, np.zeros(residuals.Q.shape[1]))
        return model, replace(blend, refinement=nothing)
    change = residuals.left_out(found)
    worse = residuals.worse(found.share * change, task.delta)
    share = found.share * float(np.clip((_WORST - worse) / (_WORST - _WORSE), 0.0, 1.0))
    slopes = (blend.path.basis.map @ (share * found.phi))[:-1]
    coef = model.coef + blend.level.unit.scale * slopes / blend.rows.columns.scale
    intercept = _mean(task.y - task.X @ coef, found, share, residuals, task)
    left_out = share * blend.level.unit.scale * change
    kept = Refinement(correction, share, found.phi, found.score, left_out)
    return replace(model, coef=coef, intercept=intercept), replace(blend, refinement=kept)


def _mean(rest: Array, found: Proposal, share: float, residuals: Residuals, task: RegressionTask) -> float:
    """The intercept: where the size of the noise is known, rows with less of it tell more about the mean."""
    mean = resistant_mean(rest, task.delta, task.shares(), untied_share=task.untied_share)
    if found.sizes is None:
        return mean
    v = residuals.blend.rows.weights / found.sizes**2
    weighted = resistant_mean(rest, task.delta, v, untied_share=task.untied_share)
    error = float(np.linalg.norm((v / v.sum() - residuals.v) * (rest - mean)))
    conflict = abs(weighted - mean) / max(error, _TINY)
    return mean + share * agreement_of(conflict, residuals.tuning) * (weighted - mean)


def agreement_of(conflict: float, tuning: Tuning) -> float:
    """From 1, chance explains a normal score, to 0, it does not."""
    span = tuning.conflict_certain - tuning.conflict_tolerated
    return float(np.clip((tuning.conflict_certain - conflict) / span, 0.0, 1.0))
