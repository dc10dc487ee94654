"""Rows that are no measurements, and rows that only look like it."""

import numpy as np
import pytest
from scipy import sparse

from tailproof import RobustRegressor
from tailproof.estimators.robust_regressor.glitches import glitches


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
