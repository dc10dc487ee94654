"""DC-SGD and RV-SGDAve with other sub-processes, in rounds, and with several passes; ``BEYOND`` lists them.

They count gradients as the methods of the paper do, so that all can be compared at equal cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.means import catoni
from tailproof.core.merge import geometric_median
from tailproof.core.partition import Block
from tailproof.core.rules import AUTOMATIC_QUANTILE, Clipped, Mirror, Momentum, PlainSGD, Rule, Truncated
from tailproof.core.sets import ALL_SPACE
from tailproof.native.sgd import Iterate, Limits, general_pass
from tailproof.paper.methods import DELTA, METHODS, K, MethodRun, Trajectory, follow
from tailproof.paper.stoppable_sgd import Look, StoppableSGD, SubProcesses

Method = Callable[[MethodRun], Trajectory]

SMOOTHNESS = 1.0  # λ₁ of the simulated risks
ROUND_PASSES = 2  # of a round
STAGE = 10  # rounds, after which k changes where it is stage-wise
POWER = 0.5  # of decaying steps
# Times the step of the paper: what was best at 20n in three draws of the sparse problem that no trial uses.
MIRROR_STEP, LARGER_STEP = 10.0, 3.0
_PLAIN = PlainSGD()
_GROUPS = 20  # whose means the anchor of truncation is the geometric median of
_LOG_CONFIDENCE = 3.0  # of the level of truncation, as in tailproof.core.rules


@dataclass(frozen=True, eq=False)
class Process:
    """What a sub-process does: a rule, the power with which its steps fall over passes, and their factor."""

    rule: Rule = _PLAIN
    power: float = 0.0
    factor: float = 1.0

    def start(self, X: Array, y: Array, block: Block, start: Array, step: float) -> RuleSGD:
        """Make the process for one block."""
        return RuleSGD(X, y, block, start, step * self.factor, self)


class RuleSGD(StoppableSGD):
    """A process that does with a gradient what a rule says."""

    def __init__(self, X: Array, y: Array, block: Block, start: Array, step: float, how: Process) -> None:
        super().__init__(X, y, block, start, step)
        rule = how.rule
        self.updates, self.power, self.rows = 0, how.power, len(block)
        self.limits = Limits(1, 0.0, 0.0, ALL_SPACE.code, *ALL_SPACE.bounds, rule.code, rule.strength)
        self.memory = np.zeros(self.w.size + 1) if rule.has_velocity else rule.memory

    def _run(self, rows: NDArray[np.intp]) -> None:
        at = Iterate(self.w[None], np.zeros(1), np.empty((1, self.w.size)), np.zeros(1))
        t = np.arange(self.updates, self.updates + rows.size)
        general_pass(
            self._problem, rows, at, self.step / (1 + t / self.rows) ** self.power, self.limits, self.memory
        )
        self.sum += rows.size * at.mean_w[0]
        self.counted += rows.size
        self.updates += rows.size


def clipped(task: MethodRun) -> Process:
    """Clip at the 0.9 quantile of the norms of all gradients at the start."""
    norms = np.linalg.norm(_gradients(task), axis=1)
    return Process(Clipped(float(np.quantile(norms, AUTOMATIC_QUANTILE))))


def truncated(task: MethodRun) -> Process:
    """Truncate as Juditsky et al. do, with λ₁ known, anchor and level from the gradients at the start."""
    gradients = _gradients(task)
    anchor = geometric_median([part.mean(axis=0) for part in np.array_split(gradients, _GROUPS)]).point
    squares = np.square(gradients - anchor).sum(axis=1)
    square = float(np.median([part.mean() for part in np.array_split(squares, 10)]))
    level = math.sqrt(square * task.problem.n / K / _LOG_CONFIDENCE)
    place = task.data.starts[0]
    return Process(Truncated(level, 2.0, np.concatenate([[level, SMOOTHNESS], anchor, [0.0], place, [0.0]])))


def _gradients(task: MethodRun) -> Array:
    X, start = task.data.X, task.data.starts[0]
    return np.asarray((X @ start - task.data.y)[:, None] * X)


def mirror(task: MethodRun) -> Process:
    """Mirror descent in the p-norm, p = 1 + 1/log(d)."""
    return Process(Mirror(1 + 1 / math.log(max(task.problem.d, 3))), factor=MIRROR_STEP)


PROCESSES: dict[str, Callable[[MethodRun], Process]] = {
    "clipped": clipped,
    "truncated": truncated,
    "mirror": mirror,
    "momentum": lambda task: Process(Momentum(0.9)),
    "decaying": lambda task: Process(power=POWER),
    "larger steps": lambda task: Process(factor=LARGER_STEP),
}


def _sub_processes(task: MethodRun, k: int, rows: int, start: Array, how: Process | None) -> SubProcesses:
    X, y = task.data.X[:rows], task.data.y[:rows]
    step = float(task.choices.walk_step) / task.root_d
    return SubProcesses(X, y, k, start, step, task.data.orders, StoppableSGD if how is None else how.start)


def _merged(look: Look) -> Array:
    return geometric_median(look.iterates).point


def dc(task: MethodRun, process: str) -> Trajectory:
    """Algorithm 1 with another sub-process."""
    how = PROCESSES[process](task)
    return follow(task, _sub_processes(task, K, task.problem.n, task.data.starts[:1], how), _merged)


def dc_in_rounds(task: MethodRun, counts: tuple[int, ...] = (K,)) -> Trajectory:
    """Algorithm 1 again and again, from the merged point; ``counts`` are the blocks of each round."""
    n, start, spent, number = task.problem.n, task.data.starts[:1], 0, 0
    processes, points = _sub_processes(task, counts[0], n, start, None), []
    for cost in [*task.costs.tolist(), math.ceil(task.budget)]:
        while cost - spent > ROUND_PASSES * n:
            processes.advance_to(ROUND_PASSES * n // len(processes.members))
            start, spent, number = _merged(processes.look())[None], spent + processes.cost, number + 1
            processes = _sub_processes(task, counts[min(number, len(counts) - 1)], n, start, None)
        processes.advance_to((cost - spent) // len(processes.members))
        points.append(_merged(processes.look()))
    return Trajectory(np.append(task.costs, spent + processes.cost), np.stack(points))


def rv(task: MethodRun, process: str = "", early: bool = False) -> Trajectory:
    """Algorithm 5 with another sub-process; with ``early``, the best candidate of all looks, each validated.

    Looks are at costs of n, 2n, ...: the validation decides when to stop, and costs no gradients.
    """
    rows = task.problem.n // 2
    how = PROCESSES[process](task) if process else None
    processes = _sub_processes(task, K, rows, task.data.starts[:1], how)
    X, y = task.data.X[rows:], task.data.y[rows:]
    least, best = math.inf, task.data.starts[0]

    def winner(look: Look) -> Array:
        nonlocal least, best
        candidates = look.averages
        risks = catoni(np.square(candidates @ X.T - y) / 2, scale=task.choices.rv_scale, delta=DELTA, axis=1)
        if not early or risks.min() < least:
            least, best = float(risks.min()), candidates[np.argmin(risks)]
        return best

    return follow(task, processes, winner)


BEYOND: dict[str, Method] = METHODS | {
    **{f"DC-SGD [{name}]": partial(dc, process=name) for name in PROCESSES},
    **{f"RV-SGDAve [{name}]": partial(rv, process=name) for name in PROCESSES},
    "RV-SGDAve [early stopping]": partial(rv, early=True),
    "DC-SGD [rounds]": dc_in_rounds,
    "DC-SGD [more blocks later]": partial(dc_in_rounds, counts=(K,) * STAGE + (2 * K,) * STAGE + (4 * K,)),
    "DC-SGD [fewer blocks later]": partial(dc_in_rounds, counts=(4 * K,) * STAGE + (2 * K,) * STAGE + (K,)),
}
