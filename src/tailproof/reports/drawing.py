"""Intervals drawn with matplotlib, for reports and displays; it is imported when something is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.core.lookup import optional
from tailproof.reports.pages import number

BEST, OTHER = "#c0392b", "#34607f"
_MOST_LABELS = 24  # beside one axis
_CUT = 10.0  # median reaches from the best, beyond which lines are cut


def new_axes(ax: Any) -> Any:
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    return optional("matplotlib.pyplot", extra="cli").subplots(layout="constrained")[1]


def draw_intervals(ax: Any, names: list[str], middle: Array, low: Array, high: Array, best: int) -> None:
    """One line for each name, first on top; the best in another colour."""
    heights = np.arange(len(names))[::-1]
    window = _window(middle, low, high, best)
    for j, height in enumerate(heights):
        # Means without an interval have NaN for its ends.
        ends = np.where(np.isnan([low[j], high[j]]), middle[j], [low[j], high[j]])
        _draw_line(ax, float(height), float(middle[j]), ends, window, BEST if j == best else OTHER)
    ax.set_xlim(window)
    shown = _labelled(len(names), best)
    ax.set_yticks(heights[shown], [names[j] for j in shown])
    ax.margins(y=0.5 / max(len(names), 1))


def _labelled(count: int, best: int) -> list[int]:
    """Lines that get a label: all, or so few that they do not overlap, with the best among them."""
    step = -(-count // _MOST_LABELS)
    return [j for j in range(count) if j == best or (j % step == 0 and abs(j - best) >= step)]


def _window(middle: Array, low: Array, high: Array, best: int) -> tuple[float, float]:
    """From where to where to draw: what is far from the best, where most is near, would hide the rest."""
    ends = np.concatenate([values[np.isfinite(values)] for values in (middle, low, high)])
    if ends.size == 0:
        return -1.0, 1.0
    reach = np.max(np.abs(np.vstack([low, high]) - middle[best]), axis=0)
    reach = reach[np.isfinite(reach) & (reach > 0)]
    limit = _CUT * np.median(reach) if reach.size else np.inf
    start, stop = max(ends.min(), middle[best] - limit), min(ends.max(), middle[best] + limit)
    margin = 0.05 * (stop - start) or 0.05 * abs(stop) or 1.0
    return start - margin, stop + margin


def _draw_line(
    ax: Any, height: float, middle: float, ends: Array, window: tuple[float, float], colour: str
) -> None:
    """A point and its interval, as far as the window shows them; arrows where they go on."""
    start, stop = window
    ax.plot(np.clip(ends, start, stop), [height, height], color=colour)
    beyond = [(start, "<", ends[0] < start), (stop, ">", ends[1] > stop)]
    for at, arrow, goes_on in beyond:
        if goes_on:
            ax.plot(at, height, arrow, color=colour, clip_on=False)
    if start <= middle <= stop:
        ax.plot(middle, height, "o", color=colour)
    else:
        ax.annotate(f"{number(middle)}  ", (stop, height), ha="right", va="bottom", size=8)
