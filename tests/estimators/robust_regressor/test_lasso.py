"""Huber's regression with an l1 penalty: solutions, and candidates for few informative columns."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import Lasso

from tailproof import RobustRegressor
from tailproof.core.losses import get_loss
from tailproof.estimators.robust_regressor.candidates import RegressionTask
from tailproof.estimators.robust_regressor.lasso import LassoProblem, _largest_eigenvalue, lasso_fits
from tailproof.estimators.robust_regressor.lasso_candidates import lasso_candidates
from tailproof.estimators.robust_regressor.tuning import DEFAULT


class WithoutLasso(RobustRegressor):
    _tuning = replace(DEFAULT, lasso_below=0)


def few_of_many(n=100, d=200, informative=5, seed=0, noise="lognormal"):
    rng = np.random.default_rng(seed)
    X, coef = rng.standard_normal((n, d)), np.zeros(d)
    coef[:informative] = 2.0
    law = {
        "lognormal": lambda: rng.lognormal(0, 1.5, n) - np.exp(1.125),
        "normal": lambda: rng.standard_normal(n),
    }
    return X, X @ coef + 1.0 + law[noise](), coef


def problem(n, d, seed, tau, weighted=False):
    X, y, _ = few_of_many(n, d, 3, seed)
    weights = np.random.default_rng(1).uniform(0.2, 2, n) if weighted else np.ones(n)
    return LassoProblem(np.column_stack([X, np.ones(n)]), y, weights / weights.sum(), tau, 1e-7, 5_000)


@settings(max_examples=15)
@given(
    st.integers(0, 1_000),
    st.sampled_from([0.3, 1.0, np.inf]),
    st.sampled_from([0.05, 0.3, 0.8]),
    st.booleans(),
)
def test_solutions_meet_the_conditions_of_optimality(seed, tau, share, weighted):
    lasso = problem(60, 90, seed, tau, weighted)
    penalty = share * lasso.largest_penalty(np.zeros(91))
    theta = lasso.solve(penalty, np.zeros(91))
    if 3 * np.count_nonzero(theta) > 60:
        return  # not few columns: such a fit is left out
    gradient = lasso.gradient(theta)
    used = np.flatnonzero(theta[:-1])
    np.testing.assert_allclose(gradient[used], penalty * np.sign(theta[used]), atol=0.02 * penalty)
    assert np.abs(gradient[:-1]).max(initial=0.0) <= 1.02 * penalty
    assert abs(gradient[-1]) <= 0.02 * penalty


def test_without_truncation_it_is_the_lasso():
    lasso = problem(80, 40, 0, np.inf)
    penalty = 0.2 * lasso.largest_penalty(np.zeros(41))
    theta = lasso.solve(penalty, np.zeros(41))
    expected = Lasso(alpha=penalty, tol=1e-9).fit(lasso.Z[:, :-1], lasso.y)
    np.testing.assert_allclose(theta[:-1], expected.coef_, atol=0.02)
    assert theta[-1] == pytest.approx(expected.intercept_, abs=0.02)


def test_no_column_is_used_at_the_largest_penalty_and_one_just_below():
    lasso = problem(50, 70, 1, 1.0)
    most = lasso.largest_penalty(np.zeros(71))
    assert np.count_nonzero(lasso.solve(1.01 * most, np.zeros(71))[:-1]) == 0
    assert np.count_nonzero(lasso.solve(0.95 * most, np.zeros(71))[:-1]) >= 1


def test_held_out_rows_leave_nothing_behind():
    """Rare columns move slowly: a fold's fit that started from one of all rows would remember the fold."""
    rng = np.random.default_rng(0)
    Z = np.column_stack([np.eye(40)[rng.integers(0, 40, 120)], np.ones(120)])
    y = rng.standard_normal(120)
    y[7] = 1e3
    shares, fold = np.full(120, 1 / 120), np.arange(0, 120, 7)
    loss = get_loss("squared_error", None, "regression")
    found = lasso_fits(LassoProblem(Z, y, shares, np.inf), [0.1, 0.05], [fold], 0.05, loss)
    assert np.abs(found.held_out[:, fold]).max() < 10.0
    assert np.isnan(np.delete(found.held_out, fold, axis=1)).all()
    assert (Z @ found.theta).max() > 100.0


def test_few_informative_columns_are_found():
    ours, ridges = [], []
    for seed in range(2):
        X, y, coef = few_of_many(seed=seed)
        ours.append(np.sum((RobustRegressor(random_state=0).fit(X, y).coef_ - coef) ** 2))
        ridges.append(np.sum((WithoutLasso(random_state=0).fit(X, y).coef_ - coef) ** 2))
    assert np.mean(ours) < 0.5 * np.mean(ridges)


def test_where_all_columns_matter_little_it_costs_nothing():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 100))
    y = X @ rng.standard_normal(100) + rng.standard_normal(150)
    ours, without = (kind(random_state=0).fit(X, y) for kind in (RobustRegressor, WithoutLasso))
    assert any("l1" in name for name in ours.report_.candidates)
    np.testing.assert_allclose(ours.coef_, without.coef_, atol=0.05)


def test_enough_rows_need_none():
    X, y, _ = few_of_many(400, 60)
    assert not any("l1" in name for name in RobustRegressor(random_state=0).fit(X, y).report_.candidates)


@pytest.mark.parametrize("scale", [1e-8, 1e12])
def test_units_do_not_matter(scale):
    X, y, _ = few_of_many()
    model = RobustRegressor(random_state=0).fit(X, y)
    other = RobustRegressor(random_state=0).fit(X, scale * y)
    np.testing.assert_allclose(other.coef_ / scale, model.coef_, rtol=1e-6, atol=1e-9)


def test_sparse_rows_weights_and_no_intercept():
    X, y, coef = few_of_many(120, 110, noise="normal")
    X = np.where(np.random.default_rng(2).random(X.shape) < 0.3, X, 0.0)
    y, weights = X @ coef + 0.1 * y, np.arange(y.size) % 3.0
    for rows in (X, sparse.csr_array(X)):
        model = RobustRegressor(random_state=0, fit_intercept=False).fit(rows, y, weights)
        assert model.intercept_ == 0.0
        assert np.sum((model.coef_ - coef) ** 2) < 2.0
        some = weights > 0
        same = RobustRegressor(random_state=0, fit_intercept=False).fit(rows[some], y[some], weights[some])
        np.testing.assert_allclose(model.coef_, same.coef_)


def test_other_rows_are_fitted_anew():
    X, y, _ = few_of_many(60, 70)
    folds = (np.arange(0, 60, 2), np.arange(1, 60, 2))
    loss, seed = get_loss("squared_error", None, "regression"), np.random.SeedSequence(0)
    task = RegressionTask(X, y, np.empty(0), loss, True, 0.05, folds, seed)
    candidate = lasso_candidates(task)[2]
    np.testing.assert_allclose(candidate.fit(replace(task, X=X.copy())).coef, candidate.fit(task).coef)
    assert lasso_candidates(replace(task, folds=())) == []


def test_the_largest_eigenvalue_of_many_columns_is_met_from_above():
    rng = np.random.default_rng(0)
    A = sparse.random_array((400, 300), density=0.02, random_state=rng).tocsr()
    shares = rng.dirichlet(np.ones(400))
    exact = np.linalg.eigvalsh((A.toarray().T * shares) @ A.toarray())[-1]
    for columns in (A, A.toarray()):
        assert exact <= _largest_eigenvalue(columns, shares) <= 1.05 * exact


def test_sparse_columns_are_fitted_as_dense_ones():
    rng = np.random.default_rng(1)
    Z = sparse.random_array((300, 400), density=0.05, random_state=rng).tocsr()
    y = Z[:, :5].sum(axis=1) + rng.standard_normal(300) * 0.1
    shares = np.full(300, 1 / 300)
    penalty = 0.1 * LassoProblem(Z, y, shares, 0.3).largest_penalty(np.zeros(400))
    exact = (y, shares, 0.3, 1e-10, 100_000)  # sparse and dense rows come there by other steps
    fits = [LassoProblem(rows, *exact).solve(penalty, np.zeros(400)) for rows in (Z, Z.toarray())]
    np.testing.assert_allclose(*fits, atol=1e-6)


@pytest.mark.parametrize("sparsely", [False, True])
def test_rows_without_a_share_are_as_if_absent(sparsely):
    lasso = problem(60, 90, 3, 1.0)
    fold = np.arange(0, 60, 4)
    rest = np.delete(np.arange(60), fold)
    alone = replace(lasso, Z=lasso.Z[rest], y=lasso.y[rest], shares=np.full(rest.size, 1 / rest.size))
    penalties = np.array([0.6, 0.4]) * lasso.largest_penalty(np.zeros(91))
    here = replace(lasso, Z=sparse.csr_array(lasso.Z)) if sparsely else lasso
    np.testing.assert_allclose(here.without(fold).path(penalties), alone.path(penalties), atol=1e-4)
