"""PyTorch modules as scikit-learn estimators: they take a module factory and NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from tailproof.core.means import MEANS
from tailproof.core.merge import MERGES
from tailproof.core.partition import train_validation
from tailproof.core.theory import blocks_for
from tailproof.estimators.inputs import seed_from_random_state
from tailproof.estimators.sklearn_private import Interval, StrOptions, fit_context
from tailproof.torch.candidates import Candidates
from tailproof.torch.checks import check_outputs

Array = NDArray[Any]

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_CONSTRAINTS: dict[str, Any] = {
    "module": [callable, None],
    "k": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "delta": [Interval(Real, 0, 1, closed="neither")],
    "loss_fn": [callable, None],
    "optimizer": [callable, None],
    "epochs": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "schedule": [callable, None],
    "average": ["boolean"],
    "vectorise": ["boolean"],
    "device": [str, torch.device],
    "dtype": [StrOptions(set(_DTYPES))],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
_MERGING = _CONSTRAINTS | {"merge": [StrOptions(set(MERGES))]}
_VALIDATING = _CONSTRAINTS | {
    "mean": [StrOptions(set(MEANS))],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
}


class _TorchEstimator(BaseEstimator):
    """Input, training and outputs, which all estimators share."""

    _loss_default: Callable[..., Tensor]
    _method: str
    _combine: Callable[..., nn.Module]

    def _train(
        self, inputs: Tensor, targets: Tensor, outputs: int, seed: np.random.SeedSequence
    ) -> Candidates:
        factory = nn.Linear if self.module is None else self.module
        make = functools.partial(factory, inputs.shape[1], outputs)
        k, why = self._blocks(len(inputs))
        check_outputs(make, inputs[:1], outputs)
        candidates = Candidates(
            make,
            k,
            average=self.average,
            vectorise=self.vectorise,
            random_state=seed,
        )
        chosen = {} if self.optimizer is None else {"optimizer": self.optimizer}
        candidates.fit(
            (inputs, targets),
            self._loss(),
            epochs=self.epochs,
            batch_size=self.batch_size,
            schedule=self.schedule,
            device=self.device,
            dtype=_DTYPES[self.dtype],
            verbose=self.verbose,
            **chosen,
        )
        candidates.report = replace(candidates.report, why_k=why)
        return candidates

    def _fit(self, X: Array, targets: Tensor, outputs: int) -> None:
        # A copy: the array may be read-only, and tensors cannot be.
        inputs = torch.tensor(X, dtype=_DTYPES[self.dtype])
        self.module_ = self._combine(inputs, targets, outputs, seed_from_random_state(self.random_state))
        self.report_ = self.candidates_.report
        self.n_iter_ = self.epochs

    def _loss(self) -> Callable[..., Tensor]:
        return type(self)._loss_default if self.loss_fn is None else self.loss_fn

    def _blocks(self, n: int) -> tuple[int, str]:
        """Return k and the reason for it: k(δ), or fewer where a block would not fill a batch."""
        if self.k != "auto":
            return int(self.k), "set by the user"
        wanted, most = blocks_for(self.delta, self._method), max(1, n // self.batch_size)
        if most < wanted:
            return most, f"fewer than k(δ) = {wanted}, to fill a batch of {self.batch_size} in a block"
        return wanted, f"k(δ) = {wanted}"

    def _outputs(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        leaf = next(self.module_.parameters())
        with torch.no_grad():
            return self.module_(torch.tensor(X, dtype=leaf.dtype, device=leaf.device)).double().cpu().numpy()


class _Merged(_TorchEstimator):
    """DC: candidates trained on blocks of all rows, merged (Algorithm 1)."""

    _method = "dc"

    def _combine(
        self, inputs: Tensor, targets: Tensor, outputs: int, seed: np.random.SeedSequence
    ) -> nn.Module:
        self.candidates_ = self._train(inputs, targets, outputs, seed)
        return self.candidates_.merge(self.merge)


class _Validated(_TorchEstimator):
    """RV: candidates trained on part of the rows, selected on the others (Algorithm 5)."""

    _method = "rv"

    def __init__(
        self,
        module: Any = None,
        *,
        k: int | str = "auto",
        delta: float = 0.05,
        mean: str = "catoni",
        validation_fraction: float = 0.5,
        loss_fn: Any = None,
        optimizer: Any = None,
        epochs: int = 10,
        batch_size: int = 8,
        schedule: Any = None,
        average: bool = True,
        vectorise: bool = True,
        device: Any = "cpu",
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.module = module
        self.k = k
        self.delta = delta
        self.mean = mean
        self.validation_fraction = validation_fraction
        self.loss_fn = loss_fn
        self.optimizer = optimizer
        self.epochs = epochs
        self.batch_size = batch_size
        self.schedule = schedule
        self.average = average
        self.vectorise = vectorise
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _combine(
        self, inputs: Tensor, targets: Tensor, outputs: int, seed: np.random.SeedSequence
    ) -> nn.Module:
        split, rest = seed.spawn(2)
        train, held_out = train_validation(len(inputs), self.validation_fraction, split)
        self.candidates_ = self._train(inputs[train], targets[train], outputs, rest)
        selected = self.candidates_.select(
            (inputs[held_out], targets[held_out]), mean=self.mean, delta=self.delta
        )
        self.best_index_, self.validation_risk_ = selected.index, selected.validation.risk
        return selected.module


class _Classifier(ClassifierMixin, _TorchEstimator):
    """Outputs are logits, one for each class."""

    _loss_default = staticmethod(nn.functional.cross_entropy)

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> _Classifier:
        """Fit on (X, y), with any kind of class labels."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(f"at least two classes are needed; got one class: {self.classes_.tolist()}")
        self._fit(X, torch.as_tensor(codes), self.classes_.size)
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


class TorchDCClassifier(_Classifier, _Merged):
    """A linear PyTorch classifier by robust divide and conquer (Algorithm 1).

    Parameters
    ----------
    module : callable, optional
        ``module(n_features, n_outputs)`` makes an ``nn.Module``; ``nn.Linear`` by default. Anything but a
        single linear layer is warned about: merging is for convex risks.
    k : int or "auto"
        Number of blocks. "auto" is k(δ), fewer where a block would not fill a batch.
    delta : float
        One minus the confidence.
    merge : str
        A name in ``MERGES``.
    loss_fn : callable, optional
        ``loss_fn(output, target)``; cross-entropy of logits by default.
    optimizer : callable, optional
        From tensors to an optimiser; SGD with steps of 0.01 by default.
    epochs, batch_size, schedule, average, vectorise, device, dtype, verbose
        As in :class:`Candidates`.
    random_state : int, RandomState or None

    Attributes
    ----------
    module_ : nn.Module
    candidates_ : Candidates
    classes_ : array
    report_ : Report

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((600, 3)); y = np.where(X.sum(axis=1) > 0, "up", "down")
    >>> model = TorchDCClassifier(epochs=20, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = _MERGING

    def __init__(
        self,
        module: Any = None,
        *,
        k: int | str = "auto",
        delta: float = 0.05,
        merge: str = "geometric_median",
        loss_fn: Any = None,
        optimizer: Any = None,
        epochs: int = 10,
        batch_size: int = 8,
        schedule: Any = None,
        average: bool = False,
        vectorise: bool = True,
        device: Any = "cpu",
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.module = module
        self.k = k
        self.delta = delta
        self.merge = merge
        self.loss_fn = loss_fn
        self.optimizer = optimizer
        self.epochs = epochs
        self.batch_size = batch_size
        self.schedule = schedule
        self.average = average
        self.vectorise = vectorise
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose


class TorchRVClassifier(_Classifier, _Validated):
    """A PyTorch classifier by robust validation (RV-SGDAve, Algorithm 5): any module, convex or not.

    Parameters
    ----------
    module : callable, optional
        ``module(n_features, n_outputs)`` makes an ``nn.Module``; ``nn.Linear`` by default.
    mean : str
        A name in ``MEANS``: how losses on held-out rows are averaged.
    validation_fraction : float
        Share of the rows that validate.
    average : bool
        False keeps the last iterate of each path instead of its mean.
    others
        As in :class:`TorchDCClassifier`.

    Attributes
    ----------
    module_ : nn.Module
    candidates_ : Candidates
    best_index_, validation_risk_
        Block of the winner, and the robust risk of every candidate.
    classes_ : array
    report_ : Report

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((600, 2)); y = X[:, 0] * X[:, 1] > 0
    >>> net = lambda d, c: nn.Sequential(nn.Linear(d, 16), nn.Tanh(), nn.Linear(16, c))
    >>> adam = lambda tensors: torch.optim.Adam(tensors, lr=0.05)
    >>> model = TorchRVClassifier(net, k=3, optimizer=adam, epochs=40, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.85)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = _VALIDATING


class TorchRVRegressor(RegressorMixin, _Validated):
    """A PyTorch regressor by robust validation (RV-SGDAve, Algorithm 5): any module, convex or not.

    Features and targets are taken as they are: scale them in a ``Pipeline`` and with
    ``TransformedTargetRegressor`` where the optimiser needs it.

    Parameters
    ----------
    module : callable, optional
        ``module(n_features, 1)`` makes an ``nn.Module``; ``nn.Linear`` by default.
    loss_fn : callable, optional
        ``loss_fn(output, target)``, both of shape (batch, 1); squared error by default.
    others
        As in :class:`TorchRVClassifier`.

    Attributes
    ----------
    module_, candidates_, best_index_, validation_risk_, report_
        As in :class:`TorchRVClassifier`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2_000, 3)); y = X.sum(axis=1) + rng.standard_t(2.5, 2_000)
    >>> model = TorchRVRegressor(epochs=20, random_state=0).fit(X, y)
    >>> bool(np.abs(model.predict(np.eye(3)) - 1).max() < 0.4)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = _VALIDATING
    _loss_default = staticmethod(nn.functional.mse_loss)

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> TorchRVRegressor:
        """Fit on (X, y)."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True, ensure_min_samples=2)
        self._fit(X, torch.tensor(y, dtype=_DTYPES[self.dtype])[:, None], 1)
        return self

    def predict(self, X: Any) -> Array:
        """Predictions of the chosen module."""
        return self._outputs(X)[:, 0]
