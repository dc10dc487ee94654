"""Several workers for each candidate: where the pieces go, and what the mean of them is worth."""

import numpy as np
import pytest
from sklearn.base import clone

import tailproof as tp
from pieces_data import assert_same, chunks_of, rows, write_parquet
from tailproof.core.partition import Block
from tailproof.core.sgd import State
from tailproof.data.dealing import Dealing
from tailproof.data.training import PassState, Training

ONE_PASS = {"random_state": 3, "max_iter": 1, "recentre": False}
ALIKE = ONE_PASS | {"scale_features": False, "fit_intercept": False, "step_size": 0.01}  # whatever k


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("occupied", [None, tuple(range(0, 40, 2))])
def test_every_branch_has_pieces_and_every_piece_one_branch(whole, occupied):
    training = Training(None, Dealing(3, 40, 0, whole_pieces=whole, occupied=occupied), 0, branches=4)
    full = range(40) if occupied is None else occupied
    visits = [training.blocks(piece) for piece in full]
    assert {len(blocks) for blocks in visits} == {1 if whole else 3}
    assert [[b % 3 for b in blocks] for blocks in visits] == [training.dealing.blocks(p) for p in full]
    counts = np.bincount([b for blocks in visits for b in blocks], minlength=12)
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1


def test_a_candidate_is_the_mean_of_its_branches(monkeypatch):
    """Six pieces: branch b of block j of two is block j + 2b of six."""
    monkeypatch.setattr("tailproof.core.automatic.run_length", lambda *sizes: 1)  # so rows come in one order
    chunks = chunks_of(*rows(1_200), 6)
    two = tp.fit(tp.DCSGDRegressor(k=2, **ALIKE), chunks, shuffle=False, workers_per_candidate=3)
    six = tp.fit(tp.DCSGDRegressor(k=6, **ALIKE), chunks, shuffle=False)
    np.testing.assert_allclose(two.candidates_[0], six.candidates_[0::2].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(two.candidates_[1], six.candidates_[1::2].mean(axis=0), rtol=1e-12)
    assert two.report_.block_sizes.tolist() == [600, 600]
    assert "3 workers per candidate" in str(two.report_)


def test_branches_count_by_their_rows_and_those_without_do_not():
    def branch(value, count):
        numbers = np.full((1, 2), value), np.full(1, value)
        state = State(
            Block(0, np.empty(0, int), None), *numbers, *numbers, 1, count, np.full(3, value), value
        )
        return PassState(state, count, count, np.full((8, 4), value), 1)

    training = Training(None, Dealing(1, 4, 0, whole_pieces=True), 0, branches=3)
    (joined,) = training.join([branch(1.0, 30), branch(5.0, 10), branch(np.nan, 0)])
    for name in ("coef", "intercept", "mean_coef", "mean_intercept", "velocity"):
        assert set(getattr(joined.state, name).ravel()) == {2.0}
    assert (joined.state.updates, joined.state.farthest) == (30, 5.0)
    assert (joined.rows, joined.seen, joined.dropped) == (40, 40, 3)
    (nothing,) = training.join([branch(2.0, 0)] * 3)
    assert nothing.rows == 0
    assert nothing.state.coef[0, 0] == 2.0


def test_as_good_as_one_worker():
    X, y = rows(24_000)
    errors = []
    for workers in (1, 4):
        model = tp.DCSGDRegressor(k=8, random_state=0)
        tp.fit(model, chunks_of(X, y, 32), shuffle=False, workers_per_candidate=workers)
        errors.append(np.abs(X @ model.coef_ + model.intercept_ - X @ truth(X) - 3).mean())
    assert errors[1] < 1.5 * errors[0] + 0.01


def truth(X):
    return 2.0 / 10.0 ** np.linspace(-2, 2, X.shape[1])


def test_files_checkpoints_and_other_orders(tmp_path):
    chunks = chunks_of(*rows(1_200), 6)
    model = tp.DCSGDRegressor(k=2, random_state=3, max_iter=3)
    more = {"shuffle": False, "workers_per_candidate": 2}
    paths, place = write_parquet(tmp_path, chunks), tmp_path / "place"
    far = tp.fit(clone(model), paths, checkpoint=place, checkpoint_seconds=0, **more)
    assert_same(far, tp.fit(model, chunks, **more))
    other = tp.fit(clone(model), chunks, shuffle=False)
    assert not np.array_equal(other.coef_, model.coef_)


def test_too_few_pieces_are_said():
    model = tp.DCSGDRegressor(k=2, **ONE_PASS)
    with pytest.warns(UserWarning, match="each of 2 candidates is trained by 3 workers at once, since 8"):
        tp.fit(model, chunks_of(*rows(1_200), 6), shuffle=False, workers_per_candidate=8)


@pytest.mark.parametrize("workers", [0, 1.5, "auto"])
def test_what_it_is_not_for(workers):
    chunks = chunks_of(*rows(600), 2)
    with pytest.raises(ValueError, match="workers_per_candidate must be a whole number of at least 1"):
        tp.fit(tp.DCSGDRegressor(), chunks, workers_per_candidate=workers)
    for model, data in ((tp.RobustRegressor(), chunks), (tp.DCSGDRegressor(), chunks[0])):
        with pytest.raises(ValueError, match=r"workers_per_candidate is for DCSGD\* and RVSGD\* on data in"):
            tp.fit(model, data, workers_per_candidate=2)
