"""Each aggregator beside a slow transcription of its equation."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import tailproof as tp
from literal_gradients import (
    DELTA,
    LITERAL,
    PAPER,
    close,
    gradients_and_losses,
    near_tie,
    problems,
    regression,
    sample_of,
)
from tailproof.core.losses import LOSSES, SOFTMAX_LOSS
from tailproof.core.scaling import unscaled
from tailproof.estimators.baselines.aggregators import AGGREGATES, AggregatorOptions
from tailproof.estimators.baselines.row_gradients import RowGradients


@pytest.mark.parametrize("name", AGGREGATES)
class TestAgainstTheEquations:
    @given(problem=problems())
    def test_equals_the_literal_transcription(self, name, problem):
        loss, X, y, w, k = problem
        gradients, losses = gradients_and_losses(loss, X, y, w)
        if name == "median_block" and near_tie(losses, k):
            return
        sample = sample_of(loss, X, y, k)
        found = AGGREGATES[name](sample, AggregatorOptions(delta=DELTA))(sample.scores(w[None], np.zeros(1)))
        close(found.gradient[0], LITERAL[name](gradients, losses, k), gradients)

    @given(problem=problems(most=40))
    @settings(max_examples=60)
    def test_scaled_and_centred_columns_and_an_intercept(self, name, problem):
        """The gradient in scaled coordinates is the literal one of the scaled rows with a column of ones."""
        loss, X, y, w, k = problem
        columns = type(unscaled(1))(X.mean(axis=0), 1.0 + X.std(axis=0))
        Z = np.column_stack([(X - columns.centre) / columns.scale, np.ones(len(X))])
        gradients, losses = gradients_and_losses(loss, Z, y, np.append(w * columns.scale, 0.3))
        if name == "median_block" and near_tie(losses, k):
            return
        sample = RowGradients(
            X, y, np.empty(0), LOSSES[loss], 1, columns, True, sample_of(loss, X, y, k).blocks
        )
        found = AGGREGATES[name](sample, AggregatorOptions())(sample.scores(w[None], np.array([0.3])))
        close(found.gradient[0], LITERAL[name](gradients, losses, k), gradients)

    @given(problem=problems(most=40))
    @settings(max_examples=60)
    def test_a_path_of_updates_equals_the_literal_path(self, name, problem):
        """Warm starts save time and change nothing."""
        loss, X, y, w, k = problem
        k, path, step = min(k, len(X)), [], 0.1 / np.abs(X).max() ** 2 if X.any() else 0.1
        if loss == "log_loss" and len(np.unique(y)) < 2:
            return
        make = tp.RGDRegressor if loss == "squared_error" else tp.RGDClassifier
        model = make(aggregate=name, k=k, step_size=step, init=w, max_iter=4, **PAPER)
        model.set_params(callback=lambda cost, v: path.append(v)).fit(X, y)
        for before, after in itertools.pairwise(path):
            gradients, losses = gradients_and_losses(loss, X, y, before)
            if name == "median_block" and near_tie(losses, k):
                return
            close((before - after) / step, LITERAL[name](gradients, losses, k), gradients + 1 / step)

    def test_shuffled_blocks_and_sparse_rows_give_the_same_gradient(self, name):
        rng = np.random.default_rng(0)
        X, y, w = rng.standard_normal((50, 4)), rng.standard_normal(50), rng.standard_normal(4)
        order = rng.permutation(50)
        parts = np.array_split(order, 7)
        settled = sample_of("squared_error", X[order], y[order], 7, 1.0 + np.arange(50)[order])
        others = [
            RowGradients(rows, y, 1.0 + np.arange(50), settled.loss, 1, unscaled(4), False, parts)
            for rows in (X, sparse.csr_array(X))
        ]
        expected = AGGREGATES[name](settled, AggregatorOptions())(settled.scores(w[None], np.zeros(1)))
        for sample in others:
            found = AGGREGATES[name](sample, AggregatorOptions())(sample.scores(w[None], np.zeros(1)))
            assert np.allclose(found.gradient, expected.gradient, rtol=1e-9)
            assert found.cost == expected.cost

    def test_equal_weights_are_none_and_zero_is_absence(self, name):
        X, y = regression(60, 3)
        plain, equal, fewer, some = (tp.RGDRegressor(aggregate=name, k=5, shuffle=False) for _ in range(4))
        plain.fit(X, y)
        equal.fit(X, y, sample_weight=np.full(60, 3.0))
        assert np.allclose(plain.coef_, equal.coef_, rtol=1e-7)
        fewer.fit(X[:45], y[:45])
        some.fit(X, y, sample_weight=np.arange(60) < 45)
        assert np.allclose(fewer.coef_, some.coef_, rtol=1e-7)
        assert some.cost_ <= 45 * some.n_iter_

    def test_softmax_gradient(self, name):
        rng = np.random.default_rng(1)
        X, y, W = (
            rng.standard_normal((60, 3)),
            rng.integers(0, 4, 60).astype(float),
            rng.standard_normal((4, 3)),
        )
        parts = np.array_split(np.arange(60), 5)
        sample = RowGradients(
            X, y, np.empty(0), SOFTMAX_LOSS, 4, unscaled(3), False, [slice(p[0], p[-1] + 1) for p in parts]
        )
        scores = X @ W.T
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        losses = -np.log(shares[np.arange(60), y.astype(int)])
        slopes = shares - (y[:, None] == np.arange(4))
        gradients = (slopes[:, :, None] * X[:, None, :]).reshape(60, 12)
        found = AGGREGATES[name](sample, AggregatorOptions())(sample.scores(W, np.zeros(4)))
        close(found.gradient.ravel(), LITERAL[name](gradients, losses, 5), gradients)

    def test_huge_partial_derivatives_do_not_overflow(self, name):
        X, y = regression(60, 3)
        small, large = sample_of("squared_error", X, y, 5), sample_of("squared_error", X * 1e150, y, 5)
        one, other = (AGGREGATES[name](s, AggregatorOptions())(-y) for s in (small, large))
        assert np.allclose(other.gradient / 1e150, one.gradient, rtol=1e-8)

    def test_finds_the_model_in_heavy_noise(self, name):
        X, y = regression(4_000, 3)
        model = tp.RGDRegressor(aggregate=name, k=5, random_state=0, max_iter=300).fit(X, y)
        assert np.abs(model.coef_ - 1).max() < 0.5
        assert f"aggregate={name}" in str(model.report_)

    def test_not_a_number_in_the_data_is_named(self, name):
        for bad in (np.nan, np.inf):
            X, y = regression(200, 3)
            X[117, 1] = bad
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                tp.RGDRegressor(aggregate=name, k=5).fit(X, y)

    def test_divergence_ends_with_a_warning_and_a_finite_model(self, name):
        X, y = regression(100, 3)
        model = tp.RGDRegressor(aggregate=name, k=5, step_size=1e60, max_iter=50)
        with pytest.warns(ConvergenceWarning, match="smaller step_size"):
            model.fit(X, y)
        assert np.all(np.isfinite(model.coef_))
        assert np.isfinite(model.intercept_)
        assert model.n_iter_ < 50
        assert not model.converged_

    def test_callback_budget_and_cost(self, name):
        X, y = regression(103, 2)
        seen, per_update = [], 11 if name == "median_block" else 103
        model = tp.RGDRegressor(
            aggregate=name, k=10, budget=300, callback=lambda cost, w: seen.append((cost, w)), **PAPER
        )
        model.set_params(init=[0.5, 0.5], step_size=0.01).fit(X, y)
        costs = [cost for cost, _ in seen]
        assert costs[0] == 0
        assert costs[-1] == model.cost_ >= 300 > costs[-2]
        assert len(costs) == model.n_iter_ + 1
        assert set(np.diff(costs)) <= ({10, 11} if name == "median_block" else {per_update})
        assert np.array_equal(seen[0][1], [0.5, 0.5])
        assert np.array_equal(seen[-1][1], model.coef_)

    @pytest.mark.parametrize(
        ("constraint", "inside"),
        [
            (("ball", 0.7), lambda w: np.linalg.norm(w) <= 0.7 + 1e-12),
            (("box", -0.1, 0.6), lambda w: w.min() >= -0.1 and w.max() <= 0.6),
            (("l1_ball", 1.5), lambda w: np.abs(w).sum() <= 1.5 + 1e-12),
            (("simplex", 2.0), lambda w: w.min() >= 0 and np.isclose(w.sum(), 2.0)),
        ],
    )
    def test_constraints(self, name, constraint, inside):
        X, y = regression(300, 4)
        path = []
        model = tp.RGDRegressor(aggregate=name, k=5, constraint=constraint)
        model.set_params(callback=lambda cost, w: path.append(w[:-1])).fit(X, y)
        assert all(inside(w) for w in path)
