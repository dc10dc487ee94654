"""Rows of another population, and rows that only look like it."""

import numpy as np
import pytest
from scipy import sparse

from tailproof.core.populations import LIMITS, beyond_a_gap, named, tail_index, two_populations, unexplained

LAWS = {
    "log-normal(1.75)": lambda rng, shape: rng.lognormal(0, 1.75, shape),
    "log-normal(2.5)": lambda rng, shape: rng.lognormal(0, 2.5, shape),
    "Pareto(2.1)": lambda rng, shape: rng.pareto(2.1, shape),
    "Pareto(1.2)": lambda rng, shape: rng.pareto(1.2, shape),
    "t(3)": lambda rng, shape: rng.standard_t(3, shape),
    "Cauchy": lambda rng, shape: rng.standard_cauchy(shape),
}


def errors(X, y=None):
    return two_populations(X, y).errors.tolist()


def gap_of_sorted(values):
    """Every gap that is wide enough, innermost first, by a sort of all values."""
    common = values == np.median(values)
    counted = np.flatnonzero(~common) if 2 * common.sum() > values.size else np.arange(values.size)
    away = np.abs(values[counted] - np.median(values))
    order = np.argsort(-away, kind="stable")
    ordered, scale = away[order], np.median(away)
    for place in range((away.size - 1) // 2, 0, -1):
        nearest, others = ordered[place - 1], ordered[place:]
        if nearest > LIMITS.scales * scale and nearest > LIMITS.gap * others[0]:
            times = nearest / max(others[0], 1e-300)
            if np.log(times) > np.log(1 / LIMITS.error) / (place * tail_index(others)):
                return counted[order[:place]], times
    return None


def assert_same_gap(found, wanted):
    assert (found is None) == (wanted is None)
    if wanted is not None:
        np.testing.assert_array_equal(found[0], wanted[0])
        assert found[1] == wanted[1]


class TestGap:
    @pytest.mark.parametrize("law", LAWS)
    @pytest.mark.parametrize("n", [100, 2_000])
    def test_tails_have_none(self, law, n):
        found = [beyond_a_gap(LAWS[law](np.random.default_rng(seed), n)) for seed in range(20)]
        assert sum(gap is not None for gap in found) <= 1

    @pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.2, 0.4])
    @pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
    def test_other_populations_of_any_share_have(self, share, scale):
        values = np.random.default_rng(0).standard_normal(2_000)
        bad = np.random.default_rng(1).choice(2_000, round(2_000 * share), replace=False)
        values[bad] = 1e3
        rows, times = beyond_a_gap(scale * values)
        assert sorted(rows) == sorted(bad)
        assert times > LIMITS.gap

    def test_claims_among_zeros_are_a_tail_and_a_claim_beyond_all_is_not(self):
        rng = np.random.default_rng(0)
        claims = np.where(rng.random(5_000) < 0.02, rng.lognormal(7, 1.5, 5_000), 0.0)
        assert beyond_a_gap(claims) is None
        claims[17] = 1e12
        assert beyond_a_gap(claims)[0].tolist() == [17]

    def test_residuals_of_claims_among_zeros_are_no_exception_and_one_beyond_all_is(self):
        rng = np.random.default_rng(0)
        claims = np.where(rng.random(5_000) < 0.02, rng.lognormal(7, 1.5, 5_000), 0.0)
        predicted = rng.normal(0, 1e-3, 5_000)
        assert unexplained(claims - predicted, claims).rows.size == 0
        claims[17] = 1e12
        assert unexplained(claims - predicted, claims).rows.tolist() == [17]

    @pytest.mark.parametrize("values", [np.zeros(100), np.arange(10.0), np.repeat([0.0, 1.0], [990, 10])])
    def test_constants_few_values_and_indicators_have_none(self, values):
        assert beyond_a_gap(values) is None

    @pytest.mark.parametrize("law", LAWS)
    @pytest.mark.parametrize("far", [None, 40.0, 1e6])
    def test_many_values_are_judged_as_if_all_were_sorted(self, law, far):
        values = LAWS[law](np.random.default_rng(3), 41_000)
        if far is not None:
            values[[9, 20_011]] = far * np.abs(values).max()
        assert_same_gap(beyond_a_gap(values), gap_of_sorted(values))

    @pytest.mark.parametrize("tied", [0.0, 0.4, 0.6])
    def test_many_values_beyond_a_gap_and_many_ties(self, tied):
        rng = np.random.default_rng(4)
        values = np.where(rng.random(41_000) < tied, 0.0, rng.standard_normal(41_000))
        values[rng.choice(41_000, 4_000, replace=False)] = 1e3
        assert_same_gap(beyond_a_gap(values), gap_of_sorted(values))

    def test_index_of_a_power_tail(self):
        ordered = np.sort(np.random.default_rng(0).pareto(2.0, 10_000) + 1)[::-1]
        assert 1.5 < tail_index(ordered) < 2.2


class TestFeatures:
    def test_heavy_tails_and_rare_indicators_are_none(self):
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.standard_t(2, 5_000), rng.pareto(2, 5_000), np.arange(5_000) < 3])
        assert errors(X) == []

    def test_rare_and_large_is_not_yet_broken(self):
        counts = np.zeros((1_000, 1))
        counts[:11, 0] = [0.06, 1, 4, 5, 5, 6, 8, 9, 12, 40, 90]
        assert errors(counts) == []

    @pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
    def test_broken_rows_are_found(self, make):
        X = np.random.default_rng(0).standard_normal((5_000, 3))
        X[[5, 77, 1_234], [0, 1, 2]] = [1e6, -1e9, 1e12]
        assert errors(make(X)) == [5, 77, 1_234]

    @pytest.mark.parametrize("d", [1, 10, 40])
    @pytest.mark.parametrize("law", ["log-normal(2.5)", "Pareto(1.2)", "Cauchy"])
    def test_honest_tails_are_kept_whatever_the_number_of_columns(self, law, d):
        dropped = 0
        for seed in range(40 if d == 1 else 12):
            rng = np.random.default_rng(seed)
            X = LAWS[law](rng, (500, d))
            dropped += len(errors(X, X.sum(axis=1) + rng.standard_normal(500))) > 0
        assert dropped == 0

    @pytest.mark.parametrize("seed", range(5))
    def test_two_honest_populations_are_kept(self, seed):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((1_000, 5))
        X[:5] *= 5_000
        y = X.sum(axis=1) + rng.standard_normal(1_000)
        assert errors(X) == [0, 1, 2, 3, 4]
        assert errors(X, y) == []

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
    def test_codes_for_missing_values_are_found(self, seed, make):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((1_000, 5))
        y = X.sum(axis=1) + rng.standard_normal(1_000)
        X[[3, 70], 2] = 999.0
        assert errors(make(X), y) == [3, 70]


class TestErrors:
    """Few rows beyond a gap are errors; many are another population, and kept."""

    @pytest.mark.parametrize(("share", "what", "few"), [(0.01, "y", True), (0.05, "y", False)])
    def test_targets(self, share, what, few):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2_000, 3))
        y = X.sum(axis=1) + rng.standard_normal(2_000)
        y[: round(share * 2_000)] = 1e6
        found = two_populations(X, y)
        assert found.rows.size == share * 2_000
        assert (found.errors.size == found.rows.size) is few

    @pytest.mark.parametrize(("share", "few"), [(0.05, True), (0.2, False)])
    def test_features(self, share, few):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2_000, 3))
        y = X.sum(axis=1) + rng.standard_normal(2_000)
        X[: round(share * 2_000), 1] = 1e6
        found = two_populations(X, y)
        assert found.far_features.size == share * 2_000
        assert (found.errors.size == found.rows.size) is few

    def test_a_far_target_that_its_features_explain_is_kept(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2_000, 3))
        X[4, 0] = 1e6
        y = X.sum(axis=1) + rng.standard_normal(2_000)
        assert two_populations(X, y).gaps == ()

    def test_sentences_name_rows_as_the_caller_does(self):
        y = np.random.default_rng(0).standard_normal(100)
        y[7] = 1e6
        found = two_populations(np.zeros((100, 1)), y)
        assert found.sentence(True, np.arange(100) + 500).endswith("1 were left out as errors; rows 507")
        assert "all were kept" in found.sentence(False)
        assert two_populations(np.zeros((100, 1)), np.arange(100.0)).sentence(True) is None
        assert named(np.arange(3)) == "0, 1, 2"


@pytest.mark.parametrize("seed", range(5))
def test_counts_among_zeros_are_one_population(seed):
    """Residuals of counts of one hardly differ; those of two are far from them, and near from the zeros."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal(5_000), rng.poisson(0.1, 5_000).astype(float)
    slope = np.polyfit(x, y, 1)
    assert not unexplained(y - np.polyval(slope, x), y).gaps
    y[:3] = 1e3
    assert unexplained(y - np.polyval(slope, x), y).rows.tolist() == [0, 1, 2]


def test_equal_claims_and_one_twice_as_large_are_one_population():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(2_000) < 0.1, 500.0 + 0.1 * rng.standard_normal(2_000), 0.0)
    y[np.argmax(y)] = 1_000.0
    assert beyond_a_gap(y) is None
    y[np.argmax(y)] = 1e6
    assert beyond_a_gap(y)[0].size == 1


def test_far_targets_that_features_tell_are_claims():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 3))
    y = 1e-3 * rng.standard_normal(20_000)
    likelier = np.flatnonzero(rng.random(20_000) < 0.005 * np.exp(0.7 * X[:, 0]))
    y[likelier] += rng.uniform(1.0, 2.0, likelier.size)
    found = two_populations(X, y)
    assert found.errors.size == 0
    assert found.rows.tolist() == likelier.tolist()
    assert "all were kept" in found.sentence(left_out=found.errors.size > 0)


@pytest.mark.parametrize("values", ["constant", "multiplied"])
def test_far_targets_at_random_are_errors_whatever_they_are(values):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 3))
    y = 10.0 + X.sum(axis=1) + rng.standard_normal(20_000)
    hit = np.sort(rng.choice(20_000, 200, replace=False))
    y[hit] = 1e5 if values == "constant" else 1e3 * y[hit]
    assert errors(X, y) == hit.tolist()
