"""Robust regression with networks: the loss path, recentring, blending, and what it is for."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from tailproof.core.means import catoni
from tailproof.torch import BlendedNet, RobustNetRegressor, fit_robust_net
from tailproof.torch.robust_net import _truncated_loss, robust_spread

ADAM = functools.partial(torch.optim.Adam, lr=0.01)


def net(inputs=2, outputs=1):
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def problem(noise, n=1_500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    signal = 2 * np.sin(X[:, 0]) + X[:, 1]
    return X, signal + noise(rng, n), signal


NOISES = {
    "log-normal": lambda rng, n: rng.lognormal(0, 1.75, n) - np.exp(1.75**2 / 2),
    "Pareto": lambda rng, n: 2 * (rng.pareto(2.1, n) - 1 / 1.1),
    "t": lambda rng, n: 2 * rng.standard_t(2.1, n),
}


def one_net(X, y, batch_size=32):
    """One net with squared error on all rows, in standard units."""
    scale = y.std()
    data = (
        torch.tensor(X, dtype=torch.float32),
        torch.tensor((y - y.mean()) / scale, dtype=torch.float32)[:, None],
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        module = net()
        optimizer = ADAM(module.parameters())
        for _ in range(20):
            for rows in torch.randperm(len(y)).split(batch_size):
                optimizer.zero_grad()
                F.mse_loss(module(data[0][rows]), data[1][rows]).backward()
                optimizer.step()
    return module(data[0]).detach().numpy()[:, 0] * scale + y.mean()


# With so few inputs one net hardly overfits; the suite robust_net has the figures for ten.
@pytest.mark.parametrize(
    ("noise", "ratio", "batch_size"), [("log-normal", 0.6, 64), ("Pareto", 0.8, 64), ("t", 1.0, 32)]
)
def test_it_beats_one_net(noise, ratio, batch_size):
    ours, plain = [], []
    for seed in range(2):
        X, y, signal = problem(NOISES[noise], seed=seed)
        model = RobustNetRegressor(net, optimizer=ADAM, batch_size=batch_size, random_state=seed).fit(X, y)
        ours.append(np.mean((model.predict(X) - signal) ** 2))
        plain.append(np.mean((one_net(X, y, batch_size) - signal) ** 2))
    assert np.mean(ours) < ratio * np.mean(plain)


def test_under_normal_noise_it_loses_next_to_nothing():
    ours, plain = [], []
    for seed in range(3):
        X, y, signal = problem(lambda rng, n: rng.standard_normal(n), seed=seed)
        model = RobustNetRegressor(net, optimizer=ADAM, batch_size=32, random_state=seed).fit(X, y)
        ours.append(np.mean((model.predict(X) - signal) ** 2))
        plain.append(np.mean((one_net(X, y) - signal) ** 2))
    assert np.median(ours) < 1.25 * np.median(plain)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8),
    st.one_of(st.floats(1e-3, 1e3), st.just(float("inf"))),
)
def test_truncated_loss_is_hubers(residuals, level):
    target = torch.tensor(residuals, dtype=torch.float64)[:, None]
    batch = {"inputs": (target,), "target": target, "level": torch.tensor([level], dtype=torch.float64)}
    ours = _truncated_loss(torch.zeros_like, batch)
    zero = torch.zeros_like(target)
    theirs = (
        F.mse_loss(zero, target) / 2 if level == float("inf") else F.huber_loss(zero, target, delta=level)
    )
    torch.testing.assert_close(ours, theirs)


@given(st.floats(1e-8, 1e12), st.floats(-1e6, 1e6))
def test_robust_spread_scales_and_ignores_shifts(scale, shift):
    values = np.random.default_rng(0).standard_t(2, (101, 2))
    np.testing.assert_allclose(
        robust_spread(scale * (values + shift)), scale * robust_spread(values), rtol=1e-4
    )


def test_robust_spread_of_constants_and_many_zeros():
    assert robust_spread(np.zeros((5, 1))).tolist() == [1.0]
    assert robust_spread(np.array([[0.0]] * 9 + [[10.0]])).tolist() == [1.0]


def parts(X, y, at=1_000):
    tensors = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]
    return tuple(t[:at] for t in tensors), tuple(t[at:] for t in tensors)


def test_each_copy_is_recentred_and_the_blend_is_their_mean():
    X, y, _ = problem(NOISES["log-normal"])
    training, held_out = parts(X, y)
    found = fit_robust_net(net, training, held_out, optimizer=ADAM, epochs=5, random_state=0)
    module = found.module
    with torch.no_grad():
        each = torch.stack([member(held_out[0]) for member in module.members])
        residuals = (held_out[1] - module.centre) / module.scale - each
        for shift, rows in zip(module.shifts, residuals, strict=True):
            np.testing.assert_allclose(
                shift.numpy(), catoni(rows.double().numpy(), delta=0.05), rtol=1e-3, atol=1e-4
            )
        mean = (module.shares[:, None, None] * (each + module.shifts[:, None])).sum(dim=0)
        torch.testing.assert_close(module(held_out[0]), module.centre + module.scale * mean)
    np.testing.assert_allclose(found.shares.sum(), 1)
    assert np.count_nonzero(found.shares) == len(module.members)
    assert found.risk.shape == (7,)
    assert found.paired.estimate[-1] == 0
    assert (found.epochs >= 1).all()
    assert len(found.history) == 5
    assert isinstance(module, BlendedNet)
    assert not module.training


class Rows(Dataset):
    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


def test_data_may_be_datasets_and_arrays():
    X, y, _ = problem(NOISES["t"], 400)
    training, held_out = parts(X, y, 300)
    outputs = []
    for wrap in (
        tuple,
        lambda pair: TensorDataset(*pair),
        lambda pair: Rows(*pair),
        lambda p: (p[0].numpy(), p[1].numpy()),
    ):
        found = fit_robust_net(net, wrap(training), wrap(held_out), epochs=2, random_state=0)
        outputs.append(found.module(held_out[0]).detach())
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.cell(x[:, :, None])[0][:, -1])


def test_recurrent_networks():
    X, y, _ = problem(NOISES["Pareto"], 400)
    training, held_out = parts(X, y, 300)
    with pytest.warns(UserWarning, match="cannot batch this module"):
        found = fit_robust_net(Recurrent, training, held_out, truncation=[1.35], epochs=2, random_state=0)
    assert torch.isfinite(found.module(held_out[0])).all()


def test_a_copy_that_diverges_is_left_out():
    X, y, signal = problem(NOISES["t"], 400)
    y[:5] = 1e30
    sgd = functools.partial(torch.optim.SGD, lr=0.05)
    model = RobustNetRegressor(net, optimizer=sgd, batch_size=20, random_state=0).fit(X, y)
    assert not np.isfinite(model.report_.risk[4])
    assert model.shares_[4] == 0
    assert np.mean((model.predict(X[5:]) - signal[5:]) ** 2) < 3


def test_it_stops_when_no_copy_becomes_better():
    X, y, _ = problem(NOISES["t"], 300)
    patient = RobustNetRegressor(
        net, optimizer=ADAM, epochs=200, patience=2, batch_size=16, random_state=0
    ).fit(X, y)
    assert len(patient.history_) < 200
    assert np.isfinite(patient.predict(X)).all()


def test_the_report_names_every_copy():
    X, y, _ = problem(NOISES["log-normal"], 400)
    report = RobustNetRegressor(net, epochs=3, truncation=[1.0], random_state=0).fit(X, y).report_
    assert report.candidates == (
        "Huber at 1 sd",
        "squared error",
        "squared error, gradients clipped",
        "blend",
    )
    assert "recentred to the mean" in str(report)
    assert "blend *" in str(report)


class Flow(IterableDataset):
    def __iter__(self):
        return iter([(torch.ones(2), torch.ones(1))] * 10)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"truncation": [-1.0]}, ValueError, "truncation must be positive"),
        ({"epochs": 0}, ValueError, "epochs must be a whole number"),
        ({"training_data": Flow()}, TypeError, "known length, not an IterableDataset"),
        ({"training_data": (torch.ones(9, 2), torch.ones(9))}, ValueError, r"use y\[:, None\]"),
        (
            {"training_data": (torch.ones(9, 2), torch.full((9, 1), torch.nan))},
            ValueError,
            "targets contain NaN",
        ),
        ({"make_module": lambda: net(2, 3)}, ValueError, "they must be equal"),
    ],
)
def test_bad_input_is_named(arguments, error, match):
    rows = torch.randn(20, 2), torch.randn(20, 1)
    given = {"make_module": net, "training_data": rows, "validation_data": rows, "epochs": 1} | arguments
    with pytest.raises(error, match=match):
        fit_robust_net(
            given.pop("make_module"), given.pop("training_data"), given.pop("validation_data"), **given
        )


def test_the_same_seed_gives_the_same_net_and_no_global_state_is_touched():
    X, y, _ = problem(NOISES["t"], 300)
    before = torch.get_rng_state()
    models = [RobustNetRegressor(net, epochs=2, random_state=s).fit(X, y).predict(X) for s in (0, 0, 1)]
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(models[0], models[1])
    assert not np.array_equal(models[0], models[2])
