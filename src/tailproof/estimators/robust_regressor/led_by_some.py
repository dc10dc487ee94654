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
from tailproof.estimators.robust_regressor.second_fit import curved_by, solved, sums_for_steps
from tailproof.estimators.robust_regressor.sized_steps import (
    curved_by_law,
    sizes_over_rows,
    solved_either_way,
)


def led_by_some(
    equations: ByScore | BySize, sums: Array, some: ScaledRows
) -> tuple[ByScore | BySize, float, Array] | None:
    """Where sums vanish if they change as those of some rows do; None if steps do not settle.

    Some rows know more than derivatives do: a row that hardly has noise may be truncated here and not there,
    and those of a rare category may all have the same score.

    Parameters
    ----------
    equations : ByScore or BySize
    sums : array
        Of all rows, here.
    some : ScaledRows
        With weights in proportion to what each stands for.

    Returns
    -------
    ByScore or BySize, float, array
        With the length of the way in standard errors, and what it changes in θ.
    """
    here = scores_over_rows(equations, some)
    factor = equations.total(sums) / float(some.weights.sum())

    def sums_at(there: ByScore | BySize) -> Array:
        changed = sums.copy()
        changed[: here.size] += factor * (scores_over_rows(there, some) - here)
        return changed

    found = solved(equations, sums_at, some)
    if found is None and isinstance(equations, BySize):  # derivatives may be those of other rows
        found = solved(curved_by(some)(equations), sums_at, some)
    if found is None:
        return None
    change = found[0].theta - equations.theta
    return found[0], equations.length(coordinates_of(equations.map, change), sums), change


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


def scores_over_rows(equations: ByScore | BySize, rows: ScaledRows) -> Array:
    """The part of the sums that steps go by."""
    if isinstance(equations, ByScore):
        return sums_for_steps(equations, rows, np.zeros(rows.width), np.ones(rows.n))[:-2]
    parts = (equations.score_sums(Z, rows.y[part], rows.weights[part]) for part, Z in long_tiles(rows))
    return np.asarray(functools.reduce(np.add, parts))
