"""Directions in which rows hardly vary: slopes along them are drawn to zero, by less than their own error."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression

from tailproof import RobustRegressor
from tailproof.core.losses import LOSSES
from tailproof.estimators.robust_regressor import estimator, light_penalty
from tailproof.estimators.robust_regressor.candidates import LinearFit, RegressionTask
from tailproof.estimators.robust_regressor.light_penalty import _COST, _PENALTY, lightly_penalised

EVEN = np.empty(0)


def sizes_of_stones(n, seed=0, apart=0.02):
    """Three lengths that are nearly the same, in units of their own, and a column apart from them."""
    rng = np.random.default_rng(seed)
    length = rng.standard_normal((n, 1)) + apart * rng.standard_normal((n, 3))
    X = np.column_stack([length * [1.0, 10.0, 0.1] + [5.0, 0.0, 1.0], rng.standard_normal(n)])
    return X, X @ [1.0, 0.1, 10.0, 1.0] + rng.standard_t(3, n)


def task_of(X, y, weights=EVEN, fit_intercept=True, loss="squared_error", folds=5):
    parts = tuple(np.arange(k, len(y), folds) for k in range(folds))
    seed = np.random.SeedSequence(0)
    return RegressionTask(X, y, weights, LOSSES[loss], fit_intercept, 0.05, parts, seed)


def plain(task, rows):
    weights = task.weights[rows] if task.weights.size else None
    fit = LinearRegression(fit_intercept=task.fit_intercept).fit(task.X[rows], task.y[rows], weights)
    return LinearFit(fit.coef_, float(fit.intercept_))


def by_least_squares(task):
    """The model, its fits without a fold, and what these predict for that."""
    every, held_out = np.arange(task.n), np.empty(task.n)
    fits = [plain(task, np.delete(every, fold)) for fold in task.folds]
    for fold, fit in zip(task.folds, fits, strict=True):
        held_out[fold] = fit.scores(task.X[fold])
    return plain(task, every), fits, held_out


def gram_of(task):
    """Means of products of scaled columns, with centre and scale."""
    v = task.weights / task.weights.sum() if task.weights.size else np.full(task.n, 1 / task.n)
    centre = v @ task.X if task.fit_intercept else np.zeros(task.X.shape[1])
    scale = np.sqrt(v @ (task.X - centre) ** 2)
    Z = (task.X - centre) / scale
    return (Z.T * v) @ Z, scale


def variance_of(task, fits):
    """The jackknife's, of predictions but for a constant."""
    G, scale = gram_of(task)
    slopes = np.array([fit.coef * scale for fit in fits])
    away = slopes - slopes.mean(axis=0)
    return (len(fits) - 1) / len(fits) * np.einsum("ki,ij,kj->", away, G, away)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_it_minimises_the_sum_with_the_penalty(monkeypatch, weighted, fit_intercept):
    monkeypatch.setattr(light_penalty, "_COST", np.inf)
    monkeypatch.setattr(light_penalty, "_VARIES", np.inf)
    X, y = sizes_of_stones(300)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, y.size) if weighted else EVEN
    task = task_of(X, y, weights, fit_intercept)
    model, _, held_out = by_least_squares(task)
    found, _ = lightly_penalised(model, held_out, task, task.size)
    G, scale = gram_of(task)
    wanted = np.linalg.solve(G + _PENALTY**2 * np.linalg.inv(G), G @ (model.coef * scale)) / scale
    np.testing.assert_allclose(found.coef, wanted, rtol=1e-7)
    if fit_intercept:
        v = weights / weights.sum() if weighted else np.full(y.size, 1 / y.size)
        assert v @ found.scores(X) == pytest.approx(v @ model.scores(X))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [300, 3_000])
def test_it_costs_a_share_of_the_variance_of_predictions(weighted, size):
    X, y = sizes_of_stones(300)
    y = y + 30.0 * (X[:, 0] - 0.1 * X[:, 1])  # so that the whole penalty would cost more
    weights = np.random.default_rng(1).integers(1, 3, y.size).astype(float) if weighted else EVEN
    task = task_of(X, y, weights)
    model, fits, held_out = by_least_squares(task)
    found, moved = lightly_penalised(model, held_out, task, size * task.size / 300)
    G, scale = gram_of(task)
    change = (found.coef - model.coef) * scale
    assert change @ G @ change == pytest.approx(_COST * variance_of(task, fits) * 300 / size, rel=1e-4)
    np.testing.assert_allclose(moved - held_out, found.scores(X) - model.scores(X), atol=1e-12)


def test_where_rows_vary_enough_nothing_is_changed():
    X, y = sizes_of_stones(300, apart=1.0)
    task = task_of(X, y)
    model, _, held_out = by_least_squares(task)
    found, moved = lightly_penalised(model, held_out, task, task.size)
    assert found is model
    assert moved is held_out


def test_what_it_is_not_for():
    X, y = sizes_of_stones(300)
    task = task_of(X, y)
    model, _, held_out = by_least_squares(task)
    assert lightly_penalised(model, held_out, task, 300.0)[0] is not model
    others = {
        "log link": task_of(X, y, loss="poisson"),
        "nothing held out": replace(task, folds=()),
        "folds that do not tell slopes": task_of(X, y, folds=100),
        "squares that overflow": replace(task, X=1e200 * X),
    }
    for what, other in others.items():
        assert lightly_penalised(model, held_out, other, 300.0)[0] is model, what
    unknown = np.where(np.arange(300) == 7, np.nan, held_out)
    assert lightly_penalised(model, unknown, task, 300.0)[0] is model


def test_columns_of_one_value_copies_and_sparse_rows_are_nothing_special():
    X, y = sizes_of_stones(300)
    task = task_of(X, y)
    model, _, held_out = by_least_squares(task)
    expected = lightly_penalised(model, held_out, task, 300.0)[0]
    more = np.column_stack([X, np.full(300, 0.1)])
    wider = replace(model, coef=np.append(model.coef, 0.0))
    for rows in (more, sparse.csr_array(more)):
        found = lightly_penalised(wider, held_out, replace(task, X=rows), 300.0)[0]
        np.testing.assert_allclose(found.coef, np.append(expected.coef, 0.0), rtol=1e-7)
    half = model.coef.copy()
    half[3] /= 2
    twice = replace(task, X=np.column_stack([X, X[:, 3]]))
    found = lightly_penalised(replace(model, coef=np.append(half, half[3])), held_out, twice, 300.0)[0]
    np.testing.assert_allclose(found.coef[3], found.coef[4], rtol=1e-9)


def test_slopes_that_rows_do_know_stay():
    X, y = sizes_of_stones(5_000, apart=0.02)
    difference = X[:, 0] - 5.0 - 0.1 * X[:, 1]  # hardly varies, and yet is all that matters
    y = 100.0 * difference + 0.01 * np.random.default_rng(1).standard_t(3, y.size)
    model = RobustRegressor(random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, [100.0, -10.0, 0.0, 0.0], atol=0.3)
    assert np.std(y - model.predict(X)) < 1.01 * np.std(y - LinearRegression().fit(X, y).predict(X))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("apart", [0.02, 0.1, 0.16, 0.18, 0.3, 2.0])
def test_rows_surely_vary_where_eigenvalues_say_so(weighted, fit_intercept, apart):
    X, y = sizes_of_stones(400, apart=apart)
    task = task_of(X, y, np.random.default_rng(1).uniform(0.5, 2, 400) if weighted else EVEN, fit_intercept)
    shares = task.weights / task.weights.sum() if weighted else np.full(400, 1 / 400)
    least = np.linalg.eigvalsh(gram_of(task)[0])[0]
    assert light_penalty._surely_vary(task, shares) == (least > light_penalty._VARIES)


def test_a_column_of_one_value_is_looked_at_with_care():
    X, y = sizes_of_stones(400, apart=2.0)
    for value in (0.0, 1e9):
        task = task_of(np.column_stack([X, np.full(400, value)]), y)
        assert not light_penalty._surely_vary(task, np.full(400, 1 / 400))


def both(monkeypatch, X, y, seed):
    found = RobustRegressor(random_state=seed).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr(estimator, "lightly_penalised", lambda model, held_out, *_: (model, held_out))
        return found, RobustRegressor(random_state=seed).fit(X, y)


@pytest.mark.parametrize("n", [300, 1_000, 7_000])
def test_new_rows_with_errors_of_measurement_are_missed_by_less(monkeypatch, n):
    clean, bad = [], []
    for seed in range(6):
        X, y = sizes_of_stones(n, seed)
        found, without = both(monkeypatch, X, y, seed)
        new, _ = sizes_of_stones(5_000, 100 + seed)
        wrong = new.copy()
        wrong[np.arange(5_000), np.arange(5_000) % 3] = 0.0  # a length that nobody has measured
        truth = [1.0, 0.1, 10.0, 1.0]
        for rows, kept in ((new, clean), (wrong, bad)):
            missed = [np.mean((m.predict(rows) - new @ truth) ** 2) for m in (found, without)]
            kept.append(missed)
        assert estimator.GUARDED in found.report_.remarks
        assert estimator.GUARDED not in without.report_.remarks
    assert np.divide(*np.mean(clean, axis=0)) < 1.05
    assert np.divide(*np.mean(bad, axis=0)) < 0.9


def test_units_do_not_matter():
    X, y = sizes_of_stones(500)
    model = RobustRegressor(random_state=0).fit(X, y)
    scaled = RobustRegressor(random_state=0).fit(X * [1e3, 1e-3, 1.0, 8.0], 1e4 * y)
    np.testing.assert_allclose(scaled.coef_ * [1e3, 1e-3, 1.0, 8.0], 1e4 * model.coef_, rtol=1e-4)
