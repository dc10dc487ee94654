"""Look up a part by its name, or an optional package, with one wording for what is not there."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Registry(dict[str, T]):
    """Parts by name; a name that is not there raises an error that lists those that are.

    Examples
    --------
    >>> Registry("colour", {"red": 1, "blue": 2})["green"]
    Traceback (most recent call last):
        ...
    ValueError: colour must be one of ['blue', 'red']; got 'green'
    """

    def __init__(self, parameter: str, parts: Mapping[str, T]) -> None:
        super().__init__(parts)
        self.parameter = parameter

    def __missing__(self, name: object) -> T:
        return lookup(self.parameter, name, dict(self))


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


def optional(module: str, *, extra: str) -> Any:
    """Import a module of an optional package; where it is not installed, say which extra brings it.

    Examples
    --------
    >>> optional("json", extra="cli").loads("[1]")
    [1]
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        absent = missing.name or module.partition(".")[0]
        raise ImportError(
            f"this needs {absent}, which is not installed: pip install 'tailproof[{extra}]'", name=absent
        ) from None
