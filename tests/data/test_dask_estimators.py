"""Estimators for Dask collections: the same fit as ``tp.fit``, and lazy predictions."""

import numpy as np
import pytest
from sklearn.base import clone

import tailproof as tp
from pieces_data import assert_same, rows

pytest.importorskip("dask", reason="needs pip install 'tailproof[dask]'")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pandas = pytest.importorskip("pandas")

from tailproof import dask as ours  # noqa: E402, after the skip

SETTINGS = {"k": 3, "random_state": 0, "max_iter": 1}


@pytest.fixture(scope="module")
def data():
    return rows(900)


def frame_of(X, y, pieces=3):
    frame = pandas.DataFrame(X, columns=list("abcd"), index=np.arange(len(y)) + 100)
    return dd.from_pandas(frame.assign(cost=y), npartitions=pieces)


def test_data_frames(client, data):
    X, y = data
    frame = frame_of(X, y)
    model = ours.DaskDCSGDRegressor(**SETTINGS).fit(frame[list("abcd")], frame["cost"])
    assert_same(model, tp.fit(tp.DCSGDRegressor(**SETTINGS), frame, "cost"))
    predicted = model.predict(frame)
    assert isinstance(predicted, dd.Series)
    here = predicted.compute()
    assert here.index.tolist() == (np.arange(900) + 100).tolist()
    np.testing.assert_allclose(here, X @ model.coef_ + model.intercept_, rtol=1e-9)
    assert model.score(frame[list("abcd")], frame["cost"]) == pytest.approx(
        model.to_local().score(pandas.DataFrame(X, columns=list("abcd")), y)
    )


def test_arrays_and_weights(client, data, tmp_path):
    X, y = data
    far = da.from_array(X, chunks=(300, 4)), da.from_array(y, chunks=300)
    weights = da.ones(900, chunks=300) * 2
    model = ours.DaskRVSGDRegressor(**SETTINGS)
    model.client = client
    model.fit(*far, weights)
    assert_same(model, tp.fit(tp.RVSGDRegressor(**SETTINGS), far, sample_weight=weights))
    assert isinstance(model.predict(far[0]), da.Array)
    local = model.to_local()
    assert type(local) is tp.RVSGDRegressor
    tp.save(local, tmp_path / "m")
    np.testing.assert_array_equal(tp.load(tmp_path / "m").predict(X), model.predict(far[0]).compute())
    assert clone(model).get_params() == model.get_params()


def test_classes_and_weights_of_a_frame(client, data):
    X, y = data
    frame = frame_of(X, np.where(y > np.median(y), "high", "low"))
    features = frame[list("abcd")]
    model = ours.DaskDCSGDClassifier(**SETTINGS)
    model.fit(features, frame["cost"], frame["a"] * 0 + 1.0, classes=["high", "low"])
    shares = model.predict_proba(features)
    assert isinstance(shares, dd.DataFrame)
    assert shares.columns.tolist() == ["high", "low"]
    here = shares.compute().to_numpy()
    np.testing.assert_allclose(here.sum(axis=1), 1.0)
    np.testing.assert_allclose(model.predict_proba(da.from_array(X, chunks=(300, 2))).compute(), here)
    assert (model.predict(features).compute() == np.where(here[:, 0] > 0.5, "high", "low")).all()


def test_known_categories_need_not_be_declared(client, data):
    X, y = data
    places = np.array(["north", "south", "west"])[np.arange(900) % 3]
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(
        cost=y + 5 * (places == "west"), where=pandas.Categorical(places)
    )
    far = dd.from_pandas(frame, npartitions=3)
    model = tp.fit(tp.DCSGDRegressor(**SETTINGS), far, "cost")
    assert list(model.feature_names_in_[4:]) == ["where=north", "where=south", "where=west"]
    declared = {"where": ["north", "south", "west"]}
    texts = dd.from_pandas(frame.astype({"where": str}), npartitions=3)
    assert_same(model, tp.fit(tp.DCSGDRegressor(**SETTINGS), texts, "cost", categories=declared))
    np.testing.assert_array_equal(tp.predict(model, far).compute(), tp.predict(model, texts).compute())
    with pytest.raises(ValueError, match=r"'where' of partition [0-2] holds .*declare its categories"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), far.assign(where=far["where"].cat.as_unknown()), "cost")
    labels = far.rename(columns={"where": "label"})
    assert tp.fit(tp.DCSGDClassifier(**SETTINGS), labels, "label").classes_.tolist() == declared["where"]


def test_data_in_memory_are_refused_in_a_sentence(client, data):
    X, y = data
    model = ours.DaskDCSGDRegressor(**SETTINGS)
    with pytest.raises(
        TypeError, match=r"X must be a Dask array, .*got a ndarray: .*tailproof\.DCSGDRegressor"
    ):
        model.fit(X, y)
    frame = frame_of(X, y)
    with pytest.raises(TypeError, match=r"y must be a Dask array, data frame or series; got a ndarray"):
        model.fit(frame[list("abcd")], y)
    model.fit(frame[list("abcd")], frame["cost"])
    for call in (model.predict, lambda part: model.score(part, frame["cost"])):
        with pytest.raises(TypeError, match=r"X must be a Dask .*got a DataFrame: .*to_local\(\)"):
            call(frame.compute()[list("abcd")])


def test_every_estimator_has_the_parameters_of_its_own():
    assert len(ours.__all__) == 5
    for name in ours.__all__:
        kind = getattr(ours, name)
        assert kind().get_params() == kind._local().get_params()
