"""Meta-estimators against their plain selves: 95% quantile of the risk over seeds or splits, and wins.

Real data come from the folder in TAILPROOF_DATA; without it only simulated data are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

import tailproof as tp
from bench_real import load
from problems import LOGNORMAL_MEAN, SIGMA, regression
from run import Ratio
from tailproof.core.means import catoni

SEEDS, ROWS, TRAIN, TEST = 20, 4_000, 4_000, 10_000
REAL = [
    ("aus_auto_bi", "AggClaim", []),
    ("eu_health_insurance", "amt_visits", ["id_anon", "group"]),
    ("nycflights13", "arr_delay", ["dep_delay", "arr_time", "dep_time", "air_time", "tailnum", "time_hour"]),
]
NOISES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "log-normal(1.75)": lambda rng, n: rng.lognormal(0, SIGMA, n) - LOGNORMAL_MEAN,
    "Pareto(2.1)": lambda rng, n: 3 * (rng.pareto(2.1, n) - 1 / 1.1),
    "t(2.1)": lambda rng, n: 3 * rng.standard_t(2.1, n),
    "normal": lambda rng, n: 2 * rng.standard_normal(n),
}
LINEAR = ["independent", "correlated", "heavy"]


def pairs(seed: int) -> dict[str, tuple[object, object]]:
    boosting = HistGradientBoostingRegressor(random_state=seed)
    return {
        "RV(HGB)": (boosting, tp.RobustValidation(boosting, random_state=seed)),
        "DC(LR)": (LinearRegression(), tp.DivideAndConquer(LinearRegression(), random_state=seed)),
    }


def surface(X: np.ndarray) -> np.ndarray:
    return 3 * np.sin(X[:, 0]) + X[:, 1] ** 2 + 2 * X[:, 2] * (X[:, 3] > 0)


def boosted(noise: str, seed: int) -> tuple[float, float]:
    """Excess risk on a surface with steps and bends."""
    rng = np.random.default_rng(seed)
    X, test = rng.standard_normal((ROWS, 5)), rng.standard_normal((ROWS, 5))
    y = surface(X) + NOISES[noise](rng, ROWS)
    with threadpool_limits(1):
        plain, robust = (model.fit(X, y).predict(test) for model in pairs(seed)["RV(HGB)"])
    return float(np.mean((plain - surface(test)) ** 2)), float(np.mean((robust - surface(test)) ** 2))


def linear(features: str, noise: str, seed: int) -> tuple[float, float]:
    draw = regression(features, noise, ROWS, 10, seed)
    with threadpool_limits(1):
        plain, robust = (draw.excess_squared(model.fit(draw.X, draw.y)) for model in pairs(seed)["DC(LR)"])
    return plain, robust


def real(X: np.ndarray, y: np.ndarray, what: str, seed: int) -> tuple[float, float]:
    """Robust mean of the held-out squared errors of one split, as a share of the variance of y."""
    rows = np.random.default_rng(seed).permutation(len(y))
    size = min(TRAIN, len(y) // 2)
    train, test = rows[:size], rows[size : size + TEST]
    with threadpool_limits(1):
        plain, robust = (model.fit(X[train], y[train]).predict(X[test]) for model in pairs(seed)[what])
    scale = float(catoni((y[test] - y[test].mean()) ** 2))
    return tuple(float(catoni((p - y[test]) ** 2)) / scale for p in (plain, robust))


def severity(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """French motor claims: amount of each claim, with what is known of the policy."""
    claims = pd.read_parquet(folder / "fremtpl2sev.parquet")
    frame = claims.merge(pd.read_parquet(folder / "fremtpl2freq.parquet"), on="IDpol")
    y = frame["ClaimAmount"].to_numpy(float)
    frame = frame.drop(columns=["ClaimAmount", "IDpol", "ClaimNb"])
    numbers = frame.select_dtypes("number")
    texts = pd.get_dummies(frame.drop(columns=numbers.columns).astype(str), drop_first=True)
    return np.hstack([numbers.to_numpy(float), texts.to_numpy(float)]), y


def run() -> list[Ratio]:
    ratios = [ratio_of(f"RV(HGB), {noise} noise", boosted, noise) for noise in NOISES]
    ratios += [ratio_of(f"DC(LR), {features}, log-normal noise", linear, features, "") for features in LINEAR]
    ratios.append(ratio_of("DC(LR), independent, normal noise", linear, "independent", "normal"))
    folder = Path(os.environ.get("TAILPROOF_DATA") or "missing")
    if not folder.is_dir():
        print("meta: no real data, since TAILPROOF_DATA names no folder with the data sets")
        return ratios
    sets = {name: load(folder, name, target, drop) for name, target, drop in REAL}
    sets["fremtpl2 severity"] = severity(folder)
    for name, (X, y) in sets.items():
        ratios += [ratio_of(f"{what}, {name}", real, X, y, what) for what in pairs(0)]
    return ratios


def ratio_of(name: str, trial: Callable[..., tuple[float, float]], *setting: object) -> Ratio:
    """95% quantile of the robust one's risk over that of the plain one, with medians and wins."""
    found = np.array(Parallel(n_jobs=2)(delayed(trial)(*setting, seed) for seed in range(SEEDS)))
    plain, robust = found.T
    high = np.quantile(found, 0.95, axis=0)
    middle = np.median(found, axis=0)
    detail = f"95%: {high[1]:.3g} / {high[0]:.3g}; median {middle[1]:.3g} / {middle[0]:.3g}; "
    return Ratio(name, high[1] / high[0], detail=detail + f"wins {np.sum(robust < plain)} of {SEEDS}")
