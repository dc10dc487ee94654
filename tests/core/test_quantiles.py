import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailproof.core.numerics.quantiles import (
    carriers,
    carriers_of_squares,
    quantiles,
    weighted_median,
    weighted_quantiles,
)


@given(st.integers(0, 10**6), st.integers(1, 30))
def test_whole_weights_are_repetitions(seed, n):
    rng = np.random.default_rng(seed)
    values, weights = rng.integers(-5, 6, (2, n)).astype(float), rng.integers(1, 5, n)
    expected = np.median(np.repeat(values, weights, axis=1), axis=1)
    assert np.array_equal(weighted_median(values, weights.astype(float)), expected)
    # Weights that no float holds exactly must give the same medians.
    assert np.array_equal(weighted_median(values, weights * 0.1), expected)


@given(st.integers(0, 10**6), st.integers(1, 30), st.floats(0, 0.49))
def test_quantiles_are_their_definition(seed, n, level):
    rng = np.random.default_rng(seed)
    values, weights = rng.standard_normal(n), rng.random(n) + 0.1
    low, high = weighted_quantiles(values, weights, level)
    needed = level * weights.sum()
    assert weights[values <= low].sum() > needed
    assert weights[values < low].sum() <= needed * (1 + 1e-9)
    assert weights[values >= high].sum() > needed
    assert weights[values > high].sum() <= needed * (1 + 1e-9)


@given(st.integers(0, 10**6), st.integers(1, 200), st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_quantiles_are_those_of_numpy(seed, n, shares):
    values = np.random.default_rng(seed).integers(-9, 9, n) / 3
    np.testing.assert_allclose(quantiles(values, shares), np.quantile(values, shares), atol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 5_000), st.floats(0.5, 4))
def test_carriers_of_squares_are_those_of_all_squares(seed, n, index):
    rng = np.random.default_rng(seed)
    r = rng.pareto(index, n) * rng.choice([-1.0, 1.0], n)
    assert carriers_of_squares(r, float(r @ r)).tolist() == carriers(r * r).tolist()
