"""``tailproof fit`` on a CSV of a million rows, beside reading the same file with pyarrow."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from run import Ratio, best_times
from tailproof.model_files.files import save
from tailproof.tables.model import fit_table, prepare
from tailproof.tables.reading import read_table

ROWS = 1_000_000
METHODS = ("dc", "rv", "auto")


def claims(n: int) -> pa.Table:
    """Amounts with a heavy tail, and columns of the kinds that such files have."""
    rng = np.random.default_rng(0)
    numbers = {f"x{j}": np.round(rng.standard_normal(n), 4) for j in range(6)}
    region = np.array(["north", "south", "east", "west"])[rng.integers(0, 4, n)]
    age = rng.integers(18, 90, n)
    amount = 50 + 10 * numbers["x0"] + 5 * (region == "north") + 0.2 * age + rng.lognormal(0, 1.75, n)
    return pa.table(numbers | {"region": region, "age": age, "amount": np.round(amount, 2)})


def whole_command(path: Path, method: str, out: Path) -> float:
    """Seconds of the command as a user runs it, start of Python and all."""
    start = time.perf_counter()
    arguments = ["fit", str(path), "--target", "amount", "--method", method, "--out", str(out)]
    subprocess.run([sys.executable, "-m", "tailproof", *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "claims.csv", Path(folder) / "model"
        csv.write_csv(claims(ROWS), path)

        def fit(method: str) -> None:
            save(fit_table(prepare(read_table(path), "amount"), method, {"random_state": 0}), out)

        calls = [lambda: csv.read_csv(path), lambda: prepare(read_table(path), "amount")]
        calls += [lambda method=method: fit(method) for method in METHODS]
        reading, preparing, *fitting = best_times(*calls, repeats=3)
        said = f"{ROWS:,} rows, {path.stat().st_size / 1e6:.0f} MB; pyarrow reads it in {reading:.2f} s"
        found = [Ratio("read and encode / pyarrow's read", preparing / reading, None, detail=said)]
        for method, seconds in zip(METHODS, fitting, strict=True):
            found.append(
                Ratio(f"fit --method {method} / pyarrow's read", seconds / reading, 2.0, detail=said)
            )
        for method in METHODS:
            seconds = whole_command(path, method, out)
            words = "with the start of Python and its imports"
            found.append(Ratio(f"the command, --method {method}, in seconds", seconds, detail=words))
    return found
