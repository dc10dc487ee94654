"""Commands for models in files: predict, info."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tailproof.cli import options as opt
from tailproof.cli.asked import MOST_NOTES, check_sheet, files_of
from tailproof.cli.output import (
    check_output,
    in_commands,
    print_json,
    print_summary,
    say,
    say_gaps,
    stages,
    visible,
)
from tailproof.data.readers.formats import ENDINGS, FORMATS
from tailproof.model_files.classes import NAMES
from tailproof.model_files.files import describe, followed, load, write_whole
from tailproof.reports.text import TextTable
from tailproof.tables import TableModel
from tailproof.tables.columns import check_present
from tailproof.tables.dialect import Dialect
from tailproof.tables.formats import STDIN
from tailproof.tables.model import REGRESSION, OptionError
from tailproof.tables.pieces import (
    Predicted,
    below_zero,
    beside,
    can_go_in_pieces,
    names_in,
    predict_in_pieces,
)
from tailproof.tables.reading import WRITERS, names_of_folders, read_files

commands = typer.Typer()


@commands.command()
def predict(
    model: opt.Model,
    data: opt.Data,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help=f"File for the predictions; its ending ({ENDINGS}) says what it is. - prints CSV.",
        ),
    ],
    interval: Annotated[
        float | None,
        typer.Option(
            help="Also write the ends, low and high, of intervals that hold this share of new targets: 0.9."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Columns to write beside the predictions, with commas between."),
    ] = None,
    delimiter: opt.Delimiter = None,
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    thousands: opt.Thousands = None,
    missing: opt.Missing = None,
    date_format: opt.DateFormat = None,
    sheet: opt.Sheet = None,
    json: opt.Json = False,
) -> None:
    """Predict for new rows; the columns may come in any order."""
    printed = str(out) == STDIN
    check_output(None if printed else out, inputs=[model, *files_of(data)])
    kind = "csv" if printed else FORMATS.get(out.suffix.lower())
    if kind is None:
        raise OptionError(f"--out must end in {ENDINGS}; got {out.name!r}")
    given = opt.dialect(delimiter, encoding, decimal, thousands, missing, date_format, sheet)
    check_sheet(sheet, data)
    with stages(3) as stage:
        stage("reading")
        learned = table_model(model)
        _check_interval(learned, interval)
        files = files_of(data)
        plain = STDIN not in data and (out.is_file() or not out.exists())
        # Pieces hold what is in the files, and not what the names of folders say.
        plain = plain and not names_of_folders(data)
        if kind == "parquet" and plain and can_go_in_pieces(learned, files):
            stage("predicting")
            summary = predict_in_pieces(
                learned, files, followed(out), opt.listed(keep, names_in(files[0])), interval
            )
        else:
            read = read_files(data, _like(learned, given), as_text=learned.texts, used=learned.numbers)
            kept = opt.listed(keep, read.table.column_names)
            check_present(read.table.column_names, kept)
            for note in [] if json else read.notes[:MOST_NOTES]:
                typer.echo(note, err=True)  # what is printed may be the predictions
            stage("predicting")
            summary, content = _predicted(learned, read.table, kept, interval, kind)
            stage("writing")
            if not printed:
                write_whole(out, content)
    if printed:
        sys.stdout.buffer.write(content) if hasattr(sys.stdout, "buffer") else typer.echo(content.decode())
        return
    if json:
        print_json(
            {"rows": summary.rows, "columns": summary.columns, "out": str(out)}
            | {"gaps": [asdict(gap) for gap in summary.gaps]}
        )
        return
    say_gaps(summary.gaps)
    _say_odd(learned, summary)
    predictions = "1 prediction" if summary.rows == 1 else f"{summary.rows:,} predictions"
    typer.echo(f"{predictions} of {learned.target!r}: {out}")
    if interval is not None:
        say(
            f"low and high: {100 * interval:.3g}% of new values of {learned.target!r} lie between them, if "
            "the rows are like those that the model learned from"
        )


def _predicted(
    learned: TableModel, table: Any, kept: list[str], interval: float | None, kind: str
) -> tuple[Predicted, bytes]:
    """Predictions for a whole table, and the file that they make."""
    predictions, gaps = learned.predict(table, interval), learned.encoding.gaps(table)
    columns = beside(table, kept, predictions)
    below = below_zero(learned, predictions["prediction"])
    return Predicted(table.num_rows, list(columns), gaps, below, table.column_names), WRITERS[kind](columns)


def _check_interval(learned: TableModel, interval: float | None) -> None:
    if interval is None:
        return
    if not 0 < interval < 1:
        raise OptionError(f"--interval is a share between 0 and 1, such as 0.9; got {interval:g}")
    if learned.task != REGRESSION:
        raise OptionError("--interval is for regressions: for classes, predictions come with their shares")


def _like(learned: TableModel, given: Dialect) -> Dialect:
    """Read as the model's files were read, but for what the options say."""
    asked = {name: value for name, value in vars(given.with_implied_mark).items() if value}
    return replace(learned.dialect.as_learned, **asked)


def _say_odd(learned: TableModel, summary: Predicted) -> None:
    """Remark on predictions that the target never had, and on what they are for."""
    if summary.below:
        are = "prediction is" if summary.below == 1 else "predictions are"
        say(
            f"{summary.below:,} {are} below zero, where {learned.target!r} never was: a loss such as "
            "poisson, gamma or tweedie keeps them above"
        )
    role = learned.roles.exposure or learned.roles.offset
    if role and role not in summary.names:
        say(f"there is no column {role!r}: predictions are for one unit of exposure")


@commands.command()
def info(
    model: opt.Model,
    json: opt.Json = False,
) -> None:
    """Show what a model file holds."""
    head, learned = describe(model), table_model(model)
    facts = {"version": head["version"], "format": head["format"]} | about(learned)
    summary = _summary(learned)
    if json:
        more = {"coefficients": summary.records(), "notes": summary.notes} if summary else {}
        print_json(facts | more)
        return
    table = Table(show_header=False, box=None)
    for name, value in _flat(facts).items():
        table.add_row(Text(visible(str(name))), Text(visible(_words(value))))
    Console().print(table)
    typer.echo(f"\n{visible(str(_told(learned)))}")
    if summary:
        typer.echo()
        print_summary(summary)


def _told(learned: TableModel) -> TextTable:
    """The report in the words of the command line; what the fit said names rows as the data number them."""
    report, said = learned.estimator.report_.as_text(), learned.made.get("details", [])
    cells = [[in_commands(cell) for cell in row] for row in report.rows if not said or row[0] != "outlying"]
    later = [in_commands(note) for note in report.notes[len(said) :]]
    return TextTable(cells, report.headings, [*said, *later])


def _summary(learned: TableModel) -> Any:
    """Coefficients with intervals, of a model that has coefficients."""
    if not hasattr(learned.estimator, "coef_"):
        return None
    return learned.estimator.summary(names=learned.encoding.names)


def table_model(path: Path) -> TableModel:
    """The model in a file, if ``tailproof fit`` wrote it."""
    if not path.exists():
        raise OSError(f"no such file: {path}")
    held = describe(path)["class"]
    if held in NAMES and held != TableModel.__name__:
        raise OptionError(
            f"{path} holds a {held} from Python: the command line needs a model that `tailproof fit` wrote"
        )
    model: TableModel = load(path)
    return model


def about(model: TableModel) -> dict[str, Any]:
    """What there is to know about a model, but for its report."""
    roles = {name: value for name, value in vars(model.roles).items() if value}
    return {
        "target": model.target,
        "task": model.task,
        "estimator": type(model.estimator).__name__,
        "columns": [column.name for column in model.encoding.columns],
        "left out": list(model.encoding.left_out),
        "features": len(model.encoding.names),
        **roles,
    } | model.made


def _flat(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts with the measures one by one; the report and --json have the tables of the calibration."""
    measures = {name: v for name, v in facts.get("quality", {}).items() if isinstance(v, (int, float))}
    rest = {name: value for name, value in facts.items() if name not in ("quality", "details")}
    return rest | {f"held out: {name.replace('_', ' ')}": value for name, value in measures.items()}


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
