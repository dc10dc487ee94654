"""Divide and conquer for networks as scikit-learn estimators: rounds from a common start."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailproof.core.merge import MERGES
from tailproof.estimators.sklearn_private import Interval, StrOptions
from tailproof.torch.block_estimator import BLOCK_CONSTRAINTS, CLASS_CONSTRAINTS, BlockEstimator
from tailproof.torch.estimator_base import NetClassifier, NetRegressor
from tailproof.torch.robust_net import robust_spread

Array = NDArray[Any]
Seed = np.random.SeedSequence

_MERGING = BLOCK_CONSTRAINTS | {
    "merge": [StrOptions(set(MERGES))],
    "rounds": [Interval(Integral, 1, None, closed="left"), None],
}


class _Merged(BlockEstimator):
    """DC: candidates trained on blocks of all rows, merged (Algorithm 1), in rounds or once."""

    _method = "dc"

    def _learn(
        self,
        make: Callable[[], nn.Module],
        inputs: Tensor,
        targets: Tensor,
        weights: Array | None,
        seed: Seed,
    ) -> nn.Module:
        rounds: dict[str, Any] = {}
        if self.rounds is not None:
            merges = min(self.rounds, self.epochs)
            rounds = {"rounds": merges, "epochs": self.epochs // merges, "merge": self.merge}
        self.candidates_ = self._train(make, inputs, targets, weights, seed, **rounds)
        module = self.candidates_.merge(self.merge)
        self.report_ = self.candidates_.report
        return module


class TorchDCClassifier(NetClassifier, _Merged):
    """A PyTorch classifier by robust divide and conquer, in rounds from a common start.

    Each of k candidates trains on its block, their geometric median is the next common start, and so on: up
    to half of the blocks may hold anything. With ``rounds=None`` candidates have starts of their own and are
    merged once, which is Algorithm 1 and made for convex risks (a single linear layer).

    Parameters
    ----------
    module : callable, optional
        ``module(n_features, n_outputs)`` makes an ``nn.Module``; ``nn.Linear`` by default. For images the
        first argument is the tuple (channels, height, width).
    k : int or "auto"
        Number of blocks. "auto" is k(δ), fewer where a block would not fill a batch.
    delta : float
        One minus the confidence.
    merge : str
        A name in ``MERGES``; by default the mean of the closest majority, which bad blocks that agree among
        themselves do not move.
    rounds : int or None
        Merges, at most one for each epoch.
    loss_fn : callable, optional
        ``loss_fn(output, target)``; cross-entropy of logits by default.
    optimizer : callable, optional
        From tensors to an optimiser; SGD with steps of 0.01 by default.
    epochs : int
        Passes over the data, in all.
    class_weight : dict, "balanced" or None
        Weights of the classes.
    batch_size, schedule, average, clip_norm, vectorise, device, dtype, verbose
        As in :class:`Candidates`.
    random_state : int, RandomState or None

    Attributes
    ----------
    module_ : nn.Module
    candidates_ : Candidates
        With ``rounds``, a report of every round.
    history_ : list of EpochRecord
    classes_ : array
    report_ : Report

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((600, 3)); y = np.where(X.sum(axis=1) > 0, "up", "down")
    >>> adam = lambda tensors: torch.optim.Adam(tensors, lr=0.03)
    >>> model = TorchDCClassifier(optimizer=adam, epochs=20, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = _MERGING | CLASS_CONSTRAINTS

    def __init__(
        self,
        module: Any = None,
        *,
        k: int | str = "auto",
        delta: float = 0.05,
        merge: str = "ball_mean",
        rounds: int | None = 10,
        loss_fn: Any = None,
        optimizer: Any = None,
        epochs: int = 10,
        batch_size: int = 8,
        schedule: Any = None,
        average: bool = False,
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
        self.merge = merge
        self.rounds = rounds
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


class TorchDCRegressor(NetRegressor, _Merged):
    """A PyTorch regressor by robust divide and conquer, in rounds from a common start.

    Targets are trained in robust standard units (median, median absolute deviation).

    Parameters
    ----------
    module : callable, optional
        ``module(n_features, n_outputs)`` makes an ``nn.Module``; ``nn.Linear`` by default.
    loss_fn : callable, optional
        ``loss_fn(output, target)``, both of shape (batch, outputs) and in standard units; squared error by
        default. Under heavy-tailed noise ``torch.nn.HuberLoss()`` makes better candidates.
    others
        As in :class:`TorchDCClassifier`.

    Attributes
    ----------
    module_, candidates_, history_, report_
        As in :class:`TorchDCClassifier`.
    centre_, scale_ : arrays of shape (outputs,)
        Predictions are ``centre_ + scale_ * module_(X)``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2_000, 3)); y = 1e4 * (X.sum(axis=1) + rng.standard_t(2.5, 2_000))
    >>> model = TorchDCRegressor(epochs=20, random_state=0).fit(X, y)
    >>> bool(np.abs(model.predict(np.eye(3)) - 1e4).max() < 4e3)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = _MERGING

    def __init__(
        self,
        module: Any = None,
        *,
        k: int | str = "auto",
        delta: float = 0.05,
        merge: str = "ball_mean",
        rounds: int | None = 10,
        loss_fn: Any = None,
        optimizer: Any = None,
        epochs: int = 10,
        batch_size: int = 8,
        schedule: Any = None,
        average: bool = False,
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
        self.merge = merge
        self.rounds = rounds
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

    def _learn(
        self,
        make: Callable[[], nn.Module],
        inputs: Tensor,
        targets: Tensor,
        weights: Array | None,
        seed: Seed,
    ) -> nn.Module:
        y = targets.double().numpy()
        present = y if weights is None else y[weights > 0]
        self.centre_, self.scale_ = np.median(present, axis=0), robust_spread(present)
        units = torch.as_tensor((y - self.centre_) / self.scale_).to(targets.dtype)
        return super()._learn(make, inputs, units, weights, seed)

    def _outputs(self, X: Any) -> Array:
        outputs = super()._outputs(X)
        return self.centre_ + self.scale_ * outputs
