"""The figures of sections 4.1 and 4.2; ``FIGURES`` lists what each experiment draws.

One colour per method in all of them. Black lines are gradient descent on the true risk: optimisation error
alone, so that what a method has above them is statistical error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.lookup import optional
from tailproof.paper import experiments as ex
from tailproof.paper.real import figures
from tailproof.paper.simulated import LEVELS, NOISES
from tailproof.paper.store import Curves, Methods, Results, Store

Statistic = Callable[[Array], Array]

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
NOISE_NAMES = {"normal": "Normal noise", "lognormal": "log-Normal noise"}
STATISTICS: dict[str, Statistic] = {
    "average": lambda excess: excess.mean(axis=0),
    "standard deviation": lambda excess: excess.std(axis=0),
}
_REPRESENTATIVE = ("ERM-GD", "RGD-MoM", "RGD-M", "DC-SGD")
_DPI = 110
# Descent on the true risk with a method's steps; RGD-Lec makes ten times the updates of true GD.
_REFERENCES = dict.fromkeys(("ERM-GD", "RGD-MoM", "RGD-M"), "true GD") | {
    "DC-SGD": "true SGD",
    "RV-SGDAve": "true SGDAve",
}


def draw(store: Store, results: Results, folder: Path) -> list[Path]:
    """Write the figures of an experiment as PNG files; return which."""
    _figure(1, 1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, figure in (FIGURES | _REAL)[store.experiment.name](results).items():
            figure.supxlabel(_footnote(store, results), fontsize=7, color="#444444")
            tag = store.choices.tag()
            file = folder / (f"{name}@{tag}.png" if tag else f"{name}.png")
            figure.savefig(file, dpi=_DPI)
            written.append(file)
    except OSError as problem:
        raise OSError(f"cannot write figures to {folder}: {problem.strerror}") from None
    return written


def _footnote(store: Store, results: Results) -> str:
    """Return sizes, trials, and the choices where the paper leaves one."""
    counts = [curves.final.size for methods in results.values() for curves in methods.values()]
    trials = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    choices = store.choices
    about_real = f"seed={choices.seed} rows={choices.rows or 'all'}"
    made = choices.spelled_out() if store.experiment.run_many is None else about_real
    return f"{store.experiment.name}: {trials} trial{'s' * (trials != '1')} of each setting\n{made}"


def _figure(width: float, height: float) -> Any:
    # A figure of its own and not pyplot's: nobody's backend or state is touched.
    return optional("matplotlib.figure", extra="paper").Figure(figsize=(width, height), layout="constrained")


def _base(method: str) -> str:
    return method.partition(" [")[0].partition(",")[0]


def _style(method: str) -> dict[str, Any]:
    scale = method.partition("[")[2].rstrip("]")
    dashes = SCALE_DASHES[scale] if scale else DASHES.get(method, "solid")
    width = 1.3 if method.startswith("true") else 1.7
    return {"color": COLOURS[_base(method)], "linestyle": dashes, "linewidth": width}


def _lines(axes: Any, methods: Methods, names: Iterable[str], statistic: str) -> None:
    for name in names:
        if statistic == "standard deviation" and name.startswith("true"):
            continue  # it is the spread of the starts
        costs, excess = _drawn(methods[name])
        axes.plot(costs, STATISTICS[statistic](excess), label=name, **_style(name))
    axes.set_xscale("log")
    axes.grid(alpha=0.25)


def _drawn(curves: Curves) -> tuple[NDArray[np.intp], Array]:
    """All looks but those less than a hundredth before the end, which would be drawn on top of it."""
    kept = (curves.costs < 0.99 * curves.costs[-1]) | (np.arange(curves.costs.size) == curves.costs.size - 1)
    return curves.costs[kept], curves.excess[:, kept]


def _legend(figure: Any, axes: Any, columns: int = 8) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)), fontsize=8)


def _zoomed(
    results: Results,
    noise: str,
    names: tuple[str, ...],
    without: tuple[str, ...] = (),
    references: tuple[str, ...] = ex.TRUE,
) -> Any:
    """Average and standard deviation against cost; on the right the part between the dashed lines."""
    figure, methods = _figure(9.5, 6.4), results[noise]
    grid = figure.subplots(2, 2)
    kept = [name for name in names if name not in without]
    first, last = 2.0 * ex.SMALL_N, float(methods[names[0]].costs[-1])
    for row, statistic in zip(grid, STATISTICS, strict=True):
        _lines(row[0], methods, [*names, *references], statistic)
        _lines(row[1], methods, [*kept, *references], statistic)
        row[0].set_ylabel(f"excess risk, {statistic}")
        for edge in (first, last):
            row[0].axvline(edge, color="#333333", linestyle="--", linewidth=0.8)
        row[1].set_xlim(first, last)
        low, high = _span(methods, kept, statistic, first)
        if high > 0:
            row[1].set(yscale="log", ylim=(low, high))
    left_out = f" (without {', '.join(without)})" if without else ""
    grid[0, 0].set_title(NOISE_NAMES[noise], fontsize=10)
    grid[0, 1].set_title(f"between the dashed lines, log scale{left_out}", fontsize=10)
    for axes in grid[1]:
        axes.set_xlabel("cost in gradients")
    _legend(figure, grid[0, 0])
    return figure


def _span(methods: Methods, names: Iterable[str], statistic: str, first: float) -> tuple[float, float]:
    """Room for what the curves do from a cost on."""
    values = [STATISTICS[statistic](methods[n].excess)[methods[n].costs >= first] for n in names]
    return 0.7 * min(v.min() for v in values), 1.3 * max(v.max() for v in values)


def _pair(results: Results, names: tuple[str, ...], columns: int = 8) -> Any:
    """Average and standard deviation, Normal noise on the left and log-Normal on the right."""
    figure = _figure(9.5, 6.4)
    grid = figure.subplots(2, 2, sharex=True)
    for row, statistic in zip(grid, STATISTICS, strict=True):
        for axes, noise in zip(row, NOISES, strict=True):
            _lines(axes, results[noise], names, statistic)
            axes.set_title(f"{NOISE_NAMES[noise]}: {statistic}", fontsize=10)
        # True SGD goes to zero: the panels keep to where the methods are.
        _above_floor(row, results, names, statistic)
        row[0].set_ylabel("excess risk")
    for axes in grid[1]:
        axes.set_xlabel("cost in gradients")
    _legend(figure, grid[0, 0], columns)
    return figure


def _above_floor(row: Iterable[Any], results: Results, names: tuple[str, ...], statistic: str) -> None:
    real = [name for name in names if not name.startswith("true")]
    for axes, noise in zip(row, NOISES, strict=True):
        values = [STATISTICS[statistic](results[noise][name].excess) for name in real]
        low, high = min(v.min() for v in values) / 2, 1.5 * max(v.max() for v in values)
        # One trial has no spread, and nothing to show on a logarithmic axis.
        if high > 0:
            axes.set(yscale="log", ylim=(low, high))


def _boxes(axes: Any, methods: Methods, names: Iterable[str], log: bool) -> None:
    """Final excess risk; black marks show what descent on the true risk would have left."""
    names = list(names)
    found = axes.boxplot(
        [methods[name].final for name in names],
        tick_labels=[name.replace(" [", "\n[") for name in names],
        patch_artist=True,
        widths=0.6,
        medianprops={"color": "black"},
        flierprops={"markersize": 2.5, "markeredgecolor": "#555555"},
    )
    for box, name in zip(found["boxes"], names, strict=True):
        box.set_facecolor(COLOURS[_base(name)])
        box.set_alpha(0.75)
    for position, name in enumerate(names, start=1):
        reference = _REFERENCES.get(_base(name))
        level = float(np.median(methods[reference].final)) if reference else 0.0
        if level > 1e-6:
            axes.plot([position - 0.42, position + 0.42], [level, level], color="black", linestyle=":")
    if log:
        axes.set_yscale("log")
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(alpha=0.25, axis="y")


def _dimensions(results: Results, names: tuple[str, ...]) -> Any:
    """One row of panels per dimension; the dashed rule is the same in all panels of the left column."""
    shown = [d for d in ex.SHOWN if all(f"{noise} d={d}" in results for noise in NOISES)]
    figure = _figure(11.0, 2.6 * len(shown) + 0.6)
    grid = figure.subplots(len(shown), 2, squeeze=False, sharey="col")
    rule = float(np.median(results[f"normal d={shown[0]}"]["ERM-GD"].final))
    for row, d in zip(grid, shown, strict=True):
        for axes, noise in zip(row, NOISES, strict=True):
            _boxes(axes, results[f"{noise} d={d}"], names, log=noise == "lognormal")
            axes.set_title(f"{NOISE_NAMES[noise]}, d = {d}", fontsize=10)
        row[0].axhline(rule, color="#333333", linestyle="--", linewidth=0.9)
        row[0].set_ylabel("excess risk")
    highest = max(results[f"normal d={d}"][name].final.max() for d in shown for name in names)
    grid[0, 0].set_ylim(0, 1.08 * highest)
    figure.suptitle(
        "Final excess risk. Dashed: ERM-GD's median at the smallest d. Dotted, per box: what descent on the "
        "true risk leaves.",
        fontsize=9,
    )
    return figure


def _large(results: Results) -> Any:
    figure = _figure(10.0, 3.6)
    for axes, noise in zip(figure.subplots(1, 2), NOISES, strict=True):
        _boxes(axes, results[f"{noise} large"], (*ex.BATCH, "DC-SGD"), log=True)
        axes.set_title(f"{NOISE_NAMES[noise]}, n = 64,000, d = 16", fontsize=10)
        axes.set_ylabel("excess risk")
    figure.suptitle("Final excess risk. Dotted, per box: what descent on the true risk leaves.", fontsize=9)
    return figure


def _times(results: Results, proposed: str) -> Any:
    figure = _figure(10.0, 4.2)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, kind in zip(panels, ("growing", "fixed"), strict=True):
        sizes = ex.GROWING if kind == "growing" else ex.DIMENSIONS
        there = [d for d in sizes if f"lognormal {kind} d={d}" in results]
        x = [4000 * d if kind == "growing" else d for d in there]
        for name in (*ex.BATCH, proposed):
            medians = [np.median(results[f"lognormal {kind} d={d}"][name].processor) for d in there]
            axes.plot(x, medians, marker="o", markersize=3.5, label=name, **_style(name))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(alpha=0.25)
        axes.set_xlabel("n, with d = n/4000" if kind == "growing" else f"d, with n = {ex.HIGH_N}")
    panels[0].set_ylabel("median processor seconds")
    _legend(figure, panels[0])
    return figure


def _levels(results: Results, labels: list[dict[str, str]], heading: str) -> Any:
    """Average trajectories of four methods; one row per noise, one line per level."""
    figure = _figure(11.5, 6.2)
    grid = figure.subplots(2, len(_REPRESENTATIVE), sharex=True, sharey="row")
    styles = ((0, (1, 1)), (0, (4, 1.5)), "solid")
    for row, noise, names in zip(grid, NOISES, labels, strict=True):
        for axes, method in zip(row, _REPRESENTATIVE, strict=True):
            for (setting, label), dashes in zip(names.items(), styles, strict=True):
                curves = results[setting][method]
                look = {"color": COLOURS[method], "linestyle": dashes, "linewidth": 1.7}
                thin = {"color": "black", "linestyle": dashes, "linewidth": 0.8}
                reference = results[setting]["true SGD" if method == "DC-SGD" else "true GD"]
                for drawn, how in ((curves, look | {"label": label}), (reference, thin)):
                    costs, excess = _drawn(drawn)
                    axes.plot(costs, excess.mean(axis=0), **how)
            axes.set(xscale="log", yscale="log")
            axes.grid(alpha=0.25)
            axes.set_title(f"{method}, {NOISE_NAMES[noise]}", fontsize=9)
            axes.legend(fontsize=8, loc="lower left")
        values = [results[s][m].excess.mean(axis=0) for s in names for m in _REPRESENTATIVE]
        row[0].set_ylim(min(v.min() for v in values) / 2, 1.5 * max(v.max() for v in values))
        row[0].set_ylabel("average excess risk")
    for axes in grid[1]:
        axes.set_xlabel("cost in gradients")
    figure.suptitle(f"{heading}. Black: descent on the true risk.", fontsize=9)
    return figure


def _cross_scales(results: Results) -> Any:
    """Average trajectories with each scale of validation: rows are noises, columns scales."""
    figure = _figure(11.0, 6.2)
    grid = figure.subplots(2, len(SCALE_DASHES), sharex=True, sharey="row")
    for row, noise in zip(grid, NOISES, strict=True):
        for axes, scale in zip(row, SCALE_DASHES, strict=True):
            for base in ("RV-SGD", "RV-SGDAve", "RV-SGD-CV", "RV-SGDAve-CV"):
                costs, excess = _drawn(_with_scale(results[noise], base, scale))
                axes.plot(costs, excess.mean(axis=0), label=base, color=COLOURS[base], linewidth=1.7)
            axes.set(xscale="log", yscale="log")
            axes.set_title(f"{NOISE_NAMES[noise]}, scale {scale}", fontsize=10)
            axes.grid(alpha=0.25)
        row[0].set_ylabel("average excess risk")
    for axes in grid[1]:
        axes.set_xlabel("cost in gradients")
    _legend(figure, grid[0, 0])
    return figure


def _with_scale(methods: Methods, base: str, scale: str) -> Curves:
    """Return the curves of a scale: by its name, or under the bare name if it is the chosen one."""
    return methods.get(f"{base} [{scale}]") or methods[base]


def _scaled_names(results: Results, base: str) -> tuple[str, ...]:
    return tuple(name for name in results["normal"] if name.startswith(f"{base} [") or name == base)


def _by_level(values: Iterable[object], label: str) -> list[dict[str, str]]:
    names = list(values)
    return [{f"{noise} {value}": f"{label}{value}".strip() for value in names} for noise in NOISES]


_ROBUST = ("RGD-MoM", "RGD-M", "RGD-Lec")
_WALKED = ("SGD", "RV-SGD", "RV-SGDAve")
FIGURES: dict[str, Callable[[Results], dict[str, Any]]] = {
    "sc-e1": lambda r: {
        "sc-e1-normal": _zoomed(r, "normal", ex.SC_METHODS),
        "sc-e1-lognormal": _zoomed(r, "lognormal", ex.SC_METHODS, ("SGD",)),
    },
    "sc-e2": lambda r: {
        "sc-e2-dimensions": _dimensions(r, (*ex.BATCH, "DC-SGD")),
        "sc-e2-large": _large(r),
    },
    "sc-e3": lambda r: {"sc-e3-times": _times(r, "DC-SGD")},
    "sc-e4": lambda r: {
        "sc-e4-starts": _levels(r, _by_level([f"c={c}" for c in ex.STARTS], ""), "Starts in w* ± c")
    },
    "sc-e5": lambda r: {
        "sc-e5-noise": _levels(r, _by_level(LEVELS["normal"], ""), "Noise levels low, med and high")
    },
    "nonsc-e1": lambda r: {
        "nonsc-e1-normal": _zoomed(r, "normal", _WALKED, references=ex.TRUE_RV[1:]),
        "nonsc-e1-lognormal": _zoomed(r, "lognormal", _WALKED, references=ex.TRUE_RV[1:]),
        "nonsc-e1-rgd": _pair(r, ("ERM-GD", *_ROBUST, "RV-SGDAve", "true GD", "true SGDAve")),
        "nonsc-e1-scales": _pair(r, (*_scaled_names(r, "RV-SGD"), *_scaled_names(r, "RV-SGDAve")), 3),
    },
    "nonsc-e2": lambda r: {"nonsc-e2-dimensions": _dimensions(r, (*ex.BATCH, *_rv_names(r)))},
    "nonsc-e3": lambda r: {"nonsc-e3-times": _times(r, "RV-SGDAve")},
    "nonsc-e4": lambda r: {
        "nonsc-e4-cv": _pair(r, ("RV-SGD", "RV-SGDAve", "RV-SGD-CV", "RV-SGDAve-CV", *ex.TRUE_RV[1:])),
        "nonsc-e4-scales": _cross_scales(r),
    },
}


def _rv_names(results: Results) -> tuple[str, ...]:
    return tuple(name for name in next(iter(results.values())) if name.startswith("RV-SGDAve"))


_REAL: dict[str, Callable[[Results], dict[str, Any]]] = {
    "real-e1": lambda r: figures.convex(r, _figure, COLOURS | {"bench": "#777777"}),
    "real-e2": lambda r: figures.models(r, _figure, COLOURS | {"bench": "#777777"}),
}
