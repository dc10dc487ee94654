"""Section 4.3: the data as the paper prepares them, and experiments on small data made on the spot."""

import os
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils import Bunch
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

from tailproof.cli.app import app
from tailproof.core.means import catoni
from tailproof.paper.catalogue import get_experiment
from tailproof.paper.figures import draw
from tailproof.paper.judging import judge
from tailproof.paper.real import data as real
from tailproof.paper.real import training
from tailproof.paper.real.claims import REAL_CLAIMS
from tailproof.paper.real.settings import FACTORS, METRICS, NETWORKS, REAL_METHODS, curve
from tailproof.paper.real.training import EPOCHS, RealRun, run_trial
from tailproof.paper.store import Store, load
from tailproof.paper.variants import Choices


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small(n=400, d=6, classes=3, name="mnist"):
    random = np.random.default_rng(0)
    X = random.random((n, d)).astype(np.float32)
    y = (X @ random.standard_normal((d, classes))).argmax(axis=1)
    chance = np.bincount(y).max() / n
    return real.RealData(name, X, y.astype(np.int64), classes, chance, "made here")


@pytest.fixture
def folder(tmp_path):
    """Local files of two data sets, in the layout of the real ones."""
    random = np.random.default_rng(0)
    images = random.integers(0, 200, (400, 9)).astype(np.uint8)
    images[:, 4] = 7
    np.savez(tmp_path / "mnist.npz", X=images, y=(images[:, 0] // 70).astype(np.uint8))
    frame = pd.DataFrame(
        {
            "age": random.integers(17, 90, 60),
            "work": pd.Categorical(random.choice(["a", "b", "c"], 60)),
            "income": pd.Categorical(np.where(np.arange(60) % 3, "<=50K", ">50K")),
            "split": pd.Categorical(["train"] * 60),
        }
    )
    frame.loc[[3, 5], "work"] = None
    frame.to_parquet(tmp_path / "adult.parquet")
    return tmp_path


def test_images_go_to_the_unit_interval_by_column(folder):
    data = real.load("mnist", folder)
    assert data.X.dtype == np.float32
    assert data.X.shape == (400, 9)
    assert data.classes == 3
    for column in np.delete(data.X, 4, axis=1).T:
        assert column.min() == 0
        assert column.max() == pytest.approx(1, abs=1e-6)
    assert not data.X[:, 4].any()
    assert data.chance == np.bincount(data.y).max() / 400


def test_tables_lose_incomplete_rows_and_one_hot_their_categories(folder):
    data = real.load("adult", folder)
    assert data.X.shape == (58, 4)
    assert np.array_equal(data.X[:, 1:].sum(axis=1), np.ones(58))
    assert set(np.unique(data.X[:, 1:])) == {0.0, 1.0}
    assert "104 columns" in data.origin
    assert real.available(folder) == ["adult", "mnist"]


def test_openml_gives_the_same_as_files(folder):
    frame = pd.read_parquet(folder / "adult.parquet")
    asked = []

    def fetch(**arguments):
        asked.append(arguments)
        return Bunch(data=frame.drop(columns=["income", "split"]), target=frame["income"])

    found = real.load("adult", folder / "elsewhere", fetch=fetch)
    assert asked[0]["name"] == "adult"
    assert asked[0]["version"] == 2
    np.testing.assert_array_equal(found.X, real.load("adult", folder).X)
    np.testing.assert_array_equal(found.y, real.load("adult", folder).y)


def test_a_missing_data_set_names_both_ways(tmp_path):
    def no_network(**arguments):
        raise ConnectionError("no route")

    with pytest.raises(OSError, match=r"cifar10_10k\.npz in a folder.*TAILPROOF_DATA.*OpenML.*'CIFAR_10'"):
        real.load("cifar10", tmp_path, fetch=no_network)
    with pytest.raises(ValueError, match="data set must be one of"):
        real.load("iris", tmp_path)


@pytest.mark.parametrize("limit", [0, 300])
def test_split_is_a_shuffled_partition(limit):
    parts = real.split(10_000, np.random.SeedSequence(1), limit)
    rows = np.concatenate([parts.train, parts.validation, parts.test])
    assert np.unique(rows).size == rows.size
    sizes = (parts.train.size, parts.validation.size, parts.test.size)
    assert sizes == ((272, 27, 1200) if limit else (8000, 800, 1200))
    other = real.split(10_000, np.random.SeedSequence(2), limit)
    assert not np.array_equal(parts.test, other.test)
    with pytest.raises(ValueError, match="too few"):
        real.split(5, np.random.SeedSequence(0))


def values(records):
    return {record.method: record.excess for record in records}


def torch_network(run, w):
    """The same network in PyTorch."""
    layers = []
    for inputs, outputs in pairwise(run.sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
    torch.nn.utils.vector_to_parameters(torch.as_tensor(w), network.parameters())
    return network


def test_threads_change_nothing():
    one, two = (values(run_trial(RealRun(small(), 1, 0.5, jobs=jobs), 0)) for jobs in (1, 2))
    assert all(np.array_equal(found, two[name]) for name, found in one.items())


@pytest.mark.parametrize("hidden", [0, 2])
def test_bench_is_plain_sgd_on_training_and_validation_rows(hidden):
    data = small()
    run = RealRun(data, hidden, 0.1, every_epoch=True)
    found = values(run_trial(run, 0))
    seed = training._seed(run, 0)
    parts = real.split(400, seed)
    block = training.Block(0, np.concatenate([parts.train, parts.validation]), seed.spawn(1)[0])
    child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, 2**32 - 4))
    X, y = torch.as_tensor(data.X), torch.as_tensor(data.y)
    # Steps eight times as long are chaotic: PyTorch itself, in float32 and float64, parts by 10% at epoch 12.
    for factor, epochs in ((1, EPOCHS), (8, 10)):
        network = torch_network(run, training.first_parameters(run.sizes, child))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1 * factor)
        for epoch in range(epochs):
            for rows in torch.as_tensor(block.order(epoch)).split(8):
                optimizer.zero_grad()
                cross_entropy(network(X[rows]), y[rows]).backward()
                optimizer.step()
            loss = cross_entropy(network(X[parts.test]), y[parts.test]).item()
            assert found[curve("bench", factor, "test_loss")][epoch] == pytest.approx(loss, rel=1e-4)


def test_first_parameters_are_those_of_linear_layers():
    w = training.first_parameters([50, 40, 3], np.random.SeedSequence(1))
    network = torch_network(RealRun(small(d=50, classes=3), 0, 0.1), np.zeros(153, dtype=np.float32))
    assert w.size == 51 * 40 + 41 * 3
    hidden, last = w[: 51 * 40], w[51 * 40 :]
    for part, inputs in ((hidden, 50), (last, 40)):
        assert np.abs(part).max() <= 1 / inputs**0.5
        assert part.std() == pytest.approx(1 / (3 * inputs) ** 0.5, rel=0.1)
    assert network[0].reset_parameters() is None
    assert network[0].weight.detach().abs().max() <= 50**-0.5


@pytest.mark.parametrize(("start", "distinct"), [("one", 1), ("each", training.K + 1)])
def test_a_trial_has_one_start_or_one_for_each_sub_process(start, distinct, monkeypatch):
    starts, first = [], training.first_parameters

    def recorded(sizes, seed):
        starts.append(first(sizes, seed))
        return starts[-1].copy()

    monkeypatch.setattr(training, "first_parameters", recorded)
    run_trial(RealRun(small(), 1, 0.1, start=start, jobs=1), 0)
    assert len(starts) == (training.K + 1) * len(FACTORS)
    assert len({w.tobytes() for w in starts}) == distinct


def test_merging_networks_needs_one_start():
    """From one start the merged network learns what bench learns; from k of them it is near chance."""
    random = np.random.default_rng(3)
    X = random.random((4000, 8)).astype(np.float32)
    y = ((X - 0.5) @ random.standard_normal((8, 4))).argmax(axis=1).astype(np.int64)
    data = real.RealData("mnist", X, y, 4, np.bincount(y).max() / y.size, "made here")
    name = curve("DC-SGD", 8, "test_accuracy")
    one, each = (
        values(run_trial(RealRun(data, 1, 0.05, start=start), 0))[name][-1] for start in ("one", "each")
    )
    assert one > each + 0.15


def test_the_winner_has_the_least_robust_risk_of_the_averages():
    run = RealRun(small(), 0, 0.1, jobs=1)
    seed = training._seed(run, 0)
    parts = real.split(400, seed)
    cut = [
        training.Block(b.index, parts.train[b.rows], b.seed) for b in training.blocks(320, training.K, seed)
    ]
    averages = [training._train(run, seed, (block, 4)).average for block in cut]
    X, y = torch.as_tensor(run.data.X[parts.validation]), torch.as_tensor(run.data.y[parts.validation])
    risks = [
        catoni(cross_entropy(torch_network(run, w)(X), y, reduction="none").detach().numpy(), delta=0.01)
        for w in averages
    ]
    chosen = torch_network(run, averages[int(np.argmin(risks))])
    test = torch.as_tensor(run.data.X[parts.test])
    right = (chosen(test).argmax(dim=1).numpy() == run.data.y[parts.test]).mean()
    assert values(run_trial(run, 0))[curve("RV-SGDAve", 4, "test_accuracy")][-1] == pytest.approx(right)


def test_records_are_complete_and_cost_is_per_core():
    task = RealRun(small(), 0, 0.1, every_epoch=True)
    records = {record.method: record for record in run_trial(task, 3)}
    setting = get_experiment("real-e1").settings[0]
    assert set(records) == set(setting.budgets)
    assert records[curve("DC-SGD", 1, "test_loss")].costs.tolist() == [16 * e for e in range(1, EPOCHS + 1)]
    assert records[curve("bench", 1, "test_loss")].costs.tolist() == [352 * e for e in range(1, EPOCHS + 1)]
    assert records["chance"].excess[0] == task.data.chance
    accuracies = [records[curve(m, f, "test_accuracy")].excess[-1] for m in REAL_METHODS for f in FACTORS]
    assert min(accuracies) >= 0
    assert max(accuracies) <= 1
    assert len(METRICS) == 3


@pytest.mark.parametrize("name", ["real-e1", "real-e2"])
def test_command_runs_resumes_draws_and_judges(folder, tmp_path, name):
    runner, out = CliRunner(), tmp_path / "out"
    models = 1 if name == "real-e1" else len(NETWORKS)

    def run(trials):
        options = ["--only", "adult", "--data-dir", str(folder), "--out", str(out), "--trials", trials]
        return runner.invoke(app, ["paper", "run", name, *options])

    assert f"{models} trials run" in run("1").stdout
    assert f"{models} trials run" in run("2").stdout
    assert "0 trials run" in run("2").stdout
    store = Store(out, get_experiment(name), Choices())
    results = load(store)
    assert store.folder.name == f"{name}@start=one"
    assert len(results) == models
    files = draw(store, results, tmp_path / "figures")
    assert all(file.stat().st_size > 10_000 for file in files)
    mine = [c for c in REAL_CLAIMS if c.experiment == name and set(c.settings) <= set(results)]
    assert len(mine) == (7 if name == "real-e1" else 11)
    assert all(judge(claim, results, resamples=20).verdict for claim in mine)


def test_a_run_without_data_or_with_a_wrong_name_says_so(tmp_path):
    runner = CliRunner()
    wrong = runner.invoke(app, ["paper", "run", "real-e1", "--only", "iris", "--out", str(tmp_path)])
    assert wrong.exit_code == 2
    assert "no setting of real-e1 has 'iris' in its name" in wrong.stderr


@pytest.mark.skipif(not os.environ.get(real.VARIABLE), reason=f"{real.VARIABLE} names no folder of data")
@pytest.mark.parametrize(
    ("name", "shape", "classes"), [("adult", (45_222, 104), 2), ("cod_rna", (331_152, 8), 2)]
)
def test_local_files_have_the_sizes_of_the_paper(name, shape, classes):
    if name not in real.available():
        pytest.skip(f"no local file of {name}")
    data = real.load(name)
    assert data.X.shape == shape  # the paper says 105 columns of adult
    assert data.classes == classes
