"""Insurance claims in Parquet files, from files to predictions, without ever holding them in memory.

One policy in twenty has a claim, claims are log-normal, and the files are sorted by region, as files are.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tailproof as tp

REGIONS = ["coast", "hills", "plain"]


def policies(rng, n, region):
    age, value = rng.integers(18, 80, n), rng.lognormal(9.5, 0.5, n)
    expected = 200 + 4.0 * (age - 40) + 0.02 * value + 150 * (region == "coast")
    claims = np.where(rng.random(n) < 0.05, 20 * expected * rng.lognormal(-1.0, np.sqrt(2), n), 0.0)
    return pa.table({"age": age, "value": value, "region": [region] * n, "claims": claims})


with tempfile.TemporaryDirectory() as folder:
    rng = np.random.default_rng(0)
    for number in range(6):
        region = REGIONS[number // 2]
        pq.write_table(policies(rng, 20_000, region), Path(folder) / f"{number}-{region}.parquet")

    model = tp.fit(
        tp.DCSGDRegressor(random_state=0),
        f"{folder}/*.parquet",
        target="claims",
        categories={"region": REGIONS},
        checkpoint=f"{folder}/claims.checkpoint",
    )
    print(model.report_)
    truth = {"age": 4.0, "value": 0.02, "region=coast": 150.0}  # over the mean of the other regions
    coefs = dict(zip(model.feature_names_in_, model.coef_, strict=True))
    coefs["region=coast"] -= (coefs.pop("region=hills") + coefs.pop("region=plain")) / 2
    for name, coef in coefs.items():
        print(f"{name:>15} {coef:10.3f}, truth {truth[name]:g}")
    expected = tp.predict(model, f"{folder}/*.parquet")
    print(f"mean of the predictions {expected.mean():.1f}, intercept {model.intercept_:.1f}")
    print(f"R² over all files {tp.score(model, f'{folder}/*.parquet', target='claims'):.4f}")
