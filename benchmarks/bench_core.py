"""Robust means against NumPy's, the geometric median against the geom-median package, import time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from tempfile import TemporaryDirectory

import numpy as np
from geom_median.numpy import compute_geometric_median

from run import Ratio, best_times
from tailproof.core import means, merge


def run() -> list[Ratio]:
    return [*_means(), *_geometric_median(), *_small_merges(), _import_time()]


def _means() -> list[Ratio]:
    u = np.random.default_rng(0).lognormal(0, 1.75, 1_000_000)
    mean, median, mom, catoni, truncated = best_times(
        lambda: np.mean(u),
        lambda: np.median(u),
        lambda: means.median_of_means(u),
        lambda: means.catoni(u),
        lambda: means.truncated_mean(u),
        repeats=15,
    )
    return [
        Ratio("catoni / np.median, 1e6 values", catoni / median, 1.0, detail=f"{1e3 * catoni:.2f} ms"),
        Ratio("median_of_means / np.mean, 1e6 values", mom / mean, 3.0, detail=f"{1e3 * mom:.2f} ms"),
        Ratio(
            "truncated_mean / np.median, 1e6 values", truncated / median, detail=f"{1e3 * truncated:.2f} ms"
        ),
    ]


def _geometric_median() -> list[Ratio]:
    points = np.random.default_rng(0).standard_normal((20, 1_000_000))
    rows = list(points)
    ours, peer = best_times(
        lambda: merge.geometric_median(points), lambda: compute_geometric_median(rows), repeats=3
    )

    def objective(v: np.ndarray) -> float:
        return float(sum(np.linalg.norm(v - row) for row in points))

    theirs = objective(compute_geometric_median(rows).median)
    excess = objective(merge.geometric_median(points).point) / theirs - 1
    return [
        Ratio("geom-median / geometric_median, 20 × 1e6", peer / ours, 10.0, True, f"{1e3 * ours:.0f} ms"),
        Ratio("  objective above geom-median's, relative", excess, 1e-15),
    ]


def _small_merges() -> list[Ratio]:
    """Milliseconds of one merge: a gradient descent may ask for one at every step."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((10, 16))
    close = points.copy()
    close[:6] = points[0] + 1e-9 * rng.standard_normal((6, 16))
    apart, near = best_times(
        lambda: merge.geometric_median(points), lambda: merge.geometric_median(close), repeats=200
    )
    return [
        Ratio("geometric_median, 10 × 16, milliseconds", 1e3 * apart),
        Ratio("  six of them within 1e-9, milliseconds", 1e3 * near),
    ]


def _import_time() -> Ratio:
    """Processor time, since an import waits for the disk; both from compiled files, as they are installed."""

    def fresh(code: str, compiled: str) -> float:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-X", f"pycache_prefix={compiled}", "-c", code], check=True, env=kept)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    imports = "import tailproof", "import sklearn.linear_model"
    with TemporaryDirectory() as folder:
        runs = [[fresh(code, folder) for code in imports] for _ in range(16)][1:]  # the first one compiles
    ours, base = (min(times) for times in zip(*runs, strict=True))
    name = "import tailproof / import sklearn.linear_model"
    return Ratio(name, ours / base, 1.15, detail=f"{ours:.2f} s")
