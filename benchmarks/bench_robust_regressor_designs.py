"""RobustRegressor over a pool of designs with known truth, beside its peers and its own path in hindsight.

Excess risk for the mean over that of LinearRegression: ratios of medians and of 95% quantiles over draws, and
their geometric mean over designs. The rule was tuned on other draws of each design.
"""

from __future__ import annotations

import numpy as np

import tailproof as tp
from designs import POOL, REPORTED, Design
from run import Ratio
from tailproof.core.losses import LOSSES
from tailproof.core.validate import resistant_mean
from tailproof.estimators.robust_regressor.candidates import RegressionTask, path_candidates

Array = np.ndarray
OURS, HUBER, BISQUARE, BEST = "RobustRegressor", "cross-validated Huber", "bisquare, recentred", "best level"
PLAIN = "LinearRegression"
ADAPTIVE = "adaptive Huber, as in R's adaHuber"
KNOWN = "slopes by maximum likelihood for the true noise"


def run(draws: range = REPORTED, pool: list[Design] = POOL) -> list[Ratio]:
    table = {design: _excesses(design, draws) for design in pool}
    heavy = {design: found for design, found in table.items() if not design.normal}
    normal = {design: found for design, found in table.items() if design.normal and design.n >= 1_000}
    ratios = []
    for name in (OURS, HUBER, BISQUARE, ADAPTIVE, BEST, KNOWN):
        medians, tails = _geometric(heavy, name, 0.5), _geometric(heavy, name, 0.95)
        target = (0.20, 0.15) if name == OURS else (None, None)
        ratios.append(Ratio(f"noise not normal: {name}, median", medians, target[0]))
        ratios.append(Ratio(f"noise not normal: {name}, 95% quantile", tails, target[1]))
    for q, word in ((0.5, "median"), (0.95, "95% quantile")):
        ours = _geometric(heavy, OURS, q)
        ratios.append(
            Ratio(f"over the best level in hindsight, {word}", ours / _geometric(heavy, BEST, q), 1.15)
        )
        ratios.append(Ratio(f"over cross-validated Huber, {word}", ours / _geometric(heavy, HUBER, q), 1.0))
        ratios.append(Ratio(f"normal noise, n ≥ 1,000, {word}", _geometric(normal, OURS, q), 1.02))
    return [*ratios, *_large(table), *_beaten(table)]


def _excesses(design: Design, draws: range) -> dict[str, Array]:
    """Excess risk of every method on every draw."""
    rows = [_one_draw(design, number) for number in draws]
    found = {name: np.array([row[name] for row in rows]) for name in (OURS, HUBER, BISQUARE, ADAPTIVE, KNOWN)}
    levels = [name for name in rows[0]["levels"] if all(name in row["levels"] for row in rows)]
    by_level = {name: np.array([row["levels"][name] for row in rows]) for name in levels}
    found[PLAIN] = by_level[next(name for name in levels if name.startswith("untruncated"))]
    # One level for all draws of a design: what somebody who knew the noise would take.
    found[BEST] = min(by_level.values(), key=np.median)
    return found


def _one_draw(design: Design, number: int) -> dict[str, object]:
    X, y = design.draw(number)
    order = np.random.default_rng(number).permutation(design.n)
    folds = tuple(np.sort(order[k::5]) for k in range(5))
    task = RegressionTask(
        X, y, np.empty(0), LOSSES["squared_error"], True, 0.05, folds, np.random.SeedSequence(number)
    )
    levels = path_candidates(task)
    fits = [level.fit(task) for level in levels]
    excess = {
        level.name: float(design.excess(fit.coef, fit.intercept))
        for level, fit in zip(levels, fits, strict=True)
    }
    ours = tp.RobustRegressor(random_state=number).fit(X, y)
    huber = [j for j, level in enumerate(levels) if not level.name.startswith("bisquare")]
    chosen = fits[min(huber, key=lambda j: np.mean((levels[j].held_out - y) ** 2))]
    return {
        OURS: float(design.excess(ours.coef_, ours.intercept_)),
        HUBER: float(design.excess(chosen.coef, adaptive_huber_mean(y - X @ chosen.coef))),
        BISQUARE: next(excess[name] for name in excess if name.startswith("bisquare 4.7")),
        ADAPTIVE: float(design.excess(*adaptive_huber(X, y))),
        KNOWN: _known(design, number),
        "levels": excess,
    }


def _known(design: Design, number: int) -> float:
    """The least that can be hoped for: only the mean of the noise has to be estimated without its law."""
    coef, rest, size = design.known_noise(number)
    return float(design.excess(coef, np.array(resistant_mean(rest, 0.05, 1 / size**2))))


def adaptive_huber_mean(u: Array) -> float:
    """Huber's mean whose τ solves Σ min(r², τ²)/τ² = log n (Wang, Zheng, Zhou and Zhou)."""
    return float(_adaptive_huber(np.ones((u.size, 1)), u, np.log(u.size))[0])


def adaptive_huber(X: Array, y: Array) -> tuple[Array, float]:
    """Huber regression whose τ solves Σ min(r², τ²)/τ² = d + log(nd), as in R's adaHuber."""
    Z = np.column_stack([X, np.ones(len(X))])
    coef = _adaptive_huber(Z, y, X.shape[1] + np.log(X.size))[:-1]
    return coef, adaptive_huber_mean(y - X @ coef)


def _adaptive_huber(Z: Array, y: Array, wanted: float) -> Array:
    """Weighted least squares, the weights being min(1, τ/|r|) and τ that of the residuals before."""
    coef = np.append(np.zeros(Z.shape[1] - 1), np.median(y))
    for _ in range(200):
        r = y - Z @ coef
        tau = _adaptive_tau(r**2, wanted)
        weights = np.minimum(1.0, tau / np.maximum(np.abs(r), 1e-300))
        before, coef = coef, np.linalg.solve((Z.T * weights) @ Z, Z.T @ (weights * y))
        if np.abs(Z @ (coef - before)).max() <= 1e-6 * tau:
            break
    return coef


def _adaptive_tau(squares: Array, wanted: float) -> float:
    low, high = 0.0, float(squares.sum()) / wanted
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = np.minimum(squares, middle).sum() > wanted * middle
        low, high = (middle, high) if above else (low, middle)
    return float(np.sqrt(high))


def _ratio(found: dict[str, Array], name: str, q: float) -> float:
    return float(np.quantile(found[name], q) / np.quantile(found[PLAIN], q))


def _geometric(table: dict[Design, dict[str, Array]], name: str, q: float) -> float:
    return float(np.exp(np.mean([np.log(_ratio(found, name, q)) for found in table.values()])))


def _large(table: dict[Design, dict[str, Array]]) -> list[Ratio]:
    return [
        Ratio(design.name, _ratio(found, OURS, 0.5), 0.30, detail=f"95% {_ratio(found, OURS, 0.95):.2f}")
        for design, found in table.items()
        if design.n == 100_000
    ]


def _beaten(table: dict[Design, dict[str, Array]]) -> list[Ratio]:
    """Every design where a peer is better by more than 10% in the median."""
    ratios = []
    for design, found in table.items():
        rivals = {name: np.median(found[name]) for name in (PLAIN, HUBER, BISQUARE, ADAPTIVE)}
        rival = min(rivals, key=lambda name: rivals[name])
        worse = float(np.median(found[OURS]) / rivals[rival])
        if worse > 1.1:
            detail = f"{_ratio(found, OURS, 0.5):.2f} / {_ratio(found, OURS, 0.95):.2f} of LinearRegression"
            ratios.append(Ratio(f"{design.name}: ours / {rival}", worse, detail=detail))
    return ratios
