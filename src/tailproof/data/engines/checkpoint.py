"""Progress of a long fit on disk: after an interruption the same call resumes from there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tailproof.data.training import PassState

Key = tuple[int, int]  # stage and number of a pass
_STATE = ("coef", "intercept", "mean_coef", "mean_intercept", "passes", "updates")
_PASS = ("seen", "rows", "sums", "dropped")


@dataclass(eq=False)
class Checkpoint:
    """A file with the candidates at the end of every pass and at the latest batch.

    Parameters
    ----------
    path : Path
    fingerprint : str
        Of estimator and data; a file of another fit is refused.
    every : float
        Seconds between two writes, at least.
    """

    path: Path
    fingerprint: str
    every: float = 30.0
    passes: dict[Key, list[PassState]] = field(default_factory=dict)
    places: dict[Key, tuple[int, int]] = field(default_factory=dict)
    beside: list[Path] = field(default_factory=list)
    _stored: Any = None
    _written: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"there is no folder {self.path.parent} for the checkpoint: make it first"
            )
        if not self.path.exists():
            return
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                self._stored = dict(stored)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{self.path} is not a checkpoint: delete it, or give another") from error
        if str(self._stored.get("fingerprint")) != self.fingerprint:
            raise ValueError(
                f"{self.path} belongs to another fit (other data, estimator or version): delete it, or give "
                "another checkpoint"
            )

    def resume(self, key: Key, candidates: list[PassState]) -> tuple[int, int, list[PassState]]:
        """Piece and batch of a pass to go on with, and the candidates there; else its start."""
        if self._stored is None or f"{key}.place" not in self._stored:
            return 0, 0, candidates
        piece, batch = (int(value) for value in self._stored[f"{key}.place"])
        found = [self._unpack(key, j, candidate) for j, candidate in enumerate(candidates)]
        self.passes[key], self.places[key] = found, (piece, batch)
        return piece, batch, found

    def save(self, key: Key, piece: int, batch: int, candidates: list[PassState], now: bool = False) -> None:
        """Note where a pass stands; write it if the last time is long ago."""
        self.passes[key], self.places[key] = candidates, (piece, batch)
        if not now and time.monotonic() - self._written < self.every:
            return
        arrays: dict[str, Any] = {"fingerprint": np.array(self.fingerprint)}
        for one, known in self.passes.items():
            arrays[f"{one}.place"] = np.array(self.places[one])
            for name in _STATE:
                arrays[f"{one}.{name}"] = np.stack([getattr(candidate.state, name) for candidate in known])
            for name in _PASS:
                arrays[f"{one}.{name}"] = np.stack([getattr(candidate, name) for candidate in known])
        self._write(arrays)

    def delete(self) -> None:
        """Remove the file and what lies beside it: the fit has come to its end."""
        self.path.unlink(missing_ok=True)
        for folder in self.beside:
            shutil.rmtree(folder)

    def _write(self, arrays: dict[str, Any]) -> None:
        # Beside it and then renamed: a file of this name is always whole.
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        self._written = time.monotonic()

    def _unpack(self, key: Key, j: int, candidate: PassState) -> PassState:
        state = {name: self._stored[f"{key}.{name}"][j] for name in _STATE}
        state |= {name: int(state[name]) for name in ("passes", "updates")}
        rest = {name: self._stored[f"{key}.{name}"][j] for name in _PASS}
        rest |= {name: int(rest[name]) for name in ("seen", "rows", "dropped")}
        return replace(candidate, state=replace(candidate.state, **state), **rest)


def fingerprint(*parts: Any) -> str:
    """Hash of what makes a fit the same fit."""
    return hashlib.sha256(json.dumps(parts, default=repr, sort_keys=True).encode()).hexdigest()
