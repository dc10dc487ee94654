"""RobustRegressor on Parquet files: excess risk, processor time against reading, and peak memory.

Draws of 2,000,000 x 20 rows in eight files, log-normal noise, as it is or scaled by 1 + h x₁, which biases
truncated fits. Side by side: RobustRegressor and DC-SGD on the files, RobustRegressor and least squares in
memory, on draws that nobody has looked at. Twelve draws of each:
``python benchmarks/bench_robust_regressor_out_of_core.py 12``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tailproof as tp
from run import Ratio, show

ROWS, COLUMNS, FILES = 2_000_000, 20, 8
SIGMA = 1.75
HETEROSCEDASTIC = (0.0, 0.03, 0.3)  # h
FIRST, DRAWS = 2_100, 4
# Idle threads of linear algebra wait at work: that is processor time which no fit makes use of.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_READ = """
import glob, sys
import pyarrow.parquet as pq
def work():
    for _ in range(3):
        for name in sorted(glob.glob(sys.argv[1] + "/*.parquet")):
            for batch in pq.ParquetFile(name).iter_batches(batch_size=65_536):
                pass
"""
_READ_ROWS = """
import sys
import numpy as np
from tailproof.data.engines.stream import FilePieces, StreamEngine
from tailproof.data.readers.batches import reading_of
from tailproof.data.readers.files import open_files
from tailproof.data.verbs import FitOptions
def work():
    files = open_files(sys.argv[1])
    engine = StreamEngine(FilePieces(files, reading_of(files.columns, 0, FitOptions(target="y"))))
    for _ in range(3):
        for batch in engine.every_batch():
            pass
"""
_FIT = """
import sys
import numpy as np, tailproof as tp
warm = np.random.default_rng(0).standard_normal((2_000, 3))
tp.fit(tp.{estimator}(random_state=0), [(warm, warm.sum(axis=1) + warm[:, 0] ** 2)])
def work():
    tp.fit(tp.{estimator}(random_state=0), sys.argv[1])
"""
# ru_maxrss would count what the parent held when it started this process.
_MEASURE = """
import json, time
start = time.process_time()
work()
seconds = time.process_time() - start
(peak,) = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps({"seconds": seconds, "peak": peak}))
"""


def draw(seed: int, h: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose slopes are all one and whose intercept is zero."""
    rng = np.random.default_rng([seed, round(1000 * h)])
    X = rng.standard_normal((ROWS, COLUMNS))
    noise = rng.lognormal(0, SIGMA, ROWS) - np.exp(SIGMA**2 / 2)
    return X, X.sum(axis=1) + noise * (1 + h * X[:, 0])


def write_files(folder: Path, X: np.ndarray, y: np.ndarray) -> None:
    """Files as pyarrow writes them by default, compressed."""
    for number, part in enumerate(np.array_split(np.arange(ROWS), FILES)):
        columns = {f"x{j}": X[part, j] for j in range(COLUMNS)}
        pq.write_table(pa.table(columns | {"y": y[part]}), folder / f"{number}.parquet")


def excess_risk(coef: np.ndarray, intercept: float) -> float:
    """E(prediction − mean)², for standard normal features."""
    return float(((coef - 1) ** 2).sum() + intercept**2)


def risks(folder: Path, seed: int, h: float) -> dict[str, float]:
    X, y = draw(seed, h)
    write_files(folder, X, y)
    fits = {
        "files": tp.fit(tp.RobustRegressor(random_state=seed), folder),
        "memory": tp.RobustRegressor(random_state=seed).fit(X, y),
        "DC-SGD": tp.fit(tp.DCSGDRegressor(random_state=seed), folder),
    }
    found = {name: excess_risk(fit.coef_, fit.intercept_) for name, fit in fits.items()}
    gap = np.linalg.norm(fits["files"].coef_ - fits["memory"].coef_)
    found["gap"] = float(gap / np.linalg.norm(fits["memory"].coef_ - 1))
    mean = np.append(X.mean(axis=0), 1.0)
    gram = np.block([[X.T @ X / ROWS, mean[:-1, None]], [mean]])
    plain = np.linalg.solve(gram, np.append(X.T @ y / ROWS, y.mean()))
    return found | {"least squares": excess_risk(plain[:-1], plain[-1])}


def measured(code: str, folder: Path, threads: dict[str, str]) -> dict:
    """Processor time and peak memory of a process of its own."""
    command = [sys.executable, "-c", code + _MEASURE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | threads)
    return json.loads(done.stdout.splitlines()[-1])


def costs(folder: Path, h: float, repeats: int = 3) -> list[Ratio]:
    """Of the draw in the folder; where noise grows, a model of its size asks for one more pass."""
    robust = _FIT.format(estimator="RobustRegressor")
    codes = {
        "read": (_READ, ONE_THREAD),
        "rows": (_READ_ROWS, ONE_THREAD),
        "DC-SGD": (_FIT.format(estimator="DCSGDRegressor"), ONE_THREAD),
        "robust": (robust, ONE_THREAD),
        "robust, threads by default": (robust, {}),
    }
    runs = [
        {name: measured(code, folder, threads) for name, (code, threads) in codes.items()}
        for _ in range(repeats)
    ]
    seconds = {name: min(run[name]["seconds"] for run in runs) for name in codes}
    peak = max(run["robust"]["peak"] for run in runs) / 1e9
    said = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    return [
        Ratio(
            f"h = {h:g}: processor time / three reads", seconds["robust"] / seconds["read"], 4, detail=said
        ),
        Ratio(
            f"h = {h:g}: processor time / three reads, threads of linear algebra by default",
            seconds["robust, threads by default"] / seconds["read"],
        ),
        Ratio(f"h = {h:g}: processor time / three reads of rows", seconds["robust"] / seconds["rows"]),
        Ratio(f"h = {h:g}: processor time / DC-SGD", seconds["robust"] / seconds["DC-SGD"]),
        Ratio(f"h = {h:g}: peak memory, GB", peak, 1.5),
    ]


def run(draws: int = DRAWS) -> list[Ratio]:
    ratios = []
    folder = Path(tempfile.mkdtemp(prefix="tailproof-bench-"))
    try:
        for h in HETEROSCEDASTIC:
            found = [risks(folder, FIRST + number, h) for number in range(draws)]
            mean = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
            said = ", ".join(f"{name} {value:.2g}" for name, value in mean.items() if name != "gap")
            for name in ("memory", "least squares", "DC-SGD"):
                ratio = mean["files"] / mean[name]
                ratios.append(Ratio(f"h = {h:g}: excess risk / {name}", ratio, detail=said))
            best = [one["files"] / min(one["memory"], one["least squares"]) for one in found]
            ratios.append(Ratio(f"h = {h:g}: worst draw / better of memory, least squares", max(best), 1.2))
            gaps = [one["gap"] for one in found]
            ratios.append(Ratio(f"h = {h:g}: distance to the fit in memory, of its error", max(gaps), 0.01))
            ratios += costs(folder, h)
    finally:
        shutil.rmtree(folder)
    return ratios


if __name__ == "__main__":
    show("robust_regressor_out_of_core", run(*map(int, sys.argv[1:])))
