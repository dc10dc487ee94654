"""What all commands share: errors in one line, a bar for what takes long, JSON for machines."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from tailproof.tables.model import OptionError

DATA, USAGE = 1, 2  # exit codes: something is wrong with the data or a file, or with the command


class Guarded(TyperGroup):
    """A group of commands in which a user's mistake is one line on stderr, and never a traceback."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, and turn what went wrong into a line and an exit code."""
        if not extra.pop("standalone_mode", True):
            return super().main(*args, **extra | {"standalone_mode": False})
        try:
            with _warnings_as_notes():
                code = super().main(*args, **extra | {"standalone_mode": False})
        except OptionError as error:
            _fail(error, USAGE)
        except (ValueError, OSError, ImportError, MemoryError) as error:
            _fail(error, DATA)
        except Exception as error:
            # typer has its own copy of click in some versions: its errors are known by what they can do.
            if not hasattr(error, "format_message"):
                raise
            _show_usage(error)
        sys.exit(code if isinstance(code, int) else 0)


def _show_usage(error: Any) -> NoReturn:
    if "NoArgs" in type(error).__name__:
        error.show()
        sys.exit(USAGE)
    _fail(error.format_message(), int(error.exit_code))


def _fail(problem: object, code: int) -> NoReturn:
    text = str(problem) if str(problem) else type(problem).__name__
    if isinstance(problem, OSError) and problem.strerror:
        text = f"{problem.strerror}: {problem.filename or problem.filename2 or ''}"
    typer.echo(f"error: {' '.join(text.split())[:600]}", err=True)
    sys.exit(code)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Each different warning as one line at the end."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        yield
    for text in dict.fromkeys(
        str(item.message) for item in seen if not issubclass(item.category, DeprecationWarning)
    ):
        typer.echo(f"note: {' '.join(text.split())[:400]}", err=True)


@contextmanager
def stages(total: int) -> Iterator[Any]:
    """Give a function that says which stage has begun: a bar on stderr, gone at the end."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=total)
        seen = iter(range(total + 1))
        yield lambda words: bar.update(task, description=words, completed=next(seen, total))


def say(sentence: str) -> None:
    """Print a sentence, broken between words where a person reads it."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    typer.echo(textwrap.fill(sentence, width, break_long_words=False, break_on_hyphens=False))


def print_json(value: Any) -> None:
    """One JSON document on stdout; what is not finite is null."""
    typer.echo(json.dumps(plain(value), ensure_ascii=False, indent=1))


def plain(value: Any) -> Any:
    """Arrays, tuples and numbers of NumPy as JSON knows them.

    Examples
    --------
    >>> plain({"a": np.array([1.0, np.inf]), "b": (np.int64(3), "c")})
    {'a': [1.0, None], 'b': [3, 'c']}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def check_output(*paths: Path | None, inputs: Iterable[Path] = ()) -> None:
    """Refuse a file that could not be written, or is read as well, before an hour of work and not after."""
    wanted = [path for path in paths if path is not None]
    for path in wanted:
        if sum(path.resolve() == other.resolve() for other in [*wanted, *inputs]) > 1:
            raise OptionError(f"{path} is named twice: choose another name for what is to be written")
        folder = path.absolute().parent
        if path.is_dir():
            raise OSError(f"{path} is a folder: give the name of a file")
        if not folder.is_dir():
            raise OSError(f"there is no folder {folder} to write {path.name} in: make it first")
        if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
            raise OSError(f"{path} may not be written: choose another place")
