"""Modules of tailproof whose functions run during one fit: how far a reader has to go to follow it.

``python benchmarks/count_modules.py`` prints the modules of ``DCSGDRegressor().fit`` on an array and of
``tp.fit`` on Parquet files, in the order of the first call. Compiled code is not counted.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def modules_of(function: Callable[[], object]) -> list[str]:
    """Modules of tailproof whose functions run in this thread or another, in the order of the first call."""
    seen: dict[str, None] = {}

    def watch(frame: Any, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        counts = name.startswith("tailproof.") and not name.startswith("tailproof.native")
        if event == "call" and counts and frame.f_code.co_name != "<module>":
            seen.setdefault(name.removeprefix("tailproof."))

    function()  # once before, so that nothing is imported or compiled while it is watched
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return list(seen)


def fit_on_an_array() -> list[str]:
    """Modules of ``DCSGDRegressor().fit``."""
    import tailproof as tp

    X, y = _rows()
    model = tp.DCSGDRegressor(random_state=0)
    return modules_of(lambda: model.fit(X, y))


def fit_on_parquet() -> list[str]:
    """Modules of ``tp.fit`` on two Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import tailproof as tp

    X, y = _rows()
    with tempfile.TemporaryDirectory() as folder:
        for part in range(2):
            columns = {f"x{j}": column for j, column in enumerate(X[part::2].T)} | {"y": y[part::2]}
            pq.write_table(pa.table(columns), Path(folder) / f"{part}.parquet")
        model = tp.DCSGDRegressor(random_state=0)
        return modules_of(lambda: tp.fit(model, f"{folder}/*.parquet", "y"))


def _rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4_000, 5))
    return X, X.sum(axis=1) + rng.standard_t(2.5, 4_000)


if __name__ == "__main__":
    for name, modules in (("array", fit_on_an_array()), ("Parquet", fit_on_parquet())):
        print(f"{name}: {len(modules)} modules: {', '.join(modules)}")
