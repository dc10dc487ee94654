"""RobustClassifier and DC-SGD: excess log loss over that of LogisticRegression, clean and with bad rows."""

from __future__ import annotations

import numpy as np
from scipy import special
from sklearn.linear_model import LogisticRegression

import tailproof as tp
from run import Ratio

FIRST, ROWS = 900, 50_000  # draws below the first have been looked at; so many rows in all draws together
SIZES = ((1_000, 5), (5_000, 10))
CLASSES = (2, 3)


def run() -> list[Ratio]:
    return [
        ratio
        for n, d in SIZES
        for classes in CLASSES
        for spoilt, heavy in ((False, False), (False, True), (True, False))
        for ratio in _compare(n, d, classes, spoilt, heavy)
    ]


def _compare(n: int, d: int, classes: int, spoilt: bool, heavy: bool) -> list[Ratio]:
    draws = [_excesses(n, d, classes, spoilt, heavy, seed) for seed in range(FIRST, FIRST + ROWS // n)]
    robust, divided, plain = np.median(draws, axis=0)
    kind = "2% of rows far and mislabelled" if spoilt else "log-normal features" if heavy else "clean"
    name = f"{kind}, {n:,} × {d}, {classes} classes: excess log loss"
    target = 0.15 if spoilt else 1.05
    return [
        Ratio(
            f"{name} / LogisticRegression's", robust / plain, target, detail=f"{robust:.4f} and {plain:.4f}"
        ),
        Ratio(f"{name} of DC-SGD / LogisticRegression's", divided / plain, detail=f"{divided:.4f}"),
    ]


def _excesses(n: int, d: int, classes: int, spoilt: bool, heavy: bool, seed: int) -> tuple[float, ...]:
    rng = np.random.default_rng([seed, n, d, classes])
    truth = np.random.default_rng(classes).standard_normal((d, classes))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.standard_normal((count, d)) if not heavy else rng.lognormal(0.0, 0.75, (count, d)) - 1.3
        return X, special.softmax(X @ truth, axis=1)

    X, p = draw(n)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    if spoilt:
        far = rng.choice(n, n // 50, replace=False)
        X[far] *= 10
        y[far] = np.argmin(X[far] @ truth, axis=1)
    test, q = draw(20_000)
    best = -np.mean((q * np.log(q)).sum(axis=1))
    models = (
        tp.RobustClassifier(random_state=seed),
        tp.DCSGDClassifier(random_state=seed),
        LogisticRegression(max_iter=1_000),
    )
    return tuple(
        float(
            -np.mean((q * np.log(np.maximum(model.fit(X, y).predict_proba(test), 1e-12))).sum(axis=1)) - best
        )
        for model in models
    )
