"""The four linear SGD estimators, and data for them."""

import numpy as np
import pytest

from tailproof import DCSGDClassifier, DCSGDRegressor, RVSGDClassifier, RVSGDRegressor

ESTIMATORS = [DCSGDRegressor, DCSGDClassifier, RVSGDRegressor, RVSGDClassifier]
REGRESSORS = [DCSGDRegressor, RVSGDRegressor]
CLASSIFIERS = [DCSGDClassifier, RVSGDClassifier]
DC = [DCSGDRegressor, DCSGDClassifier]
RV = [RVSGDRegressor, RVSGDClassifier]
# Of a few rows, whose candidates go on moving: not what these tests are about.
UNSETTLED = "ignore:the candidates had not settled:sklearn.exceptions.ConvergenceWarning"
every_estimator = pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)


def data(kind=DCSGDRegressor, n=400, d=4, seed=0, classes=2):
    """Features, targets and the truth: all coefficients one, intercept two."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    signal = 2 + X.sum(axis=1)
    if kind in REGRESSORS:
        return X, signal + rng.standard_t(2.5, n)
    if classes == 2:
        return X, (signal + rng.logistic(size=n) > 2).astype(int)
    scores = 2 * X @ np.random.default_rng(99).standard_normal((d, classes)) + rng.gumbel(size=(n, classes))
    return X, scores.argmax(axis=1)


def wide(kind):
    """More cells than the sample for scaling takes, so that most rows are seen by training alone."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_001, 250))
    y = X[:, :3].sum(axis=1) + rng.standard_normal(1_001)
    return X, y if kind in REGRESSORS else (y > 0).astype(int)


def equal(a, b):
    return np.array_equal(a.coef_, b.coef_) and np.array_equal(a.intercept_, b.intercept_)


def close(a, b, rtol=1e-9):
    return np.allclose(a.coef_, b.coef_, rtol=rtol, atol=1e-12) and np.allclose(
        a.intercept_, b.intercept_, rtol=rtol, atol=1e-12
    )


def excess_risk(model, w=1.0, b=2.0):
    """Of squared error, for standard normal features."""
    return np.sum((model.coef_ - w) ** 2) + (model.intercept_ - b) ** 2
