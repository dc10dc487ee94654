"""Columns of any numbers become rows, with the same bits as a conversion of each by NumPy."""

import numpy as np
import pytest

from tailproof.native.batches import NumberColumns, arrow_column, fill_rows

pa = pytest.importorskip("pyarrow")
RNG = np.random.default_rng(0)
KINDS = ["f8", "f4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


def numbers(kind, n):
    if kind[0] == "f":
        return RNG.standard_normal(n).astype(kind)
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max, n, dtype=kind, endpoint=True)


def filled(columns, n):
    return filled_from(columns, len(columns), n)


def filled_from(columns, d, n):
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


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_many_rows_go_past_the_cache_and_are_the_same(place):
    n, d = 9_001, 33
    columns = [RNG.standard_normal(n) for _ in range(d)]
    columns[4][[0, 31, 32, n - 1]] = np.nan
    memory, good, low, high = np.full(n * d + 8, -7.0), np.ones(n, dtype=bool), np.zeros(d), np.zeros(d)
    fill_rows(columns, memory[place : place + n * d].reshape(n, d), good, low, high)
    expected = np.column_stack(columns)
    assert np.array_equal(memory[place : place + n * d].reshape(n, d), expected, equal_nan=True)
    assert np.all(memory[:place] == -7.0)
    assert np.all(memory[place + n * d :] == -7.0)
    assert np.flatnonzero(~good).tolist() == [0, 31, 32, n - 1]
    assert np.array_equal(high, np.nanmax(expected, axis=0))


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


def record_batch(n=300):
    """Columns of every kind, some with gaps, from the middle of longer ones."""
    gaps = RNG.random(n + 20) < 0.3
    columns = {kind: pa.array(numbers(kind, n + 20)) for kind in KINDS}
    columns |= {f"{kind} with gaps": pa.array(numbers(kind, n + 20), mask=gaps) for kind in KINDS}
    return pa.record_batch(columns | {"text": pa.array(["a"] * (n + 20))}).slice(11, n)


@pytest.mark.parametrize("start", [0, 1, 77])
def test_columns_of_a_record_batch_are_found_at_once_as_they_are_one_by_one(start):
    batch = record_batch().slice(start)
    names = batch.schema.names[-2::-1]
    at_once = filled_from(NumberColumns(batch.schema, names).of(batch), len(names), batch.num_rows)
    one_by_one = filled([arrow_column(batch.column(name)) for name in names], batch.num_rows)
    for found, expected in zip(at_once, one_by_one, strict=True):
        assert np.array_equal(found, expected, equal_nan=True)


def test_a_gap_in_one_row_leaves_the_rows_around_it():
    for gap in range(0, 200, 7):
        there = np.arange(200) != gap
        X, good, *_ = filled([arrow_column(pa.array(np.arange(200.0), mask=~there))], 200)
        assert np.array_equal(good, there)
        assert np.array_equal(X[there, 0], np.arange(200.0)[there])


@pytest.mark.parametrize("names", [["f8", "text"], ["f8", "nowhere"]])
def test_columns_that_are_not_all_numbers_are_left_to_others(names):
    batch = record_batch()
    assert NumberColumns(batch.schema, names).of(batch) is None


def test_numbers_between_the_places_of_their_kind_are_left_to_others():
    odd = pa.py_buffer(b"\0" + np.arange(3.0).tobytes()).slice(1)
    batch = pa.record_batch({"x": pa.Array.from_buffers(pa.float64(), 3, [None, odd])})
    assert NumberColumns(batch.schema, ["x"]).of(batch) is None


def test_a_record_batch_of_another_length_is_refused():
    batch = record_batch()
    with pytest.raises(ValueError, match="columns must have 3 numbers; got 300"):
        filled_from(NumberColumns(batch.schema, ["f8"]).of(batch), 1, 3)
