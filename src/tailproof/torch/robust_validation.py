"""Robust validation for networks as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from tailproof.core.means import MEANS
from tailproof.core.partition import train_validation
from tailproof.estimators.sklearn_private import Interval, StrOptions
from tailproof.torch.block_estimator import BLOCK_CONSTRAINTS, CLASS_CONSTRAINTS, BlockEstimator
from tailproof.torch.estimator_base import NetClassifier, NetRegressor

Array = NDArray[Any]
Seed = np.random.SeedSequence

_VALIDATING = BLOCK_CONSTRAINTS | {
    "mean": [StrOptions(set(MEANS))],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
}


class _Validated(BlockEstimator):
    """RV: candidates trained on part of the rows, selected on the others (Algorithm 5)."""

    _method = "rv"

    def _learn(
        self,
        make: Callable[[], nn.Module],
        inputs: Tensor,
        targets: Tensor,
        weights: Array | None,
        seed: Seed,
    ) -> nn.Module:
        split, rest = seed.spawn(2)
        train, held_out = train_validation(len(inputs), self.validation_fraction, split)
        train_weights, others = (None, None) if weights is None else (weights[train], weights[held_out])
        self.candidates_ = self._train(make, inputs[train], targets[train], train_weights, rest)
        selected = self.candidates_.select(
            (inputs[held_out], targets[held_out]), mean=self.mean, delta=self.delta, sample_weight=others
        )
        self.best_index_, self.validation_risk_ = selected.index, selected.validation.risk
        self.report_ = self.candidates_.report
        return selected.module


class TorchRVClassifier(NetClassifier, _Validated):
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
    >>> import torch
    >>> adam = lambda tensors: torch.optim.Adam(tensors, lr=0.05)
    >>> model = TorchRVClassifier(net, k=3, optimizer=adam, epochs=15, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.85)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = _VALIDATING | CLASS_CONSTRAINTS

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
        clip_norm: Any = None,
        class_weight: Any = None,
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
        self.clip_norm = clip_norm
        self.class_weight = class_weight
        self.vectorise = vectorise
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose


class TorchRVRegressor(NetRegressor, _Validated):
    """A PyTorch regressor by robust validation (RV-SGDAve, Algorithm 5): any module, convex or not.

    This is the paper's method. :class:`RobustNetRegressor` trains on most of the rows instead of k parts of
    them, scales targets, and has a much smaller error. Features and targets are taken as they are here: scale
    them in a ``Pipeline`` and with ``TransformedTargetRegressor`` where the optimiser needs it.

    Parameters
    ----------
    module : callable, optional
        ``module(n_features, n_outputs)`` makes an ``nn.Module``; ``nn.Linear`` by default.
    loss_fn : callable, optional
        ``loss_fn(output, target)``, both of shape (batch, outputs); squared error by default.
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
    >>> model = TorchRVRegressor(epochs=10, random_state=0).fit(X, y)
    >>> bool(np.abs(model.predict(np.eye(3)) - 1).max() < 0.4)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = _VALIDATING

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
        clip_norm: Any = None,
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
        self.clip_norm = clip_norm
        self.vectorise = vectorise
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
