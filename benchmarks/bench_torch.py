"""k = 20 networks stacked against a loop over 20 modules, and DC and RV against one plain SGD on all rows.

Then a multilayer perceptron, a conv net with batch norm and a transformer block, with batches of 8 and 32.
All times are of the processor, with one thread.
"""

from __future__ import annotations

import time
import warnings
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tailproof as tp
from run import Ratio, best_times

ROWS, INPUTS, CLASSES, K, BATCH = 8_000, 784, 10, 20, 8
SGD = partial(torch.optim.SGD, lr=0.01)
STACKED_ROWS = 2_000
LAYERS = {"logistic": 0, "FF_L1": 1, "FF_L3": 3}


def run() -> list[Ratio]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _by_depth() + stacked_nets()
    finally:
        torch.set_num_threads(before)


def _by_depth() -> list[Ratio]:
    X, y = _rows(ROWS)
    return [ratio for name, hidden in LAYERS.items() for ratio in _compare(name, hidden, X, y)]


def stacked_nets() -> list[Ratio]:
    X, y = _rows(STACKED_ROWS)
    images = X.reshape(-1, 1, 28, 28)
    return [ratio for name in NETS for size in (8, 32) for ratio in _stack(name, size, images, y)]


def _rows(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, INPUTS, generator=generator)
    return X, torch.randint(0, CLASSES, (n,), generator=generator)


def make_module(hidden: int) -> nn.Module:
    layers, width = [], INPUTS
    for _ in range(hidden):
        layers += [nn.Linear(width, 10), nn.ReLU()]
        width = 10
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


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


class TransformerBlock(nn.Module):
    """The rows of a picture as a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(28, 4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.last = nn.Linear(28, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.block(images[:, 0]).mean(dim=1))


NETS = {"MLP 784-64-10": mlp, "conv net with BatchNorm": conv, "transformer block": TransformerBlock}


def _stack(name: str, size: int, X: torch.Tensor, y: torch.Tensor) -> list[Ratio]:
    """One epoch over all rows: k stacked, a loop over k, and one net."""
    make, order = NETS[name], torch.as_tensor(np.random.default_rng(0).permutation(len(y)))
    stacked, loop, one = best_times(
        lambda: tp.torch.Candidates(make, K, random_state=0).fit(
            (X, y), cross_entropy, optimizer=SGD, batch_size=size
        ),
        lambda: [plain_sgd(make(), X, y, block, size) for block in order.chunk(K)],
        lambda: plain_sgd(make(), X, y, order, size),
        repeats=3,
        clock=time.process_time,
    )
    what = f"{name}, batches of {size}"
    return [
        Ratio(f"loop over {K} / stacked, {what}", loop / stacked, detail=f"{1e3 * stacked:.0f} ms"),
        Ratio(f"  stacked / one net, {what}", stacked / one),
    ]


def plain_sgd(
    module: nn.Module, X: torch.Tensor, y: torch.Tensor, rows: torch.Tensor, size: int = BATCH
) -> nn.Module:
    """One epoch as anyone would write it."""
    optimizer = SGD(module.parameters())
    for batch in rows.split(size):
        optimizer.zero_grad()
        cross_entropy(module(X[batch]), y[batch]).backward()
        optimizer.step()
    return module


def _compare(name: str, hidden: int, X: torch.Tensor, y: torch.Tensor) -> list[Ratio]:
    order = torch.as_tensor(np.random.default_rng(0).permutation(ROWS))
    make = partial(make_module, hidden)
    held_out = (X[: ROWS // 10], y[: ROWS // 10])

    def candidates(average: bool = False) -> tp.torch.Candidates:
        found = tp.torch.Candidates(make, K, average=average, random_state=0)
        return found.fit((X, y), cross_entropy, optimizer=SGD, batch_size=BATCH)

    stacked, loop, dc, rv, one = best_times(
        candidates,
        lambda: [plain_sgd(make(), X, y, block) for block in order.chunk(K)],
        lambda: _merged(candidates()),
        lambda: candidates(average=True).select(held_out),
        lambda: plain_sgd(make(), X, y, order),
        repeats=3,
        clock=time.process_time,
    )
    detail = f"{1e3 * stacked:.0f} ms, {ROWS:,} rows"
    return [
        Ratio(f"loop over {K} modules / Candidates.fit, {name}", loop / stacked, 3.5, True, detail),
        Ratio(f"  fit and merge / one SGD over all rows, {name}", dc / one, 1.5),
        Ratio(f"  fit and select / one SGD over all rows, {name}", rv / one, 1.5),
    ]


def _merged(found: tp.torch.Candidates) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # merging nets is warned about; here it is the time that counts
        return found.merge()
