"""Second fits of slopes, by what residuals of a blend tell about the noise: its law, or how its size grows.

Levels truncate on both sides alike, and give every row that is not truncated the same weight. Two fits do
better where they hold. If noise does not depend on x, the best increasing score of its law
(:mod:`~tailproof.estimators.robust_regressor.monotone_score`). If its size grows along columns, rows weighted
by that (:mod:`~tailproof.estimators.robust_regressor.dependent_noise`), and by the law of what is left
(:mod:`~tailproof.estimators.robust_regressor.joint_noise`). Their share in the model is the one of least
predicted risk, unless their slopes contradict those of least squares.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.dependent_noise import (
    Correction,
    SizeFit,
    WeightedFit,
    contradicts,
    fit_on_both_sides,
    noise_correction,
)
from tailproof.estimators.robust_regressor.inference import Blend, blend_moves
from tailproof.estimators.robust_regressor.joint_noise import fit_jointly
from tailproof.estimators.robust_regressor.law_equations import share_of_least_risk
from tailproof.estimators.robust_regressor.law_fit import fit_law
from tailproof.estimators.robust_regressor.monotone_score import fit_by_score
from tailproof.estimators.robust_regressor.noise_equations import (
    across,
    constant_of,
)
from tailproof.estimators.robust_regressor.noise_growth import (
    CERTAIN,
    ROWS_PER_UNKNOWN,
)
from tailproof.estimators.robust_regressor.proposed_fit import Proposal, Residuals, relieved
from tailproof.estimators.robust_regressor.scaled_rows import gram
from tailproof.estimators.robust_regressor.second_fit import agreement_of
from tailproof.estimators.robust_regressor.small_systems import product, squared_distance
from tailproof.estimators.robust_regressor.truncation_path import normal_score
from tailproof.estimators.robust_regressor.tuning import Tuning

_WORTH = 0.75  # of the variance of the blend: with more there is little to gain from a learned score
_MUCH, _SOME = 0.1, 0.3  # of the variance of least squares: what a fit by size has if it gains much, or some
_ALIKE_IN_ALL = 0.5  # of the variance by sizes that surely differ: what a law without them has to have
_IN_DOUBT = 1.5  # factor of errors, for sizes alike on both sides: intervals at 0.95 covered 0.91 without it
_ALIKE = 1e-9  # of the largest variance: what directions have that rows do not tell apart
_TINY = 1e-300


def propose(residuals: Residuals, of_all: bool = False) -> tuple[Proposal | None, Correction | None]:
    """The second fit that suits the noise, if any does, and the correction for intervals if that is known.

    Where residuals are not ``of_all`` rows of a fit, a law and sizes are not learned together, nor sizes that
    do not grow along a column: sums over more rows are of given scores, and intervals on these know of growth
    alone.
    """
    growth, found, correction = residuals.growth, None, None
    models_size, rows = residuals.blend.path.tells_sizes, residuals.blend.rows
    sizes_first = models_size and growth.probable and _tell_of_all(residuals)
    fit = _of_fewer_columns(residuals) if sizes_first else None
    if fit is not None and _is_sure(residuals, fit, of_all):
        return _by_size_and_law(residuals, of_all, fit), None
    if growth.probable:
        plain = residuals.step_to_least_squares
        correction = noise_correction(rows, residuals.Q, residuals.r, growth, plain, models_size=models_size)
        modelled = correction.modelled if correction else None
        if modelled is not None:
            if 0 < growth.columns.size < modelled.columns.size:
                fit = fit or _of_fewer_columns(residuals) or modelled
            else:
                fit = modelled
            found = _by_size_and_law(residuals, of_all, fit, modelled)
    alike = correction is None and (growth.probable or not growth.doubtful())
    # More rows judge anew whether sizes grow: a doubt of these few is not to keep their law from them.
    if alike or (found is None and not of_all):
        by_score = None if residuals.mostly_plain else _by_score(residuals)
        found = _better(residuals, by_score, _by_both_sides(residuals) if models_size and of_all else None)
    return found, correction


def _tell_of_all(residuals: Residuals) -> bool:
    """Whether rows are enough to model sizes along all columns, and on both sides of each.

    Where they are not, a fit along a few columns leaves absolute values aside: at 40 rows a parameter squared
    errors are 1.3 times as large with them, if sizes do not depend on these.
    """
    return residuals.r.size >= ROWS_PER_UNKNOWN * 3 * residuals.blend.rows.parameters


def _of_fewer_columns(residuals: Residuals) -> SizeFit | None:
    """The fit by size along the columns that sizes seem to depend on, if these are some and not all."""
    growth = residuals.growth
    if not 0 < growth.columns.size < growth.z.shape[1]:
        return None
    return fit_on_both_sides(residuals.Q, residuals.r, residuals.v, growth)


def _is_sure(residuals: Residuals, fit: SizeFit, of_all: bool) -> bool:
    """Whether noise grows along its columns, around a line: a fit along all columns need not be asked.

    Whether the mean is a line, more rows say themselves.
    """
    plain, slopes = residuals.step_to_least_squares, residuals.slopes_told
    return (
        fit.chance_of_growth(len(residuals.growth.along.sets)) < CERTAIN
        and not contradicts(*plain, fit.phi, slopes)
        and not (of_all and _straightness(residuals.tuning, fit) < 1.0)
    )


def _by_size_and_law(
    residuals: Residuals, of_all: bool, fit: SizeFit, modelled: SizeFit | None = None
) -> Proposal | None:
    """A fit by size, with the law of its noise, unless the mean bends; none where that is sure.

    The fit along all columns, where there is one, may take that back.
    """
    if not of_all:
        return _by_size_first(residuals, fit)
    straight = _straightness(residuals.tuning, fit, *([modelled] if modelled else []))
    if not straight:
        return None
    found = _by_size(residuals, _by_law_too(residuals, fit))
    return replace(found, agreement=found.agreement * straight)


def _better(residuals: Residuals, by_score: Proposal | None, by_size: Proposal | None) -> Proposal | None:
    """The fit by the law of noise that is alike in all rows, if it gains much, or else that by its size."""
    if by_score is None or by_size is None:
        return by_score or by_size
    assert by_score.score is not None
    assert by_size.size is not None
    moves = by_score.score.moves(residuals.Q, residuals.r - residuals.Q @ by_score.phi, residuals.v)
    score, size = (residuals.blend.path.slopes_alone(each.T) for each in (moves, by_size.size.moves))
    return by_score if np.sum(score**2) < _ALIKE_IN_ALL * np.sum(size**2) else by_size


def _by_both_sides(residuals: Residuals) -> Proposal | None:
    """The fit by size where that depends on absolute values of columns, if it surely does."""
    if not residuals.growth.columns.size:
        return None
    fit = fit_on_both_sides(residuals.Q, residuals.r, residuals.v, residuals.growth)
    if fit is None:
        return None
    found = _by_size(residuals, _by_law_too(residuals, fit, _IN_DOUBT))
    # Sizes that are alike on both sides do not bias the blend: slopes far from it are a fault of this fit.
    agreement = agreement_of(_conflict(found.phi, gram(found.moves, None), residuals), residuals.tuning)
    straight = _straightness(residuals.tuning, fit)
    return replace(found, agreement=found.agreement * agreement * straight)


def _straightness(tuning: Tuning, *fits: SizeFit) -> float:
    """From 1, the mean may be a line, which weights by the size of the noise take for granted, to 0.

    It may be if one of the fits says so: noise whose size is not quite as modelled seems to have a mean.
    """
    return agreement_of(min(abs(fit.score_of_mean) for fit in fits), tuning)


def _by_law_too(residuals: Residuals, fit: SizeFit, doubt: float = 1.0) -> WeightedFit:
    """A fit by size with a share of the one by the law of its noise too, if that has far less variance.

    An edge of the law tells slopes far better than weights do, but if sizes are not quite as they are
    modelled, it is in the wrong place. With V and V′ the variances of the fit by size and the joint one, C
    their covariance and b² what the square of their distance exceeds its variance by, a share w of the joint
    one has the risk w²(V′ + b²) + (1 − w)²V + 2w(1 − w)C, which is least for w = (V − C)/max(D², V_D).
    Slopes across the columns that sizes depend on have a share of their own, if it is more: an error of sizes
    does not reach them. ``doubt`` is a factor of the joint fit's errors along these columns.
    """
    basis = residuals.blend.path.basis
    joint = fit_jointly(fit, basis.direction_of_constant)
    if joint is None:
        return fit
    slopes, beside = basis.without_constant(np.eye(basis.rank)), across(basis.map, fit.columns)
    if doubt != 1.0:
        joint = replace(joint, moves=joint.moves + (doubt - 1.0) * product(joint.moves, slopes - beside))
    products = gram(fit.moves, None), fit.moves.T @ joint.moves, gram(joint.moves, None)
    shares = [_share_of_joint(part @ (joint.phi - fit.phi), part, *products) for part in (slopes, beside)]
    return fit.towards(joint, shares[0], max(shares), beside) if any(shares) else fit


def _share_of_joint(distance: Array, part: Array, own: Array, both: Array, theirs: Array) -> float:
    """The share of the joint fit in a part of φ, given the distance there and the projection to it.

    The others are sums of products of what rows move: of the fit by size, of both, and of the joint fit.
    """
    variance, covariance, of_joint = (
        float(np.vdot(part, products @ part)) for products in (own, both, theirs)
    )
    if not of_joint <= _WORTH * variance:
        return 0.0
    apart = variance - 2.0 * covariance + of_joint
    return share_of_least_risk(variance - covariance, float(distance @ distance), apart)


def _by_size_first(residuals: Residuals, fit: SizeFit) -> Proposal:
    """A fit by size for more rows, with slopes by the law of its noise where these have far less variance."""
    law = fit_law(fit, residuals.blend.path.basis.map, residuals.growth.told)
    if law is None or not law.variance <= _WORTH:
        return _by_size(residuals, fit)
    return replace(_by_size(residuals, law.weighted()), law=law)


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


def _by_size(residuals: Residuals, fit: WeightedFit) -> Proposal:
    """The fit that models the size of the noise, in the share that has the least predicted risk.

    V being variances, w times that fit and 1 − w times the blend have the risk w²V + (1 − w)²(V′ + b²) +
    2w(1 − w)C, where b² = max(D² − V_D, 0) is what the distance D of the two exceeds its variance by: where
    noise grows, it is the blend that is biased. So w = 1 − (V − C)/max(D², V_D).
    """
    blend, basis = residuals.blend, residuals.blend.path.basis
    slopes, modelled = residuals.slopes_told, fit.moves
    apart, constant = blend_moves(blend, blend.rows, residuals.Q), constant_of(basis.map)
    np.subtract(fit.moves, apart, out=apart)
    if residuals.tell_all_slopes:
        apart.T[:] -= np.multiply.outer(constant, apart @ constant)
    else:
        apart, modelled = product(apart, slopes), product(modelled, slopes)
    distance = slopes @ fit.phi
    # What is left of these is without the constant, so that its products with others are.
    variance, covariance = float(np.vdot(apart.T, apart.T)), float(np.vdot(modelled.T, apart.T))
    weight = weight_of_size(float(distance @ distance), variance, covariance)
    phi, moves = residuals.step_to_least_squares
    step = distance - slopes @ phi
    predicted = fit.predicted_covariance_of_least_squares(residuals.inverse)
    own = float(np.vdot(modelled.T, modelled.T)) - float(np.sum((modelled @ constant) ** 2))
    trust = _trust_in_sizes(own, float(np.vdot(slopes, slopes @ predicted)))
    by_rows = _conflict(step, gram(fit.moves - moves, None), residuals)
    conflict = relieved(by_rows, _conflict(step, predicted, residuals), trust)
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


def _conflict(step: Array, covariance: Array, residuals: Residuals) -> float:
    """Normal score of a distance of slopes."""
    slopes = residuals.slopes_told
    chi = squared_distance(slopes @ step, slopes @ covariance @ slopes, _ALIKE)
    return float(normal_score(np.array(chi), residuals.freedom))


def weight_of_size(distance: float, variance: float, covariance: float) -> float:
    """1 − (V − C)/max(D², V_D), given D², V_D and V − C."""
    return float(np.clip(1.0 - covariance / max(distance, variance, _TINY), 0.0, 1.0))
