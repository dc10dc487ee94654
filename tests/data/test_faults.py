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
from pieces_data import SETTINGS, assert_same, chunks_of, rows, write_parquet
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
