"""How candidates become one model: merged (Algorithm 1) or validated (Algorithm 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import assert_all_finite

from tailproof.core import Array
from tailproof.core.algorithms import FAR, TrainedCandidates, merge, select
from tailproof.core.intercept import block_intercept_shift
from tailproof.core.losses import SOFTMAX
from tailproof.core.merge import majority_radius
from tailproof.core.partition import Block, train_validation
from tailproof.core.sgd import SGDLearner
from tailproof.core.theory import blocks_for
from tailproof.core.validate import Validation, interval_warning
from tailproof.estimators.linear.fit import LinearSGD
from tailproof.estimators.linear.partial_fit import Stream

_KEPT_FOR_VALIDATION = 20_000  # rows that partial_fit of RV keeps to score its candidates on


class Merging(LinearSGD):
    """DC: candidates from all rows, merged (Algorithm 1)."""

    merge: str
    trim: bool
    _method = "dc"

    def _name(self) -> str:
        return f"DC-SGD, merge={self.merge}"

    def _rows(self, n: int, seed: Any) -> tuple[Any, Any]:
        return None, None

    def _combine(
        self, learner: SGDLearner, candidates: TrainedCandidates, parts: list[Block], held_out: Any
    ) -> dict[str, Any]:
        found = self._merged(learner, candidates)
        self._recentre(learner, parts)
        return found

    def _merged(self, learner: SGDLearner, candidates: TrainedCandidates) -> dict[str, Any]:
        found = merge(candidates, self.merge, trim=self.trim)
        self._set_candidates(learner, candidates.vectors)
        self._set_model(learner, found.point)
        distances = np.linalg.norm(candidates.vectors - found.point, axis=1)
        radius = majority_radius(candidates.vectors, found.point)
        return {
            "radius": radius,
            "distances": distances,
            "stand_out": candidates.kept[distances > FAR * max(radius, 1e-300)],
        }

    def _combine_stream(
        self, stream: Stream, learner: SGDLearner, candidates: TrainedCandidates
    ) -> dict[str, Any]:
        return self._merged(learner, candidates)

    def _theorem(self, k: int, n: int) -> str:
        least = blocks_for(self.delta, "dc")
        if self.merge == "centroid":
            return "none: the centroid has no guarantee"
        if k < least:
            return f"none: Theorems 1 and 2 need k ≥ {least} at δ = {self.delta:g}, here k = {k}"
        return (
            f"Lemma boost_conf_sc: k = {k} ≥ ⌈8 log(1/δ)⌉ = {least}, n ≥ k; Theorems 1 and 2 also ask for "
            "a strongly convex risk and their own steps"
        )


class Validating(LinearSGD):
    """RV: candidates from part of the rows, the winner by a robust mean on the others (Algorithm 5)."""

    mean: str
    validation_fraction: float
    cross_validate: bool
    _method = "rv"
    _least_rows = 2

    def _name(self) -> str:
        name = "RV-SGDAve" if self.average else "RV-SGD"
        return f"{name}{'-CV' if self.cross_validate else ''}, mean={self.mean}"

    def _rows(self, n: int, seed: Any) -> tuple[Any, Any]:
        if self.cross_validate:
            return None, None
        # A key that the blocks do not use: their shuffle must not repeat this one.
        apart = np.random.SeedSequence(seed.entropy, spawn_key=(2**32 - 1,))
        return train_validation(n, self.validation_fraction, apart, shuffle=self.shuffle)

    def _combine(
        self, learner: SGDLearner, candidates: TrainedCandidates, parts: list[Block], held_out: Any
    ) -> dict[str, Any]:
        rows = [held_out] * len(candidates.kept)
        if self.cross_validate:
            every = np.concatenate([part.rows for part in parts])
            rows = [np.setdiff1d(every, parts[j].rows) if len(parts) > 1 else every for j in candidates.kept]
        if self.recentre and self.fit_intercept and learner.loss.unbounded:
            candidates = _with_own_intercepts(learner, candidates, parts)
        return self._choose(learner, candidates, self._losses(learner, candidates, rows))

    def _choose(
        self, learner: SGDLearner, candidates: TrainedCandidates, losses: list[Array]
    ) -> dict[str, Any]:
        return self._chosen(learner, candidates, select(losses, self.mean, self.delta))

    def _chosen(
        self, learner: SGDLearner, candidates: TrainedCandidates, found: Validation
    ) -> dict[str, Any]:
        self._set_candidates(learner, candidates.vectors)
        self._set_model(learner, candidates.vectors[found.best])
        self.best_index_, self.validation_risk_ = int(candidates.kept[found.best]), found.risk
        return {
            "validation_risk": found.risk,
            "validation_low": found.low,
            "validation_high": found.high,
            "best": self.best_index_,
            "mean": found.mean,
            "caution": interval_warning(found.in_doubt),
        }

    def _losses(
        self, learner: SGDLearner, candidates: TrainedCandidates, rows: list[NDArray[np.intp]]
    ) -> list[Array]:
        """Losses of each candidate on its rows, times the weights of the rows."""
        found = []
        for vector, chosen in zip(candidates.vectors, rows, strict=True):
            coef, intercept = learner.unpack(vector)
            scores = np.asarray(learner.X[chosen] @ coef.T) + intercept
            if not np.all(np.isfinite(scores)):
                assert_all_finite(learner.X, input_name="X")
            found.append(_row_losses(learner, scores, chosen))
        return found

    def _hold_out(self, stream: Stream, learner: SGDLearner, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Deal a random share of the rows to validation, of which the latest are kept."""
        held = stream.coin.random(rows.size) < self.validation_fraction
        chosen = rows[held]
        weights = learner.weights[chosen] if learner.weights.size else np.ones(chosen.size)
        stream.keep(learner.X[chosen], learner.y[chosen], weights, _KEPT_FOR_VALIDATION)
        return rows[~held]

    def _combine_stream(
        self, stream: Stream, learner: SGDLearner, candidates: TrainedCandidates
    ) -> dict[str, Any]:
        if stream.held_out is None:
            self._set_candidates(learner, candidates.vectors)
            self._set_model(learner, candidates.vectors[0])
            return {}
        X, y, weights = stream.held_out
        held_out = replace(learner, X=X, y=y, weights=weights)
        rows = [np.arange(y.size)] * len(candidates.kept)
        return self._choose(learner, candidates, self._losses(held_out, candidates, rows))

    def _theorem(self, k: int, n: int) -> str:
        least = blocks_for(self.delta, "rv")
        if self.cross_validate:
            return "none: scoring candidates on each other's training rows is a heuristic"
        if self.delta > 1 / 3 or k < least or n < 2 * k:
            return f"none: Theorem 3 needs δ ≤ 1/3, k ≥ {least} and n ≥ 2k; here k = {k}, n = {n}"
        return (
            f"Lemma boost_conf_unbounded: k = {k} ≥ {least}, n ≥ 2k; Theorem 3 also asks for a smooth risk, "
            "averaging and its own steps"
        )


def _with_own_intercepts(
    learner: SGDLearner, candidates: TrainedCandidates, parts: list[Block]
) -> TrainedCandidates:
    """Each candidate with the intercept that fits its own block best, given its other coefficients."""
    vectors = candidates.vectors.copy()
    for vector, j in zip(vectors, candidates.kept, strict=True):
        coef, intercept = learner.unpack(vector)
        rows = parts[j].rows
        scores = np.asarray(learner.X[rows] @ coef[0]) + intercept[0]
        share = learner.weights[rows] if learner.weights.size else None
        vector[-1] += block_intercept_shift(learner.loss, scores, learner.y[rows], share)
    return replace(candidates, vectors=vectors)


def _row_losses(learner: SGDLearner, scores: Array, rows: NDArray[np.intp]) -> Array:
    y = learner.y[rows]
    if learner.outputs == 1:
        losses = learner.loss.value(scores[:, 0], y)
    elif learner.loss.code == SOFTMAX:
        losses = learner.loss.value(scores, y)
    else:
        signs = np.where(y[:, None] == np.arange(learner.outputs), 1.0, -1.0)
        losses = learner.loss.value(scores, signs).sum(axis=1)
    return losses * learner.weights[rows] if learner.weights.size else losses
