"""Commands for data in files: diagnose, fit, predict, compare, info."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sklearn.model_selection import KFold, StratifiedKFold

from tailproof import __version__
from tailproof.cli import options as opt
from tailproof.cli import pages
from tailproof.cli.models import ENGINES, MODELS
from tailproof.cli.output import (
    check_output,
    print_comparison,
    print_json,
    print_tails,
    say,
    say_gaps,
    say_task,
    stages,
    visible,
)
from tailproof.core.losses import LOSSES, check_target
from tailproof.data.readers.files import ENDINGS, FORMATS, expand
from tailproof.diagnose import TailReport
from tailproof.diagnose import diagnose as diagnose_rows
from tailproof.estimators.linear.fit import LinearSGD
from tailproof.estimators.row_losses import ROW_LOSSES, auto_loss
from tailproof.model_files.classes import NAMES
from tailproof.model_files.files import describe, load, save, write_whole
from tailproof.model_selection.compare import compare as compare_models
from tailproof.reports.pages import render
from tailproof.tables import TableModel, prepare, read_table
from tailproof.tables.model import CLASSIFICATION, REGRESSION, OptionError, PreparedTable, make_estimator
from tailproof.tables.reading import WRITERS

commands = typer.Typer()


@commands.command()
def diagnose(
    data: opt.Data,
    target: opt.Target,
    task: opt.Kind = "auto",
    drop: opt.Drop = None,
    delimiter: opt.Delimiter = None,
    delta: opt.Delta = None,
    json: opt.Json = False,
) -> None:
    """Report how heavy the tails of the data are, and what to do about it."""
    with stages(3) as stage:
        rows = _prepared(data, target, task, drop, delimiter, stage)
        stage("estimating tails")
        tails = _tails(rows, 0.05 if delta is None else delta)
    if json:
        print_json(_as_record(tails) | {"task": rows.task, "rows": len(rows.y)})
        return
    say_task(rows)
    typer.echo()
    print_tails(tails)
    say(tails.recommendation)
    same_data = shlex.join([*data, "--target", target])
    typer.echo(f"\nNext: tailproof compare {same_data} --report report.html")


@commands.command()
def fit(
    data: opt.Data,
    target: opt.Target,
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the model to this file.")],
    method: opt.Method = "auto",
    loss: opt.Loss = None,
    delta: opt.Delta = None,
    k: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of blocks, for dc and rv; by default it follows from delta and the rows."
        ),
    ] = None,
    engine: opt.Engine = "local",
    task: opt.Kind = "auto",
    drop: opt.Drop = None,
    delimiter: opt.Delimiter = None,
    seed: opt.Seed = 0,
    report: opt.Report = None,
    json: opt.Json = False,
) -> None:
    """Learn a model of one column from the others, and write it to a file."""
    check_output(out, report, inputs=_files(data))
    settings = {"loss": loss, "delta": delta, "k": k, "random_state": seed}
    given = {"delimiter": delimiter, "task": task, "drop": drop or [], "engine": engine}
    with stages(5 if report else 4) as stage:
        rows = _prepared(data, target, task, drop, delimiter, stage)
        stage("fitting")
        estimator = make_estimator(rows.task, method, settings)
        if engine != "local" and not isinstance(estimator, LinearSGD):
            raise OptionError(f"--engine {engine} needs --method dc or rv")
        estimator = ENGINES[engine](estimator, rows, seed)
        made = {"method": method, "rows": len(rows.y), "seed": seed, "command": _command()}
        model = TableModel(rows.encoding, estimator, target, rows.task, made)
        page = None
        if report:
            stage("writing the report")
            tails = _tails(rows, 0.05 if delta is None else delta)
            page = pages.fit_page(
                rows, estimator, tails, _code(data, rows, estimator, out, given), _source(data)
            )
        stage("writing")
        save(model, out)
        if page:
            write_whole(report or out, render(page))
    if json:
        print_json(_about(model) | {"why": rows.why, "model": str(out), "report": report and str(report)})
        return
    say_task(rows)
    for sentence in estimator.report_.verdict():
        say(sentence)
    typer.echo(f"model: {out}")
    if report:
        typer.echo(f"report: {report}")
    typer.echo(f"\nNext: tailproof predict {shlex.quote(str(out))} NEW.csv --out predictions.csv")


@commands.command()
def predict(
    model: opt.Model,
    data: opt.Data,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help=f"File for the predictions; its ending ({ENDINGS}) says what it is."
        ),
    ],
    delimiter: opt.Delimiter = None,
    json: opt.Json = False,
) -> None:
    """Predict for new rows; the columns may come in any order."""
    check_output(out, inputs=[model, *_files(data)])
    kind = FORMATS.get(out.suffix.lower())
    if kind is None:
        raise OptionError(f"--out must end in {ENDINGS}; got {out.name!r}")
    with stages(3) as stage:
        stage("reading")
        learned = _table_model(model)
        table = read_table(data, delimiter)
        stage("predicting")
        predictions, gaps = learned.predict(table), learned.encoding.gaps(table)
        stage("writing")
        write_whole(out, WRITERS[kind](predictions))
    if json:
        summary = {"rows": table.num_rows, "columns": list(predictions), "out": str(out)}
        print_json(summary | {"gaps": [asdict(gap) for gap in gaps]})
        return
    say_gaps(gaps)
    typer.echo(f"{table.num_rows:,} predictions of {learned.target!r}: {out}")


@commands.command()
def compare(
    data: opt.Data,
    target: opt.Target,
    models: opt.Models = None,
    loss: opt.RowLoss = "auto",
    delta: opt.Delta = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    most_rows: Annotated[
        int, typer.Option(min=50, help="Compare on a random sample of at most so many rows.")
    ] = 100_000,
    task: opt.Kind = "auto",
    drop: opt.Drop = None,
    delimiter: opt.Delimiter = None,
    seed: opt.Seed = 0,
    report: opt.Report = None,
    json: opt.Json = False,
) -> None:
    """Compare models by robust cross-validation, and say which differences are beyond chance."""
    check_output(report, inputs=_files(data))
    level = 0.05 if delta is None else delta
    with stages(4) as stage:
        rows = _sample(_prepared(data, target, task, drop, delimiter, stage), most_rows, seed)
        chosen = _chosen_models(rows.task, models, seed)
        stage(f"comparing {len(chosen)} models")
        measured = _measure(rows, chosen, loss)
        cut = StratifiedKFold if rows.task == CLASSIFICATION else KFold
        comparison = compare_models(
            chosen, rows.X, rows.y, loss=loss, delta=level, cv=cut(folds, shuffle=True, random_state=seed)
        )
        if report:
            stage("writing the report")
            code = [("Shell", _command_in_lines())]
            page = pages.compare_page(rows, comparison, measured, _tails(rows, level), code, _source(data))
            write_whole(report, render(page))
    if json:
        best = comparison.names[comparison.best]
        print_json({"task": rows.task, "loss": measured, "best": best, "models": comparison.rows()})
        return
    say_task(rows)
    print_comparison(comparison, len(rows.y))
    for sentence in pages.comparison_verdict(comparison, measured):
        say(sentence)
    if report:
        typer.echo(f"report: {report}")


@commands.command()
def info(
    model: opt.Model,
    json: opt.Json = False,
) -> None:
    """Show what a model file holds."""
    head, learned = describe(model), _table_model(model)
    about = {"version": head["version"], "format": head["format"]} | _about(learned)
    if json:
        print_json(about)
        return
    table = Table(show_header=False, box=None)
    for name, value in about.items():
        table.add_row(Text(visible(str(name))), Text(visible(_words(value))))
    Console().print(table)
    typer.echo(f"\n{visible(str(learned.estimator.report_))}")


def _prepared(
    data: list[str], target: str, task: str, drop: list[str] | None, delimiter: str | None, stage: Any
) -> PreparedTable:
    if delimiter is not None and len(delimiter) != 1:
        raise OptionError(f"--delimiter must be one character; got {delimiter!r}")
    stage("reading")
    table = read_table(data, delimiter)
    stage("turning columns into numbers")
    return prepare(table, target, task, drop or ())


def _tails(rows: PreparedTable, delta: float) -> TailReport:
    y = rows.y.astype(str) if rows.task == CLASSIFICATION else rows.y
    report = diagnose_rows(rows.X, y, delta=delta)
    named = {rows.encoding.names[int(column)]: tail for column, tail in report.features.items()}
    return replace(report, features=named)


def _sample(rows: PreparedTable, most: int, seed: int) -> PreparedTable:
    if len(rows.y) <= most:
        return rows
    sample = np.sort(np.random.default_rng(seed).permutation(len(rows.y))[:most])
    return replace(rows, X=rows.X[sample], y=rows.y[sample], rows=rows.rows[sample])


def _chosen_models(task: str, names: str | None, seed: int) -> dict[str, Any]:
    options = MODELS[task]
    wanted = list(options) if names is None else [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise OptionError(f"--models names none; there are {', '.join(options)}")
    for name in wanted:
        if name not in options:
            raise OptionError(f"--models: {name!r} is not one of {', '.join(options)} for {task}")
    return {name: options[name](seed) for name in wanted}


def _measure(rows: PreparedTable, models: dict[str, Any], loss: str) -> str:
    """Name of the loss to compare by; refused if the target or a model does not have it."""
    if loss == "auto":
        return auto_loss(next(iter(models.values())))
    suited = [name for name in ROW_LOSSES if _task_of(name) == rows.task]
    if loss not in suited:
        raise OptionError(f"--loss {loss} is none for {rows.task}: there are {', '.join(suited)}")
    if rows.task == REGRESSION:
        check_target(LOSSES[loss], rows.y)
    method = {"log_loss": "predict_proba", "zero_one": "predict"}.get(loss, "decision_function")
    for name, model in models.items():
        if rows.task == CLASSIFICATION and not hasattr(model, method):
            raise OptionError(
                f"--loss {loss} needs scores, which {name!r} has not: choose others by --models"
            )
    return loss


def _task_of(loss: str) -> str:
    return LOSSES[loss].task if loss in LOSSES else CLASSIFICATION


def _files(data: list[str]) -> list[Path]:
    return [path for item in data for path in expand(item)]


def _table_model(path: Path) -> TableModel:
    if not path.exists():
        raise OSError(f"no such file: {path}")
    held = describe(path)["class"]
    if held in NAMES and held != TableModel.__name__:
        raise OptionError(
            f"{path} holds a {held} from Python: the command line needs a model that `tailproof fit` wrote"
        )
    model: TableModel = load(path)
    return model


def _about(model: TableModel) -> dict[str, Any]:
    return {
        "target": model.target,
        "task": model.task,
        "estimator": type(model.estimator).__name__,
        "columns": [column.name for column in model.encoding.columns],
        "left out": list(model.encoding.left_out),
        "features": len(model.encoding.names),
    } | model.made


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _as_record(report: TailReport) -> dict[str, Any]:
    record = {name: getattr(report, name) for name in ("verdict", "k", "recommendation")}
    for name in ("target", "losses", "gradients"):
        tail = getattr(report, name)
        record[name] = tail and asdict(tail)
    return record | {"features": {name: asdict(tail) for name, tail in report.features.items()}}


def _command() -> str:
    return "tailproof " + shlex.join(sys.argv[1:])


def _command_in_lines() -> str:
    """The command with every option in a line of its own."""
    words = (f"\\\n    {word}" if word.startswith("--") else word for word in map(shlex.quote, sys.argv[1:]))
    return " ".join(["tailproof", *words])


def _source(data: list[str]) -> str:
    return f"{', '.join(data[:5])} · tailproof {__version__}"


def _code(
    data: list[str], rows: PreparedTable, estimator: Any, out: Path, given: dict[str, Any]
) -> list[tuple[str, str]]:
    python = (
        "import tailproof as tp\n"
        "from tailproof.tables import prepare, read_table\n\n"
        f"table = read_table({data!r}, {given['delimiter']!r})\n"
        f"rows = prepare(table, {rows.target!r}, {given['task']!r}, {given['drop']!r})\n"
        f"model = tp.{estimator!r}.fit(rows.X, rows.y)\n"
        "print(model.report_)\n"
    )
    return [
        ("Shell", _command_in_lines()),
        *([("Python", python)] if given["engine"] == "local" else []),
        ("Predict", f"tailproof predict {shlex.quote(str(out))} NEW.csv --out PRED.csv"),
    ]
