"""Models to trees of plain values and back: JSON for structure, arrays on the side.

An estimator or a record becomes the name of its class and its fields, so that nothing but the classes of
``tailproof.model_files.classes`` can come out of a file, and reading runs no code of the file.
"""

from __future__ import annotations

import math
from collections import UserList
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from tailproof.estimators.linear.stream_state import restored_stream
from tailproof.model_files import torch_modules
from tailproof.model_files.checks import check_estimator, check_record
from tailproof.model_files.classes import class_named, estimator_state, is_fitted_attribute, is_known

TAG = "#"  # marks what plain JSON has no word for
_TEXT_BYTES = 1 << 26  # of all arrays of fixed-width strings in a file: one long string widens every item
_NON_FINITE = ("nan", "inf", "-inf")
_TYPES: dict[str, type] = {
    **{cls.__name__: cls for cls in (bool, int, float, str, object)},
    **{f"numpy.{np.dtype(code).name}": np.dtype(code).type for code in "?bhilqBHILQefd"},
}
_TYPE_NAMES = {cls: name for name, cls in _TYPES.items()}


class Writer:
    """Values to JSON; arrays go to ``tensors``, by number."""

    def __init__(self) -> None:
        self.tensors: dict[str, NDArray[Any]] = {}

    def write(self, value: Any, where: str) -> Any:
        """The value as JSON; a TypeError says where something cannot be saved."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {TAG: "float", "text": repr(value)}
        if isinstance(value, UserList):  # columns that scikit-learn 1.6 keeps; reading them warns
            value = value.data
        if isinstance(value, list):
            return [self.write(item, where) for item in value]
        for kind, write in self._kinds.items():
            if isinstance(value, kind):
                return write(self, value, where)
        if torch_modules.is_module(value):
            value = torch_modules.module_to_arrays(value)
        if not (is_known(type(value)) and (isinstance(value, BaseEstimator) or is_dataclass(value))):
            raise _cannot(value, where)
        return self._object(value, where)

    def _object(self, value: Any, where: str) -> Any:
        if isinstance(value, BaseEstimator):
            state = estimator_state(value)
        else:
            state = {field.name: getattr(value, field.name) for field in fields(value)}
        return {
            TAG: type(value).__name__,
            "state": {key: self.write(item, f"{where}.{key}") for key, item in state.items()},
        }

    def _array(self, array: NDArray[Any], where: str) -> dict[str, Any]:
        if array.dtype.kind in "biuf":
            name = str(len(self.tensors))
            self.tensors[name] = np.ascontiguousarray(array).reshape(array.shape)
            # Products with an array depend on its order in memory, in their last digit.
            by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
            return {TAG: "array", "tensor": name} | ({"order": "F"} if by_columns else {})
        if array.dtype.kind not in "OU":
            raise _cannot(array, f"{where} (of {array.dtype})")
        items = [self.write(item, where) for item in array.ravel().tolist()]
        kind = "object" if array.dtype.kind == "O" else "text"
        return {TAG: kind, "items": items, "shape": list(array.shape)}

    def _dict(self, value: dict[Any, Any], where: str) -> dict[str, Any]:
        pairs = [[self.write(k, where), self.write(v, f"{where}[{k!r}]")] for k, v in value.items()]
        return {TAG: "dict", "pairs": pairs}

    def _tuple(self, value: tuple[Any, ...], where: str) -> dict[str, Any]:
        return {TAG: "tuple", "items": [self.write(item, where) for item in value]}

    def _slice(self, value: slice, where: str) -> dict[str, Any]:
        return {TAG: "slice", "parts": [value.start, value.stop, value.step]}

    def _dtype(self, value: np.dtype[Any], where: str) -> dict[str, Any]:
        return {TAG: "dtype", "name": value.str}

    def _ufunc(self, value: np.ufunc, where: str) -> dict[str, Any]:
        if getattr(np, value.__name__, None) is not value:
            raise _cannot(value, where)
        return {TAG: "ufunc", "name": value.__name__}

    def _type(self, value: type, where: str) -> dict[str, Any]:
        if value not in _TYPE_NAMES:
            raise _cannot(value, where)
        return {TAG: "type", "name": _TYPE_NAMES[value]}

    _kinds: ClassVar[dict[type, Callable[..., Any]]] = {
        np.ndarray: _array,
        dict: _dict,
        tuple: _tuple,
        slice: _slice,
        np.dtype: _dtype,
        np.ufunc: _ufunc,
        type: _type,
    }


class Reader:
    """JSON back to values; whatever is not expected is an error.

    Parameters
    ----------
    tensors : dict of arrays
    make_module : callable or None
        For PyTorch modules.
    keep_modules : bool
        Leave modules as the arrays that they are in the file.
    """

    def __init__(
        self,
        tensors: dict[str, NDArray[Any]],
        make_module: Callable[..., Any] | None = None,
        keep_modules: bool = False,
    ) -> None:
        self.tensors, self.make_module, self.keep_modules = tensors, make_module, keep_modules
        self.text_bytes = 0
        self.kinds: dict[str, Callable[[Any], Any]] = {
            "float": _float,
            "tuple": lambda node: tuple(self.read(item) for item in node["items"]),
            "dict": lambda node: {self.read(key): self.read(value) for key, value in node["pairs"]},
            "array": self._array,
            "text": self._text,
            "object": self._objects,
            "slice": lambda node: slice(*map(_whole, node["parts"])),
            "dtype": lambda node: _dtype(node["name"]),
            "type": lambda node: _TYPES[node["name"]],
            "ufunc": lambda node: _ufunc(node["name"]),
        }

    def read(self, node: Any) -> Any:
        """The value of a node."""
        if isinstance(node, list):
            return [self.read(item) for item in node]
        if not isinstance(node, dict):
            return node
        kind = node[TAG]
        if isinstance(kind, str) and kind in self.kinds:
            return self.kinds[kind](node)
        cls = class_named(kind)
        return self._made(cls, {str(key): self.read(value) for key, value in node["state"].items()})

    def _made(self, cls: type, state: dict[str, Any]) -> Any:
        if not issubclass(cls, BaseEstimator):
            made = cls(**state)
            check_record(made)
            if isinstance(made, torch_modules.SavedModule) and not self.keep_modules:
                return torch_modules.arrays_to_module(made, self.make_module)
            return made
        made = rebuilt(cls, state)
        if cls.__name__ in torch_modules.TORCH_CLASSES:
            made.module = self.make_module
        check_estimator(made)
        return made

    def _array(self, node: dict[str, Any]) -> NDArray[Any]:
        kept = self.tensors[node["tensor"]]
        return np.asfortranarray(kept) if node.get("order") == "F" else kept

    def _text(self, node: dict[str, Any]) -> NDArray[Any]:
        items = node["items"]
        if not all(isinstance(item, str) for item in items):
            raise ValueError("an array of strings holds something else")
        self.text_bytes += 4 * len(items) * max(map(len, items), default=0)
        if self.text_bytes > _TEXT_BYTES:
            raise ValueError(f"its strings would take more than {_TEXT_BYTES:,} bytes")
        return np.array(items, dtype=np.str_).reshape(_shape(node))

    def _objects(self, node: dict[str, Any]) -> NDArray[Any]:
        items = [self.read(item) for item in node["items"]]
        array = np.empty(len(items), dtype=object)
        array[:] = [None] * len(items)
        for place, item in enumerate(items):
            array[place] = item
        return array.reshape(_shape(node))


def rebuilt(cls: type, state: dict[str, Any]) -> Any:
    """An estimator from its parameters and fitted attributes."""
    names = cls._get_param_names()  # type: ignore[attr-defined]
    state |= {name: None for name in names if name == "memory"}  # a folder of pickles
    # A parameter that came after the file was written has its default.
    model = cls(**{name: state.pop(name) for name in names if name in state})
    foreign = [name for name in state if not is_fitted_attribute(cls, name)]
    if foreign:
        raise ValueError(f"{cls.__name__} has the attribute {foreign[0][:60]!r}, which no fit makes")
    stream = state.pop("stream_", None)
    vars(model).update(state)
    if stream is not None:
        model._stream = restored_stream(model, stream)
    return model


def _float(node: dict[str, Any]) -> float:
    if node["text"] not in _NON_FINITE:
        raise ValueError("a number is written as text")
    return float(node["text"])


def _whole(value: Any) -> int | None:
    if value is not None and type(value) is not int:
        raise ValueError("a slice has ends that are not whole numbers")
    return value


def _shape(node: dict[str, Any]) -> list[int]:
    shape = node["shape"]
    if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("an array has no proper shape")
    return shape


def _dtype(name: Any) -> np.dtype[Any]:
    made = np.dtype(str(name))
    if made.kind not in "biufOU" or made.itemsize > 1 << 16:
        raise ValueError(f"{str(name)[:40]!r} is no type of numbers or strings")
    return made


def _ufunc(name: Any) -> np.ufunc:
    function = getattr(np, str(name), None)
    if not isinstance(function, np.ufunc):
        raise ValueError(f"{str(name)[:40]!r} is no function of NumPy")
    return function


def _cannot(value: Any, where: str) -> TypeError:
    return TypeError(
        f"{where} is a {type(value).__name__}, which cannot be saved without pickle: a model file holds "
        "estimators of tailproof, linear models and transformers of scikit-learn, and what Candidates merged "
        "or selected"
    )
