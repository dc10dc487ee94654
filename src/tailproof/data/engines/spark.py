"""Candidates next to their rows on Spark: every task of ``mapInArrow`` trains those of its own partition.

A pass is one job with a task for each partition. Tiny partitions, and those beyond the number of blocks, are
taken together first, so that a candidate has all of its rows in one task. Where partitions would become too
large, a candidate goes from one of its partitions to the next, in jobs that touch these alone. Candidates go
out with a job and come back as its result; rows stay.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.lookup import optional
from tailproof.data.engines.spark_vectors import spread, vector_columns
from tailproof.data.first_look import usable_rows
from tailproof.data.readers.batches import BadRowsError, Batch, Reading

_LEAST_ROWS = 10_000  # of a partition on average: a task costs as much as reading so many
_FEW = 8  # partitions that are left as they are, though they are tiny
_MOST = 1 << 20  # partitions
_LARGEST = 1 << 30  # bytes of a partition that others were joined to: one worker has to hold it
_OTHER_PYTHON = "; PYSPARK_PYTHON must name a Python that has it"
Work = Callable[[int, Iterator[Batch]], Any]  # piece and its batches to a result, None for nothing to say


@dataclass(frozen=True, eq=False)
class SparkData:
    """A Spark data frame whose partitions stay as they are while it is used.

    Attributes
    ----------
    frame : pyspark.sql.DataFrame
        Persisted.
    columns : list of str
    partitions : int
    size : int
        Bytes of all rows, as far as Spark knows without reading them.
    kept : ExitStack
        Releases what was persisted for the fit.
    vectors : dict
        For each column of vectors, the columns that hold its numbers.
    """

    frame: Any
    columns: list[str]
    partitions: int
    size: int
    kept: ExitStack
    vectors: dict[str, list[str]] = field(default_factory=dict)
    shared = False  # every candidate stays with its partitions
    shuffling = "moves rows"

    def __len__(self) -> int:
        return self.partitions

    @property
    def text(self) -> str:
        """What there is, in a few words."""
        return f"{len(self)} Spark partitions"

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.columns)

    def distinct(self, column: str) -> NDArray[Any]:
        """Different labels."""
        values = [row[0] for row in self.frame.select(column).distinct().collect()]
        return np.unique(np.array([value for value in values if value is not None]))

    @staticmethod
    def grouped(source: Any, k: int) -> Any:
        """Return a source in at most k partitions, so that a pass is one job; None where they were large."""
        data = source.engine.data
        if len(data) <= k or data.size > k * _LARGEST:
            return None
        fewer = data.together(k)
        return replace(source, engine=replace(source.engine, data=fewer), text=fewer.text, pieces=len(fewer))

    def together(self, wanted: int) -> SparkData:
        """Return the same rows in at most so many partitions, each of whole ones of these, without a shuffle.

        They are persisted anew: which partitions go together depends on where they are, and must not change
        during a fit.
        """
        if len(self) <= wanted:
            return self
        fewer = kept_frame(self.frame.coalesce(wanted), self.kept)
        return replace(fewer, size=self.size, vectors=self.vectors)


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
        """Candidates of all candidates over one more pass."""
        candidates = {j: training.begin(state) for j, state in enumerate(states)}
        for active in rounds(training):
            sent = {piece: {j: candidates[j] for j in blocks} for piece, blocks in active.items()}
            for moved in self._run(partial(_train_piece, training, sent), sorted(active)):
                candidates.update(moved)
        self.on_rows(sum(candidate.rows for candidate in candidates.values()))
        return [candidates[j] for j in range(len(states))]

    def reduce(self, measure: Any) -> Array:
        """Sum of a measure over all partitions."""
        return np.asarray(measure.total([sums for (sums,) in self._run(partial(_over_piece, measure))]))

    def survey(self, survey: Any) -> list[Any]:
        """What every partition shows: the first job that reads the rows."""
        return [look for (look,) in self._run(partial(_over_piece, survey), doing="read the data")]

    def usable_rows(self, seen: list[Any]) -> Array:
        """Rows to learn from in each partition, which the survey has counted."""
        return usable_rows(seen)

    def _run(
        self, work: Work, pieces: list[int] | None = None, doing: str = "run a pass over the data"
    ) -> list[Any]:
        """Results of a function on the batches of some partitions, of all by default, in their order."""
        task = partial(_on_partition, self.reading, work)
        chosen = None if pieces is None or len(pieces) == len(self.data) else pieces
        return run_job(self.data.frame.select(*self.reading.columns), task, chosen, doing)


def rounds(training: Any) -> Iterator[dict[int, list[int]]]:
    """Which blocks are at which piece, job after job, so that each meets its pieces in the order of the pass.

    Yields
    ------
    dict
        Piece to blocks; every block at most once.
    """
    visits = training.dealing.visits(training.number)
    left = [(piece, block) for piece in visits for block in training.blocks(piece)]
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


def _train_piece(training: Any, sent: dict[int, Any], piece: int, batches: Iterator[Batch]) -> Any:
    return training.over_piece(sent[piece], batches) if piece in sent else {}


def _over_piece(what: Any, piece: int, batches: Iterator[Batch]) -> Any:
    return (what.over_piece(batches),)


def _on_partition(reading: Reading, work: Work, tables: Iterator[Any]) -> Iterator[Any]:
    """What Spark runs on a partition: its record batches in, one row with the result out."""
    piece = _number_of_partition()
    try:
        result = work(piece, reading.arrow_batches(piece, f"partition {piece}", tables))
    except BadRowsError as error:
        result = error  # Spark would bury it in a trace of the worker
    yield _answer(piece, result)


def _answer(piece: int, result: Any) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {"piece": pa.array([piece], pa.int32()), "result": [pickle.dumps(result)]}
    )


def _number_of_partition() -> int:
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return int(context.partitionId())


def run_job(
    frame: Any, task: Callable[[Iterator[Any]], Iterator[Any]], pieces: list[int] | None, doing: str
) -> list[Any]:
    """Results of all partitions, or of some without a task for the others, in the order of the partitions.

    ``doing`` is what an error says that Spark could not do.
    """
    answers = frame.mapInArrow(task, "piece int, result binary")
    try:
        if pieces is None:
            rows = answers.collect()
        else:
            rows = frame.sparkSession.sparkContext.runJob(answers.rdd, list, pieces)
    except Exception as error:  # of Java or of a Python worker, with a hundred lines of trace
        raise RuntimeError(f"Spark could not {doing}: {reason_of(error)}") from error
    # What comes back was written by this module's own tasks.
    results = [pickle.loads(row["result"]) for row in sorted(rows, key=lambda row: row["piece"])]
    for result in results:
        if isinstance(result, BadRowsError):
            raise result
    return results


def reason_of(error: Exception) -> str:
    r"""Return the line of a trace of Spark that says what went wrong.

    Examples
    --------
    >>> reason_of(RuntimeError("Job aborted\n  at x.y(Z.java)\nCaused by: IOException: no such file\n  at"))
    'IOException: no such file'
    >>> reason_of(RuntimeError("ModuleNotFoundError: No module named 'tailproof'"))
    "ModuleNotFoundError: No module named 'tailproof'; PYSPARK_PYTHON must name a Python that has it"
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    told = (raised or causes or lines or [type(error).__name__])[-1]
    remedy = _OTHER_PYTHON if told.startswith("ModuleNotFoundError") else ""
    return told.removeprefix("Caused by: ")[:300] + remedy


@contextmanager
def open_spark(data: Any, options: Any) -> Iterator[SparkData]:
    """Keep the partitions of a data frame for the time of a fit, mixed if the options ask for it."""
    optional("pyarrow", extra="spark")
    functions = optional("pyspark.sql.functions", extra="spark")
    predicts = options.target == ""
    names = _vectors_in_use(data, options)
    frame, vectors = spread(data, names, predicts, _known_lengths(names, options) if predicts else {})
    if options.shuffle:
        # Sorted within partitions, so that each has one order however its rows arrive.
        key = "__tailproof_order"
        frame = frame.withColumn(key, functions.rand(seed=0)).repartitionByRange(
            data.rdd.getNumPartitions(), key
        )
        frame = frame.sortWithinPartitions(key).drop(key)
    with ExitStack() as kept:
        if predicts:  # every row is read once
            yield SparkData(frame, list(frame.columns), 0, 0, kept, vectors)
            return
        yield replace(_in_large_partitions(frame, kept), vectors=vectors)


def _in_large_partitions(frame: Any, kept: ExitStack) -> SparkData:
    """Keep a frame in partitions that are worth a task each.

    How many these are, Spark's own estimate of the size tells before any job runs, so that a thousand tiny
    partitions never cost a thousand tasks. An estimate may be far too large (of a join, or of rows that a
    program made): where it would leave many partitions, the rows are counted.
    """
    few = max(2 * frame.sparkSession.sparkContext.defaultParallelism, _FEW)
    wanted = max(few, _estimated_size(frame) // (8 * len(frame.columns)) // _LEAST_ROWS)
    if not frame.is_cached or frame.rdd.getNumPartitions() > wanted:
        frame = _coalesced(frame, min(wanted, _MOST))
    opened = kept_frame(frame, kept)
    if not few < len(opened) < wanted:
        return opened
    rows = _count(opened.frame)
    return replace(opened, size=8 * opened.width * rows).together(max(few, rows // _LEAST_ROWS))


def _coalesced(frame: Any, wanted: int) -> Any:
    """The same rows in at most so many partitions.

    Of two calls of ``coalesce`` Spark takes the last one: it would undo a smaller number of the caller's.
    """
    plan = frame._jdf.queryExecution().optimizedPlan()
    asked = plan.nodeName() == "Repartition" and not plan.shuffle()
    return frame if asked and plan.numPartitions() <= wanted else frame.coalesce(wanted)


def _estimated_size(frame: Any) -> int:
    """Bytes by Spark's statistics; very many where it knows nothing."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def _count(frame: Any) -> int:
    """Read all partitions once, inside Java alone, to have them there."""
    try:
        return int(frame.count())
    except Exception as error:
        raise RuntimeError(f"Spark could not read the data: {reason_of(error)}") from error


def _vectors_in_use(frame: Any, options: Any) -> list[str]:
    """Columns of vectors among the features, by their own name or by that of their numbers."""
    names = vector_columns(frame)
    if options.features is None:
        return names
    parts = {name.rpartition("_")[0] for name in options.features if name not in frame.columns}
    return [name for name in names if name in options.features or name in parts]


def _known_lengths(names: list[str], options: Any) -> dict[str, int]:
    """Lengths of vectors whose numbers are the features of a model."""
    parts = [name.rpartition("_")[0] for name in options.features or ()]
    return {name: parts.count(name) for name in names if name in parts}


def kept_frame(frame: Any, kept: ExitStack) -> SparkData:
    """Persist a frame unless it is: the first job that reads it then leaves its partitions there."""
    if not frame.is_cached:
        frame = frame.persist()
        kept.callback(frame.unpersist)
    try:
        partitions = frame.rdd.getNumPartitions()
    except Exception as error:
        raise RuntimeError(f"Spark could not read the data: {reason_of(error)}") from error
    return SparkData(frame, list(frame.columns), partitions, _estimated_size(frame), kept)


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
    predicted = opened.frame.mapInArrow(partial(_predict_tables, reading, model), schema)
    return predicted.drop(*(name for numbers in opened.vectors.values() for name in numbers))


def _predict_tables(reading: Reading, model: Any, tables: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for table in tables:
        batches = reading.arrow_batches(0, "a partition", iter([table]), rows=table.num_rows)
        values = [value for batch in batches for value in model.predict(batch.X).tolist()]
        yield pa.RecordBatch.from_arrays(
            [*table.columns, pa.array(values)], names=[*table.schema.names, "prediction"]
        )
