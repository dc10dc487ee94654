"""Sums over batches of rows: what the intercept, the validation and ``score`` need of all data.

An engine takes a measure to the data, adds up what it gives for each batch, and brings back sums, never rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.automatic import intercept_condition
from tailproof.core.losses import Loss
from tailproof.core.numerics.m_estimates import PSI, psi_sums
from tailproof.data.dealing import HELD_OUT, Dealing
from tailproof.data.readers.batches import GROUPS, Batch


class Sums:
    """Base of what is summed over batches; subclasses say what a batch adds.

    Sums that have a name are kept in the checkpoint of a fit, if there is one.
    """

    @property
    def name(self) -> str:
        """Under which a checkpoint keeps the sums; none by default."""
        return ""

    def over_piece(self, batches: Iterable[Batch]) -> Array:
        """Sum over the batches of a piece, in their order."""
        return self.add([self.on_batch(batch) for batch in batches] or [self.nothing()])

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        raise NotImplementedError

    def nothing(self) -> Array:
        """Return the sums over no row."""
        raise NotImplementedError

    @staticmethod
    def add(parts: list[Array]) -> Array:
        """Sum of a few parts, in their order."""
        return np.sum(parts, axis=0)

    def total(self, parts: list[Any], add: Callable[[list[Any]], Any] | None = None) -> Any:
        """Sum of the parts of all pieces, eight at a time in their order: the same bits everywhere."""
        while len(parts) > 1:
            parts = [(add or self.add)(parts[i : i + 8]) for i in range(0, len(parts), 8)]
        return parts[0]


@dataclass(frozen=True, eq=False)
class Measure(Sums):
    """Sums that depend on models, each looked at on rows of its own.

    Parameters
    ----------
    loss : Loss
    coef : array of shape (k, outputs, d)
    intercept : array of shape (k, outputs)
    kept : array of int
        Block of each model.
    dealing : Dealing
    """

    loss: Loss
    coef: Array
    intercept: Array
    kept: NDArray[np.intp]
    dealing: Dealing

    def labels(self, batch: Batch) -> NDArray[Any]:
        """Block of each row; rows that are missing or too far get a label that nobody has."""
        labels = self.dealing.labels(batch.piece, batch.number, len(batch))
        labels[self.dealing.without_far(batch).missing] = HELD_OUT - 1
        return labels

    def scores(self, batch: Batch, model: int, rows: NDArray[np.intp]) -> Array:
        """Linear predictions of one model."""
        return np.asarray(batch.X[rows] @ self.coef[model].T) + self.intercept[model]


@dataclass(frozen=True, eq=False)
class Balance(Measure):
    """Both sides of the intercept's condition, for every model on the rows of its own block.

    Sums have shape (k, GROUPS, 3): numerator, denominator, weight.
    """

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros((len(self.kept), GROUPS, 3))

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        sums, labels = self.nothing(), self.labels(batch)
        for model, block in enumerate(self.kept):
            rows = np.flatnonzero(labels == block)
            sides = intercept_condition(self.loss, self.scores(batch, model, rows)[:, 0], batch.y[rows])
            share = batch.weights[rows] if batch.weights.size else np.ones(rows.size)
            sums[model, batch.group] = share @ sides[0], share @ sides[1], share.sum()
        return sums


@dataclass(frozen=True, eq=False)
class Residuals(Measure):
    """Sums of target less score, and weights, on the rows of each block: (k, GROUPS, 2).

    For identity links, where columns are too many to collect their sums. One model stands for all blocks.
    """

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros((len(self.kept), GROUPS, 2))

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        sums, labels = self.nothing(), self.labels(batch)
        for place, block in enumerate(self.kept):
            rows = np.flatnonzero(labels == block)
            scores = self.scores(batch, min(place, len(self.coef) - 1), rows)[:, 0]
            share = batch.weights[rows] if batch.weights.size else np.ones(rows.size)
            sums[place, batch.group] = share @ (batch.y[rows] - scores), share.sum()
        return sums


@dataclass(frozen=True, eq=False, kw_only=True)
class Losses(Measure):
    """Losses of every model on the rows held out, or on those of the other blocks.

    Losses are taken as (ℓ − centre)/scale, so that sums of powers keep their digits; those beyond ``cut`` of
    their model, if it is given, are left out.
    """

    centre: Array
    scale: Array
    others: bool = False
    cut: Array | None = None

    def values(self, batch: Batch) -> list[Array]:
        """Losses of each model, times the weights of the rows."""
        labels = self.labels(batch)
        values = []
        for model, block in enumerate(self.kept):
            chosen = (labels >= 0) & (labels != block) if self.others else labels == HELD_OUT
            rows = np.flatnonzero(chosen)
            losses = self.loss.of_rows(self.scores(batch, model, rows), batch.y[rows])
            weighted = losses * batch.weights[rows] if batch.weights.size else losses
            values.append(self._within(model, (weighted - self.centre[model]) / self.scale[model]))
        return values

    def _within(self, model: int, values: Array) -> Array:
        """Values not beyond the cut; what is not finite stays, and tells of overflow."""
        if self.cut is None:
            return values
        return values[(np.abs(values) <= self.cut[model]) | ~np.isfinite(values)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Moments(Losses):
    """Counts and sums of four powers of the losses, in parts for medians of means: (k, parts, 5)."""

    parts: int = 1

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros((len(self.kept), self.parts, 5))

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.stack([self.of_model(model, values) for model, values in enumerate(self.values(batch))])

    def of_model(self, model: int, values: Array) -> Array:
        """Return the sums over the losses of one model."""
        parts = [values[part :: self.parts] for part in range(self.parts)]
        return np.array(
            [[sample.size, *((sample**power).sum() for power in (1, 2, 3, 4))] for sample in parts]
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Influence(Losses):
    """Σ ψ and Σ ψ′ of the losses at θ, for one step of Catoni's equation: (k, 2)."""

    theta: Array
    width: Array

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros((len(self.kept), 2))

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        code, even = PSI["polynomial"], np.empty(0)
        sums = self.nothing()
        for model, values in enumerate(self.values(batch)):
            if self.width[model] > 0:
                sums[model] = psi_sums(values, even, self.theta[model], self.width[model], code)
        return sums


@dataclass(frozen=True, eq=False)
class Score(Sums):
    """What ``score`` needs: weight, Σ w v, Σ w v² and Σ w e², or weight and hits.

    Parameters
    ----------
    model : estimator
        Fitted, without feature names.
    near : float
        About the mean of the target, so that squares keep their digits; NaN for classification.
    """

    model: Any
    near: float

    def nothing(self) -> Array:
        """Return the sums over no row."""
        return np.zeros(4)

    def on_batch(self, batch: Batch) -> Array:
        """Return the sums over one batch."""
        rows = batch.usable(np.arange(len(batch)))
        if rows.size == 0:
            return self.nothing()
        share = batch.weights[rows] if batch.weights.size else np.ones(rows.size)
        predicted, y = self.model.predict(batch.X[rows]), batch.y[rows]
        if np.isnan(self.near):
            return np.array([share.sum(), share @ (predicted == y), 0.0, 0.0])
        v = y - self.near
        return np.array([share.sum(), share @ v, share @ v**2, share @ (y - predicted) ** 2])

    def value(self, sums: Array) -> float:
        """R², or the share of hits."""
        weight, first, second, errors = sums
        if np.isnan(self.near):
            return float(first / weight)
        return float(1 - errors / (second - first**2 / weight))
