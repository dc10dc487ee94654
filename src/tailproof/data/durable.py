"""State of a fit on disk: checkpoints, shuffled rows, chunks of iterators.

- Files are private (mode 0600, folders 0700), and no symbolic link is followed.
- A file is written under a name of its own, flushed and renamed: under its final name it is always whole.
- A folder holds a record of this module. Only such folders are deleted, and in them only files
  of known names.
- A lock keeps a second process away. The system releases it when its process ends, however that happens.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # POSIX only: elsewhere there are no locks, and what a killed process leaves stays
    fcntl = None  # type: ignore[assignment]

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_RECORD, _INDEX = "tailproof-record.json", "index.json"
_DATA_FILE = re.compile(r"\d+\.(rows|npz|arrow)|index\.json|\..*\.tailproof-part")
_TEMPORARY = re.compile(r"tailproof-[0-9a-f]{32}")
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)  # some disks of the network
_PROBE = 1 << 16  # bytes written to see whether a folder takes files
_PRIVATE = 0o600  # nobody else may read
SHARED = 0o666  # as far as the user's mask lets others


class BusyError(OSError):
    """Another process has the lock."""


class FullDiskError(OSError):
    """The temporary folder takes no more rows."""

    def __init__(self, place: Path) -> None:
        words = f"the disk of {place} is full, where rows are kept during a fit: set TMPDIR to a larger one"
        super().__init__(errno.ENOSPC, words)

    def __str__(self) -> str:
        return str(self.strerror)


def create(path: Path, mode: int = _PRIVATE) -> IO[bytes]:
    """Open a new file for writing, a private one by default; one that is there, even as a link, raises."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, mode), "wb")


def append_to(path: Path) -> IO[bytes]:
    """Open a private file to write at its end."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NO_LINKS, _PRIVATE), "ab")


def open_existing(path: Path) -> IO[bytes]:
    """Open a file for reading, but not through a symbolic link."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file")
    try:
        return os.fdopen(os.open(path, os.O_RDONLY | _NO_LINKS), "rb")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"{path} is a symbolic link, which is not followed: give the file itself") from None
        raise


@contextmanager
def replacing(path: Path, mode: int = _PRIVATE) -> Iterator[IO[bytes]]:
    """Write a file that gets its name, in place of what has it, when it is whole and on the disk."""
    part = _part_of(path)
    try:
        with create(part, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _flush_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def remove_parts(path: Path) -> None:
    """Delete what killed processes have left of writing a file; only for who has its lock."""
    pattern = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}\.tailproof-part")
    for part in path.parent.iterdir():
        if pattern.fullmatch(part.name):
            part.unlink(missing_ok=True)


def check_writable(path: Path, purpose: str) -> None:
    """Raise at the start, not at the first write an hour later, where a file cannot be written."""
    probe = _part_of(path)
    try:
        with create(probe) as file:
            file.write(bytes(_PROBE))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"cannot write {purpose} in {path.parent} ({reason}): give another folder") from None
    finally:
        with suppress(OSError):
            probe.unlink()


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tailproof-part")


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock file of that name; raise :class:`BusyError` in the given words if another has it."""
    if fcntl is None:
        yield
        return
    handle = _take(path, busy)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # still locked, so that nobody else has it
        os.close(handle)


def _take(path: Path, busy: str) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS, _PRIVATE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                # The one before may have deleted the file between the two calls.
                if os.fstat(handle).st_ino == path.lstat().st_ino:
                    return handle
        except BlockingIOError:
            os.close(handle)
            raise BusyError(busy) from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return handle
            raise
        os.close(handle)


def new_folder(folder: Path, about: str = "") -> None:
    """Make a private folder with a record that says it is ours."""
    folder.mkdir(mode=0o700)
    _mark(folder, about)


def _mark(folder: Path, about: str) -> None:
    try:
        with create(folder / _RECORD) as file:
            file.write(json.dumps({"made by": "tailproof", "folder": folder.name, "about": about}).encode())
    except BaseException:
        remove_unfinished(folder)
        raise


def remove_unfinished(folder: Path) -> None:
    """Delete a folder whose maker did not come to write its record: it is empty, or the record is."""
    with suppress(OSError):
        if all(path.name == _RECORD and path.lstat().st_size == 0 for path in folder.iterdir()):
            (folder / _RECORD).unlink(missing_ok=True)
            folder.rmdir()


def is_own(folder: Path) -> bool:
    """Whether a folder was made by this user through :func:`new_folder`, under the name it has."""
    try:
        if not _is_mine(folder):
            return False
        with open_existing(folder / _RECORD) as file:
            record = json.loads(file.read(4_096))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and (record.get("made by"), record.get("folder")) == (
        "tailproof",
        folder.name,
    )


def _is_mine(folder: Path) -> bool:
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == getattr(os, "getuid", lambda: 0)()


def remove_own(folder: Path) -> bool:
    """Delete a folder of ours; files in it that are not stay, and so does the folder then."""
    if not is_own(folder):
        return False
    # The index first: without it a folder that is half deleted is not taken for whole.
    for path in sorted(folder.iterdir(), key=lambda path: path.name != _INDEX):
        if _DATA_FILE.fullmatch(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)
    if [path.name for path in folder.iterdir()] != [_RECORD]:
        return False
    (folder / _RECORD).unlink()
    folder.rmdir()
    return True


def fresh_folder(folder: Path, about: str) -> None:
    """Make a folder in place of an older one of ours; anything else of that name raises."""
    remove_unfinished(folder)  # its maker was killed before the record
    if os.path.lexists(folder) and not remove_own(folder):
        raise FileExistsError(f"{folder} holds files that tailproof has not written: move it away")
    new_folder(folder, about)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give a folder for the time being, after those that killed processes have left are gone."""
    place = Path(tempfile.gettempdir())
    try:
        remove_abandoned(place)
        with _held_folder(place) as folder:
            yield folder
    except OSError as error:
        if error.errno in FULL:
            raise FullDiskError(place) from None
        raise


@contextmanager
def _held_folder(place: Path) -> Iterator[Path]:
    """Make a folder and lock it; one that another process took for abandoned meanwhile is left to it."""
    while True:
        folder = place / f"tailproof-{secrets.token_hex(16)}"
        folder.mkdir(mode=0o700)
        with _lock_of(folder, without_locks=True) as ours:
            if ours:
                _mark(folder, "rows of a fit")
                try:
                    yield folder
                finally:
                    remove_own(folder)  # still locked, so that nobody else takes it for abandoned
                return


@contextmanager
def _lock_of(folder: Path, without_locks: bool) -> Iterator[bool]:
    """Lock a folder; give whether it is there and nobody else has the lock.

    The system releases the lock when the process ends. ``without_locks`` is the answer where there are none.
    """
    handle = None
    try:
        ours = without_locks
        if fcntl is not None:
            with suppress(BlockingIOError, FileNotFoundError):
                ours = False
                handle = os.open(folder, os.O_RDONLY | _NO_LINKS)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = os.path.lexists(folder)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        ours = without_locks
    try:
        yield ours
    finally:
        if handle is not None:
            os.close(handle)


def remove_abandoned(place: Path) -> None:
    """Delete temporary folders of ours whose process has ended."""
    for folder in place.glob("tailproof-*"):
        with suppress(OSError):  # another user's, or gone meanwhile
            if _TEMPORARY.fullmatch(folder.name) and _is_mine(folder):
                with _lock_of(folder, without_locks=False) as abandoned:
                    if abandoned and not remove_own(folder):
                        remove_unfinished(folder)


def write_index(folder: Path, content: dict[str, Any], checksums: dict[str, int]) -> None:
    """Declare a folder whole: what is in it, with size and checksum of every file."""
    for name in checksums:
        with open_existing(folder / name) as file:
            os.fsync(file.fileno())
    files = {name: [(folder / name).stat().st_size, checksum] for name, checksum in checksums.items()}
    text = json.dumps({"content": content, "files": files}, sort_keys=True)
    with replacing(folder / _INDEX) as file:
        file.write(f"{zlib.crc32(text.encode()):08x}\n{text}".encode())


def read_index(folder: Path) -> dict[str, Any] | None:
    """Content of a folder of ours that is whole; None where anything in it is absent, shorter or changed."""
    if not is_own(folder):
        return None
    try:
        with open_existing(folder / _INDEX) as file:
            checksum, _, text = file.read().decode().partition("\n")
        if checksum != f"{zlib.crc32(text.encode()):08x}":
            return None
        index = json.loads(text)
        whole = all(_is_whole(folder / name, *wanted) for name, wanted in index["files"].items())
    except (OSError, ValueError):
        return None
    return index["content"] if whole else None


def _is_whole(path: Path, size: int, checksum: int) -> bool:
    running = 0
    with open_existing(path) as file:
        if os.fstat(file.fileno()).st_size != size:
            return False
        while part := file.read(1 << 22):
            running = zlib.crc32(part, running)
    return running == checksum


def room_for(size: float, place: Path) -> str:
    """Say in words that so many bytes do not fit; empty where they do."""
    free = shutil.disk_usage(place).free
    if free > size:
        return ""
    return f"{size / 1e9:.1g} GB are needed and {place} has {free / 1e9:.1g} GB free"


def _flush_folder(folder: Path) -> None:
    """Make a new name last through a loss of power, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
