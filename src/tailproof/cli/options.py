"""Arguments and options that commands share, with their help and their completion."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Annotated, Any

import typer

from tailproof.cli.models import ENGINES, MODELS
from tailproof.core.losses import LOSSES
from tailproof.estimators.row_losses import ROW_LOSSES
from tailproof.tables.dialect import Dialect
from tailproof.tables.formats import READABLE
from tailproof.tables.model import CLI_METHODS, TASKS, OptionError


def _names_of_losses() -> str:
    """Losses by task, for help."""
    tasks = dict.fromkeys(loss.task for loss in LOSSES.values())
    named = {task: [name for name, loss in LOSSES.items() if loss.task == task] for task in tasks}
    return "; ".join(f"for {task} {', '.join(names)}" for task, names in named.items()) + "."


def _one_of(options: Any) -> Any:
    def check(value: str) -> str:
        if value not in options:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(options)}")
        return value

    return check


def _loss(value: str | None) -> str | None:
    if value is not None and value not in LOSSES:
        raise typer.BadParameter(f"there is no loss {value!r}: {_names_of_losses()}")
    return value


def _row_loss(value: str) -> str:
    return value if value in ("auto", *ROW_LOSSES) else str(_loss(value))


def _named(values: list[str]) -> list[str]:
    if not all(values):
        raise typer.BadParameter("an empty name is no file")
    return values


def _confidence(delta: float | None) -> float | None:
    if delta is not None and not 0 < delta < 1:
        raise typer.BadParameter(f"{delta} does not lie strictly between 0 and 1")
    return delta


Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA", help=f"Files ({READABLE}), globs or folders; - is standard input.", callback=_named
    ),
]
Target = Annotated[str, typer.Option("--target", "-y", help="The column to learn.")]
Kind = Annotated[
    str,
    typer.Option(
        help="auto, regression or classification; auto goes by the values of the target.",
        callback=_one_of(TASKS),
        autocompletion=lambda: list(TASKS),
        metavar="TASK",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", help="Columns not to learn from, with commas between; may be repeated."),
]
Delimiter = Annotated[
    str | None, typer.Option(help="Between the values of a CSV; found from the file by default.")
]
Encoding = Annotated[
    str | None, typer.Option(help="Encoding of text, such as latin-1; found from the file by default.")
]
Decimal = Annotated[str | None, typer.Option(help="Decimal mark, a point or a comma; found by default.")]
Thousands = Annotated[str | None, typer.Option(help="What separates thousands; found by default.")]
Missing = Annotated[
    list[str] | None, typer.Option("--na", help="A word for a missing value; may be repeated.")
]
DateFormat = Annotated[str | None, typer.Option(help="Format of dates, such as %d/%m/%Y; found by default.")]
Sheet = Annotated[str | None, typer.Option(help="Sheet of an Excel file; the first by default.")]
Weight = Annotated[str, typer.Option(help="Column with the weight of each row.")]
Exposure = Annotated[
    str, typer.Option(help="Column with the exposure: the target for each unit of it is learned.")
]
Offset = Annotated[str, typer.Option(help="Column with the logarithm of the exposure.")]


def dialect(
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    missing: list[str] | None = None,
    date_format: str | None = None,
    sheet: str | None = None,
) -> Dialect:
    """What the options say about how files are written."""
    for name, mark in {"delimiter": delimiter, "decimal": decimal, "thousands": thousands}.items():
        if mark is not None and len(mark) != 1:
            raise OptionError(f"--{name} must be one character; got {mark!r}")
    if decimal not in (None, ".", ","):
        raise OptionError(f"--decimal must be a point or a comma; got {decimal!r}")
    if decimal is not None and decimal == thousands:
        raise OptionError("--decimal and --thousands must differ")
    try:
        codecs.lookup(encoding or "utf-8")
    except LookupError:
        raise OptionError(f"--encoding {encoding} is none that Python knows") from None
    return Dialect(delimiter, encoding, decimal, thousands, tuple(missing or ()), date_format, sheet=sheet)


def listed(items: list[str] | None, names: list[str]) -> list[str]:
    """Columns that an option names, which may be repeated and have commas between; a column's name is one.

    Examples
    --------
    >>> listed(["a, b", "c, d"], ["a", "b", "c, d"])
    ['a', 'b', 'c, d']
    """
    return [name for item in items or [] for name in _names_in(item, names)]


def _names_in(item: str, names: list[str]) -> list[str]:
    return [item] if item in names else [name.strip() for name in item.split(",") if name.strip()]


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of all that is random.")]
Report = Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")]
Loss = Annotated[
    str | None,
    typer.Option(help=_names_of_losses(), callback=_loss, autocompletion=lambda: list(LOSSES)),
]
Delta = Annotated[
    float | None, typer.Option(help="One minus the confidence, 0.05 by default.", callback=_confidence)
]
Method = Annotated[
    str,
    typer.Option(
        help="auto (RobustRegressor, or DC-SGD for classes), dc (DC-SGD) or rv (RV-SGDAve).",
        callback=_one_of(CLI_METHODS),
        autocompletion=lambda: list(CLI_METHODS),
        metavar="METHOD",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        help="local, dask or spark. A cluster reads Parquet files by itself, by paths that its workers see; "
        "files of other formats are read here, and their rows go to it.",
        callback=_one_of(ENGINES),
        autocompletion=lambda: list(ENGINES),
        metavar="ENGINE",
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        help="Address of a Dask scheduler (tcp://host:8786) or of a Spark master (spark://host:7077); by "
        "default the current one, or this machine.",
        metavar="ADDRESS",
    ),
]
Models = Annotated[
    str | None,
    typer.Option(
        help="Names with commas between; all by default: "
        + "; ".join(f"for {task} {', '.join(names)}" for task, names in MODELS.items())
        + "."
    ),
]
RowLoss = Annotated[
    str,
    typer.Option(
        help=f"auto (squared_error, or log_loss for classes), {', '.join(ROW_LOSSES)}.",
        callback=_row_loss,
        autocompletion=lambda: ["auto", *ROW_LOSSES],
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that fit wrote.")]
