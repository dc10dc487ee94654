"""One verb for data wherever they live: arrays, frames, files, iterators of chunks, Dask, Spark."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from tailproof.core import Array
from tailproof.core.lookup import lookup
from tailproof.data import in_memory
from tailproof.data.dealing import BATCH_ROWS
from tailproof.data.engines.checkpoint import Checkpoint, fingerprint
from tailproof.data.fit import fit_in_pieces
from tailproof.data.mixing import DISK, mixing
from tailproof.data.pieces import Score
from tailproof.data.readers.batches import Reading
from tailproof.data.sources import Kind, kind_of
from tailproof.estimators.inputs import entropy, seed_sequence
from tailproof.estimators.linear.fit import LinearSGD
from tailproof.estimators.progress import row_progress

_POLICIES = {"error": False, "drop": True}
_FILE_POLICIES = {"error": False, "skip": True}


@dataclass(frozen=True)
class Options:
    """What the caller asked for, checked."""

    target: Any
    features: tuple[str, ...] | None
    weight: Any
    categories: dict[str, tuple[Any, ...]]
    classes: Any
    drop: bool
    skip: bool | None
    batch_rows: int
    checkpoint: Path | None
    every: float
    shuffle: bool | str | None
    client: Any


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
) -> Any:
    """Fit an estimator on data wherever they live.

    Arrays and frames go to ``estimator.fit``. Everything else is fitted in pieces, by passes that read a few
    batches at a time (files, chunks) or run where the rows are (Dask, Spark): scales and start come from a
    sample of about a thousand rows, rows are dealt to the k candidates batch by batch, the intercept and the
    validation come from sums. The same pieces and the same ``random_state`` give the same candidates on every
    engine, to the last bit.

    Parameters
    ----------
    estimator : estimator
        ``DCSGD*`` or ``RVSGD*``; for arrays and frames any estimator.
    data : any
        An array or a pair (X, y); a pandas, polars or Arrow table; a path, a glob or a list of paths of
        Parquet, Arrow or CSV files; a ``pyarrow.dataset``; a list or an iterator of chunks (X, y) or
        (X, y, weights), of which an iterator is kept in a temporary folder while it is needed; a Dask array
        or data frame; a Spark data frame.
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
        Rows that are dealt and visited together.
    checkpoint : path, optional
        File that keeps where a fit on files stands. After a sudden end the same call goes on from there and
        finds the same result; at the end the file is removed.
    checkpoint_seconds : float
        Time between two writes.
    shuffle : {True, False, "disk"}, optional
        True deals the rows of every piece to all candidates: the default for files and chunks. "disk" first
        writes them in random order to a temporary folder, or beside the checkpoint: what happens by default
        where the rows look sorted and there is room. False makes blocks of whole pieces: the default for
        Dask and Spark, where each candidate is then trained where its partitions are. On Dask True lets
        every candidate visit every partition; on Spark it moves rows.
    client : distributed.Client, optional
        For Dask; default the current one, or one of threads for the time of the fit.

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
    options = Options(
        target=target,
        features=None if features is None else tuple(features),
        weight=sample_weight,
        categories={name: tuple(values) for name, values in (categories or {}).items()},
        classes=classes,
        drop=lookup("on_missing", on_missing, _POLICIES),
        skip=lookup("on_bad_file", on_bad_file, _FILE_POLICIES),
        batch_rows=_at_least_one("batch_rows", batch_rows),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        every=float(checkpoint_seconds),
        shuffle=shuffle,
        client=client,
    )
    kind = kind_of(data)
    if not (shuffle is None or isinstance(shuffle, bool) or shuffle == DISK):
        raise ValueError(f"shuffle must be True, False or {DISK!r}; got {shuffle!r}")
    if kind is None:
        return in_memory.fit_here(estimator, data, options)
    if shuffle == DISK and not kind.streams:
        raise ValueError(f"shuffle={DISK!r} is for files and chunks; {kind.name} take True or False")
    if not isinstance(estimator, LinearSGD):
        raise TypeError(
            f"{type(estimator).__name__} needs its data in memory; for {kind.name} take DCSGDRegressor, "
            "DCSGDClassifier, RVSGDRegressor or RVSGDClassifier"
        )
    estimator._validate_params()
    with kind.open(data, options) as opened:
        return _fit_opened(estimator, kind, opened, options)


def _fit_opened(model: LinearSGD, kind: Kind, opened: Any, options: Options) -> Any:
    columns = in_memory.columns_of(opened, options)
    labels = np.ones(2)
    if is_classifier(model):
        known = opened.distinct(columns.target) if options.classes is None else options.classes
        labels = np.unique(np.asarray(known))
    loss, _, outputs = model._encode(labels, classes=labels, first=True, stream=True)
    reading = Reading(
        columns.features,
        columns.target,
        columns.weight,
        options.categories,
        options.drop,
        partial(_encoded, _bare(model)),
        options.batch_rows,
    )
    seed, saved = seed_sequence(model.random_state), None
    if options.checkpoint is not None:
        mark = fingerprint(
            _settings(model),
            kind.fingerprint(opened),
            (reading.columns, reading.drop, reading.batch_rows, repr(reading.categories)),
        )
        saved = Checkpoint(options.checkpoint, mark, options.every)
        seed = np.random.SeedSequence(int(mark[:16], 16)) if model.random_state is None else seed
    with (
        ExitStack() as stack,
        row_progress(model.verbose, _rows_to_visit(model, opened)) as on_rows,
    ):
        source = kind.source(opened, reading, model, saved, on_rows)
        if options.shuffle is not None and kind.deals_rows:
            source = replace(source, whole_pieces=not options.shuffle)
        if kind.streams and options.shuffle in (None, DISK):
            asked = options.shuffle == DISK
            source = mixing(source, asked, options.batch_rows, entropy(seed), stack, saved)
        fit_in_pieces(model, source, loss, outputs, seed)
    model.__dict__.pop("feature_names_in_", None)
    if source.names is not None:
        model.feature_names_in_ = np.array(source.names, dtype=object)
    in_memory.remember(model, None if source.names is None else columns.features, options.categories)
    if saved is not None:
        saved.delete()
    return model


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
    check_is_fitted(estimator)
    kind = kind_of(data)
    if kind is None:
        return in_memory.predict_here(estimator, data, features)
    options = _options_of(estimator, features, batch_rows, target="")
    with kind.open(data, options) as opened:
        columns = in_memory.columns_of(opened, options)
        reading = Reading(columns.features, "", "", options.categories, False, np.asarray, batch_rows)
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
    drop = lookup("on_missing", on_missing, _POLICIES)
    skip = lookup("on_bad_file", on_bad_file, _FILE_POLICIES)
    kind = kind_of(data)
    options = _options_of(estimator, features, batch_rows, target, sample_weight, drop, skip)
    if kind is None:
        return in_memory.score_here(estimator, data, options)
    with kind.open(data, options) as opened:
        columns = in_memory.columns_of(opened, options)
        reading = Reading(
            columns.features, columns.target, columns.weight, options.categories, drop, np.asarray, batch_rows
        )
        source = kind.source(opened, reading, estimator, None, lambda rows: None)
        near = np.nan if is_classifier(estimator) else float(np.mean(estimator.intercept_))
        measure = Score(in_memory.without_names(estimator), near)
        return measure.value(source.engine.reduce(measure))


def _options_of(
    model: Any,
    features: Any,
    batch_rows: int,
    target: Any,
    weight: Any = None,
    drop: bool = False,
    skip: bool | None = None,
) -> Options:
    known = getattr(model, "columns_", None)
    return Options(
        target=target,
        features=known if features is None else tuple(features),
        weight=weight,
        categories=getattr(model, "categories_", {}),
        classes=None,
        drop=drop,
        skip=skip,
        batch_rows=_at_least_one("batch_rows", batch_rows),
        checkpoint=None,
        every=0.0,
        shuffle=None,
        client=None,
    )


def _encoded(model: Any, y: Any) -> Array:
    return np.asarray(model._encode(y, first=False, stream=True)[1])


def _bare(model: Any) -> Any:
    """Parameters and classes alone: what travels to encode targets."""
    bare = clone(model)
    if hasattr(model, "classes_"):
        bare.classes_ = model.classes_
    return bare


def _settings(model: Any) -> dict[str, str]:
    return {
        name: repr(value) for name, value in model.get_params().items() if name not in ("n_jobs", "verbose")
    } | {"kind": type(model).__name__}


def _rows_to_visit(model: Any, opened: Any) -> int | None:
    """Rows of all passes, where their number is known."""
    rows = getattr(opened, "rows", None)
    return None if rows is None or model.max_iter == "auto" else sum(rows) * int(model.max_iter)


def _at_least_one(name: str, value: int) -> int:
    if not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
    return int(value)
