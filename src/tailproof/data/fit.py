"""A fit on data in pieces, wherever they are: the same story as ``LinearSGD.fit``, with rows that stay away.

Scales and start come from a small sample that all engines take alike, candidates from passes that the
engine runs where the rows are, the intercept and the validation from sums.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array, automatic
from tailproof.core.algorithms import TrainedCandidates, merge, train
from tailproof.core.intercept import block_intercept_shifts, intercept_shift_from_sums
from tailproof.core.partition import Block, blocks
from tailproof.core.sgd import SGDLearner
from tailproof.core.theory import blocks_for
from tailproof.data.dealing import Dealing
from tailproof.data.first_look import Seen, Survey
from tailproof.data.pieces import Balance, Losses, Training, Walk, row_losses
from tailproof.data.validation import validate_by_sums
from tailproof.estimators.inputs import entropy
from tailproof.estimators.linear.combine import Validating
from tailproof.estimators.linear.fit import LinearSGD, projected, warn_about
from tailproof.reports.fit_report import Report

_SAMPLE = 1_000  # rows to take scales and start from, at least
_PER_BLOCK = 20  # and at least as many for each block
_CELLS = 1_000_000  # numbers in the sample, where columns are many


@dataclass(frozen=True)
class Source:
    """Data in pieces: their engine, and what is known about them.

    Parameters
    ----------
    engine : StreamEngine, DaskEngine or SparkEngine
        ``train``, ``reduce`` and ``survey``.
    text : str
        What the report says about the data.
    names : list of str or None
        Of the features.
    width : int
        Number of features.
    rows : int or None
        In all, where it is known without a look at each piece.
    whole_pieces : bool
        Blocks are groups of pieces.
    on_survey : callable
        Told what the pieces have shown; gives the same rows in other pieces, where these will not do.
    skipped : callable
        Names of the files that could not be read.
    """

    engine: Any
    text: str
    names: list[str] | None
    width: int
    rows: int | None = None
    whole_pieces: bool = False
    pieces: int = 1
    on_survey: Callable[[list[Seen]], Source | None] = lambda seen: None
    skipped: Callable[[], tuple[str, ...]] = tuple


@dataclass(eq=False)
class Passes:
    """The engine that :func:`tailproof.core.algorithms.train` sees: one run is one pass over all pieces."""

    engine: Any
    learner: SGDLearner
    dealing: Dealing
    stage: int = 0
    number: int = 0
    first: list[Walk] = field(default_factory=list)

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        """Candidates after one more pass; the rows are with the engine, so the learner's own are not used."""
        training = Training(self.learner, self.dealing, self.number, self.stage)
        walks = self.engine.train(training, list(tasks))
        self.first = self.first or walks
        self.number += 1
        return [training.end(walk) for walk in walks]


def fit_in_pieces(model: LinearSGD, source: Source, loss: Any, outputs: int, seed: Any) -> LinearSGD:
    """Fit an estimator whose classes are known.

    Parameters
    ----------
    model : LinearSGD
    source : Source
    loss : Loss
    outputs : int
    seed : SeedSequence
    """
    started = time.perf_counter()
    seen, sample = _survey(source, model)
    other = source.on_survey(seen)
    if other is not None:
        source = other
        seen, sample = _survey(source, model)
    n = source.rows if source.rows is not None else sum(piece.rows for piece in seen)
    held_out = 0.0
    if isinstance(model, Validating) and not model.cross_validate:
        held_out = float(model.validation_fraction)
    trained = max(1, int(n * (1 - held_out)))
    k, why = model._number_of_blocks(trained, source.width, loss, sample.y, outputs)
    run = automatic.run_length(n, k, 8 * source.width)
    dealing = Dealing(k, source.pieces, entropy(seed), run, source.whole_pieces, held_out)
    learner = _learner(model, sample, loss, outputs, k, n, seed)
    prepared = time.perf_counter()
    # The sample stays here: what travels are settings.
    settings = replace(learner, X=learner.X[:0], y=learner.y[:0], weights=learner.weights[:0])
    passes = Passes(source.engine, settings, dealing)
    candidates = _train(model, passes, seed)
    least = blocks_for(model.delta, model._method)
    if model.k == "auto" and k > least and not candidates.converged:
        k, why = least, f"k(δ) = {least}, since more blocks, of fewer rows each, did not settle"
        passes, candidates = _train_on(model, passes, candidates, k, seed)
    done = time.perf_counter()
    combine = _validate if isinstance(model, Validating) else _merge
    found = combine(model, learner, candidates, passes, source.engine)
    found["seconds"] = {
        "prepare": prepared - started,
        "train": done - prepared,
        "combine": time.perf_counter() - done,
    }
    warn_about(candidates, k)
    model._stream, model.n_features_in_ = None, source.width
    model.n_iter_, model.t_ = candidates.passes, candidates.states[0].updates
    model.report_ = _report(model, source, candidates, passes, n=n, why_k=why, seed=entropy(seed), **found)
    return model


def _train(model: LinearSGD, passes: Passes, seed: np.random.SeedSequence) -> TrainedCandidates:
    nothing = np.empty(0, dtype=np.intp)
    parts = [Block(j, nothing, child) for j, child in enumerate(seed.spawn(passes.dealing.k))]
    number = None if model.max_iter == "auto" else int(model.max_iter)
    # Candidates that diverge are left out, and said to be.
    with np.errstate(over="ignore", invalid="ignore"):
        return train(passes.learner, parts, passes, number)


def _train_on(
    model: LinearSGD, passes: Passes, before: TrainedCandidates, k: int, seed: np.random.SeedSequence
) -> tuple[Passes, TrainedCandidates]:
    """Go on with fewer blocks, from where the candidates merge."""
    learner = passes.learner
    start = learner.unpack(merge(before, "geometric_median").point)
    coef, intercept = projected(learner.constraint, *start, learner.columns.centre)
    learner = replace(learner, start_coef=coef, start_intercept=intercept, n_blocks=k)
    fewer = Passes(passes.engine, learner, replace(passes.dealing, k=k), stage=1)
    found = _train(model, fewer, seed)
    return fewer, replace(found, passes=before.passes + found.passes)


def _report(
    model: LinearSGD, source: Source, candidates: TrainedCandidates, passes: Passes, *, n: int, **found: Any
) -> Report:
    k, sizes = passes.dealing.k, np.array([walk.rows for walk in passes.first])
    return Report(
        method=model._name(),
        k=k,
        delta=float(model.delta),
        block_sizes=sizes,
        excluded=np.setdiff1d(np.arange(k), candidates.kept),
        passes=candidates.passes,
        converged=candidates.converged,
        gradient_evaluations=candidates.passes * int(sizes.sum()),
        theorem=model._theorem(k, n),
        data=source.text,
        dropped_rows=sum(walk.dropped for walk in passes.first),
        skipped_files=source.skipped(),
        **found,
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """A few rows of all pieces."""

    X: Any
    y: Array
    weights: Array


def _survey(source: Source, model: LinearSGD) -> tuple[list[Seen], Sample]:
    # Six rows for each column tell how columns go together, where they are not too many.
    wanted = max(_SAMPLE, min(6 * source.width, _CELLS // source.width))
    wanted = max(wanted, 0 if model.k == "auto" else _PER_BLOCK * int(model.k))
    survey = Survey(1)
    chosen = survey.pieces(source.pieces)
    survey = replace(survey, sample=-(-wanted // len(chosen)))
    found = source.engine.survey(survey)
    seen = [piece for piece in found if piece is not None]
    if not any(piece.y.size for piece in seen):
        raise ValueError(
            "there is no row to learn from: all of them have something missing, or none was read"
        )
    some = seen if len(found) <= len(chosen) else [found[i] for i in chosen if found[i] is not None]
    stack = sparse.vstack if sparse.issparse(some[0].X) else np.concatenate
    X = stack([piece.X for piece in some])
    y = np.concatenate([piece.y for piece in some])
    weights = np.concatenate([piece.weights for piece in some])
    return seen, Sample(sparse.csr_array(X) if sparse.issparse(X) else X, y, weights)


def _learner(
    model: LinearSGD, sample: Sample, loss: Any, outputs: int, k: int, n: int, seed: Any
) -> SGDLearner:
    count = sample.y.size
    parts = blocks(count, min(k, count), seed)
    learner = model._learner(sample.X, sample.y, sample.weights, loss, outputs, parts)
    return replace(learner, n_blocks=k, n_rows=n)


def _merge(
    model: LinearSGD, learner: SGDLearner, candidates: TrainedCandidates, passes: Passes, engine: Any
) -> dict[str, Any]:
    found = model._merged(learner, candidates)
    if _recentres(model, learner):
        count = len(passes.first)
        coef = np.broadcast_to(model.coef_, (count, 1, model.coef_.size))
        intercept = np.full((count, 1), model.intercept_)
        sides = _sides(learner, coef, intercept, np.arange(count), passes, engine)
        model.intercept_ += intercept_shift_from_sums(*sides, model.delta)
    return found


def _validate(
    model: LinearSGD, learner: SGDLearner, candidates: TrainedCandidates, passes: Passes, engine: Any
) -> dict[str, Any]:
    vectors = candidates.vectors.copy()
    if _recentres(model, learner):
        coef, intercept = _unpacked(learner, vectors)
        sides = _sides(learner, coef, intercept, candidates.kept, passes, engine)
        vectors[:, -1] += block_intercept_shifts(*sides)
    candidates = replace(candidates, vectors=vectors)
    coef, intercept = _unpacked(learner, vectors)
    centre, scale = _rough_losses(learner, coef, intercept)
    losses = Losses(
        learner.loss,
        coef,
        intercept,
        candidates.kept,
        passes.dealing,
        centre=centre,
        scale=scale,
        others=model.cross_validate,
    )
    validation = validate_by_sums(engine.reduce, losses, model.mean, model.delta)
    return model._chosen(learner, candidates, validation)


def _recentres(model: LinearSGD, learner: SGDLearner) -> bool:
    return bool(model.recentre and model.fit_intercept and learner.loss.unbounded)


def _unpacked(learner: SGDLearner, vectors: Array) -> tuple[Array, Array]:
    models = [learner.unpack(vector) for vector in vectors]
    return np.stack([coef for coef, _ in models]), np.stack([intercept for _, intercept in models])


def _sides(
    learner: SGDLearner, coef: Array, intercept: Array, kept: NDArray[np.intp], passes: Passes, engine: Any
) -> tuple[list[Array], Array]:
    """Residuals, or both sides of the log link's condition, and weights, by block and group of batches.

    For the identity link they follow from the sums of the first pass; the log link takes a look at all rows.
    """
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
        losses = row_losses(learner.loss, np.asarray(learner.X @ w.T) + b, learner.y)
        if np.all(np.isfinite(losses)):
            centre[model] = np.median(losses)
            scale[model] = np.median(np.abs(losses - centre[model])) or losses.std() or 1.0
    return centre, scale
