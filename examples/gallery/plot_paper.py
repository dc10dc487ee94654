"""
The paper in three pictures
===========================

Holland (2020): split the rows into k blocks, run a cheap process on each, then merge the candidates
robustly (Algorithm 1) or validate them robustly and keep the best (Algorithm 5). Why does that help?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

import tailproof as tp

rng = np.random.default_rng(0)
d, truth = 5, np.ones(5)


def draw(n=1_500):
    X = rng.standard_normal((n, d))
    return X, X @ truth + rng.lognormal(0, 1.75, n)


# %%
# 1. Most blocks are good
# -----------------------
# The candidates of 24 blocks of one draw. A few are far away, since a few blocks hold the largest targets;
# their mean follows them, the geometric median stays with the majority.

X, y = draw()
blocks = np.array_split(rng.permutation(len(y)), 24)
points = np.array([LinearRegression().fit(X[rows], y[rows]).coef_ for rows in blocks])
merged = tp.merge.geometric_median(points).point

figure, ax = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
ax.plot(*points[:, :2].T, "o", color="grey", label="candidates")
ax.plot(*truth[:2], "k+", markersize=14, label="truth")
ax.plot(*points[:, :2].mean(axis=0), "s", label="mean")
ax.plot(*merged[:2], "*", markersize=13, label="geometric median")
ax.set(xlabel="first coefficient", ylabel="second coefficient")
ax.legend()
plt.show()

# %%
# 2. Confidence
# -------------
# The excess risk of 15 draws. Means tell little: it is the bad draws that robust merging avoids.

excess = {"least squares": [], "DC-SGD": [], "RobustRegressor": []}
for seed in range(15):
    X, y = draw()
    models = LinearRegression(), tp.DCSGDRegressor(random_state=seed), tp.RobustRegressor(random_state=seed)
    for name, model in zip(excess, models, strict=True):
        excess[name].append(np.sum((model.fit(X, y).coef_ - truth) ** 2) / 2)

figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.boxplot(list(excess.values()), orientation="horizontal", tick_labels=list(excess), whis=(5, 95), sym=".")
ax.set(xscale="log", xlabel="excess risk (lower is better)")
plt.show()

# %%
# 3. Validation
# -------------
# Means of held-out losses of two models, and their paired difference: what is hard for both cancels.

X, y = draw()
models = {"least squares": LinearRegression(), "RobustRegressor": tp.RobustRegressor(random_state=0)}
comparison = tp.model_selection.compare(models, X, y)
print(comparison)
figure, ax = plt.subplots(figsize=(7, 2.4), layout="constrained")
tp.plots.ComparisonDisplay.from_comparison(comparison, ax=ax)
plt.show()
