"""What NumPy would turn into numbers without a word, with another meaning than it had."""

from __future__ import annotations

from typing import Any

import numpy as np

_ARROW_TIMES = ("timestamp[", "date32[", "date64[", "time32[", "time64[", "duration[")


def check_are_numbers(**given: Any) -> None:
    """Refuse masked values, whose mask would be lost, and times, which would count in some unit or other.

    Examples
    --------
    >>> check_are_numbers(y=[1.0, 2.0])
    >>> check_are_numbers(y=np.array(["2024-01-01"], dtype="M8[D]"))
    Traceback (most recent call last):
    ValueError: y holds times: make numbers of them, such as (y - y.min()) / numpy.timedelta64(1, 'D')
    """
    check_not_masked(**given)
    for name, values in given.items():
        if _holds_times(values):
            raise ValueError(
                f"{name} holds times: make numbers of them, such as "
                f"({name} - {name}.min()) / numpy.timedelta64(1, 'D')"
            )


def check_not_masked(**given: Any) -> None:
    """Refuse masked values: without the mask they would count."""
    for name, values in given.items():
        if np.ma.isMaskedArray(values) and np.ma.is_masked(values):
            raise ValueError(
                f"{name} has masked values, which would count as they are: leave their rows out, or fill them"
            )


class WordsError(ValueError):
    """There are words where numbers are needed."""


def check_no_words(**given: Any) -> None:
    """Refuse texts that are no numbers, by the first of them; numbers written as texts pass.

    Examples
    --------
    >>> check_no_words(y=["1.5", "2"])
    >>> check_no_words(y=["1.5", "two"])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    WordsError: y must be numbers, not words such as 'two': labels are for classifiers
    """
    for name, values in given.items():
        words = (str(value) for value in np.ravel(np.asarray(values)) if isinstance(value, str))
        word = next((word for word in words if not _is_number(word)), None)
        if word is not None:
            remedy = ": labels are for classifiers" if name == "y" else ""
            raise WordsError(f"{name} must be numbers, not words such as {word!r}{remedy}")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _holds_times(values: Any) -> bool:
    return any(_is_time(kind) for kind in _types_of(values))


def _types_of(values: Any) -> Any:
    """Types of an array or a column, or of every column of a table: NumPy's, or those of polars or Arrow."""
    if hasattr(values, "schema") and hasattr(values.schema, "types"):
        return values.schema.types
    types = getattr(values, "dtypes", getattr(values, "dtype", getattr(values, "type", None)))
    return types if hasattr(types, "__iter__") else [types]


def _is_time(kind: Any) -> bool:
    if hasattr(kind, "kind"):  # of NumPy and pandas
        return kind.kind in ("m", "M")
    if hasattr(kind, "is_temporal"):  # of polars
        return bool(kind.is_temporal())
    return kind is not None and str(kind).startswith(_ARROW_TIMES)
