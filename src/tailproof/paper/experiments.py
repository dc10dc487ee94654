"""The nine controlled experiments as data: settings, methods with their budgets, and numbers of trials.

``EXPERIMENTS`` lists them by name; each entry makes an :class:`Experiment` from :class:`Choices`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tailproof.core.lookup import lookup
from tailproof.paper.methods import METHODS, K, MethodRun, Trajectory, log_costs
from tailproof.paper.simulated import LEVELS, NOISES, Problem, seed_of
from tailproof.paper.stoppable_sgd import Look
from tailproof.paper.variants import VARIANTS, Choices

Costs = NDArray[np.intp]

BATCH = ("ERM-GD", "RGD-MoM", "RGD-M", "RGD-Lec")
SC_METHODS = ("ERM-GD", "SGD", "RGD-MoM", "RGD-M", "RGD-Lec", "DC-SGD")
TRUE = ("true GD", "true SGD")
TRUE_RV = (*TRUE, "true SGDAve")
SCALES = tuple(VARIANTS["rv_scale"])
DC_READINGS = ("RGD-M [sd]", "DC-SGD [each]", "DC-SGD [smallest ball]", "DC-SGD [coordinate median]")
RV_READINGS = ("wide", "median of means", "truncated", "dropped")  # of Valid, beside the scales
SPELLED = {  # readings whose names are short for something
    "each": "a start for each",
    "sd": "by sd",
    "wide": "wide ψ",
    "truncated": "truncated mean",
    "dropped": "truncated, as printed",
}
MORE_PASSES = 20  # in units of n
SMALL_N, HIGH_N, LARGE = 500, 2500, (64_000, 16)
DIMENSIONS = tuple(2**power for power in range(1, 11))
SHOWN = (128, 256, 512, 1024)
GROWING = (2, 4, 8, 16, 32, 64)  # with n = 4000 d
STARTS = (2.5, 5.0, 10.0)
_WARM_UP = 2 * K * 20  # rows: enough for every method


def _coarse(budget: float, n: int) -> Costs:
    """The start, 1n to 5n, then every 5n; a few costs on a log scale where a budget is of few n."""
    if budget < 10 * n:
        return log_costs(budget, records=20)
    return np.concatenate([np.arange(5), np.arange(5, budget // n + 1, 5)]).astype(np.intp) * n


def _nowhere(budget: float, n: int) -> Costs:
    return np.empty(0, dtype=np.intp)


def _everywhere(budget: float, n: int) -> Costs:
    return log_costs(budget)


@dataclass(frozen=True)
class Setting:
    """One distribution and sample size, and what each method may spend on it.

    Attributes
    ----------
    name : str
    problem : Problem
    budgets : mapping
        Gradients by method; the methods run in this order.
    looks : callable
        The costs at which to look, of a budget and n.
    average_after : float
        Cost after which RV-SGDAve begins to average.
    """

    name: str
    problem: Problem
    budgets: Mapping[str, float]
    looks: Callable[[float, int], Costs]
    average_after: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """Settings and numbers of trials.

    Attributes
    ----------
    name, title : str
    settings : tuple of Setting
        All that the paper has.
    trials, full_trials : int
        Of each setting: by default, and the paper's.
    timed : bool
        Seconds are recorded, one trial at a time.
    quick : tuple of str
        Settings that run without ``--full``.
    run_many : callable, optional
        Runs missing trials itself, of ``(experiment, choices, trials, jobs)``: for trials that share data.
    methods : mapping
        Those that budgets name.
    """

    name: str
    title: str
    settings: tuple[Setting, ...]
    trials: int
    full_trials: int
    timed: bool = False
    quick: tuple[str, ...] = ()
    run_many: Callable[..., Iterator[Any]] | None = None
    methods: Mapping[str, Callable[[MethodRun], Trajectory]] = field(default_factory=lambda: METHODS)

    def settings_to_run(self, full: bool) -> list[Setting]:
        """All settings, or those that a moderate run has."""
        return [setting for setting in self.settings if full or not self.quick or setting.name in self.quick]

    def setting(self, name: str) -> Setting:
        """Look a setting up by name."""
        return lookup("setting", name, {setting.name: setting for setting in self.settings})


@dataclass(frozen=True)
class Record:
    """One method in one trial: excess risk at the costs looked at.

    In timed experiments also seconds on the clock and of the processor: the second are the fairer ones where
    other programs run, and mean nothing where a method has several threads.
    """

    method: str
    costs: NDArray[np.intp]
    excess: NDArray[np.floating]
    seconds: float | None
    processor: float | None


def run_trial(experiment: Experiment, setting: Setting, trial: int, choices: Choices) -> list[Record]:
    """Run all methods of a setting on the same data, which depend on the names and the seed alone."""
    seed = seed_of(choices.seed, experiment.name, setting.name, trial)
    data = setting.problem.draw(seed, starts=K)
    n, nowhere = setting.problem.n, np.empty(0, dtype=np.intp)
    walks: dict[Hashable, list[Look]] | None = None if experiment.timed else {}
    task = MethodRun(setting.problem, data, choices, 0.0, nowhere, setting.average_after, walks)
    # One thread of linear algebra: sums in another order would make results depend on the number of jobs.
    with threadpool_limits(1):
        return [
            _run_method(experiment, name, replace(task, budget=budget, costs=setting.looks(budget, n)))
            for name, budget in setting.budgets.items()
        ]


def _run_method(experiment: Experiment, name: str, task: MethodRun) -> Record:
    if experiment.timed:
        _warm_up(name)
    started, worked = time.perf_counter(), time.process_time()
    path = experiment.methods[name](task)
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    timed = (seconds, processor) if experiment.timed else (None, None)
    return Record(name, path.costs, task.problem.excess_risk(path.points), *timed)


def _warm_up(name: str) -> None:
    """Compile before the clock runs."""
    problem = Problem(_WARM_UP, 2, "normal", 1.0)
    nowhere = np.empty(0, dtype=np.intp)
    METHODS[name](MethodRun(problem, problem.draw(seed_of("warm-up")), Choices(), _WARM_UP, nowhere))


def _small(noise: str, level: str = "med", reach: float = 5.0) -> Problem:
    return Problem(SMALL_N, 2, noise, LEVELS[noise][level], reach=reach)


def _long(names: tuple[str, ...], problem: Problem) -> dict[str, float]:
    return dict.fromkeys(names, 40 * problem.n * math.sqrt(problem.d))


def _sc_e1(choices: Choices) -> Experiment:
    settings = [
        Setting(noise, _small(noise), _long(SC_METHODS + TRUE + DC_READINGS, _small(noise)), _everywhere)
        for noise in NOISES
    ]
    return Experiment("sc-e1", "Error trajectories in low dimensions", tuple(settings), 100, 100)


def _sc_e2(choices: Choices) -> Experiment:
    settings = [
        Setting(f"{noise} d={d}", problem, _few_passes(problem, "DC-SGD"), _coarse)
        for noise in NOISES
        for d in DIMENSIONS
        for problem in [Problem(HIGH_N, d, noise, LEVELS[noise]["med"], divided=True)]
    ]
    for noise in NOISES:
        n, d = LARGE
        problem = Problem(n, d, noise, LEVELS[noise]["med"], divided=True)
        budgets = _few_passes(problem, "DC-SGD")
        if choices.dc_budget == "n":
            budgets |= {name: n for name in budgets if name.startswith("DC-SGD")}
        settings.append(Setting(f"{noise} large", problem, budgets, _coarse))
    return Experiment("sc-e2", "Statistical error in high dimensions", tuple(settings), 12, 250)


def _few_passes(problem: Problem, proposed: str) -> dict[str, float]:
    """100n for batch methods, 2n for the proposed one and its readings."""
    n = problem.n
    readings = [name for name in DC_READINGS if name.startswith(proposed)]
    return (
        dict.fromkeys(BATCH, 100.0 * n)
        | {proposed: 2 * n, "true GD": 100 * n, "true SGD": 2 * n, "RGD-M [sd]": 100 * n}
        | dict.fromkeys(readings, 2.0 * n)
    )


def _sc_e3(choices: Choices) -> Experiment:
    return _times("sc-e3", "DC-SGD", choices, 0.0)


def _nonsc_e3(choices: Choices) -> Experiment:
    return _times("nonsc-e3", "RV-SGDAve", choices, 1.0)


def _times(name: str, proposed: str, choices: Choices, flat: float) -> Experiment:
    """Log-Normal noise at both scalings of n and d; Normal noise at some sizes, to compare."""
    sizes = [("growing", "lognormal", 4000 * d, d) for d in GROWING]
    sizes += [("fixed", "lognormal", HIGH_N, d) for d in DIMENSIONS]
    sizes += [("fixed", "normal", HIGH_N, d) for d in (32, 128)]
    settings = []
    for kind, noise, n, d in sizes:
        divided = not flat or choices.flat_start == "divided"
        problem = Problem(n, d, noise, LEVELS[noise]["med"], flat=bool(flat), divided=divided)
        budget, after = _rv_budget(problem, choices) if flat else (2.0 * n, 0.0)
        parallel = [f"{proposed}, 2 {workers}" for workers in ("threads", "processes")]
        budgets = dict.fromkeys(BATCH, 100.0 * n) | dict.fromkeys([proposed, *parallel], budget)
        settings.append(Setting(f"{noise} {kind} d={d}", problem, budgets, _nowhere, after))
    quick = tuple(s.name for s in settings if not s.name.endswith(f"growing d={GROWING[-1]}"))
    return Experiment(name, "Computation times", tuple(settings), 5, 250, timed=True, quick=quick)


def _sc_e4(choices: Choices) -> Experiment:
    settings = [
        Setting(f"{noise} c={reach}", problem, _long(SC_METHODS + TRUE + DC_READINGS, problem), _everywhere)
        for noise in NOISES
        for reach in STARTS
        for problem in [_small(noise, reach=reach)]
    ]
    return Experiment("sc-e4", "Impact of initialisation on error trajectories", tuple(settings), 100, 100)


def _sc_e5(choices: Choices) -> Experiment:
    settings = [
        Setting(f"{noise} {level}", problem, _long(SC_METHODS + TRUE + DC_READINGS, problem), _everywhere)
        for noise, levels in LEVELS.items()
        for level in levels
        for problem in [_small(noise, level)]
    ]
    return Experiment("sc-e5", "Impact of noise level on error trajectories", tuple(settings), 100, 100)


def _nonsc_e1(choices: Choices) -> Experiment:
    scaled = tuple(f"RV-SGDAve [{scale}]" for scale in SCALES if scale != choices.rv_scale)
    scaled += tuple(f"RV-SGD [{scale}]" for scale in SCALES if scale != choices.rv_scale)
    others = ("RGD-M [sd]", *(f"RV-SGDAve [{name}]" for name in (*RV_READINGS, "each")))
    names = ("ERM-GD", "SGD", *BATCH[1:], "RV-SGD", "RV-SGDAve", *scaled, *TRUE_RV, *others)
    return _validated("nonsc-e1", "Error trajectories via robust validation", names, choices)


def _nonsc_e4(choices: Choices) -> Experiment:
    base = ("RV-SGD", "RV-SGDAve", "RV-SGD-CV", "RV-SGDAve-CV")
    scaled = tuple(f"{name} [{scale}]" for name in base for scale in SCALES if scale != choices.rv_scale)
    others = tuple(f"{name} [{valid}]" for name in base if "Ave" in name for valid in RV_READINGS)
    return _validated(
        "nonsc-e4", "Robust validation against cross-validation", base + scaled + TRUE_RV + others, choices
    )


def _validated(name: str, title: str, methods: tuple[str, ...], choices: Choices) -> Experiment:
    after = SMALL_N if choices.rv_average == "after-n" else 0
    settings = [
        Setting(noise, _small(noise), _long(methods, _small(noise)), _everywhere, after) for noise in NOISES
    ]
    return Experiment(name, title, tuple(settings), 100, 100)


def _nonsc_e2(choices: Choices) -> Experiment:
    settings = []
    for noise in NOISES:
        for d in DIMENSIONS:
            divided = choices.flat_start == "divided"
            problem = Problem(HIGH_N, d, noise, LEVELS[noise]["med"], flat=True, divided=divided)
            budget, after = _rv_budget(problem, choices)
            scaled = [f"RV-SGDAve [{scale}]" for scale in SCALES if scale != choices.rv_scale]
            names = ("RV-SGDAve", "true SGD", *scaled, "true SGDAve")
            budgets = _few_passes(problem, "RV-SGDAve") | dict.fromkeys(names, budget)
            budgets |= dict.fromkeys((f"RV-SGDAve [{name}]" for name in (*RV_READINGS, "each")), budget)
            budgets["RV-SGDAve, more passes"] = MORE_PASSES * problem.n
            settings.append(Setting(f"{noise} d={d}", problem, budgets, _coarse, after))
    return Experiment("nonsc-e2", "High dimensions without strong convexity", tuple(settings), 12, 250)


def _rv_budget(problem: Problem, choices: Choices) -> tuple[float, float]:
    """Budget of RV-SGDAve, and the cost after which it averages."""
    spent = {"2n": problem.n, "half": problem.n / 2}[choices.rv_passes]
    return 2 * spent, spent


EXPERIMENTS: dict[str, Callable[[Choices], Experiment]] = {
    "sc-e1": _sc_e1,
    "sc-e2": _sc_e2,
    "sc-e3": _sc_e3,
    "sc-e4": _sc_e4,
    "sc-e5": _sc_e5,
    "nonsc-e1": _nonsc_e1,
    "nonsc-e2": _nonsc_e2,
    "nonsc-e3": _nonsc_e3,
    "nonsc-e4": _nonsc_e4,
}
