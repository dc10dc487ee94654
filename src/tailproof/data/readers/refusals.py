"""What is said of data and options that cannot be used: what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tailproof.core import Array

if TYPE_CHECKING:
    from tailproof.data.readers.batches import Reading

_TIMES = ("timestamp", "date32", "date64", "time32", "time64", "duration")
_SHOWN = 12  # names of columns in a sentence


def absent_column(name: str, names: list[str]) -> str:
    """A column that was asked for is not there."""
    listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"there is no column {name!r} in the data; their columns are {listed}"


def not_a_name(role: str, value: Any) -> str:
    """A role was given values where the data have names."""
    return (
        f"{role} must be the name of a column of the data, and got a {type(value).__name__}: put the values "
        "into a column and name it, or give arrays (X, y)"
    )


def no_feature(reading: Reading, asked: bool) -> str:
    """There is nothing to learn from."""
    if asked:
        return "features is an empty list: name a column, or leave it out to learn from all but the target"
    others = f"the target {reading.target!r}" + (f" and the weight {reading.weight!r}" * bool(reading.weight))
    return f"there is no feature to learn from: the data hold no column but {others}; give data with more"


def features_not_listed(features: Any) -> str:
    """Features are no list of names, or name one twice."""
    if isinstance(features, str):
        return f"features must be a list of names, and got the text {features!r}: give [{features!r}]"
    twice = next(name for name in features if features.count(name) > 1)
    return f"features has {twice!r} twice: name each column once"


def categories_not_listed(categories: Any, name: str = "") -> str:
    """Declared categories are no dict, or those of one column no list of values."""
    example = "give something like categories={'region': ['north', 'south']}"
    if not isinstance(categories, Mapping):
        kind = type(categories).__name__
        return f"categories must be a dict of columns and their values, and got a {kind}: {example}"
    return f"categories of {name!r} must be a list of its values, and got {categories[name]!r}: {example}"


def undeclared(value: Any, categories: tuple[Any, ...], where: str) -> str:
    """A column of categories holds another value."""
    return (
        f"{where}: {value!r} is not among its declared categories {list(categories)}: declare it too, or "
        "leave its rows out of the data"
    )


def missing_value(reading: Reading, row: int, place: int, where: str, X: Any, known: bool) -> str:
    """A row of a batch lacks something; ``place`` is that in the piece."""
    name = reading.target if not known else reading.weight or "weights"
    values = X[[row]].toarray()[0] if sparse.issparse(X) else X[row]
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        name = reading.column_of(int(bad[0]))
    choice = "give on_missing='drop' to leave such rows out" if reading.target else "leave such rows out"
    return f"{where}: column {name!r} is missing or not finite in row {place}: fix it, or {choice}"


def negative_weight(weights: Array, first: int, where: str) -> str:
    """Weights of a batch whose first row has that place in the piece."""
    row = int(np.argmax(weights < 0))
    return (
        f"{where}: weights must not be negative, and that of row {first + row} is {weights[row]:g}: correct "
        "it, or give 0, which leaves the row out"
    )


def text_in_chunk(what: str, values: Any) -> str:
    """X or weights of a chunk cannot be made numbers."""
    return (
        f"{what} holds {_no_number(values)!r}, which is not a number: give numbers, or tables with names of "
        "columns and categories= of those that hold text"
    )


def text_in_target(name: str, values: Any) -> str:
    """The target of a regression cannot be made numbers."""
    return (
        f"the target {name!r} holds {_no_number(values)!r}, which is not a number: give another target, or "
        "take a classifier"
    )


def no_row(rows: int, dropped: int) -> str:
    """None of so many rows is left, of which so many lack something."""
    if not rows:
        return "there is no row to learn from: the data are empty; give some that hold rows"
    if not dropped:
        return "there is no row to learn from: all weights are zero; give rows a positive weight"
    but = "" if dropped >= rows else ", or a weight of zero"
    return (
        f"there is no row to learn from: every one has something missing{but}; look at the data, or fill them"
    )


def instead_of(kind: str, name: str) -> str:
    """What to do with a column of another kind than numbers."""
    if "list<" in kind or "list_view<" in kind:
        return "give each of its numbers a column of its own"
    if kind.startswith(_TIMES):
        return "make numbers of it first, such as days since some day,"
    return f"declare its categories={{{name!r}: [...]}}"


def _no_number(values: Any) -> Any:
    return next((value for value in np.ravel(values).tolist() if not _is_number(value)), None)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
