"""Any scikit-learn estimator as the learner: a clone fitted on each block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from tailproof.core import Array
from tailproof.core.partition import Block
from tailproof.core.scaling import FeatureScale
from tailproof.estimators.sklearn_private import check_method_params, safe_indexing


@dataclass(frozen=True, eq=False)
class FitTask:
    """A clone and the rows to fit it on: all that a worker needs, and no more of the data than that."""

    index: int
    estimator: Any
    X: Any
    y: Any
    params: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What became of one block: an estimator, or the error that its fit raised."""

    index: int
    estimator: Any
    error: Exception | None = None


@dataclass(frozen=True, eq=False)
class SklearnLearner:
    """Clones of an estimator, one for each block.

    Parameters
    ----------
    estimator : estimator
        Not fitted.
    X, y
        All rows.
    params : dict
        Of ``fit``; those with one entry per row are cut up like the rows.
    columns : FeatureScale, optional
        Centre and scale of the features, and
    target_scale : array, optional
        scale of each output: the coordinates in which candidates are compared.
    """

    estimator: Any
    X: Any
    y: Any
    params: dict[str, Any]
    columns: FeatureScale | None = None
    target_scale: Array | None = None

    def start(self, block: Block) -> FitTask:
        """Return the task of fitting one block."""
        rows = block.rows
        return FitTask(
            block.index,
            _seeded(clone(self.estimator), block.seed),
            safe_indexing(self.X, rows),
            self.y[rows],
            check_method_params(self.X, self.params, indices=rows),
        )

    @staticmethod
    def advance(task: FitTask) -> Fitted:
        """Fit. A failure is a result too: others may succeed."""
        try:
            return Fitted(task.index, task.estimator.fit(task.X, task.y, **task.params))
        except Exception as error:
            return Fitted(task.index, None, error)

    def vector(self, state: Fitted) -> Array:
        """Coefficients and intercepts in scaled coordinates, flat."""
        coef, intercept = coefficients(state.estimator)
        if self.columns is None or self.target_scale is None:
            return np.column_stack([coef, intercept]).ravel()
        scaled = np.column_stack([coef * self.columns.scale, intercept + coef @ self.columns.centre])
        return np.ravel(scaled / self.target_scale[:, None])

    def unpack(self, vector: Array) -> tuple[Array, Array]:
        """Coefficients (outputs, d) and intercepts (outputs,) in the coordinates of the data."""
        if self.columns is None or self.target_scale is None:
            raise ValueError("unpack needs columns and target_scale")
        scaled = vector.reshape(-1, self.columns.scale.size + 1) * self.target_scale[:, None]
        coef = scaled[:, :-1] / self.columns.scale
        return coef, scaled[:, -1] - coef @ self.columns.centre


def coefficients(estimator: Any) -> tuple[Array, Array]:
    """``coef_`` as (outputs, d) and ``intercept_`` as (outputs,).

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> [part.round(9).tolist() for part in coefficients(LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0]))]
    [[[2.0]], [1.0]]
    """
    coef = estimator.coef_
    coef = np.atleast_2d(np.asarray(coef.toarray() if sparse.issparse(coef) else coef, dtype=np.float64))
    intercept = np.asarray(getattr(estimator, "intercept_", 0.0), dtype=np.float64).ravel()
    return coef, np.broadcast_to(intercept, len(coef)).copy()


def set_coefficients(estimator: Any, coef: Array, intercept: Array) -> Any:
    """Give a fitted estimator other coefficients, in the shapes that it has."""
    estimator.coef_ = coef.reshape(estimator.coef_.shape)
    if hasattr(estimator, "intercept_"):
        shape = np.shape(estimator.intercept_)
        estimator.intercept_ = intercept.reshape(shape) if shape else float(intercept[0])
    return estimator


def _seeded(estimator: Any, seed: np.random.SeedSequence) -> Any:
    """Seed every random_state that is None, so that results depend on the block alone."""
    empty = [
        name
        for name, value in sorted(estimator.get_params().items())
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    ]
    draws = seed.generate_state(max(1, len(empty)))
    # Some libraries take 31 bits only.
    return estimator.set_params(**{name: int(draw) >> 1 for name, draw in zip(empty, draws, strict=False)})
