"""The figures of section 4.3: test loss against the step, accuracy against work per core, final accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tailproof.paper.real.data import SETS
from tailproof.paper.real.experiments import CHANCE, FACTORS, METHODS, MODELS, curve
from tailproof.paper.store import Methods, Results

NewFigure = Callable[[float, float], Any]
Colours = Mapping[str, str]


def strongest(methods: Methods, method: str) -> int:
    """Return the factor of the step with which a method's mean test accuracy ends highest."""
    return max(FACTORS, key=lambda factor: methods[curve(method, factor, "test_accuracy")].final.mean())


def convex(results: Results, new_figure: NewFigure, colours: Colours) -> dict[str, Any]:
    """Figures of real-e1."""
    return {
        "real-e1-losses_lr": _panels(results, new_figure, colours, _loss_by_step, "factor of the base step"),
        "real-e1-acc_percore": _panels(
            results, new_figure, colours, _accuracy_by_work, "rows that one core has processed"
        ),
    }


def models(results: Results, new_figure: NewFigure, colours: Colours) -> dict[str, Any]:
    """Figures of real-e2."""
    shown = [name for name in SETS if any(setting.startswith(f"{name} ") for setting in results)]
    figure, grid = _grid(new_figure, len(shown))
    for axes, dataset in zip(grid, shown, strict=False):
        _bars(axes, dataset, results, colours)
    return {"real-e2-acc_bar": _finished(figure, grid, len(shown), "model")}


def _panels(
    results: Results, new_figure: NewFigure, colours: Colours, panel: Callable[..., None], label: str
) -> Any:
    """One panel for each data set that has trials."""
    shown = [name for name in SETS if f"{name} logistic" in results]
    figure, grid = _grid(new_figure, len(shown))
    for axes, dataset in zip(grid, shown, strict=False):
        for method in ("bench", "DC-SGD"):
            panel(axes, results[f"{dataset} logistic"], method, colours[method])
        axes.set_title(dataset, fontsize=10)
        axes.grid(alpha=0.25)
    return _finished(figure, grid, len(shown), label)


def _grid(new_figure: NewFigure, count: int) -> tuple[Any, list[Any]]:
    rows = max(1, -(-count // 3))
    figure = new_figure(10.5, 3.1 * rows + 0.6)
    return figure, list(figure.subplots(rows, 3, squeeze=False).flat)


def _finished(figure: Any, grid: list[Any], count: int, label: str) -> Any:
    for axes in grid[count:]:
        axes.set_visible(False)
    for axes in grid[:count]:
        axes.set_xlabel(label, fontsize=8)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8)
    return figure


def _loss_by_step(axes: Any, methods: Methods, method: str, colour: str) -> None:
    """Mean test loss at the end, with the standard deviation over trials as a band."""
    ends = np.stack([methods[curve(method, factor, "test_loss")].final for factor in FACTORS])
    _band(axes, np.array(FACTORS), ends, method, colour)
    axes.set_xscale("log", base=2)
    axes.set_xticks(FACTORS, [str(factor) for factor in FACTORS])
    axes.set_ylabel("test loss", fontsize=8)


def _accuracy_by_work(axes: Any, methods: Methods, method: str, colour: str) -> None:
    """Test accuracy with its band, training accuracy as a dashed line, at the strongest step."""
    factor = strongest(methods, method)
    test, train = (methods[curve(method, factor, f"{part}_accuracy")] for part in ("test", "train"))
    _band(axes, test.costs, test.excess.T, f"{method}, test", colour)
    axes.plot(train.costs, train.excess.mean(axis=0), "--", color=colour, label=f"{method}, training")
    axes.set_xscale("log")
    axes.set_ylabel("accuracy", fontsize=8)


def _band(axes: Any, x: Any, values: Any, label: str, colour: str) -> None:
    centre, width = values.mean(axis=1), values.std(axis=1)
    axes.plot(x, centre, marker="o", markersize=3, color=colour, label=label)
    axes.fill_between(x, centre - width, centre + width, color=colour, alpha=0.2, linewidth=0)


def _bars(axes: Any, dataset: str, results: Results, colours: Colours) -> None:
    """Mean final accuracy of each method and model at its strongest step, and the chance level."""
    names = [model for model in MODELS if f"{dataset} {model}" in results]
    for i, method in enumerate(METHODS):
        heights = [_final_accuracy(results[f"{dataset} {model}"], method) for model in names]
        axes.bar(np.arange(len(names)) + 0.27 * (i - 1), heights, 0.25, color=colours[method], label=method)
    chance = results[f"{dataset} {names[0]}"][CHANCE].final.mean()
    axes.axhline(chance, color="#000000", linestyle=":", label="chance")
    axes.set_xticks(np.arange(len(names)), names, fontsize=8)
    axes.set(ylim=(0, 1), title=dataset)
    axes.set_ylabel("test accuracy", fontsize=8)


def _final_accuracy(methods: Methods, method: str) -> float:
    return float(methods[curve(method, strongest(methods, method), "test_accuracy")].final.mean())
