"""compare_means: coverage, power, adjustment, groups, and what it refuses."""

import numpy as np
import pytest
from scipy import stats

import tailproof as tp
from tailproof.model_selection.two_samples import compare_means

MEAN = np.exp(1.75**2 / 2)


def spend(rng, n, share=0.1, lift=1.0):
    return (rng.random(n) < share) * rng.lognormal(0, 1.75, n) * lift


def study(draw, truth, seeds=200):
    """Share of covered truths, and length against Welch's interval."""
    covered, lengths, welch = [], [], []
    for seed in range(seeds):
        a, b = draw(np.random.default_rng(seed))
        found = compare_means(a, b)
        covered.append(found.low <= truth <= found.high)
        lengths.append(found.high - found.low)
        plain = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
        welch.append(plain.high - plain.low)
    return np.mean(covered), np.mean(lengths) / np.mean(welch)


# 200 draws: a coverage of 0.95 falls below 0.915 once in a hundred studies.
@pytest.mark.parametrize(
    ("draw", "truth", "longest"),
    [
        (lambda rng: (spend(rng, 8_000, 0.11), spend(rng, 8_000)), 0.01 * MEAN, 0.65),
        (lambda rng: (spend(rng, 8_000, lift=1.1), spend(rng, 8_000)), 0.01 * MEAN, 0.65),
        (lambda rng: (rng.normal(0.1, 1, 800), rng.normal(0, 2, 500)), 0.1, 1.03),
    ],
    ids=["more buyers", "larger spend", "normal"],
)
def test_coverage_and_length(draw, truth, longest):
    coverage, length = study(draw, truth)
    assert coverage >= 0.915
    assert length <= longest


def test_covariates_shorten_the_interval_and_keep_the_mean():
    rng = np.random.default_rng(0)
    before = rng.lognormal(0, 1, (2, 1_500))
    a, b = before + rng.normal(size=(2, 1_500)) + np.array([[0.3], [0.0]])
    plain, adjusted = compare_means(a, b), compare_means(a, b, covariates=tuple(before))
    assert adjusted.high - adjusted.low < 0.75 * (plain.high - plain.low)
    assert adjusted.low < 0.3 < adjusted.high
    assert adjusted.decided
    together = [np.mean(found.means) for found in (plain, adjusted)]
    assert together[0] == pytest.approx(together[1])


def test_covariates_are_no_reason_to_doubt_the_mean():
    # The residuals of nine in ten are tiny: no population of errors, and no tail without a mean.
    rng = np.random.default_rng(6)
    before = rng.lognormal(0, 1, (2, 1_500))
    a, b = (rng.random((2, 1_500)) < 0.1) * rng.lognormal(0, 1.75, (2, 1_500)) + 0.3 * before
    assert compare_means(a, b, covariates=tuple(before)).cautions == ()


def test_prints_difference_ratio_and_what_was_shared():
    rng = np.random.default_rng(7)
    words = str(compare_means(2 * rng.lognormal(0, 1, 500), rng.lognormal(0, 1, 500)))
    assert "is higher than that of the second by" in words
    assert "The ratio of the means is" in words
    assert "values in the tails count with the mean of all of them" in words


def test_pairs():
    rng = np.random.default_rng(1)
    size = rng.lognormal(0, 1.75, 1_000)
    found = tp.compare_means(size + rng.normal(0.2, 1, 1_000), size, paired=True)
    assert found.low < 0.2 < found.high
    assert found.high - found.low < 0.2
    with pytest.raises(ValueError, match="pairs; got 3 and 2"):
        compare_means([1, 2, 3], [1, 2], paired=True)


def test_several_groups_hold_together():
    rng = np.random.default_rng(2)
    a, groups = rng.normal(1, 1, 400), {"b": rng.normal(0, 1, 300), "c": rng.normal(1, 1, 300)}
    found = compare_means(a, groups)
    assert list(found) == ["b", "c"]
    assert found["b"].delta == 0.025
    assert found["b"].decided
    assert found["b"].low == compare_means(a, groups["b"], delta=0.025).low


def test_a_value_of_weight_zero_is_as_if_absent():
    rng = np.random.default_rng(3)
    a, b = rng.lognormal(0, 1, 300), rng.lognormal(0, 1, 200)
    weights = np.ones(300)
    weights[:5] = 0
    found = compare_means(a, b, weights=(weights, np.ones(200)))
    assert found == compare_means(a[5:], b)


def test_looking_often_takes_a_longer_interval():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 500))
    once, often = compare_means(a, b), compare_means(a, b, planned=2_000)
    assert often.high - often.low > 1.3 * (once.high - once.low)
    with pytest.raises(ValueError, match="planned must be at least the 1000 values"):
        compare_means(a, b, planned=100)


def test_says_when_it_cannot_be_trusted():
    rng = np.random.default_rng(5)
    a, b = np.zeros(1_000), np.zeros(1_000)
    a[:12], b[:15] = rng.lognormal(0, 1.75, 12), rng.lognormal(0, 1.75, 15)
    assert "Only 12 values" in str(compare_means(a, b))
    known = rng.lognormal(0, 1, (2, 1_000))
    assert "Only 12 values" in str(compare_means(a, b, covariates=tuple(known)))
    a, b = rng.pareto(0.5, (2, 5_000))
    assert "the means may not exist" in str(compare_means(a, b))
    a, b = rng.normal(size=(2, 500))
    assert compare_means(a, b).cautions == ()


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (([1.0, np.nan], [1, 2]), {}, "a contains NaN or infinity"),
        (([[1.0]], [1, 2]), {}, "a must be one-dimensional"),
        (([1, 2], [1]), {}, "at least 2 values"),
        (([1, 2], [1, 2]), {"delta": 1.5}, "delta must lie strictly between 0 and 1"),
        (([1, 2], {}), {}, "at least one group"),
        (([1, 2], {"b": [1, 2]}), {"paired": True}, "not a mapping"),
        (([1, 2], [1, 2]), {"weights": [1, 2, 3]}, "weights must be a pair"),
        (([1, 2], [1, 2]), {"weights": ([1, -1], [1, 1])}, "weights must be finite, not negative"),
        (([1, 2], [1, 2]), {"covariates": ([1, 2], [1])}, "one row for each of 2 values"),
    ],
)
def test_refuses_in_a_sentence(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        compare_means(*arguments, **options)


def test_constant_groups_do_not_fail():
    found = compare_means(np.full(50, 2.0), np.full(60, 1.0))
    assert (found.difference, found.low, found.high) == (1.0, 1.0, 1.0)
    assert found.ratio == 2.0
