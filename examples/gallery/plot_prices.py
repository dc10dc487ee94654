"""
Prices
======

Prices are skewed, and a table of them has typing errors: here one price in 500 lacks its decimal point.
What a model makes of such rows depends on what it minimises.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import HuberRegressor, LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tailproof as tp

rng = np.random.default_rng(0)
n = 4_000
size, age = rng.gamma(4, 25, n), rng.uniform(0, 60, n)
price = 30 + 2.5 * size - 0.8 * age + rng.gamma(1, 25, n) - 25
typed = np.where(rng.random(n) < 0.002, 100 * price, price)
X = np.column_stack([size, age])

# %%
# Three fits
# ----------
# The truth is 2.5 for each square metre and -0.8 for each year, and the mean of all prices.

models = {
    "least squares": LinearRegression(),
    "Huber": make_pipeline(StandardScaler(), HuberRegressor()),
    "RobustRegressor": tp.RobustRegressor(random_state=0),
}
truth = 30 + 2.5 * size - 0.8 * age
errors = {}
with warnings.catch_warnings(record=True) as seen:  # of rows that are far from all others
    warnings.simplefilter("always")
    for name, model in models.items():
        errors[name] = model.fit(X, typed).predict(X) - truth
        shift, most = errors[name].mean(), np.abs(errors[name]).max()
        print(f"{name:>15}: predictions off by {shift:6.2f} on average, {most:7.2f} at most")
for warning in seen:
    print(warning.message)

figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.boxplot(list(errors.values()), orientation="horizontal", tick_labels=list(errors), whis=(1, 99), sym=".")
ax.axvline(0, color="grey", linestyle="--")
ax.set_xlabel("prediction minus true mean")
plt.show()

# %%
# Huber's loss is calm, and aims below the mean, since prices are skewed. ``RobustRegressor`` aims at the
# mean.
