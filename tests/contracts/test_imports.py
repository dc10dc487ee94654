"""What ``import tailproof`` may load and touch, looked at in a fresh interpreter."""

import json
import subprocess
import sys

import pytest

HEAVY = [
    "torch",
    "dask",
    "distributed",
    "pyspark",
    "pandas",
    "polars",
    "matplotlib",
    "pyarrow",
    "typer",
    "rich",
    "jinja2",
]


def fresh(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def loaded():
    return fresh("import sys, json, tailproof; print(json.dumps(sorted(sys.modules)))")


@pytest.fixture(scope="module")
def around():
    """What scikit-learn loads, and global state before and after the import."""
    return fresh("""
import json, random, sys, warnings
import numpy as np, sklearn.linear_model
by_sklearn = sorted(sys.modules)
import threadpoolctl
def state():
    return [repr(np.random.get_state()), repr(random.getstate()), repr(warnings.filters), np.geterr(),
            threadpoolctl.threadpool_info()]
before = state()
import tailproof
print(json.dumps([by_sklearn, before, state()]))
""")


def test_no_heavy_package_is_imported(loaded, around):
    # scikit-learn imports pandas, and pandas pyarrow, wherever they are installed.
    by_sklearn, _, _ = around
    assert "numpy" in loaded
    assert [name for name in HEAVY if name in loaded and name not in by_sklearn] == []


def test_no_more_of_scikit_learn_than_is_needed(loaded):
    late = (
        "model_selection",
        "metrics",
        "inspection",
        "linear_model",
        "ensemble",
        "pipeline",
        "preprocessing",
    )
    assert "sklearn.base" in loaded
    assert [name for name in late if f"sklearn.{name}" in loaded] == []


def test_import_touches_no_global_state(around):
    _, before, after = around
    assert before == after
