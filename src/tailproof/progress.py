"""A progress bar where one is wanted and rich is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(verbose: int, total: int | None, label: str) -> Iterator[Callable[[int], None]]:
    """Give a callback that takes the number of finished parts.

    Examples
    --------
    >>> with progress(0, 3, "passes over the data") as on_pass:
    ...     on_pass(1)
    """
    try:
        from rich.progress import Progress  # noqa: PLC0415
    except ImportError:
        verbose = 0
    if not verbose:
        yield lambda number: None
        return
    with Progress() as bar:
        task = bar.add_task(label, total=total)
        yield lambda number: bar.update(task, completed=number)
