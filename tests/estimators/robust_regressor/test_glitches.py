"""Limits of features that a sample of the rows sets for all."""

import numpy as np
import pytest

from tailproof.core.scaling import FeatureScale
from tailproof.estimators.robust_regressor.glitches import feature_limits


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
