"""Robust regression with networks: copies of one module over a path of losses, recentred and blended.

Huber's loss resists heavy tails and is biased under skewed noise; squared error is neither. So copies of one
module are trained on the same rows with both, and with levels in between. Each is then shifted so that its
residuals have mean zero on held-out rows, in Catoni's mean, which takes most of the bias away at the price of
one number. Robust means of paired differences of held-out losses say which copies are best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailproof.core import Array
from tailproof.core.algorithms import DivergedError
from tailproof.core.means import Interval, robust_mean
from tailproof.core.partition import Seed, seed_sequence
from tailproof.core.validate import paired_differences, resistant_mean
from tailproof.estimators.progress import progress
from tailproof.estimators.robust_regressor.blend import blend_weights
from tailproof.estimators.robust_regressor.tuning import DEFAULT
from tailproof.torch.batches import BatchSource, StreamSource, batch_source
from tailproof.torch.checks import check_counts
from tailproof.torch.losses import ModelLoss
from tailproof.torch.nested import map_tensors
from tailproof.torch.stacked_modules import Stack, make_modules, seeded_randomness, torch_seed
from tailproof.torch.training import ClippedNorms, MakeOptimizer, Trainer

TRUNCATION = (0.5, 1.35, 3.0, 8.0)
CLIPPED_AT = 0.5  # quantile of the gradient norms; 0.25 was no better on any of five noises
_REFERENCE = 3.0  # what the blend falls back to: near least squares for normal noise, resistant otherwise
# A copy that is z standard errors worse than the best has a share of e^{−2z}; the best must be two better.
_BLENDING = replace(DEFAULT, blend_sharpness=2.0, convinced=2.0)
_MAD_OF_NORMAL = 1.4826  # standard deviation over median absolute deviation
_ROWS_AT_ONCE = 4096


def adam(tensors: list[Tensor]) -> torch.optim.Optimizer:
    """Adam with steps of 0.003, the default optimiser here."""
    return torch.optim.Adam(tensors, lr=3e-3)


class BlendedNet(nn.Module):
    """A weighted mean of networks, each with a shift of its own, in units of the targets.

    centre + scale · Σⱼ shareⱼ (fⱼ(x) + shiftⱼ).
    """

    shares: Tensor
    shifts: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(self, members: Sequence[nn.Module], outputs: int = 1) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        count = len(members)
        like = next(members[0].parameters())
        self.register_buffer("shares", torch.full((count,), 1.0 / count).to(like))
        self.register_buffer("shifts", torch.zeros(count, outputs).to(like))
        self.register_buffer("centre", torch.zeros(outputs).to(like))
        self.register_buffer("scale", torch.ones(outputs).to(like))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Outputs of shape (rows, outputs)."""
        each = torch.stack(
            [member(*inputs) + shift for member, shift in zip(self.members, self.shifts, strict=True)]
        )
        return self.centre + self.scale * torch.tensordot(self.shares, each, dims=1)


@dataclass(frozen=True, eq=False)
class RobustNet:
    """What :func:`fit_robust_net` found.

    Attributes
    ----------
    module : BlendedNet
        The copies with a positive share, in evaluation mode.
    names : tuple of str
        Of the copies, from the most robust loss to the least.
    shares : array
        Weight of each copy in the blend.
    epochs : array of int
        Epoch at which each copy had its least validation risk, from 1.
    risk : array
        Robust mean of the held-out squared errors of each copy, and last of the blend, averaged over outputs.
    paired : Interval
        Robust means of the paired differences to the blend, with intervals.
    history : list of arrays
        Robust risk of each copy after each epoch.
    """

    module: BlendedNet
    names: tuple[str, ...]
    shares: Array
    epochs: NDArray[np.intp]
    risk: Array
    paired: Interval
    history: list[Array]


def fit_robust_net(
    make_module: Callable[[], nn.Module],
    training_data: Any,
    validation_data: Any,
    *,
    truncation: Sequence[float] = TRUNCATION,
    delta: float = 0.05,
    optimizer: MakeOptimizer = adam,
    epochs: int = 20,
    batch_size: int = 64,
    schedule: Callable[[Any], Any] | None = None,
    patience: int | None = None,
    sample_weight: Any = None,
    validation_weight: Any = None,
    vectorise: bool = True,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    random_state: Seed = None,
    verbose: int = 0,
) -> RobustNet:
    """Train copies of a module over a path of losses on the same rows; recentre, choose and blend them.

    Parameters
    ----------
    make_module : callable
        Makes one module, whose outputs have the shape of the targets, (rows, outputs).
    training_data : (inputs, targets), Dataset, DataLoader or iterable of batches
        Any structure that :meth:`Candidates.fit` takes, except a stream; targets come last.
    validation_data
        Rows that train no copy. They recentre, choose, blend, and stop training.
    truncation : sequence of float
        Levels of Huber's loss, in robust standard deviations of the copy's own residuals. Squared error, and
        squared error with clipped gradients, are copies as well.
    delta : float
        One minus the confidence of each interval.
    optimizer, epochs, batch_size, schedule, device, dtype, verbose
        As in :meth:`Candidates.fit`. Each copy is what it was after its best epoch.
    patience : int, optional
        Stop when no copy has become better for this many epochs.
    sample_weight, validation_weight : arrays, optional
        Weights of the rows.
    vectorise, random_state
        As in :class:`Candidates`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((800, 2)).astype("float32")
    >>> y = (X.sum(axis=1) + rng.pareto(2.1, 800) - 1 / 1.1).astype("float32")[:, None]
    >>> net = fit_robust_net(lambda: nn.Linear(2, 1), (X[:600], y[:600]), (X[600:], y[600:]), random_state=0)
    >>> bool((net.module(torch.eye(2)) - 1).abs().max() < 0.3)
    True
    """
    check_counts({"epochs": epochs, "batch_size": batch_size, "patience": patience or 1})
    levels = _check_levels(truncation)
    device, seed = torch.device(device), seed_sequence(random_state)
    seeds = [torch_seed(child, 0) for child in seed.spawn(len(levels))]
    modules = make_modules(make_module, seeds, device, dtype)
    kind = next(modules[0].parameters()).dtype
    source = batch_source(training_data, device, kind)
    if isinstance(source, StreamSource):
        raise TypeError("a robust net needs data of known length, not an IterableDataset")
    held_out = HeldOut.of(batch_source(validation_data, device, kind), validation_weight, delta)
    centre, spread = _centre_and_spread(_targets(source))
    stack = Stack(modules, vectorise=vectorise)
    trainer = Trainer(stack, ModelLoss(_truncated_loss), optimizer, schedule)
    trainer.clip = ClippedNorms(quantile=CLIPPED_AT, which=torch.arange(len(levels)) == len(levels) - 1)
    path = LossPath(trainer, source, held_out, levels, centre, spread, batch_size, sample_weight)
    with (
        seeded_randomness(torch_seed(seed, len(levels) + 1), device),
        progress(verbose, epochs, "epochs") as on_pass,
    ):
        for epoch in range(epochs):
            path.advance(epoch, np.random.default_rng(seed_sequence(seed).spawn(epoch + 1)[-1]))
            on_pass(epoch + 1)
            if patience is not None and path.waited >= patience:
                break
    return path.blended(delta)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that train no copy, in memory."""

    inputs: tuple[Any, ...]
    y: Array
    weights: Array | None
    delta: float

    @classmethod
    def of(cls, source: BatchSource | StreamSource, weights: Any, delta: float) -> HeldOut:
        """Read all rows of a source."""
        batches = list(source.in_order(_ROWS_AT_ONCE))
        *inputs, target = map_tensors(lambda *tensors: torch.cat(tensors), *batches)
        y = target.double().cpu().numpy()
        return cls(
            tuple(inputs), y, None if weights is None else np.asarray(weights, dtype=np.float64), delta
        )

    def mean(self, values: Array) -> float:
        """Robust mean over rows; infinite if a value is not finite."""
        return resistant_mean(values, self.delta, self.weights) if np.isfinite(values).all() else math.inf

    def shifts(self, residuals: Array) -> Array:
        """Catoni's means of residuals (rows, outputs), one for each output."""
        return np.array([robust_mean(column, self.delta, self.weights) for column in residuals.T])


class LossPath:
    """Copies in training: after every epoch each is recentred and compared with its best epoch so far."""

    def __init__(
        self,
        trainer: Trainer,
        source: BatchSource,
        held_out: HeldOut,
        levels: Array,
        centre: Array,
        spread: Array,
        batch_size: int,
        sample_weight: Any,
    ) -> None:
        self.trainer, self.source, self.held_out, self.levels = trainer, source, held_out, levels
        self.centre, self.spread, self.batch_size = centre, spread, batch_size
        self.weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        copies, outputs = len(levels), held_out.y.shape[1]
        self.scales = np.ones((copies, outputs))
        self.best = trainer.stack.state()
        self.losses = np.full((copies, len(held_out.y)), np.inf)
        self.shifts = np.zeros((copies, outputs))
        self.outputs = np.zeros((copies, *held_out.y.shape))
        self.epochs = np.zeros(copies, dtype=np.intp)
        self.history: list[Array] = []
        self.waited = 0

    def advance(self, epoch: int, random: np.random.Generator) -> None:
        """Train for one epoch and keep the copies that became better."""
        self.trainer.run(self._batches(random))
        target = (self.held_out.y - self.centre) / self.spread
        outputs = self._outputs()
        residuals = target - outputs
        better, risks = np.zeros(len(self.levels), dtype=bool), np.full(len(self.levels), np.inf)
        for j, rows in enumerate(residuals):
            if not np.isfinite(rows).all():
                continue
            shift = self.held_out.shifts(rows)
            # Squared errors of all outputs, each in units of its own spread.
            losses = ((rows - shift) ** 2).mean(axis=1)
            risks[j] = self.held_out.mean(losses)
            self.scales[j] = robust_spread(rows)
            first = not np.isfinite(self.losses[j]).all()
            if first or self.held_out.mean(losses - self.losses[j]) < 0:
                better[j], self.losses[j], self.shifts[j], self.outputs[j] = True, losses, shift, outputs[j]
        self.epochs[better] = epoch + 1
        self._keep(better)
        self.history.append(risks)
        self.waited = 0 if better.any() else self.waited + 1

    def blended(self, delta: float) -> RobustNet:
        """Weigh the copies by how much worse than the best they are, in standard errors."""
        finite = np.flatnonzero(np.isfinite(self.losses).all(axis=1))
        if finite.size == 0:
            raise DivergedError("every copy diverged: use a smaller learning rate")
        reference = int(np.argmin(np.abs(np.log(self.levels[finite] / _REFERENCE))))
        shares = np.zeros(len(self.levels))
        shares[finite] = blend_weights(
            self.losses[finite].T, reference, delta, self.held_out.weights, tuning=_BLENDING
        )
        used = np.flatnonzero(shares)
        blend = np.tensordot(shares[used], self.outputs[used] + self.shifts[used, None], axes=1)
        target = (self.held_out.y - self.centre) / self.spread
        losses = np.column_stack([*self.losses[finite], ((target - blend) ** 2).mean(axis=1)])
        last, weights = losses.shape[1] - 1, self.held_out.weights
        against = paired_differences(losses, last, "catoni", delta, weights, untied_share=1.0)
        unit = float(np.mean(self.spread**2))
        risk = np.full(len(self.levels) + 1, np.inf)
        kept = np.append(finite, len(self.levels))
        risk[kept] = (self.held_out.mean(losses[:, -1]) + against.estimate) * unit
        differences = np.full((3, risk.size), np.inf)
        differences[:, kept] = unit * np.stack([against.estimate, against.low, against.high])
        return RobustNet(
            self._module(used, shares[used]),
            _names(self.levels),
            shares,
            self.epochs,
            risk,
            Interval(*differences),
            [unit * risks for risks in self.history],
        )

    def _module(self, used: NDArray[np.intp], shares: Array) -> BlendedNet:
        self.trainer.stack.load(self.best)
        net = BlendedNet([self.trainer.stack.member(int(j)) for j in used], self.shifts.shape[1])
        values = {"shares": shares, "shifts": self.shifts[used], "centre": self.centre, "scale": self.spread}
        for name, value in values.items():
            getattr(net, name).copy_(torch.as_tensor(value))
        return net.eval()

    def _batches(self, random: np.random.Generator) -> Iterator[dict[str, Any]]:
        """Batches of rows in random order, the same for all copies, with their levels and weights."""
        rows = np.arange(len(self.source)) if self.weights is None else np.flatnonzero(self.weights)
        order = random.permutation(rows)
        level = self._tensor(self.levels[:, None] * self.scales)
        centre, spread = self._tensor(self.centre), self._tensor(self.spread)
        weights = None if self.weights is None else self._tensor(self.weights / self.weights[rows].mean())
        copies = len(self.levels)
        for step, batch in enumerate(self.source.batches(order[None], self.batch_size)):
            *inputs, target = map_tensors(lambda t: t.expand(copies, *t.shape[1:]), batch)
            part = {"inputs": tuple(inputs), "target": (target - centre) / spread, "level": level}
            if weights is not None:
                at = torch.from_numpy(order[step * self.batch_size : (step + 1) * self.batch_size])
                part["weight"] = weights[at].expand(copies, -1)
            yield part

    def _outputs(self) -> Array:
        """Outputs of every copy on the held-out rows, shape (copies, rows, outputs)."""
        n = len(self.held_out.y)
        pieces = [
            self.trainer.stack.outputs(
                map_tensors(lambda t, at=at: t[at : at + _ROWS_AT_ONCE], self.held_out.inputs)
            )
            for at in range(0, n, _ROWS_AT_ONCE)
        ]
        return torch.cat(pieces, dim=1).double().cpu().numpy()

    def _keep(self, better: NDArray[np.bool_]) -> None:
        now, rows = self.trainer.stack.state(), torch.from_numpy(better)
        for group in ("parameters", "buffers"):
            for name, tensor in self.best[group].items():
                tensor[rows] = now[group][name][rows]

    def _tensor(self, values: Array) -> Tensor:
        return torch.as_tensor(values).to(self.trainer.rates)


def robust_spread(values: Array) -> Array:
    """Robust standard deviation of each column: of the absolute deviations the median, else the mean, else 1.

    Examples
    --------
    >>> robust_spread(np.array([[0.0, 5.0], [0.0, 5.0], [0.0, 5.0], [8.0, 5.0]])).tolist()
    [2.0, 1.0]
    """
    away = np.abs(values - np.median(values, axis=0))
    spread = _MAD_OF_NORMAL * np.median(away, axis=0)
    spread = np.where(spread > 0, spread, away.mean(axis=0))
    return np.where(spread > 0, spread, 1.0)


def _truncated_loss(model: Callable[..., Tensor], batch: dict[str, Any]) -> Tensor:
    """Huber's loss m (|r| − m/2), m = min(|r|, level), which is r²/2 at an infinite level."""
    output = model(*batch["inputs"])
    if output.shape != batch["target"].shape:
        raise ValueError(
            f"the module returns shape {tuple(output.shape)} for targets of shape "
            f"{tuple(batch['target'].shape)}: they must be equal"
        )
    size = (output - batch["target"]).abs()
    inside = torch.minimum(size, batch["level"])
    losses = (inside * (size - inside / 2)).mean(dim=1)
    return (losses * batch["weight"]).mean() if "weight" in batch else losses.mean()


def _check_levels(truncation: Sequence[float]) -> Array:
    """Levels in order, and infinity for squared error and for squared error with clipped gradients."""
    levels = np.sort(np.asarray(truncation, dtype=np.float64).ravel())
    if not np.all((levels > 0) & np.isfinite(levels)):
        raise ValueError(f"truncation must be positive finite levels; got {truncation!r}")
    return np.append(levels, [np.inf, np.inf])


def _names(levels: Array) -> tuple[str, ...]:
    truncated = [f"Huber at {level:g} sd" for level in levels[:-2]]
    return (*truncated, "squared error", "squared error, gradients clipped")


def _targets(source: BatchSource) -> Array:
    targets = [batch[-1].double().cpu().numpy() for batch in source.in_order(_ROWS_AT_ONCE)]
    y = np.concatenate(targets)
    if y.ndim != 2:
        raise ValueError(f"targets must have shape (rows, outputs); got {y.shape}: use y[:, None]")
    if not np.isfinite(y).all():
        raise ValueError("the targets contain NaN or infinity: remove or replace such values first")
    return y


def _centre_and_spread(y: Array) -> tuple[Array, Array]:
    return np.median(y, axis=0), robust_spread(y)
