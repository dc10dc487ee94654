"""The estimators with Dask collections: ``fit(X, y)`` on the cluster, lazy ``predict(X)``.

Needs ``pip install 'tailproof[dask]'``. Fits run where the partitions are, as those of :func:`tailproof.fit`
do; predictions are Dask collections that are computed when they are asked for.
"""

from __future__ import annotations

from typing import Any

from tailproof.core.lookup import optional
from tailproof.data import in_memory, verbs
from tailproof.estimators.linear.estimators import (
    DCSGDClassifier,
    DCSGDRegressor,
    RVSGDClassifier,
    RVSGDRegressor,
)
from tailproof.estimators.robust_regressor.estimator import RobustRegressor

__all__ = [
    "DaskDCSGDClassifier",
    "DaskDCSGDRegressor",
    "DaskRVSGDClassifier",
    "DaskRVSGDRegressor",
    "DaskRobustRegressor",
]

_WEIGHTS = "__tailproof_weights"


class OnDask:
    """``fit``, ``predict`` and ``score`` for Dask arrays and data frames.

    Attributes
    ----------
    client : distributed.Client or None
        Where to run; None is the current one, or threads of this process.
    """

    client: Any = None
    _local: type

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **options: Any) -> Any:
        """Fit on the workers that hold the partitions.

        Parameters
        ----------
        X : dask.array.Array or dask.dataframe.DataFrame
        y, sample_weight : arrays or series with the same chunks or partitions
        **options
            Of :func:`tailproof.fit`: ``shuffle``, ``on_missing``, ``classes``, ``categories``, ...

        Returns
        -------
        self
        """
        _check_collections("tailproof." + self._local.__name__, X=X, y=y, sample_weight=sample_weight)
        if not hasattr(X, "columns"):
            return verbs.fit(self, (X, y), sample_weight=sample_weight, client=self.client, **options)
        name = "y" if getattr(y, "name", None) is None else str(y.name)
        while name in X.columns:
            name += "_"
        weights = {} if sample_weight is None else {_WEIGHTS: sample_weight}
        options |= {"sample_weight": _WEIGHTS} if weights else {}
        return verbs.fit(self, X.assign(**{name: y}, **weights), name, client=self.client, **options)

    def predict(self, X: Any) -> Any:
        """Predictions, not yet computed: an array, or for a data frame a series with its index."""
        return self._lazy(X, "predict")

    def _lazy(self, X: Any, method: str) -> Any:
        model: Any = self.to_local()
        _check_collections("to_local()", X=X)
        if not hasattr(X, "columns"):
            return verbs.predict(model, X) if method == "predict" else _shares_of_array(model, X)
        pandas = optional("pandas", extra="dask")
        kind = model.classes_.dtype if hasattr(model, "classes_") else float
        meta = pandas.Series([], dtype=kind, name="prediction")
        if method != "predict":
            meta = pandas.DataFrame({label: pandas.Series([], dtype=float) for label in model.classes_})
        return X.map_partitions(_predicted_part, model, method, meta=meta)

    def score(self, X: Any, y: Any) -> float:
        """R² of a regressor, accuracy of a classifier."""
        _check_collections("to_local()", X=X, y=y)
        if not hasattr(X, "columns"):
            return verbs.score(self.to_local(), (X, y))
        name = "__tailproof_target"
        return verbs.score(self.to_local(), X.assign(**{name: y}), name)

    def to_local(self) -> Any:
        """The fitted estimator for arrays in memory, and for :func:`tailproof.save`."""
        model = self._local(**self.get_params(deep=False))  # type: ignore[attr-defined]
        vars(model).update({name: value for name, value in vars(self).items() if name != "client"})
        return model


def _check_collections(instead: str, **given: Any) -> None:
    """Raise for data that are in memory, where they are not looked for."""
    collections = optional("dask", extra="dask")
    for name, data in given.items():
        if data is not None and not collections.is_dask_collection(data):
            raise TypeError(
                f"{name} must be a Dask array, data frame or series; got a {type(data).__name__}: make it "
                "one (dask.array.from_array, dask.dataframe.from_pandas), or take "
                f"{instead}, which wants data in memory"
            )


class OnDaskWithClasses(OnDask):
    """Probabilities too."""

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes, not yet computed: an array, or for a data frame one of theirs."""
        return self._lazy(X, "predict_proba")


def _predicted_part(part: Any, model: Any, method: str) -> Any:
    """Predictions for a partition of a data frame, with its index."""
    pandas = optional("pandas", extra="dask")
    if method == "predict":
        return pandas.Series(verbs.predict(model, part), index=part.index, name="prediction")
    shares = in_memory.without_names(model).predict_proba(part[list(model.columns_)].to_numpy(dtype=float))
    return pandas.DataFrame(shares, index=part.index, columns=model.classes_)


def _shares_of_array(model: Any, X: Any) -> Any:
    whole, bare = X.rechunk({1: -1}), in_memory.without_names(model)
    chunks = (whole.chunks[0], (len(model.classes_),))
    return whole.map_blocks(bare.predict_proba, dtype=float, chunks=chunks)


class DaskRobustRegressor(OnDask, RobustRegressor):
    """:class:`tailproof.RobustRegressor` for Dask collections."""

    _local = RobustRegressor


class DaskDCSGDRegressor(OnDask, DCSGDRegressor):
    """:class:`tailproof.DCSGDRegressor` for Dask collections."""

    _local = DCSGDRegressor


class DaskDCSGDClassifier(OnDaskWithClasses, DCSGDClassifier):
    """:class:`tailproof.DCSGDClassifier` for Dask collections."""

    _local = DCSGDClassifier


class DaskRVSGDRegressor(OnDask, RVSGDRegressor):
    """:class:`tailproof.RVSGDRegressor` for Dask collections."""

    _local = RVSGDRegressor


class DaskRVSGDClassifier(OnDaskWithClasses, RVSGDClassifier):
    """:class:`tailproof.RVSGDClassifier` for Dask collections."""

    _local = RVSGDClassifier
