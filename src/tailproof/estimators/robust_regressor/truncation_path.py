"""A path of linear fits from strongly robust to untruncated, with the same fits for folds left out.

What a level solves is in :mod:`tailproof.estimators.robust_regressor.levels`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.automatic import robust_shifts, share_of_informative_rows, share_of_untied_targets
from tailproof.core.validate import RARE, means_of_neighbours, resistant_mean, resistant_means
from tailproof.estimators.robust_regressor.levels import (
    Levels,
    Scores,
    is_narrow,
    level_scores,
)
from tailproof.estimators.robust_regressor.newton import System, affords_hessians, newton
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, Whitening, gram
from tailproof.estimators.robust_regressor.tuning import Tuning
from tailproof.native.levels import level_pulls, level_residuals

if TYPE_CHECKING:
    from tailproof.estimators.robust_regressor.second_fit import SecondFit


@dataclass(frozen=True)
class Evidence:
    """What the fits themselves tell about each level, where noise is assumed to be independent of X.

    Attributes
    ----------
    variance : array
        Predicted excess risk of the slopes, E(prediction − mean)², from the variance of ψ.
    conflict : array
        Largest normal score of the distance to a level of larger variance: about 2 or more says that the
        level is biased, since the noise does depend on X. NaN where the theory does not hold (penalties,
        log links).
    """

    variance: Array
    conflict: Array


@dataclass(frozen=True)
class TruncationPath:
    """Fits at every level: θ = Bφ for scaled columns, before the intercepts are recentred.

    The last step of a level that is ``settled`` was short.
    """

    rows: ScaledRows
    levels: Levels
    phi: Array
    scores: Scores
    settled: NDArray[np.bool_]

    @property
    def basis(self) -> Whitening:
        """The whitening of the rows."""
        return self.rows.whitening

    @functools.cached_property
    def informative_share(self) -> float:
        """Share of rows that are informative about the mean, by the residuals of the most robust level."""
        rows = self.rows
        weights = None if rows.even else rows.weights
        if rows.loss.link != "identity":
            return share_of_untied_targets(rows.y, weights)
        return share_of_informative_rows(rows.y, self.residuals_of(0), weights)

    @property
    def tells_sizes(self) -> bool:
        """Whether sizes of residuals are those of the noise: not if most rows are without an event."""
        return self.informative_share >= 0.5

    @functools.cached_property
    def stopped(self) -> NDArray[np.bool_]:
        """Levels of the log link that have stopped where another step would still gain something.

        The log mean of a category whose targets are all zero is −∞: its slope goes on for ever, for nothing.
        """
        rows, levels = self.rows, self.levels
        if rows.loss.link == "identity" or self.settled.all():
            return np.zeros(len(levels), dtype=bool)
        g = self.scores.gradient / rows.total - levels.ridge * self.basis.slopes(self.phi)
        step = System(rows, levels, self.scores, rows.total, rows.tuning.vanishing_damping).solve(g)
        return np.asarray(~self.settled & ~((g * step).sum(axis=0) <= _NOTHING))

    def cautious(self) -> TruncationPath:
        """The path with less tolerance for what contradicts its levels, where few rows are informative."""
        tuning = stricter_where_rare(self.informative_share, self.rows.tuning)
        if tuning is self.rows.tuning:
            return self
        path = replace(self, rows=replace(self.rows, tuning=tuning))
        known = ("residuals", "informative_share")
        vars(path).update({name: made for name, made in vars(self).items() if name in known})
        return path

    @functools.cached_property
    def residuals(self) -> Array:
        """Targets less predictions, a row a level: identity link, before intercepts are recentred."""
        predictions = self.rows.predictions(self.phi)
        return np.subtract(self.rows.y, predictions, out=predictions)

    def residuals_of(self, level: int) -> Array:
        """The same of one level, without those of the others unless they are known."""
        if "residuals" in vars(self):
            return np.asarray(self.residuals[level])
        rows, phi = self.rows, np.ascontiguousarray(self.phi[:, level])
        if rows.in_basis and is_narrow(rows):
            return level_residuals(rows.X, rows.y, phi)
        predictions = rows.predictions(phi[:, None])[0]
        return np.subtract(rows.y, predictions, out=predictions)

    def only(self, chosen: Sequence[int]) -> TruncationPath:
        """The path with some of its levels."""
        kept, scores = list(chosen), self.scores
        if kept == list(range(len(self.levels))):
            return self
        some = replace(
            self,
            levels=self.levels.only(kept),
            phi=self.phi[:, kept],
            scores=Scores(
                scores.value[kept],
                scores.gradient[:, kept],
                scores.hessian[kept] if scores.hessian.size else scores.hessian,
                scores.curvature[kept] if scores.curvature.size else scores.curvature,
            ),
            settled=self.settled[kept],
        )
        if "residuals" in vars(self):
            vars(some)["residuals"] = self.residuals[kept]  # known, so that nobody need make them again
        if "informative_share" in vars(self) and kept[0] == 0:
            vars(some)["informative_share"] = self.informative_share
        return some

    def moved(self, X: Any, y: Array, weights: Array) -> TruncationPath:
        """The path on more rows, which include its own: a step or two from here."""
        rows, phi = self.rows.others(X, y, weights), self.phi
        if self.basis.rank < min(rows.width, rows.n):
            # Columns that are constant or collinear in the sample need not be so in all rows.
            rows, phi = self._whitened_anew(X, y, weights, self.basis.map @ phi)
        identity = rows.loss.link == "identity"
        passes = rows.tuning.polishing_identity if identity else rows.tuning.polishing_log
        polished = rows.tuning.polished if identity else 0.0
        system = self.system() if phi is self.phi and identity and affords_hessians(rows) else None
        if system is not None and rows.n > _HALFWAY_FROM * self.rows.n:
            halfway = self._halfway(rows, passes, system)
            phi, system = halfway.phi, halfway.system()
        solution = newton(rows, phi, self.levels, passes=passes, chord=True, system=system, polished=polished)
        scores, near = solution.scores, np.ones(len(self.levels), dtype=bool)
        if system is not None:
            near = self._is_near(solution.phi)
        if not (solution.settled & near).all():
            phi = solution.phi
            if system is not None:
                # Of rare categories and heavy-tailed columns a sample knows too little.
                phi = np.where(near, phi, self.phi)
                rows, phi = self._whitened_anew(X, y, weights, self.basis.map @ phi)
            more = _MORE * passes if identity else None
            solution = newton(rows, phi, self.levels, passes=more, polished=polished)
            scores = solution.scores
        elif system is not None:
            larger = rows.total / system.total
            scores = replace(scores, hessian=larger * system.scores.hessian)
        return TruncationPath(rows, self.levels, solution.phi, scores, solution.settled)

    def _is_near(self, phi: Array) -> NDArray[np.bool_]:
        """Whether predictions have changed by less than the sample's residuals; φ has the same lengths.

        A row that is far along a column of which the sample knows next to nothing makes steps without end.
        """
        change = np.linalg.norm(phi - self.phi, axis=0)
        return np.asarray(change <= np.sqrt(np.mean(self.residuals**2, axis=1)))

    def _halfway(self, rows: ScaledRows, passes: int, system: System) -> TruncationPath:
        """The path on some of many more rows: from there, fewer passes over all of them are left."""
        part = rows.tenth
        polished = rows.tuning.polished
        found = newton(part, self.phi, self.levels, passes, chord=True, system=system, polished=polished)
        return TruncationPath(part, self.levels, found.phi, found.scores, found.settled)

    def _whitened_anew(self, X: Any, y: Array, weights: Array, theta: Array) -> tuple[ScaledRows, Array]:
        """Other rows in a basis of their own, and φ of θ in it."""
        rows = replace(self.rows.with_scales_of(X), basis=None).others(X, y, weights).whitened()
        return rows, rows.whitening.coordinates(theta)

    def system(self) -> System:
        """What gives Newton steps, by these rows."""
        scores = level_scores(self.rows, self.phi, self.levels, exact=True)
        return System(self.rows, self.levels, scores, self.rows.total, 0.0)

    def recentred(self, delta: float, first: Array | None = None) -> Array:
        """θ of every level, with the intercept at the resistant mean of the residuals.

        ``first`` has the residuals of the first level that is truncated, where they are known.
        """
        theta, cut = self.basis.map @ self.phi, self.levels.truncated
        if not (self.rows.fit_intercept and cut.size):
            return theta
        if self.rows.loss.link == "identity":
            theta[-1, cut] += self._mean_residuals(cut, delta, first)
        else:
            predictions = self.rows.predictions(self.phi[:, cut])
            theta[-1, cut] += _shifts(self.rows, predictions, delta)
        return theta

    def _mean_residuals(self, levels: NDArray[np.intp], delta: float, first: Array | None = None) -> Array:
        """Resistant means of the residuals of some levels: one after the other where columns are few.

        There residuals of all levels would take more memory than the rows do.
        """
        rows = self.rows
        weights = None if rows.even else rows.weights
        informative_share = self.informative_share
        if 8 * rows.n * levels.size <= rows.tuning.tile_bytes:
            return resistant_means(self.residuals[levels], delta, weights, informative_share)
        apart = self.phi[:, levels[:1]] - self.phi[:, levels]
        if np.linalg.norm(self.slopes_alone(apart), axis=0).max() <= _NEIGHBOURS:
            # So close to each other, and with so many rows, they differ as plain means do.
            first = self.residuals_of(int(levels[0])) if first is None else first
            mean = resistant_mean(first, delta, weights, informative_share=informative_share)
            return np.asarray(mean + self._mean_row() @ apart)
        few = len(self.levels) > rows.width
        residuals = (self.residuals_of(level) if few else self.residuals[level] for level in levels.tolist())
        return means_of_neighbours(residuals, delta, weights, informative_share)

    def _mean_row(self) -> Array:
        """Of the rows, in whitened coordinates."""
        mean = self.rows.mean_tile
        return np.asarray(mean if self.rows.in_basis else mean @ self.basis.map)

    def refit(self, delta: float) -> Refit:
        """The levels as they are, recentred."""
        return Refit(self, self.recentred(delta), np.eye(len(self.levels)))

    def as_it_is(self) -> Refit:
        """The levels as they are, for their slopes."""
        return Refit(self, self.basis.map @ self.phi, np.eye(len(self.levels)))

    def nothing_held_out(self) -> Array:
        """NaN in place of predictions."""
        return np.full((len(self.levels), self.rows.n), np.nan)

    def evidence(self) -> Evidence:
        """Predicted excess risk of every level, and how much it contradicts less robust ones.

        If the noise is independent of X, all levels estimate the same slopes; that of level m errs by a mean
        of a_m(r) q over whitened rows q, a = ψ/E ψ′. Then the squared distance of two levels over
        E(a_m − a_l)²/n has a χ² law with as many degrees of freedom as slopes.
        """
        rows, levels = self.rows, self.levels
        freedom = self.basis.rank - int(rows.fit_intercept)
        nothing = np.full(len(levels), np.nan)
        few = rows.n < rows.tuning.evidence_rows * rows.parameters
        if few or rows.loss.link != "identity" or freedom < 1:
            return Evidence(nothing, nothing)
        shares = rows.weights / rows.total
        a = self.pulls(shares)
        a -= (a @ shares)[:, None]
        spread = gram(a.T, shares**2)
        phi = self.slopes_alone(self.phi)
        distance = ((phi[:, :, None] - phi[:, None, :]) ** 2).sum(axis=0)
        variance = np.diag(spread)
        with np.errstate(divide="ignore", invalid="ignore"):
            chi = distance / (variance[:, None] + variance - 2 * spread)
        larger = (variance > variance[:, None]) & (levels.ridge == levels.ridge[:, None])
        score = np.where(larger & np.isfinite(chi), normal_score(chi, freedom), -np.inf)
        plain = levels.ridge == levels.ridge.min()
        conflict = np.maximum(score.max(axis=1), 0.0)
        return Evidence(np.where(plain, freedom * variance, np.nan), np.where(plain, conflict, np.nan))

    def slopes_alone(self, phi: Array) -> Array:
        """φ without the direction of the constant."""
        return self.basis.without_constant(phi) if self.rows.fit_intercept else phi

    def pulls(self, shares: Array) -> Array:
        """ψ/E ψ′ of every row, a row a level, given the shares of the rows."""
        levels, floor = self.levels, self.rows.tuning.truncated_curvature
        psi, slopes = level_pulls(self.residuals, shares, levels.tau, levels.bisquare, floor)
        psi /= np.maximum(slopes, LEAST_SLOPE)[:, None]
        return psi


@dataclass(frozen=True)
class Refit:
    """Levels fitted on all rows, and how the fits that were asked for are made of them.

    Attributes
    ----------
    path : TruncationPath
    theta : array of shape (width, levels)
        Recentred.
    shares : array of shape (fits, levels)
        Weights, which add up to one: a fit may be drawn towards another level.
    corrected : bool
        Whether slopes are corrected for noise that grows along some columns.
    second : SecondFit, optional
        Slopes by what was learned about the noise.
    """

    path: TruncationPath
    theta: Array
    shares: Array
    corrected: bool = False
    second: SecondFit | None = None


_HALFWAY_FROM = 40  # times the rows of a sample, from which a tenth of all is solved first
_NEIGHBOURS = 0.1  # median deviations of the target between predictions of two levels, but for a constant
_MORE = 4  # times the passes, where a sample knows too little of all rows
_NOTHING = 1e-6  # a row, of the loss of targets whose mean is one
LEAST_SLOPE = 0.02  # mean of ψ′: a bisquare level with less has next to no rows left


def stricter_where_rare(informative_share: float, tuning: Tuning) -> Tuning:
    """Less tolerance for conflicts where few rows are informative about the mean."""
    if informative_share > RARE or tuning.conflict_tolerated <= tuning.rare_tolerated:
        return tuning
    return replace(tuning, conflict_tolerated=tuning.rare_tolerated, conflict_certain=tuning.rare_certain)


def normal_score(chi: Array, freedom: int) -> Array:
    """Wilson and Hilferty: a χ² value as a standard normal one."""
    spread = 2.0 / (9.0 * freedom)
    return np.asarray((np.cbrt(np.maximum(chi, 0.0) / freedom) - (1.0 - spread)) / math.sqrt(spread))


def _shifts(rows: ScaledRows, p: Array, delta: float) -> Array:
    """The same for fits on all rows."""
    weights = None if rows.even else rows.weights
    return robust_shifts(rows.loss, p, rows.y, weights, delta, share_of_untied_targets(rows.y, weights))
