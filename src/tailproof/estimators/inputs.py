"""What linear estimators share: checks of rows and targets, the start, linear scores, predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from inspect import signature
from numbers import Integral, Real
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tailproof.core import Array, automatic
from tailproof.core.algorithms import TrainedCandidates
from tailproof.core.held_out import HeldOutErrors
from tailproof.core.losses import LOSSES, SOFTMAX_LOSS, Loss, check_target, get_loss, loss_name
from tailproof.core.numerics.meaning import check_are_numbers, check_no_words
from tailproof.core.partition import Block
from tailproof.core.sets import AllSpace, ConvexSet
from tailproof.estimators.sklearn_private import (
    Interval,
    StrOptions,
    check_sample_weight,
    validate_parameter_constraints,
)

_REALS = np.dtype(np.float64), np.dtype(np.float32)
_NO_WEIGHTS = np.empty(0)
_SMALLEST = 1e-300  # size of a column whose coefficient may still be finite
_PLAIN = (int, float, str, bool, type(None))

PARAMETER_CONSTRAINTS: dict[str, Any] = {
    "loss": [str, tuple, list],
    "loss_parameter": [Interval(Real, None, None, closed="neither"), None],
    "k": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "delta": [Interval(Real, 0, 1, closed="neither")],
    "step_size": "no_validation",
    "max_iter": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "average": ["boolean"],
    "update": [StrOptions({"implicit", "explicit"})],
    "learner": "no_validation",
    "constraint": "no_validation",
    "penalty": [StrOptions({"l1", "l2", "elasticnet"}), None],
    "alpha": [Interval(Real, 0, None, closed="left")],
    "l1_ratio": [Interval(Real, 0, 1, closed="both")],
    "scale_features": ["boolean"],
    "fit_intercept": ["boolean"],
    "recentre": ["boolean"],
    "drop_glitches": ["boolean"],
    "shuffle": ["boolean"],
    "init": "no_validation",
    "warm_start": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [Integral, None],
    "verbose": ["verbose"],
}


class LinearModel(BaseEstimator):
    """Checks of the input, the start and linear scores; subclasses fit."""

    _least_rows = 1

    def _validate_params(self) -> None:
        # Defaults are valid: to check the few parameters that were set takes a tenth of the time of all.
        kind: Any = type(self)
        defaults = _defaults(kind).items()
        changed = {name: getattr(self, name) for name, value in defaults if getattr(self, name) is not value}
        key = _key_of(changed)
        if key is not None:
            _check_once(kind, key)
        else:
            validate_parameter_constraints(self._parameter_constraints, changed, caller_name=kind.__name__)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_input(
        self, X: Any, y: Any, reset: bool, min_rows: int = 1, ensure_all_finite: bool = False
    ) -> tuple[Any, Any]:
        if self._is_known_to_be_right(X, y, reset, min_rows, ensure_all_finite):
            # What scikit-learn's checks would find to be right, in a tenth of their time.
            if reset:
                self.n_features_in_ = X.shape[1]
                self.__dict__.pop("feature_names_in_", None)
            return X, y
        # A search for NaN takes as long as training: it is done only when candidates are not finite.
        with _naming_tables(self._is_regression), _naming_words("y", y if self._is_regression else None):
            check_are_numbers(X=X, **({"y": y} if self._is_regression else {}))
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
        if not sparse.issparse(X):
            return np.require(X, requirements="A"), y
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X, y

    def _is_known_to_be_right(
        self, X: Any, y: Any, reset: bool, min_rows: int, ensure_all_finite: bool
    ) -> bool:
        """Whether rows are what most callers give, and fit those of earlier calls, which had no names."""
        fits = _is_plain(X, y, min_rows) and (not ensure_all_finite or bool(np.isfinite(X).all()))
        earlier = vars(self)
        return fits and (reset or (X.shape[1] == self.n_features_in_ and "feature_names_in_" not in earlier))

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
            if not (np.isfinite(shaped).all() and np.isfinite(offset).all()):
                raise ValueError("not finite")
            return shaped, offset
        except (ValueError, TypeError):
            raise ValueError(
                f"the start must be {outputs} × {d} finite coefficients and {outputs} finite intercepts: "
                "give init=(coef, intercept), or turn warm_start off"
            ) from None

    def _keep_held_out(self, errors: HeldOutErrors | None) -> None:
        """What ``predict_interval`` needs, or nothing; what an earlier fit left goes."""
        self.__dict__.pop("held_out_errors_", None)
        if errors is not None:
            self.held_out_errors_ = errors

    def _decision(self, X: Any) -> Array:
        check_is_fitted(self)
        check_are_numbers(X=X)
        X = validate_data(self, X, accept_sparse="csr", reset=False, dtype=[np.float64, np.float32])
        scores = X @ np.atleast_2d(self.coef_).T + np.atleast_1d(self.intercept_)
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """Parameters of an estimator with their defaults."""
    return {name: parameter.default for name, parameter in signature(kind).parameters.items()}


def _key_of(values: dict[str, Any]) -> tuple[Any, ...] | None:
    """Parameters as a key of a table, where all are plain; 1, 1.0 and True are different ones."""
    if any(type(value) not in _PLAIN for value in values.values()):
        return None
    return tuple((name, type(value), value) for name, value in values.items())


@lru_cache(maxsize=256)
def _check_once(kind: Any, key: tuple[Any, ...]) -> None:
    """Raise if some parameter is not valid; that all are is remembered."""
    changed = {name: value for name, _, value in key}
    validate_parameter_constraints(kind._parameter_constraints, changed, caller_name=kind.__name__)


def _is_plain(X: Any, y: Any, min_rows: int) -> bool:
    """Whether X is a C-ordered matrix and y a column of finite numbers: most often they are."""
    return (
        type(X) is type(y) is np.ndarray
        and X.ndim == 2
        and X.dtype in _REALS
        and X.flags.c_contiguous
        and X.flags.aligned
        and X.shape[1] > 0
        and y.ndim == 1
        and y.dtype.kind in "biuf"
        and len(X) == len(y) >= min_rows
        and bool(np.isfinite(y).all())
    )


class Regression(RegressorMixin):
    """Numbers in, numbers out."""

    _is_regression = True

    def _encode(self, y: Any, **streaming: Any) -> tuple[Loss, Array, int]:
        loss = get_loss(self.loss, self.loss_parameter, "regression")
        return loss, encode_numbers(loss, y), 1

    def _shape_model(self, coef: Array, intercept: Array) -> tuple[Array, float]:
        return coef[0], float(intercept[0])

    def predict(self, X: ArrayLike) -> Array:
        """Predict the target: ``⟨coef_, x⟩ + intercept_``, exponentiated for losses with the log link."""
        scores = self._decision(X)
        return np.exp(scores) if LOSSES[loss_name(self.loss)].link == "log" else scores


class RegressionOfStreams(Regression):
    """The same, for estimators that may go on with more rows."""

    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """One pass over more rows, assigned at random to k running candidates.

        Scales, k and start are set by the first call; the step schedule continues from ``t_``, that of an
        earlier ``fit`` too, whose model counts as the rows that it was fitted on. ``coef_`` is the
        combination of the candidates so far, computed when it is asked for. Where recent rows are predicted
        far worse than older ones a ``DriftWarning`` says so; ``forget`` is what to do about it.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, None, sample_weight)


def _gives_probabilities(model: Any) -> bool:
    if loss_name(model.loss) != "log_loss":
        raise AttributeError(f"probabilities need loss='log_loss'; this model has loss={model.loss!r}")
    return True


class Classification(ClassifierMixin):
    """Labels in, labels out: ±1 inside for two classes, class numbers for more."""

    _is_regression = False

    def _encode(
        self, y: Any, classes: Any = None, first: bool = True, stream: bool = False
    ) -> tuple[Loss, Array, int]:
        loss = get_loss(self.loss, self.loss_parameter, "classification")
        if stream:
            self._check_classes(classes, first)
        if first:
            check_classification_targets(y)
            self.classes_ = np.unique(y if classes is None else classes)
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise ValueError(f"a classifier needs at least 2 classes; got 1 class, {only!r}")
        target, outputs = encode_labels(self.classes_, y), len(self.classes_)
        if outputs == 2:
            return loss, target, 1
        return (SOFTMAX_LOSS if loss.name == "log_loss" else loss), target, outputs

    def _check_classes(self, classes: Any, first: bool) -> None:
        if first and classes is None:
            raise ValueError(
                "the first call of partial_fit needs classes: all the labels that will ever come"
            )
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes differ from those of the first call, {self.classes_.tolist()}")

    def _shape_model(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        return coef, intercept

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores: positive for ``classes_[1]``, or one column per class."""
        return self._decision(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class of the largest score."""
        scores = self._decision(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    @available_if(_gives_probabilities)
    def predict_proba(self, X: ArrayLike) -> Array:
        """Class probabilities, for ``loss="log_loss"``."""
        scores = self._decision(X)
        columns = np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores
        powers = np.exp(columns - columns.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of :meth:`predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), 1e-300))


class ClassificationOfStreams(Classification):
    """The same, for estimators that may go on with more rows."""

    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Any:
        """One pass over more rows, assigned at random to k running candidates.

        Scales, k and start are set by the first call; the step schedule continues from ``t_``, that of an
        earlier ``fit`` too, whose model counts as the rows that it was fitted on. ``coef_`` is the
        combination of the candidates so far, computed when it is asked for. Where recent rows are predicted
        far worse than older ones a ``DriftWarning`` says so; ``forget`` is what to do about it.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        classes : array-like, optional
            All the labels that will ever come; needed in the first call.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, classes, sample_weight)


@contextmanager
def _naming_tables(regression: bool) -> Iterator[None]:
    """When columns hold text or times, say which class takes them."""
    try:
        yield
    except ValueError as error:
        if not any(words in str(error) for words in ("could not convert string", "X holds times")):
            raise
        name = "TableRegressor" if regression else "TableClassifier"
        raise ValueError(f"{error}: tailproof.{name} takes such columns") from None


@contextmanager
def _naming_words(name: str, values: Any) -> Iterator[None]:
    """When numbers cannot be made of values since some are words, say so."""
    try:
        yield
    except ValueError:
        check_no_words(**{name: values})
        raise


@contextmanager
def naming_bad_input(check_finite: Callable[[], None]) -> Iterator[None]:
    """When a fit fails because of NaN and infinity in X, raise what ``check_finite`` says about them."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except ValueError:
        check_finite()
        raise


def check_finite_model(coef: Array, intercept: Any, X: Any) -> None:
    """Refuse coefficients that are not finite, with what to do about the columns of X."""
    if np.all(np.isfinite(coef)) and np.all(np.isfinite(intercept)):
        return
    sizes = np.ravel(abs(X).max(axis=0).toarray() if sparse.issparse(X) else np.abs(X).max(axis=0))
    if np.any((sizes > 0) & (sizes < _SMALLEST)):
        raise ValueError("values of X are so small that no fit is finite: multiply columns by a constant")
    raise ValueError("no candidate has a finite fit: divide columns with huge values by a constant")


def rows_with_weight(sample_weight: ArrayLike | None, X: Any, y: Any) -> tuple[Any, Any, Array]:
    """Rows of positive weight, and their weights (empty where all count the same)."""
    if sample_weight is None:
        return X, y, _NO_WEIGHTS
    check_are_numbers(sample_weight=sample_weight)
    with _naming_words("sample_weight", sample_weight):
        weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: at least one must be positive")
    weights = np.require(weights, requirements=["C", "A"])
    if weights.all():
        return X, y, weights
    kept = np.flatnonzero(weights)
    return X[kept], y[kept], weights[kept]


def _is_pair(init: Any) -> bool:
    return isinstance(init, tuple) and len(init) == 2


def seed_from_random_state(random_state: Any) -> np.random.SeedSequence:
    """Entropy from an int or a RandomState; fresh entropy for None, leaving NumPy's global state alone."""
    if random_state is None:
        # 32 bits, which random_state accepts: the seed in a report repeats the fit.
        return np.random.SeedSequence(int(np.random.SeedSequence().generate_state(1)[0]))
    if isinstance(random_state, (int, np.integer)):
        return np.random.SeedSequence(int(random_state))
    return np.random.SeedSequence(int(check_random_state(random_state).randint(0, 2**31 - 1)))


def entropy(seed: np.random.SeedSequence) -> int:
    """The number that repeats the fit when given as ``random_state``."""
    return int(seed.entropy)  # type: ignore[arg-type]


def penalties(penalty: str | None, alpha: float, l1_ratio: float) -> tuple[float, float]:
    share = {None: (0.0, 0.0), "l2": (0.0, 1.0), "l1": (1.0, 0.0), "elasticnet": (l1_ratio, 1.0 - l1_ratio)}
    first, second = share[penalty]
    return alpha * first, alpha * second


def encode_numbers(loss: Loss, y: Any) -> Array:
    """Targets of a regression as the loss expects them."""
    with _naming_words("y", y):
        target = np.require(y, np.float64, ["C", "A"])
    check_target(loss, target)
    return target


def encode_labels(classes: NDArray[Any], y: Any) -> Array:
    """Labels as −1 and +1, or as class numbers where there are several."""
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "biuU":  # what can only be labels needs no check
        check_classification_targets(y)
    numbers = np.searchsorted(classes, y)
    known = classes[np.minimum(numbers, len(classes) - 1)] == y
    if not np.all(known):
        raise ValueError(f"y has labels that are not in classes: {np.unique(np.asarray(y)[~known])[:5]}")
    return 2.0 * numbers - 1.0 if len(classes) == 2 else numbers.astype(float)


def begin_in_pieces(model: Any, labels: NDArray[Any]) -> tuple[Loss, int, Callable[[Any], Array]]:
    """Loss, outputs and what encodes the targets of a piece, of a model that will not see them together."""
    loss, _, outputs = model._encode(labels, classes=labels, first=True, stream=True)
    if model._is_regression:
        return loss, outputs, partial(encode_numbers, loss)
    return loss, outputs, partial(encode_labels, model.classes_)


def with_default_loss(init: Any, loss: str) -> Any:
    """The same ``__init__`` with another default loss: scikit-learn reads parameters from its signature."""
    copied = FunctionType(init.__code__, init.__globals__, init.__name__, (loss,), init.__closure__)
    copied.__kwdefaults__, copied.__annotations__ = init.__kwdefaults__, init.__annotations__
    return copied


def projected(constraint: ConvexSet, coef: Array, intercept: Array, centre: Array) -> tuple[Array, Array]:
    """Coefficients in the set, and the intercept that keeps what is predicted at the centre."""
    if isinstance(constraint, AllSpace):
        return coef, intercept
    inside = constraint.project(coef)
    return inside, intercept + (coef - inside) @ centre


def warn_of_training(candidates: TrainedCandidates, k: int) -> None:
    """Warn of passes that were not enough, and of candidates that diverged."""
    # With one or two candidates, noise in their path cannot be told from drift.
    if not candidates.converged and k > 2:
        warnings.warn(
            f"the candidates had not settled after {candidates.passes} passes: set max_iter, or look at the "
            "scale of the data",
            ConvergenceWarning,
            stacklevel=5,
        )
    warn_of_divergence(candidates.kept.size, k, "use update='implicit' or a smaller step_size", stacklevel=6)


def warn_of_divergence(kept: int, k: int, advice: str, *, stacklevel: int) -> None:
    """Warn where fewer than k candidates are left, and say what to do about it."""
    if kept < k:
        warnings.warn(
            f"{k - kept} of {k} candidates diverged and were left out: {advice}",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
