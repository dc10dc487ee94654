"""Claims among far smaller noise, tails that only look like it, and rows that features tell from others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailproof.core.automatic import share_of_informative_rows, share_of_untied_targets
from tailproof.core.rare_events import least_told_apart, share_of_rare_events, told_apart
from tailproof.core.resistant import resistant_mean

TAILS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "log-normal(1.75)": lambda rng, n: rng.lognormal(0, 1.75, n),
    "log-normal(2.5)": lambda rng, n: rng.lognormal(0, 2.5, n),
    "Pareto(1.2)": lambda rng, n: rng.pareto(1.2, n),
    "t(2.2)": lambda rng, n: rng.standard_t(2.2, n),
    "Cauchy": lambda rng, n: rng.standard_cauchy(n),
    "5% contaminated": lambda rng, n: rng.standard_normal(n) * np.where(rng.random(n) < 0.05, 20.0, 1.0),
}


def claims(rate, noise, n=5_000, seed=0):
    """Log-normal claims among normal noise, and which rows have one."""
    rng = np.random.default_rng(seed)
    struck = rng.random(n) < rate
    return noise * rng.standard_normal(n) + struck * rng.lognormal(-0.5, 1.0, n), struck


@pytest.mark.parametrize("noise", [1e-9, 1e-3, 3e-3])
@pytest.mark.parametrize("rate", [0.005, 0.02, 0.04])
def test_claims_are_the_informative_rows(rate, noise):
    y, struck = claims(rate, noise)
    assert share_of_rare_events(y) == pytest.approx(struck.mean(), rel=0.2)
    assert share_of_rare_events(1e6 - 1e3 * y) == share_of_rare_events(y)


@pytest.mark.parametrize("n", [500, 5_000])
@pytest.mark.parametrize("law", TAILS)
def test_no_tail_of_a_law_is_a_rare_event(law, n):
    rng = np.random.default_rng(1)
    assert {share_of_rare_events(TAILS[law](rng, n)) for _ in range(40)} == {1.0}
    assert {share_of_rare_events(TAILS[law](rng, n), rng.lognormal(0, 1, n)) for _ in range(40)} == {1.0}


def test_few_far_values_may_be_errors_and_many_are_not_rare():
    y = np.random.default_rng(0).standard_normal(5_000)
    for count, share in ((14, 1.0), (15, 0.003), (250, 0.05), (251, 1.0)):
        far = y.copy()
        far[:count] = 1e4
        assert share_of_rare_events(far) == share


def test_one_row_in_a_thousand_may_be_an_error():
    y = np.random.default_rng(0).standard_normal(20_000)
    for count, share in ((39, 1.0), (40, 0.002)):
        far = y.copy()
        far[:count] = 1e4
        assert share_of_rare_events(far) == share


def test_noise_of_two_sizes_on_both_sides_is_no_rare_event():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(5_000) * np.where(rng.random(5_000) < 0.01, 1e3, 1.0)
    assert share_of_rare_events(y) == 1.0
    assert share_of_rare_events(np.where(np.abs(y) > 10, np.abs(y), y)) < 0.02


def test_ties_leave_the_rows_that_differ():
    y = np.where(claims(0.02, 1.0)[1], 7.0, 0.0)
    assert share_of_informative_rows(y, np.sin(np.arange(y.size))) == np.mean(y > 0)
    assert share_of_informative_rows(np.zeros(50), np.zeros(50)) == 0


def weighed_claims(seed, n, count, most):
    """Claims among small noise, near the limits of what is rare, and whole weights up to so much."""
    rng = np.random.default_rng(seed)
    y = rng.uniform(1e-4, 5e-3) * rng.standard_normal(n)
    y[:count] += rng.lognormal(-0.5, 1.0, count) * np.where(
        rng.random(count) < rng.uniform(0.0, 0.4), -1.0, 1.0
    )
    weights = rng.integers(1, most, n, endpoint=True).astype(float)
    weights[:count] *= rng.choice([1, 1, 5])
    weights[count:] *= rng.choice([1, 1, 5])
    order = rng.permutation(n)
    return y[order], weights[order]


def median_of_repeated(values, weights):
    ordered = np.sort(np.repeat(values, weights.astype(int)))
    return 0.5 * (ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2])


def slow_share_of_rare_events(y, weights):
    """One threshold after the other, by the sentences of the docstring."""
    n, total, scale, away = y.size, weights.sum(), np.inf, y
    for counts in (np.ones(n), weights):
        centre = median_of_repeated(y, counts)
        spread = median_of_repeated(np.abs(y - centre), counts)
        if spread < scale:
            scale, away = spread, y - centre
    for b in np.sort(np.abs(away)):
        beyond, decade = np.abs(away) >= b, (np.abs(away) >= b / 10) & (np.abs(away) < b)
        w = weights[beyond]
        is_rare = min(np.mean(beyond | decade), weights[beyond | decade].sum() / total) <= 0.05
        a_gap = b >= 100 * scale and weights[decade].sum() < 2 * w.sum()
        enough = w.sum() ** 2 / (w**2).sum() >= 15 and w.sum() >= 0.002 * total
        one_sided = abs(w @ np.sign(away[beyond])) > 3 * np.sqrt((w**2).sum())
        if is_rare and a_gap and enough and one_sided:
            return min(np.mean(beyond), w.sum() / total)
    return 1.0


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(300, 1_500),
    count=st.integers(10, 120),
    most=st.integers(1, 4),
)
def test_weights_count_as_in_a_slow_search(seed, n, count, most):
    y, weights = weighed_claims(seed, n, count, most)
    slow = slow_share_of_rare_events(y, weights)
    assert share_of_rare_events(y, weights) == pytest.approx(slow, rel=1e-12)
    assert share_of_rare_events(y, 0.125 * weights) == share_of_rare_events(y, weights)
    assert share_of_rare_events(y, 3.0 * np.ones(n)) == share_of_rare_events(y)


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_noise_that_weigh_more_count_as_often(seed):
    rng = np.random.default_rng(seed)
    y, struck = claims(0.1, 1e-3, 400, seed)
    weights = np.where(struck, 1, rng.integers(3, 6, y.size))
    repeated = np.repeat(y, weights)
    assert share_of_rare_events(y) == 1.0
    assert share_of_rare_events(y, weights.astype(float)) == share_of_rare_events(repeated) < 0.05


@pytest.mark.parametrize("weight", [2.0, 20.0, 1_000.0])
def test_claims_that_weigh_much_are_few_rows_all_the_same(weight):
    """Most small blocks of rows have none."""
    y, struck = claims(0.01, 1e-3)
    assert share_of_rare_events(y, np.where(struck, weight, 1.0)) == share_of_rare_events(y) < 0.012


def test_claims_of_a_sample_that_has_hardly_anything_else():
    y, struck = claims(0.6, 1e-3)
    weights = np.where(struck, 1.0, 60.0)
    assert share_of_rare_events(y, weights) == pytest.approx(weights[struck].sum() / weights.sum(), rel=0.1)


def test_weight_is_no_evidence_and_without_any_there_are_no_events():
    y = np.random.default_rng(0).standard_normal(5_000)
    for count, weight, share in ((14, 100.0, 1.0), (15, 100.0, 0.003), (100, 1.0, 0.02), (100, 0.01, 1.0)):
        far, weights = y.copy(), np.ones(y.size)
        far[:count], weights[:count] = 1e4, weight
        assert share_of_rare_events(far, weights) == share
    far, weights = y.copy(), np.ones(y.size)
    far[:20], weights[0] = 1e4, 1e3
    assert share_of_rare_events(far, weights) == 1.0


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), untied=st.integers(0, 90), scale=st.floats(1e-6, 1e6))
def test_the_lesser_of_the_shares_of_untied_rows_and_of_their_weight(seed, untied, scale):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.r_[rng.standard_normal(untied), np.full(200 - untied, 7.0)])
    weights = scale * rng.integers(1, 4, 200) * np.where(y == 7.0, rng.choice([1, 30]), 1.0)
    by_weight = weights[y != 7.0].sum() / weights.sum()
    common = by_weight < 0.5
    expected = min(np.mean(y != 7.0), by_weight) if common else np.mean(y != 7.0)
    assert share_of_untied_targets(y, weights) == pytest.approx(expected, rel=1e-12)
    assert share_of_untied_targets(y, np.full(200, scale)) == share_of_untied_targets(y)
    repeated = np.repeat(y, np.round(weights / scale).astype(int))
    assert share_of_untied_targets(y, weights) <= share_of_untied_targets(repeated) * (1 + 1e-12)


def test_claims_that_are_most_targets_but_have_little_weight():
    y = np.r_[np.arange(1.0, 61.0), np.zeros(40)]
    assert share_of_untied_targets(y) > 0.9
    assert share_of_untied_targets(y, np.where(y > 0, 1.0, 50.0)) == pytest.approx(60 / 2_060)
    assert share_of_informative_rows(y, y, np.where(y > 0, 1.0, 50.0)) == pytest.approx(60 / 2_060)


@pytest.mark.parametrize("noise", [1e-4, 1e-7])
def test_means_of_rare_events_are_not_those_of_most_blocks(noise):
    y, _ = claims(0.005, noise, 20_000)
    weights = np.ones(y.size)
    weights[:100] = 2.0
    for shares in (None, weights):
        kept = resistant_mean(y, 0.05, shares, informative_share=share_of_rare_events(y))
        assert kept == pytest.approx(np.average(y, weights=shares), rel=0.1)
        assert resistant_mean(y, 0.05, shares) < 0.2 * kept


@pytest.mark.parametrize("law", ["normal", "log-normal(2.5)", "Cauchy", "indicators"])
def test_rows_at_random_are_seldom_told_apart(law):
    rng = np.random.default_rng(0)
    draw = TAILS.get(law, lambda rng, n: (rng.random(n) < 0.03).astype(float))
    told = 0
    for _ in range(300):
        X = draw(rng, 1_040 * 5).reshape(-1, 5)
        told += told_apart(X[:40], X[40:], 0.005)
    assert told <= 6


def test_rows_that_a_feature_favours_are_told_apart():
    rng = np.random.default_rng(0)
    some, these = rng.standard_cauchy((1_000, 3)), rng.standard_cauchy((100, 3))
    these[:, 1] += 1.0
    assert told_apart(these, some, 0.005)
    assert told_apart(np.where(these > 0.5, 1.0, 0.0), np.where(some > 0.5, 1.0, 0.0), 0.005)
    assert not told_apart(np.zeros((100, 3)), np.zeros((1_000, 3)), 0.005)
    assert least_told_apart(3) > least_told_apart(1) > 10
