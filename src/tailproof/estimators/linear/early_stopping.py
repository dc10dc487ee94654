"""Robust early stopping: passes end when the robust risk of held-out rows no longer falls."""

from __future__ import annotations

from typing import Any

import numpy as np

from tailproof.core.algorithms import TrainedCandidates, merge
from tailproof.core.sgd import SGDLearner

EARLY_STOPPING = "early_stopping"
HELD_OUT = 0.1  # of the rows, where candidates are merged and no others are held out


class RowsStoppedEarly:
    """Rows on which candidates are trained until their risk rises; all else is as the rows themselves do it.

    The risk is that of the merged candidate (DC), or the least of all (RV), by the robust mean of validation,
    on the rows held out; the candidates are those of the pass with the least.

    Parameters
    ----------
    rows : TrainingRows
    model : LinearSGD
    """

    def __init__(self, rows: Any, model: Any) -> None:
        self._rows, self._model = rows, model
        if getattr(model, "rounds", 1) != 1:
            raise ValueError("early stopping counts passes of one round: give max_iter a number, or rounds=1")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def train(self, learner: SGDLearner, passes: Any, verbose: int) -> TrainedCandidates:
        """Candidates of the pass with the least risk."""
        trained: TrainedCandidates = self._rows.train(
            learner, lambda candidates: self._risk(learner, candidates), verbose
        )
        return trained

    def _risk(self, learner: SGDLearner, candidates: TrainedCandidates) -> float:
        model, vectors, kept = self._model, candidates.vectors, candidates.kept
        if hasattr(model, "merge"):
            point = merge(self._rows.voters(candidates), model.merge, trim=model.trim).point
            vectors, kept = point[None], np.zeros(1, dtype=np.intp)
        mean = getattr(model, "mean", "catoni")
        return float(np.min(self._rows.validate(learner, vectors, kept, mean, model.delta).risk))
