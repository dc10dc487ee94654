"""RobustRegressor at the edges: columns far from zero, huge numbers, one heavy row, few rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression, Ridge

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
