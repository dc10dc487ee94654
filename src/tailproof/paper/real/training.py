"""Training for section 4.3: DC-SGD, RV-SGDAve and one SGD on everything, for every step size of a trial.

Networks are vectors of parameters, trained by the compiled :func:`tailproof.native.networks.network_pass`,
one after the other or in threads; results do not depend on how many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tailproof.core import Array
from tailproof.core.merge import geometric_median
from tailproof.core.partition import Block, blocks
from tailproof.core.validate import validate
from tailproof.estimators.parallel import LocalEngine
from tailproof.native.networks import network_pass
from tailproof.paper.experiments import Record
from tailproof.paper.real.data import RealData, Split, split
from tailproof.paper.real.settings import CHANCE, FACTORS, METRICS, curve
from tailproof.paper.simulated import seed_of

K, BATCH, EPOCHS, UNITS, DELTA = 20, 8, 15, 10, 0.01
_TRAIN_ROWS = 5_000  # on which training accuracy is taken


@dataclass(frozen=True)
class RealRun:
    """One data set and one network.

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
    start : {"one", "each"}
        All sub-processes and bench from one ŵ₀ (Algorithms 1 and 5), or each from its own.
    jobs : int or None
        Threads; None is all cores.
    """

    data: RealData
    hidden: int
    base_step: float
    limit: int = 0
    seed: int = 0
    every_epoch: bool = False
    start: str = "one"
    jobs: int | None = None

    @property
    def sizes(self) -> list[int]:
        """Widths of the input, of the hidden layers and of the output."""
        return [self.data.X.shape[1], *([UNITS] * self.hidden), self.data.classes]

    @property
    def epochs(self) -> range:
        """The epochs after which to look."""
        return range(1 if self.every_epoch else EPOCHS, EPOCHS + 1)


@dataclass(frozen=True, eq=False)
class Trained:
    """One process: its parameters after each epoch that is looked at, and the average of all its iterates."""

    iterates: Array
    average: Array


def first_parameters(sizes: list[int], seed: np.random.SeedSequence) -> NDArray[np.float32]:
    """Weights and biases uniform within ±1/√inputs, the default of PyTorch's linear layers.

    Examples
    --------
    >>> float(abs(first_parameters([4, 3], np.random.SeedSequence(0))).max()) < 0.5
    True
    """
    random = np.random.default_rng(seed)
    layers = [
        random.uniform(-1, 1, (inputs + 1) * outputs) / np.sqrt(inputs) for inputs, outputs in pairwise(sizes)
    ]
    return np.concatenate(layers).astype(np.float32)


def scores(sizes: list[int], w: Array, X: Array) -> Array:
    """Outputs of a network for rows, one column per class.

    Examples
    --------
    >>> scores([1, 2], np.array([1.0, 2.0, 0.5, 0.0]), np.array([[3.0]])).tolist()
    [[3.5, 6.0]]
    """
    values, at = X, 0
    for inputs, outputs in pairwise(sizes):
        weights = w[at : at + inputs * outputs].reshape(outputs, inputs)
        at += (inputs + 1) * outputs
        values = values @ weights.T + w[at - outputs : at]
        if at < w.size:
            values = np.maximum(values, 0)
    return values


def cross_entropy(outputs: Array, labels: NDArray[np.int64]) -> Array:
    """Loss of every row, log Σ exp(score) − score of the label.

    Examples
    --------
    >>> cross_entropy(np.array([[0.0, 0.0]]), np.array([1])).round(3).tolist()
    [0.693]
    """
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(labels.size), labels]


def run_trial(task: RealRun, trial: int) -> list[Record]:
    """Train and test everything in one trial."""
    seed = _seed(task, trial)
    part = split(len(task.data.y), seed, task.limit)
    cut = [Block(b.index, part.train[b.rows], b.seed) for b in blocks(part.train.size, K, seed)]
    whole = Block(0, np.concatenate([part.train, part.validation]), seed.spawn(1)[0])
    tasks = [(block, factor) for factor in FACTORS for block in (*cut, whole)]
    # One thread of linear algebra: sums in another order would make results depend on the number of jobs.
    with threadpool_limits(1):
        trained = LocalEngine(task.jobs or -1).run(partial(_train, task, seed), tasks)
        results = [
            _tested(task, part, factor, trained[i * (K + 1) :][: K + 1]) for i, factor in enumerate(FACTORS)
        ]
    work = {"bench": len(whole)} | dict.fromkeys(("DC-SGD", "RV-SGDAve"), max(len(block) for block in cut))
    by_factor = [
        Record(
            curve(method, factor, metric),
            np.array([e * work[method] for e in epochs]),
            values[:, i],
            None,
            None,
        )
        for factor, methods in zip(FACTORS, results, strict=True)
        for method, values in methods.items()
        for epochs in [task.epochs if len(values) > 1 else [EPOCHS]]
        for i, metric in enumerate(METRICS)
    ]
    return [*by_factor, Record(CHANCE, np.array([1]), np.array([task.data.chance]), None, None)]


def _seed(task: RealRun, trial: int) -> np.random.SeedSequence:
    # Not of the network: all networks of a trial see the same rows.
    return seed_of(task.seed, "real", task.data.name, trial)


def _train(task: RealRun, seed: np.random.SeedSequence, what: tuple[Block, int]) -> Trained:
    """SGD over one block with one step size; all step sizes start from the same values."""
    block, factor = what
    start_seed = block.seed if task.start == "each" else seed
    child = np.random.SeedSequence(start_seed.entropy, spawn_key=(*start_seed.spawn_key, 2**32 - 4))
    w = first_parameters(task.sizes, child)
    average, updates, kept = np.zeros_like(w), 0, []
    for epoch in range(EPOCHS):
        updates = network_pass(
            task.data.X, task.data.y, block.order(epoch), task.sizes, w, task.base_step * factor,
            batch_size=BATCH, mean=average, updates=updates,
        )  # fmt: skip
        if epoch + 1 in task.epochs:
            kept.append(w.copy())
    return Trained(np.stack(kept), average)


def _tested(task: RealRun, part: Split, factor: int, trained: list[Trained]) -> dict[str, Array]:
    """Metrics of each method, one row for each look; the last of the processes is bench."""
    *processes, bench = trained
    merged = [_merged(np.stack([p.iterates[i] for p in processes])) for i in range(len(task.epochs))]
    models = {"DC-SGD": merged, "RV-SGDAve": [_winner(task, part, processes)], "bench": [*bench.iterates]}
    return {name: np.array([_metrics(task, part, w) for w in every]) for name, every in models.items()}


def _merged(points: Array) -> Array:
    finite = np.isfinite(points).all(axis=1)
    return (
        geometric_median(points[finite].astype(np.float64)).point.astype(points.dtype)
        if finite.any()
        else points[0]
    )


def _winner(task: RealRun, part: Split, processes: list[Trained]) -> Array:
    """Average path of least robust risk on the validation rows (Algorithm cat)."""
    X, y = task.data.X[part.validation], task.data.y[part.validation]
    losses = [cross_entropy(scores(task.sizes, p.average, X).astype(np.float64), y) for p in processes]
    return processes[validate(losses, "catoni", DELTA).best].average


def _metrics(task: RealRun, part: Split, w: Array) -> tuple[float, float, float]:
    """Test loss, test accuracy and training accuracy of one network."""
    train = part.train[:_TRAIN_ROWS]
    test, seen = (scores(task.sizes, w, task.data.X[rows]) for rows in (part.test, train))
    right, known = (s.argmax(axis=1) == task.data.y[rows] for s, rows in ((test, part.test), (seen, train)))
    loss = cross_entropy(test.astype(np.float64), task.data.y[part.test]).mean()
    return float(loss), float(right.mean()), float(known.mean())
