"""How far coefficients may be off: standard errors, for sums of influences and for merges of candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tailproof.core import Array

_FEWEST_CANDIDATES = 5  # that tell how much they vary
_MEDIAN = np.pi / 2  # variance of a median over that of a mean, for normal candidates


@dataclass(frozen=True, eq=False)
class CoefficientErrors:
    """The law of the error of coefficients: normal about ``centre``, with covariance F'F.

    Attributes
    ----------
    centre : array of shape (m,)
        Coefficients without the pull of penalties, the intercept of each output after them.
    factor : array of shape (r, m)
        F.
    freedom : float
        Degrees of freedom of Student's law.
    how : str
        Where they come from, in one sentence.
    """

    centre: Array
    factor: Array
    freedom: float
    how: str

    @property
    def se(self) -> Array:
        """Standard errors."""
        return norms_of_columns(self.factor)

    def reach(self, delta: float) -> float:
        """Standard errors to either side that hold with probability 1 − δ."""
        return float(stats.t.ppf(1.0 - 0.5 * delta, self.freedom))


def norms_of_columns(matrix: Array) -> Array:
    """Euclidean norms, of tiny and huge numbers as well, which have no squares.

    Examples
    --------
    >>> norms_of_columns(np.array([[3e-200, 0.0], [4e-200, 0.0]])).tolist()
    [5e-200, 0.0]
    """
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(unit * np.sqrt(np.sum((matrix / unit) ** 2, axis=0)))


def errors_of_merge(
    candidates: Array, point: Array, distances: Array, merge: str, common: float = 0.0
) -> CoefficientErrors | None:
    """Errors of a merge of candidates from blocks of independent rows; None for very few candidates.

    The geometric median m of k points solves Σ (uⱼ − m)/dⱼ = 0, dⱼ = ‖uⱼ − m‖. In p dimensions its influence
    of a point is (uⱼ − m)/dⱼ over (1 − 1/p) Σ 1/dᵢ, and the squares of these, summed, are its covariance.

    Parameters
    ----------
    candidates : array of shape (k, m)
    point : array of shape (m,)
        What they were merged to.
    distances : array of shape (k,)
        Distances from it in the coordinates of the merge.
    merge : str
        A name in ``MERGES``.
    common : float
        What the candidates err by together, which their spread does not show, in standard errors.

    Examples
    --------
    >>> points = np.random.default_rng(0).standard_normal((400, 3))
    >>> found = errors_of_merge(points, points.mean(0), np.linalg.norm(points, axis=1), "geometric_median")
    >>> bool(np.all(np.abs(found.se - 0.05) < 0.01))
    True
    """
    k, m = candidates.shape
    if k < _FEWEST_CANDIDATES:
        return None
    typical = float(np.median(distances))
    near = np.maximum(distances, 0.05 * typical) if typical > 0 else np.ones(k)
    gaps = candidates - point
    if merge == "geometric_median":
        pull = 1.0 / near
        factor = gaps * (pull / ((1.0 - 1.0 / max(m, 2)) * pull.sum()))[:, None]
    else:
        # Far candidates count no more than typical ones, as in the merge.
        factor = gaps * (np.minimum(1.0, 2.0 * typical / near) * np.sqrt(_VARIANCES[merge](k)) / k)[:, None]
    factor *= np.sqrt((1.0 + common**2) * k / (k - 1.0))
    how = f"From how the candidates of {k} blocks of rows vary."
    return CoefficientErrors(point, factor, k - 1.0, how)


# Variance of a merge over that of the mean of k candidates: k, if it returns one of them.
_VARIANCES: dict[str, Callable[[int], float]] = {
    "smallest_ball": float,
    "krum": float,
    "coordinate_median": lambda k: _MEDIAN,
    "trimmed_mean": lambda k: _MEDIAN,
    "mean_around_median": lambda k: _MEDIAN,
    "ball_mean": lambda k: _MEDIAN,
    "centroid": lambda k: 1.0,
}
