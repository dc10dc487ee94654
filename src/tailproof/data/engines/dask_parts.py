"""Where the rows of every Dask partition come from: the memory of the workers, or the task that needs them.

Rows that the workers hold already are used as they are. Others are loaded once and held for the time of a fit
if they fit into half of the cluster's memory. If not, a task loads a partition, uses it and forgets it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_SHARE = 0.5  # of the memory of all workers that rows may take
_LIGHT = 100_000  # bytes of a graph that may travel with a task: one with the rows themselves is heavier


@dataclass(frozen=True, eq=False)
class LazyParts:
    """A partition that is loaded by whoever needs it: its own part of a graph, and the keys of its parts."""

    graph: dict[Any, Any]
    keys: list[Any]

    def load(self) -> tuple[Any, ...]:
        """Return the parts, loaded in this thread."""
        from dask.local import get_sync

        return tuple(get_sync(self.graph, self.keys))


@dataclass(frozen=True, eq=False)
class DaskParts:
    """All partitions.

    Attributes
    ----------
    partitions : list
        Each a tuple of futures of its parts, or ``LazyParts``.
    bytes_each : float or None
        Of a partition, where it was looked at; None where the workers that hold it know.
    """

    partitions: list[Any]
    bytes_each: float | None = None

    @property
    def lazy(self) -> bool:
        """Whether tasks load their partitions."""
        return isinstance(self.partitions[0], LazyParts)

    @property
    def futures(self) -> list[Any]:
        """All futures; none where tasks load their partitions."""
        return [] if self.lazy else [future for parts in self.partitions for future in parts]


def parts_of(client: Any, collections: tuple[Any, ...], columns: list[str] | None = None) -> DaskParts:
    """Partitions of collections that are cut alike; of a frame that is not held, some columns alone."""
    held = _held_already(collections)
    if held is not None:
        return DaskParts(held)
    import dask

    if columns is not None:
        collections = (collections[0][columns],)
    if hasattr(collections[0], "columns"):
        collections = (_lowered(collections[0]),)
    else:  # together, since X and y may share what they are made of
        collections = dask.optimize(*collections)  # type: ignore[attr-defined]
    graph = {key: task for one in collections for key, task in dict(one.__dask_graph__()).items()}
    keys = [list(row) for row in zip(*(_keys(one) for one in collections), strict=True)]
    lazy = _apart(graph, keys)
    if lazy is not None:
        size = _bytes_each(client, collections, lazy)
        if size * len(keys) > _SHARE * _memory(client):
            return DaskParts(lazy, size)
    futures = client.get(graph, [key for row in keys for key in row], sync=False)
    width = len(keys[0])
    return DaskParts([tuple(futures[i : i + width]) for i in range(0, len(futures), width)])


def _keys(collection: Any) -> list[Any]:
    from dask.core import flatten

    return list(flatten(collection.__dask_keys__()))


def _held_already(collections: tuple[Any, ...]) -> list[tuple[Any, ...]] | None:
    """Futures of collections that were persisted; None unless all parts were."""
    from distributed import futures_of

    columns = []
    for one in (_lowered(one) for one in collections):
        known = {future.key: future for future in futures_of(one)}
        graph = one.__dask_graph__() if known else {}
        column = [known.get(_behind_aliases(graph, key, known)) for key in _keys(one)] if known else [None]
        if None in column:
            return None
        columns.append(column)
    return list(zip(*columns, strict=True))


def _lowered(collection: Any) -> Any:
    """A frame whose expression has a graph; arrays have one."""
    return collection.optimize() if hasattr(collection, "optimize") else collection


def _behind_aliases(graph: Any, key: Any, known: dict[Any, Any]) -> Any:
    """Follow names that stand for other names, up to one that is known."""
    while key not in known and hasattr(graph.get(key), "target"):
        key = graph[key].target
    return key


def _apart(graph: dict[Any, Any], keys: list[list[Any]]) -> list[LazyParts] | None:
    """Partitions with a graph each; None where they share something, or where rows are in the graph."""
    from dask.core import get_deps
    from distributed import Future

    # Futures may be in the graph, or be known by name alone.
    if any(isinstance(task, Future) for task in graph.values()) or not _names_in(graph) <= graph.keys():
        return None
    needs = get_deps(graph)[0]
    lazy, met = [], 0
    for row in keys:
        own: set[Any] = set()
        ahead = list(row)
        while ahead:
            key = ahead.pop()
            if key not in own:
                own.add(key)
                ahead += needs[key]
        met += len(own)
        lazy.append(LazyParts({key: graph[key] for key in own}, row))
    shared = met > len({key for parts in lazy for key in parts.graph})
    return None if shared or not _is_light(lazy[0]) else lazy


def _names_in(graph: dict[Any, Any]) -> set[Any]:
    """Everything that tasks need."""
    return {name for task in graph.values() for name in getattr(task, "dependencies", ())}


def _is_light(parts: LazyParts) -> bool:
    import cloudpickle  # as Dask does: functions of a notebook travel by value

    return len(cloudpickle.dumps(parts)) <= _LIGHT


def _bytes_each(client: Any, collections: tuple[Any, ...], lazy: list[LazyParts]) -> float:
    """Bytes of a partition: of arrays by their shapes, of frames by a look at one of them."""
    if all(hasattr(one, "chunks") for one in collections):
        return sum(one.nbytes for one in collections) / len(lazy)
    middle = lazy[len(lazy) // 2]
    return float(client.submit(_size_of, middle, pure=False).result())


def _size_of(parts: LazyParts) -> int:
    from dask.sizeof import sizeof

    return sum(sizeof(part) for part in parts.load())


def _memory(client: Any) -> float:
    """Bytes that all workers may use; infinite where one has no limit."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return sum(worker.get("memory_limit") or math.inf for worker in workers) or math.inf
