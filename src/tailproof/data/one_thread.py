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


class _Limit:
    """One thread from the first who asks for it until the last who does is done."""

    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0
        self.held: Any = None

    def begin(self) -> None:
        with self.lock:
            if self.users == 0:
                self.held = _libraries().limit(limits=1, user_api="blas")
            self.users += 1

    def end(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.held.restore_original_limits()


_LIMIT = _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold it to one thread; where several fits do, until the last of them is done."""
    _LIMIT.begin()
    try:
        yield
    finally:
        _LIMIT.end()


@functools.cache
def _libraries() -> ThreadpoolController:
    """Those for linear algebra, looked for once: that takes a while."""
    return ThreadpoolController()
