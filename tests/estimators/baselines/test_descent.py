"""The loop that every aggregator runs in."""

import numpy as np
import pytest

import tailproof as tp
from literal_gradients import LITERAL, PAPER, gradients_and_losses, regression
from tailproof.estimators.baselines.aggregators import AGGREGATES
from tailproof.estimators.baselines.estimators import descend


@pytest.mark.parametrize("name", AGGREGATES)
class TestDescend:
    def test_is_the_literal_loop(self, name):
        X, y = regression(203, 4)
        w, path = np.array([3.0, -1.0, 0.0, 2.0]), []
        found = descend(
            X, y, w, aggregate=name, k=7, max_iter=30, callback=lambda cost, v: path.append((cost, v))
        )
        for t in range(30):
            assert np.abs(path[t][1] - w).max() <= 1e-8
            gradients, losses = gradients_and_losses("squared_error", X, y, w)
            w = w - 0.1 / 2 * LITERAL[name](gradients, losses, 7)
        assert np.abs(found.w - w).max() <= 1e-8
        assert path[-1][0] == found.cost
        assert found.n_iter == 30

    def test_is_what_the_estimator_does(self, name):
        X, y = regression(200, 3)
        labels = np.where(y > np.median(y), 1.0, -1.0)
        settings = {"aggregate": name, "k": 6, "step_size": 0.3, "max_iter": None, "budget": 2_000}
        plain = descend(X, labels, np.zeros(3), loss="log_loss", **settings)
        model = tp.RGDClassifier(init=np.zeros(3), **settings, **PAPER).fit(X, labels)
        assert np.array_equal(model.coef_[0], plain.w)
        assert (model.cost_, model.n_iter_) == (plain.cost, plain.n_iter)
        assert plain.cost >= 2_000 > plain.cost * (1 - 1 / plain.n_iter) - 1

    def test_ends_with_the_last_finite_iterate(self, name):
        X, y = regression(100, 3)
        found = descend(X, y, np.zeros(3), aggregate=name, step_size=1e60, max_iter=50)
        assert found.diverged
        assert found.n_iter < 50
        assert np.all(np.isfinite(found.w))


def test_descend_refuses_what_it_cannot_do():
    X, y = regression(50, 2)
    for arguments, message in (
        ({}, "needs an end"),
        ({"step_size": "auto", "max_iter": 3}, "steps it is given"),
        ({"aggregate": "median", "max_iter": 3}, "aggregate"),
        ({"loss": "cubic", "max_iter": 3}, "loss"),
        ({"k": 51, "aggregate": "median_block", "max_iter": 3}, "51 blocks"),
    ):
        with pytest.raises(ValueError, match=message):
            descend(X, y, np.zeros(2), **arguments)
    with pytest.raises(ValueError, match="needs an end"):
        tp.RGDRegressor(max_iter=None).fit(X, y)


def test_single_process_sgd_is_dc_sgd_with_one_block():
    X, y = regression(80, 3)
    w = np.array([1.0, 2.0, 3.0])
    plain = {"shuffle": False, "average": False, "fit_intercept": False, "scale_features": False}
    model = tp.DCSGDRegressor(k=1, step_size=("over_root_d", 0.01), max_iter=1, update="explicit", **plain)
    model.set_params(init=w).fit(X, y)
    for x, target in zip(X, y, strict=True):
        w = w - 0.01 / np.sqrt(3) * (x @ w - target) * x
    assert np.allclose(model.coef_, w, rtol=1e-10)
    assert model.report_.gradient_evaluations == 80
