"""Candidates on this machine: joblib threads, since the kernels release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs


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
        if effective_n_jobs(self.n_jobs) == 1:
            return [function(task) for task in tasks]
        parallel = Parallel(n_jobs=self.n_jobs, require="sharedmem")
        return list(parallel(delayed(function)(task) for task in tasks))
