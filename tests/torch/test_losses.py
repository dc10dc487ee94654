"""Losses of rows: class weights, ignored rows, row weights, outputs and batches of any structure."""

import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset

from small_networks import MODULES, SGD, assert_same, images
from tailproof.core.validate import validate
from tailproof.torch import Candidates

WEIGHTED = {
    "module": lambda w: nn.CrossEntropyLoss(weight=w),
    "function": lambda w: functools.partial(F.cross_entropy, weight=w),
    "opaque function": lambda w: lambda output, target: F.cross_entropy(output, target, weight=w),
    "loss of a model": lambda w: functools.partial(_weighted_loss_of_model, w),
}


def _weighted_loss_of_model(weights, model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], weight=weights)


@pytest.mark.parametrize("kind", WEIGHTED)
def test_select_honours_class_weights(kind):
    X, y = images(400)
    weights = torch.tensor([5.0, 0.2, 1.0])
    found = Candidates(MODULES["linear"], 4, random_state=0)
    loss = {"model_loss" if kind == "loss of a model" else "loss_fn": WEIGHTED[kind](weights)}
    found.fit((X[:200], y[:200]), **loss, optimizer=SGD, epochs=3)
    chosen = found.select((X[200:], y[200:]))
    losses = [
        F.cross_entropy(found.module(j)(X[200:]), y[200:], reduction="none").detach().double().numpy()
        for j in range(4)
    ]
    expected = validate(losses, weights=weights[y[200:]].double().numpy())
    np.testing.assert_allclose(chosen.validation.risk, expected.risk, rtol=1e-3)
    plain = validate(losses)
    assert np.abs(plain.risk / expected.risk - 1).max() > 0.05


@pytest.mark.parametrize(
    "loss",
    [{"loss_fn": F.cross_entropy}, {"model_loss": functools.partial(_weighted_loss_of_model, None)}],
    ids=["loss_fn", "model_loss"],
)
def test_rows_that_the_loss_ignores_have_no_weight(loss):
    X, y = images(300)
    y = torch.where(torch.arange(300) % 3 == 0, -100, y)
    found = Candidates(MODULES["linear"], 3, random_state=0).fit((X, y), **loss, optimizer=SGD)
    chosen = found.select((X, y))
    there = y != -100
    assert np.isfinite(chosen.validation.risk).all()
    np.testing.assert_allclose(
        chosen.validation.risk, found.select((X[there], y[there])).validation.risk, rtol=1e-5
    )
    assert (found.row_losses((X, y))[:, ~there.numpy()] == 0).all()


def test_pixels_that_the_loss_ignores_weigh_their_rows():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(80, 1, 4, 4, generator=generator)
    y = (X[:, 0] > 0).long()
    y[:40, :2] = -100
    found = Candidates(lambda: nn.Conv2d(1, 2, 1), 2, random_state=0).fit((X, y), F.cross_entropy)
    losses, weights = found._validation_losses((X, y), found._stack)
    for j in range(2):
        whole = F.cross_entropy(found.module(j)(X), y)
        np.testing.assert_allclose(np.average(losses[j], weights=weights), float(whole.detach()), rtol=1e-4)


def test_sample_weight_is_the_gradient_of_weighted_rows():
    X, y = images(120)
    weights = torch.linspace(0.1, 3, 120)
    weights = weights / weights.mean()
    found = Candidates(MODULES["linear"], 1, random_state=0)
    found.fit((X, y), F.cross_entropy, optimizer=SGD, batch_size=120, sample_weight=weights)
    made = []
    Candidates(lambda: made.append(MODULES["linear"]()) or made[-1], 1, random_state=0).fit(
        (X, y), F.cross_entropy, optimizer=functools.partial(torch.optim.SGD, lr=0.0)
    )
    (weights * F.cross_entropy(made[0](X), y, reduction="none")).mean().backward()
    for ours, start in zip(found.module(0).parameters(), made[0].parameters(), strict=True):
        torch.testing.assert_close(ours, start - 0.1 * start.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("module", ["linear", "batch norm"])
def test_rows_of_weight_zero_are_as_if_absent(module):
    X, y = images(200)
    weights = np.repeat([1.0, 0.0], 100)
    X[100:] = 1e6
    ours, theirs = (
        Candidates(MODULES[module], 2, random_state=0).fit(data, F.cross_entropy, sample_weight=w, epochs=2)
        for data, w in (((X, y), weights), ((X[:100], y[:100]), None))
    )
    for j in range(2):
        assert_same(ours.module(j), theirs.module(j))
    risks = [
        ours.select((X, y), sample_weight=weights).validation.risk,
        theirs.select((X[:100], y[:100])).validation.risk,
    ]
    np.testing.assert_allclose(*risks, rtol=1e-4)


@pytest.mark.parametrize("bad", [np.zeros(20), -np.ones(20), np.ones(3), np.full(20, np.nan)])
def test_bad_weights_are_named(bad):
    with pytest.raises(ValueError, match="sample_weight must be 20 finite numbers"):
        Candidates(MODULES["linear"], 2).fit(images(20), F.cross_entropy, sample_weight=bad)


class Heads(nn.Module):
    """Returns a dict and takes one by name."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(36, 4), nn.Linear(4, 3)

    def forward(self, x=None, named=None):
        hidden = self.body((x if named is None else named["x"]).flatten(1))
        return {"logits": self.head(hidden), "hidden": (hidden, None)}


def loss_of_heads(output, target):
    return F.cross_entropy(output["logits"], target) + 0.01 * output["hidden"][0].square().mean()


@pytest.mark.parametrize("vectorise", [True, False])
def test_outputs_may_be_dicts(vectorise):
    X, y = images(60)
    found = Candidates(Heads, 3, vectorise=vectorise, random_state=0).fit((X, y), loss_of_heads)
    losses = found.row_losses((X, y))
    module = found.module(1)
    expected = [loss_of_heads(module(X[i : i + 1]), y[i : i + 1]).item() for i in range(60)]
    np.testing.assert_allclose(losses[1], expected, rtol=1e-5)
    assert np.isfinite(found.select((X, y)).risk)


class Named(Dataset):
    """Rows that are dicts."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return {"x": self.X[i], "y": self.y[i]}


def loss_of_model(model, batch):
    return F.cross_entropy(model(x=batch["x"])["logits"], batch["y"])


@pytest.mark.parametrize("vectorise", [True, False])
def test_batches_may_be_dicts(vectorise):
    X, y = images(60)
    fits = [
        Candidates(Heads, 2, vectorise=vectorise, random_state=0).fit(data, model_loss=loss_of_model)
        for data in ({"x": X, "y": y}, Named(X, y), DataLoader(Named(X, y), batch_size=32))
    ]
    plain = Candidates(Heads, 2, random_state=0).fit((X, y), lambda o, t: F.cross_entropy(o["logits"], t))
    for found in fits:
        assert_same(found.module(1), plain.module(1))
        np.testing.assert_allclose(found.row_losses(Named(X, y)), plain.row_losses((X, y)), rtol=1e-5)
    inside = Candidates(Heads, 2, random_state=0)
    inside.fit((X, {"y": y}), lambda o, t: F.cross_entropy(o["logits"], t["y"]))
    assert_same(inside.module(1), plain.module(1))


def test_losses_that_compare_rows_show_no_weights():
    def contrast(model, batch):
        output = model(batch[0])
        return (output - output.mean(dim=0)).square().mean() + F.cross_entropy(output, batch[1])

    data = images(60)
    found = Candidates(MODULES["linear"], 2, random_state=0).fit(data, model_loss=contrast)
    assert found._validation_losses(data, found._stack)[1] is None


def test_one_of_two_losses_is_needed():
    with pytest.raises(TypeError, match="either loss_fn"):
        Candidates(Heads, 2).fit(images(20))
    with pytest.raises(TypeError, match="model_loss must be callable; got int"):
        Candidates(Heads, 2).fit(images(20), model_loss=3)
    with pytest.raises(ValueError, match="sample_weight needs loss_fn"):
        Candidates(Heads, 2).fit({"x": torch.ones(4, 36)}, model_loss=loss_of_model, sample_weight=np.ones(4))


@pytest.mark.parametrize(
    "loss", [F.mse_loss, F.l1_loss, lambda o, t: (o - t).square().mean(), F.poisson_nll_loss]
)
def test_targets_without_an_axis_against_a_column_of_outputs(loss):
    X = torch.randn(30, 2)
    with pytest.raises(ValueError, match=r"give the targets a second axis, y\[:, None\]"):
        Candidates(lambda: nn.Linear(2, 1), 2).fit((X, X.sum(dim=1)), loss)
    squeezed = lambda output, target: loss(output[:, 0], target)  # noqa: E731
    found = Candidates(lambda: nn.Linear(2, 1), 2, random_state=0).fit((X, X.sum(dim=1)), squeezed)
    assert np.isfinite(found.row_losses((X, X.sum(dim=1)))).all()
