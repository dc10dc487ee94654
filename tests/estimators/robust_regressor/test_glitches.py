"""Rows that are no measurements, and rows that only look like it."""

import numpy as np
import pytest
from scipy import sparse

from tailproof import RobustRegressor
from tailproof.core.scaling import FeatureScale
from tailproof.estimators.robust_regressor.glitches import feature_limits, glitches


class TestGlitches:
    def test_heavy_tails_and_rare_indicators_are_none(self):
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.standard_t(2, 5_000), rng.pareto(2, 5_000), np.arange(5_000) < 3])
        assert glitches(X).size == 0

    def test_rare_and_large_is_not_yet_broken(self):
        counts = np.zeros((1_000, 1))
        counts[:11, 0] = [0.06, 1, 4, 5, 5, 6, 8, 9, 12, 40, 90]
        assert glitches(counts).size == 0

    @pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
    def test_broken_rows_are_found(self, make):
        X = np.random.default_rng(0).standard_normal((5_000, 3))
        X[[5, 77, 1_234], [0, 1, 2]] = [1e6, -1e9, 1e12]
        assert glitches(make(X)).tolist() == [5, 77, 1_234]

    def test_left_out_of_the_fit_or_not(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((1_000, 3))
        y = 2 + X.sum(axis=1) + rng.standard_normal(1_000)
        X[7] = 1e6
        model = RobustRegressor(random_state=0).fit(X, y)
        assert model.report_.glitches.tolist() == [7]
        assert "1 rows left out" in str(model.report_)
        np.testing.assert_allclose(model.coef_, 1, atol=0.2)
        assert RobustRegressor(drop_glitches=False, random_state=0).fit(X, y).report_.glitches.size == 0

    @pytest.mark.parametrize("d", [1, 10, 40])
    @pytest.mark.parametrize("law", ["log-normal(2.5)", "Pareto(1.2)", "Cauchy"])
    def test_honest_tails_are_kept_whatever_the_number_of_columns(self, law, d):
        draw = {
            "log-normal(2.5)": lambda rng: rng.lognormal(0, 2.5, (500, d)),
            "Pareto(1.2)": lambda rng: rng.pareto(1.2, (500, d)),
            "Cauchy": lambda rng: rng.standard_cauchy((500, d)),
        }[law]
        dropped = 0
        for seed in range(40):
            rng = np.random.default_rng(seed)
            X = draw(rng)
            dropped += glitches(X, X.sum(axis=1) + rng.standard_normal(500)).size > 0
        assert dropped == 0

    @pytest.mark.parametrize("seed", range(5))
    def test_two_honest_populations_are_kept(self, seed):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((1_000, 5))
        X[:5] *= 5_000
        y = X.sum(axis=1) + rng.standard_normal(1_000)
        assert glitches(X).tolist() == [0, 1, 2, 3, 4]
        assert glitches(X, y).size == 0

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
    def test_codes_for_missing_values_are_found(self, seed, make):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((1_000, 5))
        y = X.sum(axis=1) + rng.standard_normal(1_000)
        X[[3, 70], 2] = 999.0
        assert glitches(make(X), y).tolist() == [3, 70]


class TestLimitsOfAllRows:
    """What a sample of 2,000 of 40,000 rows says about the others."""

    unit = FeatureScale(np.zeros(4), np.ones(4))

    @pytest.mark.parametrize("law", ["standard_normal", "standard_cauchy", "standard_exponential"])
    def test_honest_rows_are_within(self, law):
        for seed in range(20):
            X = getattr(np.random.default_rng(seed), law)((40_000, 4))
            limits = feature_limits(X[:2_000], np.empty((0, 4)), 40_000, self.unit)
            assert np.all(np.abs(X).max(axis=0) <= limits)

    def test_glitches_of_the_sample_are_beyond(self):
        X = np.random.default_rng(0).standard_t(3, (2_000, 4))
        far = np.zeros((2, 4))
        far[0, 1], far[1, 2] = 1e4, -1e5
        limits = feature_limits(X, far, 40_000, self.unit)
        assert np.abs(X[:, 1]).max() < limits[1] < 1e4
        assert np.abs(X[:, 2]).max() < limits[2] < 1e5

    def test_a_constant_column_has_none(self):
        X = np.random.default_rng(0).standard_normal((2_000, 4))
        X[:, 3] = 0.0
        assert np.isinf(feature_limits(X, np.empty((0, 4)), 40_000, self.unit)).tolist() == [False] * 3 + [
            True
        ]
