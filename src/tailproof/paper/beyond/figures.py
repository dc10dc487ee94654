"""Median excess risk against cost, a panel for each setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tailproof.paper.beyond.experiments import BEYOND_EXPERIMENTS
from tailproof.paper.panels import COST, fit_log_axis, legend, line, panels, setting_title
from tailproof.paper.store import Results

# By place in the list of methods; RGD, which comes last in all experiments, is grey.
_COLOURS = ("#D50000", "#0072B2", "#009E73", "#E69F00", "#6A1B9A", "#56B4E9", "#CC79A7", "#8D6E00")
_RGD = {"RGD-MoM": "#777777", "RGD-M": "#222222"}


def _trajectories(results: Results) -> Any:
    shown = list(results)
    rows = -(-len(shown) // 2)
    figure, grid = panels((10.5, 3.4 * rows + 0.6), rows, 2, COST, "median excess risk")
    for axes, setting in zip(grid.flat, shown, strict=False):
        methods = results[setting]
        for place, name in enumerate(methods):
            colour = _RGD.get(name, _COLOURS[place % len(_COLOURS)])
            width = 3.0 if name == "RGD-MoM" else 1.6  # RGD-M often lies on it
            line(axes, methods[name], "median", label=name, color=colour, linewidth=width)
        axes.set_title(setting_title(setting), fontsize=10)
        fit_log_axis(axes, [np.median(curves.excess, axis=0) for curves in methods.values()], 0.7, 1.4)
    legend(figure, grid[0, 0], 4)
    return figure


def _only(name: str) -> Callable[[Results], dict[str, Any]]:
    return lambda results: {name: _trajectories(results)}


BEYOND_FIGURES: dict[str, Callable[[Results], dict[str, Any]]] = {
    name: _only(name) for name in BEYOND_EXPERIMENTS
}
