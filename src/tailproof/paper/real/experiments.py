"""The two experiments of section 4.3 as data: settings are a data set and a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from tailproof.core.lookup import optional
from tailproof.paper.experiments import Experiment, Record, Setting
from tailproof.paper.real.data import DATA_SETS, load
from tailproof.paper.real.settings import NETWORKS, RealSetting
from tailproof.paper.variants import Choices

Trial = tuple[str, int]


def run_many(
    experiment: Experiment, choices: Choices, missing: list[Trial], *, folder: str | Path | None = None
) -> Iterator[tuple[Trial, list[Record]]]:
    """Train what is missing, all trials of a setting together."""
    optional("torch", extra="torch")
    from tailproof.paper.real.training import RealRun, run_trials

    for dataset, spec in DATA_SETS.items():
        wanted = {
            network: [trial for name, trial in missing if name == f"{dataset} {network}"]
            for network in NETWORKS
        }
        if not any(wanted.values()):
            continue
        data, every = load(dataset, folder), experiment.name == "real-e1"
        for network, trials in wanted.items():
            task = RealRun(data, NETWORKS[network], spec.base_step, choices.rows, choices.seed, every)
            yield from (((f"{dataset} {network}", t), records) for t, records in run_trials(task, trials))


def _experiment(name: str, title: str, networks: list[str], full_trials: int) -> Experiment:
    settings = tuple(RealSetting(dataset, network) for dataset in DATA_SETS for network in networks)
    return Experiment(name, title, cast("tuple[Setting, ...]", settings), 5, full_trials, run_many=run_many)


REAL_EXPERIMENTS: dict[str, Callable[[Choices], Experiment]] = {
    "real-e1": lambda choices: _experiment("real-e1", "Real data, convex risk", ["logistic"], 50),
    "real-e2": lambda choices: _experiment("real-e2", "Real data, linear and other models", [*NETWORKS], 25),
}
