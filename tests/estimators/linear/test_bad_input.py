"""Bad data and parameters end in one clear error."""

import inspect

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from linear_models import (
    CLASSIFIERS,
    DC,
    ESTIMATORS,
    REGRESSORS,
    RV,
    data,
    every_estimator,
    wide,
)
from tailproof import DCSGDClassifier, DCSGDRegressor
from tailproof.core.losses import LOSSES

NAN_SETTINGS = [
    {},
    {"update": "explicit", "step_size": 0.01},
    {"batch_size": 4},
    {"constraint": ("box", -1.0, 1.0)},
    {"constraint": ("simplex", 1.0)},
    {"constraint": ("l1_ball", 1.0)},
    {"penalty": "elasticnet", "alpha": 0.1},
    {"scale_features": False},
    {"average": False, "max_iter": 1},
]


class TestBadInput:
    @every_estimator
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("row", [0, 501, 999, 1_000])
    @pytest.mark.parametrize("csr", [False, True])
    def test_not_finite_in_x(self, kind, value, row, csr):
        X, y = wide(kind)
        X[row, 2] = value
        rows = sparse.csr_array(X) if csr else X
        words = "NaN" if np.isnan(value) else "infinity"
        for settings in (
            {"k": 5},
            {"k": 5, "max_iter": 2, "shuffle": False},
            {"k": 5, "max_iter": 1, "n_jobs": 2},
        ):
            with pytest.raises(ValueError, match=f"Input X contains {words}"):
                kind(random_state=0, **settings).fit(rows, y)

    @every_estimator
    @pytest.mark.parametrize("settings", NAN_SETTINGS, ids=str)
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_not_finite_in_x_whatever_the_settings(self, kind, settings, value):
        X, y = wide(kind)
        for row in (3, 507, 996):
            bad = X.copy()
            bad[row, 1] = value
            with pytest.raises(ValueError, match="Input X contains"):
                kind(random_state=0, k=5, **({"max_iter": 2} | settings)).fit(bad, y)

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_not_finite_in_x_whatever_the_loss(self, loss, value):
        kind = DCSGDRegressor if LOSSES[loss].task == "regression" else DCSGDClassifier
        X, y = wide(kind)
        X[501, 1] = value
        with pytest.raises(ValueError, match="Input X contains"):
            kind(loss, random_state=0, k=5, max_iter=2).fit(X, np.abs(y) + 1 if kind is DCSGDRegressor else y)

    @pytest.mark.parametrize("kind", RV)
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    @pytest.mark.parametrize("row", [701, 998, 999, 1_000])
    def test_not_finite_in_validation_rows_alone(self, kind, value, row):
        X, y = wide(kind)
        X[row, 0] = value
        for settings in ({}, {"k": 3, "mean": "median"}, {"k": 3, "mean": "mean"}):
            with pytest.raises(ValueError, match="Input X contains"):
                kind(shuffle=False, random_state=0, max_iter=2, **settings).fit(X, y)

    @pytest.mark.parametrize("kind", REGRESSORS)
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    @pytest.mark.parametrize("row", [0, 201, 399])
    def test_not_finite_in_y(self, kind, value, row):
        X, y = data(kind)
        y[row] = value
        with pytest.raises(ValueError, match="Input y contains"):
            kind(k=5, shuffle=False).fit(X, y)

    @every_estimator
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_not_finite_in_partial_fit(self, kind, value):
        X, y = data(kind)
        model = kind(k=7, random_state=0)
        classes = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model.partial_fit(X, y, **classes)
        X[100, 0] = value
        for _ in range(3):  # held out by chance, or dealt to a candidate: either way it must not pass
            with pytest.raises(ValueError, match="Input X contains"):
                model.partial_fit(X, y)

    @every_estimator
    def test_a_bad_batch_does_not_spoil_the_model(self, kind):
        X, y = data(kind)
        classes = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = kind(k=3, random_state=0).partial_fit(X, y, **classes)
        bad = np.where(np.arange(400)[:, None] % 3 == 0, np.nan, X)
        with pytest.raises(ValueError, match="Input X contains"):
            model.partial_fit(bad, y)
        model.partial_fit(X, y)
        assert np.all(np.isfinite(model.coef_))

    @every_estimator
    def test_not_finite_when_predicting(self, kind):
        X, y = data(kind)
        model = kind(random_state=0).fit(X, y)
        with pytest.raises(ValueError, match="contains NaN"):
            model.predict(np.full((2, 4), np.nan))

    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"k": 0}, "k"), ({"k": -1}, "k"), ({"k": 2.5}, "k"), ({"k": "many"}, "k"),
            ({"delta": 0.0}, "delta"), ({"delta": 1.0}, "delta"), ({"delta": -1}, "delta"),
            ({"max_iter": 0}, "max_iter"), ({"max_iter": 1.5}, "max_iter"), ({"max_iter": "all"}, "max_iter"),
            ({"batch_size": 0}, "batch_size"), ({"batch_size": 0.5}, "batch_size"),
            ({"average": 3}, "average"), ({"update": "both"}, "update"),
            ({"penalty": "l3"}, "penalty"), ({"alpha": -1.0}, "alpha"),
            ({"l1_ratio": -0.1}, "l1_ratio"), ({"l1_ratio": 1.1}, "l1_ratio"),
            ({"scale_features": "yes"}, "scale_features"), ({"fit_intercept": "yes"}, "fit_intercept"),
            ({"shuffle": "yes"}, "shuffle"), ({"warm_start": "yes"}, "warm_start"),
            ({"random_state": -1}, "random_state"), ({"random_state": "x"}, "random_state"),
            ({"n_jobs": 1.5}, "n_jobs"), ({"verbose": -1}, "verbose"),
            ({"loss": "zero_one"}, "loss"), ({"loss": 3}, "loss"),
            ({"loss_parameter": "x"}, "loss_parameter"),
            ({"step_size": 0.0}, "step"), ({"step_size": -1.0}, "step"), ({"step_size": "slow"}, "step_size"),
            ({"step_size": np.nan}, "step"), ({"step_size": ("theorem1", 0.0)}, "step"),
            ({"step_size": ("theorem1", 1, 2, 3)}, "step_size"), ({"step_size": None}, "step_size"),
            ({"step_size": [0.1, 0.2]}, "step_size"),
            ({"constraint": "star"}, "constraint"), ({"constraint": ("ball", -1.0)}, "radius"),
            ({"constraint": ("ball", 1, 2, 3)}, "constraint"), ({"constraint": 5.0}, "constraint"),
            ({"constraint": ("box", 2.0, 1.0)}, "box"), ({"constraint": ("ball", "wide")}, "ball"),
            ({"init": np.zeros(3)}, "start"), ({"init": np.zeros((7, 7))}, "start"),
            ({"init": (np.zeros(4), np.zeros(9))}, "start"), ({"init": "zeros"}, "start"),
            ({"init": (np.zeros(4), 0.0, 1.0)}, "start"), ({"init": np.full(4, np.nan)}, "start|init"),
            ({"k": 401}, "k=401"),
        ],
        ids=str,
    )  # fmt: skip
    @every_estimator
    def test_parameters_out_of_range(self, kind, parameters, words):
        X, y = data(kind)
        with pytest.raises(ValueError, match=words):
            kind(**parameters).fit(X, y)

    @pytest.mark.parametrize("kind", RV)
    @pytest.mark.parametrize(
        "parameters",
        [
            {"mean": "mode"},
            {"validation_fraction": 0.0},
            {"validation_fraction": 1.0},
            {"validation_fraction": 5},
            {"cross_validate": "yes"},
        ],
    )
    def test_parameters_of_validation(self, kind, parameters):
        X, y = data(kind)
        with pytest.raises(ValueError, match=next(iter(parameters))):
            kind(**parameters).fit(X, y)

    @pytest.mark.parametrize("kind", DC)
    @pytest.mark.parametrize("parameters", [{"merge": "average"}, {"recentre": "yes"}])
    def test_parameters_of_merging(self, kind, parameters):
        X, y = data(kind)
        with pytest.raises(ValueError, match=next(iter(parameters))):
            kind(**parameters).fit(X, y)

    def test_every_parameter_is_checked(self):
        for kind in ESTIMATORS:
            assert set(kind._parameter_constraints) == set(inspect.signature(kind).parameters)

    @pytest.mark.parametrize(
        ("loss", "parameter"),
        [("huber", 0.0), ("pinball", 1.0), ("tweedie", 2.0), ("squared_error", 1.0), ("log_loss", 1.0)],
    )
    def test_loss_parameters(self, loss, parameter):
        kind = DCSGDRegressor if loss != "log_loss" else DCSGDClassifier
        X, y = data(kind)
        with pytest.raises(ValueError, match="loss_parameter"):
            kind(loss, loss_parameter=parameter).fit(X, np.abs(y))

    @pytest.mark.parametrize(("loss", "value"), [("poisson", -1.0), ("tweedie", -1.0), ("gamma", 0.0)])
    def test_targets_outside_the_domain(self, loss, value):
        X, y = data()
        y = np.abs(y) + 1
        y[7] = value
        with pytest.raises(ValueError, match=f"{loss}.* targets"):
            DCSGDRegressor(loss).fit(X, y)

    @pytest.mark.parametrize("kind", CLASSIFIERS)
    def test_one_class_is_an_error(self, kind):
        with pytest.raises(ValueError, match="class"):
            kind().fit(np.ones((10, 2)), np.zeros(10))

    @every_estimator
    def test_not_fitted(self, kind):
        with pytest.raises(NotFittedError):
            kind().predict(np.ones((2, 2)))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_plain_arrays_are_checked_as_any_others(kind):
    """They take a shorter way, which ends where the long one does."""
    X, y = data(kind, n=60)
    whole = kind(random_state=0, max_iter=1).fit(X, y)
    for other in (np.asfortranarray(X), X.tolist()):
        long_way = kind(random_state=0, max_iter=1).fit(other, y)
        assert np.array_equal(long_way.coef_, whole.coef_)
        assert long_way.n_features_in_ == whole.n_features_in_ == X.shape[1]
    whole.feature_names_in_ = np.array(["a"] * X.shape[1], dtype=object)
    assert not hasattr(whole.fit(X, y), "feature_names_in_")
    for bad in ((X[:, :0], y), (X[:0], y[:0]), (X[0], y[:1]), (X, y[:-1]), (X, np.column_stack([y, y]))):
        with pytest.raises(ValueError, match=r"feature|sample|array"):
            kind().fit(*bad)


@pytest.mark.parametrize(("name", "good", "bad"), [("max_iter", 1, 1.0), ("warm_start", True, 1)])
def test_what_was_found_right_once_excuses_nothing_that_equals_it(name, good, bad):
    """1, 1.0 and True are equal, and not all of them are numbers of passes, or answers."""
    X, y, *_ = data()
    DCSGDRegressor(**{name: good}).fit(X, y)
    for _ in range(2):
        with pytest.raises(ValueError, match=name):
            DCSGDRegressor(**{name: bad}).fit(X, y)
