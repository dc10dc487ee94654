"""Rounds of DC-SGD: all candidates start where those of the round before merge; k may change (stage-wise).

One round is Algorithm 1, many rounds of one gradient each are RGD-MoM. What lies between pays where blocks
are small beside the number of parameters: no candidate gets far on its own rows, but together they point
the right way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tailproof.core import Array
from tailproof.core.algorithms import TrainedCandidates, merge
from tailproof.core.partition import Block
from tailproof.core.sgd import SGDLearner
from tailproof.core.theory import blocks_for
from tailproof.estimators.inputs import projected
from tailproof.estimators.linear.early_stopping import EARLY_STOPPING, RowsStoppedEarly
from tailproof.reports.fit_report import merge_facts
from tailproof.reports.round_report import RoundReport

_PASSES = 2  # of a round, with max_iter="auto": the second has smaller steps, more would fit the block
_ROWS = 20  # of a block, at least, with k="auto"


def restarted(learner: SGDLearner, point: Array, k: int) -> SGDLearner:
    """The learner, starting at a merged point with k blocks."""
    start = learner.unpack(point)
    coef, intercept = projected(learner.constraint, *start, learner.columns.centre)
    return replace(learner, start_coef=coef, start_intercept=intercept, n_blocks=k)


def block_counts(rounds: int | Sequence[int], k: int) -> list[int]:
    """Blocks of every round: k in each, or as given.

    Examples
    --------
    >>> block_counts(3, 24), block_counts((24, 12), 24)
    ([24, 24, 24], [24, 12])
    """
    return [int(count) for count in rounds] if isinstance(rounds, Sequence) else [k] * int(rounds)


class RowsInRounds:
    """Rows on which candidates are trained in rounds; all else is as the rows themselves do it.

    The schedule of steps begins again in every round, as the theorems ask, which are about a run from its
    start: what Theorem 2 loses to the start, M*, shrinks with its distance.

    Parameters
    ----------
    rows : TrainingRows
    model : Merging
        Says ``rounds``, ``k``, ``delta``, ``merge`` and ``trim``.
    """

    def __init__(self, rows: Any, model: Any) -> None:
        self._rows, self._model = rows, model
        self._why: dict[str, str] = {}
        self.reports: list[RoundReport] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def assign(self, k: int) -> list[Block]:
        """Assign the training rows to the blocks of the first round, more than k where those were too few."""
        rounds, automatic = self._model.rounds, self._model.k == "auto"
        if isinstance(rounds, Sequence):
            _check_counts(rounds, automatic, self._rows.n)
            k, self._why = int(rounds[0]), {"why_k": "set by the user, for each round"}
        least = min(blocks_for(self._model.delta, "dc"), max(1, self._rows.n // _ROWS))
        if automatic and not self._why and k < least:
            k, self._why = least, {"why_k": f"{least} of few rows each, which rounds make up for"}
        self._k = k
        return list(self._rows.assign(k))

    def train(self, learner: SGDLearner, passes: int | None, verbose: int) -> TrainedCandidates:
        """Candidates of the last round."""
        candidates = self._round(replace(learner, n_blocks=self._k), passes, verbose)
        counts = block_counts(self._model.rounds, len(self._rows.sizes()))  # fewer, where blocks had no rows
        for k in counts[1:]:
            self._rows.assign(k)
            learner = restarted(learner, self._point, k)
            candidates = self._round(learner, passes, verbose)
        return replace(candidates, passes=candidates.passes * len(counts))

    def _round(self, learner: SGDLearner, passes: int | None, verbose: int) -> TrainedCandidates:
        candidates: TrainedCandidates = self._rows.train(learner, passes or _PASSES, verbose)
        voters, k = self._rows.voters(candidates), len(self._rows.sizes())
        self._point = merge(voters, self._model.merge, trim=self._model.trim).point
        facts = merge_facts(voters.vectors, voters.kept, self._point)
        distances = np.full(k, np.inf)
        distances[candidates.kept] = np.linalg.norm(candidates.vectors - self._point, axis=1)
        number, diverged = len(self.reports) + 1, np.setdiff1d(np.arange(k), candidates.kept)
        self.reports.append(RoundReport(number, facts["radius"], distances, facts["stand_out"], diverged))
        return candidates

    def held_out_errors(self, *model: Any) -> None:
        """Nothing: every candidate starts at a point that has seen all rows."""
        return

    def facts(self) -> dict[str, Any]:
        """What the report says about the data and the rounds."""
        return self._why | self._rows.facts() | {"rounds": tuple(self.reports)}


def arranged(rows: Any, model: Any) -> Any:
    """The rows, trained on in rounds or until the risk rises."""
    return RowsStoppedEarly(rows, model) if model.max_iter == EARLY_STOPPING else RowsInRounds(rows, model)


def _check_counts(rounds: Sequence[Any], automatic: bool, n: int) -> None:
    whole = len(rounds) > 0 and all(isinstance(count, int | np.integer) for count in rounds)
    if not whole or min(rounds) < 1 or max(rounds) > n:
        raise ValueError(
            f"rounds must be a number, or the blocks of each round, from 1 to n_samples={n}; got {rounds!r}"
        )
    if not automatic:
        raise ValueError(f"rounds={rounds!r} says how many blocks there are: leave k out")
