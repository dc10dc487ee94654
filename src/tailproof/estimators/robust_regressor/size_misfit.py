"""Whether noise is as large as a fit by size has it: how far slopes move if sizes may bend along columns.

Where s(x) is not quite as modelled, the middle of skewed noise is in the wrong place, and slopes along the
columns that s(x) depends on are off. Least squares tells that only once its own errors are smaller. Sizes of
residuals tell it far better: with |z − q| for quantiles q of a column among the features of log s(x), one
Newton step from the fit says by how much slopes would change, and rows how much of that is chance.
"""

from __future__ import annotations

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.noise_equations import BySize, expected_derivatives
from tailproof.estimators.robust_regressor.row_tiles import long_tiles
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows, gram
from tailproof.estimators.robust_regressor.tuning import Tuning

_BENDS = (0.02, 0.16, 0.84, 0.98)  # quantiles of a column: two standard deviations and one, if it is normal
_LEFT = 1.5  # factor of a change: sizes that may bend there are not yet those of the noise
_ALIKE = 1e-8  # of the largest singular value: what bends have along a column of few values
_TINY = 1e-300


def trusted_share(equations: BySize, rows: ScaledRows, errors: Array, tuning: Tuning) -> float:
    """The share of slopes along the columns of a fit by size that its errors in sizes leave.

    If a slope would change by δ, with the standard error s, then b² = 1.5²(δ² − s²) is taken for the square
    of its bias, and e²/(e² + b²) is the share of least risk beside least squares, whose standard error is e.
    It counts as far as chance does not explain δ; of several columns the least share is taken.

    Parameters
    ----------
    equations : BySize
        At their solution.
    rows : ScaledRows
        As scaled columns; all, or some at random.
    errors : array of shape (d,)
        Of the distance to least squares along every column.
    tuning : Tuning
    """
    change, chance = change_with_bends(equations, rows)
    plain = errors[equations.columns]
    bias = _LEFT**2 * np.maximum(change**2 - chance**2, 0.0)
    span = tuning.conflict_certain - tuning.conflict_tolerated
    sure = np.clip((np.abs(change) / np.maximum(chance, _TINY) - tuning.conflict_tolerated) / span, 0.0, 1.0)
    return float(np.min(1.0 - sure * bias / np.maximum(bias + plain**2, _TINY), initial=1.0))


def change_with_bends(equations: BySize, rows: ScaledRows) -> tuple[Array, Array]:
    """How far slopes along the columns of a fit by size move if sizes may bend, and standard errors."""
    Z = np.concatenate([tile for _, tile in long_tiles(rows)])
    v, sizes, f = rows.weights / rows.weights.sum(), equations.sizes(Z), equations.features(Z)
    f = np.column_stack([f, _bends(np.clip(Z[:, equations.columns], -equations.reach, equations.reach))])
    noise = (rows.y - Z @ equations.theta) / sizes
    u = noise - equations.kappa
    inside, pull = np.abs(u) <= equations.tau, np.sign(u) / (np.abs(u) + equations.offset)
    means = (float(v @ inside), float((v * inside) @ noise), float(v @ pull), float((v * pull) @ noise))
    white = Z @ equations.map
    white /= sizes[:, None]
    products = gram(np.column_stack([white, np.ones(len(v)), f]), v)
    rank, known = white.shape[1], white.shape[1] + 1 + equations.gamma.size
    weights = _slopes_by_scores(products, equations, rank, means)
    weights[:, :known] -= _slopes_by_scores(products[:known, :known], equations, rank, means)
    tall = np.log(np.abs(u) + equations.offset)
    moves = np.clip(u, -equations.tau, equations.tau)[:, None] * (white @ weights[:, :rank].T)
    moves += np.multiply.outer(noise, weights[:, rank])
    moves += (tall - v @ tall)[:, None] * (f @ weights[:, rank + 1 :].T)
    moves *= v[:, None]
    return moves.sum(axis=0), np.sqrt(np.square(moves).sum(axis=0))


def _bends(z: Array) -> Array:
    """|z − q| for quantiles q of every column."""
    return np.concatenate([np.abs(z - quantiles) for quantiles in np.quantile(z, _BENDS, axis=0)], axis=1)


def _slopes_by_scores(
    products: Array, equations: BySize, rank: int, means: tuple[float, float, float, float]
) -> Array:
    """What means of scores are multiplied with to tell how far slopes along the columns move."""
    inverse = np.linalg.pinv(expected_derivatives(products, rank, *means), rcond=_ALIKE)
    return np.asarray(equations.map[equations.columns] @ inverse[:rank])
