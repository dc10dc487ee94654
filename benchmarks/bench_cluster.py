"""Dask and Spark on this machine: bytes moved by a fit, and overheads against the same fit here."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

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
    with spark_session() as session:
        spark_over, here = _spark_overhead(session)
        ratios.append(
            Ratio("Spark / local, 100,000 rows: seconds more", spark_over, detail=f"local {here:.2f} s")
        )
        return ratios + _spark_partitions(session)


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


@contextmanager
def spark_session() -> Iterator[Any]:
    """Two threads of Spark in a process of Java."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


def _spark_overhead(session: Any) -> tuple[float, float]:
    X, y = _rows()
    chunks = _here(X, y)
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({f"x{j}": X[:, j] for j in range(D)} | {"y": y})
        pq.write_table(table, Path(folder) / "rows.parquet")
        frame = session.read.parquet(folder).repartition(PARTITIONS).persist()
        frame.count()
        start = time.perf_counter()
        tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks, shuffle=False)
        here = time.perf_counter() - start
        far = best_times(lambda: tp.fit(tp.DCSGDRegressor(**SETTINGS), frame), repeats=2)[0]
        frame.unpersist()
    return far - here, here


def _spark_partitions(session: Any, counts: tuple[int, int] = (24, 1_000), repeats: int = 3) -> list[Ratio]:
    """Processor time of all processes, jobs and tasks of fits with two passes on few and many partitions."""
    X, y = _rows(10)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(
            pa.table({f"x{j}": X[:, j] for j in range(10)} | {"y": y}), Path(folder) / "rows.parquet"
        )
        frames = {count: session.read.parquet(folder).repartition(count).persist() for count in counts}
        for frame in frames.values():
            frame.count()
        _spark_fit(frames[counts[0]], 2)  # the first one loads modules, and Java compiles
        fits = {
            count: min(_seconds_of_all(partial(_spark_fit, frame, 2)) for _ in range(repeats))
            for count, frame in frames.items()
        }
        idle = {count: _seconds_of_all(partial(_spark_idle, frame)) for count, frame in frames.items()}
        one, two = (
            [_tasks(session, f"{count}-{passes}", frame, passes) for count, frame in frames.items()]
            for passes in (1, 2)
        )
        for frame in frames.values():
            frame.unpersist()
    few, many = counts
    ratios = [
        Ratio(
            f"Spark, 100,000 rows, two passes, processor time of all processes: {many:,} partitions / {few}",
            fits[many] / fits[few],
            2.0,
            detail=f"{fits[many]:.1f} and {fits[few]:.1f} s",
        )
    ]
    for place, count in enumerate(counts):
        what = f"Spark, {count:,} partitions"
        jobs, tasks = np.subtract(two[place], one[place])
        listed = f"a fit of two passes: {two[place][0]} jobs, {two[place][1]} tasks"
        ratios += [
            Ratio(
                f"{what}: a fit / an empty mapInArrow",
                fits[count] / idle[count],
                3.0,
                detail=f"{idle[count]:.1f} s",
            ),
            Ratio(f"{what}: jobs a pass adds", float(jobs), 1.0, detail=listed),
            Ratio(f"{what}: tasks a pass adds", float(tasks), float(K)),
        ]
    return ratios


def _spark_fit(frame: Any, passes: int) -> None:
    tp.fit(tp.DCSGDRegressor(**SETTINGS | {"max_iter": passes}), frame)


def _spark_idle(frame: Any) -> None:
    def nothing(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            continue
        return iter(())

    frame.mapInArrow(nothing, "a int").collect()


def _tasks(session: Any, group: str, frame: Any, passes: int) -> tuple[int, int]:
    """Jobs of a fit, and tasks of the stages that ran in them."""
    session.sparkContext.setJobGroup(group, group)
    _spark_fit(frame, passes)
    tracker = session.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(group)
    stages = [tracker.getStageInfo(number) for job in jobs for number in tracker.getJobInfo(job).stageIds]
    return len(jobs), sum(stage.numCompletedTasks for stage in stages if stage is not None)


def _seconds_of_all(work: Callable[[], None]) -> float:
    """Processor time of this process and of all that it has started, and they."""
    start = _used_so_far()
    work()
    return _used_so_far() - start


def _used_so_far() -> float:
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile; its parent counts it
            continue
        number = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(number)
        ticks[number] = sum(map(int, fields[11:15]))
    every = [os.getpid()]
    for number in every:
        every += children.get(number, [])
    return sum(ticks.get(number, 0) for number in every) / os.sysconf("SC_CLK_TCK")
