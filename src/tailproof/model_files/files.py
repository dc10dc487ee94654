"""Models in files without pickle: safetensors for numbers, JSON for the rest. Loading never runs code.

A file holds a tree of plain values. Arrays are tensors; estimators and records are the name of a class in
``CLASSES`` and its fields, so that nothing but these classes can ever come out of a file. A checksum over
everything tells damage from content.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import linear_model, preprocessing
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from tailproof.core import sets, steps, validate
from tailproof.core.lookup import optional
from tailproof.estimators.baselines.estimators import RGDClassifier, RGDRegressor
from tailproof.estimators.linear.estimators import (
    DCSGDClassifier,
    DCSGDRegressor,
    RVSGDClassifier,
    RVSGDRegressor,
)
from tailproof.estimators.meta.estimators import DivideAndConquer, RobustValidation
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.model_files import torch_modules
from tailproof.reports import choice_report, fit_report
from tailproof.tables import encoding
from tailproof.tables.model import TableModel

FORMAT = 1  # of the file: a newer one is refused, an older one is read
_TAG = "#"  # marks what plain JSON has no word for
_LARGEST = 1 << 34  # bytes: nothing that is a model is larger

# What a file may hold. Estimators are rebuilt from parameters and fitted attributes, records from fields.
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        DCSGDRegressor,
        DCSGDClassifier,
        RVSGDRegressor,
        RVSGDClassifier,
        RGDRegressor,
        RGDClassifier,
        RobustRegressor,
        DivideAndConquer,
        RobustValidation,
        fit_report.Report,
        choice_report.RobustReport,
        encoding.Column,
        encoding.Encoding,
        TableModel,
        sets.AllSpace,
        sets.Ball,
        sets.Box,
        sets.L1Ball,
        sets.Simplex,
        steps.Constant,
        steps.OverRootD,
        steps.Theorem1,
        steps.Theorem2,
        steps.Theorem3,
        steps.Auto,
        validate.Validation,
        torch_modules.SavedModule,
        # What the meta-estimators are mostly given, and is nothing but numbers once it is fitted.
        Pipeline,
        linear_model.LinearRegression,
        linear_model.Ridge,
        linear_model.Lasso,
        linear_model.ElasticNet,
        linear_model.HuberRegressor,
        linear_model.QuantileRegressor,
        linear_model.SGDRegressor,
        linear_model.SGDClassifier,
        linear_model.LogisticRegression,
        preprocessing.StandardScaler,
        preprocessing.RobustScaler,
        preprocessing.MinMaxScaler,
    )
}
NAMES = (*CLASSES, *torch_modules.TORCH_CLASSES)
_NEVER = ("memory",)  # parameters that are not read from a file: a folder of pickles


class ModelFileError(ValueError):
    """A file that is no model of ours, is damaged, or comes from a newer version."""


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file, whole or not at all.

    Parameters
    ----------
    model : estimator, nn.Module or Selected
        Any estimator of this package that has been fitted, or what ``tailproof.torch.Candidates`` merged or
        selected. Parameters that cannot be written down as numbers and text, such as a callback, a module
        factory, a ``RandomState`` or an estimator of another package, are left out and None after loading;
        so are the ``candidates_`` of PyTorch estimators. A meta-estimator is saved if what it fitted is of
        this package, or linear and of scikit-learn. What was left out must be set again before another fit.
    path : path

    Raises
    ------
    TypeError
        If what was fitted cannot be saved without pickle, such as trees.

    Examples
    --------
    >>> import tempfile, tailproof as tp
    >>> model = tp.DCSGDRegressor(random_state=0).fit(np.eye(40, 2), np.arange(40.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, Path(folder) / "model.tailproof")
    ...     again = load(Path(folder) / "model.tailproof")
    >>> bool(np.array_equal(model.coef_, again.coef_))
    True
    """
    tensors: dict[str, NDArray[Any]] = {}
    tree = _Writer(tensors).write(model, type(model).__name__)
    from tailproof import __version__  # the package is complete by now

    header = json.dumps({"format": FORMAT, "version": __version__, "model": tree}, ensure_ascii=False)
    metadata = {"tailproof": header, "sha256": _checksum(header, tensors)}
    write_whole(path, _safetensors().save(tensors, metadata=metadata))


def load(path: str | os.PathLike[str], *, make_module: Callable[..., Any] | None = None) -> Any:
    """Read a model from a file.

    Parameters
    ----------
    path : path
    make_module : callable, optional
        Makes a new PyTorch module for the numbers in the file, which holds no code. For an estimator it is
        what ``module`` was, called with the numbers of columns and outputs; for a module alone, what
        ``Candidates`` was given, called with nothing. A single ``nn.Linear`` needs none.

    Raises
    ------
    ModelFileError
        In one sentence, if the file is not a model, is damaged, was written by a newer version, or needs
        another ``make_module``.
    ImportError
        If the model needs PyTorch, and there is none.
    FileNotFoundError, PermissionError
        As from ``open``.
    """
    header, tensors = _read(Path(path))
    if header.get("format", 0) > FORMAT:
        raise ModelFileError(
            f"{path} was written by tailproof {header.get('version')}, in a format that this version does "
            "not know: install that version or a newer one"
        )
    try:
        return _Reader(tensors, make_module).read(header["model"])
    except ImportError:
        raise
    except torch_modules.ModuleError as error:
        raise ModelFileError(f"{path} cannot be loaded: {error}") from error.__cause__
    except Exception as error:
        raise ModelFileError(f"{path} does not describe a model of tailproof: {_first_line(error)}") from None


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a model file: format, version and the class of the model."""
    header, _ = _read(Path(path))
    return {"format": header["format"], "version": header["version"], "class": header["model"].get(_TAG)}


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file under another name beside it first, so that a failure leaves nothing half written.

    A link stays one, and what it leads to is written; a device or a pipe is written as it is.
    """
    target = Path(path).resolve()
    data = content.encode() if isinstance(content, str) else content
    if target.exists() and not target.is_file():
        with open(target, "wb") as file:
            file.write(data)
        return
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}")
    try:
        with open(beside, "xb") as file:
            file.write(data)
        os.replace(beside, target)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # the name that the caller knows
        raise


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and tensors of a file that is whole and ours."""
    size = path.stat().st_size
    if path.is_dir() or not 0 < size < _LARGEST:
        raise ModelFileError(f"{path} is not a model file of tailproof: it holds {size:,} bytes")
    content = path.read_bytes()
    try:
        tensors = _safetensors().load(content)
        metadata = _metadata(content)
    except Exception as error:
        raise ModelFileError(
            f"{path} is not a model file, or is damaged: {_first_line(error)}; write it again"
        ) from None
    if "tailproof" not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but not one of tailproof")
    if metadata.get("sha256") != _checksum(metadata["tailproof"], tensors):
        raise ModelFileError(f"{path} is damaged: its content does not match its checksum; write it again")
    try:
        header = json.loads(metadata["tailproof"])
        if isinstance(header["format"], int) and isinstance(header["model"], dict):
            return header, tensors
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ModelFileError(f"{path} does not describe a model of tailproof")


def _metadata(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    found = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    return {str(key): str(value) for key, value in found.items()}


def _checksum(header: str, tensors: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(header.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


class _Writer:
    """Values to JSON; arrays go to the side, by number."""

    def __init__(self, tensors: dict[str, NDArray[Any]]) -> None:
        self.tensors = tensors

    def write(self, value: Any, where: str) -> Any:
        if isinstance(value, (BaseEstimator, np.ndarray, np.generic, tuple)) or is_dataclass(value):
            return self._tagged(value, where)
        if torch_modules.is_module(value):
            return self._tagged(torch_modules.module_to_arrays(value), where)
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {_TAG: "float", "text": repr(value)}
        if isinstance(value, list):
            return [self.write(item, where) for item in value]
        if isinstance(value, dict):
            pairs = [[self.write(k, where), self.write(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {_TAG: "dict", "pairs": pairs}
        raise _cannot(value, where)

    def _tagged(self, value: Any, where: str) -> Any:
        if isinstance(value, np.generic):
            return self.write(value.item(), where)
        if isinstance(value, tuple):
            return {_TAG: "tuple", "items": [self.write(item, where) for item in value]}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if not _is_known(type(value)):
            raise _cannot(value, where)
        state = {key: self.write(item, f"{where}.{key}") for key, item in _state(value).items()}
        return {_TAG: type(value).__name__, "state": state}

    def _array(self, array: NDArray[Any], where: str) -> dict[str, Any]:
        if array.dtype.kind in "biuf":
            name = str(len(self.tensors))
            self.tensors[name] = np.ascontiguousarray(array).reshape(array.shape)
            return {_TAG: "array", "tensor": name}
        items = [self.write(item, where) for item in array.ravel().tolist()]
        kind = "object" if array.dtype.kind == "O" else "text"
        return {_TAG: kind, "items": items, "shape": list(array.shape)}


class _Reader:
    """JSON back to values; whatever is not expected is an error."""

    def __init__(
        self, tensors: dict[str, NDArray[Any]], make_module: Callable[..., Any] | None = None
    ) -> None:
        self.tensors = tensors
        self.make_module = make_module
        self.kinds: dict[str, Callable[[Any], Any]] = {
            "float": lambda node: float(node["text"]),
            "tuple": lambda node: tuple(self.read(item) for item in node["items"]),
            "dict": lambda node: {self.read(key): self.read(value) for key, value in node["pairs"]},
            "array": lambda node: self.tensors[node["tensor"]],
            "text": lambda node: np.array(self._items(node), dtype=np.str_).reshape(node["shape"]),
            "object": lambda node: np.array(self._items(node), dtype=object).reshape(node["shape"]),
        }

    def read(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.read(item) for item in node]
        if not isinstance(node, dict):
            return node
        kind = node[_TAG]
        if kind in self.kinds:
            return self.kinds[kind](node)
        if kind not in NAMES:
            raise ValueError(f"it names the unknown class {str(kind)[:60]!r}")
        cls = CLASSES[kind] if kind in CLASSES else torch_modules.torch_class(kind)
        return self._made(cls, {str(key): self.read(value) for key, value in node["state"].items()})

    def _made(self, cls: type, state: dict[str, Any]) -> Any:
        made = _rebuilt(cls, state)
        if isinstance(made, torch_modules.SavedModule):
            return torch_modules.arrays_to_module(made, self.make_module)
        if cls.__name__ in torch_modules.TORCH_CLASSES and _is_estimator(cls):
            made.module = self.make_module
        return made

    def _items(self, node: dict[str, Any]) -> list[Any]:
        return [self.read(item) for item in node["items"]]


def _is_estimator(cls: type) -> bool:
    return issubclass(cls, BaseEstimator)


def _state(value: Any) -> dict[str, Any]:
    if not isinstance(value, BaseEstimator):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    given = {key: _writable(item) for key, item in value.get_params(deep=False).items()}
    state = given | {key: item for key, item in vars(value).items() if _is_fitted_name(key)}
    return torch_modules.estimator_state(value, state) if torch_modules.is_torch_estimator(value) else state


def _writable(parameter: Any) -> Any:
    """A parameter, or None for a callback, a random state or a foreign estimator, which only code has."""
    foreign = callable(parameter) or isinstance(parameter, np.random.RandomState)
    return None if foreign or _is_foreign(parameter) else parameter


def _is_foreign(parameter: Any) -> bool:
    if isinstance(parameter, (list, tuple)):
        return any(_is_foreign(item) for item in parameter)
    return isinstance(parameter, BaseEstimator) and not _is_known(type(parameter))


def _is_known(cls: type) -> bool:
    if cls.__name__ in torch_modules.TORCH_CLASSES:
        return torch_modules.torch_class(cls.__name__) is cls
    return CLASSES.get(cls.__name__) is cls


def _cannot(value: Any, where: str) -> TypeError:
    return TypeError(
        f"{where} is a {type(value).__name__}, which cannot be saved without pickle: a model file holds "
        "estimators of tailproof, linear ones of scikit-learn, and what Candidates merged or selected"
    )


def _rebuilt(cls: type, state: dict[str, Any]) -> Any:
    if not _is_estimator(cls):
        return cls(**state)
    names = cls._get_param_names()  # type: ignore[attr-defined]
    state |= dict.fromkeys(set(_NEVER).intersection(names))
    model = cls(**{name: state.pop(name) for name in names})
    if not all(_is_fitted_name(key) for key in state):
        raise ValueError(f"{cls.__name__} has attributes that no fit makes")
    vars(model).update(state)
    return model


def _is_fitted_name(key: str) -> bool:
    return key.endswith("_") and key.isidentifier() and not key.startswith("_")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200] or type(error).__name__


def _safetensors() -> Any:
    return optional("safetensors.numpy", extra="cli")
