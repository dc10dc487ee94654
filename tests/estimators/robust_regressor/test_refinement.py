"""Slopes refined by what residuals tell about the noise: its law, or how its size grows."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import tailproof as tp
from tailproof.estimators.robust_regressor import estimator, proposals
from tailproof.estimators.robust_regressor.monotone_score import fit_by_score, learn_score
from tailproof.estimators.robust_regressor.proposed_fit import relieved
from tailproof.estimators.robust_regressor.tuning import DEFAULT

SCORE, SIZE = "score that suits the noise", "grows along some columns"
LAWS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "t(3)": lambda rng, n: rng.standard_t(3, n),
    "exponential": lambda rng, n: rng.exponential(size=n) - 1,
    "log-normal": lambda rng, n: rng.lognormal(0, 1.2, n) - np.exp(0.72),
    "Pareto": lambda rng, n: rng.pareto(2.1, n) - 1 / 1.1,
}


def even(n):
    return np.full(n, 1 / n)


def rows(seed, n=800, d=3, law="log-normal", growth=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X.sum(axis=1) + np.exp(growth * X[:, 0]) * LAWS[law](rng, n)


def fitted(X, y, **settings):
    return tp.RobustRegressor(random_state=0, **settings).fit(X, y)


def unrefined(monkeypatch, X, y):
    with monkeypatch.context() as patch:
        patch.setattr(estimator, "refined", lambda model, blend, *_: (model, blend))
        return fitted(X, y)


def was(model, what):
    return any(what in remark for remark in model.report_.remarks)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [60, 5_000])
def test_learned_scores_increase(law, n):
    score = learn_score(LAWS[law](np.random.default_rng(0), n), even(n))
    assert np.all(np.diff(score.values) > 0)
    assert np.all(np.diff(score.knots) > 0)
    assert score.values[0] < 0 < score.values[-1]


@pytest.mark.parametrize(("law", "variance"), [("normal", 1.0), ("t(3)", 1.5)])
def test_predicted_variance_is_that_of_the_best_score(law, variance):
    # E ψ²/(E ψ′)² is the inverse of Fisher's information, 1 and 4/6; that of t(3) hardly needs to decrease.
    n = 20_000
    rng = np.random.default_rng(1)
    Q = np.column_stack([np.ones(n), rng.standard_normal(n)])
    fit = fit_by_score(Q, LAWS[law](rng, n), even(n))
    assert np.mean(fit.pull**2) == pytest.approx(variance, rel=0.06)


def test_weights_count_as_copies():
    r = np.random.default_rng(2).exponential(size=2_000)
    times = np.random.default_rng(3).integers(1, 4, 2_000)
    weighted, copied = learn_score(r, times / times.sum()), np.repeat(r, times)
    at = np.linspace(0.0, 4, 50)
    np.testing.assert_allclose(weighted.at(at), learn_score(copied, even(copied.size)).at(at), rtol=0.02)


@pytest.mark.parametrize("n", [100, 1_001, 5_000, 100_000])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_noise_turned_over_has_its_score_turned_over(law, weighted, n):
    rng = np.random.default_rng(n)
    r, times = LAWS[law](rng, n), rng.integers(1, 4 if weighted else 2, n)
    v = times / times.sum()
    score, turned = learn_score(r, v), learn_score(-r, v)
    np.testing.assert_allclose(turned.knots, -score.knots[::-1], rtol=1e-9)
    np.testing.assert_allclose(turned.values, -score.values[::-1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(turned.slopes(-r), score.slopes(r), rtol=1e-6, atol=1e-9)


def test_fits_by_a_score_follow_units():
    rng = np.random.default_rng(4)
    Q, r = np.column_stack([np.ones(500), rng.standard_normal(500)]), rng.exponential(size=500)
    one, other = fit_by_score(Q, r, even(500)), fit_by_score(Q, 1e9 * r + 7e9, even(500))
    np.testing.assert_allclose(other.phi, 1e9 * one.phi, rtol=1e-5, atol=1.0)


def test_ties_have_no_score():
    assert learn_score(np.append(np.zeros(90), np.arange(10.0)), even(100)) is None
    assert learn_score(np.zeros(100), even(100)) is None


@pytest.mark.parametrize("law", ["exponential", "log-normal", "Pareto"])
def test_skewed_noise_is_fitted_by_its_own_score(monkeypatch, law):
    ratios = []
    for seed in range(4):
        X, y = rows(seed, law=law)
        model = fitted(X, y)
        assert was(model, SCORE)
        before = unrefined(monkeypatch, X, y)
        ratios.append(np.sum((model.coef_ - 1) ** 2) / np.sum((before.coef_ - 1) ** 2))
        assert model.intercept_ == pytest.approx(np.mean(y - X @ model.coef_), abs=0.3)
    assert np.median(ratios) < 0.4


@pytest.mark.parametrize("seed", range(4))
def test_normal_noise_costs_nothing(monkeypatch, seed):
    X, y = rows(seed, law="normal")
    model = fitted(X, y)
    assert not was(model, SCORE)
    np.testing.assert_array_equal(model.coef_, unrefined(monkeypatch, X, y).coef_)


def test_refined_slopes_follow_shifts_and_units():
    X, y = rows(0)
    model, moved = fitted(X, y), fitted(X, 1e6 * y + X @ np.array([3e6, 0.0, -1e6]) + 5e6)
    assert was(moved, SCORE)
    # Newton's method stops a little elsewhere; the slopes themselves are off by 0.02.
    np.testing.assert_allclose(moved.coef_ / 1e6, model.coef_ + np.array([3, 0, -1]), atol=2e-3)


def test_noise_that_grows_is_weighted(monkeypatch):
    ours, plain, before = [], [], []
    for seed in range(5):
        X, y = rows(seed, growth=0.7)
        model = fitted(X, y)
        assert was(model, SIZE)
        Z = np.column_stack([X, np.ones(len(X))])
        ours.append(np.sum((model.coef_ - 1) ** 2))
        plain.append(np.sum((np.linalg.lstsq(Z, y)[0][:-1] - 1) ** 2))
        before.append(np.sum((unrefined(monkeypatch, X, y).coef_ - 1) ** 2))
    assert np.median(ours) < 0.5 * np.median(plain)
    assert np.median(ours) < 0.5 * np.median(before)


def test_skewness_that_depends_on_x_is_no_law_to_learn():
    """Edges on both sides, by the sign of a column: slopes at an edge would be far from those of the mean."""
    risks = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((2_000, 3))
        y = X.sum(axis=1) + np.sign(X[:, 0]) * (rng.exponential(size=2_000) - 1)
        model = fitted(X, y)
        Z = np.column_stack([X, np.ones(len(X))])
        plain = np.linalg.lstsq(Z, y)[0][:-1]
        risks.append(np.sum((model.coef_ - 1) ** 2) / np.sum((plain - 1) ** 2))
    assert np.median(risks) < 1.5


def test_held_out_rows_refuse_absurd_slopes(monkeypatch):
    X, y = rows(0)
    real = proposals.Residuals.worse
    seen = []

    def worse(residuals, found, change, delta):
        absurd = change + 10.0 * residuals.Q @ np.ones(residuals.Q.shape[1])
        seen.append((real(residuals, found, change, delta), real(residuals, found, absurd, delta)))
        return seen[-1][1]

    monkeypatch.setattr(proposals.Residuals, "worse", worse)
    model = fitted(X, y)
    assert seen[0][0] < 2
    assert seen[0][1] > 3
    assert not was(model, SCORE)


def test_intervals_of_refined_slopes_hold():
    held, lengths = [], []
    for seed in range(25):
        X, y = rows(seed, n=400, d=2)
        summary = fitted(X, y).summary()
        held.append((summary.low <= 1) & (summary.high >= 1))
        lengths.append(summary.high - summary.low)
    assert np.mean(held) >= 0.86
    assert np.median(lengths) < 0.4


def test_without_an_intercept_nothing_is_refined():
    X, y = rows(0)
    model = tp.RobustRegressor(fit_intercept=False, random_state=0).fit(X, y)
    assert not was(model, SCORE)


def test_prediction_intervals_know_the_refined_slopes():
    inside = []
    for seed in range(8):
        X, y = rows(seed, n=600, d=5, law="Pareto")
        new, target = rows(100 + seed, n=2_000, d=5, law="Pareto")
        low, high = fitted(X, y).predict_interval(new, 0.9).T
        inside.append(np.mean((low <= target) & (target <= high)))
    assert 0.885 < np.mean(inside) < 0.915


def test_rows_that_happen_to_be_quiet_do_not_stop_a_fit_by_size():
    """Errors of least squares come from few rows: where these are quiet, it seems surer than it is."""
    for seed in range(20):
        rng = np.random.default_rng([seed, 7])
        X = rng.standard_t(4, (2_000, 3))
        sizes = np.exp(np.clip(0.7 * X[:, 0], -5, 5))
        gap = fitted(X, X.sum(axis=1) + sizes * LAWS["log-normal"](rng, 2_000)).coef_ - 1
        assert gap @ gap < 0.01


def test_trust_in_sizes_begins_where_they_promise_much():
    trust = proposals._trust_in_sizes
    assert trust(0.05, 1.0) == 1.0
    assert trust(0.2, 1.0) == pytest.approx(0.5)
    assert trust(0.5, 1.0) == trust(1.0, 0.0) == 0.0


def test_trust_takes_back_what_quiet_rows_explain_and_no_more():
    assert relieved(3.8, -2.4, 1.0) == pytest.approx(1.3)
    assert relieved(3.8, 3.0, 1.0) == 3.0
    assert relieved(32.0, 0.7, 1.0) > 25
    assert relieved(3.8, 0.0, 0.0) == relieved(3.8, 5.0, 1.0) == 3.8


def test_a_mean_that_bends_is_not_taken_for_noise_that_grows():
    """The best straight line is asked for, and least squares knows it."""
    risks = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = 2.0 ** rng.integers(0, 6, (8_000, 6))
        mean = X[:, 0] * X[:, 1] / X[:, 2] + X[:, 3] ** 2 / X[:, 4]
        y = mean * rng.lognormal(0, 0.1, 8_000)
        few, new = slice(0, 3_000), slice(3_000, None)
        plain = LinearRegression().fit(X[few], y[few]).predict(X[new])
        ours = fitted(X[few], y[few]).predict(X[new])
        risks.append(np.mean((ours - y[new]) ** 2) / np.mean((plain - y[new]) ** 2))
    assert max(risks) < 1.02


class NoVeto(tp.RobustRegressor):
    _tuning = replace(DEFAULT, veto_mean=np.inf)


def test_a_second_fit_that_misses_a_held_out_row_by_far_is_not_taken(monkeypatch):
    X, y = rows(0, growth=0.7)
    assert was(fitted(X, y), SIZE)
    before = unrefined(monkeypatch, X, y)
    left_out = proposals.Residuals.left_out

    def absurd_for_one(residuals, found):
        change = left_out(residuals, found)
        change[7] += 100.0 * np.abs(residuals.missed).max()
        return change

    monkeypatch.setattr(proposals.Residuals, "left_out", absurd_for_one)
    np.testing.assert_allclose(fitted(X, y).coef_, before.coef_, rtol=1e-12)
    # Robust means alone do not notice.
    assert was(NoVeto(random_state=0).fit(X, y), SIZE)


def grown_along_one(seed, bent=False, n=1_200):
    """Six columns, noise that grows along the first; what it adds to the mean bends unless it has none."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    noise = rng.lognormal(0, 1, n) - (0.0 if bent else np.exp(0.5))
    return X, X.sum(axis=1) + np.exp(0.6 * X[:, 0]) * noise


def asked_of_all_columns(monkeypatch, X, y):
    """A model, and how often noise was modelled along all columns for it."""
    asked = []

    def counted(*given, **settings):
        asked.append(given)
        return proposals_correction(*given, **settings)

    proposals_correction = proposals.noise_correction
    with monkeypatch.context() as patch:
        patch.setattr(proposals, "noise_correction", counted)
        return fitted(X, y), len(asked)


def test_columns_that_surely_tell_are_enough(monkeypatch):
    for seed in range(4):
        X, y = grown_along_one(seed)
        model, asked = asked_of_all_columns(monkeypatch, X, y)
        assert asked == 0
        assert was(model, SIZE)
        with monkeypatch.context() as patch:
            patch.setattr(proposals, "_is_sure", lambda *_: False)
            slow = fitted(X, y)
        np.testing.assert_allclose(model.coef_, slow.coef_, atol=1e-3)
        # Intervals are about the fit along all columns, whoever has asked for it.
        quick, long = model.summary(), slow.summary()
        np.testing.assert_allclose(quick.se, long.se, rtol=0.02)


def test_where_the_mean_bends_all_columns_are_asked(monkeypatch):
    model, asked = asked_of_all_columns(monkeypatch, *grown_along_one(0, bent=True))
    assert asked == 1
    assert not was(model, SIZE)


def test_few_rows_do_not_ask_for_sizes_on_both_sides(monkeypatch):
    """40 rows a parameter: absolute values, which tell nothing here, are left aside."""
    gaps = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((450, 10))
        sizes = np.exp(0.4 * X[:, 0] - 0.4 * X[:, 1])
        y = X.sum(axis=1) + sizes * (rng.lognormal(0, 1, 450) - np.exp(0.5))
        model, asked = asked_of_all_columns(monkeypatch, X, y)
        with monkeypatch.context() as patch:
            patch.setattr(proposals, "_tell_of_all", lambda *_: True)
            both = fitted(X, y)
        gaps.append([np.sum((one.coef_ - 1) ** 2) for one in (model, both)])
        assert asked == 1
    ours, both = np.exp(np.mean(np.log(gaps), axis=0))
    assert ours < 0.9 * both
