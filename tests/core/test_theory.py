import contextlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailproof.core import theory
from tailproof.core.merge import MERGES
from tailproof.core.theory import (
    TooFewRowsError,
    blocks_for,
    bound_dc,
    bound_dc_smooth,
    bound_rv,
    m_delta,
    m_star,
    merge_constant,
    risk_constant,
    samples_for,
)

LIPSCHITZ = {"lipschitz": 2.0, "smoothness": 3.0, "strong_convexity": 1.0}
SMOOTH = {"smoothness": 3.0, "strong_convexity": 1.0, "gradient_moment": 5.0, "start_distance": 2.0}
RV = {"smoothness": 3.0, "diameter": 2.0, "loss_sd": 1.5, "gradient_sd": 0.5}


def test_blocks_of_the_paper():
    assert blocks_for(0.09, "dc") == 20
    assert blocks_for(0.01, "dc") == math.ceil(8 * math.log(100))
    assert blocks_for(0.05, "rv") == math.ceil(math.log(2 * 3 / 0.05))


@given(st.floats(1e-12, 1 / 3))
def test_blocks_give_the_confidence_that_they_promise(delta):
    # Hoeffding with γ + δ₀ = 1/4 (DC); e^{-k} + kδ₀ ≤ 3δ with δ₀ = δ/(2⌈log 1/δ⌉) (RV).
    assert math.exp(-2 * blocks_for(delta, "dc") / 16) <= delta * (1 + 1e-9)
    k, delta0 = blocks_for(delta, "rv"), delta / (2 * math.ceil(math.log(1 / delta)))
    assert math.exp(-k) + k * delta0 <= 3 * delta * (1 + 1e-9)


def test_constants_of_the_theorems():
    assert risk_constant("smallest_ball") == pytest.approx(288)
    assert risk_constant("geometric_median") == pytest.approx(1536)
    assert risk_constant("coordinate_median", d=7) == pytest.approx(32 * 7)
    assert risk_constant("centroid") == math.inf


@pytest.mark.parametrize("merge", MERGES)
def test_every_merge_has_a_constant(merge):
    assert merge_constant(merge, 0.25, d=4) >= 1


def test_bound_of_theorem_1():
    expected = 2.0**2 * 3.0**2 / 1.0**3 * 288 * math.log(20) / 5_000
    assert bound_dc(5_000, 0.05, merge="smallest_ball", **LIPSCHITZ) == pytest.approx(expected)


def test_bound_of_theorem_2():
    start = 4 * 3.0 / 1.0 * (3.0 * 1.0 * 4.0 / 5.0 - 1)
    assert m_star(**SMOOTH) == pytest.approx(start)
    lost = 16 * math.log(20) * (start - 2 * 2.5 * 3.0)
    assert m_delta(0.05, start, 15.0) == pytest.approx(lost)
    expected = 5.0 * (2.5 * 3.0) ** 2 * 2 * 1536 * math.log(20) / (10**5 - lost)
    assert bound_dc_smooth(10**5, 0.05, a=2.5, **SMOOTH) == pytest.approx(expected)


def test_bound_of_theorem_3():
    log_term = 1 + math.log(2 * 3 / 0.05)
    expected = 2 * 2 * math.sqrt(2 * log_term * 1.5**2 / 9_000) + 3 * (
        5 * 4 * 3 / 9_000 + math.sqrt(2 * 5 * 4 * 0.25 / 9_000)
    )
    assert bound_rv(9_000, 0.05, **RV) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bound", "problem"), [(bound_dc, LIPSCHITZ), (bound_dc_smooth, SMOOTH), (bound_rv, RV)]
)
@given(delta=st.floats(1e-6, 0.3), digits=st.floats(-4, 1))
def test_samples_for_is_the_inverse(bound, problem, delta, digits):
    risk = 10**digits
    n = samples_for(risk, delta, bound, **problem)
    assert bound(n, delta, **problem) <= risk
    with contextlib.suppress(TooFewRowsError):
        assert bound(n - 1, delta, **problem) > risk


@pytest.mark.parametrize(
    ("bound", "problem"), [(bound_dc, LIPSCHITZ), (bound_dc_smooth, SMOOTH), (bound_rv, RV)]
)
def test_more_rows_and_less_confidence_tighten_the_bound(bound, problem):
    values = [bound(n, 0.05, **problem) for n in (10**4, 10**5, 10**6)]
    assert values == sorted(values, reverse=True)
    assert bound(10**5, 0.2, **problem) < bound(10**5, 0.001, **problem)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: blocks_for(0.0), "delta"),
        (lambda: blocks_for(1.0), "delta"),
        (lambda: blocks_for(0.05, "other"), "method must be one of"),
        (lambda: merge_constant("other"), "merge must be one of"),
        (lambda: merge_constant("smallest_ball", 0.5), "gamma"),
        (lambda: merge_constant("coordinate_median"), "needs d"),
        (lambda: bound_dc(5, 0.05, **LIPSCHITZ), "at least 24"),
        (lambda: bound_dc(500, 0.05, lipschitz=1, smoothness=1, strong_convexity=2), "must not exceed"),
        (lambda: bound_dc(500, 0.05, lipschitz=-1, smoothness=1, strong_convexity=1), "lipschitz"),
        (lambda: bound_dc_smooth(50, 0.05, **SMOOTH), "M_δ"),
        (lambda: bound_dc_smooth(10**6, 0.05, a=1.99, **SMOOTH), "a ≥ 2"),
        (lambda: bound_dc_smooth(10**6, 0.05, a=math.nan, **SMOOTH), "a ≥ 2"),
        (lambda: bound_dc_smooth(10**6, 0.05, **SMOOTH | {"start_distance": -1}), "start_distance"),
        (lambda: m_star(**SMOOTH | {"start_distance": math.nan}), "start_distance"),
        (lambda: bound_rv(500, 0.05, **RV | {"loss_sd": math.nan}), "loss_sd"),
        (lambda: bound_rv(500, 0.05, **RV | {"gradient_sd": -1.0}), "gradient_sd"),
        (lambda: bound_rv(math.nan, 0.05, **RV), "n must be"),
        (lambda: bound_dc(math.nan, 0.05, **LIPSCHITZ), "n must be"),
        (lambda: merge_constant("coordinate_median", d=math.nan), "needs d"),
        (lambda: bound_rv(500, 0.4, **RV), "1/3"),
        (lambda: bound_rv(9, 0.05, **RV), "n ≥ 2k"),
        (lambda: bound_rv(500, 0.05, mean="median", **RV), "mean must be one of"),
        (lambda: samples_for(0.0, 0.05, **LIPSCHITZ), "excess_risk"),
        (lambda: samples_for(0.1, 0.05, merge="centroid", **LIPSCHITZ), "no number of rows"),
        (lambda: samples_for(0.1, 2.0, **LIPSCHITZ), "delta"),
    ],
)
def test_conditions_are_checked(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_theorem_1_bounds_what_dc_sgd_does():
    """Averaging a bounded variable: risk E(w − Z)²/2 on [-1, 1] has λ₀ = 2, λ₁ = κ = 1."""
    rng = np.random.default_rng(0)
    n, delta = 2_000, 0.05
    k = blocks_for(delta, "dc")
    z = rng.choice([-1.0, 1.0], size=(300, k, n // k))
    # Steps 1/max(1, t), t = 0, 1, ...: the start takes the first value, then running means.
    w = np.zeros((300, k))
    for t in range(n // k):
        w = np.clip(w - (w - z[:, :, t]) / max(1, t), -1, 1)
    excess = np.array([MERGES["geometric_median"](row[:, None]).point[0] for row in w]) ** 2 / 2
    bound = bound_dc(n, delta, lipschitz=2.0, smoothness=1.0, strong_convexity=1.0)
    assert np.quantile(excess, 1 - delta) <= bound


def test_no_noise_and_no_distance_are_allowed():
    assert bound_rv(9_000, 0.05, **RV | {"loss_sd": 0.0, "gradient_sd": 0.0}) > 0
    assert m_star(**SMOOTH | {"start_distance": 0.0}) == 0.0


def test_the_smallest_delta_has_blocks_too():
    assert blocks_for(5e-324, "dc") == 5956
    assert blocks_for(5e-324, "rv") == 752


@pytest.mark.parametrize("a", [2.0, 3.0, 10.0])
@pytest.mark.parametrize("condition", [1.0, 5.0, 50.0])
def test_the_recursion_behind_theorem_2_holds_from_a_equal_to_two(a, condition):
    # e' = (1 − κα)e + 2α²B with κ = B = 1, run from where the bound starts: it must stay below the bound.
    assert largest_ratio(a, condition) <= 1 + 1e-12


def test_the_recursion_behind_theorem_2_fails_below():
    assert largest_ratio(1.2, 5.0) > 1.5


def largest_ratio(a, condition):
    b = 2 * a * condition
    e, ratios = 2 * a**2 / b, []
    for t in range(20_000):
        alpha = a / (t + b)
        e = (1 - alpha) * e + 2 * alpha**2
        ratios.append(e * (t + 1 + b) / (2 * a**2))
    return max(ratios)


class TestSingleProcess:
    """Lemma "boost_basic_prop" and the appendix bounds of one SGD."""

    @pytest.mark.parametrize(
        ("k", "failure", "gamma"), [(1, 0.1, 0.0), (9, 0.25, 0.1), (24, 0.25, 0.0), (40, 0.1, 0.3)]
    )
    def test_the_majority_lemma_is_below_the_binomial_truth(self, k, failure, gamma):
        most = math.floor(k * (0.5 + gamma))
        truth = sum(math.comb(k, j) * (1 - failure) ** j * failure ** (k - j) for j in range(most + 1, k + 1))
        assert 0 <= theory.majority_probability(k, failure, gamma) <= truth

    def test_blocks_of_the_theorems_are_what_the_lemma_asks_for(self):
        for delta in (0.3, 0.05, 1e-6):
            k = theory.blocks_for(delta)
            assert theory.majority_probability(k, 0.25) >= 1 - delta
            assert theory.majority_probability(k, 1 / 12, 1 / 6) >= 1 - delta

    def test_bounds_by_hand(self):
        constants = {"lipschitz": 3, "smoothness": 4, "strong_convexity": 2}
        assert theory.bound_sgd(100, 0.1, **constants) == pytest.approx(4 / 100 * (3 / 2) ** 2 * 10)
        smooth = {"smoothness": 2, "strong_convexity": 1, "gradient_moment": 6, "start_distance": 3}
        rows = 1000 - theory.m_star(**smooth) + 2 * 3 * 2
        assert theory.bound_sgd_smooth(1000, 0.1, a=3, **smooth) == pytest.approx(6 / rows * 10 * 2 * 9 * 2)
        assert theory.bound_sgd_average(25, 0.5, smoothness=4, diameter=3, gradient_sd=2) == pytest.approx(
            3 / 0.5 * (3 * 4 / 50 + 2 / 5)
        )

    def test_sgd_on_a_quadratic_stays_below_its_bound(self):
        """R(w) = w²/2 with gradients w + E, bounded in [−1, 1]: κ = λ₁ = 1, λ₀ = 2."""
        random, n, delta = np.random.default_rng(0), 400, 0.1
        w = np.ones(2000)
        for t in range(n):
            w = np.clip(w - (w + random.choice([-1.0, 1.0], 2000)) / max(1, t), -1, 1)
        bound = theory.bound_sgd(n, delta, lipschitz=2, smoothness=1, strong_convexity=1)
        assert np.mean(w**2 / 2 > bound) <= delta

    def test_dividing_beats_one_process_where_confidence_is_asked_for(self):
        constants = {"lipschitz": 1, "smoothness": 1, "strong_convexity": 1}
        one, divided = (
            [bound(10**6, delta, **constants) for delta in (0.1, 1e-9)]
            for bound in (theory.bound_sgd, theory.bound_dc)
        )
        assert one[0] < divided[0]
        assert one[1] > divided[1]

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: theory.majority_probability(0, 0.1), "k must be at least 1"),
            (lambda: theory.majority_probability(3, 0.6), "failure"),
            (lambda: theory.majority_probability(3, 0.3, 0.2), "gamma"),
            (lambda: theory.bound_sgd(0, 0.1, lipschitz=1, smoothness=1, strong_convexity=1), "n ≥ 1"),
            (lambda: theory.bound_sgd(9, 1.0, lipschitz=1, smoothness=1, strong_convexity=1), "delta"),
            (lambda: theory.bound_sgd_average(9, 0.1, smoothness=0, diameter=1, gradient_sd=1), "smoothness"),
        ],
    )
    def test_mistakes_are_named(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("sgd", [True, False])
def test_guarantees_hold_from_the_least_number_of_blocks_on(sgd):
    for method in ("dc", "rv"):
        least = theory.blocks_for(0.05, method)
        assert theory.guarantee(method, least, 1_000, 0.05, sgd=sgd).startswith("Lemma")
        assert theory.guarantee(method, least - 1, 1_000, 0.05, sgd=sgd).startswith("none")
    assert theory.guarantee("dc", 100, 1_000, 0.05, merge="centroid", sgd=sgd).startswith("none")
    assert theory.guarantee("rv", 100, 199, 0.05, sgd=sgd).startswith("none")
    assert theory.guarantee("rv", 100, 1_000, 0.4, sgd=sgd).startswith("none")
