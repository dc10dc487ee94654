"""Differences of means with shared tails: the mean of both samples stays, Welch's formula without tails."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tailproof.core.differences import (
    POWER_TAIL,
    TAIL,
    independent_difference,
    looks_factor,
    paired_difference,
)


def ones(values):
    return np.ones(len(values))


def heavy(seed, n, scale=1.0):
    return scale * np.random.default_rng(seed).lognormal(0, 1.75, n)


@given(st.integers(0, 10_000), st.integers(30, 300), st.integers(30, 300), st.sampled_from([1e-8, 1.0, 1e12]))
def test_both_samples_together_keep_their_mean(seed, n, m, scale):
    a, b = heavy(seed, n, scale), heavy(seed + 1, m, scale)
    found = independent_difference(a, b, ones(a), ones(b))
    together = (n * found.means[0] + m * found.means[1]) / (n + m)
    assert together == pytest.approx(np.concatenate([a, b]).mean(), rel=1e-9)
    assert found.estimate == found.means[0] - found.means[1]


@given(st.integers(0, 10_000), st.sampled_from([1e-8, 1.0, 1e12]), st.floats(-5, 5))
def test_follows_shifts_and_scales(seed, scale, shift):
    a, b = heavy(seed, 120), heavy(seed + 1, 90)
    one = independent_difference(a, b, ones(a), ones(b))
    other = independent_difference(scale * (a + shift), scale * (b + shift), ones(a), ones(b))
    assert other.estimate == pytest.approx(scale * one.estimate, rel=1e-6, abs=1e-9 * scale)
    assert other.se == pytest.approx(scale * one.se, rel=1e-6)


def test_few_values_are_compared_as_welch_does():
    a, b = heavy(0, 7), heavy(1, 8)
    found = independent_difference(a, b, ones(a), ones(b))
    welch = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert found.interval(0.05) == pytest.approx((welch.low, welch.high))
    assert found.shared == 0


def test_light_tails_are_compared_as_welch_does():
    a, b = np.random.default_rng(0).normal(size=(2, 1_000))
    found = independent_difference(a + 0.1, b, ones(a), ones(b))
    welch = stats.ttest_ind(a + 0.1, b, equal_var=False).confidence_interval(0.95)
    assert found.interval(0.05) == pytest.approx((welch.low, welch.high))
    assert found.shared == 0


def test_more_values_are_shared_where_the_tail_is_a_power():
    values = 1 + np.random.default_rng(0).pareto(2.1, (2, 5_000))
    powers = independent_difference(*values, *np.ones((2, 5_000)))
    others = independent_difference(heavy(0, 5_000), heavy(1, 5_000), *np.ones((2, 5_000)))
    assert powers.shared == (POWER_TAIL + TAIL) * 100  # no power law is shared below zero
    assert others.shared == 2 * TAIL * 100


def test_the_slow_way():
    a, b = heavy(3, 2_000, 1.2), heavy(4, 1_500)
    values = sorted(np.concatenate([a, b]))
    count = int(np.ceil(TAIL * np.sqrt(3_500)))
    threshold, level = values[-count - 1], np.median(values)
    common = np.mean([v for v in values if v > threshold])
    lowest = values[count]
    low = np.mean([v for v in values if v < lowest])
    assert lowest < level
    slow = [np.mean([common if v > threshold else low if v < lowest else v for v in u]) for u in (a, b)]
    found = independent_difference(a, b, ones(a), ones(b))
    assert found.means == pytest.approx(tuple(slow), rel=1e-12)


def test_weights_repeat_values():
    a, b = heavy(5, 400), heavy(6, 400)
    twice = independent_difference(np.repeat(a, 2), np.repeat(b, 2), np.ones(800), np.ones(800))
    weighted = independent_difference(a, b, np.full(400, 2.0), np.full(400, 2.0))
    once = independent_difference(a, b, ones(a), ones(b))
    assert weighted.estimate == pytest.approx(once.estimate)
    assert weighted.se == pytest.approx(once.se)
    assert twice.se < once.se


def test_tails_that_differ_beyond_doubt_are_not_shared():
    a, b = heavy(7, 5_000), heavy(8, 5_000)
    a[a > np.quantile(a, 0.97)] *= 30
    found = independent_difference(a, b, ones(a), ones(b))
    assert found.estimate == pytest.approx(a.mean() - b.mean(), rel=0.02)


def test_pairs_without_noise_and_with():
    a = heavy(9, 1_000)
    assert paired_difference(a + 3, a, ones(a)).estimate == pytest.approx(3)
    gaps = np.random.default_rng(0).standard_t(2.5, 4_000)
    found = paired_difference(gaps + 0.2, np.zeros(4_000), ones(gaps))
    assert found.se < gaps.std() / np.sqrt(4_000)
    assert abs(found.estimate - 0.2) < 4 * found.se


def fieller_slowly(found, delta, grid):
    t = stats.t.ppf(1 - delta / 2, found.degrees)
    (m1, m2), (v1, v2), c = found.means, found.variances, found.covariance
    inside = [r for r in grid if (m1 - r * m2) ** 2 <= t**2 * (v1 - 2 * r * c + r**2 * v2)]
    return min(inside), max(inside)


def test_ratio_interval_is_that_of_fieller():
    a, b = heavy(10, 3_000, 1.3), heavy(11, 3_000)
    found = independent_difference(a, b, ones(a), ones(b))
    low, high = found.ratio_interval(0.05)
    slow = fieller_slowly(found, 0.05, np.linspace(0.5, 3, 20_001))
    assert (low, high) == pytest.approx(slow, abs=2e-4)


def test_the_ratio_to_a_mean_that_may_be_zero_is_unbounded():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 1, 100), rng.normal(0, 1, 100)
    assert independent_difference(a, b, ones(a), ones(b)).ratio_interval(0.05) == (-np.inf, np.inf)


def test_intervals_for_every_look_hold_at_every_look():
    rng, n, wrong, wrong_once = np.random.default_rng(1), 2_000, 0, 0
    looks = np.arange(50, n + 1, 50)
    for _ in range(400):
        path = np.cumsum(rng.normal(size=n))[looks - 1] / np.sqrt(looks)
        factors = np.array([looks_factor(look, n, 0.05) for look in looks])
        wrong += bool(np.any(np.abs(path) > 1.96 * factors))
        wrong_once += bool(np.any(np.abs(path) > 1.96))
    assert wrong <= 0.05 * 400
    assert wrong_once > 0.2 * 400  # what looking again and again does to an interval for one look
