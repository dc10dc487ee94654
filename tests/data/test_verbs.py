import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pieces_data import ESTIMATORS, assert_same, chunks_of, rows, table_of, write_parquet
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression

import tailproof as tp
from tailproof.core.sgd import State
from tailproof.core.theory import blocks_for
from tailproof.core.types import Block
from tailproof.data import fit
from tailproof.data.first_look import unlike_chance
from tailproof.data.pieces import Segment
from tailproof.data.readers.files import BadFileError

SETTINGS = {"k": 5, "random_state": 7, "max_iter": 2}


def interrupted(*args):
    raise KeyboardInterrupt


@pytest.fixture
def kept(monkeypatch):
    """The learner, the dealing and the passes of the last fit in pieces."""
    seen = {}

    class Passes(fit.Passes):
        def __init__(self, engine, learner, dealing):
            super().__init__(engine, learner, dealing)
            seen.update(learner=learner, dealing=dealing)

    monkeypatch.setattr(fit, "Passes", Passes)
    return seen


def local_candidates(kept, X, y, sizes, batch_rows, passes):
    """Candidates on the whole arrays in memory, one block after the other: the reference, in plain loops."""
    learner, dealing = replace(kept["learner"], X=X, y=y), kept["dealing"]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    vectors = []
    for j in range(dealing.k):
        state: State = learner.start(Block(j, np.empty(0, dtype=np.intp), np.random.SeedSequence(0)))
        for number in range(passes):
            seen, mean_coef, mean_intercept = 0, None, None
            for piece in dealing.visits(number):
                every = enumerate(range(0, sizes[piece], batch_rows))
                for batch, first in dealing.mixed(every, piece, number):
                    n = min(batch_rows, sizes[piece] - first)
                    mine = dealing.deal(piece, batch, n, number).rows.get(j, np.empty(0, dtype=np.intp))
                    if mine.size == 0:
                        continue
                    segment = Segment(j, mine + starts[piece] + first, state.block.seed)
                    state = learner.advance(replace(state, block=segment, passes=number))
                    share = mine.size / (seen + mine.size)
                    if seen == 0:
                        mean_coef, mean_intercept = state.mean_coef, state.mean_intercept
                    else:
                        mean_coef = mean_coef + share * (state.mean_coef - mean_coef)
                        mean_intercept = mean_intercept + share * (state.mean_intercept - mean_intercept)
                    seen += mine.size
            state = replace(state, mean_coef=mean_coef, mean_intercept=mean_intercept, passes=number + 1)
        vectors.append(learner.vector(state))
    models = [np.column_stack(learner.unpack(vector)) for vector in vectors]
    return np.stack(models)[:, 0]


class TestSameBlocksSameCandidates:
    @pytest.mark.parametrize("shuffle", [True, False])
    @pytest.mark.parametrize("pieces", [1, 3, 8])
    def test_local_and_stream(self, kept, tmp_path, shuffle, pieces):
        X, y = rows()
        chunks = chunks_of(X, y, pieces)
        paths = write_parquet(tmp_path, chunks)
        more = {"shuffle": shuffle, "batch_rows": 700}
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS, recentre=False), paths, **more)
        sizes = [len(part[1]) for part in chunks]
        expected = local_candidates(kept, X, y, sizes, 700, passes=2)
        np.testing.assert_array_equal(model.candidates_, expected)
        assert model.report_.block_sizes.sum() == len(y)

    @pytest.mark.parametrize("name", sorted(ESTIMATORS))
    def test_every_kind_of_stream(self, tmp_path, name):
        X, y = rows(classes=3 if "classifier" in name else 0)
        chunks = chunks_of(X, y, 4)
        make = ESTIMATORS[name]
        model = tp.fit(make(**SETTINGS), chunks)
        assert_same(model, tp.fit(make(**SETTINGS), iter(chunks)))
        assert_same(model, tp.fit(make(**SETTINGS, n_jobs=2), write_parquet(tmp_path, chunks)))

    def test_formats(self, tmp_path):
        X, y = rows(2_000)
        chunks = chunks_of(X, y, 2)
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks)
        for number, (part_X, part_y) in enumerate(chunks):
            table = table_of(part_X, part_y)
            pa.csv.write_csv(table, tmp_path / f"{number}.csv")
            pa.feather.write_feather(table, tmp_path / f"{number}.arrow", chunksize=300)
            pq.write_table(table, tmp_path / f"{number}.parquet")
        for data in ("*.csv", "*.arrow", "*.parquet"):
            assert_same(model, tp.fit(tp.DCSGDRegressor(**SETTINGS), str(tmp_path / data)))
        dataset = pa.dataset.dataset(sorted(tmp_path.glob("*.parquet")))
        assert_same(model, tp.fit(tp.DCSGDRegressor(**SETTINGS), dataset))

    def test_batches_of_a_file_do_not_depend_on_how_it_is_read(self, tmp_path):
        X, y = rows(3_000)
        (path,) = write_parquet(tmp_path, [(X, y)])
        other = tmp_path / "pages.arrow"
        pa.feather.write_feather(table_of(X, y), other, chunksize=77)
        fits = [tp.fit(tp.DCSGDRegressor(**SETTINGS), p, batch_rows=1_000) for p in (path, other)]
        assert_same(*fits)

    def test_repeated_fits_and_other_seeds(self):
        chunks = chunks_of(*rows(2_000), 3)
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks)
        assert_same(model, tp.fit(model, chunks))
        other = tp.fit(tp.DCSGDRegressor(**SETTINGS | {"random_state": 8}), chunks)
        assert not np.array_equal(model.candidates_, other.candidates_)


class TestQuality:
    @pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson"])
    def test_as_good_as_in_memory(self, loss):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((20_000, 5))
        scores = 1 + X @ np.full(5, 0.3)
        y = rng.poisson(np.exp(scores)) if loss == "poisson" else scores + rng.standard_t(3, 20_000)
        here = tp.DCSGDRegressor(loss, random_state=0).fit(X, y)
        far_away = tp.fit(tp.DCSGDRegressor(loss, random_state=0), chunks_of(X, y, 7), batch_rows=512)
        truth = np.append(np.full(5, 0.3), 1.0)
        gaps = [np.linalg.norm(np.append(m.coef_, m.intercept_) - truth) for m in (here, far_away)]
        assert gaps[1] < 2 * gaps[0] + 0.02

    def test_skewed_noise_leaves_the_intercept_at_the_mean(self):
        rng = np.random.default_rng(1)
        X = rng.standard_normal((40_000, 3))
        y = X.sum(axis=1) + rng.lognormal(0, 1.5, 40_000)
        model = tp.fit(tp.DCSGDRegressor(random_state=0), chunks_of(X, y, 5))
        least_squares = LinearRegression().fit(X, y)
        mean = np.exp(1.5**2 / 2)
        assert abs(model.intercept_ - mean) < 2 * abs(least_squares.intercept_ - mean) + 0.1

    def test_sorted_files_are_dealt_to_all_blocks(self):
        X, y = rows(8_000)
        order = np.argsort(y)
        # Pieces come one after the other, so that paths follow the order of the pieces and never settle.
        with pytest.warns(ConvergenceWarning, match="not settled"):
            model = tp.fit(tp.DCSGDRegressor(random_state=0), chunks_of(X[order], y[order], 8), shuffle=True)
        assert model.score(X, y) > LinearRegression().fit(X, y).score(X, y) - 0.05

    @pytest.mark.parametrize("cross_validate", [False, True])
    def test_the_winner_has_the_least_validated_risk(self, cross_validate):
        chunks = chunks_of(*rows(), 3)
        model = tp.fit(tp.RVSGDRegressor(**SETTINGS, cross_validate=cross_validate), chunks)
        assert model.best_index_ == np.argmin(model.report_.validation_risk)
        assert (model.report_.validation_low < model.report_.validation_risk).all()

    def test_sparse_chunks_and_weights(self):
        X, y = rows(4_000)
        X[np.abs(X) < 1e-2] = 0.0
        weights = np.random.default_rng(0).integers(0, 3, 4_000).astype(float)
        thirds = [slice(i, i + 1_000) for i in range(0, 4_000, 1_000)]
        dense = [(X[s], y[s], weights[s]) for s in thirds]
        thin = [(sparse.csr_array(X[s]), y[s], weights[s]) for s in thirds]
        models = [
            tp.fit(tp.DCSGDRegressor(random_state=0, k=4), data, sample_weight="given")
            for data in (dense, thin)
        ]
        # Sparse columns are not centred, so the paths differ; both must come out near the truth.
        for model in models:
            assert model.report_.block_sizes.sum() == (weights > 0).sum()
            assert model.score(X, y) > 0.5

    def test_few_large_blocks_where_many_do_not_settle(self, monkeypatch, tmp_path):
        monkeypatch.setattr("tailproof.core.algorithms.MOST_PASSES", 4)
        X, y = rows(8_000, d=8)
        X += 0.99 * (X[:, :1] / 1e-2 - X)  # columns that are nearly one
        model = tp.DCSGDRegressor(random_state=0, penalty="l2", alpha=1e-9, delta=0.2)
        with pytest.warns(ConvergenceWarning, match="had not settled after"):
            found = tp.fit(clone(model), chunks_of(X, y, 3))
        assert found.report_.k == len(found.candidates_) == blocks_for(0.2, "dc")
        assert "did not settle" in found.report_.why_k
        assert found.report_.block_sizes.sum() == 8_000
        assert found.report_.passes == 8
        # With a checkpoint that is met again at the end of all passes, and without.
        paths = write_parquet(tmp_path, chunks_of(X, y, 3))
        with monkeypatch.context() as patch:
            patch.setattr(fit, "_merge", interrupted)
            with pytest.raises(KeyboardInterrupt):
                tp.fit(clone(model), paths, checkpoint=tmp_path / "mark")
        with pytest.warns(ConvergenceWarning):
            assert_same(found, tp.fit(clone(model), paths, checkpoint=tmp_path / "mark"))

    def test_warm_start_and_init(self):
        chunks = chunks_of(*rows(2_000), 2)
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS, warm_start=True), chunks)
        first = model.candidates_
        tp.fit(model, chunks)
        assert not np.array_equal(first, model.candidates_)


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
        with pytest.raises(BadFileError, match=r"part17\.parquet \(Parquet .*\): mend it, or leave it out"):
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
            (lambda t: t.set_column(1, "x1", t["x1"].cast(pa.float32())), "column 'x1' is float"),
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
        with pytest.raises(TypeError, match="a LazyFrame has no rows yet"):
            tp.fit(tp.DCSGDRegressor(), pl.LazyFrame({"a": [1.0], "y": [1.0]}))

    def test_a_target_that_is_not_one_of_classes(self, tmp_path):
        (path,) = write_parquet(tmp_path, [rows(10_500)])
        with pytest.raises(ValueError, match="'y' has more than 10,000 different values"):
            tp.fit(tp.DCSGDClassifier(), path)

    def test_chunks_of_different_width(self):
        with pytest.raises(ValueError, match="chunk 1 has 3 features"):
            tp.fit(tp.DCSGDRegressor(k=1), [(np.ones((5, 2)), np.ones(5)), (np.ones((5, 3)), np.ones(5))])


_FIT = """
import sys, time
import numpy as np, tailproof as tp
from tailproof.data import pieces
slow = float(sys.argv[3])
step = pieces.Training.meet
def meet(self, batch):
    time.sleep(slow)
    return step(self, batch)
pieces.Training.meet = meet
model = tp.fit(tp.DCSGDRegressor(k=4, max_iter=3), sys.argv[1], batch_rows=200,
               checkpoint=sys.argv[2], checkpoint_seconds=0.0)
np.save(sys.argv[2] + ".npy", np.append(model.candidates_.ravel(), model.intercept_))
"""


class TestCheckpoint:
    def run(self, folder, mark, slow, **more):
        return subprocess.Popen([sys.executable, "-c", _FIT, str(folder), str(mark), str(slow)], **more)

    def test_after_a_kill_the_same_command_finds_the_same_result(self, tmp_path):
        folder = tmp_path / "data"
        folder.mkdir()
        write_parquet(folder, chunks_of(*rows(2_400), 3))
        whole, broken = tmp_path / "whole", tmp_path / "broken"
        assert self.run(folder, whole, 0.0).wait(300) == 0
        places = []
        for _ in range(2):
            process = self.run(folder, broken, 0.05)
            deadline = time.monotonic() + 300
            while time.monotonic() < deadline and (
                not broken.exists() or broken.stat().st_mtime_ns in places
            ):
                time.sleep(0.01)
            time.sleep(0.3)
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait(30) == -signal.SIGKILL
            places.append(broken.stat().st_mtime_ns)
        assert self.run(folder, broken, 0.0).wait(300) == 0
        np.testing.assert_array_equal(np.load(f"{whole}.npy"), np.load(f"{broken}.npy"))
        assert not broken.exists()

    def test_a_checkpoint_is_for_one_fit_only(self, tmp_path, monkeypatch):
        paths = write_parquet(tmp_path, chunks_of(*rows(1_000), 2))
        mark = tmp_path / "mark"
        with monkeypatch.context() as patch:
            patch.setattr(fit, "_merge", interrupted)
            with pytest.raises(KeyboardInterrupt):
                tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark)
        assert mark.exists()
        with pytest.raises(ValueError, match="belongs to another fit"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS | {"k": 4}), paths, checkpoint=mark)
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark)
        assert_same(model, tp.fit(tp.DCSGDRegressor(**SETTINGS), paths))
        assert not mark.exists()
        with pytest.raises(FileNotFoundError, match="for the checkpoint: make it first"):
            tp.fit(tp.DCSGDRegressor(), paths, checkpoint=tmp_path / "nowhere" / "mark")
        for junk in (b"junk", b"PK\x03\x04 junk", b""):
            mark.write_bytes(junk)
            with pytest.raises(ValueError, match="mark is not a checkpoint: delete it"):
                tp.fit(tp.DCSGDRegressor(), paths, checkpoint=mark)
        with pytest.raises(ValueError, match="needs data in files"):
            tp.fit(tp.DCSGDRegressor(), iter(chunks_of(*rows(100), 2)), checkpoint=mark)


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


def test_pieces_that_look_sorted():
    rng = np.random.default_rng(0)

    def moments(parts):
        return np.array([[p.size, p.sum(), (p**2).sum()] for p in parts])

    alike = rng.standard_normal((20, 500))
    assert unlike_chance(moments(alike)) < 3
    assert unlike_chance(moments(np.sort(alike.ravel()).reshape(20, 500))) > 100
    assert unlike_chance(moments(alike[:1])) == 1.0
    assert unlike_chance(moments(np.ones((3, 5)))) == 1.0
