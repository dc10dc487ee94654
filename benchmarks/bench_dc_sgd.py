"""Excess risk of DC-SGD, defaults, against scikit-learn on the same draws: heavy tails and normal noise."""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import HuberRegressor, LinearRegression, SGDRegressor
from sklearn.preprocessing import StandardScaler

import tailproof as tp
from problems import Draw, regression
from run import Ratio

SEEDS = 100
# features, noise, n, d, target for the ratio to LinearRegression
CASES = [
    ("independent", "log-normal", 20_000, 20, 0.6),
    ("scaled", "log-normal", 20_000, 20, 0.6),
    ("correlated", "log-normal", 20_000, 20, 0.6),
    ("heavy", "log-normal", 20_000, 20, 0.6),
    ("independent", "depends on x", 20_000, 20, 1.1),
    ("independent", "log-normal", 5_000, 100, 0.4),
    ("independent", "log-normal", 1_000, 10, 0.3),
    ("independent", "normal", 20_000, 20, 1.4),
    ("independent", "normal", 5_000, 100, 1.4),
]


def run() -> list[Ratio]:
    return [ratio for case in CASES for ratio in _case(*case)]


def _case(features: str, noise: str, n: int, d: int, target: float) -> list[Ratio]:
    found = Parallel(n_jobs=2)(delayed(_one)(features, noise, n, d, seed) for seed in range(SEEDS))
    excess = {name: np.array([row[name] for row in found]) for name in found[0]}
    level = 0.5 if noise == "normal" else 0.95
    figures = {name: float(np.quantile(values, level)) for name, values in excess.items()}
    where = f"{features}, {noise}, n={n:,}, d={d}"
    detail = ", ".join(f"{name} {value:.3g}" for name, value in figures.items() if name != "passes")
    share = figures["DC-SGD"] / figures["LinearRegression"]
    detail = f"{'median' if level == 0.5 else '95%'}: {detail}; {figures['passes']:.0f} passes"
    ratios = [Ratio(f"{where}: DC-SGD / LinearRegression", share, target, detail=detail)]
    if noise == "log-normal":
        peer = min(value for name, value in figures.items() if name.startswith("SGDRegressor"))
        name = "  SGDRegressor(average=True), best step in hindsight / DC-SGD"
        ratios.append(Ratio(name, peer / figures["DC-SGD"], 2.0, at_least=True))
    return ratios


def _one(features: str, noise: str, n: int, d: int, seed: int) -> dict[str, float]:
    draw = regression(features, noise, n, d, seed)
    ours = tp.DCSGDRegressor(random_state=seed).fit(draw.X, draw.y)
    scaler = StandardScaler()
    found = {
        "LinearRegression": draw.excess_squared(LinearRegression().fit(draw.X, draw.y)),
        "DC-SGD": draw.excess_squared(ours),
        "passes": float(ours.n_iter_),
    } | _averaged_sgd(draw, seed)
    if features == "independent":
        scaled = HuberRegressor(max_iter=500).fit(scaler.fit_transform(draw.X), draw.y)
        found["HuberRegressor"] = draw.excess_squared(_unscaled(scaled, scaler))
    return found


def _averaged_sgd(draw: Draw, seed: int) -> dict[str, float]:
    """Averaged SGD behind a scaler, for each of three steps: the best will be chosen in hindsight."""
    scaler = StandardScaler()
    X, found = scaler.fit_transform(draw.X), {}
    for eta in (1e-4, 1e-3, 1e-2):
        settings = {"alpha": 0.0, "max_iter": 20, "tol": None, "learning_rate": "constant", "eta0": eta}
        model = SGDRegressor(average=True, random_state=seed, **settings).fit(X, draw.y)
        found[f"SGDRegressor {eta:g}"] = draw.excess_squared(_unscaled(model, scaler))
    return found


def _unscaled(linear, scaler: StandardScaler):
    linear.coef_ = np.ravel(linear.coef_) / scaler.scale_
    linear.intercept_ = np.ravel(linear.intercept_) - linear.coef_ @ scaler.mean_
    return linear
