"""Data and an estimator that fails, for the tests of the meta-estimators."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression

from tailproof import DivideAndConquer, RobustValidation

BOTH = [DivideAndConquer, RobustValidation]
both = pytest.mark.parametrize("kind", BOTH, ids=lambda kind: kind.__name__)


def regression(n=600, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, 2 + X @ np.arange(1.0, d + 1) + rng.standard_t(2.5, n)


def classification(n=600, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, (X[:, :classes] + 0.5 * rng.gumbel(size=(n, classes))).argmax(axis=1)


class FailsOn(RegressorMixin, BaseEstimator):
    """A line through the data that refuses blocks with a row it does not like."""

    def __init__(self, limit=np.inf):
        self.limit = limit

    def fit(self, X, y):
        if np.max(X) > self.limit:
            raise RuntimeError(f"too large: {np.max(X):g}")
        self.inner_ = LinearRegression().fit(X, y)
        self.coef_, self.intercept_ = self.inner_.coef_, self.inner_.intercept_
        return self

    def predict(self, X):
        return np.asarray(X) @ self.coef_ + self.intercept_
