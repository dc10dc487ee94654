"""Real data: robust held-out risk of the defaults against scikit-learn, with paired intervals.

Reads the Parquet files named below from the folder in TAILPROOF_DATA; without it there is nothing to run.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import HuberRegressor, LinearRegression, Ridge, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tailproof as tp
from run import Ratio
from tailproof.core.means import interval

SPLITS, TRAIN = 5, 10_000
# file, target, columns that would give the target away or are identifiers
SETS = [
    ("eu_health_insurance", "amt_visits", ["id_anon", "group"]),
    ("aus_auto_bi", "AggClaim", []),
    ("nycflights13", "arr_delay", ["dep_delay", "arr_time", "dep_time", "air_time", "tailnum", "time_hour"]),
    ("flights_3m", "delay", []),
    ("blog_feedback", "y", ["split"]),
    ("sgemm_gpu", "Run1 (ms)", ["Run2 (ms)", "Run3 (ms)", "Run4 (ms)"]),
    ("diamonds", "price", []),
    ("california_housing", "median_house_value", []),
    ("bike_sharing_hour", "cnt", ["casual", "registered", "instant", "dteday"]),
]


def run() -> list[Ratio]:
    folder = os.environ.get("TAILPROOF_DATA")
    if not folder or not Path(folder).is_dir():
        print("real: skipped, since TAILPROOF_DATA names no folder with the data sets")
        return []
    return [ratio for name, target, drop in SETS for ratio in _compare(Path(folder), name, target, drop)]


def load(folder: Path, name: str, target: str, drop: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as they are, categories of up to 30 levels one-hot; rows with missing values left out."""
    frame = pd.read_parquet(folder / f"{name}.parquet")
    # Amounts of other kinds, and numbers of claims of this kind, would give the target away.
    drop = [*drop, *(c for c in frame if c != target and c.startswith(("amt_", "num_")))]
    frame = frame.drop(columns=drop).dropna()
    if len(frame) > 200_000:
        frame = frame.sample(200_000, random_state=0)
    y = frame.pop(target).to_numpy(float)
    numbers = frame.select_dtypes(["number", "bool"])
    texts = frame.drop(columns=numbers.columns).astype(str)
    texts = texts[[column for column in texts if texts[column].nunique() <= 30]]
    parts = [numbers.to_numpy(float)]
    if texts.shape[1]:
        parts.append(pd.get_dummies(texts, drop_first=True).to_numpy(float))
    return np.ascontiguousarray(np.hstack(parts)), y


def models(seed: int) -> dict[str, object]:
    scaled = lambda model: make_pipeline(StandardScaler(), model)  # noqa: E731
    return {
        "DC-SGD": tp.DCSGDRegressor(random_state=seed),
        "RV-SGDAve": tp.RVSGDRegressor(random_state=seed),
        "LinearRegression": LinearRegression(),
        "Ridge": scaled(Ridge()),
        "SGDRegressor": scaled(SGDRegressor(random_state=seed)),
        "HuberRegressor": scaled(HuberRegressor(max_iter=100)),
    }


def _compare(folder: Path, name: str, target: str, drop: list[str]) -> list[Ratio]:
    X, y = load(folder, name, target, drop)
    losses: dict[str, list[np.ndarray]] = {}
    for seed in range(SPLITS):
        rows = np.random.default_rng(seed).permutation(len(y))
        train, test = rows[: min(TRAIN, len(y) // 2)], rows[min(TRAIN, len(y) // 2) :][:30_000]
        for label, model in models(seed).items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted = model.fit(X[train], y[train]).predict(X[test])
            losses.setdefault(label, []).append((predicted - y[test]) ** 2)
    return [_against(name, X.shape[1], losses, peer) for peer in losses if peer != "DC-SGD"]


def _against(name: str, d: int, losses: dict[str, list[np.ndarray]], peer: str) -> Ratio:
    """Robust mean of the paired difference in risk, as a share of the peer's, over the splits."""
    shares = []
    for ours, theirs in zip(losses["DC-SGD"], losses[peer], strict=True):
        scale = float(interval(theirs).estimate)
        shares.append(float(interval(ours - theirs).estimate) / scale)
    centre, error = np.mean(shares), 2.78 * np.std(shares, ddof=1) / np.sqrt(len(shares))  # t, 4 degrees
    verdict = "wins" if centre + error < 0 else "loses" if centre - error > 0 else "ties"
    detail = f"DC-SGD {verdict}: {centre:+.2%} ± {error:.2%} of its risk, {d} columns"
    return Ratio(f"{name}: risk of DC-SGD / {peer}", float(1 + centre), detail=detail)
