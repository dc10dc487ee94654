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
_ROWS_READ_AT_ONCE = 1024  # from a stream that is read into memory


class BatchSource(Protocol):
    """Rows that can be read in any order; a row holds the inputs and, last, the target."""

    def __len__(self) -> int: ...

    def batches(self, orders: Orders, batch_size: int) -> Iterator[Batch]:
        """Yield the batches of all candidates together: each tensor has shape (candidates, batch, ...)."""
        ...

    def check_finite(self) -> None:
        """Raise if the rows contain NaN or infinity, where the rows are in memory."""
        ...


@dataclass(frozen=True)
class TensorSource:
    """Rows in memory: one gather for each step and tensor."""

    tensors: Batch

    def __len__(self) -> int:
        return len(self.tensors[0])

    def batches(self, orders: Orders, batch_size: int) -> Iterator[Batch]:
        """Yield one step after the other, with all candidates in each."""
        steps = torch.from_numpy(np.ascontiguousarray(orders.T)).to(self.tensors[0].device)
        for rows in torch.split(steps, batch_size):
            index = rows.T.reshape(-1)
            shape = (rows.shape[1], rows.shape[0])
            yield tuple(t.index_select(0, index).view(*shape, *t.shape[1:]) for t in self.tensors)

    def check_finite(self) -> None:
        """Raise if a tensor contains NaN or infinity."""
        for tensor in self.tensors:
            if not torch.isfinite(tensor).all():
                raise ValueError("the data contain NaN or infinity: remove or replace such values first")


@dataclass(frozen=True)
class DatasetSource:
    """Rows of a map-style ``Dataset``, read on demand, in worker processes if there are any."""

    dataset: Any
    device: torch.device
    dtype: torch.dtype | None
    collate: Any = default_collate
    workers: int = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self, orders: Orders, batch_size: int) -> Iterator[Batch]:
        """Yield what the loader collates, reshaped to (candidates, batch, ...)."""
        steps = range(0, orders.shape[1], batch_size)
        plan = [orders[:, start : start + batch_size] for start in steps]
        loader = DataLoader(
            self.dataset,
            batch_sampler=[rows.ravel().tolist() for rows in plan],
            collate_fn=self.collate,
            num_workers=self.workers,
            generator=torch.Generator(),  # else the loader draws from the global one
        )
        for rows, collated in zip(plan, loader, strict=True):
            batch = _as_batch(collated, self.device, self.dtype)
            yield tuple(t.reshape(*rows.shape, *t.shape[1:]) for t in batch)

    def check_finite(self) -> None:
        """Do nothing: rows are made on demand."""


def batch_source(data: Any, device: torch.device, dtype: torch.dtype | None = None) -> BatchSource:
    """Return a source of batches for any kind of data that :meth:`Candidates.fit` takes.

    Parameters
    ----------
    data : tuple of tensors or arrays, Dataset, DataLoader, or iterable of batches
        Of a loader the data set, the collation and the workers are used, the sampler is not: the block of a
        candidate decides which rows it sees. Other iterables are read into memory once.
    device, dtype
        Where tensors are moved to; only floating-point tensors change type.
    """
    if isinstance(data, TensorDataset):
        return TensorSource(_as_batch(data.tensors, device, dtype))
    if isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size=_ROWS_READ_AT_ONCE)
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset):
        if isinstance(data.dataset, TensorDataset) and data.collate_fn is default_collate:
            return batch_source(data.dataset, device, dtype)
        return DatasetSource(data.dataset, device, dtype, data.collate_fn, data.num_workers)
    if isinstance(data, Dataset):
        return DatasetSource(data, device, dtype)
    if isinstance(data, tuple | list) and all(isinstance(part, Tensor | np.ndarray) for part in data):
        return TensorSource(_as_batch(data, device, dtype))
    if isinstance(data, Iterable) and not isinstance(data, Tensor | np.ndarray | str):
        return TensorSource(_collected(data, device, dtype))
    raise TypeError(
        "data must be (inputs, targets), a Dataset, a DataLoader or an iterable of such batches; "
        f"got {type(data).__name__}"
    )


def batch_size_for(batch_size: int | None, data: Any) -> int:
    """Return the given size, else that of the loader, else the default."""
    return int(batch_size or getattr(data, "batch_size", None) or DEFAULT_BATCH)


def _collected(data: Iterable[Any], device: torch.device, dtype: torch.dtype | None) -> Batch:
    batches = [_as_batch(batch, device, dtype) for batch in data]
    if not batches:
        raise ValueError("the data are empty: at least one batch is needed")
    return tuple(torch.cat(parts) for parts in zip(*batches, strict=True))


def _as_batch(collated: Any, device: torch.device, dtype: torch.dtype | None) -> Batch:
    """Check inputs and targets, which must be as long as each other, and move them to the device."""
    if hasattr(collated, "to_numpy"):
        raise ValueError(
            f"inputs and targets must be tensors or NumPy arrays; "
            f"got {type(collated).__name__}: use to_numpy()"
        )
    if not isinstance(collated, tuple | list) or len(collated) < 2:
        raise ValueError("each row or batch must be a pair (inputs, targets); targets come last")
    if not all(isinstance(part, Tensor | np.ndarray) for part in collated):
        raise ValueError("inputs and targets must be tensors or arrays once collated")
    parts = [torch.as_tensor(part) for part in collated]
    tensors = tuple(part.to(device, dtype if part.is_floating_point() else None) for part in parts)
    if any(tensor.ndim == 0 for tensor in tensors):
        raise ValueError("batches must have rows along their first axis: put single rows into a DataLoader")
    lengths = {len(tensor) for tensor in tensors}
    if len(lengths) > 1 or lengths == {0}:
        raise ValueError(
            f"inputs and targets must have the same number of rows, at least one; got {sorted(lengths)}"
        )
    return tensors
