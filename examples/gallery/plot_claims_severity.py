"""
Claims severity
===============

What does a claim cost, given policy and car? One claim in a thousand costs a hundred times the median.
Least squares follows those; :class:`tailproof.RobustRegressor` estimates the same mean, and says which fit
it took.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
from sklearn.linear_model import LinearRegression

import tailproof as tp


def claims(n=4_000):
    """French motor claims if they are at hand, else claims like them: age, bonus-malus, density, amount."""
    folder, rng = os.environ.get("TAILPROOF_DATA", ""), np.random.default_rng(0)
    if folder and Path(folder, "fremtpl2sev.parquet").exists():
        amounts = pq.read_table(Path(folder, "fremtpl2sev.parquet"))
        names = ["IDpol", "DrivAge", "BonusMalus", "Density"]
        policies = pq.read_table(Path(folder, "fremtpl2freq.parquet"), columns=names)
        number, *columns = (policies.column(name).to_numpy() for name in names)
        order, owner = np.argsort(number), amounts.column("IDpol").to_numpy()
        place = order[np.searchsorted(number[order], owner).clip(max=number.size - 1)]
        rows = rng.permutation(np.flatnonzero(number[place] == owner))[:n]
        X = np.column_stack(columns)[place[rows]].astype(float)
        return X, amounts.column("ClaimAmount").to_numpy()[rows]
    X = np.column_stack([rng.integers(18, 80, n), rng.integers(50, 150, n), rng.lognormal(6, 1.5, n)])
    return X, (800 + 5 * X[:, 1]) * rng.lognormal(-0.9, 1.3, n)


X, y = claims()
names = ["driver's age", "bonus-malus", "density"]
print(f"{len(y):,} claims: median {np.median(y):,.0f}, mean {y.mean():,.0f}, largest {y.max():,.0f}")
print(f"share of the ten largest in the sum: {np.sort(y)[-10:].sum() / y.sum():.0%}")

# %%
# Do tails matter here?
# ---------------------

found = tp.diagnose.diagnose(X, y)
print(found)

# %%
# Coefficients over halves of the data
# ------------------------------------
# A fit that a few claims decide changes from one half of the data to the other.

halves = np.random.default_rng(1).permutation(len(y)).reshape(2, -1)
models = {"least squares": LinearRegression(), "RobustRegressor": tp.RobustRegressor(random_state=0)}
scales = X.std(axis=0)
fitted = {
    name: np.array([model.fit(X[half], y[half]).coef_ * scales for half in halves])
    for name, model in models.items()
}

figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained", sharey=True)
for ax, (name, coefs) in zip(axes, fitted.items(), strict=True):
    ax.plot(coefs.T, np.arange(3), "o")
    ax.axvline(0, color="grey", linewidth=0.8)
    ax.set(title=name, yticks=range(3), yticklabels=names, xlabel="effect of a standard deviation")
axes[0].legend(["first half", "second half"])
plt.show()

gaps = {name: np.abs(np.diff(coefs, axis=0)).mean() for name, coefs in fitted.items()}
print({name: round(float(gap), 1) for name, gap in gaps.items()}, "mean difference between the halves")
