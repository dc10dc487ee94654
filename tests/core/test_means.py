import math
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq

from tailproof.core.means import MEANS, catoni, interval, median_of_means, truncated_mean
from tailproof.core.numerics.m_estimates import robust_scale
from tailproof.core.theory import VALIDATION_CONSTANTS

ROOT2 = math.sqrt(2)


def heavy(seed, n):
    rng = np.random.default_rng(seed)
    kind = seed % 4
    return (
        rng.lognormal(0, 1.75, n)
        if kind == 0
        else rng.standard_t(2.5, n)
        if kind == 1
        else rng.standard_normal(n) + 1e3
        if kind == 2
        else rng.pareto(2.1, n) * (rng.random(n) < 0.2)
    )


def deal_to_blocks(n, k):
    """Runs of at most 256 (one value unless that leaves 1,000 rounds), then one value at a time."""
    run = min(max(n // (1000 * k), 1), 256)
    whole = n // (run * k) * run * k
    return [i // run % k if i < whole else (i - whole) % k for i in range(n)]


def literal_median_of_means(u, k):
    block = deal_to_blocks(len(u), k)
    means = []
    for j in range(k):
        members = [u[i] for i in range(len(u)) if block[i] == j]
        assert len(members) >= len(u) // k
        means.append(sum(members) / len(members))
    means.sort()
    return (means[(k - 1) // 2] + means[k // 2]) / 2


@given(seed=st.integers(0, 10**6), n=st.integers(1, 700), k=st.integers(1, 20))
def test_median_of_means_is_the_algorithm(seed, n, k):
    u = heavy(seed, n)
    if k > n:
        with pytest.raises(ValueError, match="k must be"):
            median_of_means(u, k)
        return
    assert np.isclose(median_of_means(u, k), literal_median_of_means(u, k), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("n", "k"), [(6_500, 3), (9_000, 2), (130_000, 2), (800_001, 3)])
def test_long_samples_are_dealt_in_runs(n, k):
    u = heavy(n, n)
    assert np.isclose(median_of_means(u, k), literal_median_of_means(u.tolist(), k), rtol=1e-11)


@pytest.mark.parametrize("n", [192, 384, 1152, 3000, 30_000])
@pytest.mark.parametrize("law", ["exponential", "lognormal"])
@pytest.mark.parametrize("name", ["median_of_means", "catoni"])
def test_sorted_samples_are_estimated_as_well_as_shuffled_ones(name, law, n):
    u = getattr(np.random.default_rng(n), law)(size=(100, n))
    truth = 1.0 if law == "exponential" else math.exp(0.5)
    error = [np.sqrt(np.mean((MEANS[name](x, axis=1) - truth) ** 2)) for x in (u, np.sort(u, axis=1))]
    assert error[1] <= 1.25 * error[0]


def psi_polynomial(x):
    return x - x**3 / 6 if abs(x) <= ROOT2 else math.copysign(2 * ROOT2 / 3, x)


def psi_wide(x):
    return math.copysign(math.log(1 + abs(x) + x * x / 2), x)


def literal_catoni(u, sigma, delta, psi):
    n = len(u)
    q2 = 2 * sigma**2 * math.log(2 / delta) / (n - 2 * math.log(2 / delta))
    s = math.sqrt(n * (sigma**2 + q2) / (2 * math.log(2 / delta)))
    return brentq(lambda t: sum(psi((x - t) / s) for x in u), min(u) - 1, max(u) + 1, xtol=1e-14, rtol=1e-14)


@pytest.mark.parametrize(("name", "psi"), [("polynomial", psi_polynomial), ("wide", psi_wide)])
@given(seed=st.integers(0, 10**6), n=st.integers(30, 90), delta=st.sampled_from([0.01, 0.05, 0.3]))
def test_catoni_is_the_algorithm(name, psi, seed, n, delta):
    u = heavy(seed, n)
    sigma = float(np.std(u)) or 1.0
    expected = literal_catoni(u, sigma, delta, psi)
    assert np.isclose(catoni(u, sigma, delta, psi=name), expected, rtol=1e-9, atol=1e-9)
    assert np.isclose(catoni(u, delta=delta, scale="sd", psi=name), expected, rtol=1e-9, atol=1e-9)


def test_influence_functions_lie_in_catonis_envelope():
    x = np.linspace(-20, 20, 4001)
    for psi in (psi_polynomial, psi_wide):
        values = np.array([psi(t) for t in x])
        assert np.all(values <= np.log(1 + x + x * x / 2) + 1e-12)
        assert np.all(values >= -np.log(1 - x + x * x / 2) - 1e-12)
        assert np.all(np.diff(values) >= 0)


def test_m_scale_solves_its_equation_and_is_used_as_the_scale_itself():
    u = np.random.default_rng(0).lognormal(0, 1.75, 500)
    # s with mean χ((u − ū)/s) = E χ(Z), found by bisection; E χ(Z) by quadrature.
    z = np.linspace(-12, 12, 400_001)
    level = np.trapezoid(z**2 / (1 + z**2) * np.exp(-(z**2) / 2), z) / math.sqrt(2 * math.pi)
    centred = u - u.mean()
    s = brentq(lambda s: np.mean(centred**2 / (s * s + centred**2)) - level, 1e-6, 1e6, xtol=1e-14)
    root = brentq(lambda t: sum(psi_wide((x - t) / s) for x in u), u.min(), u.max(), xtol=1e-14)
    assert catoni(u, scale="m-scale", psi="wide") == pytest.approx(root, rel=1e-9)


def literal_truncated_mean(u, delta, outside):
    first, second = u[0::2], sorted(u[1::2])
    beta = 32 * math.log(8 / delta) / (3 * len(u))
    rank = math.floor(beta * len(second))
    a, b = second[rank], second[len(second) - 1 - rank]
    if outside == "clip":
        return sum(min(max(x, a), b) for x in first) / len(first)
    return sum(x for x in first if a <= x <= b) / len(first)


@given(seed=st.integers(0, 10**6), n=st.integers(109, 600), outside=st.sampled_from(["clip", "drop"]))
def test_truncated_mean_is_the_algorithm(seed, n, outside):
    u = heavy(seed, n)
    expected = literal_truncated_mean(u, 0.05, outside)
    assert np.isclose(truncated_mean(u, outside=outside), expected, rtol=1e-12, atol=1e-12)
    weighted = truncated_mean(u, outside=outside, weights=np.full(n, 0.37))
    assert np.isclose(weighted, expected, rtol=1e-12, atol=1e-12)


def test_dropping_values_does_not_follow_a_shift():
    u = np.random.default_rng(0).standard_normal(800)
    assert abs(truncated_mean(u + 1000, outside="drop") - 1000) > 50
    assert abs(truncated_mean(u + 1000) - 1000) < 1


@given(seed=st.integers(0, 10**6), n=st.integers(1, 60))
def test_whole_weights_are_repetitions(seed, n):
    rng = np.random.default_rng(seed)
    u = heavy(seed, n)
    weights = rng.integers(1, 4, n)
    repeated = np.repeat(u, weights)
    for name in ("mean", "median"):
        assert np.isclose(MEANS[name](u, weights=weights), MEANS[name](repeated), rtol=1e-10, atol=1e-10)


def draws():
    rng = np.random.default_rng(2020)
    return {
        "lognormal": (lambda shape: rng.lognormal(0, 1.75, shape), *lognormal_moments(1.75)),
        "pareto": (lambda shape: rng.pareto(2.1, shape) + 1, 2.1 / 1.1, math.sqrt(2.1 / (1.1**2 * 0.1))),
        "student": (lambda shape: rng.standard_t(2.5, shape), 0.0, math.sqrt(2.5 / 0.5)),
        "claims": (
            lambda shape: (rng.random(shape) < 0.05) * rng.lognormal(7, 1.5, shape),
            *zero_inflated(0.05, 7.0, 1.5),
        ),
    }


def lognormal_moments(b, m=0.0):
    return math.exp(m + b * b / 2), math.exp(m + b * b / 2) * math.sqrt(math.exp(b * b) - 1)


def zero_inflated(p, m, b):
    mean, sd = lognormal_moments(b, m)
    return p * mean, math.sqrt(p * (sd**2 + mean**2) - (p * mean) ** 2)


@pytest.mark.parametrize("delta", [0.05, 0.01])
@pytest.mark.parametrize("case", ["lognormal", "pareto", "student", "claims"])
@pytest.mark.parametrize("name", VALIDATION_CONSTANTS)
def test_lemma_valid_basic_prop(name, case, delta):
    draw, expectation, sd = draws()[case]
    n = 400
    errors = np.abs(MEANS[name](draw((n, 2_000)), delta=delta) - expectation)
    bound = VALIDATION_CONSTANTS[name] * sd * math.sqrt((1 + math.log(1 / delta)) / n)
    assert np.quantile(errors, 1 - delta) <= bound
    if name == "catoni":
        known = np.abs(catoni(draw((n, 2_000)), sd, delta=delta) - expectation)
        assert np.quantile(known, 1 - delta) <= bound


@pytest.mark.parametrize("name", ["catoni", "median_of_means"])
def test_robust_means_beat_the_mean_in_the_tail_on_lognormal_data(name):
    draw, expectation, _ = draws()["lognormal"]
    u = draw((1_000, 4_000))
    error = np.abs(MEANS[name](u, delta=0.01) - expectation)
    plain = np.abs(u.mean(axis=0) - expectation)
    assert np.quantile(error, 0.99) < np.quantile(plain, 0.99)


# Measured: 0.947 for catoni on claims (a σ that few samples of 400 show), at least 0.97 everywhere else.
@pytest.mark.parametrize("case", ["lognormal", "pareto", "student", "claims"])
@pytest.mark.parametrize("name", [*VALIDATION_CONSTANTS, "mean"])
def test_interval_covers_on_heavy_tails(name, case):
    draw, expectation, _ = draws()[case]
    found = interval(draw((400, 1_000)), name)
    covered = np.mean((found.low <= expectation) & (expectation <= found.high))
    assert covered >= (0.93 if (name, case) == ("catoni", "claims") else 0.96)


@pytest.mark.parametrize("name", [*VALIDATION_CONSTANTS, "mean"])
def test_interval_shrinks(name):
    draw, _, _ = draws()["student"]
    small, large = interval(draw((200, 200)), name), interval(draw((3_200, 200)), name)
    ratio = np.median(small.high - small.low) / np.median(large.high - large.low)
    assert 3 < ratio < 5  # a 16th of the rows, up to the tail's own contribution to the scale


def test_interval_with_whole_weights_and_equal_values():
    u = np.random.default_rng(0).lognormal(size=400)
    plain, weighted = interval(u), interval(u, weights=np.full(400, 1e300))
    assert np.allclose([weighted.low, weighted.high], [plain.low, plain.high], rtol=1e-12)
    assert interval(np.full(50, 3.0)).low == interval(np.full(50, 3.0)).high == 3.0


def test_interval_is_the_lemmas_half_width():
    u = np.random.default_rng(0).standard_normal(100_000)
    found = interval(u, "catoni", delta=0.05)
    assert found.high - found.estimate == pytest.approx(2 * math.sqrt((1 + math.log(20)) / 1e5), rel=0.02)


# Of 2,000 samples a coverage of 0.93 falls below 0.917 once in a hundred times. Student's own: 0.79 and 0.81.
@pytest.mark.parametrize(
    ("case", "least"), [("lognormal", 0.917), ("pareto", 0.917), ("student", 0.93), ("claims", 0.92)]
)
def test_intervals_corrected_for_skewness_cover(case, least):
    draw, expectation, _ = draws()[case]
    found = interval(draw((400, 2_000)), "catoni", method="student")
    assert np.mean((found.low <= expectation) & (expectation <= found.high)) >= least


def test_without_skewness_the_interval_is_students():
    u = np.random.default_rng(0).standard_normal((100, 3))
    u = np.concatenate([u, -u])
    found = interval(u, "mean", method="student")
    expected = stats.ttest_1samp(u, 0.0).confidence_interval(0.95)
    assert np.allclose(found.low, expected.low, rtol=1e-6)
    assert np.allclose(found.high, expected.high, rtol=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([1e-8, 1.0, 1e12]), st.integers(2, 60))
def test_the_corrected_interval_holds_the_estimate_and_follows_scale_and_sign(seed, scale, n):
    u = np.random.default_rng(seed).lognormal(0, 2, n)
    one, other = (interval(v, "mean", method="student") for v in (u, -scale * u))
    assert one.low <= one.estimate <= one.high
    assert other.low == pytest.approx(-scale * one.high, rel=1e-9)
    assert other.high == pytest.approx(-scale * one.low, rel=1e-9, abs=1e-9 * scale * one.high)
    above, below = one.high - one.estimate, one.estimate - one.low
    leans_low = np.mean((u - u.mean()) ** 3) < 0  # as a few values may, for all their law
    longer, shorter = (below, above) if leans_low else (above, below)
    assert longer >= 0.999 * shorter


def test_the_median_has_no_interval_for_the_mean():
    with pytest.raises(ValueError, match="no interval"):
        interval(np.arange(200.0), "median")


@pytest.mark.parametrize(
    ("sample", "tolerance"),
    [
        (lambda rng: (rng.random(20_000) < 0.04) * rng.lognormal(7, 1, 20_000), 0.15),
        (lambda rng: np.where(np.arange(300) == 7, 5.0, 0.0), 1.0),
        (lambda rng: rng.standard_normal(1_000) * 1e-12 + 5e-12, 0.1),
        (lambda rng: rng.standard_normal(1_000) * 1e15 + 5e15, 0.1),
        (lambda rng: rng.standard_normal(1_000) + 1e9, 1e-9),
        (lambda rng: -rng.lognormal(0, 1, 5_000), 0.1),
    ],
    ids=["zero-inflated", "one value in 300", "tiny", "huge", "shifted", "negative"],
)
def test_catoni_works_unaided(sample, tolerance):
    u = sample(np.random.default_rng(1))
    found = catoni(u)
    assert abs(found - u.mean()) <= tolerance * abs(u.mean())
    assert found != 0


@pytest.mark.parametrize("n", [1_000, 1_001])
@pytest.mark.parametrize("sigma", [1e-6, 1e-50, 1e-200, 5e-324, 0.0])
def test_catoni_given_a_tiny_sigma_goes_to_the_median(sigma, n):
    u = np.random.default_rng(0).standard_normal(n) * 100
    assert catoni(u, sigma=sigma) == pytest.approx(np.median(u), rel=1e-12, abs=2 * sigma)
    root = literal_catoni(u, 1e-50, 0.05, psi_wide)
    assert catoni(u, sigma=1e-50, psi="wide") == pytest.approx(root, rel=1e-9)


@pytest.mark.parametrize("psi", ["polynomial", "wide"])
def test_catoni_given_a_huge_sigma_goes_to_the_mean(psi):
    u = np.random.default_rng(0).standard_normal(1_000) + 5
    assert catoni(u, sigma=1e308, psi=psi) == pytest.approx(u.mean(), rel=1e-12)


@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e-165, 1e-155, 1e80, 1e155, 1e200, 1e300])
@pytest.mark.parametrize("psi", ["polynomial", "wide"])
@pytest.mark.parametrize("scale", ["robust", "sd", "m-scale"])
def test_squares_out_of_range_change_nothing(scale, psi, factor):
    u = np.random.default_rng(0).lognormal(size=(300, 3))
    u[:, 1] = 1 / factor  # a row of ordinary size among the others
    plain, moved = catoni(u, scale=scale, psi=psi), catoni(factor * u, scale=scale, psi=psi)
    assert np.allclose((moved / factor)[[0, 2]], plain[[0, 2]], rtol=1e-9)
    known = catoni(factor * u[:, 0], sigma=2 * factor, psi=psi) / factor
    assert known == pytest.approx(catoni(u[:, 0], sigma=2, psi=psi), rel=1e-9)
    low = interval(factor * u[:, 0]).low / factor
    assert low == pytest.approx(interval(u[:, 0]).low, rel=1e-9)


def test_a_robust_scale_far_below_the_largest_value_is_not_taken_for_underflow():
    u = np.random.default_rng(0).standard_normal(300) * 1e-150
    u[0] = 1.0
    assert abs(catoni(u)) < 1e-149


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such timers")
def test_ctrl_c_is_a_keyboard_interrupt():
    u = np.random.default_rng(0).exponential(size=200_000)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for milliseconds in range(1, 16):
            signal.setitimer(signal.ITIMER_REAL, milliseconds / 1_000)
            with pytest.raises(KeyboardInterrupt):
                [catoni(u) for _ in range(10_000)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert catoni(u) == pytest.approx(1, abs=0.05)


def test_exact_ties_are_documented_to_cost_robustness():
    assert 1e6 < catoni(np.r_[np.ones(299), 1e9]) < 1e7
    assert catoni(np.r_[np.ones(299), 1e9], sigma=1.0) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: catoni(np.ones(14)), "at least 15 values"),
        (lambda: truncated_mean(np.ones(108)), "at least 109 values"),
        (lambda: median_of_means(np.ones(7)), "at least 8 values"),
        (lambda: median_of_means(np.ones(7), k=0), "k must be"),
        (lambda: median_of_means(np.ones(7), k=2.5), "k must be"),
        (lambda: catoni(np.ones(50), sigma=-1.0), "sigma"),
        (lambda: catoni(np.ones(50), sigma=np.nan), "sigma"),
        (lambda: catoni(np.ones(50), scale="no"), "scale must be one of"),
        (lambda: catoni(np.ones(50), psi="no"), "psi must be one of"),
        (lambda: truncated_mean(np.ones(200), outside="no"), "outside must be one of"),
        (lambda: interval(np.ones(50), "no"), "mean must be one of"),
        (lambda: interval([1.0], "mean"), "at least 2 values"),
        (lambda: interval([1.0, 2.0], "mean", weights=[0, 1]), "at least 2 values"),
        (lambda: median_of_means(np.ones(7), k=np.inf), "k must be"),
        (lambda: median_of_means(np.ones(7), k=np.nan), "k must be"),
        (lambda: catoni(np.ones(50), delta=5e-324), "needs at least"),
        (lambda: median_of_means(np.ones(50), delta=5e-324), "needs at least"),
        (lambda: truncated_mean(np.ones(50), delta=5e-324), "needs at least"),
    ],
)
def test_bad_arguments_are_one_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class TestBadValues:
    """Two values, or 1%, that no tail explains: the means are those of the others."""

    @pytest.mark.parametrize("mean", [catoni, median_of_means, truncated_mean])
    @pytest.mark.parametrize("share", [2e-5, 1e-3, 0.01])
    @pytest.mark.parametrize("scale", [1e-8, 1.0])
    def test_do_not_move_a_mean(self, mean, share, scale):
        rng = np.random.default_rng(0)
        values = rng.exponential(size=100_000)
        values[rng.choice(values.size, round(share * values.size), replace=False)] = 1e12
        assert abs(mean(scale * values) / scale - 1) < 0.1

    @pytest.mark.parametrize("mean", [catoni, median_of_means])
    def test_nor_where_they_come_at_even_distances(self, mean):
        values = np.random.default_rng(0).exponential(size=1_000_000)
        values[::120] = 1e12
        assert abs(mean(values) - 1) < 0.1

    @pytest.mark.parametrize("mean", [catoni, median_of_means])
    @pytest.mark.parametrize("n", [100_000, 200_000, 300_000])
    def test_nor_where_these_fall_in_with_places_looked_at(self, mean, n):
        clean = np.random.default_rng(0).exponential(size=n)
        for period in range(110, 260, 15):
            values = clean.copy()
            values[::period] = 1e9
            assert abs(mean(values) - 1) < 0.1, period

    @pytest.mark.parametrize("mean", [catoni, median_of_means, truncated_mean])
    def test_nor_one_of_weighted_values(self, mean):
        rng = np.random.default_rng(0)
        values, weights = rng.exponential(size=20_000), rng.uniform(0.5, 1.5, 20_000)
        values[[3, 4_000, 17_001]] = 1e12
        assert abs(mean(values, weights=weights) - 1) < 0.1

    def test_the_algorithm_as_printed_is_there(self):
        values = np.random.default_rng(0).exponential(size=100_000)
        values[np.random.default_rng(1).choice(100_000, 10, replace=False)] = 1e12
        assert median_of_means(values, k=3) > 1e6
        assert catoni(values, scale="sd") > 1e6

    @pytest.mark.parametrize("law", ["lognormal", "pareto", "squares"])
    def test_tails_are_what_they_were(self, law):
        """Where a tail explains the large values, means of few blocks decide, to the last digit."""
        rng = np.random.default_rng(0)
        draw = {"lognormal": lambda: rng.lognormal(0, 2.5, 5_000), "pareto": lambda: rng.pareto(1.2, 5_000)}
        draw["squares"] = lambda: rng.lognormal(0, 1.75, 5_000) ** 2
        for _ in range(20):
            values = draw[law]()
            assert median_of_means(values) == median_of_means(values, k=3)
            spread = robust_scale(values[None], np.empty(0), 3)[0]
            assert catoni(values) == catoni(values, sigma=spread)


@pytest.mark.parametrize(
    ("draw", "doubtful"),
    [
        (lambda rng: rng.standard_normal(200), False),
        (lambda rng: rng.exponential(size=200), False),
        (lambda rng: rng.lognormal(0, 2.2, 200), True),
        (lambda rng: (np.arange(200) < 6) * rng.lognormal(7, 1.5, 200), True),
    ],
    ids=["normal", "exponential", "log-normal(2.2)", "six claims"],
)
def test_an_interval_says_where_it_cannot_be_trusted(draw, doubtful):
    u = draw(np.random.default_rng(2))
    assert bool(interval(u).doubtful) is doubtful
    rows = np.stack([u, np.random.default_rng(1).standard_normal(200)])
    assert interval(rows, axis=1, method="student").doubtful.tolist() == [doubtful, False]


def test_heavy_tails_alone_are_no_skewness():
    values = np.random.default_rng(0).standard_t(2, (50, 400))
    student = 2 * stats.t.ppf(0.975, 399) * values.std(axis=1, ddof=1) / np.sqrt(400)
    doubted, believed = (
        np.mean((found.high - found.low) / student) - 1
        for found in (interval(values, "mean", axis=1, method=method) for method in ("student", "skewed"))
    )
    assert 0 <= doubted < 0.5 * believed
    skewed = np.exp(2 * values.clip(-2, 2))
    one, other = (interval(skewed, "mean", axis=1, method=method) for method in ("student", "skewed"))
    np.testing.assert_allclose(one.high, other.high)
