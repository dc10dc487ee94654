"""Looking a part up by name, with one wording for a name that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def lookup(parameter: str, name: object, options: Mapping[str, T]) -> T:
    """Return the option of that name, or say which names there are.

    Examples
    --------
    >>> lookup("colour", "red", {"red": 1, "blue": 2})
    1
    """
    if not isinstance(name, str) or name not in options:
        raise ValueError(f"{parameter} must be one of {sorted(options)}; got {name!r}")
    return options[name]
