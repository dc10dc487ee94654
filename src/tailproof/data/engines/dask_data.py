"""Dask collections as partitions to be read on the workers that hold them, and predictions for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core.lookup import optional
from tailproof.data.engines.dask_parts import DaskParts, LazyParts, parts_of
from tailproof.data.readers.batches import Batch, Reading, is_missing


@dataclass(frozen=True, eq=False)
class DaskData:
    """Dask collections that are cut alike: a frame, or X, y and perhaps weights.

    Attributes
    ----------
    collections : tuple
    columns : list of str or None
        None for arrays.
    width : int
    client : distributed.Client
    shared : bool
        Every candidate visits every partition.
    known_categories : dict
        Of columns of a categorical type, where Dask knows them.
    """

    collections: tuple[Any, ...]
    columns: list[str] | None
    width: int
    client: Any
    shared: bool
    known_categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    shuffling = "lets every candidate visit every partition"

    def __len__(self) -> int:
        first = self.collections[0]
        return int(first.npartitions if self.columns is not None else first.numblocks[0])

    @property
    def text(self) -> str:
        """What there is, in a few words."""
        return f"{len(self)} Dask partitions"

    @property
    def sparse(self) -> bool:
        """Whether blocks of an array are sparse, as far as Dask knows."""
        return self.columns is None and sparse.issparse(self.collections[0]._meta)

    def distinct(self, column: str) -> NDArray[Any]:
        """Different labels, found on the workers."""
        import dask

        labels = self.collections[0][column] if self.columns is not None else self.collections[1]
        find = dask.delayed(_labels, pure=False)  # type: ignore[attr-defined]
        values = self.client.gather(self.client.compute([find(part) for part in labels.to_delayed()]))
        return np.unique(np.concatenate(values))

    def parts(self, reading: Reading) -> DaskParts:
        """Partitions of the rows, with the columns that are read where they are loaded first."""
        columns = None if self.columns is None else reading.columns
        return parts_of(self.client, self.collections, columns)


def batches_of(reading: Reading, piece: int, parts: Any) -> list[Batch]:
    """Batches of a partition, which is loaded first where it is not."""
    return _batches(reading, piece, parts.load() if isinstance(parts, LazyParts) else parts)


def _batches(reading: Reading, piece: int, parts: tuple[Any, ...]) -> list[Batch]:
    where = f"partition {piece}"
    if len(parts) > 1:
        return list(reading.array_batches(piece, where, *parts))
    import pyarrow as pa

    table = pa.Table.from_pandas(parts[0][reading.columns], preserve_index=False)
    return list(reading.arrow_batches(piece, where, iter(table.to_batches()), rows=table.num_rows))


def _labels(part: Any) -> NDArray[Any]:
    values = np.asarray(part, dtype=None if isinstance(part, np.ndarray) else object)
    return np.unique(np.array(values[~is_missing(values)].tolist()))


@contextmanager
def open_dask(data: Any, options: Any) -> Iterator[DaskData]:
    """Open a Dask array with its target, or a Dask data frame.

    Parameters
    ----------
    data : dask collection, or pair (X, y) of arrays, or of a data frame and a series
    options : Options
        ``target`` is an array where X is one; ``client`` is the client to use, if any.
    """
    with _client(options.client) as client:
        collection = data[0] if isinstance(data, tuple) else data
        if hasattr(collection, "columns"):
            if isinstance(data, tuple):
                collection = _joined(data[0], data[1], options.target)
            columns = [str(name) for name in collection.columns]
            facts = (collection,), columns, len(columns), client, bool(options.shuffle)
            yield DaskData(*facts, _known_categories(collection))
            return
        X, y = data if isinstance(data, tuple) else (data, options.target)
        if isinstance(y, str) and options.target != "":
            raise ValueError("for Dask arrays give the target itself: data=(X, y) or target=y")
        arrays = _aligned(X, None if isinstance(y, str) else y, options.weight)
        yield DaskData(arrays, None, int(X.shape[1]), client, bool(options.shuffle))


def _known_categories(frame: Any) -> dict[str, tuple[Any, ...]]:
    """Categories of the columns of a categorical type; those that Dask has not looked at are left out."""
    kinds = {str(name): kind for name, kind in frame.dtypes.items() if str(kind) == "category"}
    return {name: tuple(kind.categories) for name, kind in kinds.items() if frame[name].cat.known}


def _joined(frame: Any, series: Any, target: str) -> Any:
    """A data frame with its target, a series of the same partitions, as one more column."""
    if target in frame.columns:
        raise ValueError(f"the features have a column {target!r}: rename it, or give target= another name")
    if not hasattr(series, "npartitions") or series.npartitions != frame.npartitions:
        raise ValueError("the target of a Dask data frame must be a Dask series of the same partitions")
    return frame.assign(**{target: series})


def _aligned(X: Any, y: Any, weights: Any) -> tuple[Any, ...]:
    """Blocks of whole rows, with the values of y (zeros where there are none) and weights."""
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
    return (X, *(column.rechunk((rows,)) for column in columns))


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
        return opened.collections[0].map_blocks(
            _predicted,
            reading,
            model,
            drop_axis=1,
            dtype=_kind_of(model),
            meta=np.empty(0, dtype=_kind_of(model)),
        )
    import dask
    import dask.array as da

    predict = dask.delayed(_predicted, pure=False)  # type: ignore[attr-defined]
    parts = [
        da.from_delayed(predict(part, reading, model), (np.nan,), dtype=_kind_of(model))
        for part in opened.collections[0].to_delayed()
    ]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


def _kind_of(model: Any) -> Any:
    return model.classes_.dtype if hasattr(model, "classes_") else np.dtype(np.float64)


def _predicted(part: Any, reading: Reading, model: Any) -> NDArray[Any]:
    parts = (part,) if hasattr(part, "columns") else (part, np.zeros(len(part)))
    predictions = [model.predict(batch.X) for batch in _batches(reading, 0, parts)]
    return np.concatenate(predictions) if predictions else np.empty(0, dtype=_kind_of(model))
