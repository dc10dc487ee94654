"""``loss=("pinball", 0.9)`` is ``loss="pinball", loss_parameter=0.9``."""

import numpy as np
import pytest
from sklearn.base import clone

import tailproof as tp

RNG = np.random.default_rng(0)
X = RNG.standard_normal((600, 2))
Y = np.exp(X.sum(axis=1) / 2) + RNG.pareto(2.5, 600)


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (tp.DCSGDRegressor(random_state=0), ("pinball", 0.9)),
        (tp.DCSGDRegressor(random_state=0), ("tweedie", 1.3)),
        (tp.RVSGDRegressor(random_state=0), ("huber", 2.0)),
        (tp.RGDRegressor(random_state=0), ("huber", 2.0)),
        (tp.RobustRegressor(random_state=0), ("tweedie", 1.3)),
    ],
)
def test_same_model_as_with_loss_parameter(model, loss, tmp_path):
    apart = clone(model).set_params(loss=loss[0], loss_parameter=loss[1]).fit(X, Y)
    together = clone(model).set_params(loss=loss).fit(X, Y)
    assert np.array_equal(apart.coef_, together.coef_)
    assert np.array_equal(apart.predict(X), together.predict(X))
    tp.save(together, tmp_path / "model")
    assert np.array_equal(tp.load(tmp_path / "model").predict(X), together.predict(X))


@pytest.mark.parametrize("kind", [tp.DCSGDClassifier, tp.RVSGDClassifier, tp.RGDClassifier])
def test_losses_of_classification_have_no_parameter(kind):
    with pytest.raises(ValueError, match="takes no loss_parameter"):
        kind(loss=("hinge", 1.0)).fit(X, Y > 2)


def test_robust_regressor_names_its_losses():
    with pytest.raises(ValueError, match="loss must be one of"):
        tp.RobustRegressor(loss=("pinball", 0.9)).fit(X, Y)


def test_fit_in_pieces():
    chunks = [(X[:300], Y[:300]), (X[300:], Y[300:])]
    apart = tp.fit(tp.DCSGDRegressor(loss="pinball", loss_parameter=0.9, random_state=0), chunks)
    together = tp.fit(tp.DCSGDRegressor(loss=("pinball", 0.9), random_state=0), chunks)
    assert np.array_equal(apart.coef_, together.coef_)
