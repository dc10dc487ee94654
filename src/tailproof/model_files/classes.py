"""Classes that a model file may hold, and which of their attributes are saved."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import compose, decomposition, dummy, feature_selection, impute, linear_model, preprocessing
from sklearn.base import BaseEstimator
from sklearn.pipeline import FeatureUnion, Pipeline

from tailproof.core import held_out, inference, sets, steps, validate
from tailproof.core.deferred import Deferred
from tailproof.estimators.baselines.estimators import RGDClassifier, RGDRegressor
from tailproof.estimators.linear.estimators import (
    DCSGDClassifier,
    DCSGDRegressor,
    RVSGDClassifier,
    RVSGDRegressor,
)
from tailproof.estimators.linear.stream_state import SavedRows, SavedStream, saved_stream
from tailproof.estimators.meta.estimators import DivideAndConquer, RobustValidation
from tailproof.estimators.robust_classifier.estimator import RobustClassifier
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.model_files import torch_modules
from tailproof.reports import choice_report, fit_report, round_report
from tailproof.tables import encoding
from tailproof.tables.dialect import Dialect
from tailproof.tables.estimators import TableClassifier, TableRegressor
from tailproof.tables.model import Roles, TableModel

_OURS = (
    DCSGDRegressor,
    DCSGDClassifier,
    RVSGDRegressor,
    RVSGDClassifier,
    RGDRegressor,
    RGDClassifier,
    RobustClassifier,
    RobustRegressor,
    DivideAndConquer,
    RobustValidation,
    fit_report.Report,
    round_report.RoundReport,
    choice_report.RobustReport,
    encoding.Column,
    encoding.Encoding,
    TableModel,
    TableRegressor,
    TableClassifier,
    Dialect,
    Roles,
    sets.AllSpace,
    sets.Ball,
    sets.Box,
    sets.L1Ball,
    sets.Simplex,
    steps.Constant,
    steps.OverRootD,
    steps.Decaying,
    steps.Theorem1,
    steps.Theorem2,
    steps.Theorem3,
    steps.Auto,
    validate.Validation,
    inference.CoefficientErrors,
    held_out.HeldOutErrors,
    held_out.NoiseScale,
    SavedStream,
    SavedRows,
    torch_modules.SavedModule,
)

# Of scikit-learn: what is numbers and names once it is fitted, with the private attributes that it needs.
_THEIRS: dict[type, tuple[str, ...]] = {
    Pipeline: (),
    FeatureUnion: (),
    compose.ColumnTransformer: (
        "_columns",
        "_transformer_to_input_indices",
        "_remainder",
        "_name_to_fitted_passthrough",
        "_n_features",
    ),
    compose.TransformedTargetRegressor: ("_training_dim",),
    linear_model.LinearRegression: (),
    linear_model.Ridge: (),
    linear_model.RidgeCV: (),
    linear_model.Lasso: (),
    linear_model.LassoCV: (),
    linear_model.ElasticNet: (),
    linear_model.BayesianRidge: (),
    linear_model.HuberRegressor: (),
    linear_model.QuantileRegressor: (),
    linear_model.SGDRegressor: (),
    linear_model.SGDClassifier: (),
    linear_model.LogisticRegression: (),
    dummy.DummyRegressor: (),
    dummy.DummyClassifier: ("_strategy",),
    preprocessing.StandardScaler: (),
    preprocessing.RobustScaler: (),
    preprocessing.MinMaxScaler: (),
    preprocessing.MaxAbsScaler: (),
    preprocessing.Normalizer: (),
    preprocessing.Binarizer: (),
    preprocessing.PolynomialFeatures: ("_min_degree", "_max_degree", "_n_out_full"),
    preprocessing.QuantileTransformer: (),
    preprocessing.PowerTransformer: ("_scaler",),
    preprocessing.KBinsDiscretizer: ("_encoder",),
    preprocessing.FunctionTransformer: (),
    preprocessing.OneHotEncoder: (
        "_infrequent_enabled",
        "_infrequent_indices",
        "_default_to_infrequent_mappings",
        "_drop_idx_after_grouping",
        "_n_features_outs",
    ),
    preprocessing.OrdinalEncoder: (
        "_infrequent_enabled",
        "_infrequent_indices",
        "_default_to_infrequent_mappings",
        "_missing_indices",
    ),
    impute.SimpleImputer: ("_fit_dtype", "_fill_dtype"),
    impute.MissingIndicator: ("_precomputed", "_n_features"),
    feature_selection.VarianceThreshold: (),
    decomposition.PCA: ("_fit_svd_solver",),
}
_OF_ROWS = ("row_weights_",)  # as long as the data: not a part of the model
# Made by the next fit; nothing else needs them.
_REMADE = ("_loss_function_", "_expanded_class_weight", "_store_cv_results")
_ANY = ("_sklearn_output_config", "_sklearn_version")  # may be set on any of them

CLASSES: dict[str, type] = {cls.__name__: cls for cls in (*_OURS, *_THEIRS)}
NAMES = (*CLASSES, *torch_modules.TORCH_CLASSES)
_MODELS = (TableModel.__name__, torch_modules.SavedModule.__name__, *torch_modules.TORCH_CLASSES)


def is_model(name: object) -> bool:
    """Whether a class can be a whole file: an estimator, a model of a table, a module; not a part of one."""
    return name in _MODELS or (name in CLASSES and issubclass(CLASSES[str(name)], BaseEstimator))


def class_named(name: object) -> type:
    """The class of that name, if a file may hold it."""
    if not isinstance(name, str) or name not in NAMES:
        raise ValueError(f"it names the unknown class {str(name)[:60]!r}")
    return CLASSES[name] if name in CLASSES else torch_modules.torch_class(name)


def is_known(cls: type) -> bool:
    """Whether a file may hold instances of a class; subclasses have code of their own."""
    if cls.__name__ in torch_modules.TORCH_CLASSES:
        return torch_modules.torch_class(cls.__name__) is cls
    return CLASSES.get(cls.__name__) is cls


def is_fitted_attribute(cls: type, name: str) -> bool:
    """Whether a fit makes an attribute of that name: ``coef_``, or one that the class is listed with."""
    public = name.endswith("_") and name.isidentifier() and not name.startswith("_")
    return public or name in _THEIRS.get(cls, ()) or (cls in _THEIRS and name in _ANY)


def estimator_state(model: BaseEstimator) -> dict[str, Any]:
    """Parameters and fitted attributes of an estimator; what a file cannot hold is refused later.

    Estimators of this package may lose parameters that only code can give (callbacks, random states, foreign
    estimators to choose from): what they fitted is saved on its own. Those of scikit-learn may not.
    """
    cls = type(model)
    stream = getattr(model, "_stream", None)
    if stream is not None or isinstance(model, Deferred):
        model.__getstate__()  # combines the candidates, makes what was left for later
    given = model.get_params(deep=False)
    ours = cls not in _THEIRS
    state = {name: _parameter(name, value, ours) for name, value in given.items()}
    if isinstance(model, compose.ColumnTransformer) and hasattr(model, "_columns"):
        # Columns that a callable selected are saved by name or number.
        parts = zip(model.transformers, model._columns, strict=True)
        state["transformers"] = [(name, part, columns) for (name, part, _), columns in parts]
    for name, value in vars(model).items():
        if ours and name in _OF_ROWS:
            continue
        if is_fitted_attribute(cls, name):
            state[name] = value
        elif not (ours or name in given or name in _REMADE or _is_made_by_init(model, name)):
            raise TypeError(
                f"{cls.__name__} has an attribute {name!r} that model files do not know: it cannot be saved"
            )
    if stream is not None:
        state["stream_"] = saved_stream(stream)
    return torch_modules.estimator_state(model, state) if torch_modules.is_torch_estimator(model) else state


def _is_made_by_init(model: BaseEstimator, name: str) -> bool:
    return name in vars(type(model)(**model.get_params(deep=False)))


def _parameter(name: str, value: Any, may_be_left_out: bool) -> Any:
    """A parameter, or None for one that only code can give; ``memory`` is a folder of pickles."""
    if name == "memory" or isinstance(value, np.random.RandomState):
        return None
    return None if may_be_left_out and _needs_code(value) else value


def _needs_code(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_needs_code(item) for item in value)
    if isinstance(value, BaseEstimator):
        return not is_known(type(value)) or any(map(_needs_code, value.get_params(deep=False).values()))
    return callable(value) and not isinstance(value, (np.ufunc, type))
