"""A second fit by what was learned about the noise, in the same passes over all rows as the levels.

See :mod:`tailproof.estimators.robust_regressor.second_fit`. Curvatures are those of rows that stand for all;
a pass brings sums of scores (:mod:`tailproof.data.second_sums`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.data.second_sums import SecondPass
from tailproof.data.standing_rows import Standing
from tailproof.estimators.robust_regressor.all_rows import AllRowsEvidence
from tailproof.estimators.robust_regressor.law_equations import ByLaw
from tailproof.estimators.robust_regressor.led_by_some import (
    law_led_by_some,
    led_by_far_rows,
    led_by_some,
)
from tailproof.estimators.robust_regressor.noise_equations import BySize
from tailproof.estimators.robust_regressor.row_tiles import in_scaled_columns
from tailproof.estimators.robust_regressor.scaled_rows import ScaledRows
from tailproof.estimators.robust_regressor.score_equations import ByScore
from tailproof.estimators.robust_regressor.score_steps import curvature_of_rows
from tailproof.estimators.robust_regressor.second_fit import (
    Learned,
    SecondFit,
    agreement_of,
    kept_near,
    plain_theta,
    solved_on_sample,
    with_law,
)
from tailproof.estimators.robust_regressor.size_misfit import trusted_share
from tailproof.estimators.robust_regressor.truncation_path import TruncationPath

# Lengths of steps, and of what these leave for another pass to correct, are in standard errors of the fit.
_CLOSE = 0.005  # what steps by a score or by sizes may leave
_CLOSE_BY_LAW = 0.002  # what steps by a law may leave
_LONG = 1.5  # a first step by sizes after which the next pass cannot be the last one: it leaves 2 to 4%
_LONG_BY_LAW = 0.2  # the same of a law: steps leave a tenth, at first and again
_LEAVES = 0.1  # share of a later step by sizes or by a law that it leaves at least
_FAR = 0.1  # what steps may leave after the last pass: with more there is no second fit
_TINY = 1e-300


def longer(before: Array, step: Array) -> float:
    """Factor of a step that makes up for what the one before left: with one curvature steps are geometric."""
    change = step - before
    return float(np.clip(1.0 - step @ change / max(float(change @ change), _TINY), 0.5, 1.5))


def _left(length: float, before: float) -> float:
    """What the last of two steps has left, if the next one were shorter by the same factor."""
    return length**2 / max(before, _TINY) if math.isfinite(before) else math.inf


def _left_by_size(length: float, before: float) -> float:
    """The same where rows that an edge of ψ passes count, and so nothing shrinks at one rate."""
    return max(_left(length, before), _LEAVES * length)


class SecondDescent:
    """A second fit on its way from the fit on the sample.

    Parameters
    ----------
    learned : Learned
    path : TruncationPath
        Of the sample, with least squares among its levels.
    X : array
        The sample's features as they are.
    judges : array of int
        Rows of the sample that say whether sizes are as modelled.
    blocks : int
    delta : float
    """

    def __init__(
        self,
        learned: Learned,
        path: TruncationPath,
        X: Any,
        judges: NDArray[np.intp],
        blocks: int,
        delta: float,
    ) -> None:
        self.delta, self.sample, self.X, self.judges = delta, path.rows, X, judges
        self.learned = learned.on(path.rows, plain_theta(path))
        self.here = self._first(path, X, blocks)
        self.last: tuple[SecondPass, Array] | None = None
        self.length = self.before = math.inf
        self.law_length = self.law_left = math.inf
        self.step: Array | None = None
        self.led = False
        self.some: ScaledRows | None = None

    def _first(self, path: TruncationPath, X: Any, blocks: int) -> SecondPass | None:
        found, across = solved_on_sample(path, X, self.learned), self.learned.across
        return SecondPass.of_sample(*found, blocks, across.law if across else None) if found else None

    def _in_all_directions(self, standing: ScaledRows) -> SecondPass | None:
        """Where it is, now that rows may vary along columns that were constant in the sample."""
        if self.here is None:
            return None
        here = self.here.equations
        if standing.parameters <= here.map.shape[1]:
            return self.here
        if isinstance(here, BySize):  # sums of the pass are in its coordinates
            return None
        self.learned = replace(self.learned, equations=here).on(standing, here.theta)
        return replace(self.here, equations=self.learned.equations)

    def advance(self, sums: Array, standing: Standing) -> None:
        """A step by the sums of a pass, with rows that stand for all."""
        added_up = self.here = self._in_all_directions(standing.rows)
        if added_up is None:
            return
        unscaled = isinstance(added_up.equations, BySize) and not added_up.reach
        here = added_up.with_scale(sums, self.delta) if unscaled else added_up
        stepped = self._stepped(here, sums, standing)
        if stepped is None:
            self.here = None
            return
        there, length, self.step = stepped
        law = self._law_stepped(here, there, sums)
        long = length > _LONG or (law is not None and self.law_length > _LONG_BY_LAW)
        judged = self.last is not None or not long
        self.last, self.before, self.length = (added_up, sums), self.length, length
        self.here = replace(here, equations=there, judged=judged, law=law) if length < self.before else None

    def _stepped(
        self, here: SecondPass, sums: Array, standing: Standing
    ) -> tuple[ByScore | BySize, float, Array] | None:
        """Where a step leads, its length, and what it changes in θ; None where it does not settle."""
        equations, scores, before = here.equations, here.of_scores(sums), self.step
        if isinstance(equations, ByScore):
            self.led = standing.far is not None
            led = led_by_far_rows(equations, scores, standing.rows, standing.far)
            if led is None or before is None:
                return led
            there, length, step = led
            return replace(there, theta=equations.theta + longer(before, step) * step), length, step
        self.some = standing.scaled
        by_sizes = led_by_some(equations, scores, self.some)
        if by_sizes is not None:
            return by_sizes
        curved = equations.curved(curvature_of_rows(equations, standing.rows))
        further, length = curved.stepped(scores)
        step = further.theta - equations.theta
        if before is not None:
            further, _ = curved.stepped(scores, longer(before, step))
        return further, length, step

    def _law_stepped(self, here: SecondPass, there: ByScore | BySize, sums: Array) -> ByLaw | None:
        """Where the law's slopes are after the sizes have moved; None once their steps do not settle."""
        if here.law is None or not (isinstance(here.equations, BySize) and isinstance(there, BySize)):
            return None
        assert self.some is not None
        before, self.law_length, self.law_left = self.law_length, math.inf, math.inf
        found = law_led_by_some(here.law, here.of_law(sums), here.equations, there, self.some)
        if found is None:
            return None
        law, self.law_length = found
        self.law_left = _left_by_size(self.law_length, before)
        return law

    @property
    def left(self) -> float:
        """What the last step has left, as the last two tell, in standard errors."""
        left = _left_by_size if self.is_by_size or self.led else _left
        return left(self.length, self.before)

    @property
    def is_by_size(self) -> bool:
        """Whether sizes of the noise are modelled."""
        return self.here is not None and isinstance(self.here.equations, BySize)

    def is_close(self) -> bool:
        """Whether another pass would change next to nothing."""
        if self.here is None or self.last is None:
            return self.here is None
        if isinstance(self.here.equations, ByScore):
            return self.left <= _CLOSE
        close = self.here.law is None or self.law_left <= _CLOSE_BY_LAW
        return close and self.last[0].judged and self.left <= _CLOSE

    @property
    def settled(self) -> bool:
        """Whether the steps have led somewhere."""
        return self.here is not None and self.left <= _FAR

    def result(self, plain: Array, found: AllRowsEvidence, apart: float, size: float) -> SecondFit | None:
        """The fit, given θ of least squares, the variance of the distance to it, and what all rows tell."""
        if self.here is None or self.last is None or not self.settled:
            return None
        (last, sums), here = self.last, self.here.equations
        equations = kept_near(here, last.of_scores(sums), plain, found.mean_row)
        if not equations.suits(*found.noise.along_columns, size):
            return None
        conflict = equations.conflict(last.of_scores(sums), plain, apart)
        agreement = agreement_of(conflict, self.sample.tuning)
        if isinstance(equations, ByScore):
            return SecondFit(equations, found.mean_row, size, agreement, self.learned)
        errors = equations.distance_errors(last.of_scores(sums))
        some = in_scaled_columns(self.sample, self.X).take(self.judges)
        trusted = trusted_share(equations, some, errors, self.sample.tuning)
        law = self.here.law if self.law_left <= _FAR else None
        equations, across = with_law(equations, law, last.of_scores(sums), plain, size, self.sample.tuning)
        level = last.level(sums, equations, self.sample, self.delta)
        fit = equations, found.mean_row, size, agreement, self.learned, level, across
        return SecondFit(*fit, trusted=trusted)
