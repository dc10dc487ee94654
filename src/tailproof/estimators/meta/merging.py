"""What ``DivideAndConquer`` needs: preprocessing fitted once, candidates as vectors, the intercept."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.metadata_routing import get_routing_for_object

from tailproof.core import Array
from tailproof.core.algorithms import TrainedCandidates
from tailproof.core.automatic import intercept_shift
from tailproof.core.losses import LOSSES
from tailproof.core.partition import Block
from tailproof.core.scaling import robust_columns
from tailproof.estimators.meta.base import FitData
from tailproof.estimators.meta.learner import Fitted, SklearnLearner, coefficients, set_coefficients
from tailproof.estimators.screening import Screened, without
from tailproof.estimators.sklearn_private import is_pipeline, routing_enabled, safe_indexing

_SCALE_ROWS = 2_000  # rows for the scales of the merge
_PROBES = 10  # rows on which swapped coefficients must give swapped predictions
_BALANCED = 1e-6  # mean residual, as a share of the mean absolute one, that counts as zero
_ROUNDINGS = 1e3  # unit roundoffs that sums over a block may be off by
_COARSEST = 0.02  # the most that float16 may be off by


@dataclass(frozen=True, eq=False)
class Preprocessed:
    """The linear estimator, the data that it sees, and the fitted steps before it (None without any)."""

    estimator: Any
    data: FitData
    head: Any = None
    name: str = ""

    def assemble(self, model: Any) -> Any:
        """Put the fitted steps before the merged model again."""
        if self.head is None:
            return model
        from sklearn.pipeline import Pipeline

        return Pipeline([*self.head.steps, (self.name, model)])


def preprocess(estimator: Any, data: FitData, fraction: float) -> Preprocessed:
    """Fit all but the last step of a pipeline, on the most central rows, and transform every row."""
    if not is_pipeline(estimator):
        return Preprocessed(estimator, replace(data, X=_with_shape(data.X)))
    before, own_params = _split_params(estimator, data.params)
    name, last = estimator.steps[-1]
    if len(estimator) == 1:
        return Preprocessed(last, replace(data, X=_with_shape(data.X), params=own_params))
    head = clone(estimator[:-1])
    if fraction == 1:
        seen = head.fit_transform(data.X, data.y, **before)
    else:
        central = replace(data, params=before).take(central_rows(data.X, fraction))
        seen = head.fit(central.X, central.y, **central.params).transform(data.X)
    return Preprocessed(last, replace(data, X=_with_shape(seen), params=own_params), head, name)


def _with_shape(X: Any) -> Any:
    return X if hasattr(X, "shape") else np.asarray(X)


def _split_params(pipeline: Any, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters of ``fit`` for the first steps together and for the last step."""
    name = pipeline.steps[-1][0]
    if routing_enabled():
        routed = get_routing_for_object(pipeline).route_params(caller="fit", params=params)
        wanted = get_routing_for_object(pipeline[:-1]).consumes("fit", params.keys())
        return {key: params[key] for key in wanted}, dict(routed[name].fit)
    own_params = {key: value for key, value in params.items() if key.startswith(f"{name}__")}
    before = {key: value for key, value in params.items() if key not in own_params}
    return before, {key.removeprefix(f"{name}__"): value for key, value in own_params.items()}


def central_rows(X: Any, fraction: float) -> NDArray[np.intp]:
    """Return the share of the rows that are least far from the median in any numeric column.

    Examples
    --------
    >>> central_rows(np.array([[0.0], [1.0], [2.0], [1e9]]), 0.75).tolist()
    [0, 1, 2]
    """
    if sparse.issparse(X):
        raise ValueError("preprocess_fraction below 1 needs dense X: no row of a sparse one is central")
    X = np.asarray(X) if isinstance(X, list) else X
    distance = np.zeros(X.shape[0])
    for j in range(X.shape[1]):
        column = np.asarray(safe_indexing(X, j, axis=1))
        if column.dtype.kind in "fiu":
            gaps = np.abs(column - np.nanmedian(column))
            scale = np.nanmedian(gaps) or np.nanmean(gaps) or 1.0
            distance = np.fmax(distance, gaps / scale)
    kept = max(1, round(fraction * len(distance)))
    return np.sort(np.argsort(distance, kind="stable")[:kept])


def scaled_learner(estimator: Any, data: FitData, parts: list[Block], screening: Screened) -> SklearnLearner:
    """Clones to fit, and the scales in which their coefficients are compared: those of near rows."""
    sample = without(np.concatenate([part.rows for part in parts]), screening)
    sample = sample[np.linspace(0, sample.size - 1, min(sample.size, _SCALE_ROWS)).astype(np.intp)]
    rows = safe_indexing(data.X, sample)
    if sparse.issparse(rows):
        columns = robust_columns(np.asarray(rows.toarray(), dtype=np.float64), centred=False)
    else:
        columns = robust_columns(_numbers(rows))
    return SklearnLearner(estimator, data.X, data.y, data.params, columns, _target_scale(data, sample))


def _numbers(rows: Any) -> Array:
    try:
        return np.asarray(rows, dtype=np.float64)
    except ValueError as problem:
        raise ValueError(
            f"DivideAndConquer needs columns of numbers ({problem}): encode the others in a Pipeline"
        ) from None


def without_centre(learner: SklearnLearner, fits: list[Fitted]) -> SklearnLearner:
    """The same, about the origin where no candidate has an intercept, so that the merged one has none."""
    if learner.columns is None or not all(hasattr(fit.estimator, "coef_") for fit in fits):
        return learner
    if any(coefficients(fit.estimator)[1].any() for fit in fits):
        return learner
    centre = np.zeros_like(learner.columns.centre)
    return replace(learner, columns=replace(learner.columns, centre=centre))


def _target_scale(data: FitData, sample: NDArray[np.intp]) -> Array:
    """One scale for each output of a regression; classes are on one scale already."""
    if data.labels is not None or data.y.ndim == 1:
        return np.ones(1)
    return robust_columns(np.asarray(data.y[sample], dtype=np.float64)).scale


def merged_candidates(learner: SklearnLearner, fits: list[Fitted], X: Any) -> TrainedCandidates:
    """Candidates as vectors; refuse estimators that do not predict from coefficients."""
    for fit in fits:
        if not hasattr(fit.estimator, "coef_"):
            raise ValueError(
                "DivideAndConquer needs an estimator with coef_; "
                f"{type(fit.estimator).__name__} has none: use RobustValidation"
            )
    if len(fits) > 1 and not _coefficients_decide(fits[0].estimator, fits[1].estimator, X):
        raise ValueError(
            "DivideAndConquer needs an estimator that predicts from coef_ and intercept_ alone; "
            f"{type(fits[0].estimator).__name__} does not: use RobustValidation"
        )
    vectors = np.stack([learner.vector(fit) for fit in fits])
    return TrainedCandidates(fits, vectors, np.array([fit.index for fit in fits]), 1, True)


def _coefficients_decide(one: Any, other: Any, X: Any) -> bool:
    """Whether one estimator with the other's coefficients predicts as the other does."""
    rows = safe_indexing(X, np.arange(min(_PROBES, X.shape[0])))
    method = "decision_function" if hasattr(one, "decision_function") else "predict"
    try:
        swapped = set_coefficients(copy.deepcopy(one), *coefficients(other))
    except (AttributeError, ValueError):
        return False
    as_swapped, as_is = getattr(swapped, method)(rows), getattr(other, method)(rows)
    return _same(as_swapped, as_is, _tolerance(rows, as_is))


def recentred(
    learner: SklearnLearner,
    candidates: TrainedCandidates,
    parts: list[Block],
    coef: Array,
    intercept: Array,
    delta: float,
) -> Array:
    """Intercepts at which a robust mean of the residuals is zero, where every block's own mean is zero.

    That is the condition that least squares, ridge, the lasso and their like set their intercept by.
    Other regressors, and classifiers, keep the merged one.
    """
    if len(candidates.states) == 1:
        return intercept
    matrix = learner.X.tocsr() if sparse.issparse(learner.X) else np.asarray(learner.X, dtype=np.float64)
    if not all(_is_balanced(learner, state, matrix, parts[state.index].rows) for state in candidates.states):
        return intercept
    weights = np.asarray(learner.params.get("sample_weight", np.empty(0)))
    targets = np.asarray(learner.y, dtype=np.float64).reshape(len(learner.y), -1)
    good = [parts[j] for j in candidates.kept]
    return intercept + np.array(
        [
            intercept_shift(
                LOSSES["squared_error"], matrix, targets[:, j], weights, good, coef[j], intercept[j], delta
            )
            for j in range(len(coef))
        ]
    )


def _is_balanced(learner: SklearnLearner, state: Fitted, matrix: Any, rows: NDArray[np.intp]) -> bool:
    """Whether an estimator predicts linearly and its residuals average to zero over its own block."""
    coef, intercept = coefficients(state.estimator)
    predicted = np.reshape(state.estimator.predict(safe_indexing(learner.X, rows)), (rows.size, -1))
    tolerance = _tolerance(learner.X, predicted)
    if not _same(predicted, matrix[rows] @ coef.T + intercept, tolerance):
        return False
    residuals = learner.y[rows].reshape(predicted.shape) - predicted
    weights = learner.params.get("sample_weight")
    means = np.average(residuals, axis=0, weights=None if weights is None else weights[rows])
    return bool(np.all(np.abs(means) <= tolerance * np.abs(residuals).mean(axis=0)))


def _in_numpy(kind: Any) -> Any:
    """The same precision as a type of NumPy, for those of pandas that know missing values."""
    return getattr(kind, "numpy_dtype", kind)


def _tolerance(*arrays: Any) -> float:
    """Relative error that rounding may cause, in the precision of the least precise of some arrays.

    Columns of a data frame count each for itself.
    """
    known = [getattr(array, "dtypes", getattr(array, "dtype", None)) for array in arrays]
    kinds = [
        kind
        for kind_or_kinds in known
        for kind in (kind_or_kinds if np.iterable(kind_or_kinds) else [kind_or_kinds])
    ]
    roundoff = max(
        (np.finfo(_in_numpy(kind)).eps for kind in kinds if getattr(kind, "kind", "") == "f"), default=0.0
    )
    return float(np.clip(_ROUNDINGS * roundoff, _BALANCED, _COARSEST))


def _same(one: Array, other: Array, tolerance: float) -> bool:
    """Whether predictions agree up to rounding."""
    return np.allclose(one, other, rtol=tolerance, atol=max(1e-9, tolerance * float(np.mean(np.abs(other)))))
