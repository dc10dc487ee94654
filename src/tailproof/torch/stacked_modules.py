"""k modules of one architecture, stacked: one forward and one backward pass for all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.overrides import TorchFunctionMode

from tailproof.torch.losses import BatchLoss
from tailproof.torch.nested import map_tensors, stacked, tensors_in

Tensors = dict[str, Tensor]
Bools = NDArray[np.bool_]


class Stack:
    """The state of k modules, each tensor with the candidates along its first axis.

    Parameters
    ----------
    modules : sequence of nn.Module
        Of one architecture, all on one device.
    average : bool
        Keep the mean of each candidate's path, (1/T) Σ_t ŵ_t (the averaged SGD of Algorithm 5).
    vectorise : bool
        Run all candidates in one ``torch.func.vmap``. False runs them one after the other, for modules that
        vmap cannot trace (recurrent layers, control flow that depends on data).

    Attributes
    ----------
    parameters, buffers : dict of tensors of shape (k, ...)
    """

    def __init__(
        self, modules: Sequence[nn.Module], *, average: bool = False, vectorise: bool = True
    ) -> None:
        self.parameters, self.buffers = _stacked(modules)
        self.module = copy.deepcopy(modules[0])
        self._over = vmap if vectorise else _one_by_one
        self._mean = (
            {name: torch.zeros_like(leaf) for name, leaf in self.parameters.items()} if average else {}
        )
        self._updates = 0

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    @property
    def candidates(self) -> Tensors:
        """Parameters of the candidates: the means of their paths if kept, else the last iterates."""
        return self._mean if self._mean and self._updates else self.parameters

    def losses(self, loss: BatchLoss) -> Callable[[Any, Tensor | None], Tensor]:
        """Return a function of a batch and row weights (k, batch, ...): the loss of every candidate."""

        def one(parameters: Tensors, buffers: Tensors, batch: Any, weights: Tensor | None) -> Tensor:
            return loss(self._model(parameters, buffers), batch, weights)

        def every(batch: Any, weights: Tensor | None) -> Tensor:
            axes = (0, 0, 0, None if weights is None else 0)
            over = self._over(one, in_dims=axes, randomness="different")
            return over(self.parameters, self.buffers, batch, weights)

        return every

    @property
    def vectorised(self) -> bool:
        """Whether candidates run in one vmap."""
        return self._over is vmap

    def run_in_a_loop(self) -> None:
        """Run the candidates one after the other from now on."""
        self._over = _one_by_one

    def count_step(self) -> None:
        """Update the means of the paths by the present iterates."""
        self._updates += 1
        with torch.no_grad():
            for name, mean in self._mean.items():
                mean.lerp_(self.parameters[name], 1.0 / self._updates)

    def restart(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """Set every candidate to one point; means of the paths begin anew."""
        self._updates = 0
        with torch.no_grad():
            for name, leaf in self.parameters.items():
                leaf.copy_(parameters[name].expand_as(leaf))
                leaf.grad = None
            for name, buffer in self.buffers.items():
                buffer.copy_(buffers[name].expand_as(buffer))

    def outputs(self, inputs: tuple[Any, ...], candidates: Tensors | None = None) -> Any:
        """Outputs of every candidate on the same rows, as in ``module.eval()``: shape (k, rows, ...).

        Other candidates than the stack's own may be given, for modules without buffers.
        """
        return self._evaluate(lambda model, rows: model(*rows), inputs, candidates)

    def row_losses(self, loss: BatchLoss, batch: Any) -> Tensor:
        """Loss of every candidate on every row, shape (k, rows): that of a batch with this one row."""
        return self._evaluate(loss.of_rows, batch)

    def first_candidate(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Value of ``function(model, *arguments)`` for the first candidate, in evaluation mode."""
        parameters = {name: leaf[0] for name, leaf in self.candidates.items()}
        buffers = {name: buffer[0] for name, buffer in self.buffers.items()}
        with torch.no_grad(), evaluating(self.module), self._without_fusing():
            return function(self._model(parameters, buffers), *arguments)

    def _evaluate(self, function: Any, rows: Any, candidates: Tensors | None = None) -> Any:
        """Value of ``function(model, rows)`` for every candidate, in evaluation mode."""

        def one(parameters: Tensors, buffers: Tensors, shared: Any) -> Any:
            return function(self._model(parameters, buffers), shared)

        over = self._over(one, in_dims=(0, 0, None), randomness="different")
        values = self.candidates if candidates is None else candidates
        with torch.no_grad(), evaluating(self.module), self._without_fusing():
            return over(values, self.buffers, rows)

    def _without_fusing(self) -> AbstractContextManager[Any]:
        attention = any(isinstance(part, nn.MultiheadAttention) for part in self.module.modules())
        return _PlainFunctions() if attention else nullcontext()

    def _model(self, parameters: Tensors, buffers: Tensors) -> Callable[..., Any]:
        return lambda *inputs, **named: functional_call(self.module, (parameters, buffers), inputs, named)

    def finite(self) -> Bools:
        """Return which candidates have finite parameters, means and buffers."""
        tensors = [*self.parameters.values(), *self.candidates.values(), *self.buffers.values()]
        checks = [torch.isfinite(tensor.detach()).reshape(len(tensor), -1).all(1) for tensor in tensors]
        return torch.stack(checks).all(0).cpu().numpy()

    def keep(self, which: Bools, optimizer: torch.optim.Optimizer) -> None:
        """Drop the other candidates, in the optimiser as well."""
        rows = torch.from_numpy(np.flatnonzero(which)).to(next(iter(self.parameters.values())).device)
        for leaf in self.parameters.values():
            state = optimizer.state[leaf]
            for name, value in state.items():
                if torch.is_tensor(value) and value.shape == leaf.shape:
                    state[name] = value[rows]
            # In place: the optimiser refers to this tensor.
            leaf.data, leaf.grad = leaf.data[rows], None
        self._mean = {name: mean[rows] for name, mean in self._mean.items()}
        self.buffers = {name: buffer[rows] for name, buffer in self.buffers.items()}

    def state(self) -> dict[str, Tensors]:
        """Copies of everything that training changes."""
        groups = {"parameters": self.parameters, "mean": self._mean, "buffers": self.buffers}
        return {
            group: {name: tensor.detach().clone() for name, tensor in tensors.items()}
            for group, tensors in groups.items()
        } | {"updates": {"count": torch.tensor([self._updates])}}

    def load(self, state: Mapping[str, Tensors]) -> None:
        """Go back to a state of as many candidates."""
        self._updates = int(state["updates"]["count"])
        groups = {"parameters": self.parameters, "mean": self._mean, "buffers": self.buffers}
        with torch.no_grad():
            for group, tensors in groups.items():
                for name, tensor in tensors.items():
                    tensor.copy_(state[group][name])

    def of(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> Stack:
        """Return a stack of one candidate with these values."""
        alone = copy.copy(self)
        alone.parameters = {name: tensor[None] for name, tensor in parameters.items()}
        alone.buffers = {name: tensor[None] for name, tensor in buffers.items()}
        alone._mean = {}
        return alone

    def build(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> nn.Module:
        """Make one module with these values, in evaluation mode."""
        module = copy.deepcopy(self.module).eval()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(parameters[name])
            for name, buffer in module.named_buffers():
                buffer.copy_(buffers[name])
        return module

    def member(self, position: int) -> nn.Module:
        """Make a module of one candidate."""
        parameters = {name: leaf[position] for name, leaf in self.candidates.items()}
        return self.build(parameters, {name: buffer[position] for name, buffer in self.buffers.items()})


class _PlainFunctions(TorchFunctionMode):
    """Calls functions as they are; its presence switches off fused attention, which vmap cannot batch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def flatten(tensors: Mapping[str, Tensor]) -> NDArray[np.float64]:
    """Candidates as rows of one array, shape (k, numbers of a candidate)."""
    flat = [leaf.detach().reshape(len(leaf), -1) for leaf in tensors.values()]
    return torch.cat(flat, dim=1).double().cpu().numpy()


def unflatten(point: NDArray[np.floating], like: Mapping[str, Tensor]) -> Tensors:
    """Cut the vector of one candidate into tensors of the shapes of a stack."""
    sizes = [leaf[0].numel() for leaf in like.values()]
    pieces = np.split(point, np.cumsum(sizes)[:-1])
    return {name: as_tensor(piece, leaf) for piece, (name, leaf) in zip(pieces, like.items(), strict=True)}


def as_tensor(values: NDArray[np.floating], like: Tensor) -> Tensor:
    """Values of one candidate with the shape and type of its part of a stacked tensor."""
    return torch.as_tensor(values, dtype=like.dtype, device=like.device).reshape(like.shape[1:])


def make_modules(
    make_module: Callable[[], nn.Module],
    seeds: Sequence[int],
    device: torch.device,
    dtype: torch.dtype | None,
) -> list[nn.Module]:
    """Make one module for each seed; PyTorch's global generator stays as it was."""
    # The scikit-learn wrappers hide what they are given inside a partial.
    if isinstance(getattr(make_module, "func", make_module), nn.Module):
        raise TypeError("a function or class that makes modules is needed; got a module made already")
    modules: list[nn.Module] = []
    for seed in seeds:
        with seeded_randomness(seed, device):
            module = make_module()
        if not isinstance(module, nn.Module):
            raise TypeError(f"make_module must return an nn.Module; got {type(module).__name__}")
        if any(module is other for other in modules):
            raise ValueError(
                "make_module must make a new module each time it is called; it returned the same"
            )
        _check_dense(module)
        modules.append(module.to(device=device, dtype=dtype).train())
    if next(modules[0].parameters(), None) is None:
        raise ValueError("the module has no parameters: there is nothing to train")
    return modules


def _check_dense(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse:
            raise ValueError(
                f"{type(part).__name__}(sparse=True) has sparse gradients, which stacked candidates cannot "
                "have: use sparse=False"
            )


def torch_seed(seed: np.random.SeedSequence, *key: int) -> int:
    """Derive a seed for PyTorch's generators from a NumPy seed."""
    child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *key))
    return int(child.generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def seeded_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the generators that modules draw from, and restore them afterwards."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.manual_seed(seed)
        yield


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode inside the block: no dropout, batch norm by its running statistics."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def _stacked(modules: Sequence[nn.Module]) -> tuple[Tensors, Tensors]:
    try:
        return stack_module_state(list(modules))
    except RuntimeError as error:
        raise ValueError(f"make_module must return modules of one architecture each time: {error}") from None


def _one_by_one(
    function: Callable[..., Any], in_dims: Sequence[int | None] = (0, 0, 0), randomness: str = ""
) -> Callable[..., Any]:
    """Do what ``vmap(function, in_dims)`` does in a loop."""

    def run(*arguments: Any) -> Any:
        count = len(next(iter(arguments[0].values())))
        columns = [
            [argument] * count if along is None else _per_candidate(argument, count)
            for argument, along in zip(arguments, in_dims, strict=True)
        ]
        return stacked([function(*pieces) for pieces in zip(*columns, strict=True)])

    return run


def _per_candidate(argument: Any, count: int) -> list[Any]:
    """Split a nested value of stacked tensors into one piece per candidate."""
    # Unbound together: the gradient of k single indexings would be k tensors of full size.
    parts = [tensor.unbind(0) for tensor in tensors_in(argument)]

    def piece(j: int) -> Any:
        remaining = iter(parts)
        return map_tensors(lambda _: next(remaining)[j], argument)

    return [piece(j) for j in range(count)]
