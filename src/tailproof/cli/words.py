"""What the commands for data print for people to read."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tailproof.cli import pages
from tailproof.cli.base import say
from tailproof.core.tails import LIGHT
from tailproof.diagnose import TailReport
from tailproof.model_selection.compare import Comparison
from tailproof.tables.encoding import Gap
from tailproof.tables.model import PreparedTable

_MOST_NAMES = 10  # features or columns in a list
_MOST_GAPS = 20  # lines about columns that lack something
_SHOWN = ("of", "verdict", "tail index", "90% interval", "zeros")


def say_task(rows: PreparedTable) -> None:
    """What is learned, and which rows and columns are not used."""
    say(f"{rows.task}: {rows.why}")
    if rows.without_target:
        say(f"rows without a value of {rows.target!r}, left out: {rows.without_target:,}")
    left = rows.encoding.left_out
    if left:
        some = ", ".join(left[:_MOST_NAMES]) + (", ..." if len(left) > _MOST_NAMES else "")
        say(
            f"columns of one value only, or of rare texts (dates must look like 2024-12-31), left out: {some}"
        )


def say_gaps(gaps: list[Gap]) -> None:
    """What new rows lacked, a line for each column."""
    for gap in gaps[:_MOST_GAPS]:
        typer.echo(gap)
    if len(gaps) > _MOST_GAPS:
        typer.echo(f"... {len(gaps):,} columns in all: --json has them all")


def print_tails(found: TailReport) -> None:
    """What decides, and the features that are not light."""
    rows = found.rows()
    first = len(rows) - len(found.features)
    heavy = [row for row in rows[first:] if row["verdict"] != LIGHT][:_MOST_NAMES]
    _print_records(rows[:first] + heavy)
    left = len(found.features) - len(heavy)
    if left:
        features = "feature with a lighter tail is" if left == 1 else "features with lighter tails are"
        typer.echo(f"{left:,} {features} not shown: --json has them all")


def _print_records(records: list[dict[str, Any]]) -> None:
    table = Table(box=None)
    for heading in _SHOWN:  # what fits into 80 columns; --json has it all
        table.add_column(heading, justify="left" if heading in ("of", "verdict") else "right")
    for record in records:
        table.add_row(*(Text(pages.tail_cell(record[heading])) for heading in _SHOWN))
    Console().print(table)


def print_comparison(found: Comparison, count: int) -> None:
    """Losses and differences of the models, best first."""
    table = Table(title=f"Expected loss, {count:,} rows, best first", box=None)
    rows = pages.comparison_cells(found)
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for row in rows:
        table.add_row(*row.values())
    Console().print(table)
