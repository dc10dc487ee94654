"""Rows that a sample knows too little of: rare categories, far features.

The Hessian of a uniform sample of m rows of d columns errs by about √(cd/m) if no row has more than c times
the mean leverage. Rows with more are drawn from all rows by their leverage, all of them if they are few, and
stand beside the sample with weights that make up for it. A fit that weighs rows by the size of their noise
has leverages of its own (:mod:`tailproof.data.second_sums`): rows with next to no noise decide there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath

_FAR = 10.0  # times the mean leverage, from which on the sample does not count
_MOST_ROWS, _MOST_BYTES = 20_000, 2**26  # to draw, about
_COLLINEAR = 1e-9  # of the largest eigenvalue
_DIRECTIONS = 8  # in which leverages are measured: at random where there are more of them


@dataclass(frozen=True, eq=False)
class Leverage:
    """Leverages of rows against their mean in a sample, and which rows to draw.

    Attributes
    ----------
    map, constant : arrays of shape (d, directions) and (directions,)
        The leverage of features x is the square norm of x map + constant.
    share : float
        A far row is drawn with this probability for each unit of leverage.
    """

    map: Array
    constant: Array
    share: float

    @classmethod
    def of_sample(cls, path: TruncationPath, offset: Array, n: int) -> Leverage:
        """Against the rows of a path, for features whose centres are at an offset, and n rows in all."""
        basis, columns = path.basis, path.rows.columns
        B = basis.map @ _directions(basis.rank) / np.sqrt(basis.rank)
        # What is constant in the sample, a row of its own would have m times the mean leverage of.
        unseen = (basis.map[:-1] ** 2).sum(axis=1) <= path.rows.tuning.collinear
        B = np.column_stack([B, np.append(np.sqrt(path.rows.n) * unseen, 0.0)])
        most = min(_MOST_ROWS, _MOST_BYTES // (8 * columns.scale.size))
        features = B[:-1] / columns.scale[:, None]
        return cls(features, B[-1] - offset @ features, most / n)

    def of(self, x: Array) -> Array:
        """Leverages of rows."""
        image = self.map.T @ x.T  # a row a direction: long loops
        image += self.constant[:, None]
        return np.asarray(np.square(image, out=image).sum(axis=0))

    def is_far(self, leverages: Array) -> NDArray[np.bool_]:
        """Whether rows have so much that the sample does not count."""
        return np.asarray(leverages > _FAR)

    def chances(self, leverages: Array) -> Array:
        """Probabilities of far rows to be drawn."""
        return np.minimum(self.share * leverages, 1.0)


def root_of_leverages(products: Array) -> Array:
    """M for which the square norms of rows aM are their leverages over the mean, given means of aa'."""
    values, vectors = np.linalg.eigh(products)
    kept = values > _COLLINEAR * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept] * np.count_nonzero(kept))
    return np.asarray(root @ _directions(root.shape[1]))


def _directions(rank: int) -> Array:
    """An orthonormal basis, or random directions in which mean square lengths are the same."""
    if rank <= _DIRECTIONS:
        return np.eye(rank)
    directions = np.random.default_rng(0).standard_normal((rank, _DIRECTIONS))
    return np.asarray(directions / np.sqrt(_DIRECTIONS))
