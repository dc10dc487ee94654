"""``fit --engine dask|spark``: Parquet files are read where the fit runs, by the cluster's own readers.

Here a sample of the rows says what columns mean; every partition becomes numbers where it is. Files of other
formats, and those whose folders have columns in their names (``day=3``), are read here, and their rows go to
the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tailproof.cli.models import dask_client, nameless, needs_mixing, spark_session
from tailproof.core.lookup import optional
from tailproof.data import verbs
from tailproof.tables.columns import is_text, target_numbers
from tailproof.tables.encoding import Encoding
from tailproof.tables.formats import Source, parquet_schema
from tailproof.tables.model import REGRESSION, PreparedTable

SAMPLE = 100_000  # rows that are read here
_PIECE = 200_000  # rows of a partition of Dask, at least, where a file has so many
_TARGET = "y"


@dataclass(frozen=True)
class Numbers:
    """Turns rows of a file into numbers and the target, without those that have no target."""

    encoding: Encoding
    target: str
    task: str
    text: bool

    @property
    def names(self) -> list[str]:
        """Columns of the numbers."""
        return [f"x{j}" for j in range(len(self.encoding.names))]

    @property
    def columns(self) -> list[str]:
        """Columns of the file that are needed."""
        return [*(column.name for column in self.encoding.columns), self.target]

    def __call__(self, table: Any) -> dict[str, Any]:
        """Columns of numbers, and the target."""
        import pyarrow.compute as pc

        table = table.filter(pc.is_valid(table.column(self.target)))
        values, X = table.column(self.target), self.encoding.matrix(table)
        if self.task == REGRESSION:
            target: Any = target_numbers(self.target, values)
        else:
            target = np.asarray(values.to_pylist(), dtype=str if self.text else np.int64)
        return {name: X[:, j] for j, name in enumerate(self.names)} | {_TARGET: target}


def can_be_read_there(files: Sequence[Path]) -> bool:
    """Whether files are Parquet with the same columns."""
    if not files or any(Source.of(path).kind != "parquet" for path in files):
        return False
    first, *others = (parquet_schema(path) for path in files)
    return all(first.equals(other) for other in others)


def numbers_of(rows: PreparedTable, file: Path) -> Numbers | None:
    """How partitions become numbers; None where strings are numbers or dates, as only a whole column says."""
    schema = parquet_schema(file)
    kinds = {column.name: column.kind for column in rows.encoding.columns}
    kinds[rows.target] = "number" if rows.task == REGRESSION else "category"
    if any(is_text(field.type) and kinds.get(field.name, "category") != "category" for field in schema):
        return None
    return Numbers(rows.encoding, rows.target, rows.task, rows.y.dtype.kind == "U")


def rows_of(files: Sequence[Path]) -> int:
    """Rows of Parquet files, from what they say of themselves."""
    parquet = optional("pyarrow.parquet", extra="cli")
    return sum(parquet.read_metadata(path).num_rows for path in files)


def fit_on_dask(estimator: Any, numbers: Numbers, files: Sequence[Path], address: str) -> Any:
    """Fit on a Dask cluster whose workers read the files."""
    frames, pandas = optional("dask.dataframe", extra="dask"), optional("pandas", extra="dask")
    kinds = dict.fromkeys(numbers.names, "float64") | {_TARGET: _kind(numbers)[0]}
    meta = pandas.DataFrame({name: pandas.Series([], dtype=kind) for name, kind in kinds.items()})
    frame = frames.from_map(_read_piece, list(_pieces(files)), numbers=numbers, meta=meta)
    with dask_client(address) as client:
        return nameless(verbs.fit(estimator, frame, _TARGET, shuffle=True, client=client))


def fit_on_spark(estimator: Any, numbers: Numbers, files: Sequence[Path], address: str) -> Any:
    """Fit on Spark, which reads the files."""
    session = spark_session(address)
    schema = ", ".join([*(f"{name} double" for name in numbers.names), f"{_TARGET} {_kind(numbers)[1]}"])
    raw = session.read.parquet(*(f"file://{path.resolve()}" for path in files)).select(*numbers.columns)
    frame = raw.mapInArrow(partial(_encoded_batches, numbers), schema)
    return nameless(
        verbs.fit(estimator, frame, _TARGET, numbers.names, shuffle=needs_mixing(estimator) or None)
    )


FITS: dict[str, Callable[..., Any]] = {"dask": fit_on_dask, "spark": fit_on_spark}


def _kind(numbers: Numbers) -> tuple[str, str]:
    """Type of the target in pandas and in Spark."""
    if numbers.task == REGRESSION:
        return "float64", "double"
    return ("object", "string") if numbers.text else ("int64", "bigint")


def _pieces(files: Sequence[Path]) -> Iterator[tuple[str, list[int]]]:
    """Paths with row groups of about the rows of a partition."""
    parquet = optional("pyarrow.parquet", extra="cli")
    for path in files:
        about, groups, rows = parquet.read_metadata(path), list[int](), 0
        for group in range(about.num_row_groups):
            groups.append(group)
            rows += about.row_group(group).num_rows
            if rows >= _PIECE:
                yield str(path.resolve()), groups
                groups, rows = [], 0
        if groups:
            yield str(path.resolve()), groups


def _read_piece(piece: tuple[str, list[int]], numbers: Numbers) -> Any:
    """What a worker of Dask does for a partition."""
    pandas = optional("pandas", extra="dask")
    path, groups = piece
    with optional("pyarrow.parquet", extra="cli").ParquetFile(path) as file:
        return pandas.DataFrame(numbers(file.read_row_groups(groups, columns=numbers.columns)))


def _encoded_batches(numbers: Numbers, batches: Iterator[Any]) -> Iterator[Any]:
    """What a worker of Spark does for a partition."""
    import pyarrow as pa

    for batch in batches:
        yield pa.RecordBatch.from_pydict(numbers(pa.Table.from_batches([batch])))
