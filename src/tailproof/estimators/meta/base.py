"""What the two meta-estimators share: input, metadata, fits on blocks, delegation to the final estimator."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier, is_regressor
from sklearn.exceptions import FitFailedWarning
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_is_fitted, has_fit_parameter, validate_data

from tailproof.core import Array
from tailproof.core.automatic import information_per_row, number_of_blocks, share_of_untied_targets
from tailproof.core.losses import LOSSES, Loss
from tailproof.core.numerics.meaning import check_are_numbers, check_not_masked
from tailproof.core.partition import Block
from tailproof.estimators.meta.learner import Fitted, SklearnLearner
from tailproof.estimators.parallel import JoblibEngine, warn_of_forks
from tailproof.estimators.screening import Screened, screen
from tailproof.estimators.sklearn_private import (
    check_method_params,
    check_sample_weight,
    check_y,
    is_pipeline,
    num_samples,
    routing_enabled,
    safe_indexing,
)

_PICKING = ("transformers", "func")  # attributes of what picks or makes columns by itself


@dataclass(frozen=True, eq=False)
class FitData:
    """Checked rows of positive weight, with what ``fit`` of the estimator gets beside them.

    ``labels`` are the classes to stratify by, None for regression; ``weights`` None where all are equal.
    """

    X: Any
    y: Any
    labels: NDArray[Any] | None
    weights: Array | None
    params: dict[str, Any]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def d(self) -> int:
        """Number of columns; 1 for rows that have none, such as texts."""
        return int(self.X.shape[1]) if len(getattr(self.X, "shape", ())) == 2 else 1

    @property
    def untied_share(self) -> float:
        """Share of the targets that differ from the most common one; 1 for labels and several targets."""
        return share_of_untied_targets(self.y) if self.labels is None and self.y.ndim == 1 else 1.0

    def take(self, rows: NDArray[np.intp]) -> FitData:
        """The data of some rows."""
        return FitData(
            safe_indexing(self.X, rows),
            self.y[rows],
            None if self.labels is None else self.labels[rows],
            None if self.weights is None else self.weights[rows],
            check_method_params(self.X, self.params, indices=rows),
        )


def _final_has(method: str) -> Callable[[Any], bool]:
    def check(meta: Any) -> bool:
        # An AttributeError from here names what is missing.
        getattr(meta.estimator_ if hasattr(meta, "estimator_") else meta.estimator, method)
        return True

    return check


class BlockwiseEstimator(MetaEstimatorMixin, BaseEstimator):
    """Base of the meta-estimators: a regressor or a classifier, as its estimator is."""

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), copy.deepcopy(get_tags(self.estimator))
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        tags.non_deterministic = inner.non_deterministic
        # Rows with several labels cannot be stratified over the blocks.
        tags.target_tags.multi_output &= inner.estimator_type == "regressor"
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = False
        return tags

    def get_metadata_routing(self) -> Any:
        """Say what the estimator asks for, as in scikit-learn's user guide on metadata routing."""
        mapping = MethodMapping().add(caller="fit", callee="fit").add(caller="score", callee="score")
        return MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=mapping)

    def _check_input(self, X: Any, y: Any, fit_params: dict[str, Any]) -> FitData:
        classifier = self._check_kind()
        _check_numbers(y, classifier, type(self.estimator).__name__)
        check_not_masked(X=X, y=y)
        self._check_times(X)
        if not classifier:
            check_are_numbers(y=y)
        validate_data(self, X, y, skip_check_array=True)
        X, y = indexable(X, y)
        y = check_y(
            y,
            multi_output=get_tags(self).target_tags.multi_output,
            y_numeric=not classifier,
            estimator=self,
        )
        if classifier:
            check_classification_targets(y)
        params, weights = self._check_params(X, fit_params)
        data = FitData(X, y, y if classifier else None, weights, params)
        if weights is None or weights.all():
            return data
        kept = data.take(np.flatnonzero(weights))
        if classifier and len(np.unique(kept.y)) == 1 < len(np.unique(y)):
            raise ValueError(f"sample_weight is zero for every row of any class but {kept.y[0]!r}")
        return kept

    def _check_kind(self) -> bool:
        """Whether it is a classifier; refuse what is neither that nor a regressor."""
        name, tags = type(self.estimator).__name__, get_tags(self.estimator)
        if not is_classifier(self.estimator) and not is_regressor(self.estimator):
            raise ValueError(
                f"{type(self).__name__} needs a regressor or a classifier; {name} is neither: "
                "there is no target to score it by"
            )
        if tags.input_tags.pairwise:
            raise ValueError(
                f"{type(self).__name__} cannot cut a precomputed kernel or distance matrix into blocks of "
                f"rows: give {name} features instead"
            )
        return bool(is_classifier(self.estimator))

    def _check_params(self, X: Any, fit_params: dict[str, Any]) -> tuple[dict[str, Any], Array | None]:
        """What ``estimator.fit`` gets, and the weights among it."""
        given, key = dict(fit_params), self._weight_key()
        if routing_enabled():
            given = dict(process_routing(self, "fit", **fit_params).estimator.fit)
            key = "sample_weight"
        elif "sample_weight" in given:
            given[key] = given.pop("sample_weight")
        if given.get(key) is None:
            given.pop(key, None)
            return check_method_params(X, given), None
        weights = check_sample_weight(given[key], X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight is zero for every row: at least one must be positive")
        if not routing_enabled():
            self._require_weights()
        return check_method_params(X, given | {key: weights}), weights

    def _weight_key(self) -> str:
        """Weights go to the last step of a pipeline, which cannot take them under their own name."""
        if is_pipeline(self.estimator):
            return f"{self.estimator.steps[-1][0]}__sample_weight"
        return "sample_weight"

    def _require_weights(self) -> None:
        last = self.estimator[-1] if is_pipeline(self.estimator) else self.estimator
        if not has_fit_parameter(last, "sample_weight") and not isinstance(last, BlockwiseEstimator):
            raise ValueError(f"{type(last).__name__}.fit takes no sample_weight: leave it out")

    def _number_of_blocks(self, data: FitData, far: int = 0) -> tuple[int, str]:
        """K and the reason for it, such that every block can have every class; far rows tell nothing."""
        loss = LOSSES["squared_error" if data.labels is None else "log_loss"]
        automatic = self.k == "auto"
        n = len(data) - far if automatic else len(data)
        d, information = self._size(data, loss) if automatic else (data.d, 1.0)
        k, why = number_of_blocks(self.k, self.delta, n, d, self._method, loss, information)
        if data.labels is None:
            return k, why
        classes, counts = np.unique(data.labels, return_counts=True)
        rarest, rows = classes.tolist()[counts.argmin()], int(counts.min())
        if k <= rows:
            return k, why
        if self.k != "auto":
            raise ValueError(
                f"k={k} blocks need as many training rows of every class; class {rarest!r} has {rows}: "
                f"use k={rows} or less, or leave rare classes out"
            )
        return rows, f"one for each training row of the rarest class, {rarest!r}"

    def _size(self, data: FitData, loss: Loss) -> tuple[int, float]:
        """Columns, and information in a row, that the number of blocks depends on.

        To be merged, a block's coefficients must be accurate: rows count by their information, and columns
        once for every score but one.
        """
        if self._method == "rv":
            return data.d, 1.0
        columns = [data.y] if data.y.ndim == 1 else list(data.y.T)
        share = min(information_per_row(loss, column) for column in columns)
        scores = 1 if data.labels is None else max(len(np.unique(data.labels)) - 1, 1)
        return scores * (data.d + 1) - 1, share

    def _fit_blocks(self, learner: SklearnLearner, parts: list[Block], data: FitData) -> list[Fitted]:
        """One result for each block; warns about failures, raises where all failed or the input is bad."""
        warn_of_forks(learner.estimator, self.n_jobs)
        fits = JoblibEngine(self.n_jobs).run(learner.advance, (learner.start(part) for part in parts))
        if any(fit.error for fit in fits):
            self._name_bad_input(data)
            warn_of_failures(fits)
        return fits

    def _name_bad_input(self, data: FitData) -> None:
        """Raise for NaN and infinity in X, if the estimator does not allow them: no block is to blame."""
        try:
            numbers = np.asarray(data.X.data if hasattr(data.X, "tocsr") else data.X, dtype=np.float64)
        except (TypeError, ValueError):
            return
        allowed = get_tags(self).input_tags.allow_nan
        assert_all_finite(numbers, allow_nan=allowed, input_name="X", estimator_name=type(self).__name__)

    def predict(self, X: Any) -> Any:
        """Predict with the final estimator.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self._final_for(X).predict(X)

    @available_if(_final_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities of the final estimator; see :meth:`predict`."""
        return self._final_for(X).predict_proba(X)

    @available_if(_final_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the class probabilities of the final estimator; see :meth:`predict`."""
        return self._final_for(X).predict_log_proba(X)

    @available_if(_final_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Scores of the final estimator; see :meth:`predict`."""
        return self._final_for(X).decision_function(X)

    def score(self, X: Any, y: Any, **score_params: Any) -> float:
        """Score of the final estimator: R² or accuracy, unless it has another."""
        if routing_enabled():
            score_params = process_routing(self, "score", **score_params).estimator.score
        return self._final_for(X).score(X, y, **score_params)

    def _check_times(self, X: Any) -> None:
        """Refuse columns of times, unless the estimator may have a use for them."""
        if not _may_want_times(self.estimator):
            check_are_numbers(X=X)

    def _final_for(self, X: Any) -> Any:
        final = self._final()
        self._check_times(X)
        return final

    def _final(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels, for classifiers."""
        return self.estimator_.classes_


def screened(meta: Any, data: FitData, sample_weight: Any) -> tuple[FitData, Screened]:
    """Data without errors of measurement, where X has columns of numbers, and what was found."""
    X = _matrix(data.X)
    y = data.y if data.labels is None and data.y.ndim == 1 else None
    screening = screen(X, y, meta.drop_glitches, sample_weight, labels=data.labels)
    return (data if screening.kept is None else data.take(screening.kept)), screening


def _matrix(X: Any) -> Any:
    """X as numbers; without columns where it has others, such as text, or missing values."""
    if sparse.issparse(X):
        return X.tocsr()
    try:
        check_are_numbers(X=X)
        matrix = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty((num_samples(X), 0))
    return matrix if matrix.ndim == 2 else np.empty((num_samples(X), 0))


def _may_want_times(estimator: Any) -> bool:
    """Whether a part picks columns, or is not scikit-learn's: others make numbers of times without a word."""
    parts = [part for part in (estimator, *estimator.get_params().values()) if hasattr(part, "fit")]
    picks = any(hasattr(part, "transform") and hasattr(part, name) for part in parts for name in _PICKING)
    return picks or any(not type(part).__module__.startswith("sklearn.") for part in parts)


def _check_numbers(y: Any, classifier: bool, name: str) -> None:
    if not classifier and np.asarray(y).dtype.kind in "US":
        raise ValueError(f"{name} is a regressor, and y holds text: give numbers, or a classifier")


def warn_of_failures(fits: list[Fitted]) -> None:
    failed = [fit for fit in fits if fit.error is not None]
    if len(failed) == len(fits):
        raise_first(failed, "fits")
    warnings.warn(
        f"{len(failed)} of {len(fits)} blocks failed and were left out; the first, block "
        f"{failed[0].index}: {type(failed[0].error).__name__}: {failed[0].error}",
        FitFailedWarning,
        stacklevel=6,
    )


def raise_first(failed: list[Fitted], what: str) -> NoReturn:
    """Raise the first error as it is, with a note on where it comes from."""
    error = failed[0].error
    if error is None:
        raise ValueError("nothing failed")
    error.add_note(f"in block {failed[0].index}; all {len(failed)} {what} failed")
    raise error


def check_rows(meta: Any, X: Any, least: int) -> None:
    n = num_samples(X)
    if n < least:
        raise ValueError(f"{type(meta).__name__} needs at least {least} rows; got n_samples={n}")
