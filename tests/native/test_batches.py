"""Columns of any numbers become rows, with the same bits as a conversion of each by NumPy."""

import numpy as np
import pytest

from tailproof.native.batches import arrow_column, fill_rows

pa = pytest.importorskip("pyarrow")
RNG = np.random.default_rng(0)
KINDS = ["f8", "f4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


def numbers(kind, n):
    if kind[0] == "f":
        return RNG.standard_normal(n).astype(kind)
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max, n, dtype=kind, endpoint=True)


def filled(columns, n):
    d = len(columns)
    X, good = np.full((n, d), -7.0), np.ones(n, dtype=bool)
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    fill_rows(columns, X, good, low, high)
    return X, good, low, high


@pytest.mark.parametrize("n", [1, 3, 63, 64, 65, 1_000])
@pytest.mark.parametrize("d", [1, 7, 8, 9, 20])
def test_columns_become_rows(n, d):
    columns = [RNG.standard_normal(n) for _ in range(d)]
    X, good, low, high = filled(columns, n)
    assert np.array_equal(X, np.column_stack(columns))
    assert good.all()
    assert np.array_equal(low, X.min(axis=0))
    assert np.array_equal(high, X.max(axis=0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [False, True])
def test_every_kind_of_arrow_numbers_from_anywhere_in_an_array(kind, missing):
    values = numbers(kind, 200)
    gaps = RNG.random(200) < 0.3 if missing else np.zeros(200, dtype=bool)
    column = pa.array(values, mask=gaps if missing else None).slice(13, 150)
    expected = np.where(gaps, np.nan, values.astype(np.float64))[13:163]
    X, good, low, high = filled([arrow_column(column), np.arange(150.0)], 150)
    assert np.array_equal(X[:, 0], expected, equal_nan=True)
    assert np.array_equal(X[:, 1], np.arange(150.0))
    assert np.array_equal(good, ~gaps[13:163])
    assert (low[0], high[0]) == (np.nanmin(expected), np.nanmax(expected))


def test_numbers_that_are_not_finite_spoil_their_rows_alone():
    column = RNG.standard_normal(300)
    column[[5, 70, 299]] = np.nan, np.inf, -np.inf
    X, good, low, high = filled([column, np.ones(300)], 300)
    assert np.flatnonzero(~good).tolist() == [5, 70, 299]
    assert np.array_equal(X[:, 0], column, equal_nan=True)
    assert (low[0], high[0]) == (-np.inf, np.inf)


@pytest.mark.parametrize("values", [["a"], [True, None], [None, None], [b"x"]])
def test_what_is_no_number_is_left_to_others(values):
    assert arrow_column(pa.array(values)) is None


def test_a_column_of_another_length_is_refused():
    with pytest.raises(ValueError, match="column must have 3 numbers; got 2"):
        filled([arrow_column(pa.array([1.0, 2.0]))], 3)
