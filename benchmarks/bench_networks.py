"""Compiled passes over whole networks against stacked PyTorch: k = 20, mini-batches of 8, one thread."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from run import Ratio
from tailproof.native.networks import network_pass, parameters_of
from tailproof.torch.batches import TensorSource
from tailproof.torch.stacked_modules import Stack, make_modules
from tailproof.torch.training import Trainer

K, BATCH, ROWS, REPEATS = 20, 8, 160, 3
# Columns, classes, and the ratio that is asked for.
SETS = {
    "mnist": (784, 10, 2.0),
    "cifar10": (3072, 10, 4.0),
    "emnist": (784, 47, 4.0),
    "adult": (104, 2, None),
}


def run() -> list[Ratio]:
    """Ratios of processor time of one epoch of logistic regression, averages kept by both."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_compare(name, *sizes) for name, sizes in SETS.items()]
    finally:
        torch.set_num_threads(before)


def _compare(name: str, d: int, classes: int, target: float | None) -> Ratio:
    random = np.random.default_rng(0)
    X = random.random((K * ROWS, d)).astype(np.float32)
    y = random.integers(0, classes, K * ROWS)
    orders = random.permutation(K * ROWS).reshape(K, ROWS)
    source = TensorSource((torch.from_numpy(X), torch.from_numpy(y)))
    modules = make_modules(partial(nn.Linear, d, classes), list(range(K)), torch.device("cpu"), None)
    trainer = Trainer(Stack(modules, average=True), cross_entropy, partial(torch.optim.SGD, lr=0.01))
    parameters = random.standard_normal((K, parameters_of([d, classes]))).astype(np.float32)
    means = np.zeros_like(parameters)

    def compiled() -> None:
        for rows, w, mean in zip(orders, parameters, means, strict=True):
            network_pass(X, y, rows, [d, classes], w, 0.01, batch_size=BATCH, mean=mean)

    ours, theirs = np.inf, np.inf
    for _ in range(REPEATS):  # in turn, so that drift hits both alike
        ours = min(ours, _processor_seconds(compiled))
        theirs = min(theirs, _processor_seconds(lambda: trainer.run(source.batches(orders, BATCH))))
    detail = f"{K * ROWS / ours:,.0f} rows a second against {K * ROWS / theirs:,.0f}"
    return Ratio(f"stacked PyTorch / compiled, logistic, {name}", theirs / ours, target, True, detail)


def _processor_seconds(call) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
