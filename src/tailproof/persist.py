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
from sklearn.base import BaseEstimator

from tailproof import baselines, encoding, linear, report, robust, robust_report, sets, steps, table_model

FORMAT = 1  # of the file: a newer one is refused, an older one is read
_TAG = "#"  # marks what plain JSON has no word for
_LARGEST = 1 << 34  # bytes: nothing that is a model is larger

# What a file may hold. Estimators are rebuilt from parameters and fitted attributes, records from fields.
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        linear.DCSGDRegressor,
        linear.DCSGDClassifier,
        linear.RVSGDRegressor,
        linear.RVSGDClassifier,
        baselines.RGDRegressor,
        baselines.RGDClassifier,
        robust.RobustRegressor,
        report.Report,
        robust_report.RobustReport,
        encoding.Column,
        encoding.Encoding,
        table_model.TableModel,
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
    )
}


class ModelFileError(ValueError):
    """A file that is no model of ours, is damaged, or comes from a newer version."""


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file, whole or not at all.

    Parameters
    ----------
    model : estimator
        Any estimator of this package that has been fitted. What cannot be written down as numbers and
        text, a callback or a ``RandomState``, is left out and is None after loading.
    path : path

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
    from tailproof import __version__  # noqa: PLC0415  # the package is complete by now

    header = json.dumps({"format": FORMAT, "version": __version__, "model": tree}, ensure_ascii=False)
    metadata = {"tailproof": header, "sha256": _checksum(header, tensors)}
    write_whole(path, _safetensors().save(tensors, metadata=metadata))


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model from a file.

    Raises
    ------
    ModelFileError
        In one sentence, if the file is not a model, is damaged, or was written by a newer version.
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
        return _Reader(tensors).read(header["model"])
    except Exception as error:
        raise ModelFileError(f"{path} does not describe a model of tailproof: {_first_line(error)}") from None


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a model file: format, version and the class of the model."""
    header, _ = _read(Path(path))
    return {"format": header["format"], "version": header["version"], "class": header["model"].get(_TAG)}


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file under another name beside it first, so that a failure leaves nothing half written."""
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}")
    try:
        with open(beside, "xb") as file:
            file.write(data)
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
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
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {_TAG: "float", "text": repr(value)}
        if isinstance(value, list):
            return [self.write(item, where) for item in value]
        if isinstance(value, dict):
            pairs = [[self.write(k, where), self.write(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {_TAG: "dict", "pairs": pairs}
        raise TypeError(
            f"{where} is a {type(value).__name__}, which cannot be saved without pickle: tailproof saves its "
            f"own estimators ({', '.join(name for name, cls in CLASSES.items() if _is_estimator(cls))})"
        )

    def _tagged(self, value: Any, where: str) -> Any:
        if isinstance(value, np.generic):
            return self.write(value.item(), where)
        if isinstance(value, tuple):
            return {_TAG: "tuple", "items": [self.write(item, where) for item in value]}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        name = type(value).__name__
        if CLASSES.get(name) is not type(value):
            raise TypeError(
                f"{where} is a {name}, which cannot be saved without pickle: only estimators of tailproof can"
            )
        state = _state(value)
        return {_TAG: name, "state": {key: self.write(item, f"{where}.{key}") for key, item in state.items()}}

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

    def __init__(self, tensors: dict[str, NDArray[Any]]) -> None:
        self.tensors = tensors
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
        if kind not in CLASSES:
            raise ValueError(f"it names the unknown class {str(kind)[:60]!r}")
        state = {str(key): self.read(value) for key, value in node["state"].items()}
        return _rebuilt(CLASSES[kind], state)

    def _items(self, node: dict[str, Any]) -> list[Any]:
        return [self.read(item) for item in node["items"]]


def _is_estimator(cls: type) -> bool:
    return issubclass(cls, BaseEstimator)


def _state(value: Any) -> dict[str, Any]:
    if not isinstance(value, BaseEstimator):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    given = {key: _writable(item) for key, item in value.get_params(deep=False).items()}
    return given | {key: item for key, item in vars(value).items() if key.endswith("_")}


def _writable(parameter: Any) -> Any:
    """A parameter, or None for a callback or a random state, which only the process has."""
    return None if callable(parameter) or isinstance(parameter, np.random.RandomState) else parameter


def _rebuilt(cls: type, state: dict[str, Any]) -> Any:
    if not _is_estimator(cls):
        return cls(**state)
    names = cls._get_param_names()  # type: ignore[attr-defined]
    model = cls(**{name: state.pop(name) for name in names})
    if not all(key.endswith("_") and key.isidentifier() and not key.startswith("_") for key in state):
        raise ValueError(f"{cls.__name__} has attributes that no fit makes")
    vars(model).update(state)
    return model


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200] or type(error).__name__


def _safetensors() -> Any:
    try:
        import safetensors.numpy  # noqa: PLC0415
    except ImportError:
        raise ImportError("model files need safetensors: pip install 'tailproof[cli]'") from None
    return safetensors.numpy
