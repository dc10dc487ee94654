"""Where mini-batches come from: tensors, a Dataset, a DataLoader, or any iterable of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

Batch = tuple[Tensor, ...]
Orders = NDArray[np.intp]
DEFAULT_BATCH = 32
_COLLECT = 1024  # rows at a time, where a stream is read into memory


class Source(Protocol):
    """Rows that can be visited in any order; a row is inputs and, last, a target."""

    def __len__(self) -> int: ...

    def batches(self, orders: Orders, batch_size: int) -> Iterator[Batch]:
        """Batches of every candidate at once: each tensor has shape (candidates, batch, ...)."""
        ...

    def check_finite(self) -> None:
        """Raise if the rows themselves hold NaN or infinity, where that can be told."""
        ...


@dataclass(frozen=True)
class TensorSource:
    """Rows in memory: one gather a step and tensor."""

    tensors: Batch

    def __len__(self) -> int:
        return len(self.tensors[0])

    def batches(self, orders: Orders, batch_size: int) -> Iterator[Batch]:
        """One step after the other, all candidates in each."""
        every = torch.from_numpy(np.ascontiguousarray(orders.T)).to(self.tensors[0].device)
        for rows in torch.split(every, batch_size):
            index = rows.T.reshape(-1)
            shape = (rows.shape[1], rows.shape[0])
            yield tuple(t.index_select(0, index).view(*shape, *t.shape[1:]) for t in self.tensors)

    def check_finite(self) -> None:
        """Name the problem as a user would."""
        for tensor in self.tensors:
            if not torch.isfinite(tensor).all():
                raise ValueError("the data contain NaN or infinity: remove or replace such values first")


@dataclass(frozen=True)
class DatasetSource:
    """Rows made on demand by a map-style ``Dataset``, in worker processes if wanted."""

    dataset: Any
    device: torch.device
    dtype: torch.dtype | None
    collate: Any = default_collate
    workers: int = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self, orders: Orders, batch_size: int) -> Iterator[Batch]:
        """As the loader collates them, cut into candidates."""
        steps = range(0, orders.shape[1], batch_size)
        plan = [orders[:, start : start + batch_size] for start in steps]
        loader = DataLoader(
            self.dataset,
            batch_sampler=[rows.ravel().tolist() for rows in plan],
            collate_fn=self.collate,
            num_workers=self.workers,
            generator=torch.Generator(),  # else the loader draws from the global one
        )
        for rows, found in zip(plan, loader, strict=True):
            batch = _as_batch(found, self.device, self.dtype)
            yield tuple(t.reshape(*rows.shape, *t.shape[1:]) for t in batch)

    def check_finite(self) -> None:
        """Nothing: rows are made anew each time."""


def as_source(data: Any, device: torch.device, dtype: torch.dtype | None = None) -> Source:
    """Read what the caller has as a source of rows.

    Parameters
    ----------
    data : tuple of tensors or arrays, Dataset, DataLoader, or iterable of batches
        A loader's data set, collation and workers are used, its sampler is not: which rows a candidate sees,
        and when, follows from its block. Other iterables are read once and kept in memory.
    device, dtype
        Where tensors go; only tensors of floats change type.
    """
    if isinstance(data, TensorDataset):
        return TensorSource(_as_batch(data.tensors, device, dtype))
    if isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size=_COLLECT)
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset):
        if isinstance(data.dataset, TensorDataset) and data.collate_fn is default_collate:
            return as_source(data.dataset, device, dtype)
        return DatasetSource(data.dataset, device, dtype, data.collate_fn, data.num_workers)
    if isinstance(data, Dataset):
        return DatasetSource(data, device, dtype)
    if _is_columns(data):
        return TensorSource(_as_batch(data, device, dtype))
    if isinstance(data, Iterable) and not isinstance(data, Tensor | np.ndarray | str):
        return TensorSource(_collected(data, device, dtype))
    raise TypeError(
        "data must be (inputs, targets), a Dataset, a DataLoader or an iterable of such batches; "
        f"got {type(data).__name__}"
    )


def batch_size_for(batch_size: int | None, data: Any) -> int:
    """The size asked for, the loader's own, or a usual one."""
    return int(batch_size or getattr(data, "batch_size", None) or DEFAULT_BATCH)


def _is_columns(data: Any) -> bool:
    return isinstance(data, tuple | list) and all(isinstance(part, Tensor | np.ndarray) for part in data)


def _collected(data: Iterable[Any], device: torch.device, dtype: torch.dtype | None) -> Batch:
    batches = [_as_batch(batch, device, dtype) for batch in data]
    if not batches:
        raise ValueError("the data are empty: at least one batch is needed")
    return tuple(torch.cat(parts) for parts in zip(*batches, strict=True))


def _as_batch(found: Any, device: torch.device, dtype: torch.dtype | None) -> Batch:
    """Tensors of one length, at least an input and a target."""
    if hasattr(found, "to_numpy"):
        raise ValueError(
            f"inputs and targets must be tensors or NumPy arrays; got {type(found).__name__}: use to_numpy()"
        )
    if not isinstance(found, tuple | list) or len(found) < 2:
        raise ValueError("each row or batch must be a pair (inputs, targets); targets come last")
    if not all(isinstance(part, Tensor | np.ndarray) for part in found):
        raise ValueError("inputs and targets must be tensors or arrays once collated")
    tensors = tuple(_moved(torch.as_tensor(part), device, dtype) for part in found)
    if any(tensor.ndim == 0 for tensor in tensors):
        raise ValueError("batches must have rows along their first axis: put single rows into a DataLoader")
    lengths = {len(tensor) for tensor in tensors}
    if len(lengths) > 1 or lengths == {0}:
        raise ValueError(
            f"inputs and targets must have the same number of rows, at least one; got {sorted(lengths)}"
        )
    return tensors


def _moved(tensor: Tensor, device: torch.device, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(device, dtype if tensor.is_floating_point() else None)
