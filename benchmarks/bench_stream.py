"""Out of core: a fit on Parquet files against pyarrow's reading of the same files, and its peak memory.

``make bench`` takes 2 GB; ``python benchmarks/bench_stream.py 20`` takes 20 GB in 40 files. Both run in
processes of their own, in turn.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from run import Ratio, show

COLUMNS = 50
ROWS_PER_FILE = 1_250_000  # half a gigabyte

_READ = """
import glob, json, sys, time
import pyarrow.parquet as pq
start = time.perf_counter()
rows = 0
for name in sorted(glob.glob(sys.argv[1] + "/*.parquet")):
    for batch in pq.ParquetFile(name).iter_batches(batch_size=65_536):
        rows += batch.num_rows
seconds = time.perf_counter() - start
"""
_FIT = """
import json, sys, time
import numpy as np, tailproof as tp
warm = np.random.default_rng(0).standard_normal((20_000, 3))
tp.fit(tp.DCSGDRegressor(max_iter=1, random_state=0), [(warm, warm.sum(axis=1))])
start = time.perf_counter()
model = tp.fit(tp.DCSGDRegressor(max_iter=1, random_state=0), sys.argv[1])
seconds = time.perf_counter() - start
rows = model.report_.gradient_evaluations
assert np.abs(model.coef_ - 1).max() < 0.05, model.coef_
"""
# ru_maxrss would count what the parent held when it started this process.
_PRINT = """
(peak,) = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps({"seconds": seconds, "rows": rows, "peak": peak}))
"""


def write_files(folder: Path, files: int) -> int:
    """Files of 50 columns of normal numbers and a target with t(3) noise; returns their size in bytes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((COLUMNS, ROWS_PER_FILE))
    total = X.sum(axis=0)
    for number in range(files):
        # Drawing takes longer than reading: every file has the same columns in another order.
        columns = {f"x{j}": X[(j + number) % COLUMNS] for j in range(COLUMNS)}
        table = pa.table(columns | {"y": total + rng.standard_t(3, ROWS_PER_FILE)})
        pq.write_table(table, folder / f"part{number:02d}.parquet", compression=None, use_dictionary=False)
    return sum(path.stat().st_size for path in folder.iterdir())


def measured(code: str, folder: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", code + _PRINT, str(folder)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def run(gigabytes: int = 2, repeats: int = 3) -> list[Ratio]:
    folder = Path(tempfile.mkdtemp(prefix="tailproof-bench-"))
    try:
        size = write_files(folder, 2 * gigabytes)
        pairs = [(measured(_READ, folder), measured(_FIT, folder)) for _ in range(repeats)]
    finally:
        shutil.rmtree(folder)
    read, fit = (min(runs, key=lambda one: one["seconds"]) for runs in zip(*pairs, strict=True))
    what = f"{size / 1e9:.1f} GB"
    speeds = (
        f"fit {size / fit['seconds'] / 1e9:.2f} GB/s, {fit['rows'] / fit['seconds']:,.0f} rows/s; "
        f"pyarrow alone {size / read['seconds'] / 1e9:.2f} GB/s"
    )
    peak = max(one[1]["peak"] for one in pairs)
    return [
        Ratio(
            f"speed of a fit, one pass / reading alone, {what}",
            read["seconds"] / fit["seconds"],
            0.7,
            True,
            speeds,
        ),
        Ratio(f"peak resident memory of that fit, GB, {what}", peak / 1e9, 1.5),
    ]


if __name__ == "__main__":
    show("stream", run(int(sys.argv[1]) if len(sys.argv) > 1 else 2, repeats=2 if len(sys.argv) > 1 else 3))
