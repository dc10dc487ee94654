"""The gradient-descent baselines against NumPy, against each other, and against two passes of DC-SGD."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

import tailproof as tp
from problems import regression
from run import Ratio, best_times

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
SEEDS = 7


def run() -> list[Ratio]:
    with threadpool_limits(1):
        ratios = [ratio for n, d in SETTINGS for ratio in _steps(n, d)]
    return [*ratios, *(ratio for n, d in SETTINGS for ratio in _headline(n, d))]


def _steps(n: int, d: int) -> list[Ratio]:
    """Time of an update, over the whole path of 100 updates, each method beside its naive version.

    On one core each: BLAS threads that wait for a busy core would be all that is measured.
    """
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
    """100 updates from zero with the paper's settings."""
    model = _model(name, step_size=0.2, max_iter=STEPS)
    return lambda: model.fit(X, y)


def _model(name: str, **settings: object) -> tp.RGDRegressor:
    plain = {"fit_intercept": False, "scale_features": False, "shuffle": False, "tol": 0.0}
    return tp.RGDRegressor(aggregate=name, k=BLOCKS, **plain, **settings)


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

    Medians over data sets; excess is E⟨ŵ − w*, x⟩², and all start from zero.
    """
    found = np.array([_race(n, d, seed) for seed in range(SEEDS)])  # seed, method, (seconds, excess)
    seconds, excess = np.median(found, axis=0).T
    ratios = []
    for i, label in enumerate(NAMES.values(), start=1):
        mine, other = (f"{seconds[j]:.2g} s, excess {excess[j]:.3g}" for j in (i, 0))
        verdict = "equal or better" if excess[0] <= 1.02 * excess[i] else "worse"
        detail = f"{mine}; DC-SGD {other}: {verdict}"
        title = f"time, {label} / DC-SGD, n={n:,}, d={d:,}"
        ratios.append(Ratio(title, seconds[i] / seconds[0], detail=detail))
    return ratios


def _race(n: int, d: int, seed: int) -> list[tuple[float, float]]:
    draw = regression("independent", "log-normal", n, d, seed)
    models = [tp.DCSGDRegressor(k=BLOCKS, max_iter=2, fit_intercept=False, random_state=seed)]
    for name in NAMES:
        updates = STEPS * BLOCKS if name == "median_block" else STEPS
        models.append(_model(name, step_size="auto", max_iter=updates, budget=STEPS * n))
    return [_timed(model, draw) for model in models]


def _timed(model, draw) -> tuple[float, float]:
    start = time.perf_counter()
    model.fit(draw.X, draw.y)
    return time.perf_counter() - start, draw.excess_squared(model)
