"""An LSTM on sequences with heavy-tailed targets: a module that vmap cannot batch is trained in a loop.

``vectorise=False`` says so beforehand; without it the same happens after a warning.
"""

from functools import partial

import numpy as np
import torch
from torch import nn

import tailproof as tp


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, sequences):
        return self.head(self.cell(sequences)[0][:, -1])


def main(n=1_200, epochs=10):
    rng = np.random.default_rng(0)
    sequences = rng.standard_normal((n, 6, 1)).astype(np.float32)
    mean = sequences.sum(axis=1)
    targets = (mean + rng.standard_t(2.1, (n, 1))).astype(np.float32)
    train, held_out = slice(0, 2 * n // 3), slice(2 * n // 3, None)
    net = tp.torch.fit_robust_net(
        Recurrent,
        (sequences[train], targets[train]),
        (sequences[held_out], targets[held_out]),
        truncation=[1.35, 3.0],
        optimizer=partial(torch.optim.Adam, lr=0.02),
        epochs=epochs,
        batch_size=32,
        vectorise=False,
        random_state=0,
    )
    with torch.no_grad():
        excess = float(np.mean((net.module(torch.from_numpy(sequences)).numpy() - mean) ** 2))
    shares = ", ".join(f"{name} {share:.2f}" for name, share in zip(net.names, net.shares, strict=True))
    print(f"weights of the copies: {shares}")
    print(f"excess risk {excess:.2f}, where the variance of the sums is {mean.var():.1f}")
    return excess, float(mean.var())


if __name__ == "__main__":
    main()
