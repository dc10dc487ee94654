"""Columns that add nothing change nothing: constant ones, copies, and all levels of a category."""

import numpy as np
import pytest

from tailproof import RobustRegressor

LAWS = {
    "alike": lambda X, noise: noise,
    "grows": lambda X, noise: np.exp(0.7 * X[:, 0]) * noise,
}


def table(n, d, law):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d))
    return X, X.sum(axis=1) + LAWS[law](X, rng.lognormal(0.0, 1.2, n) - np.exp(0.72))


def fitted(X, y):
    model = RobustRegressor(random_state=0).fit(X, y)
    return model.predict(X), model.report_.remarks


# So many rows that one more parameter would change what is done with them.
@pytest.mark.parametrize(("n", "d"), [(60, 1), (120, 1), (120, 5), (200, 3), (250, 4), (1_000, 19)])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("value", [0.0, 3.0, 0.1])
def test_a_constant_column_changes_nothing(n, d, law, value):
    X, y = table(n, d, law)
    without, said = fitted(X, y)
    with_it, also = fitted(np.column_stack([X, np.full(n, value)]), y)
    np.testing.assert_allclose(with_it, without, atol=1e-4)
    assert also == said


# Where rows are fewer there are penalties, which a copy of a column does change.
@pytest.mark.parametrize(("n", "d"), [(120, 1), (250, 4), (500, 9), (1_000, 19)])
@pytest.mark.parametrize("law", LAWS)
def test_a_copy_of_a_column_changes_nothing(n, d, law):
    X, y = table(n, d, law)
    without, said = fitted(X, y)
    with_it, also = fitted(np.column_stack([X, X[:, 0]]), y)
    np.testing.assert_allclose(with_it, without, atol=1e-4)
    assert also == said


@pytest.mark.parametrize("law", LAWS)
def test_the_last_level_of_a_category_changes_nothing(law):
    X, y = table(400, 3, law)
    category = np.random.default_rng(0).integers(0, 4, 400)
    levels = (category[:, None] == np.arange(4)) * 1.0
    without, said = fitted(np.column_stack([X, levels[:, 1:]]), y + category)
    with_it, also = fitted(np.column_stack([X, levels]), y + category)
    np.testing.assert_allclose(with_it, without, atol=2e-3)
    assert also == said
