"""What a fit moves at n = 1e10 rows, d = 1,000 columns, 10,000 partitions: counted, not run."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import tailproof as tp
from pieces_data import chunks_of, rows
from tailproof.core.partition import Block
from tailproof.data import training as training_module
from tailproof.data.dealing import Dealing
from tailproof.data.engines.dask import _chains
from tailproof.data.engines.spark import rounds
from tailproof.data.engines.stream import StreamEngine
from tailproof.data.first_look import usable_rows
from tailproof.data.fit import DataSource, _first_look
from tailproof.data.readers.batches import Batch
from tailproof.data.training import Training

N, D, PARTITIONS, K = 10_000_000_000, 1_000, 10_000, 96
NOBODY = np.empty(0, dtype=np.intp)


class CountingEngine:
    """An engine without rows: what would come back is made up, and its bytes are counted."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.X, self.y = rng.standard_normal((6, D)), rng.standard_normal(6)
        self.bytes = 0

    def survey(self, survey):
        shown = [
            survey.over_piece([Batch(piece, 0, self.X, self.y, np.empty(0), NOBODY)])
            for piece in range(PARTITIONS)
        ]
        self.bytes = sum(seen.X.nbytes + seen.y.nbytes + seen.moments.nbytes for seen in shown)
        return shown


def learner(d):
    """Settings as they travel, without rows."""
    model = tp.DCSGDRegressor(k=1, max_iter=1, random_state=0)
    caught = []
    make = model._learner
    model._learner = lambda *given, **more: caught.append(make(*given, **more)) or caught[-1]
    X = np.random.default_rng(0).standard_normal((40, d))
    model.fit(X, X[:, 0])
    (made,) = caught
    return replace(made, X=made.X[:0], y=made.y[:0], weights=made.weights[:0])


def test_the_first_look_brings_back_a_thousand_rows():
    engine = CountingEngine()
    source = DataSource(engine, "", None, D, whole_pieces=True, pieces=PARTITIONS)
    look, (X, _, _) = _first_look(source, 0)
    assert X.shape == (1_000, D)
    # Rows of 200 partitions, sizes and moments of all: 0.4 GB where every partition sent rows.
    assert engine.bytes < 1.1 * (8 * 1_000 * (D + 1) + 24 * PARTITIONS)
    assert np.count_nonzero(usable_rows(look)) == PARTITIONS


@pytest.mark.parametrize("branches", [1, 10])
def test_tasks_and_bytes_of_a_pass(branches):
    dealing = Dealing(K, PARTITIONS, 0, whole_pieces=True)
    training = Training(learner(D), dealing, 0, branches=branches)
    state = training.learner.start(Block(0, NOBODY, None))
    states = {j: training.begin(state) for j in range(K * branches)}
    chains = list(_chains(training, states, 1_000))
    # With ten workers for each candidate nearly all of a thousand are busy, for 10 or 11 tasks each.
    assert len(chains) == K * branches
    longest = max(len(chain.pieces) for chain in chains)
    assert longest == -(-PARTITIONS // (K * branches))
    assert sum(len(chain.pieces) for chain in chains) == PARTITIONS
    jobs = list(rounds(training))
    assert len(jobs) == longest
    assert sum(len(active) for active in jobs) == PARTITIONS
    # With a task go settings (a few vectors) and a candidate (two vectors, and the sums of eight groups).
    assert len(pickle.dumps(training)) < 8 * D * 3 + 2_000
    assert len(pickle.dumps(states[0])) < 8 * D * 14
    # All candidates of a pass are at the driver at once.
    assert K * branches * len(pickle.dumps(states[0])) < 0.1e9
    # So a pass moves about a gigabyte for 80 TB of rows.
    moved = PARTITIONS * (len(pickle.dumps(states[0])) + len(pickle.dumps(training)))
    assert moved < 2e9 < 1e-4 * 8 * N * D


def test_what_travels_with_a_task_of_a_real_fit(monkeypatch):
    """Settings and a candidate as docs/scale.md states them, with bounds of far rows, after a pass."""
    sizes = []
    train = StreamEngine.train

    def counted(engine, training, states):
        found = train(engine, training, states)
        sizes.append([len(pickle.dumps(one)) for one in (training, found[0])])
        return found

    monkeypatch.setattr(StreamEngine, "train", counted)
    X = np.random.default_rng(0).standard_normal((2_000, D))
    tp.fit(tp.DCSGDRegressor(k=2, max_iter=2, random_state=0), [(X, X[:, 0])], shuffle=True)
    # Five vectors are settings: centre and scale, where candidates start, centre and reach of near rows.
    assert [training < 8 * D * 5 + 2_000 for training, _ in sizes] == [True, True]
    # A candidate and its mean; in the first pass the sums of eight groups, too.
    assert sizes[0][1] < 8 * D * 10 + 2_000
    assert sizes[1][1] < 8 * D * 2 + 2_000


def test_what_travels_does_not_grow_with_the_partitions():
    few, many = (Dealing(K, pieces, 0, whole_pieces=True) for pieces in (100, PARTITIONS))
    assert [dealing.blocks(7) for dealing in (few, many)]
    assert len(pickle.dumps(many)) <= len(pickle.dumps(few)) + 8
    again = pickle.loads(pickle.dumps(many))
    assert [again.blocks(piece) for piece in range(50)] == [many.blocks(piece) for piece in range(50)]


def test_group_sums_stop_at_a_million_numbers():
    for k, groups in ((1_000, 8), (1_001, 0)):
        training = Training(learner(D), Dealing(k, PARTITIONS, 0), 0)
        state = training.learner.start(Block(0, NOBODY, None))
        assert training.begin(state).sums.shape == (groups, D + 2)


@pytest.mark.parametrize("make", [tp.DCSGDRegressor, tp.RVSGDRegressor])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_intercept_without_group_sums_is_that_with_them(make, form, monkeypatch):
    X, y = rows(1_200)
    chunks = [(form(part_X), part_y) for part_X, part_y in chunks_of(X, y, 4)]
    models = []
    for most in (training_module.MOST_SUMS, 0):
        monkeypatch.setattr(training_module, "MOST_SUMS", most)
        models.append(tp.fit(make(k=4, random_state=0, max_iter=2), chunks, shuffle=True))
    np.testing.assert_allclose(models[1].intercept_, models[0].intercept_, rtol=1e-9)
    np.testing.assert_array_equal(models[1].coef_, models[0].coef_)
