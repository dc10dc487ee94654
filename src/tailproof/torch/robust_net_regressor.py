"""RobustNetRegressor: a path of losses over copies of one network, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from tailproof.core.partition import train_validation
from tailproof.estimators.sklearn_private import Interval
from tailproof.reports.choice_report import RobustReport
from tailproof.reports.fit_report import Clock
from tailproof.torch.estimator_base import CONSTRAINTS, DTYPES, NetRegressor
from tailproof.torch.robust_net import TRUNCATION, RobustNet, adam, fit_robust_net

Array = NDArray[Any]


class RobustNetRegressor(NetRegressor):
    """A network for heavy-tailed targets: copies over a path of losses, recentred and blended.

    Six copies of one module are trained as one stack on the same rows: with Huber's loss at four levels, with
    squared error, and with squared error and clipped gradients. On held-out rows each is shifted to the mean
    by Catoni's estimate, kept at its best epoch, and weighed by robust means of paired differences of losses.
    Targets are scaled inside; features are taken as they are.

    Parameters
    ----------
    module : callable, optional
        ``module(n_features, n_outputs)`` makes an ``nn.Module``; ``nn.Linear`` by default. For images the
        first argument is the tuple (channels, height, width).
    truncation : sequence of float
        Levels of Huber's loss, in robust standard deviations of the copy's own residuals.
    delta : float
        One minus the confidence of each interval.
    validation_fraction : float
        Share of the rows that recentre, choose and blend.
    optimizer : callable, optional
        From tensors to an optimiser; Adam with steps of 0.003 by default.
    epochs : int
        At most; every copy is what it was after its best epoch.
    patience : int or None
        Stop when no copy has become better for this many epochs.
    batch_size, schedule, vectorise, device, dtype, verbose
        As in :class:`Candidates`.
    random_state : int, RandomState or None

    Attributes
    ----------
    module_ : BlendedNet
        Predictions in units of the targets.
    shares_ : array
        Weight of each copy in the blend.
    history_ : list of arrays
        Robust validation risk of each copy after each epoch.
    report_ : RobustReport

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2_000, 2)); y = X[:, 0] * X[:, 1] + rng.lognormal(0, 1.5, 2_000)
    >>> net = lambda d, o: nn.Sequential(nn.Linear(d, 16), nn.Tanh(), nn.Linear(16, o))
    >>> import torch
    >>> adam = lambda tensors: torch.optim.Adam(tensors, lr=0.02)
    >>> model = RobustNetRegressor(net, optimizer=adam, epochs=6, random_state=0).fit(X, y)
    >>> best = X[:, 0] * X[:, 1] + np.exp(1.5**2 / 2)
    >>> bool(np.mean((model.predict(X) - best) ** 2) < 0.5)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = CONSTRAINTS | {
        "truncation": ["array-like"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        module: Any = None,
        *,
        truncation: Any = TRUNCATION,
        delta: float = 0.05,
        validation_fraction: float = 0.2,
        optimizer: Any = None,
        epochs: int = 20,
        patience: int | None = None,
        batch_size: int = 64,
        schedule: Any = None,
        vectorise: bool = True,
        device: Any = "cpu",
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.module = module
        self.truncation = truncation
        self.delta = delta
        self.validation_fraction = validation_fraction
        self.optimizer = optimizer
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.schedule = schedule
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
        seed: np.random.SeedSequence,
    ) -> nn.Module:
        split, rest = seed.spawn(2)
        # Rows without weight are as if absent.
        rows = np.arange(len(inputs)) if weights is None else np.flatnonzero(weights)
        train, held_out = (
            rows[part] for part in train_validation(rows.size, self.validation_fraction, split)
        )
        clock = Clock()
        with clock("train"):
            net = fit_robust_net(
                make,
                (inputs[train], targets[train]),
                (inputs[held_out], targets[held_out]),
                truncation=self.truncation,
                delta=self.delta,
                optimizer=adam if self.optimizer is None else self.optimizer,
                epochs=self.epochs,
                batch_size=self.batch_size,
                schedule=self.schedule,
                patience=self.patience,
                sample_weight=None if weights is None else weights[train],
                validation_weight=None if weights is None else weights[held_out],
                vectorise=self.vectorise,
                device=self.device,
                dtype=DTYPES[self.dtype],
                random_state=rest,
                verbose=self.verbose,
            )
        self.shares_, self.history_ = net.shares, net.history
        self.report_ = _report(net, self.delta, held_out.size, clock)
        return net.module


def _report(net: RobustNet, delta: float, rows: int, clock: Clock) -> RobustReport:
    first = int(np.argmax(net.shares))
    used = np.count_nonzero(net.shares)
    why = (
        f"Chosen: a weighted mean of {used} of {net.shares.size} copies, with most weight "
        f"({100 * net.shares[first]:.3g}%) on {net.names[first]}, recentred to the mean on held-out rows."
    )
    return RobustReport(
        candidates=(*net.names, "blend"),
        chosen=net.shares.size,
        why=why,
        risk=net.risk,
        difference=net.paired.estimate,
        low=net.paired.low,
        high=net.paired.high,
        delta=delta,
        folds=1,
        compared=rows,
        glitches=np.empty(0, dtype=np.intp),
        seconds=dict(clock.seconds),
        guarantee="None: the rows that choose also recentre the copies and stop their training.",
        estimator="RobustNetRegressor",
    )
