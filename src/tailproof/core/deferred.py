"""Attributes that are made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Make = Callable[[], dict[str, Any]]


class Deferred:
    """An object some of whose attributes are made on demand: when they are read, copied or saved.

    Examples
    --------
    >>> record = Deferred()
    >>> record._defer({"answer": lambda: {"answer": 42}})
    >>> "answer" in vars(record), record.answer, "answer" in vars(record)
    (False, 42, True)
    """

    def _defer(self, later: dict[str, Make]) -> None:
        """Forget these attributes, and say what makes each of them, perhaps with others, as a dictionary."""
        known = vars(self)
        for name in later:
            known.pop(name, None)
        known["_later"] = known.get("_later", {}) | later

    def _amend(self, name: str, change: Callable[[Any], Any]) -> None:
        """Change an attribute, if there is one: when it is made, where it is not there yet."""
        known = vars(self)
        make = known.get("_later", {}).get(name)
        if name in known:
            known[name] = change(known[name])
        elif make is not None:
            self._defer({name: lambda: _changed(make(), name, change)})

    def __getattr__(self, name: str) -> Any:
        known = vars(self)
        make = known.get("_later", {}).get(name)
        if make is not None:
            for found, value in make().items():
                known.setdefault(found, value)  # what was set since then stays
            # Last: another thread may be about to ask.
            known["_later"] = {other: one for other, one in known["_later"].items() if one is not make}
        if name not in known:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return known[name]

    def _settle(self) -> None:
        """Make all that is left to be made."""
        for name in tuple(vars(self).get("_later", ())):
            getattr(self, name, None)
        vars(self).pop("_later", None)

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return dict(vars(self))


def _changed(found: dict[str, Any], name: str, change: Callable[[Any], Any]) -> dict[str, Any]:
    """What a function has made, with one of it changed."""
    return found | {name: change(found[name])} if name in found else found
