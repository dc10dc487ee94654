"""Candidates next to their rows on a Dask cluster: a task per candidate and partition, candidates travel.

The candidate of a block goes from one of its partitions to the next, a vector each time; rows stay where
they are. A task of a lost worker runs again from the same partition and the same vector, so the result is
the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.lookup import optional
from tailproof.data.first_look import usable_rows
from tailproof.data.readers.batches import Batch, Reading, is_missing

_RETRIES = 3  # of a task that failed because a connection did
_ATTEMPTS = 5  # of a pass in which a worker was lost
_PATIENCE = 1.0  # seconds between two looks whether the workers are still there
_STALLED = 60.0  # seconds without a finished task, after which we look why
_TOGETHER = 16  # partitions that one task visits, at most


@dataclass(frozen=True, eq=False)
class DaskData:
    """A Dask collection as delayed partitions.

    Attributes
    ----------
    partitions : list
        Each a tuple of delayed parts: a frame, or X, y and perhaps weights.
    columns : list of str or None
        None for arrays.
    width : int
    client : distributed.Client
    shared : bool
        Every candidate visits every partition.
    """

    partitions: list[tuple[Any, ...]]
    columns: list[str] | None
    width: int
    client: Any
    shared: bool
    collection: Any
    shuffling = "lets every candidate visit every partition"

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def text(self) -> str:
        """What there is, in a few words."""
        return f"{len(self)} Dask partitions"

    def distinct(self, column: str) -> NDArray[Any]:
        """Different labels, found on the workers."""
        labels = [self._delayed(_labels)(part, column) for part in self.partitions]
        values = self.client.gather(self.client.compute(labels))
        return np.unique(np.concatenate(values))

    def load(self, reading: Reading, pieces: list[int]) -> list[Any]:
        """Futures of the batches of partitions, each on the worker that holds its rows, if one does."""
        from distributed import futures_of

        first = {piece: futures_of(self.partitions[piece][0]) for piece in pieces}
        held = self.client.who_has([future for futures in first.values() for future in futures])
        by_place: dict[str, list[int]] = {}
        for piece in pieces:
            places = [place for future in first[piece] for place in held.get(future.key, ())]
            by_place.setdefault(places[0] if places else "", []).append(piece)
        loaded: dict[int, Any] = {}
        for place, group in by_place.items():  # one call for each worker: a call costs more than its tasks
            batches = [self._delayed(_batches)(reading, piece, self.partitions[piece]) for piece in group]
            futures = self.client.compute(batches, workers=[place] if place else None, retries=_RETRIES)
            loaded |= dict(zip(group, futures, strict=True))
        return [loaded[piece] for piece in pieces]

    @staticmethod
    def _delayed(function: Callable[..., Any]) -> Any:
        import dask

        return dask.delayed(function, pure=False)  # type: ignore[attr-defined]


class DaskEngine:
    """Trains and measures where the partitions are.

    Tasks are bound to the worker that holds their partition: the scheduler would rather move rows to a
    worker that is idle. Where a worker is lost, its partitions are loaded again and the pass, or the sum, is
    started once more.

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

        def submit(places: list[str]) -> list[Any]:
            candidates: list[Any] = [training.begin(state) for state in states]
            # Settings travel to each worker once, candidates with the tasks.
            shared = self.client.scatter(training, broadcast=True, hash=False)
            for block, pieces in _pieces_by_block(training).items():
                for place, group in _neighbours(pieces, places):
                    batches = [self.partitions[piece] for piece in group]
                    candidates[block] = self._task(
                        place, _train_pieces, shared, candidates[block], batches, block
                    )
            return candidates

        trained = self._settled(submit)
        self.on_rows(sum(candidate.rows for candidate in trained))
        return trained

    def reduce(self, measure: Any) -> Array:
        """Sum of a measure over all partitions, added on the workers."""

        def add(sums: list[Any]) -> Any:
            return self.client.submit(measure.add, sums, pure=False, retries=_RETRIES)

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
                    retries=_RETRIES,
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
                lost = error  # once more, from the same candidates, so to the same result
        raise RuntimeError(
            f"workers were lost {_ATTEMPTS} times in one pass ({type(lost).__name__}: {lost}): give them "
            "more memory, or make the partitions smaller"
        ) from lost

    def _task(self, place: str, function: Callable[..., Any], *args: Any) -> Any:
        return self.client.submit(function, *args, workers=[place], pure=False, retries=_RETRIES)

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


def _train_pieces(training: Any, candidate: Any, pieces: list[list[Batch]], block: int) -> Any:
    for batches in pieces:
        candidate = training.over_piece({block: candidate}, batches)[block]
    return candidate


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


def _batches(reading: Reading, piece: int, parts: tuple[Any, ...]) -> list[Batch]:
    where = f"partition {piece}"
    if len(parts) > 1:
        return list(reading.array_batches(piece, where, *parts))
    import pyarrow as pa

    table = pa.Table.from_pandas(parts[0][reading.columns], preserve_index=False)
    return list(reading.arrow_batches(piece, where, iter(table.to_batches())))


def _labels(parts: tuple[Any, ...], column: str) -> NDArray[Any]:
    values = np.asarray(parts[1]) if len(parts) > 1 else np.asarray(parts[0][column], dtype=object)
    return np.unique(np.array(values[~is_missing(values)].tolist()))


@contextmanager
def open_dask(data: Any, options: Any) -> Iterator[DaskData]:
    """Open a Dask array with its target, or a Dask data frame.

    Parameters
    ----------
    data : dask collection, or pair (X, y)
    options : Options
        ``target`` is an array where X is one; ``client`` is the client to use, if any.
    """
    with _client(options.client) as client:
        collection = data[0] if isinstance(data, tuple) else data
        if hasattr(collection, "columns"):
            parts = [(part,) for part in collection.to_delayed()]
            columns = [str(name) for name in collection.columns]
            yield DaskData(parts, columns, len(columns), client, bool(options.shuffle), collection)
            return
        X, y = data if isinstance(data, tuple) else (data, options.target)
        if isinstance(y, str) and options.target != "":
            raise ValueError("for Dask arrays give the target itself: data=(X, y) or target=y")
        arrays = _aligned(X, None if isinstance(y, str) else y, options.weight)
        yield DaskData(arrays, None, int(X.shape[1]), client, bool(options.shuffle), X)


def _aligned(X: Any, y: Any, weights: Any) -> list[tuple[Any, ...]]:
    """Delayed blocks of whole rows, with the values of y (zeros where there are none) and weights."""
    import dask.array as da

    X = _with_known_chunks(X).rechunk({1: -1})
    rows = X.chunks[0]
    others = [da.zeros(sum(rows)) if y is None else y, *([] if weights is None else [weights])]
    columns = [_with_known_chunks(da.asarray(values)) for values in others]
    for column in columns:
        if column.shape != (sum(rows),):
            raise ValueError(
                f"X has {sum(rows)} rows, and the target or the weights have shape {column.shape}"
            )
    delayed = [column.rechunk((rows,)).to_delayed() for column in columns]
    return list(zip(X.to_delayed()[:, 0], *delayed, strict=True))


def _with_known_chunks(array: Any) -> Any:
    """An array whose chunks have sizes, which takes a look at them where they come from a data frame."""
    if not np.isnan(sum(array.shape)):
        return array
    return array.copy().compute_chunk_sizes()  # which changes the array it is called on


@contextmanager
def _client(given: Any) -> Iterator[Any]:
    """The client given, the current one, or one of threads for the time being."""
    distributed = optional("distributed", extra="dask")
    try:
        current = given if given is not None else distributed.get_client()
    except ValueError:
        current = None  # there is none
    if current is not None:
        if current.status in ("closed", "closing"):
            raise ValueError("the Dask client is closed: give one that is connected, or leave it out")
        with current.as_current():  # what Dask calls by itself, such as wait, finds it there
            yield current
        return
    with (
        distributed.LocalCluster(
            n_workers=1,
            processes=False,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def predict_dask(opened: DaskData, reading: Reading, model: Any) -> Any:
    """Predictions as a Dask array, not yet computed."""
    if opened.columns is None:
        return opened.collection.rechunk({1: -1}).map_blocks(
            _predicted,
            reading,
            model,
            drop_axis=1,
            dtype=_kind_of(model),
            meta=np.empty(0, dtype=_kind_of(model)),
        )
    import dask.array as da

    parts = [
        da.from_delayed(
            DaskData._delayed(_predicted)(part[0], reading, model), (np.nan,), dtype=_kind_of(model)
        )
        for part in opened.partitions
    ]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


def _kind_of(model: Any) -> Any:
    return model.classes_.dtype if hasattr(model, "classes_") else np.dtype(np.float64)


def _predicted(part: Any, reading: Reading, model: Any) -> NDArray[Any]:
    parts = (part,) if hasattr(part, "columns") else (part, np.zeros(len(part)))
    predictions = [model.predict(batch.X) for batch in _batches(reading, 0, parts)]
    return np.concatenate(predictions) if predictions else np.empty(0, dtype=_kind_of(model))
