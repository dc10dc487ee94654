"""Arrays in memory, or an iterator of them kept on disk, as pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.numerics.meaning import check_are_numbers
from tailproof.data.dealing import BATCH_ROWS
from tailproof.data.durable import create, temporary_folder
from tailproof.data.readers.batches import FEATURES_LOOKED_AT, Batch, Reading, is_missing


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows: in memory, or in a file."""

    X: Any
    y: Any
    weights: Any = None
    size: int = 0
    file: Path | None = None

    def load(self) -> Chunk:
        """Return the chunk in memory."""
        if self.file is None:
            return self
        with np.load(self.file, allow_pickle=False) as stored:
            parts = dict(stored)
        if "indptr" in parts:
            X: Any = sparse.csr_array(
                tuple(parts[p] for p in ("data", "indices", "indptr")), shape=parts["shape"]
            )
        else:
            X = parts["X"]
        return Chunk(X, parts["y"], parts.get("weights"), self.size)


@dataclass(frozen=True, eq=False)
class ChunkPieces:
    """Chunks as pieces."""

    chunks: Chunks
    reading: Reading

    def __len__(self) -> int:
        return len(self.chunks)

    def batches(self, piece: int, new: Callable[..., Array] | None = None) -> Iterator[Batch]:
        """Batches of a chunk, without a copy where it is C-ordered float64."""
        chunk = self.chunks.items[piece].load()
        yield from self.reading.array_batches(piece, f"chunk {piece}", chunk.X, chunk.y, chunk.weights)

    def first(self, piece: int, rows: int) -> list[Batch]:
        """The first rows of a chunk."""
        chunk = self.chunks.items[piece].load()
        head = slice(0, min(rows, self.reading.batch_rows))
        weights = None if chunk.weights is None else chunk.weights[head]
        return list(
            self.reading.array_batches(piece, f"chunk {piece}", chunk.X[head], chunk.y[head], weights)
        )

    def column_samples(self, piece: int, features: list[int]) -> Iterator[Array]:
        """Target and a few features of a chunk."""
        step = self.reading.batch_rows
        if self.chunks.items[piece].size <= step:
            return
        chunk = self.chunks.items[piece].load()
        for i in range(0, chunk.size, step):
            part = slice(i, i + step)
            columns = [chunk.X[part, j] for j in features[:FEATURES_LOOKED_AT]]
            yield self.reading.some_rows(chunk.y[part], columns, max(len(self), chunk.size / step))


@dataclass(frozen=True, eq=False)
class Chunks:
    """Chunks of rows of the same width."""

    items: list[Chunk]
    columns = None  # arrays have no names

    def __len__(self) -> int:
        return len(self.items)

    @property
    def text(self) -> str:
        """What there is, in a few words."""
        return f"{len(self)} chunks, {sum(self.rows):,} rows"

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.items[0].X.shape[1])

    @property
    def sparse(self) -> bool:
        """Whether rows are sparse, so that many columns do not make them large."""
        return sparse.issparse(self.items[0].X)

    @property
    def rows(self) -> list[int]:
        """Rows of each chunk."""
        return [item.size for item in self.items]

    def bad_files(self) -> tuple[str, ...]:
        """Chunks are read or raise."""
        return ()

    def distinct(self, column: str) -> NDArray[Any]:
        """Different labels; missing ones aside."""
        values = [
            np.unique(np.asarray(y)[~is_missing(np.asarray(y))])
            for y in (item.load().y for item in self.items)
        ]
        return np.unique(np.concatenate(values))


@contextmanager
def open_chunks(data: Any, options: Any) -> Iterator[Chunks]:
    """Chunks of a list, which stay where they are, or of an iterator, which go to a temporary folder."""
    given = data
    if options.target == "":  # only features are wanted
        given = (
            item if isinstance(item, (tuple, list)) else (item, np.zeros(item.shape[0])) for item in data
        )
    with ExitStack() as stack:
        if isinstance(data, list):
            items = [as_chunk(item) for item in given]
        else:
            items = spool(given, stack.enter_context(temporary_folder()))
        if not any(item.size for item in items):
            raise ValueError("there is no row to learn from: the chunks are empty; give some that hold rows")
        if options.weight is not None and not all(item.weights is not None for item in items):
            raise ValueError(
                "sample_weight is given, but chunks bring their weights along: give triples (X, y, weights)"
            )
        yield Chunks(items)


def is_loader(data: Any) -> bool:
    """Whether data are a ``torch.utils.data.DataLoader``; imports nothing."""
    names = ((kind.__module__, kind.__name__) for kind in type(data).__mro__)
    return any(module.startswith("torch.utils.data") and name == "DataLoader" for module, name in names)


def from_loader(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches of tensors as arrays: dicts as they come, (X, y) and (X, y, weights) in chunks of many rows."""
    held: list[tuple[NDArray[Any], ...]] = []
    for batch in batches:
        if isinstance(batch, Mapping):
            yield {name: _as_array(values) for name, values in batch.items()}
            continue
        parts = batch if isinstance(batch, (tuple, list)) else [batch]
        X, *columns = (_as_array(part) for part in parts)
        held.append((X, *(column.reshape(len(X)) for column in columns)))
        if sum(len(some[0]) for some in held) >= BATCH_ROWS:
            yield _together(held)
            held = []
    if held:
        yield _together(held)


def _as_array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _together(held: list[tuple[NDArray[Any], ...]]) -> Any:
    parts = tuple(np.concatenate(column) for column in zip(*held, strict=True))
    return parts if len(parts) > 1 else parts[0]


def as_chunk(item: Any) -> Chunk:
    """(X, y) or (X, y, weights), checked."""
    if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
        raise ValueError("chunks must be pairs (X, y) or triples (X, y, sample_weight)")
    X, y, *weights = item
    check_are_numbers(X=X, y=y, sample_weight=weights[0] if weights else None)
    X = X.tocsr() if sparse.issparse(X) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X of a chunk must have rows and columns; got shape {X.shape}")
    return Chunk(X, np.asarray(y), np.asarray(weights[0]) if weights else None, X.shape[0])


def spool(items: Iterable[Any], folder: Path) -> list[Chunk]:
    """Write the chunks of an iterator, which can be read only once, to files that can be read again."""
    spooled = []
    for number, item in enumerate(items):
        chunk = as_chunk(item)
        X = chunk.X
        parts = (
            {"X": X}
            if isinstance(X, np.ndarray)
            else {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
        )
        weights = chunk.weights
        if weights is not None:
            parts["weights"] = weights
        file = folder / f"{number}.npz"
        y = chunk.y.astype(str) if chunk.y.dtype.kind == "O" else chunk.y
        with create(file) as into:
            np.savez(into, y=y, **parts)
        spooled.append(Chunk(_empty(X), _empty(y), _empty(weights), chunk.size, file))
    return spooled


def _empty(rows: Any) -> Any:
    """None of the rows, without the memory of all that a view would hold."""
    return None if rows is None else rows[:0].copy()
