"""Candidates on this machine: in threads, since the kernels release the GIL, or wherever joblib runs."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from threading import Thread
from typing import Any

from joblib import cpu_count, effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.utils.parallel import Parallel, delayed

# Their fits use OpenMP: its threads do not survive a fork, and the child waits for them.
_WITH_OPENMP = ("sklearn.ensemble._hist_gradient_boosting", "lightgbm", "xgboost", "catboost")
_WORTH_THREADS = 5_000_000  # numbers to read: below, threads take longer to start than they save
_TASKS = 2  # for each thread, so that none waits long for the last of the others


@dataclass(frozen=True)
class LocalEngine:
    """Threads of this process.

    Parameters
    ----------
    n_jobs : int or None
        As in joblib, -1 being all cores; but None, too, is all cores, unless a ``joblib.parallel_config``
        asks for another number of jobs, or a job of joblib's is where this runs.
    cells : int
        Numbers to read in a run. Where they are few, None is one thread, which is then the fastest.

    Examples
    --------
    >>> LocalEngine(n_jobs=2).run(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    n_jobs: int | None = None
    cells: int = 0

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        """Return ``[function(task) for task in tasks]``."""
        if self._threads == 1:
            return [function(task) for task in tasks]
        return _in_threads(function, list(tasks), self._threads)

    @property
    def at_once(self) -> int:
        """How many tasks keep all threads busy."""
        return 1 if self._threads == 1 else _TASKS * self._threads

    @cached_property
    def _threads(self) -> int:
        threads = int(effective_n_jobs(self.n_jobs))
        alone = get_active_backend()[0].nesting_level == 0
        if self.n_jobs is None and threads == 1 and alone and self.cells >= _WORTH_THREADS:
            return int(cpu_count())
        return threads


def _in_threads(function: Callable[[Any], Any], tasks: list[Any], threads: int) -> list[Any]:
    """Return ``[function(task) for task in tasks]``, where this thread works along with others.

    Bare threads: those of a pool, or of joblib, take longer to start than a small block takes to train.
    """
    results: list[Any] = [None] * len(tasks)
    errors: list[BaseException] = []
    left = iter(range(len(tasks)))  # its next number goes to one thread, whichever asks

    def work() -> None:
        try:
            for number in left:
                if errors:
                    return
                results[number] = function(tasks[number])
        except BaseException as error:  # an interrupt as well: it is raised below, once no thread works
            errors.append(error)

    others = [Thread(target=work, daemon=True) for _ in range(min(threads, len(tasks)) - 1)]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
    return results


@dataclass(frozen=True)
class JoblibEngine:
    """Wherever joblib runs: for learners that hold the GIL, or that belong on other machines.

    ``joblib.parallel_config(backend=...)`` moves the tasks to any backend that joblib knows; scikit-learn's
    own settings (metadata routing, for instance) go along.

    Parameters
    ----------
    n_jobs : int or None
        As in joblib.

    Examples
    --------
    >>> JoblibEngine().run(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    n_jobs: int | None = None

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        """Return ``[function(task) for task in tasks]``."""
        return list(Parallel(n_jobs=self.n_jobs)(delayed(function)(task) for task in tasks))


def warn_of_forks(estimator: Any, n_jobs: int | None) -> None:
    """Warn before joblib forks this process for fits that may then wait for ever."""
    if type(get_active_backend()[0]).__name__ != "MultiprocessingBackend" or effective_n_jobs(n_jobs) == 1:
        return
    parts = [estimator, *estimator.get_params().values()]
    names = {type(part).__name__ for part in parts if type(part).__module__.startswith(_WITH_OPENMP)}
    if names and multiprocessing.get_context().get_start_method() == "fork":
        warnings.warn(
            f"joblib's 'multiprocessing' backend forks this process, and {', '.join(sorted(names))} may wait "
            "for ever in a fork, since it uses OpenMP: use backend='loky' or 'threading'",
            RuntimeWarning,
            stacklevel=2,
        )
