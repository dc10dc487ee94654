"""Numbers that lie in Parquet files as they are become the rows that pyarrow would make of them."""

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest

import tailproof as tp
from tailproof.data.engines.stream import FilePieces
from tailproof.data.readers.batches import BadRowsError, Reading
from tailproof.data.readers.files import BadFileError, open_files
from tailproof.data.readers.parquet_footer import codecs_of_columns
from tailproof.native.plain import PlainColumns, plain_pages

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="read by pyarrow elsewhere")

RNG = np.random.default_rng(0)
ROWS = 5_000
PLAIN = {"compression": None, "use_dictionary": False}
KINDS = ["f8", "f4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
NAMES = [f"x{kind}" for kind in KINDS]
CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "ZSTD": 6}


def numbers(kind):
    if kind[0] == "f":
        return RNG.standard_normal(ROWS).astype(kind)
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max, ROWS, dtype=kind, endpoint=True)


def table_of_every_kind(nullable=True):
    columns = {f"x{kind}": pa.array(numbers(kind)) for kind in KINDS}
    columns |= {"y": pa.array(RNG.standard_normal(ROWS)), "w": pa.array(RNG.random(ROWS).astype("f4"))}
    fields = [pa.field(name, column.type, nullable=nullable) for name, column in columns.items()]
    return pa.table(columns, schema=pa.schema(fields))


def files_of(table, folder, **how):
    path = Path(folder) / "a.parquet"
    pq.write_table(table, path, **(PLAIN | how))
    return open_files(str(path))


def is_plain(files, columns):
    with files.plain(0, columns) as plain:
        return plain is not None


def by_arrow(files, reading):
    tables = files.read(0, reading.columns, reading.batch_rows)
    return list(reading.arrow_batches(0, files.name(0), tables, rows=files.rows[0]))


def assert_same_batches(some, others):
    assert len(some) == len(others) > 0
    for one, other in zip(some, others, strict=True):
        assert (one.piece, one.number, one.dropped) == (other.piece, other.number, other.dropped)
        for name in ("X", "y", "weights", "missing"):
            here, there = getattr(one, name), getattr(other, name)
            assert here.dtype == there.dtype
            assert np.array_equal(here, there, equal_nan=True)
        assert np.array_equal(one.extremes, other.extremes)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("page", [1 << 20, 20_000])
@pytest.mark.parametrize("batch_rows", [700, 10_000])
def test_same_batches_as_by_arrow(tmp_path, nullable, version, page, batch_rows):
    how = {"data_page_version": version, "data_page_size": page, "write_batch_size": 100}
    files = files_of(table_of_every_kind(nullable), tmp_path, **how)
    reading = Reading(tuple(NAMES), "y", "w", {}, batch_rows=batch_rows)
    assert is_plain(files, reading.columns)
    assert_same_batches(list(FilePieces(files, reading).batches(0)), by_arrow(files, reading))


@pytest.mark.parametrize("target", NAMES)
def test_targets_of_every_kind_keep_their_type(tmp_path, target):
    files = files_of(table_of_every_kind(), tmp_path)
    reading = Reading(("xf8",), target, "", {}, batch_rows=ROWS)
    (batch,), (other,) = FilePieces(files, reading).batches(0), by_arrow(files, reading)
    assert batch.y.dtype == other.y.dtype
    assert np.array_equal(batch.y, other.y)


@pytest.mark.parametrize(
    "how",
    [
        {"compression": "snappy"},
        {"use_dictionary": True},
        {"use_byte_stream_split": ["x"]},
        {"column_encoding": {"x": "DELTA_BINARY_PACKED"}},
    ],
)
def test_packed_columns_are_left_to_arrow(tmp_path, how):
    kind = "i8" if "column_encoding" in how else "f8"
    files = files_of(pa.table({"x": numbers(kind), "y": numbers("f8")}), tmp_path, **how)
    reading = Reading(("x",), "y", "", {}, batch_rows=1_000)
    assert not is_plain(files, ["x"])
    assert_same_batches(list(FilePieces(files, reading).batches(0)), by_arrow(files, reading))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("place", [0, 1, 2_500, ROWS - 1])
def test_one_missing_number_is_seen(tmp_path, version, place):
    x = pa.array(numbers("f8"), mask=np.arange(ROWS) == place)
    files = files_of(pa.table({"x": x, "y": numbers("f8")}), tmp_path, data_page_version=version)
    assert not is_plain(files, ["x", "y"])
    assert is_plain(files, ["y"])
    reading = Reading(("x",), "y", "", {}, drop=True, batch_rows=ROWS)
    (batch,) = FilePieces(files, reading).batches(0)
    assert batch.missing.tolist() == [place]


@pytest.mark.parametrize(
    "values", [[["a", "b"]], [[True, False]], [[[1.0], [2.0]]], [[{"b": 1.0}, {"b": 2.0}]]]
)
def test_what_is_no_number_is_left_to_arrow(tmp_path, values):
    files = files_of(pa.table({"x": values[0], "y": [1.0, 2.0]}), tmp_path)
    assert not is_plain(files, ["x", "y"])


def test_columns_in_columns_do_not_shift_the_others(tmp_path):
    pair = pa.array([{"a": 1.0, "b": 2.0}] * 3)
    files = files_of(pa.table({"pair": pair, "x": [5.0, 6.0, 7.0], "y": [1.0, 2.0, 3.0]}), tmp_path)
    (batch,) = FilePieces(files, Reading(("x",), "y", "", {})).batches(0)
    assert batch.X.ravel().tolist() == [5.0, 6.0, 7.0]


def test_rows_that_are_not_finite(tmp_path):
    x, y = numbers("f8"), numbers("f8")
    x[[3, 1_200]], y[7] = (np.nan, np.inf), np.nan
    files = files_of(pa.table({"x": x, "y": y}), tmp_path)
    reading = Reading(("x",), "y", "", {}, drop=True, batch_rows=1_000)
    assert_same_batches(list(FilePieces(files, reading).batches(0)), by_arrow(files, reading))
    with pytest.raises(BadRowsError, match="column 'x' is missing or not finite in row 3"):
        list(FilePieces(files, Reading(("x",), "y", "", {})).batches(0))


def test_columns_of_other_types_than_in_all_files_are_left_to_arrow(tmp_path):
    for number, kind in enumerate(("i4", "f8")):
        pq.write_table(
            pa.table({"x": numbers(kind), "y": numbers("f8")}), tmp_path / f"{number}.parquet", **PLAIN
        )
    files = open_files(str(tmp_path))
    with files.plain(0, ["x", "y"]) as first, files.plain(1, ["x", "y"]) as second:
        assert (first is None, second is None) == (True, False)


def test_a_file_that_shrinks_meanwhile_is_named(tmp_path):
    files = files_of(table_of_every_kind(), tmp_path)
    batches = FilePieces(files, Reading(("xf8", "xi4"), "y", "", {}, batch_rows=1_000)).batches(0)
    next(batches)
    os.truncate(files.names[0], 1_000)
    with pytest.raises(BadFileError, match="was changed or removed meanwhile"):
        list(batches)


@pytest.mark.parametrize("skip", [False, True])
def test_a_disk_that_fails_is_an_error_or_a_file_skipped(tmp_path, monkeypatch, skip):
    path = tmp_path / "a.parquet"
    pq.write_table(table_of_every_kind(), path, **PLAIN)
    files, fill_rows = open_files(str(path), skip=skip), PlainColumns.fill_rows

    def failing(self, start, *more):
        if start >= 2_000:
            raise OSError("its rows could not be read")
        fill_rows(self, start, *more)

    monkeypatch.setattr(PlainColumns, "fill_rows", failing)
    batches = FilePieces(files, Reading(("xf8",), "y", "", {}, batch_rows=1_000)).batches(0)
    if skip:
        assert sum(len(batch) for batch in batches) == 2_000
        assert files.bad_files() == (str(path),)
    else:
        with pytest.raises(BadFileError, match="its rows could not be read"):
            list(batches)


def test_heads_that_are_spoiled_are_refused_or_harmless(tmp_path):
    files = files_of(pa.table({"x": numbers("f8")}), tmp_path)
    chunk = files.fragments[0].metadata.row_group(0).column(0)
    content = bytearray(Path(files.names[0]).read_bytes())
    spoiled = tmp_path / "spoiled"
    refused = 0
    for place in range(chunk.data_page_offset, chunk.data_page_offset + 80):
        for bit in range(8):
            content[place] ^= 1 << bit
            spoiled.write_bytes(content)
            content[place] ^= 1 << bit
            with open(spoiled, "rb") as file:
                pages = plain_pages(file.fileno(), chunk.data_page_offset, ROWS, np.dtype("f8"), True, 4)
                if len(pages):
                    assert (
                        PlainColumns(file.fileno(), [pages], [np.dtype("f8")]).column(0, 0, ROWS).size == ROWS
                    )
                refused += not len(pages)
    assert refused > 50


def test_rows_that_are_not_there_are_refused(tmp_path):
    files = files_of(pa.table({"x": numbers("f8"), "y": numbers("f8")}), tmp_path)
    with files.plain(0, ["x", "y"]) as plain:
        X, good, low, high = np.empty((4, 3)), np.ones(4, dtype=bool), np.zeros(3), np.zeros(3)
        with pytest.raises(ValueError, match="rows must be among 5000"):
            plain.column("x", ROWS - 1, 2)
        with pytest.raises(ValueError, match="X must have 1 to 2 columns"):
            plain.fill_rows(0, X, good, low, high)


@pytest.mark.parametrize("kind", ["DCSGDRegressor", "RobustRegressor"])
def test_a_fit_is_the_same_to_the_last_bit_however_files_are_written(tmp_path, kind):
    X, found = RNG.standard_normal((150_000, 3)), []
    table = pa.table(
        {"a": X[:, 0], "b": X[:, 1].astype("f4"), "y": X.sum(axis=1) + RNG.standard_t(2, len(X))}
    )
    for name, how in {"plain": PLAIN, "packed": {}}.items():
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "a.parquet", row_group_size=70_000, **how)
        found.append(tp.fit(getattr(tp, kind)(random_state=0), tmp_path / name))
    assert np.array_equal(found[0].coef_, found[1].coef_)
    assert found[0].intercept_ == found[1].intercept_


def lying(path, **fields):
    """A file whose footer says something untrue of the first column, which is plain."""
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    footer = bytes(content[-8 - length : -8])
    for old, new in fields.values():
        assert footer.count(old) >= 1
        footer = footer.replace(old, new, 1)
    path.write_bytes(bytes(content[: -8 - length]) + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_codecs_are_those_that_pyarrow_knows(tmp_path):
    table = pa.table({"x": np.arange(50.0), "y": np.arange(50.0), "s": ["a"] * 50})
    for codec in ("NONE", "SNAPPY", "ZSTD"):
        path = tmp_path / f"{codec}.parquet"
        pq.write_table(table, path, compression=codec, row_group_size=20)
        found = pq.ParquetFile(path).metadata
        names = [[found.row_group(g).column(c).compression for c in range(3)] for g in range(3)]
        assert codecs_of_columns(str(path)) == [[CODECS[name] for name in group] for group in names]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\xff" * 40 + b"\x20\0\0\0PAR1", b"x" * 100])
def test_footers_that_are_none_have_no_codecs(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    assert codecs_of_columns(str(tmp_path / "a.parquet")) == []


def test_a_codec_that_nobody_knows_is_an_error_and_no_crash(tmp_path):
    path = tmp_path / "a.parquet"
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    table = pa.table({"x0": X[:, 0], "x1": X[:, 1], "y": X.sum(axis=1)})
    pq.write_table(table, path, compression=None, use_dictionary=False)
    # A list of one text, x0, its end, and then codec 0; 23 is none.
    lying(path, codec=(b"\x19\x18\x02x0\x15\x00", b"\x19\x18\x02x0\x15\x2e"))
    with contextlib.suppress(OSError):
        pq.read_table(path)
        pytest.skip("this version of Arrow takes a codec that nobody knows for none")
    with pytest.raises(BadFileError, match="codec"):
        tp.fit(tp.DCSGDRegressor(random_state=0), path)
