"""RobustRegressor on real data: held-out risk over that of its peers, clean and with corrupted rows.

Clean, in two readings of "the better of LinearRegression and RidgeCV": the one with the lower mean over all
splits, which one could have settled for, and the better in every split, which nobody knows beforehand. Beside
the second stands what RidgeCV has itself. Plain means of squares, and robust ones.
With the log links: mean deviance over that of scikit-learn's GLM with a cross-validated penalty. Reads the
Parquet files of bench_real from the folder in TAILPROOF_DATA; without it there is nothing to run.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy import stats
from sklearn.linear_model import GammaRegressor, LinearRegression, PoissonRegressor, RidgeCV, TweedieRegressor
from sklearn.metrics import mean_tweedie_deviance
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tailproof as tp
from bench_real import SETS, load
from run import Ratio

TEST = 30_000
SIZES = {"tiny": 300, "small": 1_000, "medium": 10_000, "full": None}
FIRST = 1_500  # splits below have been looked at
WORST = 1.05  # of the better peer, in any split
CORRUPTED_SPLITS = 5
# Sets with targets for a log link: power of the variance, and scikit-learn's model of it.
LOG_SETS = {
    "eu_health_insurance": ("tweedie", 1.5, lambda: TweedieRegressor(power=1.5, link="log", max_iter=1_000)),
    "blog_feedback": ("poisson", 1.0, lambda: PoissonRegressor(max_iter=1_000)),
    "bike_sharing_hour": ("poisson", 1.0, lambda: PoissonRegressor(max_iter=1_000)),
    "sgemm_gpu": ("gamma", 2.0, lambda: GammaRegressor(max_iter=1_000)),
}
LOG_ROWS, LOG_SPLITS = (500, 5_000), 6
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
        for size in SIZES:
            plain, robust = np.moveaxis([_risks(X, y, size, seed) for seed in _splits(y, size)], 1, 0)
            clean += _summary(name, size, plain, robust)
            if size == "small" and name in HEAVY:
                quantiles.append(np.quantile(_to_better(plain)[:, 0], 0.95))
        if name in LOG_SETS:
            clean += [_log_link(name, X, y, rows) for rows in LOG_ROWS]
        corrupted += [_corrupted(name, X, y, damage) for damage in DAMAGES]
    share = float(np.mean(np.array(quantiles) <= 1.0))
    worst = Ratio("heavy-tailed sets, small: share with 95% quantile ≤ 1", share, 0.5, True)
    return [*clean, worst, *corrupted]


def split(y, size: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(seed).permutation(len(y))
    test = min(TEST, len(y) // 3)
    return rows[test:][: SIZES[size]], rows[:test]


def _splits(y, size: str) -> range:
    """Many of few rows: with 20 of them chance decides which cells miss a target."""
    few = len(split(y, size, FIRST)[0]) <= 2_000
    return range(FIRST, FIRST + (100 if few else 20))


def risk(model, X, y, train, test) -> float:
    return float(np.mean((model.fit(X[train], y[train]).predict(X[test]) - y[test]) ** 2))


def _risks(X, y, size: str, seed: int) -> tuple[list[float], list[float]]:
    """Plain and robust risks of RobustRegressor, LinearRegression and RidgeCV."""
    train, test = split(y, size, seed)
    peers = [LinearRegression(), make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))]
    losses = [
        (model.fit(X[train], y[train]).predict(X[test]) - y[test]) ** 2
        for model in (tp.RobustRegressor(random_state=seed), *peers)
    ]
    return [float(row.mean()) for row in losses], [float(tp.means.catoni(row)) for row in losses]


def _to_better(risks: np.ndarray) -> np.ndarray:
    """Risks, a row a split, over that of the better peer in the same split."""
    return risks / risks[:, 1:].min(axis=1, keepdims=True)


def _summary(name: str, size: str, plain: np.ndarray, robust: np.ndarray) -> list[Ratio]:
    """Of risks, a row a split: ours, LinearRegression's and RidgeCV's."""
    means = plain.mean(axis=0)
    peer = ("LinearRegression", "RidgeCV")[int(np.argmin(means[1:]))]
    ours, _, ridge = _to_better(plain).T
    error = stats.t.ppf(0.975, ours.size - 1) * ours.std(ddof=1) / np.sqrt(ours.size)
    verdict = "wins" if ours.mean() + error < 1 else "loses" if ours.mean() - error > 1 else "ties"
    detail = (
        f"{verdict}: ± {error:.4f} over {ours.size} splits, robust risk {_to_better(robust)[:, 0].mean():.4f}"
    )
    far = f"{np.sum(ours > WORST)} of {ours.size} splits above it, {np.sum(ridge > WORST)} of RidgeCV's"
    return [
        Ratio(
            f"{name}, {size}: mean risk / the better peer's", means[0] / means[1:].min(), 1.003, detail=peer
        ),
        Ratio(
            f"{name}, {size}: risk / the better peer in each split", float(ours.mean()), 1.003, detail=detail
        ),
        Ratio(f"{name}, {size}: worst split", float(ours.max()), WORST, detail=far),
        Ratio(f"{name}, {size}: RidgeCV / the better peer in each split", float(ridge.mean())),
        Ratio(f"{name}, {size}: RidgeCV, worst split", float(ridge.max())),
    ]


def _log_link(name: str, X, y, rows: int) -> Ratio:
    """Mean deviance over that of the GLM; predictions of both stay above zero."""
    loss, power, peer = LOG_SETS[name]
    y = np.maximum(y - y.min(), 0.0) if y.min() < 0 else y
    found, means = [], []
    for seed in range(LOG_SPLITS):
        order = np.random.default_rng(seed).permutation(len(y))
        test, train = order[: min(TEST, len(y) // 3)], order[min(TEST, len(y) // 3) :][:rows]
        theirs = GridSearchCV(
            make_pipeline(StandardScaler(), peer()),
            {peer().__class__.__name__.lower() + "__alpha": 10.0 ** np.arange(-4, 2)},
        )
        predicted = [
            np.maximum(model.fit(X[train], y[train]).predict(X[test]), 1e-12)
            for model in (_log_model(loss, power, seed), theirs)
        ]
        deviance = [mean_tweedie_deviance(y[test], p, power=power) for p in predicted]
        found.append(deviance[0] / deviance[1])
        means.append(predicted[0].mean() / y[test].mean())
    detail = f"worst split {max(found):.3f}; mean prediction {min(means):.2f} to {max(means):.2f} of the mean"
    return Ratio(f"{name}, {loss}, {rows:,} rows: deviance / GLM", float(np.mean(found)), 1.0, detail=detail)


def _log_model(loss: str, power: float, seed: int):
    parameter = power if loss == "tweedie" else None
    return tp.RobustRegressor(loss, loss_parameter=parameter, random_state=seed)


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
