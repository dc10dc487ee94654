"""What commands print: errors in one line, progress, JSON, tables and sentences for people."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from tailproof.cli import pages
from tailproof.core.tails import LIGHT
from tailproof.diagnose import TailReport
from tailproof.model_selection.compare import Comparison
from tailproof.reports.coefficients import Summary
from tailproof.tables.encoding import Gap
from tailproof.tables.model import OptionError, PreparedTable
from tailproof.tables.values import ReadAs

DATA, USAGE, INTERRUPTED = 1, 2, 130  # exit codes: bad data or files, a bad command, Ctrl-C
_MOST_NAMES = 10  # features or columns in a list
_MOST_COLUMNS = 30  # lines about how columns were read
_NAMES = ("of", "verdict", "model", "group", "coefficient")  # headings of columns of words
_MOST_COEFFICIENTS = 40
_MOST_GAPS = 20  # lines about missing and unknown values
_UNSETTLED = "more rows would help, or to --drop columns that repeat others or give the target away"
# What reports say in Python, and what it is called here.
_OPTIONS = {
    "decimal='.'": "--decimal .",
    "decimal=','": "--decimal ,",
    "the unit and the decimal mark": "the unit and the decimal mark (--decimal)",
    "RobustRegressor(contamination=...)": "--contamination 0.25",
    "RobustRegressor(loss='tweedie')": "--loss tweedie",
    "drop_glitches=False": "--keep-all",
    "more rows or max_iter would help": _UNSETTLED,
    "set max_iter, or look at the scale of the data": _UNSETTLED,
}
_ROW_NUMBERS = re.compile(r"(counted from 0: |\brows? )(\d+(?:,\d{3})*(?:, \d+(?:,\d{3})*)*)\b")
_SHOWN = ("of", "verdict", "tail index", "90% interval", "zeros")  # fits into 80 columns; --json has all


class Guarded(TyperGroup):
    """Commands in which a user's mistake is one line on stderr, never a traceback."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command; an error becomes a line and an exit code."""
        if not extra.pop("standalone_mode", True):
            return super().main(*args, **extra | {"standalone_mode": False})
        try:
            with _warnings_as_notes():
                code = super().main(*args, **extra | {"standalone_mode": False})
        except OptionError as error:
            _fail(error, USAGE)
        except (ValueError, OSError, ImportError, MemoryError) as error:
            _fail(error, DATA)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except Exception as error:
            # Some versions of typer have their own copy of click: recognise its errors by their method.
            if not hasattr(error, "format_message"):
                raise
            _show_usage(error)
        if code == INTERRUPTED:  # some versions of typer turn Ctrl-C into this code
            typer.echo("interrupted", err=True)
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
    typer.echo(f"error: {visible(' '.join(text.split())[:600])}", err=True)
    sys.exit(code)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print every different warning as one line at the end."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        yield
    for text in dict.fromkeys(
        str(item.message) for item in seen if not issubclass(item.category, DeprecationWarning)
    ):
        typer.echo(f"note: {visible(in_commands(' '.join(text.split())[:400]))}", err=True)


@contextmanager
def stages(total: int) -> Iterator[Any]:
    """A progress bar on stderr; yields a function that announces the next stage."""
    console = Console(stderr=True)
    if not console.is_terminal:  # where even a disabled bar of rich 13 leaves an empty line
        yield lambda words: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total)
        seen = iter(range(total + 1))
        yield lambda words: bar.update(task, description=words, completed=next(seen, total))


def say(sentence: str) -> None:
    """Print a sentence, wrapped to the width of a terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    typer.echo(textwrap.fill(visible(sentence), width, break_long_words=False, break_on_hyphens=False))


def visible(text: str) -> str:
    r"""Text from a file without characters that a terminal would obey; line ends stay.

    Examples
    --------
    >>> visible("red \x1b[31m")
    'red \\x1b[31m'
    """
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def in_commands(sentence: str, rows: NDArray[np.intp] | None = None) -> str:
    """A sentence of a report in the words of the command line: options for classes, rows counted from 1.

    Parameters
    ----------
    sentence : str
    rows : array of int, optional
        Places in the table of the rows that were learned from; default all.

    Examples
    --------
    >>> in_commands("Half is of rows 7, 1,304, ...; RobustRegressor(contamination=...) does without.")
    'Half is of rows 8, 1,305, ...; --contamination 0.25 does without.'
    """
    for python, option in _OPTIONS.items():
        sentence = sentence.replace(python, option)

    def counted(match: re.Match[str]) -> str:
        places = [int(number.replace(",", "")) for number in match[2].split(", ")]
        named = (place if rows is None else int(rows[place]) for place in places)
        return match[1].replace("0", "1") + ", ".join(f"{place + 1:,}" for place in named)

    return _ROW_NUMBERS.sub(counted, sentence)


def print_json(value: Any) -> None:
    """Print one JSON document; numbers that are not finite become null."""
    typer.echo(json.dumps(plain(value), ensure_ascii=False, indent=1))


def plain(value: Any) -> Any:
    """Arrays, tuples and NumPy numbers as values that JSON has.

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
    """Refuse, before any work, output files that cannot be written or are also read."""
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


def say_columns(columns: list[ReadAs]) -> None:
    """Print how each column was read, and what to check."""
    for column in columns[:_MOST_COLUMNS]:
        remark = f" ({column.remark})" if column.remark else ""
        say(f"{column.name} → {column.words}{remark}")
    if len(columns) > _MOST_COLUMNS:
        rest = Counter(column.words for column in columns[_MOST_COLUMNS:])
        say("... and " + ", ".join(f"{times:,} → {words}" for words, times in rest.items()))
    typer.echo()


def say_task(rows: PreparedTable) -> None:
    """Print what is learned, and which rows and columns are not used."""
    say(f"{rows.task}: {rows.why}")
    if rows.without_target:
        say(f"rows without a value of {rows.target!r}, left out: {rows.without_target:,}")
    left = rows.encoding.left_out
    if left:
        names = ", ".join(left[:_MOST_NAMES]) + (", ..." if len(left) > _MOST_NAMES else "")
        say(f"columns with one value at most, or rare strings, left out: {names}")


def say_gaps(gaps: list[Gap]) -> None:
    """Print missing and unknown values of new rows, a line for each column."""
    for gap in gaps[:_MOST_GAPS]:
        typer.echo(visible(str(gap)))
    if len(gaps) > _MOST_GAPS:
        typer.echo(f"... {len(gaps):,} columns in all: --json has them all")


def print_tails(report: TailReport) -> None:
    """Print the tails of target, losses and gradients, and of the features that are not light."""
    rows = report.rows()
    first = len(rows) - len(report.features)
    heavy = [row for row in rows[first:] if row["verdict"] != LIGHT][:_MOST_NAMES]
    print_table([{name: pages.tail_cell(row[name]) for name in _SHOWN} for row in rows[:first] + heavy])
    left = len(report.features) - len(heavy)
    if left:
        features = "feature with a lighter tail is" if left == 1 else "features with lighter tails are"
        typer.echo(f"{left:,} {features} not shown: --json has them all")


def print_comparison(comparison: Comparison, count: int) -> None:
    """Print losses and differences of the models, best first."""
    print_table(pages.comparison_cells(comparison), f"Expected loss, {count:,} rows, best first")


def print_summary(summary: Summary) -> None:
    """Print coefficients with their intervals, the most certain to differ from zero first."""
    records = summary.records()
    with np.errstate(divide="ignore", invalid="ignore"):
        certain = np.nan_to_num(np.abs(summary.estimate) / summary.se)
    order = [
        *np.argsort(-certain, kind="stable")[:_MOST_COEFFICIENTS].tolist(),
        *range(certain.size, len(records)),
    ]
    print_table([{name: pages.tail_cell(value) for name, value in records[j].items()} for j in order])
    left = certain.size - _MOST_COEFFICIENTS
    if left > 0:
        typer.echo(f"{left:,} less certain ones are not shown: --json has them all")
    for note in summary.notes:
        say(note)


def print_table(records: list[dict[str, str]], title: str | None = None) -> None:
    """Rows with the same keys; names to the left, numbers to the right."""
    table = Table(title=title, box=None)
    for heading in records[0]:
        table.add_column(heading, justify="left" if heading in _NAMES else "right")
    for record in records:
        table.add_row(*(Text(visible(value)) for value in record.values()))
    Console().print(table)
