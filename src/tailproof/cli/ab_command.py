"""``tailproof ab``: means of groups against that of a control."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import numpy as np
import typer

from tailproof.cli import options as opt
from tailproof.cli.asked import MOST_NOTES, Asked, check_sheet, command_in_lines, files_of
from tailproof.cli.output import check_output, print_json, print_table, say, stages
from tailproof.core import Array
from tailproof.core.differences import POWER_TAIL, TAIL
from tailproof.core.lookup import optional
from tailproof.model_files.files import write_whole
from tailproof.model_selection.two_samples import MeansComparison, compare_means
from tailproof.reports.pages import Grid, Page, Section, numbers, render, spans
from tailproof.tables.columns import check_present, column_type, floats, strings
from tailproof.tables.dialect import Dialect
from tailproof.tables.model import OptionError
from tailproof.tables.reading import read_files

_MOST_GROUPS = 20
_COLUMNS = (
    "Change is the difference in percent of the control's mean, with its interval. The plain mean is that of "
    "the group's own values; the difference shares the tails of both groups, and is not that of plain means."
)


@dataclass(frozen=True)
class Groups:
    """Values of the metric by group, with what was known of each row before; rows without a value are out.

    The notes are about the files.
    """

    metric: str
    values: dict[str, Array]
    before: dict[str, Array] | None
    left_out: int
    notes: list[str] = field(default_factory=list)


def ab(
    data: opt.Data,
    metric: Annotated[str, typer.Option(help="The column whose mean is compared.")],
    group: Annotated[str, typer.Option(help="The column that says which group a row belongs to.")],
    control: Annotated[
        str | None,
        typer.Option(help="The group to compare with; the first in alphabetical order by default."),
    ] = None,
    before: Annotated[
        list[str] | None,
        typer.Option(help="A column known before the experiment, to adjust for; may be repeated."),
    ] = None,
    planned: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of a comparison at the end: the interval then holds at every look."),
    ] = None,
    delta: opt.Delta = None,
    delimiter: opt.Delimiter = None,
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    thousands: opt.Thousands = None,
    missing: opt.Missing = None,
    date_format: opt.DateFormat = None,
    sheet: opt.Sheet = None,
    report: opt.Report = None,
    json: opt.Json = False,
) -> None:
    """Compare the mean of a metric between groups, with intervals made for heavy tails."""
    check_output(report, inputs=files_of(data))
    level = 0.05 if delta is None else delta
    given = opt.dialect(delimiter, encoding, decimal, thousands, missing, date_format, sheet)
    check_sheet(sheet, data)
    with stages(3) as stage:
        stage("reading")
        groups = read_groups(data, metric, group, before or [], given)
        stage("comparing")
        control = _control(groups, control)
        results = compare_groups(groups, control, level, planned)
        if report:
            stage("writing the report")
            sure = _confidence(results, level, planned)
            write_whole(report, render(ab_page(groups, control, results, sure, Asked(data, metric).source)))
    if json:
        told = {name: asdict(result) for name, result in results.items()}
        print_json({"metric": metric, "control": control, "left_out": groups.left_out, "groups": told})
        return
    for note in groups.notes[:MOST_NOTES]:
        say(note)
    print_table(_records(groups, control, results), f"Mean of {metric} against {control!r}")
    if groups.left_out:
        say(f"rows without a value, or with an infinite one, left out: {groups.left_out:,}")
    for sentence in [*sentences(control, results), *_confidence(results, level, planned), _COLUMNS]:
        say(sentence)
    if report:
        typer.echo(f"report: {report}")


def read_groups(
    data: list[str], metric: str, group: str, before: list[str], given: Dialect | None = None
) -> Groups:
    """Read the columns of an experiment."""
    wanted = [metric, group, *before]
    if len(set(wanted)) < len(wanted):
        raise OptionError("--metric, --group and --before must name different columns")
    read = read_files(data, given or Dialect())
    table = read.table
    check_present(table.column_names, wanted)
    columns = np.column_stack([_numbers(table, name) for name in (metric, *before)])
    labels = np.asarray(_trimmed(table.column(group)).to_pylist(), dtype=object)
    complete = np.isfinite(columns).all(axis=1) & np.array([label is not None for label in labels])
    names = sorted(set(labels[complete]))
    if not 2 <= len(names) <= _MOST_GROUPS:
        raise OptionError(
            f"--group {group} must have 2 to {_MOST_GROUPS} different values in complete rows; "
            f"it has {len(names)}"
        )
    rows = {name: columns[complete & (labels == name)] for name in names}
    known = {name: part[:, 1:] for name, part in rows.items()} if before else None
    values = {name: part[:, 0] for name, part in rows.items()}
    return Groups(metric, values, known, int((~complete).sum()), read.notes)


def _trimmed(values: Any) -> Any:
    """Names of groups without blanks around them, which would make two of one."""
    return optional("pyarrow.compute", extra="cli").utf8_trim_whitespace(strings(values))


def _numbers(table: Any, name: str) -> Array:
    values = table.column(name)
    kind = column_type(name, values)
    if kind == "category":
        raise OptionError(f"column {name!r} holds text, and a mean needs numbers: name another column")
    return np.asarray(floats(values, kind).to_numpy(zero_copy_only=False), dtype=np.float64)


def _control(groups: Groups, control: str | None) -> str:
    names = list(groups.values)
    if control is None:
        return names[0]
    if control not in names:
        raise OptionError(f"--control: there is no group {control!r}; there are {', '.join(names[:10])}")
    return control


def compare_groups(
    groups: Groups, control: str, delta: float, planned: int | None = None
) -> dict[str, MeansComparison]:
    """Every other group less the control; all intervals hold together (Bonferroni)."""
    others = [name for name in groups.values if name != control]
    results = {}
    for name in others:
        known = groups.before and (groups.before[name], groups.before[control])
        results[name] = compare_means(
            groups.values[name],
            groups.values[control],
            delta / len(others),
            covariates=known,
            planned=planned,
        )
    return results


def sentences(control: str, results: dict[str, MeansComparison]) -> list[str]:
    """What the comparison means, what is decided first."""
    order = sorted(results, key=lambda name: not results[name].decided)
    return [text for name in order for text in results[name].verdict(repr(name), repr(control))]


def _records(groups: Groups, control: str, results: dict[str, MeansComparison]) -> list[dict[str, str]]:
    """A row for each group; the plain mean beside the difference, which shares tails."""
    means = dict(zip(groups.values, numbers([v.mean() for v in groups.values.values()]), strict=True))
    ends = ("difference", "low", "high")
    gaps = iter(numbers([getattr(result, end) for result in results.values() for end in ends]))
    rows = [{"group": control} | dict.fromkeys((*ends, "change"), "")]
    for name, result in results.items():
        rows.append({"group": name} | {end: next(gaps) for end in ends} | {"change": _change(result)})
    for row in rows:
        row |= {"plain mean": means[row["group"]], "rows": f"{groups.values[row['group']].size:,}"}
    return rows


def _change(result: MeansComparison) -> str:
    """The ratio of the means and its interval, in percent."""
    if not np.isfinite(result.ratio):
        return "–"
    percents = 100 * (np.array([result.ratio, result.ratio_low, result.ratio_high]) - 1)
    middle, low, high = (f"{p:+.{int(abs(p) < 10)}f}%".replace("-", "−") for p in percents)
    return f"{middle} ({low} to {high})" if np.isfinite(percents).all() else middle


def _kept_together(change: str) -> str:
    """A change whose interval stays in one line, however narrow the page is."""
    return change.replace(" to ", "\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}")


def _confidence(results: dict[str, MeansComparison], delta: float, planned: int | None) -> list[str]:
    """What the confidence of the intervals is about: several groups, and several looks."""
    together, each = f"{100 * (1 - delta):.4g}%", f"{100 * (1 - delta / len(results)):.4g}%"
    which = "Both" if len(results) == 2 else f"All {len(results)}"
    several = f"{which} intervals hold together with confidence {together}, each with {each}."
    looks = f"They hold at every look at growing data, up to {planned:,} values." if planned else ""
    return [*([several] if len(results) > 1 else []), *([looks] if looks else [])]


def ab_page(
    groups: Groups, control: str, results: dict[str, MeansComparison], sure: list[str], source: str
) -> Page:
    """Everything about one experiment on a page."""
    middle, low, high = (
        [getattr(result, name) for result in results.values()] for name in ("difference", "low", "high")
    )
    records = _records(groups, control, results)[1:]
    bars = spans(middle, low, high, zero=True)
    lines = [
        [row["group"], bar, row["difference"], _kept_together(row["change"]), row["plain mean"], row["rows"]]
        for row, bar in zip(records, bars, strict=True)
    ]
    first = next(iter(results.values()))
    words = (
        f"Mean of {groups.metric} in each group less that of {control!r}, with its "
        f"{100 * (1 - first.delta):.4g}% interval. One that does not touch the line at zero is a difference "
        f"beyond chance. {' '.join([*sure, _COLUMNS])}"
    )
    headings = ("group", "difference with interval", "difference", "change", "plain mean", "rows")
    how = [
        "The groups share their tails: each value beyond a high threshold, reached by the "
        f"{TAIL:g}·√n largest of n values that differ ({POWER_TAIL:g}·√n where the tail is a power law, none "
        "where tails are light), counts with the mean of all such values of both groups. How many large "
        "values a group has is informative; how large the largest one is, is mostly luck. "
        f"Here {first.shared:,} values lie beyond the thresholds.",
        "The difference of the means themselves is estimated, not that of capped means. An effect that makes "
        "only the largest values larger is underestimated.",
    ]
    if groups.before is not None:
        how.append("What the columns known before the experiment predict was subtracted (CUPED).")
    facts = [
        ("groups", f"{len(groups.values)}"),
        ("rows", f"{sum(v.size for v in groups.values.values()):,}"),
        ("rows left out", f"{groups.left_out:,}"),
        ("control", control),
        ("plain mean of the control", numbers([groups.values[control].mean()])[0]),
    ]
    sections = [
        Section("Groups", [words], grid=Grid(headings, lines)),
        Section("How it was computed", how),
        Section("How to repeat it", code=[("Shell", command_in_lines())]),
    ]
    return Page(f"Experiment: {groups.metric}", source, sentences(control, results), facts, sections)
