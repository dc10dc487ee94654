"""
Which model is better?
======================

Ridge, boosting and divide and conquer on skewed, heavy-tailed noise, compared row by row by robust
cross-validation.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge

import tailproof as tp
from tailproof.plots import ComparisonDisplay, TailDisplay

rng = np.random.default_rng(0)
X = rng.standard_normal((3_000, 10))
y = X.sum(axis=1) + rng.lognormal(0, 1.75, 3_000)

report = tp.diagnose.diagnose(X, y)
print(report)

models = {
    "least squares": LinearRegression(),
    "ridge": Ridge(alpha=300.0),
    "divide and conquer": tp.DivideAndConquer(LinearRegression(), random_state=0),
    "boosting": HistGradientBoostingRegressor(max_iter=30, random_state=0),
}
comparison = tp.model_selection.compare(models, X, y)
print(comparison)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
TailDisplay.from_tail(report.gradients, name="the gradients", ax=left)
ComparisonDisplay.from_comparison(comparison, ax=right)
plt.show()
