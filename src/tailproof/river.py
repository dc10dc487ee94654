"""The SGD estimators one row at a time, in the manner of river: ``learn_one(x, y)``, ``predict_one(x)``.

A row is a dict of names and numbers. Where river is installed the adapters are its regressors and
classifiers, so that its pipelines, metrics and ``progressive_val_score`` take them; without it they work just
the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import clone

from tailproof.core import Array
from tailproof.estimators.linear.estimators import DCSGDClassifier, DCSGDRegressor

try:
    from river import base
except ImportError:
    RegressorBase: Any = object
    ClassifierBase: Any = object
else:
    RegressorBase, ClassifierBase = base.Regressor, base.Classifier

__all__ = ["RiverClassifier", "RiverRegressor"]


class OneRow:
    """Dicts to rows of a running estimator.

    Attributes
    ----------
    running : estimator
        A copy of ``model`` that learns, with ``coef_``, ``report_`` and all else; :func:`tailproof.save`
        keeps it.
    """

    model: Any
    features: Any

    def _begin(self) -> None:
        self.running = clone(self.model)
        self._names = None if self.features is None else list(self.features)
        self._begun = False

    def _row(self, x: dict[Any, Any]) -> Array:
        """The numbers of a row in the order of the features; what is absent is zero, as in river."""
        if self._names is None:
            self._names = list(x)
        for name in x.keys() - set(self._names):
            raise ValueError(
                f"feature {name!r} was not in the first row: give the names of all features, features=[...]"
            )
        return np.array([[_number(name, x.get(name, 0.0)) for name in self._names]])


def _number(name: Any, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"feature {name!r} is {value!r}, not a number: encode it before, as by river's OneHotEncoder"
        ) from None


class RiverRegressor(OneRow, RegressorBase):
    """A regressor that learns from one row after another.

    Parameters
    ----------
    model : estimator, optional
        With ``partial_fit``; it is copied, never changed. Default ``DCSGDRegressor()``.
    features : iterable of names, optional
        All features; default those of the first row. One that a row does not have is zero there.

    Examples
    --------
    >>> import numpy as np
    >>> random, model = np.random.default_rng(0), RiverRegressor(DCSGDRegressor(random_state=0))
    >>> for a, b in random.standard_normal((2_000, 2)):
    ...     model.learn_one({"a": a, "b": b}, 3 * a - b + random.standard_t(3))
    >>> round(model.predict_one({"a": 1.0, "b": 1.0}))
    2
    """

    def __init__(self, model: Any = None, features: Iterable[Any] | None = None) -> None:
        self.model = DCSGDRegressor() if model is None else model
        self.features = features
        self._begin()

    def learn_one(self, x: dict[Any, Any], y: float) -> None:
        """Learn from a row."""
        self.running.partial_fit(self._row(x), np.array([float(y)]))
        self._begun = True

    def predict_one(self, x: dict[Any, Any]) -> float:
        """Prediction for a row; 0 before the first one was learnt, as in river."""
        return float(self.running.predict(self._row(x))[0]) if self._begun else 0.0


class RiverClassifier(OneRow, ClassifierBase):
    """A classifier that learns from one row after another.

    Parameters
    ----------
    classes : iterable
        All labels there are: a stream shows them one by one.
    model : estimator, optional
        With ``partial_fit`` and ``predict_proba``; it is copied, never changed. Default
        ``DCSGDClassifier()``.
    features : iterable of names, optional
        All features; default those of the first row. One that a row does not have is zero there.

    Examples
    --------
    >>> model = RiverClassifier(classes=["ham", "spam"])
    >>> for length in range(200):
    ...     model.learn_one({"length": length}, "spam" if length >= 100 else "ham")
    >>> model.predict_one({"length": 180})
    'spam'
    """

    def __init__(
        self, classes: Iterable[Any], model: Any = None, features: Iterable[Any] | None = None
    ) -> None:
        self.classes = list(classes)
        self.model = DCSGDClassifier() if model is None else model
        self.features = features
        self._begin()

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Learn from a row."""
        self.running.partial_fit(self._row(x), np.array([y]), classes=self.classes)
        self._begun = True

    def predict_one(self, x: dict[Any, Any], **unused: Any) -> Any:
        """Label of a row; None before the first one was learnt, as in river."""
        return self.running.predict(self._row(x)).tolist()[0] if self._begun else None

    def predict_proba_one(self, x: dict[Any, Any], **unused: Any) -> dict[Any, float]:
        """Probabilities by label; none before the first row was learnt."""
        if not self._begun:
            return {}
        shares = self.running.predict_proba(self._row(x))[0]
        return dict(zip(self.running.classes_.tolist(), shares.tolist(), strict=True))
