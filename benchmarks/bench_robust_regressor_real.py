"""RobustRegressor on real data: held-out risk over that of LinearRegression, clean and with corrupted rows.

Reads the Parquet files of bench_real from the folder in TAILPROOF_DATA; without it there is nothing to run.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy import stats
from sklearn.linear_model import LinearRegression

import tailproof as tp
from bench_real import SETS, load
from run import Ratio

SMALL, MEDIUM, TEST = 1_000, 10_000, 30_000
SPLITS = {"small": 20, "medium": 10, "full": 4}
CORRUPTED_SPLITS = 5
# Targets with rare, huge values: claims, delays, comments, and times.
HEAVY = {"eu_health_insurance", "aus_auto_bi", "nycflights13", "flights_3m", "blog_feedback", "sgemm_gpu"}


def run() -> list[Ratio]:
    folder = os.environ.get("TAILPROOF_DATA")
    if not folder or not Path(folder).is_dir():
        print("regressor_real: skipped, since TAILPROOF_DATA names no folder with the data sets")
        return []
    clean, corrupted, quantiles = [], [], []
    for name, target, drop in SETS:
        X, y = load(Path(folder), name, target, drop)
        for size, splits in SPLITS.items():
            ratios = np.array([_ratio(X, y, size, seed) for seed in range(splits)])
            clean.append(_summary(name, size, ratios))
            if size == "small" and name in HEAVY:
                quantiles.append(np.quantile(ratios, 0.95))
        corrupted += [_corrupted(name, X, y, damage) for damage in DAMAGES]
    share = float(np.mean(np.array(quantiles) <= 1.0))
    worst = Ratio("heavy-tailed sets, small: share with 95% quantile ≤ 1", share, 0.5, True)
    return [*clean, worst, *corrupted]


def split(y, size: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(seed).permutation(len(y))
    test = min(TEST, len(y) // 3)
    train = {"small": SMALL, "medium": MEDIUM, "full": len(y)}[size]
    return rows[test:][:train], rows[:test]


def risk(model, X, y, train, test) -> float:
    return float(np.mean((model.fit(X[train], y[train]).predict(X[test]) - y[test]) ** 2))


def _ratio(X, y, size: str, seed: int) -> float:
    train, test = split(y, size, seed)
    ours = risk(tp.RobustRegressor(random_state=seed), X, y, train, test)
    return ours / risk(LinearRegression(), X, y, train, test)


def _summary(name: str, size: str, ratios: np.ndarray) -> Ratio:
    error = stats.t.ppf(0.975, ratios.size - 1) * ratios.std(ddof=1) / np.sqrt(ratios.size)
    high = np.quantile(ratios, 0.95)
    verdict = "wins" if ratios.mean() + error < 1 else "loses" if ratios.mean() - error > 1 else "ties"
    detail = f"{verdict}: ± {error:.4f} over {ratios.size} splits, 95% quantile {high:.4f}"
    return Ratio(f"{name}, {size}: risk / LinearRegression", float(ratios.mean()), 1.01, detail=detail)


def _huge_targets(X, y, rows):
    y = y.copy()
    y[rows] *= 1_000
    return X, y


def _glitched_features(X, y, rows):
    X = X.copy()
    X[rows] = 1e6
    return X, y


def _glitched_cells(X, y, rows):
    X = X.copy()
    X[rows, np.random.default_rng(0).integers(0, X.shape[1], len(rows))] = 1e6
    return X, y


DAMAGES = {
    "targets × 1,000": _huge_targets,
    "rows of features at 1e6": _glitched_features,
    "single features at 1e6": _glitched_cells,
}


def _corrupted(name: str, X, y, damage: str) -> Ratio:
    """Excess over LinearRegression on the clean rows, as a share of what corruption costs it; clean test.

    Corruption can help it, where it acts as a penalty; what is below the clean risk counts as no excess.
    """
    ours, theirs = [], []
    for seed in range(CORRUPTED_SPLITS):
        train, test = split(y, "medium", seed)
        best = risk(LinearRegression(), X, y, train, test)
        # Rows whose target is zero stay what they are.
        hit = np.random.default_rng(seed).choice(np.flatnonzero(y[train]), max(1, len(train) // 1_000), False)
        bad_X, bad_y = DAMAGES[damage](X[train], y[train], hit)
        predicted = [
            model.fit(bad_X, bad_y).predict(X[test])
            for model in (tp.RobustRegressor(random_state=seed), LinearRegression())
        ]
        losses = [np.mean((p - y[test]) ** 2) - best for p in predicted]
        ours.append(losses[0] / best)
        theirs.append(losses[1] / best)
    detail = f"{np.mean(ours):+.3f} against {np.mean(theirs):+.3f} of the clean risk"
    return Ratio(
        f"{name}, 0.1% {damage}: excess / LinearRegression's",
        max(np.mean(ours), 0.0) / max(np.mean(theirs), 1e-12),
        0.5,
        detail=detail,
    )
