import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailproof.core.steps import STEPS, Auto, Constant, Theorem1, Theorem2, get_steps

FORMULAS = {
    "constant": ((0.3,), lambda t, d, n, k: 0.3),
    "over_root_d": ((0.3,), lambda t, d, n, k: 0.3 / math.sqrt(d)),
    "decaying": ((0.3, 0.7), lambda t, d, n, k: 0.3 / (1 + t) ** 0.7),
    "theorem1": ((2.0,), lambda t, d, n, k: 1 / (2.0 * max(1, t))),
    # The paper prints a/(κn + b): an erratum.
    "theorem2": ((4.0, 0.5, 3.0), lambda t, d, n, k: 3.0 / (0.5 * t + 2 * 3.0 * 4.0)),
    "theorem3": (
        (4.0, 2.0, 3.0),
        lambda t, d, n, k: 1 / (4.0 + 1 / (2.0 / math.sqrt(n * 3.0**2 / (2 * k)))),
    ),
}


def test_every_schedule_is_covered():
    assert set(FORMULAS) | {"auto"} == set(STEPS)


@pytest.mark.parametrize("name", FORMULAS)
@given(
    start=st.integers(0, 10**6),
    count=st.integers(0, 9),
    d=st.integers(1, 500),
    n=st.integers(1, 10**7),
    k=st.integers(1, 100),
)
def test_formulas(name, start, count, d, n, k):
    numbers, formula = FORMULAS[name]
    t = np.arange(start, start + count)
    found = get_steps((name, *numbers)).sizes(t, d=d, n=n, k=k)
    assert found.dtype == np.float64
    assert found.shape == (count,)
    assert np.allclose(found, [formula(int(x), d, n, k) for x in t], rtol=1e-14)


@pytest.mark.parametrize(("smoothness", "a"), [(1.0, 2.0), (4.0, 3.0)])
def test_theorem_2_starts_at_half_the_inverse_smoothness(smoothness, a):
    first = Theorem2(smoothness, 0.1, a).sizes(np.arange(1), 1, 1, 1)
    assert first[0] == pytest.approx(1 / (2 * smoothness))


def test_auto_falls_with_the_passes_and_the_curvature():
    steps = Auto(0.5)
    assert steps.for_pass(10.0, 0, bounded=False) == pytest.approx(0.05)
    assert steps.for_pass(10.0, 4, bounded=False) == pytest.approx(0.01)
    assert steps.for_pass(20.0, 0, bounded=True) == pytest.approx(0.025)


@pytest.mark.parametrize("name", STEPS)
def test_forms(name):
    assert isinstance(get_steps(name), STEPS[name])
    schedule = get_steps((name, 0.7))
    assert get_steps(schedule) is schedule
    assert get_steps([name, 0.7]) == schedule
    with pytest.raises(ValueError, match=name):
        get_steps((name, 1.0, 2.0, 3.0, 4.0))


@pytest.mark.parametrize("size", [1, 0.5, np.float32(0.5), np.int64(2)])
def test_numbers_are_constant_steps(size):
    assert get_steps(size) == Constant(float(size))


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_numbers_out_of_range(name, bad):
    with pytest.raises(ValueError, match="positive and finite"):
        get_steps((name, bad))


def test_every_number_is_checked():
    for numbers in ((0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)):
        for name in ("theorem2", "theorem3"):
            with pytest.raises(ValueError, match="positive and finite"):
                get_steps((name, *numbers))


@pytest.mark.parametrize("step", [None, "fast", (), ("fast", 1.0), ("constant", "x")])
def test_errors(step):
    with pytest.raises(ValueError, match="step_size"):
        get_steps(step)


def test_steps_that_fall_too_fast_are_refused():
    with pytest.raises(ValueError, match="at most 1"):
        get_steps(("decaying", 0.1, 1.5))


def test_theorem_1_does_not_divide_by_zero():
    assert Theorem1(2.0).sizes(np.arange(3), 1, 1, 1).tolist() == [0.5, 0.5, 0.25]
