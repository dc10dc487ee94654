"""The ``tailproof`` command."""

from __future__ import annotations

import math
import time
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from tailproof import __version__
from tailproof.means import MEANS

app = typer.Typer(no_args_is_help=True, help="Learning when losses and gradients may be heavy-tailed.")


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
    draws: Annotated[int, typer.Option(min=20, help="Independent samples to draw.")] = 2000,
    rows: Annotated[int, typer.Option(min=200, help="Values in each sample.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples.")] = 0,
) -> None:
    """Show what one bad row in a thousand does to a mean, and what the robust means do about it."""
    sigma = 1.75
    samples = np.random.default_rng(seed).lognormal(0.0, sigma, (rows, draws))
    truth = math.exp(sigma**2 / 2)
    table = Table(
        title=f"Estimating a mean of {truth:.3f} from {rows:,} log-normal({sigma}) values, {draws:,} times"
    )
    for heading in ("estimator", "median error", "95% error", "99% error", "worst", "ms a sample"):
        table.add_column(heading, justify="left" if heading == "estimator" else "right")
    for name, estimator in MEANS.items():
        estimator(samples[:, :2], delta=0.01)  # compiled before the clock starts
        start = time.perf_counter()
        errors = np.abs(estimator(samples, delta=0.01) - truth)
        seconds = time.perf_counter() - start
        figures = [*np.quantile(errors, [0.5, 0.95, 0.99]), errors.max()]
        table.add_row(name, *(f"{x:.3f}" for x in figures), f"{1e3 * seconds / draws:.3f}")
    Console().print(table)
