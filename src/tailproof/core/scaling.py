"""Robust centre and scale of every column, and whitening of collinear ones, from a sample of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.numerics.quantiles import first_spread, midpoint, weighted_median
from tailproof.native.arrays import REALS
from tailproof.native.rows import column_extremes, copied_rows, ends_and_square, entry_extremes
from tailproof.native.scaling import medians_of_means, near_moments, robust_moments, square_norms

_SIDE_BY_SIDE = 500  # numbers of neighbouring rows that are compared at once
_LOOKED_AT = 5_000_000  # numbers in which far values are looked for one by one
_FIRST_ROWS, _FIRST_VALUES = 30, 1_000  # from which a scale is taken to see that nothing is far
_DOUBT = 0.3  # of the limit for far values: such a scale may be off by as much
_CELLS = 100_000  # numbers in the sample: plenty for a rough scale, and quick
_GROUPS = 50  # of the median of means
_GROUP_ENTRIES = 10  # of a sparse column in a group, on average, or else few groups
_ROWS_PER_COLUMN = 5  # of a sample, to estimate correlations
_MOST_ROWS = 2_000  # for that, or 100 per column: a rough whitening is enough
_FAR = 9.0  # times the median square norm: rows beyond are outlying
_STEADY = 0.25  # of the variance of a column, at least, without those rows
_CORRELATED = 0.04  # an eigenvalue below this share of their mean makes whitening worth its cost
_NULL = 1e-8  # times the largest eigenvalue: rounding, or a column that is constant in the sample


@dataclass(frozen=True)
class FeatureScale:
    """Centre and scale of each column; training sees z = (x − centre)/scale.

    Where columns are nearly collinear it sees whitened features, z · whitening: a direction in which the data
    hardly vary would need thousands of passes otherwise.
    """

    centre: Array
    scale: Array
    whitening: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other machines: what was derived from it is derived again."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def inverse_square_scale(self) -> Array:
        """1/scale²: a step in scaled coordinates, taken in those of the data."""
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(1.0 / self.scale**2)


def sample_rows(X: Any, blocks: Sequence[NDArray[np.intp]], *, dense: bool = False) -> Any:
    """Rows of X, evenly spaced over the blocks: enough to estimate scales from.

    Neighbours come from one block, and groups of them are as good or as bad as it is. Sparse rows stay so,
    unless ``dense`` ones are asked for.
    """
    # Sparse rows count by their entries.
    width = X.nnz // X.shape[0] if sparse.issparse(X) and not dense else X.shape[1]
    rows = _evenly_spaced(blocks, max(100, _CELLS // max(width, 1)))
    if sparse.issparse(X):
        sample = X[rows].astype(np.float64)
        return sample.toarray() if dense else sample
    if X.dtype in REALS and X.flags.c_contiguous:
        return copied_rows(X, np.ascontiguousarray(rows))
    return np.asarray(X.take(rows, axis=0), dtype=np.float64)


def _evenly_spaced(blocks: Sequence[NDArray[np.intp]], wanted: int) -> NDArray[np.intp]:
    """So many rows of the blocks, one block after another; all, where there are no more."""
    ends = list(accumulate((block.size for block in blocks), initial=0))
    if ends[-1] <= wanted:
        return np.concatenate(blocks)
    # What np.linspace gives, in a third of its time.
    places = (np.arange(wanted) * ((ends[-1] - 1) / (wanted - 1))).astype(np.intp)
    places[-1] = ends[-1] - 1
    cuts = pairwise(np.searchsorted(places, ends).tolist())
    parts = zip(blocks, ends, cuts, strict=False)
    return np.concatenate([block[places[i:j] - begin] for block, begin, (i, j) in parts])


def unscaled(d: int) -> FeatureScale:
    """Columns as they are."""
    return FeatureScale(np.zeros(d), np.ones(d))


def robust_columns(sample: Any, *, centred: bool = True, common: bool = False) -> FeatureScale:
    """Median-of-means centre and root of the median of means of squares, column by column.

    Squares and not quartiles, because it is the second moment that conditions a least-squares problem, and
    because quartiles vanish on sparse and zero-inflated columns. Constant columns get scale 1.

    Parameters
    ----------
    sample : array of shape (m, d)
    centred : bool
        False for sparse data, where zeros must stay zeros.
    common : bool
        One scale for all columns: Euclidean projections need coordinates that are not stretched.

    Examples
    --------
    >>> sample = np.random.default_rng(0).standard_normal((1_000, 2)) * [1.0, 1e-3]
    >>> sample[7] = 1e12
    >>> np.round(robust_columns(sample).scale * [1.0, 1e3], 1).tolist()
    [1.0, 1.0]
    """
    if sparse.issparse(sample):
        return _sparse_columns(sample, common)
    with np.errstate(invalid="ignore", over="ignore"):
        middle, variance = robust_moments(_rows(sample), _groups(len(sample)), centred)
        centre = middle if centred else np.zeros_like(middle)
        vanished = ~(variance > 0)
        if vanished.any():
            # A rare indicator is constant in most groups: then the variance over all rows.
            variance[vanished] = np.square(sample[:, vanished] - centre[vanished]).mean(axis=0)
        # Rounding of a large constant is not a scale; squares of huge values have none.
        typical = np.abs(middle)
        scale = np.where(np.isinf(variance) & np.isfinite(typical), typical, np.sqrt(variance))
        tiny = ~(variance > 0)
        if tiny.any():
            scale[tiny] = _scale_without_squares(sample[:, tiny] - centre[tiny])
        constant = scale <= 1e-12 * typical
        # About zero, or beyond all squares, a constant has a scale.
        doubtful = ~constant & (np.isinf(variance) | (not centred))
        if doubtful.any():
            constant |= doubtful & (sample == sample[0]).all(axis=0)
    scale = np.where(constant, 1.0, scale)
    return FeatureScale(centre, np.full_like(scale, np.median(scale)) if common else scale)


def _scale_without_squares(away: Array) -> Array:
    """Root mean square of columns whose squares may vanish; 0 for zeros."""
    largest = np.abs(away).max(axis=0)
    return np.asarray(largest * np.sqrt(np.square(away / np.where(largest > 0, largest, 1.0)).mean(axis=0)))


def _sparse_columns(sample: Any, common: bool) -> FeatureScale:
    """The same from the entries alone, without centring."""
    m, d = sample.shape
    groups = max(1, min(_GROUPS, m // 4, max(sample.nnz // (_GROUP_ENTRIES * d), 5)))
    group = np.minimum(np.repeat(np.arange(m), np.diff(sample.indptr)) // (m // groups), groups - 1)
    with np.errstate(over="ignore"):
        sums = np.bincount(group * d + sample.indices, sample.data**2, groups * d).reshape(groups, d)
    ordered = np.sort(np.ascontiguousarray(sums.T), axis=1) * (groups / m)
    variance = midpoint(ordered[:, (groups - 1) // 2], ordered[:, groups // 2])
    # A rare column has too few entries in a group: then the mean over all rows.
    common_enough = np.bincount(sample.indices, minlength=d) > groups * _GROUP_ENTRIES / 2
    variance = np.where(common_enough & (variance > 0), variance, ordered.sum(axis=1) / groups)
    typical = np.bincount(sample.indices, np.abs(sample.data), d) / m
    # Squares of huge values have no scale, those of tiny ones none but zero.
    without_squares = (np.isinf(variance) & np.isfinite(typical)) | (variance == 0)
    scale = np.where(without_squares, typical, np.sqrt(variance))
    scale = np.where(scale > 0, scale, 1.0)
    return FeatureScale(np.zeros(d), np.full_like(scale, np.median(scale)) if common else scale)


def far_columns(X: Any, scales: float) -> NDArray[np.intp]:
    """Columns with a value more than so many robust scales from the centre; none that are not finite.

    The scale is the smaller one of quantiles, which vanish where most values are equal, and of squares, which
    bad rows inflate. Of many rows, a quarter is looked at: few bad rows do not spoil a merge of blocks.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((1_000, 2))
    >>> X[:50, 1] = 1e6
    >>> far_columns(X, 100.0).tolist()
    [1]
    """
    if 0 in X.shape:
        return np.empty(0, dtype=np.intp)
    with np.errstate(invalid="ignore", over="ignore"):
        if sparse.issparse(X):
            X = X.tocsr()
            columns = robust_columns(sample_rows(X, [np.arange(X.shape[0])]))
            return _beyond(columns.centre, scales * columns.scale, *_extremes(X))
        low, high = _extremes(X)
        # A few rows tell that most columns have no such value; the others are looked at with care.
        doubtful = _beyond(*_rough_columns(X, scales), low, high)
        if not doubtful.size:
            return doubtful
        sample = sample_rows(X, [np.arange(X.shape[0])])[:, doubtful]
        centre, scale = np.median(sample, axis=0), robust_columns(sample).scale
        spread = np.array([first_spread(away) for away in np.abs(sample - centre).T])
        scale = np.where(spread > 0, np.minimum(spread, scale), scale)
        return doubtful[_beyond(centre, scales * scale, low[doubtful], high[doubtful])]


def surely_near(X: Any, scales: float, columns: FeatureScale, farthest: float) -> bool:
    """Whether :func:`far_columns` has nothing to find, given the largest z² of all rows in scaled columns.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((1_000, 2))
    >>> surely_near(X, 100.0, robust_columns(X), 20.0), surely_near(X, 100.0, robust_columns(X), 1e6)
    (True, False)
    """
    reach = math.sqrt(farthest)
    if sparse.issparse(X):
        return reach <= scales
    if not reach < scales:
        return False
    middle, limit = _rough_columns(X, scales)
    return bool(np.all(reach * columns.scale + np.abs(columns.centre - middle) <= limit))


def _rough_columns(X: Any, scales: float) -> tuple[Array, Array]:
    """Centre of every column by a few rows, and how far from it no value is doubted to be near."""
    first = _rows(X[:: 1 + X.shape[0] // _FIRST_ROWS])
    middle, variance = robust_moments(first, len(first))
    return middle, _DOUBT * scales * np.sqrt(variance)


def _extremes(X: Any) -> tuple[Array, Array]:
    """Least and largest value of every column; of one row in four, where there are many."""
    if sparse.issparse(X):
        return entry_extremes(X.data.astype(np.float64, copy=False), X.indices, X.shape[1])
    step = min(4, 1 + X.size // _LOOKED_AT)
    if X.dtype not in REALS or not X.flags.c_contiguous:
        return X[::step].min(axis=0), X[::step].max(axis=0)
    n, d = X.shape
    together = max(1, min(n, _SIDE_BY_SIDE // d))
    whole = n - n % together
    low, high = column_extremes(X[:whole].reshape(-1, together * d), step)
    return (
        np.vstack([low.reshape(-1, d), X[whole:]]).min(axis=0),
        np.vstack([high.reshape(-1, d), X[whole:]]).max(axis=0),
    )


def _beyond(centre: Array, limit: Array, low: Array, high: Array) -> NDArray[np.intp]:
    """Columns whose extremes are finite and further from the centre than a limit."""
    reach = np.maximum(high - centre, centre - low)
    return np.flatnonzero((reach > limit) & np.isfinite(reach))


def has_far_values(values: Array, scales: float, ends: tuple[float, float] | None = None) -> bool:
    """Whether a value is more than so many robust scales from the median; of those that differ from it.

    ``ends`` are the least and the largest value, where they are known.

    Examples
    --------
    >>> has_far_values(np.arange(100.0), 100.0), has_far_values(np.append(np.arange(100.0), 1e6), 100.0)
    (False, True)
    """
    first = values[:: 1 + values.size // _FIRST_VALUES]
    middle = float(weighted_median(first))
    low, high = ends or ends_and_square(np.ascontiguousarray(values, dtype=np.float64))[:2]
    reach = max(high - middle, middle - low)
    distances = np.abs(first - middle)
    if reach <= _DOUBT * scales * weighted_median(distances):
        return False
    apart = distances[distances > 0]
    if apart.size and _DOUBT * reach > scales * weighted_median(apart):
        return True
    away = np.abs(values - weighted_median(values))
    return bool(np.max(away) > scales * weighted_median(away[away > 0])) if away.any() else False


def norms_of_sample(sample: Array, columns: FeatureScale) -> Array:
    """‖z‖² of every row of a dense sample, where z is scaled and not whitened."""
    with np.errstate(invalid="ignore", over="ignore"):
        return square_norms(_rows(sample), columns.centre, columns.scale)


def expected_square_norm(sample: Any, columns: FeatureScale, norms: Array | None = None) -> float:
    """Robust mean of ‖z‖² over the rows of a sample; ``norms`` are those of scaled columns, where known."""
    with np.errstate(invalid="ignore", over="ignore"):
        if sparse.issparse(sample):
            z = sample.data / columns.scale[sample.indices]
            rows = np.repeat(np.arange(sample.shape[0]), np.diff(sample.indptr))
            norms = np.asarray(np.bincount(rows, z * z, sample.shape[0]), dtype=np.float64)
        elif columns.whitening is None:
            norms = norms_of_sample(sample, columns) if norms is None else norms
        else:
            z = (sample - columns.centre) / columns.scale @ columns.whitening
            norms = np.einsum("ij,ij->i", z, z)
        return float(medians_of_means(norms[:, None], _groups(norms.size))[0])


def with_whitening(sample: Array, columns: FeatureScale, norms: Array | None = None) -> FeatureScale:
    """The scale with a whitening, where columns are strongly correlated in the sample.

    ``norms`` are :func:`norms_of_sample`, where they are known.

    Examples
    --------
    >>> a, b = np.random.default_rng(0).standard_normal((2, 1_000))
    >>> sample = np.column_stack([a, a + 0.01 * b])
    >>> columns = with_whitening(sample, robust_columns(sample))
    >>> z = (sample - columns.centre) / columns.scale @ columns.whitening
    >>> bool(np.abs(np.corrcoef(z.T)[0, 1]) < 0.05)
    True
    """
    d = sample.shape[1]
    step = max(1, len(sample) // max(_MOST_ROWS, 100 * d))
    if -(-len(sample) // step) < _ROWS_PER_COLUMN * d:
        return columns
    norms = norms_of_sample(sample, columns) if norms is None else norms
    few = np.ascontiguousarray(norms[::step])
    limit = _FAR * float(weighted_median(few))
    near, middle, together = near_moments(_rows(sample), columns.centre, columns.scale, few, limit, step)
    if near < _ROWS_PER_COLUMN * d:
        return columns
    together -= np.outer(middle, middle)
    # A column whose variance lies in the rows left out (a rare indicator) is not whitened.
    steady = np.flatnonzero(together.diagonal() >= _STEADY)
    together = together if steady.size == d else together[np.ix_(steady, steady)]
    if _is_hardly_correlated(together):
        return columns
    values, vectors = np.linalg.eigh(together)
    seen = values > _NULL * np.max(values, initial=0.0)
    if not seen.any() or values[seen][0] >= _CORRELATED * values.mean():
        return columns
    whitening = np.eye(d)
    whitening[np.ix_(steady, steady)] = vectors / np.sqrt(np.where(seen, values, 1.0))
    return replace(columns, whitening=whitening)


def _is_hardly_correlated(product: Array) -> bool:
    """Whether no eigenvalue is below ``_CORRELATED`` times their mean, in a tenth of the time of all of them.

    Then what is left of the matrix without that much of its diagonal has a Cholesky factor.
    """
    least = _CORRELATED * float(product.trace()) / max(len(product), 1)
    try:
        np.linalg.cholesky(product - least * np.eye(len(product)))
    except np.linalg.LinAlgError:
        return False
    return True


def _groups(rows: int) -> int:
    """Groups of the median of means; the few rows left over do not matter for a rough scale."""
    return max(1, min(_GROUPS, rows // 4))


def _rows(sample: Any) -> Array:
    """The sample as compiled code reads it; columns of a data frame lie side by side."""
    return np.ascontiguousarray(sample, dtype=np.float64)
