import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailproof.core.partition import (
    Dealer,
    blocks,
    seed_sequence,
    shuffle_runs,
    slices,
    train_validation,
)


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 10**6), st.booleans())
def test_blocks_are_a_partition_of_even_sizes(n, k, seed, shuffle):
    if k > n:
        with pytest.raises(ValueError, match="at most the number of rows"):
            blocks(n, k, seed, shuffle=shuffle)
        return
    parts = blocks(n, k, seed, shuffle=shuffle)
    assert [len(part) for part in parts] == [len(x) for x in np.array_split(np.arange(n), k)]
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(n))
    assert [part.index for part in parts] == list(range(k))
    if not shuffle:
        assert np.array_equal(np.concatenate([part.rows for part in parts]), np.arange(n))


@given(n=st.integers(1, 60), run=st.integers(1, 70), seed=st.integers(0, 99))
def test_one_block_is_the_range_shuffled_in_runs(n, run, seed):
    order = np.random.default_rng(seed_sequence(seed).spawn(1)[0])
    assert np.array_equal(blocks(n, 1, seed, run=run)[0].rows, shuffle_runs(np.arange(n), run, order))


@given(n=st.integers(1, 60), k=st.integers(1, 60))
def test_slices_are_the_blocks_that_keep_their_order(n, k):
    if k > n:
        with pytest.raises(ValueError, match=f"cannot make {k} blocks of {n} rows"):
            slices(n, k)
        return
    expected = [part.tolist() for part in np.array_split(np.arange(n), k)]
    assert [np.arange(n)[cut].tolist() for cut in slices(n, k)] == expected


def test_same_seed_same_blocks_and_seeds_and_no_two_alike():
    one, two = blocks(100, 5, 7), blocks(100, 5, 7)
    for a, b in zip(one, two, strict=True):
        assert np.array_equal(a.rows, b.rows)
        assert a.seed.generate_state(4).tolist() == b.seed.generate_state(4).tolist()
    assert len({tuple(part.seed.generate_state(2)) for part in one}) == 5


def test_a_seed_sequence_spawns_the_same_children_every_time():
    root = np.random.SeedSequence(5)
    root.spawn(3)
    assert np.array_equal(blocks(50, 2, root)[0].rows, blocks(50, 2, 5)[0].rows)
    assert root.n_children_spawned == 3
    child = root.spawn(1)[0]
    assert seed_sequence(child).generate_state(2).tolist() == child.generate_state(2).tolist()


def test_shuffled_blocks_are_exchangeable():
    # Sorted rows: the mean row number of a block must look like that of a random sample.
    means = np.array([[part.rows.mean() for part in blocks(1_000, 10, seed)] for seed in range(200)])
    assert abs(means.mean() - 499.5) < 1e-6
    assert means.std() == pytest.approx(1000 / np.sqrt(12) / np.sqrt(100), rel=0.15)


@given(st.integers(2, 200), st.floats(0.01, 0.99), st.integers(0, 10**6), st.booleans())
def test_train_and_validation_share_nothing_and_miss_nothing(n, fraction, seed, shuffle):
    train, validation = train_validation(n, fraction, seed, shuffle=shuffle)
    assert sorted([*train, *validation]) == list(range(n))
    assert len(train) >= 1
    assert abs(len(validation) - n * fraction) <= 1
    if not shuffle:
        assert train[0] == 0


def test_halves_are_rounded_up():
    assert [len(train_validation(n)[1]) for n in range(2, 12)] == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    # 5·0.7 and 45·0.7 are 3.5 and 31.499999999999996 in floats.
    assert [len(train_validation(n, 0.7)[1]) for n in (5, 45)] == [4, 32]


@given(st.integers(1, 20), st.integers(0, 10**6), st.lists(st.integers(0, 50), max_size=12))
def test_dealing_is_balanced_at_all_times_and_ignores_batches(k, seed, sizes):
    dealer = Dealer(k, seed)
    dealt = np.concatenate([np.empty(0, int), *(dealer.deal(size) for size in sizes)])
    assert np.array_equal(dealt, Dealer(k, seed).deal(sum(sizes)))
    counts = np.zeros(k, int)
    for block in dealt:
        counts[block] += 1
        assert counts.max() - counts.min() <= 1


def test_dealing_is_random():
    dealt = Dealer(4, 0).deal(40_000).reshape(-1, 4)
    first = np.bincount(dealt[:, 0], minlength=4) / 10_000
    assert np.all(np.abs(first - 0.25) < 0.02)
    assert len({tuple(row) for row in dealt}) == 24


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: blocks(0, 1), "n must be at least 1"),
        (lambda: blocks(5, 0), "k must be at least 1"),
        (lambda: blocks(5, 2.5), "whole number"),
        (lambda: train_validation(1), "at least 2 rows"),
        (lambda: train_validation(9, 1.0), "validation_fraction"),
        (lambda: Dealer(0), "k must be at least 1"),
        (lambda: Dealer(3).deal(-1), "n must be at least 0"),
        (lambda: Dealer(3).deal(2.5), "n must be a whole number"),
        (lambda: blocks(5, 2, np.random.default_rng(0)), "seed must be None.*got Generator"),
        (lambda: Dealer(2, np.random.RandomState(0)), "seed must be None.*got RandomState"),
        (lambda: train_validation(5, seed="a"), "seed must be None.*got str"),
        (lambda: blocks(5, 2, -1), "seed must not be negative"),
    ],
)
def test_bad_arguments_are_one_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@given(seed=st.integers(0, 10**6), n=st.integers(2, 120), classes=st.integers(1, 6), data=st.data())
def test_classes_are_dealt_evenly(seed, n, classes, data):
    labels = np.random.default_rng(seed).integers(0, classes, n)
    k = data.draw(st.integers(1, n))
    parts = blocks(n, k, seed, labels=labels)
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(n))
    for label in range(classes):
        counts = [int(np.sum(labels[part.rows] == label)) for part in parts]
        assert max(counts) - min(counts) <= 1
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(seed=st.integers(0, 10**6), n=st.integers(2, 120), fraction=st.floats(0.01, 0.99))
def test_every_class_is_trained_on(seed, n, fraction):
    labels = np.random.default_rng(seed).integers(0, 4, n)
    train, validation = train_validation(n, fraction, seed, labels=labels)
    assert sorted([*train, *validation]) == list(range(n))
    for label in np.unique(labels):
        held_out = np.sum(labels[validation] == label)
        assert held_out == math.floor(np.sum(labels == label) * fraction + 1e-9)
        assert np.any(labels[train] == label)
