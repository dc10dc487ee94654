"""Training for section 4.3: every step size and every trial of a setting as further stacked candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tailproof.core.merge import geometric_median
from tailproof.core.partition import Block, blocks
from tailproof.core.validate import validate
from tailproof.paper.experiments import Record
from tailproof.paper.real.data import RealData, Split, split
from tailproof.paper.real.settings import CHANCE, FACTORS, curve
from tailproof.paper.simulated import seed_of
from tailproof.torch.batches import TensorSource
from tailproof.torch.stacked_modules import Stack, Tensors, flatten, make_modules, torch_seed, unflatten
from tailproof.torch.training import Trainer

K, BATCH, EPOCHS, UNITS, DELTA = 20, 8, 15, 10, 0.01
_TRAIN_ROWS = 5_000  # on which training accuracy is taken
_STACK_BYTES = 2**30  # of parameters, gradients and averages together
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class RealRun:
    """One data set and one model.

    Attributes
    ----------
    data : RealData
    hidden : int
        Hidden layers of 10 units; 0 is logistic regression.
    base_step : float
    limit : int
        Training and validation rows at most; 0 for all.
    seed : int
    every_epoch : bool
        Look after every epoch, not only at the end.
    """

    data: RealData
    hidden: int
    base_step: float
    limit: int = 0
    seed: int = 0
    every_epoch: bool = False

    def make_module(self) -> nn.Module:
        """``nn.Linear``, after rectified layers of 10 units if there are any."""
        layers: list[nn.Module] = []
        width = self.data.X.shape[1]
        for _ in range(self.hidden):
            layers += [nn.Linear(width, UNITS), nn.ReLU()]
            width = UNITS
        return nn.Sequential(*layers, nn.Linear(width, self.data.classes))


@dataclass(frozen=True)
class Look:
    """Accuracies and mean loss of one model."""

    test_loss: float
    test_accuracy: float
    train_accuracy: float


def run_trials(task: RealRun, trials: list[int]) -> Iterator[tuple[int, list[Record]]]:
    """Yield the records of each trial, as many trials at a time as memory allows."""
    size = sum(parameter.numel() for parameter in task.make_module().parameters())
    at_once = max(1, _STACK_BYTES // (3 * 4 * size * K * len(FACTORS)))
    for start in range(0, len(trials), at_once):
        some = trials[start : start + at_once]
        parts = [split(len(task.data.y), _seed(task, trial), task.limit) for trial in some]
        many = _divided(task, some, parts)
        one = _benchmark(task, some, parts)
        yield from ((trial, many[i] + one[i] + [_chance(task)]) for i, trial in enumerate(some))


def _seed(task: RealRun, trial: int) -> np.random.SeedSequence:
    # Not of the model: all models of a trial see the same rows.
    return seed_of(task.seed, "real", task.data.name, trial)


def _chance(task: RealRun) -> Record:
    return Record(CHANCE, np.array([1]), np.array([task.data.chance]), None, None)


def _divided(task: RealRun, trials: list[int], parts: list[Split]) -> list[list[Record]]:
    """DC-SGD and RV-SGDAve: k sub-processes on blocks of the training rows, for every trial and step."""
    cut = [
        [Block(b.index, part.train[b.rows], b.seed) for b in blocks(part.train.size, K, _seed(task, trial))]
        for trial, part in zip(trials, parts, strict=True)
    ]
    stack = _stack(task, cut, average=True)
    rows = min(len(block) for block in cut[0])
    looks = [Looks() for _ in trials]
    for epoch in _trained(task, stack, cut, rows):
        if task.every_epoch or epoch == EPOCHS:
            points = flatten(stack.parameters).reshape(len(trials) * len(FACTORS), K, -1)
            merged = _stacked([unflatten(_merged(group), stack.parameters) for group in points])
            _look(task, stack, merged, parts, looks, "DC-SGD", epoch * rows)
    chosen = [_winner(task, stack, i, part) for i, part in _repeated(parts)]
    _look(task, stack, _stacked(chosen), parts, looks, "RV-SGDAve", EPOCHS * rows)
    return [found.records() for found in looks]


def _benchmark(task: RealRun, trials: list[int], parts: list[Split]) -> list[list[Record]]:
    """Return what one SGD on training and validation rows together finds, for every trial and step."""
    cut = [
        [Block(0, np.concatenate([part.train, part.validation]), _seed(task, trial).spawn(1)[0])]
        for trial, part in zip(trials, parts, strict=True)
    ]
    stack = _stack(task, cut, average=False)
    rows = len(cut[0][0])
    looks = [Looks() for _ in trials]
    for epoch in _trained(task, stack, cut, rows):
        if task.every_epoch or epoch == EPOCHS:
            _look(task, stack, stack.parameters, parts, looks, "bench", epoch * rows)
    return [found.records() for found in looks]


def _stack(task: RealRun, cut: list[list[Block]], average: bool) -> Stack:
    """Candidates by trial, then by step, then by block; all steps start from the same values."""
    seeds = [torch_seed(block.seed, 0) for group in cut for _ in FACTORS for block in group]
    return Stack(make_modules(task.make_module, seeds, _CPU, None), average=average)


def _trained(task: RealRun, stack: Stack, cut: list[list[Block]], rows: int) -> Iterator[int]:
    """Yield the number of each finished epoch."""
    source = TensorSource((torch.from_numpy(task.data.X), torch.from_numpy(task.data.y)))
    factors = torch.tensor(FACTORS, dtype=torch.float32)
    rates = factors[None, :, None].expand(len(cut), -1, len(cut[0])).reshape(-1)
    sgd = partial(torch.optim.SGD, lr=task.base_step)
    trainer = Trainer(stack, cross_entropy, sgd, rates=rates)
    for epoch in range(EPOCHS):
        orders = [np.stack([block.order(epoch)[:rows] for block in group]) for group in cut]
        trainer.run(source.batches(np.concatenate([np.tile(o, (len(FACTORS), 1)) for o in orders]), BATCH))
        yield epoch + 1


def _merged(points: NDArray[np.float64]) -> NDArray[np.floating]:
    finite = np.isfinite(points).all(axis=1)
    return geometric_median(points[finite]).point if finite.any() else points[0]


def _winner(task: RealRun, stack: Stack, position: int, part: Split) -> Tensors:
    """Candidate of least robust risk on the validation rows (Algorithm cat)."""
    mine = {name: leaf[position * K : (position + 1) * K] for name, leaf in stack.candidates.items()}
    inputs, target = _rows(task, part.validation)
    outputs = stack.outputs(inputs, mine)
    each = torch.stack([cross_entropy(output, target, reduction="none") for output in outputs])
    best = validate(list(each.double().numpy()), "catoni", DELTA).best
    return {name: leaf[best].detach() for name, leaf in mine.items()}


def _repeated(parts: list[Split]) -> Iterator[tuple[int, Split]]:
    return enumerate(part for part in parts for _ in FACTORS)


def _stacked(candidates: list[Tensors]) -> Tensors:
    return {name: torch.stack([candidate[name] for candidate in candidates]) for name in candidates[0]}


def _rows(task: RealRun, rows: NDArray[np.intp]) -> tuple[tuple[Tensor], Tensor]:
    return (torch.from_numpy(task.data.X[rows]),), torch.from_numpy(task.data.y[rows])


class Looks:
    """What was seen of one trial: values by method and factor, with the rows that a core had processed."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}
        self._costs: dict[str, list[int]] = {}

    def add(self, method: str, factor: int, cost: int, found: Look) -> None:
        """Keep one look."""
        for metric in vars(found):
            name = curve(method, factor, metric)
            self._values.setdefault(name, []).append(getattr(found, metric))
            self._costs.setdefault(name, []).append(cost)

    def records(self) -> list[Record]:
        """One record for each method, factor and metric."""
        return [
            Record(name, np.array(self._costs[name]), np.array(values), None, None)
            for name, values in self._values.items()
        ]


def _look(
    task: RealRun,
    stack: Stack,
    candidates: Tensors,
    parts: list[Split],
    looks: list[Looks],
    method: str,
    cost: int,
) -> None:
    """Test all models of all trials."""
    for i, (part, found) in enumerate(zip(parts, looks, strict=True)):
        mine = {n: leaf[i * len(FACTORS) : (i + 1) * len(FACTORS)] for n, leaf in candidates.items()}
        losses, accuracy = _scores(task, stack, mine, part.test)
        _, trained = _scores(task, stack, mine, part.train[:_TRAIN_ROWS])
        for factor, *values in zip(FACTORS, losses, accuracy, trained, strict=True):
            found.add(method, factor, cost, Look(*values))


def _scores(
    task: RealRun, stack: Stack, candidates: Tensors, rows: NDArray[np.intp]
) -> tuple[list[float], list[float]]:
    """Mean loss and accuracy of each candidate."""
    inputs, target = _rows(task, rows)
    outputs = stack.outputs(inputs, candidates)
    losses = [float(cross_entropy(output, target)) for output in outputs]
    return losses, (outputs.argmax(dim=2) == target).float().mean(dim=1).tolist()
