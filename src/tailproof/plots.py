"""Displays in the manner of scikit-learn: ``XDisplay.from_...(..., ax=None)``, axes in and out.

matplotlib is imported when something is drawn, and not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from tailproof.core import Array
from tailproof.core.algorithms import FAR
from tailproof.core.tails import Tail, tails
from tailproof.model_selection.compare import Comparison
from tailproof.reports.drawing import BEST, OTHER, draw_intervals, new_axes

__all__ = ["CandidatesDisplay", "ComparisonDisplay", "Display", "TailDisplay", "ValidationDisplay"]

_FAR_OUT = "#e08e0b"


class Display:
    """What every display leaves behind: ``ax_`` and ``figure_``, as in scikit-learn."""

    ax_: Any
    figure_: Any

    def _keep(self, ax: Any) -> None:
        # Displays are frozen records of what they draw; where they drew it is not part of that.
        object.__setattr__(self, "ax_", ax)
        object.__setattr__(self, "figure_", ax.figure)


@dataclass(frozen=True, eq=False)
class CandidatesDisplay(Display):
    """Candidates around the merged point, in the plane in which they differ most.

    Attributes
    ----------
    points : array of shape (k, 2)
        Candidates, seen from the merged point, which is the origin.
    distances : array of shape (k,)
        From the merged point, over all coordinates.
    radius : float
        Majority radius.
    """

    points: Array
    distances: Array
    radius: float

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> CandidatesDisplay:
        """Plot a fitted ``DivideAndConquer`` or ``DCSGD*``; coefficients in units of their spread."""
        return cls.gaps_of(estimator).plot(ax=ax)

    @classmethod
    def gaps_of(cls, estimator: Any) -> CandidatesDisplay:
        """What there is to plot, without plotting it."""
        if getattr(_report(estimator), "radius", None) is None or not hasattr(estimator, "coef_"):
            raise ValueError(
                f"{type(estimator).__name__} does not merge coefficients of candidates"
                f"{_instead(estimator, 'validation_risk', 'ValidationDisplay')}"
            )
        candidates = np.asarray(estimator.candidates_, dtype=np.float64)
        merged = np.column_stack([np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)])
        gaps = candidates.reshape(len(candidates), -1) - merged.ravel()
        spread = np.median(np.abs(gaps), axis=0)
        gaps = gaps / np.where(spread > 0, spread, 1.0)
        return cls._of(gaps)

    @classmethod
    def _of(cls, gaps: Array) -> CandidatesDisplay:
        distances = np.linalg.norm(gaps, axis=1)
        radius = float(np.sort(distances)[len(distances) // 2])
        # Directions of the majority: one candidate far away must not choose the plane.
        near = gaps[distances <= FAR * max(radius, 1e-300)]
        directions = np.linalg.svd(near, full_matrices=False)[2][:2]
        points = np.zeros((len(gaps), 2))
        points[:, : len(directions)] = gaps @ directions.T
        return cls(points, distances, radius)

    def plot(self, *, ax: Any = None) -> CandidatesDisplay:
        """Draw; candidates outside the picture are at its edge."""
        ax = new_axes(ax)
        edge = FAR * max(self.radius, 1e-300)
        lengths = np.linalg.norm(self.points, axis=1)
        outside = lengths > edge
        shown = self.points * np.where(outside, edge / np.maximum(lengths, 1e-300), 1.0)[:, None]
        far = self.distances > edge
        ax.scatter(*shown[~far].T, color=OTHER, label="candidates")
        if far.any():
            ax.scatter(*shown[far].T, color=_FAR_OUT, marker="^", label=f"more than {FAR:g} radii away")
        ax.scatter(0, 0, color=BEST, marker="*", s=160, label="merged")
        turn = np.linspace(0, 2 * np.pi, 200)
        circle = self.radius * np.column_stack([np.cos(turn), np.sin(turn)])
        ax.plot(*circle.T, color=OTHER, lw=1, ls="--", label="majority radius")
        ax.set(xlabel="first direction, in median deviations", ylabel="second direction", aspect="equal")
        ax.set(title="Candidates around the merged point", xlim=(-1.15 * edge, 1.15 * edge))
        ax.set(ylim=(-1.15 * edge, 1.15 * edge))
        # Below the picture: candidates are all over it.
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize="small")
        self._keep(ax)
        return self


@dataclass(frozen=True, eq=False)
class ValidationDisplay(Display):
    """Validation risk of every candidate, with intervals.

    Attributes
    ----------
    names : list of str
    risk, low, high : arrays
    best : int
    caution : str or None
        What the intervals are not good for, written below them.
    """

    names: list[str]
    risk: Array
    low: Array
    high: Array
    best: int
    caution: str | None = None

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> ValidationDisplay:
        """Plot a fitted ``RobustValidation`` or ``RVSGD*``."""
        report = _report(estimator)
        if getattr(report, "validation_risk", None) is None:
            raise ValueError(
                f"{type(estimator).__name__} does not choose among the candidates of blocks"
                f"{_instead(estimator, 'radius', 'CandidatesDisplay')}"
            )
        count = len(report.validation_risk) + report.excluded.size
        kept = np.setdiff1d(np.arange(count), report.excluded)
        names = [f"block {j}" if j < report.k else "all rows" for j in kept]
        place = int(np.flatnonzero(kept == report.best)[0])
        risks = report.validation_risk, report.validation_low, report.validation_high
        return cls(names, *risks, place, report.caution).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> ValidationDisplay:
        """Draw, the winner marked."""
        ax = new_axes(ax)
        draw_intervals(ax, self.names, self.risk, self.low, self.high, self.best)
        ax.set(title="Candidates on the validation rows")
        ax.set_xlabel(_with_caution("robust validation risk", self.caution))
        self._keep(ax)
        return self


@dataclass(frozen=True, eq=False)
class TailDisplay(Display):
    """Estimates of γ = 1/α against the number of values that they use: a plateau can be trusted.

    Attributes
    ----------
    tail : Tail
    name : str
    """

    tail: Tail
    name: str = "values"

    @classmethod
    def from_values(cls, values: ArrayLike, *, name: str = "values", ax: Any = None) -> TailDisplay:
        """Plot a sample."""
        return cls(tails(values), name).plot(ax=ax)

    @classmethod
    def from_tail(cls, tail: Tail, *, name: str = "values", ax: Any = None) -> TailDisplay:
        """Plot what :func:`tailproof.diagnose.tails` found, such as the parts of a ``TailReport``."""
        if not isinstance(tail, Tail):
            raise TypeError(f"tail must be what tailproof.diagnose.tails returns; got {type(tail).__name__}")
        return cls(tail, name).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> TailDisplay:
        """Draw both paths, the size in use and its interval, and where moments end."""
        ax, tail = new_axes(ax), self.tail
        ax.plot(tail.path_sizes, tail.path_hill, color=_FAR_OUT, label="Hill")
        ax.plot(tail.path_sizes, tail.path_moment, color=OTHER, label="moment")
        error = [[tail.moment.gamma - tail.moment.low], [tail.moment.high - tail.moment.gamma]]
        ax.errorbar(
            [tail.tail_size],
            [tail.moment.gamma],
            yerr=error,
            fmt="o",
            color=BEST,
            capsize=4,
            label="90% interval",
        )
        for gamma, words in ((0.5, "variance infinite above"), (0.25, "fourth moment infinite above")):
            ax.axhline(gamma, color="grey", lw=0.8, ls=":")
            # A light ground: the curves may pass here.
            ground = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1}
            place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
            ax.annotate(words, (0.99, gamma), **place, size=8, bbox=ground)
        ax.set(xscale="log", xlabel="largest distances from the median used", ylabel="γ = 1 / tail index")
        ax.set(title=f"Tail of {self.name}: {tail.verdict}")
        ax.legend(loc="best", fontsize="small")
        self._keep(ax)
        return self


@dataclass(frozen=True, eq=False)
class ComparisonDisplay(Display):
    """Models side by side: paired difference in risk to the best, with intervals.

    Attributes
    ----------
    comparison : Comparison
    kind : {"difference", "risk"}
    """

    comparison: Comparison
    kind: str = "difference"

    @classmethod
    def from_comparison(
        cls, comparison: Comparison, *, kind: str = "difference", ax: Any = None
    ) -> ComparisonDisplay:
        """Plot what :func:`tailproof.model_selection.compare` found."""
        if kind not in ("difference", "risk"):
            raise ValueError(f"kind must be 'difference' or 'risk'; got {kind!r}")
        return cls(comparison, kind).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> ComparisonDisplay:
        """Draw, best on top."""
        ax, comparison = new_axes(ax), self.comparison
        order = np.argsort(comparison.difference, kind="stable")
        ends = {"risk": ("risk", "low", "high")}.get(
            self.kind, ("difference", "difference_low", "difference_high")
        )
        values = [getattr(comparison, name)[order] for name in ends]
        best = int(np.flatnonzero(order == comparison.best)[0])
        draw_intervals(ax, [comparison.names[j] for j in order], values[0], values[1], values[2], best)
        if self.kind == "difference":
            ax.axvline(0, color="grey", lw=0.8, ls=":")
        words = {"risk": _with_caution("robust risk", comparison.caution)}.get(
            self.kind, "risk minus that of the best, paired"
        )
        ax.set(xlabel=words, title="Models by robust cross-validation")
        self._keep(ax)
        return self


def _report(estimator: Any) -> Any:
    check_is_fitted(estimator)
    if not hasattr(estimator, "report_"):
        raise ValueError(
            f"{type(estimator).__name__} has no report_: displays are for tailproof's estimators"
        )
    return estimator.report_


def _instead(estimator: Any, needs: str, display: str) -> str:
    """Which display to take, if the other one would do."""
    return f": use {display}" if getattr(estimator.report_, needs, None) is not None else ""


def _with_caution(label: str, caution: str | None) -> str:
    """The label, and where there is a reason for caution what it means for what is drawn."""
    short = "the variance of the losses may be infinite:\nthen intervals cover less often than they say"
    return label if caution is None else f"{label}\n{short}"
