"""Wide tables are read in batches that fit into memory, and give the same candidates wherever they lie."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import tailproof as tp
from pieces_data import assert_same
from tailproof.data import dealing, verbs
from tailproof.data.engines import stream
from tailproof.data.readers import files as readers
from tailproof.data.readers.batches import Reading

WIDTH, ROWS = 60, 3_000


@pytest.fixture
def wide(monkeypatch, tmp_path):
    """Rows that count as wide, in a file of one row group, and as arrays."""
    monkeypatch.setattr(dealing, "_BATCH_CELLS", 500 * WIDTH)
    random = np.random.default_rng(0)
    X = random.standard_normal((ROWS, WIDTH))
    y = X.sum(axis=1) + random.standard_t(2.5, ROWS)
    table = pa.table({f"x{j}": X[:, j] for j in range(WIDTH)} | {"y": y})
    pq.write_table(table, tmp_path / "wide.parquet", use_dictionary=False)
    return tmp_path / "wide.parquet", X, y


def test_batches_are_cut_and_candidates_are_the_same_from_files_and_chunks(wide, monkeypatch):
    path, X, y = wide
    sizes = []
    monkeypatch.setattr(stream.StreamEngine, "_done", lambda self, batch: sizes.append(len(batch)))
    from_file, from_chunk = (
        tp.fit(tp.DCSGDRegressor(k=5, max_iter=2, random_state=0), data) for data in (str(path), [(X, y)])
    )
    assert set(sizes) == {500}
    assert_same(from_file, from_chunk)


def test_a_fit_on_all_rows_knows_the_numbers_of_rows(wide):
    path, X, y = wide
    models = [tp.RobustRegressor(random_state=0) for _ in range(2)]
    tp.fit(models[0], str(path))
    tp.fit(models[1], [(X, y)])
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-12)


def test_sparse_rows_are_not_cut(wide):
    _, X, y = wide

    class Opened:
        columns, width, sparse = None, WIDTH, True

    assert verbs._reading(Opened, verbs.FitOptions()).batch_rows == dealing.BATCH_ROWS
    model = tp.fit(tp.DCSGDRegressor(k=3, max_iter=1, random_state=0), [(sparse.csr_array(X), y)])
    assert np.isfinite(model.coef_).all()


def test_record_batches_of_a_wide_row_group_are_short(wide, monkeypatch):
    monkeypatch.setattr(readers, "_CELLS", 1_100 * (WIDTH + 1))
    files = readers.open_files(str(wide[0]))
    sizes = [batch.num_rows for batch in files.read(0, files.columns, 65_536)]
    assert sizes == [1_100, 1_100, 800]


def test_record_batches_of_other_sizes_make_the_same_batches(wide):
    files = readers.open_files(str(wide[0]))
    reading = Reading(tuple(files.columns[:-1]), "y", "", {}, batch_rows=700)
    made = [
        list(reading.arrow_batches(0, "a file", files.read(0, files.columns, size), rows=rows))
        for size, rows in ((700, None), (130, ROWS), (1_000, 10_000))
    ]
    for others in made[1:]:
        assert [len(batch) for batch in others] == [700, 700, 700, 700, 200]
        for one, other in zip(made[0], others, strict=True):
            np.testing.assert_array_equal(one.X, other.X)
            np.testing.assert_array_equal(one.y, other.y)
            np.testing.assert_array_equal(one.extremes, other.extremes)


def test_a_look_at_columns_asks_for_their_names_once(wide, monkeypatch):
    asked = []
    names = Reading.names
    monkeypatch.setattr(Reading, "names", property(lambda self: asked.append(1) or names.fget(self)))
    files = readers.open_files(str(wide[0]))
    pieces = stream.FilePieces(files, Reading(tuple(files.columns[:-1]), "y", "", {}, batch_rows=500))
    assert len(list(pieces.column_samples(0, list(range(WIDTH))))) == 6
    assert len(asked) == 1
