"""Estimators for ``pyspark.ml``: stages of a Pipeline, with columns of features, labels and predictions.

Needs ``pip install 'tailproof[spark]'``, and Java. Every parameter of the estimator is a ``Param``, so that
grids and cross-validation of Spark set them; fits and predictions run where the partitions are, as those of
:func:`tailproof.fit` and :func:`tailproof.predict` do.
"""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any, ClassVar

try:
    from pyspark.ml import Estimator, Model
    from pyspark.ml.param import Param, Params
    from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol, HasWeightCol
    from pyspark.ml.util import (
        DefaultParamsReadable,
        DefaultParamsReader,
        DefaultParamsWritable,
        DefaultParamsWriter,
        MLReadable,
        MLReader,
        MLWritable,
        MLWriter,
    )
except ImportError as missing:
    raise ImportError(
        f"tailproof.spark needs {missing.name}: pip install 'tailproof[spark]' brings it"
    ) from None

from tailproof.data import verbs
from tailproof.estimators.linear.estimators import (
    DCSGDClassifier,
    DCSGDRegressor,
    RVSGDClassifier,
    RVSGDRegressor,
)
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.model_files.files import load, save

__all__ = [
    "SparkDCSGDClassifier",
    "SparkDCSGDRegressor",
    "SparkModel",
    "SparkRVSGDClassifier",
    "SparkRVSGDRegressor",
    "SparkRobustRegressor",
]


class Columns(HasFeaturesCol, HasLabelCol, HasPredictionCol, HasWeightCol):
    """Names of columns: "features" (a vector, an array or a number), "label", "prediction", and weights."""

    def setFeaturesCol(self, value: str) -> Any:  # noqa: N802, the name that Spark has for it
        """Set the column to learn from."""
        return self._set(featuresCol=value)

    def setLabelCol(self, value: str) -> Any:  # noqa: N802
        """Set the column to learn."""
        return self._set(labelCol=value)

    def setPredictionCol(self, value: str) -> Any:  # noqa: N802
        """Set the column to write."""
        return self._set(predictionCol=value)

    def setWeightCol(self, value: str) -> Any:  # noqa: N802
        """Set the column of the weights of the rows."""
        return self._set(weightCol=value)


class SparkEstimator(Estimator[Any], Columns, DefaultParamsWritable, DefaultParamsReadable[Any]):
    """A stage that fits one of this package's estimators; subclasses say which one.

    Parameters
    ----------
    featuresCol, labelCol, predictionCol, weightCol : str
    on_missing : {"error", "drop"}
        As in :func:`tailproof.fit`.
    **settings
        Parameters of the estimator, by name.
    """

    on_missing: Param[str] = Param(Params._dummy(), "on_missing", "as in tailproof.fit: error or drop")
    _kind: ClassVar[type]
    _defaults: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, kind: type) -> None:
        super().__init_subclass__()
        cls._kind = kind
        cls._defaults = {name: one.default for name, one in inspect.signature(kind).parameters.items()}
        for name in cls._defaults:
            setattr(cls, name, Param(Params._dummy(), name, f"as in tailproof.{kind.__name__}"))

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._setDefault(on_missing="error", **self._defaults)
        if unknown := sorted(name for name in settings if not self.hasParam(name)):
            raise TypeError(f"{type(self).__name__} has no parameter {unknown[0]!r}")
        self._set(**settings)

    def _fit(self, dataset: Any) -> SparkModel:
        label, features = self.getLabelCol(), self.getFeaturesCol()
        weight = self.getWeightCol() if self.isDefined(self.weightCol) else None
        used = [features, label] if weight is None else [features, label, weight]
        if absent := [name for name in used if name not in dataset.columns]:
            raise ValueError(
                f"the data frame has no column {absent[0]!r}: set featuresCol, labelCol and weightCol to "
                "columns that it has"
            )
        # JSON, in which stages are kept, has no tuples.
        settings = {name: _without_lists(self.getOrDefault(name)) for name in self._defaults}
        rows, on_missing = dataset.select(*used), self.getOrDefault("on_missing")
        model = verbs.fit(
            self._kind(**settings), rows, label, [features], sample_weight=weight, on_missing=on_missing
        )
        return self._copyValues(SparkModel(model))


def _without_lists(value: Any) -> Any:
    return tuple(map(_without_lists, value)) if isinstance(value, list) else value


class SparkModel(Model, Columns, MLWritable, MLReadable[Any]):
    """A fitted estimator as a transformer that adds the column of predictions.

    Parameters
    ----------
    estimator : fitted estimator
        ``RobustRegressor``, ``DCSGD*`` or ``RVSGD*``, as :func:`tailproof.fit` returns it; kept as the
        attribute of that name.
    """

    def __init__(self, estimator: Any = None) -> None:
        super().__init__()
        self.estimator = estimator

    def _transform(self, dataset: Any) -> Any:
        name, aside = self.getPredictionCol(), "__tailproof_prediction_before"
        if name in dataset.columns:
            raise ValueError(
                f"the data frame has a column {name!r} already: setPredictionCol to another name"
            )
        taken = "prediction" in dataset.columns
        rows = dataset.withColumnRenamed("prediction", aside) if taken else dataset
        predicted = verbs.predict(self.estimator, rows, self._features()).withColumnRenamed(
            "prediction", name
        )
        return predicted.withColumnRenamed(aside, "prediction") if taken else predicted

    def _features(self) -> list[str] | None:
        """Columns of the fit, or, where the vector has another name now, that one."""
        column, columns = self.getFeaturesCol(), getattr(self.estimator, "columns_", ())
        known = column in columns or f"{column}_0" in columns
        return None if known else [column]

    def write(self) -> MLWriter:
        """Return what writes the stage: its parameters, and the model in its own format, without pickle."""
        return _ModelWriter(self)

    @classmethod
    def read(cls) -> MLReader[SparkModel]:
        """Return what reads the stage."""
        return _ModelReader()


class _ModelWriter(MLWriter):
    def __init__(self, model: SparkModel) -> None:
        super().__init__()
        self.model = model

    def saveImpl(self, path: str) -> None:  # noqa: N802
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model"
            save(self.model.estimator, file)
            content = file.read_bytes()
        DefaultParamsWriter.saveMetadata(self.model, path, self.sc)
        frame = self.sparkSession.createDataFrame([(bytearray(content),)], "content binary")
        frame.coalesce(1).write.parquet(f"{path}/model")


class _ModelReader(MLReader["SparkModel"]):
    def load(self, path: str) -> SparkModel:
        metadata = DefaultParamsReader.loadMetadata(path, self.sc)
        (row,) = self.sparkSession.read.parquet(f"{path}/model").collect()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model"
            file.write_bytes(row["content"])
            model = SparkModel(load(file))
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model


class SparkRobustRegressor(SparkEstimator, kind=RobustRegressor):
    """:class:`tailproof.RobustRegressor` as a stage of ``pyspark.ml``."""


class SparkDCSGDRegressor(SparkEstimator, kind=DCSGDRegressor):
    """:class:`tailproof.DCSGDRegressor` as a stage of ``pyspark.ml``."""


class SparkDCSGDClassifier(SparkEstimator, kind=DCSGDClassifier):
    """:class:`tailproof.DCSGDClassifier` as a stage of ``pyspark.ml``."""


class SparkRVSGDRegressor(SparkEstimator, kind=RVSGDRegressor):
    """:class:`tailproof.RVSGDRegressor` as a stage of ``pyspark.ml``."""


class SparkRVSGDClassifier(SparkEstimator, kind=RVSGDClassifier):
    """:class:`tailproof.RVSGDClassifier` as a stage of ``pyspark.ml``."""
