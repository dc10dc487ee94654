"""Side by side in one run: every benchmark prints ratios with their targets; all go to results.json."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

SUITES = [
    "core",
    "speed",
    "dc_sgd",
    "steps",
    "real",
    "rgd",
    "torch",
    "networks",
    "robust_net",
    "rounds",
    "meta",
    "selection",
    "two_samples",
    "intervals",
    "diagnose",
    "corruption",
    "robust_regressor",
    "robust_regressor_designs",
    "robust_regressor_rare",
    "robust_regressor_real",
    "robust_regressor_time",
    "robust_regressor_out_of_core",
    "robust_classifier",
    "stream",
    "cluster",
    "online",
    "cli",
]
RESULTS = Path(__file__).parent / "results.json"


@dataclass
class Ratio:
    """One figure beside its target: ``figure`` ≤ target, or ≥ where ``at_least`` is set."""

    name: str
    figure: float
    target: float | None = None
    at_least: bool = False
    detail: str = ""

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        held = self.figure >= self.target if self.at_least else self.figure <= self.target
        return "met" if held else "MISSED"


def best_times(
    *calls: Callable[[], object], repeats: int = 7, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Fastest of several runs of each call, taken in turn so that drift hits all alike; seconds."""
    for call in calls:
        call()
    times = np.full((repeats, len(calls)), np.inf)
    for i in range(repeats):
        for j, call in enumerate(calls):
            start = clock()
            call()
            times[i, j] = clock() - start
    return times.min(axis=0).tolist()


def show(suite: str, ratios: list[Ratio]) -> None:
    table = Table(title=suite)
    for heading in ("what", "figure", "target", "", "detail"):
        table.add_column(heading, justify="right" if heading in ("figure", "target") else "left")
    for ratio in ratios:
        sign = "≥" if ratio.at_least else "≤"
        target = "" if ratio.target is None else f"{sign} {ratio.target:g}"
        table.add_row(ratio.name, f"{ratio.figure:.3g}", target, ratio.verdict, ratio.detail)
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", help="default: all of them")
    chosen = parser.parse_args().suites or SUITES
    unknown = sorted(set(chosen) - set(SUITES))
    if unknown:
        parser.error(f"no suite named {', '.join(unknown)}: there are {', '.join(SUITES)}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for suite in chosen:
        ratios = importlib.import_module(f"bench_{suite}").run()
        show(suite, ratios)
        results[suite] = [asdict(ratio) | {"verdict": ratio.verdict} for ratio in ratios]
    results["machine"] = {
        "processor": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
