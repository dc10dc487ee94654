"""What ``import tailproof`` may load and touch, looked at in a fresh interpreter."""

import json
import subprocess
import sys

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


def test_no_heavy_package_is_imported():
    loaded = fresh(
        "import sys, json, tailproof; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    assert "numpy" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_import_touches_no_global_state():
    before, after = fresh("""
import json, random, warnings
import numpy as np, sklearn.linear_model, numba
def state():
    return [repr(np.random.get_state()), repr(random.getstate()), repr(warnings.filters), np.geterr(),
            numba.get_num_threads()]
before = state()
import tailproof
print(json.dumps([before, state()]))
""")
    assert before == after
