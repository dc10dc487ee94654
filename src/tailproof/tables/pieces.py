"""Predictions for Parquet files a piece at a time: neither rows nor predictions need to fit in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.core.lookup import optional
from tailproof.data.durable import SHARED, replacing
from tailproof.tables.columns import check_present, is_text
from tailproof.tables.encoding import Gap
from tailproof.tables.formats import Source, parquet_schema
from tailproof.tables.model import REGRESSION, OptionError, TableModel
from tailproof.tables.sizes import warn_of_sizes

PIECE = 1 << 17  # rows; a power of two, so that rows are as aligned in memory as in one large table


@dataclass(frozen=True)
class Predicted:
    """What was predicted, in numbers.

    Attributes
    ----------
    rows : int
    columns : list of str
        That were written.
    gaps : list of Gap
    below : int
        Predictions below zero of a target that never was.
    names : list of str
        Columns of the rows.
    """

    rows: int
    columns: list[str]
    gaps: list[Gap]
    below: int
    names: list[str]


def below_zero(model: TableModel, predicted: Any) -> int:
    """How many predictions are below zero, where the target never was."""
    return int(np.sum(predicted < 0)) if model.task == REGRESSION and model.non_negative else 0


def can_go_in_pieces(model: TableModel, files: Sequence[Path]) -> bool:
    """Whether all files are Parquet with the same columns, and none of those has to be read to be understood.

    Text that the model learned as numbers or dates is read as the whole column says, and not piece by piece.
    """
    if any(Source.of(path).kind != "parquet" for path in files):
        return False
    first, *others = (parquet_schema(path) for path in files)
    known = {column.name: column.kind for column in model.encoding.columns}
    roles = dict.fromkeys(model.roles.names, "number")
    doubtful = [f for f in first if is_text(f.type) and (roles | known).get(f.name, "category") != "category"]
    return not doubtful and all(first.equals(other) for other in others)


def names_in(file: Path) -> list[str]:
    """Columns of a Parquet file."""
    names: list[str] = parquet_schema(file).names
    return names


def predict_in_pieces(
    model: TableModel,
    files: Sequence[Path],
    out: Path,
    keep: Sequence[str] = (),
    interval: float | None = None,
) -> Predicted:
    """Read, predict and write a piece after another; the file has its name when it is whole."""
    parquet = optional("pyarrow.parquet", extra="cli")
    names = names_in(files[0])
    check_present(names, keep)
    wanted = [*(column.name for column in model.encoding.columns), *model.roles.names, *keep]
    rows, below, gaps, samples, writer = 0, 0, _Gaps(), _Samples(), None
    with replacing(out, SHARED) as file:
        for piece in _pieces(files, [name for name in names if name in wanted]):
            read = model.converted(piece)
            predictions = model.predictions(read, interval)
            samples.add(model.encoding.samples(read))
            table = optional("pyarrow", extra="cli").table(beside(piece, keep, predictions))
            writer = writer or parquet.ParquetWriter(file, table.schema)
            writer.write_table(table.cast(writer.schema))
            rows, below = rows + piece.num_rows, below + below_zero(model, predictions["prediction"])
            gaps.add(model.encoding.gaps(piece))
        if writer is None:
            raise ValueError(f"{files[0]} has columns, but no rows")
        writer.close()
        warn_of_sizes(samples.all())
        return Predicted(rows, writer.schema.names, gaps.all(), below, names)


def _pieces(files: Sequence[Path], columns: list[str]) -> Iterator[Any]:
    """Rows of the files as tables of the same size, but for the last."""
    pa = optional("pyarrow", extra="cli")
    waiting, count = [], 0
    for batch in _batches(files, columns):
        waiting.append(batch)
        count += batch.num_rows
        while count >= PIECE:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, PIECE)
            waiting = table.slice(PIECE).to_batches()
            count -= PIECE
    if count:
        yield pa.Table.from_batches(waiting)


def _batches(files: Sequence[Path], columns: list[str]) -> Iterator[Any]:
    parquet = optional("pyarrow.parquet", extra="cli")
    for path in files:
        with parquet.ParquetFile(path) as file:
            yield from file.iter_batches(PIECE, columns=columns)


def beside(table: Any, keep: Sequence[str], predictions: dict[str, Any]) -> dict[str, Any]:
    """Columns to keep, and the predictions, which must have other names."""
    taken = [name for name in keep if name in predictions]
    if taken:
        raise OptionError(
            f"--keep {taken[0]}: the predictions have a column of that name, too; rename it in the data, or "
            "do not keep it"
        )
    return {name: table.column(name).combine_chunks() for name in keep} | predictions


class _Samples:
    """Some numbers of each column, of all pieces."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[tuple[float, ...], list[Array]]] = {}

    def add(self, samples: Sequence[tuple[str, tuple[float, ...], Array]]) -> None:
        for name, learned, sample in samples:
            self._parts.setdefault(name, (learned, []))[1].append(sample.copy())

    def all(self) -> list[tuple[str, tuple[float, ...], Array]]:
        return [(name, learned, np.concatenate(parts)) for name, (learned, parts) in self._parts.items()]


class _Gaps:
    """Missing and unknown values of all pieces."""

    def __init__(self) -> None:
        self._first: dict[str, Gap] = {}
        self._missing: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()

    def add(self, gaps: Sequence[Gap]) -> None:
        for gap in gaps:
            self._first.setdefault(gap.name, gap)
            self._missing[gap.name] += gap.missing
            self._unknown[gap.name] += gap.unknown

    def all(self) -> list[Gap]:
        return [
            replace(gap, missing=self._missing[name], unknown=self._unknown[name])
            for name, gap in self._first.items()
        ]
