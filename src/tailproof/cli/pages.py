"""HTML reports of ``fit``, ``compare`` and ``demo``: the verdict first, then the evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from tailproof.cli.answers import answer_sections
from tailproof.core import Array
from tailproof.core.algorithms import FAR
from tailproof.core.automatic import blocks_sentence
from tailproof.core.tails import HEAVY, INFINITE, LIGHT, UNKNOWN
from tailproof.diagnose import TailReport
from tailproof.estimators.linear.blocks_of_fit import rows_of_blocks
from tailproof.estimators.linear.estimators import DCSGDClassifier, DCSGDRegressor
from tailproof.model_selection.compare import Comparison
from tailproof.plots import CandidatesDisplay
from tailproof.reports import svg
from tailproof.reports.pages import Grid, Page, Section, number, numbers, percent, spans
from tailproof.tables.leading import leading_rows
from tailproof.tables.measures import POWERS
from tailproof.tables.model import REGRESSION, PreparedTable
from tailproof.tables.quality import Drivers, Quality

_TAILS_SAID = {
    UNKNOWN: "There are too few rows to tell how heavy the tails are.",
    LIGHT: "The tails are light: least squares, or the usual loss, would do as well.",
    HEAVY: "The tails are heavy: an ordinary fit follows a few rows more than all others.",
    INFINITE: (
        "The tails are so heavy that a mean is hard to know from so many rows: trust the order of the "
        "predictions more than their size. The logarithm of a positive target, or a loss such as huber, "
        "would be easier to learn."
    ),
}
_DETAILS = (
    "How the model was found, in the words of the method: candidates are fits to parts of the rows or with "
    "other settings, blocks are those parts, and gradients say how much each row pulls at a fit."
)
# What models are called where no class is meant.
_MODEL_NAMES = {
    **dict.fromkeys(("DCSGDRegressor", "DCSGDClassifier"), "DC-SGD"),
    **dict.fromkeys(("RVSGDRegressor", "RVSGDClassifier"), "RV-SGD"),
}
_REPRODUCE = "How to reproduce it"
_CONSTANT = "constant"  # the model that learns nothing
_MOST_ROWS = 25  # of the longer tables
_TAILS_SHOWN = 15
_LIGHT_SHOWN = 5  # features, where none or few have heavy tails
_ROWS_OF_A_BLOCK = 5
_ROWS_SHOWN = 20  # that count least


def fit_page(
    rows: PreparedTable,
    estimator: Any,
    tails: TailReport,
    code: Sequence[tuple[str, str]],
    source: str,
    quality: Quality | None = None,
    drivers: Drivers | None = None,
    details: Sequence[str] | None = None,
) -> Page:
    """Everything about one fit on a table: answers first, the words of the paper under "Details"."""
    blocks = _with_blocks(rows, estimator)
    candidates, how_fitted = estimator.report_.sections()[:-1], estimator.report_.sections()[-1]
    spread = [] if blocks is estimator else blocks.report_.sections()[:-1]
    merges, verdict = blocks.report_.radius is not None, estimator.report_.verdict()
    answers = [] if quality is None else answer_sections(rows, estimator, quality, drivers)
    sections = [
        *answers,
        coefficients_section(rows, estimator),
        *rows_section(rows, estimator),
        columns_section(rows),
        Section(_REPRODUCE, code=list(code)),
        Section("Details", [_DETAILS, *(verdict if details is None else details)], opens_part=True),
        *candidates,
        tails_section(tails),
        *spread,
        *(
            [cloud_section(blocks, blocks is not estimator), stand_out_section(rows, blocks)]
            if merges
            else []
        ),
        how_fitted,
    ]
    # Advice on what to use would come too late: a model has just been fitted.
    said = drivers is not None and (drivers.few or tails.verdict == LIGHT)  # heavy tails are said below
    sentences = [*(quality.sentences if quality else []), *([drivers.sentence()] if drivers and said else [])]
    name = type(estimator).__name__
    facts = _facts(rows, ("model", _MODEL_NAMES.get(name, name)), tails)
    return Page(
        f"A model of {rows.target}", source, [*sentences, _TAILS_SAID[tails.verdict]], facts, sections
    )


def compare_page(
    rows: PreparedTable,
    comparison: Comparison,
    loss: str,
    tails: TailReport,
    code: Sequence[tuple[str, str]],
    source: str,
) -> Page:
    """Models side by side on a table."""
    sections = [
        comparison_section(comparison, loss),
        tails_section(tails),
        columns_section(rows),
        Section(_REPRODUCE, code=list(code)),
    ]
    # What to use has just been measured; the tails only say why.
    verdict = [*comparison_verdict(comparison, loss), _TAILS_SAID[tails.verdict]]
    facts = _facts(rows, ("best", comparison.names[comparison.best]), tails)
    return Page(f"Models of {rows.target}", source, verdict, facts, sections)


def _facts(rows: PreparedTable, model: tuple[str, str], tails: TailReport) -> list[tuple[str, str]]:
    n, d = rows.X.shape
    size = [("rows", f"{n:,}"), ("columns of numbers", f"{d:,}"), ("task", rows.task)]
    return [*size, model, ("tails", tails.verdict)]


def comparison_verdict(comparison: Comparison, loss: str) -> list[str]:
    """Which model is best, which cannot be told from it, and which are worse, in sentences."""
    rows = comparison.rows()
    best = comparison.names[comparison.best]
    infinite = [row["model"] for row in rows if row["difference"] == np.inf]
    others = [row for row in rows if row["model"] not in (best, *infinite)]
    same = [row["model"] for row in others if not row["difference_low"] > 0]
    worse = [row for row in others if row["difference_low"] > 0]
    sentences = [f"{best} predicts best: {_risk_said(loss, float(comparison.risk[comparison.best]))}."]
    if others and _CONSTANT in (best, *same):
        sentences.insert(
            0, "Nothing beats a constant, beyond chance: the other columns do not help to predict."
        )
    if same:
        sentences.append(f"These rows cannot tell it from {_listed(same)}.")
    if worse:
        least = float(comparison.risk[comparison.best])
        words = [f"{row['model']} (by {_gap_said(loss, row['difference'], least)})" for row in worse]
        sentences.append(f"It is better than {_listed(words)}, beyond chance.{_unit_said(loss)}")
    if infinite:
        sentences.append(f"Out of the running, with losses that are not finite: {_listed(infinite)}.")
    return sentences


def _gap_said(loss: str, gap: float, least: float) -> str:
    """A difference of expected losses: in percent of the least of them, if zero is a perfect prediction's."""
    return percent(gap / least) if least > 0 and loss not in POWERS else number(gap)


def _unit_said(loss: str) -> str:
    """What differences are where they have no percentage: these losses lack a term that models share."""
    return " Twice such a difference is one of mean deviance." if loss in POWERS else ""


def diagnose_page(
    rows: PreparedTable,
    tails: TailReport,
    advice: Sequence[str],
    code: Sequence[tuple[str, str]],
    source: str,
) -> Page:
    """How heavy the tails of a table are."""
    sections = [tails_section(tails), columns_section(rows), Section(_REPRODUCE, code=list(code))]
    facts = _facts(rows, ("blocks of DC-SGD", str(tails.k)), tails)
    return Page(f"Tails of {rows.target}", source, list(advice), facts, sections)


def advice_in_commands(tails: TailReport, task: str, data: str) -> list[str]:
    """What to do about the tails, as commands."""
    plain = "least squares" if task == REGRESSION else "the usual loss"
    advice = {
        UNKNOWN: "Too few rows, or too few values that differ, to tell how heavy the tails are.",
        LIGHT: f"Light tails: {plain} is fine, and a robust method costs a little accuracy at most.",
        HEAVY: f"Heavy tails: a few rows decide what {plain} returns.",
        INFINITE: (
            f"Very heavy tails: a few rows decide what {plain} returns, and the mean itself is hard to know. "
            "The logarithm of a positive target, or --method dc --loss huber, would be easier to learn."
        ),
    }
    fit = f"Fit a robust model: tailproof fit {data} --out model."
    blocks = f"With --method dc: {blocks_sentence(tails.k, tails.why_k)}"
    compare = f"See what it is worth: tailproof compare {data} --report report.html."
    robust = [fit, blocks] if tails.verdict in (HEAVY, INFINITE) else []
    return [advice[tails.verdict], *_leverage_said(tails), *robust, compare]


def _leverage_said(tails: TailReport) -> list[str]:
    if tails.leverage is None or tails.leverage.size == 0:
        return []
    named = ", ".join(f"{row + 1:,}" for row in tails.leverage[:5]) + ", ..." * (tails.leverage.size > 5)
    return [
        f"{tails.leverage.size:,} rows (counted from 1: {named}) are far from the others in their columns "
        "and off what the others predict for them. If they are errors, correct them, or fit the others with "
        "--contamination 0.25; if they are real, one linear model does not fit both."
    ]


def _risk_said(loss: str, risk: float) -> str:
    if loss == "squared_error":
        root = number(float(np.sqrt(2 * max(risk, 0.0))))
        return f"its expected loss, half the squared error, is {number(risk)}, an error of about {root}"
    return f"its expected loss ({loss.replace('_', ' ')}) is {number(risk)}"


def comparison_section(comparison: Comparison, loss: str) -> Section:
    """Risks, and paired differences to the best, with intervals."""
    rows, order = comparison_cells(comparison), np.argsort(comparison.difference, kind="stable")
    bars = spans(*(getattr(comparison, name)[order] for name in _DIFFERENCE), zero=True)
    lines = [
        (row["model"], bar, row["worse by"], row["loss"], row["interval"], row["seconds"])
        for row, bar in zip(rows, bars, strict=True)
    ]
    words = (
        f"Expected loss ({loss.replace('_', ' ')}) of each model on rows that it did not see, by a robust "
        f"mean ({comparison.mean}), and its "
        "difference to the best, row by row: what is hard for all models cancels. An interval that does not "
        "touch the line is a difference beyond chance."
    )
    headings = ("model", "difference with interval", "worse by", "expected loss", "interval", "seconds a fit")
    best = int(np.flatnonzero(order == comparison.best)[0])
    return Section("Models, best first", [words], grid=Grid(headings, lines, best))


_DIFFERENCE = ("difference", "difference_low", "difference_high")


def comparison_cells(comparison: Comparison) -> list[dict[str, str]]:
    """Text for a row of each model, best first, with the numbers of a column in one style."""
    rows = comparison.rows()
    risk, low, high, *gap = (
        numbers_of
        for group in (("risk", "low", "high"), _DIFFERENCE)
        for numbers_of in _in_one_style(*([row[name] for row in rows] for name in group))
    )
    return [
        {
            "model": row["model"],
            "loss": risk[i],
            "interval": f"{low[i]} to {high[i]}",
            "worse by": gap[0][i],
            "interval of that": f"{gap[1][i]} to {gap[2][i]}",
            "seconds": f"{row['fit_seconds']:.3f}",
        }
        for i, row in enumerate(rows)
    ]


def _in_one_style(*columns: list[float]) -> list[list[str]]:
    words = iter(numbers([value for column in columns for value in column]))
    return [[next(words) for _ in column] for column in columns]


def tails_section(tails: TailReport) -> Section:
    """Figures of the losses and the gradients, and the table."""
    shown = {"the target": tails.target, "losses": tails.losses, "gradients": tails.gradients}
    figures = [svg.tail_path(tail, name) for name, tail in shown.items() if tail and len(tail.path_sizes) > 1]
    rows = tails.rows()
    headings = list(rows[0]) if rows else []
    first = len(rows) - len(tails.features)
    heavy = sum(tail.verdict in (HEAVY, INFINITE) for tail in tails.features.values())
    shown_rows = rows[: min(first + max(heavy, _LIGHT_SHOWN), _TAILS_SHOWN)]
    lines = [[tail_cell(value) for value in row.values()] for row in shown_rows]
    words = (
        "The smaller the tail index, the heavier the tail: below 2 the variance is infinite. A curve that "
        "stays level can be trusted. Gradients decide whether robust learning pays."
    )
    left = len(rows) - len(lines)
    lighter = "feature with a lighter tail is" if left == 1 else "features with lighter tails are"
    notes = [f"{left} {lighter} not shown."] if left else []
    return Section("How heavy are the tails?", [words], figures, Grid(headings, lines), notes=notes)


def cloud_section(blocks: Any, second: bool) -> Section:
    """Candidates in the plane in which they differ most."""
    report, points = blocks.report_, CandidatesDisplay.gaps_of(blocks).points
    # The plane gives the direction; the distance is that of the table, so that both tell one story.
    lengths = np.linalg.norm(points, axis=1)
    points = points * (report.distances / np.maximum(lengths, 1e-300))[:, None]
    words = (
        "Candidates (blue) around the merged model (red), as far from it as the table says, each in the "
        "direction that it has in the plane in which they differ most."
    )
    if second:
        words += " They are those of DC-SGD on the same rows, as a second look at the data."
    edge = (
        f"The dashed circle holds most of them. Those that stand out are more than {FAR:g} times as far away "
        "as it: they are amber, and drawn on the outer circle."
    )
    figure = svg.cloud(points, report.distances, report.radius, FAR)
    return Section("Candidates around the merged model", [words, edge], [figure])


def stand_out_section(rows: PreparedTable, blocks: Any) -> Section:
    """Blocks that stand out, and the rows in them that the model fits worst."""
    standing = blocks.report_.stand_out
    if standing is None or standing.size == 0:
        words = f"None of the {blocks.report_.k} blocks stands out."
        return Section("Blocks that stand out", [words])
    held = rows_of_blocks(blocks, rows.X)
    losses = _row_losses(blocks, rows)
    lines = []
    for j in standing[:_MOST_ROWS]:
        worst = held[j][np.argsort(-losses[held[j]], kind="stable")[:_ROWS_OF_A_BLOCK]]
        named = ", ".join(f"{rows.rows[i] + 1:,} ({rows.target} = {tail_cell(rows.y[i])})" for i in worst)
        lines.append((f"block {j}", f"{held[j].size:,}", named))
    words = (
        "Their candidates are more than three majority radii away. The rows with the largest losses in each "
        "are the first to look at; rows are counted from 1, as in the data."
    )
    grid = Grid(("block", "rows", "largest losses: row (target)"), lines)
    return Section("Blocks that stand out", [words], grid=grid)


def coefficients_section(rows: PreparedTable, estimator: Any) -> Section:
    """Coefficients by importance, with their intervals."""
    if not hasattr(estimator, "coef_"):
        return Section("Coefficients", ["The chosen model is not linear: it has no coefficients."])
    summary = estimator.summary(names=rows.encoding.names)
    words = ""
    outputs = len(np.atleast_2d(estimator.coef_))
    if is_classifier(estimator) and outputs == 1:
        words = f"Positive ones speak for {estimator.classes_[1]}, negative ones for {estimator.classes_[0]}."
    return summary.section(np.tile(rows.X.std(axis=0), outputs), words)


def rows_section(rows: PreparedTable, estimator: Any) -> list[Section]:
    """The rows that count least in a robust fit."""
    if rows.sampled or not hasattr(estimator, "row_weights_"):
        return []
    columns = leading_rows(rows, estimator, _ROWS_SHOWN)
    lines = [
        (f"{row:,}", f"{weight:.3f}", number(float(y)), number(float(p)), f"{share:.1%}")
        for row, weight, y, p, share in zip(*columns.values(), strict=True)
    ]
    words = (
        "How much each row counted in the fit: weight 1 as in least squares, 0 not at all. Rows are counted "
        "from 1, as in the data. There are two readings, which differ: draws of a heavy-tailed law belong to "
        "the mean; errors do not, and --contamination fits the majority without them. Look at these rows."
    )
    headings = ("row", "weight", rows.target, "prediction", "share of squared error")
    return [Section("Rows that count least", [words], grid=Grid(headings, lines))]


def columns_section(rows: PreparedTable) -> Section:
    """How every column became numbers."""
    lines = [(column.name, column.kind, _became(column)) for column in rows.encoding.columns[:_MOST_ROWS]]
    left = len(rows.encoding.columns) - len(lines)
    notes = [f"{left} more columns are not shown."] if left else []
    if rows.encoding.left_out:
        names = ", ".join(rows.encoding.left_out[:_MOST_ROWS])
        notes.append(f"Left out, since they hold one value only, or rare strings: {names}.")
    return Section("Columns", grid=Grid(("column", "kind", "became"), lines), notes=notes)


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
    repeat = Section(_REPRODUCE, code=[("Shell", code)])
    return Page("Simulated heavy tails", "tailproof demo", verdict, (), [section, repeat])


def demo_table(
    excess: Mapping[str, Sequence[float]], seconds: Mapping[str, float]
) -> list[tuple[str, float, float, float]]:
    """Model, median and 95% point of its excess risk, seconds a fit."""
    points = {name: np.quantile(values, [0.5, 0.95]) for name, values in excess.items()}
    return [(name, float(points[name][0]), float(points[name][1]), seconds[name]) for name in excess]


def demo_figure(excess: Mapping[str, Sequence[float]]) -> str:
    """One dot for each draw and model."""
    return svg.strips(excess, "excess risk (lower is better)", "A dot a draw; bar: median; red: 95%")


def _with_blocks(rows: PreparedTable, estimator: Any) -> Any:
    """The estimator, or DC-SGD on the same rows if it makes no blocks or a cluster assigned them."""
    if hasattr(estimator, "candidates_") and not estimator.report_.data:
        return estimator
    if is_classifier(estimator):
        return DCSGDClassifier(random_state=0).fit(rows.X, rows.y)
    return DCSGDRegressor(loss=estimator.loss, random_state=0).fit(rows.X, rows.y)


def _row_losses(model: Any, rows: PreparedTable) -> Array:
    if is_classifier(model):
        label = np.searchsorted(model.classes_, rows.y)
        scores = np.atleast_2d(model.decision_function(rows.X).T).T
        if scores.shape[1] == 1:
            return np.where(label == 1, -scores[:, 0], scores[:, 0])
        return scores.max(axis=1) - scores[np.arange(len(label)), label]
    return np.abs(rows.y - model.predict(rows.X))


def _became(column: Any) -> str:
    if column.kind == "category":
        count = len(column.levels)
        shown = ", ".join(column.levels[:8]) + (", ..." if count > 8 else "")
        return f"{count} column{'s' * (count != 1)} of 0 and 1 ({shown}); against {column.reference}"
    missing = f", missing ones {number(column.fill)} and marked" if column.indicator else ""
    return {"date": "days"}.get(column.kind, "itself") + missing


def tail_cell(value: Any) -> str:
    """A value of a table of tails, with the sign for infinity.

    Examples
    --------
    >>> tail_cell("5.5e+02 to inf"), tail_cell(0.25)
    ('550 to ∞', '0.25')
    """
    if isinstance(value, (float, np.floating)):
        return number(float(value))
    # Tails report their indices as text.
    text = re.sub(r"[\d.]+e[+-]\d+", lambda match: number(float(match[0])), str(value))
    return re.sub(r"\binf\b", "∞", text).replace("∞ to ∞", "∞")


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
