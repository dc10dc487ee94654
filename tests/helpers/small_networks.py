"""Small networks, optimisers and data for the tests of PyTorch candidates."""

import functools

import torch
from torch import nn

from tailproof.core.partition import blocks

SGD = functools.partial(torch.optim.SGD, lr=0.1)
OPTIMIZERS = {
    "sgd": SGD,
    "momentum": functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": functools.partial(torch.optim.Adam, lr=1e-2),
    "adamw": functools.partial(torch.optim.AdamW, lr=1e-2),
    "rmsprop": functools.partial(torch.optim.RMSprop, lr=1e-3),
}
# No bias before batch norm: its gradient is zero but for rounding, and Adam would blow the rounding up.
MODULES = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3)),
    "ff": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(36, 10), nn.ReLU(), nn.Dropout(0.0), nn.Linear(10, 3)
    ),
    "batch norm": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(36, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)
    ),
    "conv": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    ),
}


def images(n=203, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 1, 6, 6, generator=generator)
    return X, (X.mean(dim=(1, 2, 3)) * 6).round().clamp(-1, 1).long() + 1


def assert_same(stacked, alone):
    for (name, ours), theirs in zip(stacked.state_dict().items(), alone.state_dict().values(), strict=True):
        torch.testing.assert_close(
            ours, theirs, rtol=2e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def noisy_regression(bad_block_scale):
    """One block has rows so large that its candidate diverges."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 2, generator=generator)
    rows = blocks(200, 5, 0)[2].rows
    X[torch.as_tensor(rows)] *= bad_block_scale
    return X, X.sum(dim=1, keepdim=True)
