"""Out of core: a fit on Parquet files against pyarrow's reading of the same files, and its peak memory.

``make bench`` takes 2 GB; ``python benchmarks/bench_stream.py 20`` takes 20 GB in 40 files. Both run in
processes of their own, in turn, with the same environment and so with the same number of Arrow's threads
(``OMP_NUM_THREADS`` sets it), on files that an earlier reading has brought into the cache. Processor time is
of all threads. A large part of that of pyarrow's own reading is time of the kernel, which finds memory for
whole row groups: 0.3 s or 1.9 s of it for the same gigabyte, one run after another, where the memory had not
been used for a while. So that both meet the same, a process before each of them has used a gigabyte and given
it back. The least of each side counts, and the ratios of all pairs are shown beside it.

These files are neither compressed nor encoded, which is where reading is quickest, and the fit takes their
numbers as they are. Files as pyarrow writes them by default are measured beside them: those it decodes, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tailproof as tp
from run import Ratio, show

COLUMNS = 50
ROWS_PER_FILE = 1_250_000  # half a gigabyte
PLAIN = {"compression": None, "use_dictionary": False}

_READ = """
import glob, json, os, sys, time
import pyarrow as pa, pyarrow.parquet as pq
start, clock = os.times(), time.perf_counter()
rows = 0
for name in sorted(glob.glob(sys.argv[1] + "/*.parquet")):
    for batch in pq.ParquetFile(name).iter_batches(batch_size=65_536):
        rows += batch.num_rows
end, wall = os.times(), time.perf_counter() - clock
"""
_FIT = """
import json, os, sys, time
import numpy as np, pyarrow as pa, pyarrow.dataset, pyarrow.parquet, tailproof as tp
warm = np.random.default_rng(0).standard_normal((20_000, 3))
tp.fit(tp.DCSGDRegressor(max_iter=1, random_state=0), [(warm, warm.sum(axis=1))])
start, clock = os.times(), time.perf_counter()
model = tp.fit(tp.DCSGDRegressor(max_iter=1, random_state=0), sys.argv[1])
end, wall = os.times(), time.perf_counter() - clock
rows = model.report_.gradient_evaluations
"""
_CHECK = """
assert np.abs(model.coef_ - 1).max() < 0.05, model.coef_
"""
_USE_MEMORY = "'x' * (1 << 30)"
# ru_maxrss would count what the parent held when it started this process.
_PRINT = """
(peak,) = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
user, system = end.user - start.user, end.system - start.system
print(json.dumps({"seconds": user + system, "system": system, "wall": wall, "rows": rows, "peak": peak,
                  "threads": pa.cpu_count()}))
"""


def write_files(folder: Path, files: int, **how: Any) -> int:
    """Files of 50 columns of normal numbers and a target with t(3) noise; returns their size in bytes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((COLUMNS, ROWS_PER_FILE))
    total = X.sum(axis=0)
    for number in range(files):
        # Drawing takes longer than reading: every file has the same columns in another order.
        columns = {f"x{j}": X[(j + number) % COLUMNS] for j in range(COLUMNS)}
        table = pa.table(columns | {"y": total + rng.standard_t(3, ROWS_PER_FILE)})
        pq.write_table(table, folder / f"part{number:02d}.parquet", **how)
    return sum(path.stat().st_size for path in folder.iterdir())


def measured(code: str, folder: Path) -> dict:
    subprocess.run([sys.executable, "-c", _USE_MEMORY], check=True)
    done = subprocess.run(
        [sys.executable, "-c", code + _PRINT, str(folder)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def alternating(files: int, repeats: int, **how: Any) -> tuple[str, list[dict], list[dict]]:
    """Size of some files, and what readings and fits in turn took."""
    folder = Path(tempfile.mkdtemp(prefix="tailproof-bench-"))
    try:
        size = write_files(folder, files, **how)
        measured(_READ, folder)  # brings the files into the cache
        runs = [(measured(_READ, folder), measured(_FIT + _CHECK, folder)) for _ in range(repeats)]
    finally:
        shutil.rmtree(folder)
    return f"{size / 1e9:.1f} GB", [read for read, _ in runs], [fit for _, fit in runs]


def run(gigabytes: int = 2, repeats: int = 5) -> list[Ratio]:
    what, *both = alternating(2 * gigabytes, repeats, **PLAIN)
    packed, *both_packed = alternating(2, repeats)
    name = "speed of a fit, one pass / reading alone, processor time"
    peak = max(one["peak"] for one in both[1])
    return [
        _speeds(f"{name}, {what}", "seconds", *both, aim=0.8),
        _speeds("the same by the clock", "wall", *both, aim=0.8),
        _speeds(f"{name}, {packed} as written by default", "seconds", *both_packed),
        Ratio(f"peak resident memory of that fit, GB, {what}", peak / 1e9, 1.0),
        _small_files(),
        _many_columns(),
    ]


def _speeds(name: str, kind: str, reads: list[dict], fits: list[dict], aim: float | None = None) -> Ratio:
    """Least time of reading over least time of a fit; both times, threads, and the ratio of each pair."""
    read, fit = (min(runs, key=lambda one: one[kind]) for runs in (reads, fits))
    times = "; ".join(
        f"{who} {one[kind]:.2f} s, {one['system']:.2f} s of processor time in the kernel, "
        f"{one['threads']} Arrow threads"
        for who, one in (("reading", read), ("fit", fit))
    )
    pairs = ", ".join(f"{one[kind] / other[kind]:.2f}" for one, other in zip(reads, fits, strict=True))
    return Ratio(name, read[kind] / fit[kind], aim, True, f"{times}; pairs in turn {pairs}")


def _many_columns(columns: int = 1_000, rows: int = 200_000) -> Ratio:
    """Peak memory of a fit on a wide table, all of it one row group."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({f"x{j}": random.standard_normal(rows) for j in range(columns)})
        total = np.sum([column.to_numpy() for column in table.columns], axis=0)
        table = table.append_column("y", [total + random.standard_t(3, rows)])
        pq.write_table(table, Path(folder) / "a.parquet", **PLAIN)
        done = measured(_FIT, Path(folder))
    return Ratio(f"peak resident memory of a fit with {columns:,} columns, GB", done["peak"] / 1e9, 1.5)


def _small_files(files: int = 1_000, rows: int = 500, columns: int = 10, repeats: int = 3) -> Ratio:
    """Processor time of a fit on many small files against one, beyond what pyarrow's own reading differs."""
    random = np.random.default_rng(0)
    table = pa.table({f"x{j}": random.standard_normal(files * rows) for j in range(columns + 1)})
    table = table.rename_columns([*table.column_names[:-1], "y"])
    with tempfile.TemporaryDirectory() as folder:
        one, many = Path(folder) / "one", Path(folder) / "many"
        for place in (one, many):
            place.mkdir()
        pq.write_table(table, one / "a.parquet")
        for number in range(files):
            pq.write_table(table.slice(number * rows, rows), many / f"{number:04d}.parquet")
        times = np.array(
            [
                [_processor_time(work, place) for work in (_read, _fit) for place in (one, many)]
                for _ in range(repeats)
            ]
        )
    read_one, read_many, fit_one, fit_many = times.min(axis=0)
    seconds = f"read {read_one:.2f} and {read_many:.2f} s, fit {fit_one:.2f} and {fit_many:.2f} s"
    name = f"{files:,} small files / one file, less pyarrow's own difference"
    return Ratio(name, (fit_many - (read_many - read_one)) / fit_one, 2.0, detail=seconds)


def _read(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches(batch_size=65_536):
                continue


def _fit(folder: Path) -> None:
    tp.fit(tp.DCSGDRegressor(max_iter=1, random_state=0), str(folder))


def _processor_time(work: Callable[[Path], None], folder: Path) -> float:
    start = time.process_time()
    work(folder)
    return time.process_time() - start


if __name__ == "__main__":
    show("stream", run(int(sys.argv[1]) if len(sys.argv) > 1 else 2, repeats=2 if len(sys.argv) > 1 else 5))
