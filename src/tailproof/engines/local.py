"""Candidates on this machine: in threads, since the kernels release the GIL, or wherever joblib runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from joblib import effective_n_jobs
from sklearn.utils.parallel import Parallel, delayed


@dataclass(frozen=True)
class LocalEngine:
    """Threads of this process.

    Parameters
    ----------
    n_jobs : int or None
        As in joblib: None is 1 unless a ``joblib.parallel_config`` says otherwise, -1 all cores.

    Examples
    --------
    >>> LocalEngine(n_jobs=2).run(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    n_jobs: int | None = None

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        """Return ``[function(task) for task in tasks]``."""
        threads = effective_n_jobs(self.n_jobs)
        if threads == 1:
            return [function(task) for task in tasks]
        # A bare pool: joblib's own threads take longer to start than a small block takes to train.
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(function, tasks))


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
