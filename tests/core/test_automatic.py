import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tailproof.core.automatic import (
    ROWS_PER_PARAMETER,
    blocks_of,
    intercept_shift,
    loss_curvature,
    number_of_blocks,
    row_bytes,
    run_length,
    start_intercept,
    tied_targets_caution,
)
from tailproof.core.losses import LOSSES
from tailproof.core.means import robust_mean
from tailproof.core.theory import blocks_for

SQUARED = LOSSES["squared_error"]
NO_WEIGHTS = np.empty(0)


def parts_of(n):
    return blocks_of(None, n, 5, np.random.SeedSequence(0), True, 3)


class TestNumberOfBlocks:
    @given(
        n=st.integers(1, 10**6),
        d=st.integers(1, 1000),
        delta=st.floats(1e-6, 0.99),
        method=st.sampled_from(["dc", "rv"]),
    )
    def test_auto(self, n, d, delta, method):
        k, why = number_of_blocks("auto", delta, n, d, method, SQUARED)
        least = blocks_for(delta, method)
        assert 1 <= k <= n
        assert k == 1 or n // k >= ROWS_PER_PARAMETER * (d + 1)
        if k < least:
            assert "fewer" in why
            assert n // (k + 1) < ROWS_PER_PARAMETER * (d + 1)
        assert f"k(δ) = {least}" in why
        assert k <= (4 * least if method == "dc" else least)

    def test_bounded_slopes_need_no_more_blocks(self):
        assert number_of_blocks("auto", 0.05, 10**6, 3, "dc", LOSSES["hinge"])[0] == blocks_for(0.05, "dc")
        assert number_of_blocks("auto", 0.05, 10**6, 3, "dc", SQUARED)[0] == 4 * blocks_for(0.05, "dc")

    def test_set_by_the_user(self):
        assert number_of_blocks(7, 0.05, 7, 100, "dc", SQUARED) == (7, "set by the user")
        with pytest.raises(ValueError, match="k=8"):
            number_of_blocks(8, 0.05, 7, 100, "dc", SQUARED)


class TestBlocks:
    @given(n=st.integers(1, 10**7), k=st.integers(1, 100), d=st.integers(1, 10**5))
    def test_run_length(self, n, k, d):
        run = run_length(n, k, 8 * d)
        assert run >= 1
        # At least 500 runs in a block, and no more than 25 kB, or else single rows.
        assert run == 1 or (n // k >= 500 * run and run * 8 * d <= 25_600)

    def test_bytes_of_a_row_are_those_that_are_read(self):
        X = np.eye(40, 5, dtype=np.float32)
        assert row_bytes(X) == 5 * 4
        assert row_bytes(sparse.csr_array(np.ones((40, 5)))) == 5 * (8 + 4)
        assert row_bytes(sparse.csr_array((40, 5))) == 0
        assert run_length(10**6, 10, 0) == 200

    @given(n=st.integers(1, 3_000), k=st.integers(1, 10), seed=st.integers(0, 10**6), shuffle=st.booleans())
    def test_rows_are_dealt_once(self, n, k, seed, shuffle):
        k = min(k, n)
        rows = np.arange(n) * 3
        parts = blocks_of(rows, n, k, np.random.SeedSequence(seed), shuffle, 4)
        assert np.array_equal(np.sort(np.concatenate([part.rows for part in parts])), rows)
        everything = blocks_of(None, n, k, np.random.SeedSequence(seed), shuffle, 4)
        assert all(np.array_equal(3 * a.rows, b.rows) for a, b in zip(everything, parts, strict=True))

    @pytest.mark.parametrize("run", [1, 4])
    def test_orders_do_not_depend_on_who_asked_before(self, run):
        one, two = (blocks_of(None, 5_000, 2, np.random.SeedSequence(5), True, 4)[1] for _ in range(2))
        one, two = (type(block)(block.index, block.rows, block.seed, run) for block in (one, two))
        first = [one.order(number) for number in (0, 1, 2, 3)]
        again = [two.order(number) for number in (3, 1, 1, 2, 0)]
        assert np.array_equal(first[3], again[0])
        assert np.array_equal(first[1], again[1])
        assert np.array_equal(again[1], again[2])
        assert np.array_equal(first[2], again[3])
        assert np.array_equal(first[0], one.rows)
        assert not np.array_equal(first[1], first[2])
        assert all(np.array_equal(np.sort(order), np.sort(one.rows)) for order in first)

    def test_orders_of_blocks_differ(self):
        parts = blocks_of(None, 200, 2, np.random.SeedSequence(5), False, 4)
        assert not np.array_equal(parts[0].order(1), parts[1].order(1) - 100)


class TestStart:
    @pytest.mark.parametrize("name", ["squared_error", "poisson", "gamma", "tweedie"])
    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
    def test_best_constant(self, name, scale):
        y = scale * np.random.default_rng(0).gamma(3.0, 1 / 3, 5_000)
        start = start_intercept(LOSSES[name], y, parts_of(y.size))
        mean = math.exp(start) if LOSSES[name].link == "log" else start
        assert mean == pytest.approx(scale, rel=0.05)

    @pytest.mark.parametrize("name", ["huber", "absolute_error", "pinball"])
    def test_medians(self, name):
        y = np.random.default_rng(0).lognormal(size=5_001)
        assert start_intercept(LOSSES[name], y, parts_of(y.size)) == pytest.approx(np.median(y))

    def test_classification_starts_at_zero(self):
        assert start_intercept(LOSSES["hinge"], np.ones(5), parts_of(5)) == 0

    def test_nothing_but_zeros(self):
        assert math.isfinite(start_intercept(LOSSES["poisson"], np.zeros(50), parts_of(50)))

    @pytest.mark.parametrize("name", ["absolute_error", "pinball"])
    def test_curvature_of_kinks_is_robust(self, name):
        y = np.random.default_rng(0).standard_normal(10_000)
        plain = loss_curvature(LOSSES[name], y, 0.0)
        y[17] = 1e12
        assert loss_curvature(LOSSES[name], y, 0.0) == pytest.approx(plain, rel=0.2)

    def test_curvature(self):
        assert loss_curvature(LOSSES["poisson"], np.ones(3), 2.0) == pytest.approx(math.exp(2.0))
        assert loss_curvature(LOSSES["gamma"], np.ones(3), 2.0) == pytest.approx(1.0)
        assert loss_curvature(LOSSES["log_loss"], np.ones(3), 0.0) == 1.0
        assert loss_curvature(LOSSES["absolute_error"], np.zeros(3), 0.0) == 1.0


@pytest.mark.parametrize("n", [1, 2, 5, 20, 1_000])
def test_robust_mean_of_any_size(n):
    u = np.full(n, 3.0)
    assert robust_mean(u, 0.05) == pytest.approx(3.0)
    assert robust_mean(np.append(u, 1e9), 0.05, np.append(np.ones(n), 0.0)) == pytest.approx(3.0)


@pytest.mark.parametrize("name", ["squared_error", "poisson", "gamma", "tweedie"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("csr", [False, True])
def test_intercept_shift_solves_its_condition(name, weighted, csr):
    """After the shift the mean slope of the loss is zero; tails are light, so plain means will do."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8_000, 3))
    coef, loss = np.full(3, 0.2), LOSSES[name]
    p = X @ coef + 0.4
    y = rng.gamma(20.0, np.exp(p + 0.7) / 20) if loss.link == "log" else p + 0.7 + rng.standard_normal(8_000)
    weights = rng.uniform(0.5, 1.5, 8_000) if weighted else NO_WEIGHTS
    shift = intercept_shift(
        loss, sparse.csr_array(X) if csr else X, y, weights, parts_of(8_000), coef, 0.4, 0.05
    )
    slopes = loss.slope(p + shift, y) * (weights if weighted else 1.0)
    assert abs(slopes.mean()) <= 0.1 * slopes.std() / np.sqrt(8_000) + 5e-3 * np.abs(slopes).mean()
    assert shift == pytest.approx(0.7, abs=0.05)


def test_intercept_shift_of_rows_by_columns_is_that_of_rows():
    """Columns that lie side by side, as those of data frames do, are copied before they are read."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    y = X.sum(axis=1) + 2 + rng.standard_normal(500)
    shifts = [
        intercept_shift(SQUARED, rows, y, NO_WEIGHTS, parts_of(500), np.ones(3), 0.0, 0.05)
        for rows in (X, np.asfortranarray(X), sparse.csr_array(X))
    ]
    assert shifts == pytest.approx([shifts[0]] * 3, rel=1e-12)


def test_intercept_shift_ignores_glitches():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10_000, 3))
    y = X.sum(axis=1) + 2 + rng.standard_normal(10_000)
    y[3] = 1e12
    assert intercept_shift(
        SQUARED, X, y, NO_WEIGHTS, parts_of(10_000), np.ones(3), 0.0, 0.05
    ) == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize(("information", "k"), [(1.0, 96), (0.5, 96), (0.49, 24), (0.05, 24), (0.002, 20)])
def test_targets_that_are_mostly_tied_get_no_spare_blocks(information, k):
    """Small blocks of zeros and a few claims have skewed candidates, whose median is below the mean."""
    found, why = number_of_blocks("auto", 0.05, 100_000, 1, "dc", LOSSES["squared_error"], information)
    assert found == k
    assert ("most targets are equal" in why) == (k == 24)


@pytest.mark.parametrize("share", [0.52, 0.6, 0.95])
def test_no_tied_majority_is_overlooked(share):
    """Half of a few targets need not have the value that most of all have."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        y = np.where(np.arange(3_000) < share * 3_000, 0.0, rng.lognormal(0, 1, 3_000))
        assert tied_targets_caution(SQUARED, rng.permutation(y)) is not None


@pytest.mark.parametrize("period", [5, 7, 24, 25, 30, 100])
def test_ties_in_a_rhythm_are_not_overlooked(period):
    """The first of some rows about one thing has the number, and the others have zero."""
    for n in range(1_000, 5_000, 101):
        y = np.where(np.arange(n) % period == 0, np.arange(n, dtype=float), 0.0)
        assert tied_targets_caution(SQUARED, y) is not None


def test_targets_without_ties_need_no_caution():
    rng = np.random.default_rng(0)
    for n in (1, 2, 10, 99, 100, 101, 5_000):
        assert tied_targets_caution(SQUARED, rng.standard_normal(n)) is None
