"""Slopes of a blend once more, by what its residuals tell about the noise: its law, or how its size grows.

Levels truncate on both sides alike, and give every row that is not truncated the same weight. Two fits do
better where they hold. If noise does not depend on x, the best increasing score of its law
(:mod:`~tailproof.estimators.robust_regressor.monotone_score`). If its size grows along columns, rows weighted
by that (:mod:`~tailproof.estimators.robust_regressor.dependent_noise`). Their share in the model is the one
of least predicted risk, unless their slopes contradict those of least squares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tailproof.core import Array
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.candidates import LinearFit, RegressionTask
from tailproof.estimators.robust_regressor.dependent_noise import (
    Correction,
    SizeFit,
    least_squares_step,
    noise_correction,
)
from tailproof.estimators.robust_regressor.inference import Blend, blend_moves, blend_of, whitened_rows
from tailproof.estimators.robust_regressor.levels import influence
from tailproof.estimators.robust_regressor.monotone_score import ScoreFit, fit_by_score
from tailproof.estimators.robust_regressor.truncation_path import normal_score
from tailproof.estimators.robust_regressor.tuning import Tuning

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
        For intervals, where noise grows or may grow along columns.
    share : float
        Of the second fit in the model.
    phi : array of shape (rank,)
        From the blend to the second fit.
    score : ScoreFit or None
        The second fit, if noise does not grow.
    sizes : array of shape (n,) or None
        Of the noise at every row, if it does.
    """

    correction: Correction | None
    share: float
    phi: Array
    score: ScoreFit | None = None
    sizes: Array | None = None

    @property
    def remark(self) -> tuple[str, ...]:
        """A sentence for the report, if anything was done."""
        text = BY_SIZE if self.score is None else BY_SCORE
        return (text.format(100 * self.share),) if self.share else ()


def refined(model: LinearFit, task: RegressionTask) -> LinearFit:
    """A blend of levels with its slopes refined, as far as the residuals support that.

    Parameters
    ----------
    model : LinearFit
    task : RegressionTask
        What it was fitted on.

    Returns
    -------
    LinearFit
        With its ``refinement``, unless the residuals were not asked.
    """
    blend = blend_of(model)
    if blend is None or not _suits(blend):
        return model
    rows, tuning = blend.rows, blend.rows.tuning
    Q, v = np.concatenate([tile for _, tile in whitened_rows(rows)]), rows.weights / rows.weights.sum()
    r = rows.y - blend.weights @ (blend.path.phi.T @ Q.T)
    correction = noise_correction(rows, Q, r)
    if correction is None:
        found = _by_score(blend, Q, r, v, tuning)
    elif correction.modelled is not None:
        found = _by_size(blend, Q, r, v, correction, correction.modelled)
    else:
        found = Refinement(correction, 0.0, np.zeros(Q.shape[1]))
    return _applied(found, model, blend, task)


def _suits(blend: Blend) -> bool:
    """Whether residuals are enough to learn from, and slopes few enough for it."""
    rows, tuning = blend.rows, blend.rows.tuning
    return (
        rows.loss.link == "identity"
        and rows.fit_intercept
        and blend.level.recentred
        and not blend.level.corrected
        and blend.path.basis.rank <= tuning.hessian_columns
        and 10 * rows.width <= rows.n <= tuning.inference_rows
        and 0.9 > blend.weights[np.isinf(blend.path.levels.tau)].sum()
    )


def _by_score(blend: Blend, Q: Array, r: Array, v: Array, tuning: Tuning) -> Refinement:
    """The fit by the best score, if it has less variance than the blend and contradicts nothing."""
    nothing = Refinement(None, 0.0, np.zeros(Q.shape[1]))
    fit = fit_by_score(Q, r, v)
    if fit is None:
        return nothing
    plain, ours = r - float(v @ r), _pull_of_blend(blend)
    change = v * (fit.pull - ours)
    spread = float(change @ change)
    if not spread > 0:
        return nothing
    share = float(np.clip(-(v * ours) @ change / spread, 0.0, 1.0))
    if np.sum((v * fit.pull) ** 2) > WORTH * np.sum((v * ours) ** 2):
        return nothing
    freedom = Q.shape[1] - 1
    step = blend.path.slopes_alone(((v * r) @ Q)[:, None])[:, 0]
    against = [_conflict(fit.phi, spread, freedom)]
    against.append(_conflict(fit.phi - step, float(np.sum((v * (fit.pull - plain)) ** 2)), freedom))
    return Refinement(None, share * _agreement(max(against), tuning), fit.phi, fit)


def _pull_of_blend(blend: Blend) -> Array:
    """a = (ψ − E ψ)/E ψ′ of every row, summed over the levels with their weights."""
    path = blend.path
    r = path.residuals
    a = influence(r, path.levels)[0] / path.mean_slopes(r)[:, None]
    pull = blend.weights @ a
    return np.asarray(pull - np.average(pull, weights=path.rows.weights))


def _conflict(distance: Array, variance: float, freedom: int) -> float:
    """Normal score of a distance of slopes whose coordinates have the variance given."""
    return float(normal_score(np.array(distance @ distance / max(variance, 1e-300)), freedom))


def _by_size(
    blend: Blend, Q: Array, r: Array, v: Array, correction: Correction, fit: SizeFit
) -> Refinement:
    """The fit that models the size of the noise, in the share that has the least predicted risk.

    V being variances, w times that fit and 1 − w times the blend have the risk w²V + (1 − w)²(V′ + b²) +
    2w(1 − w)C, where b² = max(D² − V_D, 0) is what the distance D of the two exceeds its variance by: where
    noise grows, it is the blend that is biased. So w = 1 − (V − C)/max(D², V_D).
    """
    path = blend.path
    modelled = path.slopes_alone(fit.moves.T).T
    ours = path.slopes_alone(blend_moves(blend, blend.rows).T).T
    phi, moves = least_squares_step(Q, r, v)
    distance = path.slopes_alone(fit.phi[:, None])[:, 0]
    apart = max(float(distance @ distance), float(np.sum((modelled - ours) ** 2)))
    share = 1.0 - float(np.sum(modelled * (modelled - ours))) / max(apart, 1e-300)
    change = path.slopes_alone((fit.moves - moves).T).T
    step = distance - path.slopes_alone(phi[:, None])[:, 0]
    chi = step @ np.linalg.pinv(change.T @ change, rcond=1e-9, hermitian=True) @ step
    agreement = _agreement(float(normal_score(np.array(chi), Q.shape[1] - 1)), path.rows.tuning)
    return Refinement(correction, agreement * float(np.clip(share, 0.0, 1.0)), fit.phi, sizes=fit.sizes)


WEIGHTED = 1.0
WORTH = 0.75


def _weights(task):
    return task.weights if task.weights.size else np.ones(task.n)


def _agreement(conflict: float, tuning: Tuning) -> float:
    span = tuning.conflict_certain - tuning.conflict_tolerated
    return float(np.clip((tuning.conflict_certain - conflict) / span, 0.0, 1.0))


def _applied(found: Refinement, model: LinearFit, blend: Blend, task: RegressionTask) -> LinearFit:
    """The model with its slopes moved, and its intercept at the mean of its residuals again."""
    if not found.share:
        return replace(model, refinement=found)
    slopes = (blend.path.basis.map @ (found.share * found.phi))[:-1]
    coef = model.coef + blend.level.unit.scale * slopes / blend.rows.columns.scale
    rest = task.y - task.X @ coef
    intercept = resistant_mean(rest, task.delta, task.shares(), untied_share=task.untied_share)
    if found.sizes is not None:
        v = _weights(task) / found.sizes**2
        w = resistant_mean(rest, task.delta, v, untied_share=task.untied_share)
        omega, nu = v / v.sum(), _weights(task) / _weights(task).sum()
        z = abs(w - intercept) / np.sqrt(np.sum(((omega - nu) * (rest - intercept)) ** 2))
        intercept += (w - intercept) * found.share * float(np.clip((3.5 - z), 0, 1)) * WEIGHTED
    return replace(model, coef=coef, intercept=intercept, refinement=found)
