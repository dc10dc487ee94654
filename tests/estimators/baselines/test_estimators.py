"""The two gradient descent estimators as a user meets them."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import tailproof as tp
from literal_gradients import regression
from tailproof.core.losses import LOSSES
from tailproof.estimators.baselines.aggregators import AGGREGATES


def test_mean_converges_to_least_squares_and_to_logistic_regression():
    X, y = regression(500, 4)
    units = np.array([1, 1e3, 1e-6, 10])
    model = tp.RGDRegressor(max_iter=2_000, tol=1e-12).fit(X * units, y)
    exact = LinearRegression().fit(X, y)
    assert np.allclose(model.coef_ * units, exact.coef_, rtol=1e-6)
    assert np.isclose(model.intercept_, exact.intercept_, rtol=1e-6)
    assert model.converged_
    labels = y > np.median(y)
    classifier = tp.RGDClassifier(max_iter=5_000, tol=1e-10).fit(X, labels)
    exact = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1_000).fit(X, labels)
    assert np.allclose(classifier.coef_, exact.coef_, rtol=1e-3)


def test_several_classes():
    X, y = make_classification(600, 8, n_informative=6, n_classes=3, random_state=0)
    for loss in ("log_loss", "squared_hinge", "hinge"):
        for name in AGGREGATES:
            model = tp.RGDClassifier(loss, aggregate=name, k=5, random_state=0).fit(X, y)
            assert model.coef_.shape == (3, 8)
            assert model.score(X, y) > 0.55


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.task == "regression"])
def test_every_loss_of_regression_descends(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 3))
    y = rng.poisson(np.exp(0.3 * X.sum(axis=1))) + (0.1 if loss == "gamma" else 0.0)
    risk = {}
    for max_iter in (1, 200):
        model = tp.RGDRegressor(loss, max_iter=max_iter).fit(X, y)
        risk[max_iter] = np.mean(LOSSES[loss].value(X @ model.coef_ + model.intercept_, y))
    assert risk[200] < risk[1]


def test_penalties_reach_the_penalised_optimum():
    X, y = regression(300, 3)
    for penalty, l1, l2 in (("l2", 0, 1), ("l1", 1, 0), ("elasticnet", 0.15, 0.85)):
        model = tp.RGDRegressor(
            penalty=penalty, alpha=0.5, fit_intercept=False, max_iter=3_000, tol=1e-13
        ).fit(X, y)

        def objective(w, l1=l1, l2=l2):
            return np.mean((X @ w - y) ** 2) / 2 + 0.5 * (l1 * np.abs(w).sum() + l2 * w @ w / 2)

        best = minimize(objective, model.coef_, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
        assert objective(model.coef_) <= best.fun + 1e-9


def test_threads_change_nothing():
    X, y = regression(5_000, 70)
    model = tp.RGDRegressor(aggregate="m_estimate", max_iter=3, random_state=0)
    one, two = (clone(model).set_params(n_jobs=j).fit(X, y) for j in (1, 2))
    assert np.array_equal(one.coef_, two.coef_)


def test_wild_rows_do_not_move_the_robust_methods():
    X, y = regression(4_000, 3)
    X[::1000], y[::1000] = 1e12, -1e12
    for name in ("geometric_median_of_means", "m_estimate", "median_block"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            settings = {"k": 12, "m_scale": "robust", "max_iter": 300, "drop_glitches": False}
            model = tp.RGDRegressor(aggregate=name, random_state=0, **settings).fit(X, y)
        assert np.abs(model.coef_ - 1).max() < 1, name


@pytest.mark.parametrize("name", AGGREGATES)
def test_sparse_rows_give_the_model_of_dense_ones(name):
    X, y = regression(300, 4)
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    model = tp.RGDRegressor(aggregate=name, k=5, random_state=0, scale_features=False, step_size=0.5, tol=0.0)
    dense, thin = (clone(model).fit(rows, y) for rows in (X, sparse.csr_array(X)))
    assert np.allclose(dense.coef_, thin.coef_, rtol=1e-7)
    assert np.isclose(dense.intercept_, thin.intercept_, rtol=1e-7)
    assert not hasattr(model, "partial_fit")


def test_warm_start_and_named_schedules():
    X, y = regression(300, 3)
    model = tp.RGDRegressor(max_iter=5, warm_start=True, step_size=("theorem2", 2.0, 1.0), tol=0.0)
    first = model.fit(X, y).coef_.copy()
    assert not np.allclose(model.fit(X, y).coef_, first)
    assert model.n_iter_ == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"aggregate": "median"}, "aggregate"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"budget": 0}, "budget"),
        ({"callback": 3}, "callback"),
        ({"m_psi": "huber"}, "m_psi"),
        ({"m_scale": "mad"}, "m_scale"),
        ({"m_width": "wide"}, "m_width"),
        ({"middle": "left"}, "middle"),
        ({"delta": 0.0}, "delta"),
        ({"k": 0}, "k"),
        ({"k": 101, "aggregate": "median_block"}, "k=101"),
        ({"step_size": "fast"}, "step_size"),
        ({"step_size": -1.0}, "step size"),
        ({"constraint": "sphere"}, "constraint"),
        ({"loss": "log_loss"}, "loss"),
        ({"init": np.zeros(7)}, "start must be"),
    ],
)
def test_bad_arguments_are_one_clear_error(arguments, message):
    X, y = regression(100, 3)
    with pytest.raises(ValueError, match=message):
        tp.RGDRegressor(**arguments).fit(X, y)


def expected_failures(estimator):
    reason = "scales, start and step come from the rows as they are, whatever their weights"
    checks = (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    )
    return dict.fromkeys(checks, reason)


# Both estimators and every aggregator: the two do not know of each other.
@parametrize_with_checks(
    [
        make(aggregate=name, max_iter=20)
        for make, name in zip(itertools.cycle((tp.RGDRegressor, tp.RGDClassifier)), AGGREGATES, strict=False)
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn(estimator, check):
    check(estimator)
