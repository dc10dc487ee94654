"""Levels without a fold, where columns are many and rows few: Newton steps, each as long as is best.

They start where all rows have led, so that steps which stop half way still know the rows held out. Tukey's ψ
has many solutions, and the one next to that of all rows knows them for good: it starts from Huber's without
the fold, as it does on all rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.estimators.robust_regressor.levels import Levels, Scores, influence, psi_slopes
from tailproof.estimators.robust_regressor.newton import System
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.step_length import Line
from tailproof.native.conjugate_gradients import Steps, searched_levels

_FINER = 0.5  # of what is small enough: what a step by conjugate gradients may leave of a gradient
_ROUGH = 0.2  # of the gradient: the same where further steps follow
_LARGEST = np.finfo(float).max  # τ: that of least squares is still less than none


def searched_without(rest: ScaledRows, levels: Levels, phi: Array) -> Array:
    """φ of every level for the rows that are left, from that of all rows.

    Parameters
    ----------
    rest : ScaledRows
        Whitened by all rows, with the identity link.
    levels : Levels
    phi : array of shape (rank, levels)
    """
    tuning, found = rest.tuning, np.array(phi)
    huber, tukey = np.flatnonzero(levels.bisquare == 0), np.flatnonzero(levels.bisquare)
    found[:, huber] = _searched(rest, levels.only(huber.tolist()), phi[:, huber], tuning.searches)
    if tukey.size:
        start = found[:, _most_robust(levels, tukey)]
        found[:, tukey] = _searched(rest, levels.only(tukey.tolist()), start, tuning.bisquare_steps)
    return found


def _most_robust(levels: Levels, of: NDArray[np.intp]) -> NDArray[np.intp]:
    """Of each of some levels, Huber's of the same penalty that truncates most, or least squares."""
    alike = (levels.bisquare == 0) & (levels.ridge == levels.ridge[of, None])
    return np.asarray(np.where(alike, np.minimum(levels.tau, _LARGEST), np.inf).argmin(axis=1))


def _searched(rest: ScaledRows, levels: Levels, phi: Array, searches: int) -> Array:
    tuning, basis = rest.tuning, rest.whitening
    how = Steps(
        floor=tuning.truncated_curvature,
        damping=tuning.fold_damping,
        corrected=tuning.corrected,
        rough=_ROUGH,
        finer=_FINER,
        tolerance=tuning.cg_tolerance,
        searches=searches,
        steps=tuning.cg_steps,
    )
    if not isinstance(rest.X, np.ndarray):
        return search_in_python(rest, levels, phi, how)
    psi, constant = (levels.tau, levels.bisquare, levels.ridge), np.ascontiguousarray(basis.constant)
    return searched_levels(rest.X, rest.y, rest.weights, phi.T, *psi, basis.inverse, constant, how).T


def search_in_python(rest: ScaledRows, levels: Levels, phi: Array, how: Steps) -> Array:
    """What is compiled for dense rows: see :func:`searched_levels`."""
    phi, basis, total = np.array(phi), rest.whitening, rest.total
    residuals, shares = rest.y - rest.predictions(phi), rest.weights / total
    open_ones, enough = np.arange(len(levels)), np.zeros(len(levels))
    for done in range(how.searches + 1):
        here, r = levels.only(open_ones.tolist()), residuals[open_ones]
        g = np.asarray(rest.X.T @ (influence(r, here)[0] * shares).T)
        g -= here.ridge * basis.slopes(phi[:, open_ones])
        length = np.linalg.norm(g, axis=0)
        enough = enough if done else how.corrected * length
        large = (length > enough[open_ones]) | (done == 0)
        if not large.any():
            break
        open_ones, here, r = open_ones[large], here.only(np.flatnonzero(large).tolist()), r[large]
        # The damping pulls φ itself towards zero, so that directions absent from these rows vanish.
        g = g[:, large] - (0.0 if done else how.damping) * phi[:, open_ones]
        step = _step(rest, here, r, g, np.maximum(how.rough * length[large], how.finer * enough[open_ones]))
        change = rest.predictions(step)
        share = (
            _line(rest, here, r, change, phi[:, open_ones], step).shortest() if done else np.ones(len(here))
        )
        phi[:, open_ones] += share * step
        residuals[open_ones] -= share[:, None] * change
    return phi


def _step(rest: ScaledRows, levels: Levels, r: Array, g: Array, enough: Array) -> Array:
    """A Newton step by curvatures as they are here, which conjugate gradients apply."""
    curvature = psi_slopes(r, levels, rest.tuning) * rest.weights
    scores = Scores(np.empty(0), np.empty(0), np.empty(0), curvature)
    return System(rest, levels, scores, rest.total, rest.tuning.fold_damping).solve(g, enough)


def _line(rest: ScaledRows, levels: Levels, r: Array, change: Array, phi: Array, step: Array) -> Line:
    drag = levels.ridge * rest.whitening.slopes(step)
    penalties = (phi * drag).sum(axis=0), (step * drag).sum(axis=0)
    return Line(levels, r, change, rest.weights / rest.total, *penalties)
