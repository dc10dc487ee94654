"""Parquet, Arrow, ORC, CSV and JSON files, or a ``pyarrow.dataset``, as pieces to be read in any order."""

from __future__ import annotations

import glob
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tailproof.core.lookup import optional
from tailproof.data.readers.folders import kinds, typed, values_below, with_constants, with_fields
from tailproof.data.readers.formats import (
    DELIMITERS,
    FORMATS,
    STREAMED_FORMATS,
    csv_conversion,
    dataset_format,
)
from tailproof.data.readers.packed import PACKING, PackedText
from tailproof.data.readers.plain import PlainRows, open_plain
from tailproof.data.readers.urls import behind_url
from tailproof.data.readers.widening import CommonSchema, widened

_MOST_LABELS = 10_000  # beyond which a target is not one of classes
_AHEAD = 1 << 24  # bytes read ahead, of all columns: whole row groups would not fit
_LEAST, _MOST = 1 << 14, 1 << 20  # of each column
_CELLS = 1 << 22  # numbers that are decoded together, 32 MB
_FEWEST = 1_024  # rows that are decoded together, however many columns: each costs a call a column
_SMALL_GROUP = 1 << 20  # bytes of a row group that is decoded sooner than handed to other threads


class BadFileError(ValueError):
    """A file that cannot be read, or does not fit the others."""


@dataclass(frozen=True, eq=False)
class Files:
    """Files with the same columns, cut into pieces: row groups of Parquet, whole files of other formats.

    Attributes
    ----------
    fragments : list
        One for each piece, of ``pyarrow.dataset``.
    names : list of str
        The file of each piece.
    rows : list of int
    schema : pyarrow.Schema
        Of every column the type that holds its values in all files.
    skipped : set of str
        Files that could not be read.
    stamps : dict
        Size, time and number of each file when it was opened.
    skip : bool or None
        Skip a file that cannot be read instead of raising; None where that is no choice.
    folder_values : list of dict
        For each piece, columns that are in the names of its folders (``day=3/region=north``).
    text : str
        What there is, in a few words.
    shown : list of str
        What errors call the file of each piece; its name, where this is empty.
    lasting : bool
        The files will be there tomorrow.
    """

    fragments: list[Any]
    names: list[str]
    rows: list[int]
    schema: Any
    skip: bool | None
    skipped: set[str] = field(default_factory=set)
    stamps: dict[str, Any] = field(default_factory=dict)
    folder_values: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    shown: list[str] = field(default_factory=list)
    lasting: bool = True

    width = 0  # columns have names

    def __len__(self) -> int:
        return len(self.fragments)

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(self.schema.names)

    @property
    def fingerprint(self) -> list[Any]:
        """Names, sizes and times of the files: what makes them the same files tomorrow."""
        return [[name, *(self.stamps.get(name) or ())[:2]] for name in sorted(set(self.names))]

    def read(self, piece: int, columns: list[str], batch_rows: int) -> Generator[Any]:
        """Record batches of a piece, at most ``batch_rows`` rows each, up to where it breaks off."""
        name = self.names[piece]
        self._check_unchanged(name)
        try:
            yield from self._record_batches(piece, columns, batch_rows)
        except (OSError, ValueError) as error:
            self._check_unchanged(name)
            self._give_up(name, error)
        self._check_unchanged(name)

    @contextmanager
    def plain(self, piece: int, columns: list[str]) -> Iterator[PlainRows | None]:
        """Columns of a piece that lie in its file as they are, up to where it breaks off; else None."""
        name, stored = self.names[piece], [] if self.folder_values[piece] else columns
        self._check_unchanged(name)
        try:
            with open_plain(self.fragments[piece], stored, self.schema) as rows:
                yield rows
        except OSError as error:
            self._check_unchanged(name)
            self._give_up(name, error)
        self._check_unchanged(name)

    def parts(self, piece: int, columns: list[str], batch_rows: int) -> Iterator[tuple[str, Generator[Any]]]:
        """The file of a piece by name, with its record batches."""
        yield self.name(piece), self.read(piece, columns, batch_rows)

    def name(self, piece: int) -> str:
        """What errors call the file of a piece."""
        return (self.shown or self.names)[piece]

    def with_numbers(self, names: Iterable[str]) -> Files:
        """The same, with columns that are numbers even where a CSV begins with whole or missing ones."""
        pa = optional("pyarrow", extra="cli")
        if not any(_is_csv(fragment) for fragment in self.fragments):
            return self
        schema = self.schema
        for name in names:
            place = schema.get_field_index(name)
            if place >= 0 and str(schema.field(place).type) in ("int64", "null"):
                schema = schema.set(place, schema.field(place).with_type(pa.float64()))
        return replace(self, schema=schema)

    def _record_batches(self, piece: int, columns: list[str], batch_rows: int) -> Generator[Any]:
        constant = self.folder_values[piece]
        stored = [name for name in columns if name not in constant]
        read = stored or [name for name in self.columns if name not in constant][:1]
        for batch in _record_batches(self.fragments[piece], read, batch_rows, self.schema):
            yield with_constants(batch, columns, constant, self.schema) if constant else batch

    def _check_unchanged(self, name: str) -> None:
        if self.stamps.get(name) != _stamp(name):
            raise BadFileError(f"{name} was changed or removed meanwhile: start again when it is complete")

    def bad_files(self) -> tuple[str, ...]:
        """Files that could not be read, so far."""
        return tuple(sorted(self.skipped))

    def distinct(self, column: str) -> Any:
        """Different values of a column, missing ones aside."""
        values: set[Any] = set()
        for piece in range(len(self)):
            for batch in self.read(piece, [column], 1 << 17):
                values.update(batch.column(0).unique().drop_null().to_pylist())
            if len(values) > _MOST_LABELS:
                raise ValueError(
                    f"column {column!r} has more than {_MOST_LABELS:,} different values: a classifier needs "
                    "a target of classes"
                )
        return np.array(sorted(values))

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
    """Open paths, globs, directories or a ``pyarrow.dataset.Dataset``; check that their columns fit together.

    Parameters
    ----------
    data : path, list of paths, or Dataset
    skip : bool
        Leave unreadable files out instead of raising.
    """
    ds = optional("pyarrow.dataset", extra="cli")
    if isinstance(data, ds.Dataset):
        named = [(str(getattr(f, "path", f"fragment {i}")), f) for i, f in enumerate(data.get_fragments())]
        fragments = [
            Fragment(name, part, ds.get_partition_keys(part.partition_expression)) for name, part in named
        ]
        return _checked(fragments, skip, set(), {name: _stamp(name) for name, _ in named})
    fragments, skipped, stamps = [], set(), {}
    for place in _places(data):
        stamps[place.name] = _stamp(place.name)
        kind = STREAMED_FORMATS[_ending(place.path)]
        try:
            parts = _parts(place, kind)
            fragments += [Fragment(place.name, part, place.folder_values) for part in parts]
        except (OSError, ValueError) as error:
            if not skip:
                raise _unreadable(place.name, error, skip) from None
            skipped.add(place.name)
    return _checked(fragments, skip, skipped, stamps)


@dataclass(frozen=True, eq=False)
class Fragment:
    """A part of a dataset, with its name and the values in the names of its folders."""

    name: str
    part: Any
    folder_values: dict[str, Any]


@dataclass(frozen=True, eq=False)
class FilePlace:
    """A file, on this machine or behind a URL."""

    name: str
    path: str
    folder_values: dict[str, Any]
    filesystem: Any = None


def _places(data: Any) -> list[FilePlace]:
    """Files behind paths, globs, folders and URLs, with the values in the names of folders."""
    places: list[FilePlace] = []
    for item in data if isinstance(data, (list, tuple)) else [data]:
        if "://" in str(item):
            places += [FilePlace(*found) for found in behind_url(str(item), STREAMED_FORMATS)]
            continue
        for file in expand(item, STREAMED_FORMATS):
            values = values_below(item, file) if "=" in str(file.parent) else {}
            places.append(FilePlace(str(file), str(file), values))
    return places


def _ending(path: str) -> str:
    """The ending of a file, with that of what it was compressed by."""
    stem, last = os.path.splitext(path.lower())
    both = os.path.splitext(stem)[1] + last
    return both if both in STREAMED_FORMATS else last


def expand(data: Any, formats: Mapping[str, str] = FORMATS) -> list[Path]:
    """Files behind paths, globs and folders, by name; of a folder, those whose ending is known."""
    items = data if isinstance(data, (list, tuple)) else [data]
    return [file for item in items for file in _files_of(str(item), formats)]


def _files_of(item: str, formats: Mapping[str, str]) -> list[Path]:
    path = Path(item)
    # "**" finds a folder and what is in it.
    matches = [path] if path.exists() else sorted(Path(name) for name in glob.glob(item, recursive=True))
    files = list(dict.fromkeys(file for match in matches for file in _inside(match, formats)))
    if files:
        return files
    if path.is_dir():
        raise FileNotFoundError(f"the folder {item} holds no file that ends in {', '.join(formats)}")
    if glob.has_magic(item):
        raise FileNotFoundError(f"no file matches {item!r}; in folders, files end in {', '.join(formats)}")
    raise FileNotFoundError(f"there is no file or folder {item}")


def _inside(path: Path, formats: Mapping[str, str]) -> list[Path]:
    """The file itself, or those in a folder and its folders; what is hidden is nobody's data."""
    if not path.is_dir():
        return [path]
    files = (
        file
        for file in path.rglob("*")
        if (file.suffix.lower() in formats or _ending(file.name) in formats) and file.is_file()
    )
    return sorted(file for file in files if not any(p.startswith(".") for p in file.relative_to(path).parts))


def _parts(place: FilePlace, kind: str) -> list[Any]:
    """A file as parts of a dataset."""
    if place.path.lower().endswith(PACKING):
        text = PackedText(place.path, DELIMITERS[kind], csv_conversion, place.filesystem)
        return [text] if text.physical_schema else []
    ds = optional("pyarrow.dataset", extra="cli")
    if kind == "parquet" and place.filesystem is None:
        # A dataset for each of a thousand files would take as long as reading them.
        here = optional("pyarrow.fs", extra="cli").LocalFileSystem()
        return [ds.ParquetFileFormat().make_fragment(place.path, here)]
    opened = ds.dataset(place.path, format=dataset_format(kind), filesystem=place.filesystem)
    return list(opened.get_fragments())


def _stamp(name: str) -> tuple[int, int, int] | None:
    """What changes when a file does; None where it is not on a disk of this machine."""
    try:
        status = os.stat(name)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _checked(opened: list[Fragment], skip: bool | None, skipped: set[str], stamps: dict[str, Any]) -> Files:
    schemas: list[tuple[str, Any]] = []
    pieces: list[tuple[str, Any, int, dict[str, Any]]] = []
    folders = [fragment.folder_values for fragment in opened]
    folders = typed(folders) if any(folders) else folders
    of_folders = kinds(folders) if any(folders) else {}
    for fragment, constant in zip(opened, folders, strict=True):
        try:
            schema = fragment.part.physical_schema
            schema = with_fields(schema, constant, of_folders) if constant else schema
            parts = _pieces_of(fragment.part)
        except (OSError, ValueError) as error:
            if not skip:
                raise _unreadable(fragment.name, error, skip) from None
            skipped.add(fragment.name)
            continue
        schemas.append((fragment.name, schema))
        pieces += [(fragment.name, part, rows, constant) for part, rows in parts if rows]
    if not pieces:
        raise BadFileError("none of the files holds a row that can be read: give files that do")
    names, fragments, rows, values = (list(column) for column in zip(*pieces, strict=True))
    text = f"{len(set(names))} files, {sum(rows):,} rows"
    schema = _common_schema(schemas)
    return Files(fragments, names, rows, schema, skip, skipped, stamps, values, text)


def _is_csv(fragment: Any) -> bool:
    if isinstance(fragment, PackedText):
        return True
    return hasattr(fragment, "format") and fragment.format.default_extname == "csv"  # tables have none


def _common_schema(schemas: list[tuple[str, Any]]) -> Any:
    """Columns of all files, each of a type that holds its values in every one of them."""
    if all(schema.equals(schemas[0][1]) for _, schema in schemas):
        return schemas[0][1]
    common = CommonSchema()
    try:
        for name, schema in schemas:
            common.add(name, schema)
    except ValueError as error:
        raise BadFileError(str(error)) from None
    return common.schema


def _pieces_of(fragment: Any) -> list[tuple[Any, int]]:
    if hasattr(fragment, "split_by_row_group"):
        if fragment.metadata.num_row_groups == 1 and len(fragment.row_groups) == 1:
            return [(fragment, fragment.metadata.num_rows)]
        parts = fragment.split_by_row_group()
        return [(part, sum(group.num_rows for group in part.row_groups)) for part in parts]
    return [(fragment, fragment.count_rows())]


def _record_batches(fragment: Any, columns: list[str], batch_rows: int, schema: Any) -> Generator[Any]:
    if not hasattr(fragment, "row_groups"):
        yield from fragment.to_batches(columns=columns, batch_size=batch_rows, schema=schema)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups, bytes_held = [group.id for group in fragment.row_groups], _largest_group(fragment)
    # Twice as fast as the fragment's own scan, and it holds a buffer of each column, not a row group.
    buffer = 0 if bytes_held <= _AHEAD else _bytes_ahead(fragment, len(columns))
    with fragment.filesystem.open_input_file(fragment.path) as source:
        file = pq.ParquetFile(source, metadata=fragment.metadata, buffer_size=buffer, pre_buffer=False)
        rows = min(batch_rows, max(_CELLS // len(columns), _FEWEST))
        threads = bytes_held > _SMALL_GROUP and pa.cpu_count() > 1
        alike = all(fragment.physical_schema.field(name).type == schema.field(name).type for name in columns)
        for batch in file.iter_batches(rows, row_groups=groups, columns=columns, use_threads=threads):
            yield batch if alike else _with_types(batch, schema)


def _with_types(batch: Any, schema: Any) -> Any:
    """A record batch with the types that its columns have in all files."""
    pa = optional("pyarrow", extra="cli")
    columns = [widened(batch.column(name), schema.field(name).type) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _bytes_ahead(fragment: Any, columns: int) -> int:
    """Bytes of each column that are read at once: few, unless every read is a journey."""
    near = fragment.filesystem.type_name == "local"
    return _LEAST if near else min(max(_AHEAD // columns, _LEAST), _MOST)


def _largest_group(fragment: Any) -> int:
    """Bytes of the largest row group of a Parquet fragment, before compression."""
    return max(group.total_byte_size for group in fragment.row_groups)
