from dataclasses import dataclass

import numpy as np
import pytest

from tailproof.core.algorithms import MOST_PASSES, DivergedError, finite_candidates, merge, select, train
from tailproof.core.merge import MERGES
from tailproof.core.partition import blocks
from tailproof.estimators.parallel import LocalEngine


@dataclass(frozen=True)
class Halving:
    """Goes half of the way from the start to a point of its own in every pass."""

    points: np.ndarray
    start_at: float = 100.0

    def start(self, block):
        return block.index, np.full(self.points.shape[1], self.start_at)

    def advance(self, state):
        index, w = state
        return index, (w + self.points[index]) / 2

    def vector(self, state):
        return state[1]


POINTS = np.random.default_rng(0).standard_normal((9, 3))
PARTS = blocks(90, 9, 0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_passes_as_asked(jobs):
    told = []
    found = train(Halving(POINTS), PARTS, LocalEngine(jobs), 5, lambda number, states: told.append(number))
    assert told == [1, 2, 3, 4, 5]
    assert found.passes == 5
    assert found.converged
    assert np.allclose(found.vectors, POINTS + (100 - POINTS) / 2**5)
    assert found.kept.tolist() == list(range(9))
    assert len(found.states) == 9


def test_automatic_passes_end_when_candidates_move_less_than_they_differ():
    found = train(Halving(POINTS), PARTS, LocalEngine(), None)
    assert found.converged
    assert 2 <= found.passes < 20
    assert np.linalg.norm(found.vectors.mean(axis=0) - POINTS.mean(axis=0)) < 0.1


def test_automatic_passes_have_an_end():
    class Drifting(Halving):
        def advance(self, state):
            return state[0], state[1] + 10.0

    found = train(Drifting(POINTS), PARTS, LocalEngine(), None)
    assert found.passes == MOST_PASSES
    assert not found.converged


@pytest.mark.parametrize("k", [1, 2])
def test_few_candidates(k):
    found = train(Halving(POINTS[:k] + 5), blocks(90, k, 0), LocalEngine(), None)
    assert found.converged
    assert np.allclose(found.vectors, POINTS[:k] + 5, rtol=0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_diverged_candidates_are_left_out(bad):
    points = POINTS.copy()
    points[[1, 4, 6, 8], 0] = bad
    found = train(Halving(points), PARTS, LocalEngine(), 40)
    assert found.kept.tolist() == [0, 2, 3, 5, 7]
    assert np.allclose(found.vectors, POINTS[found.kept])
    assert [state[0] for state in found.states] == [0, 2, 3, 5, 7]


def test_half_diverged_is_an_error():
    learner = Halving(POINTS)
    states = [(j, np.full(3, np.nan if j < 4 else 1.0)) for j in range(8)]
    with pytest.raises(DivergedError, match="4 of 8 candidates diverged"):
        finite_candidates(learner, states, 1, True)
    with pytest.raises(ValueError, match="1 of 1 "):
        finite_candidates(learner, states[:1], 1, True)


@pytest.mark.parametrize("name", MERGES)
def test_merge_is_by_name(name):
    found = train(Halving(POINTS), PARTS, LocalEngine(), 1)
    assert np.array_equal(merge(found, name).point, MERGES[name](found.vectors).point)


def test_merge_and_select_errors():
    found = train(Halving(POINTS), PARTS, LocalEngine(), 1)
    with pytest.raises(ValueError, match="merge must be one of"):
        merge(found, "vote")
    with pytest.raises(ValueError, match="mean must be one of"):
        select([np.ones(3)], "vote", 0.05)
    assert select([np.ones(50), np.zeros(50)], "mean", 0.05).best == 1
