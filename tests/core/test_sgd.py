"""SGD in whitened coordinates is SGD on whitened data."""

from dataclasses import replace

import numpy as np
import pytest

from tailproof.core import sgd
from tailproof.core.losses import LOSSES, SOFTMAX_LOSS
from tailproof.core.partition import blocks
from tailproof.core.scaling import FeatureScale, unscaled
from tailproof.core.sgd import SGDLearner
from tailproof.core.steps import Auto, Theorem1

N, D = 61, 4


def problem(outputs, weighted):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((N, D)) * [1, 10, 0.1, 3] + 2
    y = rng.integers(0, outputs, N).astype(float) if outputs > 1 else X.sum(axis=1)
    columns = FeatureScale(
        rng.standard_normal(D), rng.uniform(0.5, 2, D), rng.standard_normal((D, D)) + 3 * np.eye(D)
    )
    return X, y, rng.uniform(0.5, 2, N) if weighted else np.empty(0), columns


@pytest.mark.parametrize("tile", [1, 40, 10**6])
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("steps", [Theorem1(20.0), Auto(0.5)])
def test_turned_passes(monkeypatch, tile, batch, outputs, steps):
    monkeypatch.setattr(sgd, "_TILE", tile)
    X, y, weights, columns = problem(outputs, weighted=batch == 1)
    start, offset = np.arange(outputs * D, dtype=float).reshape(outputs, D) / 9, np.zeros(outputs)
    loss = LOSSES["squared_error"] if outputs == 1 else SOFTMAX_LOSS
    whitened = SGDLearner(
        X, y, weights, loss, columns, steps, 30.0, 2, outputs, start, offset, batch_size=batch
    )  # fmt: skip
    Z = (X - columns.centre) / columns.scale @ columns.whitening
    inner = (start * columns.scale) @ np.linalg.inv(columns.whitening).T
    plain = replace(
        whitened, X=Z, columns=unscaled(D), start_coef=inner, start_intercept=start @ columns.centre
    )
    for block in blocks(N, 2, 0):
        one, two = whitened.start(block), plain.start(block)
        for _ in range(3):
            one, two = whitened.advance(one), plain.advance(two)
        assert np.allclose(whitened.vector(one), plain.vector(two), rtol=1e-10, atol=1e-12)
        coef, intercept = whitened.unpack(whitened.vector(one))
        inner_coef, inner_intercept = plain.unpack(plain.vector(two))
        assert np.allclose(X @ coef.T + intercept, Z @ inner_coef.T + inner_intercept, rtol=1e-9, atol=1e-9)


def test_start_is_where_it_was_told_to_be():
    X, y, weights, columns = problem(1, False)
    start = np.array([[1.0, -2.0, 3.0, 0.5]])
    learner = SGDLearner(
        X, y, weights, LOSSES["squared_error"], columns, Auto(), 1.0, 1, 1, start, np.ones(1)
    )
    coef, intercept = learner.unpack(learner.vector(learner.start(blocks(N, 1, 0)[0])))
    assert np.allclose(coef, start, rtol=1e-12)
    assert np.allclose(intercept, 1.0, rtol=1e-10)
