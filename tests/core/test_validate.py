import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailproof.core.means import FALLBACKS, MEANS, half_width, interval, mean_for
from tailproof.core.resistant import (
    _resistant_means,
    means_of_neighbours,
    resistance,
    resistant_mean,
    resistant_means,
)
from tailproof.core.sanity import leaves_range, surely_greater
from tailproof.core.validate import (
    interval_warning,
    paired_differences,
    paired_winner,
    validate,
    validate_with_safe_intervals,
)
from tailproof.native import m_estimates as native


@pytest.mark.parametrize("mean", MEANS)
@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 6))
def test_risks_are_means_and_the_winner_is_least(mean, seed, k):
    rng = np.random.default_rng(seed)
    losses = [rng.pareto(2.5, int(rng.integers(120, 300))) for _ in range(k)]
    found = validate(losses, mean, 0.1)
    assert np.allclose(found.risk, [MEANS[mean](sample, delta=0.1) for sample in losses], rtol=1e-12)
    assert found.best == np.argmin(found.risk)
    assert found.mean == mean
    if mean == "median":
        assert np.isnan(found.low).all()
    else:
        ends = [interval(sample, mean, 0.1) for sample in losses]
        assert np.allclose(found.low, [end.low for end in ends])
        assert np.allclose(found.high, [end.high for end in ends])


def test_ties_go_to_the_first():
    assert validate([np.ones(50), np.zeros(50), np.zeros(50)]).best == 1


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_an_overflowed_loss_is_infinite_risk(bad):
    found = validate([np.append(np.zeros(99), bad), np.ones(100)])
    assert found.best == 1
    assert found.risk.tolist() == [np.inf, 1.0]


@pytest.mark.parametrize("delta", [0.001, 0.05, 0.5])
@pytest.mark.parametrize("mean", MEANS)
def test_fallbacks_are_allowed_and_needed(mean, delta):
    for n in range(1, 300):
        used = mean_for(mean, n, delta)
        MEANS[used](np.ones(n), delta=delta)
        chain = [mean]
        while chain[-1] in FALLBACKS:
            chain.append(FALLBACKS[chain[-1]])
        for skipped in chain[: chain.index(used)]:
            with pytest.raises(ValueError, match="needs at least"):
                MEANS[skipped](np.ones(n), delta=delta)


def test_smallest_sample_decides():
    found = validate([np.ones(200), np.zeros(5)], "catoni")
    assert found.mean == "mean"
    assert found.best == 1


def test_one_row():
    found = validate([np.array([3.0])])
    assert found.risk.tolist() == [3.0]
    assert math.isnan(found.low[0])


def test_unknown_mean():
    with pytest.raises(ValueError, match="mean must be one of"):
        validate([np.ones(5)], "mode")


def test_weights_of_rows():
    losses = np.random.default_rng(0).pareto(2.5, (2, 200))
    weights = np.arange(200.0)
    found = validate(list(losses), weights=weights)
    assert np.allclose(found.risk, MEANS["catoni"](losses, axis=1, weights=weights))


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 5))
def test_paired_differences_are_means_of_differences(seed, m):
    rng = np.random.default_rng(seed)
    losses = rng.pareto(2.5, (150, 1)) + rng.random((150, m))
    reference = int(rng.integers(m))
    found = paired_differences(losses, reference, delta=0.1)
    for j in range(m):
        gap = losses[:, j] - losses[:, reference]
        one = interval(gap, delta=0.1, method="student")
        assert np.allclose(
            [found.estimate[j], found.low[j], found.high[j]], [one.estimate, one.low, one.high]
        )
    assert found.estimate[reference] == found.low[reference] == found.high[reference] == 0


def test_pairing_shortens_intervals():
    rng = np.random.default_rng(0)
    hard = rng.pareto(2.1, 500)
    losses = np.column_stack([hard, hard + 0.05 * rng.random(500)])
    alone = validate(list(losses.T))
    paired = paired_differences(losses, 0)
    assert paired.low[1] > 0
    assert paired.high[1] - paired.low[1] < 0.1 * (alone.high[0] - alone.low[0])


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 6))
def test_the_winner_loses_least(seed, m):
    rng = np.random.default_rng(seed)
    losses = rng.pareto(2.5, (100, m)) + rng.random(m)
    worst = [max(float(MEANS["catoni"](losses[:, i] - losses[:, j])) for j in range(m)) for i in range(m)]
    assert paired_winner(losses) == int(np.argmin(worst))


def test_models_that_overflow_lose():
    losses = np.column_stack([np.full(50, np.inf), np.ones(50), np.zeros(50)])
    assert paired_winner(losses) == 2
    assert paired_differences(losses, 2).estimate.tolist() == [np.inf, 1.0, 0.0]


@pytest.mark.parametrize("law", ["log-normal", "Pareto", "squared log-normal"])
def test_cautious_intervals_cover_where_plain_ones_may_not(law):
    draw, risk = {
        "log-normal": (lambda rng: rng.lognormal(0, 1.75, 1_000), np.exp(1.75**2 / 2)),
        "Pareto": (lambda rng: rng.pareto(2.1, 1_000), 1 / 1.1),
        "squared log-normal": (lambda rng: rng.lognormal(0, 1.75, 1_000) ** 2 / 2, 0.5 * np.exp(2 * 1.75**2)),
    }[law]
    covers = {"safe": 0, "plain": 0}
    for seed in range(100):
        losses = [draw(np.random.default_rng(seed))]
        for name, found in (
            ("safe", validate_with_safe_intervals(losses)),
            ("plain", validate(losses)),
        ):
            covers[name] += bool(found.low[0] <= risk <= found.high[0])
    assert covers["safe"] >= 93
    assert (covers["plain"] < 85) == (law == "squared log-normal")


def test_only_doubtful_candidates_get_longer_intervals():
    rng = np.random.default_rng(0)
    losses = [rng.standard_normal(1_000) ** 2, rng.lognormal(0, 1.75, 1_000) ** 2, np.full(1_000, np.inf)]
    found, plain = validate_with_safe_intervals(losses), validate(losses)
    assert found.risk.tolist() == plain.risk.tolist()
    assert found.best == plain.best
    assert found.high[0] == plain.high[0]
    ratio = (found.high[1] - found.risk[1]) / (plain.high[1] - plain.risk[1])
    assert found.low[1] == 0 > plain.low[1]
    assert np.isclose(ratio, half_width("median_of_means", 0.05) / half_width("catoni", 0.05))
    assert found.low[2] == np.inf
    assert (
        validate_with_safe_intervals(losses, "median_of_means").high[1]
        == validate(losses, "median_of_means").high[1]
    )
    assert validate_with_safe_intervals([-losses[1]]).low[0] < -losses[1].mean() - 100
    assert np.isnan(validate_with_safe_intervals(losses[:1], "median").low[0])


def test_light_tails_keep_the_short_interval():
    losses = np.random.default_rng(0).standard_normal(1_000) ** 2
    one, other = validate_with_safe_intervals([losses]), validate([losses])
    assert (one.low, one.high) == (other.low, other.high)
    assert np.isinf(validate_with_safe_intervals([np.append(losses, np.inf)]).risk[0])


def test_rows_of_weight_zero_are_as_if_absent():
    rng = np.random.default_rng(0)
    losses = np.column_stack([rng.exponential(size=400), 0.1 + rng.exponential(size=400)])
    weights = rng.uniform(1, 2, 400)
    # Far out, and not even finite: but they do not count.
    more = np.vstack([losses, rng.pareto(0.5, (300, 2)), [[np.inf, np.nan]]])
    padded = np.concatenate([weights, np.zeros(301)])
    for function in (validate, validate_with_safe_intervals):
        one, other = function(list(losses.T), weights=weights), function(list(more.T), weights=padded)
        assert one.risk.tolist() == other.risk.tolist()
        assert one.high.tolist() == other.high.tolist()
    gaps = [paired_differences(u, 0, weights=w) for u, w in ((losses, weights), (more, padded))]
    assert gaps[0].estimate.tolist() == gaps[1].estimate.tolist()
    assert paired_winner(more, weights=padded) == paired_winner(losses, weights=weights)


def test_doubtful_variances_are_named():
    rng = np.random.default_rng(0)
    light, heavy = rng.exponential(size=2_000), rng.pareto(1.05, 2_000)
    assert validate_with_safe_intervals([light, heavy]).in_doubt.tolist() == [False, True]
    # Longer already, and in doubt all the same.
    assert validate_with_safe_intervals([light, heavy], "median_of_means").in_doubt.tolist() == [False, True]
    # Without an interval there is nothing to doubt, and without a finite risk neither.
    assert validate_with_safe_intervals([light, heavy], "median").in_doubt.tolist() == [False, False]
    assert validate_with_safe_intervals([np.append(heavy, np.inf)]).in_doubt.tolist() == [False]
    assert "1 of 2 candidates may have an infinite variance" in interval_warning(np.array([True, False]))


def test_a_weight_that_outweighs_the_others_makes_a_small_sample():
    losses = np.random.default_rng(0).exponential(size=(400, 2))
    weights = np.ones(400)
    weights[0] = 1e6
    assert validate(list(losses.T), weights=weights).mean == "mean"
    assert validate_with_safe_intervals(list(losses.T), weights=weights).risk == pytest.approx(
        losses[0], rel=1e-2
    )
    gaps = paired_differences(losses, 0, weights=weights)
    assert gaps.estimate[1] == pytest.approx(losses[0, 1] - losses[0, 0], rel=1e-2)
    assert paired_winner(losses, weights=weights) == losses[0].argmin()


def test_paired_differences_without_rows_that_were_not_held_out():
    rng = np.random.default_rng(0)
    losses = np.column_stack([rng.pareto(2.5, 400), rng.pareto(2.5, 400)])
    missing = losses.copy()
    missing[::4, 1] = np.nan
    whole = paired_differences(losses[np.isfinite(missing).all(axis=1)], 0)
    part = paired_differences(missing, 0, ignore_nan=True)
    assert part.estimate[1] == whole.estimate[1]
    assert part.high[1] == whole.high[1]
    assert np.isinf(paired_differences(missing, 0).estimate[1])
    missing[:, 1] = np.nan
    assert np.isinf(paired_differences(missing, 0, ignore_nan=True).estimate[1])


def test_paired_differences_about_a_resistant_centre():
    noise = np.random.default_rng(0).standard_normal(5_000)
    losses = np.column_stack([noise, noise + 0.1 + 0.01 * np.random.default_rng(1).standard_normal(5_000)])
    losses[:3, 1] += 1e6
    plain = interval(losses[:, 1] - losses[:, 0], method="skewed")
    resistant = paired_differences(losses, 0, untied_share=1.0)
    assert abs(resistant.estimate[1] - 0.1) < 0.01
    assert resistant.high[1] - resistant.low[1] == pytest.approx(plain.high - plain.low)


class TestBadRows:
    def losses(self, share):
        rng = np.random.default_rng(0)
        good, poor = rng.exponential(size=3_000), 0.5 + rng.exponential(size=3_000)
        good[rng.choice(3_000, round(share * 3_000), replace=False)] = 1e12
        return good, poor

    @pytest.mark.parametrize("share", [0.001, 0.01])
    def test_resistant_risks_do_not_notice_them(self, share):
        good, poor = self.losses(share)
        found = validate_with_safe_intervals([good, poor], resistant=True)
        assert found.best == 0
        assert found.low[0] <= found.risk[0] <= found.high[0] < 2
        assert abs(found.risk[0] - 1) < 0.2

    @pytest.mark.parametrize("law", ["exponential", "pareto", "lognormal"])
    def test_resistant_risks_of_tails_are_what_they_were(self, law):
        rng = np.random.default_rng(0)
        draws = {
            "exponential": lambda: rng.exponential(size=2_000),
            "pareto": lambda: rng.pareto(2.1, 2_000) ** 2,
            "lognormal": lambda: rng.lognormal(0, 1.75, 2_000) ** 2,
        }
        for _ in range(10):
            losses = [draws[law]()]
            assert (
                validate_with_safe_intervals(losses, resistant=True).risk
                == validate_with_safe_intervals(losses).risk
            )

    def test_means_are_not_led_to_a_majority_of_bad_blocks(self):
        """Rows in order, 5% of them bad: each of the blocks has some, and most have two."""
        values = np.random.default_rng(0).standard_normal(5_000)
        values[:250] = 1e6
        assert resistant_mean(values, 0.05) < 5.1e4

    def test_rows_and_weights(self):
        rng = np.random.default_rng(0)
        values, weights = rng.exponential(size=(3, 3_000)), rng.uniform(0.5, 1.5, 3_000)
        values[:, ::150] = 1e9
        singly = [resistant_mean(row, 0.05, weights) for row in values]
        assert np.allclose(resistant_means(values, 0.05, weights), singly)
        assert np.allclose(singly, 1, atol=0.15)

    def test_what_is_absurd_and_what_is_surely_worse(self):
        y = np.random.default_rng(0).standard_normal(500)
        assert not leaves_range(np.full(500, 50.0), y)
        assert leaves_range(np.full(500, -1e4), y)
        assert not leaves_range(np.where(np.arange(500) < 40, 1e9, y), y)
        assert not leaves_range(np.full(500, 1e9), np.zeros(500))
        assert surely_greater(np.full(500, np.inf), y**2)
        assert not surely_greater(np.full(500, np.inf), np.full(500, np.inf))
        assert not surely_greater(y**2, y**2)


LAWS = {
    "log-normal": lambda rng, shape: rng.lognormal(0, 1.75, shape),
    "t": lambda rng, shape: rng.standard_t(2, shape) - 5,
    "bad": lambda rng, shape: np.where(rng.random(shape) < 0.005, 1e6, rng.standard_normal(shape)),
    "tied": lambda rng, shape: np.where(rng.random(shape) < 0.03, rng.lognormal(0, 1, shape), 0.0),
    "tiny": lambda rng, shape: 1e-150 * rng.standard_normal(shape),
    "huge": lambda rng, shape: 1e150 * rng.standard_normal(shape),
}


class TestCompiledMeans:
    @pytest.mark.parametrize("law", LAWS)
    @pytest.mark.parametrize("n", [16, 100, 700, 4_001, 150_000])
    def test_are_those_that_are_made_with_care_wherever_they_are_known(self, law, n):
        values = LAWS[law](np.random.default_rng(n), (4, n))
        slowly = _resistant_means(values, 0.05, None, 1.0, None)
        found = native.resistant_means(values, resistance(n, 0.05, 1.0))
        known = np.isfinite(found)
        np.testing.assert_allclose(found[known], slowly[known], rtol=1e-12)
        np.testing.assert_array_equal(resistant_means(values, 0.05), np.where(known, found, slowly))
        assert known.all() or law not in ("log-normal", "t")

    @pytest.mark.parametrize("n", [20, 500, 6_000])
    @pytest.mark.parametrize("informative_share", [1.0, 0.03])
    def test_compiled_means_with_weights_are_those_of_the_slow_way(self, n, informative_share):
        rng = np.random.default_rng(n)
        values = np.stack([rng.lognormal(0, 1.75, n), rng.standard_normal(n)])
        for weights in (rng.random(n) + 0.1, rng.integers(1, 4, n).astype(float)):
            slowly = _resistant_means(values, 0.05, weights, informative_share, None)
            fast = resistant_means(values, 0.05, weights, informative_share)
            np.testing.assert_allclose(fast, slowly, rtol=1e-10)
            assert np.isfinite(native.resistant_means(values, resistance(n, 0.05, 1.0), weights)).all()

    def test_bad_values_are_looked_at_with_care(self):
        values = np.random.default_rng(0).standard_normal((2, 3_000))
        values[1, [5, 700, 1_501, 2_900]] = 1e9
        found = native.resistant_means(values, resistance(3_000, 0.05, 1.0))
        assert np.isnan(found).tolist() == [False, True]
        assert np.abs(resistant_means(values, 0.05)).max() < 0.2


class TestNeighbours:
    def residuals(self, n=3_000):
        rng = np.random.default_rng(0)
        x, noise = rng.standard_normal(n), rng.lognormal(0, 1.5, n)
        return np.stack([noise - slope * x for slope in (0.0, 0.01, -0.02)])

    def test_their_means_are_hardly_those_of_a_scale_of_their_own(self):
        values = self.residuals()
        own = resistant_means(values, 0.05)
        error = values[0].std() / np.sqrt(values.shape[1])
        assert np.abs(means_of_neighbours(iter(values), 0.05) - own).max() < 0.01 * error

    def test_blocks_are_asked_of_all_where_they_speak_against_one(self):
        values = self.residuals()
        values[:, ::100] = 1e9
        found = means_of_neighbours(values, 0.05)
        np.testing.assert_allclose(found, resistant_means(values, 0.05), rtol=1e-3)
        assert np.abs(found).max() < 10

    @pytest.mark.parametrize("values", [np.ones((2, 5)), np.full((2, 100), 1e200), np.zeros((2, 100))])
    def test_few_huge_or_equal_values_are_no_problem(self, values):
        np.testing.assert_allclose(means_of_neighbours(values, 0.05), values[:, 0])

    def test_weights_count(self):
        values, weights = self.residuals(), np.repeat([1.0, 3.0], 1_500)
        own = resistant_means(values, 0.05, weights)
        np.testing.assert_allclose(means_of_neighbours(values, 0.05, weights), own, rtol=1e-3)
