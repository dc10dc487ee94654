"""Commands that learn from data in files: diagnose, fit, compare."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.model_selection import KFold, StratifiedKFold

from tailproof.cli import clusters, large_files, pages
from tailproof.cli import options as opt
from tailproof.cli.asked import Asked, command, command_in_lines, files_of
from tailproof.cli.model_commands import about
from tailproof.cli.models import ENGINES, MODELS, model_for, no_idle_threads
from tailproof.cli.output import (
    check_output,
    in_commands,
    print_comparison,
    print_json,
    print_tails,
    say,
    say_task,
    stages,
)
from tailproof.core.losses import LOSSES, check_target
from tailproof.core.populations import TwoPopulationsWarning
from tailproof.diagnose import TailReport
from tailproof.diagnose import diagnose as diagnose_rows
from tailproof.estimators.row_losses import ROW_LOSSES, auto_loss
from tailproof.model_files.files import save, write_whole
from tailproof.model_selection.compare import compare as compare_models
from tailproof.reports.pages import render
from tailproof.tables import TableModel, prepare
from tailproof.tables.columns import is_counts
from tailproof.tables.formats import STDIN
from tailproof.tables.leading import leading_rows
from tailproof.tables.model import (
    CLASSIFICATION,
    REGRESSION,
    OptionError,
    PreparedTable,
    Roles,
    make_estimator,
)
from tailproof.tables.quality import Quality, drivers_of, left_out_of, measured, on_test_rows
from tailproof.tables.reading import WRITERS, ReadTable, names_of_folders, read_files

_COUNT_LOSSES = ("poisson", "gamma", "tweedie")  # which leave no doubt that the target is a number
commands = typer.Typer()


@commands.command()
def diagnose(
    data: opt.Data,
    target: opt.Target,
    task: opt.Kind = "auto",
    drop: opt.Drop = None,
    delimiter: opt.Delimiter = None,
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    thousands: opt.Thousands = None,
    missing: opt.Missing = None,
    date_format: opt.DateFormat = None,
    sheet: opt.Sheet = None,
    delta: opt.Delta = None,
    report: opt.Report = None,
    json: opt.Json = False,
) -> None:
    """Report how heavy the tails of the data are, and what to do about it."""
    given = opt.dialect(delimiter, encoding, decimal, thousands, missing, date_format, sheet)
    check_output(report, inputs=files_of(data))
    asked = Asked(data, target, task, drop or [], given, quiet=json)
    with stages(3) as stage:
        rows = asked.prepare(asked.read(stage), stage)
        stage("estimating tails")
        tails = _tails(rows, 0.05 if delta is None else delta)
        advice = pages.advice_in_commands(tails, rows.task, asked.in_words())
        if report:
            code = [("Shell", command_in_lines())]
            write_whole(report, render(pages.diagnose_page(rows, tails, advice, code, asked.source)))
    if json:
        print_json(_as_record(tails) | {"task": rows.task, "rows": len(rows.y)})
        return
    say_task(rows)
    typer.echo()
    print_tails(tails)
    for sentence in advice:
        say(sentence)
    if report:
        typer.echo(f"report: {report}")


@commands.command()
def fit(
    data: opt.Data,
    target: opt.Target,
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the model to this file.")],
    method: opt.Method = "auto",
    loss: opt.Loss = None,
    power: Annotated[
        float | None, typer.Option(help="Power of the variance, for the tweedie loss: 1 to 2.")
    ] = None,
    delta: opt.Delta = None,
    k: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of blocks, for dc and rv; by default it follows from delta and the rows."
        ),
    ] = None,
    contamination: Annotated[
        float | None,
        typer.Option(help="Fit the majority: this share of the rows may be wrong, and has no say."),
    ] = None,
    keep_all: Annotated[
        bool,
        typer.Option(
            "--keep-all", help="Learn from rows that look like errors, too, instead of leaving them out."
        ),
    ] = False,
    engine: opt.Engine = "local",
    cluster: opt.Cluster = "",
    task: opt.Kind = "auto",
    drop: opt.Drop = None,
    delimiter: opt.Delimiter = None,
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    thousands: opt.Thousands = None,
    missing: opt.Missing = None,
    date_format: opt.DateFormat = None,
    sheet: opt.Sheet = None,
    weight: opt.Weight = "",
    exposure: opt.Exposure = "",
    offset: opt.Offset = "",
    test: Annotated[
        list[str] | None, typer.Option("--test", help="Files to measure the model on, beside its own rows.")
    ] = None,
    rows_out: Annotated[
        Path | None,
        typer.Option(
            "--rows", help="Write the rows that count less than others, and how much, to this CSV file."
        ),
    ] = None,
    seed: opt.Seed = 0,
    report: opt.Report = None,
    json: opt.Json = False,
) -> None:
    """Learn a model of one column from the others, and write it to a file."""
    check_output(out, report, rows_out, inputs=files_of([*data, *(test or [])]))
    implied = _implied(exposure, offset, power, loss) if task == "auto" else ""
    task = REGRESSION if implied else task
    settings = _settings(loss, power) | {"delta": delta, "k": k, "random_state": seed}
    settings |= {"contamination": contamination, "drop_glitches": False if keep_all else None}
    given = opt.dialect(delimiter, encoding, decimal, thousands, missing, date_format, sheet)
    asked = Asked(data, target, task, drop or [], given, Roles(weight, exposure, offset), quiet=json)
    with stages(6 if report else 5) as stage, _populations_in_details(), ExitStack() as threads:
        linear = method == "auto" and loss in (None, "squared_error") and contamination is None
        any_size = linear and rows_out is None and not asked.roles.names
        read, rows, there = _read_and_prepared(asked, engine, stage, any_size)
        rows = replace(rows, why=f"{implied} is for regressions") if implied else rows
        estimator = _checked(make_estimator(rows.task, method, settings), engine, cluster, rows)
        threads.enter_context(no_idle_threads(rows.X.shape[1]))
        stage("fitting")
        files = files_of(data) if there else []
        if there:
            estimator = _FITS_OF_FILES[engine](estimator, there, files, cluster)
        else:
            estimator = ENGINES[engine](estimator, rows, seed, cluster)
        if rows_out is not None and (rows.sampled or not hasattr(estimator, "row_weights_")):
            raise OptionError(
                "--rows goes with --method auto for a regression whose model is linear, without --engine: "
                "leave it out"
            )
        stage("measuring on rows held out")
        # Clusters count rows in an order of their own, and a sample is counted by itself.
        whole = engine == "local" and not rows.sampled
        left_out = left_out_of(estimator) if whole else np.empty(0, dtype=np.intp)
        quality = measured(rows, estimator, seed, left_out)
        count = clusters.rows_of(files) if there else len(rows.y)
        made = {"method": method, "rows": count, "seed": seed, "command": command()}
        drivers = drivers_of(rows, estimator, left_out)
        driven = {} if drivers is None else {"rows_that_drive": int(drivers.rows.size)}
        made["quality"] = quality.record() | driven
        places = None if rows.sampled else rows.rows
        details = [in_commands(words, places) for words in estimator.report_.verdict()]
        made["details"] = details
        model = TableModel.of(rows, estimator, made, read.dialect)
        page = None
        if report:
            stage("writing the report")
            tails = _tails(rows, 0.05 if delta is None else delta)
            code = _code(asked, read, rows, whole, estimator, out)
            page = pages.fit_page(rows, estimator, tails, code, asked.source, quality, drivers, details)
        stage("writing")
        save(model, out)
        if rows_out is not None:
            write_whole(rows_out, WRITERS["csv"](leading_rows(rows, estimator)))
        if page:
            write_whole(report or out, render(page))
        scores_on_test = None if not test else _tested(model, test, asked)
    if json:
        more = {} if scores_on_test is None else {"test": scores_on_test.values}
        print_json(
            about(model) | more | {"why": rows.why, "model": str(out), "report": report and str(report)}
        )
        return
    say_task(rows)
    if loss is None and task == REGRESSION and is_counts(read.table.column(target)):
        say(f"{target!r} is a count: --loss poisson may suit it")
    if there:
        say(
            f"{count:,} rows were read {_READ_BY[engine]}; columns and measures are by a sample of "
            f"{len(rows.y):,}."
        )
    driven_by = [drivers.sentence()] if drivers and drivers.few else []
    for sentence in [*quality.sentences, *driven_by, *(scores_on_test.sentences if scores_on_test else [])]:
        say(sentence)
    say(" ".join(["Details:", *details]))
    typer.echo(f"model: {out}")
    if rows_out is not None:
        say(
            "rows, counted from 1 below the header, those that count least first (weight 1: as in least "
            f"squares, 0: not at all): {rows_out}"
        )
    if report:
        typer.echo(f"report: {report}")
    typer.echo(f"\nNext: tailproof predict {shlex.quote(str(out))} NEW.csv --out predictions.csv")


@contextmanager
def _populations_in_details() -> Iterator[None]:
    """No warning of what the details say with the numbers that rows have in the data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TwoPopulationsWarning)
        yield


def _implied(exposure: str, offset: str, power: float | None, loss: str | None) -> str:
    """The first option that leaves no doubt that the task is a regression; empty where none does."""
    counts = loss if loss in _COUNT_LOSSES else None
    given = {"--exposure": exposure, "--offset": offset, "--power": power, f"--loss {loss}": counts}
    return next((option for option, value in given.items() if value), "")


def _settings(loss: str | None, power: float | None) -> dict[str, Any]:
    if power is None:
        return {"loss": loss}
    if loss not in (None, "tweedie"):
        raise OptionError(f"--power is for --loss tweedie, and not for {loss}")
    if not 1 < power < 2:
        raise OptionError(f"--power is between 1 and 2, both left out, such as 1.5; got {power:g}")
    return {"loss": "tweedie", "loss_parameter": power}


_FITS_OF_FILES = clusters.FITS | {"local": large_files.fit_in_pieces}
_READ_BY = {name: f"by {name}" for name in clusters.FITS} | {"local": "in pieces"}


def _read_and_prepared(
    asked: Asked, engine: str, stage: Any, any_size: bool
) -> tuple[ReadTable, PreparedTable, Any]:
    """Rows as numbers: all of them, or a sample, and how the others become numbers where they are read.

    They are read by a cluster, or here in pieces, if the model takes ``any_size``.
    """
    if files := _sampled_here(asked, engine, any_size):
        read = replace(asked, quiet=True).read(stage, clusters.SAMPLE)
        rows = asked.prepare(read, stage)
        there = clusters.numbers_of(rows, files[0])
        if there and (engine != "local" or large_files.hold_numbers(there, files)):
            asked.tell(read)
            return read, replace(rows, sampled=True), there
    read = asked.read(stage)
    return read, asked.prepare(read, stage), None


def _sampled_here(asked: Asked, engine: str, any_size: bool) -> list[Path]:
    """Files of which a cluster reads all rows, or of which they are read in pieces; else none."""
    # Both read what is in the files, and not what the names of folders say.
    if STDIN in asked.data or names_of_folders(asked.data) or not (any_size or engine != "local"):
        return []
    files = files_of(asked.data)
    apart = clusters.can_be_read_there(files) and (engine != "local" or large_files.are_large(files))
    return files if apart else []


def _checked(estimator: Any, engine: str, cluster: str, rows: PreparedTable) -> Any:
    if cluster and engine == "local":
        raise OptionError("--cluster goes with --engine dask or spark: give one, or leave it out")
    if engine != "local" and rows.weights is not None:
        raise OptionError(f"--engine {engine} takes no weights or exposures: leave --engine out")
    return estimator


def _tested(model: TableModel, test: list[str], asked: Asked) -> Quality:
    """The model on files of its own, read as those that it learned from."""
    table = read_files(
        test, model.dialect.as_learned, as_text=model.texts, used=model.numbers | {model.target}
    ).table
    rows = prepare(table, asked.target, model.task, **vars(asked.roles))
    return on_test_rows(model, table.take(rows.rows), rows, ", ".join(test[:3]))


def _code(
    asked: Asked, read: ReadTable, rows: PreparedTable, whole: bool, estimator: Any, out: Path
) -> list[tuple[str, str]]:
    """How to repeat it; in Python where all rows were read here, as a whole."""
    python = [("Python", asked.python(read, rows, estimator))] if whole else []
    predict = f"tailproof predict {shlex.quote(str(out))} NEW.csv --out PRED.csv"
    return [("Shell", command_in_lines()), *python, ("Predict", predict)]


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
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    thousands: opt.Thousands = None,
    missing: opt.Missing = None,
    date_format: opt.DateFormat = None,
    sheet: opt.Sheet = None,
    seed: opt.Seed = 0,
    report: opt.Report = None,
    json: opt.Json = False,
) -> None:
    """Compare models by robust cross-validation, and say which differences are beyond chance."""
    check_output(report, inputs=files_of(data))
    level = 0.05 if delta is None else delta
    given = opt.dialect(delimiter, encoding, decimal, thousands, missing, date_format, sheet)
    asked = Asked(data, target, task, drop or [], given, quiet=json)
    with stages(4) as stage:
        rows = _sample(asked.prepare(asked.read(stage), stage), most_rows, seed)
        chosen, others = _chosen_models(rows.task, models, loss, seed)
        stage(f"comparing {len(chosen)} models")
        by = _measure(rows, chosen, loss)
        cut = StratifiedKFold if rows.task == CLASSIFICATION else KFold
        comparison = compare_models(
            chosen, rows.X, rows.y, loss=loss, delta=level, cv=cut(folds, shuffle=True, random_state=seed)
        )
        if report:
            stage("writing the report")
            code = [("Shell", command_in_lines())]
            page = pages.compare_page(rows, comparison, by, _tails(rows, level), code, asked.source)
            write_whole(report, render(page))
    if json:
        best = comparison.names[comparison.best]
        print_json({"task": rows.task, "loss": by, "best": best, "models": comparison.rows()})
        return
    say_task(rows)
    print_comparison(comparison, len(rows.y))
    for sentence in pages.comparison_verdict(comparison, by):
        say(sentence)
    if others:
        say(f"Fitted by losses of their own, and only measured by this one: {', '.join(others)}.")
    if report:
        typer.echo(f"report: {report}")


def _tails(rows: PreparedTable, delta: float) -> TailReport:
    y = rows.y.astype(str) if rows.task == CLASSIFICATION else rows.y
    report = diagnose_rows(rows.X, y, delta=delta)
    named = {rows.encoding.names[int(column)]: tail for column, tail in report.features.items()}
    far = None if report.leverage is None else rows.rows[report.leverage]
    advice = in_commands(report.recommendation, rows.rows)
    return replace(report, features=named, leverage=far, recommendation=advice)


def _sample(rows: PreparedTable, most: int, seed: int) -> PreparedTable:
    if len(rows.y) <= most:
        return rows
    sample = np.sort(np.random.default_rng(seed).permutation(len(rows.y))[:most])
    return replace(rows, X=rows.X[sample], y=rows.y[sample], rows=rows.rows[sample])


def _chosen_models(task: str, names: str | None, loss: str, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Models by name, and names of those that are not fitted by the loss."""
    options = MODELS[task]
    wanted = list(options) if names is None else [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise OptionError(f"--models names none; there are {', '.join(options)}")
    for name in wanted:
        if name not in options:
            raise OptionError(f"--models: {name!r} is not one of {', '.join(options)} for {task}")
    made = {name: model_for(task, name, loss, seed) for name in wanted}
    models = {name: model for name, (model, _) in made.items()}
    return models, [name for name, (_, fits) in made.items() if not fits]


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


def _as_record(report: TailReport) -> dict[str, Any]:
    """As JSON; rows are counted from 1, as everywhere on the command line."""
    record = {name: getattr(report, name) for name in ("verdict", "k", "recommendation")}
    record["leverage"] = None if report.leverage is None else report.leverage + 1
    for name in ("target", "losses", "gradients"):
        tail = getattr(report, name)
        record[name] = tail and asdict(tail)
    return record | {"features": {name: asdict(tail) for name, tail in report.features.items()}}
