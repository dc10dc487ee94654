"""Tables 1 and 2 of the paper as numbers, and its Figure 1.

The tables compare orders of growth. Here every constant that the O(·) hides is 1, so that rows can be set
against each other for a given n, d, δ and number of steps T; how they change says more than what they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.core.merge import geometric_median
from tailproof.core.theory import blocks_for
from tailproof.paper.panels import new_figure


@dataclass(frozen=True)
class Sizes:
    """What the tables depend on.

    Attributes
    ----------
    n, d, steps : int
        Rows, parameters, and T, the updates of batch methods.
    delta : float
        One minus the confidence.
    rate : float
        c of the linear convergence (1 − c)^2T of batch methods, with strong convexity.
    smoothness, step : float
        λ₁, and α of batch methods, without strong convexity.
    """

    n: int = 10_000
    d: int = 100
    steps: int = 100
    delta: float = 0.05
    rate: float = 0.1
    smoothness: float = 1.0
    step: float = 0.01

    @property
    def log_term(self) -> float:
        """log(1/δ)."""
        return -math.log(self.delta)

    @property
    def k(self) -> int:
        """Blocks of DC-SGD and of RGD-by-MoM."""
        return blocks_for(self.delta, "dc")


@dataclass(frozen=True)
class Row:
    """One method: its error and its cost, as the paper writes them and as functions of the sizes."""

    method: str
    error: str
    cost: str
    error_at: Callable[[Sizes], float]
    cost_at: Callable[[Sizes], float]


def _left(s: Sizes) -> float:
    return float((1 - s.rate) ** (2 * s.steps))


def _spread(s: Sizes) -> float:
    grown = (1 + s.smoothness * s.step) ** s.steps
    return grown * math.sqrt(s.d * (math.log(s.d / s.delta) + math.log(s.n)) / (s.n * s.steps))


TABLE_1 = (
    Row(
        "DC-SGD",
        "log(1/δ)/n",
        "dn/log(1/δ) + cost(merge)",
        lambda s: s.log_term / s.n,
        lambda s: s.d * s.n / s.log_term + s.d * s.k,
    ),
    Row(
        "RGD-by-MoM",
        "(1 − c)^2T + k(d + log(1/δ))/n",
        "Tdn/k + T cost(geomed)",
        lambda s: _left(s) + s.k * (s.d + s.log_term) / s.n,
        lambda s: s.steps * (s.d * s.n / s.k + s.d * s.k),
    ),
    Row(
        "RGD-M",
        "(1 − c)^2T + d(log(d/δ) + log(n))/n",
        "Tdn",
        lambda s: _left(s) + s.d * (math.log(s.d / s.delta) + math.log(s.n)) / s.n,
        lambda s: s.steps * s.d * s.n,
    ),
    Row(
        "MoM-by-GD",
        "‖ŵ_T − ŵ*‖ + √(max(d, log(1/δ))/n)",
        "Tdn/k + Tk log(k)",
        lambda s: math.sqrt(max(s.d, s.log_term) / s.n),  # no rate is known for the first part
        lambda s: s.steps * (s.d * s.n / s.k + s.k * math.log(s.k)),
    ),
)
TABLE_2 = (
    Row(
        "RV-SGDAve",
        "√(log(1/δ)/n)(σ_ℓ + σ_G) + λ₁ log(1/δ)/n",
        "dn log(1/δ)",
        lambda s: 2 * math.sqrt(s.log_term / s.n) + s.smoothness * s.log_term / s.n,
        lambda s: s.d * s.n * s.log_term,
    ),
    Row(
        "RGD",
        "(1 + λ₁α)^T √(d(σ_G² log(d/δ) + log(n))/(nT))",
        "Tdn log(1/δ)",
        _spread,
        lambda s: s.steps * s.d * s.n * s.log_term,
    ),
)


def table(rows: tuple[Row, ...], sizes: Sizes) -> list[list[str]]:
    """Return a table as texts: method, error, its value, cost, its value.

    Examples
    --------
    >>> table(TABLE_1, Sizes(n=10_000, d=100))[0]
    ['DC-SGD', 'log(1/δ)/n', '0.0003', 'dn/log(1/δ) + cost(merge)', '3.36e+05']
    """
    return [
        [row.method, row.error, f"{row.error_at(sizes):.3g}", row.cost, f"{row.cost_at(sizes):.3g}"]
        for row in rows
    ]


@dataclass(frozen=True, eq=False)
class TrickyCandidates:
    """Candidates whose majority is ε-good while their geometric median is not (Figure 1).

    The risk is (w₁/a)² + (w₂/b)²: its level set is long, so good candidates may be far apart, and a minority
    that stands close together pulls the median out of the set. A choice by risk stays inside.

    Examples
    --------
    >>> found = TrickyCandidates()
    >>> int((found.risk(found.points) <= 1).sum()), bool(found.risk(found.merged) > 1)
    (5, True)
    """

    half_axes: tuple[float, float] = (5.0, 0.5)

    @property
    def points(self) -> Array:
        """Five good candidates along the level set, four bad ones above it."""
        good = np.array([[-4.0, 0.1], [-2.2, 0.2], [0.0, 0.35], [2.2, -0.2], [4.0, 0.15]])
        bad = np.array([[-0.3, 0.8], [0.3, 0.85], [0.0, 0.95], [0.1, 0.75]])
        return np.vstack([good, bad])

    @property
    def merged(self) -> Array:
        """What DC-SGD would return."""
        return geometric_median(self.points).point

    @property
    def chosen(self) -> Array:
        """What validation would return: the candidate of least risk."""
        return self.points[int(np.argmin(self.risk(self.points)))]

    def risk(self, w: Array) -> Array:
        """Excess risk, with ε = 1."""
        return np.square(np.asarray(w) / np.array(self.half_axes)).sum(axis=-1)


def figure_1() -> Any:
    """Draw distance-based merging without strong convexity."""
    example, figure = TrickyCandidates(), new_figure(8.0, 3.2)
    axes = figure.subplots()
    angles = np.linspace(0, 2 * np.pi, 200)
    width, height = example.half_axes
    axes.plot(width * np.cos(angles), height * np.sin(angles), color="#D50000", label="risk = ε")
    good = example.risk(example.points) <= 1
    for which, colour, label in ((good, "#0072B2", "ε-good candidates"), (~good, "#777777", "the others")):
        axes.plot(*example.points[which].T, "o", color=colour, label=label)
    axes.plot(*example.merged, "X", color="#D50000", markersize=11, label="geometric median")
    axes.plot(*example.chosen, "*", color="#6A1B9A", markersize=14, label="chosen by risk")
    axes.set(xlabel="w₁", ylabel="w₂", ylim=(-1.0, 1.5))
    axes.legend(fontsize=8, ncols=5, loc="upper center")
    return figure
