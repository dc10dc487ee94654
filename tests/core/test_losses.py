import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from tailproof.core.losses import LOSSES, SOFTMAX_LOSS, check_target, get_loss

every_loss = pytest.mark.parametrize("name", LOSSES)
LOG_LINK = [name for name, loss in LOSSES.items() if loss.link == "log"]
PARAMETERS = {"huber": [1e-3, 1.35, 50.0], "pinball": [0.01, 0.5, 0.9], "tweedie": [1.01, 1.5, 1.99]}
KINKS = {"absolute_error", "pinball", "hinge"}


def targets(name):
    if LOSSES[name].task == "classification":
        return st.sampled_from([-1.0, 1.0])
    return st.floats(1e-3, 1e3) if name in LOG_LINK else st.floats(-1e3, 1e3)


def predictions(name):
    return st.floats(-30, 30) if name in LOG_LINK else st.floats(-1e3, 1e3)


def parameter(name):
    return st.sampled_from(PARAMETERS.get(name, [None]))


def kink(name, y):
    """Where the loss has one; None for smooth losses."""
    return {"hinge": 1 / y if y else None}.get(name, y) if name in KINKS else None


def loss_of(name, c):
    return get_loss(name, c, LOSSES[name].task)


@every_loss
class TestEveryLoss:
    @given(draw=st.data())
    def test_value_and_slope_are_the_formulas(self, name, draw):
        p, y, c = (draw.draw(s(name)) for s in (predictions, targets, parameter))
        loss = loss_of(name, c)
        scale = 1 + abs(p) + abs(y)
        assert float(loss.value(p, y)) == pytest.approx(
            reference.value(name, p, y, c), rel=1e-11, abs=1e-12 * scale
        )
        assert float(loss.slope(p, y)) == pytest.approx(
            reference.slope(name, p, y, c), rel=1e-11, abs=1e-12 * scale
        )

    @given(draw=st.data())
    def test_slope_is_the_derivative(self, name, draw):
        p, y, c = (draw.draw(s(name)) for s in (predictions, targets, parameter))
        loss, h = loss_of(name, c), 1e-4
        at = kink(name, y)
        if at is not None and abs(p - at) < 2 * h:
            return
        left, middle, right = (float(loss.slope(p + move, y)) for move in (-h, 0, h))
        value = float(loss.value(p + h, y)) - float(loss.value(p - h, y))
        size = abs(float(loss.value(p, y))) + max(abs(left), abs(right)) * (1 + abs(p) + abs(y))
        rounding = 1e-15 * size / h + 1e-300
        # Of a convex loss the slope of a chord lies between the slopes at its ends.
        assert left - rounding <= value / (2 * h) <= right + rounding
        assert left <= middle <= right

    @given(draw=st.data())
    def test_slope_is_a_subgradient_at_every_distance(self, name, draw):
        p, y, c = (draw.draw(s(name)) for s in (predictions, targets, parameter))
        loss = loss_of(name, c)
        at = kink(name, y)
        if at is not None and draw.draw(st.booleans()):
            p = at
        q = draw.draw(predictions(name))
        here, there = float(loss.value(p, y)), float(loss.value(q, y))
        s = float(loss.slope(p, y))
        assert there - here >= s * (q - p) - 1e-12 * (abs(here) + abs(there) + abs(s * (q - p)) + 1)

    @given(draw=st.data(), t=st.floats(0, 1))
    def test_convex(self, name, draw, t):
        y, c = draw.draw(targets(name)), draw.draw(parameter(name))
        p, q = draw.draw(predictions(name)), draw.draw(predictions(name))
        loss = loss_of(name, c)
        a, b, between = (float(loss.value(x, y)) for x in (p, q, t * p + (1 - t) * q))
        assert between <= t * a + (1 - t) * b + 1e-12 * (1 + abs(a) + abs(b))

    def test_huge_predictions(self, name):
        loss = LOSSES[name]
        p = np.array([-1e3, -745.0, -700.0, 0.0, 700.0, 745.0, 1e3])
        y = np.array([-1.0, 1.0]) if loss.task == "classification" else np.array([1e-3, 1.0, 1e9])
        with np.errstate(all="raise"):
            values, slopes = loss.value(p, y[:, None]), loss.slope(p, y[:, None])
        assert not np.isnan(values).any()
        assert not np.isnan(slopes).any()
        tame = (np.abs(p) <= 700) & (y[:, None] <= 1) if name in LOG_LINK else np.full(values.shape, True)
        assert np.all(np.isfinite(values[tame]))
        assert np.all(np.isfinite(slopes[tame]))
        # Infinite where, and only where, the number is too large.
        for found, formula in ((values, reference.value), (slopes, reference.slope)):
            expected = [[formula(name, float(a), float(b)) for a in p] for b in y]
            assert np.allclose(found, expected, rtol=1e-10, atol=1e-300)

    @given(draw=st.data(), power=st.floats(-8, 6))
    def test_implicit_slope_ends_where_the_proximal_step_does(self, name, draw, power):
        """S = ℓ′(p − r s): compared in units of p with bisection, or with the ends of the subdifferential."""
        c = draw.draw(parameter(name))
        loss, r = loss_of(name, c), 10.0**power
        if loss.task == "classification":
            p, y = draw.draw(st.floats(-1e3, 1e3)), draw.draw(st.sampled_from([-1.0, 1.0]))
        elif name in LOG_LINK:
            p, y = draw.draw(st.floats(-100, 100)), 10.0 ** draw.draw(st.floats(-6, 9))
        else:
            p, y = draw.draw(st.floats(-1e6, 1e6)), draw.draw(st.floats(-1e9, 1e9))
        s = float(loss.implicit_slope(p, y, r))
        assert math.isfinite(s)
        q, size = p - r * s, 1e-9 * (1 + abs(p) + abs(p - r * s))
        assert (
            float(loss.slope(q - size, y)) * (1 - 1e-9) - 1e-9
            <= s
            <= float(loss.slope(q + size, y)) * (1 + 1e-9) + 1e-9
            or abs(r * (s - reference.proximal_slope(name, p, y, r, c))) <= size
        )

    def test_implicit_slope_of_no_step_is_the_slope(self, name):
        loss = LOSSES[name]
        y = 1.0
        for p in (-2.0, 0.3, 5.0):
            expected = float(loss.slope(p, y))
            assert float(loss.implicit_slope(p, y, 0.0)) == expected
            assert float(loss.implicit_slope(p, y, 1e-8)) == pytest.approx(expected, rel=1e-5)

    def test_broadcasts(self, name):
        loss = LOSSES[name]
        assert loss.value(np.zeros((3, 1)), np.ones(4)).shape == (3, 4)
        assert loss.slope(0.5, 1.0).shape == ()


@pytest.mark.parametrize("name", LOG_LINK)
@pytest.mark.parametrize("p", [-700.0, -50.0, 0.0, 3.0, 100.0, 700.0])
@pytest.mark.parametrize("y", [1e-3, 1e3, 1e9])
@pytest.mark.parametrize("r", [1e-8, 1e-3, 1.0, 1e6])
def test_implicit_slope_of_log_link_losses_far_out(name, p, y, r):
    """One large count must not throw a candidate away: q + r(exp(q) − y) = p has a tame root."""
    loss = LOSSES[name]
    s = float(loss.implicit_slope(p, y, r))
    expected = reference.proximal_slope(name, p, y, r)
    assert abs(r * (s - expected)) <= 1e-9 * (1 + abs(p) + abs(p - r * expected))


class TestSoftmax:
    @given(seed=st.integers(0, 10**6), classes=st.integers(2, 8), size=st.sampled_from([1.0, 30.0, 1e3]))
    def test_value_and_slopes(self, seed, classes, size):
        rng = np.random.default_rng(seed)
        p, label = size * rng.uniform(-1, 1, classes), int(rng.integers(classes))
        with np.errstate(all="raise", under="ignore"):
            value = float(SOFTMAX_LOSS.value(p, label)[0])
            slopes = SOFTMAX_LOSS.slope(p, label)[0]
        direct = math.log(math.fsum(math.exp(x - p.max()) for x in p)) + p.max() - p[label]
        assert value == pytest.approx(direct, rel=1e-12, abs=1e-12 * size)
        assert value >= 0
        assert np.allclose(slopes, reference.softmax_slopes(p, label), rtol=1e-12, atol=1e-15)
        assert abs(slopes.sum()) <= 1e-12
        q = p + rng.standard_normal(classes)
        there = float(SOFTMAX_LOSS.value(q, label)[0])
        assert there - value >= slopes @ (q - p) - 1e-12 * (1 + size)

    def test_two_classes_are_logistic(self):
        p = np.linspace(-50, 50, 11)
        scores = np.column_stack([np.zeros(11), p])
        assert np.allclose(SOFTMAX_LOSS.value(scores, np.ones(11)), LOSSES["log_loss"].value(p, 1.0))

    def test_many_rows(self):
        found = SOFTMAX_LOSS.value(np.zeros((5, 3)), np.arange(5) % 3)
        assert np.allclose(found, math.log(3))


class TestGetLoss:
    @pytest.mark.parametrize("name", LOSSES)
    def test_by_name(self, name):
        found = get_loss(name, None, LOSSES[name].task)
        assert found is LOSSES[name]
        other = "regression" if found.task == "classification" else "classification"
        with pytest.raises(ValueError, match="loss must be one of"):
            get_loss(name, None, other)

    @pytest.mark.parametrize("name", LOSSES)
    def test_parameters(self, name):
        task = LOSSES[name].task
        for good in PARAMETERS.get(name, []):
            assert get_loss(name, good, task).parameter == good
        for bad in (-1.0, 0.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="loss_parameter"):
                get_loss(name, bad, task)

    def test_codes_differ(self):
        codes = [loss.code for loss in [*LOSSES.values(), SOFTMAX_LOSS]]
        assert len(set(codes)) == len(codes)

    def test_targets(self):
        for name in ("poisson", "tweedie"):
            check_target(LOSSES[name], np.array([0.0, 3.0]))
            with pytest.raises(ValueError, match=f"{name}.*negative"):
                check_target(LOSSES[name], np.array([3.0, -1e-9]))
        with pytest.raises(ValueError, match=r"gamma.*positive"):
            check_target(LOSSES["gamma"], np.array([1.0, 0.0]))
        for name in ("squared_error", "huber", "absolute_error", "pinball"):
            check_target(LOSSES[name], np.array([-1.0]))


@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "modified_huber", "log_loss"])
def test_losses_of_rows_with_several_classes_are_those_of_one_against_the_rest(name):
    scores, y = np.random.default_rng(0).standard_normal((20, 3)), np.arange(20) % 3.0
    loss = LOSSES[name]
    expected = [
        sum(float(loss.value(scores[i, j], 1.0 if j == y[i] else -1.0)) for j in range(3)) for i in range(20)
    ]
    assert np.allclose(loss.of_rows(scores, y), expected, rtol=1e-14)


def test_losses_of_rows_with_one_output_and_with_softmax():
    scores, y = np.random.default_rng(0).standard_normal((20, 3)), np.arange(20) % 3.0
    assert np.array_equal(LOSSES["huber"].of_rows(scores[:, :1], y), LOSSES["huber"].value(scores[:, 0], y))
    assert np.array_equal(SOFTMAX_LOSS.of_rows(scores, y), SOFTMAX_LOSS.value(scores, y))


@pytest.mark.parametrize("loss", [("pinball", 0.9), ["pinball", 0.9]])
def test_a_loss_may_be_a_name_with_its_parameter(loss):
    assert get_loss(loss, None, "regression") == get_loss("pinball", 0.9, "regression")


@pytest.mark.parametrize(
    ("loss", "parameter", "words"),
    [
        (("pinball", 0.9), 0.5, "with one parameter"),
        (("pinball",), None, "name or"),
        ((), None, "name or"),
        (("pinball", 2.0), None, "quantile"),
        (("squared_error", 2.0), None, "takes no"),
        (("midrange", 2.0), None, "must be one of"),
    ],
)
def test_bad_losses_with_parameters_raise(loss, parameter, words):
    with pytest.raises(ValueError, match=words):
        get_loss(loss, parameter, "regression")
