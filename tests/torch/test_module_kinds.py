"""Modules that vmap treats specially: attention, recurrent layers, control flow, embeddings, float16."""

import functools
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from small_networks import SGD, assert_same, images, noisy_regression
from tailproof.core.algorithms import DivergedError
from tailproof.torch import Candidates


class Attention(nn.Module):
    """A transformer block over sequences of which zeros are padding."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(8, 2)

    def forward(self, x):
        padding = (x == 0).all(dim=2)
        hidden = self.encoder(x, src_key_padding_mask=padding)
        shown = (~padding).unsqueeze(2).to(hidden)
        return self.head((hidden * shown).sum(dim=1) / shown.sum(dim=1))


def sequences(n=60):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 5, 8, generator=generator)
    X[::2, 3:] = 0
    return X, (X.sum(dim=(1, 2)) > 0).long()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of attention without dropout under vmap
@pytest.mark.parametrize("average", [True, False])
def test_padding_masks_of_transformers(average):
    data = sequences()
    found = Candidates(Attention, 3, average=average, random_state=0)
    found.fit(data, F.cross_entropy, optimizer=SGD, epochs=2, batch_size=10)
    losses = found.row_losses(data)
    with torch.no_grad():
        expected = F.cross_entropy(found.module(2)(data[0]), data[1], reduction="none")
    np.testing.assert_allclose(losses[2], expected, rtol=1e-4, atol=1e-6)
    assert np.isfinite(found.select(data).risk)


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.cell, self.head = kind(2, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Branching(nn.Module):
    """Normalises, then takes a way that depends on the data."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(2), nn.Linear(2, 2)

    def forward(self, x):
        x = self.norm(x[:, 0])
        return self.head(x if x.sum() > 0 else -x)


@pytest.mark.parametrize(
    "make",
    [Recurrent, functools.partial(Recurrent, nn.GRU), Branching],
    ids=["LSTM", "GRU", "control flow"],
)
def test_what_vmap_cannot_batch_runs_in_a_loop_and_says_so(make):
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(40, 5, 2, generator=generator), torch.randint(0, 2, (40,), generator=generator)
    with pytest.warns(UserWarning, match="cannot batch this module.*vectorise=False does so without"):
        found = Candidates(make, 2, random_state=0).fit(data, F.cross_entropy, epochs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop = Candidates(make, 2, vectorise=False, random_state=0).fit(data, F.cross_entropy, epochs=2)
    for j in range(2):
        assert_same(found.module(j), loop.module(j))  # running means of batch norm too
    np.testing.assert_allclose(found.select(data, delta=0.2).risk, loop.select(data, delta=0.2).risk)


def test_losses_of_recurrent_models_are_taken_row_by_row():
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(30, 5, 2, generator=generator), torch.randint(0, 2, (30,), generator=generator)
    found = Candidates(Recurrent, 2, vectorise=False, random_state=0)
    found.fit(data, model_loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]))
    with torch.no_grad():
        expected = F.cross_entropy(found.module(1)(data[0]), data[1], reduction="none")
    np.testing.assert_allclose(found.row_losses(data)[1], expected, rtol=1e-5)


def test_errors_of_a_module_are_not_taken_for_those_of_vmap():
    with pytest.raises(RuntimeError, match="Expected size for first two dimensions"):
        Candidates(lambda: nn.Linear(3, 2), 2).fit((torch.ones(8, 4), torch.ones(8, 2)), F.mse_loss)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_embeddings_are_named(kind):
    with pytest.raises(ValueError, match=r"sparse=True\) has sparse gradients.*use sparse=False"):
        Candidates(lambda: kind(5, 2, sparse=True), 2).fit(
            (torch.ones(8, 1, dtype=torch.long), torch.ones(8, 2)), F.mse_loss
        )


def test_half_precision_is_blamed_where_it_is_to_blame():
    X, y = noisy_regression(1.0)
    data = (1e4 * X, 1e4 * y)
    with pytest.raises(DivergedError, match=r"float16 holds numbers up to 65,504 only: train in"):
        Candidates(lambda: nn.Linear(2, 1), 5, random_state=0).fit(data, F.mse_loss, dtype=torch.float16)


def clipped(w):
    optimizer = torch.optim.SGD(w, lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(w, 1.0) and None)
    return optimizer


class Clipping(torch.optim.Adam):
    def step(self, closure=None):
        torch.nn.utils.clip_grad_norm_([w for group in self.param_groups for w in group["params"]], 1.0)
        return super().step(closure)


@pytest.mark.parametrize("optimizer", [clipped, Clipping, torch.optim.LBFGS, torch.optim.Adafactor])
def test_optimisers_that_mix_candidates_are_refused(optimizer):
    data = (torch.randn(20, 3), torch.randn(20, 1))
    with pytest.raises(ValueError, match=r"would mix the candidates.*fit\(clip_norm=...\)"):
        Candidates(lambda: nn.Linear(3, 1), 2).fit(data, F.mse_loss, optimizer=optimizer)


@pytest.mark.parametrize("clip", [0.01, "auto", ("quantile", 0.5)])
def test_gradients_are_clipped_candidate_by_candidate(clip):
    (X, y), made = images(60), []
    make = lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3))  # noqa: E731

    def fit(k, data, groups=None):
        found = Candidates(make, k, random_state=0)
        return found.fit(
            data, F.cross_entropy, optimizer=SGD, batch_size=10, epochs=3, clip_norm=clip, groups=groups
        )

    twice = torch.cat([X, 1e3 * X]), torch.cat([y, y])
    both = fit(2, twice, np.repeat([0, 1], 60))
    calm = fit(2, (torch.cat([X, X]), torch.cat([y, y])), np.repeat([0, 1], 60))
    assert_same(both.module(0), calm.module(0))  # whatever the other candidate does
    assert not made


def test_clipping_is_that_of_pytorch():
    (X, y), made = images(40), []

    def make():
        made.append(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)))
        return made[-1]

    found = Candidates(make, 1, random_state=0)
    found.fit((X, y), F.cross_entropy, optimizer=SGD, batch_size=40, clip_norm=0.05)
    alone = made[0]
    F.cross_entropy(alone(X), y).backward()
    torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.05)
    for ours, start in zip(found.module(0).parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, start - 0.1 * start.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("clip", [0, -1.0, "half", ("quantile", 0), ("mean", 0.5), np.inf])
def test_bad_clips_are_named(clip):
    with pytest.raises(ValueError, match="clip_norm must be"):
        Candidates(lambda: nn.Linear(36, 3), 2).fit(images(20), F.cross_entropy, clip_norm=clip)
