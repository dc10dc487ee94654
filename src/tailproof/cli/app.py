"""The ``tailproof`` command."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.linear_model import HuberRegressor, LinearRegression, SGDRegressor

from tailproof import __version__
from tailproof.cli import ab_command, data_commands, model_commands, pages, paper_commands
from tailproof.cli.output import Guarded, check_output, print_json
from tailproof.estimators.linear.estimators import DCSGDRegressor, RVSGDRegressor
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.model_files.files import write_whole
from tailproof.paper.simulated import Problem
from tailproof.reports import svg
from tailproof.reports.pages import render

SIGMA = 1.75  # of the log-normal noise

app = typer.Typer(
    cls=Guarded,
    no_args_is_help=True,
    help="Learn from data with heavy tails: claims, delays, prices, where a few rows can ruin a model.",
    epilog="First steps: tailproof demo; then, on your own file, tailproof diagnose FILE --target COLUMN.",
)
app.add_typer(data_commands.commands)
app.add_typer(model_commands.commands)
app.command()(ab_command.ab)
app.add_typer(paper_commands.app, name="paper")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def demo(
    draws: Annotated[int, typer.Option(min=2, help="Independent data sets.")] = 20,
    rows: Annotated[int, typer.Option(min=200, help="Rows of each.")] = 5000,
    columns: Annotated[int, typer.Option(min=1, help="Columns of each.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first.")] = 0,
    report: Annotated[
        Path | None, typer.Option(help="HTML report; in a new temporary folder by default.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="The figure alone, as SVG.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fit simulated heavy-tailed data with the usual models and with those of tailproof."""
    check_output(report, picture)
    problem = Problem(rows, columns, "lognormal", SIGMA)
    excess: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for draw in track(range(draws), description="fitting", console=Console(stderr=True), transient=True):
        data = problem.draw(np.random.SeedSequence(seed + draw))
        for name, model in _demo_models(seed + draw).items():
            start = time.perf_counter()
            model.fit(data.X, data.y)
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            intercept = float(np.ravel(model.intercept_)[0])
            excess.setdefault(name, []).append(float(problem.excess_risk(model.coef_)) + intercept**2 / 2)
    typical = {name: float(np.median(values)) for name, values in seconds.items()}
    words = f"y = Σx + log-normal({SIGMA}), {rows:,} × {columns}, {draws} draws"
    code = f"tailproof demo --draws {draws} --rows {rows} --columns {columns} --seed {seed}"
    # A folder of its own: a fixed name in a shared folder could be somebody else's, or a link.
    where = report or Path(tempfile.mkdtemp(prefix="tailproof-demo-")) / "report.html"
    write_whole(where, render(pages.demo_page(excess, typical, words, code)))
    if picture is not None:
        write_whole(picture, svg.alone(pages.demo_figure(excess)))
    table = pages.demo_table(excess, typical)
    if json:
        headings = ("model", "median", "95%", "seconds")
        print_json({"models": [dict(zip(headings, row, strict=True)) for row in table], "report": str(where)})
        return
    _print_demo(table, words)
    typer.echo(f"report: {where}")


def _print_demo(rows: list[tuple[str, float, float, float]], words: str) -> None:
    table = Table(title="Excess risk", caption=words)
    for heading in ("model", "median", "95%", "seconds a fit"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name, *numbers in rows:
        table.add_row(name, *(f"{value:.3f}" for value in numbers))
    Console().print(table)


def _demo_models(seed: int) -> dict[str, Any]:
    return {
        "LinearRegression": LinearRegression(),
        "SGDRegressor": SGDRegressor(random_state=seed),
        "HuberRegressor": HuberRegressor(max_iter=1000),
        "RobustRegressor": RobustRegressor(random_state=seed),
        "DC-SGD": DCSGDRegressor(random_state=seed),
        "RV-SGDAve": RVSGDRegressor(random_state=seed),
    }
