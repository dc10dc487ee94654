"""One row at a time: the same model as ``partial_fit``, with river and without it."""

import numpy as np
import pytest

import tailproof as tp
from tailproof.river import RiverClassifier, RiverRegressor


def stream(n=800, seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 2))
    rows = [{"a": a, "b": b} for a, b in X.tolist()]
    return X, rows, 3 * X[:, 0] - X[:, 1] + 2 + random.standard_t(3, n)


def test_learn_one_is_partial_fit():
    X, rows, y = stream(300)
    model, same = RiverRegressor(tp.DCSGDRegressor(random_state=0)), tp.DCSGDRegressor(random_state=0)
    assert model.predict_one(rows[0]) == 0.0
    for i, row in enumerate(rows):
        assert model.learn_one(row, y[i]) is None
        same.partial_fit(X[i : i + 1], y[i : i + 1])
    np.testing.assert_array_equal(model.running.coef_, same.coef_)
    assert model.predict_one(rows[7]) == same.predict(X[7:8])[0]
    assert not hasattr(model.model, "t_")


def test_labels_and_probabilities():
    _, rows, y = stream(300)
    model = RiverClassifier(["low", "high"], tp.DCSGDClassifier(random_state=0))
    assert model.predict_one(rows[0]) is None
    assert model.predict_proba_one(rows[0]) == {}
    for row, value in zip(rows, y, strict=True):
        model.learn_one(row, "high" if value > 2 else "low")
    right = [(model.predict_one(row) == "high") == (value > 2) for row, value in zip(rows, y, strict=True)]
    assert np.mean(right) > 0.75
    shares = model.predict_proba_one({"a": 2.0, "b": -2.0})
    assert shares["high"] > 0.7
    assert sum(shares.values()) == pytest.approx(1.0)


def test_features_that_come_and_go():
    model = RiverRegressor(features=["a", "b"])
    model.learn_one({"b": 1.0}, 2.0)
    model.learn_one({"b": 2.0, "a": 1}, 3.0)
    assert model.running.n_features_in_ == 2
    with pytest.raises(ValueError, match=r"feature 'c' was not in the first row: give .* features="):
        model.learn_one({"a": 1.0, "c": 2.0}, 1.0)
    with pytest.raises(ValueError, match="feature 'a' is 'north', not a number"):
        model.learn_one({"a": "north"}, 1.0)


class TestWithRiver:
    @pytest.fixture(autouse=True)
    def river(self):
        pytest.importorskip("river", reason="needs pip install river")

    def test_pipeline_and_progressive_validation(self):
        from river import evaluate, metrics, preprocessing

        _, rows, y = stream()
        model = preprocessing.StandardScaler() | RiverRegressor(tp.DCSGDRegressor(random_state=0))
        error = evaluate.progressive_val_score(zip(rows, y.tolist(), strict=True), model, metrics.MAE())
        assert error.get() < 1.4  # t(3) alone has 1.1

    def test_clones_have_learnt_nothing(self):
        _, rows, y = stream(50)
        model = RiverRegressor(tp.DCSGDRegressor(random_state=0), features=["a", "b"])
        for row, value in zip(rows, y, strict=True):
            model.learn_one(row, value)
        fresh = model.clone()
        assert fresh.predict_one(rows[0]) == 0.0
        assert fresh.features == ["a", "b"]

    def test_a_classifier_is_one_of_river(self):
        from river import base, evaluate, metrics

        _, rows, y = stream(300)
        model = RiverClassifier([False, True], tp.DCSGDClassifier(random_state=0))
        assert isinstance(model, base.Classifier)
        labelled = zip(rows, (y > 2).tolist(), strict=True)
        assert evaluate.progressive_val_score(labelled, model, metrics.Accuracy()).get() > 0.7
