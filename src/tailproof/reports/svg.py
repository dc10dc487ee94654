"""Small figures as inline SVG, in the colours of the page around them: they follow light and dark.

Labels are escaped here. Every function gives the markup of one ``<svg>`` with a title for readers who
cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.reports.pages import number

_WIDTH, _HEIGHT = 460, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 46, 42
_WIDE_LEFT = 74  # beside numbers as long as 1,234,567
_LETTER = 7  # width of a digit at most
# For a figure that stands alone, outside a report.
STYLE = """<style>
svg{--ink:#1c2126;--soft:#5a6570;--line:#d8dde3;--blue:#2f6690;--red:#b8322a;--amber:#b26a00}
@media (prefers-color-scheme:dark){
svg{--ink:#e7ebef;--soft:#9aa7b3;--line:#38424c;--blue:#7db7e0;--red:#f08a80}}
text{fill:var(--ink);font:12px system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.soft{fill:var(--soft)}.axis{stroke:var(--line);fill:none}.best{fill:var(--red)}.bar{stroke:var(--red);stroke-width:2}
.faint{fill:var(--blue);fill-opacity:.45}
</style>"""


def tail_path(tail: Any, name: str) -> str:
    """Hill's and the moment estimate of γ against the number of values that they use."""
    sizes = np.asarray(tail.path_sizes, dtype=np.float64)
    paths = [np.asarray(path, dtype=np.float64) for path in (tail.path_hill, tail.path_moment)]
    seen = np.concatenate([*paths, [0.0, 0.6, tail.moment.low, tail.moment.high]])
    seen = np.clip(seen[np.isfinite(seen)], -1.0, 3.0)
    right = _WIDTH - 106  # names of the limits stand beside the curves, not among them
    x = _scale(np.log(sizes), _LEFT, right)
    y = _scale(np.array([seen.min(), seen.max()]), _HEIGHT - _BOTTOM, _TOP)
    parts = [_text(_LEFT, 16, f"Tail of {name}: {tail.verdict}")]
    limits = {0.5: "variance ∞ ↑", 0.25: "4th moment ∞ ↑"}
    parts += [_line(_LEFT, y(gamma), right, y(gamma), "axis dash") for gamma in limits]
    for path, colour in zip(paths, ("amber", "blue"), strict=True):
        parts.append(_polyline(x(np.log(sizes)), y(np.clip(path, -1.0, 3.0)), colour))
    if tail.tail_size > 0 and math.isfinite(tail.moment.gamma):
        place, ends = x(math.log(tail.tail_size)), np.clip([tail.moment.low, tail.moment.high], -1.0, 3.0)
        parts.append(_line(place, y(ends[0]), place, y(ends[1]), "bar"))
        parts.append(_circle(place, y(min(max(tail.moment.gamma, -1.0), 3.0)), 4.5, "best"))
    parts += [_text(right + 5, y(gamma) + 4, words, "soft") for gamma, words in limits.items()]
    parts += _frame([(x(math.log(s)), f"{s:,.0f}") for s in _some(sizes)], _steps(y, seen), right=right)
    parts.append(_text(_WIDTH / 2, _HEIGHT - 6, "largest values used", "soft", "middle"))
    parts.append(_text(_LEFT, 34, "γ = 1 / tail index: Hill (amber), moment (blue), 90% (red)", "soft"))
    return _svg(parts, f"Tail estimates of {name}")


def cloud(points: Array, distances: Array, radius: float, far: float) -> str:
    """Candidates around the merged point; those outside the picture are at its edge."""
    side, middle = 340, 170.0
    edge = far * max(radius, 1e-300)
    lengths = np.linalg.norm(points, axis=1)
    shown = points * np.where(lengths > edge, edge / np.maximum(lengths, 1e-300), 1.0)[:, None]
    scale = (middle - 14) / edge
    parts = [
        _circle(middle, middle, radius * scale, "axis dash"),
        _circle(middle, middle, edge * scale, "axis"),
    ]
    for (a, b), distance in zip(shown, distances, strict=True):
        colour = "far" if distance > edge else "dot"
        parts.append(_circle(middle + a * scale, middle - b * scale, 4, colour))
    parts.append(_circle(middle, middle, 6, "best"))
    return _svg(parts, "Candidates around the merged point", side, side)


def strips(values: Mapping[str, Sequence[float]], label: str, title: str = "") -> str:
    """One row of dots for each name on a logarithmic axis, with the median as a bar and the 95% point."""
    left, step = 130, 34
    height = _TOP + step * len(values) + _BOTTOM
    every = np.concatenate([np.asarray(v, dtype=np.float64) for v in values.values()])
    low, high = np.floor(np.log10(every.min())), np.ceil(np.log10(every.max()))
    x = _scale(np.array([low, max(high, low + 1)]), left, _WIDTH + 80 - _RIGHT)
    parts = [_text(left, 16, title)]
    for power in range(int(low), int(max(high, low + 1)) + 1):
        parts.append(_line(x(power), _TOP, x(power), height - _BOTTOM, "axis"))
        parts.append(_text(x(power), height - _BOTTOM + 16, f"{10.0**power:g}", "soft", "middle"))
    for row, (name, sample) in enumerate(values.items()):
        y = _TOP + step * (row + 0.5)
        parts.append(_text(left - 10, y + 4, name, "", "end"))
        parts += [_circle(x(math.log10(v)), y, 4, "faint") for v in sample]
        middle, most = np.quantile(np.asarray(sample), [0.5, 0.95])
        parts.append(_line(x(math.log10(middle)), y - 11, x(math.log10(middle)), y + 11, "bar"))
        parts.append(_circle(x(math.log10(most)), y, 5, "best"))
    parts.append(_text((left + _WIDTH + 80) / 2, height - 6, label, "soft", "middle"))
    return _svg(parts, title, _WIDTH + 80, height)


def alone(svg: str) -> str:
    """A figure as a file of its own."""
    start = svg.index(">") + 1
    head = svg[:start].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}{STYLE}{svg[start:]}\n"


def _scale(values: Array, start: float, stop: float) -> Any:
    """From the range of values to pixels."""
    low, high = float(np.min(values)), float(np.max(values))
    factor = (stop - start) / (high - low) if high > low else 0.0
    return lambda v: start + (np.asarray(v) - low) * factor


def _some(sizes: Array) -> Array:
    """Round numbers of a logarithmic axis."""
    powers = np.arange(np.ceil(np.log10(sizes.min())), np.floor(np.log10(sizes.max())) + 1)
    return np.power(10.0, powers) if powers.size > 1 else np.array([sizes.min(), sizes.max()])


def _steps(y: Any, seen: Array) -> list[tuple[float, str]]:
    step = 0.25 if np.ptp(seen) < 1.6 else 0.5 if np.ptp(seen) < 3 else 1.0
    ticks = np.arange(np.ceil(seen.min() / step), np.floor(seen.max() / step) + 1) * step
    return [(float(y(tick)), number(tick + 0.0)) for tick in ticks]  # + 0.0: zero has no sign


def _frame(
    below: list[tuple[Any, str]],
    beside: list[tuple[float, str]],
    left: int = _LEFT,
    height: int = _HEIGHT,
    top: int = _TOP,
    right: int = _WIDTH - _RIGHT,
) -> list[str]:
    bottom = height - _BOTTOM
    parts = [_line(left, bottom, right, bottom, "axis"), _line(left, top, left, bottom, "axis")]
    for x, words in below:
        inside = min(float(x), _WIDTH - 0.5 * _LETTER * len(words))  # the last one is not cut
        parts.append(_text(inside, bottom + 16, words, "soft", "middle"))
    return parts + [_text(left - 6, y + 4, words, "soft", "end") for y, words in beside]


def _svg(parts: list[str], title: str, width: int = _WIDTH, height: int = _HEIGHT) -> str:
    inside = "".join(parts)
    return f'<svg viewBox="0 0 {width} {height}" role="img"><title>{escape(title)}</title>{inside}</svg>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _circle(x: float, y: float, r: float, kind: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" class="{kind}"/>'


def _polyline(x: Array, y: Array, kind: str) -> str:
    finite = np.isfinite(x) & np.isfinite(y)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[finite], y[finite], strict=True))
    return f'<polyline points="{points}" class="{kind}"/>'


def against(predicted: Array, actual: Array, low: Array, high: Array, words: tuple[str, str]) -> str:
    """What came against what was predicted, with intervals; on the diagonal both are equal."""
    middle = np.concatenate([predicted, actual])
    reach = max(float(np.ptp(middle)), 1e-300)
    start, stop = float(middle.min()) - 0.08 * reach, float(middle.max()) + 0.25 * reach
    x, y = (
        _scale(np.array([start, stop]), *ends)
        for ends in ((_WIDE_LEFT, _WIDTH - _RIGHT), (_HEIGHT - _BOTTOM, _TOP))
    )
    parts = [_line(x(start), y(start), x(stop), y(stop), "axis dash")]
    for p, a, b, c in zip(
        predicted, actual, *(np.clip(end, start, stop) for end in (low, high)), strict=True
    ):
        parts += [_line(x(p), y(b), x(p), y(c), "range-bar"), _circle(x(p), y(a), 4.5, "dot")]
    ticks = _round_ticks(start, stop)
    below = [(float(x(tick)), _tick(tick)) for tick in ticks]
    beside = [(float(y(tick)), _tick(tick)) for tick in ticks]
    parts += _frame(below, beside, _WIDE_LEFT)
    parts.append(_text(_WIDTH / 2, _HEIGHT - 6, words[0], "soft", "middle"))
    parts.append(_text(8, 16, words[1], "soft"))
    return _svg(parts, f"{words[1]} against {words[0]}")


def curve(
    name: str, values: Array, heights: Array, limits: tuple[float, float], are_days: bool = False
) -> str:
    """A curve over a number, or over days since 1970, between heights that several figures share."""
    height = 210
    x = _scale(values, _WIDE_LEFT + 6, _WIDTH - _RIGHT - 6)
    y = _scale(np.array(limits), height - _BOTTOM, 34)
    parts = [_polyline(x(values), y(heights), "blue")]
    parts += [_circle(x(v), y(h), 3, "dot") for v, h in zip(values, heights, strict=True)]
    ticks = _round_ticks(float(values.min()), float(values.max()), most=4 if are_days else 6)
    below = [(float(x(tick)), _day(tick) if are_days else _tick(tick)) for tick in ticks]
    beside = [(float(y(tick)), _tick(tick)) for tick in _round_ticks(*limits)]
    parts += _frame(below, beside, _WIDE_LEFT, height, 34)
    parts.append(_text(8, 16, _short(name, 56)))
    return _svg(parts, f"Effect of {name}", height=height)


def levels(name: str, labels: Sequence[str], values: Array, limits: tuple[float, float]) -> str:
    """A dot for each category, between limits that several figures share."""
    left, step = 150, 19
    bottom = 34 + step * max(len(labels), 5)
    x = _scale(np.array(limits), left, _WIDTH - _RIGHT - 6)
    parts = [_line(left, bottom, _WIDTH - _RIGHT, bottom, "axis"), _text(8, 16, _short(name, 56))]
    for tick in _round_ticks(*limits, most=5):
        parts.append(_line(x(tick), 28, x(tick), bottom, "axis"))
        parts.append(_text(float(x(tick)), bottom + 16, _tick(tick), "soft", "middle"))
    for row, (label, value) in enumerate(zip(labels, values, strict=True)):
        y = 34 + step * (row + 0.5)
        parts.append(_text(left - 10, y + 4, _short(label, 20), "", "end"))
        parts.append(_circle(float(x(value)), y, 4.5, "dot"))
    return _svg(parts, f"Effect of {name}", height=bottom + 26)


def _day(days: float) -> str:
    return str(np.datetime64(round(days), "D"))


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _round_ticks(start: float, stop: float, most: int = 6) -> list[float]:
    """At most so many round numbers between two."""
    width = stop - start
    if not width > 0 or not math.isfinite(width):
        return [start]
    power = 10.0 ** math.floor(math.log10(width / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if width / (power * factor) <= most)
    return [k * step for k in range(math.ceil(start / step), math.floor(stop / step) + 1)]


def _tick(value: float) -> str:
    return number(float(f"{value:.6g}"))
