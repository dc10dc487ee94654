"""Automatic steps against the best constant step in hindsight, over problems of many kinds."""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from scipy.special import expit, log_softmax

import tailproof as tp
from problems import features_of, regression
from run import Ratio

SEEDS = 12
GRID = range(-6, 3)  # constant steps 2^j / (1 + d)
# task, features, noise (or number of classes), n, d
CASES = [
    ("regression", "independent", "normal", 2_000, 100),
    ("regression", "independent", "normal", 20_000, 20),
    ("regression", "independent", "normal", 50_000, 10),
    ("regression", "correlated", "normal", 20_000, 20),
    ("regression", "ill-conditioned", "normal", 20_000, 20),
    ("regression", "heavy", "normal", 20_000, 20),
    ("regression", "independent", "log-normal", 20_000, 20),
    ("regression", "independent", "log-normal", 5_000, 100),
    ("regression", "independent", "log-normal", 1_000, 10),
    ("regression", "ill-conditioned", "log-normal", 20_000, 20),
    ("regression", "heavy", "log-normal", 20_000, 20),
    ("classification", "independent", 2, 20_000, 20),
    ("classification", "independent", 2, 2_000, 50),
    ("classification", "heavy", 2, 20_000, 20),
    ("classification", "correlated", 2, 20_000, 20),
    ("classification", "independent", 4, 10_000, 10),
]


def run() -> list[Ratio]:
    ratios = []
    for case in CASES:
        found = np.array(Parallel(n_jobs=2)(delayed(_one)(*case, seed) for seed in range(SEEDS)))
        medians = np.median(found, axis=0)
        best = int(np.argmin(medians[1:]))
        task, features, kind, n, d = case
        detail = f"auto {medians[0]:.3g}, best constant {medians[1 + best]:.3g} at 2^{GRID[best]}/(1+d)"
        name = f"{task}, {features}, {kind}, n={n:,}, d={d}: auto / best constant"
        ratios.append(Ratio(name, float(medians[0] / medians[1 + best]), 1.5, detail=detail))
    return ratios


def _one(task: str, features: str, kind: str | int, n: int, d: int, seed: int) -> list[float]:
    steps = ["auto", *(2.0**j / (1 + d) for j in GRID)]
    if task == "regression":
        draw = regression(features, kind, n, d, seed)
        return [
            draw.excess_squared(tp.DCSGDRegressor(step_size=s, random_state=seed).fit(draw.X, draw.y))
            for s in steps
        ]
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((1 if kind == 2 else kind, d)) / np.sqrt(d) * 2
    X, _ = features_of(features, n, d, rng)
    y = _labels(X @ truth.T, rng)
    test, _ = features_of(features, 50_000, d, rng)
    return [_excess(tp.DCSGDClassifier(step_size=s, random_state=seed).fit(X, y), truth, test) for s in steps]


def _labels(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if scores.shape[1] == 1:
        return (rng.random(len(scores)) < expit(scores[:, 0])).astype(int)
    return np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)


def _excess(model, truth: np.ndarray, test: np.ndarray) -> float:
    """Kullback-Leibler divergence from the true class probabilities, averaged over fresh rows."""
    true, fitted = (np.atleast_2d(s) for s in (test @ truth.T, test @ model.coef_.T + model.intercept_))
    if true.shape[1] == 1:
        true, fitted = (np.column_stack([np.zeros(len(s)), s[:, 0]]) for s in (true, fitted))
    p, q = log_softmax(true, axis=1), log_softmax(fitted, axis=1)
    return float(np.mean(np.sum(np.exp(p) * (p - q), axis=1)))
