"""The same rows in float16, float32 and float64 give the same model, up to the rounding of the rows."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tailproof as tp

ESTIMATORS = {
    "DC-SGD": tp.DCSGDRegressor(random_state=0),
    "RV-SGD": tp.RVSGDRegressor(random_state=0),
    "RGD": tp.RGDRegressor(random_state=0),
    "robust": tp.RobustRegressor(random_state=0),
    "least squares in blocks": tp.DivideAndConquer(LinearRegression(), random_state=0),
    "a pipeline in blocks": tp.DivideAndConquer(make_pipeline(StandardScaler(), Ridge()), random_state=0),
    "least squares validated": tp.RobustValidation(LinearRegression(), random_state=0),
}


CLASSIFIERS = {
    "DC-SGD": tp.DCSGDClassifier(random_state=0),
    "RV-SGD": tp.RVSGDClassifier(random_state=0),
    "RGD": tp.RGDClassifier(random_state=0),
    "robust": tp.RobustClassifier(random_state=0),
    "logistic regression in blocks": tp.DivideAndConquer(LogisticRegression(tol=1e-8), random_state=0),
    "logistic regression validated": tp.RobustValidation(LogisticRegression(tol=1e-8), random_state=0),
}


def rows():
    rng = np.random.default_rng(0)
    # Numbers that float16 holds exactly, so that only arithmetic differs.
    X = rng.integers(-64, 65, (3_000, 3)) / 16
    y = X.sum(axis=1) + np.round(np.minimum(rng.lognormal(0, 1.5, 3_000), 1_000) * 4) / 4
    return X, y


@pytest.mark.parametrize(("kind", "accuracy"), [(np.float32, 1e-4), (np.float16, 1e-2)])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_precision_changes_next_to_nothing(name, kind, accuracy):
    X, y = rows()
    model = ESTIMATORS[name]
    exact = model.fit(X, y).predict(X[:200])
    rounded = model.fit(X.astype(kind), y.astype(kind)).predict(X[:200].astype(kind))
    np.testing.assert_allclose(rounded, exact, atol=accuracy * np.abs(exact).mean())


@pytest.mark.parametrize(("kind", "accuracy"), [(np.float32, 1e-3), (np.float16, 1e-2)])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_precision_changes_next_to_no_probability(name, kind, accuracy):
    X, y = rows()
    labels, model = y > 2, CLASSIFIERS[name]
    exact = model.fit(X, labels).predict_proba(X[:200])
    rounded = model.fit(X.astype(kind), labels).predict_proba(X[:200].astype(kind))
    np.testing.assert_allclose(rounded, exact, atol=accuracy)
