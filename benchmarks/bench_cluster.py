"""Dask and Spark on this machine: bytes moved by a fit, and overheads against the same fit here."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster, wait
from distributed.comm.tcp import TCP

import tailproof as tp
from run import Ratio, best_times

K, D, PARTITIONS = 24, 50, 24
SETTINGS = {"k": K, "max_iter": 2, "random_state": 0}


def count_writes() -> None:
    """From now on, count what this process writes to its connections."""
    if not hasattr(TCP, "written"):
        write = TCP.write

        async def counted(self, *args, **kwargs):
            size = await write(self, *args, **kwargs)
            TCP.written += size
            return size

        TCP.write = counted
    TCP.written = 0


def written() -> int:
    return TCP.written


def run() -> list[Ratio]:
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster) as client,
    ):
        moved = [_moved(client, n) for n in (1_000_000, 4_000_000)]
        dask_over, here = _dask_overhead()
    ratios = [
        Ratio(
            "Dask: bytes moved by a fit, n = 4e6 / n = 1e6",
            moved[1] / moved[0],
            1.2,
            detail=f"{moved[0]:,} and {moved[1]:,} bytes; k·d·8 = {K * D * 8:,}",
        ),
        Ratio("Dask / local, 100,000 rows: seconds more", dask_over, detail=f"local {here:.2f} s"),
    ]
    ratios += _dask_partitions()
    if shutil.which("java") is None:
        return ratios
    spark_over, here = _spark_overhead()
    ratios.append(
        Ratio("Spark / local, 100,000 rows: seconds more", spark_over, detail=f"local {here:.2f} s")
    )
    return ratios


def _moved(client: Client, n: int) -> int:
    """Bytes between client, scheduler and workers during a fit on rows that the workers hold."""
    X = da.random.default_rng(0).standard_normal((n, D), chunks=(-(-n // PARTITIONS), -1)).persist()
    y = X.sum(axis=1).persist()
    wait([X, y])
    count_writes()
    client.run(count_writes)
    tp.fit(tp.DCSGDRegressor(**SETTINGS), (X, y))
    return written() + sum(client.run(written).values())


def _rows(columns: int = D) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).standard_normal((100_000, columns))
    return X, X.sum(axis=1)


def _here(X: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(np.array_split(X, PARTITIONS), np.array_split(y, PARTITIONS), strict=True))


def _dask_overhead() -> tuple[float, float]:
    X, y = _rows()
    chunks = _here(X, y)
    sizes = tuple(len(part[1]) for part in chunks)
    data = (da.from_array(X, chunks=(sizes, -1)).persist(), da.from_array(y, chunks=(sizes,)).persist())
    wait(list(data))
    far, here = best_times(
        lambda: tp.fit(tp.DCSGDRegressor(**SETTINGS), data),
        lambda: tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks, shuffle=False),
        repeats=3,
    )
    return far - here, here


def _dask_partitions(counts: tuple[int, ...] = (10, 100, 1_000)) -> list[Ratio]:
    """Processor time of fits on many partitions, with two workers in this process."""
    X, y = _rows(10)
    ratios = []
    with (
        LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        for count in counts:
            size = len(y) // count
            data = [da.from_array(part, chunks=(size, -1)[: part.ndim]).persist() for part in (X, y)]
            wait(data)
            _processor_time(data, 1)  # the first fit of a cluster loads modules
            one, three = (_processor_time(data, passes) for passes in (1, 3))
            a_pass = 1e3 * (three - one) / 2 / count
            what = f"Dask, 100,000 rows in {count:,} partitions: ms a partition and pass"
            detail = f"a fit of two passes {(one + three) / 2:.2f} s"
            ratios.append(Ratio(what, a_pass, 2.0 if count == max(counts) else None, detail=detail))
    return ratios


def _processor_time(data: list, passes: int) -> float:
    start = time.process_time()
    tp.fit(tp.DCSGDRegressor(**SETTINGS | {"max_iter": passes}), tuple(data))
    return time.process_time() - start


def _spark_overhead() -> tuple[float, float]:
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    X, y = _rows()
    chunks = _here(X, y)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({f"x{j}": X[:, j] for j in range(D)} | {"y": y})
        pq.write_table(table, Path(folder) / "rows.parquet")
        frame = session.read.parquet(folder).repartition(PARTITIONS).persist()
        frame.count()
        start = time.perf_counter()
        tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks, shuffle=False)
        here = time.perf_counter() - start
        far = best_times(lambda: tp.fit(tp.DCSGDRegressor(**SETTINGS), frame), repeats=2)[0]
    session.stop()
    return far - here, here
