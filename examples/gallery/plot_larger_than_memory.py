"""
Files larger than memory
========================

Rows stay in Parquet files; :func:`tailproof.fit` passes over them and holds candidates only. The files are
sorted by region, as files are: they are noticed to be, and shuffled on disk first.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tailproof as tp

rng = np.random.default_rng(0)
TRUTH = {"age": 4.0, "value": 0.02, "coast": 150.0}


def costs(n, region):
    age, value, coast = rng.integers(18, 80, n), rng.lognormal(9.5, 0.5, n), float(region == "coast")
    expected = 200 + TRUTH["age"] * (age - 40) + TRUTH["value"] * value + TRUTH["coast"] * coast
    noise = 300 * (rng.pareto(2.2, n) - 1 / 1.2)
    return pa.table({"age": age, "value": value, "coast": np.full(n, coast), "cost": expected + noise})


with tempfile.TemporaryDirectory() as folder:
    for number, region in enumerate(["coast", "coast", "hills", "plain"]):
        pq.write_table(costs(10_000, region), Path(folder) / f"{number}-{region}.parquet")
    model = tp.fit(tp.DCSGDRegressor(random_state=0), f"{folder}/*.parquet", target="cost")
    predicted = tp.predict(model, f"{folder}/*.parquet")

print(model.report_)
for name, coef in zip(model.feature_names_in_, model.coef_, strict=True):
    print(f"{name:>6}: {coef:8.3f}, truth {TRUTH[name]:g}")

# %%
# The candidates
# --------------
# Each saw its own block of rows; the model is their geometric median.

spread = model.candidates_[:, :-1] / list(TRUTH.values())
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.boxplot(spread, orientation="horizontal", tick_labels=list(TRUTH), whis=(5, 95), sym="")
ax.plot(model.coef_ / list(TRUTH.values()), [1, 2, 3], "o", color="#c0392b", label="merged model")
ax.axvline(1, color="grey", linestyle="--")
ax.set_xlabel("coefficient over its truth: candidates (boxes) and merged model")
ax.legend()
plt.show()
