"""Stacked candidates against modules trained one by one, and everything a user can hand in."""

import copy
import functools
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import tailproof
import torch
from tailproof.core.algorithms import DivergedError
from tailproof.core.means import interval
from tailproof.core.merge import MERGES
from tailproof.core.partition import blocks
from tailproof.torch.candidates import Candidates, is_linear
from torch import nn

SGD = functools.partial(torch.optim.SGD, lr=0.1)
OPTIMIZERS = {
    "sgd": SGD,
    "momentum": functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": functools.partial(torch.optim.Adam, lr=1e-2),
    "adamw": functools.partial(torch.optim.AdamW, lr=1e-2),
    "rmsprop": functools.partial(torch.optim.RMSprop, lr=1e-3),
}
# No bias before batch norm: its gradient is zero but for rounding, and Adam would blow the rounding up.
MODULES = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3)),
    "ff": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(36, 10), nn.ReLU(), nn.Dropout(0.0), nn.Linear(10, 3)
    ),
    "batch norm": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(36, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)
    ),
    "conv": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    ),
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images(n=203, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 1, 6, 6, generator=generator)
    return X, (X.mean(dim=(1, 2, 3)) * 6).round().clamp(-1, 1).long() + 1


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


def assert_same(stacked, alone):
    for (name, ours), theirs in zip(stacked.state_dict().items(), alone.state_dict().values(), strict=True):
        torch.testing.assert_close(
            ours, theirs, rtol=2e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("vectorise", [True, False])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("module", MODULES)
def test_stacked_equals_one_by_one(module, optimizer, vectorise):
    (X, y), k, made = images(), 5, []
    candidates = Candidates(recording(MODULES[module], made), k, vectorise=vectorise, random_state=3)
    candidates.fit((X, y), F.cross_entropy, optimizer=OPTIMIZERS[optimizer], epochs=3, batch_size=8)
    one_by_one(made, X, y, k, 3, OPTIMIZERS[optimizer], 3, 8)
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


class Squares(Dataset):
    """Rows made on demand."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


class Flow(IterableDataset):
    def __init__(self, X, y):
        self.X, self.y = X, y

    def __iter__(self):
        return iter(zip(self.X, self.y, strict=True))


SOURCES = {
    "arrays": lambda X, y: (X.numpy(), y.numpy()),
    "double precision": lambda X, y: (X.double().numpy(), y.numpy()),
    "list": lambda X, y: [X, y],
    "tensor dataset": TensorDataset,
    "dataset": Squares,
    "stream": Flow,
    "loader": lambda X, y: DataLoader(TensorDataset(X, y), batch_size=8, shuffle=True),
    "loader of a dataset": lambda X, y: DataLoader(Squares(X, y), batch_size=8),
    "loader with workers": lambda X, y: DataLoader(Squares(X, y), batch_size=8, num_workers=1),
    "iterable dataset": lambda X, y: DataLoader(Flow(X, y), batch_size=50),
    "batches": lambda X, y: [(X[:100], y[:100]), (X[100:], y[100:])],
    "generator": lambda X, y: ((X[i : i + 70], y[i : i + 70]) for i in range(0, len(X), 70)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_candidates(source):
    X, y = images()

    def risks(data):
        found = Candidates(MODULES["linear"], 4, random_state=0)
        found.fit(data, F.cross_entropy, optimizer=SGD, epochs=2, batch_size=8)
        return found.row_losses((X, y))

    np.testing.assert_allclose(risks(SOURCES[source](X, y)), risks((X, y)), rtol=1e-6)


def test_batch_size_comes_from_the_loader():
    X, y = images()
    steps = []
    count = lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: steps.append(step) or 1.0)  # noqa: E731
    loader = DataLoader(TensorDataset(X, y), batch_size=10)
    Candidates(MODULES["linear"], 2, random_state=0).fit(
        loader, F.cross_entropy, schedule=count, schedule_each="batch"
    )
    assert max(steps) == 11  # 101 rows a block


def test_several_inputs():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(2, 3), nn.Linear(4, 3)

        def forward(self, a, b):
            return self.one(a) + self.two(b)

    data = (torch.randn(60, 2), torch.randn(60, 4), torch.randint(0, 3, (60,)))
    found = Candidates(Sum, 3, random_state=0).fit(data, F.cross_entropy)
    assert found.select(data).risk > 0


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


def noisy_regression(bad_block_scale):
    """One block has rows so large that its candidate diverges."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 2, generator=generator)
    rows = blocks(200, 5, 0)[2].rows
    X[torch.as_tensor(rows)] *= bad_block_scale
    return X, X.sum(dim=1, keepdim=True)


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


@pytest.mark.parametrize("how", MERGES)
def test_merge_is_the_merge_of_flattened_candidates(how):
    data = images()
    found = Candidates(MODULES["linear"], 7, random_state=0).fit(data, F.cross_entropy, optimizer=SGD)
    flat = lambda module: torch.cat([p.detach().flatten() for p in module.parameters()]).double().numpy()  # noqa: E731
    points = np.stack([flat(found.module(j)) for j in range(7)])
    np.testing.assert_allclose(flat(found.merge(how)), MERGES[how](points).point, rtol=1e-6, atol=1e-8)
    assert found.report.method == f"DC, merge={how}"
    assert found.report.radius > 0
    each = found.merge(how, per_tensor=True)
    for name, parameter in each.named_parameters():
        alone = np.stack(
            [dict(found.module(j).named_parameters())[name].detach().flatten() for j in range(7)]
        )
        point = MERGES[how](alone.astype(np.float64)).point
        np.testing.assert_allclose(parameter.detach().flatten(), point, rtol=1e-6, atol=1e-8)


def test_merge_warns_for_anything_but_one_linear_layer():
    found = Candidates(MODULES["batch norm"], 3, random_state=0).fit(images(), F.cross_entropy)
    with pytest.warns(UserWarning, match="no better than chance: use select instead"):
        merged = found.merge()
    assert (merged[2].running_var > 0).all()
    assert found.report.theorem.startswith("none")
    assert is_linear(nn.Linear(2, 2))
    assert not is_linear(MODULES["ff"]())


def test_select_is_robust_validation_of_the_losses():
    X, y = images(400)
    found = Candidates(MODULES["ff"], 6, average=True, random_state=0)
    found.fit((X[:200], y[:200]), F.cross_entropy, optimizer=SGD, epochs=5)
    chosen = found.select((X[200:], y[200:]), delta=0.1)
    losses = np.stack(
        [
            F.cross_entropy(found.module(j)(X[200:]), y[200:], reduction="none").detach().double().numpy()
            for j in range(6)
        ]
    )
    np.testing.assert_allclose(found.row_losses((X[200:], y[200:])), losses, rtol=1e-4, atol=1e-6)
    expected = [interval(row, "catoni", 0.1) for row in losses]
    best = int(np.argmin([e.estimate for e in expected]))
    assert chosen.index == found.report.best == best
    np.testing.assert_allclose(
        [chosen.risk, chosen.low, chosen.high],
        [expected[best].estimate, expected[best].low, expected[best].high],
        rtol=1e-5,
    )
    assert_same(chosen.module, found.module(best))
    assert not chosen.module.training
    assert found.report.mean == "catoni"
    assert "RV, averaged" in str(found.report)


def test_dtype_and_one_candidate_and_one_row_each():
    X, y = images(6)
    found = Candidates(MODULES["linear"], 6, random_state=0)
    found.fit((X, y), F.cross_entropy, dtype=torch.float64)
    assert next(found.merge().parameters()).dtype == torch.float64
    alone = Candidates(MODULES["linear"], 1, random_state=0).fit((X, y), F.cross_entropy)
    assert_same(alone.merge(), alone.module(0))


GOOD = images(20)
SHARED = nn.Linear(36, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"k": 21}, ValueError, "cannot make 21 blocks of 20 rows"),
        ({"k": 0}, ValueError, "k must be a whole number, at least 1"),
        ({"data": GOOD[0]}, TypeError, "data must be"),
        ({"data": 3}, TypeError, "data must be"),
        ({"data": (GOOD[0],)}, ValueError, "pair"),
        ({"data": (GOOD[0], GOOD[1][:5])}, ValueError, "same number of rows"),
        ({"data": []}, ValueError, "pair"),
        ({"data": iter([])}, ValueError, "empty"),
        ({"data": [("a", "b")]}, ValueError, "must be tensors or arrays"),
        ({"data": (pd.DataFrame([[1.0]]), pd.Series([1.0]))}, ValueError, r"got DataFrame: use to_numpy\(\)"),
        ({"data": [(GOOD[0][0], GOOD[1][0])]}, ValueError, "put single rows into a DataLoader"),
        ({"loss_fn": "cross_entropy"}, TypeError, "loss_fn must be callable; got str"),
        ({"loss_fn": lambda out, y: 1.0}, TypeError, "loss_fn must return a tensor; got float"),
        (
            {"optimizer": torch.optim.SGD([torch.ones(1)])},
            TypeError,
            "optimizer must be a callable.*; got SGD",
        ),
        ({"make": nn.Linear(36, 3)}, TypeError, "got a module made already"),
        ({"make": lambda: SHARED}, ValueError, "make a new module each time"),
        ({"epochs": 0}, ValueError, "epochs must be a whole number"),
        ({"batch_size": 0}, ValueError, "batch_size must be a whole number"),
        ({"batch_size": 2.5}, ValueError, "batch_size must be a whole number"),
        ({"schedule_each": "day"}, ValueError, "schedule_each must be one of"),
        ({"optimizer": lambda w: "adam"}, TypeError, "optimizer must be a callable"),
        ({"optimizer": torch.optim.LBFGS}, ValueError, "LBFGS would mix the candidates"),
        ({"schedule": torch.optim.lr_scheduler.ReduceLROnPlateau}, ValueError, "would tie the candidates"),
        ({"make": nn.Flatten}, ValueError, "no parameters"),
        ({"make": lambda: 3}, TypeError, "must return an nn.Module"),
        ({"make": 3}, TypeError, "make_module must be callable"),
        ({"random_state": -1}, ValueError, "seed must not be negative"),
    ],
)
def test_bad_input_is_named(arguments, error, match):
    settings = {
        "k": 2,
        "loss_fn": F.cross_entropy,
        "data": GOOD,
        "make": MODULES["linear"],
        "random_state": 0,
    } | arguments
    make, k, seed = settings.pop("make"), settings.pop("k"), settings.pop("random_state")
    with pytest.raises(error, match=match):
        Candidates(make, k, random_state=seed).fit(settings.pop("data"), settings.pop("loss_fn"), **settings)


def test_validation_rows_that_are_not_numbers_choose_nobody():
    fitted = Candidates(MODULES["linear"], 2, random_state=0).fit(GOOD, F.cross_entropy)
    with pytest.raises(ValueError, match="no candidate has a finite risk on the validation rows"):
        fitted.select((GOOD[0] * torch.nan, GOOD[1]))


def test_hints_of_what_to_do():
    flat = GOOD[0].flatten(1), GOOD[1]
    with pytest.raises(RuntimeError, match=r"vmap|atching rule") as caught:
        Candidates(lambda: nn.LSTM(36, 3), 2).fit(flat, F.cross_entropy)
    assert "vectorise=False" in caught.value.__notes__[0]
    normed = lambda: nn.Sequential(nn.Linear(36, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))  # noqa: E731
    with pytest.raises(ValueError, match="more than 1 value per channel") as caught:
        Candidates(normed, 2).fit(flat, F.cross_entropy, batch_size=9)
    assert "one row of each block" in caught.value.__notes__[0]


def test_rows_of_one_block_that_are_not_numbers_are_named():
    X, y = noisy_regression(1.0)
    X[7] = torch.nan
    with pytest.raises(ValueError, match="the data contain NaN or infinity"):
        Candidates(functools.partial(nn.Linear, 2, 1), 5, random_state=0).fit((X, y), F.mse_loss)


def test_changing_architectures_and_untrained_candidates_are_named():
    widths = iter([3, 4])
    with pytest.raises(ValueError, match="one architecture"):
        Candidates(lambda: nn.Linear(36, next(widths)), 2).fit(GOOD, F.cross_entropy)
    with pytest.raises(RuntimeError, match="call fit first"):
        Candidates(MODULES["linear"], 2).merge()
    found = Candidates(MODULES["linear"], 2, random_state=0).fit(GOOD, F.cross_entropy)
    with pytest.raises(ValueError, match="merge must be one of"):
        found.merge("mean")
    with pytest.raises(ValueError, match="mean must be one of"):
        found.select(GOOD, mean="average")


def test_progress_bar(capsys):
    with warnings.catch_warnings():
        Candidates(MODULES["linear"], 2, random_state=0).fit(GOOD, F.cross_entropy, epochs=2, verbose=1)
    assert "epochs" in capsys.readouterr().out


def test_public_namespace_is_lazy():
    assert tailproof.torch.Candidates is Candidates
    with pytest.raises(AttributeError, match="no attribute 'jax'"):
        _ = tailproof.jax


def test_without_torch_everything_else_works_and_the_extra_is_named():
    code = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch())
import numpy as np, tailproof as tp
tp.DCSGDRegressor(max_iter=1, k=2).fit(np.ones((20, 1)), np.arange(20.0))
try:
    tp.torch
except ImportError as missing:
    print(missing)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'tailproof[torch]'" in done.stdout


def test_the_example_runs(capsys):
    path = Path(__file__).parents[2] / "examples" / "torch_convnet.py"
    selected, merged = runpy.run_path(str(path))["main"](k=3, epochs=8)
    assert selected > max(0.85, merged)
    assert "wins: risk" in capsys.readouterr().out
