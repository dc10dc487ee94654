"""Every example runs, without a warning, and has something to say."""

import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = {path.stem: path for path in sorted((Path(__file__).parents[2] / "examples").glob("*.py"))}
WITH_WORKERS = ["claims_dask"]  # its workers import the main module
# What networks need to say something takes half a minute; to run takes less.
SMALL = {
    "torch_convnet": {"epochs": 2},
    "torch_federated": {"rounds": 2},
    "torch_heavy_tails": {"n": 600, "epochs": 2},
    "torch_lstm": {"n": 300, "epochs": 2},
}


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in WITH_WORKERS])
def test_example_runs(name, capsys):
    plt.switch_backend("agg")
    example = runpy.run_path(str(EXAMPLES[name]), run_name=name if name in SMALL else "__main__")
    if name in SMALL:
        example["main"](**SMALL[name])
    plt.close("all")
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", WITH_WORKERS)
def test_example_with_workers_runs(name):
    command = [sys.executable, "-W", "error", str(EXAMPLES[name])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
