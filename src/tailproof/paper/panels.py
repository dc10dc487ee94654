"""What all figures share: colours, a figure of its own, grids of panels, curves, boxes and legends."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.core.lookup import optional
from tailproof.paper.experiments import SPELLED
from tailproof.paper.store import STATISTICS, Curves, Methods

COLOURS = {
    "ERM-GD": "#777777",
    "SGD": "#E69F00",
    "RGD-MoM": "#0072B2",
    "RGD-M": "#009E73",
    "RGD-Lec": "#CC79A7",
    "DC-SGD": "#D50000",
    "RV-SGD": "#56B4E9",
    "RV-SGDAve": "#6A1B9A",
    "RV-SGD-CV": "#8D6E00",
    "RV-SGDAve-CV": "#A0C030",
    "true GD": "#000000",
    "true SGD": "#000000",
    "true SGDAve": "#000000",
}
DASHES = {"true GD": (0, (5, 2)), "true SGD": (0, (1, 1.5)), "true SGDAve": (0, (4, 1.5, 1, 1.5))}
SCALE_DASHES = {"sd": "solid", "robust": (0, (4, 1.5)), "m-scale": (0, (1, 1))}
_READING_DASHES = (0, (3, 1, 1, 1))
# Batch methods often lie on each other: the lower ones are wider, so that their edges show.
_WIDTHS = {"ERM-GD": 3.6, "RGD-MoM": 2.4, "RGD-M": 1.3}
_WORKER_DASHES = {"2 threads": (0, (4, 1.5)), "2 processes": (0, (1, 1))}
NOISE_NAMES = {"normal": "Normal noise", "lognormal": "log-Normal noise"}
STATISTIC_NAMES = {"average": "average", "sd": "standard deviation"}
COST = "cost in gradients"
# Descent on the true risk with a method's steps; RGD-Lec makes ten times the updates of true GD.
_REFERENCES = dict.fromkeys(("ERM-GD", "RGD-MoM", "RGD-M"), "true GD") | {
    "DC-SGD": "true SGD",
    "RV-SGDAve": "true SGDAve",
}


def new_figure(width: float, height: float) -> Any:
    """Make a figure of its own, not pyplot's: nobody's backend or state is touched."""
    return optional("matplotlib.figure", extra="paper").Figure(figsize=(width, height), layout="constrained")


def panels(
    size: tuple[float, float], rows: int, columns: int, x: str, y: str | Iterable[str], **shared: Any
) -> tuple[Any, Any]:
    """Return a figure and its grid of axes, labelled below the last row and left of the first column."""
    figure = new_figure(*size)
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    for row, label in zip(grid, [y] * rows if isinstance(y, str) else y, strict=True):
        row[0].set_ylabel(label)
        for axes in row:
            axes.grid(alpha=0.25)
    for axes in grid[-1]:
        axes.set_xlabel(x)
    return figure, grid


def base_name(method: str) -> str:
    """Return a method without its reading and its threads."""
    return method.partition(" [")[0].partition(",")[0]


def style(method: str) -> dict[str, Any]:
    """Colour and width of the method, dashes of its reading or of its workers."""
    scale, workers = method.partition("[")[2].rstrip("]"), method.partition(", ")[2]
    dashes = SCALE_DASHES.get(scale, _READING_DASHES) if scale else DASHES.get(method, "solid")
    dashes = _WORKER_DASHES.get(workers, dashes)
    width = 1.3 if method.startswith("true") else _WIDTHS.get(method, 1.7)
    return {"color": COLOURS[base_name(method)], "linestyle": dashes, "linewidth": width}


def line(axes: Any, curves: Curves, statistic: str = "average", **how: Any) -> None:
    """Draw all looks but those less than a hundredth before the end, which would lie on top of it."""
    kept = (curves.costs < 0.99 * curves.costs[-1]) | (np.arange(curves.costs.size) == curves.costs.size - 1)
    axes.plot(curves.costs[kept], STATISTICS[statistic](curves.excess[:, kept]), **how)
    axes.set_xscale("log")


def lines(axes: Any, methods: Methods, names: Iterable[str], statistic: str) -> None:
    """Draw the curves of several methods, each in its own style."""
    for name in names:
        # The standard deviation of a noise-free curve is the spread of the starts.
        if not (statistic == "sd" and name.startswith("true")):
            line(axes, methods[name], statistic, label=name, **style(name))


def fit_log_axis(axes: Any, values: list[Array], below: float, above: float) -> None:
    """Log scale with room for the values; one trial has no spread, and nothing to show on a log scale."""
    low, high = below * min(v.min() for v in values), above * max(v.max() for v in values)
    if high > 0:
        axes.set(yscale="log", ylim=(low, high))


def setting_title(setting: str) -> str:
    """Spell the name of a setting out: "lognormal d=64" is "log-Normal noise, d = 64"."""
    noise, *rest = setting.split()
    return ", ".join([NOISE_NAMES.get(noise, noise), *(word.replace("=", " = ") for word in rest)])


def tidy_ticks(figure: Any) -> None:
    """Plain numbers on log axes of few decades, where powers of ten and their multiples would collide."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log" and axis.get_transform().base == 10:
                _tidy(axis)


def _tidy(axis: Any) -> None:
    ticker = optional("matplotlib.ticker", extra="paper")
    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low)
    axis.set_minor_formatter(ticker.NullFormatter())
    if decades < 2.5:
        few = ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
        axis.set_major_locator(few if decades < 0.8 else ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _plain(value)))


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def legend(figure: Any, axes: Any, columns: int = 8) -> None:
    """Put one legend above all panels, from the first of them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)), fontsize=8)


def _wrapped(method: str) -> str:
    """Name of a method with its reading, spelled out, on lines of its own."""
    name, _, reading = method.rstrip("]").partition(" [")
    lines = textwrap.wrap(f"[{SPELLED.get(reading, reading)}]", 12) if reading else []
    return "\n".join([name, *lines])


def boxes(axes: Any, methods: Methods, names: Iterable[str], log: bool) -> None:
    """Final excess risk; black marks show what descent on the true risk would have left."""
    names = list(names)
    drawn = axes.boxplot(
        [methods[name].final for name in names],
        tick_labels=[_wrapped(name) for name in names],
        patch_artist=True,
        widths=0.6,
        medianprops={"color": "black"},
        flierprops={"markersize": 2.5, "markeredgecolor": "#555555"},
    )
    for position, (box, name) in enumerate(zip(drawn["boxes"], names, strict=True), start=1):
        box.set(facecolor=COLOURS[base_name(name)], alpha=0.75)
        reference = _REFERENCES.get(base_name(name))
        level = float(np.median(methods[reference].final)) if reference else 0.0
        if level > 1e-6:
            axes.plot([position - 0.42, position + 0.42], [level, level], color="black", linestyle=":")
    if log:
        axes.set_yscale("log")
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(visible=False, axis="x")
