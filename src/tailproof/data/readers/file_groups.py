"""Many small files as few pieces, whose batches span files: every batch costs each candidate a step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from tailproof.data.readers.files import Files

_MANY = 64  # files that are left as they are, however small
_SMALL = 8  # a small file holds a batch divided by this, at most


@dataclass(frozen=True, eq=False)
class FileGroups:
    """Files whose pieces are neighbours taken together, at most a batch in each.

    Attributes
    ----------
    files : Files
    groups : list of list of int
        Pieces of the files that are one here.
    """

    files: Files
    groups: list[list[int]]

    width = 0  # columns have names

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return self.files.columns

    @property
    def lasting(self) -> bool:
        """Whether the files will be there tomorrow."""
        return self.files.lasting

    @property
    def text(self) -> str:
        """What there is, in a few words."""
        return self.files.text

    @property
    def rows(self) -> list[int]:
        """Rows of each piece."""
        return [sum(self.files.rows[piece] for piece in group) for group in self.groups]

    @property
    def fingerprint(self) -> list[Any]:
        """Of the files; and how many pieces they are, which a pass that is resumed must know."""
        return [*self.files.fingerprint, ["pieces", len(self.groups)]]

    def parts(self, piece: int, columns: list[str], batch_rows: int) -> Iterator[tuple[str, Generator[Any]]]:
        """Files of a piece by name, with their record batches."""
        for one in self.groups[piece]:
            yield from self.files.parts(one, columns, batch_rows)

    def read(self, piece: int, columns: list[str], batch_rows: int) -> Generator[Any]:
        """Record batches of a piece."""
        for _, batches in self.parts(piece, columns, batch_rows):
            yield from batches

    def plain(self, piece: int, columns: list[str]) -> AbstractContextManager[None]:
        """No piece is one row group of one file."""
        return nullcontext()

    def name(self, piece: int) -> str:
        """The file of a piece, or the first of them."""
        return self.files.name(self.groups[piece][0])

    def with_numbers(self, names: Iterable[str]) -> FileGroups:
        """The same, where some columns are read as numbers whatever the first ones look like."""
        return replace(self, files=self.files.with_numbers(names))

    def bad_files(self) -> tuple[str, ...]:
        """Files that could not be read, so far."""
        return self.files.bad_files()

    def distinct(self, column: str) -> Any:
        """Different values of a column, missing ones aside."""
        return self.files.distinct(column)


def taken_together(files: Files, batch_rows: int) -> Files | FileGroups:
    """Take neighbours together where files are many and small."""
    if len(files) <= _MANY or sum(files.rows) * _SMALL > len(files) * batch_rows:
        return files
    groups: list[list[int]] = [[]]
    held = 0
    for piece, rows in enumerate(files.rows):
        if groups[-1] and held + rows > batch_rows:
            groups.append([])
            held = 0
        groups[-1].append(piece)
        held += rows
    return FileGroups(files, groups)
