"""Batches and outputs that are dicts, lists or tuples of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap


def map_tensors(function: Callable[..., Any], *values: Any) -> Any:
    """Apply a function to the tensors at the same place of one or several nested values.

    Examples
    --------
    >>> doubled = map_tensors(lambda t: 2 * t, {"a": torch.ones(2), "b": (torch.zeros(1), None)})
    >>> doubled["a"].tolist(), doubled["b"][1]
    ([2.0, 2.0], None)
    """
    first = values[0]
    if torch.is_tensor(first):
        return function(*values)
    if isinstance(first, Mapping):
        mapped = {name: map_tensors(function, *(value[name] for value in values)) for name in first}
        return mapped if type(first) is dict else type(first)(mapped)  # type: ignore[call-arg]
    if isinstance(first, tuple | list):
        parts = [map_tensors(function, *together) for together in zip(*values, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return first


def tensors_in(value: Any) -> list[Tensor]:
    """List the tensors of a nested value, depth first.

    Examples
    --------
    >>> len(tensors_in({"a": torch.ones(2), "b": [torch.zeros(1), torch.zeros(1)]}))
    3
    """
    tensors: list[Tensor] = []
    map_tensors(tensors.append, value)
    return tensors


def stacked(values: list[Any]) -> Any:
    """Stack nested values of one structure along a new first axis."""
    return map_tensors(lambda *tensors: torch.stack(tensors), *values)


def single_row(row: Any) -> Any:
    """Make a batch of one row."""
    return map_tensors(lambda tensor: tensor.unsqueeze(0), row)


def over_rows(function: Callable[..., Tensor], *values: Any, randomness: str = "error") -> Tensor:
    """Values of a function of the rows of nested values; what is no tensor is passed on.

    In one vmap, or row by row where the function calls what vmap cannot batch (recurrent layers).
    """
    tensors = [tensor for value in values for tensor in tensors_in(value)]

    def one(*rows: Tensor) -> Tensor:
        remaining = iter(rows)
        return function(*(map_tensors(lambda _: next(remaining), value) for value in values))

    try:
        return vmap(one, randomness=randomness)(*tensors)
    except RuntimeError as error:
        if not vmap_failed(error):
            raise
    return torch.stack([one(*rows) for rows in zip(*tensors, strict=True)])


def vmap_failed(error: RuntimeError) -> bool:
    """Whether ``torch.func.vmap`` could not batch something, as opposed to an error of the module."""
    return "atching rule" in str(error) or "vmap" in str(error)
