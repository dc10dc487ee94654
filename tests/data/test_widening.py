"""Files whose columns have other types than those of the first: read as one if they can be, else refused."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.json
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import tailproof as tp
from pieces_data import SETTINGS, assert_same
from tailproof.data.readers.files import BadFileError

ROWS = 600


def table(seed, x1=None):
    """Small whole numbers, which every type holds, and a target; x1 may be of any type."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-50, 50, (ROWS, 2)).astype(float)
    y = X @ [1.0, -1.0] + rng.standard_normal(ROWS)
    columns = {"x0": X[:, 0], "x1": X[:, 1], "y": y}
    return pa.table(columns | ({} if x1 is None else {"x1": pa.array(X[:, 1]).cast(x1)}))


def write_orc(table, path):
    pyarrow.orc.write_table(table, str(path))


def write_json(table, path):
    rows = table.to_pandas().to_json(orient="records", lines=True)
    path.write_text(rows)


WRITERS = {
    "parquet": pq.write_table,
    "arrow": pyarrow.feather.write_feather,
    "orc": write_orc,
    "csv": pyarrow.csv.write_csv,
    "jsonl": write_json,
}


def fitted(paths, **more):
    return tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, **more)


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize(
    "types", [(pa.int64(), pa.float64()), (pa.float64(), pa.int64()), (pa.int32(), pa.int64())]
)
def test_numbers_of_other_types_are_those_numbers(tmp_path, ending, types):
    mixed, plain = ([tmp_path / f"{name}{i}.{ending}" for i in range(2)] for name in ("mixed", "plain"))
    for i, kind in enumerate(types):
        WRITERS[ending](table(i, kind), mixed[i])
        WRITERS[ending](table(i, pa.float64()), plain[i])
    model = fitted(mixed)
    assert_same(model, fitted(plain))
    assert np.array_equal(tp.predict(model, mixed), tp.predict(model, plain))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.float32(), pa.decimal128(21, 2)])
@pytest.mark.parametrize("turned", [False, True])
def test_every_number_of_parquet_widens(tmp_path, kind, turned):
    one, other, plain = (tmp_path / f"{name}.parquet" for name in ("a", "b", "plain"))
    odd = table(0).set_column(1, "x1", pa.array(np.arange(ROWS) % 90).cast(kind))
    pq.write_table(odd, one)
    pq.write_table(table(1), other)
    pq.write_table(odd.set_column(1, "x1", odd["x1"].cast(pa.float64())), plain)
    order = [other, one] if turned else [one, other]
    expected = [other, plain] if turned else [plain, other]
    assert_same(fitted(order), fitted(expected))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_column_that_one_file_leaves_empty_is_missing_there(tmp_path, ending, place):
    paths = [tmp_path / f"{i}.{ending}" for i in range(2)]
    for i, path in enumerate(paths):
        empty = pa.nulls(ROWS, pa.null() if ending == "parquet" else pa.float64())
        WRITERS[ending](table(i).set_column(1, "x1", empty) if i == place else table(i), path)
    with pytest.raises(ValueError, match=rf"{place}\.{ending}: column 'x1' is missing .* row 0"):
        fitted(paths)
    model = fitted(paths, on_missing="drop")
    assert model.report_.dropped_rows == ROWS
    assert_same(model, fitted(paths, on_missing="drop"))


def test_days_and_times_are_no_reason_to_refuse_what_is_not_learned_from(tmp_path):
    days = pa.array(np.arange(ROWS).astype("datetime64[D]"))
    for i, kind in enumerate([pa.date32(), pa.timestamp("us"), pa.timestamp("ns")]):
        pq.write_table(table(i).append_column("day", days.cast(kind)), tmp_path / f"{i}.parquet")
    assert fitted(str(tmp_path), features=["x0", "x1"]).coef_.shape == (2,)
    with pytest.raises(ValueError, match=r"column 'day' of .*0\.parquet holds timestamp\[ns\], not numbers"):
        fitted(str(tmp_path))


def test_text_is_text_in_whatever_way_it_is_kept(tmp_path):
    words = pa.array(["north", "south"] * (ROWS // 2))
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    for i, kind in enumerate(kinds):
        pq.write_table(table(i).append_column("region", words.cast(kind)), tmp_path / f"{i}.parquet")
        pq.write_table(table(i).append_column("region", words), tmp_path / f"plain{i}.parquet")
    declared = {"categories": {"region": ["north", "south"]}}
    mixed = [tmp_path / f"{i}.parquet" for i in range(3)]
    assert_same(fitted(mixed, **declared), fitted(sorted(tmp_path.glob("plain*")), **declared))


def test_what_cannot_be_one_type_names_the_files_that_say_so(tmp_path):
    none = pa.nulls(ROWS, pa.float64())
    for name, column in {"a": none, "b": table(1)["x1"].cast(pa.int64())}.items():
        pyarrow.csv.write_csv(table(0).set_column(1, "x1", column), tmp_path / f"{name}.csv")
    words = pa.array(["many"] * ROWS)
    pyarrow.csv.write_csv(table(0).set_column(1, "x1", words), tmp_path / "c.csv")
    told = r"c\.csv and .*b\.csv have different schemas: column 'x1' is string .* int64 in the latter"
    with pytest.raises(BadFileError, match=told):
        fitted(str(tmp_path))


def test_a_number_beyond_the_common_type_names_its_file(tmp_path):
    pq.write_table(table(0, pa.int64()), tmp_path / "a.parquet")
    large = pa.array(np.full(ROWS, 2**63 + 5, dtype=np.uint64))
    pq.write_table(table(1).set_column(1, "x1", large), tmp_path / "b.parquet")
    with pytest.raises(BadFileError, match=r"cannot read .*b\.parquet \(Integer value .*\): fix it"):
        fitted(str(tmp_path))


def test_labels_of_other_types_are_the_same_labels(tmp_path):
    for i, kind in enumerate([pa.int32(), pa.float64(), pa.int64()]):
        one = table(i)
        signs = pa.array((one["y"].to_numpy() > 0).astype(int)).cast(kind)
        pq.write_table(one.set_column(2, "y", signs), tmp_path / f"{i}.parquet")
    model = tp.fit(tp.DCSGDClassifier(**SETTINGS), str(tmp_path))
    assert model.classes_.tolist() == [0, 1]
    assert tp.score(model, str(tmp_path)) > 0.9


def test_a_dataset_of_files_with_other_types(tmp_path):
    for i, kind in enumerate([pa.int32(), pa.float64()]):
        pq.write_table(table(i, kind), tmp_path / f"{i}.parquet")
    paths = sorted(tmp_path.iterdir())
    assert_same(fitted(pyarrow.dataset.dataset(paths)), fitted(paths))


@pytest.mark.parametrize("first", ["1", ""])
def test_a_csv_may_begin_with_whole_or_missing_numbers(tmp_path, first):
    rng, n, early = np.random.default_rng(0), 150_000, 120_000  # more than Arrow looks at to find a type
    x = np.where(np.arange(n) < early, 1.0, rng.standard_normal(n).round(4))
    cells = np.where(np.arange(n) < early, first, x.astype(str))
    text = "x0,x1,y\n" + "".join(f"{i % 7},{cells[i]},{i % 7 + x[i]:.4f}\n" for i in range(n))
    (tmp_path / "a.csv").write_text(text)
    model = fitted(tmp_path / "a.csv", on_missing="drop")
    assert model.report_.dropped_rows == (0 if first else early)
    assert np.abs(model.coef_ - 1).max() < 0.05
