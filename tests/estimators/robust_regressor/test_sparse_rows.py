"""Sparse rows of many columns: the same fits as of dense ones, with nothing made dense."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import RidgeCV

from tailproof import RobustRegressor
from tailproof.core.losses import get_loss
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.sparse_rows import sparse_rows_of
from tailproof.estimators.robust_regressor.tuning import DEFAULT

EXACT = replace(DEFAULT, cg_tolerance=1e-10, cg_steps=500, tolerance=1e-9)


class FewAreMany(RobustRegressor):
    _tuning = replace(DEFAULT, gram_columns=20, hessian_columns=10, inference_columns=20)


def categories(n, d, seed=0, noise="lognormal"):
    """Indicators of unequal frequency, effects of one size, and the mean of the targets."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, d + 1) ** 0.7
    column = rng.choice(d, n, p=share / share.sum())
    X = sparse.csr_array((np.ones(n), column, np.arange(n + 1)), shape=(n, d))
    mean = 3.0 + X @ np.random.default_rng(99).standard_normal(d)
    law = {
        "lognormal": lambda: rng.lognormal(0, 1.5, n) - np.exp(1.125),
        "normal": lambda: rng.normal(size=n),
    }
    return X, mean + law[noise](), mean


def with_a_full_column(n=400, d=30):
    X, y, _ = categories(n, d)
    full = 2_000 + np.random.default_rng(5).standard_normal(n)
    return sparse.csr_array(sparse.hstack([X, full[:, None]])), y + 2.0 * (full - 2_000)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_products_are_those_of_scaled_dense_rows(fit_intercept, weighted):
    X, y = with_a_full_column()
    weights = np.random.default_rng(0).uniform(0.5, 2, y.size) if weighted else np.ones(y.size)
    rows = sparse_rows_of(X, y, weights, get_loss("squared_error", None, "regression"), fit_intercept)
    Z = np.column_stack(
        [(X.toarray() - rows.columns.centre) / rows.columns.scale, np.full(y.size, fit_intercept)]
    )
    Q = Z @ rows.whitening.map.toarray()
    v, phi = weights / weights.sum(), np.random.default_rng(1).standard_normal((Z.shape[1], 2))
    np.testing.assert_allclose(rows.X @ phi, Q @ phi, atol=1e-10)
    np.testing.assert_allclose(phi.T @ rows.X.T, phi.T @ Q.T, atol=1e-10)
    np.testing.assert_allclose(rows.X.T @ y, Q.T @ y, atol=1e-8)
    np.testing.assert_allclose(rows.predictions(phi), (Q @ phi).T, atol=1e-10)
    used = (Z[:, :-1] != 0).any(axis=0)
    np.testing.assert_allclose((v @ Q**2)[:-1][used], 1.0)
    assert rows.square_norm == pytest.approx(float(v @ (Z[:, :-1] ** 2).sum(axis=1)))
    np.testing.assert_array_equal(rows.take(np.arange(5)).predictions(phi), rows.predictions(phi)[:, :5])


def test_levels_solve_their_equations():
    X, y = with_a_full_column()
    rows = sparse_rows_of(X, y, np.ones(y.size), get_loss("squared_error", None, "regression"), True, EXACT)
    rows = replace(rows, tuning=replace(EXACT, hessian_columns=1))
    path = solve_path(rows, np.random.default_rng(0))
    Z = np.column_stack([(X.toarray() - rows.columns.centre) / rows.columns.scale, np.ones(y.size)])
    theta = path.basis.map @ path.phi
    slopes = np.append(np.ones(Z.shape[1] - 1), 0.0)
    for m in np.flatnonzero(path.levels.bisquare == 0):
        r = np.clip(y - Z @ theta[:, m], -path.levels.tau[m], path.levels.tau[m])
        left = Z.T @ r / y.size - path.levels.ridge[m] * slopes * theta[:, m]
        assert np.abs(left).max() < 1e-4 * np.abs(y).std(), path.levels.names()[m]


def test_a_penalty_is_chosen_and_better_than_ridge_with_its_own():
    ours, ridge = [], []
    for seed in range(2):
        X, y, _ = categories(700, 300, seed)
        new, _, mean = categories(700, 300, seed + 100)
        model = FewAreMany(random_state=0).fit(X, y)
        names = [name for name in model.report_.candidates if "blend" not in name]
        assert all("ridge" in name or "l1" in name for name in names)
        ours.append(np.mean((model.predict(new) - mean) ** 2))
        plain = RidgeCV(np.logspace(-1, 2, 7)).fit(X, y)
        ridge.append(np.mean((plain.predict(new) - mean) ** 2))
    assert np.mean(ours) < np.mean(ridge)


def test_units_of_columns_and_of_the_target_do_not_matter():
    X, y = with_a_full_column()
    model = FewAreMany(random_state=0).fit(X, y)
    factor = np.logspace(-3, 3, X.shape[1])
    other = FewAreMany(random_state=0).fit(sparse.csr_array(X @ sparse.diags_array(factor)), 1e3 * y)
    np.testing.assert_allclose(
        other.predict(sparse.csr_array(X @ sparse.diags_array(factor))) / 1e3, model.predict(X), rtol=1e-3
    )


@pytest.mark.parametrize("kind", ["weights", "poisson", "no intercept", "few rows"])
def test_it_takes_what_dense_rows_take(kind):
    X, y, mean = categories(12 if kind == "few rows" else 600, 60, noise="normal")
    settings = {"poisson": {"loss": "poisson"}, "no intercept": {"fit_intercept": False}}.get(kind, {})
    if kind == "poisson":
        mean = np.exp(0.5 * (mean - 3))
        y = np.random.default_rng(0).poisson(mean) * 1.0
    weights = np.arange(y.size) % 3.0 if kind == "weights" else None
    model = FewAreMany(random_state=0, **settings).fit(X, y, weights)
    assert np.isfinite(model.coef_).all()
    if kind == "few rows":
        return
    assert np.mean((model.predict(X) - mean) ** 2) < 0.5 * np.var(mean)
    if kind == "weights":
        some = weights > 0
        same = FewAreMany(random_state=0).fit(X[some], y[some], weights[some])
        np.testing.assert_allclose(model.coef_, same.coef_)


def test_thousands_of_columns_take_no_dense_copy():
    X, y, mean = categories(300, 6_000, noise="normal")
    model = RobustRegressor(random_state=0).fit(X, y)
    assert model.coef_.shape == (6_000,)
    assert not model.coef_[np.diff(X.tocsc().indptr) == 0].any()  # categories that no row has
    assert np.mean((model.predict(X) - mean) ** 2) < 0.8 * np.var(mean)
