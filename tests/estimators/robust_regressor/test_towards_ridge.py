"""Few rows a parameter: the model is drawn towards ridge regression, unless it is surely better."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tailproof import RobustRegressor
from tailproof.core.losses import LOSSES
from tailproof.estimators.robust_regressor import towards_ridge
from tailproof.estimators.robust_regressor.candidates import RegressionTask
from tailproof.estimators.robust_regressor.loo_ridge import _PENALTIES, LooRidge, loo_ridge


def table(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.exp(rng.standard_normal(d)) + rng.standard_normal(d)
    return X, X[:, : d // 2].sum(axis=1) + rng.standard_t(3, n), rng.integers(1, 4, n).astype(float)


def folds_of(n, count=5):
    return [np.arange(k, n, count) for k in range(count)]


def its_peer(X, y, weights):
    model = make_pipeline(StandardScaler(), RidgeCV(len(y) * _PENALTIES))
    scaled = weights / weights.mean()
    return model.fit(X, y, standardscaler__sample_weight=scaled, ridgecv__sample_weight=scaled)


@pytest.mark.parametrize("d", [3, 20, 180])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_that_of_scikit_learn(d, weighted):
    X, y, weights = table(100, d)
    weights = weights if weighted else np.ones(100)
    fit, peer = loo_ridge(X, y, weights, True, folds_of(100)), its_peer(X, y, weights)
    np.testing.assert_allclose(X @ fit.coef + fit.intercept, peer.predict(X), rtol=1e-9, atol=1e-9)
    assert fit.parameters == min(d, 99) + 1


@pytest.mark.parametrize("d", [3, 20, 180])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_held_out_with_their_fold(d, weighted):
    X, y, weights = table(100, d)
    weights = weights / weights.mean() if weighted else np.ones(100)
    fit, peer = loo_ridge(X, y, weights, True, folds_of(100)), its_peer(X, y, weights)
    Z, penalty = peer[0].transform(X), peer[-1].alpha_
    for fold in folds_of(100):
        rest = np.delete(np.arange(100), fold)
        anew = Ridge(penalty, tol=1e-12).fit(Z[rest], y[rest], sample_weight=weights[rest])
        np.testing.assert_allclose(fit.held_out[fold], anew.predict(Z[fold]), rtol=1e-6, atol=1e-6)


def test_columns_of_one_value_and_sparse_ones_are_nothing_special():
    X, y, weights = table(60, 5)
    X[:, 0] = 0.1
    plain, folds = loo_ridge(X[:, 1:], y, weights, True, folds_of(60)), folds_of(60)
    for rows in (X, sparse.csr_array(X)):
        found = loo_ridge(rows, y, weights, True, folds)
        np.testing.assert_allclose(found.coef, np.append(0.0, plain.coef), rtol=1e-12)
        assert found.parameters == 5
    assert loo_ridge(0.0 * X, y, weights, True, folds) is None
    assert loo_ridge(1e200 * X, y, weights, True, folds) is None


def test_where_held_out_rows_see_no_gain_the_model_is_ridge_regression():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((200, 20)), rng.standard_normal(200)
    model = RobustRegressor(random_state=0).fit(X, y)
    peer = its_peer(X, y, np.ones(200))
    np.testing.assert_allclose(model.predict(X), peer.predict(X), rtol=1e-9)
    assert "100% of the model" in model.report_.remarks[-1]
    assert np.all(model.row_weights_ == 1.0)
    assert "ridge regression" in model.coefficient_errors_.how


def test_what_is_surely_better_stays_as_it_is():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 30))
    y = X.sum(axis=1) + rng.standard_t(1.5, 400)
    model = RobustRegressor(random_state=0).fit(X, y)
    assert not any("ridge" in remark for remark in model.report_.remarks)
    assert np.linalg.norm(model.coef_ - 1) < 0.5 * np.linalg.norm(its_peer(X, y, np.ones(400))[-1].coef_ - 1)


@pytest.mark.parametrize(
    ("n", "d", "filled"), [(200, 20, 0.5), (50, 80, 0.1), (100, 300, 1.0), (300, 8, 0.5)]
)
def test_sparse_rows_are_fitted_as_dense_ones(n, d, filled):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < filled)
    y = X[:, 0] + rng.standard_t(3, n)
    dense = RobustRegressor(random_state=0).fit(X, y)
    thin = RobustRegressor(random_state=0).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(thin.coef_, dense.coef_, rtol=1e-10, atol=1e-10)
    assert thin.intercept_ == pytest.approx(dense.intercept_, abs=1e-10)


def test_hardly_more_rows_than_columns_are_as_safe_as_ridge_regression():
    """Without the pull it has five times the risk."""
    ours, theirs = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, slopes = rng.standard_normal((200, 180)), rng.standard_normal(180)
        y = X @ slopes + rng.standard_normal(200)
        model, peer = RobustRegressor(random_state=seed).fit(X, y), its_peer(X, y, np.ones(200))
        ours.append(np.sum((model.coef_ - slopes) ** 2))
        theirs.append(np.sum((peer[-1].coef_ / peer[0].scale_ - slopes) ** 2))
    assert np.mean(ours) < 1.05 * np.mean(theirs)


def claims(seed, n=300):
    """A claim in one row of five, whose size grows along two of five columns; and the mean of the target."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    mean = np.exp(X[:, :2] @ [0.3, 0.2])
    return X, np.where(rng.random(n) < 0.2, mean * rng.exponential(5.0, n), 0.0), mean


def test_zeros_among_claims_are_no_rows_to_learn_slopes_from():
    """By all 300 rows, 50 a parameter, there would be no pull, and 1.2 times the risk."""
    new, _, mean = claims(99, 20_000)
    ours, theirs = [], []
    for seed in range(12):
        X, y, _ = claims(seed)
        models = RobustRegressor(random_state=seed).fit(X, y), its_peer(X, y, np.ones(300))
        for risks, model in zip((ours, theirs), models, strict=True):
            risks.append(np.mean((model.predict(new) - mean) ** 2))
    assert np.mean(ours) < 1.1 * np.mean(theirs)


@pytest.mark.parametrize(("n", "d"), [(60, 10), (100, 20), (60, 3), (200, 8)])
def test_far_rows_do_not_come_in_with_ridge_regression(n, d):
    """Least squares goes wherever two rows take it, and the model must not follow."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d))
    y = X[:, 0] + rng.standard_normal(n)
    clean = RobustRegressor(random_state=0, drop_glitches=False).fit(X, y)
    y[:2] = 1e6, -1e6
    model = RobustRegressor(random_state=0, drop_glitches=False).fit(X, y)
    assert np.linalg.norm(model.coef_ - clean.coef_) < 1
    assert not any("ridge" in remark for remark in model.report_.remarks)


@pytest.mark.parametrize("edge", [2, 4, 15, 30, 35, 50])
def test_the_pull_has_no_step_in_rows_a_parameter(edge):
    """At the ends of a rule, a parameter of a thousand more or less changes next to nothing."""
    rng = np.random.default_rng(4)
    n = 1_000 * edge
    y, ours = rng.standard_normal(n), 0.1 * rng.standard_normal(n)
    task = RegressionTask(
        y[:, None], y, np.empty(0), LOSSES["squared_error"], True, 0.05, (), np.random.SeedSequence(0)
    )
    for gain in (-0.02, 0.0, 0.02):
        shares = [
            towards_ridge._share(LooRidge(np.zeros(1), 0.0, (1 + gain) * ours, 1_000 + more), ours, task)
            for more in (-1, 1)
        ]
        assert shares[0] == pytest.approx(shares[1], abs=0.01)


def shares_of_ridge(gaps, rows_a_parameter):
    n = gaps.size
    seed, loss = np.random.SeedSequence(0), LOSSES["squared_error"]
    task = RegressionTask(np.zeros((n, 1)), gaps, np.empty(0), loss, True, 0.05, (), seed)
    fits = [LooRidge(np.zeros(1), 0.0, gaps, int(n / rows)) for rows in rows_a_parameter]
    return [towards_ridge._share_by_gaps(gaps, fit, task.untied_share, task) for fit in fits]


def test_scarce_rows_are_believed_only_where_plain_means_agree():
    gaps = np.random.default_rng(5).standard_normal(1_200)
    gaps += 1.0 / np.sqrt(1_200) - gaps.mean()
    scarce, few = shares_of_ridge(gaps, (1.5, 6))
    assert 0.3 < few < 0.7
    assert scarce == pytest.approx(few, abs=0.05)
    # The choice misses a row by far, and is better for the others.
    gaps = gaps + 5.0 / np.sqrt(1_200)
    gaps[0] = -250.0
    scarce, few = shares_of_ridge(gaps, (1.5, 6))
    assert scarce > 0.9
    assert few < 0.1


def test_ample_rows_leave_the_choice_unless_ridge_regression_is_better():
    """Half a standard error worse: ridge regression has most of 12 rows a parameter, and none of 32."""
    gaps = np.random.default_rng(6).standard_normal(1_200)
    gaps += 0.5 / np.sqrt(1_200) - gaps.mean()
    few, between, ample = shares_of_ridge(gaps, (12, 20, 32))
    assert few > 0.6
    assert 0.1 < between < few - 0.1
    assert ample == 0.0
    better, surely_better = (shares_of_ridge(gaps - z / np.sqrt(1_200), [32])[0] for z in (1.25, 2.1))
    assert better == pytest.approx(0.5, abs=0.1)
    assert surely_better == 1.0


@pytest.mark.parametrize("columns", [2_500, 4_000, 40_000])
def test_a_large_sparse_table_is_not_made_dense(columns, monkeypatch):
    monkeypatch.setattr(towards_ridge, "loo_ridge", lambda *_: pytest.fail("ridge regression was fitted"))
    X = sparse.random_array((500, columns), density=1e-3, format="csr", random_state=np.random.default_rng(0))
    y = np.random.default_rng(1).standard_normal(500)
    RobustRegressor(random_state=0).fit(X, y)
