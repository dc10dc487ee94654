"""The claims of claims_parquet.py on a Dask cluster of this machine: rows stay with their workers."""

import tempfile
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import tailproof as tp

REGIONS = ["coast", "hills", "plain"]


def policies(rng, n):
    age, value = rng.integers(18, 80, n), rng.lognormal(9.5, 0.5, n)
    region = rng.choice(REGIONS, n)
    expected = 200 + 4.0 * (age - 40) + 0.02 * value + 150 * (region == "coast")
    claims = np.where(rng.random(n) < 0.05, 20 * expected * rng.lognormal(-1.0, np.sqrt(2), n), 0.0)
    return pd.DataFrame({"age": age, "value": value, "region": region, "claims": claims})


def main():
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster),
    ):
        rng = np.random.default_rng(0)
        for number in range(6):
            policies(rng, 10_000).to_parquet(Path(folder) / f"{number}.parquet")
        frame = dd.read_parquet(f"{folder}/*.parquet")
        settings = {"target": "claims", "categories": {"region": REGIONS}}
        model = tp.fit(tp.DCSGDRegressor(k=24, random_state=0), frame, **settings)
        print(model.report_)
        for name, coef in zip(model.feature_names_in_, model.coef_, strict=True):
            print(f"{name:>15} {coef:10.3f}")
        print(f"R² over all partitions {tp.score(model, frame, target='claims'):.4f}")

        # The same files as a stream, with blocks made of whole files as on the cluster: the same candidates.
        here = tp.DCSGDRegressor(k=24, random_state=0)
        stream = tp.fit(here, f"{folder}/*.parquet", shuffle=False, **settings)
        print("same candidates as a stream:", np.array_equal(model.candidates_, stream.candidates_))


if __name__ == "__main__":
    main()
