"""Bad rows do not ruin a default, and are never passed over in silence; honest tails raise no alarm."""

import functools
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import tailproof as tp
from tailproof.core.populations import TwoPopulationsWarning
from tailproof.core.scaling import far_columns
from tailproof.data import far_rows
from tailproof.estimators import screening

REGRESSORS = {
    "RobustRegressor": lambda: tp.RobustRegressor(random_state=0),
    "DCSGDRegressor": lambda: tp.DCSGDRegressor(random_state=0),
    "RVSGDRegressor": lambda: tp.RVSGDRegressor(random_state=0),
    "DivideAndConquer": lambda: tp.DivideAndConquer(LinearRegression(), random_state=0),
    "RobustValidation": lambda: tp.RobustValidation(LinearRegression(), random_state=0),
    "RGDRegressor": lambda: tp.RGDRegressor(aggregate="m_estimate", random_state=0),
}
CLASSIFIERS = {
    "RobustClassifier": lambda: tp.RobustClassifier(random_state=0),
    "DCSGDClassifier": lambda: tp.DCSGDClassifier(random_state=0),
    "RVSGDClassifier": lambda: tp.RVSGDClassifier(random_state=0),
    "DivideAndConquer": lambda: tp.DivideAndConquer(LogisticRegression(), random_state=0),
    "RobustValidation": lambda: tp.RobustValidation(LogisticRegression(), random_state=0),
    "RGDClassifier": lambda: tp.RGDClassifier(random_state=0),
}
SPOILT = {
    "targets 1e3": lambda X, y, bad: y.__setitem__(bad, 1e3),
    "targets 1e12": lambda X, y, bad: y.__setitem__(bad, 1e12),
    "rows 1e6": lambda X, y, bad: X.__setitem__(bad, 1e6),
    "cells 1e12": lambda X, y, bad: X.__setitem__((bad, bad % X.shape[1]), 1e12),
}
N, D = 1_500, 4


def clean(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    return X, X.sum(axis=1) + rng.standard_normal(N), rng


def spoilt(kind, share, seed=0):
    X, y, rng = clean(seed)
    bad = np.sort(rng.choice(N, round(share * N), replace=False))
    SPOILT[kind](X, y, bad)
    return X, y, bad


def excess(model):
    final = getattr(model, "estimator_", model)
    return float(np.sum((final.coef_ - 1) ** 2) + final.intercept_**2)


@functools.cache
def excess_when_clean(name):
    return excess(REGRESSORS[name]().fit(*clean()[:2]))


def quiet(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tp.TwoPopulationsWarning)
        return model.fit(X, y)


@pytest.mark.parametrize("kind", ["targets 1e3", "rows 1e6", "cells 1e12"])
@pytest.mark.parametrize("name", REGRESSORS)
def test_one_percent_costs_little_and_is_said(name, kind):
    X, y, bad = spoilt(kind, 0.01)
    with pytest.warns(tp.TwoPopulationsWarning, match=f"rows {bad[0]}, {bad[1]}, ") as caught:
        model = REGRESSORS[name]().fit(X, y)
    assert caught[0].filename == __file__
    assert excess(model) <= 3 * max(excess_when_clean(name), 0.01)
    left_out = model.report_.glitches if name == "RobustRegressor" else model.report_.left_out
    assert left_out.tolist() == bad.tolist()
    assert "wo populations" in " ".join(model.report_.verdict())


@pytest.mark.parametrize("kind", ["rows 1e6", "cells 1e12"])
def test_robust_regressor_survives_features_of_five_percent(kind):
    X, y, _ = spoilt(kind, 0.05)
    assert excess(quiet(REGRESSORS["RobustRegressor"](), X, y)) <= 0.03


@pytest.mark.parametrize("kind", ["targets 1e12", "rows 1e6", "cells 1e12"])
@pytest.mark.parametrize("name", REGRESSORS)
def test_beyond_that_a_warning_and_no_worse_than_least_squares(name, kind):
    if (name, kind) == ("DivideAndConquer", "cells 1e12") and "tol" not in LinearRegression().get_params():
        pytest.skip("LinearRegression without a tolerance takes columns of 1e12 beside ones for full rank")
    X, y, _ = spoilt(kind, 0.4)
    with pytest.warns(tp.TwoPopulationsWarning, match="two populations"):
        model = REGRESSORS[name]().fit(X, y)
    assert excess(model) <= 1.25 * excess(LinearRegression().fit(X, y))
    assert "agree" not in model.report_.verdict()[0] or model.report_.left_out is not None


@pytest.mark.parametrize("place", [slice(0, N // 5), slice(0, None, 5)])
def test_gradient_descent_does_without_far_rows_however_many(place):
    X, y, _ = clean()
    X[place] = 1e6
    with pytest.warns(tp.TwoPopulationsWarning, match="those with far features gave no gradients"):
        model = REGRESSORS["RGDRegressor"]().fit(X, y)
    assert excess(model) <= 3 * max(excess_when_clean("RGDRegressor"), 0.01)
    labels = np.arange(N) % 5 == 0  # all far rows are of one class, which stays
    assert np.isfinite(quiet(CLASSIFIERS["RGDClassifier"](), X, labels).coef_).all()


def test_gradient_descent_that_diverges_ends_where_it_began():
    X, y, _ = clean()
    model = tp.RGDRegressor(step_size=1e60, max_iter=50, random_state=0)
    with pytest.warns(ConvergenceWarning, match="the one that it started from"):
        model.fit(X, y)
    assert not model.coef_.any()


@pytest.mark.parametrize("name", ["RVSGDRegressor", "DCSGDRegressor"])
def test_blocks_of_far_rows_alone_set_neither_scales_nor_intercept(name):
    """Two fifths of the rows, in their order: four of the five blocks that RV trains on."""
    X, y, _ = clean()
    X[: 2 * N // 5] = 1e6
    model = quiet(REGRESSORS[name]().set_params(shuffle=False), X, y)
    assert excess(model) < 0.5


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_survive_bad_features(name):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = X.sum(axis=1) + rng.logistic(size=N) > 0
    plain = CLASSIFIERS[name]().fit(X, y)
    spoilt_rows = X.copy()
    spoilt_rows[::50, 0] = 1e12
    model = quiet(CLASSIFIERS[name](), spoilt_rows, y)
    assert model.score(X, y) > plain.score(X, y) - 0.01


@pytest.mark.parametrize("seed", range(3))
def test_validation_resists_without_leaving_rows_out_of_training(seed):
    """Five of 5,000 rows at 1e6: the means behind the choice do not notice them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((5_000, D))
    y = X.sum(axis=1) + rng.standard_normal(5_000)
    X[rng.choice(5_000, 5, replace=False)] = 1e6
    assert excess(tp.RVSGDRegressor(random_state=seed, drop_glitches=False).fit(X, y)) < 0.5
    assert excess(quiet(tp.RVSGDRegressor(random_state=seed), X, y)) < 0.2


def test_a_constant_is_taken_where_every_candidate_is_surely_worse():
    X, y, _ = clean()
    # One step of absurd length throws every candidate away.
    model = tp.RVSGDRegressor(step_size=1.0, update="explicit", max_iter=1, random_state=0).fit(X, y)
    assert not model.coef_.any()
    assert model.report_.beaten_by_start
    assert "constant" in model.report_.verdict()[0]


@pytest.mark.parametrize("law", ["log-normal(1.75)", "Pareto(2.1)", "t(3)"])
def test_honest_tails_raise_no_alarm(law):
    noise = {
        "log-normal(1.75)": lambda rng: rng.lognormal(0, 1.75, 1_000),
        "Pareto(2.1)": lambda rng: rng.pareto(2.1, 1_000),
        "t(3)": lambda rng: rng.standard_t(3, 1_000),
    }[law]
    model, alarms = tp.DCSGDRegressor(max_iter=1, k=5, random_state=0), 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = np.column_stack([rng.standard_normal(1_000), noise(rng)])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", tp.TwoPopulationsWarning)
            model.fit(X, X.sum(axis=1) + noise(rng))
        alarms += any(issubclass(one.category, tp.TwoPopulationsWarning) for one in said)
    assert alarms <= 1


def test_all_rows_are_kept_on_request_and_the_report_says_so():
    X, y, _ = spoilt("targets 1e12", 0.01)
    model = tp.DCSGDRegressor(drop_glitches=False, random_state=0).fit(X, y)
    assert model.report_.left_out is None
    assert "all were kept" in model.report_.outlying


def test_no_class_is_left_out():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 2))
    y = np.zeros(500)
    X[:5], y[:5] = 1e6, 1
    model = quiet(tp.DCSGDClassifier(random_state=0), X, y)
    assert model.report_.left_out is None
    assert "all were kept" in model.report_.outlying


def test_a_gap_in_the_residuals_is_said():
    """Targets as large as others are; only for their features they are not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000, 2))
    X[:300, 0] *= 300
    y = X[:, 0] + 0.1 * rng.standard_normal(1_000)
    y[[500, 900]] = 100.0
    with pytest.warns(tp.TwoPopulationsWarning, match="residuals .* rows 500, 900"):
        model = tp.RobustRegressor(random_state=0).fit(X, y)
    assert set(model.report_.carriers) <= {500, 900}


def test_rows_of_no_use_count_for_no_block():
    """Four rows in ten are far out: blocks are as many as the others allow."""
    X, y, _ = clean()
    labels = y > 0
    X[: 4 * N // 10] = 1e6
    model = quiet(tp.DivideAndConquer(LogisticRegression(), random_state=0), X, labels)
    alone = tp.DivideAndConquer(LogisticRegression(), random_state=0).fit(
        X[4 * N // 10 :], labels[4 * N // 10 :]
    )
    assert model.report_.k == alone.report_.k


@pytest.mark.parametrize("kind", ["targets 1e3", "rows 1e6"])
@pytest.mark.parametrize("name", ["DCSGDRegressor", "RVSGDRegressor"])
def test_partial_fit_leaves_errors_out(name, kind):
    X, y, bad = spoilt(kind, 0.005)
    model, said = REGRESSORS[name](), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", tp.TwoPopulationsWarning)
        for first in range(0, N, 150):
            model.partial_fit(X[first : first + 150], y[first : first + 150])
            said.append(model.report_.left_out is not None)
    calls = set((bad // 150).tolist())
    assert np.flatnonzero(said).tolist() == sorted(calls)
    assert len(caught) == len(calls)
    assert excess(model) < 0.2


def test_early_rows_of_small_calls_tell_errors_together():
    X, y, _ = clean()
    X[[3, 7, 12, 19]] = 1e6
    model = tp.DCSGDRegressor(random_state=0)
    for first in range(0, 320, 10):
        model.partial_fit(X[first : first + 10], y[first : first + 10])
    assert model._stream.early.y.size == 316


def test_a_stream_takes_the_constant_where_every_candidate_is_surely_worse():
    X, y, _ = clean()
    settings = {"step_size": 1.0, "update": "explicit", "random_state": 0}
    model = tp.RVSGDRegressor(**settings).partial_fit(X, y)
    assert not model.coef_.any()
    assert model.report_.beaten_by_start


@pytest.mark.parametrize("kind", ["rows 1e6", "cells 1e12"])
def test_validation_in_pieces_resists(kind, monkeypatch):
    """Five rows of 5,000 that are trained on ruin most candidates, and a constant is better than ruin."""
    monkeypatch.setattr(far_rows, "dense", lambda X: None)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((5_000, D))
    y = X.sum(axis=1) + rng.standard_normal(5_000)
    SPOILT[kind](X, y, rng.choice(5_000, 5, replace=False))
    chunks = [(X[i::4], y[i::4]) for i in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tp.TwoPopulationsWarning)
        model = tp.fit(tp.RVSGDRegressor(random_state=1), chunks)
    ruined = np.sum((model.candidates_ - ([1] * D + [0])) ** 2, axis=1) > 1
    assert ruined.any()
    assert excess(model) < 0.2


def test_a_constant_is_taken_in_pieces_where_every_candidate_is_ruined(monkeypatch):
    monkeypatch.setattr(far_rows, "dense", lambda X: None)
    X, y, _ = spoilt("rows 1e6", 0.05)
    chunks = [(X[i::3], y[i::3]) for i in range(3)]
    with pytest.warns(tp.TwoPopulationsWarning, match="in a sample"):
        model = tp.fit(tp.RVSGDRegressor(max_iter=2, random_state=0), chunks)
    assert model.report_.beaten_by_start
    assert excess(model) <= 1.25 * excess(LinearRegression().fit(X, y))


def test_a_winner_that_is_worse_than_a_constant_is_said():
    X, _, rng = clean()
    y = rng.standard_normal(N)
    worse = tp.RobustValidation(DecisionTreeRegressor(random_state=0), random_state=0).fit(X, y)
    assert worse.report_.worse_than_constant
    assert "surely worse than one constant" in " ".join(worse.report_.verdict())
    assert (
        tp.RobustValidation(LinearRegression(), random_state=0).fit(X, y).report_.worse_than_constant is None
    )


@pytest.mark.parametrize("name", ["RVSGDRegressor", "RobustValidation"])
def test_rare_claims_are_judged_by_the_claims(name):
    """Where one target in a hundred is not zero, most small blocks of rows have no claim at all."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10_000, 2))
    claims = rng.random(10_000) < 0.008 * np.exp(0.5 * X[:, 0])
    y = np.where(claims, rng.normal(500.0, 100.0, 10_000), 0.0)
    model = REGRESSORS[name]().fit(X, y)
    assert 0.5 < model.validation_risk_.min() / (0.5 * np.var(y)) < 3
    assert model.report_.beaten_by_start is None


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
def test_far_features_that_training_meets_are_left_out_as_if_they_had_never_been_there(as_rows, monkeypatch):
    looks = []
    monkeypatch.setattr(screening, "far_columns", lambda X, limit: looks.append(1) or far_columns(X, limit))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000, 3))
    y = X.sum(axis=1) + rng.standard_normal(1_000)
    clean = tp.DCSGDRegressor(max_iter=1, random_state=0).fit(as_rows(X), y)
    assert looks == []  # the first pass reads all rows, and says that nothing is far
    with_bad = np.insert(X, 500, [0.0, 1e6, 0.0], axis=0), np.insert(y, 500, 0.0)
    with pytest.warns(TwoPopulationsWarning, match="rows 500"):
        model = tp.DCSGDRegressor(max_iter=1, random_state=0).fit(as_rows(with_bad[0]), with_bad[1])
    assert looks == [1]
    assert model.report_.left_out.tolist() == [500]
    np.testing.assert_array_equal(model.coef_, clean.coef_)
    np.testing.assert_array_equal(model.candidates_, clean.candidates_)


def test_values_without_squares_are_left_out_before_scales_are_taken():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    X[7, 1] = 1e200
    with pytest.warns(TwoPopulationsWarning, match="rows 7"):
        model = tp.DCSGDRegressor(random_state=0).fit(X, X.sum(axis=1).clip(-9, 9) + rng.standard_normal(300))
    assert np.isfinite(model.coef_).all()
