"""``fit`` on Parquet files whose numbers are many beside the memory there is: they are read in pieces, here.

A sample of the rows says what columns mean, as for a cluster. Files that hold anything but complete numbers
are read as a whole: what is missing is filled, and text encoded, by all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tailproof.cli.clusters import Numbers, rows_of
from tailproof.cli.models import nameless
from tailproof.core.lookup import optional
from tailproof.data import verbs
from tailproof.data.dealing import BATCH_ROWS
from tailproof.data.readers.files import open_files
from tailproof.tables.formats import parquet_schema
from tailproof.tables.model import REGRESSION

# Of the memory that is free: a fit of a table that is read as a whole takes about five times its numbers.
SHARE = 1 / 8
LEAST = 1 << 26  # bytes of numbers: fewer are never many
_UNLIMITED = 1 << 60  # bytes; systems write "no limit" as some number beyond


def are_large(files: Sequence[Path]) -> bool:
    """Whether the numbers of Parquet files take more than their share of the memory that is free."""
    if not files:
        return False
    columns = len(parquet_schema(files[0]))
    return 8 * columns * rows_of(files) > max(LEAST, SHARE * free_memory())


def hold_numbers(numbers: Numbers, files: Sequence[Path]) -> bool:
    """Whether columns and target of a regression are numbers in every row; looks until one is not."""
    pa, schema = optional("pyarrow", extra="cli"), parquet_schema(files[0])
    kinds = [schema.field(name).type for name in numbers.columns]
    plain = all(column.kind == "number" and not column.indicator for column in numbers.encoding.columns)
    if numbers.task != REGRESSION or not plain:
        return False
    if not all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return False
    return _are_complete(files, numbers.columns)


def fit_in_pieces(estimator: Any, numbers: Numbers, files: Sequence[Path], address: str) -> Any:
    """Fit on this machine, a few batches of rows in memory at a time."""
    features = [column.name for column in numbers.encoding.columns]
    return nameless(verbs.fit(estimator, [str(path) for path in files], numbers.target, features))


def free_memory() -> int:
    """Bytes that are free on the machine and in its container, and that the limits of the process allow."""
    return min([_free_on_machine(), *_limits(), _UNLIMITED])


def _are_complete(paths: Sequence[Path], columns: list[str]) -> bool:
    files = open_files([str(path) for path in paths])
    batches = (batch for piece in range(len(files)) for batch in files.read(piece, columns, BATCH_ROWS))
    with np.errstate(all="ignore"):
        return all(_is_complete(column) for batch in batches for column in batch.columns)


def _is_complete(column: Any) -> bool:
    """Whether nothing is missing or infinite: a finite sum settles that."""
    return not column.null_count and bool(np.isfinite(column.to_numpy().sum(dtype=np.float64)))


def _free_on_machine() -> int:
    """As Linux counts it, with caches that it would give back; no limit where nothing is known."""
    lines = _text_of("/proc/meminfo").splitlines()
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * found[0] if found else _UNLIMITED


def _limits() -> Iterable[int]:
    """Of a container, less what it uses but for files that it would forget, and of the process."""
    most, used, parts = (
        _text_of(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current", "stat")
    )
    if most.isdigit() and used.isdigit():
        files = [int(line.split()[1]) for line in parts.splitlines() if line.startswith("inactive_file ")]
        yield int(most) - int(used) + sum(files)
    try:
        import resource
    except ImportError:  # on Windows
        return
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
