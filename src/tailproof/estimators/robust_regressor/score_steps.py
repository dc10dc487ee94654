"""Steps to where the sums of scores of the law of the noise vanish."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.noise_equations import BySize
from tailproof.estimators.robust_regressor.row_tiles import scaled_tiles
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.score_equations import ByScore
from tailproof.estimators.robust_regressor.sized_steps import CONTRACTS, least_loss

_STEPS = 16
_STEEP = 0.5  # of the mean ψ′ at the start: with less of it, rows have been led to where ψ is flat
_CLOSE = 0.001  # of the error of a fit: what steps may leave; each shrinks by the factor of the one before


def solved_by_score(
    start: ByScore,
    sums_at: Callable[[ByScore], Array],
    curvature: Callable[[], Array],
    own_curvature: Callable[[ByScore], Array],
) -> tuple[ByScore, Array] | None:
    """Where sums vanish, and those before the last step; None if steps do not settle.

    Where steps hardly shrink, first white coordinates of the rows are made, which may know more than the few
    that the equations are from, and then ψ′ of every row: a rare category may have all its rows where ψ is
    flat, or at an edge.

    Parameters
    ----------
    start : ByScore
    sums_at : function
        Of equations on their way.
    curvature, own_curvature : functions
        Σ vzz' of the rows, and the mean of ψ′zz' at equations on their way.
    """
    here, settled = _while_steps_shrink(start, sums_at)
    if settled is None:
        here, settled = _while_steps_shrink(here.curved(curvature()), sums_at)
    return settled or least_loss(here, sums_at, lambda there: there.curved_by_own(own_curvature(there)))


def _while_steps_shrink(
    start: ByScore, sums_at: Callable[[ByScore], Array]
) -> tuple[ByScore, tuple[ByScore, Array] | None]:
    """Where steps lead as long as they shrink; once more with the last sums if sums vanish there."""
    here, before = start, math.inf
    for _ in range(_STEPS):
        sums = sums_at(here)
        there, length = here.stepped(sums)
        if there.information < _STEEP * start.information:
            return start, None
        if length <= _CLOSE or (math.isfinite(before) and _CLOSE * before >= length**2):
            return there, (there, sums)
        if length > CONTRACTS * before:
            break
        here, before = there, length
    return here, None


def curvature_of_rows(equations: ByScore | BySize, rows: ScaledRows) -> Array:
    """Sums over rows that make the derivatives of the conditions."""
    parts = (equations.curvature(Z, rows.y[part], rows.weights[part]) for part, Z in scaled_tiles(rows))
    return np.asarray(functools.reduce(np.add, parts))


def own_curvature_of_rows(equations: ByScore, rows: ScaledRows) -> Array:
    """The same by the ψ′ of every row."""
    parts = (equations.own_curvature(Z, rows.y[part], rows.weights[part]) for part, Z in scaled_tiles(rows))
    return np.asarray(functools.reduce(np.add, parts))
