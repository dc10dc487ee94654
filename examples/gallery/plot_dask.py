"""
Dask
====

The same call for a Dask array: partitions stay with their workers, and candidates travel. The same pieces
and the same seed give the same candidates on every engine, to the last bit.
"""

import dask
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

import tailproof as tp
from tailproof.plots import CandidatesDisplay

rng = np.random.default_rng(0)
X = rng.standard_normal((8_000, 5))
y = X @ np.arange(1.0, 6.0) + rng.standard_t(2.2, 8_000)

with dask.config.set(scheduler="threads"):
    rows, target = da.from_array(X, chunks=(1_000, 5)), da.from_array(y, chunks=1_000)
    model = tp.fit(tp.DCSGDRegressor(random_state=0), rows, target)

print(model.report_)
print("coefficients", model.coef_.round(3), "truth [1 2 3 4 5]")

# %%
# Candidates around the merged model
# ----------------------------------

figure, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
CandidatesDisplay.from_estimator(model, ax=ax)
plt.show()
