"""Sections of a fit's report that need no statistics: how good, what came, which columns and rows matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tailproof.reports import svg
from tailproof.reports.pages import Grid, Section, explained, number, numbers, percent
from tailproof.tables.effects import Effect, partial_effects, predicted_class
from tailproof.tables.measures import Confusion, Group
from tailproof.tables.model import PreparedTable
from tailproof.tables.quality import Drivers, Quality

_MOST_DRIVERS = 10
_WORST = 9.99  # share below which no digit says more
# Measures in the order of the table, their names, and whether they are shares.
_MEASURES = {
    "r2": ("variation explained (R²)", True),
    "deviance_explained": ("deviance explained", True),
    "deviance": ("mean deviance", False),
    "rmse": ("root mean squared error (RMSE)", False),
    "mae": ("mean absolute error (MAE)", False),
    "median_error": ("median absolute error", False),
    "gini": ("Gini index", False),
    "lift": ("lift of the highest tenth", False),
    "accuracy": ("accuracy", True),
    "auc": ("area under the ROC curve (AUC)", False),
    "log_loss": ("log loss", False),
}


def answer_sections(
    rows: PreparedTable, estimator: Any, quality: Quality, drivers: Drivers | None
) -> list[Section]:
    """Everything that comes before the details, as far as there is something to show."""
    sections = [
        quality_section(quality),
        calibration_section(quality.calibration, rows, estimator),
        confusion_section(quality.confusion),
        effects_section(rows, estimator),
        drivers_section(rows, drivers),
    ]
    return [section for section in sections if section is not None]


def quality_section(quality: Quality) -> Section | None:
    """Measures of the model, the plain model and the constant, side by side."""
    if not quality.values:
        return None
    lines = [
        (
            words,
            *(_said(quality.values.get(f"{whose}{name}"), share) for whose in ("", "plain_", "constant_")),
        )
        for name, (words, share) in _MEASURES.items()
        if name in quality.values
    ]
    count = int(quality.values["rows_held_out"])
    words = (
        f"Measured on {count:,} rows that were held out: the same kind of model was fitted to others "
        "and predicted these. The model that was saved is fitted to all rows."
    )
    absent = int(quality.values.get("rows_not_counted", 0))
    if absent:
        words += f" {absent:,} more, which the fit leaves out as errors, are not counted."
    if min(quality.values.get(f"constant_{name}", 0.0) for name in ("r2", "deviance_explained")) < 0:
        words += (
            " A constant is the mean of the rows that it was fitted to, and that of these rows differs a "
            "little: it may explain less than nothing."
        )
    grid = Grid(("", "this model", quality.plain, "a constant"), lines)
    return Section("How good is it?", [words], grid=grid)


def _said(value: float | None, share: bool) -> str:
    if value is None or not np.isfinite(value):
        return "–"
    if share and value < -_WORST:
        return f"below {percent(-_WORST)}"
    return explained(value) if share else number(value)


def calibration_section(groups: Sequence[Group], rows: PreparedTable, estimator: Any) -> Section | None:
    """Predictions against what came, by tenths of the held-out rows."""
    if len(groups) < 2:
        return None
    columns = {name: np.array([getattr(g, name) for g in groups]) for name in vars(groups[0])}
    predicted, actual, low, high = (columns[name] for name in ("predicted", "actual", "low", "high"))
    what = _what(rows, estimator)
    figure = svg.against(predicted, actual, low, high, (f"predicted {what}", f"actual {what}"))
    cells = iter(numbers([*predicted, *actual, *low, *high]))
    shown = [[next(cells) for _ in groups] for _ in range(4)]
    lines = [(f"{j + 1}", p, a, f"{b} to {c}") for j, (p, a, b, c) in enumerate(zip(*shown, strict=True))]
    words = (
        "Held-out rows in groups by their predictions, lowest first. Where the model is right on average, "
        "the dots are near the dashed line; bars are 95% intervals of the actual mean, cut where they "
        "leave the picture."
    )
    grid = Grid(("group", "predicted mean", "actual mean", "95% interval"), lines)
    return Section("Is it right on average?", [words], [figure], grid)


def _what(rows: PreparedTable, estimator: Any) -> str:
    label = predicted_class(estimator, rows)
    return f"mean of {rows.target}" if label is None else f"share of {label}"


def confusion_section(table: Confusion | None) -> Section | None:
    """True classes against predicted ones."""
    if table is None:
        return None
    lines = [
        (label, *(f"{count:,}" for count in counts), percent(counts[j] / max(sum(counts), 1)))
        for j, (label, counts) in enumerate(zip(table.labels, table.counts, strict=True))
    ]
    headings = ("actual", *(f"predicted {label}" for label in table.labels), "right")
    words = "Held-out rows of each class, and which class was predicted for them."
    return Section("Which classes are confused?", [words], grid=Grid(headings, lines))


def effects_section(rows: PreparedTable, estimator: Any) -> Section | None:
    """Mean prediction as one column varies, for the columns that matter most."""
    effects = partial_effects(rows, estimator)
    if not effects:
        return None
    every = np.concatenate([effect.predicted for effect in effects])
    margin = 0.06 * float(np.ptp(every)) or 1.0
    limits = float(every.min()) - margin, float(every.max()) + margin
    words = (
        f"Predicted {_what(rows, estimator)} as one column varies and the others stay as they are, for the "
        "columns that move it most, on one scale. A column may move predictions without being the cause."
    )
    return Section("Which columns matter?", [words], [_drawn(effect, limits) for effect in effects])


def _drawn(effect: Effect, limits: tuple[float, float]) -> str:
    if isinstance(effect.values, list):
        return svg.levels(effect.name, effect.values, effect.predicted, limits)
    return svg.curve(effect.name, effect.values, effect.predicted, limits, effect.are_days)


def drivers_section(rows: PreparedTable, drivers: Drivers | None) -> Section | None:
    """Rows with most of the squared error, by their numbers in the data."""
    if drivers is None or not drivers.few:
        return None
    shown = drivers.rows[:_MOST_DRIVERS]
    lines = [
        (f"row {rows.rows[i] + 1:,}", number(float(rows.y[i])), number(float(p)))
        for i, p in zip(shown, drivers.predicted, strict=False)
    ]
    words = (
        f"{drivers.sentence()} Least squares would follow them more than all others together; "
        "are they true? Rows are counted from 1, as in the data."
    )
    left = drivers.rows.size - shown.size
    notes = [f"{left:,} more are not shown."] if left else []
    grid = Grid(("", f"actual {rows.target}", "predicted"), lines)
    return Section("Which rows drive the result?", [words], grid=grid, notes=notes)
