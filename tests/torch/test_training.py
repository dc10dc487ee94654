"""Stacked candidates against modules trained one by one."""

import copy
import functools

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn import functional as F  # noqa: N812

from small_networks import MODULES, OPTIMIZERS, SGD, assert_same, images, noisy_regression
from tailproof.core.algorithms import DivergedError
from tailproof.core.partition import blocks
from tailproof.torch.candidates import Candidates


def recording(make, made):
    """A factory that keeps a copy of every module before it is trained."""

    def factory():
        module = make()
        made.append(copy.deepcopy(module))
        return module

    return factory


def one_by_one(modules, X, y, k, seed, make_optimizer, epochs, batch_size, schedule=None, each="epoch"):
    """The slow reference: k plain PyTorch loops; also the mean of each path."""
    parts = blocks(len(X), k, seed)
    means = []
    for module, part in zip(modules, parts, strict=True):
        module.train()
        optimizer = make_optimizer(list(module.parameters()))
        scheduler = schedule(optimizer) if schedule else None
        path = []
        for epoch in range(epochs):
            rows = part.order(epoch)[: len(X) // k]
            for start in range(0, len(rows), batch_size):
                chosen = torch.as_tensor(rows[start : start + batch_size])
                optimizer.zero_grad()
                F.cross_entropy(module(X[chosen]), y[chosen]).backward()
                optimizer.step()
                path.append([p.detach().clone() for p in module.parameters()])
                if scheduler and each == "batch":
                    scheduler.step()
            if scheduler and each == "epoch":
                scheduler.step()
        means.append([torch.stack(steps).mean(dim=0) for steps in zip(*path, strict=True)])
        module.eval()
    return means


@pytest.mark.parametrize("vectorise", [True, False])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("module", MODULES)
def test_stacked_equals_one_by_one(module, optimizer, vectorise):
    (X, y), k, made = images(), 5, []
    candidates = Candidates(recording(MODULES[module], made), k, vectorise=vectorise, random_state=3)
    candidates.fit((X, y), F.cross_entropy, optimizer=OPTIMIZERS[optimizer], epochs=2, batch_size=8)
    one_by_one(made, X, y, k, 3, OPTIMIZERS[optimizer], 2, 8)
    for j, alone in enumerate(made):
        assert_same(candidates.module(j), alone)


@pytest.mark.parametrize("each", ["epoch", "batch"])
def test_schedules_step_as_in_a_plain_loop(each):
    (X, y), made = images(), []
    halve = lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)  # noqa: E731
    candidates = Candidates(recording(MODULES["linear"], made), 4, random_state=0)
    candidates.fit(
        (X, y), F.cross_entropy, optimizer=SGD, epochs=5, batch_size=8, schedule=halve, schedule_each=each
    )
    one_by_one(made, X, y, 4, 0, SGD, 5, 8, halve, each)
    for j, alone in enumerate(made):
        assert_same(candidates.module(j), alone)


def test_average_is_the_mean_of_the_path():
    (X, y), made = images(), []
    candidates = Candidates(recording(MODULES["ff"], made), 3, average=True, random_state=0)
    candidates.fit((X, y), F.cross_entropy, optimizer=SGD, epochs=2, batch_size=16)
    means = one_by_one(made, X, y, 3, 0, SGD, 2, 16)
    for j, mean in enumerate(means):
        for ours, theirs in zip(candidates.module(j).parameters(), mean, strict=True):
            torch.testing.assert_close(ours.detach(), theirs, rtol=1e-4, atol=1e-6)


def test_dropout_differs_between_candidates_and_repeats_with_the_seed():
    class Masks(nn.Module):
        """Its output is a dropout mask times a parameter, so that gradients show the mask."""

        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(50))
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(self.w)[None] + 0 * x.sum()

    def trained(seed):
        found = Candidates(Masks, 3, random_state=seed)
        found.fit((torch.zeros(3, 1), torch.zeros(3, 50)), lambda o, t: o.sum(), optimizer=SGD, batch_size=1)
        return [found.module(j).w.detach() for j in range(3)]

    first, again, other = trained(0), trained(0), trained(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])
    assert set(first[0].numpy().astype(float).round(3).tolist()) == {0.8, 1.0}


def test_no_global_state_is_touched_and_none_matters():
    data = images()
    make = lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 6), nn.Dropout(0.3), nn.Linear(6, 3))  # noqa: E731

    def risks(seed):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before, numpy_before = torch.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
        found = Candidates(make, 4, random_state=5).fit(data, F.cross_entropy, epochs=2).select(data)
        assert torch.equal(before, torch.get_rng_state())
        assert numpy_before == repr(np.random.get_state())  # noqa: NPY002
        return found.validation.risk

    assert np.array_equal(risks(0), risks(1))


def test_recurrent_modules_train_in_a_loop():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(2, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    data = (torch.randn(40, 5, 2), torch.randint(0, 2, (40,)))
    found = Candidates(Recurrent, 2, vectorise=False, random_state=0).fit(data, F.cross_entropy, epochs=2)
    assert np.isfinite(found.select(data, delta=0.2).risk)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_diverged_candidates_are_left_out_counted_and_warned_about(optimizer):
    X, y = noisy_regression(1e25)
    make = functools.partial(nn.Linear, 2, 1)
    found = Candidates(make, 5, average=True, random_state=0)
    with pytest.warns(ConvergenceWarning, match="1 of 5 candidates diverged"):
        found.fit((X, y), F.mse_loss, optimizer=OPTIMIZERS[optimizer], epochs=6, batch_size=8)
    assert found.kept.tolist() == [0, 1, 3, 4]
    assert found.report.excluded.tolist() == [2]
    # The others go on as if the bad one had never been there.
    calm = Candidates(make, 5, average=True, random_state=0)
    calm.fit(noisy_regression(1.0), F.mse_loss, optimizer=OPTIMIZERS[optimizer], epochs=6, batch_size=8)
    for j in found.kept:
        assert_same(found.module(int(j)), calm.module(int(j)))
    with pytest.raises(IndexError, match="no finite candidate of block 2"):
        found.module(2)
    assert torch.isfinite(found.merge()(X[:3])).all()


def test_too_many_diverged_or_bad_data_raise():
    X, y = noisy_regression(1.0)
    huge = functools.partial(torch.optim.SGD, lr=1e30)
    make = functools.partial(nn.Linear, 2, 1)
    with pytest.raises(DivergedError, match="5 of 5 candidates diverged: use a smaller learning rate"):
        Candidates(make, 5, random_state=0).fit((X, y), F.mse_loss, optimizer=huge, epochs=2)
    X[::4] = torch.nan
    with pytest.raises(ValueError, match="the data contain NaN or infinity"):
        Candidates(make, 5, random_state=0).fit((X, y), F.mse_loss)
