"""
Candidates of merging and of validation
=======================================

Candidates of divide and conquer around the merged point, and of robust validation with their risks.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import tailproof as tp
from tailproof.plots import CandidatesDisplay, ValidationDisplay

rng = np.random.default_rng(0)
X = rng.standard_normal((2_000, 5))
y = X.sum(axis=1) + 3 * rng.pareto(2.1, 2_000)

merged = tp.DivideAndConquer(LinearRegression(), k=24, random_state=0).fit(X, y)
print(merged.report_)
chosen = tp.RobustValidation(DecisionTreeRegressor(max_depth=4), random_state=0).fit(X, y)
print(chosen.report_)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
CandidatesDisplay.from_estimator(merged, ax=left)
ValidationDisplay.from_estimator(chosen, ax=right)
plt.show()
