"""Temporary folders that go with their process, even where it was killed: the next one clears up after it.

A folder holds a file that its process keeps locked. The system takes the lock away with the process, however
that ends, so that whoever gets the lock may delete the folder: numbers of processes are used again, and mean
nothing to another container that shares the disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # such locks are of POSIX: elsewhere what a killed process leaves stays
    fcntl = None  # type: ignore[assignment]

_PREFIX = "tailproof-"
_LOCK = "lock"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give a temporary folder, after those of processes that are no more are gone from the same place."""
    remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name, _locked(Path(name)):
        yield Path(name)


def remove_abandoned(place: Path) -> None:
    """Delete this user's folders whose process has ended; one without a lock may have just been made."""
    if fcntl is None:
        return
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody else's, or gone meanwhile
            if folder.lstat().st_uid != os.getuid():
                continue
            with open(folder / _LOCK, "rb") as lock:
                _take(lock)
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    # The name comes after the lock: a file of that name was locked by its maker.
    fresh = folder / "new"
    with open(fresh, "wb") as lock:
        if fcntl is not None:
            _take(lock)
            fresh.rename(folder / _LOCK)
        yield


def _take(lock: IO[Any]) -> None:
    """Lock a file, or raise if another process has it."""
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
