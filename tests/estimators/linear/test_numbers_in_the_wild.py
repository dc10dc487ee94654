"""Any units, rare events, collinear columns, few rows: sensible models with the defaults."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression

import reference
from linear_models import ESTIMATORS, REGRESSORS, data, every_estimator
from pieces_data import shifted
from tailproof import DCSGDClassifier, DCSGDRegressor, RGDRegressor, RobustRegressor, RVSGDRegressor
from tailproof.core.theory import blocks_for


class TestNumbersInTheWild:
    """Sensible models, without warnings (warnings are errors here), with the defaults."""

    def r2(self, model, X, truth):
        left = truth - model.predict(X)
        return 1 - np.mean(left**2) / np.var(truth)

    @pytest.mark.parametrize("kind", REGRESSORS)
    @pytest.mark.parametrize("scale_y", [1e-9, 1.0, 1e9])
    @pytest.mark.parametrize("scale_x", [1e-6, 1.0, 1e9])
    def test_units_do_not_matter(self, kind, scale_x, scale_y):
        X, y = data(kind, n=4_000)
        one = kind(random_state=0).fit(X, y)
        two = kind(random_state=0).fit(scale_x * X, scale_y * y)
        assert np.allclose(two.coef_ * scale_x / scale_y, one.coef_, rtol=1e-6)
        assert np.allclose(two.intercept_ / scale_y, one.intercept_, rtol=1e-6)

    @every_estimator
    def test_arrays_anywhere_in_memory(self, kind):
        X, y = data(kind, n=500)
        weights = np.linspace(1.0, 2.0, 500)
        aligned = kind(random_state=0).fit(X, y, sample_weight=weights)
        assert not shifted(X).flags.aligned
        moved = [shifted(np.asarray(array, dtype=np.float64)) for array in (X, y, weights)]
        found = kind(random_state=0).fit(*moved[:2], sample_weight=moved[2])
        assert np.array_equal(found.coef_, aligned.coef_)

    @pytest.mark.parametrize("kind", REGRESSORS)
    def test_columns_of_very_different_scale_and_centre(self, kind):
        X, y = data(kind, n=4_000)
        scales, centres = np.array([1e-6, 1e6, 1.0, 1e3]), np.array([0.0, 1e7, 100.0, -1e5])
        model = kind(random_state=0).fit(X * scales + centres, y)
        assert np.abs(model.coef_ * scales - 1).max() < 0.3
        assert abs(model.intercept_ + model.coef_ @ centres - 2) < 0.3

    @every_estimator
    @pytest.mark.parametrize("constant", [0.0, 1.0, 1e9])
    def test_constant_columns(self, kind, constant):
        X, y = data(kind, n=3_000)
        model = kind(random_state=0).fit(np.column_stack([X, np.full(3_000, constant)]), y)
        plain = kind(random_state=0).fit(X, y)
        padded = np.column_stack([X, np.full(3_000, constant)])
        assert model.score(padded, y) > plain.score(X, y) - 0.02

    @pytest.mark.filterwarnings("ignore::tailproof.TwoPopulationsWarning")
    @every_estimator
    def test_one_row_in_ten_thousand_is_huge(self, kind):
        X, y = data(kind, n=50_000)
        plain = kind(random_state=0, max_iter=2).fit(X, y)
        clean = X.copy()
        for row in (0, 12_345, 25_001, 40_000, 49_999):
            X[row] = 1e12 * np.array([1, -1, 1, -1])
        model = kind(random_state=0).fit(X, y)
        assert model.score(clean, y) > plain.score(clean, y) - 0.05

    @pytest.mark.filterwarnings("ignore::tailproof.TwoPopulationsWarning")
    @every_estimator
    def test_one_row_in_ten_thousand_is_huge_beside_small_features(self, kind):
        X, y = data(kind, n=10_000)
        X *= 1e-4
        plain = kind(random_state=0).fit(X, y)
        clean = X.copy()
        X[0] = 1e12
        model = kind(random_state=0).fit(X, y)
        assert model.score(clean, y) > plain.score(clean, y) - 0.05

    @pytest.mark.filterwarnings("ignore::tailproof.TwoPopulationsWarning")
    @pytest.mark.parametrize("kind", REGRESSORS)
    @pytest.mark.parametrize("loss", ["squared_error", "huber", "absolute_error", "pinball"])
    def test_one_target_in_ten_thousand_is_huge(self, kind, loss):
        X, y = data(kind, n=50_000)
        for row in (0, 12_345, 25_001, 40_000, 49_999):
            y[row] = 1e12
        model = kind(loss, random_state=0).fit(X, y)
        assert np.abs(model.coef_ - 1).max() < 0.3
        assert abs(model.intercept_ - 2) < 0.5

    @pytest.mark.filterwarnings("ignore::tailproof.TwoPopulationsWarning")
    @pytest.mark.parametrize("kind", REGRESSORS)
    @pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
    def test_one_target_in_ten_thousand_is_huge_with_log_link(self, kind, loss):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((10_000, 3))
        y = rng.gamma(2.0, np.exp(1 + X.sum(axis=1) / 4) / 2)
        y[5_000] = 1e6
        model = kind(loss, random_state=0).fit(X, y)
        assert np.abs(model.coef_ - 0.25).max() < 0.1
        assert abs(model.intercept_ - 1) < 0.2

    @pytest.mark.parametrize("kind", REGRESSORS)
    @pytest.mark.parametrize("loss", ["squared_error", "poisson", "tweedie", "huber", "absolute_error"])
    def test_zero_inflated_targets(self, kind, loss):
        ratios = []
        for seed in range(5):
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((10_000, 3))
            mean = np.exp(0.3 * X.sum(axis=1))
            y = rng.gamma(1.0, mean / 0.1) * (rng.random(10_000) < 0.1)
            model = kind(loss, random_state=seed).fit(X, y)
            if loss in ("huber", "absolute_error"):
                # These estimate the median, which is zero.
                assert np.abs(model.predict(X)).mean() < 0.5
                return
            assert np.corrcoef(model.predict(X), mean)[0, 1] > 0.7
            ratios.append(np.mean(model.predict(X)) / mean.mean())
        assert np.median(ratios) == pytest.approx(1, abs=0.15)

    @pytest.mark.parametrize("kind", REGRESSORS)
    @pytest.mark.parametrize("loss", reference.REGRESSION)
    @pytest.mark.parametrize("value", [0.0, 1.0, 1e9])
    def test_constant_target(self, kind, loss, value):
        if value == 0 and loss == "gamma":
            return
        X, _ = data(kind, n=1_000)
        model = kind(loss, random_state=0).fit(X, np.full(1_000, value))
        assert np.allclose(model.predict(X), value, rtol=1e-3, atol=1e-3)

    @pytest.mark.parametrize("kind", REGRESSORS)
    @pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
    def test_large_counts(self, kind, loss):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((5_000, 3))
        y = rng.gamma(2.0, 1e9 * np.exp(X.sum(axis=1) / 4) / 2)
        model = kind(loss, random_state=0).fit(X, y)
        assert np.abs(model.coef_ - 0.25).max() < 0.1
        assert abs(model.intercept_ - np.log(1e9)) < 0.2

    @pytest.mark.parametrize("kind", REGRESSORS)
    def test_beats_nothing_and_matches_least_squares_on_easy_data(self, kind):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((5_000, 5))
        y = 2 + X.sum(axis=1) + 0.1 * rng.standard_normal(5_000)
        model, exact = kind(random_state=0).fit(X, y), LinearRegression().fit(X, y)
        assert np.abs(model.coef_ - exact.coef_).max() < (0.005 if kind is DCSGDRegressor else 0.02)


class TestRareEvents:
    """Blocks hold enough of what is rare: most of them agreeing on nothing is no majority."""

    def claims(self, seed, n=20_000):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, 5))
        sizes = rng.lognormal(0, 1, n) * np.exp(0.3 * X.sum(axis=1)) / 0.005
        return X, np.where(rng.random(n) < 0.005, sizes, 0.0)

    @pytest.mark.parametrize("loss", ["squared_error", "poisson", "tweedie"])
    def test_mean_of_rare_claims(self, loss):
        for seed in range(3):
            X, y = self.claims(seed)
            model = DCSGDRegressor(loss, random_state=0).fit(X, y)
            assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.3)

    def test_one_event(self):
        X = np.random.default_rng(0).standard_normal((600, 3))
        y = np.zeros(600)
        y[17] = 4.0
        model = DCSGDRegressor("poisson", random_state=0).fit(X, y)
        assert y.mean() / 4 < model.predict(X).mean() < 2 * y.mean()

    def test_blocks_count_what_is_rare(self):
        X, y = self.claims(0)
        assert DCSGDRegressor(random_state=0).fit(X, y).report_.k < 5
        assert DCSGDClassifier(random_state=0).fit(X, y > 0).report_.k < 10
        assert DCSGDRegressor(random_state=0).fit(X, X.sum(axis=1)).report_.k == 96

    def test_blocks_count_the_parameters_of_every_class(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((7_600, 3))
        y = np.digitize(X.sum(axis=1) + 0.3 * rng.standard_normal(7_600), [-0.7, 0.7])
        model = DCSGDClassifier(random_state=0, max_iter=60).fit(X[:600], y[:600])
        assert model.report_.k == 150 // (5 * 2 * 4)
        assert model.score(X[600:], y[600:]) > 0.86


class TestScaleOfTheTarget:
    @pytest.mark.parametrize("loss", ["huber", "absolute_error", "pinball"])
    def test_bounded_slopes_learn_at_any_scale(self, loss):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2_000, 3))
        y = X.sum(axis=1) + 0.5 * rng.standard_normal(2_000)
        scores = [DCSGDRegressor(loss, random_state=0).fit(X, s * y).score(X, s * y) for s in (1e-6, 1, 1e6)]
        assert min(scores) > 0.9

    @pytest.mark.parametrize("far", [1e5, -6e4])
    def test_log_link_goes_on_from_a_fit_on_columns_far_from_zero(self, far):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2_000, 2)) + np.array([0, far])
        y = rng.poisson(np.exp(0.3 * X[:, 0] + 0.3 * (X[:, 1] - far) + 1))
        model = DCSGDRegressor("poisson", random_state=0, warm_start=True).fit(X, y)
        for again in (model.fit(X, y), model.partial_fit(X, y)):
            assert np.allclose(again.coef_, 0.3, atol=0.06)

    @pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber"])
    @pytest.mark.parametrize("constraint", [("simplex", 1.0), ("box", 0.05, 1.0)])
    def test_sets_without_zero(self, loss, constraint):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((3_000, 4)) + 1_000
        y = X @ [0.4, 0.3, 0.2, 0.1] + rng.standard_normal(3_000)
        for merge in ("geometric_median", "coordinate_median"):
            model = DCSGDRegressor(loss, constraint=constraint, merge=merge, random_state=0).fit(X, y)
            assert abs(np.median(y - model.predict(X))) < 0.2

    def test_few_candidates_settle_wherever_the_target_lies(self):
        X, y = data(n=60)
        passes = {DCSGDRegressor(k=2, random_state=0).fit(X, y + shift).n_iter_ for shift in (0.0, 1e5)}
        assert len(passes) == 1

    def test_not_settled_is_said(self, monkeypatch):
        monkeypatch.setattr("tailproof.core.algorithms.MOST_PASSES", 2)
        X, y = data()
        with pytest.warns(ConvergenceWarning, match="had not settled after"):
            DCSGDRegressor(k=3, random_state=0, step_size=("auto", 1e-3)).fit(X, y)


class TestCollinear:
    """Directions in which the data hardly vary are learned all the same."""

    def data(self, n=6_000, seed=0):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((n, 4))
        X = np.column_stack([z[:, 0], z[:, 0] + 0.02 * z[:, 1], z[:, 2], z[:, 3]])
        signal = 50 * z[:, 1] + X[:, 2]
        return X, signal, signal + rng.standard_normal(n)

    @pytest.mark.parametrize("model", [DCSGDRegressor, RVSGDRegressor])
    def test_risk(self, model):
        X, signal, y = self.data()
        found = model(random_state=0).fit(X, y)
        assert np.mean((found.predict(X) - signal) ** 2) < 0.1
        assert found.n_iter_ < 20

    def test_few_large_blocks_where_many_do_not_settle(self):
        X, _, y = self.data()
        model = DCSGDRegressor(random_state=0, penalty="l2", alpha=1e-9, delta=0.2)  # does not turn
        with pytest.warns(ConvergenceWarning, match="had not settled after"):
            found = model.fit(X, y)
        assert found.report_.k == blocks_for(0.2, "dc")
        assert "did not settle" in found.report_.why_k
        assert found.report_.gradient_evaluations == found.n_iter_ * len(y)
        assert found.n_iter_ > 60


class TestSmall:
    @pytest.mark.parametrize("kind", ESTIMATORS)
    def test_fewer_rows_than_blocks(self, kind):
        X, y = data(kind, n=6)
        with pytest.raises(ValueError, match="k=20"):
            kind(k=20).fit(X, y)
        model = kind(random_state=0).fit(X, y)
        assert model.report_.k == 1

    def test_one_row(self):
        model = DCSGDRegressor(random_state=0).fit([[1.0, 2.0]], [3.0])
        assert model.predict([[1.0, 2.0]]) == pytest.approx([3.0], rel=0.5)
        with pytest.raises(ValueError, match="minimum of 2"):
            RVSGDRegressor().fit([[1.0, 2.0]], [3.0])

    def test_two_rows(self):
        for kind in ESTIMATORS:
            model = kind(random_state=0).fit([[1.0, 2.0], [-1.0, 3.0]], [0, 1])
            assert np.all(np.isfinite(model.coef_))

    @every_estimator
    @pytest.mark.parametrize("k", [1, 2, "auto"])
    def test_one_column(self, kind, k):
        X, y = data(kind, n=500, d=1)
        model = kind(k=k, random_state=0).fit(X, y)
        assert model.coef_.ravel()[0] > 0.3
        assert len(model.candidates_) == model.report_.k

    @every_estimator
    def test_one_block_is_plain_sgd(self, kind):
        X, y = data(kind, n=1_000)
        model = kind(k=1, random_state=0, recentre=False).fit(X, y)
        candidate = model.candidates_[0]
        assert np.allclose(np.append(model.coef_, model.intercept_), candidate, rtol=1e-12)


def test_columns_whose_squares_vanish_are_learned_or_refused():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    y = X.sum(axis=1) + 0.1 * rng.standard_normal(400)
    with pytest.raises(ValueError, match="so small that squares vanish: multiply columns by a constant"):
        DCSGDRegressor(random_state=0).fit(X * [1.0, 1e-200], y)
    assert RGDRegressor(random_state=0).fit(X * 1e-200, y).score(X * 1e-200, y) > 0.98
    assert RobustRegressor(random_state=0).fit(X * 1e-200, y).score(X * 1e-200, y) > 0.98
