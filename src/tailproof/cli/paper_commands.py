"""``tailproof paper``: run, draw and judge the experiments of the paper."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    track,
)
from rich.table import Table

from tailproof.paper.catalogue import ALL_EXPERIMENTS, claims_of, get_experiment
from tailproof.paper.figures import draw
from tailproof.paper.judging import HEADING, Verdict, as_markdown, cells, judge
from tailproof.paper.real.claims import EACH
from tailproof.paper.real.data import VARIABLE
from tailproof.paper.runs import run as run_trials
from tailproof.paper.store import Results, Store, load
from tailproof.paper.tables import TABLE_1, TABLE_2, Sizes, figure_1, table
from tailproof.paper.variants import VARIANTS, Choices
from tailproof.tables.model import OptionError

app = typer.Typer(no_args_is_help=True, help="The paper's experiments: run, draw, judge.")


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Whatever goes wrong here is a mistake in the command: one line, and the exit code for that."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        raise OptionError(str(error)) from None


Name = Annotated[str, typer.Argument(help="One of those that `tailproof paper list` shows.")]
Out = Annotated[Path, typer.Option(help="Folder of the trials.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A variant, name=value; see `paper list`.")]
DEFAULT_OUT = Path("paper-trials")


@app.command("list")
def list_() -> None:
    """Show the experiments, and the variants that --set takes."""
    table = Table("experiment", "title", "settings", "trials", "with --full")
    for name in ALL_EXPERIMENTS:
        experiment = get_experiment(name)
        counts = (len(experiment.settings_to_run(False)), experiment.trials, experiment.full_trials)
        table.add_row(name, experiment.title, *(str(count) for count in counts))
    Console().print(table)
    variants = Table("--set", "value", "meaning", caption="The first value of each is the default.")
    for name, values in VARIANTS.items():
        for value, meaning in values.items():
            variants.add_row(name, value, meaning)
    variants.add_row("seed", "0", "any whole number")
    variants.add_row("rows", "0", "training and validation rows of real data at most; 0 is all")
    Console().print(variants)


@app.command()
def run(
    experiment: Name,
    trials: Annotated[int | None, typer.Option(metavar="N", help="Trials of each setting.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's settings and number of trials.")] = False,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Processes; default all cores.")] = None,
    only: Annotated[str, typer.Option(help="Run only settings with this in their name.")] = "",
    data_dir: Annotated[
        Path | None, typer.Option(help=f"Folder of real data; default the variable {VARIABLE}.")
    ] = None,
    out: Out = DEFAULT_OUT,
    set_: Set = None,
) -> None:
    """Run the trials that are missing; an interrupted run goes on where it was."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("time left"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True))

    def begin(there: int, total: int) -> None:
        bar.start()
        bar.add_task(experiment, completed=there, total=total)

    with _usage_errors():
        store = _store(experiment, out, set_)
        run_many = store.experiment.run_many
        if data_dir is not None and run_many is not None:
            told = replace(store.experiment, run_many=partial(run_many, folder=data_dir))
            store = replace(store, experiment=told)
        try:
            done = run_trials(
                store,
                trials,
                full=full,
                jobs=jobs,
                only=only,
                on_start=begin,
                on_trial=lambda: bar.advance(TaskID(0)),
            )
        finally:
            bar.stop()
    print(f"{experiment}: {done} trials run, all in {store.folder}")


def _store(experiment: str, out: Path, pairs: list[str] | None) -> Store:
    choices = Choices.parse(pairs or [])
    return Store(out, get_experiment(experiment, choices), choices)


def _loaded(store: Store) -> Results:
    results = load(store)
    if not results:
        name = store.experiment.name
        raise ValueError(f"no trials of {name} in {store.folder}: run `tailproof paper run {name}` first")
    return results


@app.command()
def plot(
    experiment: Name,
    out: Out = DEFAULT_OUT,
    figures: Annotated[Path | None, typer.Option(help="Folder of the figures; default OUT/figures.")] = None,
    set_: Set = None,
) -> None:
    """Draw the figures of an experiment from the trials that are there."""
    with _usage_errors():
        store = _store(experiment, out, set_)
        for file in draw(store, _loaded(store), figures or out / "figures"):
            print(file)


@app.command()
def pack(experiment: Name, out: Out = DEFAULT_OUT, set_: Set = None) -> None:
    """Put the trials of an experiment into one small file, which run, plot and check read as well."""
    with _usage_errors():
        print(_store(experiment, out, set_).pack())


@app.command()
def theory(
    n: Annotated[int, typer.Option(help="Rows.")] = 10_000,
    d: Annotated[int, typer.Option(help="Parameters.")] = 100,
    delta: Annotated[float, typer.Option(help="One minus the confidence.")] = 0.05,
    steps: Annotated[int, typer.Option(help="Updates of batch methods.")] = 100,
    figures: Annotated[Path | None, typer.Option(help="Folder to draw Figure 1 into.")] = None,
) -> None:
    """Print Tables 1 and 2 as numbers, with every hidden constant 1, and draw Figure 1."""
    with _usage_errors():
        sizes = Sizes(n, d, steps, delta)
        for title, rows in (("Table 1, strongly convex", TABLE_1), ("Table 2, convex", TABLE_2)):
            shown = Table("method", "error", "is", "cost", "is", title=title)
            for cells_ in table(rows, sizes):
                shown.add_row(*cells_)
            Console(width=None if sys.stdout.isatty() else 200).print(shown)
        if figures is not None:
            figures.mkdir(parents=True, exist_ok=True)
            figure_1().savefig(figures / "figure-1.png", dpi=110)
            print(figures / "figure-1.png")


@app.command()
def check(
    experiment: Annotated[str | None, typer.Argument(help="Default: all that have trials.")] = None,
    out: Out = DEFAULT_OUT,
    set_: Set = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file as well.")] = None,
) -> None:
    """Judge every claim of section 4: holds, fails or undecided, with the numbers."""
    with _usage_errors():
        names = list(ALL_EXPERIMENTS) if experiment is None else [experiment]
        stores = [_store(name, out, set_) for name in names]
        verdicts = [v for store in stores if experiment or store.exists() for v in _verdicts(store)]
        if not verdicts:
            raise ValueError(f"no trials in {out}: run `tailproof paper run EXPERIMENT` first")
        if markdown is not None:
            markdown.write_text("# Verdicts on the claims\n\n" + as_markdown(verdicts), encoding="utf-8")
    table = Table(*HEADING)
    for verdict in verdicts:
        table.add_row(*cells(verdict), style=_STYLES.get(verdict.conclusion))
    absent = sorted({*ALL_EXPERIMENTS} - {verdict.claim.experiment for verdict in verdicts})
    # Piped into a file the table keeps its width: cut lines would hide numbers.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    if experiment is None and absent:
        print(f"not run: {', '.join(absent)}")


def _with_other_starts(store: Store) -> Results:
    """Trials of real data with a start for each sub-process, to be judged beside those from one start."""
    if store.experiment.run_many is None or store.choices.start != "one":
        return {}
    apart = replace(store, choices=replace(store.choices, start="each"))
    return {f"{setting}{EACH}": methods for setting, methods in load(apart).items()}


_STYLES = {"fails": "red", "depends": "magenta", "undecided": "yellow", "measured": "dim"}


def _verdicts(store: Store) -> list[Verdict]:
    results = {**_loaded(store), **_with_other_starts(store)}
    mine = claims_of(store.experiment.name)
    waiting = track(mine, "judging", console=Console(stderr=True), transient=True)
    return [judge(claim, results) for claim in waiting]
