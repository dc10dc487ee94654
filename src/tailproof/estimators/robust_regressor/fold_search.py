"""Levels without a fold, where columns are many and rows few: Newton steps, each as long as is best.

They start where all rows have led, so that steps which stop half way still know the rows held out. Tukey's ψ
has many solutions, and the one next to that of all rows knows them for good: it starts from Huber's without
the fold, as it does on all rows. All levels without all folds move together: held-out rows have no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.estimators.robust_regressor.levels import Levels, is_narrow
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.native.conjugate_gradients import Equations, Room, Solved, precision_of
from tailproof.native.fit_search import Steps, search_fits
from tailproof.native.searches import Fits, pulls_of_fits, step_lengths

_FINER = 0.5  # of what is small enough: what a step by conjugate gradients may leave of a gradient
_ROUGH = 0.2  # of the gradient: the same where further steps follow
_LARGEST = np.finfo(float).max  # τ: that of least squares is still less than none
_TINY = 1e-300


def is_searched(rows: ScaledRows) -> bool:
    """Whether levels of all rows are searched for as those without a fold are, by compiled steps."""
    return rows.stays_in_cache and not is_narrow(rows)


def has_few_rows(rows: ScaledRows) -> bool:
    """Whether leaving a fold out takes more than one Newton step, and Tukey's levels start from Huber's."""
    return rows.n < rows.tuning.one_step_rows * rows.parameters


def searched(rows: ScaledRows, levels: Levels, phi: Array) -> Array:
    """φ of every level, but for rounding in single precision, from one start for all.

    Where rows are few Tukey's levels take some steps from the most robust of Huber's, as without a fold.
    """
    shares, tuning = rows.weights[None] / rows.total, rows.tuning
    huber, tukey = np.flatnonzero(levels.bisquare == 0), np.flatnonzero(levels.bisquare)
    found, residuals = np.ascontiguousarray(phi.T), rows.y - rows.predictions(phi)
    few = has_few_rows(rows)
    nearest = _most_robust(levels, tukey) if few else tukey
    most = tuning.bisquare_steps if few else tuning.searches
    for some, start, steps in ((huber, huber, tuning.searches), (tukey, nearest, most)):
        here = found[start], residuals[start]
        search = Search.start(rows, levels.only(some.tolist()), shares, *here)
        search.run_from_afar(steps)
        found[some], residuals[some] = search.phi, search.residuals
    return found.T


def searched_without(
    rows: ScaledRows, levels: Levels, phi: Array, residuals: Array, folds: Sequence[NDArray[np.intp]]
) -> Array:
    """φ of every level (last axis) for the rows that each of the folds leaves, from that of all rows.

    Parameters
    ----------
    rows : ScaledRows
        Whitened, with the identity link.
    levels : Levels
    phi : array of shape (rank, levels)
    residuals : array of shape (levels, n)
        Of all rows at φ.
    folds : sequence of arrays
    """
    shares, count = shares_of_rest(rows.weights, folds), len(folds)
    # With more rows the solution next to that of all rows is the one without the fold, for Tukey's ψ as well.
    from_huber = (levels.bisquare > 0) & has_few_rows(rows)
    huber, tukey = np.flatnonzero(~from_huber), np.flatnonzero(from_huber)
    found = np.empty((count, len(levels), rows.whitening.rank))
    start = phi.T[huber], residuals[huber]
    first = Search.start(rows, levels.only(huber.tolist()), shares, *(np.tile(a, (count, 1)) for a in start))
    first.run(rows.tuning.searches)
    found[:, huber] = first.phi.reshape(count, huber.size, -1)
    if tukey.size:
        nearest = np.searchsorted(huber, _most_robust(levels, tukey))
        place = (huber.size * np.arange(count)[:, None] + nearest).ravel()
        start = first.phi[place], first.residuals[place]
        second = Search.start(rows, levels.only(tukey.tolist()), shares, *start)
        second.run(rows.tuning.bisquare_steps)
        found[:, tukey] = second.phi.reshape(count, tukey.size, -1)
    return np.moveaxis(found, 1, -1)


def shares_of_rest(weights: Array, folds: Sequence[NDArray[np.intp]]) -> Array:
    """Weights of rows without each of the folds (first axis), which add up to one; zero for those of it."""
    shares = np.tile(weights, (len(folds), 1))
    for k, fold in enumerate(folds):
        shares[k, fold] = 0.0
    return np.asarray(shares / shares.sum(axis=1)[:, None])


def _most_robust(levels: Levels, of: NDArray[np.intp]) -> NDArray[np.intp]:
    """Of each of some levels, Huber's of the same penalty that truncates most, or least squares."""
    alike = (levels.bisquare == 0) & (levels.ridge == levels.ridge[of, None])
    return np.asarray(np.where(alike, np.minimum(levels.tau, _LARGEST), np.inf).argmin(axis=1))


@dataclass(frozen=True)
class Search:
    """Fits on their way: φ and residuals, a row each, which steps change in place."""

    rows: ScaledRows
    fits: Fits
    ridge: Array
    phi: Array
    residuals: Array

    @classmethod
    def start(cls, rows: ScaledRows, levels: Levels, shares: Array, phi: Array, residuals: Array) -> Search:
        """All levels for every row of shares, one after the other."""
        times, count = len(shares), len(levels)
        part = np.repeat(np.arange(times), count)
        fits = Fits(shares, part, np.tile(levels.tau, times), np.tile(levels.bisquare, times))
        return cls(rows, fits, np.tile(levels.ridge, times), phi, residuals)

    def run(self, searches: int) -> None:
        """A whole Newton step, and so many further ones, of fits whose gradients are not small enough."""
        if self.rows.stays_in_cache:
            self._run_compiled(searches)
        else:
            self._run_together(searches)

    def _run_compiled(self, searches: int) -> None:
        tuning = self.rows.tuning
        steps = Steps(searches, tuning.corrected, 0.0, _FINER, _ROUGH, tuning.truncated_curvature, whole=True)
        table = self.rows.for_searches(tuning.fold_damping)
        search_fits(table, self.fits, self.ridge, steps, self.phi, self.residuals)

    def run_from_afar(self, searches: int) -> None:
        """Newton steps, each as long as is best, until the next one would be short beside φ."""
        tuning = self.rows.tuning
        close = _FINER * tuning.tolerance
        steps = Steps(
            searches, 0.0, close, _FINER, tuning.cg_tolerance, tuning.truncated_curvature, whole=False
        )
        search_fits(self.rows.for_searches(0.0), self.fits, self.ridge, steps, self.phi, self.residuals)

    def _run_together(self, searches: int) -> None:
        tuning = self.rows.tuning
        here = np.arange(self.ridge.size)
        enough = np.empty(0)
        count, n = self.residuals.shape
        room, pulls = Room(count, n, precision_of(self.rows.for_steps)), np.empty((2, count, n))
        for done in range(searches + 1):
            some = self._only(here)
            floor = tuning.truncated_curvature
            pull, curvature = pulls_of_fits(some.residuals, some.fits, floor, (pulls[0], pulls[1]))
            g = some._gradient(pull)
            length = np.linalg.norm(g, axis=1)
            enough = enough if done else tuning.corrected * length
            large = (length > enough[here]) | (done == 0)
            if not large.any():
                break
            if not large.all():
                here, some = here[large], some._only(np.flatnonzero(large))
                g, curvature, length = g[large], curvature[large], length[large]
            some._step(g, curvature, some._left(length, enough[here]), room, first=done == 0)
            if some is not self:
                self.phi[here], self.residuals[here] = some.phi, some.residuals

    def _only(self, kept: NDArray[np.intp]) -> Search:
        if kept.size == self.ridge.size:
            return self  # no copy: steps are taken in place
        fits, ridge = self.fits.only(kept), self.ridge[kept]
        return Search(self.rows, fits, ridge, self.phi[kept], self.residuals[kept])

    def _left(self, length: Array, enough: Array) -> Array:
        """Shares of gradients that conjugate gradients may leave: one system is all of least squares."""
        finer = _FINER * enough / np.maximum(length, _TINY)
        rough = np.clip(np.maximum(_ROUGH, finer), self.rows.tuning.cg_tolerance, 1.0)
        return np.where(np.isinf(self.fits.tau), np.minimum(finer, 1.0), rough)

    def _step(self, g: Array, curvature: Array, left: Array, room: Room, first: bool) -> None:
        """Newton's, by curvatures as they are here: a whole first one, and others as long as is best."""
        tuning, basis = self.rows.tuning, self.rows.whitening
        # The damping pulls φ itself towards zero, so that directions absent from these rows vanish.
        side = g - tuning.fold_damping * self.phi if first else g
        ridges = (self.ridge, basis.inverse, basis.constant)
        solved = Equations(self.rows.for_steps, curvature, *ridges, tuning.fold_damping).solve(
            side, left, tuning.cg_steps, room
        )
        if not first:
            share = self._lengths(solved)[:, None]
            solved.x[:] *= share
            solved.predictions[:] *= share
        self.phi[:] += solved.x
        self.residuals[:] -= solved.predictions

    def _gradient(self, pull: Array) -> Array:
        """How the rows and the penalty pull; rounding of steps is far below what is small enough."""
        X = self.rows.for_steps
        return pull.astype(precision_of(X)) @ X - self._penalty(self.phi)

    def _lengths(self, step: Solved) -> Array:
        drag = self._penalty(step.x)
        along = (self.phi * drag).sum(axis=1), (step.x * drag).sum(axis=1)
        return step_lengths(self.residuals, step.predictions, self.fits, *along)

    def _penalty(self, phi: Array) -> Array:
        """λSφ of every fit."""
        basis = self.rows.whitening
        pull = phi * basis.inverse
        pull -= np.outer(phi @ basis.constant, basis.constant)
        pull *= self.ridge[:, None]
        return np.asarray(pull)
