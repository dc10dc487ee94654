"""Pipelines of scikit-learn in model files: what is numbers and names comes back, all else is refused."""

import os

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    SplineTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

import tailproof as tp

rng = np.random.default_rng(0)
N = 200
FRAME = pd.DataFrame(
    {
        "size": np.where(rng.random(N) < 0.1, np.nan, rng.standard_normal(N)),
        "age": rng.integers(1, 90, N).astype(float),
        "colour": rng.choice(["red", "blue", "=1+1", "ä"], N),
        "grade": rng.choice(["low", "high"], N),
    }
)
Y = rng.standard_normal(N) + FRAME["age"].to_numpy() / 10
LABELS = np.where(np.median(Y) < Y, "yes", "no")
X = FRAME[["size", "age"]].to_numpy()


def by_columns(remainder="drop"):
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["size", "age"]),
            ("names", OneHotEncoder(handle_unknown="ignore", min_frequency=5), ["colour"]),
            ("order", OrdinalEncoder(categories=[["low", "high"]]), ["grade"]),
        ],
        remainder=remainder,
    )


PIPELINES = {
    "imputed": (make_pipeline(SimpleImputer(), Ridge()), X),
    "polynomials": (make_pipeline(SimpleImputer(), PolynomialFeatures(2), Ridge()), X),
    "columns": (make_pipeline(by_columns(), Ridge()), FRAME),
    "passthrough": (
        make_pipeline(
            ColumnTransformer([("c", OneHotEncoder(drop="first"), ["colour"])], remainder="passthrough"),
            SimpleImputer(),
            Ridge(),
        ),
        FRAME[["size", "age", "colour"]],
    ),
    "selected": (
        make_pipeline(
            ColumnTransformer([("n", SimpleImputer(), make_column_selector(dtype_include=np.number))]),
            Ridge(),
        ),
        FRAME,
    ),
    "nested": (make_pipeline(make_pipeline(SimpleImputer(), MinMaxScaler()), make_pipeline(Ridge())), X),
    "union": (make_pipeline(SimpleImputer(), make_union(StandardScaler(), PowerTransformer()), Ridge()), X),
    "logarithms": (make_pipeline(SimpleImputer(), FunctionTransformer(np.arcsinh), Ridge()), X),
    "bins": (make_pipeline(SimpleImputer(), KBinsDiscretizer(3, strategy="uniform"), Ridge()), X),
    "target": (
        make_pipeline(
            SimpleImputer(), TransformedTargetRegressor(Ridge(), func=np.arcsinh, inverse_func=np.sinh)
        ),
        X,
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_predicts_as_it_did(name, tmp_path):
    model, rows = PIPELINES[name]
    model.fit(rows, Y)
    tp.save(model, tmp_path / "m")
    again = tp.load(tmp_path / "m")
    assert np.array_equal(again.predict(rows), model.predict(rows))
    assert [type(step) for _, step in again.steps] == [type(step) for _, step in model.steps]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (tp.RobustValidation, "imputed"),
        (tp.RobustValidation, "columns"),
        (tp.RobustValidation, "nested"),
        (tp.DivideAndConquer, "columns"),
        (tp.DivideAndConquer, "polynomials"),
    ],
)
def test_meta_estimators_over_pipelines(kind, name, tmp_path):
    pipeline, rows = PIPELINES[name]
    model = kind(pipeline, k=3, random_state=0).fit(rows, Y)
    tp.save(model, tmp_path / "m")
    assert np.array_equal(tp.load(tmp_path / "m").predict(rows), model.predict(rows))


def test_classes_of_pipelines(tmp_path):
    model = make_pipeline(by_columns("passthrough"), LogisticRegression()).fit(FRAME, LABELS)
    tp.save(model, tmp_path / "m")
    assert np.array_equal(tp.load(tmp_path / "m").predict_proba(FRAME), model.predict_proba(FRAME))


REFUSED = {
    "splines": make_pipeline(SimpleImputer(), SplineTransformer(), Ridge()),
    "neighbours": make_pipeline(KNNImputer(), Ridge()),
    "a function": make_pipeline(SimpleImputer(), FunctionTransformer(lambda rows: rows), Ridge()),
    "trees": make_pipeline(SimpleImputer(), DecisionTreeRegressor()),
    "trees in a target": TransformedTargetRegressor(
        make_pipeline(SimpleImputer(), DecisionTreeRegressor()), transformer=StandardScaler()
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused_with_its_name(name, tmp_path):
    model = REFUSED[name].fit(X, Y)
    with pytest.raises(TypeError, match="cannot be saved without pickle"):
        tp.save(model, tmp_path / "m")
    meta = tp.RobustValidation(REFUSED[name], k=3, random_state=0).fit(X, Y)
    with pytest.raises(TypeError, match="cannot be saved without pickle"):
        tp.save(meta, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_attributes_that_a_newer_scikit_learn_may_add_are_refused(tmp_path):
    model = StandardScaler().fit(X)
    model._secret = 1
    with pytest.raises(TypeError, match="'_secret' that model files do not know"):
        tp.save(model, tmp_path / "m")


def test_what_does_not_come_back_the_same_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tailproof.model_files.files.Reader", Forgetful)
    with pytest.raises(TypeError, match="it would not come back as it is"):
        tp.save(LinearRegression().fit(X[:, 1:], Y), tmp_path / "m")
    assert os.listdir(tmp_path) == []


class Forgetful:
    """A reader that loses a number."""

    def __init__(self, *_, **__):
        pass

    def read(self, _):
        return LinearRegression().fit(X[:, 1:], -Y)
