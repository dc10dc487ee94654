"""tp.fit, tp.predict and tp.score on frames, tables and files."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pytest
from scipy import sparse
from sklearn.base import clone

import tailproof as tp
from pieces_data import SETTINGS, assert_same, chunks_of, rows, write_parquet


class TestFrames:
    @pytest.fixture
    def frame(self):
        X, y = rows(500)
        return pd.DataFrame(X, columns=list("abcd")).assign(y=y, w=1.0)

    def test_plain_fit_on_frames_and_arrays(self, frame):
        X, y = frame[list("abcd")].to_numpy(), frame["y"].to_numpy()
        expected = tp.DCSGDRegressor(**SETTINGS).fit(X, y)
        for data in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
            model = tp.fit(tp.DCSGDRegressor(**SETTINGS), data, "y", list("abcd"))
            np.testing.assert_array_equal(model.coef_, expected.coef_)
            assert list(model.feature_names_in_) == list("abcd")
            # Products depend on how a table lies in memory, in their last digit.
            np.testing.assert_allclose(tp.predict(model, data), expected.predict(X), rtol=1e-9)
            assert tp.score(model, data) == pytest.approx(expected.score(X, y), rel=1e-12)
        for model in (tp.fit(tp.DCSGDRegressor(**SETTINGS), (X, y)), tp.fit(clone(expected), X, target=y)):
            np.testing.assert_array_equal(model.coef_, expected.coef_)

    def test_weights_and_missing_rows_in_memory(self, frame):
        holes = frame.copy()
        holes.loc[3, "a"] = np.nan
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS), holes, sample_weight="w", on_missing="drop")
        expected = tp.DCSGDRegressor(**SETTINGS).fit(
            frame[list("abcd")].drop(3), frame["y"].drop(3), np.ones(499)
        )
        np.testing.assert_array_equal(model.coef_, expected.coef_)
        assert model.report_.dropped_rows == 1
        X, y = holes[list("abcd")].to_numpy(), holes["y"].to_numpy()
        assert tp.fit(tp.DCSGDRegressor(**SETTINGS), (X, y), on_missing="drop").report_.dropped_rows == 1

    def test_declared_categories(self, frame, tmp_path):
        rng = np.random.default_rng(0)
        frame["region"] = rng.choice(["north", "south"], 500)
        frame["y"] += np.where(frame["region"] == "south", 50.0, 0.0)
        path = tmp_path / "claims.parquet"
        frame.to_parquet(path)
        categories = {"region": ["north", "south"]}
        for data in (frame, path):
            model = tp.fit(
                tp.DCSGDRegressor(k=3, random_state=0), data, features=["a", "region"], categories=categories
            )
            assert list(model.feature_names_in_) == ["a", "region=north", "region=south"]
            assert model.coef_[2] - model.coef_[1] == pytest.approx(50, abs=10)
            np.testing.assert_allclose(tp.predict(model, frame), tp.predict(model, path))
            assert tp.score(model, frame) == pytest.approx(tp.score(model, path))
        with pytest.raises(ValueError, match=r"claims.parquet, column 'region': 'south' is not among"):
            tp.fit(tp.DCSGDRegressor(), path, categories={"region": ["north"]})
        with pytest.raises(ValueError, match=r"column 'region' of .* not numbers: declare its categories"):
            tp.fit(tp.DCSGDRegressor(), path)

    @pytest.mark.parametrize("labels", [np.array(["no", "yes"]), np.array([3, 7])])
    def test_labels_are_found_in_the_files(self, tmp_path, labels):
        X, y = rows(2_000, classes=2)
        chunks = chunks_of(X, labels[y], 3)
        paths = write_parquet(tmp_path, chunks)
        model = tp.fit(tp.DCSGDClassifier(**SETTINGS), paths)
        assert model.classes_.tolist() == labels.tolist()
        assert_same(model, tp.fit(tp.DCSGDClassifier(**SETTINGS), paths, classes=labels))
        assert_same(model, tp.fit(tp.DCSGDClassifier(**SETTINGS), iter(chunks)))
        assert tp.score(model, paths) == np.mean(tp.predict(model, paths) == labels[y])
        assert set(tp.predict(model, paths)) <= set(labels)

    def test_score_and_predict_over_files(self, tmp_path):
        X, y = rows(2_000)
        paths = write_parquet(tmp_path, chunks_of(X, y, 3))
        model = tp.fit(tp.RVSGDRegressor(**SETTINGS), paths)
        plain = tp.RVSGDRegressor(**SETTINGS).fit(X, y)
        plain.coef_, plain.intercept_ = model.coef_, model.intercept_
        np.testing.assert_allclose(tp.predict(model, paths, batch_rows=300), plain.predict(X), rtol=1e-12)
        assert tp.score(model, paths, batch_rows=300) == pytest.approx(plain.score(X, y), rel=1e-9)
        for chunks in ([X[:700], X[700:]], iter([X[:700], X[700:]]), [sparse.csr_array(X)]):
            np.testing.assert_allclose(tp.predict(model, chunks), plain.predict(X), rtol=1e-12)


@pytest.mark.parametrize(
    ("absent", "data", "extra"),
    [
        ("pyarrow.dataset", "claims.parquet", "cli"),
        ("distributed", type("Array", (), {"__module__": "dask.array.core"})(), "dask"),
        ("pyarrow", type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})(), "spark"),
    ],
)
def test_missing_extras_are_named(monkeypatch, absent, data, extra):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError, match=rf"pip install 'tailproof\[{extra}\]'"):
        tp.fit(tp.DCSGDRegressor(), data)


def test_csv_streams_and_tables_share_their_words_for_missing_values(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,y\n" + "\n".join(f"{i % 7}.5,{i % 5}" for i in range(60)) + "\n?,1\nNone,2\n")
    model = tp.fit(tp.DCSGDRegressor(random_state=0, k=1), path, on_missing="drop")
    assert model.report_.dropped_rows == 2


def test_progress_goes_to_the_terminal(capsys):
    tp.fit(tp.DCSGDRegressor(**SETTINGS, verbose=1), chunks_of(*rows(1_000), 2))
    assert "rows/s" in capsys.readouterr().out
