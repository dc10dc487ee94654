"""The figures of section 4.3: test loss against the step, accuracy against work per core, final accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.paper.panels import COLOURS, legend, new_figure
from tailproof.paper.real.data import DATA_SETS
from tailproof.paper.real.settings import CHANCE, FACTORS, NETWORKS, REAL_METHODS, curve, strongest
from tailproof.paper.store import Methods, Results

_COLOURS = COLOURS | {"bench": "#777777"}
_COLUMNS = 3
Panel = Callable[[Any, str, Results], None]


def _figure(results: Results, panel: Panel, label: str) -> Any:
    """One panel for each data set that has trials."""
    shown = [name for name in DATA_SETS if any(setting.startswith(f"{name} ") for setting in results)]
    rows = max(1, -(-len(shown) // _COLUMNS))
    figure = new_figure(10.5, 3.1 * rows + 0.6)
    every = list(figure.subplots(rows, _COLUMNS, squeeze=False).flat)
    for axes, dataset in zip(every, shown, strict=False):
        panel(axes, dataset, results)
        axes.set_title(dataset, fontsize=10)
        axes.set_xlabel(label, fontsize=8)
    for axes in every[len(shown) :]:
        axes.set_visible(False)
    legend(figure, every[0])
    return figure


def _loss_by_step(axes: Any, dataset: str, results: Results) -> None:
    """Mean test loss at the end, with the standard deviation over trials as a band."""
    methods = results[f"{dataset} logistic"]
    for method in ("bench", "DC-SGD"):
        ends = np.stack([methods[curve(method, factor, "test_loss")].final for factor in FACTORS])
        _band(axes, np.array(FACTORS), ends, method, _COLOURS[method])
    axes.set_xscale("log", base=2)
    axes.set_xticks(FACTORS, [str(factor) for factor in FACTORS])
    axes.set_ylabel("test loss", fontsize=8)


def _accuracy_by_work(axes: Any, dataset: str, results: Results) -> None:
    """Test accuracy with its band, training accuracy as a dashed line, at the strongest step."""
    methods = results[f"{dataset} logistic"]
    for method in ("bench", "DC-SGD"):
        factor, colour = strongest(methods, method), _COLOURS[method]
        test, train = (methods[curve(method, factor, f"{part}_accuracy")] for part in ("test", "train"))
        _band(axes, test.costs, test.excess.T, f"{method}, test", colour)
        axes.plot(train.costs, train.excess.mean(axis=0), "--", color=colour, label=f"{method}, training")
    axes.set_xscale("log")
    axes.set_ylabel("accuracy", fontsize=8)


def _band(axes: Any, x: Any, values: Any, label: str, colour: str) -> None:
    centre, width = values.mean(axis=1), values.std(axis=1)
    axes.plot(x, centre, marker="o", markersize=3, color=colour, label=label)
    axes.fill_between(x, centre - width, centre + width, color=colour, alpha=0.2, linewidth=0)
    axes.grid(alpha=0.25)


def _bars(axes: Any, dataset: str, results: Results) -> None:
    """Mean final accuracy at the strongest step, a dot for each trial, and the chance level."""
    names = [network for network in NETWORKS if f"{dataset} {network}" in results]
    for i, method in enumerate(REAL_METHODS):
        ends = [_final_accuracies(results[f"{dataset} {network}"], method) for network in names]
        places = np.arange(len(names)) + 0.27 * (i - 1)
        axes.bar(places, [trials.mean() for trials in ends], 0.25, color=_COLOURS[method], label=method)
        for place, trials in zip(places, ends, strict=True):
            axes.plot(np.full(trials.size, place), trials, "o", color="black", markersize=2)
    chance = results[f"{dataset} {names[0]}"][CHANCE].final.mean()
    axes.axhline(chance, color="#000000", linestyle=":", label="chance")
    axes.set_xticks(np.arange(len(names)), names, fontsize=8)
    axes.set_ylim(0, 1)
    axes.set_ylabel("test accuracy", fontsize=8)


def _final_accuracies(methods: Methods, method: str) -> Array:
    return methods[curve(method, strongest(methods, method), "test_accuracy")].final


REAL_FIGURES: dict[str, Callable[[Results], dict[str, Any]]] = {
    "real-e1": lambda r: {
        "real-e1-losses_lr": _figure(r, _loss_by_step, "factor of the base step"),
        "real-e1-acc_percore": _figure(r, _accuracy_by_work, "rows that one core has processed"),
    },
    "real-e2": lambda r: {"real-e2-acc_bar": _figure(r, _bars, "model")},
}
