"""Load the build of the C library that suits this processor.

On x86-64 the same sources are compiled three times: for every processor, for those with AVX2 (``v3``) and for
those with AVX-512 (``v4``). Elsewhere there is one build. Results differ between builds by rounding only.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
LEVELS = {"baseline": 1, "v3": 3, "v4": 4}  # what the processor must have, as ``cpu_level`` says
VARIABLE = "TAILPROOF_CPU"
VERSION = 28  # of the functions that C exports, as ``kernels_version`` says: a change of one is a new version
_FOLDER = Path(__file__).parent
_REMEDY = "install tailproof again (pip install tailproof), or run 'make native' in a checkout"


def path_of(build: str) -> Path:
    """Where the build of that name is."""
    return _FOLDER / f"kernels_{build}{SUFFIX}"


def open_build(build: str) -> ctypes.CDLL:
    """Load one build, whatever the processor.

    Examples
    --------
    >>> open_build("baseline").cpu_level() in (1, 3, 4)
    True
    """
    try:
        library = ctypes.CDLL(str(path_of(build)))
    except OSError as error:
        raise ImportError(
            f"tailproof's compiled library {path_of(build).name} cannot be loaded from {_FOLDER} ({error}): "
            f"{_REMEDY}"
        ) from error
    check_version(build, library)
    return library


def check_version(build: str, library: Any) -> None:
    """Raise if the library was compiled for other Python files than these: its functions would crash.

    Examples
    --------
    >>> check_version("baseline", open_build("baseline"))
    """
    # The first libraries did not say.
    found = library.kernels_version() if hasattr(library, "kernels_version") else 1
    if found != VERSION:
        raise ImportError(
            f"tailproof's compiled library {path_of(build).name} has version {found}, and the Python files "
            f"beside it in {_FOLDER} need version {VERSION}: {_REMEDY}"
        )


def choose_build(asked: str | None, level: int) -> str:
    """Name of the build for a processor of that level, or of the one asked for.

    Examples
    --------
    >>> choose_build("baseline", 4)
    'baseline'
    """
    if asked:
        if asked not in LEVELS:
            raise ImportError(f"{VARIABLE} must be one of {', '.join(LEVELS)}; got {asked!r}")
        if LEVELS[asked] > level:
            raise ImportError(f"this processor cannot run {VARIABLE}={asked}: unset it, or take 'baseline'")
        return asked
    known = [name for name, needed in LEVELS.items() if needed <= level and path_of(name).exists()]
    return known[-1] if known else "baseline"


_baseline = open_build("baseline")
BUILD = choose_build(os.environ.get(VARIABLE), _baseline.cpu_level())
LIBRARY = _baseline if BUILD == "baseline" else open_build(BUILD)
