"""Rows that are in some order: noticed by a first look, and shuffled on disk.

Rows are assigned at random to as many small files as there are batches. A file is then one batch, a sample of
all rows, and batches can be visited in any order. It takes one more pass and a copy of the rows on disk.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.data.first_look import Seen
from tailproof.data.fit import DataSource
from tailproof.data.readers.batches import Batch
from tailproof.data.readers.temporary_folder import temporary_folder

DISK = "disk"
_SPARE = 2.0  # free space against what the copy takes, where nobody asked for it
_KEY = 2**32 - 3  # apart from the keys of blocks and of the dealing
_INDEX = "index.json"


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

    def source_of_shuffled_rows(self) -> DataSource | None:
        """Return the same rows in random order, where there is room for them; else None."""
        folder, mark = self._folder(), "" if self.saved is None else self.saved.fingerprint
        pieces = open_shuffled(folder, mark) if self.saved is not None else None
        if pieces is None and not self._has_room(folder.parent):
            return None
        pieces = pieces or self._shuffle(folder, mark)
        return replace(
            self.source,
            engine=replace(self.source.engine, pieces=pieces, watchful=False),
            text=f"{self.source.text}, shuffled on disk" + ("" if self.asked else " since they look sorted"),
            pieces=len(pieces),
            skipped=partial(tuple, pieces.skipped),
        )

    def _folder(self) -> Path:
        if self.saved is None:
            return self.stack.enter_context(temporary_folder()) / "rows"
        folder = self.saved.path.with_name(self.saved.path.name + ".rows")
        self.saved.beside.append(folder)
        return Path(folder)

    def _shuffle(self, folder: Path, mark: str) -> ShuffledPieces:
        files = max(1, -(-(self.source.rows or 1) // self.batch_rows))
        batches = self.source.engine.every_batch()
        return write_shuffled(batches, folder, files, self.entropy, self.source.skipped, mark)

    def _has_room(self, place: Path) -> bool:
        size = 8 * (self.source.width + 2) * (self.source.rows or 1)
        free = shutil.disk_usage(place).free
        if free > size * (1.0 if self.asked else _SPARE):
            return True
        text = f"shuffling them on disk takes {size / 1e9:.1f} GB and {place} has {free / 1e9:.1f} free"
        remedy = "set TMPDIR to a folder on a larger disk"
        if self.asked:
            raise OSError(f"there is no room for the rows: {text}: {remedy}")
        warnings.warn(
            f"the rows look sorted, but {text}, so they are visited in their order and candidates may not "
            f"settle: {remedy}",
            UserWarning,
            stacklevel=7,
        )
        return False


def shuffled_on_disk(
    source: DataSource,
    asked: bool,
    batch_rows: int,
    entropy: int,
    stack: ExitStack,
    saved: Any,
    seen: list[Seen],
) -> DataSource | None:
    """Return the same rows in random order, where there is room for them on disk; else None."""
    if all(piece.dense for piece in seen):
        return DiskShuffle(source, asked, batch_rows, entropy, stack, saved).source_of_shuffled_rows()
    if asked:
        raise ValueError(
            "sparse chunks cannot be shuffled on disk: shuffle their rows before, or make them dense"
        )
    return None


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
    mark : str
        What makes these rows those of one fit.
    """

    folder: str
    files: int
    width: int
    dropped: int
    weighted: bool
    entropy: int
    skipped: list[str]
    mark: str

    def __len__(self) -> int:
        return self.files

    def batches(self, piece: int, new: Callable[[tuple[int, int]], Array] = np.empty) -> Iterator[Batch]:
        """The one batch of a piece."""
        rows = np.fromfile(_file(self.folder, piece)).reshape(-1, self.width + 2)
        yield self._batch(piece, rows, self._order(piece, len(rows)), new)

    def first(self, piece: int, rows: int) -> list[Batch]:
        """A few rows of a piece."""
        table = np.memmap(_file(self.folder, piece), mode="r").view(np.float64).reshape(-1, self.width + 2)
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


def open_shuffled(folder: Path, mark: str) -> ShuffledPieces | None:
    """Rows that an earlier call has shuffled for the same fit, to the end."""
    index = folder / _INDEX
    if not index.exists():
        return None
    pieces = ShuffledPieces(**json.loads(index.read_text()))
    return pieces if pieces.mark == mark else None


def write_shuffled(
    batches: Iterable[Batch],
    folder: Path,
    files: int,
    entropy: int,
    skipped: Callable[[], Iterable[str]],
    mark: str = "",
) -> ShuffledPieces:
    """Assign the rows of batches at random to files.

    Parameters
    ----------
    batches : iterable of Batch
    folder : Path
        Emptied first.
    files : int
        As many as there are batches, so that a file fits into memory as a batch does.
    entropy : int
        Of the seed.
    skipped : callable
        Files that could not be read, asked for at the end.
    mark : str
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    dropped, width, weighted = 0, 0, False
    for number, batch in enumerate(batches):
        dropped += batch.dropped
        if len(batch) == 0:
            continue
        width, weighted = batch.X.shape[1], batch.weights.size > 0
        _scatter(folder, files, _random(entropy, 0, number), batch)
    paths = sorted(folder.iterdir(), key=lambda path: int(path.stem))
    for number, path in enumerate(paths):  # a file that got no row is not there
        path.rename(_file(str(folder), number))
    pieces = ShuffledPieces(str(folder), len(paths), width, dropped, weighted, entropy, list(skipped()), mark)
    # Last, so that a folder with an index is whole.
    (folder / _INDEX).write_text(json.dumps(asdict(pieces)))
    return pieces


def _scatter(folder: Path, files: int, random: np.random.Generator, batch: Batch) -> None:
    rows = batch.usable(np.arange(len(batch)))
    takers = random.integers(files, size=rows.size)
    order = np.argsort(takers, kind="stable")
    rows, ends = rows[order], np.searchsorted(takers[order], np.arange(files + 1))
    weights = batch.weights if batch.weights.size else np.ones(len(batch))
    table = np.column_stack([batch.X[rows], batch.y[rows], weights[rows]])
    for taker in np.flatnonzero(np.diff(ends)):
        with Path(_file(str(folder), int(taker))).open("ab") as file:
            table[ends[taker] : ends[taker + 1]].tofile(file)


def _file(folder: str, number: int) -> str:
    return f"{folder}/{number}.rows"


def _random(entropy: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(_KEY, *key)))
