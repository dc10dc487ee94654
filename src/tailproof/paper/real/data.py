"""The six data sets of section 4.3, from local files or from OpenML, as the paper prepares them.

``DATA_SETS`` lists them. Features are brought to the unit interval one by one, categories become one column
each, rows with missing values are left out; each trial shuffles and splits anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml

from tailproof.core import Array
from tailproof.core.lookup import lookup

RowIndex = NDArray[np.intp]
VARIABLE = "TAILPROOF_DATA"
TRAIN, VALIDATION = 0.8, 0.1  # of all rows, and of the training rows
_TEST_ROWS = 2_000  # where rows are limited


@dataclass(frozen=True)
class RealData:
    """One data set, ready to train on.

    Attributes
    ----------
    name : str
    X : array of float32, shape (n, d)
        In the unit interval, column by column.
    y : array of int, shape (n,)
        Class numbers from 0.
    classes : int
    chance : float
        Share of the largest class.
    origin : str
        Where the rows come from.
    """

    name: str
    X: NDArray[np.float32]
    y: NDArray[np.int64]
    classes: int
    chance: float
    origin: str


@dataclass(frozen=True)
class Spec:
    """Where a data set is, and the paper's base step for it.

    Attributes
    ----------
    file : str
        Its name in the folder of local files.
    openml : tuple
        Name and version on OpenML.
    target : str
        Column of the class, in tables.
    base_step : float
    note : str
        How the local file differs from the paper's table.
    """

    file: str
    openml: tuple[str, int]
    base_step: float
    target: str = "y"
    drop: tuple[str, ...] = ()
    note: str = ""


DATA_SETS: dict[str, Spec] = {
    "adult": Spec(
        "adult.parquet", ("adult", 2), 0.05, "income", ("split",), "104 columns after one-hot, not 105"
    ),
    "cifar10": Spec("cifar10_10k.npz", ("CIFAR_10", 1), 0.0025, note="10,000 of the 60,000 images"),
    "cod_rna": Spec("cod_rna.parquet", ("cod-rna", 1), 0.15, "label", ("split",)),
    "emnist_balanced": Spec(
        "emnist_47class.npz",
        ("EMNIST_Balanced", 1),
        0.025,
        note="same size and classes, but not the balanced split: classes have 917 to 6,888 rows",
    ),
    "fashion_mnist": Spec("fashion_mnist.npz", ("Fashion-MNIST", 1), 0.025),
    "mnist": Spec("mnist.npz", ("mnist_784", 1), 0.025),
}


def load(
    name: str, folder: str | Path | None = None, *, fetch: Callable[..., Any] = fetch_openml
) -> RealData:
    """Read a data set from local files if there are any, else from OpenML.

    Parameters
    ----------
    name : str
        A name in ``DATA_SETS``.
    folder : path, optional
        Folder of local files; by default the one that the variable ``TAILPROOF_DATA`` names.
    fetch : callable
        What gets data from OpenML; :func:`sklearn.datasets.fetch_openml` keeps them in its cache.
    """
    spec = lookup("data set", name, DATA_SETS)
    file = local_file(name, folder)
    if file is not None:
        features, labels = READERS[file.suffix](file, spec)
        return _prepared(name, features, labels, f"{file.name}{f' ({spec.note})' if spec.note else ''}")
    try:
        fetched = fetch(name=spec.openml[0], version=spec.openml[1], as_frame=True, parser="auto")
    except Exception as problem:
        raise OSError(
            f"{name} is not there ({type(problem).__name__} from OpenML): put {spec.file} in a folder named "
            f"by --data-dir or {VARIABLE}, or connect to the network, where OpenML has it as "
            f"{spec.openml[0]!r}, version {spec.openml[1]}"
        ) from None
    features, labels = _from_frame(fetched.data, np.asarray(fetched.target))
    return _prepared(name, features, labels, f"OpenML {spec.openml[0]} version {spec.openml[1]}")


def local_file(name: str, folder: str | Path | None = None) -> Path | None:
    """Return the local file of a data set, or None."""
    place = folder or os.environ.get(VARIABLE)
    file = Path(place) / lookup("data set", name, DATA_SETS).file if place else None
    return file if file is not None and file.is_file() else None


def available(folder: str | Path | None = None) -> list[str]:
    """Names of the data sets that have a local file."""
    return [name for name in DATA_SETS if local_file(name, folder)]


@dataclass(frozen=True)
class Split:
    """Rows of one trial: about 80% to train, a tenth of as many to validate, the rest to test."""

    train: RowIndex
    validation: RowIndex
    test: RowIndex


def split(n: int, seed: np.random.SeedSequence, limit: int = 0) -> Split:
    """Shuffle and split n rows; of the parts to train and to validate, keep ``limit`` rows if it is not 0.

    With a limit, at most 2,000 rows test.

    Examples
    --------
    >>> parts = split(1000, np.random.SeedSequence(0))
    >>> parts.train.size, parts.validation.size, parts.test.size
    (800, 80, 120)
    """
    rows = np.random.default_rng(seed).permutation(n)
    train = int(TRAIN * n)
    held_out = int(VALIDATION * train)
    share = min(1.0, limit / (train + held_out)) if limit else 1.0
    kept, validating = int(share * train), int(share * held_out)
    if validating < 1 or train + held_out >= n:
        raise ValueError(f"{limit or n} rows are too few for a training, a validation and a test part")
    test = rows[train + held_out :]
    validation = rows[train : train + validating]
    return Split(rows[:kept], validation, test[:_TEST_ROWS] if limit else test)


def _read_images(file: Path, spec: Spec) -> tuple[Array, NDArray[Any]]:
    with np.load(file) as arrays:
        return arrays["X"], arrays["y"]


def _read_table(file: Path, spec: Spec) -> tuple[Array, NDArray[Any]]:
    import pyarrow.parquet as pq

    frame = pq.read_table(file).drop_columns(list(spec.drop)).to_pandas()
    return _from_frame(frame.drop(columns=spec.target), frame[spec.target].to_numpy())


READERS: dict[str, Callable[[Path, Spec], tuple[Array, NDArray[Any]]]] = {
    ".npz": _read_images,
    ".parquet": _read_table,
}


def _from_frame(frame: Any, labels: NDArray[Any]) -> tuple[Array, NDArray[Any]]:
    """Whole rows only; categories and texts one-hot, numbers as they are."""
    kept = frame.notna().all(axis=1).to_numpy()
    frame = frame[kept]
    numbers = frame.select_dtypes("number").columns
    columns = [_column(frame[name], name in numbers) for name in frame]
    return np.hstack(columns), labels[kept]


def _column(values: Any, is_number: bool) -> Array:
    array = values.to_numpy()
    if is_number:
        return np.asarray(array, dtype=np.float64)[:, None]
    texts = array.astype(str)
    return (texts[:, None] == np.unique(texts)).astype(np.float64)


def _prepared(name: str, features: Array, labels: NDArray[Any], origin: str) -> RealData:
    kinds, codes = np.unique(labels, return_inverse=True)
    chance = float(np.bincount(codes).max() / codes.size)
    return RealData(name, unit_interval(features), codes.astype(np.int64), kinds.size, chance, origin)


def unit_interval(features: Array) -> NDArray[np.float32]:
    """Each column from 0 to 1; a constant column becomes 0.

    Examples
    --------
    >>> unit_interval(np.array([[1, 5], [3, 5], [2, 5]])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]
    """
    low, high = features.min(axis=0), features.max(axis=0)
    width = high.astype(np.float64) - low
    gain = np.divide(1.0, width, out=np.zeros_like(width), where=width > 0).astype(np.float32)
    scaled = features.astype(np.float32)
    scaled -= low.astype(np.float32)
    scaled *= gain
    return scaled
