"""Models that go on learning: one row at a time, rows after a fit, a change of sign in a stream."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.linear_model import SGDRegressor

import tailproof as tp
from run import Ratio, show

D = 10
FLIP, AFTER = 200_000, 20_000


def rows(n: int, seed: int, flip: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Normal features, noise of t(3); from row ``flip`` on coefficients are −1 instead of 1."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, D))
    sign = np.where(np.arange(n) < (n if flip is None else flip), 1.0, -1.0)
    return X, sign * X.sum(axis=1) + random.standard_t(3, n)


def fed(model, X: np.ndarray, y: np.ndarray, size: int = 1_000):
    for start in range(0, len(y), size):
        model.partial_fit(X[start : start + size], y[start : start + size])
    return model


def seconds_a_row(model, X: np.ndarray, y: np.ndarray) -> float:
    start = time.process_time()
    fed(model, X, y, 1)
    return (time.process_time() - start) / len(y)


def error(model, truth: float) -> float:
    return float(np.sum((model.coef_ - truth) ** 2))


def run() -> list[Ratio]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tp.DriftWarning)
        return [*_speed(), *_drift(), *_after_a_fit(), _alarms()]


def _speed(repeats: int = 5) -> list[Ratio]:
    X, y = rows(5_000, 0)
    models = [fed(tp.DCSGDRegressor(random_state=0), X, y), fed(SGDRegressor(random_state=0), X, y)]
    times = np.array([[seconds_a_row(model, X[:500], y[:500]) for model in models] for _ in range(repeats)])
    ours, theirs = times.min(axis=0)
    return [
        Ratio("one row: DCSGDRegressor / SGDRegressor", ours / theirs, 1.0),
        Ratio("one row, DCSGDRegressor, ms of processor time", 1e3 * ours, 0.3),
    ]


def _drift() -> list[Ratio]:
    X, y = rows(FLIP + AFTER, 1, FLIP)
    fresh = error(fed(tp.DCSGDRegressor(random_state=0), X[FLIP:], y[FLIP:]), -1.0)
    peer = error(fed(SGDRegressor(random_state=0), X, y), -1.0)
    forgetting = {"auto": 1.5, 5_000: None, None: None}
    errors = {
        forget: error(fed(tp.DCSGDRegressor(random_state=0, forget=forget), X, y), -1.0)
        for forget in forgetting
    }
    what = f"error after a change of sign and {AFTER:,} rows"
    return [
        Ratio(f"{what}, forget={forget!r} / a fresh model", errors[forget] / fresh, target)
        for forget, target in forgetting.items()
    ] + [Ratio(f"{what}, forget='auto' / SGDRegressor", errors["auto"] / peer, 1.0)]


def _after_a_fit(draws: int = 10) -> list[Ratio]:
    """What 200 more rows do to a fit on 20,000."""
    before, after = 0.0, 0.0
    for seed in range(draws):
        X, y = rows(20_200, 100 + seed)
        model = tp.DCSGDRegressor(random_state=0).fit(X[:20_000], y[:20_000])
        before += error(model, 1.0)
        after += error(model.partial_fit(X[20_000:], y[20_000:]), 1.0)
    return [Ratio("error after fit and 200 more rows / after fit", after / before, 1.1)]


def _alarms(streams: int = 20, n: int = 60_000) -> Ratio:
    count = 0
    for seed in range(streams):
        X, y = rows(n, 1_000 + seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fed(tp.DCSGDRegressor(random_state=0), X, y)
        count += len(caught)
    return Ratio(f"false alarms in {streams} streams of {n:,} rows that do not change", count, 0)


if __name__ == "__main__":
    show("online", run())
