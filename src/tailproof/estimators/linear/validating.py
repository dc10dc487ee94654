"""How one candidate of many is chosen on rows that it was not trained on (Algorithm 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.algorithms import TrainedCandidates, select
from tailproof.core.automatic import share_of_untied_targets
from tailproof.core.partition import Block
from tailproof.core.sanity import surely_greater
from tailproof.core.sgd import SGDLearner
from tailproof.core.theory import guarantee
from tailproof.core.validate import Validation
from tailproof.estimators.linear.fit import LinearSGD
from tailproof.estimators.linear.partial_fit import Stream
from tailproof.estimators.linear.training_rows import TrainingRows
from tailproof.reports.fit_report import validation_facts


class Validating(LinearSGD):
    """RV: candidates from part of the rows, the winner by a robust mean on the others (Algorithm 5)."""

    _method = "rv"
    _least_rows = 2

    def _share_to_hold_out(self, streaming: bool = False) -> float:
        return 0.0 if self.cross_validate and not streaming else float(self.validation_fraction)

    def _name(self) -> str:
        name = "RV-SGDAve" if self.average else "RV-SGD"
        return f"{name}{'-CV' if self.cross_validate else ''}, mean={self.mean}"

    def _guarantee(self, k: int, n: int) -> str:
        if self.cross_validate:
            return "none: scoring candidates on each other's training rows is a heuristic"
        return guarantee("rv", k, n, self.delta, sgd=True)

    def _combine(
        self, rows: TrainingRows, learner: SGDLearner, candidates: TrainedCandidates
    ) -> dict[str, Any]:
        vectors, kept = candidates.vectors.copy(), candidates.kept
        if self._recentres(learner.loss):
            vectors[:, -1] += rows.block_shifts(learner, vectors, kept)
        validation = rows.validate(learner, vectors, kept, self.mean, self.delta)
        best = vectors[validation.best]
        facts = self._choose(learner, vectors, kept, validation)
        start = rows.better_start(learner, best)
        if start is not None:
            best, facts["beaten_by_start"] = start, True
            self._set_model(learner, start)
        errors = None if self.cross_validate else rows.held_out_errors(learner, candidates, best, 0.0)
        self._keep_held_out(errors)
        return facts

    def _choose(
        self, learner: SGDLearner, vectors: Array, kept: NDArray[np.intp], validation: Validation
    ) -> dict[str, Any]:
        self._set_candidates(learner, vectors)
        self._set_model(learner, vectors[validation.best])
        self.best_index_, self.validation_risk_ = int(kept[validation.best]), validation.risk
        return validation_facts(validation, self.best_index_)

    def _combine_stream(self, stream: Stream, learner: SGDLearner, candidates: Any) -> dict[str, Any]:
        vectors, held_out = candidates.vectors, stream.held_out
        if held_out is None:
            self._set_candidates(learner, vectors)
            self._set_model(learner, vectors[0])
            return {}
        learner = stream.learner_on(held_out)
        every = np.arange(held_out.y.size)
        start = learner.vector(learner.start(Block(0, every[:0], stream.seed)))
        *losses, at_start = (learner.losses(learner.scores(v, every), every) for v in [*vectors, start])
        untied_share, resistant = share_of_untied_targets(held_out.y), self.drop_glitches
        validation = select(losses, self.mean, self.delta, resistant=resistant, untied_share=untied_share)
        facts = self._choose(learner, vectors, candidates.kept, validation)
        if resistant and surely_greater(losses[validation.best], at_start, untied_share):
            facts["beaten_by_start"] = True
            self._set_model(learner, start)
        return facts
