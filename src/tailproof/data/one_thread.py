"""Linear algebra in one thread while rows are read in pieces.

Products of a few columns are short. Threads of their own for them wait for the next one at work, not at rest,
and so take the processors from those that read.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_users = 0
_limits: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold it to one thread; where several fits do, until the last of them is done."""
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _users, _limits
    with _lock:
        _limits = _libraries().limit(limits=1, user_api="blas") if _users == 0 else _limits
        _users += 1


def _end() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _limits.restore_original_limits()


@functools.cache
def _libraries() -> ThreadpoolController:
    """Those for linear algebra, looked for once: that takes a while."""
    return ThreadpoolController()
