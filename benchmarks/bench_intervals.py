"""Intervals of coefficients and predictions: coverage and length against OLS with HC3 and split-conformal."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy import stats
from sklearn.linear_model import LinearRegression

import tailproof as tp
from designs import LAWS, SCALES
from run import Ratio

DRAWS = 500  # fewer where a fit takes longer
FIRST = 5_000  # draws below are for tuning
LAWS = LAWS | {"Pareto(2.5)": lambda rng, n: rng.pareto(2.5, n) - 1 / 1.5}
# Law, and how its scale depends on the first column.
NOISES = [
    ("normal", ""),
    ("t(3)", ""),
    ("Pareto(2.5)", ""),
    ("log-normal(1.75)", ""),
    ("normal", " × exp(0.7x)"),
    ("t(3)", " × (1 + |x|)"),
    ("log-normal(1.75)", " × (1 + |x|)"),
    ("log-normal(1.2)", " × exp(0.7x)"),
]
SIZES = {(100, 5): DRAWS, (500, 5): DRAWS, (2_000, 2): DRAWS, (5_000, 20): 60}
Array = np.ndarray


def draw(law: str, scale: str, n: int, d: int, number: int) -> tuple[Array, Array]:
    rng = np.random.default_rng([number, n, d, *f"{law}{scale}".encode()])
    X = rng.standard_normal((n, d))
    return X, X.sum(axis=1) + SCALES[scale](X[:, 0]) * LAWS[law](rng, n)


def hc3(X: Array, y: Array) -> tuple[Array, Array]:
    """Ends of the usual robust intervals of least squares."""
    Z = np.column_stack([X, np.ones(len(X))])
    inverse = np.linalg.inv(Z.T @ Z)
    theta = inverse @ (Z.T @ y)
    r = (y - Z @ theta) / (1 - np.einsum("ij,jk,ik->i", Z, inverse, Z))
    se = np.sqrt(np.diag(inverse @ (Z * r[:, None] ** 2).T @ Z @ inverse))
    reach = stats.t.ppf(0.975, len(y) - Z.shape[1]) * se
    return (theta - reach)[:-1], (theta + reach)[:-1]


def split_conformal(X: Array, y: Array, new: Array, coverage: float) -> Array:
    """The textbook: one half fits, absolute errors of the other."""
    half = len(y) // 2
    model = LinearRegression().fit(X[:half], y[:half])
    away = np.sort(np.abs(y[half:] - model.predict(X[half:])))
    place = min(int(np.ceil((away.size + 1) * coverage)), away.size) - 1
    return np.column_stack([model.predict(new) - away[place], model.predict(new) + away[place]])


def share_within(ends: Array, y: Array) -> float:
    return float(np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])))


def study(law: str, scale: str, n: int, d: int, draws: int) -> dict[str, float]:
    """Coverage and length of coefficients, and coverage and length of predictions, over draws."""
    found: dict[str, list[float]] = {}
    for number in range(FIRST, FIRST + draws):
        X, y = draw(law, scale, n, d, number)
        model = tp.RobustRegressor(random_state=0).fit(X, y)
        summary, (low, high) = model.summary(), hc3(X, y)
        values = {
            "cover": np.mean((summary.low <= 1) & (summary.high >= 1)),
            "first": float(summary.low[0] <= 1 <= summary.high[0]),
            "plain": np.mean((low <= 1) & (high >= 1)),
            "length": np.mean(summary.high - summary.low),
            "plain length": np.mean(high - low),
        }
        if number < FIRST + 100:
            new, target = draw(law, scale, 1_000, d, 10**6 + number)
            ends, split = model.predict_interval(new, 0.9), split_conformal(X, y, new, 0.9)
            values |= {"predicted": share_within(ends, target), "split": share_within(split, target)}
            values |= {"width": np.mean(np.diff(ends)), "split width": np.mean(np.diff(split))}
        for name, value in values.items():
            found.setdefault(name, []).append(float(value))
    return {name: float(np.mean(values)) for name, values in found.items()}


def run() -> list[Ratio]:
    ratios = []
    for (n, d), draws in SIZES.items():
        for law, scale in NOISES:
            means = study(law, scale, n, d, draws)
            name, ratio = f"{law}{scale}, {n:,} × {d}", means["length"] / means["plain length"]
            off, off_new = abs(means["cover"] - 0.95), abs(means["predicted"] - 0.9)
            detail = (
                f"covers {means['cover']:.3f}, first column {means['first']:.3f}; HC3 {means['plain']:.3f}"
            )
            longest = {"normal": 1.05, "log-normal(1.75)": 0.5}.get(law) if not scale and n == 5_000 else None
            missed = f"covers {means['predicted']:.3f}; split conformal {means['split']:.3f}"
            ratios += [
                Ratio(f"{name}: |coverage − 0.95|", off, 0.02, detail=detail),
                Ratio(f"{name}: length / HC3", ratio, longest),
                Ratio(f"{name}: |coverage of predictions − 0.9|", off_new, 0.01, detail=missed),
                Ratio(f"{name}: their length / split conformal", means["width"] / means["split width"]),
            ]
    return [*ratios, *_real(), *_contaminated()]


def _real() -> list[Ratio]:
    """Coverage of predictions on halves of real tables, if ``TAILPROOF_DATA`` says where they are."""
    folder = os.environ.get("TAILPROOF_DATA")
    if not folder:
        return []
    import pyarrow.parquet as pq

    ratios = []
    for name, target in REAL.items():
        table = pq.read_table(Path(folder) / f"{name}.parquet").to_pandas().select_dtypes("number").dropna()
        table = table.drop(columns=PARTS, errors="ignore")
        y, X = table.pop(target).to_numpy(float), table.to_numpy(float)
        covered, length = [], []
        for seed in range(5):
            order = np.random.default_rng(seed).permutation(len(y))[:8_000]
            seen, new = order[: len(order) // 2], order[len(order) // 2 :]
            model = tp.RobustRegressor(random_state=0).fit(X[seen], y[seen])
            ends = model.predict_interval(X[new], 0.9)
            split = split_conformal(X[seen], y[seen], X[new], 0.9)
            covered.append(share_within(ends, y[new]))
            length.append(np.mean(np.diff(ends)) / np.mean(np.diff(split)))
        off = abs(float(np.mean(covered)) - 0.9)
        detail = f"covers {np.mean(covered):.3f}; length / split conformal {np.mean(length):.3f}"
        ratios.append(Ratio(f"{name}: |coverage of predictions − 0.9|", off, 0.01, detail=detail))
    return ratios


# Tables, and the number to predict from the other numbers, without those that add up to it.
PARTS = ["casual", "registered"]
REAL = {
    "california_housing": "median_house_value",
    "diamonds": "price",
    "bike_sharing_hour": "cnt",
    "aus_auto_bi": "AggClaim",
    "blog_feedback": "y",
}


def _contaminated() -> list[Ratio]:
    """The contamination mode on clean rows against least squares; R's lmrob is in the documentation."""
    ratios = []
    for n, d in ((500, 5), (1_000, 20)):
        errors = []
        for number in range(100):
            X, y = draw("normal", "", n, d, FIRST + number)
            models = [tp.RobustRegressor(contamination=0.25, random_state=0), LinearRegression()]
            errors.append([np.sum((model.fit(X, y).coef_ - 1) ** 2) for model in models])
        ours, plain = np.mean(errors, axis=0)
        name = f"contamination mode on clean rows, {n:,} × {d}: error / least squares"
        ratios.append(Ratio(name, float(ours / plain), 1.1))
    return ratios
