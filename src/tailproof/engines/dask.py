"""Candidates next to their rows on a Dask cluster: a task per candidate and partition, candidates travel.

The candidate of a block goes from one of its partitions to the next, a vector each time; rows stay where
they are. A task of a lost worker runs again from the same partition and the same vector, so the result is
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.engines.batch import Batch, Reading

Array = NDArray[np.floating]
_RETRIES = 3  # of a task that failed because a worker or a connection did


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
    mixed : bool
        Every candidate visits every partition.
    """

    partitions: list[tuple[Any, ...]]
    columns: list[str] | None
    width: int
    client: Any
    mixed: bool
    collection: Any

    def __len__(self) -> int:
        return len(self.partitions)

    def distinct(self, column: str) -> NDArray[Any]:
        """Different labels, found on the workers."""
        labels = [self._delayed(_labels)(part, column) for part in self.partitions]
        found = self.client.gather(self.client.compute(labels))
        return np.unique(np.concatenate(found))

    def load(self, reading: Reading) -> list[Any]:
        """Futures of the batches of every partition, kept by the workers that hold them."""
        loaded = [self._delayed(_batches)(reading, i, part) for i, part in enumerate(self.partitions)]
        return list(self.client.compute(loaded, retries=_RETRIES))

    @staticmethod
    def _delayed(function: Callable[..., Any]) -> Any:
        import dask  # noqa: PLC0415

        return dask.delayed(function, pure=False)


@dataclass(frozen=True, eq=False)
class DaskEngine:
    """Trains and measures where the partitions are.

    Parameters
    ----------
    client : distributed.Client
    partitions : list of futures
        Batches of every partition.
    on_rows : callable
        Told the number of rows of every finished pass of a candidate.
    """

    client: Any
    partitions: list[Any]
    on_rows: Callable[[int], None] = lambda rows: None

    def train(self, training: Any, states: list[Any]) -> list[Any]:
        """Walks of all candidates over one more pass."""
        # Settings travel to each worker once, candidates with the tasks.
        shared = self.client.scatter(training, broadcast=True, hash=False)
        walks: list[Any] = [training.begin(state) for state in states]
        for piece in training.dealing.visits(training.number):
            for block in training.dealing.blocks(piece):
                walks[block] = self.client.submit(
                    _walk, shared, walks[block], self.partitions[piece], block, pure=False, retries=_RETRIES
                )
        found = self.client.gather(walks)
        self.on_rows(sum(walk.rows for walk in found))
        return list(found)

    def reduce(self, measure: Any) -> Array:
        """Sum of a measure over all partitions, added on the workers."""
        submit = self.client.submit
        shared = self.client.scatter(measure, broadcast=True, hash=False)
        parts = [submit(_measured, shared, part, pure=False, retries=_RETRIES) for part in self.partitions]
        total = measure.total(parts, lambda some: submit(measure.add, some, pure=False, retries=_RETRIES))
        return np.asarray(self.client.gather(total))

    def survey(self, survey: Any) -> list[Any]:
        """What every partition shows."""
        looks = [self.client.submit(_surveyed, survey, part, pure=False) for part in self.partitions]
        return list(self.client.gather(looks))


def _walk(training: Any, walk: Any, batches: list[Batch], block: int) -> Any:
    return training.over_piece({block: walk}, batches)[block]


def _measured(measure: Any, batches: list[Batch]) -> Any:
    return measure.over_piece(batches)


def _surveyed(survey: Any, batches: list[Batch]) -> Any:
    return survey.over_piece(batches)


def _batches(reading: Reading, piece: int, parts: tuple[Any, ...]) -> list[Batch]:
    where = f"partition {piece}"
    if len(parts) > 1:
        return list(reading.array_batches(piece, where, *parts))
    import pyarrow as pa  # noqa: PLC0415

    table = pa.Table.from_pandas(parts[0][reading.columns], preserve_index=False)
    return list(reading.arrow_batches(piece, where, iter(table.to_batches())))


def _labels(parts: tuple[Any, ...], column: str) -> NDArray[Any]:
    from pandas import Series  # noqa: PLC0415

    values = Series(np.asarray(parts[1])) if len(parts) > 1 else parts[0][column]
    return np.unique(np.asarray(values.dropna().tolist()))


def is_dask(data: Any) -> bool:
    """Whether data are a Dask collection, or a pair of them; imports nothing."""
    first = data[0] if isinstance(data, tuple) and data else data
    return type(first).__module__.split(".")[0] in ("dask", "dask_expr")


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
    """Delayed blocks of whole rows, with the values of y (zeros where there is none) and weights beside them."""
    import dask.array as da  # noqa: PLC0415

    X = X.rechunk({1: -1})
    if np.isnan(sum(X.chunks[0])):
        X = X.compute_chunk_sizes()
    rows = X.chunks[0]
    others = [da.zeros(sum(rows)) if y is None else y, *([] if weights is None else [weights])]
    columns = [da.asarray(values).rechunk((rows,)).to_delayed() for values in others]
    return list(zip(X.to_delayed()[:, 0], *columns, strict=True))


@contextmanager
def _client(given: Any) -> Iterator[Any]:
    """The client given, the current one, or one of threads for the time being."""
    try:
        from distributed import Client, LocalCluster, get_client  # noqa: PLC0415
    except ImportError:
        raise ImportError("Dask data need dask.distributed: pip install 'tailproof[dask]'") from None
    try:
        current = given if given is not None else get_client()
    except ValueError:
        current = None  # there is none
    if current is not None:
        yield current
        return
    with (
        LocalCluster(
            n_workers=1,
            processes=False,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def predict_dask(opened: DaskData, reading: Reading, model: Any) -> Any:
    """Predictions as a Dask array, not yet computed."""
    if opened.columns is None:
        return opened.collection.rechunk({1: -1}).map_blocks(
            _predicted, reading, model, drop_axis=1, dtype=_kind_of(model), meta=np.empty(0, dtype=_kind_of(model))
        )
    import dask.array as da  # noqa: PLC0415

    parts = [
        da.from_delayed(DaskData._delayed(_predicted)(part[0], reading, model), (np.nan,), dtype=_kind_of(model))
        for part in opened.partitions
    ]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


def _kind_of(model: Any) -> Any:
    return model.classes_.dtype if hasattr(model, "classes_") else np.dtype(np.float64)


def _predicted(part: Any, reading: Reading, model: Any) -> NDArray[Any]:
    parts = (part,) if hasattr(part, "columns") else (part, np.zeros(len(part)))
    found = [model.predict(batch.X) for batch in _batches(reading, 0, parts)]
    return np.concatenate(found) if found else np.empty(0, dtype=_kind_of(model))
