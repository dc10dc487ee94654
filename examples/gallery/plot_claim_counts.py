"""
Claim counts with exposure
==========================

How many claims a year does a policy have, if it was not insured for all of it? The count over the exposure
is a rate, and it weighs as much as its exposure: that is the Poisson model with an offset.
"""

import matplotlib.pyplot as plt
import numpy as np

import tailproof as tp
from tailproof.tables.measures import calibration, gini

rng = np.random.default_rng(0)
n = 10_000
age, power = rng.integers(18, 80, n), rng.integers(4, 13, n)
exposure = rng.uniform(0.05, 1.0, n)
rate = 0.2 * np.exp(-0.03 * (age - 40) + 0.1 * (power - 7))
counts = rng.poisson(rate * exposure)
X = np.column_stack([age, power])
print(f"{counts.sum():,} claims in {exposure.sum():,.0f} years of insurance")

# %%
# Fit on the first half, measure on the second
# --------------------------------------------

half = n // 2
model = tp.RobustRegressor(loss="poisson", random_state=0)
model.fit(X[:half], counts[:half] / exposure[:half], sample_weight=exposure[:half])
print("coefficients", model.coef_.round(3), "truth [-0.03   0.1]")

predicted, actual, weights = model.predict(X[half:]), counts[half:] / exposure[half:], exposure[half:]
own, best = (gini(actual, order, weights) for order in (predicted, rate[half:]))
print(f"Gini index {own:.3f}, that of the true rate {best:.3f}")

# %%
# Right on average, in every tenth
# --------------------------------
# Groups of equal exposure, by their predictions.

groups = calibration(actual, predicted, weights)
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
means = np.array([[g.predicted, g.actual, g.actual - g.low, g.high - g.actual] for g in groups]).T
ax.errorbar(means[0], means[1], means[2:], fmt="o", label="tenths of the policies, 95%")
ax.plot(means[0], means[0], "--", color="grey", label="predicted = actual")
ax.set(xlabel="predicted claims a year", ylabel="actual claims a year")
ax.legend(loc="upper left")
plt.show()

# %%
# On the command line: ``tailproof fit policies.csv --target claims --exposure years --loss poisson --out m``.
