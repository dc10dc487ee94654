"""Kernels for tables, against slow references."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailproof.native.tables import Quotes, codes_to_rows, columns_to_rows, extent

CELLS = st.lists(st.lists(st.text('ab",; \n\r', max_size=6), min_size=2, max_size=3), min_size=1, max_size=6)


def followed(text: bytes, cuts: list[int], delimiter: str = ",") -> bool:
    quotes, start = Quotes(delimiter), 0
    for end in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        quotes.follow(text[start:end])
        start = end
    return quotes.plain


@given(CELLS, st.lists(st.integers(0, 200), max_size=4))
def test_a_line_end_within_quotes_is_never_missed(cells, cuts):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(cells)
    held = any("\n" in cell or "\r" in cell for row in cells for cell in row)
    assert followed(text.getvalue().encode(), cuts) is not held


@given(st.text('a",\n', max_size=12), st.lists(st.integers(0, 20), max_size=4))
def test_pieces_do_not_matter(text, cuts):
    assert followed(text.encode(), cuts) == followed(text.encode(), [])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('a,"b"\n"c",d\n', True),
        ('"a ""b"" c",d\n', True),
        ('5" pipe,1\n', False),
        ('"a"b"c,1\n', False),
        ('a,"b', True),
        ('a;"b"\n', False),
        ("", True),
    ],
)
def test_quotes_inside_of_cells_are_doubtful(text, plain):
    assert followed(text.encode(), []) is plain


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40))
def test_extent_is_that_of_numpy(numbers):
    values = np.array(numbers)
    total, low, high = extent(values)
    assert (low, high) == (values.min(), values.max())
    assert total == pytest.approx(values.sum(), abs=1e-3)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 7, 8, 18])
def test_a_sum_tells_what_is_not_finite(odd, place):
    values = np.ones(19)
    values[place] = odd
    assert not np.isfinite(extent(values)[0])
    assert not np.isfinite(columns_to_rows([values], [0], np.empty((19, 1)))[0])


@pytest.mark.parametrize("m", [0, 1, 255, 256, 700])
def test_columns_and_codes_become_rows(m):
    rng = np.random.default_rng(m)
    rows, columns = np.full((m, 6), -1.0), [rng.standard_normal(m) for _ in range(2)]
    codes = rng.integers(-1, 4, m).astype(np.int32)
    sums = columns_to_rows(columns, [5, 1], rows)
    codes_to_rows(codes, 3, 2, rows)
    np.testing.assert_array_equal(rows[:, [5, 1]], np.column_stack(columns))
    np.testing.assert_array_equal(rows[:, 2:5], codes[:, None] == np.arange(3))
    assert np.all(rows[:, 0] == -1)
    np.testing.assert_allclose(sums, [column.sum() for column in columns], atol=1e-9)


def test_places_outside_are_refused():
    with pytest.raises(IndexError, match="places"):
        columns_to_rows([np.ones(2)], [3], np.empty((2, 3)))
    with pytest.raises(IndexError, match="do not fit"):
        codes_to_rows(np.zeros(2, dtype=np.int32), 3, 1, np.empty((2, 3)))
    with pytest.raises(ValueError, match="shape"):
        columns_to_rows([np.ones(3)], [0], np.empty((2, 3)))
