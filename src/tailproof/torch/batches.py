"""Mini-batches from tensors, a Dataset, a DataLoader, a stream, or any iterable of batches.

A batch is ``(*inputs, target)``, or any nested dict, list or tuple of tensors where ``model_loss`` is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import data as torch_data
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from tailproof.torch.nested import map_tensors, tensors_in

Batch = Any
Orders = NDArray[np.intp]
DEFAULT_BATCH = 32
_ROWS_READ_AT_ONCE = 1024  # from a stream


class BatchSource(Protocol):
    """Rows that can be read in any order."""

    def __len__(self) -> int: ...

    def batches(self, orders: Orders, batch_size: int) -> Iterator[Batch]:
        """Yield the batches of all candidates together: each tensor has shape (candidates, batch, ...)."""
        ...

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield all rows once, without an axis of candidates."""
        ...

    def check_finite(self) -> None:
        """Raise if the rows contain NaN or infinity, where the rows are in memory."""
        ...


@dataclass(frozen=True)
class TensorSource:
    """Rows in memory: one gather for each step and tensor."""

    tensors: Batch

    def __len__(self) -> int:
        return len(tensors_in(self.tensors)[0])

    def batches(self, orders: Orders, batch_size: int) -> Iterator[Batch]:
        """Yield one step after the other, with all candidates in each."""
        device = tensors_in(self.tensors)[0].device
        steps = torch.from_numpy(np.ascontiguousarray(orders.T)).to(device)
        for rows in torch.split(steps, batch_size):
            index, shape = rows.T.reshape(-1), (rows.shape[1], rows.shape[0])
            yield map_tensors(
                lambda t, i=index, s=shape: t.index_select(0, i).view(*s, *t.shape[1:]), self.tensors
            )

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield slices of the tensors."""
        for start in range(0, len(self), batch_size):
            yield map_tensors(lambda t, at=start: t[at : at + batch_size], self.tensors)

    def check_finite(self) -> None:
        """Raise if a tensor contains NaN or infinity."""
        if not all(torch.isfinite(tensor).all() for tensor in tensors_in(self.tensors)):
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
        for rows, batch in zip(plan, self._read([rows.ravel().tolist() for rows in plan]), strict=True):
            yield map_tensors(lambda t, s=rows.shape: t.reshape(*s, *t.shape[1:]), batch)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield what the loader collates."""
        plan = [
            list(range(start, min(start + batch_size, len(self))))
            for start in range(0, len(self), batch_size)
        ]
        return self._read(plan)

    def _read(self, plan: list[list[int]]) -> Iterator[Batch]:
        loader = DataLoader(
            self.dataset,
            batch_sampler=plan,
            collate_fn=self.collate,
            num_workers=self.workers,
            generator=torch.Generator(),  # else the loader draws from the global one
        )
        return (_as_batch(collated, self.device, self.dtype) for collated in loader)

    def check_finite(self) -> None:
        """Do nothing: rows are made on demand."""


@dataclass(frozen=True)
class StreamSource:
    """Rows of an ``IterableDataset``, read once for each epoch and never held in memory together."""

    loader: Any
    device: torch.device
    dtype: torch.dtype | None

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield batches of this size; the last may be shorter."""
        waiting: list[Batch] = []
        held = 0
        for collated in self.loader:
            batch = _as_batch(collated, self.device, self.dtype)
            waiting.append(batch)
            held += len(tensors_in(batch)[0])
            if held < batch_size:
                continue
            joined, at = _joined(waiting), 0
            while held - at >= batch_size:
                yield map_tensors(lambda t, a=at: t[a : a + batch_size], joined)
                at += batch_size
            waiting = [map_tensors(lambda t, a=at: t[a:], joined)] if at < held else []
            held -= at
        if waiting:
            yield _joined(waiting)

    def check_finite(self) -> None:
        """Do nothing: rows are not kept."""


def batch_source(
    data: Any, device: torch.device, dtype: torch.dtype | None = None
) -> BatchSource | StreamSource:
    """Return a source of batches for any kind of data that :meth:`Candidates.fit` takes.

    Parameters
    ----------
    data : tuple or dict of tensors or arrays, Dataset, DataLoader, or iterable of batches
        Of a loader the data set, the collation, the workers and a ``SubsetRandomSampler`` are used; other
        samplers that change which rows are seen are refused. Iterables of batches are read into memory once,
        an ``IterableDataset`` is read anew each epoch.
    device, dtype
        Where tensors are moved to; only floating-point tensors change type.
    """
    if isinstance(data, TensorDataset):
        return TensorSource(_as_batch(data.tensors, device, dtype))
    if isinstance(data, IterableDataset):
        return StreamSource(DataLoader(data, batch_size=_ROWS_READ_AT_ONCE), device, dtype)
    if isinstance(data, DataLoader):
        return _loader_source(data, device, dtype)
    if isinstance(data, Dataset):
        return DatasetSource(data, device, dtype)
    if isinstance(data, tuple | list | Mapping) and _holds_arrays(data):
        return TensorSource(_as_batch(data, device, dtype))
    if isinstance(data, Iterable) and not isinstance(data, Tensor | np.ndarray | str | Mapping):
        batches = [_as_batch(batch, device, dtype) for batch in data]
        if not batches:
            raise ValueError("the data are empty: at least one batch is needed")
        return TensorSource(_joined(batches))
    raise TypeError(
        "data must be (inputs, targets), a Dataset, a DataLoader or an iterable of such batches; "
        f"got {type(data).__name__}"
    )


def batch_size_for(batch_size: int | None, data: Any) -> int:
    """Return the given size, else that of the loader, else the default."""
    return int(batch_size or getattr(data, "batch_size", None) or DEFAULT_BATCH)


def _loader_source(
    loader: DataLoader[Any], device: torch.device, dtype: torch.dtype | None
) -> BatchSource | StreamSource:
    if isinstance(loader.dataset, IterableDataset):
        return StreamSource(loader, device, dtype)
    dataset: Any = loader.dataset
    if isinstance(loader.sampler, torch_data.SubsetRandomSampler):
        dataset = torch_data.Subset(dataset, list(loader.sampler.indices))
    else:
        _check_sampler(loader.sampler, (torch_data.RandomSampler, torch_data.SequentialSampler))
    _check_sampler(loader.batch_sampler, (torch_data.BatchSampler, type(None)))
    if isinstance(dataset, TensorDataset) and loader.collate_fn is default_collate:
        return batch_source(dataset, device, dtype)
    return DatasetSource(dataset, device, dtype, loader.collate_fn, loader.num_workers)


def _check_sampler(sampler: Any, honoured: tuple[type, ...]) -> None:
    """Raise for a sampler that decides which rows are seen, which the blocks of the candidates do here."""
    if type(sampler) not in honoured or getattr(sampler, "replacement", False):
        raise ValueError(
            f"{type(sampler).__name__} cannot be honoured: each candidate draws from its own block. Use "
            "shuffle=True, SubsetRandomSampler for a part of the rows, or sample_weight= for weights"
        )


def _holds_arrays(data: Any) -> bool:
    """Whether data are columns (tensors, arrays, dicts of them), not a list of batches."""
    parts = list(data.values()) if isinstance(data, Mapping) else list(data)
    if isinstance(data, list) and parts and all(isinstance(part, tuple | list | Mapping) for part in parts):
        return False
    return all(
        isinstance(part, Tensor | np.ndarray) or (isinstance(part, tuple | Mapping) and _holds_arrays(part))
        for part in parts
    )


def _joined(batches: list[Batch]) -> Batch:
    return map_tensors(lambda *tensors: torch.cat(tensors), *batches)


def _as_batch(collated: Any, device: torch.device, dtype: torch.dtype | None) -> Batch:
    """Check inputs and targets, which must be as long as each other, and move them to the device."""
    if hasattr(collated, "to_numpy"):
        raise ValueError(
            "inputs and targets must be tensors or NumPy arrays; "
            f"got {type(collated).__name__}: use to_numpy()"
        )
    if not isinstance(collated, Mapping) and (not isinstance(collated, tuple | list) or len(collated) < 2):
        raise ValueError("each row or batch must be a pair (inputs, targets); targets come last")
    batch = _moved(tuple(collated) if isinstance(collated, list) else collated, device, dtype)
    tensors = tensors_in(batch)
    if any(tensor.ndim == 0 for tensor in tensors):
        raise ValueError("batches must have rows along their first axis: put single rows into a DataLoader")
    lengths = {len(tensor) for tensor in tensors}
    if len(lengths) > 1 or lengths == {0}:
        raise ValueError(
            f"inputs and targets must have the same number of rows, at least one; got {sorted(lengths)}"
        )
    return batch


def _moved(value: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    if isinstance(value, Mapping):
        return {name: _moved(part, device, dtype) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_moved(part, device, dtype) for part in value)
    if not isinstance(value, Tensor | np.ndarray):
        raise ValueError("inputs and targets must be tensors or arrays once collated")
    tensor = torch.as_tensor(value)
    return tensor.to(device, dtype if tensor.is_floating_point() else None)
