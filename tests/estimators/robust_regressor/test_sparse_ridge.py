"""Many sparse columns: ridge regression without a dense copy, and a model that is drawn towards it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

from tailproof import RobustRegressor
from tailproof.core.losses import LOSSES
from tailproof.estimators.robust_regressor import sparse_ridge as module
from tailproof.estimators.robust_regressor.candidates import RegressionTask
from tailproof.estimators.robust_regressor.sparse_ridge import sparse_ridge
from tailproof.estimators.robust_regressor.tuning import DEFAULT

EXACT = replace(DEFAULT, cg_tolerance=1e-10, cg_steps=500, corrected=1e-9, fold_damping=0.0)


def one_hot(level, count):
    n = level.size
    return sparse.csr_array((np.ones(n), level, np.arange(n + 1)), shape=(n, count))


def uneven_levels(rng, n, count):
    """A category whose levels are drawn unevenly, more of them than rows can tell apart."""
    return one_hot(np.minimum((count * rng.random(n) ** 2).astype(int), count - 1), count)


def task_of(X, y, weights=(), fit_intercept=True, tuning=EXACT):
    loss, seed = LOSSES["squared_error"], np.random.SeedSequence(0)
    return RegressionTask(X, y, np.asarray(weights), loss, fit_intercept, 0.05, (), seed, tuning)


def folds_of(n, count=5):
    return [np.arange(k, n, count) for k in range(count)]


def draw_with_effects(n=300, count=40):
    rng = np.random.default_rng(0)
    X = uneven_levels(rng, n, count)
    return X, 5.0 + X @ rng.standard_normal(count) + rng.standard_normal(n), rng.integers(1, 4, n) * 1.0


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_it_is_that_of_scikit_learn_with_and_without_folds(fit_intercept, weighted, monkeypatch):
    X, y, weights = draw_with_effects()
    weights = weights / weights.mean() if weighted else np.ones(y.size)
    monkeypatch.setattr(module, "_PENALTIES", np.array([3.0]))
    found = sparse_ridge(task_of(X, y, weights if weighted else (), fit_intercept), folds_of(y.size))
    settings = {"alpha": 3.0, "fit_intercept": fit_intercept, "tol": 1e-12}
    peer = Ridge(**settings).fit(X.toarray(), y, weights)
    np.testing.assert_allclose(found.coef, peer.coef_, atol=1e-5)
    assert found.intercept == pytest.approx(peer.intercept_, abs=1e-5)
    for fold in folds_of(y.size):
        rest = np.delete(np.arange(y.size), fold)
        # The penalty is one of a mean loss, so that fewer rows have less of it.
        less = settings | {"alpha": 3.0 * weights[rest].sum() / weights.sum()}
        anew = Ridge(**less).fit(X[rest].toarray(), y[rest], weights[rest])
        np.testing.assert_allclose(found.held_out[fold], anew.predict(X[fold].toarray()), atol=1e-4)


def test_where_slopes_mislead_it_is_the_constant():
    """Two rows of every level, one below the mean and one above: each says the contrary of the other."""
    level = np.repeat(np.arange(200), 2)
    X, y = one_hot(level, 200), 7.0 + np.tile([-1.0, 1.0], 200)
    folds = folds_of(400)
    found = sparse_ridge(task_of(X, y, tuning=DEFAULT), folds)
    assert not found.coef.any()
    assert found.intercept == pytest.approx(7.0)
    for fold in folds:
        np.testing.assert_allclose(found.held_out[fold], np.delete(y, fold).mean())


def test_columns_that_no_row_has_are_no_parameters():
    X, y, _ = draw_with_effects()
    wider = sparse.csr_array(sparse.hstack([X, sparse.csr_array((y.size, 7))]))
    one, other = (sparse_ridge(task_of(Z, y), folds_of(y.size)) for Z in (X, wider))
    np.testing.assert_allclose(other.coef, np.append(one.coef, np.zeros(7)), atol=1e-8)
    assert one.parameters == other.parameters == np.unique(X.indices).size + 1


def test_a_category_of_many_levels_is_no_worse_than_a_constant():
    """Levels that one far row leads, or a few, are no model, whatever held-out rows fail to say of them."""
    for seed in (6, 8, 9):
        rng = np.random.default_rng(seed)
        effects = 0.5 * rng.standard_normal(8_000)
        X, new = uneven_levels(rng, 4_000, 8_000), uneven_levels(rng, 3_000, 8_000)
        y = X @ effects + rng.lognormal(0, 1.5, 4_000) - np.exp(1.125)
        model = RobustRegressor(random_state=seed).fit(X, y)
        ours, constant = (np.mean((p - new @ effects) ** 2) for p in (model.predict(new), y.mean()))
        assert ours < 1.2 * constant


def test_rows_are_kept_sparse_where_dense_ones_take_longer():
    def kept(n, columns, density=0.01, loss="squared_error"):
        rng = np.random.default_rng(0)
        X = sparse.random_array((n, columns), density=density, format="csr", random_state=rng)
        return replace(task_of(X, np.zeros(n), tuning=DEFAULT), loss=LOSSES[loss]).is_kept_sparse

    assert kept(800, 2_000)
    assert kept(50, 3_001)
    assert not kept(800, 1_000)  # coefficients have intervals
    assert not kept(400, 2_000)  # all of them stay in the processor's cache
    assert not kept(800, 2_000, density=0.2)
    assert not kept(40_000, 1_001)  # enough for a second fit
    assert not kept(800, 2_000, loss="poisson")


def test_a_thousand_words_are_fitted_as_well_as_many():
    """As dense rows, with columns of one variance, they had 1.5 times the risk of ridge regression."""
    rng = np.random.default_rng(2)
    share = 1.0 / np.arange(1, 1_501)
    slopes = 0.5 * rng.standard_normal(1_500)

    def texts(n):
        word = rng.choice(1_500, (n, 40), p=share / share.sum()).ravel()
        return sparse.csr_array((np.ones(word.size), (np.repeat(np.arange(n), 40), word)), shape=(n, 1_500))

    X, new = texts(1_500), texts(2_000)
    y = X @ slopes + rng.standard_normal(1_500)
    model, peer = RobustRegressor(random_state=0).fit(X, y), Ridge(1.0, solver="sparse_cg").fit(X, y)
    ours, theirs = (np.mean((one.predict(new) - new @ slopes) ** 2) for one in (model, peer))
    assert ours < 1.2 * theirs
