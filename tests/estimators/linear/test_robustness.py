"""Diverging candidates and corrupt blocks do no harm, even where no row is left out as an error."""

import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from linear_models import (
    REGRESSORS,
    data,
    excess_risk,
)
from tailproof import DCSGDRegressor, RVSGDRegressor


class TestDivergence:
    def outlier(self, rows):
        X, y = data(n=500)
        X[rows] = 1e9
        return X, y

    @pytest.mark.parametrize("kind", REGRESSORS)
    def test_a_diverging_candidate_is_left_out_and_counted(self, kind):
        X, y = self.outlier([3])
        model = kind(
            k=5,
            update="explicit",
            scale_features=False,
            step_size=0.05,
            shuffle=False,
            max_iter=25,
            init=np.zeros(4),
            drop_glitches=False,
        )
        with pytest.warns(ConvergenceWarning, match="1 of 5 candidates diverged"):
            model.fit(X, y)
        assert model.report_.excluded.tolist() == [0]
        assert len(model.candidates_) == 4
        assert np.all(np.isfinite(model.candidates_))
        assert np.abs(model.coef_ - 1).max() < 0.5
        if kind is RVSGDRegressor:
            assert len(model.validation_risk_) == 4
            kept = np.setdiff1d(np.arange(5), model.report_.excluded)
            assert model.best_index_ == kept[np.argmin(model.validation_risk_)]

    @pytest.mark.parametrize("kind", REGRESSORS)
    def test_half_of_them_is_an_error(self, kind):
        X, y = self.outlier([3, 120, 230, 60, 180])
        model = kind(
            k=5,
            update="explicit",
            scale_features=False,
            step_size=0.05,
            shuffle=False,
            max_iter=25,
            init=np.zeros(4),
            drop_glitches=False,
        )
        with pytest.raises(ValueError, match=r"\d of 5 candidates diverged.*step"):
            model.fit(X, y)

    @pytest.mark.parametrize("passes", [8, 10, 12, 14, 17])
    def test_huge_is_diverged_too(self, passes):
        """A candidate of size 1e150 to 1e300 is finite, but not one that can be merged."""
        X, y = self.outlier([3])
        model = DCSGDRegressor(
            k=5,
            update="explicit",
            scale_features=False,
            step_size=0.05,
            shuffle=False,
            max_iter=passes,
            drop_glitches=False,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        assert np.abs(model.coef_ - 1).max() < 0.5

    def test_implicit_updates_do_not_diverge_there(self):
        X, y = self.outlier([3, 120, 230, 340])
        settings = {"scale_features": False, "step_size": 0.05, "max_iter": 25}
        model = DCSGDRegressor(k=5, shuffle=False, drop_glitches=False, **settings)
        model.fit(X, y)
        assert model.report_.excluded.size == 0

    def test_warning_points_at_the_caller(self):
        X, y = self.outlier([3])
        model = DCSGDRegressor(
            k=5,
            update="explicit",
            scale_features=False,
            step_size=0.05,
            shuffle=False,
            max_iter=25,
            drop_glitches=False,
        )
        with pytest.warns(ConvergenceWarning) as caught:
            model.fit(X, y)
        assert caught[0].filename == __file__


def blocks_to_corrupt(intercept, seed):
    """Ten blocks of 500 rows, which rows are those of the four to corrupt, and chance to do it with."""
    rng = np.random.default_rng(seed)
    X, y = data(n=5_000, d=5, seed=seed)
    bad = np.isin(np.arange(5_000) // 500, rng.choice(10, 4, replace=False))
    return X, y - (0 if intercept else 2), bad, rng


def excess_of(X, y, intercept, seed, k):
    settings = {"fit_intercept": intercept, "random_state": seed, "drop_glitches": False}
    model = DCSGDRegressor(k=k, shuffle=False, **settings).fit(X, y)
    return excess_risk(model, b=2 if intercept else 0)


@cache
def excess_without_corruption(intercept, seed):
    """Of all ten blocks, and of the six good ones."""
    X, y, bad, _ = blocks_to_corrupt(intercept, seed)
    return excess_of(X, y, intercept, seed, k=10), excess_of(X[~bad], y[~bad], intercept, seed, k=6)


class TestCorruption:
    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("what", ["X and y", "X", "y"])
    @pytest.mark.parametrize("size", [1e3, 1e12])
    def test_four_blocks_of_ten(self, intercept, what, size):
        """Median over seeds: within twice the clean fit's for values up to 1e12.

        Four blocks lost cost 10/6 = 1.67 even to a merge that knew which. Corruption of any size is also held
        to that merge, a fit on the six good blocks alone; targets of 1e3 hide best, at 1.47 times its risk
        and 2.14 times the clean fit's.
        """
        corrupt = []
        for seed in range(31):
            X, y, bad, rng = blocks_to_corrupt(intercept, seed)
            if "X" in what:
                X[bad] = size * rng.uniform(-1, 1, (bad.sum(), 5))
            if "y" in what:
                y[bad] = size * rng.uniform(-1, 1, bad.sum())
            corrupt.append(excess_of(X, y, intercept, seed, k=10))
        clean, informed = np.transpose([excess_without_corruption(intercept, seed) for seed in range(31)])
        assert np.median(corrupt) <= 1.5 * np.median(informed)
        if size == 1e12:
            assert np.median(corrupt) <= 2 * np.median(clean)

    def test_report_names_the_blocks(self):
        X, y = data(n=5_000)
        y[1_000:1_500] += 1e6 * X[1_000:1_500, 0]
        model = DCSGDRegressor(k=10, shuffle=False, random_state=0, drop_glitches=False).fit(X, y)
        assert model.report_.stand_out.tolist() == [2]
        assert "stand out" in str(model.report_)

    def test_rv_does_not_choose_a_corrupt_block(self):
        X, y = data(RVSGDRegressor, n=5_000)
        y[:1_500] = 1e12
        settings = {"random_state": 0, "init": np.zeros(4), "drop_glitches": False}
        model = RVSGDRegressor(k=10, shuffle=False, **settings).fit(X, y)
        assert model.best_index_ >= 6
        assert excess_risk(model) < 1


def test_slopes_of_claims_are_those_of_the_mean():
    """One policy in twenty has a claim, in proportion to its mean: too many blocks would shrink slopes."""
    shares = {"auto": [], 96: []}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (30_000, 2))
        mean = 10 + X @ [5.0, 3.0]
        y = np.where(rng.random(30_000) < 0.05, 20 * mean * rng.lognormal(-1, np.sqrt(2), 30_000), 0.0)
        for k, found in shares.items():
            found.append(DCSGDRegressor(k=k, random_state=0).fit(X, y).coef_ / [5.0, 3.0])
    assert np.mean(shares["auto"]) > 0.8
    assert np.mean(shares[96]) < np.mean(shares["auto"]) - 0.1


class TestTiedTargets:
    """Where most targets are equal, merged slopes are too small, and the report says so."""

    @pytest.fixture
    def claims(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2_000, 2))
        return X, np.where(rng.random(2_000) < 0.1, (5 + X.sum(axis=1)) * rng.lognormal(0, 1, 2_000), 0.0)

    @pytest.mark.parametrize("settings", [{}, {"k": 9}])
    def test_the_report_names_what_to_take_instead(self, claims, settings):
        report = DCSGDRegressor(random_state=0, **settings).fit(*claims).report_
        assert report.caution.startswith("89% of the targets are equal")
        assert "RobustRegressor(loss='tweedie')" in " ".join(report.verdict())

    def test_it_says_nothing_where_blocks_or_ties_are_none_or_the_link_is_another(self, claims):
        X, y = claims
        silent = [
            DCSGDRegressor(k=1, random_state=0).fit(X, y),
            DCSGDRegressor(random_state=0).fit(X, X.sum(axis=1)),
            DCSGDRegressor("poisson", random_state=0).fit(X, np.floor(np.abs(y))),
            DCSGDRegressor("huber", random_state=0).fit(X, y),
        ]
        assert [model.report_.caution for model in silent] == [None] * 4
