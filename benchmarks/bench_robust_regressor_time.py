"""RobustRegressor: processor time over that of LinearRegression, over rows × columns, in one run."""

from __future__ import annotations

import time

import numpy as np
from sklearn.linear_model import LinearRegression

import tailproof as tp
from run import Ratio

ROWS = (100, 1_000, 1_999, 2_000, 9_999, 10_001, 100_000, 1_000_000)
COLUMNS = (1, 10, 100, 499, 501, 1_000, 2_000)
LARGEST = 2e7  # cells of X
SMALL, SMALL_SECONDS = 2_000, 0.025
MANY, LIMIT, LIMIT_OF_MANY = 100_000, 12.0, 5.0


def run() -> list[Ratio]:
    return [_cell(n, d) for n in ROWS for d in COLUMNS if n * d <= LARGEST]


def _cell(n: int, d: int) -> Ratio:
    rng = np.random.default_rng([n, d])
    X = rng.standard_normal((n, d))
    y = X.sum(axis=1) + rng.lognormal(0.0, 1.5, n)
    repeats = 5 if n * d < 1e5 else 2
    ours, plain = [], []
    for _ in range(repeats):
        ours.append(_seconds(tp.RobustRegressor(random_state=0), X, y))
        plain.append(_seconds(LinearRegression(), X, y))
    ratio, detail = min(ours) / min(plain), f"{min(ours):.3f} s and {min(plain):.4f} s"
    if n < SMALL and d <= n:
        return Ratio(
            f"{n:,} × {d:,}: seconds", min(ours), SMALL_SECONDS, detail=f"{ratio:.1f} times; {detail}"
        )
    limit = LIMIT_OF_MANY if n > MANY else LIMIT
    return Ratio(f"{n:,} × {d:,}: time / LinearRegression", ratio, limit, detail=detail)


def _seconds(model, X: np.ndarray, y: np.ndarray) -> float:
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start
