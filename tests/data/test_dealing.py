import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailproof.data.dealing import HELD_OUT, Dealing


@given(
    k=st.integers(1, 12),
    pieces=st.integers(1, 12),
    n=st.integers(0, 400),
    seed=st.integers(0, 10**6),
    run=st.integers(1, 30),
    whole=st.booleans(),
    held=st.sampled_from([0.0, 0.3, 0.5]),
)
def test_every_row_is_dealt_once_and_to_a_block_of_its_piece(k, pieces, n, seed, run, whole, held):
    dealing = Dealing(k, pieces, seed, run, whole, held)
    labels = dealing.labels(0, 1, n)
    for number in range(2):
        dealt = dealing.deal(0, 1, n, number)
        together = np.concatenate([dealt.held_out, *dealt.rows.values()])
        assert sorted(together.tolist()) == list(range(n))
        assert list(dealt.rows) == dealing.blocks(0)
        # The order changes from pass to pass, the dealing does not.
        assert all((labels[rows] == j).all() for j, rows in dealt.rows.items())
        assert (labels[dealt.held_out] == HELD_OUT).all()
    sizes = [rows.size for rows in dealt.rows.values()]
    assert max(sizes) - min(sizes) <= 1
    assert abs(dealt.held_out.size - held * n) <= 1


@given(k=st.integers(1, 20), pieces=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_whole_pieces_are_shared_out_evenly(k, pieces, seed):
    dealing = Dealing(k, pieces, seed, whole_pieces=True)
    blocks = [dealing.blocks(piece) for piece in range(pieces)]
    counts = np.bincount(np.concatenate(blocks), minlength=k)
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1
    assert all(len(some) == 1 for some in blocks) or pieces < k
    assert counts.max() == 1 or pieces >= k


@pytest.mark.parametrize("number", [0, 1, 5])
def test_every_piece_is_visited_once_a_pass(number):
    dealing = Dealing(3, 50, 1)
    assert sorted(dealing.visits(number)) == list(range(50))
    assert dealing.visits(number) == Dealing(3, 50, 1).visits(number)
    assert dealing.visits(number) != dealing.visits(number + 1)
    assert dealing.visits(number) != Dealing(3, 50, 2).visits(number)


def test_no_block_gets_the_longer_share_of_every_batch():
    dealing = Dealing(4, 1, 0)
    totals = sum(np.bincount(dealing.labels(0, batch, 5), minlength=4) for batch in range(400))
    # 500 rows each, with a standard deviation of about 9.
    assert np.abs(totals - 500).max() < 45


def test_neighbours_stay_together_and_sorted_rows_are_mixed():
    labels = Dealing(5, 1, 0, run=10).labels(0, 0, 10_000)
    by_run = labels.reshape(-1, 10)
    # Shares end where they end, so a run may be cut, but not more often than there are shares.
    assert (by_run != by_run[:, :1]).any(axis=1).sum() <= 5
    means = [np.flatnonzero(labels == j).mean() for j in range(5)]
    assert np.abs(np.array(means) - 5_000).max() < 1_000
