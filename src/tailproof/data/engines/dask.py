"""Candidates next to their rows on a Dask cluster: tasks where the partitions are, candidates travel.

The candidate of a block goes from one of its partitions to the next, a vector each time; rows stay where
they are, but for tiny partitions, which join the others of their block. A task of a lost worker runs again
from the same partition and the same vector, so the result is the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.data.engines.dask_data import DaskData, batches_of
from tailproof.data.first_look import usable_rows
from tailproof.data.readers.batches import Batch, Reading

_ATTEMPTS = 5  # of a pass in which a worker was lost
_PATIENCE = 1.0  # seconds between two looks whether the workers are still there
_STALLED = 60.0  # seconds without a finished task, after which we look why
_TASK_BYTES = 1 << 28  # of the partitions that one task visits, unless one alone is larger
_TOGETHER = 1_024  # partitions that one task visits, at most
_SURVEYED = 64  # partitions that one task looks at
_TINY = 1 << 18  # bytes of a partition that is sooner moved than a task is sent to it
_ANYWHERE = ""  # in place of the worker that a task is bound to
_ADDED = 8  # neighbours whose sums are added first, on every engine


class DaskEngine:
    """Trains and measures where the partitions are.

    Tasks are bound to the worker that holds their partition: the scheduler would rather move rows to a
    worker that is idle. Where a worker is lost, Dask loads its partitions again, and a pass goes on from the
    last candidates that another worker holds. Partitions that tasks load themselves are bound to nobody.

    Parameters
    ----------
    data : DaskData
    reading : Reading
    on_rows : callable
        Told the number of rows of every finished pass.
    """

    def __init__(self, data: DaskData, reading: Reading, on_rows: Callable[[int], None]) -> None:
        self.client, self.reading, self.on_rows = data.client, reading, on_rows
        self.parts = data.parts(reading)
        self.partitions = self.parts.partitions

    @cached_property
    def bytes_each(self) -> float:
        """Bytes of a partition on average; asked for when all are there."""
        if self.parts.bytes_each is not None:
            return self.parts.bytes_each
        sizes = self.client.nbytes([future.key for future in self.parts.futures], summary=False)
        return sum(sizes.values()) / len(self.partitions)

    @property
    def _tiny(self) -> bool:
        return not self.parts.lazy and self.bytes_each <= _TINY

    def _fitting(self, most: int) -> int:
        """Partitions that one task may visit."""
        return int(min(max(_TASK_BYTES // max(self.bytes_each, 1), 1), most))

    def train(self, training: Any, states: list[Any]) -> list[Any]:
        """Candidates of all candidates over one more pass."""
        candidates = {block: training.begin(state) for block, state in enumerate(states)}
        chains = list(_chains(training, candidates, 2 * sum(self.client.nthreads().values())))

        def submit(places: list[str]) -> list[Any]:
            # Settings travel to each worker once, candidates with the tasks.
            shared = self._shared(training)
            held = self._held([future for chain in chains for _, future in chain.steps])
            workers, together = sorted(set(places)), self._fitting(_TOGETHER)
            for chain in chains:
                behind, candidates = chain.resumed(held)
                # Tiny partitions come to the worker of their candidates, and stay there.
                own = [workers[min(chain.candidates) % len(workers)]] * len(places) if self._tiny else places
                for place, group in _neighbours(chain.pieces[behind:], own, together):
                    behind += len(group)
                    candidates = self._task(place, _train_pieces, shared, candidates, self._chosen(group))
                    chain.steps.append((behind, candidates))
            return [chain.steps[-1][1] for chain in chains]

        for trained in self._settled(submit):
            candidates |= trained
        self.on_rows(sum(candidate.rows for candidate in candidates.values()))
        return [candidates[block] for block in range(len(states))]

    def _shared(self, what: Any) -> Any:
        """Make what all tasks of a pass need: a task itself, which Dask repeats if its worker is lost.

        Not scattered to all workers: if one is lost meanwhile, Dask waits for it without end.
        """
        return self.client.submit(_Visit, what, self.reading, pure=False)

    def _chosen(self, pieces: list[int]) -> list[tuple[int, Any]]:
        return [(piece, self.partitions[piece]) for piece in pieces]

    def _held(self, futures: list[Any]) -> set[str]:
        """Keys of the futures whose results some worker has, and that this client has not given up."""
        hopeful = [future for future in futures if future.status in ("pending", "finished")]
        return {key for key, places in self.client.who_has(hopeful).items() if places} if hopeful else set()

    def reduce(self, measure: Any) -> Array:
        """Sum of a measure over all partitions, added on the workers."""

        def add(sums: list[Any]) -> Any:
            return self.client.submit(measure.add, sums, pure=False)

        def submit(places: list[str]) -> list[Any]:
            shared = self._shared(measure)
            size = self._added_together()
            runs = [list(range(len(places)))[i : i + size] for i in range(0, len(places), size)]
            parts = [self._task(places[run[0]], _sum_over_pieces, shared, self._chosen(run)) for run in runs]
            return [measure.total(parts, add)]

        return np.asarray(self._settled(submit)[0])

    def _added_together(self) -> int:
        """Partitions that one task measures: as many as are added first anyway, or one where its rows are."""
        if not (self._tiny or self.parts.lazy):
            return 1
        fitting = self._fitting(_SURVEYED)
        return next(size for size in (_ADDED**2, _ADDED, 1) if size <= fitting)

    def survey(self, survey: Any) -> list[Any]:
        """What every partition shows."""

        def submit(places: list[str]) -> list[Any]:
            order = sorted(range(len(places)), key=lambda piece: places[piece])
            shared = self._shared(survey)
            return [
                self._task(place, _over_pieces, shared, self._chosen(group))
                for place, group in _neighbours(order, places, self._fitting(_SURVEYED))
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
                self._wait(futures, set(places) - {_ANYWHERE})
                _raise_failure(futures)
                return list(self.client.gather(futures))
            except _FailedTaskError as failed:
                raise failed.args[0] from None
            except (_LostWorkerError, CancelledError, OSError) as error:  # of connections, not of tasks
                # Once more, from candidates of the same pass, so to the same result.
                lost, self._lost = error, True
        raise RuntimeError(
            f"workers were lost {_ATTEMPTS} times in one pass ({type(lost).__name__}: {lost}): give them "
            "more memory, or make the partitions smaller"
        ) from lost

    def _task(self, place: str, function: Callable[..., Any], *args: Any) -> Any:
        where = {"workers": [place], "allow_other_workers": self._lost} if place != _ANYWHERE else {}
        return self.client.submit(function, *args, **where, pure=False)

    _lost = False  # whether a worker was: then tasks may run elsewhere, should another one be lost

    def _places(self) -> list[str]:
        """Return the worker of each partition, after Dask has loaded again those that are lost."""
        if self.parts.lazy:
            return [_ANYWHERE] * len(self.partitions)
        futures = self.parts.futures
        self._wait(futures, set())
        _raise_failure(futures)
        held = self.client.who_has(futures)
        if not all(held.get(future.key) for future in futures):
            raise _LostWorkerError("a worker that held partitions is gone")
        return [sorted(held[parts[0].key])[0] for parts in self.partitions]

    def _wait(self, futures: list[Any], bound: set[str]) -> None:
        """Wait for futures as long as the workers they are bound to are there, and none has failed."""
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
            if any(future.status == "error" for future in waiting):
                return
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
    """Raise if a task has failed by itself, or because a worker or a connection was lost."""
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    passing = KilledWorker, CommClosedError, ConnectionError, TimeoutError
    for future in futures:
        if getattr(future, "status", "") == "error":
            reason = future.exception()
            raise _LostWorkerError(reason) if isinstance(reason, passing) else _FailedTaskError(reason)


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
        count = min(len(blocks), -(-most // len(sharing)))
        for chain_blocks in (blocks[start::count] for start in range(count)):
            yield _Chain(list(path), {block: candidates[block] for block in chain_blocks})


@dataclass(frozen=True, eq=False)
class _Visit:
    """What to do with the batches of a partition, and how they are read."""

    what: Any
    reading: Reading

    def batches(self, pieces: list[tuple[int, Any]]) -> Iterator[tuple[int, list[Batch]]]:
        """Partitions one after another: one that is loaded here is gone when the next one comes."""
        for piece, parts in pieces:
            yield piece, batches_of(self.reading, piece, parts)


def _train_pieces(visit: _Visit, candidates: dict[int, Any], pieces: list[tuple[int, Any]]) -> dict[int, Any]:
    for _, batches in visit.batches(pieces):
        candidates = visit.what.over_piece(candidates, batches)
    return candidates


def _sum_over_pieces(visit: _Visit, pieces: list[tuple[int, Any]]) -> Any:
    return visit.what.total([visit.what.over_piece(batches) for _, batches in visit.batches(pieces)])


def _over_pieces(visit: _Visit, pieces: list[tuple[int, Any]]) -> dict[int, Any]:
    return {piece: visit.what.over_piece(batches) for piece, batches in visit.batches(pieces)}


def _pieces_by_block(training: Any) -> dict[int, list[int]]:
    """Pieces of every block in the order of the pass."""
    pieces: dict[int, list[int]] = {}
    for piece in training.dealing.visits(training.number):
        for block in training.blocks(piece):
            pieces.setdefault(block, []).append(piece)
    return pieces


def _neighbours(pieces: list[int], places: list[str], together: int) -> Iterator[tuple[str, list[int]]]:
    """Cut pieces into runs that are on one worker: a run is one task, which costs more than a small piece."""
    for place, run in groupby(pieces, key=lambda piece: places[piece]):
        group = list(run)
        for start in range(0, len(group), together):
            yield place, group[start : start + together]
