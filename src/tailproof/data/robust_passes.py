"""Levels of a RobustRegressor that a sample chose, fitted on all rows in two or three passes.

Gradients of all rows and curvatures of rows that stand for them make the steps: each leaves a share of the
error that is the relative error of the Hessian, √(d/m) for m rows of d columns. What travels are a few
numbers for each level and column, and the rows of large leverage that the sample knows too little of
(:mod:`tailproof.data.leverage`): no Gram matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.data.level_evidence import (
    evidence_of,
    for_scaled_columns,
    mean_equation,
    mean_row,
    noise_of,
    reach_of,
    recentred,
    theta_of,
)
from tailproof.data.level_sums import Columns, LevelSums, LevelTotals
from tailproof.data.leverage import Leverage
from tailproof.data.random_sample import RowNumbers
from tailproof.data.second_passes import SecondDescent
from tailproof.data.standing_rows import Standing, standing_for_all
from tailproof.estimators.inputs import entropy
from tailproof.estimators.robust_regressor.all_rows import (
    CORRECTED,
    Judgement,
    Reach,
    judge,
    solved_along_all,
)
from tailproof.estimators.robust_regressor.candidates import RegressionTask, Unit, weights_of
from tailproof.estimators.robust_regressor.compared import is_surprising
from tailproof.estimators.robust_regressor.glitches import feature_limits
from tailproof.estimators.robust_regressor.levels import Scores, with_least_squares
from tailproof.estimators.robust_regressor.log_noise import (
    LOG_NOISE_LEVEL,
    LogNoise,
    log_noise,
    measure_of_size,
)
from tailproof.estimators.robust_regressor.newton import StandIns, Walk, affords_hessians
from tailproof.estimators.robust_regressor.second_fit import Learned
from tailproof.estimators.robust_regressor.truncation_path import Refit, TruncationPath
from tailproof.reports.fit_report import Clock

_PASSES = 3  # at most
_CLOSE = 0.003  # of the standard error of a level: what two passes may leave for a third one to correct
_KEY = 2**32 - 5  # apart from that of the sample
_SHRINKS = 0.3  # the last step, whose value no pass has seen, is taken if it is so much shorter
_MOST_BLOCKS = 0.75  # of the guard: if so many are worse off, the sample's fit is kept

_UNSETTLED = (
    "Slopes were not fitted once more by what the sample tells of the noise: in so few passes over all rows "
    "that did not settle."
)


@dataclass(frozen=True, eq=False)
class RowsToChooseBy:
    """Rows of a sample that choose at first, step by step, and where these have missed what matters.

    ``low`` and ``high`` are the least target of all rows and the largest, which tell.
    """

    few: tuple[NDArray[np.intp], ...]
    many: NDArray[np.intp]
    low: float
    high: float


@dataclass(eq=False)
class AllRows:
    """All rows, wherever they are, for the levels that the sample chose; see ``RegressionTask.refitted``.

    Parameters
    ----------
    engine : StreamEngine, DaskEngine or SparkEngine
    numbers : RowNumbers
    task : RegressionTask
        The sample's, without its glitches.
    choosing : RowsToChooseBy
    glitches : array or None
        Features of the sample's glitches; None where glitches are rows like others.
    clock : Clock
    """

    engine: Any
    numbers: RowNumbers
    task: RegressionTask
    choosing: RowsToChooseBy
    glitches: Any
    clock: Clock
    X: None = None  # nowhere in one piece
    size: float = 0.0
    used: int = 0
    left_out: int = 0
    passes: int = 0
    kept: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)
    corrected: bool = False
    unsettled: bool = False
    learned: Learned | None = None
    second: SecondDescent | None = None

    def knowing(self, learned: Learned | None) -> AllRows:
        """The same, with what the rows that choose have learned about the noise."""
        self.learned = learned
        return self

    def compared(self, levels_alone: bool) -> RegressionTask:
        """The rows to choose by, as in memory."""
        choosing = self.choosing
        if levels_alone:
            for rows in choosing.few:
                part = self.task.taken(rows)
                if not is_surprising(choosing.low, choosing.high, part.y, part.tuning):
                    return part
        return self.task.taken(choosing.many)

    def refitted(self, path: TruncationPath, members: tuple[int, ...], unit: Unit) -> Refit:
        """Some levels of a path that was solved on the sample, on all rows."""
        with self.clock("all rows"):
            path = path.only(with_least_squares(path.levels, members))
            sizes = measure_of_size(path)
            path = path.moved(self.task.X, unit.to_unit(self.task.y), weights_of(self.task)).cautious()
            if self.learned is not None:
                judges = (*self.choosing.few, self.choosing.many)[max(len(self.choosing.few) - 1, 0)]
                rows = path, self.task.X, judges
                self.second = SecondDescent(self.learned, *rows, self.blocks, self.task.delta)
            return self._judged(path, *self._descended(path, unit, sizes), len(members))

    def _descended(
        self, path: TruncationPath, unit: Unit, sizes: LogNoise
    ) -> tuple[PathDescent, LevelSums, LevelTotals]:
        """The levels after two or three steps, with the last pass and its sums."""
        measure = self._first_pass(path, unit, sizes)
        totals = self._totals(measure)
        standing = standing_for_all(path, self.task, measure, totals)
        measure = replace(measure, far=reach_of(standing.rows, measure.columns, totals))
        descent = PathDescent(path, standing, totals)
        self._advance(descent, totals, measure.columns)
        while self.passes < _PASSES and not self._is_close(descent):
            following = self._following(measure, totals, descent)
            if self._is_left_alone(descent):
                self._advance_second(descent, self._totals(replace(following, alone=True)))
                continue
            measure, totals = following, self._totals(following)
            self._advance(descent, totals, measure.columns)
        return descent, measure, totals

    def _is_left_alone(self, descent: PathDescent) -> bool:
        """Whether a second fit that does without the levels is all that is not close."""
        return descent.is_close() and self.second is not None and self.second.is_by_size

    def _advance(self, descent: PathDescent, totals: LevelTotals, columns: Columns) -> None:
        descent.advance(totals, columns)
        self._advance_second(descent, totals)

    def _advance_second(self, descent: PathDescent, totals: LevelTotals) -> None:
        if self.second is not None:
            self.second.advance(totals.second, descent.standing)

    def _is_close(self, descent: PathDescent) -> bool:
        return descent.is_close() and (self.second is None or self.second.is_close())

    def _judged(
        self,
        path: TruncationPath,
        descent: PathDescent,
        measure: LevelSums,
        totals: LevelTotals,
        members: int,
    ) -> Refit:
        phi, worse = descent.result()
        standing = replace(descent.path, phi=phi)
        self.used, self.left_out = (int(count) for count in totals.sizes[2:4])
        self.size = totals.effective_rows
        plain = measure.plain
        second = self.second.here.equations.theta if self.second and self.second.here else None
        evidence = evidence_of(standing, second, measure, totals)
        standing = solved_along_all(standing, evidence.noise, evidence.means, plain)
        phi = standing.phi
        theta = recentred(path.rows, standing, measure, totals, self.task.delta)
        judgement = judge(standing, theta, evidence, plain)
        # On the sample a level and least squares have another error.
        judgement = judgement.only(~(worse | worse[plain]))
        self._remember(path.levels.names()[:members], worse, judgement)
        path = replace(path, phi=path.basis.coordinates(standing.basis.map @ phi))
        refit = judgement.refit(path, theta, plain, members)
        # A few far rows may spoil least squares and not scores, which are bounded as truncated levels are.
        if self.second is None or worse[path.levels.truncated].any():
            return refit
        self.unsettled = not self.second.settled
        # So it is the sample's least squares that may contradict where that of all rows is not taken.
        least_squares = standing.basis.map @ phi[:, plain]
        apart = float(evidence.covariances[-1, -1])
        return replace(refit, second=self.second.result(least_squares, evidence, apart, self.size))

    @property
    def blocks(self) -> int:
        """Of rows, for robust scales."""
        return max(3, math.ceil(-math.log(self.task.delta)))

    def _totals(self, measure: LevelSums) -> LevelTotals:
        self.passes += 1
        return measure.totals(self.engine.reduce(measure))

    def _remember(self, names: list[str], worse: NDArray[np.bool_], judgement: Judgement) -> None:
        self.kept = [name for name, bad in zip(names, worse, strict=False) if bad]
        self.corrected = judgement.corrects
        shares = zip(names, judgement.pull, strict=False)
        self.drawn = [f"{name} ({100 * share:.0f}%)" for name, share in shares if share > 0]

    def _first_pass(self, path: TruncationPath, unit: Unit, sizes: LogNoise) -> LevelSums:
        columns, none = Columns.of(path.rows.columns), np.zeros(len(path.levels))
        limits = np.full(columns.offset.size, np.inf)
        if self.glitches is not None:
            tuning = path.rows.tuning
            limits = feature_limits(self.task.X, self.glitches, self.numbers.total, columns.scale, tuning)
        return LevelSums(
            columns=columns,
            levels=path.levels,
            theta=theta_of(path, path.phi),
            unit=unit,
            limits=limits,
            numbers=self.numbers,
            blocks=self.blocks,
            centre=none,
            reach=none,
            far=Reach(none, none),  # known after the first pass
            leverage=Leverage.of_sample(path, columns.offset, self.numbers.total),
            noise=log_noise(path, path.residuals_of(LOG_NOISE_LEVEL), sizes)[0],
            key=_key(self.task.seed),
            second=self.second.here if self.second else None,
            tuning=self.task.tuning,
        )

    def _following(self, measure: LevelSums, totals: LevelTotals, descent: PathDescent) -> LevelSums:
        """The next pass, where the steps have led, with Catoni's equation for the mean residuals."""
        theta, rows = descent.theta, descent.path.rows
        start, reach = measure.centre, measure.reach
        if measure.number == 0:
            start, reach = mean_equation(totals, self.task.delta)
        moved = mean_row(totals, measure.columns, rows) @ (theta - measure.theta)
        limits = measure.limits if totals.sizes[3] else np.full_like(measure.limits, np.inf)
        return replace(
            measure,
            theta=theta,
            number=measure.number + 1,
            limits=limits,
            centre=start - moved,
            reach=reach,
            noise=noise_of(descent.path, measure, totals),
            second=self.second.here if self.second else None,
        )

    def remarks(self) -> tuple[str, ...]:
        """How it went, a sentence each."""
        far = f"Of all rows, {self.left_out:,} were left out for features far beyond the sample's."
        kept = (
            f"Kept as fitted on the sample: {'; '.join(self.kept)}, since the fit on all rows is no better "
            "for most of them."
        )
        drawn = (
            f"Drawn towards least squares: {'; '.join(self.drawn)}, since by all rows they differ from it by "
            "more than chance."
        )
        return (
            f"Fitted on all {self.used:,} rows by {self.passes} passes from the fit on the sample.",
            *([far] if self.left_out else []),
            *([kept] if self.kept else []),
            *([CORRECTED] if self.corrected else []),
            *([drawn] if self.drawn else []),
            *([_UNSETTLED] if self.unsettled else []),
        )


class PathDescent:
    """Levels on their way from the fit on the sample, and how good they were for blocks of rows.

    Parameters
    ----------
    path : TruncationPath
        Of the sample.
    standing : Standing
        Rows that stand for all.
    totals : LevelTotals
        Of the first pass.
    """

    def __init__(
        self,
        path: TruncationPath,
        standing: Standing,
        totals: LevelTotals,
    ) -> None:
        self.standing, self.path = standing, standing.path
        self.system = self.path.system() if affords_hessians(self.path.rows) else None
        self.walk = Walk.start(np.arange(len(path.levels)), self.path.phi, path.levels, None)
        self.first = self.best = totals.value
        self.before = np.zeros(len(path.levels))
        variance = path.evidence().variance * (path.rows.weights.sum() / totals.sizes[0])
        self.error = np.sqrt(np.nan_to_num(variance))

    @property
    def theta(self) -> Array:
        """Where the levels are, for scaled columns."""
        return theta_of(self.path, self.walk.phi)

    def advance(self, totals: LevelTotals, columns: Columns) -> None:
        """One step by the sums of a pass: a whole one if the last one was good, else half of that."""
        path, walk, total = self.path, self.walk, float(totals.sizes[0])
        none = np.empty(0)
        gradient = path.basis.map.T @ for_scaled_columns(totals.gradient, columns, path.rows).T
        scores = Scores(totals.value.sum(axis=1), gradient, none, none)
        here, self.before = walk.phi, np.linalg.norm(walk.step, axis=0)
        walk.system = StandIns(path.rows, path.levels, walk.phi, totals.effective_rows, self.system)
        walk.advance(path.rows, scores, total, np.full(len(path.levels), path.rows.tuning.tolerance))
        taken = np.all(walk.accepted == here, axis=0)
        self.best = np.where(taken[:, None], totals.value, self.best)

    def is_close(self) -> bool:
        """Whether what the steps have left is small beside the errors of the fits, as the last two tell."""
        length = np.linalg.norm(self.walk.step, axis=0)
        return bool(self.before.any() and np.all(length**2 <= _CLOSE * self.error * self.before))

    def result(self) -> tuple[Array, NDArray[np.bool_]]:
        """φ of every level, and which of them are still the sample's, since most rows say so.

        The objective of all rows does not tell: a few of them far away may have pulled the fit to where it is
        worse for all others.
        """
        walk, start = self.walk, self.path.phi
        shorter = np.linalg.norm(walk.step, axis=0) <= _SHRINKS * self.before
        phi = np.where(shorter, walk.phi, walk.accepted)
        worse = (self.best > self.first).mean(axis=1) >= _MOST_BLOCKS
        worse |= np.all(walk.accepted == start, axis=0)
        return np.where(worse, start, phi), worse


def _key(seed: np.random.SeedSequence) -> int:
    apart = np.random.SeedSequence(entropy(seed), spawn_key=(_KEY,))
    return int(apart.generate_state(1, np.uint64)[0])
