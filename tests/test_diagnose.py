"""Tails and their diagnosis."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

import tailproof as tp
from tailproof.core.automatic import blocks_sentence
from tailproof.core.tails import HEAVY, INFINITE, LIGHT, UNKNOWN, tails, variance_is_in_doubt
from tailproof.diagnose import Gain, diagnose, measured_gain
from tailproof.estimators.robust_regressor.predicted_gain import PredictedGain

LAWS = {
    "normal": (LIGHT, lambda rng, n: rng.standard_normal(n)),
    "uniform": (LIGHT, lambda rng, n: rng.random(n)),
    "bits": (LIGHT, lambda rng, n: rng.integers(0, 2, n)),
    "log-normal": (HEAVY, lambda rng, n: rng.lognormal(0, 1.75, n)),
    "Pareto(3)": (HEAVY, lambda rng, n: rng.pareto(3, n)),
    "Pareto(2)": (HEAVY, lambda rng, n: rng.pareto(2, n)),
    "Pareto(1.5)": (HEAVY, lambda rng, n: rng.pareto(1.5, n)),
}


@pytest.mark.parametrize("law", LAWS)
def test_calibration(law):
    """At least 95% of draws; a wrong rule would have to be lucky 60 times."""
    expected, draw = LAWS[law]
    said = [tails(draw(np.random.default_rng(seed), 5_000)).verdict for seed in range(60)]
    right = [(word == LIGHT) == (expected == LIGHT) for word in said]
    assert np.mean(right) >= 0.95
    if law == "Pareto(1.5)":
        assert np.mean([word == INFINITE for word in said]) >= 0.95


def test_exact_power_law_quantiles():
    u = (np.arange(1, 20_001) / 20_000) ** -0.5  # tail index 2
    found = tails(np.r_[u, -u])
    assert abs(found.hill.alpha - 2) < 0.1
    assert abs(found.moment.alpha - 2) < 0.25
    assert found.moment.low < 0.5 < found.moment.high
    assert found.hill.low < found.hill.gamma < found.hill.high


def test_hill_by_hand():
    rng = np.random.default_rng(0)
    u = rng.pareto(2, 1_001)
    found = tails(u)
    ordered = np.sort(np.abs(u - np.median(u)))[::-1]
    size = math.ceil(1_001 ** (2 / 3))
    assert found.tail_size == size
    assert np.isclose(found.hill.gamma, np.mean(np.log(ordered[:size] / ordered[size])))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 400),
    scale=st.sampled_from([1e-300, 1e-8, 1.0, 1e12, 1e300]),
    law=st.sampled_from(sorted(LAWS)),
)
def test_units_do_not_matter_and_nothing_breaks(seed, n, scale, law):
    u = LAWS[law][1](np.random.default_rng(seed), n).astype(float)
    one, other = tails(u), tails(-scale * u)
    assert one.verdict == other.verdict
    assert variance_is_in_doubt(u) == (one.verdict == INFINITE)
    assert np.isclose(one.moment.gamma, other.moment.gamma, atol=1e-6)
    assert np.allclose(one.max_to_sum, other.max_to_sum, rtol=1e-6)
    assert np.all((one.max_to_sum >= 0) & (one.max_to_sum <= 1 + 1e-12))


def test_odd_samples():
    assert tails(np.ones(1_000)).verdict == LIGHT
    assert tails(np.zeros(1_000)).zeros == 1.0
    assert tails([1.0, 2.0]).verdict == UNKNOWN
    assert tails(np.r_[np.zeros(999), 1.0]).verdict == UNKNOWN
    claims = np.r_[np.zeros(4_800), np.random.default_rng(0).pareto(1.5, 200)]
    assert tails(claims).verdict in (HEAVY, INFINITE)
    assert tails(claims).zeros == 0.96


def test_plain_signs():
    rng = np.random.default_rng(0)
    light, heavy = tails(rng.standard_normal(10_000)), tails(rng.pareto(1.2, 10_000))
    assert 0.7 < light.block_spread < 1.4
    assert heavy.block_spread > 2
    assert light.max_to_sum[1] < 0.01
    assert heavy.max_to_sum[1] > 0.2


@pytest.mark.parametrize("bad", [[1.0, np.nan], [1.0, np.inf], [], [[1.0]]])
def test_bad_values(bad):
    with pytest.raises(ValueError, match=r"NaN|infinity|one-dimensional"):
        tails(bad)


def rows(n=5_000, seed=0):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((n, 3))


class TestDiagnose:
    def test_noise_decides(self):
        for seed in range(3):
            rng, X = rows(seed=seed)
            signal = X.sum(axis=1)
            light = diagnose(X, signal + rng.standard_normal(5_000))
            heavy = diagnose(X, signal + rng.lognormal(0, 1.75, 5_000))
            assert light.verdict == LIGHT
            assert "least squares is fine" in light.recommendation
            assert heavy.verdict in (HEAVY, INFINITE)
            assert f"k={heavy.k}" in heavy.recommendation
            assert heavy.losses.moment.gamma > heavy.target.moment.gamma

    def test_heavy_features(self):
        rng, X = rows()
        X[:, 1] = rng.standard_t(2, 5_000)
        found = diagnose(X, X[:, 0] + rng.standard_normal(5_000))
        assert found.features["1"].verdict != LIGHT
        assert found.verdict != LIGHT
        assert [row["of"] for row in found.rows()][3] == "feature 1"

    def test_infinite_variance_is_said(self):
        rng, X = rows()
        found = diagnose(X, rng.pareto(1.1, 5_000))
        assert found.verdict == INFINITE
        assert "guarantees do not hold" in str(found)
        assert "variance of the losses may be infinite" in found.recommendation
        assert "in 67% to 78% of samples" in found.recommendation

    def test_the_advice_is_for_the_task_at_hand(self):
        rng, X = rows(2_000)
        heavy = np.column_stack([X, rng.standard_t(1.2, 2_000)])
        labels = np.where(rng.uniform(size=2_000) < 0.5, "yes", "no")
        found = diagnose(heavy, labels)
        assert found.verdict == INFINITE
        assert "ranks of the features" in found.recommendation
        assert "logarithm of a positive target" not in found.recommendation
        assert "DCSGDClassifier" in found.recommendation
        assert "RobustRegressor()" not in found.recommendation
        regression = diagnose(X, X[:, 0] + rng.standard_t(2.5, 2_000))
        assert regression.verdict == HEAVY
        assert "RobustRegressor()" in regression.recommendation
        assert "no probabilities" in diagnose(X, labels, LinearSVC()).recommendation

    def test_classification(self):
        rng, X = rows(1_000)
        labels = np.where(X[:, 0] + rng.logistic(size=1_000) > 0, "yes", "no")
        found = diagnose(X, labels)
        assert found.target is None
        assert found.verdict == LIGHT
        assert diagnose(X, labels, LogisticRegression()).losses is not None
        assert diagnose(X, labels, LinearSVC()).verdict == UNKNOWN

    def test_frames_missing_values_and_texts(self):
        rng, X = rows(1_000)
        frame = pd.DataFrame(X, columns=list("abc")).assign(kind="x", constant=1.0)
        frame.loc[::5, "b"] = np.nan
        found = diagnose(frame, X[:, 0] + rng.standard_normal(1_000))
        assert sorted(found.features) == ["a", "b", "c"]
        assert found.features["b"].n == 800
        counts = pd.array(np.where(np.arange(1_000) % 4, rng.poisson(3, 1_000), None), dtype="Int64")
        assert diagnose(pd.DataFrame({"n": counts}), X[:, 0]).features["n"].n == 750

    def test_own_estimator_and_sparse(self):
        rng, X = rows(1_000)
        y = X[:, 0] + rng.standard_normal(1_000)
        tree = diagnose(X, y, DecisionTreeRegressor(random_state=0))
        assert tree.losses.zeros < 0.01  # not the rows that the tree has seen
        found = diagnose(sparse.csr_array(X), y, LinearRegression())
        assert found.verdict == LIGHT

    def test_targets_as_they_come(self):
        rng, X = rows(500)
        y = X[:, 0] + rng.standard_normal(500)
        for target in (y[:, None], y.astype(object), pd.DataFrame({"y": y})):
            assert diagnose(X, target).target.moment == diagnose(X, y).target.moment
        assert diagnose(X[:2], [0, 1]).verdict == UNKNOWN
        names = list(diagnose(pd.DataFrame(X, columns=list("aab")), y).features)
        assert names == ["a (0)", "a (1)", "b"]
        with pytest.raises(ValueError, match="class 'rare' has 1 of 500 rows"):
            diagnose(X, np.where(np.arange(500) == 7, "rare", "common"))
        with pytest.raises(ValueError, match="at least two classes"):
            diagnose(X, np.ones(500), LogisticRegression())

    def test_few_rows_and_bad_input(self):
        X = np.arange(20.0)[:, None]
        assert diagnose(X, np.arange(20.0) ** 2).verdict == UNKNOWN
        assert "Too few rows" in diagnose(X[:3], np.arange(3.0)).recommendation
        with pytest.raises(TypeError, match="estimator must be one with fit and predict, or None; got 'a'"):
            diagnose(X, np.arange(20.0), "a")
        with pytest.raises(ValueError, match="one output at a time"):
            diagnose(X, np.ones((20, 2)))
        with pytest.raises(ValueError, match="two-dimensional"):
            diagnose(np.ones(20), np.arange(20.0))
        with pytest.raises(ValueError, match="NaN"):
            diagnose(X, np.full(20, np.nan))


class TestPopulations:
    def data(self, share):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2_000, 3))
        y = X.sum(axis=1) + rng.standard_normal(2_000)
        bad = np.sort(rng.choice(2_000, round(2_000 * share), replace=False))
        y[bad] = 1e6
        return X, y, bad

    @pytest.mark.parametrize("share", [0.001, 0.05, 0.3])
    def test_are_named_and_never_called_light(self, share):
        X, y, bad = self.data(share)
        found = diagnose(X, y)
        assert found.verdict != "light"
        assert found.outlying_rows.tolist() == bad.tolist()
        assert found.recommendation.startswith(f"Two populations: {bad.size} of 2,000 rows have targets")
        assert f"rows {bad[0]}, {bad[1]}" in str(found)
        assert "Light tails" not in str(found)

    def test_features_of_a_classification(self):
        X, _, bad = self.data(0.01)
        X[bad, 2] = 1e9
        found = diagnose(X, X[:, 0] + np.random.default_rng(1).logistic(size=2_000) > 0)
        assert "have feature 2" in found.recommendation
        assert found.gain is None

    def test_few_rows_that_carry_the_losses(self):
        X, y, _ = self.data(0.0)
        y[7] = 100.0
        assert diagnose(X, y).carriers.tolist() == [7]


class TestGain:
    @pytest.mark.parametrize("seed", range(2))
    def test_is_measured_where_tails_look_light(self, seed):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((1_000, 5))
        normal, spoilt = rng.standard_normal(1_000), np.where(rng.random(1_000) < 0.05, 10, 1)
        none, some = (diagnose(X, X.sum(axis=1) + noise).gain for noise in (normal, spoilt * normal))
        assert not none.is_one
        assert some.is_one
        assert some.difference > 0
        assert some.low < some.difference < some.high
        assert "gains nothing" in none.sentence()
        assert "RobustRegressor" in some.sentence()

    @pytest.mark.parametrize(("rows", "draws"), [(200, 12), (1_000, 6)])
    def test_of_heavy_noise_is_found_in_small_samples(self, rows, draws):
        """Held-out losses tell next to nothing there; residuals do."""
        found = []
        for seed in range(draws):
            rng = np.random.default_rng([seed, rows])
            X = rng.standard_normal((rows, 3))
            found.append(measured_gain(X, X.sum(axis=1) + rng.standard_t(3, rows)))
        assert sum(gain.is_one for gain in found) >= draws - 2
        assert not any(gain.is_none for gain in found)

    def test_of_normal_noise_is_none_where_rows_tell(self):
        for seed in range(6):
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((1_000, 5))
            assert measured_gain(X, X.sum(axis=1) + rng.standard_normal(1_000)).is_none

    def test_says_what_chance_leaves_open(self):
        open_to_chance = PredictedGain("25% truncated", 0.05, -0.1, 0.2, 0.4)
        gain = Gain(100, "untruncated", 0.0, -0.01, 0.01, 0.04, open_to_chance)
        assert not gain.is_one
        assert not gain.is_none
        assert "no gain of a robust fit shows beyond chance (between -10% and +40%" in gain.sentence()
        held_out_alone = replace(gain, predicted=None, high=0.02)
        assert "(between -25% and +50%" in held_out_alone.sentence()
        assert replace(held_out_alone, low=0.002, chosen="blend of 2").is_one
        assert not replace(held_out_alone, low=0.002).is_one

    def test_of_a_fit_that_was_not_chosen_does_not_count(self):
        promised = PredictedGain("25% truncated", 0.5, 0.3, 0.6, 0.6)
        gain = Gain(100, "blend of 2", 0.0, -0.01, 0.01, 0.04, promised)
        assert gain.is_one
        assert not replace(gain, chosen="untruncated").is_one

    def test_agrees_with_what_tails_advise(self):
        """Heavy features do not spoil least squares, and no sentence says that they do."""
        rng = np.random.default_rng(0)
        X = rng.standard_t(2, (1_000, 5))
        found = diagnose(X, X.sum(axis=1) + rng.standard_normal(1_000))
        assert found.verdict != LIGHT
        assert "gains nothing" in found.recommendation
        assert "least squares is fine" in found.recommendation
        assert "Use tailproof" not in found.recommendation

    def test_noise_that_depends_on_the_features_is_not_called_nothing(self):
        """Skewed noise that grows along a column: levels disagree, and what some predict limits nothing."""
        for seed in range(4):
            rng = np.random.default_rng([93_000 + seed, 1_000])
            X = rng.standard_normal((1_000, 3))
            noise = np.exp(0.5 * X[:, 0]) * (rng.lognormal(0, 1, 1_000) - np.exp(0.5))
            assert not measured_gain(X, X.sum(axis=1) + noise).is_none

    def test_of_the_other_rows_where_some_were_left_out(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((1_000, 3))
        y = X.sum(axis=1) + rng.standard_normal(1_000)
        y[7] = 1e9
        found = diagnose(X, y)
        assert found.gain.left_out == 1
        assert "tailproof.RobustRegressor()" in found.recommendation
        assert "(without the 1 left out) a robust fit gains nothing" in found.recommendation

    def test_needs_rows_and_no_pilot_of_your_own(self):
        X = np.random.default_rng(0).standard_normal((40, 2))
        assert diagnose(X, X[:, 0]).gain is None
        assert diagnose(np.vstack([X] * 5), np.tile(X[:, 0], 5), LinearRegression()).gain is None


@pytest.mark.parametrize("target", ["numbers", "claims", "two classes", "three classes"])
def test_k_is_that_of_the_fit_and_said_in_the_same_words(target):
    rng = np.random.default_rng(0)
    X, n = rng.standard_normal((1_500, 3)), 1_500
    targets = {
        "numbers": rng.standard_t(2.5, n),
        "claims": np.where(rng.random(n) < 0.2, rng.lognormal(0, 2, n), 0.0),
        "two classes": np.where(rng.random(n) < 0.1, "yes", "no"),
        "three classes": np.array(["a", "b", "c"])[rng.integers(0, 3, n)],
    }
    y = targets[target]
    model = tp.DCSGDRegressor if y.dtype.kind == "f" else tp.DCSGDClassifier
    fitted = model(random_state=0).fit(X, y).report_
    found = diagnose(X, y)
    assert found.k == fitted.k
    said = blocks_sentence(found.k, found.why_k)
    assert said in " ".join(fitted.verdict())
    assert (said in str(found)) == (found.verdict in ("heavy", "variance may be infinite"))
