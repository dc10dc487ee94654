"""Losses of a candidate on a batch and on each of its rows, with row weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from tailproof.torch.nested import map_tensors, over_rows, single_row

LossFunction = Callable[[Any, Any], Tensor]
Model = Callable[..., Any]
_ROUNDING = 1e-5  # of weights relative to that of the reference row, in float32
_CLOSE = 1e-4  # of the range of the losses of a batch, for sums of many rows in float32


class BatchLoss(Protocol):
    """Loss of one candidate, given as a function from inputs to outputs."""

    def __call__(self, model: Model, batch: Any, weights: Tensor | None) -> Tensor:
        """Mean loss of a batch, a scalar; row weights change its gradient only."""
        ...

    def of_rows(self, model: Model, batch: Any) -> Tensor:
        """Loss of each row, shape (rows,): that of a batch with this one row."""
        ...

    def reference(self, model: Model, batch: Any) -> Any:
        """Return what to weigh rows against, None if the loss gives all rows one weight."""
        ...

    def row_weights(self, model: Model, batch: Any, reference: Any) -> Tensor:
        """Weight of each row in the mean of a batch."""
        ...


@dataclass(frozen=True)
class ReferenceRow:
    """One row with two outputs, and by how much its loss differs between them."""

    output: Any
    other_output: Any
    target: Any
    change: Tensor


@dataclass(frozen=True)
class ReferencePair:
    """Two rows of different losses, and the weight of each in the mean of a batch."""

    rows: tuple[Any, ...]
    losses: Tensor
    weights: Tensor


@dataclass(frozen=True)
class OutputLoss:
    """``loss_fn(output, target)`` on batches ``(*inputs, target)``."""

    loss_fn: LossFunction
    _pairs: dict[Any, bool] = field(default_factory=dict, repr=False)

    def __call__(self, model: Model, batch: Any, weights: Tensor | None) -> Tensor:
        """Mean loss of a batch."""
        *inputs, target = batch
        output = model(*inputs)
        self._check_shapes(output, target)
        if weights is not None:
            output = map_tensors(lambda tensor: _scale_gradient(tensor, weights), output)
        return _scalar(self.loss_fn(output, target), "loss_fn")

    def of_rows(self, model: Model, batch: Any) -> Tensor:
        """Loss of each row; NaN for rows that the loss ignores (``ignore_index``), whose weight is zero."""
        *inputs, target = batch
        output = model(*inputs)
        self._check_shapes(output, target)
        return over_rows(self._one_row, output, target)

    def reference(self, model: Model, batch: Any) -> ReferenceRow | None:
        """Return a row to weigh others against: that whose loss changes most between two outputs."""
        *inputs, target = batch
        output = model(*inputs)
        other = map_tensors(lambda tensor: tensor.flip(0), output)
        change = over_rows(self._one_row, output, target) - over_rows(self._one_row, other, target)
        size = torch.nan_to_num(change.abs(), nan=0.0, posinf=0.0)
        at = int(size.argmax())
        if size[at] == 0:
            return None
        one, two, label = (map_tensors(lambda tensor: tensor[at], value) for value in (output, other, target))
        return ReferenceRow(one, two, label, change[at])

    def row_weights(self, model: Model, batch: Any, reference: ReferenceRow) -> Tensor:
        """Weights that the loss itself gives to rows (class weights, ``ignore_index``), that of r being 1.

        A mean of losses cancels the weight of a single row, so weights show only in batches of two. Next to
        the reference row r, whose own loss is l or l' for two different outputs, the loss of the pair changes
        by (l − l') w_r/(w_i + w_r), which gives w_i/w_r without looking into the loss function.
        """
        *inputs, target = batch

        def pair(row_output: Any, row_target: Any) -> Tensor:
            targets = _two_rows(row_target, reference.target)
            first = self._mean(_two_rows(row_output, reference.output), targets)
            return first - self._mean(_two_rows(row_output, reference.other_output), targets)

        share = (over_rows(pair, model(*inputs), target) / reference.change).double()
        weights = (1 / share - 1).clamp_min(0)
        return torch.where(weights < _ROUNDING, 0.0, weights)

    def _one_row(self, output: Any, target: Any) -> Tensor:
        return self._mean(single_row(output), single_row(target))

    def _mean(self, output: Any, target: Any) -> Tensor:
        return _scalar(self.loss_fn(output, target), "loss_fn")

    def _check_shapes(self, output: Any, target: Any) -> None:
        if not (torch.is_tensor(output) and torch.is_tensor(target) and target.is_floating_point()):
            return
        if output.ndim != 2 or target.ndim != 1 or output.shape[1] != 1:
            return
        kind = (output.dtype, output.device)
        if kind not in self._pairs:
            self._pairs[kind] = _compares_all_pairs(self.loss_fn, *kind)
        if self._pairs[kind]:
            n = target.shape[0]
            raise ValueError(
                f"the module returns shape ({n}, 1) and the targets have shape ({n},), so that the loss "
                "would compare every output with every target: give the targets a second axis, y[:, None]"
            )


@dataclass(frozen=True)
class ModelLoss:
    """``model_loss(model, batch)`` on batches of any nested structure."""

    model_loss: Callable[[Model, Any], Tensor]

    def __call__(self, model: Model, batch: Any, weights: Tensor | None) -> Tensor:
        """Mean loss of a batch."""
        if weights is not None:
            raise ValueError("sample_weight needs loss_fn: inside model_loss, weight the rows yourself")
        return _scalar(self.model_loss(model, batch), "model_loss")

    def of_rows(self, model: Model, batch: Any) -> Tensor:
        """Loss of each row."""

        def one_row(row: Any) -> Tensor:
            return self.model_loss(model, single_row(row)).mean()

        return over_rows(one_row, batch, randomness="different")

    def reference(self, model: Model, batch: Any) -> ReferencePair | None:
        """Return the rows of least and of greatest loss; None if the loss gives all rows one weight.

        None as well where the loss of the batch is no weighted mean of those of its rows: one that compares
        rows with each other, or draws random numbers, shows no weights.
        """
        losses, whole = self.of_rows(model, batch), _scalar(self.model_loss(model, batch), "model_loss")
        finite = torch.isfinite(losses)
        if not finite.any() or not torch.isfinite(whole):
            return None
        low = int(torch.where(finite, losses, torch.inf).argmin())
        high = int(torch.where(finite, losses, -torch.inf).argmax())
        close = _CLOSE * (losses[high] - losses[low])
        if finite.all() and (losses.mean() - whole).abs() <= close:
            return None
        rows = tuple(map_tensors(lambda tensor, at=at: tensor[at], batch) for at in (low, high))
        pair = ReferencePair(rows, losses[[low, high]], torch.ones(2).to(losses))
        share = self._shares(model, batch, losses, pair)[1][low]
        pair = replace(pair, weights=torch.stack([share / (1 - share), torch.ones_like(share)]))
        weights = self.row_weights(model, batch, pair)
        mean = (weights * torch.nan_to_num(losses).double()).sum() / weights.sum()
        return pair if (mean - whole).abs() <= close else None

    def row_weights(self, model: Model, batch: Any, reference: ReferencePair) -> Tensor:
        """Weight of each row, that of the reference row of greatest loss being 1.

        The loss L of a pair of rows is the weighted mean of l_i and l_r, so that row i has the share
        (L − l_r)/(l_i − l_r) of its weight. Of the two reference rows the one farther away is taken.
        """
        losses = self.of_rows(model, batch)
        shares = self._shares(model, batch, losses, reference)
        farther = (losses - reference.losses[0] < reference.losses[1] - losses).long()
        share = shares.gather(0, farther[None])[0].double()
        weights = (share / (1 - share)).clamp_min(0) * reference.weights[farther].double()
        return torch.where(torch.isfinite(losses) & (share > _ROUNDING), weights, 0.0)

    def _shares(self, model: Model, batch: Any, losses: Tensor, reference: ReferencePair) -> Tensor:
        """Share of each row in its pair with either reference row, shape (2, rows)."""

        def share(row: Any, loss: Tensor, at: int) -> Tensor:
            pair = _scalar(self.model_loss(model, _two_rows(row, reference.rows[at])), "model_loss")
            return (pair - reference.losses[at]) / (loss - reference.losses[at])

        each = [partial(share, at=at) for at in (0, 1)]
        return torch.stack([over_rows(one, batch, losses, randomness="different") for one in each])


def batch_loss(loss_fn: Any, model_loss: Any = None) -> OutputLoss | ModelLoss:
    """Return the loss that was given as one of two functions.

    Examples
    --------
    >>> batch_loss(torch.nn.functional.mse_loss)(torch.sqrt, (torch.tensor([4.0]), torch.tensor([1.0])), None)
    tensor(1.)
    """
    if (loss_fn is None) == (model_loss is None):
        raise TypeError("give either loss_fn(output, target) or model_loss(model, batch)")
    name, given = ("loss_fn", loss_fn) if model_loss is None else ("model_loss", model_loss)
    if not callable(given):
        raise TypeError(f"{name} must be callable; got {type(given).__name__}")
    return OutputLoss(given) if model_loss is None else ModelLoss(given)


def _scalar(loss: Any, name: str) -> Tensor:
    if not torch.is_tensor(loss):
        raise TypeError(f"{name} must return a tensor; got {type(loss).__name__}")
    return loss if loss.ndim == 0 else loss.mean()


def _scale_gradient(output: Tensor, weights: Tensor) -> Tensor:
    """Leave the values as they are and multiply the gradient of each row by its weight."""
    fixed = output.detach()
    return fixed + weights.reshape(-1, *[1] * (output.ndim - 1)) * (output - fixed)


def _two_rows(one: Any, other: Any) -> Any:
    return map_tensors(lambda a, b: torch.stack([a, b]), one, other)


def _compares_all_pairs(loss_fn: LossFunction, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a loss spreads targets of shape (n,) over outputs of shape (n, 1): then two rows interact."""
    values = torch.tensor([0.0, 1.0], dtype=dtype, device=device)
    try:
        both = loss_fn(values[:, None], values).mean()
        alone = torch.stack([loss_fn(v[None, None], v[None]).mean() for v in values])
    except UserWarning:  # PyTorch's own, where warnings are errors
        return True
    except Exception:
        return False  # training will raise the same error, with the user's own rows
    return not any(torch.isclose(both, expected, rtol=1e-3) for expected in (alone.mean(), alone.sum()))
