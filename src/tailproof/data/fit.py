"""Fit an SGD estimator on data read in pieces: files, chunks, Dask, Spark.

Scales and start come from a small sample that all engines take alike, candidates from passes that the
engine runs where the rows are, the intercept and the validation from sums. The fit itself is
:func:`tailproof.estimators.linear.fit.fit_rows`, the same as for rows in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array, automatic
from tailproof.core.algorithms import Risk, TrainedCandidates, train
from tailproof.core.automatic import (
    block_intercept_shifts,
    intercept_shift_from_sums,
    share_of_untied_targets,
)
from tailproof.core.losses import Loss
from tailproof.core.partition import Block, blocks
from tailproof.core.sanity import leaves_range, surely_greater
from tailproof.core.sgd import SGDLearner
from tailproof.core.validate import RARE, Validation
from tailproof.data.dealing import Dealing
from tailproof.data.far_rows import FarRows
from tailproof.data.first_look import Seen, Survey, look_sorted
from tailproof.data.sums import Balance, Losses, Residuals
from tailproof.data.training import PassState, Training
from tailproof.data.validation import validate_by_sums
from tailproof.estimators.inputs import entropy
from tailproof.estimators.linear.fit import LinearSGD, fit_rows
from tailproof.estimators.screening import without
from tailproof.reports.fit_report import Clock

_SAMPLE = 1_000  # rows to take scales and start from, at least
_PER_BLOCK = 20  # and at least as many for each block
_CELLS = 1_000_000  # numbers in the sample, where columns are many


@dataclass(frozen=True)
class DataSource:
    """Data in pieces: their engine, and what is known about them.

    Parameters
    ----------
    engine : StreamEngine, DaskEngine or SparkEngine
        ``train``, ``reduce``, ``survey`` and ``usable_rows``.
    text : str
        What the report says about the data.
    names : list of str or None
        Of the features.
    width : int
        Number of features.
    piece_rows : tuple of int or None
        Rows of each piece, where they are known without a look at it.
    whole_pieces : bool
        Blocks are groups of pieces.
    pieces : int
        Number of pieces.
    on_survey : callable
        Told what the pieces have shown; returns the same rows in other pieces, where these will not do.
    only_if_sorted : bool
        Call it only where the rows look sorted.
    skipped : callable
        Names of the files that could not be read.
    branches : int
        Places in which every candidate is trained at once, at most.
    grouped : callable
        Takes the source and k, where blocks are groups of more pieces than k; returns the same rows in fewer
        pieces, or None.
    """

    engine: Any
    text: str
    names: list[str] | None
    width: int
    piece_rows: tuple[int, ...] | None = None
    whole_pieces: bool = False
    pieces: int = 1
    on_survey: Callable[[list[Seen]], DataSource | None] = lambda seen: None
    only_if_sorted: bool = False
    skipped: Callable[[], tuple[str, ...]] = tuple
    branches: int = 1
    grouped: Callable[[DataSource, int], DataSource | None] = lambda source, k: None

    @property
    def rows(self) -> int | None:
        """Rows in all, where they are known without a look at each piece."""
        return None if self.piece_rows is None else sum(self.piece_rows)


class _EmptyBlocksError(Exception):
    """Only k blocks have rows."""

    def __init__(self, k: int) -> None:
        if k == 0:
            raise ValueError("there is no row to learn from: all are held out, or have something missing")
        super().__init__(k)
        self.k = k


class _OtherFarRowsError(Exception):
    """Rows were left out that must not be."""


@dataclass(eq=False)
class Passes:
    """The engine that :func:`tailproof.core.algorithms.train` sees: one run is one pass over all pieces.

    ``on_far`` is told after the first pass how many rows were left out as too far.
    """

    engine: Any
    learner: SGDLearner
    dealing: Dealing
    stage: int = 0
    branches: int = 1
    number: int = 0
    first: list[PassState] = field(default_factory=list)
    on_far: Callable[[int], None] = lambda count: None

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        """Candidates after one more pass; the rows are with the engine, so the learner's own are not used."""
        training = Training(self.learner, self.dealing, self.number, self.stage, self.branches)
        states = training.join(self.engine.train(training, list(tasks) * self.branches))
        if self.number == 0:
            self.on_far(sum(state.far for state in states))
        occupied = sum(state.rows > 0 for state in states)
        if self.number == 0 and occupied < len(states):
            raise _EmptyBlocksError(occupied)
        self.first = self.first or states
        self.number += 1
        return [training.end(state) for state in states]


def fit_in_pieces(model: LinearSGD, source: DataSource, loss: Loss, outputs: int, seed: Any) -> LinearSGD:
    """Fit an estimator whose classes are known.

    Parameters
    ----------
    model : LinearSGD
    source : DataSource
    loss : Loss
    outputs : int
    seed : SeedSequence
    """
    clock = Clock()
    with clock("prepare"):
        per_block = 0 if model.k == "auto" else _PER_BLOCK * int(model.k)
        look, sample = _first_look(source, per_block)
        seen = [piece for piece in look if piece is not None]
        other = None if source.only_if_sorted and not look_sorted(seen) else source.on_survey(seen)
        if other is not None:
            source = other
            look, sample = _first_look(source, per_block)
        n = source.rows if source.rows is not None else sum(piece.rows for piece in look if piece)
        far = FarRows.of_sample(model, *sample[:2], loss, source.names, n)
        X, y, weights = (part[far.kept] if part.size else part for part in sample)
        rows = RowsInPieces(source, X, y, weights, n, loss, outputs, seed, far_rows=far)
        if model.drop_glitches:
            rows.far = np.flatnonzero(np.isin(far.kept, far.found.far_features))
            rows.resistant = True
        if source.whole_pieces:
            rows.occupied = _occupied(source.engine.usable_rows(look))
    fit_rows(model, rows, clock)
    far.end(sum(state.far for state in rows.passes.first))
    model.report_ = replace(model.report_, outlying=far.sentence(), far_rows=far.count)
    if model.drop_glitches:
        far.warn()
    model.n_features_in_ = source.width
    return model


def _first_look(source: DataSource, per_block: int) -> tuple[list[Seen | None], tuple[Any, Array, Array]]:
    """What the pieces have shown (None of those without rows), and a few of their rows."""
    # Six rows for each column tell how columns go together, where they are not too many.
    wanted = max(_SAMPLE, min(6 * source.width, _CELLS // source.width), per_block)
    survey = Survey(1)
    chosen = survey.pieces(source.pieces)
    survey = replace(survey, sample=-(-wanted // len(chosen)), sampled=frozenset(chosen))
    looks = source.engine.survey(survey)
    seen = [piece for piece in looks if piece is not None]
    if not any(piece.y.size for piece in seen):
        raise ValueError(
            "there is no row to learn from: in each something is missing or the weight is zero, or there is "
            "none; look at the data, or fill them"
        )
    sampled = seen if len(looks) <= len(chosen) else [looks[i] for i in chosen if looks[i] is not None]
    stack = sparse.vstack if sparse.issparse(sampled[0].X) else np.concatenate
    X = stack([piece.X for piece in sampled])
    y = np.concatenate([piece.y for piece in sampled])
    weights = np.concatenate([piece.weights for piece in sampled])
    return looks, (sparse.csr_array(X) if sparse.issparse(X) else X, y, weights)


@dataclass(eq=False)
class RowsInPieces:
    """Rows that stay where they are; see :class:`tailproof.estimators.linear.training_rows.TrainingRows`.

    Of the rows themselves only a sample is here, as ``X``, ``y`` and ``weights``.
    """

    source: DataSource
    X: Any
    y: Array
    weights: Array
    n: int
    loss: Loss
    outputs: int
    seed: np.random.SeedSequence
    held_out: float = 0.0
    occupied: tuple[int, ...] | None = None
    stage: int = -1
    fewer: str = ""
    far: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    resistant: bool = False
    far_rows: FarRows | None = None

    def hold_out(self, fraction: float) -> int:
        """Keep a share of the rows for validation; return how many are left to train on."""
        self.held_out = fraction
        return max(1, int(self.n * (1 - fraction)))

    def assign(self, k: int) -> list[Block]:
        """Assign the training rows to k blocks; return the blocks of the sample."""
        self.stage += 1
        chains = k * self.source.branches
        if self.source.whole_pieces and chains < self.source.pieces:
            self._group(chains)
        source = self.source
        if self.stage == 0:
            run = automatic.run_length(self.n, k, 8 * source.width)
            key = entropy(self.seed)
            whole = source.whole_pieces
            self.dealing = Dealing(k, source.pieces, key, run, whole, self.held_out, self.occupied)
            self._set_bounds()
        else:
            self.dealing = replace(self.dealing, k=k, pieces=source.pieces, occupied=self.occupied)
        return blocks(self.y.size, min(k, self.y.size), self.seed)

    def _set_bounds(self) -> None:
        if self.far_rows is not None:
            found = self.far_rows.bounds, self.far_rows.judged
            bounds, judged = (None if one is None else one.reaches() for one in found)
            self.dealing = replace(self.dealing, bounds=bounds, judged=judged)

    def _group(self, k: int) -> None:
        fewer = self.source.grouped(self.source, k)
        if fewer is not None:
            self.source = fewer
            look = fewer.engine.survey(Survey(0, sampled=frozenset()))
            self.occupied = _occupied(fewer.engine.usable_rows(look))

    def train(self, learner: SGDLearner, passes: int | Risk | None, verbose: int) -> TrainedCandidates:
        """One candidate for each block, where the rows are.

        A block without rows has learnt nothing and must not vote: then all rows are assigned anew to fewer.
        """
        asked = self.dealing.k
        while True:
            try:
                candidates = self._train(learner, passes)
                break
            except _EmptyBlocksError as error:
                self.assign(error.k)
                learner = replace(learner, n_blocks=error.k)
            except _OtherFarRowsError:
                self.stage += 1
                self._set_bounds()
        if self.dealing.k < asked:
            self.fewer = f"k = {self.dealing.k}, since of {asked} blocks some would have had no rows"
            warnings.warn(self.fewer, UserWarning, stacklevel=7)
        return candidates

    def _train(self, learner: SGDLearner, passes: int | Risk | None) -> TrainedCandidates:
        # The sample stays here: what travels are settings.
        branches = self._branches()
        settings = replace(
            learner,
            X=learner.X[:0],
            y=learner.y[:0],
            weights=learner.weights[:0],
            n_blocks=learner.n_blocks * branches,  # steps depend on the rows that a chain of them meets
        )
        self.passes = Passes(self.source.engine, settings, self.dealing, self.stage, branches)
        # No method of this object, which would then live, with all buffers, until garbage is collected.
        self.passes.on_far = partial(_look_at_far, self.far_rows, self.source.engine.reduce)
        nothing = np.empty(0, dtype=np.intp)
        parts = [Block(j, nothing, child) for j, child in enumerate(self.seed.spawn(self.dealing.k))]
        return train(settings, parts, self.passes, passes)

    def _branches(self) -> int:
        asked, most = self.source.branches, self.dealing.most_branches()
        if asked > most:
            warnings.warn(
                f"each of {self.dealing.k} candidates is trained by {most} workers at once, since "
                f"{asked} would need more pieces with rows: repartition the data",
                UserWarning,
                stacklevel=8,
            )
        return min(asked, most)

    def sizes(self) -> list[int]:
        """Rows of every block."""
        return [state.rows for state in self.passes.first]

    def voters(self, candidates: TrainedCandidates) -> TrainedCandidates:
        """All of them: the rows of a block are not known."""
        return candidates

    def intercept_shift(
        self,
        learner: SGDLearner,
        candidates: TrainedCandidates,
        point: Array,
        model: tuple[Array, float],
        delta: float,
    ) -> float:
        """What to add to the intercept of a model so that its optimality condition holds in robust mean."""
        k, (coef, intercept) = len(self.passes.first), model
        models = coef.reshape(1, 1, -1), np.full((1, 1), intercept)  # one for all blocks
        sides = _sides(learner, *models, np.arange(k), self.passes, self.source.engine)
        return intercept_shift_from_sums(*sides, delta)

    def block_shifts(self, learner: SGDLearner, vectors: Array, kept: NDArray[np.intp]) -> Array:
        """What to add to the intercept of each candidate so that it fits its own block best."""
        models = _unpacked(learner, vectors)
        return block_intercept_shifts(*_sides(learner, *models, kept, self.passes, self.source.engine))

    def validate(
        self, learner: SGDLearner, vectors: Array, kept: NDArray[np.intp], mean: str, delta: float
    ) -> Validation:
        """Score candidates on the rows held out, or, if there are none, on those of the other blocks."""
        coef, intercept = _unpacked(learner, vectors)
        centre, scale = _rough_losses(learner, coef, intercept)
        losses = Losses(
            learner.loss,
            coef,
            intercept,
            kept,
            self.dealing,
            centre=centre,
            scale=scale,
            others=not self.held_out,
        )
        reduce = self.source.engine.reduce
        validation = validate_by_sums(reduce, losses, mean, delta, resistant=self._may_resist)
        return self._without_absurd(learner, vectors, validation)

    @property
    def _may_resist(self) -> bool:
        """Whether few far losses are bad rows: not where few targets differ, such as claims among zeros."""
        return self.resistant and share_of_untied_targets(self.y) >= RARE

    def _without_absurd(self, learner: SGDLearner, vectors: Array, validation: Validation) -> Validation:
        """Infinite risks for candidates that predict far outside the range of the sample's targets."""
        if not self.resistant or self.loss.task != "regression" or self.loss.link != "identity":
            return validation
        near = without(np.arange(self.y.size), self)
        absurd = np.array([leaves_range(learner.scores(v, near)[:, 0], self.y[near]) for v in vectors])
        if absurd.all() or not absurd.any():
            return validation
        risk, low, high = (
            np.where(absurd, np.inf, values) for values in (validation.risk, validation.low, validation.high)
        )
        return replace(validation, risk=risk, low=low, high=high, best=int(np.argmin(risk)))

    def better_start(self, learner: SGDLearner, vector: Array) -> Array | None:
        """Where training began, if a model is surely worse on the sample, even if it has seen its rows."""
        near = without(np.arange(self.y.size), self)
        start = learner.vector(learner.start(Block(0, near[:0], self.seed)))
        ours, constant = (learner.losses(learner.scores(one, near), near) for one in (vector, start))
        return start if self._may_resist and surely_greater(ours, constant) else None

    def held_out_errors(self, *model: Any) -> None:
        """Nothing: it would take another pass over all rows."""
        return

    def check_finite(self) -> None:
        """Nothing to do: readers refuse or drop rows that are not finite."""

    @property
    def _text(self) -> str:
        branches = self.passes.branches
        return self.source.text + (f", {branches} workers per candidate" if branches > 1 else "")

    def facts(self) -> dict[str, Any]:
        """What the report says about the data."""
        facts = {"why_k": self.fewer} if self.fewer else {}
        return facts | {
            "data": self._text,
            "dropped_rows": sum(state.dropped for state in self.passes.first),
            "skipped_files": self.source.skipped(),
        }


def _look_at_far(far_rows: FarRows | None, reduce: Callable[[Any], Array], count: int) -> None:
    """Told how many rows were left out: where they are others than should be, all begins anew."""
    if far_rows is not None and far_rows.must_change(count, reduce):
        raise _OtherFarRowsError


def _occupied(usable_rows: Array) -> tuple[int, ...] | None:
    """Pieces with rows to learn from; None for all, which travels with every task."""
    return None if np.all(usable_rows) else tuple(np.flatnonzero(usable_rows).tolist())


def _unpacked(learner: SGDLearner, vectors: Array) -> tuple[Array, Array]:
    models = [learner.unpack(vector) for vector in vectors]
    return np.stack([coef for coef, _ in models]), np.stack([intercept for _, intercept in models])


def _sides(
    learner: SGDLearner, coef: Array, intercept: Array, kept: NDArray[np.intp], passes: Passes, engine: Any
) -> tuple[list[Array], Array]:
    """Residuals, or both sides of the log link's condition, and weights, by block and group of batches.

    For the identity link they follow from the sums of the first pass; the log link, and columns too many to
    have sums, take a look at all rows.
    """
    if learner.loss.link != "log" and not passes.first[0].sums.size:
        sums = engine.reduce(Residuals(learner.loss, coef, intercept, kept, passes.dealing))
        return [sums[:, :, 0]], sums[:, :, 1]
    coef, intercept = (np.broadcast_to(part, (len(kept), *part.shape[1:])) for part in (coef, intercept))
    if learner.loss.link == "log":
        sums = engine.reduce(Balance(learner.loss, coef, intercept, kept, passes.dealing))
        return [sums[:, :, 0], sums[:, :, 1]], sums[:, :, 2]
    sums = np.stack([passes.first[j].sums for j in kept])
    features, target, totals = sums[:, :, :-2], sums[:, :, -2], sums[:, :, -1]
    offset = intercept[:, 0] + coef[:, 0] @ learner.columns.centre
    return [target - np.einsum("kgd,kd->kg", features, coef[:, 0]) - offset[:, None] * totals], totals


def _rough_losses(learner: SGDLearner, coef: Array, intercept: Array) -> tuple[Array, Array]:
    """Median and median deviation of every candidate's losses on the sample."""
    centre, scale = np.zeros(len(coef)), np.ones(len(coef))
    for model, (w, b) in enumerate(zip(coef, intercept, strict=True)):
        losses = learner.loss.of_rows(np.asarray(learner.X @ w.T) + b, learner.y)
        if np.all(np.isfinite(losses)):
            centre[model] = np.median(losses)
            scale[model] = np.median(np.abs(losses - centre[model])) or losses.std() or 1.0
    return centre, scale
