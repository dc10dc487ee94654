"""Kinds of data in pieces: how each is recognised, opened and handed to its engine; ``KINDS`` lists them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.data.engines.dask import DaskData, DaskEngine, is_dask, open_dask, predict_dask
from tailproof.data.engines.spark import SparkData, SparkEngine, is_spark, open_spark, predict_spark
from tailproof.data.engines.stream import FilePieces, StreamEngine
from tailproof.data.first_look import Seen, beyond_chance, unlike_chance
from tailproof.data.fit import Source
from tailproof.data.readers.batches import Reading
from tailproof.data.readers.chunks import ChunkPieces, Chunks, open_chunks
from tailproof.data.readers.files import Files, is_path, open_files


@dataclass(frozen=True)
class Kind:
    """A kind of data in pieces.

    Attributes
    ----------
    name : str
    recognises : callable
        Whether data are of this kind, without importing anything.
    open : callable
        Data to a context with columns, distinct labels and so on.
    source : callable
        To what :func:`tailproof.data.fit.fit_in_pieces` wants.
    predict : callable
    fingerprint : callable
        What makes data the same data tomorrow.
    deals_rows : bool
        Whether the rows of a piece can be dealt to all candidates.
    streams : bool
        Whether rows come here in batches, and can be mixed on disk.
    """

    name: str
    recognises: Callable[[Any], bool]
    open: Callable[..., Any]
    source: Callable[..., Source]
    predict: Callable[..., Any]
    fingerprint: Callable[[Any], Any]
    deals_rows: bool = True
    streams: bool = False


@contextmanager
def _open_files(data: Any, options: Any) -> Iterator[Files]:
    yield open_files(data, skip=options.skip)


def _file_source(files: Files, reading: Reading, model: Any, saved: Any, on_rows: Any) -> Source:
    pieces = FilePieces(files, reading)
    return Source(
        engine=StreamEngine(pieces, getattr(model, "n_jobs", None), saved, on_rows),
        text=files.text,
        names=reading.names,
        width=len(reading.names),
        rows=sum(files.rows),
        pieces=len(files),
        skipped=files.bad_files,
    )


def _chunk_source(chunks: Chunks, reading: Reading, model: Any, saved: Any, on_rows: Any) -> Source:
    return Source(
        engine=StreamEngine(
            ChunkPieces(chunks.items, reading), getattr(model, "n_jobs", None), saved, on_rows
        ),
        text=f"{len(chunks)} chunks, {sum(chunks.rows):,} rows",
        names=None,
        width=chunks.width,
        rows=sum(chunks.rows),
        pieces=len(chunks),
    )


def _predict_stream(pieces: Any, model: Any) -> NDArray[Any]:
    return np.concatenate(
        [model.predict(b.X) for piece in range(len(pieces)) for b in pieces.batches(piece, np.empty)]
    )


def _predict_files(files: Files, reading: Reading, model: Any) -> NDArray[Any]:
    return _predict_stream(FilePieces(files, reading), model)


def _predict_chunks(chunks: Chunks, reading: Reading, model: Any) -> NDArray[Any]:
    return _predict_stream(ChunkPieces(chunks.items, reading), model)


def _no_fingerprint(opened: Any) -> Any:
    raise ValueError(
        "a checkpoint needs data in files that are still there tomorrow: leave it out, or write them"
    )


def _is_chunks(data: Any) -> bool:
    if isinstance(data, list):
        firsts = [
            item[0] if isinstance(item, (tuple, list)) and len(item) in (2, 3) else item for item in data
        ]
        return len(firsts) > 0 and all(len(getattr(first, "shape", ())) == 2 for first in firsts)
    # Anything else that can only be iterated over: a generator, a data loader.
    return hasattr(data, "__iter__") and not hasattr(data, "__len__") and not hasattr(data, "shape")


def _is_file_data(data: Any) -> bool:
    return is_path(data) or type(data).__module__.startswith("pyarrow._dataset")


def _dask_source(data: DaskData, reading: Reading, model: Any, saved: Any, on_rows: Any) -> Source:
    remedy = "which lets every candidate visit every partition, or shuffle the data"
    return Source(
        engine=DaskEngine(data, reading, on_rows),
        text=f"{len(data)} Dask partitions",
        names=None if data.columns is None else reading.names,
        width=len(reading.names),
        whole_pieces=not data.mixed,
        pieces=len(data),
        on_survey=partial(_warn_if_sorted, mixed=data.mixed, remedy=remedy),
    )


def _spark_source(data: SparkData, reading: Reading, model: Any, saved: Any, on_rows: Any) -> Source:
    return Source(
        engine=SparkEngine(data, reading, on_rows),
        text=f"{len(data)} Spark partitions",
        names=reading.names,
        width=len(reading.names),
        whole_pieces=True,
        pieces=len(data),
        on_survey=partial(_warn_if_sorted, mixed=False, remedy="which moves rows, or shuffle the data"),
    )


def _warn_if_sorted(seen: list[Seen], mixed: bool, remedy: str) -> None:
    """Warn where the targets of partitions differ more than chance, and blocks are made of whole ones."""
    excess = unlike_chance(np.stack([piece.moments for piece in seen]))
    if mixed or len(seen) < 2 or excess <= beyond_chance(len(seen)):
        return
    warnings.warn(
        f"partitions look sorted: their mean targets differ {np.sqrt(excess):.1f} times more than chance, so "
        f"blocks made of whole partitions are not alike; give shuffle=True, {remedy}",
        UserWarning,
        stacklevel=6,
    )


KINDS: list[Kind] = [
    Kind("Dask data", is_dask, open_dask, _dask_source, predict_dask, _no_fingerprint),
    Kind("Spark data", is_spark, open_spark, _spark_source, predict_spark, _no_fingerprint, False),
    Kind(
        "files",
        _is_file_data,
        _open_files,
        _file_source,
        _predict_files,
        lambda files: files.fingerprint,
        streams=True,
    ),
    Kind("chunks", _is_chunks, open_chunks, _chunk_source, _predict_chunks, _no_fingerprint, streams=True),
]


def kind_of(data: Any) -> Kind | None:
    """Return the kind of data in pieces; None for what is in memory."""
    return next((kind for kind in KINDS if kind.recognises(data)), None)
