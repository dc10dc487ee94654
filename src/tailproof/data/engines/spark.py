"""Candidates next to their rows on Spark: every task of ``mapInArrow`` trains those of its own partition.

A pass is one job (several where there are more partitions than blocks: a candidate goes from one of its
partitions to the next). Candidates travel out with the job and back as its result; rows stay.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.lookup import optional
from tailproof.data.readers.batches import BadRowsError, Batch, Reading

Work = Callable[[int, Iterator[Batch]], Any]  # piece and its batches to a result, None for nothing to say


@dataclass(frozen=True, eq=False)
class SparkData:
    """A Spark data frame whose partitions stay as they are while it is used."""

    frame: Any
    columns: list[str]
    pieces: int

    def __len__(self) -> int:
        return self.pieces

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.columns)

    def distinct(self, column: str) -> NDArray[Any]:
        """Different labels."""
        found = [row[0] for row in self.frame.select(column).distinct().collect()]
        return np.unique(np.array([value for value in found if value is not None]))


@dataclass(frozen=True, eq=False)
class SparkEngine:
    """Trains and measures where the partitions are.

    Parameters
    ----------
    data : SparkData
    reading : Reading
    on_rows : callable
        Told the number of rows of every finished pass.
    """

    data: SparkData
    reading: Reading
    on_rows: Callable[[int], None] = lambda rows: None

    def train(self, training: Any, states: list[Any]) -> list[Any]:
        """Walks of all candidates over one more pass."""
        walks = {j: training.begin(state) for j, state in enumerate(states)}
        for active in rounds(training.dealing, training.number):
            sent = {piece: {j: walks[j] for j in blocks} for piece, blocks in active.items()}
            for moved in self._run(_Walking(training, sent)):
                walks.update(moved)
        self.on_rows(sum(walk.rows for walk in walks.values()))
        return [walks[j] for j in range(len(states))]

    def reduce(self, measure: Any) -> Array:
        """Sum of a measure over all partitions."""
        return np.asarray(measure.total(self._run(_Measuring(measure))))

    def survey(self, survey: Any) -> list[Any]:
        """What every partition shows."""
        return [found for (found,) in self._run(_Surveying(survey))]

    def _run(self, work: Work) -> list[Any]:
        """Results of a function on the batches of each partition, in the order of the partitions."""
        return run_job(self.data.frame.select(*self.reading.columns), _Task(self.reading, work))


def rounds(dealing: Any, number: int) -> Iterator[dict[int, list[int]]]:
    """Which blocks are at which piece, job after job, so that each meets its pieces in the order of the pass.

    Yields
    ------
    dict
        Piece to blocks; every block at most once.
    """
    left = [(piece, block) for piece in dealing.visits(number) for block in dealing.blocks(piece)]
    while left:
        active: dict[int, list[int]] = {}
        busy: set[int] = set()
        later = []
        for piece, block in left:
            if block in busy:
                later.append((piece, block))
            else:
                busy.add(block)
                active.setdefault(piece, []).append(block)
        yield active
        left = later


@dataclass(frozen=True, eq=False)
class _Walking:
    training: Any
    walks: dict[int, dict[int, Any]]

    def __call__(self, piece: int, batches: Iterator[Batch]) -> Any:
        return self.training.over_piece(self.walks[piece], batches) if piece in self.walks else None


@dataclass(frozen=True, eq=False)
class _Measuring:
    measure: Any

    def __call__(self, piece: int, batches: Iterator[Batch]) -> Any:
        return self.measure.over_piece(batches)


@dataclass(frozen=True, eq=False)
class _Surveying:
    survey: Any

    def __call__(self, piece: int, batches: Iterator[Batch]) -> Any:
        return (self.survey.over_piece(batches),)


@dataclass(frozen=True, eq=False)
class _Task:
    """What Spark runs on a partition: its record batches in, at most one row with the result out."""

    reading: Reading
    work: Work

    def __call__(self, tables: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        piece = _number_of_partition()
        try:
            found = self.work(piece, self.reading.arrow_batches(piece, f"partition {piece}", tables))
        except BadRowsError as error:
            found = error  # Spark would bury it in a trace of the worker
        yield pa.RecordBatch.from_pydict(
            {"piece": pa.array([piece], pa.int32()), "found": [pickle.dumps(found)]}
        )


def _number_of_partition() -> int:
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return int(context.partitionId())


def run_job(frame: Any, task: Callable[[Iterator[Any]], Iterator[Any]]) -> list[Any]:
    """Results of all partitions that have one, in the order of the partitions."""
    rows = frame.mapInArrow(task, "piece int, found binary").collect()
    # What comes back was written by this module's own tasks.
    found = [pickle.loads(row["found"]) for row in sorted(rows, key=lambda row: row["piece"])]
    for result in found:
        if isinstance(result, BadRowsError):
            raise result
    return [result for result in found if result is not None]


def is_spark(data: Any) -> bool:
    """Whether data are a Spark data frame; imports nothing."""
    return type(data).__module__.startswith("pyspark.sql")


@contextmanager
def open_spark(data: Any, options: Any) -> Iterator[SparkData]:
    """Keep the partitions of a data frame for the time of a fit, mixed if the options ask for it."""
    optional("pyarrow", extra="spark")
    functions = optional("pyspark.sql.functions", extra="spark")
    frame = data
    if options.shuffle:
        # Sorted within partitions, so that each has one order however its rows arrive.
        key = "__tailproof_order"
        frame = data.withColumn(key, functions.rand(seed=0)).repartitionByRange(
            data.rdd.getNumPartitions(), key
        )
        frame = frame.sortWithinPartitions(key).drop(key)
    ours = not frame.is_cached
    frame = frame.persist() if ours else frame
    try:
        yield SparkData(frame, list(frame.columns), len(run_job(frame, _present)))
    finally:
        if ours:
            frame.unpersist()


def _present(tables: Iterator[Any]) -> Iterator[Any]:
    """Read a partition, so that it is kept, and say that it is there."""
    import pyarrow as pa

    rows = sum(table.num_rows for table in tables)
    piece = pa.array([_number_of_partition()], pa.int32())
    yield pa.RecordBatch.from_pydict({"piece": piece, "found": [pickle.dumps(rows)]})


def predict_spark(opened: SparkData, reading: Reading, model: Any) -> Any:
    """The data frame with one more column, "prediction"."""
    from pyspark.sql import types

    kinds = {"i": types.LongType, "u": types.LongType, "b": types.BooleanType, "f": types.DoubleType}
    kind = (
        kinds.get(model.classes_.dtype.kind, types.StringType)
        if hasattr(model, "classes_")
        else types.DoubleType
    )
    schema = types.StructType([*opened.frame.schema.fields, types.StructField("prediction", kind())])
    return opened.frame.mapInArrow(_Predicting(reading, model), schema)


@dataclass(frozen=True, eq=False)
class _Predicting:
    reading: Reading
    model: Any

    def __call__(self, tables: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for table in tables:
            found = [
                self.model.predict(b.X) for b in self.reading.arrow_batches(0, "a partition", iter([table]))
            ]
            values = np.concatenate(found) if found else np.empty(0)
            yield pa.RecordBatch.from_arrays(
                [*table.columns, pa.array(values.tolist())], names=[*table.schema.names, "prediction"]
            )
