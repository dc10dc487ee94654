"""The figures of sections 4.1 and 4.2; ``FIGURES`` lists what each experiment draws.

One colour per method in all of them. Black lines are gradient descent on the true risk: optimisation error
alone, so that what a method has above them is statistical error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tailproof.paper import experiments as ex
from tailproof.paper.beyond.figures import BEYOND_FIGURES
from tailproof.paper.measures import ROBUST
from tailproof.paper.panels import (
    COLOURS,
    COST,
    NOISE_NAMES,
    SCALE_DASHES,
    STATISTIC_NAMES,
    boxes,
    fit_log_axis,
    legend,
    line,
    lines,
    new_figure,
    panels,
    style,
    tidy_ticks,
)
from tailproof.paper.real.figures import REAL_FIGURES
from tailproof.paper.simulated import LEVELS, NOISES
from tailproof.paper.store import Methods, Results, Store

Figures = dict[str, Any]
_HIGH = (*ex.BATCH[:3], "RGD-M [sd]", "RGD-Lec", "DC-SGD")
_REPRESENTATIVE = ("ERM-GD", "RGD-MoM", "RGD-M", "DC-SGD")
_DPI = 110
_BOXES = "Final excess risk. Dotted, per box: what descent on the true risk leaves."


def draw(store: Store, results: Results, folder: Path) -> list[Path]:
    """Write the figures of an experiment as PNG files; return which."""
    new_figure(1, 1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, figure in (FIGURES | REAL_FIGURES | BEYOND_FIGURES)[store.experiment.name](results).items():
            tidy_ticks(figure)
            figure.supxlabel(_footnote(store, results), fontsize=7, color="#444444")
            file = folder / (f"{name}@{store.tag}.png" if store.tag else f"{name}.png")
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
    about_real = f"seed={choices.seed} rows={choices.rows or 'all'} start={choices.start}"
    made = choices.spelled_out() if store.experiment.run_many is None else about_real
    return f"{store.experiment.name}: {trials} trial{'s' * (trials != '1')} of each setting\n{made}"


def _zoomed(
    results: Results,
    noise: str,
    names: tuple[str, ...],
    without: tuple[str, ...] = (),
    references: tuple[str, ...] = ex.TRUE,
) -> Any:
    """Average and standard deviation against cost; on the right the part between the dashed lines."""
    methods = results[noise]
    figure, grid = panels((9.5, 6.4), 2, 2, COST, [f"excess risk, {s}" for s in STATISTIC_NAMES.values()])
    kept = [name for name in names if name not in without]
    first, last = 2.0 * ex.SMALL_N, float(methods[names[0]].costs[-1])
    for row, statistic in zip(grid, STATISTIC_NAMES, strict=True):
        lines(row[0], methods, (*names, *references), statistic)
        lines(row[1], methods, (*kept, *references), statistic)
        for edge in (first, last):
            row[0].axvline(edge, color="#333333", linestyle="--", linewidth=0.8)
        row[1].set_xlim(first, last)
        shown = [methods[n].over_trials(statistic)[methods[n].costs >= first] for n in kept]
        fit_log_axis(row[1], shown, 0.7, 1.3)
    left_out = f" (without {', '.join(without)})" if without else ""
    grid[0, 0].set_title(NOISE_NAMES[noise], fontsize=10)
    grid[0, 1].set_title(f"between the dashed lines, log scale{left_out}", fontsize=10)
    legend(figure, grid[0, 0])
    return figure


def _pair(results: Results, names: tuple[str, ...], columns: int = 8) -> Any:
    """Average and standard deviation, Normal noise on the left and log-Normal on the right."""
    figure, grid = panels((9.5, 6.4), 2, 2, COST, "excess risk", sharex=True)
    # True SGD goes to zero: the panels keep to where the methods are.
    noisy = [name for name in names if not name.startswith("true")]
    for row, (statistic, title) in zip(grid, STATISTIC_NAMES.items(), strict=True):
        for axes, noise in zip(row, NOISES, strict=True):
            lines(axes, results[noise], names, statistic)
            axes.set_title(f"{NOISE_NAMES[noise]}: {title}", fontsize=10)
            fit_log_axis(axes, [results[noise][n].over_trials(statistic) for n in noisy], 0.5, 1.5)
    legend(figure, grid[0, 0], columns)
    return figure


def _dimensions(results: Results, names: tuple[str, ...]) -> Any:
    """One row of panels per dimension; the dashed rule is the same in all panels of the left column."""
    shown = [d for d in ex.SHOWN if all(f"{noise} d={d}" in results for noise in NOISES)]
    figure, grid = panels(
        (2.6 + 1.25 * len(names), 2.6 * len(shown) + 0.6), len(shown), 2, "", "excess risk", sharey="col"
    )
    rule = float(np.median(results[f"normal d={shown[0]}"]["ERM-GD"].final))
    for row, d in zip(grid, shown, strict=True):
        for axes, noise in zip(row, NOISES, strict=True):
            boxes(axes, results[f"{noise} d={d}"], names, log=noise == "lognormal")
            axes.set_title(f"{NOISE_NAMES[noise]}, d = {d}", fontsize=10)
        row[0].axhline(rule, color="#333333", linestyle="--", linewidth=0.9)
    highest = max(results[f"normal d={d}"][name].final.max() for d in shown for name in names)
    grid[0, 0].set_ylim(0, 1.08 * highest)
    figure.suptitle(f"{_BOXES} Dashed: ERM-GD's median at the smallest d.", fontsize=9)
    return figure


def _large(results: Results) -> Any:
    figure, grid = panels((10.0, 3.6), 1, 2, "", "excess risk")
    for axes, noise in zip(grid[0], NOISES, strict=True):
        boxes(axes, results[f"{noise} large"], _HIGH, log=True)
        axes.set_title(f"{NOISE_NAMES[noise]}, n = 64,000, d = 16", fontsize=10)
    figure.suptitle(_BOXES, fontsize=9)
    return figure


def _times(results: Results, proposed: str) -> Any:
    """Processor time of one thread above, time on the clock with two workers below."""
    labels = ["median processor seconds", "median seconds on the clock"]
    figure, grid = panels((10.0, 7.4), 2, 2, "", labels, sharex="col", sharey="row")
    one = (*ex.BATCH, proposed)
    parallel = tuple(f"{proposed}, 2 {workers}" for workers in ("threads", "processes"))
    kinds = {
        "growing": (ex.GROWING, 4000, "n, with d = n/4000"),
        "fixed": (ex.DIMENSIONS, 1, f"d, with n = {ex.HIGH_N:,}"),
    }
    for column, (kind, (sizes, unit, label)) in zip(grid.T, kinds.items(), strict=True):
        there = {unit * d: results[at] for d in sizes if (at := f"lognormal {kind} d={d}") in results}
        for axes, what, names in zip(column, ("processor", "seconds"), (one, one + parallel), strict=True):
            for name in names:
                _median_times(axes, there, name, what)
            axes.set_yscale("log")
        column[1].set_xscale("log", base=2)
        column[1].set_xlabel(label)
        every = list(there)[:: 1 if len(there) < 8 else 2]
        column[1].set_xticks(every, [f"{size:,}" for size in every])
    legend(figure, grid[1, 0])
    return figure


def _median_times(axes: Any, there: Mapping[int, Methods], name: str, what: str) -> None:
    """Draw one method where it was timed: trials of earlier versions lack the worker processes."""
    medians = {size: np.median(getattr(m[name], what)) for size, m in there.items() if name in m}
    how = style(name) | {"linewidth": 1.6, "marker": "o", "markersize": 3.5}
    axes.plot(list(medians), list(medians.values()), label=name, **how)


def _levels(results: Results, levels: Iterable[str], heading: str) -> Any:
    """Average trajectories of four methods; one row per noise, one line per level."""
    columns, label = len(_REPRESENTATIVE), "average excess risk"
    figure, grid = panels((11.5, 6.2), 2, columns, COST, label, sharex=True, sharey="row")
    styles = dict(zip(levels, ((0, (1, 1)), (0, (4, 1.5)), "solid"), strict=True))
    for row, noise in zip(grid, NOISES, strict=True):
        for axes, method in zip(row, _REPRESENTATIVE, strict=True):
            for level, dashes in styles.items():
                methods = results[f"{noise} {level}"]
                reference = methods["true SGD" if method == "DC-SGD" else "true GD"]
                line(axes, methods[method], **style(method) | {"linestyle": dashes}, label=level)
                line(axes, reference, color="black", linestyle=dashes, linewidth=0.8)
            axes.set_title(f"{method}, {NOISE_NAMES[noise]}", fontsize=9)
            axes.legend(fontsize=8, loc="lower left")
        drawn = [results[f"{noise} {v}"][m].excess.mean(axis=0) for v in styles for m in _REPRESENTATIVE]
        for axes in row:
            fit_log_axis(axes, drawn, 0.5, 1.5)
    figure.suptitle(f"{heading}. Black: descent on the true risk.", fontsize=9)
    return figure


def _cross_scales(results: Results) -> Any:
    """Average trajectories with each scale of validation: rows are noises, columns scales."""
    label = "average excess risk"
    figure, grid = panels((11.0, 6.2), 2, len(SCALE_DASHES), COST, label, sharex=True, sharey="row")
    for row, noise in zip(grid, NOISES, strict=True):
        for axes, scale in zip(row, SCALE_DASHES, strict=True):
            for base in ("RV-SGD", "RV-SGDAve", "RV-SGD-CV", "RV-SGDAve-CV"):
                # Under the bare name if it is the chosen scale.
                curves = results[noise].get(f"{base} [{scale}]") or results[noise][base]
                line(axes, curves, label=base, color=COLOURS[base], linewidth=1.7)
            axes.set_yscale("log")
            axes.set_title(f"{NOISE_NAMES[noise]}, scale {scale}", fontsize=10)
    legend(figure, grid[0, 0])
    return figure


def _readings(results: Results, *families: Iterable[str]) -> Any:
    """Final excess risk of methods under every reading of the paper; one row per noise."""
    names = [name for family in families for name in family if name in results["normal"]]
    figure, grid = panels((12.5, 7.0), 2, 1, "", "excess risk at the end")
    for (axes,), noise in zip(grid, NOISES, strict=True):
        boxes(axes, results[noise], names, log=True)
        axes.set_title(NOISE_NAMES[noise], fontsize=10)
    figure.suptitle(_BOXES, fontsize=9)
    return figure


def _scaled(methods: Methods, base: str, *more: str) -> tuple[str, ...]:
    """Return a method with every scale of validation, and with other readings."""
    return tuple(n for n in (base, *(f"{base} [{tag}]" for tag in (*ex.SCALES, *more))) if n in methods)


_RV = ("RV-SGD", "RV-SGDAve")
_BATCH_READINGS = ("RGD-MoM", "RGD-M", "RGD-M [sd]", "RGD-Lec")
FIGURES: dict[str, Callable[[Results], Figures]] = {
    "sc-e1": lambda r: {
        "sc-e1-normal": _zoomed(r, "normal", ex.SC_METHODS),
        "sc-e1-lognormal": _zoomed(r, "lognormal", ex.SC_METHODS, ("SGD",)),
        "sc-e1-readings": _readings(r, _BATCH_READINGS, ("DC-SGD",), ex.DC_READINGS[1:]),
    },
    "sc-e2": lambda r: {
        "sc-e2-dimensions": _dimensions(r, _HIGH),
        "sc-e2-large": _large(r),
    },
    "sc-e3": lambda r: {"sc-e3-times": _times(r, "DC-SGD")},
    "sc-e4": lambda r: {"sc-e4-starts": _levels(r, [f"c={c}" for c in ex.STARTS], "Starts in w* ± c")},
    "sc-e5": lambda r: {"sc-e5-noise": _levels(r, LEVELS["normal"], "Noise levels low, med and high")},
    "nonsc-e1": lambda r: {
        "nonsc-e1-normal": _zoomed(r, "normal", ("SGD", *_RV), references=ex.TRUE_RV[1:]),
        "nonsc-e1-lognormal": _zoomed(r, "lognormal", ("SGD", *_RV), references=ex.TRUE_RV[1:]),
        "nonsc-e1-rgd": _pair(r, ("ERM-GD", *ROBUST, "RV-SGDAve", "true GD", "true SGDAve")),
        "nonsc-e1-scales": _pair(r, tuple(n for base in _RV for n in _scaled(r["normal"], base)), 3),
        "nonsc-e1-readings": _readings(
            r, _BATCH_READINGS, _scaled(r["normal"], "RV-SGDAve", *ex.RV_READINGS, "each")
        ),
    },
    "nonsc-e2": lambda r: {
        "nonsc-e2-dimensions": _dimensions(r, (*_HIGH[:-1], *_scaled(next(iter(r.values())), "RV-SGDAve")))
    },
    "nonsc-e3": lambda r: {"nonsc-e3-times": _times(r, "RV-SGDAve")},
    "nonsc-e4": lambda r: {
        "nonsc-e4-cv": _pair(r, (*_RV, "RV-SGD-CV", "RV-SGDAve-CV", *ex.TRUE_RV[1:])),
        "nonsc-e4-scales": _cross_scales(r),
        "nonsc-e4-readings": _readings(
            r, *(_scaled(r["normal"], base, *ex.RV_READINGS) for base in ("RV-SGDAve", "RV-SGDAve-CV"))
        ),
    },
}
