"""Data in pieces train the same candidates as the same blocks in memory, and models as good."""

import gc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression

import tailproof as tp
from pieces_data import (
    ESTIMATORS,
    SETTINGS,
    assert_same,
    chunks_of,
    interrupted,
    rows,
    table_of,
    write_parquet,
)
from tailproof.core.partition import Block
from tailproof.core.sgd import State
from tailproof.core.theory import blocks_for
from tailproof.data import fit
from tailproof.data.engines.stream import Buffers


@pytest.fixture
def kept(monkeypatch):
    """The learner, the dealing and the passes of the last fit in pieces."""
    seen = {}

    class Passes(fit.Passes):
        def __init__(self, engine, learner, dealing, stage, branches):
            super().__init__(engine, learner, dealing, stage, branches)
            seen.update(learner=learner, dealing=dealing)

    monkeypatch.setattr(fit, "Passes", Passes)
    return seen


class Segment(Block):
    """Rows of a block that lie in one batch, in the order given."""

    def order(self, number):
        return self.rows


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
                for batch, first in dealing.batch_order(every, piece, number):
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
        with pytest.warns(ConvergenceWarning, match="not settled"), pytest.warns(match="look sorted"):
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
            patch.setattr(fit.RowsInPieces, "intercept_shift", interrupted)
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


class TestBlocksWithoutRows:
    @pytest.mark.parametrize("how", ["missing", "no weight", "empty"])
    @pytest.mark.parametrize("k", [2, 5, "auto"])
    def test_only_pieces_with_rows_make_blocks(self, how, k):
        X, y = rows(6_000)
        chunks = [(*part, np.ones(500)) for part in chunks_of(X, y, 12)]
        spoiled = {
            "missing": lambda X, y, weights: (np.full_like(X, np.nan), y, weights),
            "no weight": lambda X, y, weights: (X, y, 0 * weights),
            "empty": lambda X, y, weights: (X[:0], y[:0], weights[:0]),
        }[how]
        chunks = [part if i in (3, 7, 8) else spoiled(*part) for i, part in enumerate(chunks)]
        options = {"shuffle": False, "on_missing": "drop", "sample_weight": "given"}
        model = tp.fit(tp.DCSGDRegressor(k=k, random_state=0), chunks, **options)
        assert model.report_.block_sizes.min() > 0
        assert model.report_.block_sizes.sum() == 1_500
        assert model.report_.dropped_rows == (4_500 if how == "missing" else 0)
        assert model.score(X, y) > 0.9 * tp.DCSGDRegressor(random_state=0).fit(X, y).score(X, y)
        if k != "auto":
            assert model.report_.k == k

    @pytest.mark.parametrize("make", [tp.DCSGDRegressor, tp.RVSGDRegressor])
    def test_k_is_reduced_and_said_where_blocks_get_no_row(self, make):
        X, y = rows(400)
        X[40:] = np.nan  # all that could be split among many blocks
        chunks = [(X[:1], y[:1]), (X[1:2], y[1:2]), (X[2:], y[2:])]
        with pytest.warns(UserWarning, match=r"k = \d+, since of 30 blocks some .* no rows"):
            model = tp.fit(make(k=30, random_state=0, max_iter=1), chunks, on_missing="drop", shuffle=False)
        assert model.report_.k == len(model.report_.block_sizes) < 30
        assert model.report_.block_sizes.min() > 0
        assert "no rows" in model.report_.why_k

    def test_no_row_at_all(self):
        chunks = [(np.full((5, 2), np.nan), np.ones(5))]
        with pytest.raises(ValueError, match="there is no row to learn from"):
            tp.fit(tp.DCSGDRegressor(k=2), chunks, on_missing="drop", shuffle=False)


def test_buffers_are_free_when_a_fit_is_done_and_wait_for_no_collector(tmp_path):
    paths = write_parquet(tmp_path, chunks_of(*rows(), 3))
    gc.collect()
    gc.disable()
    try:
        tp.fit(tp.DCSGDRegressor(**SETTINGS), paths)
        assert not [one for one in gc.get_objects() if type(one) is Buffers]
    finally:
        gc.enable()
