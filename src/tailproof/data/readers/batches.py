"""A batch of rows as the kernels want it, and how data of any kind become batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.numerics.meaning import WordsError, check_not_masked
from tailproof.data.dealing import BATCH_ROWS
from tailproof.data.readers import refusals
from tailproof.native.batches import ArrowColumn, ArrowColumns, NumberColumns, arrow_column, fill_rows

GROUPS = 8  # of batches, in each block: their sums give many small means to a robust mean
FEATURES_LOOKED_AT = 4  # besides the target, in whole pieces: a look must be cheap
_SPACED = 1_024  # rows of a batch that show whether its level is that of the others
_SPACED_OF_FEW = 4_096  # the same, where few batches are compared: two may differ by chance
_FEW_BATCHES = 4


class BadRowsError(ValueError):
    """Rows that cannot be used, with the place where they are."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one piece that are dealt and visited together.

    Attributes
    ----------
    piece, number : int
        Which piece, and which batch of it.
    X : array or CSR array of shape (n, d)
    y : array of shape (n,)
        Encoded: numbers, or signs and class numbers.
    weights : array of shape (n,), or empty
    missing : array of int
        Rows to leave out: something in them is missing or not finite, or their weight is zero.
    dropped : int
        How many rows were left out because something is missing.
    extremes : tuple of arrays, optional
        Least and largest number of every column of X, NaN aside, where the reader has seen them.
    """

    piece: int
    number: int
    X: Any
    y: Array
    weights: Array
    missing: NDArray[np.intp]
    dropped: int = 0
    extremes: tuple[Array, Array] | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def group(self) -> int:
        """To which of the groups of batches it belongs."""
        return (self.piece + self.number) % GROUPS

    def aligned(self) -> Batch:
        """The same rows where compiled code can read them: those that a cluster sends may lie anywhere."""
        y, weights = (np.require(numbers, requirements="A") for numbers in (self.y, self.weights))
        return replace(self, X=_aligned_rows(self.X), y=y, weights=weights)

    def without(self, rows: NDArray[np.intp]) -> Batch:
        """The same, with some more rows to leave out."""
        return replace(self, missing=np.union1d(self.missing, rows)) if rows.size else self

    def usable(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Rows, in their order, without those to leave out."""
        return rows[~np.isin(rows, self.missing)] if self.missing.size else rows


@dataclass(frozen=True)
class Reading:
    """What to take from the data and how: which columns, their encodings, and what to do about bad rows.

    Parameters
    ----------
    features : tuple of str
        Columns, in the order of the coefficients.
    target, weight : str
        Columns; no weight where empty.
    categories : dict
        Of text columns: their categories, each of which becomes a column of zeros and ones.
    drop : bool
        Leave rows out where something is missing, instead of raising.
    encode : callable
        Target values to numbers.
    batch_rows : int
    """

    features: tuple[str, ...]
    target: str
    weight: str
    categories: dict[str, tuple[Any, ...]]
    drop: bool = False
    encode: Callable[[Any], Array] = np.asarray
    batch_rows: int = BATCH_ROWS

    @property
    def names(self) -> list[str]:
        """Names of the coefficients: features, with one name for every category."""
        names = (
            [f"{n}={v}" for v in self.categories[n]] if n in self.categories else [n] for n in self.features
        )
        return [name for one in names for name in one]

    def column_of(self, coefficient: int) -> str:
        """Column that a coefficient is of."""
        owners = [name for name in self.features for _ in self.categories.get(name, (name,))]
        return owners[coefficient]

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return [*self.features, *filter(None, (self.target, self.weight))]

    def arrow_batches(
        self,
        piece: int,
        where: str,
        tables: Iterator[Any],
        new: Callable[[tuple[int, int]], Array] = np.empty,
        rows: int | None = None,
    ) -> Iterator[Batch]:
        """Cut the record batches of a piece into batches of ``batch_rows`` rows.

        Parameters
        ----------
        piece : int
        where : str
            Name of the piece for errors.
        tables : iterator of pyarrow.RecordBatch
        new : callable
            Gives an array of the wanted shape to write into.
        rows : int, optional
            Of all tables together, at most, where that is known: less memory is asked for.
        """
        most = self.batch_rows if rows is None else min(self.batch_rows, rows)
        number, filling, columns, width = 0, None, _Columns(self, where), len(self.names)
        for table in tables:
            start = 0
            while start < table.num_rows:
                filling = filling or _Filling(self, columns, new((most, width)))
                start += filling.add(table.slice(start, most - filling.rows))
                if filling.rows == most:
                    yield filling.batch(piece, number)
                    number, filling = number + 1, None
        if filling:
            yield filling.batch(piece, number)

    def array_batches(self, piece: int, where: str, X: Any, y: Any, weights: Any = None) -> Iterator[Batch]:
        """Cut arrays into batches of ``batch_rows`` rows."""
        try:
            check_not_masked(X=X, y=y)
        except ValueError as error:
            raise BadRowsError(f"{where}: {error}") from None
        X = X.tocsr() if sparse.issparse(X) else np.ascontiguousarray(_floats("X", X, where))
        if X.ndim != 2 or len(y) != X.shape[0]:
            raise ValueError(
                f"{where}: X must be a table with one row for each value of y; got {X.shape}, {len(y)}"
            )
        if X.shape[1] != len(self.features):
            raise ValueError(f"{where} has {X.shape[1]} features; the first piece has {len(self.features)}")
        if weights is not None and len(weights) != len(y):
            raise ValueError(f"{where}: there must be a weight for each row; got {len(weights)} for {len(y)}")
        y = np.asarray(y)
        for number, start in enumerate(range(0, X.shape[0], self.batch_rows)):
            part = slice(start, start + self.batch_rows)
            share = np.empty(0) if weights is None else _floats("weights", weights[part], where).copy()
            rows = X[part]
            good = _finite_rows(rows)
            yield self.checked(piece, number, where, rows, y[part], share, good).aligned()

    def some_rows(self, y: NDArray[Any], columns: list[Any], compared: float) -> Array:
        """Some evenly spaced rows of target and columns as numbers, without those that lack one.

        Of a batch that is compared with few others more of them are taken.
        """
        most = _SPACED if compared > _FEW_BATCHES else _SPACED_OF_FEW
        rows = np.arange(0, len(y), -(-len(y) // most) or 1)
        X = np.column_stack([np.empty((rows.size, 0)), *(_numbers(column.take(rows)) for column in columns)])
        good = ~is_missing(y[rows]) & np.isfinite(X).all(axis=1)
        labels = y[rows[good]]
        if not labels.size:
            return np.empty((0, 1 + len(columns)))
        return np.column_stack(
            [self.encode(np.array(labels.tolist()) if labels.dtype.kind == "O" else labels), X[good]]
        )

    def matrix_columns(self, part: Any, where: str) -> list[Array | ArrowColumn]:
        """Columns of numbers of a record batch, one for every coefficient."""
        return [
            self._column(name, column, where)
            for name in self.features
            for column in self._encoded(part.column(name), name, where)
        ]

    def _encoded(self, column: Any, name: str, where: str) -> list[Any]:
        if name not in self.categories:
            return [column]
        return one_hot(column, self.categories[name], f"{where}, column {name!r}")

    def _column(self, name: str, column: Any, where: str) -> Array | ArrowColumn:
        try:
            quick = None if isinstance(column, np.ndarray) else arrow_column(column)
            return _numbers(column) if quick is None else quick
        except (ValueError, TypeError, NotImplementedError):
            kind = str(getattr(column, "type", "text"))
            choice = f"{refusals.instead_of(kind, name)} or leave it out of features"
            raise BadRowsError(f"column {name!r} of {where} holds {kind}, not numbers: {choice}") from None

    def checked(
        self, piece: int, number: int, where: str, X: Any, y: Any, weights: Array, good: NDArray[np.bool_]
    ) -> Batch:
        """Rows as a batch; those with something missing are left out, or refused."""
        if y.dtype.kind in "mM":
            raise BadRowsError(f"{where}: the target {self.target!r} holds times: make numbers of them first")
        known = ~is_missing(y)
        usable = good & known
        if weights.size:
            if np.any(weights < 0):
                raise BadRowsError(refusals.negative_weight(weights, number * self.batch_rows, where))
            usable &= np.isfinite(weights)
        missing = np.flatnonzero(~usable)
        if missing.size and not self.drop:
            row = int(missing[0])
            place = number * self.batch_rows + row
            raise BadRowsError(refusals.missing_value(self, row, place, where, X, bool(known[row])))
        if not usable.any():
            return Batch(piece, number, X[:0], np.empty(0), weights[:0], missing[:0], missing.size)
        if missing.size:
            y = _with_stand_ins(y, usable)
        # A row of weight zero is as if absent.
        unused = np.flatnonzero(~usable | (weights == 0)) if weights.size else missing
        try:
            target = self.encode(y)
        except WordsError:
            raise BadRowsError(f"{where}: {refusals.text_in_target(self.target, y[usable])}") from None
        except ValueError as error:
            raise BadRowsError(f"{where}: {error}") from None
        return Batch(piece, number, X, target, weights, unused, missing.size)


class _Columns:
    """Columns of numbers of the record batches of a piece, whose schema changes between its files at most."""

    def __init__(self, reading: Reading, where: str) -> None:
        self.reading, self.where = reading, where
        self._schema: Any = None
        self._numbers: NumberColumns | None = None

    def of(self, part: Any) -> list[Array | ArrowColumn] | ArrowColumns:
        """Those of a record batch, found all at once where each is of numbers, else one by one."""
        if self.reading.categories:
            return self.reading.matrix_columns(part, self.where)
        found = self._known(part.schema).of(part)
        return self.reading.matrix_columns(part, self.where) if found is None else found

    def _known(self, schema: Any) -> NumberColumns:
        if self._numbers is None or not schema.equals(self._schema):
            self._schema, self._numbers = schema, NumberColumns(schema, self.reading.features)
        return self._numbers


class _Filling:
    """A batch that is written as record batches come: they are in the cache then, and need not be kept."""

    def __init__(self, reading: Reading, columns: _Columns, X: Array) -> None:
        self.reading, self.columns, self.X, self.rows = reading, columns, X, 0
        self.good = np.ones(len(X), dtype=np.bool_)
        self.low, self.high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
        self.y: list[NDArray[Any]] = []
        self.weights: list[Array] = [np.empty(0)]

    def add(self, part: Any) -> int:
        """Write the rows of a record batch behind the others; return how many they are."""
        place, reading = slice(self.rows, self.rows + part.num_rows), self.reading
        fill_rows(self.columns.of(part), self.X[place], self.good[place], self.low, self.high)
        self.y.append(_values(part.column(reading.target)) if reading.target else np.zeros(part.num_rows))
        if reading.weight:
            self.weights.append(_numbers(part.column(reading.weight)))
        self.rows = place.stop
        return int(part.num_rows)

    def batch(self, piece: int, number: int) -> Batch:
        """All rows so far."""
        y, weights = np.concatenate(self.y), np.concatenate(self.weights)
        X, good = self.X[: self.rows], self.good[: self.rows]
        batch = self.reading.checked(piece, number, self.columns.where, X, y, weights, good)
        return replace(batch, extremes=(self.low, self.high))


def reading_of(
    names: list[str] | None, width: int, options: Any, vectors: dict[str, list[str]] | None = None
) -> Reading:
    """Assign the roles that the options ask for to columns, which must be there.

    Parameters
    ----------
    names : list of str or None
        Columns of the data; None where they have no names.
    width : int
        Number of features, where columns have no names.
    options : FitOptions
    vectors : dict, optional
        For each column of vectors, the columns that hold its numbers: a feature of that name is all of them.
    """
    if vectors and options.features is not None:
        numbers = tuple(one for name in options.features for one in vectors.get(name, [name]))
        options = replace(options, features=numbers)
    categories, drop, batch_rows = options.categories, options.drop, options.batch_rows
    if names is None:
        unnamed, weight = (
            tuple(f"feature {j}" for j in range(width)),
            "" if options.weight is None else "weight",
        )
        return Reading(unnamed, "y", weight, {}, drop, batch_rows=batch_rows)
    weight = "" if options.weight is None else options.weight
    for role, value in {"target": options.target, "sample_weight": weight}.items():
        if not isinstance(value, str):
            raise ValueError(refusals.not_a_name(role, value))
    reading = Reading(options.features or (), options.target, weight, categories, drop, batch_rows=batch_rows)
    if options.features is None:
        features = tuple(name for name in names if name not in (reading.target, reading.weight))
        reading = replace(reading, features=features)
    if absent := [name for name in reading.columns if name not in names]:
        raise ValueError(refusals.absent_column(absent[0], names))
    if reading.target in reading.features:
        raise ValueError(
            f"the target {reading.target!r} is among the features, where it predicts itself: leave it out"
        )
    if strange := sorted(set(categories) - set(reading.features)):
        raise ValueError(
            f"categories are declared for {strange}, which are not among the features: correct the name, or "
            "leave it out"
        )
    if not reading.features:
        raise ValueError(refusals.no_feature(reading, options.features is not None))
    return reading


def remember(model: Any, reading: Reading | None) -> None:
    """Keep on a fitted model which columns it was fitted on; None where they have no names."""
    for name in ("columns_", "categories_"):
        model.__dict__.pop(name, None)
    if reading is not None:
        model.columns_, model.categories_ = reading.features, reading.categories


def one_hot(column: Any, categories: tuple[Any, ...], where: str) -> list[Array]:
    """Zeros and ones for every category; NaN where the value is missing; unknown values raise."""
    values = np.asarray(column.to_numpy(zero_copy_only=False) if hasattr(column, "to_numpy") else column)
    missing = is_missing(values)
    flags = [np.where(missing, np.nan, values == value) for value in categories]
    unknown = ~missing & ~(np.sum(flags, axis=0) > 0) if flags else ~missing
    if np.any(unknown):
        raise BadRowsError(refusals.undeclared(values[unknown][0], categories, where))
    return flags


def _numbers(column: Any) -> Array:
    # Compiled code reads aligned memory; what a cluster sends may lie anywhere.
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "mM":
            raise TypeError("a time")  # its number would be nanoseconds since 1970, or something else
        return np.require(column, np.float64, ["C", "A"])
    if str(column.type) in ("string", "large_string", "string_view", "binary") or "dictionary" in str(
        column.type
    ):
        raise TypeError("text")
    # Integers with gaps come as objects or floats; None is NaN.
    return _numbers(column.to_numpy(zero_copy_only=False))


def _values(column: Any) -> NDArray[Any]:
    return np.asarray(column.to_numpy(zero_copy_only=False))


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are None, NaN or infinite."""
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    if values.dtype.kind == "O":
        return np.array(
            [value is None or (isinstance(value, float) and math.isnan(value)) for value in values],
            dtype=np.bool_,
        )
    return np.zeros(values.shape, dtype=np.bool_)


def _with_stand_ins(y: NDArray[Any], usable: NDArray[np.bool_]) -> NDArray[Any]:
    """Some known value in place of the missing ones: their rows are left out, but must be encoded."""
    full = y.copy()
    full[~usable] = y[usable][0]
    return full if full.dtype.kind != "O" else np.array(full.tolist())


def _floats(what: str, values: Any, where: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadRowsError(f"{where}: {refusals.text_in_chunk(what, np.asarray(values))}") from None


def _aligned_rows(X: Any) -> Any:
    if isinstance(X, np.ndarray):
        return np.require(X, requirements="A")
    parts = X.data, X.indices, X.indptr
    if all(part.flags.aligned for part in parts):
        return X
    return type(X)(tuple(np.require(part, requirements="A") for part in parts), shape=X.shape)


def _finite_rows(X: Any) -> NDArray[np.bool_]:
    if not sparse.issparse(X):
        # A product with zeros is one quick look; only bad batches get a second one.
        with np.errstate(invalid="ignore"):
            return np.isfinite(X @ np.zeros(X.shape[1]))
    good = np.ones(X.shape[0], dtype=np.bool_)
    good[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[~np.isfinite(X.data)]] = False
    return good
