"""Rounds with corrupted blocks on Fashion-MNIST: accuracy over that of one net trained on the clean rows.

Reads fashion_mnist.npz from the folder in TAILPROOF_DATA; without it there is nothing to run. TAILPROOF_ROWS
rows are dealt to 10 blocks (20,000 by default); 0, 2 or 4 of the blocks are corrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tailproof as tp
from run import Ratio
from tailproof.torch.stacked_modules import flatten, unflatten

ROWS, TEST = int(os.environ.get("TAILPROOF_ROWS", "20000")), 5_000
BLOCKS, ROUNDS, EPOCHS_PER_ROUND, BATCH = 10, 20, 1, 32
BAD = (0, 2, 4)
ADAM = partial(torch.optim.Adam, lr=3e-3)
MERGES = ("ball_mean", "geometric_median", "centroid")


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 10),
    )


NETS = {"MLP": mlp, "conv net": conv}


def run() -> list[Ratio]:
    folder = os.environ.get("TAILPROOF_DATA")
    if not folder or not (Path(folder) / "fashion_mnist.npz").is_file():
        print("rounds: skipped, since TAILPROOF_DATA names no folder with fashion_mnist.npz")
        return []
    torch.set_num_threads(1)
    data = np.load(Path(folder) / "fashion_mnist.npz")
    order = np.random.default_rng(0).permutation(len(data["y"]))[: ROWS + TEST]
    X = torch.from_numpy(data["X"][order]).float().reshape(-1, 1, 28, 28) / 255
    y = torch.from_numpy(data["y"][order].astype(np.int64))
    training, test = (X[:ROWS], y[:ROWS]), (X[ROWS:], y[ROWS:])
    return [ratio for name in NETS for ratio in _net(name, training, test)]


def _net(name: str, training: tuple, test: tuple) -> list[Ratio]:
    groups = np.arange(ROWS) % BLOCKS
    ratios = []
    for bad in BAD:
        clean = torch.as_tensor(groups >= bad)
        best = accuracy(one_net(NETS[name], training[0][clean], training[1][clean]), *test)
        for damage in DAMAGES if bad else ["labels shifted"]:
            scores = {how: _rounds(name, training, test, groups, bad, damage, how) for how in MERGES}
            detail = ", ".join(f"{how} {score:.3f}" for how, score in scores.items())
            ratios.append(
                Ratio(
                    f"{name}, {bad} of {BLOCKS} blocks bad, {damage if bad else 'none'}: rounds / one net",
                    scores["ball_mean"] / best,
                    0.98,
                    True,
                    f"{detail}, one net {best:.3f}",
                )
            )
    return ratios


def _rounds(
    name: str, training: tuple, test: tuple, groups: np.ndarray, bad: int, damage: str, how: str
) -> float:
    X, y, callback = DAMAGES[damage](*training, torch.as_tensor(groups < bad), bad, how)
    found = tp.torch.Candidates(NETS[name], BLOCKS, random_state=0).fit(
        (X, y),
        cross_entropy,
        optimizer=ADAM,
        rounds=ROUNDS,
        epochs=EPOCHS_PER_ROUND,
        batch_size=BATCH,
        merge=how,
        groups=groups,
        callbacks=callback,
    )
    return accuracy(found.merge(how), *test)


def shifted_labels(X, y, rows, bad, how):
    return X, torch.where(rows, (y + 1) % 10, y), []


def scaled_features(X, y, rows, bad, how):
    return torch.where(rows[:, None, None, None], 30 * X, X), y, []


def flipped_updates(X, y, rows, bad, how):
    """Bad blocks send their updates with the sign reversed."""
    return X, y, [Flip(bad, how)]


class Flip:
    """Mirrors the bad candidates about the start of the round; the first round is as it should be."""

    def __init__(self, bad: int, how: str) -> None:
        self.bad, self.merge, self.start = bad, tp.merge.MERGES[how], None

    def __call__(self, record, stack) -> None:
        if record.epoch % EPOCHS_PER_ROUND:
            return
        if self.start is not None:
            for name, leaf in stack.parameters.items():
                leaf.data[: self.bad] = 2 * self.start[name] - leaf.data[: self.bad]
        self.start = unflatten(self.merge(flatten(stack.parameters)).point, stack.parameters)


DAMAGES: dict[str, Callable] = {
    "labels shifted": shifted_labels,
    "features × 30": scaled_features,
    "updates reversed": flipped_updates,
}


def one_net(make: Callable[[], nn.Module], X: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """One net on these rows, for as many passes."""
    found = tp.torch.Candidates(make, 1, random_state=0)
    found.fit((X, y), cross_entropy, optimizer=ADAM, epochs=ROUNDS * EPOCHS_PER_ROUND, batch_size=BATCH)
    return found.module(0)


def accuracy(module: nn.Module, X: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((module(X).argmax(dim=1) == y).float().mean())
