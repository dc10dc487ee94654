"""Model files from strangers: refused in one sentence, or they work; bounded memory; nothing left behind."""

import json
import os
import random
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors
from sklearn.preprocessing import PolynomialFeatures

import tailproof as tp
from model_fuzz import mutated, outcome, saved
from tailproof.model_files import files
from tailproof.model_files.files import ModelFileError, checksum, load, write_whole

X = np.random.default_rng(0).standard_normal((50, 3))


@pytest.mark.filterwarnings("ignore")  # numbers that were changed may overflow
def test_five_hundred_changed_files_are_refused_or_work(tmp_path):
    contents, chance = saved(tmp_path), random.Random(11)
    for number in range(500):
        content, rows = contents[number % len(contents)]
        (tmp_path / "changed").write_bytes(mutated(content, chance))
        assert outcome(tmp_path / "changed", rows) in ("refused", "works"), number


def forged(tree, **more):
    header = json.dumps({"format": 1, "version": "0.1.0", "model": tree} | more)
    return save_tensors({}, metadata={"tailproof": header, "sha256": checksum(header, {})})


def test_one_long_string_does_not_fill_the_memory(tmp_path):
    # 3.8 GB as fixed-width strings.
    names = {"#": "text", "items": ["y" * 10_000, *["n"] * 100_000], "shape": [100_001]}
    state = tp.DCSGDClassifier().get_params() | {"classes_": names}
    (tmp_path / "m").write_bytes(forged({"#": "DCSGDClassifier", "state": state}))
    assert os.path.getsize(tmp_path / "m") < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="strings would take more than"):
            load(tmp_path / "m")
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()


def test_numbers_in_a_file_do_not_make_it_large(tmp_path):
    model = PolynomialFeatures(2).fit(X)
    tree = json.loads(files._described(model, True)[1]["tailproof"])["model"]
    for name, value in {"n_features_in_": 2**40, "n_output_features_": 2**40}.items():
        changed = tree | {"state": tree["state"] | {name: value}}
        (tmp_path / "m").write_bytes(forged(changed))
        with pytest.raises(ModelFileError, match=f"PolynomialFeatures.{name} is not what a fit makes"):
            load(tmp_path / "m")
    changed = tree | {"state": tree["state"] | {"degree": 40, "_max_degree": 40, "n_features_in_": 1000}}
    (tmp_path / "m").write_bytes(forged(changed))
    with pytest.raises(ModelFileError, match="would make"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    "tree",
    [
        {"#": "Ball", "state": {"radius": 2.0}},
        {"#": "tuple", "items": []},
        {"#": ["DCSGDRegressor"], "state": {}},
        {"state": {}},
        {},
    ],
)
def test_parts_of_models_are_no_models(tmp_path, tree):
    (tmp_path / "m").write_bytes(forged(tree))
    with pytest.raises(ModelFileError):
        load(tmp_path / "m")


@pytest.mark.parametrize("change", [{"version": 3}, {"format": "1"}, {"format": True}, {"tried": 1}])
def test_headers_of_the_wrong_type(tmp_path, change):
    (tmp_path / "m").write_bytes(forged({"#": "Ridge", "state": {}}, **change))
    for read in (load, files.describe):
        with pytest.raises(ModelFileError, match="does not describe a model"):
            read(tmp_path / "m")


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path):
    left = tmp_path / f".m.{'0a' * 6}.unfinished"
    left.write_bytes(b"half")
    others = [
        tmp_path / ".m.unfinished",
        tmp_path / ".n.0a0a0a0a0a0a.unfinished",
        tmp_path / "m.0a0a0a0a0a0a",
    ]
    for other in others:
        other.write_bytes(b"not ours")
    write_whole(tmp_path / "m", b"whole")
    assert not left.exists()
    assert all(other.exists() for other in others)


def test_what_another_save_is_writing_stays(tmp_path):
    busy = tmp_path / f".m.{'0a' * 6}.unfinished"
    with open(busy, "wb") as file:
        files._lock(file)
        write_whole(tmp_path / "m", b"whole")
        assert busy.exists()


def test_a_model_that_would_predict_nothing_is_not_saved(tmp_path):
    model = tp.DCSGDRegressor(random_state=0).fit(X, X[:, 0])
    model.coef_ = model.coef_ * np.nan
    with pytest.raises(ValueError, match=r"cannot be saved: DCSGDRegressor\.coef_ is not what a fit makes"):
        tp.save(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []
