"""RobustRegressor: processor time over that of LinearRegression, over rows × columns, in one run.

Below 2,000 rows the limit is in seconds, unless 12 times LinearRegression is more. Pairs of neighbours on
both sides of a threshold tell whether the time takes a step there. One thread of linear algebra: others
that wait at work would count as processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

import tailproof as tp
from run import Ratio

ROWS = (100, 1_000, 2_000, 5_000, 10_000, 100_000, 1_000_000)
COLUMNS = (1, 10, 100, 500, 1_000, 2_000)
LARGEST = 2e7  # cells of X
SMALL, SMALL_SECONDS = 2_000, 0.025
MANY, LIMIT, LIMIT_OF_MANY = 100_000, 12.0, 5.0
# Rows and columns on both sides of a threshold: folds, SGD, choice by a sample, formed Hessians, penalties.
THRESHOLDS = (
    ((1_999, 10), (2_000, 10)),
    ((549, 10), (551, 10)),
    ((9_999, 20), (10_001, 20)),
    ((100_000, 10), (100_001, 10)),
    ((1_000, 499), (1_000, 501)),
    ((5_000, 49), (5_000, 51)),
    ((5_000, 98), (5_000, 102)),
    ((1_000, 998), (1_000, 1_002)),
    ((1_000, 866), (1_000, 872)),
    ((1_799, 29), (1_801, 29)),
    ((2_990, 49), (3_010, 49)),
)
STEP = 1.5
# Where noise grows along a column, and its size and law are modelled.
GROWING = (
    *((500, 5), (1_000, 10), (1_000, 20), (1_900, 25), (1_900, 60)),
    *((2_000, 10), (5_000, 1), (5_000, 10), (5_000, 40), (10_000, 10), (20_000, 20)),
    *((100_000, 10), (300_000, 10), (1_000_000, 10)),
)
# Few columns and many rows, where least squares hardly does more than read them.
NARROW = ((101_000, 1), (300_000, 1), (300_000, 2))
# Claims: nine targets of ten are zero, the others log-normal, and likelier along a column.
CLAIMS = ((1_000, 5), (2_000, 10), (5_000, 1), (5_000, 10), (5_000, 40), (20_000, 10), (200_000, 10))
Target = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def run() -> list[Ratio]:
    with threadpool_limits(1):
        cells = [_cell(n, d) for n in ROWS for d in COLUMNS if n * d <= LARGEST]
        cells += [_cell(n, d) for n, d in NARROW]
        steps = [_step(*pair) for pair in THRESHOLDS]
        growing = [_cell(n, d, growing_noise, ", noise grows") for n, d in GROWING]
        return [*cells, *steps, *growing, *(_cell(n, d, claims, ", claims") for n, d in CLAIMS)]


def even_noise(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """Skewed noise that does not depend on the columns."""
    return X.sum(axis=1) + rng.lognormal(0.0, 1.5, len(X)) - np.exp(1.125)


def growing_noise(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """The same, larger along the first column."""
    return X.sum(axis=1) + np.exp(0.5 * X[:, 0]) * (rng.lognormal(0.0, 1.5, len(X)) - np.exp(1.125))


def claims(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """Claims, likelier along the first column, and zeros."""
    return np.where(rng.random(len(X)) < 0.1 * np.exp(0.5 * X[:, 0]), rng.lognormal(0.0, 1.0, len(X)), 0.0)


def _cell(n: int, d: int, target: Target = even_noise, kind: str = "") -> Ratio:
    ours, plain = _times(n, d, target)
    name, detail = f"{n:,} × {d:,}{kind}", f"{ours:.3f} s and {plain:.4f} s"
    if n < SMALL and d <= n:
        limit = max(SMALL_SECONDS, LIMIT * plain)
        return Ratio(f"{name}: seconds", ours, limit, detail=f"{ours / plain:.1f} times; {detail}")
    limit = LIMIT_OF_MANY if n > MANY else LIMIT
    return Ratio(f"{name}: time / LinearRegression", ours / plain, limit, detail=detail)


def _step(before: tuple[int, int], after: tuple[int, int]) -> Ratio:
    low, high = (min(_times(*shape)[0] for _ in range(2)) for shape in (before, after))
    name = " to ".join(f"{n:,} × {d:,}" for n, d in (before, after))
    return Ratio(
        f"{name}: step", max(low, high) / min(low, high), STEP, detail=f"{low:.3f} s and {high:.3f} s"
    )


def _times(n: int, d: int, target: Target = even_noise) -> tuple[float, float]:
    """Processor time of both, taken in turn, the least of several."""
    rng = np.random.default_rng([n, d])
    X = rng.standard_normal((n, d))
    y = target(rng, X)
    ours, plain = [], []
    for _ in range(5 if n * d < 1e5 else 2):
        ours.append(_seconds(tp.RobustRegressor(random_state=0), X, y))
        plain.append(_seconds(LinearRegression(), X, y))
    return min(ours), min(plain)


def _seconds(model, X: np.ndarray, y: np.ndarray) -> float:
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start
