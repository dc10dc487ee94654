"""The methods of sections 4.1 and 4.2, by the paper's names; ``METHODS`` lists them.

Each takes a :class:`MethodRun` and returns the points that it would have given back at the costs asked for.
Cost counts gradients of single rows; a method stops at the first update with cost ≥ budget. "true GD", "true
SGD" and "true SGDAve" are gradient descent on the risk itself, with the steps (and averages) of the batch
methods and of the k sub-processes: their excess risk is optimisation error alone, and what a method has
beyond it is statistical error.
"""

from __future__ import annotations

import math
import multiprocessing
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.losses import LOSSES
from tailproof.core.means import catoni, median_of_means, truncated_mean
from tailproof.core.merge import MERGES
from tailproof.core.partition import Block, slices, train_validation
from tailproof.core.scaling import unscaled
from tailproof.core.sets import get_set
from tailproof.estimators.baselines.aggregators import AGGREGATES, AggregatorOptions, Estimate
from tailproof.estimators.baselines.descent import Model, Update, iterate
from tailproof.estimators.baselines.row_gradients import RowGradients
from tailproof.estimators.parallel import LocalEngine
from tailproof.paper.simulated import Data, Problem
from tailproof.paper.stoppable_sgd import Look, Run, SubProcesses
from tailproof.paper.variants import Choices

RowIndex = NDArray[np.intp]
RobustMean = Callable[[Array], Array]

K = 10
BATCH_STEP = 0.1  # over √d
DELTA = 0.01  # of RGD-M and of validation
RECORDS = 80
_SQUARED = LOSSES["squared_error"]
# Estimators of Valid in Algorithm 5, applied to one row of losses per candidate.
VALIDATIONS: dict[str, Callable[..., Array]] = {
    "sd": partial(catoni, scale="sd"),
    "robust": partial(catoni, scale="robust"),
    "m-scale": partial(catoni, scale="m-scale", psi="wide"),
    "wide": partial(catoni, scale="sd", psi="wide"),
    "median of means": median_of_means,
    "truncated": partial(truncated_mean, outside="clip"),
    "dropped": partial(truncated_mean, outside="drop"),
}


@dataclass(frozen=True, eq=False)
class MethodRun:
    """One run of a method: the data, what it may spend, and the costs at which to record it.

    Attributes
    ----------
    problem, data, choices
    budget : float
        Gradients that may be spent.
    costs : array of int
        At which to record the method's point; the end is recorded anyway.
    average_after : float
        Cost after which averages begin.
    walks : dict, optional
        What sub-processes passed through, for methods that do different things with the same ones. Without
        it each method runs its own, as it must where time is taken.
    """

    problem: Problem
    data: Data
    choices: Choices
    budget: float
    costs: NDArray[np.intp]
    average_after: float = 0.0
    walks: dict[Hashable, list[Look]] | None = None

    @property
    def root_d(self) -> float:
        """√d, by which all steps are divided."""
        return math.sqrt(self.problem.d)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Points that a method passes through: at each cost, the last point reached with at most that cost."""

    costs: NDArray[np.intp]
    points: Array


def log_costs(budget: float, first: int = K, records: int = RECORDS) -> NDArray[np.intp]:
    """Whole costs, evenly spaced on a log scale.

    Examples
    --------
    >>> log_costs(1000, records=5).tolist()
    [10, 32, 100, 316, 1000]
    """
    return np.unique(np.round(np.geomspace(first, max(budget, first), records)).astype(np.intp))


def batch(task: MethodRun, aggregate: str, scale: str | None = None) -> Trajectory:
    """Gradient descent with one of the ``AGGREGATES`` (ERM-GD, RGD-MoM, RGD-M, RGD-Lec)."""
    X, y, n, d = task.data.X, task.data.y, task.problem.n, task.problem.d
    sample = RowGradients(X, y, np.empty(0), _SQUARED, 1, unscaled(d), False, list(slices(n, K)))
    options = AggregatorOptions(DELTA, scale=scale or task.choices.m_scale, middle=task.choices.lec_middle)
    estimate = AGGREGATES[aggregate](sample, options)
    charge_all = aggregate == "median_block" and task.choices.lec_cost == "all"

    def gradient_at(model: Model) -> Estimate:
        estimated = estimate(sample.scores(model.coef, model.intercept))
        return replace(estimated, cost=n) if charge_all else estimated

    updates = math.ceil(task.budget / (n // K if aggregate == "median_block" else n)) + 1
    seen: list[tuple[int, Array]] = []
    iterate(
        gradient_at,
        Update(0.0, 0.0, get_set(None)),
        Model(task.data.starts[:1].copy(), np.zeros(1), sample.columns),
        np.full(updates, BATCH_STEP / task.root_d),
        budget=task.budget,
        see=lambda cost, model: seen.append((cost, model.coef[0])),
    )
    return _looked_at(task, seen)


def true_descent(task: MethodRun) -> Trajectory:
    """Gradient descent on the risk itself, with batch steps, n gradients an update."""
    return _noise_free(task, BATCH_STEP, task.problem.n, lambda shrink, updates: shrink**updates)


def true_sgd(task: MethodRun, average: bool = False) -> Trajectory:
    """Gradient descent on the risk itself, with sequential steps, k gradients an update."""
    begin = math.ceil(task.average_after / K)

    def share(shrink: Array, updates: int) -> Array:
        after = begin if updates >= begin else 0
        if not average or updates == after:
            return shrink**updates
        # Σ shrinkᵗ over t = after + 1 .. updates, and the mean of it.
        total = shrink ** (after + 1) * (1.0 - shrink ** (updates - after)) / (1.0 - shrink)
        return total / (updates - after)

    return _noise_free(task, float(task.choices.walk_step), K, share)


def _noise_free(task: MethodRun, step: float, unit: int, share: Callable[[Array, int], Array]) -> Trajectory:
    """Points at a share of the distance from the start to w*, coordinate by coordinate."""
    updates = [*(task.costs // unit).tolist(), math.ceil(task.budget / unit)]
    shrink = 1.0 - step / task.root_d * task.problem.covariance
    way = task.data.starts[0] - task.problem.minimum
    points = np.stack([task.problem.minimum + share(shrink, count) * way for count in updates])
    return Trajectory(np.append(task.costs, updates[-1] * unit), points)


def _looked_at(task: MethodRun, seen: list[tuple[int, Array]]) -> Trajectory:
    costs = np.array([cost for cost, _ in seen])
    last = np.append(np.searchsorted(costs, task.costs, side="right") - 1, len(seen) - 1)
    return Trajectory(np.append(task.costs, costs[-1]), np.stack([seen[i][1] for i in last]))


@contextmanager
def _here() -> Iterator[Run | None]:
    yield None


@contextmanager
def _threads() -> Iterator[Run | None]:
    yield LocalEngine(2).run


@contextmanager
def _pool() -> Iterator[Run | None]:
    """A pool of worker processes made on the spot, as the paper times it: its overhead counts."""
    forking = "fork" in multiprocessing.get_all_start_methods()
    with warnings.catch_warnings():
        # Threads of linear algebra are idle here; workers that are forked use none.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        pool = multiprocessing.get_context("fork" if forking else "spawn").Pool(2)
    with pool:
        yield pool.map


WORKERS: dict[str, Callable[[], AbstractContextManager[Run | None]]] = {
    "": _here,
    "2 threads": _threads,
    "2 processes": _pool,
}


def follow(task: MethodRun, processes: SubProcesses, point: Callable[[Look], Array]) -> Trajectory:
    """What a method makes of the looks at its sub-processes."""
    return _of_looks(task, _walk(task, processes), point)


def _of_looks(task: MethodRun, looks: list[Look], point: Callable[[Look], Array]) -> Trajectory:
    return Trajectory(np.append(task.costs, looks[-1].cost), np.stack([point(look) for look in looks]))


def _walk(task: MethodRun, processes: SubProcesses, workers: str = "") -> list[Look]:
    """Advance from one recorded cost to the next; averages restart once ``average_after`` is reached."""
    k = len(processes.members)
    rounds = [*(task.costs // k).tolist(), math.ceil(task.budget / k)]
    turn = math.ceil(task.average_after / k)
    looks = []
    with WORKERS[workers]() as run:
        for target in rounds:
            if turn and processes.rounds < turn <= target:
                processes.advance_to(turn, run)
                processes.forget()
            processes.advance_to(target, run)
            looks.append(processes.look())
    return looks


def _looks(task: MethodRun, k: int, rows: int, start: str | None = None, workers: str = "") -> list[Look]:
    """Looks at plain sub-processes, which methods of one task may share."""
    start = start or task.choices.start
    which = (k, rows, start, task.budget, task.costs.tobytes())
    walks = {} if task.walks is None else task.walks
    if which not in walks:
        walks[which] = _walk(task, _sub_processes(task, k, rows, start), workers)
    return walks[which]


def sgd(task: MethodRun) -> Trajectory:
    """One process over all rows."""
    return _of_looks(task, _looks(task, 1, task.problem.n), lambda look: look.iterates[0])


def dc_sgd(
    task: MethodRun, merge: str = "geometric_median", start: str | None = None, workers: str = ""
) -> Trajectory:
    """Algorithm 1: k sub-processes, merged by the geometric median or another of ``MERGES``."""
    combine = MERGES[merge]
    looks = _looks(task, K, task.problem.n, start, workers)
    return _of_looks(task, looks, lambda look: combine(look.iterates).point)


def rv_sgd(
    task: MethodRun,
    average: bool,
    cross: bool = False,
    valid: str | None = None,
    start: str | None = None,
    workers: str = "",
) -> Trajectory:
    """Algorithm 5: of k sub-processes over half of the rows, the one of least robust held-out risk.

    With ``cross``, the heuristic of 4.2 E4: they go over all rows, each scored on those outside its block.
    """
    train, held_out = train_validation(task.problem.n, 0.5, shuffle=False)
    robust_mean = partial(VALIDATIONS[valid or task.choices.rv_scale], delta=DELTA, axis=1)

    def winner(look: Look) -> Array:
        candidates = look.averages if average else look.iterates
        scores = _cross_scores if cross else _scores
        return candidates[np.argmin(scores(task.data, look.blocks, candidates, held_out, robust_mean))]

    looks = _looks(task, K, task.problem.n if cross else train.size, start, workers)
    return _of_looks(task, looks, winner)


def _sub_processes(task: MethodRun, k: int, rows: int, start: str) -> SubProcesses:
    X, y = task.data.X[:rows], task.data.y[:rows]
    step = float(task.choices.walk_step) / task.root_d
    starts = task.data.starts[: k if start == "each" else 1]
    return SubProcesses(X, y, k, starts, step, task.data.orders)


def _scores(
    data: Data,
    cut: list[Block],
    candidates: Array,
    held_out: NDArray[np.intp],
    robust_mean: RobustMean,
) -> Array:
    rows = slice(held_out[0], held_out[-1] + 1)
    return robust_mean(_losses(data, candidates, rows))


def _cross_scores(
    data: Data,
    cut: list[Block],
    candidates: Array,
    held_out: NDArray[np.intp],
    robust_mean: RobustMean,
) -> Array:
    losses = _losses(data, candidates, slice(None))
    sizes = np.array([len(block) for block in cut])
    outside = np.ones(losses.shape, dtype=bool)
    for block in cut:
        outside[block.index, block.rows] = False
    scores = np.empty(len(candidates))
    for size in np.unique(sizes):  # blocks of one size have as many rows outside, and share a call
        same = sizes == size
        scores[same] = robust_mean(losses[same][outside[same]].reshape(same.sum(), -1))
    return scores


def _losses(data: Data, candidates: Array, rows: slice) -> Array:
    """One row of losses per candidate."""
    return np.square(candidates @ data.X[rows].T - data.y[rows]) / 2


METHODS: dict[str, Callable[[MethodRun], Trajectory]] = {
    "ERM-GD": partial(batch, aggregate="mean"),
    "SGD": sgd,
    "RGD-MoM": partial(batch, aggregate="geometric_median_of_means"),
    "RGD-M": partial(batch, aggregate="m_estimate"),
    "RGD-Lec": partial(batch, aggregate="median_block"),
    "DC-SGD": dc_sgd,
    "DC-SGD, 2 threads": partial(dc_sgd, workers="2 threads"),
    "DC-SGD, 2 processes": partial(dc_sgd, workers="2 processes"),
    "RV-SGD": partial(rv_sgd, average=False),
    "RV-SGDAve": partial(rv_sgd, average=True),
    "RV-SGDAve, 2 threads": partial(rv_sgd, average=True, workers="2 threads"),
    "RV-SGDAve, 2 processes": partial(rv_sgd, average=True, workers="2 processes"),
    "RV-SGD-CV": partial(rv_sgd, average=False, cross=True),
    "RV-SGDAve-CV": partial(rv_sgd, average=True, cross=True),
    "true GD": true_descent,
    "true SGD": true_sgd,
    "true SGDAve": partial(true_sgd, average=True),
}
# The same under other readings of the paper, named in brackets; without one, the choices of --set hold.
READINGS: dict[str, Callable[[MethodRun], Trajectory]] = {
    "RGD-M [sd]": partial(batch, aggregate="m_estimate", scale="sd"),
    "DC-SGD [each]": partial(dc_sgd, start="each"),
    "DC-SGD [smallest ball]": partial(dc_sgd, merge="smallest_ball"),
    "DC-SGD [coordinate median]": partial(dc_sgd, merge="coordinate_median"),
    "RV-SGD [each]": partial(rv_sgd, average=False, start="each"),
    "RV-SGDAve [each]": partial(rv_sgd, average=True, start="each"),
    "RV-SGDAve, more passes": partial(rv_sgd, average=True),
}
READINGS |= {
    f"{name} [{valid}]": partial(rv_sgd, average="Ave" in name, cross="CV" in name, valid=valid)
    for name in ("RV-SGD", "RV-SGDAve", "RV-SGD-CV", "RV-SGDAve-CV")
    for valid in VALIDATIONS
}
METHODS |= READINGS
