"""Every example runs, without a warning, and has something to say."""

import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = {path.stem: path for path in sorted((Path(__file__).parents[2] / "examples").glob("*.py"))}
WITH_WORKERS = ["claims_dask"]  # its workers import the main module


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in WITH_WORKERS])
def test_example_runs(name, capsys):
    plt.switch_backend("agg")
    runpy.run_path(str(EXAMPLES[name]), run_name="__main__")
    plt.close("all")
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", WITH_WORKERS)
def test_example_with_workers_runs(name):
    command = [sys.executable, "-W", "error", str(EXAMPLES[name])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
