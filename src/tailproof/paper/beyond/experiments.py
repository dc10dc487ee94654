"""Four experiments beyond the paper: each against plain SGD sub-processes and RGD, at equal cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from tailproof.core import Array
from tailproof.paper import experiments as ex
from tailproof.paper.beyond.methods import BEYOND
from tailproof.paper.experiments import Costs, Experiment, Setting
from tailproof.paper.methods import log_costs
from tailproof.paper.simulated import LEVELS, NOISES, Data, Problem
from tailproof.paper.variants import Choices

RIVALS = ("RGD-MoM", "RGD-M")
STAGE_WISE = ("more blocks later", "fewer blocks later")
SUB_PROCESSES = ("clipped", "truncated", "momentum")
NONZERO, SPARSE_D = 10, 256
ROUND_DIMENSIONS, PASS_DIMENSIONS = (64, 256), (128, 512)
SPARSE_BUDGET, ROUND_BUDGET, PASS_BUDGET = 20, 100, 20  # times n


@dataclass(frozen=True)
class SparseProblem(Problem):
    """Only the first coordinates of w* are 1, the others 0; methods start at 0.

    Examples
    --------
    >>> problem = SparseProblem(n=100, d=4, noise="normal", b=2.2, nonzero=1)
    >>> float(problem.excess_risk(np.zeros(4)))
    0.5
    """

    nonzero: int = NONZERO

    @property
    def minimum(self) -> Array:
        """w*."""
        return np.where(np.arange(self.d) < self.nonzero, 1.0, 0.0)

    def excess_risk(self, w: ArrayLike) -> Array:
        """R(w) − R(w*), for a point or for each of many."""
        return np.square(np.asarray(w) - self.minimum) @ self.covariance / 2

    def draw(self, seed: np.random.SeedSequence, starts: int = 1) -> Data:
        """Rows as in the dense problem, targets of the sparse one, a start at zero."""
        data = super().draw(seed, starts)
        y = data.y - data.X @ (super().minimum - self.minimum)
        return replace(data, y=y, starts=np.zeros_like(data.starts))


def _on_log_scale(budget: float, n: int) -> Costs:
    return log_costs(budget)


def _every_n(budget: float, n: int) -> Costs:
    """1n, 2n, 3n, ..., beyond 20n every 5n; the end is looked at anyway."""
    passes = np.arange(1, budget // n).astype(np.intp)
    return passes[(passes <= 20) | (passes % 5 == 0)] * n


def _names(method: str, *readings: str) -> tuple[str, ...]:
    return (method, *(f"{method} [{reading}]" for reading in readings))


def _experiment(name: str, title: str, settings: list[Setting], trials: int) -> Experiment:
    return Experiment(name, title, tuple(settings), trials, 100, methods=BEYOND)


def _e1(choices: Choices) -> Experiment:
    names = (*_names("DC-SGD", *SUB_PROCESSES), *_names("RV-SGDAve", *SUB_PROCESSES), *RIVALS)
    problems = {noise: Problem(ex.SMALL_N, 2, noise, LEVELS[noise]["med"]) for noise in NOISES}
    settings = [
        Setting(noise, problem, dict.fromkeys(names, 50.0 * problem.n), _on_log_scale)
        for noise, problem in problems.items()
    ]
    return _experiment("beyond-e1", "Clipped, truncated and momentum sub-processes", settings, 60)


def _e2(choices: Choices) -> Experiment:
    names = (*_names("DC-SGD", "larger steps", "mirror"), *RIVALS)
    settings = []
    for noise in NOISES:
        for kind, nonzero in (("sparse", NONZERO), ("dense", SPARSE_D)):
            problem = SparseProblem(ex.HIGH_N, SPARSE_D, noise, LEVELS[noise]["med"], nonzero=nonzero)
            budgets = dict.fromkeys(names, float(SPARSE_BUDGET * problem.n))
            settings.append(Setting(f"{noise} {kind}", problem, budgets, _every_n))
    return _experiment("beyond-e2", "Mirror descent in high dimensions", settings, 15)


def _e3(choices: Choices) -> Experiment:
    names = (*_names("DC-SGD", "rounds", *STAGE_WISE), *RIVALS)
    settings = []
    for noise in NOISES:
        for d in ROUND_DIMENSIONS:
            problem = Problem(ex.HIGH_N, d, noise, LEVELS[noise]["med"], divided=True)
            budgets = dict.fromkeys(names, float(ROUND_BUDGET * problem.n))
            settings.append(Setting(f"{noise} d={d}", problem, budgets, _every_n))
    return _experiment("beyond-e3", "Rounds and stage-wise k", settings, 20)


def _e4(choices: Choices) -> Experiment:
    names = (*_names("RV-SGDAve", "decaying", "early stopping", "clipped"), *RIVALS)
    settings = []
    for noise in NOISES:
        for d in PASS_DIMENSIONS:
            problem = Problem(ex.HIGH_N, d, noise, LEVELS[noise]["med"], flat=True, divided=True)
            budgets = dict.fromkeys(names, float(PASS_BUDGET * problem.n))
            settings.append(Setting(f"{noise} d={d}", problem, budgets, _every_n, float(problem.n)))
    return _experiment("beyond-e4", "Several passes without strong convexity", settings, 20)


BEYOND_EXPERIMENTS: dict[str, Callable[[Choices], Experiment]] = {
    "beyond-e1": _e1,
    "beyond-e2": _e2,
    "beyond-e3": _e3,
    "beyond-e4": _e4,
}
