"""Bad files, missing values, drifting schemas: named, or left out as asked."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LinearRegression

import tailproof as tp
from pieces_data import SETTINGS, assert_same, chunks_of, rows, table_of, write_parquet
from tailproof.data.readers.files import BadFileError


class TestFaults:
    @pytest.fixture
    def paths(self, tmp_path):
        X, y = rows(4_000)
        return write_parquet(tmp_path, chunks_of(X, y, 40))

    def test_a_corrupt_file_among_forty(self, paths):
        paths[17].write_bytes(b"PAR1 not really PAR1")
        with pytest.raises(BadFileError, match=r"part17\.parquet.*on_bad_file='skip'"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths)
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, on_bad_file="skip")
        assert model.report_.skipped_files == (str(paths[17]),)
        assert model.report_.block_sizes.sum() == 3_900
        assert str(paths[17]) in str(model.report_)
        kept = [p for p in paths if p != paths[17]]
        others = tp.fit(tp.DCSGDRegressor(**SETTINGS), kept)
        assert_same(model, others)
        assert tp.score(model, paths, on_bad_file="skip") == tp.score(model, kept)
        with pytest.raises(BadFileError, match=r"part17\.parquet \(Parquet .*\): fix it, or leave it out"):
            tp.predict(model, paths)

    def test_a_file_that_breaks_off_in_the_middle(self, paths):
        whole = paths[5].read_bytes()
        # The footer is fine, a page header is not.
        paths[5].write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
        with pytest.raises(BadFileError, match=r"part05\.parquet"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths)
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, on_bad_file="skip")
        assert model.report_.skipped_files == (str(paths[5]),)

    @pytest.mark.parametrize("column", ["x2", "y"])
    @pytest.mark.parametrize("value", [np.nan, np.inf, None])
    def test_missing_values(self, paths, column, value):
        table = pq.read_table(paths[3]).to_pandas()
        table[column] = table[column].astype(object)
        table.loc[[7, 9], column] = value
        schema = pq.read_schema(paths[0])
        pq.write_table(pa.Table.from_pandas(table, schema=schema, preserve_index=False), paths[3])
        with pytest.raises(
            ValueError, match=rf"part03\.parquet: column '{column}' .* row 7: .*on_missing='drop'"
        ):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths)
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, on_missing="drop")
        assert model.report_.dropped_rows == 2
        assert model.report_.block_sizes.sum() == 3_998
        assert np.isfinite(tp.score(model, paths, on_missing="drop"))

    def test_a_file_without_one_usable_row(self, paths):
        table = pq.read_table(paths[3])
        empty = pa.array([None] * table.num_rows, pa.float64())
        pq.write_table(table.set_column(0, "x0", empty), paths[3])
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, on_missing="drop")
        assert model.report_.dropped_rows == 100

    @pytest.mark.parametrize(
        ("drift", "words"),
        [
            (lambda t: t.rename_columns(["x0", "x1", "x2", "z", "y"]), "column 'x3' is absent"),
            (lambda t: t.set_column(1, "x1", t["x1"].cast(pa.string())), "column 'x1' is string"),
            (lambda t: t.set_column(1, "x1", pc.greater(t["x1"], 0)), "column 'x1' is bool"),
            (lambda t: t.append_column("extra", t["y"]), "column 'extra' is double"),
        ],
    )
    def test_schema_drift_names_both_files(self, paths, drift, words):
        pq.write_table(drift(pq.read_table(paths[11])), paths[11])
        with pytest.raises(BadFileError, match=rf"part11\.parquet and .*part00\.parquet .*{words}"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths)

    def test_bad_targets_name_the_file(self, paths):
        with pytest.raises(ValueError, match=r"part\d\d\.parquet: loss 'gamma' needs positive targets"):
            tp.fit(tp.DCSGDRegressor("gamma", **SETTINGS), paths)

    def test_what_is_asked_for_must_be_there(self, paths, tmp_path):
        cases = [
            ({"target": "claims"}, "no column 'claims'"),
            ({"features": ["x0", "q"]}, "no column 'q'"),
            ({"on_missing": "ignore"}, "on_missing must be one of"),
            ({"on_bad_file": "drop"}, "on_bad_file must be one of"),
            ({"batch_rows": 0}, "batch_rows must be"),
            ({"categories": {"q": [1]}}, "not among the features"),
        ]
        for wrong, words in cases:
            with pytest.raises(ValueError, match=words):
                tp.fit(tp.DCSGDRegressor(), paths, **wrong)
        with pytest.raises(FileNotFoundError, match="matches"):
            tp.fit(tp.DCSGDRegressor(), str(tmp_path / "*.nothing"))
        with pytest.raises(TypeError, match="LinearRegression needs its data in memory"):
            tp.fit(LinearRegression(), paths)
        with pytest.raises(ValueError, match="k=9999 blocks need"):
            tp.fit(tp.DCSGDRegressor(k=9_999), paths)
        with pytest.raises(ValueError, match="pairs"):
            tp.fit(tp.DCSGDRegressor(), iter([1, 2]))
        with pytest.raises(ValueError, match="empty"):
            tp.fit(tp.DCSGDRegressor(), iter([]))
        with pytest.raises(ValueError, match="give the target itself"):
            tp.fit(tp.DCSGDRegressor(), np.ones((3, 2)))

    def test_a_target_that_is_not_one_of_classes(self, tmp_path):
        (path,) = write_parquet(tmp_path, [rows(10_500)])
        with pytest.raises(ValueError, match="'y' has more than 10,000 different values"):
            tp.fit(tp.DCSGDClassifier(), path)

    def test_chunks_of_different_width(self):
        with pytest.raises(ValueError, match="chunk 1 has 3 features"):
            tp.fit(tp.DCSGDRegressor(k=1), [(np.ones((5, 2)), np.ones(5)), (np.ones((5, 3)), np.ones(5))])


def _fit(data, **options):
    return tp.fit(tp.RobustRegressor(random_state=0), data, **options)


class TestOneClearSentence:
    """What was wrong, and what to do about it."""

    @pytest.mark.parametrize("place", ["file", "frame", "arrow"])
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"features": ["x0", "y"]}, "the target 'y' is among the features.*leave it out"),
            ({"features": []}, "features is an empty list: name a column"),
            ({"features": "x0"}, r"must be a list of names.*the text 'x0': give \['x0'\]"),
            ({"features": ["x0", "x0"]}, "has 'x0' twice: name each column once"),
            ({"sample_weight": np.ones(60)}, "sample_weight must be the name.*got a ndarray: put the values"),
            ({"target": np.ones(60)}, "target must be the name.*got a ndarray: put the values"),
            ({"categories": ["region"]}, "must be a dict.*got a list: give something like"),
            ({"categories": {"region": "north"}}, "of 'region' must be a list.*got 'north': give"),
            ({"categories": {"region": 5}}, "of 'region' must be a list.*got 5: give"),
            ({"categories": {"region": ["north"]}}, r"'south' is not among.*\['north'\]: declare it too"),
        ],
    )
    def test_options_and_columns(self, tmp_path, place, options, words):
        X, y = rows(60)
        table = table_of(X, y, region=["north", "south"] * 30)
        pq.write_table(table, tmp_path / "a.parquet")
        data = {"file": tmp_path / "a.parquet", "frame": table.to_pandas(), "arrow": table}[place]
        with pytest.raises(ValueError, match=words):
            _fit(data, **options)

    def test_a_missing_category_names_its_column(self, tmp_path):
        X, y = rows(60)
        region = pa.array([None, *["north", "south"] * 29, "north"])
        pq.write_table(table_of(X, y, region=region), tmp_path / "a.parquet")
        with pytest.raises(ValueError, match="column 'region' is missing or not finite in row 0"):
            _fit(tmp_path, categories={"region": ["north", "south"]})

    def test_a_target_of_text(self, tmp_path):
        X, y = rows(60)
        pq.write_table(table_of(X, y, region=["north", "south"] * 30), tmp_path / "a.parquet")
        with pytest.raises(
            ValueError, match=r"'region' holds 'north', which is not a number.*take a classifier"
        ):
            _fit(tmp_path, target="region", features=["x0"])

    @pytest.mark.parametrize(
        ("weight", "words"),
        [
            (0.0, "all weights are zero; give rows a positive weight"),
            (-1.0, "must not be negative, and that of row 0 is -1: correct it"),
            (np.nan, "every one has something missing"),
        ],
    )
    def test_weights(self, tmp_path, weight, words):
        X, y = rows(60)
        weights = np.full(60, weight)
        table = table_of(X, y, w=weights)
        pq.write_table(table, tmp_path / "a.parquet")
        for data in (tmp_path, table, [(X, y, weights)]):
            by_name = {} if isinstance(data, list) else {"sample_weight": "w"}
            with pytest.raises(ValueError, match=words):
                _fit(data, on_missing="drop", **by_name)

    def test_weights_that_would_be_ignored(self):
        X, y = rows(60)
        for data in ([(X, y)], iter([(X, y)])):
            with pytest.raises(ValueError, match=r"bring their weights along: give triples"):
                _fit(data, sample_weight=np.ones(60))
        with pytest.raises(ValueError, match="there must be a weight for each row; got 5 for 60"):
            _fit([(X, y, np.ones(5))])

    def test_no_rows(self, tmp_path):
        X, y = rows(60)
        empty = table_of(X[:0], y[:0])
        pq.write_table(empty, tmp_path / "a.parquet")
        for data, words in [
            (tmp_path, "none of the files holds a row that can be read: give files that do"),
            (empty, "the data are empty; give some that hold rows"),
            ([], "the data are an empty list: give"),
            ((), "the data are an empty tuple: give"),
            ([(X[:0], y[:0])], "the chunks are empty; give some that hold rows"),
        ]:
            with pytest.raises(ValueError, match=words):
                _fit(data)
        pq.write_table(table_of(X, y).select(["y"]), tmp_path / "a.parquet")
        with pytest.raises(ValueError, match="no column but the target 'y'; give data with more"):
            _fit(tmp_path)

    def test_a_function_that_gives_chunks_is_to_be_called(self):
        def chunks():
            yield rows(60)

        with pytest.raises(TypeError, match="cannot read a function: call it"):
            _fit(chunks)
        assert _fit(chunks()).coef_.shape == (4,)

    @pytest.mark.parametrize("where", ["X", "weights", "y"])
    def test_text_in_chunks(self, where):
        parts = dict(zip(("X", "y", "weights"), (*rows(60), np.ones(60)), strict=True))
        parts[where] = np.full(parts[where].shape, "a")
        for data in ([tuple(parts.values())], iter([tuple(parts.values())])):
            with pytest.raises(
                ValueError, match=rf"chunk 0: .*{where}'? holds 'a', which is not a number: give"
            ):
                _fit(data)

    def test_other_schemas_say_how_to_write_them(self, tmp_path):
        X, y = rows(60)
        table = table_of(X, y)
        pq.write_table(table, tmp_path / "a.parquet")
        pq.write_table(table.drop(["x1"]), tmp_path / "b.parquet")
        with pytest.raises(ValueError, match=r"absent in the former.*; write both with the same columns"):
            _fit(tmp_path)
        pq.write_table(table.set_column(1, "x1", pa.array(["a"] * 60)), tmp_path / "b.parquet")
        with pytest.raises(ValueError, match=r"string in the former.*; write both with one type of it"):
            _fit(tmp_path)
