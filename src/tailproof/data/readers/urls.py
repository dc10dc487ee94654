"""Files behind URLs, on any file system that fsspec knows."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from typing import Any

from tailproof.core.lookup import optional
from tailproof.data.readers.folders import fixed_parts, values_in


def behind_url(url: str, endings: Iterable[str]) -> list[tuple[str, str, dict[str, str | None], Any]]:
    """Of every file with one of the endings its name, path, values in names of folders, and file system.

    The file system is None where the file is on this machine.
    """
    fsspec, fs = optional("fsspec", extra="dask"), optional("pyarrow.fs", extra="cli")
    try:
        system, path = fsspec.core.url_to_fs(url)
        files = system.glob(path) if glob.has_magic(path) else system.find(path)
    except Exception as error:  # each file system has errors of its own: credentials, names, networks
        raise _no_such_place(url, error) from None
    files = sorted(file for file in files if file.lower().endswith(tuple(endings)))
    if not files:
        raise FileNotFoundError(f"there is no file at {url} that ends in {', '.join(endings)}")
    fixed = fixed_parts(path.strip("/").split("/"))
    scheme = url.partition("://")[0]
    reader = fs.PyFileSystem(fs.FSSpecHandler(system))
    local = scheme == "file"
    return [
        (
            file if local else f"{scheme}://{file.lstrip('/')}",
            file,
            values_in(file.strip("/").split("/")[fixed:-1]),
            None if local else reader,
        )
        for file in files
    ]


def _no_such_place(url: str, error: Exception) -> FileNotFoundError:
    """One sentence on why nothing can be read there."""
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    remedy = (
        ""
        if isinstance(error, ImportError)
        else "; see that the address, the network and credentials are right"
    )
    return FileNotFoundError(f"cannot open {url}: {reason}{remedy}")
