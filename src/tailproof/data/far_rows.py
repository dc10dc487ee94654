"""What is left out of rows in pieces as errors of measurement, and what there is to say about it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.losses import Loss
from tailproof.core.populations import LIMITS, Populations, TwoPopulationsWarning, two_populations
from tailproof.core.scaling import far_columns, has_far_values
from tailproof.data.bounds import Bounds, TailCounts, dense, many_columns, too_many
from tailproof.estimators.inputs import encode_labels
from tailproof.estimators.screening import ADVICE

_NONE = np.empty(0, dtype=np.intp)


@dataclass(eq=False)
class FarRows:
    """Rows too far from the others, told by a sample of them.

    Attributes
    ----------
    found : Populations
        In the sample.
    bounds : Bounds or None
        Beyond which rows are left out; None where all are kept.
    judged : Bounds or None
        Beyond which rows, though trained on, judge no candidate and set no intercept: those whose features
        are far, too many to be left out.
    names : list of str
        Of the features, and of the targets.
    labels : array
        Classes, as the readers encode them; empty for regression.
    n : int
        Rows in all.
    count : int
        Rows left out.
    told : list of str
        What is to be said about all rows.
    left_out : array of shape (d + 1,)
        Numbers too far out, by column.
    """

    found: Populations
    bounds: Bounds | None
    judged: Bounds | None
    names: list[str]
    labels: Array
    n: int
    count: int = 0
    told: list[str] = field(default_factory=list)
    left_out: Array = field(default_factory=lambda: np.zeros(0))
    _looked_at: Bounds | None = None

    @classmethod
    def of_sample(cls, model: Any, X: Any, y: Array, loss: Loss, names: list[str] | None, n: int) -> FarRows:
        """Look at a sample of n rows, as a fit in memory looks at all of its own."""
        targets = y if model._is_regression and loss.unbounded else None
        linear = loss.link == "identity"
        found = _populations(X, targets, linear)
        labels = np.empty(0) if model._is_regression else encode_labels(model.classes_, model.classes_)
        table = dense(X) if model.drop_glitches else None
        bounds = judged = None
        if table is not None and not _loses_a_class(y, labels, found):
            every = Bounds.of_sample(table, targets, found, n, linear=linear)
            many = too_many(found, X.shape[1] + 1)
            bounds, judged = every.kept(many), every.of_features() if many[:-1].any() else None
        called = names or [f"feature {j}" for j in range(X.shape[1])]
        return cls(found, bounds, judged, [*called, "targets"], labels, n)

    @property
    def kept(self) -> NDArray[np.intp]:
        """Rows of the sample that are no errors."""
        errors = _NONE if self.bounds is None else self.found.errors
        return np.delete(np.arange(self.found.n), errors)

    def must_change(self, count: int, reduce: Callable[[Any], Array]) -> bool:
        """Whether other rows than those so far are to be left out, by a look at all of them.

        Only a gap among all rows makes two populations, and many rows are no errors. Where none were left
        out, nothing is looked at.
        """
        if count == 0 or self.bounds is None or self.bounds is self._looked_at:
            return False
        measure = TailCounts(self.bounds, self.labels)
        table = reduce(measure)
        reach, beyond, before = measure.settled(table)
        many = many_columns(beyond, self.n) | measure.loses_a_class(table) | (count > LIMITS.errors * self.n)
        many &= beyond > 0
        every = replace(self.bounds, reach=reach)
        if many.any():
            self._tell(every, int(beyond[many].max()), np.where(many, beyond, 0), "too many to be left out")
            self.judged = self.judged or every.of_features()
        same = np.array_equal(np.where(many, 0, beyond), before)
        self.bounds = self._looked_at = every.kept(many)
        self.left_out = np.where(many, 0, beyond)
        return not same

    def _tell(self, bounds: Bounds, count: int, by_column: Array, done: str) -> None:
        what = bounds.described(by_column, self.names)
        self.told.append(f"{count:,} of all {self.n:,} rows have {what}, {done}")

    def end(self, count: int) -> None:
        """Told how many rows were left out at last."""
        self.count = count
        if self.bounds is not None and count:
            self._tell(self.bounds, count, self.left_out, "left out as errors")

    def sentence(self) -> str | None:
        """What there is to say; None where nothing is far."""
        shown = self.found.sentence(numbers=_NONE)
        if shown is None:
            return f"two populations: {'; '.join(self.told)}" if self.told else None
        return f"{shown}, in a sample; {'; '.join(self.told) or 'rows in pieces are all kept'}"

    def warn(self, stacklevel: int = 3) -> None:
        """Say it, unless there is nothing to say."""
        sentence = self.sentence()
        if sentence is not None:
            warnings.warn(f"{sentence}: {ADVICE}", TwoPopulationsWarning, stacklevel=stacklevel + 1)


def _populations(X: Any, y: Array | None, linear: bool) -> Populations:
    far = far_columns(X, LIMITS.scales)
    if not far.size and (y is None or not has_far_values(y, LIMITS.scales)):
        return Populations(X.shape[0])
    return two_populations(X, y, linear=linear, far=far)


def _loses_a_class(y: Array, labels: Array, found: Populations) -> bool:
    near = np.delete(y, found.errors)
    return any(label in y and label not in near for label in labels)
