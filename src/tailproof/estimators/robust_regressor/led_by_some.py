"""Where all rows lead, by their sums at one place and by how those of some rows change from there.

To know sums at another place takes a pass over all rows; those of some rows, in memory, can be had anywhere.
"""

from __future__ import annotations

import functools

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.law_equations import ByLaw
from tailproof.estimators.robust_regressor.noise_equations import BySize, coordinates_of
from tailproof.estimators.robust_regressor.row_tiles import long_tiles
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.score_equations import ByScore
from tailproof.estimators.robust_regressor.score_steps import (
    curvature_of_rows,
    own_curvature_of_rows,
    solved_by_score,
)
from tailproof.estimators.robust_regressor.second_fit import curved_by, sums_for_steps
from tailproof.estimators.robust_regressor.sized_steps import (
    curved_by_law,
    sizes_over_rows,
    solved_by_steps,
    solved_either_way,
    with_sizes_held,
)


def led_by_some(equations: BySize, sums: Array, some: ScaledRows) -> tuple[BySize, float, Array] | None:
    """Where sums vanish if they change as those of some rows do; None if steps do not settle.

    Some rows know more than derivatives do: a row that hardly has noise may be truncated here and not there.

    Parameters
    ----------
    equations : BySize
    sums : array
        Of all rows, here.
    some : ScaledRows
        With weights in proportion to what each stands for.

    Returns
    -------
    BySize, float, array
        With the length of the way in standard errors, and what it changes in θ.
    """
    here, unknowns = scores_over_rows(equations, some), len(equations.inverse)
    factor = equations.total(sums) / float(some.weights.sum())

    def sums_at(there: BySize) -> Array:
        changed = sums.copy()
        changed[:unknowns] += factor * (scores_over_rows(there, some) - here)
        return changed

    curved = curved_by(some)
    found = solved_by_steps(equations, sums_at, curved)
    if found is None:  # derivatives may be those of other rows
        found = solved_by_steps(curved(equations), sums_at, curved)
    if found is None:
        found = solved_by_steps(curved(with_sizes_held(equations, some)), sums_at, curved)
    if found is None:
        return None
    change = found[0].theta - equations.theta
    return found[0], equations.length(coordinates_of(equations.map, change), sums), change


def led_by_far_rows(
    equations: ByScore, sums: Array, some: ScaledRows, far: ScaledRows | None
) -> tuple[ByScore, float, Array] | None:
    """The same for a score, whose sums change as the mean ψ′ says, but for those of far rows.

    All rows know the mean ψ′ better than some do. It is not that of a category whose few rows may all have
    the same score, and these are at hand: they have most of the leverage.

    Parameters
    ----------
    equations : ByScore
    sums : array
        Of all rows, here.
    some : ScaledRows
        With weights in proportion to what each stands for.
    far : ScaledRows or None
        Those of them that have a large leverage.
    """
    start, total = equations.with_means(sums), equations.total(sums)
    factor = total / float(some.weights.sum())
    every = factor * curvature_of_rows(start, some)
    near = every if far is None else every - factor * curvature_of_rows(start, far)
    here = None if far is None else factor * _step_sums(start, far)

    def sums_at(there: ByScore) -> Array:
        changed = sums + start.expected_change(there, near)
        if far is not None and here is not None:
            changed[: here.size] += factor * _step_sums(there, far) - here
        return changed

    def own_curvature(there: ByScore) -> Array:
        by_mean = start.information * near
        return (by_mean if far is None else by_mean + factor * own_curvature_of_rows(there, far)) / total

    found = solved_by_score(start, sums_at, lambda: every, own_curvature)
    if found is None:
        return None
    change = found[0].theta - equations.theta
    return found[0], equations.length(coordinates_of(equations.map, change), sums), change


def _step_sums(equations: ByScore, rows: ScaledRows) -> Array:
    """What steps go by."""
    return sums_for_steps(equations, rows, np.zeros(rows.width), np.ones(rows.n))[:-2]


def law_led_by_some(
    law: ByLaw, sums: Array, before: BySize, after: BySize, some: ScaledRows
) -> tuple[ByLaw, float] | None:
    """Where sums of a law vanish if they change as those of some rows do, and the length of the way there.

    Parameters
    ----------
    law : ByLaw
    sums : array
        Of all rows, here.
    before, after : BySize
        Where sizes were when these were added up, and where they are now.
    some : ScaledRows
    """
    here, sizes = law.sums_over(some, sizes_over_rows(before, some)), sizes_over_rows(after, some)
    factor = law.total(sums) / float(some.weights.sum())
    found = solved_either_way(
        law.levelled(after),
        lambda there: sums + factor * (there.sums_over(some, sizes) - here),
        curved_by_law(after, some),
    )
    return None if found is None else (found, law.way_to(found, sums))


def scores_over_rows(equations: BySize, rows: ScaledRows) -> Array:
    """The part of the sums that a solution makes vanish."""
    parts = (equations.score_sums(Z, rows.y[part], rows.weights[part]) for part, Z in long_tiles(rows))
    return np.asarray(functools.reduce(np.add, parts))
