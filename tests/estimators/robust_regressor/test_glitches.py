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
