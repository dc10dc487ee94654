"""Blocks of streams and of groups; samplers that are honoured or refused."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from torch.utils import data as torch_data
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from small_networks import MODULES, SGD, assert_same, images
from tailproof.core.partition import Dealer
from tailproof.torch import Candidates
from tailproof.torch.batches import batch_source
from tailproof.torch.block_batches import deal_blocks

CPU = torch.device("cpu")


class Flow(IterableDataset):
    """Rows one by one; counts how many it has made."""

    def __init__(self, *columns):
        self.columns, self.made = columns, 0

    def __iter__(self):
        for row in zip(*self.columns, strict=True):
            self.made += 1
            yield row


def numbered(n):
    return torch.arange(n, dtype=torch.float32)[:, None], torch.arange(n)


@pytest.mark.parametrize("loader", [lambda s: s, lambda s: DataLoader(s, batch_size=7)])
@pytest.mark.parametrize(("n", "k", "size"), [(23, 3, 2), (23, 3, 50), (4, 4, 1), (41, 1, 8)])
def test_streams_are_dealt_to_blocks_the_same_way_each_epoch(n, k, size, loader):
    seed = np.random.SeedSequence(0)
    parts = deal_blocks(batch_source(loader(Flow(*numbered(n))), CPU), k, seed)
    block_of = Dealer(k, seed).deal(n - n % k)
    epochs = [[batch[1] for batch, _ in parts.epoch(e, np.arange(k), size)] for e in range(2)]
    for batches in epochs:
        rows = torch.cat(batches, dim=1)
        assert all(batch.shape[0] == k and batch.shape[1] <= size for batch in batches)
        for j in range(k):
            assert sorted(rows[j].tolist()) == np.flatnonzero(block_of == j).tolist()
    assert parts.sizes.tolist() == [n // k] * k
    some = [batch[1] for batch, _ in parts.epoch(0, np.array([k - 1]), size)]
    assert torch.equal(torch.cat(some, dim=1)[0], torch.cat(epochs[0], dim=1)[k - 1])


def test_a_stream_is_never_held_in_memory():
    stream = Flow(*numbered(5_000))
    parts = deal_blocks(batch_source(DataLoader(stream, batch_size=10), CPU), 4, np.random.SeedSequence(0))
    for number, _ in enumerate(parts.epoch(0, np.arange(4), 5), 1):
        assert stream.made <= 20 * number + 10


def test_candidates_learn_from_a_stream():
    X, y = images(400)
    stream = Flow(X, y)
    found = Candidates(MODULES["linear"], 4, random_state=0)
    found.fit(stream, F.cross_entropy, optimizer=SGD, epochs=20, batch_size=8)
    assert stream.made == 20 * 400
    assert found.report.block_sizes.tolist() == [100] * 4
    assert found.select(Flow(X, y)).risk < 0.8
    np.testing.assert_allclose(found.row_losses(Flow(X, y)), found.row_losses((X, y)))
    with pytest.raises(ValueError, match="known length"):
        found.fit(stream, F.cross_entropy, groups=np.arange(400) % 4)
    with pytest.raises(ValueError, match="fewer than k=4 rows"):
        found.fit(Flow(X[:3], y[:3]), F.cross_entropy)


def test_a_subset_sampler_is_honoured():
    X, y = images(90)
    rows = list(range(0, 90, 2))
    sampler = torch_data.SubsetRandomSampler(rows)
    ours = Candidates(MODULES["linear"], 3, random_state=0).fit(
        DataLoader(TensorDataset(X, y), batch_size=8, sampler=sampler), F.cross_entropy
    )
    theirs = Candidates(MODULES["linear"], 3, random_state=0).fit(
        (X[rows], y[rows]), F.cross_entropy, batch_size=8
    )
    assert_same(ours.module(0), theirs.module(0))


class Reverse(torch_data.Sampler):
    def __iter__(self):
        return iter(range(9, -1, -1))

    def __len__(self):
        return 10


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"sampler": torch_data.WeightedRandomSampler(torch.ones(20), 20)}, "WeightedRandomSampler"),
        ({"sampler": Reverse()}, "Reverse"),
        ({"sampler": torch_data.RandomSampler(range(20), replacement=True)}, "RandomSampler"),
        ({"batch_sampler": [[0, 1], [2, 3]]}, "list"),
    ],
)
def test_other_samplers_are_refused(arguments, name):
    loader = DataLoader(TensorDataset(*images(20)), **arguments)
    with pytest.raises(ValueError, match=f"{name} cannot be honoured.*sample_weight="):
        Candidates(MODULES["linear"], 2).fit(loader, F.cross_entropy)


def test_groups_are_the_blocks():
    groups = np.array(["b"] * 8 + ["a"] * 6 + ["c"] * 7)
    parts = deal_blocks(batch_source(numbered(21), CPU), 3, np.random.SeedSequence(0), groups)
    assert parts.sizes.tolist() == [6, 8, 7]
    assert parts.rows_per_epoch == 7
    for number in range(3):
        rows = torch.cat([batch[1] for batch, _ in parts.epoch(number, np.arange(3), 4)], dim=1)
        assert rows.shape == (3, 7)
        assert set(rows[0].tolist()) == set(range(8, 14))  # one of them twice
        assert len(set(rows[1].tolist())) == 7
        assert set(rows[1].tolist()) <= set(range(8))
        assert set(rows[2].tolist()) == set(range(14, 21))


@pytest.mark.parametrize(
    ("groups", "match"),
    [(np.zeros(20), "1 different labels and k is 2"), (np.arange(3), "one label for each of the 20 rows")],
)
def test_bad_groups_are_named(groups, match):
    with pytest.raises(ValueError, match=match):
        Candidates(MODULES["linear"], 2).fit(images(20), F.cross_entropy, groups=groups)
