"""What a fit of the SGD estimators asks of its rows, in memory or in pieces."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.algorithms import Risk, TrainedCandidates
from tailproof.core.held_out import HeldOutErrors
from tailproof.core.losses import Loss
from tailproof.core.partition import Block
from tailproof.core.sgd import SGDLearner
from tailproof.core.validate import Validation


class TrainingRows(Protocol):
    """What a fit asks of its rows, wherever they are.

    Attributes
    ----------
    X, y, weights
        Rows at hand: all of them, or a few to take scales and start from.
    loss, outputs : Loss, int
    seed : SeedSequence
    """

    X: Any
    y: Array
    weights: Array
    loss: Loss
    outputs: int
    seed: np.random.SeedSequence

    @property
    def n(self) -> int:
        """Rows in all."""
        ...

    def hold_out(self, fraction: float) -> int:
        """Keep a share of the rows for validation; return how many are left to train on."""
        ...

    def assign(self, k: int) -> list[Block]:
        """Assign the training rows to k blocks; return the blocks of the rows at hand."""
        ...

    def train(self, learner: SGDLearner, passes: int | Risk | None, verbose: int) -> TrainedCandidates:
        """One candidate for each block."""
        ...

    def sizes(self) -> list[int]:
        """Rows of every block."""
        ...

    def voters(self, candidates: TrainedCandidates) -> TrainedCandidates:
        """The candidates to merge: all but those of blocks that are known to be bad."""
        ...

    def intercept_shift(
        self,
        learner: SGDLearner,
        candidates: TrainedCandidates,
        point: Array,
        model: tuple[Array, float],
        delta: float,
    ) -> float:
        """What to add to the intercept of a model so that its optimality condition holds in robust mean.

        The model has the coefficients and the intercept of the point that the candidates were merged to.
        """
        ...

    def block_shifts(self, learner: SGDLearner, vectors: Array, kept: NDArray[np.intp]) -> Array:
        """What to add to the intercept of each candidate so that it fits its own block best."""
        ...

    def validate(
        self, learner: SGDLearner, vectors: Array, kept: NDArray[np.intp], mean: str, delta: float
    ) -> Validation:
        """Score candidates on the rows held out, or, if there are none, on those of the other blocks."""
        ...

    def held_out_errors(
        self, learner: SGDLearner, candidates: TrainedCandidates, point: Array, shift: float
    ) -> HeldOutErrors | None:
        """Errors of rows under a model that has not seen them; None if they are not at hand."""
        ...

    def better_start(self, learner: SGDLearner, vector: Array) -> Array | None:
        """Where training began (the best constant, if no start was given), if a model is surely worse."""
        ...

    def check_finite(self) -> None:
        """Raise if NaN or infinity in the rows at hand is why candidates are missing."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the report says about the data."""
        ...
