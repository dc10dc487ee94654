"""Errors of predictions on rows that were held out, and the intervals that follow (conformal prediction).

If a new row is exchangeable with the rows held out, its error lies between two order statistics of theirs
with the probability that their ranks say, whatever the law: no tail is too heavy. Errors are signed, so that
a skewed law gets an interval that is longer on its long side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.algorithms import TrainedCandidates
from tailproof.core.deferred import Deferred, Make
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.core.partition import Block, picked
from tailproof.core.scaling import robust_columns
from tailproof.native.sum_of_distances import distances as distances_from

_KNOTS = 4001  # of a quantile function: coverage is known to 1/4000
_SCALE_ROWS, _SCALE_ROWS_PER_COLUMN = 2_000, 40  # from which the size of the noise is learned
_SCALE_COLUMNS = 500  # at most
_ROWS_PER_COLUMN = 10  # to learn it at all
_BLOCK_ROWS = 4_000  # of all blocks together, whose errors are looked at: coverage is off by 0.5% by chance
_FEWEST_BLOCKS = 3
_LARGEST_SCORE = 300.0  # before it is exponentiated
_RIDGE = 10.0  # rows' worth of evidence for noise of one size
_FAR = 10.0  # robust scales of a column, beyond which noise is as at its end
_KEPT = 500_000  # numbers of rows that are kept until s(x) is asked for; from more it is learned at once
_OFFSET = 0.01  # of the median error: errors near zero would have logarithms without limit


@dataclass(frozen=True, eq=False)
class NoiseScale:
    """Size of the noise as a function of x: log s(x) = ⟨coef, (z, |z|, 1)⟩, z being robustly scaled columns.

    Attributes
    ----------
    centre, scale : arrays of shape (d,)
    coef : array of shape (2d + 1,)
    low, high : float
        Limits of log s(x): what the rows that it was learned from reach.
    """

    centre: Array
    scale: Array
    coef: Array
    low: float
    high: float

    def of(self, X: Any) -> Array:
        """s(x) of every row."""
        sizes = _scale_features(X, self.centre, self.scale) @ self.coef
        return np.exp(np.clip(sizes, self.low, self.high))


@dataclass(frozen=True, eq=False)
class HeldOutErrors(Deferred):
    """What :meth:`predict_interval` needs: quantiles of the errors of held-out rows.

    ``plain`` is made when it is first asked for, or copied; so is what is known of s(x), ``scaled`` and
    ``noise``.

    Attributes
    ----------
    plain : array
        Sorted errors (y − μ)/μ^{power/2} of predictions μ, or an even grid of their quantiles.
    scaled : array
        The same over s(x); empty where s is not known.
    rows : float
        Rows held out; their effective number if they have weights.
    power : float
        Of the variance, for losses with the log link; zero for others.
    lowest : float
        What a target cannot be below.
    noise : NoiseScale or None
    """

    plain: Array
    scaled: Array
    rows: float
    power: float
    lowest: float
    noise: NoiseScale | None

    def interval(self, predicted: Array, X: Any, coverage: float, scaled: bool) -> Array:
        """Ends that hold the target of a new row with the given probability; infinite where rows are few."""
        size = predicted_scale(predicted, self.power)
        if scaled:
            if self.noise is None:
                raise ValueError(
                    "the size of the noise as a function of x is not known: it takes numeric columns, at "
                    f"most {_SCALE_COLUMNS}, and 20 rows for each; leave scaled=True out"
                )
            size = size * self.noise.of(X)
        ends = _ends(self.scaled if scaled else self.plain, self.rows, coverage)
        return np.maximum(predicted[:, None] + size[:, None] * np.array(ends), self.lowest)


def predicted_scale(predicted: Array, power: float) -> Array:
    """Standard deviation that the loss expects at a prediction, up to a constant: μ^{power/2}."""
    return np.maximum(predicted, 1e-300) ** (0.5 * power) if power else np.ones_like(predicted)


def held_out_errors(
    y: Array,
    predicted: Array,
    power: float,
    weights: Array | None = None,
    X: Any = None,
    rows: NDArray[np.intp] | None = None,
) -> HeldOutErrors | None:
    """Summarise the errors of rows when they were held out.

    Parameters
    ----------
    y, predicted : arrays of shape (n,)
        Rows whose prediction is not finite are left out.
    power : float
        Of the variance, for losses with the log link; zero for others.
    weights : array of shape (n,), optional
    X : array or sparse matrix of shape (n, d), optional
        To learn from how the size of the noise depends on x.
    rows : array of int, optional
        Which rows of X the targets belong to; default all of them.

    Returns
    -------
    HeldOutErrors, or None where no row was held out

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.lognormal(0, 1.75, 5_000)
    >>> errors = held_out_errors(y, np.full(5_000, y.mean()), 0.0)
    >>> low, high = errors.interval(np.array([y.mean()]), None, 0.9, False)[0]
    >>> float(np.mean((low <= y) & (y <= high)).round(2))
    0.9
    """
    seen = np.flatnonzero(np.isfinite(predicted))
    if seen.size == 0:
        return None
    y, predicted = y[seen], predicted[seen]
    # Their squares are finite as shares of the largest, whatever unit they have.
    weights = None if weights is None or weights.size == 0 else weights[seen] / weights[seen].max()
    errors = (y - predicted) / predicted_scale(predicted, power)
    count = float(seen.size if weights is None else weights.sum() ** 2 / np.sum(weights**2))
    sample = _noise_sample(X, seen if rows is None else rows[seen], errors, weights)
    later: dict[str, Make] = {"plain": lambda: {"plain": _knots(errors, weights)}}
    summary = object.__new__(HeldOutErrors)
    vars(summary).update(rows=count, power=power, lowest=0.0 if power else -np.inf, _later=later)
    if sample is None:
        vars(summary).update(noise=None, scaled=np.empty(0))
    else:
        later |= dict.fromkeys(("noise", "scaled"), sample.learn)
    if errors.size > _KNOTS or (sample is not None and sample.rows.size > _KEPT):
        summary._settle()
    return summary


def _knots(errors: Array, weights: Array | None) -> Array:
    """Sorted errors, or quantiles of many or weighted ones on an even grid."""
    if weights is None and errors.size <= _KNOTS:
        return np.sort(errors)
    grid = np.linspace(0.0, 1.0, _KNOTS)
    order = np.argsort(errors)
    # Place of each error among the quantiles: sorting once is far quicker than as many selections.
    shares = np.ones(errors.size) if weights is None else weights[order]
    total = np.cumsum(shares)
    places = (total - total[0]) / max(total[-1] - total[0], 1e-300)
    return np.interp(grid, places, errors[order])


def _ends(knots: Array, rows: float, coverage: float) -> tuple[float, float]:
    """Order statistics that leave half of 1 − coverage on either side, in the future."""
    rank = (rows + 1) * 0.5 * (1.0 - coverage)  # from either end
    if rank < 1:
        return -np.inf, np.inf
    place = (np.floor(rank + 1e-9) - 1) / max(rows - 1, 1) * (knots.size - 1)
    low = int(np.floor(place + 1e-6))
    return float(knots[low]), float(knots[knots.size - 1 - low])


@dataclass(frozen=True, eq=False)
class NoiseSample:
    """A copy of some rows that were held out, with errors and weights: to learn the size of noise from."""

    rows: Array
    errors: Array
    weights: Array | None

    def learn(self) -> dict[str, Any]:
        """The size of the noise, and quantiles of errors over it, of rows that it was not learned from."""
        away = np.abs(self.errors)
        typical, rows = float(np.median(away)), _dense(self.rows)
        # A pipeline fills in what is missing, and is not asked here.
        if not 0 < typical < np.inf or not np.all(np.isfinite(rows)):
            return {"noise": None, "scaled": np.empty(0)}
        columns = robust_columns(rows)
        features = _scale_features(rows, columns.centre, columns.scale)
        target = np.log(away + _OFFSET * typical)
        coef, sizes = _left_out(features, target)
        low, high = float(sizes.min()), float(sizes.max())
        knots = _knots(self.errors / np.exp(sizes), self.weights)
        return {"noise": NoiseScale(columns.centre, columns.scale, coef, low, high), "scaled": knots}


def _noise_sample(X: Any, seen: Any, errors: Array, weights: Array | None) -> NoiseSample | None:
    """Copy rows to learn the size of the noise from; None where they are too few or not numbers."""
    if not _is_numeric(X) or X.shape[1] > _SCALE_COLUMNS:
        return None
    wanted = max(_SCALE_ROWS, _SCALE_ROWS_PER_COLUMN * (2 * X.shape[1] + 1))
    if min(wanted, seen.size) < _ROWS_PER_COLUMN * (2 * X.shape[1] + 1):
        return None
    chosen = _some_of(seen.size, wanted)
    rows = X[seen[chosen]] if sparse.issparse(X) else X.take(seen[chosen], axis=0)
    return NoiseSample(rows, errors[chosen], None if weights is None else weights[chosen])


@lru_cache(maxsize=4)
def _some_of(size: int, wanted: int) -> NDArray[np.intp]:
    """So many places, at random; always the same, so that a fit can be repeated."""
    return np.random.default_rng(0).permutation(size)[:wanted]


def _left_out(features: Array, target: Array) -> tuple[Array, Array]:
    """Coefficients by least squares, and predictions of every row by those without it.

    One row at a time: coefficients of folds vary more than those of all rows, which would lengthen intervals
    at the end where a skewed law has its edge.
    """
    middle = float(target.mean())
    ridge = np.diag(np.append(np.full(features.shape[1] - 1, _RIDGE), 1e-9))
    inverse = np.linalg.inv(features.T @ features + ridge)
    coef = inverse @ (features.T @ (target - middle))
    coef[-1] += middle
    fitted = features @ coef
    leverage = np.einsum("ij,ij->i", features @ inverse, features)
    return coef, fitted - leverage / np.maximum(1.0 - leverage, 0.1) * (target - fitted)


def _scale_features(X: Any, centre: Array, scale: Array) -> Array:
    z = _dense(X) - centre
    z /= scale
    np.clip(z, -_FAR, _FAR, out=z)
    features = np.ones((len(z), 2 * centre.size + 1))
    features[:, : centre.size], features[:, centre.size : -1] = z, np.abs(z)
    return features


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def _is_numeric(X: Any) -> bool:
    kind = getattr(getattr(X, "dtype", None), "kind", "O")
    return kind in "fiub" and len(getattr(X, "shape", ())) == 2 and X.shape[1] > 0


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Predictions of rows by a merge that the candidate of their block was left out of.

    Attributes
    ----------
    rows : array of int
    scores : array
        Linear predictions of these rows.
    every : array or None
        Of all rows, by a model that was read along.
    """

    rows: NDArray[np.intp]
    scores: Array
    every: Array | None


def without_block(
    learner: Any,
    parts: Sequence[Block],
    candidates: TrainedCandidates,
    point: Array,
    model: tuple[Array, float] | None = None,
    engine: Any = None,
) -> LeftOut | None:
    """Predict rows of every block by a merge that its candidate was left out of.

    A geometric median of k points is their mean with weights 1/dⱼ; without one of them it is, up to what that
    changes about the weights, the mean of the others.

    Parameters
    ----------
    learner : SGDLearner
    parts : sequence of Block
    candidates : TrainedCandidates
    point : array
        What they were merged to.
    model : coefficients and intercept, optional
        Of which the predictions of all rows are wanted as well.
    engine : Engine, optional
        Whose threads share the reading.

    Returns
    -------
    LeftOut, or None for classes and for too few blocks
    """
    k = len(candidates.vectors)
    if k < _FEWEST_BLOCKS or learner.outputs > 1 or learner.loss.task != "regression":
        return None
    distances = distances_from(candidates.vectors, point)
    pull = 1.0 / np.maximum(distances, max(0.05 * float(weighted_median(distances)), 1e-300))
    shares = np.minimum(pull / pull.sum(), 0.5)
    each = max(1, _BLOCK_ROWS // k)
    rows = [parts[j].rows[:each] for j in candidates.kept]
    models = point - candidates.vectors
    models *= (shares / (1.0 - shares))[:, None]
    models += point
    return LeftOut(np.concatenate(rows), *learner.scores_of_blocks(models, rows, model, engine))


def errors_of_rows(learner: Any, scores: Array, rows: NDArray[np.intp]) -> HeldOutErrors | None:
    """Errors of some rows, which were held out, with these linear predictions; None for classes."""
    if learner.loss.task != "regression":
        return None
    log = learner.loss.link == "log"
    predicted = np.exp(np.minimum(scores, _LARGEST_SCORE)) if log else scores
    weights = learner.weights[rows] if learner.weights.size else None
    power = learner.loss.parameter if log else 0.0
    return held_out_errors(picked(learner.y, rows), predicted, power, weights, learner.X, rows)
