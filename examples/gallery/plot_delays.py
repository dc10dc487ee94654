"""
Delays
======

By how many minutes does a flight arrive late? Most are on time, a few come hours later. Text, dates and
missing values go straight into :class:`tailproof.TableRegressor`.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sklearn.model_selection import train_test_split

import tailproof as tp

COLUMNS = ["carrier", "origin", "hour", "month", "distance", "arr_delay"]


def flights(n=4_000):
    """Departures from New York if they are at hand, else flights like them."""
    folder, rng = os.environ.get("TAILPROOF_DATA", ""), np.random.default_rng(0)
    if folder and Path(folder, "nycflights13.parquet").exists():
        table = pq.read_table(Path(folder, "nycflights13.parquet"), columns=COLUMNS)
        table = table.filter(pc.is_valid(table.column("arr_delay")))
        return table.take(np.sort(rng.permutation(table.num_rows)[:n])).to_pandas()
    hour = rng.integers(5, 23, n)
    late = rng.normal(-12 + 1.2 * (hour - 5), 15) + (rng.random(n) < 0.1) * 30 * (1 + rng.pareto(2.5, n))
    columns = [rng.choice(["UA", "DL", "B6"], n), rng.choice(["JFK", "LGA"], n), hour, rng.integers(1, 13, n)]
    return pa.table([*columns, rng.lognormal(6.5, 0.6, n), late], COLUMNS).to_pandas()


table = flights()
print(table.head())

# %%
# A model, and how it does on rows that it did not see
# ----------------------------------------------------

seen, unseen = train_test_split(table, random_state=0)
model = tp.TableRegressor().fit(seen.drop(columns="arr_delay"), seen["arr_delay"])
predicted = model.predict(unseen.drop(columns="arr_delay"))
print(f"R² on unseen flights {model.score(unseen.drop(columns='arr_delay'), unseen['arr_delay']):.3f}")

# %%
# Later in the day
# ----------------

figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
hours = np.sort(unseen["hour"].unique())
actual = [unseen["arr_delay"][unseen["hour"] == hour].mean() for hour in hours]
ax.plot(hours, actual, "o", label="mean of the flights")
ax.plot(hours, [predicted[unseen["hour"] == hour].mean() for hour in hours], label="predicted")
ax.set(xlabel="hour of departure", ylabel="minutes late")
ax.legend()
plt.show()
