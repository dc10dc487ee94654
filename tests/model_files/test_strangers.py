"""Model files from strangers: refused in one sentence, or they work; bounded memory; nothing left behind."""

import json
import os
import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)

import tailproof as tp
from model_fuzz import mutated, outcome, saved
from tailproof.model_files import classes, files
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


def tree_of(model):
    return json.loads(files._described(model, True)[1]["tailproof"])["model"]


def test_a_file_that_says_it_was_not_tried_is_tried_all_the_same(tmp_path):
    model = make_pipeline(StandardScaler(), Ridge()).fit(X, X[:, 0])
    model.steps[0] = ("scaler", StandardScaler().fit(X[:, :2]))  # of two columns before a model of three
    tensors = files._described(model, True)[0]
    header = json.dumps({"format": 1, "version": "0.2.0", "tried": False, "model": tree_of(model)})
    metadata = {"tailproof": header, "sha256": checksum(header, tensors)}
    (tmp_path / "m").write_bytes(save_tensors(tensors, metadata=metadata))
    with pytest.raises(ModelFileError, match="Pipeline cannot be used: X has 2 features"):
        load(tmp_path / "m")
    with pytest.raises(ValueError, match=r"Pipeline cannot be saved: .*: X has 2 features"):
        tp.save(model, tmp_path / "n")


def test_a_model_that_takes_no_made_up_row_comes_back_with_a_word(tmp_path):
    rows = np.array([[3.0], [7.0]])
    model = make_pipeline(MaxAbsScaler(), OneHotEncoder(), Ridge()).fit(rows, [0.0, 1.0])
    model.steps[0] = ("scaler", MaxAbsScaler().fit(10 * rows))
    model.steps[1][1].categories_ = [np.array([0.042, 0.1])]
    tp.save(model, tmp_path / "m")
    with pytest.warns(UserWarning, match=r"could not be tried on a made-up row \(.*unknown categor"):
        again = load(tmp_path / "m")
    assert again.predict([[7.0]]) == model.predict([[7.0]])


def test_made_up_rows_are_several(tmp_path):
    """Zero, a half, and what an imputer fills in, are tried where ones will not do."""
    counts = np.array([[3.0], [3.0], [7.0]])
    imputed = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(), Ridge())
    open_ends = make_pipeline(FunctionTransformer(np.arctanh), Ridge())
    for model, rows in ((imputed, counts), (open_ends, X / 10)):
        model.fit(rows, rows[:, 0])
        tp.save(model, tmp_path / "m")
        assert np.array_equal(load(tmp_path / "m").predict(rows), model.predict(rows))


class Idle(BaseEstimator):
    """Neither predicts nor transforms."""


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([StandardScaler(), Idle()], "last step of its pipeline neither predicts nor transforms"),
        ([Ridge(), Ridge()], "step before the last of its pipeline does not transform"),
        ([], "a step is no estimator"),
    ],
)
def test_pipelines_that_do_nothing(tmp_path, monkeypatch, steps, words):
    monkeypatch.setitem(classes.CLASSES, "Idle", Idle)
    monkeypatch.setattr(classes, "NAMES", (*classes.NAMES, "Idle"))
    model = Pipeline([(str(number), step) for number, step in enumerate(steps)] or [("only", None)])
    for change in ({}, {"tried": False}):
        (tmp_path / "m").write_bytes(forged(tree_of(model), **change))
        with pytest.raises(ModelFileError, match=words):
            load(tmp_path / "m")


def test_coefficients_of_single_precision_load_without_a_warning(tmp_path):
    model = Ridge().fit(X.astype(np.float32), X[:, 0].astype(np.float32))
    assert model.coef_.dtype == np.float32
    tp.save(model, tmp_path / "m")
    assert np.array_equal(load(tmp_path / "m").coef_, model.coef_)


@pytest.mark.parametrize(
    "change",
    [
        lambda stream: setattr(stream.dealer, "_left", np.array([99])),
        lambda stream: setattr(stream, "dealt", np.zeros(7, dtype=np.intp)),
        lambda stream: stream.states.pop(),
        lambda stream: stream.states[0].coef.fill(np.nan),
    ],
)
def test_a_state_of_partial_fit_that_does_not_fit_is_refused(tmp_path, change):
    model = tp.DCSGDRegressor(k=3, random_state=0).partial_fit(X, X[:, 0])
    change(model._stream)
    tensors, metadata = files._described(model, True)
    (tmp_path / "m").write_bytes(save_tensors(tensors, metadata=metadata))
    with pytest.raises(ModelFileError, match="the state of its partial_fit does not fit the model"):
        load(tmp_path / "m")


def _one_class(model):
    model.classes_ = model.classes_[:1]


def _odd_mark(model):
    model.dialect_ = replace(model.dialect_, decimal="x")


@pytest.mark.parametrize(
    ("make", "change", "words"),
    [
        (tp.DCSGDClassifier, _one_class, "coef_ is not what a fit makes"),
        (
            tp.DCSGDRegressor,
            lambda model: model.set_params(delta=None),
            "'delta' parameter of DCSGDRegressor",
        ),
        (lambda **_: tp.TableRegressor(Ridge()), _odd_mark, "a decimal mark that is neither"),
    ],
)
def test_what_fails_only_for_some_rows_or_later_is_refused(tmp_path, make, change, words):
    model = make(random_state=0).fit(X, (X[:, 0] > 0).astype(int))
    change(model)
    tensors, metadata = files._described(model, True)
    (tmp_path / "m").write_bytes(save_tensors(tensors, metadata=metadata))
    with pytest.raises(ModelFileError, match=words):
        load(tmp_path / "m")


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


def test_a_file_is_whole_when_it_gets_its_name(tmp_path, monkeypatch):
    replace, sizes = os.replace, []

    def watched(source, target):
        sizes.append(os.path.getsize(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write_whole(tmp_path / "m", b"whole")
    assert sizes == [5]


def test_a_file_that_another_save_takes_for_a_leftover_is_written_again(tmp_path, monkeypatch):
    lock, taken = files._lock, []

    def late(file):
        if not taken:
            taken.append(file.name)
            os.unlink(file.name)  # before it is locked
        return lock(file)

    monkeypatch.setattr(files, "_lock", late)
    write_whole(tmp_path / "m", b"whole")
    assert (tmp_path / "m").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["m"]
    assert taken


def test_a_model_that_would_predict_nothing_is_not_saved(tmp_path):
    model = tp.DCSGDRegressor(random_state=0).fit(X, X[:, 0])
    model.coef_ = model.coef_ * np.nan
    with pytest.raises(ValueError, match=r"cannot be saved: DCSGDRegressor\.coef_ is not what a fit makes"):
        tp.save(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []
