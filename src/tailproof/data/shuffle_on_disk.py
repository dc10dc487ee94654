"""Rows that are in some order: noticed by a first look, and shuffled on disk.

Rows are assigned at random to as many small files as there are batches. A file is then one batch, a sample of
all rows, and batches can be visited in any order. It takes one more pass and a copy of the rows on disk.
"""

from __future__ import annotations

import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.data import durable
from tailproof.data.first_look import Seen
from tailproof.data.fit import DataSource
from tailproof.data.readers.batches import Batch

DISK = "disk"
_SPARE = 2.0  # free space against what the copy takes, where nobody asked for it
_KEY = 2**32 - 3  # apart from the keys of blocks and of the dealing


@dataclass(frozen=True, eq=False)
class DiskShuffle:
    """Shuffles the rows of a stream on disk.

    Parameters
    ----------
    source : DataSource
    asked : bool
        By the user, not because the rows look sorted.
    batch_rows : int
    entropy : int
        Of the seed.
    stack : ExitStack
        Removes the folder at the end.
    saved : Checkpoint or None
        Then the folder lies beside its file, and is there when an interrupted fit goes on.
    """

    source: DataSource
    asked: bool
    batch_rows: int
    entropy: int
    stack: ExitStack
    saved: Any = None

    def source_of_shuffled_rows(self) -> DataSource:
        """Return the same rows in random order; raise where there is no room for them."""
        pieces = self._shuffled_before() or self._shuffle()
        return replace(
            self.source,
            engine=replace(self.source.engine, pieces=pieces, watchful=False),
            text=f"{self.source.text}, shuffled on disk" + ("" if self.asked else " since they look sorted"),
            pieces=len(pieces),
            skipped=partial(tuple, pieces.skipped),
        )

    def _shuffled_before(self) -> ShuffledPieces | None:
        return None if self.saved is None else open_shuffled(self.saved.rows_folder)

    def _shuffle(self) -> ShuffledPieces:
        """Write the rows, or refuse where there is no room: sorted rows would bias all candidates alike."""
        place = Path(tempfile.gettempdir()) if self.saved is None else self.saved.path.parent
        size = 8 * (self.source.width + 2) * (self.source.rows or 1)
        lacking = durable.room_for(size * (1.0 if self.asked else _SPARE), place)
        if not lacking:
            try:
                return self._write()
            except OSError as error:
                if error.errno not in durable.FULL:
                    raise
                lacking = f"the disk of {place} is full"
        remedy = "set TMPDIR to" if self.saved is None else "give a checkpoint in"
        reason = "are to" if self.asked else "look sorted and must"
        raise OSError(
            f"the rows {reason} be shuffled on disk, but {lacking}: {remedy} a folder on a larger disk, or "
            "give shuffle=True, which visits rows as they lie and is right only where that is a random order"
        )

    def _write(self) -> ShuffledPieces:
        files = max(1, -(-(self.source.rows or 1) // self.batch_rows))
        batches, skipped = self.source.engine.every_batch(), self.source.skipped
        if self.saved is None:
            folder = self.stack.enter_context(durable.temporary_folder())
            return write_shuffled(batches, folder, files, self.entropy, skipped)
        durable.fresh_folder(self.saved.rows_folder, "rows of a fit with a checkpoint")
        try:
            return write_shuffled(batches, self.saved.rows_folder, files, self.entropy, skipped, keep=True)
        except BaseException:
            durable.remove_own(self.saved.rows_folder)
            raise


def shuffled_on_disk(
    source: DataSource,
    asked: bool,
    batch_rows: int,
    entropy: int,
    stack: ExitStack,
    saved: Any,
    seen: list[Seen],
) -> DataSource | None:
    """Return the same rows in random order; None for sparse ones, which are not shuffled unasked."""
    if all(piece.dense for piece in seen):
        return DiskShuffle(source, asked, batch_rows, entropy, stack, saved).source_of_shuffled_rows()
    if asked:
        raise ValueError(
            "sparse chunks cannot be shuffled on disk: shuffle their rows before, or make them dense"
        )
    return None


def warn_of_order(shuffle: Any, seen: list[Seen]) -> None:
    """Say that rows which look sorted are visited as they lie, since that was asked for."""
    warnings.warn(
        f"the rows look sorted, and shuffle={shuffle} visits them as they lie: candidates may all be off "
        "alike; leave shuffle out, which shuffles such rows on disk, unless their order is random",
        UserWarning,
        stacklevel=5,
    )


@dataclass(frozen=True)
class ShuffledPieces:
    """Files of shuffled rows: features, target and weight of a row side by side, in float64.

    Attributes
    ----------
    folder : str
    files, width, dropped : int
        Number of files, of features, and of rows that were left out on the way.
    weighted : bool
    entropy : int
    skipped : list of str
        Files that could not be read on the way.
    """

    folder: str
    files: int
    width: int
    dropped: int
    weighted: bool
    entropy: int
    skipped: list[str]

    def __len__(self) -> int:
        return self.files

    def batches(self, piece: int, new: Callable[[tuple[int, int]], Array] = np.empty) -> Iterator[Batch]:
        """The one batch of a piece."""
        rows = np.fromfile(f"{self.folder}/{piece}.rows").reshape(-1, self.width + 2)
        yield self._batch(piece, rows, self._order(piece, len(rows)), new)

    def first(self, piece: int, rows: int) -> list[Batch]:
        """A few rows of a piece."""
        table = (
            np.memmap(f"{self.folder}/{piece}.rows", mode="r").view(np.float64).reshape(-1, self.width + 2)
        )
        return [self._batch(piece, table, self._order(piece, len(table))[:rows], np.empty)]

    def _batch(self, piece: int, table: Array, rows: NDArray[np.intp], new: Callable[..., Array]) -> Batch:
        X = new((rows.size, self.width))
        X[:] = table[rows, :-2]
        y, weights = (np.ascontiguousarray(table[rows, j]) for j in (-2, -1))
        nobody = np.empty(0, dtype=np.intp)
        return Batch(
            piece, 0, X, y, weights if self.weighted else np.empty(0), nobody, 0 if piece else self.dropped
        )

    def _order(self, piece: int, n: int) -> NDArray[np.intp]:
        """Rows came to the file in the order of the data: neighbours must not be alike."""
        return _random(self.entropy, 1, piece).permutation(n)


def open_shuffled(folder: Path) -> ShuffledPieces | None:
    """Rows that an earlier call has shuffled; None unless all of them are there and unchanged."""
    content = durable.read_index(folder)
    return None if content is None else ShuffledPieces(**content | {"folder": str(folder)})


def write_shuffled(
    batches: Iterable[Batch],
    folder: Path,
    files: int,
    entropy: int,
    skipped: Callable[[], Iterable[str]],
    keep: bool = False,
) -> ShuffledPieces:
    """Assign the rows of batches at random to files.

    Parameters
    ----------
    batches : iterable of Batch
    folder : Path
        Made by :mod:`tailproof.data.durable`.
    files : int
        As many as there are batches, so that a file fits into memory as a batch does.
    entropy : int
        Of the seed.
    skipped : callable
        Files that could not be read, asked for at the end.
    keep : bool
        Write an index, with which a later call can open them.
    """
    dropped, width, weighted, checksums = 0, 0, False, dict[int, int]()
    for number, batch in enumerate(batches):
        dropped += batch.dropped
        if len(batch) == 0:
            continue
        width, weighted = batch.X.shape[1], batch.weights.size > 0
        for file, rows in _scatter(files, _random(entropy, 0, number), batch):
            with durable.append_to(folder / f"{file}.rows") as into:
                into.write(rows.data)
            checksums[file] = zlib.crc32(rows.data, checksums.get(file, 0)) if keep else 0
    for number, file in enumerate(sorted(checksums)):  # a file that got no row is not there
        (folder / f"{file}.rows").rename(folder / f"{number}.rows")
    pieces = ShuffledPieces(str(folder), len(checksums), width, dropped, weighted, entropy, list(skipped()))
    if keep:
        names = {f"{number}.rows": checksums[file] for number, file in enumerate(sorted(checksums))}
        durable.write_index(folder, asdict(pieces), names)
    return pieces


def _scatter(files: int, random: np.random.Generator, batch: Batch) -> Iterator[tuple[int, Array]]:
    """Rows of a batch for each of the files that get some."""
    rows = batch.usable(np.arange(len(batch)))
    takers = random.integers(files, size=rows.size)
    order = np.argsort(takers, kind="stable")
    rows, ends = rows[order], np.searchsorted(takers[order], np.arange(files + 1))
    weights = batch.weights if batch.weights.size else np.ones(len(batch))
    table = np.column_stack([batch.X[rows], batch.y[rows], weights[rows]])
    for taker in np.flatnonzero(np.diff(ends)):
        yield int(taker), table[ends[taker] : ends[taker + 1]]


def _random(entropy: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(_KEY, *key)))
