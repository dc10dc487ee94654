"""The scikit-learn wrappers: the contract, and robust fits."""

import functools
import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from tailproof.torch import TorchDCClassifier, TorchRVClassifier, TorchRVRegressor

ADAM = functools.partial(torch.optim.Adam, lr=0.03)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small_net(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 12), nn.Tanh(), nn.Linear(12, outputs))


def circles(n=600, classes=2, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, 2))
    edges = np.quantile(np.linalg.norm(X, axis=1), np.linspace(0, 1, classes + 1)[1:-1])
    return X, np.array(["a", "b", "c"])[np.digitize(np.linalg.norm(X, axis=1), edges)]


@parametrize_with_checks(
    [
        TorchDCClassifier(optimizer=ADAM, epochs=20, random_state=0),
        TorchRVClassifier(optimizer=ADAM, epochs=20, random_state=0),
        TorchRVRegressor(optimizer=ADAM, epochs=20, random_state=0),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("classes", [2, 3])
def test_classifier_in_a_pipeline(classes):
    X, y = circles(classes=classes)
    net = TorchRVClassifier(
        small_net, k=4, validation_fraction=0.2, optimizer=ADAM, epochs=40, random_state=0
    )
    model = clone(make_pipeline(StandardScaler(), net)).fit(X, y)
    # Rings: no linear model gets far.
    assert LogisticRegression().fit(X, y).score(X, y) < 0.6
    assert model.score(X, y) > 0.8
    shares = model.predict_proba(X)
    assert shares.shape == (600, classes)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.array_equal(model.classes_[shares.argmax(axis=1)], model.predict(X))
    assert model[-1].report_.best == model[-1].best_index_
    again = clone(model).fit(X, y)
    assert np.array_equal(again.predict_proba(X), shares)


def test_merging_is_for_linear_modules():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    y = X.sum(axis=1) > 0
    model = TorchDCClassifier(k=10, optimizer=ADAM, epochs=10, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    assert model.decision_function(X).shape == (500,)
    with pytest.warns(UserWarning, match="single linear layer"):
        TorchDCClassifier(small_net, k=3, epochs=1, random_state=0).fit(X, y)


def test_regressor_shrugs_off_one_bad_row():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 3))
    y = X.sum(axis=1) + rng.standard_t(2.5, 2_000)
    y[0] = 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TorchRVRegressor(k=12, epochs=30, random_state=0).fit(X, y)
    assert np.abs(model.predict(np.eye(3)) - 1).max() < 0.4
    assert model.predict(X).shape == (2_000,)


def test_the_report_says_why_there_are_so_many_blocks():
    X, y = circles(100)
    why = [
        TorchRVClassifier(epochs=1, random_state=0, **given).fit(X, y).report_.why_k
        for given in ({}, {"k": 3}, {"batch_size": 25})
    ]
    assert why == ["k(δ) = 5", "set by the user", "fewer than k(δ) = 5, to fill a batch of 25 in a block"]


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (
            lambda d, o: nn.Linear(d, o + 1),
            r"must answer a row with 2 numbers, shape \(1, 2\); got \(1, 3",
        ),
        (lambda d, o: nn.Linear(d + 1, o), "module does not take rows of 2 features"),
        (nn.RNN, "got tuple"),
    ],
)
def test_modules_of_other_sizes_are_named(module, match):
    X, y = circles(100)
    with pytest.raises(ValueError, match=match):
        TorchRVClassifier(module).fit(X, y)


def test_grid_search_and_pickle():
    X, y = circles(200)
    model = TorchRVClassifier(small_net, k=2, optimizer=ADAM, random_state=0)
    search = GridSearchCV(model, {"epochs": [1, 5]}, cv=2).fit(X, y)
    best = search.best_estimator_
    assert np.array_equal(pickle.loads(pickle.dumps(best)).predict(X), best.predict(X))


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"k": 0}, "'k' parameter"),
        ({"mean": "average"}, "'mean' parameter"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter"),
        ({"module": 3}, "'module' parameter"),
        ({"k": 500}, "cannot make 500 blocks"),
    ],
)
def test_bad_parameters_are_named(parameters, match):
    X, y = circles(100)
    with pytest.raises(ValueError, match=match):
        TorchRVClassifier(**({"module": small_net} | parameters)).fit(X, y)
