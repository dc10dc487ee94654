"""Pulls of rows and lengths of steps of many fits, beside plain formulas."""

import numpy as np
import pytest

from tailproof.native.searches import Fits, losses_of_fits, pulls_of_fits, step_lengths

FLOOR = 0.01


def fits(n=50, parts=2):
    rng = np.random.default_rng(0)
    tau, tukey = np.array([0.5, 2.0, np.inf, 1.5, 4.0]), np.array([0.0, 0.0, 0.0, 4.7, 10.0])
    shares = rng.uniform(0.0, 1.0, (parts, n))
    shares[:, ::7] = 0.0
    part = np.array([0, 1, 1, 0, 1])
    return Fits(shares / shares.sum(axis=1)[:, None], part, tau, tukey), rng.standard_normal((5, n)), rng


def psi(r, tau, tukey):
    if tukey:
        return np.where(np.abs(r) < tau, r * (1 - (r / tau) ** 2) ** 2, 0.0)
    return np.clip(r, -tau, tau)


def slope(r, tau, tukey):
    u = np.maximum(1 - (r / tau) ** 2, 0.0)
    return np.maximum(u * (5 * u - 4), FLOOR) if tukey else np.where(np.abs(r) <= tau, 1.0, FLOOR)


def test_pulls_and_curvatures_are_those_of_the_formulas():
    each, r, _ = fits()
    pull, curvature = pulls_of_fits(r, each, FLOOR)
    for m, (part, tau, tukey) in enumerate(zip(each.part, each.tau, each.tukey, strict=True)):
        np.testing.assert_allclose(pull[m], each.shares[part] * psi(r[m], tau, tukey), atol=1e-15)
        np.testing.assert_allclose(curvature[m], each.shares[part] * slope(r[m], tau, tukey), atol=1e-15)


def test_pulls_go_where_there_is_room():
    each, r, _ = fits()
    room = np.full((2, 7, r.shape[1]), np.nan)
    found, expected = pulls_of_fits(r, each, FLOOR, (room[0], room[1])), pulls_of_fits(r, each, FLOOR)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(room[:, :5], expected)
    assert np.isnan(room[:, 5:]).all()


def test_losses_are_integrals_of_pulls():
    each, r, _ = fits()
    losses = losses_of_fits(r, each)
    share = np.linspace(0.0, 1.0, 20_001)[:, None]
    for m, (part, tau, tukey) in enumerate(zip(each.part, each.tau, each.tukey, strict=True)):
        integral = r[m] * np.trapezoid(psi(share * r[m], tau, tukey), share, axis=0)
        np.testing.assert_allclose(losses[m], each.shares[part] @ integral, rtol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_ends_where_the_loss_is_least(seed):
    each, r, _ = fits()
    rng = np.random.default_rng(seed)
    change, first, second = (
        rng.standard_normal(r.shape),
        0.01 * rng.standard_normal(5),
        rng.uniform(0, 0.1, 5),
    )

    def slopes(length):
        along = [
            (
                each.shares[each.part[m]]
                * change[m]
                * psi(r[m] - length[m] * change[m], each.tau[m], each.tukey[m])
            ).sum()
            for m in range(5)
        ]
        return first + length * second - np.array(along)

    downhill = -np.sign(slopes(np.zeros(5)))
    change *= downhill[:, None]
    first *= downhill
    change[:3] *= 3.0  # steps that overshoot
    length = step_lengths(r, change, each, first, second)
    start, there, end = slopes(np.zeros(5)), slopes(length), slopes(np.ones(5))
    whole = length == 1.0
    assert np.all((length > 0) & (length <= 1))
    assert np.all(there[whole] <= 0.05 * np.abs(start[whole]))
    assert np.all(np.abs(there[~whole]) <= 0.05 * np.abs(start[~whole]))
    assert np.array_equal(whole, end <= 0.05 * np.abs(start))
    assert np.any(~whole)


def test_uphill_steps_are_whole():
    each, r, _ = fits()
    change = -r
    assert step_lengths(r, change, each, np.zeros(5), np.zeros(5)).tolist() == [1.0] * 5


@pytest.mark.parametrize("wrong", [-1, 2])
def test_parts_that_are_not_there_are_refused(wrong):
    each, r, _ = fits()
    each.part[1] = wrong
    with pytest.raises(IndexError):
        pulls_of_fits(r, each, FLOOR)
    with pytest.raises(IndexError):
        step_lengths(r, r, each, np.zeros(5), np.zeros(5))


def test_shapes_are_checked():
    each, r, _ = fits()
    with pytest.raises(ValueError, match="shape"):
        pulls_of_fits(r[:, :-1].copy(), each, FLOOR)
    with pytest.raises(ValueError, match="shape"):
        step_lengths(r, r[:-1], each, np.zeros(5), np.zeros(5))


def test_some_fits_are_those_of_all():
    each, r, _ = fits()
    kept = np.array([4, 1])
    pull, _ = pulls_of_fits(r, each, FLOOR)
    np.testing.assert_array_equal(pulls_of_fits(r[kept], each.only(kept), FLOOR)[0], pull[kept])
