"""Passes over data that do not fit into memory: threads read batches ahead while kernels run on earlier ones.

Memory holds a few batches and the candidates, whatever the size of the data.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from tailproof.core import Array
from tailproof.data.engines.checkpoint import SumsSoFar
from tailproof.data.readers.batches import FEATURES_LOOKED_AT, BadRowsError, Batch, Reading
from tailproof.data.readers.file_groups import FileGroups
from tailproof.data.readers.files import Files
from tailproof.data.training import PassCandidates
from tailproof.estimators.parallel import LocalEngine

T = TypeVar("T")
Arrange = Callable[[Iterator[Batch]], Iterator[Batch]]  # batches of a piece to their order in a pass
_PARTS = 8  # of the first rows of a piece, to see whether they are in some order
_WHOLE = 16  # pieces whose whole target is looked at
_AHEAD = 1  # batches read and not yet used


class Pieces(Protocol):
    """Data in pieces that can be read in any order."""

    def batches(self, piece: int, new: Callable[[tuple[int, int]], Array]) -> Iterator[Batch]:
        """Batches of a piece; arrays to write into come from ``new``."""
        ...

    def first(self, piece: int, rows: int) -> list[Batch]:
        """A batch of the first rows of a piece, at most as many as a batch has."""
        ...

    def column_samples(self, piece: int, features: list[int]) -> Iterator[Array]:
        """Target and the first few of some features, a few rows of each batch of a piece."""
        ...

    def __len__(self) -> int:
        """Return the number of pieces."""
        ...


@dataclass(frozen=True, eq=False)
class FilePieces:
    """Files as pieces: record batches become rows where they are read, while they are in the cache."""

    files: Files | FileGroups
    reading: Reading

    def __len__(self) -> int:
        return len(self.files)

    def batches(self, piece: int, new: Callable[[tuple[int, int]], Array] = np.empty) -> Iterator[Batch]:
        """Batches of a piece."""
        try:
            yield from self._cut(self.reading, piece, new)
        except BadRowsError:
            self._raise_where(piece)
            raise

    def _cut(
        self, reading: Reading, piece: int, new: Callable[[tuple[int, int]], Array] = np.empty
    ) -> Generator[Batch]:
        """Batches of a piece: rows straight from its file where numbers are plain, else by way of Arrow."""
        name = self.files.name(piece)
        with self.files.plain(piece, [] if reading.categories else reading.columns) as plain:
            if plain is not None:
                yield from plain.batches(reading, piece, name, new)
            else:
                tables = self.files.read(piece, reading.columns, reading.batch_rows)
                with closing(tables):
                    yield from reading.arrow_batches(piece, name, tables, new, self.files.rows[piece])

    def _raise_where(self, piece: int) -> None:
        """Read the files of a piece one by one, so that the error names the bad one, and its row."""
        for name, tables in self.files.parts(piece, self.reading.columns, self.reading.batch_rows):
            for _ in self.reading.arrow_batches(piece, name, tables):
                continue

    def first(self, piece: int, rows: int) -> list[Batch]:
        """Return the first rows of a piece with something to learn from, without reading more than needed."""
        reading = replace(self.reading, batch_rows=min(rows, self.reading.batch_rows))
        batch = None
        try:
            with closing(self._cut(reading, piece)) as batches:
                for batch in batches:
                    if len(batch) > batch.missing.size:
                        break
        except BadRowsError:
            self._raise_where(piece)
            raise
        return [] if batch is None else [batch]

    def column_samples(self, piece: int, features: list[int]) -> Iterator[Array]:
        """Target and features of a piece; columns of zeros and ones stand for others, and are not read."""
        if self.files.rows[piece] <= self.reading.batch_rows:
            return
        numbers, names = set(self.reading.features) - set(self.reading.categories), self.reading.names
        chosen = [names[j] for j in features if names[j] in numbers]
        columns = [self.reading.target, *chosen[:FEATURES_LOOKED_AT]]
        compared = max(len(self), self.files.rows[piece] / self.reading.batch_rows)
        for y, *X in self._columns(piece, columns):
            yield self.reading.some_rows(y, X, compared)

    def _columns(self, piece: int, names: list[str]) -> Iterator[list[Any]]:
        """Columns of a piece, as many rows of them as a batch has; the first one as an array."""
        with self.files.plain(piece, names) as plain:
            if plain is not None:
                yield from plain.parts(names, self.reading.batch_rows)
            else:
                for table in self.files.read(piece, names, self.reading.batch_rows):
                    y, *X = table.columns
                    yield [y.to_numpy(zero_copy_only=False), *X]


class Buffers:
    """Arrays that are used again: fresh memory would cost as much as filling it."""

    def __init__(self) -> None:
        self._free: queue.SimpleQueue[Array] = queue.SimpleQueue()
        self._made: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()

    def new(self, shape: tuple[int, int]) -> Array:
        """Return an array of the wanted shape, on memory that was given back where there is some."""
        size = shape[0] * shape[1]
        try:
            flat = self._free.get_nowait()
        except queue.Empty:
            flat = self._make(size)
        if flat.size < size:
            flat = self._make(size)
        return flat[:size].reshape(shape)

    def _make(self, size: int) -> Array:
        flat = np.empty(size)
        self._made[id(flat)] = flat
        return flat

    def give_back(self, X: Any) -> None:
        """Take an array back that was made here; nobody must look at it any more."""
        flat = self._made.get(id(X.base)) if isinstance(X, np.ndarray) else None
        if flat is not None and flat is X.base:
            self._free.put(flat)


def ahead(items: Iterable[T], depth: int = _AHEAD) -> Iterator[T]:
    """Iterate in a thread of its own, a few items ahead of whoever takes them.

    Examples
    --------
    >>> list(ahead(range(4)))
    [0, 1, 2, 3]
    """
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(kind: str, item: Any) -> None:
        while not stopped.is_set():
            try:
                ready.put((kind, item), timeout=0.1)
            except queue.Full:
                continue
            return

    def read() -> None:
        try:
            for item in items:
                put("item", item)
                if stopped.is_set():
                    break
        except BaseException as error:  # whatever it is, it belongs to whoever waits for items
            put("error", error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
            put("end", None)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        while True:
            kind, item = ready.get()
            if kind == "end":
                break
            if kind == "error":
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


@dataclass(frozen=True)
class BatchPlace:
    """Where a batch comes in a pass: which piece in its order, and which batch of the piece."""

    piece: int
    batch: int


@dataclass(frozen=True, eq=False)
class StreamEngine:
    """Trains and measures on one pass after another over the pieces.

    Parameters
    ----------
    pieces : Pieces
    n_jobs : int or None
        Threads that run kernels; others read.
    checkpoint : Checkpoint or None
        Where to go on after an end that was not meant.
    on_rows : callable
        Told the number of rows of each batch that is done.
    watchful : bool
        A survey looks whether rows are in some order.
    """

    pieces: Pieces
    n_jobs: int | None = None
    checkpoint: Any = None
    on_rows: Callable[[int], None] = lambda rows: None
    watchful: bool = False
    buffers: Buffers = field(default_factory=Buffers)

    def train(self, training: Any, states: list[Any]) -> list[Any]:
        """Candidates of all candidates over one more pass."""
        order = training.dealing.visits(training.number)
        candidates = [training.begin(state) for state in states]
        first, skip, key = 0, 0, (training.stage, training.number)
        if self.checkpoint is not None:
            first, skip, candidates = self.checkpoint.resume(key, candidates)
        moving = PassCandidates.of_states(dict(enumerate(candidates)))
        # Batches are dealt by the thread that reads them.
        for place, dealt in self._read(order, training.in_pass_order, training.deal_batch, first, skip):
            self._step(training, moving, dealt)
            if self.checkpoint is not None:
                so_far = list(moving.copy().states().values())
                self.checkpoint.save(key, place.piece, place.batch + 1, so_far)
            self._done(dealt.batch)
        candidates = list(moving.states().values())
        if self.checkpoint is not None:
            self.checkpoint.save(key, len(order), 0, candidates, now=True)
        return candidates

    def reduce(self, measure: Any) -> Array:
        """Sum of a measure over all pieces, added as every engine adds them."""
        saved = self.checkpoint if measure.name else None
        start = SumsSoFar(0, 0, [], []) if saved is None else saved.resume_sums(measure.name)
        sums_of_pieces, sums, current = list(start.pieces), list(start.batches), start.piece
        pieces = range(len(self.pieces))
        for place, batch in self._read(pieces, first=start.piece, skip=start.batch):
            if place.piece != current and sums:
                sums_of_pieces.append(measure.add(sums))
                sums = []
            current = place.piece
            sums.append(measure.on_batch(batch))
            if saved is not None:
                so_far = SumsSoFar(current, place.batch + 1, list(sums_of_pieces), list(sums))
                saved.save_sums(measure.name, so_far)
            self._done(batch)
        sums_of_pieces += [measure.add(sums)] if sums else []
        total = np.asarray(measure.total(sums_of_pieces or [measure.nothing()]))
        if saved is not None:
            saved.save_sums(measure.name, SumsSoFar(len(pieces), 0, [total], []), now=True)
        return total

    def survey(self, survey: Any) -> list[Any]:
        """What the first rows of each piece show."""
        survey = replace(survey, parts=_PARTS if self.watchful else 0)
        chosen = survey.pieces(len(self.pieces))
        looks = [survey.over_piece(self.pieces.first(piece, survey.first_rows)) for piece in chosen]
        if self.watchful:
            # First rows do not tell of a slow change inside a piece; its columns do, and a few are cheap.
            features = survey.most_drifting_features([seen for seen in looks if seen is not None])
            for i in np.unique(np.linspace(0, len(chosen) - 1, min(len(chosen), _WHOLE)).astype(int)):
                if looks[i] is not None:
                    looks[i] = survey.with_drift(looks[i], self.pieces.column_samples(chosen[i], features))
        return looks

    def usable_rows(self, seen: list[Any]) -> Array:
        """Rows to learn from in each piece, by a read of all of them: a survey sees the first ones only."""
        counts = np.zeros(len(self.pieces))
        for _, batch in self._read(range(len(self.pieces))):
            counts[batch.piece] += len(batch) - batch.missing.size
            self._done(batch)
        return counts

    def every_batch(self) -> Iterator[Batch]:
        """All batches once, in the order of the data; each is gone when the next one comes."""
        for _, batch in self._read(range(len(self.pieces))):
            yield batch
            self.buffers.give_back(batch.X)

    def _step(self, training: Any, candidates: PassCandidates, dealt: Any) -> None:
        """Take the candidates over their rows of a batch, some of them in each thread."""
        count, engine = len(candidates.blocks), LocalEngine(self.n_jobs, dealt.batch.X.size)
        together = -(-count // engine.at_once)
        spans = [slice(first, first + together) for first in range(0, count, together)]
        engine.run(lambda span: training.step(candidates.part(span), dealt), spans)

    def _read(
        self,
        order: Iterable[int],
        in_order: Arrange = iter,
        prepared: Callable[[Batch], Any] = lambda batch: batch,
        first: int = 0,
        skip: int = 0,
    ) -> Iterator[tuple[BatchPlace, Any]]:
        """Batches, or what is prepared of them, ahead of time, with their place in the pass."""

        def every() -> Iterator[tuple[BatchPlace, Any]]:
            for at, piece in enumerate(order):
                if at < first:
                    continue
                for count, batch in enumerate(in_order(self.pieces.batches(piece, self.buffers.new))):
                    if at > first or count >= skip:
                        yield BatchPlace(at, count), prepared(batch)

        return ahead(every())

    def _done(self, batch: Batch) -> None:
        self.on_rows(len(batch))
        self.buffers.give_back(batch.X)
