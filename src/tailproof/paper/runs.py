"""Running the trials that are missing, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from joblib import Parallel, cpu_count, delayed

from tailproof.paper.catalogue import get_experiment
from tailproof.paper.experiments import Experiment, Record, run_trial
from tailproof.paper.store import Store
from tailproof.paper.variants import Choices

Trial = tuple[str, int]


def run(
    store: Store,
    trials: int | None = None,
    *,
    full: bool = False,
    jobs: int | None = None,
    only: str = "",
    on_start: Callable[[int, int], object] = lambda done, total: None,
    on_trial: Callable[[], object] = lambda: None,
) -> int:
    """Run what is missing, each trial kept as soon as it is finished; return how many ran.

    Parameters
    ----------
    store : Store
    trials : int, optional
        Of each setting; by default the experiment's own number, or with ``full`` the paper's.
    full : bool
        The paper's settings and number of trials.
    jobs : int, optional
        Processes, or threads on real data; default all cores. Timed experiments run one trial at a time
        whatever it says, since neighbours would be measured along.
    only : str
        Run the settings with this in their name.
    on_start, on_trial : callable
        Told how many trials are there and how many there will be, and of each one that ended.
    """
    experiment = store.experiment
    wanted = trials if trials is not None else (experiment.full_trials if full else experiment.trials)
    if wanted < 1:
        raise ValueError(f"the number of trials must be at least 1; got {wanted}")
    if jobs is not None and jobs < 1:
        raise ValueError(f"the number of jobs must be at least 1; got {jobs}")
    store.open()
    settings = [setting.name for setting in experiment.settings_to_run(full) if only in setting.name]
    if not settings:
        every = ", ".join(setting.name for setting in experiment.settings)
        raise ValueError(f"no setting of {experiment.name} has {only!r} in its name; there are {every}")
    missing = store.missing(settings, wanted)
    on_start(wanted * len(settings) - len(missing), wanted * len(settings))
    workers = 1 if experiment.timed else jobs or cpu_count()
    for (setting, trial), records in _finished(experiment, store.choices, missing, workers):
        store.write(setting, trial, records)
        on_trial()
    return len(missing)


def _finished(
    experiment: Experiment, choices: Choices, missing: list[Trial], workers: int
) -> Iterator[tuple[Trial, list[Record]]]:
    """Yield trials in the order in which they end."""
    if experiment.run_many is not None:
        yield from experiment.run_many(experiment, choices, missing, workers)
        return
    if min(workers, len(missing)) <= 1:
        yield from (_one(experiment.name, pair, choices) for pair in missing)
        return
    parallel = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)
    yield from parallel(delayed(_one)(experiment.name, pair, choices) for pair in missing)


def _one(name: str, pair: Trial, choices: Choices) -> tuple[Trial, list[Record]]:
    # By name: the worker builds the experiment itself, and nothing large travels.
    experiment = get_experiment(name, choices)
    return pair, run_trial(experiment, experiment.setting(pair[0]), pair[1], choices)
