"""Ctrl-C while the command starts: one line and exit code 130, as later on.

The first module that is loaded: it imports as little as it can, since nothing catches Ctrl-C before it has.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

INTERRUPTED = 130
_LINE = "interrupted\n"


def is_command() -> bool:
    """Whether this process is the command, and not a program that imports the package."""
    script = os.path.basename((sys.argv or [""])[0]).startswith("tailproof")
    return script or sys.orig_argv[1:3] == ["-m", "tailproof"]


@contextmanager
def ending_at_once() -> Iterator[None]:
    """While imports run, Ctrl-C ends the command: there is nothing to clean up yet.

    As an exception it would be lost where compiled modules that are being loaded make an ImportError of it.
    In any other program it is what it was.
    """
    if not is_command():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(_LINE)
        raise SystemExit(INTERRUPTED) from None
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def _end(number: int, frame: Any) -> None:
    os.write(2, _LINE.encode())
    os._exit(INTERRUPTED)
