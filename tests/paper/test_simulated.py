import numpy as np
import pytest

from tailproof.paper.simulated import FLAT, LEVELS, NOISES, Problem, noise_width, seed_of
from tailproof.paper.variants import VARIANTS, Choices


@pytest.mark.parametrize("flat", [False, True])
def test_excess_risk_is_the_difference_of_two_expected_losses(flat):
    problem = Problem(400_000, 3, "normal", 2.2, flat=flat)
    data = problem.draw(seed_of("risk"))
    w = np.array([1.5, -1.0, 8.0])
    at_w, at_best = ((data.X @ v - data.y) ** 2 / 2 for v in (w, problem.minimum))
    difference = at_w - at_best
    error = difference.std() / np.sqrt(problem.n)
    assert abs(difference.mean() - problem.excess_risk(w)) < 4 * error
    assert error < 0.02 * problem.excess_risk(w)


def test_excess_risk_of_many_points_and_of_the_minimum():
    problem = Problem(10, 4, "normal", 1.0, flat=True)
    points = np.random.default_rng(0).standard_normal((6, 4))
    expected = [sum(problem.covariance[j] * (w[j] - 1) ** 2 / 2 for j in range(4)) for w in points]
    np.testing.assert_allclose(problem.excess_risk(points), expected)
    assert problem.excess_risk(problem.minimum) == 0


def test_half_of_the_diagonal_of_sigma_is_at_most_1e_4():
    for d in (2, 3, 16):
        sigma = Problem(10, d, "normal", 1.0, flat=True).covariance / 2
        assert (sigma <= 1e-4).sum() == d // 2
    assert FLAT / 2 == 1e-4


@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_centred_by_its_true_mean(noise):
    b = 0.5  # light enough for the sample mean to show it
    values = NOISES[noise](np.random.default_rng(1), b, 1_000_000)
    assert abs(values.mean()) < 4 * values.std() / 1000
    one = NOISES[noise](np.random.default_rng(1), 1.75, 50)
    assert abs(one.mean()) > 1e-3  # not centred by the sample's


@pytest.mark.parametrize("noise", NOISES)
def test_width_of_the_noise(noise):
    for b in LEVELS[noise].values():
        values = NOISES[noise](np.random.default_rng(2), b, 400_000)
        width = np.subtract(*np.quantile(values, [0.75, 0.25]))
        assert width == pytest.approx(noise_width(noise, b), rel=0.02)


def test_starts_and_their_distance():
    near = Problem(5, 400, "normal", 1.0, reach=2.0, divided=True).draw(seed_of("a"))
    far = Problem(5, 400, "normal", 1.0, reach=2.0).draw(seed_of("a"))
    np.testing.assert_allclose((near.starts - 1) * 20, far.starts - 1)
    assert np.abs(far.starts - 1).max() <= 2.0
    assert np.linalg.norm(near.starts - 1) <= 2.0


def test_data_depend_on_the_names_alone():
    problem = Problem(20, 2, "lognormal", 1.75)
    one, again, other = (problem.draw(seed_of("e", "s", t)) for t in (0, 0, 1))
    assert np.array_equal(one.X, again.X)
    assert np.array_equal(one.y, again.y)
    assert not np.array_equal(one.X, other.X)
    assert np.array_equal(one.X, problem.draw(seed_of("e", "s", 0), starts=10).X)


def test_defaults_are_the_first_variants():
    default = Choices()
    assert {name: getattr(default, name) for name in VARIANTS} == {
        n: next(iter(v)) for n, v in VARIANTS.items()
    }
    assert default.tag() == ""


@pytest.mark.parametrize("pair", ["start=two", "colour=red", "start", "seed=-1", "seed=x"])
def test_a_wrong_choice_is_named(pair):
    with pytest.raises(ValueError, match=r"must be"):
        Choices.parse([pair])
