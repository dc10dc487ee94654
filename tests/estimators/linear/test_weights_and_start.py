"""Weights of rows, and where training starts."""

import numpy as np
import pytest
from sklearn.base import clone

from linear_models import CLASSIFIERS, DC, REGRESSORS, close, data, every_estimator
from tailproof import DCSGDClassifier, DCSGDRegressor
from tailproof.core.losses import LOSSES


class TestWeights:
    @pytest.mark.parametrize("kind", DC)
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize(
        "settings",
        [{}, {"scale_features": False}, {"step_size": 0.01}, {"scale_features": False, "step_size": 0.01}],
    )
    def test_zero_is_absence(self, kind, loss, settings):
        if (LOSSES[loss].task == "regression") != (kind in REGRESSORS):
            return
        X, y = data(kind, n=600)
        y = np.abs(y) + 0.1 if kind in REGRESSORS else y
        weights = np.random.default_rng(1).exponential(size=600)
        absent = np.random.default_rng(2).random(600) < 0.4
        X[absent] *= 100.0
        if kind in REGRESSORS:
            y[absent] = 1e6
        weights[absent] = 0.0
        model = kind(loss, shuffle=False, random_state=0, k=5, **settings)
        padded = clone(model).fit(X, y, sample_weight=weights)
        plain = clone(model).fit(X[~absent], y[~absent], sample_weight=weights[~absent])
        assert close(padded, plain)

    @every_estimator
    def test_number_of_blocks_counts_rows_with_weight(self, kind):
        X, y = data(kind, n=600)
        weights = (np.arange(600) % 4 == 0).astype(float)
        model = kind(random_state=0).fit(X, y, sample_weight=weights)
        assert model.report_.k == kind(random_state=0).fit(X[::4], y[::4]).report_.k

    @every_estimator
    @pytest.mark.parametrize("factor", [1e-6, 0.5, 1e9])
    def test_scale_of_weights_is_none(self, kind, factor):
        X, y = data(kind)
        weights = np.random.default_rng(1).exponential(size=400)
        one = kind(random_state=0).fit(X, y, sample_weight=weights)
        two = kind(random_state=0).fit(X, y, sample_weight=factor * weights)
        assert close(one, two)

    @every_estimator
    @pytest.mark.parametrize("weight", [1.0, 7.0])
    def test_equal_weights_are_no_weights(self, kind, weight):
        X, y = data(kind)
        one = kind(random_state=0).fit(X, y)
        assert close(one, kind(random_state=0).fit(X, y, sample_weight=np.full(400, weight)))
        assert close(one, kind(random_state=0).fit(X, y, sample_weight=weight))

    def test_weights_have_an_effect(self):
        X, y = data(n=2_000)
        y = np.where(X[:, 0] > 0, y + 5, y)
        heavy = np.where(X[:, 0] > 0, 1.0, 1e-3)
        model = DCSGDRegressor(random_state=0).fit(X, y, sample_weight=heavy)
        part = DCSGDRegressor(random_state=0).fit(X[X[:, 0] > 0], y[X[:, 0] > 0])
        assert abs(model.predict(X[X[:, 0] > 0]).mean() - part.predict(X[X[:, 0] > 0]).mean()) < 0.3

    @every_estimator
    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            (np.zeros(400), "zero"),
            (-np.ones(400), "[Nn]egative"),
            (np.full(400, np.nan), "NaN"),
            (np.full(400, np.inf), "infinity"),
            (np.ones(399), "sample_weight"),
            (np.ones((400, 2)), "[Ss]ample.weight"),
        ],
    )
    def test_bad_weights(self, kind, weights, words):
        X, y = data(kind)
        with pytest.raises(ValueError, match=words):
            kind().fit(X, y, sample_weight=weights)
        classes = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        with pytest.raises(ValueError, match=words):
            kind().partial_fit(X, y, sample_weight=weights, **classes)


class TestStart:
    @every_estimator
    def test_warm_start_goes_on_from_the_last_fit(self, kind):
        X, y = data(kind)
        settings = {"k": 3, "max_iter": 1, "random_state": 0, "step_size": 1e-12}
        settings |= {"recentre": False}
        model = kind(warm_start=True, **settings).set_params(step_size=0.1).fit(X, y)
        coef, intercept = model.coef_.copy(), np.copy(model.intercept_)
        model.set_params(step_size=1e-12).fit(X, y)
        assert np.allclose(model.coef_, coef, rtol=1e-6)
        assert np.allclose(model.intercept_, intercept, rtol=1e-6)
        cold = kind(**settings).fit(X, y)
        assert not np.allclose(cold.coef_, coef, rtol=1e-2)

    @every_estimator
    @pytest.mark.parametrize("classes", [2, 4])
    def test_warm_start_of_a_settled_model_needs_no_more(self, kind, classes):
        X, y = data(kind, classes=classes)
        model = kind(warm_start=True, random_state=0).fit(X, y)
        before = model.score(X, y)
        assert model.fit(X, y).score(X, y) > before - 0.05

    def test_forms_of_init(self):
        X, y = data()
        settings = {"k": 3, "max_iter": 1, "random_state": 0, "recentre": False, "step_size": 1e-15}
        for init in ([1, 2, 3, 4], np.array([[1.0, 2, 3, 4]]), (np.arange(1, 5), 7.0), ([1, 2, 3, 4], [7.0])):
            model = DCSGDRegressor(init=init, **settings).fit(X, y)
            assert np.allclose(model.coef_, [1, 2, 3, 4])
            assert np.isclose(model.intercept_, 7.0 if isinstance(init, tuple) else 0.0)

    def test_init_for_several_classes(self):
        X, y = data(DCSGDClassifier, classes=4)
        settings = {"k": 3, "max_iter": 1, "random_state": 0, "step_size": 1e-15}
        coef, intercept = np.arange(16.0).reshape(4, 4), np.arange(4.0)
        model = DCSGDClassifier(init=(coef, intercept), **settings).fit(X, y)
        assert np.allclose(model.coef_, coef)
        assert np.allclose(model.intercept_, intercept)

    @pytest.mark.parametrize("kind", REGRESSORS)
    def test_no_intercept_means_no_intercept_in_training_either(self, kind):
        X, y = data(kind)
        plain = kind(fit_intercept=False, init=np.zeros(4), random_state=0).fit(X, y)
        given = kind(fit_intercept=False, init=(np.zeros(4), 50.0), random_state=0).fit(X, y)
        assert close(plain, given)
        assert np.all(given.candidates_[:, -1] == 0)

    def test_warm_start_on_other_classes_is_a_clear_error(self):
        X, y = data(DCSGDClassifier, classes=4)
        model = DCSGDClassifier(warm_start=True, random_state=0).fit(X, y)
        with pytest.raises(ValueError, match="warm_start"):
            model.fit(X, y > 1)
