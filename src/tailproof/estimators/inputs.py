"""What every linear estimator here shares: checks of the input, the start, linear scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import assert_all_finite, check_is_fitted, validate_data

from tailproof.core import Array, automatic
from tailproof.core.losses import Loss
from tailproof.core.partition import Block
from tailproof.estimators.sklearn_private import Interval, StrOptions, check_sample_weight

_NO_WEIGHTS = np.empty(0)

PARAMETER_CONSTRAINTS: dict[str, Any] = {
    "loss": [str],
    "loss_parameter": [Interval(Real, None, None, closed="neither"), None],
    "k": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "delta": [Interval(Real, 0, 1, closed="neither")],
    "step_size": "no_validation",
    "max_iter": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "average": ["boolean"],
    "update": [StrOptions({"implicit", "explicit"})],
    "constraint": "no_validation",
    "penalty": [StrOptions({"l1", "l2", "elasticnet"}), None],
    "alpha": [Interval(Real, 0, None, closed="left")],
    "l1_ratio": [Interval(Real, 0, 1, closed="both")],
    "scale_features": ["boolean"],
    "fit_intercept": ["boolean"],
    "recentre": ["boolean"],
    "shuffle": ["boolean"],
    "init": "no_validation",
    "warm_start": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [Integral, None],
    "verbose": ["verbose"],
}


class LinearModel(BaseEstimator):
    """Input in, linear scores out; what happens in between is up to the subclasses."""

    # Parameters and hooks that the estimators define; scikit-learn wants every __init__ written out.
    delta: float
    fit_intercept: bool
    init: Any
    warm_start: bool

    _is_regression: bool
    _encode: Callable[..., tuple[Loss, Array, int]]
    _shape_model: Callable[[Array, Array], tuple[Any, Any]]
    _least_rows = 1

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_input(
        self, X: Any, y: Any, reset: bool, min_rows: int = 1, ensure_all_finite: bool = False
    ) -> tuple[Any, Any]:
        # Looking for NaN reads all of X, which takes as long as training; the candidates will show it.
        X, y = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            ensure_all_finite=ensure_all_finite,
            ensure_min_samples=min_rows,
            y_numeric=self._is_regression,
        )
        if sparse.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X, y

    def _start(
        self, loss: Loss, y: Array, parts: list[Block], outputs: int, d: int, go_on: bool
    ) -> tuple[Array, Array]:
        """Warm start, the start given, or zero with the best constant prediction as intercept."""
        if go_on:
            coef, intercept = np.copy(self.coef_), np.atleast_1d(np.copy(self.intercept_))
        elif self.init is not None:
            coef, intercept = self.init if _is_pair(self.init) else (self.init, np.zeros(outputs))
        else:
            constant = automatic.start_intercept(loss, y, parts) if self.fit_intercept else 0.0
            coef, intercept = np.zeros((outputs, d)), np.full(outputs, constant)
        try:
            shaped = np.array(coef, dtype=np.float64).reshape(outputs, d)
            offset = np.array(intercept, dtype=np.float64).reshape(outputs) * float(self.fit_intercept)
            assert_all_finite(np.append(shaped.ravel(), offset))
            return shaped, offset
        except (ValueError, TypeError):
            raise ValueError(
                f"the start must be {outputs} × {d} finite coefficients and {outputs} finite intercepts: "
                "give init=(coef, intercept), or turn warm_start off"
            ) from None

    def _decision(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False, dtype=[np.float64, np.float32])
        scores = X @ np.atleast_2d(self.coef_).T + np.atleast_1d(self.intercept_)
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)


@contextmanager
def naming_bad_input(X: Any) -> Iterator[None]:
    """Name NaN and infinity in X as scikit-learn does, when a fit fails because of them."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except ValueError:
        assert_all_finite(X, input_name="X")
        raise


def check_weights(sample_weight: ArrayLike | None, X: Any, y: Any) -> tuple[Any, Any, Array]:
    """Rows of positive weight, and their weights (empty where all count the same)."""
    if sample_weight is None:
        return X, y, _NO_WEIGHTS
    weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: at least one must be positive")
    if weights.all():
        return X, y, weights
    kept = np.flatnonzero(weights)
    return X[kept], y[kept], weights[kept]


def _is_pair(init: Any) -> bool:
    return isinstance(init, tuple) and len(init) == 2


def seed_sequence(random_state: Any) -> np.random.SeedSequence:
    """Entropy from an int or a RandomState; fresh entropy for None, leaving NumPy's global state alone."""
    if random_state is None:
        # Not more digits than random_state takes: the seed in a report repeats the fit.
        return np.random.SeedSequence(int(np.random.SeedSequence().generate_state(1)[0]))
    if isinstance(random_state, (int, np.integer)):
        return np.random.SeedSequence(int(random_state))
    return np.random.SeedSequence(int(check_random_state(random_state).randint(0, 2**31 - 1)))


def entropy(seed: np.random.SeedSequence) -> int:
    """The number to give as ``random_state`` for the same again."""
    return int(seed.entropy)  # type: ignore[arg-type]


def penalties(penalty: str | None, alpha: float, l1_ratio: float) -> tuple[float, float]:
    share = {None: (0.0, 0.0), "l2": (0.0, 1.0), "l1": (1.0, 0.0), "elasticnet": (l1_ratio, 1.0 - l1_ratio)}
    first, second = share[penalty]
    return alpha * first, alpha * second
