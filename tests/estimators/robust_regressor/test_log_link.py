"""RobustRegressor with log links: fits that converge, in any unit, with means that the rows support."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance

from tailproof import RobustRegressor
from tailproof.core.losses import LOSSES
from tailproof.estimators.robust_regressor.left_out import prediction_range
from tailproof.estimators.robust_regressor.log_link import UNSETTLED
from tailproof.estimators.robust_regressor.tuning import DEFAULT

LOG_LINKS = ["poisson", "gamma", "tweedie"]


def claims(seed, n=6_000):
    """Costs of which most are none, beside heavy-tailed counts of what they were for."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.lognormal(-4, 2.5, (n, 8))).astype(float)
    mean = 50 * np.minimum(counts @ rng.uniform(0.2, 2, 8), 60)
    return counts, np.where(rng.random(n) < 0.9, mean * rng.lognormal(-0.5, 1, n), 0.0)


def skewed(seed=0, n=300):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    return X, np.exp(0.5 * X[:, 0] + 0.3 * X[:, 1]) * rng.lognormal(-0.7, 1.2, n)


# Of truncated levels, whose objective is not convex, some may stop on the way.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(4))
def test_the_likelihood_of_heavy_tailed_counts_converges(seed):
    X, y = claims(seed)
    model = RobustRegressor("poisson", random_state=seed).fit(X, y)
    assert not any("untruncated" in name for name in model.report_.unsettled)
    predicted = model.predict(X)
    assert predicted.mean() == pytest.approx(y.mean(), rel=0.2)
    plain = PoissonRegressor(alpha=1e-6, solver="newton-cholesky", max_iter=1_000).fit(X, y)
    ours, theirs = (mean_poisson_deviance(y, p) for p in (predicted, np.maximum(plain.predict(X), 1e-100)))
    assert ours <= 1.05 * theirs


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", LOG_LINKS)
def test_mean_predictions_are_near_the_mean_target(loss, seed):
    X, y = claims(seed)
    y = y + (loss == "gamma")
    predicted = RobustRegressor(loss, random_state=0).fit(X, y).predict(X)
    assert 0.7 < predicted.mean() / y.mean() < 1.11


@pytest.mark.parametrize("loss", LOG_LINKS)
@pytest.mark.parametrize("seed", range(3))
def test_slopes_do_not_depend_on_the_unit_of_targets(loss, seed):
    X, y = skewed(seed)
    y = y + 0.01 if loss == "gamma" else np.where(y > 0.5, y, 0.0)
    ours, *others = (RobustRegressor(loss, random_state=0).fit(X, unit * y) for unit in (1.0, 1e-3, 1e3))
    for other in others:
        np.testing.assert_allclose(other.coef_, ours.coef_, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("loss", LOG_LINKS)
def test_no_prediction_is_better_than_the_least_loss(loss):
    y = np.array([0.1, 1.0, 30.0])
    p = np.linspace(-5, 5, 2_001)
    least = LOSSES[loss].value(p[:, None], y).min(axis=0)
    np.testing.assert_allclose(LOSSES[loss].least(y), least, atol=1e-3)


def test_a_fit_that_has_not_converged_says_so():
    X, y = claims(0, 1_000)

    class Hasty(RobustRegressor):
        _tuning = replace(DEFAULT, passes=2)

    with pytest.warns(ConvergenceWarning, match="stopped before it converged"):
        model = Hasty("poisson", random_state=0).fit(X, y)
    assert UNSETTLED in model.report_.remarks
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        RobustRegressor("poisson", random_state=0).fit(X, y)


def test_more_rows_than_choose_converge_too():
    X, y = claims(0, 4_000)

    class ByFew(RobustRegressor):
        _tuning = replace(DEFAULT, compared_rows=1_000, compared_rows_per_column=10)

    model = ByFew("poisson", random_state=0).fit(X, y)
    assert UNSETTLED not in model.report_.remarks
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.2)


def test_the_report_names_the_limits_of_predicted_means():
    X, y = claims(1)
    model = RobustRegressor("tweedie", random_state=0).fit(X, y)
    (remark,) = (remark for remark in model.report_.remarks if "Predicted means" in remark)
    low, high = (float(found) for found in re.findall(r"from (\S+) to (\S+),", remark)[0])
    np.testing.assert_allclose(np.exp(model.score_range_), [low, high], rtol=0.01)
    assert model.predict(np.full((1, 8), 1e6)).item() <= np.exp(model.score_range_[1]) * (1 + 1e-9)
    beyond = np.count_nonzero(X @ model.coef_ + model.intercept_ > model.score_range_[1])
    assert beyond == 0 or f"{beyond} of the {len(y)} rows" in remark
    assert not any("Predicted means" in remark for remark in RobustRegressor().fit(X, y).report_.remarks)


def test_limits_keep_the_mean_prediction_near_the_mean_target():
    y, weights = np.ones(100), np.ones(100)
    p = np.zeros((2, 100))
    p[1, :5], y[0] = 3.0, 300.0
    weights[1:5] = 2.0
    low, high = prediction_range(p, y, weights)
    np.testing.assert_allclose(high, np.log([2.0, 2.0 * np.exp(3)]))
    y[0] = 20.0
    _, high = prediction_range(p, y, weights)
    capped = np.exp(np.minimum(p[1], high[1]))
    assert np.average(capped, weights=weights) == pytest.approx(1.1 * np.average(y, weights=weights))
    np.testing.assert_allclose(low, -np.log(2.0))
