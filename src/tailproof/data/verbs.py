"""Fit, predict and score on data wherever they live: arrays, frames, files, chunks, Dask, Spark."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from tailproof.core.lookup import Registry
from tailproof.data import in_memory
from tailproof.data.dealing import BATCH_ROWS, rows_of_a_batch
from tailproof.data.engines.checkpoint import fingerprint, open_checkpoint
from tailproof.data.fit import DataSource, fit_in_pieces
from tailproof.data.readers.batches import Reading, reading_of, remember
from tailproof.data.readers.files import is_path
from tailproof.data.readers.refusals import categories_not_listed, features_not_listed
from tailproof.data.robust_fit import fit_robust_in_pieces
from tailproof.data.shuffle_on_disk import DISK, shuffled_on_disk, warn_of_order
from tailproof.data.sources import DataKind, data_kind
from tailproof.data.sums import Score
from tailproof.estimators.inputs import begin_in_pieces, entropy, seed_from_random_state
from tailproof.estimators.linear.fit import LinearSGD
from tailproof.estimators.progress import row_progress
from tailproof.estimators.robust_regressor.estimator import RobustRegressor

_MISSING_POLICIES = Registry("on_missing", {"error": False, "drop": True})
_FILE_POLICIES = Registry("on_bad_file", {"error": False, "skip": True})


@dataclass(frozen=True)
class FitOptions:
    """What the caller asked for; ``drop`` rows with missing values, ``skip`` files that cannot be read."""

    target: Any = ""
    features: tuple[str, ...] | None = None
    weight: Any = None
    categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    classes: Any = None
    drop: bool = False
    skip: bool | None = None
    batch_rows: int = BATCH_ROWS
    checkpoint: Path | None = None
    every: float = 30.0
    shuffle: bool | str | None = None
    client: Any = None
    workers_per_candidate: int = 1

    def __post_init__(self) -> None:
        workers = self.workers_per_candidate
        if not isinstance(workers, (int, np.integer)) or workers < 1:
            raise ValueError(f"workers_per_candidate must be a whole number of at least 1; got {workers!r}")
        if not isinstance(self.batch_rows, (int, np.integer)) or self.batch_rows < 1:
            raise ValueError(f"batch_rows must be a whole number of at least 1; got {self.batch_rows!r}")
        if not (self.shuffle is None or isinstance(self.shuffle, bool) or self.shuffle == DISK):
            raise ValueError(f"shuffle must be True, False or {DISK!r}; got {self.shuffle!r}")

    @classmethod
    def for_model(cls, model: Any, features: Any, **more: Any) -> FitOptions:
        """Options that read the columns a fitted model was fitted on, unless others are given."""
        chosen = getattr(model, "columns_", None) if features is None else _listed(features)
        return cls(features=chosen, categories=getattr(model, "categories_", {}), **more)


def fit(
    estimator: Any,
    data: Any,
    target: Any = "y",
    features: Any = None,
    *,
    sample_weight: Any = None,
    categories: dict[str, Any] | None = None,
    classes: Any = None,
    on_missing: str = "error",
    on_bad_file: str = "error",
    batch_rows: int = BATCH_ROWS,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    shuffle: bool | str | None = None,
    client: Any = None,
    workers_per_candidate: int = 1,
) -> Any:
    """Fit an estimator on data wherever they live.

    Arrays and frames go to ``estimator.fit``. Everything else is fitted in pieces, by passes that read a few
    batches at a time (files, chunks) or run where the rows are (Dask, Spark): scales and start come from a
    sample of about a thousand rows, rows are dealt to the k candidates batch by batch, the intercept and the
    validation come from sums. The same pieces and the same ``random_state`` give the same candidates on every
    engine, to the last bit. A ``RobustRegressor`` makes its choice by a few rows at random, the same as in
    memory, and is then fitted on all of them in two or three passes.

    Parameters
    ----------
    estimator : estimator
        ``RobustRegressor``, ``DCSGD*`` or ``RVSGD*``; for arrays and frames any estimator.
    data : any
        An array or a pair (X, y); a pandas, polars or Arrow table; a path, a URL, a glob, a folder or a list
        of them, of Parquet, Arrow, ORC, CSV or JSON files; a ``pyarrow.dataset``, Scanner or
        RecordBatchReader; a polars LazyFrame; a PyTorch DataLoader; a list or an iterator of tables, of
        chunks (X, y) or of (X, y, weights), of which what can be read only once is kept in a temporary
        folder while it is needed; a Dask array or data frame; a Spark data frame.
    target : str or array
        Name of the target column, or y itself where ``data`` is an array.
    features : list of str, optional
        Columns to learn from, in this order; default all but target and weight.
    sample_weight : str or array, optional
        Name of a column, or the weights.
    categories : dict, optional
        Categories of text columns, ``{"region": ["north", "south"]}``: each becomes a column of zeros and
        ones.
    classes : array-like, optional
        Labels of a classifier; where they are not given, the target is read once to find them.
    on_missing : {"error", "drop"}
        What to do about rows with a missing or infinite value; ``report_.dropped_rows`` counts them.
    on_bad_file : {"error", "skip"}
        What to do about files that cannot be read; ``report_.skipped_files`` names them.
    batch_rows : int
        Rows that are dealt and visited together, at most: fewer where they are dense and wide, so that a
        batch takes 64 MB.
    checkpoint : path, optional
        File that keeps where a fit on files stands. After a sudden end the same call goes on from there and
        finds the same result; at the end the file is removed.
    checkpoint_seconds : float
        Time between two writes.
    shuffle : {True, False, "disk"}, optional
        True deals the rows of every piece to all candidates: the default for files and chunks. "disk" first
        writes them in random order to a temporary folder, or beside the checkpoint: what happens by default
        where the rows look sorted. With True or False such rows are visited as they lie, with a warning.
        False makes blocks of whole pieces: the default for Dask and Spark, where each candidate is then
        trained where its partitions are. On Dask True lets every candidate visit every partition; on Spark it
        moves rows. RobustRegressor does not need it: its sample is random in whatever order the rows are.
    client : distributed.Client, optional
        For Dask; default the current one, or one of threads for the time of the fit.
    workers_per_candidate : int
        Workers that train each candidate of ``DCSGD*`` and ``RVSGD*`` at once, so that k times as many are
        busy. In every pass all of them start from the candidate, each visits partitions of its own, and the
        mean of what they found, weighted by rows, is the candidate of the next pass. The result depends on
        this number, not on how many workers there are.

    Returns
    -------
    estimator
        The same, fitted; ``report_`` says how it went.

    Examples
    --------
    >>> import numpy as np, tailproof as tp
    >>> rng = np.random.default_rng(0)
    >>> def chunks():
    ...     for _ in range(5):
    ...         X = rng.standard_normal((2_000, 3))
    ...         yield X, X.sum(axis=1) + rng.standard_t(2.5, 2_000)
    >>> model = fit(tp.DCSGDRegressor(random_state=0), chunks())
    >>> bool(np.abs(model.coef_ - 1).max() < 0.2)
    True
    """
    if isinstance(estimator, type):
        name = estimator.__name__
        raise TypeError(f"the estimator must be an object, not a class: give {name}(), not {name}")
    options = FitOptions(
        target=target,
        features=_listed(features),
        weight=sample_weight,
        categories=_declared(categories),
        classes=classes,
        drop=_MISSING_POLICIES[on_missing],
        skip=_FILE_POLICIES[on_bad_file],
        batch_rows=batch_rows,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        every=float(checkpoint_seconds),
        shuffle=shuffle,
        client=client,
        workers_per_candidate=workers_per_candidate,
    )
    kind = data_kind(data)
    if workers_per_candidate > 1 and (kind is None or not isinstance(estimator, LinearSGD)):
        raise ValueError(
            "workers_per_candidate is for DCSGD* and RVSGD* on data in pieces: leave it out, others keep all "
            "workers busy"
        )
    if kind is None:
        return in_memory.fit_in_memory(estimator, data, options)
    if shuffle == DISK and not kind.streams:
        raise ValueError(f"shuffle={DISK!r} is for files and chunks; {kind.name} take True or False")
    if not isinstance(estimator, LinearSGD | RobustRegressor):
        raise TypeError(
            f"{type(estimator).__name__} needs its data in memory; for {kind.name} take RobustRegressor, "
            "DCSGDRegressor, DCSGDClassifier, RVSGDRegressor or RVSGDClassifier"
        )
    estimator._validate_params()
    with kind.open(data, options) as opened:
        return _fit_opened(estimator, kind, opened, options)


def _listed(features: Any) -> tuple[str, ...] | None:
    """Names of columns, each once."""
    if features is None:
        return None
    names = () if isinstance(features, str) else tuple(features)
    if isinstance(features, str) or len(set(names)) < len(names):
        raise ValueError(features_not_listed(names or features))
    return names


def _declared(categories: Any) -> dict[str, tuple[Any, ...]]:
    """Values of each column of categories."""
    if categories is None:
        return {}
    if not isinstance(categories, Mapping):
        raise ValueError(categories_not_listed(categories))
    found = {name: _values_of(values) for name, values in categories.items()}
    without = next((name for name, values in found.items() if not values), None)
    if without is not None:
        raise ValueError(categories_not_listed(categories, without))
    return found


def _values_of(values: Any) -> tuple[Any, ...]:
    """Those of a list; none of a text, whose letters are not what it stands for."""
    return () if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__") else tuple(values)


def _fit_opened(model: Any, kind: DataKind, opened: Any, options: FitOptions) -> Any:
    reading = _reading(opened, options)
    labels = np.ones(2)
    if is_classifier(model):
        labels = opened.distinct(reading.target) if options.classes is None else options.classes
        labels = np.unique(np.asarray(labels))
    loss, outputs, encode = begin_in_pieces(model, labels)
    reading = replace(reading, encode=encode)
    seed, saved = seed_from_random_state(model.random_state), None
    bar: Any = nullcontext(lambda rows: None)
    if getattr(model, "verbose", 0):
        bar = row_progress(model.verbose, _rows_to_visit(model, opened))
    with ExitStack() as stack, bar as on_rows:
        if options.checkpoint is not None:
            mark = _fingerprint(model, opened, reading, options, labels)
            saved = stack.enter_context(open_checkpoint(options.checkpoint, mark, options.every))
            if model.random_state is None:
                seed = np.random.SeedSequence(int(mark[:16], 16))
        source = kind.source(opened, reading, model, saved, on_rows)
        if isinstance(model, RobustRegressor):
            fit_robust_in_pieces(model, source, loss, seed, reading)
        else:
            source = replace(source, branches=options.workers_per_candidate)
            if options.shuffle is not None and kind.deals_rows:
                source = replace(source, whole_pieces=not options.shuffle)
            if kind.streams and options.shuffle in (None, DISK):
                source = _shuffling(source, options, seed, stack, saved, reading.batch_rows)
            elif kind.streams:
                engine = replace(source.engine, watchful=True)
                warn = partial(warn_of_order, options.shuffle)
                source = replace(source, engine=engine, on_survey=warn, only_if_sorted=True)
            fit_in_pieces(model, source, loss, outputs, seed)
        if saved is not None:
            saved.delete()
    model.__dict__.pop("feature_names_in_", None)
    if source.names is not None:
        model.feature_names_in_ = np.array(source.names, dtype=object)
    remember(model, None if source.names is None else reading)
    return model


def _reading(opened: Any, options: FitOptions) -> Reading:
    known = getattr(opened, "known_categories", {})
    chosen = known if options.features is None else [name for name in known if name in options.features]
    used = {name: known[name] for name in chosen if name not in (options.target, options.weight)}
    options = replace(options, categories=used | options.categories)
    reading = reading_of(opened.columns, opened.width, options, getattr(opened, "vectors", None))
    if getattr(opened, "sparse", False):
        return reading
    return replace(reading, batch_rows=rows_of_a_batch(reading.batch_rows, len(reading.names)))


def _shuffling(
    source: DataSource, options: FitOptions, seed: Any, stack: ExitStack, saved: Any, batch_rows: int
) -> DataSource:
    """The source, whose rows are shuffled on disk if that was asked for, or if they look sorted."""
    asked = options.shuffle == DISK
    shuffled = partial(shuffled_on_disk, source, asked, batch_rows, entropy(seed), stack, saved)
    engine = replace(source.engine, watchful=not asked)
    return replace(source, engine=engine, on_survey=shuffled, only_if_sorted=not asked)


def predict(estimator: Any, data: Any, features: Any = None, *, batch_rows: int = BATCH_ROWS) -> Any:
    """Predictions for data wherever they live, in the order of the rows.

    Parameters
    ----------
    estimator : fitted estimator
    data : any
        As in :func:`fit`; chunks may be X alone. Missing values raise.
    features : list of str, optional
        Columns, if not those of the fit.
    batch_rows : int

    Returns
    -------
    array
        Or a Dask array for Dask data, not yet computed; or a Spark data frame with one more column,
        "prediction".
    """
    if hasattr(estimator, "predict_files"):  # a model of tables, which knows how to read them
        predictions = estimator.predict_files(data) if is_path(data) else estimator.predict(data)
        return predictions["prediction"] if isinstance(predictions, dict) else predictions
    if is_path(estimator):
        raise TypeError(f"predict needs a model, and {str(estimator)!r} is a path: tailproof.load reads it")
    check_is_fitted(estimator)
    options = FitOptions.for_model(estimator, features, batch_rows=batch_rows)
    kind = data_kind(data)
    if kind is None:
        return in_memory.predict_in_memory(estimator, data, options)
    with kind.open(data, options) as opened:
        reading = replace(_reading(opened, options), target="")
        return kind.predict(opened, reading, in_memory.without_names(estimator))


def score(
    estimator: Any,
    data: Any,
    target: Any = "y",
    features: Any = None,
    *,
    sample_weight: Any = None,
    on_missing: str = "error",
    on_bad_file: str = "error",
    batch_rows: int = BATCH_ROWS,
) -> float:
    """R² of a regressor or accuracy of a classifier, as in scikit-learn, on data wherever they live.

    Parameters
    ----------
    estimator : fitted estimator
    data, target, features, sample_weight, on_missing, on_bad_file, batch_rows
        As in :func:`fit`.
    """
    check_is_fitted(estimator)
    options = FitOptions.for_model(
        estimator,
        features,
        target=target,
        weight=sample_weight,
        drop=_MISSING_POLICIES[on_missing],
        skip=_FILE_POLICIES[on_bad_file],
        batch_rows=batch_rows,
    )
    kind = data_kind(data)
    if kind is None:
        return in_memory.score_in_memory(estimator, data, options)
    with kind.open(data, options) as opened:
        reading = _reading(opened, options)
        source = kind.source(opened, reading, estimator, None, lambda rows: None)
        near = np.nan if is_classifier(estimator) else float(np.mean(estimator.intercept_))
        measure = Score(in_memory.without_names(estimator), near)
        return measure.value(source.engine.reduce(measure))


def _fingerprint(model: Any, opened: Any, reading: Reading, options: FitOptions, labels: Any) -> str:
    """Hash of estimator, options, version and data: what makes a fit the same after an interruption."""
    if not getattr(opened, "lasting", False):
        raise ValueError(
            "a checkpoint needs data in files that are still there tomorrow: leave it out, or write them"
        )
    if not (model.random_state is None or isinstance(model.random_state, (int, np.integer))):
        raise ValueError(
            f"a fit with random_state={model.random_state!r} cannot be resumed, since it is another one in "
            "the next process: give a whole number, or None"
        )
    settings = {n: _exactly(v) for n, v in model.get_params().items() if n not in ("n_jobs", "verbose")}
    if getattr(model, "warm_start", False):
        settings["start"] = _exactly([getattr(model, name, None) for name in ("coef_", "intercept_")])
    roles = (reading.features, reading.target, reading.weight, repr(reading.categories), labels.tolist())
    return fingerprint(
        sys.modules["tailproof"].__version__,
        settings | {"kind": type(model).__name__},
        opened.fingerprint,
        roles,
        (reading.drop, options.skip, reading.batch_rows, options.shuffle, options.workers_per_candidate),
    )


def _exactly(value: Any) -> str:
    """Text of a value with all of its digits, and all numbers of an array."""
    if isinstance(value, (list, tuple)):
        return repr([_exactly(item) for item in value])
    return repr((value.dtype.str, value.tolist())) if isinstance(value, np.ndarray) else repr(value)


def _rows_to_visit(model: Any, opened: Any) -> int | None:
    """Rows of all passes, where their number is known."""
    rows = getattr(opened, "rows", None)
    unknown = isinstance(model.max_iter, str) or getattr(model, "rounds", 1) != 1
    return None if rows is None or unknown else sum(rows) * int(model.max_iter)
