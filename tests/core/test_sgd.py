"""SGD in whitened coordinates is SGD on whitened data."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from tailproof.core import sgd
from tailproof.core.losses import LOSSES, SOFTMAX_LOSS
from tailproof.core.partition import blocks
from tailproof.core.rules import get_rule
from tailproof.core.scaling import FeatureScale, unscaled
from tailproof.core.sgd import SGDLearner
from tailproof.core.steps import Auto, Theorem1
from tailproof.estimators.parallel import LocalEngine

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


@pytest.mark.parametrize("rows_of_a_block", [10, 4])  # all of them, or some
@pytest.mark.parametrize("shared", [True, False])
def test_scores_of_blocks_do_not_depend_on_threads(rows_of_a_block, shared):
    rng = np.random.default_rng(0)
    X, k = rng.standard_normal((50, 7)), 5
    learner = SGDLearner(
        X,
        X[:, 0],
        np.empty(0),
        LOSSES["squared_error"],
        unscaled(7),
        Auto(),
        1.0,
        k,
        1,
        np.zeros((1, 7)),
        np.zeros(1),
    )
    parts = [block.rows[:rows_of_a_block] for block in blocks(50, k, 0)]
    vectors, model = rng.standard_normal((k, 8)), (rng.standard_normal(7), 2.0) if shared else None
    own, every = learner.scores_of_blocks(vectors, parts, model, LocalEngine(3))
    alone, all_alone = learner.scores_of_blocks(vectors, parts, model)
    assert np.array_equal(own, alone)
    assert np.allclose(
        own, np.concatenate([X[part] @ v[:-1] + v[-1] for part, v in zip(parts, vectors, strict=True)])
    )
    assert every is all_alone is None or np.array_equal(every, all_alone)
    assert not shared or np.allclose(every, X @ model[0] + 2.0)


@pytest.mark.parametrize("d", [1, 5, 64, 65, 200])
@pytest.mark.parametrize("steps", [Theorem1(20.0), Auto(0.5)])
@pytest.mark.parametrize("k", [2, 3, 8])
def test_several_states_pass_as_one_after_another(d, steps, k):
    """To the last bit, over several passes, also where blocks differ in size."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((7 * k + 3, d)), rng.standard_normal(7 * k + 3)
    learner = SGDLearner(
        X,
        y,
        np.empty(0),
        LOSSES["squared_error"],
        unscaled(d),
        steps,
        30.0,
        k,
        1,
        np.zeros((1, d)),
        np.zeros(1),
    )
    alone = together = [learner.start(block) for block in blocks(len(y), k, 0)]
    for _ in range(3):
        alone, together = [learner.advance(state) for state in alone], learner.advance_several(together)
    for one, other in zip(alone, together, strict=True):
        assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in sgd._MOVING)
        assert (one.passes, one.updates, one.farthest) == (other.passes, other.updates, other.farthest)
    assert np.array_equal(learner.vectors(alone), [learner.vector(state) for state in alone])


@pytest.mark.parametrize("steps", [Theorem1(20.0), Auto(0.5)])
@pytest.mark.parametrize(
    "case", ["plain", "weighted", "whitened", "outputs", "sparse", "batches", "momentum", "penalty"]
)
def test_blocks_together_pass_as_one_after_another(case, steps):
    """To the last bit, whatever the kernel; a block without rows stays where it is."""
    outputs = 3 if case == "outputs" else 1
    X, y, weights, columns = problem(outputs, weighted=case == "weighted")
    settings = {"batch_size": 5} if case == "batches" else {"l1": 0.01} if case == "penalty" else {}
    if case == "momentum":
        settings["rule"] = get_rule("momentum")
    learner = SGDLearner(
        csr_array(X) if case == "sparse" else X, y, weights,
        LOSSES["squared_error"] if outputs == 1 else SOFTMAX_LOSS,
        {"whitened": columns, "sparse": unscaled(D)}.get(case, replace(columns, whitening=None)),
        steps, 30.0, 3, outputs, np.zeros((outputs, D)), np.zeros(outputs), **settings,
    )  # fmt: skip
    states = [learner.start(block) for block in blocks(N, 3, 0)]
    together = sgd.Iterates.of_states(states)
    for number in range(2):
        parts = [state.block.order(number) for state in states]
        parts[1] = parts[1][:0]
        updates = learner.advance_blocks(together, parts, number)
        states = [learner.advance(s) if part.size else s for s, part in zip(states, parts, strict=True)]
        assert updates[1] == 0 < updates[0]
        for j, state in enumerate(states):
            moved = together.state(j, state)
            for name in ("coef", "intercept", "mean_coef", "mean_intercept"):
                assert np.array_equal(getattr(moved, name), getattr(state, name)), (name, j)
            assert (moved.updates, moved.farthest) == (state.updates, state.farthest)
            assert state.velocity is None or np.array_equal(moved.velocity, state.velocity)
