"""Calibration of the diagnostics: how often the verdict is right, over hundreds of draws of 5,000 values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from run import Ratio
from tailproof.core.tails import LIGHT, tails
from tailproof.diagnose import diagnose

DRAWS, PILOTS, ROWS = 500, 100, 5_000
LAWS: dict[str, tuple[str, Callable[[np.random.Generator, int], np.ndarray]]] = {
    "normal": ("light", lambda rng, n: rng.standard_normal(n)),
    "uniform": ("light", lambda rng, n: rng.random(n)),
    "exponential": ("light", lambda rng, n: rng.exponential(size=n)),
    "square of a normal": ("light", lambda rng, n: rng.standard_normal(n) ** 2),
    "zeros and ones": ("light", lambda rng, n: rng.integers(0, 2, n)),
    "t(4)": ("either", lambda rng, n: rng.standard_t(4, n)),
    "t(3)": ("heavy", lambda rng, n: rng.standard_t(3, n)),
    "log-normal(1)": ("either", lambda rng, n: rng.lognormal(0, 1, n)),
    "log-normal(1.75)": ("heavy", lambda rng, n: rng.lognormal(0, 1.75, n)),
    "Pareto(3)": ("heavy", lambda rng, n: rng.pareto(3, n)),
    "Pareto(2.5)": ("heavy", lambda rng, n: rng.pareto(2.5, n)),
    "Pareto(2)": ("heavy", lambda rng, n: rng.pareto(2, n)),
    "Pareto(1.5)": ("heavy", lambda rng, n: rng.pareto(1.5, n)),
    "96% zeros, else Pareto(2)": ("either", lambda rng, n: rng.pareto(2, n) * (rng.random(n) < 0.04)),
}
NOISES = ["normal", "Pareto(3)", "Pareto(2)", "Pareto(1.5)", "log-normal(1.75)"]


def verdict(law: str, seed: int) -> str:
    return tails(LAWS[law][1](np.random.default_rng(seed), ROWS)).verdict


def pilot(law: str, seed: int) -> str:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS, 5))
    with threadpool_limits(1):
        return diagnose(X, X.sum(axis=1) + LAWS[law][1](rng, ROWS)).verdict


def run() -> list[Ratio]:
    ratios = [ratio_of(f"{law}: says {right(law)}", verdict, law, DRAWS) for law in LAWS]
    return ratios + [
        ratio_of(f"X and y with {law} noise: says {right(law)}", pilot, law, PILOTS) for law in NOISES
    ]


def right(law: str) -> str:
    return "heavy" if LAWS[law][0] == "either" else LAWS[law][0]


def ratio_of(name: str, judge: Callable[[str, int], str], law: str, draws: int) -> Ratio:
    said = Parallel(n_jobs=2)(delayed(judge)(law, seed) for seed in range(draws))
    counts = {word: said.count(word) for word in sorted(set(said))}
    hits = [(word == LIGHT) == (right(law) == "light") for word in said]
    target = None if LAWS[law][0] == "either" else 0.95
    return Ratio(name, float(np.mean(hits)), target, at_least=True, detail=str(counts))
