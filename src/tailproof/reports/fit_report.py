"""What a fit did and what it found: readable as text, as HTML in a notebook, and as data."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.algorithms import FAR
from tailproof.core.automatic import blocks_sentence
from tailproof.core.validate import Validation, interval_warning
from tailproof.native.sum_of_distances import distances as distances_from
from tailproof.reports.pages import Grid, Page, Section, number, render, spans
from tailproof.reports.round_report import RoundReport
from tailproof.reports.text import Printable, TextTable, carried, cell


class Clock:
    """Seconds of every stage of a fit; a stage that runs again adds to its time.

    Examples
    --------
    >>> clock = Clock()
    >>> with clock("train"):
    ...     pass
    >>> list(clock.seconds)
    ['train']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str) -> Stage:
        """Time what happens inside ``with``."""
        return Stage(self.seconds, stage)


class Stage:
    """What is timed inside ``with``; quicker than a generator, since a stage may be that of one row."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds[self.name] = self.seconds.get(self.name, 0.0) + time.perf_counter() - self.started


@dataclass(frozen=True, eq=False, repr=False)
class Report(Printable):
    """Everything about one fit that is not the model.

    Attributes
    ----------
    method : str
        "DC-SGD" or "RV-SGDAve", and the like.
    k, why_k : int, str
        Number of blocks, and what decided it.
    delta : float
        One minus the confidence that was asked for.
    block_sizes : array of int
    seed : int
        Given as ``random_state``, it repeats the fit; the seed of block j is its child number j + 1.
    excluded : array of int
        Blocks whose candidate diverged or failed and was left out.
    passes, converged : int, bool
        Passes over the data, and whether an automatic number of them was enough.
    gradient_evaluations : int or None
        None for learners that do not count them.
    seconds : dict
        Time of each stage.
    theorem : str
        Which theorem's conditions hold, and what is outside it.
    radius : float or None
        Majority radius of the candidates around the merged point (DC), in scaled coordinates.
    distances : array or None
        Distance of each kept candidate from the merged point (DC).
    stand_out : array of int
        Blocks more than three majority radii away (DC).
    rounds : tuple of RoundReport or None
        How every round went, where there was more than one (DC).
    validation_risk, validation_low, validation_high : arrays or None
        Robust risk of each kept candidate with its interval (RV).
    best : int or None
        Block of the winner (RV).
    mean : str or None
        The robust mean that validated (RV).
    beaten_by_start : bool or None
        Whether every candidate was surely worse than where training began, the best constant prediction
        unless another start was given, which is then the model (RV).
    worse_than_constant : bool or None
        True where every candidate, and so the model, is surely worse than one prediction for all rows (RV
        over any estimator).
    caution : str or None
        What the intervals are not good for, where the tails of the losses say so (RV); what becomes of
        slopes where most targets are equal (DC).
    outlying : str or None
        What there is to say about rows of another population than the others.
    left_out : array of int or None
        Rows that were left out as errors of measurement.
    far_rows : int or None
        How many rows in pieces were left out as errors of measurement.
    carriers : array of int or None
        The few rows that carry half of the squared residuals, the largest first.
    drift : str or None
        Where the errors of a stream rose far above those before, the last time that they did.
    data : str or None
        Where the rows came from, if not from one array.
    dropped_rows : int or None
        Rows left out because something in them was missing.
    skipped_files : tuple of str or None
        Files left out because they could not be read.
    """

    method: str
    k: int
    why_k: str
    delta: float
    block_sizes: NDArray[np.intp]
    seed: int
    excluded: NDArray[np.intp]
    passes: int
    converged: bool
    gradient_evaluations: int | None
    seconds: dict[str, float]
    theorem: str
    radius: float | None = None
    distances: Array | None = None
    stand_out: NDArray[np.intp] | None = None
    validation_risk: Array | None = None
    validation_low: Array | None = None
    validation_high: Array | None = None
    best: int | None = None
    mean: str | None = None
    beaten_by_start: bool | None = None
    worse_than_constant: bool | None = None
    caution: str | None = None
    outlying: str | None = None
    left_out: NDArray[np.intp] | None = None
    far_rows: int | None = None
    carriers: NDArray[np.intp] | None = None
    drift: str | None = None
    data: str | None = None
    dropped_rows: int | None = None
    skipped_files: tuple[str, ...] | None = None
    rounds: tuple[RoundReport, ...] | None = None

    @classmethod
    def of(
        cls,
        sizes: Any,
        seed: Any,
        clock: Clock,
        *,
        kept: Any = None,
        passes: int = 1,
        converged: bool = True,
        **facts: Any,
    ) -> Report:
        """Put a report together; what can be derived need not be given.

        Parameters
        ----------
        sizes : sequence of int
            Rows of every block.
        seed : SeedSequence
        clock : Clock
        kept : array of int, optional
            Blocks whose candidates are there; default all.
        passes, converged : int, bool
        **facts
            The other fields. Gradients are counted once a row and pass unless they are given.
        """
        k, sizes = len(sizes), np.asarray(sizes)
        held = set(range(k) if kept is None else np.asarray(kept).tolist())
        derived = {
            "k": k,
            "block_sizes": sizes,
            "seed": int(seed.entropy),
            "excluded": np.array([j for j in range(k) if j not in held], dtype=np.intp),
            "passes": passes,
            "converged": converged,
            "gradient_evaluations": passes * int(sizes.sum()),
            "seconds": dict(clock.seconds),
        }
        return cls(**(derived | facts))

    def rows(self) -> list[tuple[str, str]]:
        """The report as pairs of heading and text, without what does not apply."""
        return [
            (field.name.replace("_", " "), cell(getattr(self, field.name)))
            for field in fields(self)
            if getattr(self, field.name) is not None
        ]

    def as_text(self) -> TextTable:
        """One line for each row."""
        return TextTable(self.rows())

    def verdict(self) -> list[str]:
        """What a reader should know first, in sentences."""
        sentences = [self._choice(), blocks_sentence(self.k, self.why_k)]
        if self.excluded.size:
            sentences.append(f"{self.excluded.size} of {self.k} candidates diverged and were left out.")
        if not self.converged:
            sentences.append(
                "The passes ended before the candidates settled: more rows or max_iter would help."
            )
        if self.worse_than_constant:
            sentences.append("Every candidate is surely worse than one constant prediction for all rows.")
        if self.outlying is not None:
            sentences.append(f"{self.outlying[0].upper()}{self.outlying[1:]}.")
        sentences += carried(self.carriers)
        if self.drift is not None:
            sentences.append(f"{self.drift[0].upper()}{self.drift[1:]}.")
        if self.caution is not None:
            sentences.append(f"{self.caution[0].upper()}{self.caution[1:]}.")
        return sentences

    def _choice(self) -> str:
        if self.k == 1:
            return "One block of rows made the model: there are no candidates to compare."
        if self.beaten_by_start:
            return "Every candidate is surely worse than a constant prediction, which is the model."
        if self.validation_risk is not None:
            least = number(float(np.min(self.validation_risk)))
            # The candidate of all training rows together comes after those of the blocks.
            whose = f"block {self.best}" if self.best is not None and self.best < self.k else "all rows"
            count = self.validation_risk.size + self.excluded.size
            return f"Of {count} candidates, that of {whose} has the least robust risk: {least}."
        if self.outlying is not None and self.left_out is None and not self.far_rows:
            return f"How the {self.k} candidates lie says nothing: most blocks have rows of two populations."
        if self.stand_out is not None and self.stand_out.size:
            count = self.stand_out.size
            return f"{count} of {self.k} blocks stand{'s' * (count == 1)} out; the others agree and decide."
        return f"The {self.k} candidates agree: no block stands out."

    def sections(self) -> list[Section]:
        """The candidates side by side, and how the fit went, for an HTML page."""
        return [*self._candidates(), Section("How it was fitted", grid=Grid(("", ""), self.rows()))]

    def _candidates(self) -> list[Section]:
        kept = np.setdiff1d(np.arange(self.k), self.excluded)
        if self.validation_risk is not None:
            names = [f"block {j}" for j in kept] + ["all rows"] * (len(self.validation_risk) - kept.size)
            bars = spans(self.validation_risk, self.validation_low, self.validation_high)
            rows = [(a, bar, number(b)) for a, b, bar in zip(names, self.validation_risk, bars, strict=True)]
            best = int(np.argmin(self.validation_risk))
            words = "Each candidate saw its own block alone; this is its robust risk on the validation rows."
            grid = Grid(("candidate", "interval", "robust risk"), rows, best)
            return [Section("Candidates on the validation rows", [words], grid=grid)]
        if self.distances is None or self.radius is None:
            return []
        unit = self.radius or 1.0
        order = np.argsort(-self.distances)[:12]
        bars = spans(
            self.distances[order] / unit, np.zeros(order.size), self.distances[order] / unit, with_text=False
        )
        far = [f"block {kept[j]}" for j in order]
        rows = [
            (name, bar, f"{self.distances[j] / unit:.2f}")
            for name, j, bar in zip(far, order, bars, strict=True)
        ]
        words = (
            "Distance of each candidate from the merged model, in majority radii, farthest first. Beyond 3 "
            "a block stands out: it holds rows that the others do not agree with."
        )
        return [
            Section("Spread of the candidates", [words], grid=Grid(("candidate", "", "radii away"), rows))
        ]

    def to_html(self) -> str:
        """The report as a page of its own, without anything from the network (needs jinja2)."""
        facts = [("method", self.method), ("blocks", str(self.k)), ("passes", str(self.passes))]
        return render(Page(self.method, "How one fit went.", self.verdict(), facts, self.sections()))


def merge_facts(vectors: Array, kept: NDArray[np.intp], point: Array) -> dict[str, Any]:
    """Fields of a report that say how the candidates lie around the merged point."""
    distances, most = distances_from(vectors, point), len(vectors) // 2
    radius = float(np.partition(distances, most)[most])
    stand_out = kept[distances > FAR * max(radius, 1e-300)]
    return {"radius": radius, "distances": distances, "stand_out": stand_out}


def validation_facts(validation: Validation, best: int, scored: Any = slice(None)) -> dict[str, Any]:
    """Fields of a report that say what validation found, of all candidates or of those that were scored."""
    return {
        "validation_risk": validation.risk[scored],
        "validation_low": validation.low[scored],
        "validation_high": validation.high[scored],
        "best": best,
        "mean": validation.mean,
        "caution": interval_warning(validation.in_doubt),
    }
