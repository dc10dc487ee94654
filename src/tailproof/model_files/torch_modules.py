"""PyTorch modules in model files: names and numbers of their tensors, never their code.

A module is kept as the arrays of its ``state_dict``. To come back it needs what made it, which only the
caller can give; a plain ``nn.Linear`` is remade from its sizes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Of ``tailproof.torch``, which is loaded only when a file names one of them.
TORCH_CLASSES = (
    "RobustNetRegressor",
    "TorchDCClassifier",
    "TorchDCRegressor",
    "TorchRVClassifier",
    "TorchRVRegressor",
    "Selected",
)
_BITS = {"bfloat16": "int16"}  # NumPy has no such numbers: their bits go into the file

MakeModule = Callable[..., Any] | None


class ModuleError(ValueError):
    """A module that is needed and not given, or does not fit the numbers in the file."""


@dataclass(frozen=True, eq=False)
class SavedModule:
    """A module without its code.

    Attributes
    ----------
    name : str
        Of its class, for errors alone.
    arguments : tuple
        What ``make_module`` is called with: columns (or the shape of a row) and outputs for estimators,
        nothing for a bare module.
    linear : tuple of int, or None
        Inputs, outputs and bias of an ``nn.Linear``, which needs nobody to make it.
    tensors : dict of arrays
        The ``state_dict``.
    types : dict of str
        Type of each tensor.
    members : int
        Modules that a blend consists of; 0 for a module that is no blend.
    """

    name: str
    arguments: tuple[int | tuple[int, ...], ...]
    linear: tuple[int, int, bool] | None
    tensors: dict[str, NDArray[Any]]
    types: dict[str, str]
    members: int = 0


def is_module(value: Any) -> bool:
    """Whether it is an ``nn.Module``; without PyTorch nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_torch_estimator(value: Any) -> bool:
    """Whether it is a fitted estimator of ``tailproof.torch``."""
    return type(value).__name__ in TORCH_CLASSES and is_module(getattr(value, "module_", None))


def torch_class(name: str) -> type:
    """Class of ``tailproof.torch``; an ImportError names the extra where PyTorch is absent."""
    known: type = getattr(importlib.import_module("tailproof.torch"), name)
    return known


def module_to_arrays(module: Any, arguments: tuple[Any, ...] = ()) -> SavedModule:
    """Names and numbers of a module.

    Examples
    --------
    >>> from torch import nn
    >>> saved = module_to_arrays(nn.Linear(3, 2))
    >>> saved.linear, {name: array.shape for name, array in saved.tensors.items()}
    ((3, 2, True), {'weight': (2, 3), 'bias': (2,)})
    """
    nn, state = sys.modules["torch"].nn, module.state_dict()
    blend = isinstance(module, torch_class("BlendedNet"))
    first = module.members[0] if blend else module
    linear = None
    if type(first) is nn.Linear:
        linear = (first.in_features, first.out_features, first.bias is not None)
    types = {name: _type_of(name, tensor) for name, tensor in state.items()}
    tensors = {name: _array(tensor, types[name]) for name, tensor in state.items()}
    members = len(module.members) if blend else 0
    return SavedModule(type(first).__name__, arguments, linear, tensors, types, members)


def arrays_to_module(saved: SavedModule, make_module: MakeModule) -> Any:
    """The module with the numbers that were saved, in evaluation mode and on the CPU."""
    module = _made(saved, make_module)
    if saved.members:
        others = [_made(saved, make_module) for _ in range(saved.members - 1)]
        module = torch_class("BlendedNet")([module, *others], saved.tensors["centre"].size)
    fresh = module.state_dict(keep_vars=True)
    _check_fit(saved, fresh)
    for name, leaf in fresh.items():
        # Data alone: what requires no gradient still does not, and tied weights stay tied.
        leaf.data = _tensor(saved.tensors[name], saved.types[name])
    return module.eval()


def estimator_state(model: Any, state: dict[str, Any]) -> dict[str, Any]:
    """State of an estimator with its module as numbers, and without the k candidates that it came from."""
    outputs = model.classes_.size if hasattr(model, "classes_") else getattr(model, "n_outputs_", 1)
    kept = {name: value for name, value in state.items() if name != "candidates_"}
    arrays = module_to_arrays(model.module_, (getattr(model, "input_shape_", model.n_features_in_), outputs))
    return kept | {"module_": arrays, "device": str(model.device)}


def _made(saved: SavedModule, make_module: MakeModule) -> Any:
    torch_class("Selected")  # raises where PyTorch is absent
    nn = sys.modules["torch"].nn
    if make_module is None and saved.linear is not None:
        inputs, outputs, bias = saved.linear
        return nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias)
    given = ", ".join(map(str, saved.arguments))
    if make_module is None:
        raise ModuleError(
            f"it holds the numbers of a {saved.name}, not its code: say load(path, make_module=...), where "
            f"make_module({given}) makes a new {saved.name} of the same shape"
        )
    try:
        module = make_module(*saved.arguments)
    except Exception as error:
        words = " ".join(str(error).split())
        raise ModuleError(f"make_module({given}) failed: {type(error).__name__}: {words}") from error
    if not isinstance(module, nn.Module):
        raise ModuleError(f"make_module({given}) must return an nn.Module; got {type(module).__name__}")
    return module


def _check_fit(saved: SavedModule, fresh: dict[str, Any]) -> None:
    odd = sorted(saved.tensors.keys() ^ fresh.keys())
    if odd:
        has, lacks = ("the file", "the module") if odd[0] in saved.tensors else ("the module", "the file")
        raise ModuleError(
            f"make_module does not make the {saved.name} that was saved: {has} has a tensor {odd[0]!r}, and "
            f"{lacks} has none"
        )
    for name, leaf in fresh.items():
        if saved.tensors[name].shape != tuple(leaf.shape):
            raise ModuleError(
                f"make_module does not make the {saved.name} that was saved: {name!r} has the shape "
                f"{saved.tensors[name].shape} in the file and {tuple(leaf.shape)} in the module"
            )


def _type_of(name: str, tensor: Any) -> str:
    text = str(getattr(tensor, "dtype", type(tensor).__name__)).removeprefix("torch.")
    if text not in _BITS and not (hasattr(np, text) and np.dtype(text).kind in "biuf"):
        raise TypeError(f"the module's {name!r} is {text}, which a model file cannot hold: convert it first")
    return text


def _array(tensor: Any, kind: str) -> NDArray[Any]:
    plain = tensor.detach().cpu().contiguous()
    bits = _BITS.get(kind)
    # A copy: tied weights share their memory, and the module may go on training.
    return (plain.view(getattr(sys.modules["torch"], bits)) if bits else plain).numpy().copy()


def _tensor(array: NDArray[Any], kind: str) -> Any:
    torch = sys.modules["torch"]
    tensor = torch.from_numpy(np.array(array))
    return tensor.view(torch.bfloat16) if kind in _BITS else tensor
