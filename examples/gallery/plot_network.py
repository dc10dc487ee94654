"""
A network
=========

Squared error makes a network chase the largest targets. ``RobustNetRegressor`` trains copies of any module
over a path of losses at once, shifts each back to the mean and blends them by robust validation.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from tailproof.torch import RobustNetRegressor

rng = np.random.default_rng(0)
n = 1_500
X = rng.uniform(-2, 2, (n, 1)).astype(np.float32)
truth = 4 * np.sin(2 * X[:, 0])
y = (truth + rng.lognormal(0, 1.75, n) - np.exp(1.75**2 / 2)).astype(np.float32)


def make_net(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 24), nn.Tanh(), nn.Linear(24, outputs))


# %%
# One network, and the robust one
# -------------------------------

robust = RobustNetRegressor(make_net, epochs=8, random_state=0).fit(X, y)
print(robust.report_)

torch.manual_seed(0)
net, rows, target = make_net(1, 1), torch.from_numpy(X), torch.from_numpy(y)
steps = torch.optim.Adam(net.parameters(), 0.01)
for _ in range(8):
    for batch in torch.randperm(n).split(64):
        steps.zero_grad()
        nn.functional.mse_loss(net(rows[batch])[:, 0], target[batch]).backward()
        steps.step()
plain = net(rows)[:, 0].detach().numpy()
errors = {"one network": plain - truth, "RobustNetRegressor": robust.predict(X).ravel() - truth}
print(
    {name: round(float(np.mean(error**2)), 3) for name, error in errors.items()},
    "mean squared distance from the truth",
)

# %%
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
order = np.argsort(X[:, 0])
ax.plot(X[order, 0], y[order], ".", color="lightgrey", markersize=3)
ax.plot(X[order, 0], truth[order], "--", color="black", label="true mean")
for name, error in errors.items():
    ax.plot(X[order, 0], (truth + error)[order], label=name)
ax.set(ylim=(-10, 15), xlabel="x", ylabel="y")
ax.legend()
plt.show()
