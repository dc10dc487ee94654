"""Kinds of data in pieces, listed in ``DATA_KINDS``: how each is recognised, opened and read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.data.engines import dask, dask_data, spark
from tailproof.data.engines.stream import FilePieces, StreamEngine
from tailproof.data.first_look import Seen, beyond_chance, unlike_chance
from tailproof.data.fit import DataSource
from tailproof.data.readers.batches import Reading
from tailproof.data.readers.chunks import ChunkPieces, from_loader, is_loader, open_chunks
from tailproof.data.readers.file_groups import taken_together
from tailproof.data.readers.files import is_path, open_files
from tailproof.data.readers.tables import is_table, is_table_stream, open_tables


@dataclass(frozen=True)
class DataKind:
    """A kind of data in pieces.

    Attributes
    ----------
    name : str
    recognises : callable
        Whether data are of this kind, without importing anything.
    open : callable
        (data, options) to a context. What it gives describes itself: ``columns`` (None without names),
        ``width``, ``text`` for reports, ``distinct`` labels of a column, a length; where it is read in
        batches, also the ``rows`` of each piece and ``bad_files()``, those left out.
    source : callable
        What was opened, how to read it, the model, a checkpoint or None, and a callback that counts rows:
        to what :func:`tailproof.data.fit.fit_in_pieces` wants.
    predict : callable
        What was opened, how to read it, and a model, to predictions.
    deals_rows : bool
        Whether the rows of a piece can be dealt to all candidates.
    streams : bool
        Whether rows come here in batches, and can be shuffled on disk.
    """

    name: str
    recognises: Callable[[Any], bool]
    open: Callable[..., Any]
    source: Callable[..., DataSource]
    predict: Callable[..., Any]
    deals_rows: bool = True
    streams: bool = False


def data_kind(data: Any) -> DataKind | None:
    """Return the kind of data in pieces; None for what is in memory."""
    return next((kind for kind in DATA_KINDS if kind.recognises(data)), None)


def _comes_from(packages: tuple[str, ...], data: Any) -> bool:
    first = data[0] if isinstance(data, tuple) and data else data
    return f"{type(first).__module__}.".startswith(packages)


def _is_files(data: Any) -> bool:
    return is_path(data) or (_comes_from(("pyarrow._dataset.",), data) and not is_table_stream(data))


def _is_chunks(data: Any) -> bool:
    if isinstance(data, list):
        firsts = [
            item[0] if isinstance(item, (tuple, list)) and len(item) in (2, 3) else item for item in data
        ]
        return len(firsts) > 0 and all(len(getattr(first, "shape", ())) == 2 for first in firsts)
    if is_loader(data):
        return True
    # Anything else that can only be iterated over.
    return hasattr(data, "__iter__") and not hasattr(data, "__len__") and not hasattr(data, "shape")


@contextmanager
def _open_items(data: Any, options: Any) -> Iterator[Any]:
    """Open what an iterator gives: tables if the first item is one, else pairs of arrays."""
    items = from_loader(data) if is_loader(data) else iter(data)
    first = list(islice(items, 1))
    tables = bool(first) and is_table(first[0])
    given = data if isinstance(data, list) and not tables else chain(first, items)
    with (open_tables if tables else open_chunks)(given, options) as opened:
        yield opened


def _pieces(opened: Any, reading: Reading) -> Any:
    if opened.columns is None:
        return ChunkPieces(opened, reading)
    numbers = [name for name in reading.features if name not in reading.categories]
    return FilePieces(opened.with_numbers(numbers), reading)


def _stream_source(
    pieces: Callable[..., Any], opened: Any, reading: Reading, model: Any, saved: Any, on_rows: Any
) -> DataSource:
    return DataSource(
        engine=StreamEngine(pieces(opened, reading), getattr(model, "n_jobs", None), saved, on_rows),
        text=opened.text,
        names=None if opened.columns is None else reading.names,
        width=len(reading.names),
        piece_rows=tuple(opened.rows),
        pieces=len(opened),
        skipped=opened.bad_files,
    )


def _predict_stream(pieces: Callable[..., Any], opened: Any, reading: Reading, model: Any) -> NDArray[Any]:
    batches = pieces(opened, reading).batches
    return np.concatenate([model.predict(b.X) for piece in range(len(opened)) for b in batches(piece)])


def _cluster_source(
    engine: Callable[..., Any], opened: Any, reading: Reading, model: Any, saved: Any, on_rows: Any
) -> DataSource:
    return DataSource(
        engine=engine(opened, reading, on_rows),
        text=opened.text,
        names=None if opened.columns is None else reading.names,
        width=len(reading.names),
        whole_pieces=not opened.shared,
        pieces=len(opened),
        on_survey=partial(_warn_if_sorted, opened),
        grouped=getattr(opened, "grouped", lambda source, k: None),
    )


def _warn_if_sorted(opened: Any, seen: list[Seen]) -> None:
    """Warn where the targets of partitions differ more than chance, and blocks are made of whole ones."""
    excess = unlike_chance(np.stack([piece.moments for piece in seen]))
    if opened.shared or len(seen) < 2 or excess <= beyond_chance(len(seen)):
        return
    warnings.warn(
        f"partitions look sorted: their mean targets differ {np.sqrt(excess):.1f} times more than chance, so "
        f"blocks made of whole partitions are not alike; give shuffle=True, which {opened.shuffling}, or "
        "shuffle the data",
        UserWarning,
        stacklevel=6,
    )


DATA_KINDS: list[DataKind] = [
    DataKind(
        "Dask data",
        partial(_comes_from, ("dask.", "dask_expr.")),
        dask_data.open_dask,
        partial(_cluster_source, dask.DaskEngine),
        dask_data.predict_dask,
    ),
    DataKind(
        "Spark data",
        partial(_comes_from, ("pyspark.sql.",)),
        spark.open_spark,
        partial(_cluster_source, spark.SparkEngine),
        spark.predict_spark,
        deals_rows=False,
    ),
    DataKind(
        "files",
        _is_files,
        lambda data, options: nullcontext(
            taken_together(open_files(data, skip=options.skip), options.batch_rows)
        ),
        partial(_stream_source, _pieces),
        partial(_predict_stream, _pieces),
        streams=True,
    ),
    DataKind(
        "streams of tables",
        is_table_stream,
        open_tables,
        partial(_stream_source, _pieces),
        partial(_predict_stream, _pieces),
        streams=True,
    ),
    DataKind(
        "chunks",
        _is_chunks,
        _open_items,
        partial(_stream_source, _pieces),
        partial(_predict_stream, _pieces),
        streams=True,
    ),
]
