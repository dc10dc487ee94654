"""Many small files are read as few pieces: the same rows, and errors that name the file."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import tailproof as tp
from pieces_data import assert_same, chunks_of, rows, table_of
from tailproof.data.readers.file_groups import FileGroups, taken_together

FILES, ROWS = 70, 20
MODEL = tp.DCSGDRegressor(k=3, random_state=0, max_iter=1)


@pytest.fixture(scope="module")
def data():
    return rows(FILES * ROWS)


@pytest.fixture
def folder(data, tmp_path):
    X, y = data
    (tmp_path / "many").mkdir()
    pq.write_table(table_of(X, y), tmp_path / "one.parquet")
    for number in range(FILES):
        part = slice(number * ROWS, (number + 1) * ROWS)
        pq.write_table(table_of(X[part], y[part]), tmp_path / "many" / f"{number:02d}.parquet")
    return tmp_path


def test_the_same_as_one_file(folder, data):
    X, _ = data
    many = tp.fit(clone(MODEL), str(folder / "many"))
    assert_same(many, tp.fit(clone(MODEL), str(folder / "one.parquet")))
    assert many.report_.data == f"{FILES} files, {FILES * ROWS:,} rows"
    np.testing.assert_allclose(tp.predict(many, str(folder / "many")), X @ many.coef_ + many.intercept_)


def test_pieces_are_no_longer_than_a_batch(folder, data):
    small = tp.fit(clone(MODEL), str(folder / "many"), batch_rows=200)
    assert_same(small, tp.fit(clone(MODEL), chunks_of(*data, 7), batch_rows=200))


def test_an_error_names_the_file_and_its_row(folder, data):
    X, y = data
    bad = X[:ROWS].copy()
    bad[7, 2] = np.nan
    pq.write_table(table_of(bad, y[:ROWS]), folder / "many" / "33.parquet")
    with pytest.raises(ValueError, match=r"33\.parquet: column 'x2' is missing or not finite in row 7"):
        tp.fit(clone(MODEL), str(folder / "many"))
    dropped = tp.fit(clone(MODEL), str(folder / "many"), on_missing="drop")
    assert dropped.report_.dropped_rows == 1


def test_a_file_that_cannot_be_read_is_skipped_alone(folder):
    (folder / "many" / "41.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match=r"41\.parquet"):
        tp.fit(clone(MODEL), str(folder / "many"))
    model = tp.fit(clone(MODEL), str(folder / "many"), on_bad_file="skip")
    assert [name[-10:] for name in model.report_.skipped_files] == ["41.parquet"]
    assert model.report_.block_sizes.sum() == (FILES - 1) * ROWS


def test_few_or_large_files_stay_as_they_are():
    files = _Sizes([5] * 64)
    assert taken_together(files, 1_000) is files
    large = _Sizes([500] * 100)
    assert taken_together(large, 1_000) is large


class _Sizes:
    def __init__(self, sizes):
        self.rows = sizes

    def __len__(self):
        return len(self.rows)


@given(st.lists(st.integers(1, 300), min_size=65, max_size=200), st.integers(100, 5_000))
def test_groups_are_neighbours_of_at_most_a_batch(sizes, batch_rows):
    files = _Sizes(sizes)
    together = taken_together(files, batch_rows)
    if together is files:
        assert np.mean(sizes) * 8 > batch_rows
        return
    assert isinstance(together, FileGroups)
    assert [piece for group in together.groups for piece in group] == list(range(len(sizes)))
    assert sum(together.rows) == sum(sizes)
    assert all(
        rows <= batch_rows or len(group) == 1
        for rows, group in zip(together.rows, together.groups, strict=True)
    )
    # No two neighbours would have fitted into one.
    assert all(
        a + sizes[group[0]] > batch_rows for a, group in zip(together.rows, together.groups[1:], strict=False)
    )
