"""Columns of vectors and arrays in Spark data frames, as one column for each of their numbers."""

from __future__ import annotations

from typing import Any

from tailproof.core.lookup import optional

_NUMBERS = ("double", "float", "int", "bigint", "smallint", "tinyint")


def vector_columns(frame: Any) -> list[str]:
    """Names of the columns that hold vectors of ``pyspark.ml``, or arrays of numbers."""
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    arrays = {"vector", *(f"array<{kind}>" for kind in _NUMBERS)}
    return [name for name, kind in kinds.items() if kind in arrays]


def spread(
    frame: Any, names: list[str], keep: bool, known: dict[str, int] | None = None
) -> tuple[Any, dict[str, list[str]]]:
    """Return the frame with ``name_0``, ``name_1``, ... for each such column, and these names.

    They come after all columns, or, unless ``keep``, in place of those of the vectors. Lengths that are
    ``known`` need no look at the rows: a vector of another length has nothing but missing numbers.
    """
    functions = optional("pyspark.sql.functions", extra="spark")
    arrays = {name: _as_array(frame, name) for name in names}
    known = known or {}
    arrays |= {
        name: functions.when(functions.size(arrays[name]) == length, arrays[name])
        for name, length in known.items()
    }
    lengths = known | _lengths(frame, {name: arrays[name] for name in names if name not in known})
    spreads = {name: [f"{name}_{i}" for i in range(length)] for name, length in lengths.items()}
    taken = {column for column in frame.columns if column not in names}
    if clash := sorted(taken.intersection(*[[one for parts in spreads.values() for one in parts]])):
        raise ValueError(f"column {clash[0]!r} has the name of a number of a vector column: rename it")
    numbers = {
        name: [arrays[name][i].cast("double").alias(one) for i, one in enumerate(parts)]
        for name, parts in spreads.items()
    }
    plain = {name: [functions.col(f"`{name}`")] for name in frame.columns}
    columns = [*plain.values(), *numbers.values()] if keep else (plain | numbers).values()
    return frame.select(*(column for parts in columns for column in parts)), spreads


def _as_array(frame: Any, name: str) -> Any:
    functions = optional("pyspark.sql.functions", extra="spark")
    if frame.schema[name].dataType.simpleString() == "vector":
        return optional("pyspark.ml.functions", extra="spark").vector_to_array(f"`{name}`")
    return functions.col(f"`{name}`")


def _lengths(frame: Any, arrays: dict[str, Any]) -> dict[str, int]:
    """Length of the vectors of every column, which must be that of all rows."""
    functions = optional("pyspark.sql.functions", extra="spark")
    # The size of a missing array is -1 or nothing, by a setting of Spark.
    sizes = {name: functions.when(array.isNotNull(), functions.size(array)) for name, array in arrays.items()}
    ends = [end(size) for size in sizes.values() for end in (functions.min, functions.max)]
    found = frame.agg(*ends).collect()[0] if ends else []
    lengths = dict(zip(arrays, zip(found[::2], found[1::2], strict=True), strict=True))
    for name, (least, most) in lengths.items():
        if least is None or least != most:
            kinds = "only missing values" if least is None else f"vectors of {least} and of {most} numbers"
            raise ValueError(f"column {name!r} holds {kinds}: all rows must have vectors of one length")
    return {name: most for name, (_, most) in lengths.items()}
