"""Every private name of scikit-learn in use, so that a release that moves them changes one file."""

from typing import Any

from sklearn.base import _fit_context as fit_context
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils.metadata_routing import _MetadataRequester as MetadataRequester
from sklearn.utils.metadata_routing import _routing_enabled as routing_enabled
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _check_y as check_y
from sklearn.utils.validation import _num_samples as num_samples

__all__ = [
    "HasMethods",
    "Interval",
    "MetadataRequester",
    "StrOptions",
    "check_method_params",
    "check_sample_weight",
    "check_y",
    "fit_context",
    "is_pipeline",
    "num_samples",
    "routing_enabled",
    "safe_indexing",
    "validate_parameter_constraints",
]


def safe_indexing(X: Any, key: Any, *, axis: int = 0) -> Any:
    """Rows, or a column; of Arrow's tables too, which scikit-learn 1.6 does not know."""
    if hasattr(X, "column_names") and hasattr(X, "take"):
        return X.take(key) if axis == 0 else X.column(key)
    return _safe_indexing(X, key, axis=axis)


def is_pipeline(estimator: Any) -> bool:
    """Whether it is a scikit-learn ``Pipeline``, which is imported only where one may be at hand."""
    if not hasattr(estimator, "steps"):
        return False
    from sklearn.pipeline import Pipeline

    return isinstance(estimator, Pipeline)
