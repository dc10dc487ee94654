"""Runs that are interrupted, resumed and shared between processes end with the same table."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest

from tailproof.paper.catalogue import get_experiment
from tailproof.paper.experiments import EXPERIMENTS, Experiment, Setting, run_trial
from tailproof.paper.methods import METHODS
from tailproof.paper.runs import run
from tailproof.paper.simulated import LEVELS
from tailproof.paper.store import Store, load
from tailproof.paper.variants import Choices

TRIALS = 3


def store_of(folder, name="sc-e1", **choices):
    chosen = Choices(**choices)
    return Store(folder, get_experiment(name, chosen), chosen)


def table_of(store):
    parts = [table for setting in store.experiment.settings for table in store.read(setting.name)]
    return pa.concat_tables(parts).sort_by(
        [(name, "ascending") for name in ("setting", "trial", "method", "step")]
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run in this process."""
    store = store_of(tmp_path_factory.mktemp("whole"))
    assert run(store, TRIALS, jobs=1) == 2 * TRIALS
    return store


def command(folder):
    return [sys.executable, "-m", "tailproof", "paper", "run", "sc-e1", "--trials", str(TRIALS),
            "--jobs", "1", "--out", str(folder)]  # fmt: skip


def test_killed_and_resumed_gives_the_same_table(tmp_path, whole):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(tmp_path), **quiet)
    folder, deadline = tmp_path / "sc-e1", time.monotonic() + 300
    while len(list(folder.glob("*.parquet"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*.parquet")}
    assert 2 <= len(before) < 2 * TRIALS
    (folder / ".normal.00099.parquet.tmp-1").touch()  # as if killed while writing

    done = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=300, check=True)
    assert f"{2 * TRIALS - len(before)} trials run" in done.stdout
    assert all(file.stat().st_mtime_ns == then for file, then in before.items())  # none repeated
    assert not list(folder.glob(".*"))
    assert table_of(store_of(tmp_path)).equals(table_of(whole))


def test_numbers_do_not_depend_on_the_number_of_jobs(tmp_path, whole):
    store = store_of(tmp_path)
    run(store, 2, jobs=2)
    wanted = table_of(whole).filter(pa.compute.less(table_of(whole)["trial"], 2))
    assert table_of(store).equals(wanted)


def with_trials_of(whole, folder, trials):
    store = store_of(folder)
    store.folder.mkdir()
    for file in whole.folder.glob("*.parquet"):
        if int(file.stem.rpartition(".")[2]) < trials:
            shutil.copy(file, store.folder)
    return store


def test_packed_trials_are_read_and_continued_as_loose_ones_are(tmp_path, whole):
    store = with_trials_of(whole, tmp_path, 2)
    size = sum(file.stat().st_size for file in store.folder.glob("*.parquet"))
    assert store.pack() == tmp_path / "sc-e1.parquet"
    assert not store.folder.exists()
    assert store.archive.stat().st_size < size / 3
    assert run(store, TRIALS, jobs=1) == 2  # only the third trial of either noise
    store.pack()
    assert store.missing(["normal", "lognormal"], TRIALS) == []
    found, wanted = table_of(store), table_of(whole)
    assert found.drop_columns("excess").equals(wanted.drop_columns("excess"))
    np.testing.assert_allclose(found["excess"], wanted["excess"], rtol=1e-5)


def test_nothing_cannot_be_packed(tmp_path):
    with pytest.raises(ValueError, match="there is nothing to pack"):
        store_of(tmp_path).pack()


def test_more_trials_keep_those_that_are_there(tmp_path, whole):
    store = store_of(tmp_path)
    assert run(store, 1, jobs=1) == 2
    assert run(store, 2, jobs=1) == 2
    assert run(store, 2, jobs=1) == 0
    seen = []
    run(store, 2, on_start=lambda *counts: seen.append(counts))
    assert seen == [(4, 4)]


def test_trials_without_a_method_that_came_later_can_still_be_read(tmp_path, whole):
    store = with_trials_of(whole, tmp_path, 2)
    for file in store.folder.glob("*.parquet"):
        table = pa.parquet.read_table(file)
        pa.parquet.write_table(table.filter(pa.compute.not_equal(table["method"], "RGD-M [sd]")), file)
    assert set(load(store)["normal"]) == set(store.experiment.setting("normal").budgets) - {"RGD-M [sd]"}


def test_seeds_and_choices_have_their_own_folder_and_numbers(tmp_path, whole):
    other = store_of(tmp_path, seed=5)
    assert other.folder != store_of(tmp_path).folder
    run(other, 1, jobs=1)
    first = load(other)["normal"]["ERM-GD"].excess[0]
    assert not np.array_equal(first, load(whole)["normal"]["ERM-GD"].excess[0])


def test_methods_of_a_trial_share_data_and_start(whole):
    methods = load(whole)["lognormal"]
    starts = {
        name: methods[name].excess[:, 0] for name in ("ERM-GD", "RGD-MoM", "RGD-M", "RGD-Lec", "true GD")
    }
    for found in starts.values():
        assert np.array_equal(found, starts["ERM-GD"])


def test_loaded_curves_are_what_the_trials_were(whole):
    experiment = whole.experiment
    records = run_trial(experiment, experiment.setting("normal"), 1, Choices())
    found = load(whole)["normal"]
    assert list(found) == [record.method for record in records]
    for record in records:
        assert np.array_equal(found[record.method].excess[1], record.excess)
        assert np.array_equal(found[record.method].costs, record.costs)
    assert np.isnan(found["SGD"].seconds).all()


def test_timed_experiments_record_seconds(tmp_path):
    big = get_experiment("sc-e3")
    small = Experiment(
        "sc-e3", "", tuple(s for s in big.settings if s.name == "lognormal fixed d=2"), 1, 1, True
    )
    store = Store(tmp_path, small, Choices())
    run(store, 1)
    found = load(store)["lognormal fixed d=2"]
    assert all(curves.seconds[0] > 0 and curves.processor[0] > 0 for curves in found.values())
    for workers in ("threads", "processes"):
        assert np.array_equal(found["DC-SGD"].final, found[f"DC-SGD, 2 {workers}"].final)


@pytest.mark.parametrize("count", [0, -1])
def test_bad_counts(tmp_path, count):
    with pytest.raises(ValueError, match="number of trials must be at least 1"):
        run(store_of(tmp_path), count)
    with pytest.raises(ValueError, match="number of jobs must be at least 1"):
        run(store_of(tmp_path), 1, jobs=count)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="cannot write to"):
        run(store_of(tmp_path), 1)


def test_experiments_are_as_the_paper_states():
    assert list(EXPERIMENTS) == [*(f"sc-e{i}" for i in range(1, 6)), *(f"nonsc-e{i}" for i in range(1, 5))]
    first = get_experiment("sc-e1").setting("lognormal")
    assert (first.problem.n, first.problem.d, first.problem.b) == (500, 2, 1.75)
    assert set(first.budgets.values()) == {40 * 500 * 2**0.5}
    second = get_experiment("sc-e2")
    for setting in second.settings:
        n = setting.problem.n
        assert setting.problem.divided
        assert {setting.budgets[m] for m in ("ERM-GD", "RGD-MoM", "RGD-M", "RGD-Lec")} == {100 * n}
        assert {setting.budgets[m] for m in setting.budgets if m.startswith("DC-SGD")} == {2 * n}
    assert {(s.problem.n, s.problem.d) for s in second.settings} == {
        *((2500, 2**p) for p in range(1, 11)),
        (64_000, 16),
    }
    assert {(s.problem.n, s.problem.d) for s in get_experiment("sc-e3").settings} >= {
        (4000 * d, d) for d in (2, 4, 8, 16, 32, 64)
    }
    assert {s.problem.reach for s in get_experiment("sc-e4").settings} == {2.5, 5.0, 10.0}
    assert {s.problem.b for s in get_experiment("sc-e5").settings} == {
        b for levels in LEVELS.values() for b in levels.values()
    }
    flat = get_experiment("nonsc-e2").setting("normal d=128")
    assert flat.problem.flat
    assert (flat.budgets["RV-SGDAve"], flat.average_after) == (5000, 2500)
    assert flat.budgets["RV-SGDAve, more passes"] == 50_000
    assert [get_experiment(name).full_trials for name in EXPERIMENTS] == [
        100,
        250,
        250,
        100,
        100,
        100,
        250,
        250,
        100,
    ]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_names_methods_that_exist(name):
    for setting in get_experiment(name).settings:
        assert isinstance(setting, Setting)
        assert set(setting.budgets) <= set(METHODS)


def test_variants_change_what_they_say():
    half = get_experiment("nonsc-e2", Choices(rv_passes="half")).setting("normal d=2")
    assert (half.budgets["RV-SGDAve"], half.average_after) == (2500, 1250)
    late = get_experiment("nonsc-e1", Choices(rv_average="after-n")).setting("normal")
    assert late.average_after == 500
    text = get_experiment("sc-e2", Choices(dc_budget="n")).setting("normal large")
    assert text.budgets["DC-SGD"] == 64_000
    far = get_experiment("nonsc-e2", Choices(flat_start="undivided")).setting("normal d=2")
    assert not far.problem.divided
