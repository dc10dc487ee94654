"""
Sensor glitches
===============

A sensor that drops a bit reports 4,096 instead of 20. Here the *features* are wrong, not the target: such a
row has so much leverage that no loss function helps. :class:`tailproof.RobustRegressor` leaves rows out
whose features are far beyond all others and whose target does not agree.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import HuberRegressor, LinearRegression

import tailproof as tp

rng = np.random.default_rng(0)
n = 1_000
temperature = rng.normal(20, 5, n)
power = 100 - 2 * temperature + rng.normal(0, 3, n)
reported = temperature.copy()
glitches = rng.permutation(n)[:10]
reported[glitches] += 4096
X = reported[:, None]

models = {
    "least squares": LinearRegression(),
    "Huber": HuberRegressor(max_iter=1_000),
    "RobustRegressor": tp.RobustRegressor(random_state=0),
}
with warnings.catch_warnings(record=True) as seen:  # of rows that are far from all others
    warnings.simplefilter("always")
    for name, model in models.items():
        print(f"{name:>15}: slope {model.fit(X, power).coef_[0]:7.3f} (truth -2)")
for warning in seen:
    print(warning.message)

left_out = models["RobustRegressor"].report_.glitches
print(f"{left_out.size} rows left out; those that were changed: {sorted(left_out) == sorted(glitches)}")

# %%
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(temperature, power, ".", alpha=0.3, color="grey")
at = np.array([5.0, 35.0])
for name, model in models.items():
    ax.plot(at, model.predict(at[:, None]), label=name)
ax.set(xlabel="temperature", ylabel="power")
ax.legend()
plt.show()
