"""PyTorch modules in model files: numbers alone; who loads them says what they belong to."""

import functools
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import is_regressor
from torch import nn

import tailproof as tp
from damage import damaged
from tailproof.model_files.files import ModelFileError, describe, load, save
from tailproof.torch import (
    Candidates,
    RobustNetRegressor,
    TorchDCClassifier,
    TorchDCRegressor,
    TorchRVClassifier,
    TorchRVRegressor,
)

rng = np.random.default_rng(0)
X = rng.standard_normal((200, 3))
NUMBERS = X.sum(axis=1) + rng.standard_normal(200)
LABELS = np.array(["red", "green", "blue"])[np.digitize(NUMBERS, [-1, 1])]
QUICK = {"k": 3, "epochs": 2, "batch_size": 11, "random_state": 0}


def net(inputs, outputs, width=5):
    first, last = nn.Linear(inputs, width), nn.Linear(width, outputs)
    return nn.Sequential(first, nn.BatchNorm1d(width), nn.Tanh(), last)


def other_names(inputs, outputs):
    return nn.Sequential(nn.Flatten(), *net(inputs, outputs))


def trained(module=net, **settings):
    return TorchRVClassifier(module, **QUICK, **settings).fit(X, LABELS)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a model"


@pytest.mark.parametrize("module", [None, net])
@pytest.mark.parametrize("cls", [TorchDCClassifier, TorchDCRegressor, TorchRVClassifier, TorchRVRegressor])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_estimators(cls, module, dtype, path):
    model = cls(module, dtype=dtype, **QUICK).fit(X, NUMBERS if is_regressor(cls()) else LABELS)
    save(model, path)
    again = load(path, make_module=module)
    assert type(again) is cls
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.get_params() == model.get_params()
    assert str(again.report_) == str(model.report_)
    assert not again.module_.training
    assert {leaf.dtype for leaf in again.module_.parameters()} == {getattr(torch, dtype)}
    assert set(vars(model)) - set(vars(again)) == {"candidates_"}
    assert describe(path)["class"] == cls.__name__
    assert np.array_equal(again.fit(X, model.predict(X)).predict(X), again.predict(X))


@pytest.mark.parametrize("module", [None, net])
@pytest.mark.parametrize("targets", [1, 2])
def test_blends_of_copies(module, targets, path):
    y = NUMBERS if targets == 1 else np.column_stack([NUMBERS, 1e4 * NUMBERS])
    model = RobustNetRegressor(module, epochs=3, batch_size=20, random_state=0).fit(X, y)
    save(model, path)
    again = load(path, make_module=module)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.predict(X).shape == y.shape
    assert again.get_params() == model.get_params()
    assert str(again.report_) == str(model.report_)
    assert np.array_equal(again.shares_, model.shares_)
    save(again, path)
    assert np.array_equal(load(path, make_module=module).predict(X), model.predict(X))
    if module is not None:
        with pytest.raises(ModelFileError, match=r"make_module\(3, \d\) makes a new Sequential"):
            load(path)


def test_images(path):
    pictures = rng.standard_normal((60, 1, 4, 4))

    def make(shape, outputs):
        return nn.Sequential(nn.Conv2d(shape[0], 2, 3), nn.Flatten(), nn.Linear(8, outputs))

    model = TorchDCClassifier(make, **QUICK).fit(pictures, pictures.mean(axis=(1, 2, 3)) > 0)
    save(model, path)
    assert np.array_equal(load(path, make_module=make).predict(pictures), model.predict(pictures))


def candidates(make_module, targets, loss):
    tensors = torch.tensor(X, dtype=torch.float32), targets
    return Candidates(make_module, 3, random_state=0).fit(tensors, loss), tensors


def test_what_candidates_merged_or_selected(path):
    make = functools.partial(net, 3, 2)
    found, rows = candidates(make, torch.tensor(NUMBERS > 0).long(), nn.functional.cross_entropy)
    chosen = found.select(rows)
    save(chosen, path)
    again = load(path, make_module=make)
    assert (again.index, again.risk, again.low) == (chosen.index, chosen.risk, chosen.low)
    assert np.array_equal(again.validation.risk, chosen.validation.risk)
    assert torch.equal(again.module(rows[0]), chosen.module(rows[0]))
    save(chosen.module, path)
    assert torch.equal(load(path, make_module=make)(rows[0]), chosen.module(rows[0]))


def test_a_linear_layer_needs_nobody_to_make_it(path):
    targets = torch.tensor(NUMBERS[:, None], dtype=torch.float32)
    found, rows = candidates(lambda: nn.Linear(3, 1, bias=False), targets, nn.functional.mse_loss)
    merged = found.merge()
    save(merged, path)
    again = load(path)
    assert again.bias is None
    assert torch.equal(again(rows[0]), merged(rows[0]))


def test_candidates_themselves_are_not_a_model(path):
    found, _ = candidates(lambda: nn.Linear(3, 2), torch.zeros(200).long(), nn.functional.cross_entropy)
    with pytest.raises(TypeError, match="what Candidates merged or selected"):
        save(found, path)
    assert not path.exists()


def test_numbers_of_every_type_tied_and_frozen(path):
    def make():
        module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4))
        module[1].weight = module[0].weight
        module[0].bias.requires_grad_(False)
        return module

    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        module = make().to(dtype)
        save(module, path)
        again = load(path, make_module=make)
        saved = module.state_dict()
        assert all(torch.equal(tensor, saved[name]) for name, tensor in again.state_dict().items())
        assert again[0].weight.dtype == dtype
        assert again[1].weight is again[0].weight
        assert not again[0].bias.requires_grad


def test_numbers_that_no_file_holds(path):
    with pytest.raises(TypeError, match="'weight' is complex64, which a model file cannot hold"):
        save(nn.Linear(2, 2, dtype=torch.complex64), path)


@pytest.mark.parametrize(
    ("make_module", "message"),
    [
        (None, r"numbers of a Sequential, not its code: .* make_module\(3, 3\) makes a new Sequential"),
        (functools.partial(net, width=6), r"'0.weight' has the shape \(5, 3\) in the file and \(6, 3\)"),
        (other_names, "the file has a tensor '0.bias', and the module has none"),
        (nn.Linear, "the file has a tensor '0.bias', and the module has none"),
        (lambda: net(3, 3), r"make_module\(3, 3\) failed: .*positional argument"),
        (lambda d, c: "a net", r"make_module\(3, 3\) must return an nn.Module; got str"),
    ],
)
def test_a_module_that_does_not_fit(path, make_module, message):
    save(trained(), path)
    with pytest.raises(ModelFileError, match=message) as caught:
        load(path, make_module=make_module)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_make_module_itself_raises_is_not_hidden(path):
    save(trained(), path)

    def broken(inputs, outputs):
        raise OSError("no weights there")

    with pytest.raises(ModelFileError, match="failed: OSError: no weights there") as caught:
        load(path, make_module=broken)
    assert isinstance(caught.value.__cause__, OSError)


def test_damaged_files(path):
    save(trained(), path)
    content, chance = path.read_bytes(), random.Random(0)
    for _ in range(1_000):
        broken = damaged(content, chance)
        if broken == content:
            continue
        path.write_bytes(broken)
        with pytest.raises(ModelFileError):
            load(path, make_module=net)


_WITHOUT_PYTORCH = """
import sys, tailproof as tp
linear, network = sys.argv[1:]
tp.load(linear)
print("torch" in sys.modules)
sys.modules["torch"] = None
try:
    tp.load(network)
except ImportError as error:
    print(error)
sys.argv = ["tailproof", "info", network]
from tailproof.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def without_pytorch(tmp_path_factory):
    """A fresh interpreter loads a linear model, then a network without PyTorch, and asks for information."""
    folder = tmp_path_factory.mktemp("models")
    save(tp.DCSGDRegressor(random_state=0).fit(X, NUMBERS), folder / "linear")
    save(trained(module=None), folder / "network")
    command = [sys.executable, "-c", _WITHOUT_PYTORCH, folder / "linear", folder / "network"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_linear_models_take_no_pytorch_along(without_pytorch):
    assert without_pytorch.stdout.splitlines()[0] == "False", without_pytorch.stderr


def test_without_pytorch_the_extra_is_named(without_pytorch):
    (message,) = without_pytorch.stdout.splitlines()[1:]
    assert "pip install 'tailproof[torch]'" in message


def test_the_command_line_does_not_ask_for_pytorch(without_pytorch):
    done = without_pytorch
    assert done.returncode == 2
    assert done.stderr.strip().endswith("the command line needs a model that `tailproof fit` wrote")
    assert "holds a TorchRVClassifier from Python" in done.stderr
