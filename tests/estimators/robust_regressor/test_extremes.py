"""RobustRegressor at the edges: columns far from zero, huge numbers, one heavy row, few rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression, PoissonRegressor, Ridge

import tailproof as tp
from tailproof import RobustRegressor
from tailproof.core.losses import LOSSES
from tailproof.core.validate import paired_differences
from tailproof.estimators.robust_regressor.candidates import Candidate, RegressionTask
from tailproof.estimators.robust_regressor.choice import choose_candidate
from tailproof.estimators.robust_regressor.tuning import DEFAULT


def data(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X.sum(axis=1) + rng.lognormal(0, 1, n)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_a_column_far_from_zero_keeps_its_slope(make):
    X, y = data()
    near, far = (RobustRegressor(random_state=0).fit(make(Z), y) for Z in (X, X + np.array([1e8, 0.0, 0.0])))
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-2)


def test_columns_far_from_zero_beside_thin_ones():
    X, y = data(2_000)
    X[:, 1] *= np.random.default_rng(1).random(2_000) < 0.1
    y = y + 5 * X[:, 1]
    model = RobustRegressor(random_state=0).fit(sparse.csr_array(X + np.array([1e8, 0.0, 0.0])), y)
    plain = LinearRegression().fit(X, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=0.3)


@pytest.mark.parametrize("size", [1e80, 1e140])
def test_huge_targets(size):
    X, y = data()
    model = RobustRegressor(random_state=0).fit(X, y * size)
    np.testing.assert_allclose(model.coef_ / size, 1, atol=0.3)


def test_squares_of_targets_must_be_numbers():
    X, y = data()
    with pytest.raises(ValueError, match="divide y by a constant"):
        RobustRegressor().fit(X, y * 1e150)


def test_features_beyond_squares():
    X, y = data()
    model = RobustRegressor(random_state=0).fit(X * 1e200, y)
    np.testing.assert_allclose(model.coef_ * 1e200, 1, atol=0.3)
    assert "nan" not in str(model.report_)


def test_values_too_small_for_coefficients_are_named():
    X, y = data()
    with pytest.raises(ValueError, match=r"values of X are so small .* multiply columns by a constant"):
        RobustRegressor(random_state=0).fit(X * 1e-320, y)


def test_without_a_path_the_error_is_about_the_data(monkeypatch):
    monkeypatch.setattr(RobustRegressor, "_tuning", replace(DEFAULT, gram_columns=2))
    X, y = data()
    with pytest.raises(ValueError, match="divide columns"):
        RobustRegressor(random_state=0).fit(X * 1e200, y)


@pytest.mark.parametrize("heavy", [1e4, 1e8, 1e300])
def test_one_row_with_nearly_all_of_the_weight(heavy):
    X, y = data(100)
    weights = np.ones(100)
    weights[7] = heavy * weights.sum()
    model = RobustRegressor(random_state=0).fit(X, y, sample_weight=weights)
    assert "(by their weights 1) are too few" in model.report_.why
    assert model.predict(X[7:8])[0] == pytest.approx(y[7], abs=1e-3)
    if heavy < 1e300:
        plain = LinearRegression().fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-4)


@pytest.mark.parametrize("n", [2, 19])
def test_few_rows_are_compared_by_nothing_and_the_report_says_so(n):
    pytest.importorskip("jinja2")
    X, y = data(n)
    report = RobustRegressor(candidates=[("mine", Ridge())], random_state=0).fit(X, y).report_
    assert f"{n} rows are too few to hold any out or to fit mine beside it" in report.why
    for text in (str(report), report._repr_html_(), report.to_html()):
        assert "nan" not in text.replace("nance", "")
        assert report.why in text


def test_fits_that_were_stopped_are_named():
    level = np.repeat([1.0, 0.0], [20, 480])[:, None]
    # A level that has seen zeros alone has no finite logarithm: its fit goes on for ever.
    y = np.where(level[:, 0] > 0, 0, np.random.default_rng(0).poisson(1.0, 500)).astype(float)
    report = RobustRegressor("poisson", random_state=0).fit(level, y).report_
    assert "untruncated" in report.unsettled
    assert "Stopped before they converged: " in str(report)
    assert RobustRegressor(random_state=0).fit(*data()).report_.unsettled == ()


@pytest.mark.parametrize("once", [True, False])
def test_a_rival_that_was_held_out_once_must_be_better_by_its_whole_interval(once):
    noise, guess = np.random.default_rng(0).standard_t(3, (2, 1_000))
    folds = (np.arange(500), np.arange(500, 1_000))
    squares = LOSSES["squared_error"]
    task = RegressionTask(
        guess[:, None], noise, np.empty(0), squares, True, 0.05, folds, np.random.SeedSequence(0)
    )
    plain = Candidate("untruncated", np.zeros(1_000), lambda task: None)
    chosen, surely = [], []
    for share in (-0.1, 0.02, 0.035, 0.08, 0.5):
        # Knows a little of the noise, and adds some of its own.
        predicted = share * noise + 0.2 * guess
        predicted[500:] = np.nan if once else predicted[500:]
        found = choose_candidate([plain], [Candidate("rival", predicted, lambda task: None)], task)
        losses = np.column_stack([noise**2, (predicted - noise) ** 2]) / 2
        chosen.append(found.names[found.best] == "rival")
        surely.append(bool(paired_differences(losses, 0, ignore_nan=True, untied_share=1.0).high[1] < 0))
    assert chosen[0] < chosen[-1]
    assert (chosen == surely) == once


def test_rows_dropped_for_missing_values_are_counted():
    X, y = data(100)
    X[[3, 5], 0] = np.nan
    report = tp.fit(RobustRegressor(random_state=0), (X, y), on_missing="drop").report_
    assert report.dropped_rows == 2
    assert "2 rows dropped for missing values." in str(report)


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (50, 3), (300, 30), (6_000, 1)])
def test_without_an_intercept_columns_of_zeros_predict_zero(loss, n, d):
    y = np.random.default_rng(0).poisson(3.0, n) * 1.0
    for X in (np.zeros((n, d)), sparse.csr_array((n, d))):
        model = RobustRegressor(loss, fit_intercept=False, random_state=0).fit(X, y)
        assert not model.coef_.any()
        assert model.intercept_ == 0
        np.testing.assert_array_equal(model.predict(X), float(loss == "poisson"))


def test_the_log_link_needs_no_intercept():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3_000, 2))
    y = rng.poisson(np.exp(X @ [0.3, 0.2])) * 1.0
    model = RobustRegressor("poisson", fit_intercept=False, random_state=0).fit(X, y)
    plain = PoissonRegressor(alpha=0, fit_intercept=False).fit(X, y)
    assert model.intercept_ == 0
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=0.01)


@pytest.mark.parametrize("unit", [5e-324, 1e-300, 1e160, 1e300])
def test_weights_mean_the_same_in_any_unit(unit):
    X, y = data(200)
    ours, same = (RobustRegressor(random_state=0).fit(X, y, np.full(200, w)) for w in (1.0, unit))
    np.testing.assert_allclose(same.coef_, ours.coef_, rtol=1e-12)
    np.testing.assert_allclose(same.predict_interval(X[:5]), ours.predict_interval(X[:5]), rtol=1e-9)
    assert str(same.summary()) == str(ours.summary())


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("contamination", [None, 0.2])
def test_a_column_of_two_far_clusters_leaves_others_their_slopes(share, contamination):
    rng = np.random.default_rng(0)
    X, n = rng.standard_normal((1_000, 4)), 1_000
    y = X.sum(axis=1) + rng.standard_normal(n)
    far = np.where(rng.random(n) < share, 2.0**30 + np.arange(n), 1.5 + 0.01 * rng.standard_normal(n))
    settings = {"random_state": 0, "drop_glitches": False, "contamination": contamination}
    model = RobustRegressor(**settings).fit(np.column_stack([far, X]), y)
    np.testing.assert_allclose(model.coef_[1:], 1.0, atol=0.15)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_huge_targets_of_the_log_link(loss):
    X, y = data()
    y = y - y.min() + 0.1
    ours, huge = (RobustRegressor(loss, random_state=0).fit(X, unit * y) for unit in (1.0, 1e200))
    np.testing.assert_allclose(huge.coef_, ours.coef_, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-140, 1e140])
def test_few_rows_are_drawn_to_ridge_regression_in_any_unit(unit):
    X, y = data(30, 20)
    ours, same = (RobustRegressor(random_state=0).fit(X, scale * y) for scale in (1.0, unit))
    np.testing.assert_allclose(same.coef_ / unit, ours.coef_, rtol=1e-6)


def test_errors_of_coefficients_beyond_squares():
    X, y = data()
    ours, same = (RobustRegressor(random_state=0).fit(scale * X, y) for scale in (1.0, 1e-200))
    np.testing.assert_allclose(same.coefficient_errors_.se[:-1] * 1e-200, ours.coefficient_errors_.se[:-1])
    assert np.isfinite(same.summary().low).all()
