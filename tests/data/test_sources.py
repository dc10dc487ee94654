"""Sources that people have: each is read as the same rows in chunks are, or refused in a sentence."""

import bz2
import datetime
import gzip
import tempfile
import tracemalloc
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import tailproof as tp
from pieces_data import SETTINGS, assert_same, chunks_of, rows, table_of, write_parquet
from tailproof.data.engines.stream import Buffers
from tailproof.data.readers import tables as stream_tables
from tailproof.data.readers.files import BadFileError


@pytest.fixture(scope="module")
def data():
    return rows(1_200)


def fit(source, **options):
    return tp.fit(tp.DCSGDRegressor(**SETTINGS), source, **options)


def tables(data, pieces=4):
    return [table_of(X, y) for X, y in chunks_of(*data, pieces)]


STREAMS = {
    "generator of pandas": lambda parts: (part.to_pandas() for part in parts),
    "generator of polars": lambda parts: (pl.from_arrow(part) for part in parts),
    "generator of tables": iter,
    "list of tables": list,
    "list of frames": lambda parts: [part.to_pandas() for part in parts],
    "generator of batches": lambda parts: (batch for part in parts for batch in part.to_batches()),
    "generator of dicts": lambda parts: (
        {name: part[name].to_numpy() for name in part.column_names} for part in parts
    ),
    "generator of rows": lambda parts: (row for part in parts for row in part.to_pylist()),
    "RecordBatchReader": lambda parts: pa.RecordBatchReader.from_batches(
        parts[0].schema, [batch for part in parts for batch in part.to_batches()]
    ),
    "Scanner": lambda parts: pa.dataset.dataset(parts).scanner(),
    "LazyFrame": lambda parts: pl.concat([pl.from_arrow(part) for part in parts]).lazy(),
}


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_streams_of_tables(data, name, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = fit(STREAMS[name](tables(data)))
    # They are kept in one file, so that the pieces are those of all rows in one chunk.
    assert_same(model, fit([data], shuffle=True))
    assert list(model.feature_names_in_) == ["x0", "x1", "x2", "x3"]
    assert model.report_.data == "a stream of tables, 1,200 rows"
    assert not list(tmp_path.iterdir())
    expected = data[0] @ model.coef_ + model.intercept_
    np.testing.assert_allclose(tp.predict(model, STREAMS[name](tables(data))), expected, rtol=1e-9)


def test_a_dataset_of_tables_in_memory(data):
    parts = tables(data)
    several = pa.dataset.dataset([pa.dataset.dataset(part) for part in parts])
    assert_same(fit(several, shuffle=True), fit(chunks_of(*data, len(parts)), shuffle=True))


def test_a_filtered_dataset_keeps_its_filter(data, tmp_path):
    paths = write_parquet(tmp_path, chunks_of(*data, 3))
    chosen = pa.dataset.dataset(paths).filter(pa.dataset.field("x0") > 0)
    X, y = data
    kept = X[:, 0] > 0
    assert_same(fit(chosen), fit([(X[kept], y[kept])], shuffle=True))


@pytest.mark.filterwarnings("ignore:the rows look sorted")  # by day
@pytest.mark.parametrize("how", ["folder", "glob", "dataset"])
def test_columns_in_the_names_of_folders(data, tmp_path, how):
    X, y = data
    for day, (part_X, part_y) in enumerate(chunks_of(X, y, 3)):
        folder = tmp_path / f"day={day}" / "region=north%20sea"
        folder.mkdir(parents=True)
        pq.write_table(table_of(part_X, part_y), folder / "part.parquet")
    source = {
        "folder": tmp_path,
        "glob": str(tmp_path / "day=*" / "*" / "*.parquet"),
        "dataset": pa.dataset.dataset(tmp_path, partitioning="hive"),
    }[how]
    features = ["day", "x0", "x1"]
    model = fit(source, features=features, shuffle=True)
    days = np.repeat(np.arange(3.0), 400)
    chunks = chunks_of(np.column_stack([days, X[:, :2]]), y, 3)
    assert_same(model, fit(chunks, shuffle=True))
    if how != "dataset":
        region = {"region": ["north sea"]}
        named = fit(source, features=["x0", "region"], categories=region, shuffle=True)
        assert list(named.feature_names_in_) == ["x0", "region=north sea"]
    labels = tp.fit(tp.DCSGDClassifier(**SETTINGS), source, "day", ["x0", "x1"], shuffle=True)
    assert labels.classes_.tolist() == [0, 1, 2]


def test_folders_of_different_depth_are_refused(data, tmp_path):
    (tmp_path / "day=1").mkdir()
    write_parquet(tmp_path / "day=1", [data])
    pq.write_table(table_of(*data), tmp_path / "other.parquet")
    with pytest.raises(BadFileError, match="different schemas: column 'day'"):
        fit(tmp_path)


WRITERS = {
    ".csv.gz": lambda table, path: Path(path).write_bytes(gzip.compress(as_csv(table))),
    ".tsv.bz2": lambda table, path: Path(path).write_bytes(bz2.compress(as_csv(table, "\t"))),
    ".csv.zst": lambda table, path: Path(path).write_bytes(
        pa.compress(as_csv(table), codec="zstd", asbytes=True)
    ),
    ".jsonl.gz": lambda table, path: table.to_pandas().to_json(
        path, orient="records", lines=True, double_precision=15
    ),
    ".jsonl": lambda table, path: table.to_pandas().to_json(
        path, orient="records", lines=True, double_precision=15
    ),
    ".orc": pa.orc.write_table,
}


def as_csv(table, delimiter=","):
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table, sink, pa.csv.WriteOptions(delimiter=delimiter))
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("ending", sorted(WRITERS))
def test_more_formats(data, tmp_path, ending):
    for number, table in enumerate(tables(data, 2)):
        WRITERS[ending](table, str(tmp_path / f"{number}{ending}"))
    model, expected = fit(tmp_path, shuffle=True), fit(chunks_of(*data, 2), shuffle=True)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9)


def test_an_unknown_ending_is_refused_with_those_that_are_known(tmp_path):
    (tmp_path / "a.csv.xz").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"file ending must be one of .*'\.csv\.zst'.*; got '\.xz'"):
        fit(tmp_path / "a.csv.xz")


@pytest.mark.parametrize("what", ["folder", "glob", "file"])
@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_urls(data, tmp_path, scheme, what):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem(scheme)
    folder = f"/{tmp_path.name}" if scheme == "memory" else str(tmp_path)
    chunks = chunks_of(*data, 2) if what != "file" else [data]
    for number, chunk in enumerate(chunks):
        with system.open(f"{folder}/part{number}.parquet", "wb") as file:
            pq.write_table(table_of(*chunk), file)
    url = f"{scheme}://{folder}" + {"folder": "", "glob": "/*.parquet", "file": "/part0.parquet"}[what]
    assert_same(fit(url, shuffle=True), fit(chunks, shuffle=True))
    with pytest.raises(FileNotFoundError, match="there is no file at"):
        fit(f"{scheme}://{folder}/nothing/*.parquet")
    with pytest.raises(FileNotFoundError, match="cannot open nosuch"):
        fit("nosuch://bucket/file.parquet")


def test_a_place_that_refuses_is_one_sentence(monkeypatch):
    """Errors of botocore, for one, are neither OSError nor ValueError, and some have several lines."""
    core = pytest.importorskip("fsspec").core

    class NoCredentialsError(Exception):
        pass

    def refuse(url):
        raise NoCredentialsError("Unable to locate credentials.\nmore\nand more")

    monkeypatch.setattr(core, "url_to_fs", refuse)
    words = r"^cannot open s3://bucket/x: Unable to locate credentials; see that the address, the .* right$"
    with pytest.raises(FileNotFoundError, match=words):
        fit("s3://bucket/x")


def test_a_relation_of_duckdb_is_read_by_what_does_not_change(data):
    (table,) = tables(data, 1)

    class DuckDBPyRelation:
        """As of version 2, where the older method warns."""

        __module__ = "duckdb"

        def __arrow_c_stream__(self, requested_schema=None):
            return table.__arrow_c_stream__(requested_schema)

    class Older:
        __module__ = "duckdb"

        def fetch_arrow_reader(self):
            return table.to_reader()

    Older.__name__ = "DuckDBPyRelation"
    for relation in (DuckDBPyRelation(), Older()):
        assert_same(fit(relation), fit(iter([table])))


def test_times_do_not_become_numbers(tmp_path):
    when = pd.date_range("2024-01-01", periods=60, freq="h")
    frame = pd.DataFrame({"when": when, "x": np.arange(60.0), "y": np.arange(60.0)})
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(
        ValueError, match=r"column 'when' of .*a\.parquet holds timestamp.*days since .*leave it"
    ):
        fit(tmp_path)
    with pytest.raises(ValueError, match=r"a\.parquet: the target 'when' holds times"):
        fit(tmp_path, target="when", features=["x"])
    days = pa.table({"day": [datetime.date(2024, 1, 1)] * 60, "y": np.arange(60.0)})
    with pytest.raises(ValueError, match=r"column 'day' of the stream holds date32.*such as days since"):
        fit(iter([days]))


def test_what_does_not_fit_is_refused_in_a_sentence():
    first = pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0]})
    with pytest.raises(BadFileError, match="table 1 of the stream does not fit the first one"):
        fit(iter([first, pa.table({"z": [1.0], "y": [1.0]})]))
    with pytest.raises(ValueError, match="item 1 of the stream is a int, where the first is a table"):
        fit(iter([first, 3]))
    with pytest.raises(ValueError, match="no row to learn from"):
        fit(pa.RecordBatchReader.from_batches(first.schema, []))


def test_a_dict_of_tables_or_of_columns_says_what_to_give():
    """Such as the splits of a Hugging Face dataset."""
    X, y = rows(90)
    table = table_of(X, y)
    with pytest.raises(ValueError, match=r"2 tables in a dict: give one of them, data\['train'\]"):
        tp.fit(tp.DCSGDRegressor(), {"train": table, "test": table})
    with pytest.raises(ValueError, match=r"a dict of columns: give a table of them, pandas\.DataFrame"):
        tp.fit(tp.DCSGDRegressor(), {"x": X[:, 0], "y": y})


def test_what_has_no_rows_is_refused_with_what_can_be_read():
    for data in (None, 3, object()):
        with pytest.raises(TypeError, match=r"cannot read data of type .*: give arrays"):
            fit(data)

    class Dataset:
        def __len__(self):
            return 2

        def __getitem__(self, number):
            return np.zeros(3), 0.0

    with pytest.raises(TypeError, match="cannot read a Dataset: give a DataLoader of it"):
        fit(Dataset())


def test_wide_streams_are_written_before_they_fill_the_memory(data, monkeypatch):
    monkeypatch.setattr(stream_tables, "_FILE_BYTES", 300 * 5 * 8)
    pieces = []
    original = stream_tables._write
    monkeypatch.setattr(
        stream_tables, "_write", lambda table, path: pieces.append(table.num_rows) or original(table, path)
    )
    fit(iter(tables(data)))
    assert pieces == [300, 300, 300, 300]


def test_an_error_in_a_stream_says_where_in_the_stream(data, monkeypatch):
    parts = tables(data)
    parts[2] = table_of(np.full((300, 4), np.nan), np.zeros(300))
    with pytest.raises(ValueError, match=r"^the stream: column 'x0' is missing or not finite in row 600"):
        fit(iter(parts))
    monkeypatch.setattr(stream_tables, "_FILE_ROWS", 300)
    with pytest.raises(ValueError, match=r"^the stream from row 600 on: column 'x0' .* in row 0"):
        fit(iter(parts))


def test_a_stream_has_no_checkpoint(data, tmp_path):
    """It cannot be read again tomorrow: what was written would never be used."""
    with pytest.raises(ValueError, match="a checkpoint needs data in files"):
        fit(iter(tables(data)), checkpoint=tmp_path / "state")
    assert not list(tmp_path.iterdir())


def test_a_column_of_lists_says_what_to_do():
    X, y = rows(90)
    table = pa.table({"v": X.tolist(), "y": y})
    with pytest.raises(ValueError, match=r"'v' of .* holds list<.*: give each of its numbers a column"):
        tp.fit(tp.DCSGDRegressor(), iter([table]))


def test_a_key_that_the_first_row_lacks_is_a_column_all_the_same():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 500))
    whole = [{"a": x, "b": z, "y": x + 5 * z} for x, z in zip(a, b, strict=True)]
    first = {"a": 0.0, "y": 0.0}
    model = tp.fit(tp.RobustRegressor(random_state=0), iter([first, *whole]), "y", on_missing="drop")
    np.testing.assert_allclose(model.coef_, [1, 5], atol=1e-6)


@pytest.fixture
def few_rows_together(monkeypatch):
    """Rows come in tables of a hundred, and files have two of these."""
    monkeypatch.setattr(stream_tables, "_ROWS_TOGETHER", 100)
    monkeypatch.setattr(stream_tables, "_FILE_ROWS", 200)


def rows_with(column, count=600):
    """Rows of a plain line, in which x comes from a function of the row's number."""
    noise = np.random.default_rng(0).standard_normal(count)
    return [{"x": column(i), "z": noise[i], "y": float(i % 97) + 2 * noise[i]} for i in range(count)]


WIDER = {
    "whole numbers, then others": lambda i: i % 97 if i < 450 else float(i % 97),
    "whole numbers and others by turns": lambda i: i % 97 if i % 2 else float(i % 97),
    "numbers, then whole ones": lambda i: float(i % 97) if i < 450 else i % 97,
    "NumPy's numbers of several sizes": lambda i: np.float32(i % 97) if i < 450 else np.int64(i % 97),
    "None before the first number": lambda i: None if i < 250 else float(i % 97),
}


@pytest.mark.parametrize("name", WIDER)
@pytest.mark.parametrize("together", [100, 4_096])
def test_a_column_of_a_stream_may_become_wider(name, together, monkeypatch, few_rows_together):
    monkeypatch.setattr(stream_tables, "_ROWS_TOGETHER", together)
    stream = rows_with(WIDER[name])
    plain = [{key: np.nan if v is None else float(v) for key, v in row.items()} for row in stream]
    options = {"target": "y", "on_missing": "drop"}
    assert_same(fit(iter(stream), **options), fit(iter(plain), **options))


def test_whole_numbers_beyond_those_of_floats_are_rounded(few_rows_together):
    stream = rows_with(lambda i: 2**60 + 1 + i if i < 450 else 0.5)
    plain = [row | {"x": float(row["x"])} for row in stream]
    assert_same(fit(iter(stream), target="y"), fit(iter(plain), target="y"))


def test_tables_of_wider_types_are_taken_together(data):
    parts = tables(data)
    whole = [part.set_column(0, "x0", part["x0"].cast(pa.int32(), safe=False)) for part in parts]
    wide = [part.set_column(0, "x0", part["x0"].cast(pa.float64())) for part in whole]
    assert_same(fit(iter([*whole[:2], *wide[2:]])), fit(iter(wide)))


def test_a_key_that_comes_late_is_a_column_all_the_same(few_rows_together):
    stream = rows_with(lambda i: float(i % 97))
    for row in stream[:250]:
        del row["x"]
    for row in stream[400:550]:
        del row["z"]
    model = fit(iter(stream), target="y", on_missing="drop")
    assert set(model.columns_) == {"x", "z"}
    assert model.report_.dropped_rows == 400


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (
            lambda i: i if i < 450 else "many",
            "column 'x' of the stream holds a number in row 400 and text in row 450: give it values of",
        ),
        (
            lambda i: i if i < 500 else "many",
            "column 'x' of the stream holds int64 at first and string in rows 500 to 599: give it values of",
        ),
        (
            lambda i: float(i) if i < 500 else i > 550,
            "column 'x' of the stream holds double at first and bool in rows 500 to 599: give it values of",
        ),
        (
            lambda i: i > 3 if i < 50 else i,
            "column 'x' of the stream holds a truth value in row 0 and a number in row 50: give it values",
        ),
    ],
)
def test_a_column_of_a_stream_that_changes_its_kind_is_named(column, words, few_rows_together):
    with pytest.raises(BadFileError, match=words):
        fit(iter(rows_with(column)), target="y")


def test_a_column_more_than_in_the_first_table_is_refused(data):
    first, second, *_ = tables(data)
    with pytest.raises(BadFileError, match="table 1 of the stream does not fit the first one, which has no"):
        fit(iter([first, second.append_column("late", second["x0"])]))


def test_a_stream_without_rows_says_so(data, tmp_path):
    one, *_ = tables(data)
    pq.write_table(one, tmp_path / "a.parquet")
    nothing = pyarrow.dataset.dataset(tmp_path).filter(pyarrow.dataset.field("x0") > 1e9)
    for stream in (nothing, iter([one.slice(0, 0)])):
        with pytest.raises(ValueError, match="no row to learn from: the stream gives tables without rows"):
            fit(stream)


def test_a_single_batch_is_a_table(data):
    table = table_of(*data)
    batch = table.to_batches()[0]
    model = fit(batch)
    assert_same(model, fit(table))
    np.testing.assert_array_equal(tp.predict(model, batch), tp.predict(model, table))


@pytest.mark.filterwarnings("ignore:the rows look sorted")  # by day
def test_a_folder_without_a_value_has_the_type_of_the_others(data, tmp_path):
    for day, (X, y) in zip(["1", "2", "__HIVE_DEFAULT_PARTITION__"], chunks_of(*data, 3), strict=True):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(table_of(X, y), tmp_path / f"day={day}" / "part.parquet")
    model = fit(tmp_path, features=["day", "x0"], on_missing="drop", shuffle=True)
    assert model.report_.dropped_rows == 400


@pytest.mark.parametrize("place", [0, 1])
def test_a_column_that_a_table_has_twice_is_named(data, place):
    table = table_of(*data)
    twice = table.append_column("x1", table["x1"])
    for other in (twice, twice.to_pandas(), twice.to_batches()[0]):
        parts = [other, table] if place == 0 else [table, other]
        with pytest.raises(BadFileError, match=f"table {place} of the stream has two columns named 'x1'"):
            fit(iter(parts))


ODD_COLUMNS = {
    "mixed": (
        [1, "a"],
        "column 'x' in table 0 of the stream holds a number in row 0 and text in row 1: give",
    ),
    "longer": ([1.0, 2.0, 3.0], "table 0 of the stream has 3 values in column 'x' and 2 in column 'y': give"),
    "complex": ([1j, 2j], "column 'x' in table 0 of the stream holds a complex in row 0, which is no number"),
    "nested": ({"a": 1}, "column 'x' in table 0 of the stream is a dict: a table is a dict of arrays"),
    "single": (1.0, "column 'x' in table 0 of the stream is a float: a table is a dict of arrays"),
    "huge": ([1, 10**400], "column 'x' in table 0 of the stream holds a number in row 1 that is too large"),
}


@pytest.mark.parametrize("name", ODD_COLUMNS)
def test_a_column_that_is_no_column_is_named(name):
    values, words = ODD_COLUMNS[name]
    with pytest.raises(BadFileError, match=words):
        fit(iter([{"x": values, "y": [1.0, 2.0]}]))
    if name in ("mixed", "huge"):
        frame = pd.DataFrame({"x": pd.Series(values, dtype=object), "y": [1.0, 2.0]})
        with pytest.raises(BadFileError, match=words):
            fit(iter([frame]))


def test_a_value_of_a_row_that_is_no_value_is_named(few_rows_together):
    with pytest.raises(
        BadFileError, match="column 'x' of the stream holds a complex in row 300, which is no"
    ):
        fit(iter(rows_with(lambda i: None if i < 300 else 1j)), target="y")
    with pytest.raises(BadFileError, match="column 'x' of the stream holds a number in row 350 that is too"):
        fit(iter(rows_with(lambda i: 10**400 if i == 350 else 1.0)), target="y")


@pytest.mark.parametrize("absent", [pd.NA, pd.NaT])
def test_what_pandas_calls_missing_is_missing(absent, few_rows_together):
    stream = rows_with(lambda i: absent if i % 3 == 0 else float(i % 97))
    plain = [row | {"x": None if row["x"] is absent else row["x"]} for row in stream]
    options = {"target": "y", "on_missing": "drop"}
    assert_same(fit(iter(stream), **options), fit(iter(plain), **options))


@pytest.mark.parametrize(
    "column",
    [
        lambda i: i % 97 if i < 300 else Decimal(i % 97) / 4,
        lambda i: Decimal(i % 97) / 4 if i < 300 else i % 97,
        lambda i: i % 97 if i % 2 else Decimal(i % 97) / 4,
    ],
)
def test_decimals_beside_whole_numbers_are_numbers(column, few_rows_together):
    stream = rows_with(column)
    plain = [row | {"x": float(row["x"])} for row in stream]
    assert_same(fit(iter(stream), target="y"), fit(iter(plain), target="y"))


@pytest.mark.parametrize(("estimator", "most"), [(tp.RobustRegressor, 100e6), (tp.DCSGDRegressor, 20e6)])
def test_chunks_of_an_iterator_do_not_stay_in_memory(estimator, most):
    def chunks():
        rng = np.random.default_rng(0)
        for _ in range(120):
            X = rng.standard_normal((10_000, 20))
            yield X, X.sum(axis=1) + rng.standard_normal(10_000)

    tracemalloc.start()
    try:
        tp.fit(estimator(random_state=0), chunks())
        # They are 200 MB; a fit that held on to what it reads took 800, and more for more of them.
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def test_infinite_rows_of_chunks_are_dropped_without_other_words():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 3))
    y = X.sum(axis=1) + rng.standard_normal(2_000)
    X[[5, 7, 9], [1, 2, 0]] = np.inf, -np.inf, np.nan
    model = tp.fit(tp.RobustRegressor(random_state=0), chunks_of(X, y, 2), on_missing="drop")
    assert model.report_.dropped_rows == 3


def test_a_class_is_no_estimator():
    with pytest.raises(TypeError, match=r"give RobustRegressor\(\), not RobustRegressor"):
        tp.fit(tp.RobustRegressor, [(np.ones((3, 1)), np.ones(3))])


def test_buffers_take_back_what_they_have_made_and_nothing_else():
    buffers, given = Buffers(), np.zeros(100).reshape(20, 5)
    buffers.give_back(given)
    assert not np.shares_memory(buffers.new((20, 5)), given)
    made = buffers.new((20, 5))
    buffers.give_back(made)
    assert np.shares_memory(buffers.new((10, 5)), made)


@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
@pytest.mark.parametrize("column", ["x1", "y"])
@pytest.mark.parametrize("kind", ["pandas", "polars", "arrays"])
def test_what_is_missing_in_memory_is_named_as_in_pieces(data, kind, column, spoilt):
    sources = {
        "pandas": lambda X, y: table_of(X, y).to_pandas(),
        "polars": lambda X, y: pl.from_arrow(table_of(X, y)),
        "arrays": lambda X, y: (X, y),
    }
    X, y = (part.copy() for part in data)
    (y if column == "y" else X[:, 1])[7] = spoilt
    model, source = fit(sources[kind](*data)), sources[kind](X, y)
    named = "feature 1" if kind == "arrays" and column == "x1" else column
    for call in (fit, lambda rows: tp.score(model, rows)):
        with pytest.raises(ValueError, match=f"column '{named}' is missing or not finite in row 7: fix it"):
            call(source)
