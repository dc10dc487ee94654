"""Candidates next to their rows on a Dask cluster: tasks where the partitions are, candidates travel.

The candidate of a block goes from one of its partitions to the next, a vector each time; rows stay where
they are. A task of a lost worker runs again from the same partition and the same vector, so the result is
the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.data.engines.dask_data import RETRIES, DaskData
from tailproof.data.first_look import usable_rows
from tailproof.data.readers.batches import Batch, Reading

_ATTEMPTS = 5  # of a pass in which a worker was lost
_PATIENCE = 1.0  # seconds between two looks whether the workers are still there
_STALLED = 60.0  # seconds without a finished task, after which we look why
_TOGETHER = 16  # partitions that one task visits, at most


class DaskEngine:
    """Trains and measures where the partitions are.

    Tasks are bound to the worker that holds their partition: the scheduler would rather move rows to a
    worker that is idle. Where a worker is lost, its partitions are loaded again, and a pass goes on from the
    last candidates that another worker holds.

    Parameters
    ----------
    data : DaskData
    reading : Reading
    on_rows : callable
        Told the number of rows of every finished pass.
    """

    def __init__(self, data: DaskData, reading: Reading, on_rows: Callable[[int], None]) -> None:
        self.client, self.data, self.reading, self.on_rows = data.client, data, reading, on_rows
        self.partitions = data.load(reading, list(range(len(data))))

    def train(self, training: Any, states: list[Any]) -> list[Any]:
        """Candidates of all candidates over one more pass."""
        candidates = {block: training.begin(state) for block, state in enumerate(states)}
        chains = list(_chains(training, candidates, 2 * sum(self.client.nthreads().values())))

        def submit(places: list[str]) -> list[Any]:
            # Settings travel to each worker once, candidates with the tasks.
            shared = self.client.scatter(training, broadcast=True, hash=False)
            held = self._held([future for chain in chains for _, future in chain.steps])
            for chain in chains:
                behind, candidates = chain.resumed(held)
                for place, group in _neighbours(chain.pieces[behind:], places):
                    behind += len(group)
                    batches = [self.partitions[piece] for piece in group]
                    candidates = self._task(place, _train_pieces, shared, candidates, batches)
                    chain.steps.append((behind, candidates))
            return [chain.steps[-1][1] for chain in chains]

        for trained in self._settled(submit):
            candidates |= trained
        self.on_rows(sum(candidate.rows for candidate in candidates.values()))
        return [candidates[block] for block in range(len(states))]

    def _held(self, futures: list[Any]) -> set[str]:
        """Keys of the futures whose results some worker has."""
        if not futures:
            return set()
        return {key for key, places in self.client.who_has(futures).items() if places}

    def reduce(self, measure: Any) -> Array:
        """Sum of a measure over all partitions, added on the workers."""

        def add(sums: list[Any]) -> Any:
            return self.client.submit(measure.add, sums, pure=False, retries=RETRIES)

        def submit(places: list[str]) -> list[Any]:
            shared = self.client.scatter(measure, broadcast=True, hash=False)
            parts: list[Any] = [None] * len(places)
            for place in set(places):
                here = [piece for piece, other in enumerate(places) if other == place]
                futures = self.client.map(
                    _over_piece,
                    [shared] * len(here),
                    [self.partitions[piece] for piece in here],
                    workers=[place],
                    pure=False,
                    retries=RETRIES,
                )
                for piece, future in zip(here, futures, strict=True):
                    parts[piece] = future
            return [measure.total(parts, add)]

        return np.asarray(self._settled(submit)[0])

    def survey(self, survey: Any) -> list[Any]:
        """What every partition shows."""

        def submit(places: list[str]) -> list[Any]:
            order = sorted(range(len(places)), key=lambda piece: places[piece])
            return [
                self._task(place, _over_pieces, survey, {piece: self.partitions[piece] for piece in group})
                for place, group in _neighbours(order, places)
            ]

        shown = {piece: seen for answer in self._settled(submit) for piece, seen in answer.items()}
        return [shown[piece] for piece in range(len(self.partitions))]

    def usable_rows(self, seen: list[Any]) -> Array:
        """Rows to learn from in each partition, which the survey has counted."""
        return usable_rows(seen)

    def _settled(self, submit: Callable[[list[str]], list[Any]]) -> list[Any]:
        """Results of tasks that are bound to the partitions' workers, whatever happens to these."""
        from distributed import CancelledError

        lost: Exception = _LostWorkerError("no worker held all partitions")
        for _ in range(_ATTEMPTS):
            try:
                places = self._places()
                futures = submit(places)
                self._wait(futures, set(places))
                _raise_failure(futures)
                return list(self.client.gather(futures))
            except _FailedTaskError as failed:
                raise failed.args[0] from None
            except (_LostWorkerError, CancelledError, OSError) as error:  # of connections, not of tasks
                lost = error  # once more, from candidates of the same pass, so to the same result
        raise RuntimeError(
            f"workers were lost {_ATTEMPTS} times in one pass ({type(lost).__name__}: {lost}): give them "
            "more memory, or make the partitions smaller"
        ) from lost

    def _task(self, place: str, function: Callable[..., Any], *args: Any) -> Any:
        return self.client.submit(function, *args, workers=[place], pure=False, retries=RETRIES)

    def _places(self) -> list[str]:
        """Return the worker of each partition, after loading again those that are lost."""
        alive = self.client.nthreads()
        held = self.client.who_has(self.partitions)
        places = [[place for place in held.get(f.key, ()) if place in alive] for f in self.partitions]
        lost = [piece for piece, holders in enumerate(places) if not holders]
        if lost and self._tried:
            for piece, future in zip(lost, self.data.load(self.reading, lost), strict=True):
                self.partitions[piece] = future
        bound = {place for holders in places for place in holders}
        self._tried = True
        self._wait(self.partitions, bound)
        _raise_failure(self.partitions)
        held = self.client.who_has(self.partitions)
        if not all(held.get(future.key) for future in self.partitions):
            raise _LostWorkerError
        return [next(iter(held[future.key])) for future in self.partitions]

    _tried = False

    def _wait(self, futures: list[Any], bound: set[str]) -> None:
        """Wait for futures as long as the workers they are bound to are there."""
        from distributed import wait

        waiting = [future for future in futures if hasattr(future, "key")]
        done, idle = -1, 0.0
        while True:
            try:
                wait(waiting, timeout=_PATIENCE)
                return
            except TimeoutError:
                if not bound <= set(self.client.nthreads()):
                    raise _LostWorkerError("a worker that held partitions is gone") from None
            before, done = done, sum(future.done() for future in waiting)
            idle = idle + _PATIENCE if done == before else 0.0
            if idle >= _STALLED:
                self._say_why_nothing_happens()
                idle = 0.0

    def _say_why_nothing_happens(self) -> None:
        """Warn where no worker can take a task; tasks that only take long are nobody's concern."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        if all(worker.get("status") == "paused" for worker in workers):
            reason = "all of its workers are paused, as they are when their memory is nearly full"
            reason = reason if workers else "it has no workers"
            warnings.warn(
                f"the Dask cluster makes no progress: {reason}; the fit goes on when that changes",
                UserWarning,
                stacklevel=2,
            )


class _FailedTaskError(Exception):
    """A task has failed by itself, with the exception given: bad rows, most likely."""


def _raise_failure(futures: list[Any]) -> None:
    """Raise if a task has failed by itself, or because the workers it ran on were lost."""
    from distributed import KilledWorker

    for future in futures:
        if getattr(future, "status", "") == "error":
            reason = future.exception()
            raise _LostWorkerError(reason) if isinstance(reason, KilledWorker) else _FailedTaskError(reason)


class _LostWorkerError(RuntimeError):
    """A worker that held a partition is gone."""


@dataclass(eq=False)
class _Chain:
    """Candidates that go through the same pieces together, in one task after another.

    Attributes
    ----------
    pieces : list of int
        In the order of the pass.
    candidates : dict
        By block, before the first piece.
    steps : list
        For each task, how many pieces are behind it, and the future of the candidates there.
    """

    pieces: list[int]
    candidates: dict[int, Any]
    steps: list[tuple[int, Any]] = field(default_factory=list)

    def resumed(self, held: set[str]) -> tuple[int, Any]:
        """Forget the steps after the last one whose result is held; give what is there."""
        while self.steps and self.steps[-1][1].key not in held:
            self.steps.pop()
        return self.steps[-1] if self.steps else (0, self.candidates)


def _chains(training: Any, candidates: dict[int, Any], most: int) -> Iterator[_Chain]:
    """Chains of a pass; blocks that share their pieces share at most so many chains.

    Rows of a piece are dealt once for all candidates of a chain, and chains keep the workers busy.
    """
    sharing: dict[tuple[int, ...], list[int]] = {}
    for block, pieces in _pieces_by_block(training).items():
        sharing.setdefault(tuple(pieces), []).append(block)
    for path, blocks in sharing.items():
        count = min(len(blocks), most)
        for chain_blocks in (blocks[start::count] for start in range(count)):
            yield _Chain(list(path), {block: candidates[block] for block in chain_blocks})


def _train_pieces(training: Any, candidates: dict[int, Any], pieces: list[list[Batch]]) -> dict[int, Any]:
    for batches in pieces:
        candidates = training.over_piece(candidates, batches)
    return candidates


def _over_piece(what: Any, batches: list[Batch]) -> Any:
    return what.over_piece(batches)


def _over_pieces(what: Any, pieces: dict[int, list[Batch]]) -> dict[int, Any]:
    return {piece: what.over_piece(batches) for piece, batches in pieces.items()}


def _pieces_by_block(training: Any) -> dict[int, list[int]]:
    """Pieces of every block in the order of the pass."""
    pieces: dict[int, list[int]] = {}
    for piece in training.dealing.visits(training.number):
        for block in training.dealing.blocks(piece):
            pieces.setdefault(block, []).append(piece)
    return pieces


def _neighbours(pieces: list[int], places: list[str]) -> Iterator[tuple[str, list[int]]]:
    """Cut pieces into runs that are on one worker: a run is one task, which costs more than a small piece."""
    for place, run in groupby(pieces, key=lambda piece: places[piece]):
        group = list(run)
        for start in range(0, len(group), _TOGETHER):
            yield place, group[start : start + _TOGETHER]
