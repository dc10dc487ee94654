import errno
import os
import pickle
import random
import stat

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors
from sklearn.base import is_classifier
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import tailproof as tp
from damage import damaged
from tailproof.core.sets import Ball
from tailproof.core.steps import Theorem1
from tailproof.model_files import files
from tailproof.model_files.classes import CLASSES
from tailproof.model_files.files import ModelFileError, describe, load, save, write_whole
from tailproof.model_files.tree import Reader, Writer, rebuilt

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 4))
NUMBERS = X.sum(axis=1) + rng.standard_normal(300)
LABELS = np.array(["red", "green", "blue"])[rng.integers(0, 3, 300)]

ESTIMATORS = [name for name, cls in CLASSES.items() if hasattr(cls, "fit")]
NEEDS = {  # what an estimator cannot be made without
    "DivideAndConquer": {"estimator": LinearRegression()},
    "RobustValidation": {"estimator": make_pipeline(StandardScaler(), Ridge()), "k": 4},
    "Pipeline": {"steps": [("scale", StandardScaler()), ("model", LinearRegression())]},
    "FeatureUnion": {"transformer_list": [("scale", StandardScaler()), ("again", StandardScaler())]},
    "ColumnTransformer": {"transformers": [("scale", StandardScaler(), [0, 2])], "remainder": "passthrough"},
    "TransformedTargetRegressor": {"regressor": Ridge(), "func": np.arcsinh, "inverse_func": np.sinh},
    "QuantileTransformer": {"n_quantiles": 20},
    "OneHotEncoder": {"sparse_output": False},
    "KBinsDiscretizer": {"encode": "onehot-dense", "strategy": "uniform"},
}


def fitted(name, **settings):
    cls = CLASSES[name]
    given = {"random_state": 3} if "random_state" in cls._get_param_names() else {}
    model = cls(**given, **NEEDS.get(name, {}), **settings)
    return model.fit(X, LABELS if is_classifier(model) else NUMBERS)


def answers(model):
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_model_comes_back_as_it_was(name, tmp_path):
    model, path = fitted(name), tmp_path / "a model.tailproof"
    save(model, path)
    again = load(path)
    assert type(again) is type(model)
    assert repr(again.get_params()) == repr(model.get_params())
    assert np.array_equal(answers(again), answers(model))
    ours = type(model).__module__.startswith("tailproof")
    # What is as long as the data is no part of the model.
    remade = {"_loss_function_", "_expanded_class_weight", "_store_cv_results", "row_weights_"}
    kept = {key for key in vars(model) if not (key in remade or (ours and key.startswith("_")))}
    assert set(vars(again)) == kept
    if hasattr(model, "report_"):
        assert str(again.report_) == str(model.report_)
    assert describe(path)["class"] == name
    assert os.listdir(tmp_path) == [path.name]


def test_parameters_of_every_kind(tmp_path):
    start = (np.zeros(4), 1.5)
    model = tp.DCSGDRegressor(
        step_size=Theorem1(2.0), constraint=Ball(5.0), init=start, alpha=np.float32(0.5)
    )
    model.set_params(random_state=np.random.RandomState(0)).fit(X, NUMBERS)
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.step_size == model.step_size
    assert again.constraint == model.constraint
    assert again.random_state is None
    assert isinstance(again.init, tuple)
    assert again.init[1] == 1.5


def test_values_that_json_has_no_word_for(tmp_path):
    model = fitted("RVSGDClassifier")
    model.note_ = {
        1: (np.nan, -np.inf),
        "text": [None, True, "ü<script>"],
        (2, 3): np.array([], dtype=np.int8),
    }
    save(model, tmp_path / "m")
    note = load(tmp_path / "m").note_
    assert np.isnan(note[1][0])
    assert note[1][1] == -np.inf
    assert note["text"] == [None, True, "ü<script>"]
    assert note[2, 3].dtype == np.int8


def test_feature_names_survive(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "ä", "d e"])
    model = tp.DCSGDRegressor(random_state=0).fit(frame, NUMBERS)
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.feature_names_in_.tolist() == frame.columns.tolist()
    assert np.array_equal(again.predict(frame), model.predict(frame))


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        tp.DCSGDClassifier(k=3, max_iter=2, random_state=0),
        LogisticRegression(),
    ],
)
@pytest.mark.parametrize("meta", [tp.DivideAndConquer, tp.RobustValidation])
def test_meta_estimators_with_what_they_fitted(meta, estimator, tmp_path):
    model = meta(estimator, k=3, random_state=0).fit(X, LABELS)
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.classes_.tolist() == ["blue", "green", "red"]
    assert len(again.candidates_) == len(model.candidates_)
    assert type(again.fit(X, LABELS).estimator_) is type(model.estimator_)


def test_a_linear_winner_is_saved_whatever_it_was_up_against(tmp_path):
    model = tp.RobustRegressor(candidates=[DecisionTreeRegressor(max_depth=1)], random_state=0)
    model.fit(X, NUMBERS)
    assert not hasattr(model, "estimator_")
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.candidates is None
    assert np.array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "model",
    [
        tp.RobustRegressor(candidates=[DecisionTreeRegressor(max_depth=3)], random_state=0),
        tp.RobustValidation(DecisionTreeRegressor(), k=3, random_state=0),
        tp.RobustValidation(RandomForestRegressor(3), k=3, random_state=0),
    ],
)
def test_trees_say_why_not(model, tmp_path):
    model.fit(X, 100.0 * (X[:, 0] > 0))
    with pytest.raises(TypeError, match=r"_ is a .*(Tree|Forest).*, which cannot be saved without pickle"):
        save(model, tmp_path / "m")
    assert not os.listdir(tmp_path)


def test_no_folder_of_pickles_comes_out_of_a_file(tmp_path):
    pipeline = make_pipeline(StandardScaler(), LinearRegression(), memory=str(tmp_path / "pickles"))
    tree = Writer().write(pipeline, "")
    tree["state"]["memory"] = str(tmp_path / "pickles")
    assert Reader({}).read(tree).memory is None


def test_what_is_not_ours_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match="DecisionTreeRegressor, which cannot be saved without pickle"):
        save(DecisionTreeRegressor().fit(X, NUMBERS), tmp_path / "m")

    class Mine(tp.DCSGDRegressor):
        pass

    with pytest.raises(TypeError, match="Mine, which cannot be saved"):
        save(Mine().fit(X, NUMBERS), tmp_path / "m")
    assert not os.listdir(tmp_path)


def test_damaged_files_give_clear_errors_and_nothing_else(tmp_path):
    path = tmp_path / "m"
    save(fitted("RVSGDClassifier"), path)
    content, chance = path.read_bytes(), random.Random(0)
    for _ in range(10_000):
        broken = damaged(content, chance)
        if broken == content:
            continue
        path.write_bytes(broken)
        with pytest.raises(ModelFileError) as caught:
            load(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize(
    "content", [b"", b"hello", pickle.dumps(Bomb()), save_tensors({"a": np.ones(3)}), b"\xff" * 100]
)
def test_foreign_files(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ModelFileError):
        load("m")
    assert os.listdir(tmp_path) == ["m"]


def forged(header):
    return save_tensors({}, metadata={"tailproof": header, "sha256": files.checksum(header, {})})


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ('{"format": 99, "version": "9.0", "model": {}}', "written by tailproof 9.0"),
        (
            '{"format": 1, "version": "0", "model": {"#": "os.system", "state": {}}}',
            "unknown class 'os.system'",
        ),
        ('{"format": 1, "version": "0", "model": {"#": "DCSGDRegressor", "state": {}}}', "does not describe"),
        ('{"format": 1, "version": "0", "model": {"#": "array", "tensor": "7"}}', "does not describe"),
        ('{"format": 1, "version": "0", "model": ' + "[" * 5000 + "]" * 5000 + "}", "does not describe"),
        ("[]", "does not describe"),
        ("{", "does not describe"),
    ],
)
def test_forged_headers(tmp_path, header, message):
    (tmp_path / "m").write_bytes(forged(header))
    with pytest.raises(ModelFileError, match=message):
        load(tmp_path / "m")


def test_attributes_that_no_fit_makes(tmp_path):
    model = fitted("DCSGDRegressor")
    vars(model)["predict"] = "not a method"
    save(model, tmp_path / "fine")
    assert callable(load(tmp_path / "fine").predict)  # only fitted attributes are written
    tree = {"#": "Ball", "state": {"radius": 2.0}}
    assert Reader({}).read(tree) == Ball(2.0)
    with pytest.raises(ValueError, match="no fit makes"):
        rebuilt(tp.DCSGDRegressor, model.get_params() | {"__class__": 1})


class TestWritingWhole:
    def test_rights_are_the_usual_ones(self, tmp_path):
        (tmp_path / "usual").write_bytes(b"")
        write_whole(tmp_path / "ours", "text")
        rights = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "ours")]
        assert rights[0] == rights[1]
        assert (tmp_path / "ours").read_text() == "text"

    def test_a_failure_keeps_the_old_file_and_leaves_nothing(self, tmp_path, monkeypatch):
        write_whole(tmp_path / "m", b"old")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            write_whole(tmp_path / "m", b"new")
        assert (tmp_path / "m").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["m"]

    def test_no_such_folder(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            write_whole(tmp_path / "nowhere" / "m", b"")


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "m")
    with pytest.raises(ModelFileError, match="not a model file"):
        load(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to somebody else")
def test_a_link_of_another_user_is_not_followed(tmp_path):
    model = tp.DCSGDRegressor(k=2, random_state=0).fit(np.eye(40, 2), np.arange(40.0))
    (tmp_path / "private").write_text("secret")
    os.symlink(tmp_path / "private", tmp_path / "link")
    os.chown(tmp_path / "link", 65534, 65534, follow_symlinks=False)
    with pytest.raises(OSError, match="symbolic link of another user"):
        tp.save(model, tmp_path / "link")
    assert (tmp_path / "private").read_text() == "secret"


def test_a_folder_is_no_file_to_write(tmp_path):
    model = tp.DCSGDRegressor(k=2, random_state=0).fit(np.eye(40, 2), np.arange(40.0))
    with pytest.raises(IsADirectoryError, match="is a folder: give the name of a file"):
        tp.save(model, tmp_path)


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_an_error_of_the_disk_names_the_file_that_was_asked_for(tmp_path, monkeypatch, call):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "hidden", None, "other")

    monkeypatch.setattr(files.os, call, full)
    with pytest.raises(OSError, match=r"No space left on device: '.*model'$"):
        write_whole(tmp_path / "model", b"numbers")
    assert not list(tmp_path.iterdir())
