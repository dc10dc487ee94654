"""RobustRegressor as a user meets it, and the path under it against slow references."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, PoissonRegressor, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from tailproof import RobustRegressor
from tailproof.core.losses import LOSSES, get_loss
from tailproof.core.validate import paired_differences, resistant_mean
from tailproof.estimators.robust_regressor.blend import blend_weights
from tailproof.estimators.robust_regressor.left_out import held_out_predictions
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.tuning import DEFAULT

DEALT = "rows are dealt to folds at random: a row of weight 2 is in one fold, its two copies may be in two"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": DEALT,
    "check_sample_weight_equivalence_on_sparse_data": DEALT,
}


@parametrize_with_checks([RobustRegressor()], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn(estimator, check):
    check(estimator)


def data(n=400, d=4, seed=0, noise="lognormal"):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    drawn = rng.lognormal(0, 1.5, n) if noise == "lognormal" else rng.standard_normal(n)
    return X, 2 + X.sum(axis=1) + drawn


def counts(n=2_000, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, rng.poisson(np.exp(0.5 + 0.3 * X.sum(axis=1))).astype(float)


def path(X, y, loss="squared_error", weights=None, fit_intercept=True):
    weights = np.ones(len(y)) if weights is None else weights
    return solve_path(
        rows_of(X, y, weights, get_loss(loss, None, "regression"), fit_intercept), np.random.default_rng(0)
    )


def models(found):
    """Coefficients with the intercept last, one row a level, before recentring."""
    coef, intercept = found.rows.unscaled(found.basis.map @ found.phi)
    return np.column_stack([coef, intercept])


class TestPath:
    @given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([1e-8, 1.0, 1e6]))
    @settings(max_examples=40)
    def test_estimating_equations_hold_at_every_level(self, seed, d, scale):
        X, y = data(300, d, seed)
        found = path(X * scale, y)
        assert found.settled.all()
        Z = np.column_stack([X, np.ones(len(y))])
        for tau, redescending, model in zip(
            found.levels.tau, found.levels.bisquare, models(found), strict=True
        ):
            residuals = y - (X * scale) @ model[:-1] - model[-1]
            truncated = np.clip(residuals, -tau, tau)
            if redescending:
                truncated = residuals * np.maximum(1 - (residuals / tau) ** 2, 0) ** 2
            # Newton's last error is the square of its last step; with Tukey's ψ it is a share of it.
            error = 1e-5 if redescending else 1e-6
            assert np.abs(Z.T @ truncated).max() <= error * np.abs(Z.T @ np.abs(truncated)).max()

    def test_huber_objective_is_minimal(self):
        X, y = data(200, 2)
        found = path(X, y)

        def objective(w, tau):
            r = np.abs(y - X @ w[:2] - w[2])
            return np.where(r <= tau, r**2 / 2, tau * (r - tau / 2)).sum()

        huber = np.flatnonzero((found.levels.bisquare == 0) & np.isfinite(found.levels.tau))
        for tau, model in zip(found.levels.tau[huber], models(found)[huber], strict=True):
            best = optimize.minimize(objective, np.zeros(3), args=(tau,), method="BFGS").fun
            assert objective(model, tau) <= best * (1 + 1e-8)

    def test_levels_truncate_the_shares_that_they_name(self):
        X, y = data(2_000, 3)
        found = path(X, y)
        found = found.only(np.flatnonzero(found.levels.bisquare == 0))
        for tau, share, model in zip(found.levels.tau, found.levels.share, models(found), strict=True):
            beyond = np.mean(np.abs(y - X @ model[:-1] - model[-1]) > tau)
            assert beyond == pytest.approx(share, rel=0.5, abs=2 / len(y))
        assert np.all(np.diff(found.levels.tau) > 0)
        assert found.levels.tau[-1] == np.inf

    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("offset", [0.0, 1e4])
    def test_untruncated_is_least_squares(self, fit_intercept, offset):
        X, y = data(400, 5)
        # LinearRegression takes columns that differ much in scale for collinear; these are only rescaled.
        exact = LinearRegression(fit_intercept=fit_intercept).fit(X, y).predict(X)
        X = offset + X * np.logspace(-2, 2, 5) if fit_intercept else X
        found = models(path(X, y, fit_intercept=fit_intercept))[-1]
        np.testing.assert_allclose(X @ found[:-1] + found[-1], exact, rtol=1e-8, atol=1e-8)

    def test_untruncated_log_link_is_the_generalised_linear_model(self):
        X, y = counts()
        found = models(path(X, y, "poisson"))[-1]
        exact = PoissonRegressor(alpha=0, tol=1e-10, max_iter=1_000).fit(X, y)
        np.testing.assert_allclose(found, [*exact.coef_, exact.intercept_], atol=1e-5)

    @pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
    def test_truncated_scores_vanish_with_the_log_link(self, loss):
        X, y = counts()
        y = y + (loss == "gamma")
        found, power = path(X, y, loss), LOSSES[loss].parameter
        Z = np.column_stack([X, np.ones(len(y))])
        for tau, model in zip(found.levels.tau, models(found), strict=True):
            mu = np.exp(X @ model[:-1] + model[-1])
            score = np.clip((y - mu) * mu ** (-power / 2), -tau, tau) * mu ** (1 - power / 2)
            assert np.abs(Z.T @ score).max() <= 1e-5 * np.abs(score).sum()

    def test_weights_are_repetitions(self):
        X, y = data(300, 3)
        times = np.random.default_rng(1).integers(1, 4, 300)
        weighted, repeated = (
            path(X, y, weights=times.astype(float)),
            path(np.repeat(X, times, 0), np.repeat(y, times)),
        )
        np.testing.assert_allclose(models(weighted)[-1], models(repeated)[-1], rtol=1e-8)
        assert weighted.levels.tau[0] == pytest.approx(repeated.levels.tau[0], rel=0.1)

    @pytest.mark.parametrize("n", [60, 400])
    def test_held_out_predictions_are_those_of_a_fit_without_the_fold(self, n):
        X, y = data(n, 3)
        found = path(X, y)
        folds = [np.arange(k, n, 5) for k in range(5)]
        plain = np.flatnonzero(np.isinf(found.levels.tau))[0]
        held_out = held_out_predictions(found, folds, 0.05)[plain]
        for fold in folds:
            rest = np.delete(np.arange(n), fold)
            exact = LinearRegression().fit(X[rest], y[rest]).predict(X[fold])
            np.testing.assert_allclose(held_out[fold], exact, rtol=2e-3, atol=2e-2)


class TestMeans:
    def test_resistant_mean_is_catoni_on_good_data_and_stays_on_bad(self):
        u = np.random.default_rng(0).standard_normal(10_000)
        assert abs(resistant_mean(u, 0.05)) < 0.05
        u[np.random.default_rng(1).choice(u.size, 10, replace=False)] = 1e6
        assert abs(resistant_mean(u, 0.05)) < 0.1
        assert abs(resistant_mean(u, 0.05, np.ones(u.size))) < 0.1

    def test_rows_that_were_not_held_out_do_not_count(self):
        losses = np.random.default_rng(0).pareto(3, (500, 2))
        some = losses.copy()
        some[200:, 1] = np.nan
        found = paired_differences(some, 0, ignore_nan=True, untied_share=1.0)
        direct = paired_differences(losses[:200], 0, untied_share=1.0)
        assert found.estimate[1] == direct.estimate[1]
        assert found.low[1] < found.estimate[1] < found.high[1]

    def test_equal_candidates_share_and_bad_ones_get_nothing(self):
        rng = np.random.default_rng(0)
        good = rng.pareto(3, 2_000)
        weights = blend_weights(np.column_stack([good, good + 5, good]), 2, 0.05)
        np.testing.assert_allclose(weights.sum(), 1)
        assert weights[1] == 0
        assert blend_weights(np.column_stack([good, good * np.inf, good]), 2, 0.05)[1] == 0


class TestModel:
    def test_truth_under_heavy_tails(self):
        X, y = data(5_000, 5)
        model = RobustRegressor(random_state=0).fit(X, y)
        mean = np.exp(1.5**2 / 2)
        assert abs(model.intercept_ - 2 - mean) < 1
        plain = np.sum((LinearRegression().fit(X, y).coef_ - 1) ** 2)
        assert np.sum((model.coef_ - 1) ** 2) < 0.5 * plain

    @pytest.mark.filterwarnings("ignore::tailproof.TwoPopulationsWarning")
    def test_wild_targets_do_not_move_it(self):
        X, y = data(5_000, 3, noise="normal")
        y[np.random.default_rng(1).choice(y.size, 5, replace=False)] *= 1_000
        model = RobustRegressor(random_state=0).fit(X, y)
        np.testing.assert_allclose([*model.coef_, model.intercept_], [1, 1, 1, 2], atol=0.15)

    @pytest.mark.parametrize(("scale", "shift"), [(1e-8, 0.0), (1e12, 0.0), (3.0, 100.0)])
    def test_units_of_the_target(self, scale, shift):
        X, y = data(500, 3)
        a, b = (RobustRegressor(random_state=0).fit(X, t) for t in (y, shift + scale * y))
        np.testing.assert_allclose(b.predict(X), shift + scale * a.predict(X), rtol=1e-4, atol=1e-4 * scale)

    def test_units_of_the_columns(self):
        X, y = data(500, 3)
        factors, offsets = np.array([1e-6, 1.0, 1e6]), np.array([1e-6, 100.0, -1e6])
        a, b = (
            RobustRegressor(random_state=0).fit(X, y),
            RobustRegressor(random_state=0).fit(X * factors + offsets, y),
        )
        np.testing.assert_allclose(b.predict(X * factors + offsets), a.predict(X), rtol=1e-3, atol=1e-2)

    def test_same_seed_same_model(self):
        X, y = data()
        a, b = RobustRegressor(random_state=3).fit(X, y), RobustRegressor(random_state=3).fit(X, y)
        assert np.array_equal(a.coef_, b.coef_)

    @pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array])
    def test_sparse_is_dense(self, make):
        X, y = data(400, 4)
        X[np.abs(X) < 1] = 0
        a, b = RobustRegressor(random_state=0).fit(X, y), RobustRegressor(random_state=0).fit(make(X), y)
        np.testing.assert_allclose(a.predict(X), b.predict(make(X)), rtol=0.05, atol=0.05)

    def test_many_columns_are_for_sgd_alone(self, monkeypatch):
        monkeypatch.setattr(RobustRegressor, "_tuning", replace(DEFAULT, gram_columns=3))
        X, y = data(3_000, 5)
        model = RobustRegressor(random_state=0).fit(X, y)
        assert any("(SGD)" in name for name in model.report_.candidates)
        np.testing.assert_allclose(model.coef_, 1, atol=0.5)

    @pytest.mark.parametrize("constant", [0.0, 1.0, 1e9])
    def test_constant_and_collinear_columns(self, constant):
        X, y = data(400, 3)
        wide = np.column_stack([X, X[:, 0], np.full(400, constant), X[:, 1] + X[:, 2]])
        a, b = RobustRegressor(random_state=0).fit(X, y), RobustRegressor(random_state=0).fit(wide, y)
        assert np.mean((a.predict(X) - b.predict(wide)) ** 2) < 0.02 * np.var(a.predict(X))

    def test_fewer_rows_than_columns(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((60, 200))
        y = X[:, :3].sum(axis=1) + 0.1 * rng.standard_normal(60)
        model = RobustRegressor(random_state=0).fit(X, y)
        truncated = [name for name in model.report_.candidates if "truncated" in name]
        assert all("ridge" in name or "l1" in name for name in truncated)
        assert np.corrcoef(model.predict(X), y)[0, 1] > 0.5

    @pytest.mark.parametrize("n", [1, 2, 3, 19, 20, 25])
    def test_few_rows(self, n):
        X, y = data(n, 2)
        model = RobustRegressor(random_state=0).fit(X, y)
        assert np.all(np.isfinite(model.predict(X)))
        assert (model.report_.folds == 0) == (n < 20)
        if n == 1:
            assert model.predict(X)[0] == pytest.approx(y[0])

    @pytest.mark.parametrize("value", [0.0, 7.5, -1e9])
    def test_constant_target(self, value):
        X, _ = data(100, 2)
        np.testing.assert_allclose(
            RobustRegressor().fit(X, np.full(100, value)).predict(X), value, rtol=1e-9, atol=1e-9
        )

    def test_no_intercept(self):
        X, y = data(500, 3, noise="normal")
        model = RobustRegressor(fit_intercept=False, random_state=0).fit(X, y - 2)
        assert model.intercept_ == 0
        np.testing.assert_allclose(model.coef_, 1, atol=0.2)

    def test_zero_weight_is_absence(self):
        X, y = data(300, 3)
        weights = np.ones(300)
        weights[250:] = 0
        a = RobustRegressor(random_state=0).fit(X, y, sample_weight=weights)
        b = RobustRegressor(random_state=0).fit(X[:250], y[:250], sample_weight=np.ones(250))
        np.testing.assert_allclose(a.coef_, b.coef_)

    def test_weights_have_an_effect(self):
        X, y = data(600, 2, noise="normal")
        y[:300] += 5 * X[:300, 0]
        weights = np.where(np.arange(600) < 300, 1e-3, 1.0)
        assert RobustRegressor(random_state=0).fit(X, y, weights).coef_[0] == pytest.approx(1, abs=0.3)

    @pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
    def test_log_link(self, loss):
        X, y = counts()
        y = np.maximum(y, 0.1) if loss == "gamma" else y
        y[3] = 5_000.0
        model = RobustRegressor(loss, random_state=0).fit(X, y)
        np.testing.assert_allclose(model.coef_, 0.3, atol=0.15)
        assert np.all(model.predict(X) > 0)


@pytest.fixture
def one_thread():
    """Threads of gradient boosting wait for each other, which takes minutes where other tests run too."""
    with threadpool_limits(1, user_api="openmp"):
        yield


class TestCandidates:
    def test_nonlinear_data_choose_a_nonlinear_candidate(self, one_thread):
        rng = np.random.default_rng(0)
        X = rng.uniform(-2, 2, (1_000, 2))
        y = 5 * np.abs(X[:, 0]) + rng.standard_t(3, 1_000)
        model = RobustRegressor(candidates="auto", random_state=0).fit(X, y)
        assert model.report_.candidates[model.report_.chosen] == "gradient boosting"
        assert not hasattr(model, "coef_")
        assert np.mean((model.predict(X) - 5 * np.abs(X[:, 0])) ** 2) < 2
        model.set_params(candidates="linear").fit(X, y)
        assert not hasattr(model, "estimator_")

    def test_a_list_of_regressors(self):
        X, y = data(300, 3, noise="normal")
        forest = RandomForestRegressor(5, random_state=0)
        model = RobustRegressor(candidates=[("trees", forest), Ridge()], random_state=0).fit(X, y)
        assert {"trees", "Ridge"} <= set(model.report_.candidates)
        assert model.report_.candidates[model.report_.chosen] != "trees"
        assert not hasattr(forest, "estimators_")

    @pytest.mark.parametrize("loss", ["squared_error", "poisson"])
    def test_boosting_takes_the_loss(self, one_thread, loss):
        X, y = counts(500)
        model = RobustRegressor(loss, candidates="auto", random_state=0).fit(X, y)
        assert np.all(np.isfinite(model.report_.risk))

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"candidates": "trees"}, "candidates"),
            ({"candidates": [3]}, "list of regressors"),
            ({"candidates": [("a", Ridge(), 1)]}, "list of regressors"),
            ({"loss": "huber"}, "loss"),
            ({"loss_parameter": 1.5}, "takes no loss_parameter"),
            ({"loss": "tweedie", "loss_parameter": 3.0}, "power"),
            ({"delta": 0.0}, "delta"),
        ],
    )
    def test_bad_parameters(self, settings, words):
        with pytest.raises(ValueError, match=words):
            RobustRegressor(**settings).fit(*data(50, 2))

    def test_bad_data(self):
        X, y = data(50, 2)
        with pytest.raises(ValueError, match="not negative"):
            RobustRegressor("poisson").fit(X, -np.abs(y))
        with pytest.raises(ValueError, match="needs dense X"):
            RobustRegressor(candidates="auto").fit(sparse.csr_array(X), y)
        with pytest.raises(ValueError, match="NaN"):
            RobustRegressor().fit(np.where(X > 1, np.nan, X), y)
        with pytest.raises(ValueError, match="zero"):
            RobustRegressor().fit(X, y, sample_weight=np.zeros(50))


class TestReport:
    def test_text_html_and_data(self):
        X, y = data(500, 3)
        report = RobustRegressor(random_state=0).fit(X, y).report_
        assert len(report.rows()) == len(report.candidates) == report.risk.size
        assert report.difference[report.chosen] == 0
        assert report.why.startswith("Chosen: ")
        assert report.candidates[report.chosen] + " *" in str(report)
        assert "<table>" in report._repr_html_()
        others = np.delete(np.arange(report.risk.size), report.chosen)
        assert np.all(report.low[others] <= report.difference[others])

    def test_plot(self):
        matplotlib = pytest.importorskip("matplotlib")
        from matplotlib.figure import Figure

        X, y = data(300, 2)
        model = RobustRegressor(random_state=0).fit(X, y)
        ax = Figure().subplots()
        assert model.plot(ax) is ax
        assert len(ax.get_yticklabels()) == len(model.report_.candidates)
        with matplotlib.rc_context({"backend": "agg"}):
            import matplotlib.pyplot as plt

            drawn = model.plot()
            plt.close(drawn.figure)

    def test_pickle_clone_and_frames(self):
        X, y = data(200, 3)
        model = RobustRegressor(random_state=0).fit(pd.DataFrame(X, columns=list("abc")), y)
        assert model.feature_names_in_.tolist() == ["a", "b", "c"]
        again = pickle.loads(pickle.dumps(model))
        frame = pd.DataFrame(X, columns=list("abc"))
        assert np.array_equal(again.predict(frame), model.predict(frame))
        assert clone(model).get_params() == model.get_params()
