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
    if not verbose:
        yield lambda number: None
        return
    try:
        from rich.progress import Progress
    except ImportError:
        yield lambda number: None
        return
    with Progress() as bar:
        task = bar.add_task(label, total=total)
        yield lambda number: bar.update(task, completed=number)


@contextmanager
def row_progress(verbose: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """Give a callback for rows that are done: a bar with rows a second and the time left.

    Parameters
    ----------
    verbose : int
        0 for none.
    total : int or None
        Rows to come, where it is known.

    Examples
    --------
    >>> with row_progress(0, 10) as on_rows:
    ...     on_rows(10)
    """
    if not verbose:
        yield lambda rows: None
        return
    try:
        from rich.progress import BarColumn, Progress, TimeRemainingColumn
    except ImportError:
        yield lambda rows: None
        return
    # Where the total is known, the middle column shows a percentage, else the speed; we want both.
    columns = (
        "{task.description}",
        BarColumn(),
        "{task.percentage:>3.0f}%",
        "{task.fields[speed]}",
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("rows", total=total, speed="")

        def on_rows(rows: int) -> None:
            bar.update(task, advance=rows)
            state = bar.tasks[0]
            speed = state.completed / state.elapsed if state.elapsed else 0.0
            bar.update(task, speed=f"{speed:,.0f} rows/s")

        yield on_rows
