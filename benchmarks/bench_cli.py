"""``tailproof fit`` on a CSV of a million rows, beside reading the same file with pyarrow.

Both in processor time: in one process, where memory is there from earlier runs, and each in a process of its
own, as somebody who runs the command has it. There, modules are loaded before, and so is memory: what the
host of a virtual machine takes back while it is free costs 2 to 3 ms a megabyte when it is touched again, and
the larger program would pay for what the smaller one left untouched. The detail has the figure without that.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from run import Ratio
from tailproof.cli.app import app
from tailproof.tables.model import prepare
from tailproof.tables.reading import read_table

ROWS, REPEATS, TARGET = 1_000_000, 5, 3.0
TOUCHED = 125_000_000  # numbers, a gigabyte: more than either needs
METHODS = ("auto", "dc", "rv")
_FRESH = """
import contextlib, io, sys, time
import numpy as np, safetensors.numpy
from pyarrow import csv
from tailproof.cli.app import app
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    app(["fit", "--help"])  # which imports what typer needs on its way
memory = np.ones({touched})
del memory
start = time.process_time()
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    {work}
print(time.process_time() - start)
"""


def claims(n: int) -> pa.Table:
    """Amounts with a heavy tail, and columns of the kinds that such files have."""
    rng = np.random.default_rng(0)
    numbers = {f"x{j}": np.round(rng.standard_normal(n), 4) for j in range(6)}
    region = np.array(["north", "south", "east", "west"])[rng.integers(0, 4, n)]
    age = rng.integers(18, 90, n)
    amount = 50 + 10 * numbers["x0"] + 5 * (region == "north") + 0.2 * age + rng.lognormal(0, 1.75, n)
    return pa.table(numbers | {"region": region, "age": age, "amount": np.round(amount, 2)})


def processor_seconds(call: Callable[[], object]) -> float:
    """Of all threads, for one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def fresh_seconds(work: str, touched: int) -> float:
    """The same for a line of code in a process of its own, without its imports."""
    code = _FRESH.format(work=work, touched=touched)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def command(arguments: list[str]) -> None:
    """Run the command in this process, quietly."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        app(arguments)


def alternating(calls: list[Callable[[], float]]) -> list[float]:
    """Median seconds of each, in turn so that a busy machine slows all alike, after one turn to warm up."""
    turns = [[call() for call in calls] for _ in range(REPEATS + 1)][1:]
    return np.median(turns, axis=0).tolist()


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "claims.csv", Path(folder) / "model"
        csv.write_csv(claims(ROWS), path)
        fits = [
            ["fit", str(path), "--target", "amount", "--method", method, "--out", str(out)]
            for method in METHODS
        ]
        works = [
            lambda: csv.read_csv(path),
            lambda: prepare(read_table(path), "amount"),
            *(lambda words=words: command(words) for words in fits),
        ]
        reading, preparing, *fitting = alternating(
            [lambda work=work: processor_seconds(work) for work in works]
        )
        lines = [f"csv.read_csv({str(path)!r})", f"app({fits[0]!r})"]
        fresh, cold = (
            alternating([lambda line=line, touched=touched: fresh_seconds(line, touched) for line in lines])
            for touched in (TOUCHED, 1)
        )
    said = f"{ROWS:,} rows; pyarrow reads them in {reading:.2f} s of processor time"
    ratios = [Ratio("read and encode / pyarrow's read", preparing / reading, detail=said)]
    for method, seconds in zip(METHODS, fitting, strict=True):
        ratios.append(
            Ratio(f"fit --method {method} / pyarrow's read", seconds / reading, TARGET, detail=said)
        )
    detail = (
        f"{fresh[1]:.2f} s and {fresh[0]:.2f} s, imports not counted; {cold[1] / cold[0]:.2f} with memory "
        "that is touched for the first time"
    )
    ratios.append(
        Ratio("the same, auto, each in a fresh process", fresh[1] / fresh[0], TARGET, detail=detail)
    )
    return ratios
