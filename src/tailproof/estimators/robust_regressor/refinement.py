"""Slopes of a blend once more, as far as residuals and held-out rows support a second fit of them.

What that is, and its share in the model, :mod:`~tailproof.estimators.robust_regressor.proposals` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.candidates import LinearFit, RegressionTask
from tailproof.estimators.robust_regressor.dependent_noise import (
    Correction,
    SizeFit,
    WeightedFit,
)
from tailproof.estimators.robust_regressor.inference import Blend, blend_of, whitened_rows
from tailproof.estimators.robust_regressor.monotone_score import ScoreFit
from tailproof.estimators.robust_regressor.noise_equations import BySize
from tailproof.estimators.robust_regressor.noise_growth import growth_of_noise
from tailproof.estimators.robust_regressor.proposals import propose, weight_of_size
from tailproof.estimators.robust_regressor.proposed_fit import Proposal, Residuals
from tailproof.estimators.robust_regressor.score_equations import ByScore
from tailproof.estimators.robust_regressor.second_fit import (
    Learned,
    SecondFit,
    agreement_of,
    agreement_of_slopes,
)

_WORSE, _WORST = 2.0, 3.0  # standard errors on held-out rows: from the first on less of it, then nothing
_POWERS = 5  # of roots of sizes, from 0 on, for weights of rows that tell the mean
_TINY = 1e-300

BY_SCORE = (
    "Slopes are fitted once more with the score that suits the noise best, which is learned from residuals "
    "({:.0f}% of the model)."
)
BY_SIZE = (
    "The noise grows along some columns: slopes are fitted once more with weights for that ({:.0f}% of the "
    "model)."
)
ALONG_AND_ACROSS = (
    "The noise grows along some columns: slopes are fitted once more with weights for that{} ({:.0f}% of the "
    "model, along {} {:.0f}%)."
)
AND_LAW = ", and across these columns with the score that suits the noise best"


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
    moves : array of shape (n, rank) or None
        How far rows move the way to the second fit, if that is by size and there is no correction.
    left_out : array of shape (n,) or None
        What it changed in the predictions of held-out rows, but for a constant.
    along : float or None
        The share along the columns that noise grows along, if it is another than across them.
    by_law : bool
        Whether slopes across these are by the law of the noise.
    """

    correction: Correction | None
    share: float
    phi: Array
    score: ScoreFit | None = None
    moves: Array | None = None
    left_out: Array | None = None
    along: float | None = None
    by_law: bool = False

    @property
    def remark(self) -> tuple[str, ...]:
        """A sentence for the report, if anything was done."""
        if self.along is not None and self.share:
            law, them = (AND_LAW, "them") if self.by_law else ("", "these columns")
            return (ALONG_AND_ACROSS.format(law, 100 * self.share, them, 100 * self.along),)
        text = BY_SIZE if self.score is None else BY_SCORE
        return (text.format(100 * self.share),) if self.share else ()


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
    if residuals is None:
        return model, blend
    found, correction = propose(residuals, of_all=True)
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
    if residuals is None:
        return None
    found = propose(residuals)[0]
    if found is None or not found.share > 0:
        return None
    share, change = _accepted(found, residuals, part.delta)
    if not share > 0:
        return None
    squares = float(np.sum(residuals.v**2))
    return Learned(
        equations=found.equations(residuals),
        weight=found.weight,
        share=share,
        variance=found.variance / squares,
        covariance=found.covariance / squares,
        left_out=share * blend.level.unit.scale * change if few is None else None,
        across=found.learned_across(residuals),
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
    tiles, v = [tile for _, tile in whitened_rows(rows)], rows.weights / rows.weights.sum()
    # Column by column: what multiplies rows then goes along these.
    Q = np.asfortranarray(tiles[0] if len(tiles) == 1 else np.concatenate(tiles))
    missed, r = (task.y - held_out) / blend.level.unit.scale, rows.y - Q @ blend.phi
    growth = growth_of_noise(rows, r)
    if growth is None:
        return None
    return Residuals(blend, Q, r, v, missed - float(v @ missed), folds, growth)


def _suits(blend: Blend) -> bool:
    """Whether residuals are enough to learn from, and slopes few enough for it."""
    rows, tuning = blend.rows, blend.rows.tuning
    return (
        rows.loss.link == "identity"
        and rows.fit_intercept
        and blend.level.recentred
        and not blend.level.corrected
        and 1 < blend.path.basis.rank <= tuning.hessian_columns
        and tuning.second_fit_rows * rows.parameters <= rows.n <= tuning.inference_rows
    )


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
    moves = found.moves if correction is None and found.size is not None else None
    kept = Refinement(correction, share, found.phi, found.score, moves, left_out)
    return replace(model, coef=coef, intercept=intercept), replace(blend, refinement=kept)


def _accepted(found: Proposal, residuals: Residuals, delta: float) -> tuple[float, Array]:
    """The share of a second fit that held-out rows accept, and what it changes in their predictions."""
    change = residuals.left_out(found)
    if not _is_sane(found.share * change, residuals):
        return 0.0, change
    worse = residuals.worse(found, found.share * change, delta)
    return found.share * float(np.clip((_WORST - worse) / (_WORST - _WORSE), 0.0, 1.0)), change


def _is_sane(change: Array, residuals: Residuals) -> bool:
    """Whether the plain mean of held-out losses bears a change of predictions, as it has to bear a candidate.

    Robust means do not notice a few rows that are missed by far. Single folds have no say: where noise grows
    and a fold happens to be quiet, the better fit can seem twice as bad there.
    """
    with np.errstate(over="ignore"):
        before, after = (float(residuals.v @ r**2) for r in (residuals.missed, residuals.missed - change))
    return after <= residuals.tuning.veto_mean * before


def _in_data(blend: Blend, phi: Array) -> Array:
    """Slopes of φ in the unit of the data."""
    return _in_data_unit(blend.path.basis.map @ phi, blend)


def _in_data_unit(theta: Array, blend: Blend) -> Array:
    """Slopes of θ in the unit of the data."""
    return np.asarray(blend.level.unit.scale * theta[:-1] / blend.rows.columns.scale)


def _on_all_rows(model: LinearFit, blend: Blend, second: SecondFit) -> tuple[LinearFit, Blend]:
    """The model with the slopes of a second fit on all rows in their share.

    Its prediction for the mean row stays, unless the size of the noise tells more about the mean.
    """
    columns, change = blend.rows.columns, _in_data_unit(second.equations.theta, blend) - model.coef
    share, across = _share_of_all(change, blend, second), _share_across(change, blend, second)
    done = share * change
    if across is not None:
        done = done + (across - share) * _across(change, blend, second)
    level = share * _level_by_size(model, change, blend, second)
    mean = columns.centre + columns.scale * second.mean_row[:-1]
    fitted = replace(model, coef=model.coef + done, intercept=model.intercept + level - float(mean @ done))
    return fitted, replace(blend, refinement=_kept_of_all(done, share, across, blend, second))


def _kept_of_all(
    done: Array, share: float, across: float | None, blend: Blend, second: SecondFit
) -> Refinement:
    """What was done to the slopes, given their change and its shares."""
    equations, left_out = second.equations, second.learned.left_out
    left_out = None if left_out is None else share / second.learned.share * left_out
    if across is not None and max(across, share) > 0:
        part, along = (across, share) if across > 0 else (share, None)
        law = second.learned.across is not None and second.learned.across.law is not None
        phi = _in_white(done, blend) / part
        return Refinement(None, part, phi, left_out=left_out, along=along, by_law=law)
    phi = blend.path.basis.coordinates(equations.theta[:, None])[:, 0] - blend.phi
    fit = equations.fit() if isinstance(equations, ByScore) else None
    return Refinement(None, share, phi, fit, left_out=left_out)


def _of_scaled(change: Array, blend: Blend) -> Array:
    """A change of slopes as one of θ."""
    return np.append(change * blend.rows.columns.scale / blend.level.unit.scale, 0.0)


def _in_white(change: Array, blend: Blend) -> Array:
    """A change of slopes in white coordinates."""
    phi = blend.path.basis.coordinates(_of_scaled(change, blend)[:, None])
    return np.asarray(blend.path.slopes_alone(phi)[:, 0])


def _share_across(change: Array, blend: Blend, second: SecondFit) -> float | None:
    """The share of slopes across the columns that the noise grows along, if it does.

    Where least squares contradicts slopes along these columns, since the size of the noise is not quite as it
    is modelled, those across them need not be wrong.
    """
    learned, across = second.learned, second.learned.across
    if across is None or second.agreement_across is None:
        return None
    part = _part_across(change, blend, second)
    errors = across.variance / second.size, across.covariance / second.size
    weight = weight_of_size(float(part @ part), *errors)
    return learned.share / learned.weight * second.agreement_across * weight


def _part_across(change: Array, blend: Blend, second: SecondFit) -> Array:
    """The part of a change of slopes that is across these columns, in white coordinates."""
    assert isinstance(second.equations, BySize)
    return second.equations.part_across(_of_scaled(change, blend))


def _across(change: Array, blend: Blend, second: SecondFit) -> Array:
    """The same as a change of slopes."""
    return _in_data_unit(second.equations.map @ _part_across(change, blend, second), blend)


def _share_of_all(change: Array, blend: Blend, second: SecondFit) -> float:
    """What all rows leave of the share that the few have given a second fit, given the change of slopes."""
    learned, path = second.learned, blend.path
    # Levels may be far from their solution along a category that the few hardly knew.
    told = second.equations.told
    known = change if told is None else change * np.isin(np.arange(change.size), told)
    square = float(path.rows.covariances(_of_scaled(known, blend)[:, None])[0, 0])
    variance, covariance = learned.variance / second.size, learned.covariance / second.size
    share = learned.share * second.agreement * second.trusted
    if isinstance(second.equations, ByScore):
        return share * agreement_of_slopes(path, square, variance)
    return share * weight_of_size(square, variance, covariance) / learned.weight


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
    return gap * second.level.share * agreement_of(conflict, blend.rows.tuning)


def _mean(rest: Array, found: Proposal, share: float, residuals: Residuals, task: RegressionTask) -> float:
    """The intercept: where the size of the noise is known, rows with less of it tell more about the mean."""
    informative_share = task.informative_share(task.y - rest)
    mean = resistant_mean(rest, task.delta, task.shares(), informative_share=informative_share)
    if found.size is None:
        return mean
    v = _best_weights(found.size, residuals)
    weighted = resistant_mean(rest, task.delta, v, informative_share=informative_share)
    error = float(np.linalg.norm((v / v.sum() - residuals.v) * (rest - mean)))
    conflict = abs(weighted - mean) / max(error, _TINY)
    return mean + share * agreement_of(conflict, residuals.tuning) * (weighted - mean)


def _best_weights(fit: WeightedFit, residuals: Residuals) -> Array:
    """Weights s(x)⁻ᵖ with the p that tells the mean best, given slopes that the law of the noise tells too.

    With p = 2 the noise of rows tells most, but then they are not where the mean row is: an error of slopes
    counts in proportion to their distance.
    """
    if isinstance(fit, SizeFit):  # of the slopes, near enough: errors make up for each other
        return np.asarray(residuals.v / fit.sizes**2)
    weights = np.empty((_POWERS, residuals.v.size))
    np.divide(1.0, np.sqrt(fit.sizes), out=weights[1])
    for power in range(2, _POWERS):
        np.multiply(weights[power - 1], weights[1], out=weights[power])
    weights[0] = 1.0
    weights *= residuals.v
    weights /= weights.sum(axis=1, keepdims=True)
    mean_rows = residuals.blend.path.slopes_alone((weights @ residuals.Q).T)
    by_slopes = (fit.moves @ mean_rows).T
    own, beside = weights**2 @ fit.predicted_noise**2, by_slopes - 2.0 * weights * (fit.sizes * fit.noise)
    return np.asarray(weights[np.argmin(own + np.einsum("ij,ij->i", by_slopes, beside))])
