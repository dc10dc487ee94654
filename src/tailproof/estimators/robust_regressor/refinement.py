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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.blend import standard_errors
from tailproof.estimators.robust_regressor.candidates import LinearFit, RegressionTask
from tailproof.estimators.robust_regressor.dependent_noise import (
    Correction,
    Growth,
    SizeFit,
    growth_of_noise,
    least_squares_step,
    noise_correction,
)
from tailproof.estimators.robust_regressor.inference import (
    MOSTLY_PLAIN,
    Blend,
    blend_moves,
    blend_of,
    whitened_rows,
)
from tailproof.estimators.robust_regressor.monotone_score import ScoreFit, fit_by_score
from tailproof.estimators.robust_regressor.noise_equations import ByScore, BySize
from tailproof.estimators.robust_regressor.second_fit import (
    Learned,
    SecondFit,
    agreement_of,
    agreement_of_slopes,
)
from tailproof.estimators.robust_regressor.truncation_path import normal_score
from tailproof.estimators.robust_regressor.tuning import Tuning

_WORTH = 0.75  # of the variance of the blend: with more there is little to gain from a learned score
_WORSE, _WORST = 2.0, 3.0  # standard errors on held-out rows: from the first on less of it, then nothing
_MUCH, _SOME = 0.1, 0.3  # of the variance of least squares: what a fit by size has if it gains much, or some
_RELIEF = 2.5  # normal scores that trust in sizes can take back
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
    """A second fit.

    Attributes
    ----------
    phi : array of shape (rank,)
        Where it is from the blend.
    moves : array of shape (n, rank)
        How far rows move that distance.
    weight : float
        Its share in the model that has the least predicted risk.
    agreement : float
        From 1, least squares does not contradict it, to 0.
    variance, covariance : float
        Of the distance, and of that with the second fit itself.
    score, size : ScoreFit or SizeFit
        One of the two.
    trust : float
        In sizes of the noise, from 0 to 1, where they say how sure least squares and held-out rows are.
    """

    phi: Array
    moves: Array
    weight: float
    agreement: float
    variance: float
    covariance: float
    score: ScoreFit | None = None
    size: SizeFit | None = None
    trust: float = 0.0

    @property
    def share(self) -> float:
        """In the model."""
        return self.weight * self.agreement

    def equations(self, blend: Blend) -> ByScore | BySize:
        """What it solves, for more rows."""
        B = blend.path.basis.map
        if self.size is not None:
            return self.size.equations(blend.phi, B)
        assert self.score is not None
        fit = self.score
        return ByScore(fit.score, B @ (blend.phi + self.phi), B, fit.mean, fit.information)


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

    @property
    def mostly_plain(self) -> bool:
        """Whether the blend is least squares but for a little: there is no score to gain from."""
        return bool(self.blend.weights[np.isinf(self.blend.path.levels.tau)].sum() >= MOSTLY_PLAIN)

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

    def worse(self, found: Proposal, change: Array, delta: float) -> float:
        """By how many standard errors a change of their predictions makes losses of held-out rows worse."""
        gaps = (change * (change - 2.0 * self.missed))[None]
        weights = None if self.blend.rows.even else self.blend.rows.weights
        error = float(standard_errors(gaps, weights, self.tuning)[0])
        if not error > 0:
            return 0.0
        mean = resistant_mean(gaps[0], delta, weights)
        if found.size is None:
            return mean / error
        predicted = 2.0 * float(np.linalg.norm(self.v * change * found.size.predicted_noise))
        return _relieved(mean / error, mean / max(error, predicted), found.trust)


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
        What it was fitted on, or a sample of that.
    held_out : array
        Predictions of rows when they were held out.
    folds : sequence of arrays
        Which rows these are, together.

    Returns
    -------
    LinearFit, Blend
        The latter with its ``refinement``, unless the residuals were not asked.
    """
    if blend.level.second is not None:
        return _on_all_rows(model, blend, blend.level.second)
    residuals = _residuals(blend, task, held_out, folds)
    growth = None if residuals is None else growth_of_noise(blend.rows, residuals.r)
    if residuals is None or growth is None:
        return model, blend
    found, correction = _proposal(residuals, growth)
    return _applied(found, correction, model, residuals, task)


def learn(model: Any, part: RegressionTask, held_out: Array) -> Learned | None:
    """What rows that choose tell about the law of the noise, for a fit on more rows; None if that is nothing.

    Parameters
    ----------
    model : LinearFit or any model
        The choice, fitted on these rows.
    part : RegressionTask
    held_out : array
        Their predictions when they were held out.
    """
    blend = blend_of(model) if isinstance(model, LinearFit) else None
    if blend is None:
        return None
    few, folds = _few_of(part), part.folds
    if few is not None:
        blend, held_out, part = blend.taken(few), held_out[few], part.taken(few)
        folds = tuple(np.flatnonzero(np.isin(few, fold)) for fold in folds)
    residuals = _residuals(blend, part, held_out, folds)
    growth = None if residuals is None else growth_of_noise(blend.rows, residuals.r)
    if residuals is None or growth is None:
        return None
    found = _proposal(residuals, growth)[0]
    if found is None or not found.share > 0:
        return None
    share, change = _accepted(found, residuals, part.delta)
    if not share > 0:
        return None
    squares = float(np.sum(residuals.v**2))
    return Learned(
        equations=found.equations(blend),
        weight=found.weight,
        share=share,
        variance=found.variance / squares,
        covariance=found.covariance / squares,
        left_out=share * blend.level.unit.scale * change if few is None else None,
    )


def _few_of(part: RegressionTask) -> NDArray[np.intp] | None:
    """As many rows as the law of the noise needs, where there are more."""
    tuning = part.tuning
    if part.n <= tuning.inference_rows:
        return None
    return np.sort(np.random.default_rng(part.seed).choice(part.n, tuning.judged_rows, replace=False))


def _residuals(
    blend: Blend, task: RegressionTask, held_out: Array, folds: Sequence[NDArray[np.intp]]
) -> Residuals | None:
    """What the rows of a blend tell; None where they are too few, or too many."""
    if held_out.size != task.n or not (np.isfinite(held_out).all() and _suits(blend)):
        return None
    rows = blend.rows
    Q, v = np.concatenate([tile for _, tile in whitened_rows(rows)]), rows.weights / rows.weights.sum()
    missed = (task.y - held_out) / blend.level.unit.scale
    return Residuals(blend, Q, rows.y - Q @ blend.phi, v, missed - float(v @ missed), folds)


def _proposal(residuals: Residuals, growth: Growth) -> tuple[Proposal | None, Correction | None]:
    """The second fit that suits the noise, if any does."""
    rows, found, correction = residuals.blend.rows, None, None
    if growth.probable:
        correction = noise_correction(rows, residuals.Q, residuals.r, growth)
        found = _by_size(residuals, correction.modelled) if correction and correction.modelled else None
    if correction is None and (growth.probable or not growth.doubtful()) and not residuals.mostly_plain:
        found = _by_score(residuals)
    return found, correction


def _suits(blend: Blend) -> bool:
    """Whether residuals are enough to learn from, and slopes few enough for it."""
    rows, tuning = blend.rows, blend.rows.tuning
    return (
        rows.loss.link == "identity"
        and rows.fit_intercept
        and blend.level.recentred
        and not blend.level.corrected
        and 1 < blend.path.basis.rank <= tuning.hessian_columns
        and tuning.evidence_rows * rows.parameters <= rows.n <= tuning.inference_rows
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
    variance = float(change @ change)
    weight = float(np.clip(-(v * ours) @ change / max(variance, _TINY), 0.0, 1.0))
    agreement = agreement_of(conflict, residuals.tuning)
    covariance = float((v * fit.pull) @ change)
    return Proposal(fit.phi, change[:, None] * Q, weight, agreement, variance, covariance, score=fit)


def _pull_of_blend(blend: Blend) -> Array:
    """The pull (ψ − E ψ)/E ψ′ of every row, summed over the levels with their weights."""
    rows = blend.rows
    shares = rows.weights / rows.total
    pull = blend.weights @ blend.path.pulls(shares)
    return np.asarray(pull - shares @ pull)


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
    variance, covariance = float(np.sum(apart**2)), float(np.sum(modelled * apart))
    weight = weight_of_size(float(distance @ distance), variance, covariance)
    phi, moves = least_squares_step(residuals.Q, residuals.r, residuals.v)
    change = path.slopes_alone((fit.moves - moves).T).T
    step = distance - path.slopes_alone(phi[:, None])[:, 0]
    predicted = path.slopes_alone(fit.predicted_moves_of_least_squares().T).T
    trust = _trust_in_sizes(float(np.sum(modelled**2)), float(np.sum(predicted**2)))
    conflict = _relieved(_conflict(step, change), _conflict(step, predicted), trust)
    agreement = agreement_of(conflict, residuals.tuning) * (trust if residuals.mostly_plain else 1.0)
    return Proposal(distance, apart, weight, agreement, variance, covariance, size=fit, trust=trust)


def _trust_in_sizes(variance: float, plain: float) -> float:
    """How far errors of least squares are those that sizes of the noise predict, given both variances.

    A few rows with much noise make the errors of least squares. Where these happen to be quiet, residuals
    tell far less of such errors than sizes do, which all rows have a say in: least squares then seems to
    contradict, and held-out rows to prefer a biased fit. Sizes are a model of the noise, so they count only
    where they promise much.
    """
    return float(np.clip((_SOME - variance / max(plain, _TINY)) / (_SOME - _MUCH), 0.0, 1.0))


def _relieved(score: float, predicted: float, trust: float) -> float:
    """A normal score by residuals, or the lesser one by predicted errors, if it is not too far below.

    A mean that bends along a column has scores of twenty, quiet rows of four.
    """
    return max(score - trust * _RELIEF, min(score, predicted))


def _conflict(step: Array, moves: Array) -> float:
    """Normal score of a distance of slopes that rows move by so much."""
    chi = step @ np.linalg.pinv(moves.T @ moves, rcond=1e-9, hermitian=True) @ step
    return float(normal_score(np.array(chi), max(step.size - 1, 1)))


def weight_of_size(distance: float, variance: float, covariance: float) -> float:
    """1 − (V − C)/max(D², V_D), given D², V_D and V − C."""
    return float(np.clip(1.0 - covariance / max(distance, variance, _TINY), 0.0, 1.0))


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
    share, change = _accepted(found, residuals, task.delta)
    coef = model.coef + share * _in_data(blend, found.phi)
    intercept = _mean(task.y - task.X @ coef, found, share, residuals, task)
    left_out = share * blend.level.unit.scale * change
    kept = Refinement(correction, share, found.phi, found.score, left_out)
    return replace(model, coef=coef, intercept=intercept), replace(blend, refinement=kept)


def _accepted(found: Proposal, residuals: Residuals, delta: float) -> tuple[float, Array]:
    """The share of a second fit that held-out rows accept, and what it changes in their predictions."""
    change = residuals.left_out(found)
    worse = residuals.worse(found, found.share * change, delta)
    return found.share * float(np.clip((_WORST - worse) / (_WORST - _WORSE), 0.0, 1.0)), change


def _in_data(blend: Blend, phi: Array) -> Array:
    """Slopes of φ in the unit of the data."""
    return np.asarray(blend.level.unit.scale * (blend.path.basis.map @ phi)[:-1] / blend.rows.columns.scale)


def _on_all_rows(model: LinearFit, blend: Blend, second: SecondFit) -> tuple[LinearFit, Blend]:
    """The model with the slopes of a second fit on all rows in their share.

    Its prediction for the mean row stays, unless the size of the noise tells more about the mean.
    """
    learned, equations, columns = second.learned, second.equations, blend.rows.columns
    coef = blend.level.unit.scale * equations.theta[:-1] / columns.scale
    change = coef - model.coef
    share = _share_of_all(change, blend, second)
    level = _level_by_size(model, change, blend, second)
    phi = blend.path.basis.coordinates(equations.theta[:, None])[:, 0] - blend.phi
    fit = equations.fit() if isinstance(equations, ByScore) else None
    left_out = None if learned.left_out is None else share / learned.share * learned.left_out
    mean = columns.centre + columns.scale * second.mean_row[:-1]
    intercept = model.intercept + share * (level - float(mean @ change))
    kept = Refinement(None, share, phi, fit, left_out)
    return (
        replace(model, coef=model.coef + share * change, intercept=intercept),
        replace(blend, refinement=kept),
    )


def _share_of_all(change: Array, blend: Blend, second: SecondFit) -> float:
    """What all rows leave of the share that the few have given a second fit, given the change of slopes."""
    learned, path = second.learned, blend.path
    theta = np.append(change * blend.rows.columns.scale / blend.level.unit.scale, 0.0)
    phi = path.slopes_alone(path.basis.coordinates(theta[:, None]))[:, 0]
    variance, covariance = learned.variance / second.size, learned.covariance / second.size
    share = learned.share * second.agreement
    if isinstance(second.equations, ByScore):
        return share * agreement_of_slopes(path, phi, variance)
    return share * weight_of_size(float(phi @ phi), variance, covariance) / learned.weight


def _level_by_size(model: LinearFit, change: Array, blend: Blend, second: SecondFit) -> float:
    """What rows with less noise add to the intercept of a fit by size, if chance explains it."""
    if second.level is None:
        return 0.0
    unit, columns = blend.level.unit, blend.rows.columns
    mean = columns.centre + columns.scale * second.mean_row[:-1]
    coef = model.coef + change
    there = unit.centre + unit.scale * second.level.mean - float(columns.centre @ coef)
    gap = there - (model.intercept - float(mean @ change))
    conflict = abs(gap) / max(unit.scale * second.level.error, _TINY)
    return gap * agreement_of(conflict, blend.rows.tuning)


def _mean(rest: Array, found: Proposal, share: float, residuals: Residuals, task: RegressionTask) -> float:
    """The intercept: where the size of the noise is known, rows with less of it tell more about the mean."""
    mean = resistant_mean(rest, task.delta, task.shares(), untied_share=task.untied_share)
    if found.size is None:
        return mean
    v = residuals.blend.rows.weights / found.size.sizes**2
    weighted = resistant_mean(rest, task.delta, v, untied_share=task.untied_share)
    error = float(np.linalg.norm((v / v.sum() - residuals.v) * (rest - mean)))
    conflict = abs(weighted - mean) / max(error, _TINY)
    return mean + share * agreement_of(conflict, residuals.tuning) * (weighted - mean)
