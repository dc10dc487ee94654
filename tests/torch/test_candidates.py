"""Candidates: every kind of data, merging, selecting, and errors that name what was wrong."""

import functools
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tailproof
from small_networks import MODULES, SGD, assert_same, images, noisy_regression
from tailproof.core.means import interval
from tailproof.core.merge import MERGES
from tailproof.torch.candidates import Candidates, is_linear


class Squares(Dataset):
    """Rows made on demand."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


SOURCES = {
    "arrays": lambda X, y: (X.numpy(), y.numpy()),
    "double precision": lambda X, y: (X.double().numpy(), y.numpy()),
    "list": lambda X, y: [X, y],
    "tensor dataset": TensorDataset,
    "dataset": Squares,
    "loader": lambda X, y: DataLoader(TensorDataset(X, y), batch_size=8, shuffle=True),
    "loader of a dataset": lambda X, y: DataLoader(Squares(X, y), batch_size=8),
    "loader with workers": lambda X, y: DataLoader(Squares(X, y), batch_size=8, num_workers=1),
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
