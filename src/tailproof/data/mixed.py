"""Rows in random order on disk: every piece is a sample of all rows, so that a stream can meet sorted data.

Rows are dealt at random to as many small files as there are batches. A file is then one batch of rows from
everywhere, and batches can be visited in any order. It takes one more pass and a copy of the rows on disk.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.data.readers.batches import Batch

_KEY = 2**32 - 3  # apart from the keys of blocks and of the dealing
_INDEX = "index.json"


@dataclass(frozen=True)
class MixedPieces:
    """Files of mixed rows: features, target and weight of a row side by side, in float64.

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


def known(folder: Path, mark: str) -> MixedPieces | None:
    """Rows that an earlier call has mixed for the same fit, to the end."""
    index = folder / _INDEX
    if not index.exists():
        return None
    found = MixedPieces(**json.loads(index.read_text()))
    return found if found.mark == mark else None


def mixed(
    batches: Iterable[Batch],
    folder: Path,
    files: int,
    entropy: int,
    skipped: Callable[[], Iterable[str]],
    mark: str = "",
) -> MixedPieces:
    """Deal the rows of batches at random to files.

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
    found = sorted(folder.iterdir(), key=lambda path: int(path.stem))
    for number, path in enumerate(found):  # a file that got no row is not there
        path.rename(_file(str(folder), number))
    pieces = MixedPieces(str(folder), len(found), width, dropped, weighted, entropy, list(skipped()), mark)
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
