"""The scikit-learn wrappers: the contract, and robust fits."""

import functools
import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from tailproof.torch import (
    RobustNetRegressor,
    TorchDCClassifier,
    TorchDCRegressor,
    TorchRVClassifier,
    TorchRVRegressor,
)

ADAM = functools.partial(torch.optim.Adam, lr=0.03)
LONG_STEPS = functools.partial(torch.optim.Adam, lr=0.1)


def small_net(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 12), nn.Tanh(), nn.Linear(12, outputs))


def circles(n=600, classes=2, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, 2))
    edges = np.quantile(np.linalg.norm(X, axis=1), np.linspace(0, 1, classes + 1)[1:-1])
    return X, np.array(["a", "b", "c"])[np.digitize(np.linalg.norm(X, axis=1), edges)]


REPEATED = {
    "check_sample_weight_equivalence_on_dense_data": "a repeated row is dealt to several blocks and batches"
}
FEW_STEPS = {
    "check_class_weight_classifiers": "20 steps of 8 rows do not move an intercept past features of size 20; "
    "in 200 epochs TorchDCClassifier predicts the heavy class for 92% and 100% of the rows"
}

# The others look at inputs, attributes and errors, whatever was learnt.
OF_GOOD_FITS = [
    estimator_checks.check_class_weight_classifiers,
    estimator_checks.check_classifiers_classes,
    estimator_checks.check_classifiers_train,
    estimator_checks.check_regressors_train,
]


@parametrize_with_checks(
    [
        TorchDCClassifier(optimizer=ADAM, epochs=20, random_state=0),
        TorchDCRegressor(optimizer=ADAM, epochs=20, random_state=0),
        TorchRVClassifier(optimizer=ADAM, epochs=20, random_state=0),
        TorchRVRegressor(optimizer=ADAM, epochs=20, random_state=0),
        RobustNetRegressor(optimizer=LONG_STEPS, batch_size=32, truncation=[1.35], random_state=0),
    ],
    expected_failed_checks=lambda estimator: REPEATED | (FEW_STEPS if is_classifier(estimator) else {}),
)
def test_scikit_learn_contract(estimator, check, monkeypatch):
    # A network of float32 rounds a row alone otherwise than among others, depending on the processor.
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    if check.func is estimator_checks.check_methods_subset_invariance:
        monkeypatch.setattr(estimator_checks, "assert_allclose", close)
    check(estimator if check.func in OF_GOOD_FITS else clone(estimator).set_params(epochs=2))


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


def test_merging_in_rounds_and_once():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    y = X.sum(axis=1) > 0
    model = TorchDCClassifier(k=10, optimizer=ADAM, epochs=10, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    assert model.decision_function(X).shape == (500,)
    assert len(model.candidates_.rounds) == len(model.history_) == 10
    assert model.report_.method == "DC, merge=ball_mean, 10 rounds"
    with pytest.warns(UserWarning, match="networks from different starts"):
        TorchDCClassifier(small_net, k=3, epochs=1, rounds=None, random_state=0).fit(X, y)


def test_rounds_learn_what_no_linear_model_can():
    X, y = circles(1_200)
    rows = np.arange(1_200) % 10 < 3
    y[rows] = np.where(y[rows] == "a", "b", "a")  # three of ten labels are wrong, all over the place
    model = TorchDCClassifier(small_net, k=4, optimizer=ADAM, epochs=40, rounds=20, random_state=0).fit(X, y)
    assert model.score(X[~rows], y[~rows]) > 0.9


def test_targets_of_any_size_and_number():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000, 3))
    signal = np.column_stack([X.sum(axis=1), X[:, 0] - X[:, 1]])
    y = (signal + 0.5 * rng.standard_t(2.5, (1_000, 2))) * [1e6, 1e-3] + [1e7, 0]
    for model in (
        TorchDCRegressor(k=4, optimizer=ADAM, epochs=20, random_state=0),
        RobustNetRegressor(optimizer=LONG_STEPS, batch_size=50, random_state=0),
    ):
        predicted = (model.fit(X, y).predict(X) - [1e7, 0]) / [1e6, 1e-3]
        assert np.mean((predicted - signal) ** 2) < 0.1
        alone = model.fit(X[:100], y[:100, :1]).predict(X)
        assert alone.shape == (1_000, 1)


@pytest.mark.parametrize("classifier", [TorchDCClassifier, TorchRVClassifier])
def test_class_weights_are_sample_weights(classifier):
    X, y = circles(400, classes=3)
    rare = (y != "c") | (np.arange(400) % 5 == 0)
    X, y = X[rare], y[rare]
    settings = {"optimizer": ADAM, "epochs": 5, "k": 3, "random_state": 0}
    counts = {label: np.sum(y == label) for label in "abc"}
    by_class = classifier(small_net, class_weight="balanced", **settings).fit(X, y)
    by_row = classifier(small_net, **settings).fit(X, y, sample_weight=[len(y) / (3 * counts[c]) for c in y])
    assert np.allclose(by_class.predict_proba(X), by_row.predict_proba(X))
    plain = classifier(small_net, **settings).fit(X, y)
    assert np.mean(by_class.predict(X) == "c") > np.mean(plain.predict(X) == "c")


@pytest.mark.parametrize("cls", [RobustNetRegressor, TorchRVRegressor, TorchDCRegressor])
def test_rows_of_weight_zero_are_as_if_absent(cls):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    y, weights = X.sum(axis=1), np.repeat([1.0, 0.0], 100)
    y[100:] = 1e9
    few_blocks = {} if cls is RobustNetRegressor else {"k": 2}
    model = cls(epochs=40, batch_size=10, optimizer=ADAM, random_state=0, **few_blocks)
    model.fit(X, y, sample_weight=weights)
    assert np.mean((model.predict(X[:100]) - y[:100]) ** 2) < 0.1


def picture_net(shape, outputs):
    return nn.Sequential(nn.Conv2d(shape[0], 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, outputs))


def test_images_and_several_targets():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 1, 4, 4))
    means = X[:, 0, :2].mean(axis=(1, 2))
    classifier = TorchDCClassifier(picture_net, k=3, optimizer=ADAM, epochs=20, random_state=0)
    assert classifier.fit(X, means > 0).score(X, means > 0) > 0.85
    y = np.column_stack([means, X[:, 0, 2:].mean(axis=(1, 2))])
    model = RobustNetRegressor(picture_net, optimizer=ADAM, batch_size=10, random_state=0).fit(X, y)
    assert model.predict(X).shape == (300, 2)
    assert model.score(X, y) > 0.6
    with pytest.raises(ValueError, match="module does not take rows of"):
        classifier.fit(X[..., :1], means > 0)


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


@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_of_great_weight_wins(classes):
    X, y = make_blobs(centers=classes, random_state=0, cluster_std=20)
    weights = {0: 1_000} | dict.fromkeys(range(1, classes), 1e-4)
    net = TorchDCClassifier(optimizer=ADAM, epochs=200, random_state=0, class_weight=weights)
    plain = clone(net).set_params(class_weight=None)
    weighted, alike = (np.mean(model.fit(X[:50], y[:50]).predict(X[50:]) == 0) for model in (net, plain))
    assert weighted > max(0.85, alike + 0.1)
