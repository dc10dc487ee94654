"""Rounds from a common start: what they compute, what they withstand, and what they report."""

import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from small_networks import MODULES, SGD, assert_same, images
from tailproof.core.algorithms import DivergedError
from tailproof.core.means import catoni
from tailproof.core.merge import MERGES
from tailproof.torch import Candidates

MOMENTUM = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)


def flat(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()]).double().numpy()


def by_hand(make, data, groups, rounds, merge, keep, seed=0):
    """The slow reference: plain loops over blocks, one batch an epoch, a merge after each round."""
    made = []
    Candidates(lambda: made.append(make()) or made[-1], 3, random_state=seed).fit(
        data, F.cross_entropy, rounds=1, optimizer=functools.partial(torch.optim.SGD, lr=0.0)
    )
    start = flat(made[0])
    modules = [make() for _ in range(3)]
    optimizers = [MOMENTUM(list(module.parameters())) for module in modules]
    for _ in range(rounds):
        for j, module in enumerate(modules):
            torch.nn.utils.vector_to_parameters(torch.tensor(start, dtype=torch.float32), module.parameters())
            if not keep:
                optimizers[j].state.clear()
            optimizers[j].zero_grad()
            rows = torch.as_tensor(groups == j)
            F.cross_entropy(module(data[0][rows]), data[1][rows]).backward()
            optimizers[j].step()
        start = MERGES[merge](np.stack([flat(module) for module in modules])).point
    return start


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("merge", ["geometric_median", "coordinate_median", "centroid"])
def test_rounds_are_those_of_a_plain_loop(merge, keep):
    data, groups = images(90), np.arange(90) % 3
    found = Candidates(MODULES["ff"], 3, random_state=0).fit(
        data,
        F.cross_entropy,
        optimizer=MOMENTUM,
        batch_size=30,
        rounds=4,
        merge=merge,
        groups=groups,
        keep_optimizer=keep,
    )
    expected = by_hand(MODULES["ff"], data, groups, 4, merge, keep)
    np.testing.assert_allclose(flat(found.merge(merge)), expected, rtol=1e-3, atol=1e-5)
    last = found.rounds[-1]
    assert [report.number for report in found.rounds] == [1, 2, 3, 4]
    np.testing.assert_allclose(last.distances, found.report.distances)
    np.testing.assert_allclose(last.radius, found.report.radius)
    assert "majority radius" in str(last)


def rings(n=1_500, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=generator)
    return X, (X.norm(dim=1) > 1.2).long()


def ring_net():
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


def normed_net():
    return nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


ADAM = functools.partial(torch.optim.Adam, lr=0.02)


@pytest.mark.parametrize("make", [ring_net, normed_net])
@pytest.mark.parametrize("damage", ["labels", "features", "updates"])
def test_rounds_withstand_bad_blocks(make, damage):
    X, y = rings()
    groups, bad = np.arange(1_500) % 10, [0, 1, 2]
    rows = torch.as_tensor(np.isin(groups, bad))
    clean = X, y
    if damage == "labels":
        y = torch.where(rows, 1 - y, y)
    if damage == "features":
        X = torch.where(rows[:, None], 100 * X, X)
    starts = {}

    def flip(record, stack):
        """Reverse the updates of the bad blocks, as an adversary would."""
        if damage != "updates":
            return
        for name, leaf in stack.parameters.items():
            before = starts.get(name, leaf.detach().mean(dim=0))
            leaf.data[bad] = 2 * before - leaf.data[bad]
            good = leaf.detach()[3:]
            starts[name] = good.median(dim=0).values

    def accuracy(merge):
        starts.clear()
        found = Candidates(make, 10, random_state=0).fit(
            (X, y),
            F.cross_entropy,
            optimizer=ADAM,
            rounds=15,
            batch_size=25,
            groups=groups,
            merge=merge,
            callbacks=[flip],
        )
        return (found.merge(merge)(clean[0]).argmax(dim=1) == clean[1]).float().mean().item()

    assert accuracy("geometric_median") > 0.9


def test_networks_from_different_starts_cannot_be_merged_and_those_of_rounds_can():
    data = rings()
    fit = functools.partial(
        Candidates(ring_net, 8, random_state=0).fit, data, F.cross_entropy, optimizer=ADAM
    )
    apart = fit(epochs=20, batch_size=25)
    with pytest.warns(UserWarning, match=r"different starts.*fit\(rounds=...\)"):
        merged = apart.merge()
    together = fit(rounds=20, batch_size=25).merge()
    scores = [(m(data[0]).argmax(dim=1) == data[1]).float().mean().item() for m in (merged, together)]
    assert scores[1] > max(0.9, scores[0])


def test_a_block_that_diverges_starts_again_with_the_others():
    X = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    y, groups = X.sum(dim=1, keepdim=True), np.arange(200) % 5
    X[torch.as_tensor(groups == 2)] *= 1e25
    found = Candidates(functools.partial(nn.Linear, 2, 1), 5, random_state=0)
    found.fit((X, y), F.mse_loss, optimizer=SGD, rounds=6, batch_size=8, groups=groups)
    assert all(report.diverged.tolist() == [2] for report in found.rounds)
    assert np.isinf(found.rounds[0].distances[2])
    assert found.kept.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(flat(found.merge())[:2], 1, atol=0.1)
    X[torch.as_tensor(groups < 2)] *= 1e25
    with pytest.raises(DivergedError, match="3 of 5 candidates diverged"):
        found.fit((X, y), F.mse_loss, optimizer=SGD, rounds=2, batch_size=8, groups=groups)


def test_blocks_that_stand_out_are_reported():
    X, y = images(500)
    groups = np.arange(500) % 10
    X[torch.as_tensor(groups == 7)] *= 50
    found = Candidates(MODULES["linear"], 10, random_state=0).fit(
        (X, y), F.cross_entropy, optimizer=SGD, rounds=3, groups=groups, validation_data=images(200, seed=1)
    )
    assert all(report.stand_out.tolist() == [7] for report in found.rounds)
    assert all(report.validation_risk > 0 for report in found.rounds)
    assert found.rounds[0].validation_risk > found.rounds[-1].validation_risk


def test_the_best_round_is_kept():
    X, y = rings(400)
    noisy = torch.randint(0, 2, (400,), generator=torch.Generator().manual_seed(0))
    found = Candidates(ring_net, 4, random_state=0).fit(
        (X, noisy),
        F.cross_entropy,
        optimizer=functools.partial(torch.optim.Adam, lr=0.1),
        rounds=50,
        batch_size=10,
        validation_data=(X, y),
        patience=3,
    )
    risks = [report.validation_risk for report in found.rounds]
    assert len(risks) < 50
    assert np.argmin(risks) == len(risks) - 4
    module = found.merge()
    losses = F.cross_entropy(module(X), y, reduction="none").detach().double().numpy()
    np.testing.assert_allclose(catoni(losses, delta=0.05), min(risks), rtol=1e-4)


def test_all_starts_are_equal_whatever_make_module_draws_from():
    rng = np.random.default_rng(0)

    def make():
        module = nn.Linear(36, 3)
        nn.init.constant_(module.weight, rng.random())
        return nn.Sequential(nn.Flatten(), module)

    found = Candidates(make, 4, random_state=0)
    found.fit(images(40), F.cross_entropy, rounds=1, optimizer=functools.partial(torch.optim.SGD, lr=0.0))
    for j in range(1, 4):
        assert_same(found.module(0), found.module(j))
