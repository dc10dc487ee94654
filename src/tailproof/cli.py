"""The ``tailproof`` command."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.linear_model import HuberRegressor, LinearRegression, SGDRegressor

from tailproof import __version__, cli_paper
from tailproof.linear import DCSGDRegressor, RVSGDRegressor

Array = NDArray[np.floating]
SIGMA = 1.75  # of the log-normal noise

app = typer.Typer(no_args_is_help=True, help="Learning when losses and gradients may be heavy-tailed.")
app.add_typer(cli_paper.app, name="paper")


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
) -> None:
    """Fit heavy-tailed data, made on the spot, with the usual models and with ours."""
    table = Table(
        title="Excess risk", caption=f"y = Σx + log-normal({SIGMA}), {rows:,} × {columns}, {draws} draws"
    )
    for heading in ("model", "median", "95%", "seconds a fit"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    excess: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for draw in track(range(draws), description="fitting", console=Console(stderr=True), transient=True):
        X, y = _heavy_tailed(rows, columns, seed + draw)
        for name, model in _demo_models(seed + draw).items():
            start = time.perf_counter()
            model.fit(X, y)
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            excess.setdefault(name, []).append(_excess_risk(model))
    for name, values in excess.items():
        low, high = np.quantile(values, [0.5, 0.95])
        table.add_row(name, f"{low:.3f}", f"{high:.3f}", f"{np.median(seconds[name]):.3f}")
    Console().print(table)


def _heavy_tailed(n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Rows with y = ⟨1, x⟩ + centred log-normal noise."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d))
    return X, X.sum(axis=1) + random.lognormal(0.0, SIGMA, n) - math.exp(SIGMA**2 / 2)


def _demo_models(seed: int) -> dict[str, Any]:
    return {
        "LinearRegression": LinearRegression(),
        "SGDRegressor": SGDRegressor(random_state=seed),
        "HuberRegressor": HuberRegressor(max_iter=1000),
        "DC-SGD": DCSGDRegressor(random_state=seed),
        "RV-SGDAve": RVSGDRegressor(random_state=seed),
    }


def _excess_risk(model: Any) -> float:
    """E(⟨ŵ − 1, x⟩ + b̂)²/2 for standard normal features."""
    return float((np.sum((model.coef_ - 1) ** 2) + np.sum(np.square(model.intercept_))) / 2)
