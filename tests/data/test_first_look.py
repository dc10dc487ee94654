"""What a first look at the pieces says."""

import numpy as np
import pytest

from tailproof.data.first_look import Seen, Survey, look_sorted, unlike_chance
from tailproof.data.readers.batches import Reading
from tailproof.data.readers.chunks import Chunk, ChunkPieces, Chunks


def test_pieces_that_look_sorted():
    rng = np.random.default_rng(0)

    def moments(parts):
        return np.array([[p.size, p.sum(), (p**2).sum()] for p in parts])

    alike = rng.standard_normal((20, 500))
    assert unlike_chance(moments(alike)) < 3
    assert unlike_chance(moments(np.sort(alike.ravel()).reshape(20, 500))) > 100
    assert unlike_chance(moments(alike[:1])) == 1.0
    assert unlike_chance(moments(np.ones((3, 5)))) == 1.0


@pytest.mark.parametrize("seed", [914, 1_093, 1_449])  # draws of which every fourth row looks sorted
def test_two_batches_do_not_look_sorted_by_chance(seed):
    X = np.random.default_rng(seed).standard_normal((8_192, 4))
    chunk = Chunk(X, X.sum(axis=1), None, len(X))
    pieces = ChunkPieces(Chunks([chunk]), Reading(tuple("abcd"), "y", "", {}, batch_rows=4_096))
    seen = Seen(len(X), X[:10], chunk.y[:10], np.empty(0), np.zeros(3))
    assert not look_sorted([Survey(10).with_drift(seen, pieces.column_samples(0, [0, 1, 2, 3]))])
