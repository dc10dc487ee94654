"""A network for claims with heavy tails: RobustNetRegressor beside one net with squared error.

The best prediction is known here, so the excess risk of both can be said.
"""

import numpy as np
import torch
from torch import nn

import tailproof as tp


def make_net(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))


def claims(n, rng):
    """Features, claims with log-normal noise, and the mean claim."""
    X = rng.uniform(-1, 1, (n, 4))
    mean = 10 + 5 * np.sin(3 * X[:, 0]) + 4 * X[:, 1] * X[:, 2]
    return X, mean + rng.lognormal(0, 1.75, n) - np.exp(1.75**2 / 2), mean


def one_net(X, y, epochs, seed=0):
    """Squared error on all rows, in standard units."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        module = make_net(X.shape[1], 1)
        optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
        inputs, target = torch.tensor(X).float(), torch.tensor((y - y.mean()) / y.std()).float()[:, None]
        for _ in range(epochs):
            for rows in torch.randperm(len(y)).split(64):
                optimizer.zero_grad()
                nn.functional.mse_loss(module(inputs[rows]), target[rows]).backward()
                optimizer.step()
    return lambda new: module(torch.tensor(new).float()).detach().numpy()[:, 0] * y.std() + y.mean()


def main(n=4_000, epochs=20):
    rng = np.random.default_rng(0)
    X, y, _ = claims(n, rng)
    new, _, mean = claims(n, rng)
    robust = tp.torch.RobustNetRegressor(make_net, epochs=epochs, random_state=0).fit(X, y)
    print(robust.report_)
    excess = [np.mean((f(new) - mean) ** 2) for f in (robust.predict, one_net(X, y, epochs))]
    print(f"excess risk: robust {excess[0]:.2f}, one net with squared error {excess[1]:.2f}")
    return excess


if __name__ == "__main__":
    main()
