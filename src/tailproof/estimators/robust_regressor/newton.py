"""Newton's method on all levels at once, in whitened coordinates.

One pass over tiles of rows gives the gradients of all levels, as one matrix product, and their Hessians. With
many columns Hessians are never formed: conjugate gradients apply them to all levels together, preconditioned
by their diagonal, which in whitened coordinates is nearly all of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.estimators.robust_regressor.levels import Levels, Scores, is_narrow, level_scores
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.native.conjugate_gradients import Equations
from tailproof.native.newton import Search, newton_levels

_REUSED = 0.1  # of the tolerance of a step
_MOST_UNDONE = 0.9  # share of the last step
_BEYOND = 0.5  # of the slope that a step begins with: how steeply the log link may rise again where it ends
_TINY = 1e-300
_QUICK = 8  # passes with one Hessian, before others are made
_CHOLESKY_FROM = 48  # coordinates; below, one call for all levels is faster


@dataclass(frozen=True)
class Solution:
    """φ of every level, the sums of the last pass, and whether the last step was short."""

    phi: Array
    scores: Scores
    settled: NDArray[np.bool_]


def newton(
    rows: ScaledRows,
    phi: Array,
    levels: Levels,
    passes: int | None = None,
    faint: float = 0.0,
    chord: bool = False,
    system: System | None = None,
    polished: float = 0.0,
    lean: Array | float = 0.0,
    begun: int = 0,
) -> Solution:
    """Newton's method on every level, each with its own step halving.

    From a start that is close, the first Hessian serves all steps (``chord``): gradients are cheaper. A
    ``system`` of a large sample of the rows saves that Hessian too. A level whose steps have left no more
    than the share ``polished`` of its standard error, as the last two tell, goes no further; others do, even
    if their steps are short beside a solution that is large. What is minimised is the mean loss, less the
    product of φ and ``lean``. Tukey's levels have taken the steps ``begun`` already.
    """
    if is_narrow(rows) and rows.in_basis and forms_hessians(rows):
        found = _compiled(rows, phi, levels, passes, faint, chord, system, polished, lean)
        if found is not None:
            return found
    total, formed = rows.total, forms_hessians(rows)
    # The log mean of a category whose targets are all zero is −∞, and its curvature vanishes on the way.
    faint = max(faint, rows.tuning.vanishing_damping) if rows.loss.link == "log" else faint
    few = rows.n < rows.tuning.ridge_below * rows.parameters
    rests = few or (rows.stays_in_cache and system is None)
    rests_settled = rests or rows.loss.link == "log"
    phi, tolerance = np.array(phi, dtype=np.float64), _tolerance(rows, levels)
    tolerance = tolerance**2 if polished else tolerance
    settled, lean = np.zeros(len(levels), dtype=bool), np.broadcast_to(lean, phi.shape)
    scores = _empty_scores(rows, len(levels), formed)
    walk: Walk | None = None
    for done in range(rows.tuning.passes if passes is None else passes):
        if walk is None or (rests_settled and np.any(settled[walk.active])):
            # Levels that have settled rest, and the others go on from where they are.
            walk = Walk.start(np.flatnonzero(~settled), phi, levels, walk)
            walk.system = system if walk.active.size == len(levels) else None
            walk.corrects = chord and polished > 0
        again = walk.system is None or (walk.refresh and not chord)
        part = level_scores(rows, walk.phi, walk.levels, again and formed, again and not formed, exact=chord)
        if again:
            walk.system = System(rows, walk.levels, part, total, faint)
        # With Hessians that were used before, the error left is a share of the step, not its square.
        close = tolerance[walk.active] * (1.0 if again or chord else _REUSED)
        enough = polished * _rough_error(rows, part.value / total)
        walk.advance(rows, part, total, close, enough, lean[:, walk.active])
        phi[:, walk.active], settled[walk.active] = walk.phi, walk.settled
        walk.refresh = rests or walk.refresh
        if few and begun + done + 1 >= rows.tuning.bisquare_steps:
            # With few rows Tukey's ψ goes on for ever; some steps from Huber's fit are enough.
            settled |= levels.bisquare > 0
        _keep_scores(scores, part, walk.active)
        if settled.all():
            break
    if rows.loss.link == "log" and walk is not None and not settled.all():
        # The last step was not looked at, and may lead anywhere.
        phi[:, walk.active] = np.where(walk.settled, walk.phi, walk.accepted)
        scores = level_scores(rows, phi, levels, formed, not formed, exact=chord)
    return Solution(phi, scores, settled)


def _compiled(
    rows: ScaledRows,
    phi: Array,
    levels: Levels,
    passes: int | None,
    faint: float,
    chord: bool,
    system: System | None,
    polished: float,
    lean: Array | float,
) -> Solution | None:
    """The same for rows of few columns, at once; None where a system is singular."""
    tuning, total = rows.tuning, rows.total
    few, most = rows.n < tuning.ridge_below * rows.parameters, tuning.passes if passes is None else passes
    search = Search(
        levels.tau,
        levels.bisquare,
        levels.ridge,
        rows.whitening.slopes_matrix(),
        tuning.truncated_curvature,
        tolerance=_tolerance(rows, levels) ** (2 if polished else 1),
        polished=polished * float(_rough_error(rows, np.array(1.0))),
        lean=np.ascontiguousarray(lean) if np.ndim(lean) else None,
        passes=most,
        tukey_steps=tuning.bisquare_steps if few else most,
        chord=chord,
        corrects=chord and polished > 0,
        always=few,
        damping=faint,
        reused=_REUSED,
        contraction=tuning.contraction,
    )
    try:
        matrices = None if system is None else np.ascontiguousarray(system.matrices)
        found = newton_levels(rows.X, rows.y, rows.uneven(slice(None)), total, phi, search, matrices)
    except ArithmeticError:
        return None
    scores = Scores(found.value, found.gradient, found.hessian, np.empty((0, rows.n)))
    return Solution(found.phi, scores, found.settled)


@dataclass
class Walk:
    """The levels that still move: where they are, their last steps, and the system that gave them.

    Where it ``corrects``, one system serves all steps, and what those ``taken`` have achieved corrects the
    next one, as in Broyden's method: the error of the system in their directions is gone.
    """

    active: NDArray[np.intp]
    levels: Levels
    phi: Array
    accepted: Array
    step: Array
    best: Array
    slope: Array
    settled: NDArray[np.bool_]
    system: System | StandIns | None = None
    refresh: bool = True
    corrects: bool = False
    taken: list[Array] = field(default_factory=list)

    @classmethod
    def start(cls, active: NDArray[np.intp], phi: Array, levels: Levels, before: Walk | None) -> Walk:
        """A walk of some levels, which goes on from an earlier one of more."""
        here = phi[:, active]
        if before is None:
            best: Array = np.full(active.size, np.inf)
            slope: Array = np.zeros(active.size)
            step, accepted = np.zeros_like(here), here.copy()
        else:
            kept = np.isin(before.active, active)
            best, slope = before.best[kept], before.slope[kept]
            step, accepted = before.step[:, kept], before.accepted[:, kept]
        moving = np.zeros(active.size, dtype=bool)
        return cls(active, levels.only(active.tolist()), here, accepted, step, best, slope, moving)

    def advance(
        self,
        rows: ScaledRows,
        scores: Scores,
        total: float,
        tolerance: Array,
        enough: Array | float = 0.0,
        lean: Array | float = 0.0,
    ) -> None:
        """One step of every level: Newton's if the last one was good, else half of that."""
        pull = self.levels.ridge * rows.whitening.slopes(self.phi)
        g = scores.gradient / total - pull + lean
        fresh = self.system.solve(g) if self.system else g
        value = scores.value / total + (self.phi * (0.5 * pull - lean)).sum(axis=0)
        better = self._is_better(rows.loss, value, g)
        self.accepted[:, better] = self.phi[:, better]
        self.best = np.where(better, value, self.best)
        before = np.linalg.norm(self.step, axis=0)
        if self.corrects:
            self.taken = self.taken if better.all() else []
            fresh = _corrected(fresh, self.taken)
        self.step = np.where(better, capped(rows.loss, fresh), 0.5 * self.step)
        self.slope = np.where(better, (g * self.step).sum(axis=0), 0.5 * self.slope)
        self.taken.append(self.step)
        self.phi = self.accepted + self.step
        length = np.linalg.norm(self.step, axis=0)
        # Steps of one Hessian shrink by the same factor: the next one tells what this one has left.
        left = np.divide(length**2, before, out=np.full_like(length, np.inf), where=before > 0)
        self.settled = (length <= tolerance * np.linalg.norm(self.accepted, axis=0)) | (left <= enough)
        if rows.loss.link == "log":
            self.settled &= better  # a step that was halved again and again is short for another reason
        # While steps shrink fast the Hessians are good enough: gradients are much cheaper.
        self.refresh = bool(np.any((length > rows.tuning.contraction * before) & ~self.settled))

    def _is_better(self, loss: Loss, value: Array, g: Array) -> NDArray[np.bool_]:
        """Whether the last step was good: it has lowered the objective, or not gone far beyond its least.

        The latter, by slopes along the step, serves the log link, whose truncated scores come without one.
        """
        if loss.link == "identity":
            return np.asarray(value <= self.best + 1e-12 * np.abs(self.best))
        return np.asarray((g * self.step).sum(axis=0) >= -_BEYOND * self.slope)


def _corrected(step: Array, taken: Sequence[Array]) -> Array:
    """The step of Broyden's method, given that of the first system and all steps taken since.

    Kelley, Iterative Methods for Linear and Nonlinear Equations (1995), section 7.3.
    """
    for last, following in pairwise(taken):
        step = step + _share_along(step, last) * following
    if not taken:
        return step
    # A step that undoes the last one would be without end: it stays what it is.
    share = _share_along(step, taken[-1])
    return step / np.where(share < _MOST_UNDONE, 1.0 - share, 1.0)


def _share_along(step: Array, last: Array) -> Array:
    return np.asarray((last * step).sum(axis=0) / np.maximum((last * last).sum(axis=0), _TINY))


def _rough_error(rows: ScaledRows, value: Array) -> Array:
    """Standard error of every level in whitened coordinates, by its mean loss: right to a factor of two."""
    return np.asarray(np.sqrt(2.0 * np.maximum(value, 0.0) * rows.whitening.rank / rows.n))


def _empty_scores(rows: ScaledRows, count: int, formed: bool) -> Scores:
    rank = rows.whitening.rank
    hessian = np.zeros((count, rank, rank) if formed else (0, rank, rank))
    curvature = np.zeros((0 if formed else count, rows.n))
    return Scores(np.zeros(count), np.zeros((rank, count)), hessian, curvature)


def _keep_scores(scores: Scores, part: Scores, active: NDArray[np.intp]) -> None:
    """Write down what a pass over some levels found; Hessians only if it had any."""
    scores.value[active], scores.gradient[:, active] = part.value, part.gradient
    if part.hessian.size:
        scores.hessian[active] = part.hessian
    if part.curvature.size:
        scores.curvature[active] = part.curvature


def _tolerance(rows: ScaledRows, levels: Levels) -> Array:
    """Of the last step: with Tukey's ψ and few rows convergence is slow, and a share of an error will do."""
    few = rows.n < rows.tuning.ridge_below * rows.parameters
    loose = (levels.bisquare > 0) & few
    return np.where(loose, rows.tuning.loose_tolerance, rows.tuning.tolerance)


def forms_hessians(rows: ScaledRows) -> bool:
    """Whether Hessians are formed, or only applied: that takes whitened rows in memory.

    To form one takes as many products as rows, and to factorise it as many as columns; to apply it takes
    products with the rows alone. Where rows are few, penalties make many levels, which take so few products
    each that a Hessian is worth it only if it is made by the compiled pass of narrow rows; and where rows
    stay in the cache, compiled steps read them as often as they like.
    """
    return affords_hessians(rows) and (is_narrow(rows) or not rows.stays_in_cache)


def affords_hessians(rows: ScaledRows) -> bool:
    """The same where steps are not compiled ones: whether the Hessians of a sample may serve these rows."""
    if not rows.in_basis:
        return True
    rank, tuning = rows.whitening.rank, rows.tuning
    few = rows.n < tuning.second_fit_rows * rank and rows.loss.link == "identity" and not is_narrow(rows)
    return not few and rank * (1.0 + rank / max(rows.n, 1)) <= tuning.hessian_columns


@dataclass(frozen=True)
class System:
    """(H + λS + damping) x = b for every level, where H is in the scores as Hessians or as curvatures."""

    rows: ScaledRows
    levels: Levels
    scores: Scores
    total: float
    damping: float

    def solve(self, b: Array, enough: Array | float = 0.0) -> Array:
        """One right-hand side a level, as columns, of each of which that much may be left."""
        if not self.scores.hessian.size:
            length = np.maximum(np.linalg.norm(b, axis=0), _TINY)
            return self._conjugate_gradients(b, np.clip(enough / length, self.rows.tuning.cg_tolerance, 1.0))
        factors = self._factors
        return solve_levels(self.matrices, b) if factors is None else _solve_factored(factors, b)

    @functools.cached_property
    def matrices(self) -> Array:
        """One a level."""
        H, ridge = self.scores.hessian / self.total, self.levels.ridge
        if ridge.any():
            H += ridge[:, None, None] * self.rows.whitening.slopes_matrix()
        if self.damping:
            diagonal = np.arange(H.shape[1])
            H[:, diagonal, diagonal] += self.damping
        return H

    @functools.cached_property
    def _factors(self) -> list[Array] | None:
        """Cholesky's, which serve all steps; None for few coordinates, or where a matrix is singular."""
        if self.matrices.shape[1] < _CHOLESKY_FROM:
            return None
        found = [lapack.dpotrf(H, lower=True, clean=False) for H in self.matrices]
        return None if any(failed for _, failed in found) else [factor for factor, _ in found]

    def _conjugate_gradients(self, b: Array, tolerance: Array) -> Array:
        tuning, basis = self.rows.tuning, self.rows.whitening
        ridges = (self.levels.ridge, basis.inverse, basis.constant)
        equations = Equations(self.rows.for_steps, self.scores.curvature / self.total, *ridges, self.damping)
        return equations.solve(b.T, tolerance, tuning.cg_steps).x.T


@dataclass(frozen=True)
class StandIns:
    """Steps on other rows than those at hand, which stand for them.

    Gradients of the rows at hand are moved to that of the others, and their levels are solved: unlike a
    Newton step that allows for curvatures that change on the way. ``size`` is the number of the others. A
    ``system`` from nearby saves most of the time.
    """

    rows: ScaledRows
    levels: Levels
    phi: Array
    size: float
    system: System | None = None

    def solve(self, b: Array) -> Array:
        """Steps from φ, given the gradients of the other rows, per weight and less penalties."""
        rows, levels, phi = self.rows, self.levels, self.phi
        own = level_scores(rows, phi, levels, hessian=False).gradient / rows.total
        lean = b - own + levels.ridge * rows.whitening.slopes(phi)
        polished = rows.tuning.polished * min(math.sqrt(rows.n / self.size), 1.0)
        found = newton(
            rows, phi, levels, _QUICK, chord=True, system=self.system, polished=polished, lean=lean
        )
        if not found.settled.all():
            found = newton(rows, phi, levels, polished=polished, lean=lean)
        return found.phi - phi


def solve_levels(H: Array, b: Array) -> Array:
    """Solve one positive definite system for every level; a singular one in the sense of least squares."""
    try:
        return np.linalg.solve(H, b.T[:, :, None])[:, :, 0].T
    except np.linalg.LinAlgError:
        return np.column_stack(
            [np.linalg.lstsq(matrix, side, rcond=None)[0] for matrix, side in zip(H, b.T, strict=True)]
        )


def _solve_factored(factors: list[Array], b: Array) -> Array:
    solved = (lapack.dpotrs(factor, side, lower=True)[0] for factor, side in zip(factors, b.T, strict=True))
    return np.column_stack(list(solved))


def capped(loss: Loss, step: Array) -> Array:
    """The step, shortened for the log link: exp overflows on long ones."""
    norm = np.linalg.norm(step, axis=0)
    return step if loss.link == "identity" else step / np.maximum(norm, 1.0)
