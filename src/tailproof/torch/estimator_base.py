"""Input, outputs and scikit-learn's contract for networks: what all estimators of this package share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from tailproof.core.numerics.meaning import check_are_numbers
from tailproof.estimators.inputs import seed_from_random_state
from tailproof.estimators.sklearn_private import Interval, StrOptions, check_sample_weight, fit_context
from tailproof.torch.checks import check_outputs

Array = NDArray[Any]

DTYPES = {"float32": torch.float32, "float64": torch.float64}
CONSTRAINTS: dict[str, Any] = {
    "module": [callable, None],
    "delta": [Interval(Real, 0, 1, closed="neither")],
    "optimizer": [callable, None],
    "epochs": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "schedule": [callable, None],
    "vectorise": ["boolean"],
    "device": [str, torch.device],
    "dtype": [StrOptions(set(DTYPES))],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
_FLOATS = [np.float64, np.float32]


class TorchEstimator(BaseEstimator):
    """A module factory, rows in, outputs out. Subclasses say how ``module_`` is trained in ``_learn``."""

    _learn: Callable[..., nn.Module]

    def _fit(self, X: Array, targets: Tensor, outputs: int, weights: Array | None) -> None:
        # A copy: the array may be read-only, and tensors cannot be.
        inputs = torch.tensor(X, dtype=DTYPES[self.dtype])
        factory: Callable[..., nn.Module] = nn.Linear if self.module is None else self.module
        # The number of columns, or the shape of an image.
        self.input_shape_ = X.shape[1] if X.ndim == 2 else tuple(X.shape[1:])
        make = functools.partial(factory, self.input_shape_, outputs)
        check_outputs(make, inputs[:1], outputs)
        self.n_outputs_ = outputs
        self.module_ = self._learn(make, inputs, targets, weights, seed_from_random_state(self.random_state))
        self.n_iter_ = self.epochs

    def _outputs(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=_FLOATS, allow_nd=True)
        leaf = next(self.module_.parameters())
        with torch.no_grad():
            return self.module_(torch.tensor(X, dtype=leaf.dtype, device=leaf.device)).double().cpu().numpy()


class NetClassifier(ClassifierMixin, TorchEstimator):
    """Outputs are logits, one for each class."""

    _loss_default = staticmethod(nn.functional.cross_entropy)

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NetClassifier:
        """Fit on (X, y), with any kind of class labels; rows may be images, (n, channels, height, width).

        Weights of rows and of classes count in training and in validation alike.
        """
        X, y = validate_data(self, X, y, dtype=_FLOATS, ensure_min_samples=2, allow_nd=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(f"at least two classes are needed; got one class: {self.classes_.tolist()}")
        weights = _row_weights(sample_weight, X)
        if self.class_weight is not None:
            of_class = compute_sample_weight(self.class_weight, y)
            weights = of_class if weights is None else weights * of_class
        self._fit(X, torch.as_tensor(codes), self.classes_.size, weights)
        return self

    def decision_function(self, X: Any) -> Array:
        """Logits; with two classes their difference, as in scikit-learn."""
        logits = self._outputs(X)
        return logits[:, 1] - logits[:, 0] if self.classes_.size == 2 else logits

    def predict_proba(self, X: Any) -> Array:
        """Softmax of the module's outputs."""
        logits = self._outputs(X)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Array:
        """Most probable class."""
        logits = self._outputs(X)
        return self.classes_[logits.argmax(axis=1)]


class NetRegressor(RegressorMixin, TorchEstimator):
    """Outputs are predictions, one column for each target."""

    _loss_default = staticmethod(nn.functional.mse_loss)
    target_axes_ = 1  # of y; model files of the first version do not say

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NetRegressor:
        """Fit on (X, y); rows may be images, and y may have several columns."""
        check_are_numbers(X=X, y=y)
        X, y = validate_data(
            self,
            X,
            y,
            dtype=_FLOATS,
            y_numeric=True,
            ensure_min_samples=2,
            allow_nd=True,
            multi_output=True,
        )
        self.target_axes_ = y.ndim
        targets = torch.tensor(y, dtype=DTYPES[self.dtype]).reshape(len(y), -1)
        self._fit(X, targets, targets.shape[1], _row_weights(sample_weight, X))
        return self

    def predict(self, X: Any) -> Array:
        """Predictions, shape (n,), or (n, targets) where y had two axes."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self.target_axes_ == 1 else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _row_weights(sample_weight: Any, X: Array) -> Array | None:
    if sample_weight is None:
        return None
    weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: at least one must be positive")
    return np.asarray(weights)
