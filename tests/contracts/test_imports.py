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
    listing = "; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    loaded = fresh("import sys, json, tailproof" + listing)
    # scikit-learn imports pandas, and pandas pyarrow, wherever they are installed.
    by_sklearn = fresh("import sys, json, sklearn.linear_model" + listing)
    assert "numpy" in loaded
    assert [name for name in HEAVY if name in loaded and name not in by_sklearn] == []


def test_no_more_of_scikit_learn_than_is_needed():
    loaded = fresh("import sys, json, tailproof; print(json.dumps(sorted(sys.modules)))")
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


def test_import_touches_no_global_state():
    before, after = fresh("""
import json, random, warnings
import numpy as np, sklearn.linear_model, threadpoolctl
def state():
    return [repr(np.random.get_state()), repr(random.getstate()), repr(warnings.filters), np.geterr(),
            threadpoolctl.threadpool_info()]
before = state()
import tailproof
print(json.dumps([before, state()]))
""")
    assert before == after
