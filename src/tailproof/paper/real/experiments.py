"""The two experiments of section 4.3 as data: settings are a data set and a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from tailproof.core.lookup import optional
from tailproof.paper.experiments import Experiment, Record, Setting
from tailproof.paper.real.data import SETS, load
from tailproof.paper.variants import Choices

MODELS = {"logistic": 0, "FF_L1": 1, "FF_L2": 2, "FF_L3": 3}  # hidden layers
FACTORS = (1, 2, 4, 8)  # of the base step
METRICS = ("test_loss", "test_accuracy", "train_accuracy")
METHODS = ("bench", "DC-SGD", "RV-SGDAve")
CHANCE = "chance"

Trial = tuple[str, int]


def curve(method: str, factor: int, metric: str) -> str:
    """Name under which a curve is kept.

    Examples
    --------
    >>> curve("bench", 4, "test_loss")
    'bench x4 test_loss'
    """
    return f"{method} x{factor} {metric}"


@dataclass(frozen=True)
class RealSetting:
    """One data set and one model; ``budgets`` names the curves of a trial, as in other experiments."""

    dataset: str
    model: str
    budgets: Mapping[str, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = [curve(m, f, metric) for m in METHODS for f in FACTORS for metric in METRICS]
        object.__setattr__(self, "budgets", dict.fromkeys([*names, CHANCE], 0.0))

    @property
    def name(self) -> str:
        """Both, in one word."""
        return f"{self.dataset} {self.model}"


def real_experiment(name: str, folder: str | Path | None = None) -> Experiment:
    """Make real-e1 (logistic regression, looks at every epoch) or real-e2 (four models, looks at the end).

    Parameters
    ----------
    name : {"real-e1", "real-e2"}
    folder : path, optional
        Of local data files; see :func:`tailproof.paper.real.data.load`.
    """
    models = ["logistic"] if name == "real-e1" else list(MODELS)
    settings = tuple(RealSetting(dataset, model) for dataset in SETS for model in models)
    title = {"real-e1": "Real data, convex risk", "real-e2": "Real data, linear and other models"}[name]
    return Experiment(
        name,
        title,
        cast("tuple[Setting, ...]", settings),
        trials=5,
        full_trials=50 if name == "real-e1" else 25,
        run_many=partial(run_many, folder=folder),
    )


def run_many(
    experiment: Experiment, choices: Choices, missing: list[Trial], *, folder: str | Path | None = None
) -> Iterator[tuple[Trial, list[Record]]]:
    """Train what is missing, all trials of a setting together."""
    for dataset in SETS:
        mine = [pair for pair in missing if pair[0].startswith(f"{dataset} ")]
        if mine:
            yield from _of_dataset(experiment, choices, mine, dataset, folder)


def _of_dataset(
    experiment: Experiment, choices: Choices, missing: list[Trial], dataset: str, folder: Any
) -> Iterator[tuple[Trial, list[Record]]]:
    optional("torch", extra="torch")
    from tailproof.paper.real.training import Task, run_trials

    data = load(dataset, folder)
    for model, hidden in MODELS.items():
        setting = f"{dataset} {model}"
        trials = [trial for name, trial in missing if name == setting]
        every = experiment.name == "real-e1"
        task = Task(data, hidden, SETS[dataset].base_step, choices.rows, choices.seed, every)
        yield from (((setting, trial), records) for trial, records in run_trials(task, trials))
