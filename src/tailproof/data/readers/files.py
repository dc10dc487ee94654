"""Parquet, Arrow and CSV files (or a ``pyarrow.dataset``) as pieces that can be read in any order."""

from __future__ import annotations

import glob
import os
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tailproof.core.lookup import Registry, optional

FORMATS = Registry(
    "file ending",
    {
        ".parquet": "parquet",
        ".pq": "parquet",
        ".csv": "csv",
        ".tsv": "tsv",
        ".arrow": "ipc",
        ".feather": "ipc",
        ".ipc": "ipc",
    },
)
DELIMITERS = {"csv": ",", "tsv": "\t"}
MISSING_WORDS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "#N/A", "?")  # cells of a CSV
ENDINGS = ", ".join(FORMATS)
_MOST_LABELS = 10_000  # beyond which a target is not one of classes
_BUFFER = 1 << 20  # bytes read ahead of each column: whole row groups would not fit


class BadFileError(ValueError):
    """A file that cannot be read, or does not fit the others."""


@dataclass(frozen=True, eq=False)
class Files:
    """Files of one schema, cut into pieces: row groups of Parquet, whole files of other formats.

    Attributes
    ----------
    fragments : list
        One for each piece, of ``pyarrow.dataset``.
    names : list of str
        The file of each piece.
    rows : list of int
    schema : pyarrow.Schema
    skipped : set of str
        Files that could not be read.
    stamps : dict
        Size, time and number of each file when it was opened.
    skip : bool or None
        Skip a file that cannot be read instead of raising; None where that is no choice.
    """

    fragments: list[Any]
    names: list[str]
    rows: list[int]
    schema: Any
    skip: bool | None
    skipped: set[str] = field(default_factory=set)
    stamps: dict[str, Any] = field(default_factory=dict)

    width = 0  # columns have names

    def __len__(self) -> int:
        return len(self.fragments)

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(self.schema.names)

    @property
    def text(self) -> str:
        """What there is, in a few words."""
        return f"{len(set(self.names))} files, {sum(self.rows):,} rows"

    @property
    def fingerprint(self) -> list[Any]:
        """Names, sizes and times of the files: what makes them the same files tomorrow."""
        return [[name, *(self.stamps.get(name) or ())[:2]] for name in sorted(set(self.names))]

    def read(self, piece: int, columns: list[str], batch_rows: int) -> Generator[Any]:
        """Record batches of a piece, up to where it breaks off if that is to be skipped."""
        name = self.names[piece]
        self._check_unchanged(name)
        try:
            yield from _record_batches(self.fragments[piece], columns, batch_rows, self.schema)
        except (OSError, ValueError) as error:
            self._check_unchanged(name)
            self._give_up(name, error)
        self._check_unchanged(name)

    def _check_unchanged(self, name: str) -> None:
        if self.stamps.get(name) != _stamp(name):
            raise BadFileError(f"{name} was changed or removed meanwhile: start again when it is complete")

    def bad_files(self) -> tuple[str, ...]:
        """Files that could not be read, so far."""
        return tuple(sorted(self.skipped))

    def distinct(self, column: str) -> Any:
        """Different values of a column, missing ones aside."""
        found: set[Any] = set()
        for piece in range(len(self)):
            for batch in self.read(piece, [column], 1 << 17):
                found.update(batch.column(0).unique().drop_null().to_pylist())
            if len(found) > _MOST_LABELS:
                raise ValueError(
                    f"column {column!r} has more than {_MOST_LABELS:,} different values: a classifier needs "
                    "a target of classes"
                )
        return np.array(sorted(found))

    def _give_up(self, name: str, error: Exception) -> None:
        if not self.skip:
            raise _unreadable(name, error, self.skip) from None
        self.skipped.add(name)


def _unreadable(name: str, error: Exception, skip: bool | None) -> BadFileError:
    reason = str(error).splitlines()[0].rstrip(".")
    # Of a chain of reasons that repeat the name of the file, the last one tells what is wrong.
    reason = reason.rpartition(f"'{name}': ")[2] or reason
    choice = "or leave it out" if skip is None else "or give on_bad_file='skip'"
    return BadFileError(f"cannot read {name} ({reason}): fix it, {choice}")


def is_path(data: Any) -> bool:
    """Whether data names files: a path, a glob, or a list of them."""
    if isinstance(data, (list, tuple)):
        return len(data) > 0 and all(isinstance(item, (str, Path)) for item in data)
    return isinstance(data, (str, Path))


def open_files(data: Any, *, skip: bool | None = False) -> Files:
    """Open paths, globs, directories or a ``pyarrow.dataset.Dataset``; check that schemas agree.

    Parameters
    ----------
    data : path, list of paths, or Dataset
    skip : bool
        Leave unreadable files out instead of raising.
    """
    ds = optional("pyarrow.dataset", extra="cli")
    if isinstance(data, ds.Dataset):
        fragments = [
            (str(getattr(f, "path", f"fragment {i}")), f) for i, f in enumerate(data.get_fragments())
        ]
        return _checked(fragments, skip, set(), {name: _stamp(name) for name, _ in fragments})
    found, skipped, stamps = [], set(), {}
    for path in expand(data):
        stamps[str(path)] = _stamp(str(path))
        kind = FORMATS[path.suffix.lower()]
        try:
            opened = ds.dataset(path, format=_dataset_format(kind))
            found += [(str(path), fragment) for fragment in opened.get_fragments()]
        except (OSError, ValueError) as error:
            if not skip:
                raise _unreadable(str(path), error, skip) from None
            skipped.add(str(path))
    return _checked(found, skip, skipped, stamps)


def expand(data: Any) -> list[Path]:
    """Files behind paths, globs and folders, by name; of a folder, those whose ending is known."""
    items = data if isinstance(data, (list, tuple)) else [data]
    return [file for item in items for file in _files_of(str(item))]


def _files_of(item: str) -> list[Path]:
    path = Path(item)
    # "**" finds a folder and what is in it.
    matches = [path] if path.exists() else sorted(Path(name) for name in glob.glob(item, recursive=True))
    found = list(dict.fromkeys(file for match in matches for file in _inside(match)))
    if found:
        return found
    if path.is_dir():
        raise FileNotFoundError(f"the folder {item} holds no file that ends in {ENDINGS}")
    if glob.has_magic(item):
        raise FileNotFoundError(f"no file matches {item!r}; in folders, files must end in {ENDINGS}")
    raise FileNotFoundError(f"there is no file or folder {item}")


def _inside(path: Path) -> list[Path]:
    """The file itself, or those in a folder and its folders; what is hidden is nobody's data."""
    if not path.is_dir():
        return [path]
    files = (file for file in path.rglob("*") if file.suffix.lower() in FORMATS and file.is_file())
    return sorted(file for file in files if not any(p.startswith(".") for p in file.relative_to(path).parts))


def _dataset_format(kind: str) -> Any:
    """What ``pyarrow.dataset`` calls a format."""
    if kind not in DELIMITERS:
        return kind
    parsing = optional("pyarrow.csv", extra="cli").ParseOptions(delimiter=DELIMITERS[kind])
    return optional("pyarrow.dataset", extra="cli").CsvFileFormat(parsing, convert_options=csv_conversion())


def csv_conversion(**more: Any) -> Any:
    """How the cells of a CSV become values, wherever one is read: ``pyarrow.csv.ConvertOptions``.

    Parameters
    ----------
    **more
        Further options, such as ``include_columns``.
    """
    options = optional("pyarrow.csv", extra="cli").ConvertOptions
    return options(strings_can_be_null=True, null_values=list(MISSING_WORDS), **more)


def _stamp(name: str) -> tuple[int, int, int] | None:
    """What changes when a file does; None where it is not on a disk of this machine."""
    try:
        status = os.stat(name)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _checked(
    found: list[tuple[str, Any]], skip: bool | None, skipped: set[str], stamps: dict[str, Any]
) -> Files:
    first: tuple[str, Any] | None = None
    pieces: list[tuple[str, Any, int]] = []
    for name, fragment in found:
        try:
            schema = fragment.physical_schema
            parts = _pieces_of(fragment)
        except (OSError, ValueError) as error:
            if not skip:
                raise _unreadable(name, error, skip) from None
            skipped.add(name)
            continue
        first = first or (name, schema)
        _same_schema(*first, name, schema)
        pieces += [(name, part, rows) for part, rows in parts if rows]
    if first is None or not pieces:
        raise BadFileError("none of the files holds a row that can be read")
    names, fragments, rows = (list(values) for values in zip(*pieces, strict=True))
    return Files(fragments, names, rows, first[1], skip, skipped, stamps)


def _pieces_of(fragment: Any) -> list[tuple[Any, int]]:
    if hasattr(fragment, "split_by_row_group"):
        parts = fragment.split_by_row_group()
        return [(part, sum(group.num_rows for group in part.row_groups)) for part in parts]
    return [(fragment, fragment.count_rows())]


def _same_schema(first: str, wanted: Any, name: str, schema: Any) -> None:
    if wanted.equals(schema):
        return
    ours, theirs = ({column.name: str(column.type) for column in s} for s in (wanted, schema))
    for column in [*ours, *theirs]:
        if ours.get(column) != theirs.get(column):
            raise BadFileError(
                f"{name} and {first} have different schemas: column {column!r} is "
                f"{theirs.get(column, 'absent')} in the former and {ours.get(column, 'absent')} in the latter"
            )


def _record_batches(fragment: Any, columns: list[str], batch_rows: int, schema: Any) -> Generator[Any]:
    if not hasattr(fragment, "row_groups"):
        yield from fragment.to_batches(columns=columns, batch_size=batch_rows, schema=schema)
        return
    import pyarrow.parquet as pq

    # Twice as fast as the fragment's own scan, and it holds a buffer of each column, not a row group.
    with fragment.filesystem.open_input_file(fragment.path) as source:
        file = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
        groups = [group.id for group in fragment.row_groups]
        yield from file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=columns)
