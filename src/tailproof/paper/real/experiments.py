"""The two experiments of section 4.3 as data: settings are a data set and a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

from tailproof.paper.experiments import Experiment, Record, Setting
from tailproof.paper.real.data import DATA_SETS, load
from tailproof.paper.real.settings import NETWORKS, RealSetting
from tailproof.paper.real.training import RealRun, run_trial
from tailproof.paper.variants import Choices

Trial = tuple[str, int]


def run_many(
    experiment: Experiment,
    choices: Choices,
    missing: list[Trial],
    jobs: int | None = None,
    *,
    folder: str | Path | None = None,
) -> Iterator[tuple[Trial, list[Record]]]:
    """Run what is missing, data set by data set; ``jobs`` threads train the processes of a trial."""
    for dataset, spec in DATA_SETS.items():
        wanted = [pair for pair in missing if pair[0].startswith(f"{dataset} ")]
        if not wanted:
            continue
        every = experiment.name == "real-e1"
        run = RealRun(
            load(dataset, folder), 0, spec.base_step, choices.rows, choices.seed, every, choices.start, jobs
        )
        for setting, trial in wanted:
            yield (setting, trial), run_trial(replace(run, hidden=NETWORKS[setting.split()[1]]), trial)


def _experiment(name: str, title: str, networks: list[str], full_trials: int) -> Experiment:
    settings = tuple(RealSetting(dataset, network) for dataset in DATA_SETS for network in networks)
    return Experiment(name, title, cast("tuple[Setting, ...]", settings), 5, full_trials, run_many=run_many)


REAL_EXPERIMENTS: dict[str, Callable[[Choices], Experiment]] = {
    "real-e1": lambda choices: _experiment("real-e1", "Real data, convex risk", ["logistic"], 50),
    "real-e2": lambda choices: _experiment("real-e2", "Real data, linear and other models", [*NETWORKS], 25),
}
