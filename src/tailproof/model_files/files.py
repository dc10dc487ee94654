"""Models in files without pickle: safetensors for numbers, JSON for the rest. Loading never runs code.

``tree`` turns a model into plain values and back, ``classes`` lists what a file may hold, and ``checks``
refuses what is no model. A checksum over everything tells damage from content.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof import __version__
from tailproof.core.lookup import optional
from tailproof.model_files import torch_modules
from tailproof.model_files.checks import UntriedError, try_out
from tailproof.model_files.classes import class_named, is_model
from tailproof.model_files.tree import TAG, Reader, Writer

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

FORMAT = 1  # of the file: a newer one is refused, an older one is read
_LARGEST = 1 << 34  # bytes: no model is larger


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
        this package, or a linear model of scikit-learn, alone or in pipelines with scalers, encoders,
        imputers, polynomials and column transformers. The state of ``partial_fit`` is saved, with the rows
        that it keeps: those held out by RV, and the first ones of a stream that has no scales yet. What was
        left out must be set again before another fit.
    path : path

    Raises
    ------
    TypeError
        If something that was fitted cannot be saved without pickle, such as trees.

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
    content, again = _encoded(model, tried=True)
    if not _can_be_tried(again):
        content, _ = _encoded(model, tried=False)
    write_whole(path, content)


def _encoded(model: Any, tried: bool) -> tuple[bytes, Any]:
    """Content of the file of a model, and what comes back from it, which must be the same."""
    tensors, metadata = _described(model, tried)
    content = optional("safetensors.numpy", extra="cli").save(tensors, metadata=metadata)
    # A model that is not known is found here, not when it is needed.
    header, tensors = _decoded(content, "the model")
    try:
        again = Reader(tensors, keep_modules=True).read(header["model"])
    except ValueError as error:
        raise ValueError(f"{type(model).__name__} cannot be saved: {error}") from None
    if _described(again, tried)[1] != metadata:
        raise TypeError(f"{type(model).__name__} cannot be saved: it would not come back as it is")
    return content, again


def _can_be_tried(model: Any) -> bool:
    """Whether the model works on a made-up row; some want rows that cannot be made up."""
    try:
        try_out(model)
    except UntriedError:
        return False
    except ValueError as error:
        raise ValueError(f"{type(model).__name__} cannot be saved: {error}") from None
    return True


def _check_that_it_works(model: Any, tried: bool, path: object) -> None:
    """Try a model, whatever its file says of that; one that says it cannot be tried is told about."""
    try:
        try_out(model)
    except UntriedError as error:
        if tried:
            raise
        words = f"{path} could not be tried on a made-up row ({error}): look at what it predicts"
        warnings.warn(words, UserWarning, stacklevel=3)


def _described(model: Any, tried: bool) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Tensors of a model, and everything else with a checksum over both."""
    writer = Writer()
    tree = writer.write(model, type(model).__name__)
    record = {"format": FORMAT, "version": __version__, "tried": tried, "model": tree}
    header = json.dumps(record, ensure_ascii=False)
    return writer.tensors, {"tailproof": header, "sha256": checksum(header, writer.tensors)}


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
    if header["format"] > FORMAT:
        raise ModelFileError(
            f"{path} was written by tailproof {header['version'][:40]}, in a format that this version does "
            "not know: install that version or a newer one"
        )
    try:
        if class_named(name := header["model"].get(TAG)) and not is_model(name):
            raise ValueError(f"a {name} is no model, but a part of one")
        model = Reader(tensors, make_module).read(header["model"])
        _check_that_it_works(model, header["tried"], path)
        return model
    except ImportError:
        raise
    except torch_modules.ModuleError as error:
        raise ModelFileError(f"{path} cannot be loaded: {error}") from error.__cause__
    except Exception as error:
        raise ModelFileError(f"{path} does not describe a model of tailproof: {_first_line(error)}") from None


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a model file: format, version and the class of the model."""
    header, _ = _read(Path(path))
    return {name: header[name] for name in ("format", "version")} | {"class": header["model"].get(TAG)}


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file under another name beside it first, so that a failure leaves nothing half written.

    A link of one's own stays one, and what it leads to is written; a device or a pipe is written as it is.
    What a killed call left beside the file is removed.
    """
    target = followed(path)
    data = content.encode() if isinstance(content, str) else content
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file")
    if target.exists() and not target.is_file():
        with open(target, "wb") as file:
            file.write(data)
        return
    _remove_leftovers(target)
    while not _replaced(target, data, path):
        continue  # another call took the file for a leftover


def followed(path: str | os.PathLike[str]) -> Path:
    """What a path leads to, but not through a link that another user has put there; the system's are fine."""
    if os.path.islink(path) and hasattr(os, "geteuid") and os.lstat(path).st_uid not in (0, os.geteuid()):
        raise OSError(
            f"{path} is a symbolic link of another user, which is not followed: give the file itself"
        )
    return Path(path).resolve()


def _replaced(target: Path, data: bytes, path: object) -> bool:
    """Write beside the file and rename; False where another process has removed it before it was locked."""
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}{_UNFINISHED}")
    try:
        with open(beside, "xb") as file:
            _lock(file)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # before it has the name, all of it is on the disk
            with suppress(FileNotFoundError):
                os.replace(beside, target)
                return True
            return False
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            # With the name that the caller knows.
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


_UNFINISHED = ".unfinished"


def _remove_leftovers(target: Path) -> None:
    """Remove unfinished files of calls that were killed: nobody holds their lock any more."""
    name = re.compile(re.escape(f".{target.name[:100]}.") + "[0-9a-f]{12}" + re.escape(_UNFINISHED))
    if fcntl is None or not target.parent.is_dir():
        return
    for entry in os.scandir(target.parent):
        if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            try:
                with open(entry.path, "rb") as file:
                    if _lock(file):
                        os.unlink(entry.path)
            except OSError:  # somebody else's
                continue


def _lock(file: Any) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and tensors of a file that is whole and ours."""
    size = path.stat().st_size
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder, not a model file")
    if not 0 < size < _LARGEST:
        raise ModelFileError(f"{path} is not a model file of tailproof: it holds {size:,} bytes")
    return _decoded(path.read_bytes(), path)


def _decoded(content: bytes, path: object) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    safetensors = optional("safetensors.numpy", extra="cli")
    try:
        tensors = safetensors.load(content)
        metadata = _metadata(content)
    except Exception as error:
        raise ModelFileError(
            f"{path} is not a model file, or is damaged: {_first_line(error)}; write it again"
        ) from None
    if "tailproof" not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but not one of tailproof")
    if metadata.get("sha256") != checksum(metadata["tailproof"], tensors):
        raise ModelFileError(f"{path} is damaged: its content does not match its checksum; write it again")
    try:
        header = {"version": "", "tried": True} | json.loads(metadata["tailproof"])
    except (ValueError, TypeError, RecursionError):
        header = {}
    wanted = {"format": int, "version": str, "tried": bool, "model": dict}
    if not all(type(header.get(name)) is kind for name, kind in wanted.items()) or not isinstance(
        header["model"].get(TAG, ""), str
    ):
        raise ModelFileError(f"{path} does not describe a model of tailproof")
    return header, tensors


def _metadata(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    return {str(key): str(value) for key, value in metadata.items()}


def checksum(header: str, tensors: dict[str, NDArray[Any]]) -> str:
    """SHA-256 of everything in a file."""
    digest = hashlib.sha256(header.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200] or type(error).__name__
