"""AggregatorOptions, weights and warm starts of the aggregators."""

import numpy as np
import pytest

import tailproof as tp
from literal_gradients import DELTA, regression, sample_of
from tailproof.core.numerics.m_estimates import PSI, SCALES
from tailproof.estimators.baselines.aggregators import AGGREGATES, WIDTHS, AggregatorOptions, MEstimate


def test_even_number_of_blocks_follows_the_documented_rule():
    X, y = np.ones((4, 1)), np.array([4.0, 3.0, 2.0, 1.0])  # at w = 0 the losses are 8, 4.5, 2, 0.5
    for middle, slope in (("lower", -2.0), ("upper", -3.0)):
        sample = sample_of("squared_error", X, y, 4)
        found = AGGREGATES["median_block"](sample, AggregatorOptions(middle=middle))(np.zeros(4))
        assert found.gradient.item() == slope
        assert found.cost == 1
    tied = sample_of("squared_error", X, np.array([1.0, -1.0, 1.0, -1.0]), 4)
    assert (
        AGGREGATES["median_block"](tied, AggregatorOptions())(np.zeros(4)).gradient.item() == 1.0
    )  # the second


@pytest.mark.parametrize("psi", PSI)
@pytest.mark.parametrize("scale", SCALES)
def test_options_of_the_m_estimate(psi, scale):
    X, y = regression(300, 2)
    sample = sample_of("squared_error", X, y, 1)
    found = MEstimate(sample, AggregatorOptions(DELTA, psi, scale))(np.zeros(300)).gradient[0]
    for j, theta in enumerate(found):
        u = -y * X[:, j]
        s = SCALES[scale](u[None], np.empty(0), 5)[0] * np.sqrt(300 / np.log(1 / DELTA))
        x = (u - theta) / s
        sums = {
            "gudermannian": 2 * np.arctan(np.exp(x)) - np.pi / 2,
            "polynomial": np.clip(x, -np.sqrt(2), np.sqrt(2)) - np.clip(x, -np.sqrt(2), np.sqrt(2)) ** 3 / 6,
            "wide": np.sign(x) * np.log1p(np.abs(x) + x**2 / 2),
        }
        assert abs(sums[psi].mean()) <= 1e-10


def test_widths_of_the_m_estimate():
    n, delta = 50.0, 0.05
    q2 = 2 * np.log(2 / delta) / (n - 2 * np.log(2 / delta))  # for σ = 1
    assert np.isclose(WIDTHS["cat"](n, delta) ** 2, n * (1 + q2) / (2 * np.log(2 / delta)), rtol=1e-12)
    assert np.isclose(WIDTHS["holland-ikeda"](n, delta) ** 2, n / np.log(1 / delta), rtol=1e-12)
    X, y = regression(500, 2)
    one, other = (tp.RGDRegressor(aggregate="m_estimate", m_width=width).fit(X, y) for width in WIDTHS)
    assert not np.allclose(one.coef_, other.coef_, rtol=1e-6)
    with pytest.raises(ValueError, match="needs 22 rows"):
        tp.RGDRegressor(aggregate="m_estimate", m_width="cat").fit(X[:20], y[:20])


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("tied", [False, True])
def test_standing_still_changes_nothing(name, tied):
    """A search that starts exactly where the last one ended must end there, too."""
    X, y = regression(200, 3)
    X = np.round(X) if tied else X
    sample = sample_of("squared_error", X, y, 5)
    estimate = AGGREGATES[name](sample, AggregatorOptions())
    first = estimate(-y).gradient
    for _ in range(20):
        assert np.allclose(estimate(-y).gradient, first, rtol=1e-9)


def test_warm_started_scales_stay():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((100, 50)) * rng.lognormal(0, 1, (100, 50))
    first = scale = SCALES["m-scale"](values, np.empty(0), 5)
    for _ in range(5):
        scale = SCALES["m-scale"](values, np.empty(0), 5, near=scale)
        assert np.allclose(scale, first, rtol=1e-9)


@pytest.mark.parametrize("scale", ["sd", "m-scale"])
@pytest.mark.parametrize("psi", PSI)
@pytest.mark.parametrize("shape", [(700, 1), (701, 6), (64, 8), (2502, 133)])
def test_one_compiled_call_finds_what_its_steps_find(scale, psi, shape, monkeypatch):
    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal(shape), rng.uniform(0.5, 2.0, shape[0])
    X[:, -1] *= 1e-3
    y = X.sum(axis=1) + rng.lognormal(0, 1.75, shape[0])
    for given in (None, weights):
        sample, options = sample_of("squared_error", X, y, 1, given), AggregatorOptions(psi=psi, scale=scale)
        compiled, in_steps = MEstimate(sample, options), MEstimate(sample, options)
        monkeypatch.setattr(in_steps, "_compiled", lambda *arguments: False)
        for scores in (np.zeros_like(y), 0.1 * y, 0.15 * y):
            found, expected = compiled(scores).gradient, in_steps(scores).gradient
            assert np.allclose(found, expected, rtol=0, atol=1e-9 * compiled.scale.max())
            assert np.allclose(compiled.scale, in_steps.scale, rtol=1e-9)


def test_columns_that_take_more_care_are_not_left_to_one_call():
    """A constant column has no scale; squares of numbers at the ends of the range leave it."""
    X, y = regression(200, 4)
    usual = MEstimate(sample_of("squared_error", X, y, 1), AggregatorOptions())(np.zeros(200)).gradient[0]
    for factors in ([1.0, 0.0, 1.0, 1.0], [1e200, 1.0, 1e-200, 1.0]):
        estimate = MEstimate(sample_of("squared_error", X * factors, y, 1), AggregatorOptions())
        for _ in range(3):
            assert np.allclose(estimate(np.zeros(200)).gradient[0], usual * factors, rtol=1e-9, atol=0)


def test_weights_of_the_m_estimate_are_repetitions():
    """Up to the scale's factor, which takes the effective number of rows for the number."""
    X, y = regression(80, 2)
    weights = np.random.default_rng(0).integers(1, 4, 80)
    weighted = MEstimate(sample_of("squared_error", X, y, 1, weights.astype(float)), AggregatorOptions())
    repeated = sample_of("squared_error", np.repeat(X, weights, axis=0), np.repeat(y, weights), 1)
    literal = MEstimate(repeated, AggregatorOptions())
    literal.widen = weighted.widen
    assert np.allclose(weighted(np.zeros(80)).gradient, literal(np.zeros(repeated.size)).gradient, rtol=1e-9)
