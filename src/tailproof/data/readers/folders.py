"""Columns in the names of folders: ``day=3/region=north``."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tailproof.core.lookup import optional

_ABSENT = "__HIVE_DEFAULT_PARTITION__"


def fixed_parts(parts: Iterable[str]) -> int:
    """How many parts of a path come before the first that stands for several names."""
    return len(list(takewhile(lambda part: not glob.has_magic(part), parts)))


def values_below(given: Any, file: Path) -> dict[str, str | None]:
    """Values in the names of folders between what was given, a path or glob, and a file that it stands for.

    Examples
    --------
    >>> values_below("sales", Path("sales/day=3/region=north%20sea/a.csv"))
    {'day': '3', 'region': 'north sea'}
    """
    return values_in(file.parts[fixed_parts(Path(str(given)).parts) : -1])


def values_in(folders: Sequence[str]) -> dict[str, str | None]:
    """Values in names of folders; None where the name says that there is none."""
    pairs = [folder.partition("=") for folder in folders if "=" in folder.strip("=")]
    return {name: None if value == _ABSENT else unquote(value) for name, _, value in pairs}


def typed(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Numbers instead of texts where the values of all files are numbers.

    Examples
    --------
    >>> typed([{"day": "1", "size": "2.5"}, {"day": None, "size": "3"}])
    [{'day': 1, 'size': 2.5}, {'day': None, 'size': 3.0}]
    """
    numbers = {name: _numbers([file.get(name) for file in files]) for name in _names(files)}
    return [{name: numbers[name][place] for name in file} for place, file in enumerate(files)]


def kinds(files: list[dict[str, Any]]) -> dict[str, Any]:
    """Arrow's type of each column in the names of folders; that of the others, where a file has no value."""
    pa = optional("pyarrow", extra="cli")
    types = {int: pa.int64(), float: pa.float64()}
    known = {name: value for file in files for name, value in file.items() if value is not None}
    return {name: types.get(type(known.get(name)), pa.string()) for name in _names(files)}


def with_fields(schema: Any, names: Iterable[str], kinds: dict[str, Any]) -> Any:
    """Schema of a file, with the columns that are in the names of its folders."""
    pa = optional("pyarrow", extra="cli")
    for name in names:
        known = schema.get_field_index(name)
        schema = schema.append(pa.field(name, kinds[name])) if known < 0 else schema
    return schema


def with_constants(batch: Any, columns: list[str], constant: dict[str, Any], schema: Any) -> Any:
    """A record batch of a file, with the columns that are in the names of its folders."""
    pa = optional("pyarrow", extra="cli")
    arrays = [
        pa.repeat(pa.scalar(constant[name], schema.field(name).type), batch.num_rows)
        if name in constant
        else batch.column(name)
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=columns)


def _numbers(values: list[Any]) -> list[Any]:
    for kind in (int, float):
        with suppress(ValueError):
            return [kind(value) if isinstance(value, str) else value for value in values]
    return values


def _names(files: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for file in files for name in file))
