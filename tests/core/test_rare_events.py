"""Claims among far smaller noise, tails that only look like it, and rows that features tell from others."""

import numpy as np
import pytest

from tailproof.core.automatic import share_of_informative_rows
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
