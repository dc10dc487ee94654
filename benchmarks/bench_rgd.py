"""The gradient-descent baselines against NumPy, against each other, and against two passes of DC-SGD."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

import tailproof as tp
from problems import Draw, regression
from run import Ratio, best_times
from tailproof.estimators.baselines.estimators import descend

STEPS, BLOCKS = 100, 10
SETTINGS = [(2_500, 1_024), (64_000, 16)]
NAMES = {
    "mean": "ERM-GD",
    "geometric_median_of_means": "RGD-MoM",
    "median_block": "RGD-Lec",
    "m_estimate": "RGD-M",
}
# Times of ERM-GD; its own is of two BLAS products.
TARGETS = {"mean": 1.5, "geometric_median_of_means": 2.0, "median_block": 2.0, "m_estimate": 25.0}
SEEDS = 9
PASSES = [1, 3, 4, 8]  # of DC-SGD, where two are not enough or the wrong ones


def run() -> list[Ratio]:
    # On one core each: BLAS threads that wait for a busy core would be all that is measured.
    with threadpool_limits(1):
        return [ratio for part in (_steps, _headline) for n, d in SETTINGS for ratio in part(n, d)]


def _steps(n: int, d: int) -> list[Ratio]:
    """Time of an update, over the whole path of 100 updates, each method beside its naive version."""
    draw = regression("independent", "log-normal", n, d, seed=0)
    X, y, w = draw.X, draw.y, np.zeros(d)
    blas, *ours = best_times(
        lambda: [(X @ w, X.T @ y) for _ in range(STEPS)],
        *(_descent(name, X, y) for name in NAMES),
        repeats=5,
    )
    naive = best_times(*(_naive_step(name, X, y) for name in NAMES), repeats=2)
    ratios = []
    for (name, label), mine, theirs in zip(NAMES.items(), ours, naive, strict=True):
        base, against = (blas, "two BLAS products") if name == "mean" else (ours[0], "ERM-GD")
        step = 1e3 * mine / STEPS
        detail = f"{step:.2f} ms a step; naive NumPy {1e3 * theirs:.2f} ms, {1e3 * theirs / step:.1f}×"
        title = f"{label} / {against}, n={n:,}, d={d:,}"
        ratios.append(Ratio(title, mine / base, TARGETS[name], detail=detail))
    return ratios


def _descent(name: str, X: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    """100 updates from zero."""
    plain = {"fit_intercept": False, "scale_features": False, "shuffle": False, "tol": 0.0}
    model = tp.RGDRegressor(aggregate=name, k=BLOCKS, step_size=0.2, max_iter=STEPS, **plain)
    return lambda: model.fit(X, y)


def _naive_step(name: str, X: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    return lambda: NAIVE[name]((X @ np.zeros(X.shape[1]) - y)[:, None] * X, y)


def _naive_mom(gradients: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Weiszfeld's iteration."""
    means = np.array([part.mean(axis=0) for part in np.array_split(gradients, BLOCKS)])
    point = means.mean(axis=0)
    for _ in range(1000):
        pull = 1.0 / np.maximum(np.linalg.norm(means - point, axis=1), 1e-300)
        after = pull @ means / pull.sum()
        moved, point = np.linalg.norm(after - point), after
        if moved <= 1e-9 * np.linalg.norm(point):
            break
    return point


def _naive_lecue(gradients: np.ndarray, y: np.ndarray) -> np.ndarray:
    risks = [np.mean(part**2) / 2 for part in np.array_split(y, BLOCKS)]
    return np.array_split(gradients, BLOCKS)[np.argsort(risks)[(BLOCKS - 1) // 2]].mean(axis=0)


def _naive_m(gradients: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Fixed points of scale and location, all coordinates together."""
    centred = gradients - gradients.mean(axis=0)
    scale = centred.std(axis=0)
    for _ in range(500):
        factor = np.sqrt((centred**2 / (centred**2 + scale**2)).mean(axis=0) / 0.3443)
        scale *= factor
        if np.abs(factor - 1).max() < 1e-10:
            break
    scale *= np.sqrt(len(gradients) / -np.log(0.01))
    theta = gradients.mean(axis=0)
    for _ in range(500):
        move = scale * (2 * np.arctan(np.exp((gradients - theta) / scale)) - np.pi / 2).mean(axis=0)
        theta = theta + move
        if np.abs(move / scale).max() < 1e-10:
            break
    return theta


NAIVE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "mean": lambda gradients, y: gradients.mean(axis=0),
    "geometric_median_of_means": _naive_mom,
    "median_block": _naive_lecue,
    "m_estimate": _naive_m,
}


def _headline(n: int, d: int) -> list[Ratio]:
    """Figure "lognormal_times_sc": two passes of DC-SGD against 100 passes (cost 100 n) of each method.

    The paper's setting: start near w*, steps 0.1/√d for gradient descent and 0.01/√d for SGD, explicit
    updates, ten blocks. Where two passes end with more excess risk than the other method, a second line has
    the quickest DC-SGD that does not: more passes, or its own steps (the defaults, from the same start).
    One core each; medians over data sets.
    """
    found = np.array([_race(n, d, seed) for seed in range(SEEDS)])  # seed, method, (seconds, excess)
    runs = [Run(label, *figures) for label, figures in zip(_labels(), np.median(found, axis=0), strict=True)]
    two_passes, others, more = runs[0], runs[1 : 1 + len(NAMES)], runs[1 + len(NAMES) :]
    ratios = []
    for other in others:
        ratios.append(_compared(other, two_passes, n, d))
        if two_passes.excess > other.excess:
            enough = sorted((run for run in more if run.excess <= other.excess), key=lambda run: run.seconds)
            ratios += [_compared(other, run, n, d) for run in enough[:1]]
    return ratios


@dataclass(frozen=True)
class Run:
    """One method's median time and excess risk."""

    label: str
    seconds: float
    excess: float

    def __str__(self) -> str:
        return f"{self.label}: {1e3 * self.seconds:.0f} ms, excess {self.excess:.3g}"


def _labels() -> list[str]:
    more = [f"DC-SGD, {passes} {'pass' if passes == 1 else 'passes'}" for passes in PASSES]
    return ["DC-SGD, 2 passes", *NAMES.values(), *more, *(f"{label}, defaults" for label in more)]


def _compared(other: Run, run: Run, n: int, d: int) -> Ratio:
    verdict = "equal or better" if run.excess <= other.excess else "WORSE"
    title = f"time, {other.label} / {run.label}, n={n:,}, d={d:,}"
    return Ratio(title, other.seconds / run.seconds, detail=f"{other}; {run}: {verdict}")


def _race(n: int, d: int, seed: int) -> list[tuple[float, float]]:
    draw = regression("independent", "log-normal", n, d, seed)
    start = draw.coef + np.random.default_rng((seed, d)).uniform(-5.0, 5.0, d) / np.sqrt(d)
    common = {"init": start, "fit_intercept": False, "random_state": seed, "n_jobs": 1}
    as_in_paper = {"update": "explicit", "average": False, "scale_features": False, "shuffle": False}
    as_in_paper |= {"k": BLOCKS, "step_size": ("over_root_d", 0.01)}
    calls = [_fit(draw, max_iter=2, **as_in_paper, **common)]
    calls += [partial(_descend, draw, start, name) for name in NAMES]
    for settings in (as_in_paper, {}):
        calls += [_fit(draw, max_iter=passes, **settings, **common) for passes in PASSES]
    return [_timed(call, draw) for call in calls]


def _fit(draw: Draw, **settings: object) -> Callable[[], np.ndarray]:
    return lambda: tp.DCSGDRegressor(**settings).fit(draw.X, draw.y).coef_


def _descend(draw: Draw, start: np.ndarray, name: str) -> np.ndarray:
    return descend(draw.X, draw.y, start, aggregate=name, k=BLOCKS, budget=STEPS * len(draw.y)).w


def _timed(call: Callable[[], np.ndarray], draw: Draw) -> tuple[float, float]:
    start = time.perf_counter()
    gap = call() - draw.coef
    return time.perf_counter() - start, float(gap @ draw.covariance @ gap) / 2
