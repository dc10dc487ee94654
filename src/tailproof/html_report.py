"""What ``fit``, ``compare`` and ``demo`` found, as pages: verdict first, then what it rests on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from tailproof import drawings, fitting
from tailproof.boost import FAR
from tailproof.diagnose import TailReport
from tailproof.linear import DCSGDClassifier, DCSGDRegressor
from tailproof.model_selection import Comparison
from tailproof.pages import Grid, Page, Section, number, spans
from tailproof.plots import CandidatesDisplay
from tailproof.table_model import Task

Array = NDArray[np.floating]
_MOST_ROWS = 25  # of the longer tables
_TAILS_SHOWN = 15
_ROWS_OF_A_BLOCK = 5


def fit_page(
    task: Task, estimator: Any, tails: TailReport, code: Sequence[tuple[str, str]], source: str
) -> Page:
    """Everything about one fit on a table."""
    blocks = _with_blocks(task, estimator)
    own = list(estimator.report_.sections())
    spread = [] if blocks is estimator else blocks.report_.sections()[:-1]
    sections = [
        *own[:-1],
        tails_section(tails),
        *spread,
        *([cloud_section(blocks, blocks is not estimator)] if _merges(blocks) else []),
        *([stand_out_section(task, blocks)] if _merges(blocks) else []),
        coefficients_section(task, estimator, blocks),
        own[-1],
        columns_section(task),
        reproduce_section(code),
    ]
    facts = [
        ("rows", f"{task.X.shape[0]:,}"),
        ("columns of numbers", f"{task.X.shape[1]:,}"),
        ("task", task.task),
        ("model", type(estimator).__name__),
        ("tails of the gradients", tails.verdict),
    ]
    verdict = [*estimator.report_.verdict(), tails.recommendation]
    kept = [section for section in sections if section is not None]
    return Page(f"A model of {task.target}", source, verdict, facts, kept)


def compare_page(
    task: Task, found: Comparison, tails: TailReport, code: Sequence[tuple[str, str]], source: str
) -> Page:
    """Models side by side on a table."""
    facts = [
        ("rows", f"{task.X.shape[0]:,}"),
        ("columns of numbers", f"{task.X.shape[1]:,}"),
        ("task", task.task),
        ("best", found.names[found.best]),
        ("tails of the gradients", tails.verdict),
    ]
    sections = [
        comparison_section(found),
        tails_section(tails),
        columns_section(task),
        reproduce_section(code),
    ]
    # What to use has just been measured; the tails only say why.
    verdict = [*comparison_verdict(found), f"Tails of the gradients: {tails.verdict}."]
    return Page(f"Models of {task.target}", source, verdict, facts, sections)


def comparison_verdict(found: Comparison) -> list[str]:
    """Which model is best, which cannot be told from it, and which are worse, in sentences."""
    rows = found.rows()
    best = found.names[found.best]
    others = [row for row in rows if row["model"] != best]
    same = [row["model"] for row in others if not row["difference_low"] > 0]
    worse = [row for row in others if row["difference_low"] > 0]
    risk = number(float(found.risk[found.best]))
    said = [f"{best} predicts best: its expected loss is {risk}."]
    if same:
        said.append(f"These rows cannot tell it from {_listed(same)}.")
    if worse:
        words = [f"{row['model']} (by {number(row['difference'])})" for row in worse]
        said.append(f"It is better than {_listed(words)}, beyond chance.")
    return said


def comparison_section(found: Comparison) -> Section:
    """Risks, and paired differences to the best, with intervals."""
    rows, order = found.rows(), np.argsort(found.difference, kind="stable")
    bars = spans(*(getattr(found, name)[order] for name in _DIFFERENCE), zero=True)
    lines = [
        (
            row["model"],
            bar,
            number(row["difference"]),
            number(row["risk"]),
            f"{number(row['low'])} to {number(row['high'])}",
            f"{row['fit_seconds']:.3g}",
        )
        for row, bar in zip(rows, bars, strict=True)
    ]
    words = (
        f"Expected loss of each model on rows that it did not see, by a robust mean ({found.mean}), and its "
        "difference to the best, row by row: what is hard for all models cancels. An interval that does not "
        "touch the line is a difference beyond chance."
    )
    headings = ("model", "difference with interval", "worse by", "expected loss", "interval", "seconds a fit")
    best = int(np.flatnonzero(order == found.best)[0])
    return Section("Models, best first", [words], grid=Grid(headings, lines, best))


_DIFFERENCE = ("difference", "difference_low", "difference_high")


def tails_section(tails: TailReport) -> Section:
    """Figures of the losses and the gradients, and the table."""
    shown = {"the target": tails.target, "losses": tails.losses, "gradients": tails.gradients}
    figures = [drawings.tail_path(tail, name) for name, tail in shown.items() if _has_path(tail)]
    rows = tails.rows()
    headings = list(rows[0]) if rows else []
    lines = [[_cell(value) for value in row.values()] for row in rows[:_TAILS_SHOWN]]
    words = (
        "The smaller the tail index, the heavier the tail: below 2 the variance is infinite. A curve that "
        "stays level can be trusted. Gradients decide whether robust learning pays."
    )
    left = len(rows) - len(lines)
    notes = [f"{left} features with lighter tails are not shown."] if left else []
    return Section("How heavy are the tails?", [words], figures, Grid(headings, lines), notes=notes)


def cloud_section(blocks: Any, second: bool) -> Section:
    """Candidates in the plane in which they differ most."""
    shown = CandidatesDisplay.gaps_of(blocks)
    words = "Candidates (blue) in the plane in which they differ most, around the merged model (red)."
    if second:
        words += " They are those of DC-SGD on the same rows, as a second look at the data."
    edge = (
        f"The dashed circle holds most of them; beyond the outer one, {FAR:g} times as wide, one stands out."
    )
    figure = drawings.cloud(shown.points, shown.distances, shown.radius, FAR)
    return Section("Candidates around the merged model", [words, edge], [figure])


def stand_out_section(task: Task, blocks: Any) -> Section:
    """Blocks that stand out, and the rows in them that the model fits worst."""
    standing = blocks.report_.stand_out
    if standing is None or standing.size == 0:
        words = f"None of the {blocks.report_.k} blocks stands out."
        return Section("Blocks that stand out", [words])
    held = rows_of_blocks(blocks, task.X)
    losses = _row_losses(blocks, task)
    lines = []
    for j in standing[:_MOST_ROWS]:
        worst = held[j][np.argsort(-losses[held[j]], kind="stable")[:_ROWS_OF_A_BLOCK]]
        named = ", ".join(f"{task.rows[i] + 1:,} ({task.target} = {_cell(task.y[i])})" for i in worst)
        lines.append((f"block {j}", f"{held[j].size:,}", named))
    words = (
        "Their candidates are more than three majority radii away. The rows with the largest losses in each "
        "are the first to look at; rows are counted from 1, as in the data."
    )
    grid = Grid(("block", "rows", "largest losses: row (target)"), lines)
    return Section("Blocks that stand out", [words], grid=grid)


def coefficients_section(task: Task, estimator: Any, blocks: Any) -> Section:
    """Coefficients by what they matter, with the middle 80% of the candidates' values."""
    if not hasattr(estimator, "coef_"):
        return Section("Coefficients", ["The chosen model is not linear: it has no coefficients."])
    coef = np.atleast_2d(estimator.coef_)
    names = task.encoding.names
    labels = _classes_with_coefficients(estimator, len(coef))
    matter = np.abs(coef) * task.X.std(axis=0)
    order = np.argsort(-matter.ravel(), kind="stable")[:_MOST_ROWS]
    everyone = [f"{label}{name}" for label, name in product(labels, names)]
    low, high = _spread(blocks, coef)
    unit = np.tile(task.X.std(axis=0), len(coef))[order]
    bars = spans(*(unit * ends[order] for ends in (coef.ravel(), low, high)), zero=True)
    lines = [
        (everyone[j], bar, number(float(coef.ravel()[j])), number(float(matter.ravel()[j])))
        for j, bar in zip(order, bars, strict=True)
    ]
    words = (
        "Coefficients for the data as given, by what they matter: coefficient times standard deviation of "
        "its column. The bar is that, with the middle 80% of the candidates."
    )
    left = coef.size - order.size
    notes = [f"{left} that matter less are not shown."] if left > 0 else []
    grid = Grid(("column", "spread over candidates", "coefficient", "matters"), lines)
    return Section("Coefficients", [words], grid=grid, notes=notes)


def columns_section(task: Task) -> Section:
    """How every column became numbers."""
    lines = [(column.name, column.kind, _said(column)) for column in task.encoding.columns[:_MOST_ROWS]]
    left = len(task.encoding.columns) - len(lines)
    notes = [f"{left} more columns are not shown."] if left else []
    if task.encoding.left_out:
        some = ", ".join(task.encoding.left_out[:_MOST_ROWS])
        notes.append(f"Left out, since they hold one value only, or rare texts: {some}.")
    return Section("Columns", grid=Grid(("column", "kind", "became"), lines), notes=notes)


def reproduce_section(code: Sequence[tuple[str, str]]) -> Section:
    """Commands that lead to the same page."""
    return Section("How to reproduce it", code=list(code))


def demo_page(
    excess: Mapping[str, Sequence[float]], seconds: Mapping[str, float], words: str, code: str
) -> Page:
    """Excess risk of the models of the demo over its draws."""
    table = demo_table(excess, seconds)
    best = int(np.argmin([np.quantile(values, 0.95) for values in excess.values()]))
    figure = demo_figure(excess)
    names = list(excess)
    worst = float(np.quantile(excess[names[0]], 0.95) / np.quantile(excess[names[best]], 0.95))
    verdict = [
        f"In a bad draw (1 in 20), {names[0]} is {worst:.1f} times as far from the best possible model as "
        f"{names[best]}.",
        "The noise is heavy-tailed: a few rows decide what an ordinary fit returns.",
    ]
    grid = Grid(
        ("model", "median", "95%", "seconds a fit"),
        [(name, f"{middle:.3f}", f"{most:.3f}", f"{time:.3f}") for name, middle, most, time in table],
        best,
    )
    section = Section("Excess risk", [words], [figure], grid)
    return Page(
        "Heavy tails, made on the spot",
        "tailproof demo",
        verdict,
        (),
        [section, reproduce_section([("Shell", code)])],
    )


def demo_table(
    excess: Mapping[str, Sequence[float]], seconds: Mapping[str, float]
) -> list[tuple[str, float, float, float]]:
    """Model, median and 95% point of its excess risk, seconds a fit."""
    points = {name: np.quantile(values, [0.5, 0.95]) for name, values in excess.items()}
    return [(name, float(points[name][0]), float(points[name][1]), seconds[name]) for name in excess]


def demo_figure(excess: Mapping[str, Sequence[float]]) -> str:
    """One dot for each draw and model."""
    return drawings.strips(excess, "excess risk (lower is better)", "A dot a draw; bar: median; red: 95%")


def rows_of_blocks(model: Any, X: Array) -> list[NDArray[np.intp]]:
    """Rows of every block of a fit, dealt again from the seed in its report."""
    seed = np.random.SeedSequence(model.report_.seed)
    trained, _ = model._rows(len(X), seed)
    parts = fitting.blocks_of(trained, len(X), model.report_.k, seed, model.shuffle, fitting.row_bytes(X))
    return [part.rows for part in parts]


def _with_blocks(task: Task, estimator: Any) -> Any:
    """The estimator, or DC-SGD on the same rows if it makes no blocks, or a cluster dealt its rows."""
    if hasattr(estimator, "candidates_") and not estimator.report_.data:
        return estimator
    if is_classifier(estimator):
        return DCSGDClassifier(random_state=0).fit(task.X, task.y)
    return DCSGDRegressor(loss=estimator.loss, random_state=0).fit(task.X, task.y)


def _merges(model: Any) -> bool:
    return model.report_.radius is not None


def _row_losses(model: Any, task: Task) -> Array:
    if is_classifier(model):
        own = np.searchsorted(model.classes_, task.y)
        scores = np.atleast_2d(model.decision_function(task.X).T).T
        if scores.shape[1] == 1:
            return np.where(own == 1, -scores[:, 0], scores[:, 0])
        return scores.max(axis=1) - scores[np.arange(len(own)), own]
    return np.abs(task.y - model.predict(task.X))


def _spread(blocks: Any, coef: Array) -> tuple[Array, Array]:
    values = np.asarray(blocks.candidates_)[..., :-1].reshape(len(blocks.candidates_), -1)
    if values.shape[1] != coef.size:
        return coef.ravel(), coef.ravel()
    low, high = np.quantile(values, [0.1, 0.9], axis=0)
    return low, high


def _classes_with_coefficients(estimator: Any, count: int) -> list[str]:
    return [""] if count == 1 else [f"{label}: " for label in estimator.classes_]


def _has_path(tail: Any) -> bool:
    return tail is not None and len(tail.path_sizes) > 1


def _said(column: Any) -> str:
    if column.kind == "category":
        shown = ", ".join(column.levels[:8]) + (", ..." if len(column.levels) > 8 else "")
        return f"{len(column.levels)} columns of 0 and 1 ({shown}); against {column.reference}"
    missing = f", missing ones {number(column.fill)} and marked" if column.indicator else ""
    return {"date": "days"}.get(column.kind, "itself") + missing


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return number(float(value))
    # Tails report their indices as text.
    return re.sub(r"\binf\b", "∞", str(value)).replace("∞ to ∞", "∞")


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
