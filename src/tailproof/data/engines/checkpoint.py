"""Progress of a long fit on disk: after an interruption the same call resumes from there."""

from __future__ import annotations

import glob
import hashlib
import json
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.data import durable
from tailproof.data.training import PassState

Key = tuple[int, int]  # stage and number of a pass
_STATE = ("coef", "intercept", "mean_coef", "mean_intercept", "passes", "updates")
_PASS = ("seen", "rows", "sums", "dropped", "far")


@dataclass(frozen=True, eq=False)
class SumsSoFar:
    """Sums of every piece that is done, those of each batch of the next piece, and the place to go on."""

    piece: int
    batch: int
    pieces: list[Array]
    batches: list[Array]


@dataclass(eq=False)
class Checkpoint:
    """A file with the candidates, or named sums, at the end of every pass and at the latest batch.

    Parameters
    ----------
    path : Path
    fingerprint : str
        Of estimator, options and data; a file of another fit is refused.
    every : float
        Seconds between two writes, at least.
    """

    path: Path
    fingerprint: str
    every: float = 30.0
    passes: dict[Key, list[PassState]] = field(default_factory=dict)
    places: dict[Key, tuple[int, int]] = field(default_factory=dict)
    sums: dict[str, SumsSoFar] = field(default_factory=dict)
    _stored: Any = None
    _written: float = field(default_factory=time.monotonic)
    _warned: bool = False

    @property
    def rows_folder(self) -> Path:
        """Folder beside the file for rows shuffled on disk, of this fit alone."""
        return self.path.with_name(f"{self.path.name}.rows-{self.fingerprint[:32]}")

    def load(self) -> None:
        """Read what an earlier call has written."""
        try:
            with durable.open_existing(self.path) as file, np.load(file, allow_pickle=False) as stored:
                self._stored = dict(stored)
        except FileNotFoundError:
            return
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{self.path} is not a checkpoint: delete it, or give another") from error
        if str(self._stored.get("fingerprint")) != self.fingerprint:
            raise ValueError(
                f"{self.path} belongs to another fit (other data, estimator, options or version): delete it, "
                "or give another checkpoint"
            )

    def resume(self, key: Key, candidates: list[PassState]) -> tuple[int, int, list[PassState]]:
        """Piece and batch of a pass to go on with, and the candidates there; else its start."""
        if self._stored is None or f"{key}.place" not in self._stored:
            return 0, 0, candidates
        piece, batch = (int(value) for value in self._stored[f"{key}.place"])
        resumed = [self._unpack(key, j, candidate) for j, candidate in enumerate(candidates)]
        self.passes[key], self.places[key] = resumed, (piece, batch)
        return piece, batch, resumed

    def save(self, key: Key, piece: int, batch: int, candidates: list[PassState], now: bool = False) -> None:
        """Note where a pass stands; write it if the last time is long ago."""
        self.passes[key], self.places[key] = candidates, (piece, batch)
        self._write(now)

    def resume_sums(self, name: str) -> SumsSoFar:
        """Sums to go on with; else none yet."""
        if self._stored is None or f"{name}.place" not in self._stored:
            return SumsSoFar(0, 0, [], [])
        piece, batch, done = (int(value) for value in self._stored[f"{name}.place"])
        ends = np.cumsum(self._stored[f"{name}.sizes"])[:-1]
        parts = np.split(self._stored[f"{name}.parts"], ends)
        self.sums[name] = SumsSoFar(piece, batch, parts[:done], parts[done:])
        return self.sums[name]

    def save_sums(self, name: str, so_far: SumsSoFar, now: bool = False) -> None:
        """Note where a sum stands; write it if the last time is long ago."""
        self.sums[name] = so_far
        self._write(now)

    def _write(self, now: bool) -> None:
        if not now and time.monotonic() - self._written < self.every:
            return
        arrays: dict[str, Any] = {"fingerprint": np.array(self.fingerprint)}
        for one, known in self.passes.items():
            arrays[f"{one}.place"] = np.array(self.places[one])
            for name in _STATE:
                arrays[f"{one}.{name}"] = np.stack([getattr(candidate.state, name) for candidate in known])
            if known[0].state.velocity is not None:
                arrays[f"{one}.velocity"] = np.stack([candidate.state.velocity for candidate in known])  # type: ignore[misc]
            for name in _PASS:
                arrays[f"{one}.{name}"] = np.stack([getattr(candidate, name) for candidate in known])
        for label, so_far in self.sums.items():
            parts = [*so_far.pieces, *so_far.batches]
            arrays[f"{label}.place"] = np.array([so_far.piece, so_far.batch, len(so_far.pieces)])
            arrays[f"{label}.sizes"] = np.array([len(part) for part in parts])
            arrays[f"{label}.parts"] = np.concatenate(parts)
        self._write_arrays(arrays)

    def delete(self) -> None:
        """Remove the file and the shuffled rows: the fit is complete."""
        self.path.unlink(missing_ok=True)
        durable.remove_own(self.rows_folder)

    def _write_arrays(self, arrays: dict[str, Any]) -> None:
        self._written = time.monotonic()
        try:
            with durable.replacing(self.path) as file:
                np.savez(file, **arrays)
        except OSError as error:
            # The fit itself needs nothing of this disk.
            if not self._warned:
                warnings.warn(
                    f"cannot write the checkpoint {self.path} ({error.strerror or error}): the fit goes on, "
                    "but an interruption would lose what is done since the last write",
                    UserWarning,
                    stacklevel=2,
                )
            self._warned = True

    def _unpack(self, key: Key, j: int, candidate: PassState) -> PassState:
        state = {name: self._stored[f"{key}.{name}"][j] for name in _STATE}
        state |= {name: int(state[name]) for name in ("passes", "updates")}
        if f"{key}.velocity" in self._stored:
            state["velocity"] = self._stored[f"{key}.velocity"][j]
        rest = {name: self._stored[f"{key}.{name}"][j] for name in _PASS}
        rest |= {name: int(rest[name]) for name in ("seen", "rows", "dropped", "far")}
        return replace(candidate, state=replace(candidate.state, **state), **rest)


@contextmanager
def open_checkpoint(path: Path, fingerprint: str, every: float) -> Iterator[Checkpoint]:
    """Give a checkpoint that no other process uses meanwhile, in a folder that takes files."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for the checkpoint: make it first")
    durable.check_writable(path, f"the checkpoint {path.name}")
    busy = f"another process fits with the checkpoint {path}: wait until it ends, or give another checkpoint"
    with durable.locked(path.with_name(f".{path.name}.tailproof-lock"), busy):
        durable.remove_parts(path)
        checkpoint = Checkpoint(path, fingerprint, every)
        checkpoint.load()
        for folder in path.parent.glob(f"{glob.escape(path.name)}.rows-*"):
            if folder != checkpoint.rows_folder:
                durable.remove_own(folder)  # of a fit whose checkpoint was deleted
        yield checkpoint


def fingerprint(*parts: Any) -> str:
    """Hash of what makes a fit the same fit."""
    return hashlib.sha256(json.dumps(parts, default=repr, sort_keys=True).encode()).hexdigest()
