"""The law of noise whose size grows, learned by a sample, for rows in pieces: the same as in memory."""

from dataclasses import replace

import numpy as np
import pytest

import tailproof as tp
from pieces_data import chunks_of
from tailproof.estimators.robust_regressor.tuning import DEFAULT

ACROSS = "across these columns with the score that suits the noise best"
LAWS = {
    "log-normal": lambda rng, n: rng.lognormal(0, 1.2, n) - np.exp(0.72),
    "gamma": lambda rng, n: rng.gamma(2, size=n) - 2,
}
SIZES = {
    "exponential": lambda x: np.exp(0.5 * x),
    "straight": lambda x: 1 + 0.5 * np.maximum(x, 0),
}


class SixthChooses(tp.RobustRegressor):
    _tuning = replace(DEFAULT, compared_rows=20_000)


def rows(seed, law, sizes, n=120_000, d=5):
    rng = np.random.default_rng([seed, 53])
    X = rng.standard_normal((n, d)) @ (np.eye(d) + 0.2)
    return X, X.sum(axis=1) + SIZES[sizes](X[:, 0]) * LAWS[law](rng, n)


def fitted(data):
    return tp.fit(SixthChooses(random_state=0), data)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_that_of_memory(seed, law, sizes):
    X, y = rows(seed, law, sizes)
    found, memory = fitted(chunks_of(X, y, 3)), SixthChooses(random_state=0).fit(X, y)
    for model in (found, memory):
        assert any(ACROSS in remark for remark in model.report_.remarks)
    error = np.linalg.norm(memory.coef_ - 1)
    assert np.linalg.norm(found.coef_ - memory.coef_) <= 0.01 * error


def test_it_does_not_depend_on_the_pieces():
    X, y = rows(2, "log-normal", "exponential", 60_000)
    few, many = (fitted(chunks_of(X, y, count)) for count in (2, 9))
    np.testing.assert_allclose(few.coef_, many.coef_, rtol=1e-10)
    assert abs(few.intercept_ - many.intercept_) <= 1e-10


def test_weights_count_as_rows_do():
    X, y = rows(3, "log-normal", "exponential", 60_000)
    weights = np.random.default_rng(0).choice([1.0, 2.0, 3.0], y.size)
    data = [(X[part], y[part], weights[part]) for part in np.array_split(np.arange(y.size), 4)]
    found, memory = fitted(data), SixthChooses(random_state=0).fit(X, y, weights)
    assert any(ACROSS in remark for remark in found.report_.remarks)
    error = np.linalg.norm(memory.coef_ - 1)
    assert np.linalg.norm(found.coef_ - memory.coef_) <= 0.01 * error
