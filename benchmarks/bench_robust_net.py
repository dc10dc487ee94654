"""RobustNetRegressor against one net with squared error, with clipped gradients, and with Huber's loss.

Friedman's first function, 6,000 rows, a net 10-32-32-1 and Adam, five noises; and two real sets with targets
of heavy tails, where TAILPROOF_DATA names their folder. One net trains on all rows for as many epochs.
TAILPROOF_SEEDS says how many draws are made of each (10 by default). Times are of single fits, in turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn import functional as F  # noqa: N812

import tailproof as tp
from bench_real import SETS, load
from run import Ratio

Draw = tuple[np.ndarray, np.ndarray]
Predict = Callable[[np.ndarray], np.ndarray]
SEEDS = range(int(os.environ.get("TAILPROOF_SEEDS", "10")))
ROWS, TEST, EPOCHS, BATCH = 6_000, 4_000, 20, 64
ADAM = partial(torch.optim.Adam, lr=3e-3)
# At most this ratio of median excess risks to that of one net with squared error.
TARGETS = {"log-normal": 0.25, "depends on x": 0.7, "Pareto": 0.3, "t": 0.55, "normal": 1.1}
COPIES, TIMED = 6, 2
REAL = {"aus_auto_bi", "eu_health_insurance"}


def run() -> list[Ratio]:
    torch.set_num_threads(1)
    return [ratio for noise in TARGETS for ratio in _simulated(noise)] + _real()


def make_module(inputs: int = 10, outputs: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, outputs)
    )


def friedman(X: np.ndarray) -> np.ndarray:
    wave = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    return wave + 10 * X[:, 3] + 5 * X[:, 4]


def noise_of(noise: str, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noise of mean zero."""
    n = len(X)
    if noise == "normal":
        return 2.2 * rng.standard_normal(n)
    if noise == "Pareto":
        return 3 * (rng.pareto(2.1, n) - 1 / 1.1)
    if noise == "t":
        return 2 * rng.standard_t(2.1, n)
    if noise == "depends on x":
        return (0.2 + 2 * X[:, 0] + X[:, 3]) * (rng.lognormal(0, 1.2, n) - np.exp(0.72))
    return rng.lognormal(0, 1.75, n) - np.exp(1.75**2 / 2)


def one_net(X: np.ndarray, y: np.ndarray) -> nn.Module:
    """One net with squared error as anyone would train it, targets in standard units: for its time."""
    torch.manual_seed(0)
    inputs = torch.as_tensor(X, dtype=torch.float32)
    target = torch.as_tensor((y - y.mean()) / y.std(), dtype=torch.float32)[:, None]
    module = make_module(X.shape[1])
    optimizer = ADAM(module.parameters())
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y)).split(BATCH):
            optimizer.zero_grad()
            F.mse_loss(module(inputs[rows]), target[rows]).backward()
            optimizer.step()
    return module


def single_nets(draws: list[Draw], loss=F.mse_loss, clip: float | None = None) -> list[Predict]:
    """One such net for every draw; all of them are trained as one stack, each on its own rows."""
    centre, scale = [y.mean() for _, y in draws], [y.std() for _, y in draws]
    target = np.concatenate([(y - y.mean()) / y.std() for _, y in draws]).astype(np.float32)
    inputs = np.concatenate([X for X, _ in draws]).astype(np.float32)
    found = tp.torch.Candidates(partial(make_module, inputs.shape[1]), len(draws), random_state=0).fit(
        (torch.from_numpy(inputs), torch.from_numpy(target)[:, None]),
        loss,
        optimizer=ADAM,
        epochs=EPOCHS,
        batch_size=BATCH,
        clip_norm=clip,
        groups=np.repeat(np.arange(len(draws)), [len(y) for _, y in draws]),
    )
    return [partial(_predict, found.module(j), centre[j], scale[j]) for j in range(len(draws))]


def _predict(module: nn.Module, centre: float, scale: float, new: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return module(torch.as_tensor(new, dtype=torch.float32))[:, 0].numpy() * scale + centre


def robust(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    model = tp.torch.RobustNetRegressor(make_module, epochs=EPOCHS, batch_size=BATCH, random_state=seed)
    return model.fit(X, y).predict


METHODS: dict[str, Callable[[list[Draw]], list[Predict]]] = {
    "robust": lambda draws: [robust(X, y, seed) for seed, (X, y) in enumerate(draws)],
    "squared error": single_nets,
    "clipped": partial(single_nets, clip=0.1),
    "Huber": partial(single_nets, loss=partial(F.huber_loss, delta=0.1)),
}


def _simulated(noise: str) -> list[Ratio]:
    draws, new = [], []
    for seed in SEEDS:
        rng = np.random.default_rng([seed, 19])
        X, other = rng.random((ROWS, 10)), rng.random((TEST, 10))
        draws.append((2 * X - 1, friedman(X) + noise_of(noise, X, rng)))
        new.append(other)
    excess = {
        name: [
            float(np.mean((predict(2 * X - 1) - friedman(X)) ** 2))
            for predict, X in zip(fit(draws), new, strict=True)
        ]
        for name, fit in METHODS.items()
    }
    median = {name: float(np.median(values)) for name, values in excess.items()}
    detail = ", ".join(f"{name} {value:.2f}" for name, value in median.items()) + f"; {len(SEEDS)} seeds"
    return [
        Ratio(
            f"excess risk, robust net / one net, {noise}",
            median["robust"] / median["squared error"],
            TARGETS[noise],
            detail=detail,
        ),
        Ratio(f"  processor time of {COPIES} copies / one net's, {noise}", _time(draws[0]), 0.5 * COPIES),
    ]


def _time(draw: Draw) -> float:
    """Least processor time of a robust net over that of one net, taken in turn."""
    times = np.empty((TIMED, 2))
    for i in range(TIMED):
        start = time.process_time()
        robust(*draw, seed=0)
        between = time.process_time()
        one_net(*draw)
        times[i] = between - start, time.process_time() - between
    robust_time, one_time = times.min(axis=0)
    return float(robust_time / one_time)


def _real() -> list[Ratio]:
    folder = os.environ.get("TAILPROOF_DATA")
    if not folder or not Path(folder).is_dir():
        return []
    return [_real_set(Path(folder), *named) for named in SETS if named[0] in REAL]


def _real_set(folder: Path, name: str, target: str, drop: list[str]) -> Ratio:
    """Held-out mean squared error over that of one net, the median over splits in halves."""
    X, y = load(folder, name, target, drop)
    draws, tests = [], []
    for seed in SEEDS:
        rows = np.random.default_rng([seed, 20]).permutation(len(y))[: 2 * ROWS]
        train, test = np.array_split(rows, 2)
        scaler = StandardScaler().fit(X[train])
        draws.append((scaler.transform(X[train]), y[train]))
        tests.append((scaler.transform(X[test]), y[test]))
    risks = {
        method: [
            float(np.mean((predict(X) - y) ** 2)) for predict, (X, y) in zip(fit(draws), tests, strict=True)
        ]
        for method, fit in METHODS.items()
    }
    ratios = {
        method: np.median(np.divide(values, risks["squared error"])) for method, values in risks.items()
    }
    detail = ", ".join(f"{method} {value:.3f}" for method, value in ratios.items()) + f"; {len(SEEDS)} splits"
    return Ratio(f"held-out risk, robust net / one net, {name}", float(ratios["robust"]), 1.0, detail=detail)
