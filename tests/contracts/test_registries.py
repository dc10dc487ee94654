"""What every entry of a registry must satisfy; a new entry is tested by being registered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clouds import clouds
from tailproof.core.means import MEANS
from tailproof.core.merge import MERGES

# Rotations mix the coordinates, which these treat one by one.
ROTATES = [name for name in MERGES if name not in ("coordinate_median", "trimmed_mean", "mean_around_median")]
# Blocks and halves are made from positions, so these depend on the order of the sample.
ORDER_FREE = ["mean", "median"]
SCALES = [1e-8, 1.0, 1e12]


def merged(name, points, weights=None):
    return MERGES[name](points, weights=weights).point


def close(a, b, points):
    spread, reach = size_of(points), np.abs(points).max() + np.abs(b).max()
    assert np.linalg.norm(np.asarray(a) - np.asarray(b)) <= 1e-8 * spread + 1e-14 * reach


def size_of(points):
    return np.linalg.norm(points - points.mean(axis=0), axis=1).max()


def near_tie(name, points):
    """Two balls of equal size and the like: rounding may pick either, so there is nothing to compare."""
    if name == "mean_around_median":
        return edge_is_near(np.abs(points - np.median(points, axis=0)), len(points) // 2)
    if name not in ("smallest_ball", "ball_mean", "krum"):
        return False
    distances = np.sort(np.linalg.norm(points[:, None] - points[None], axis=2), axis=1)
    scores = distances[:, len(points) // 2]
    if name == "krum":
        twice = np.repeat(distances, 2, axis=1)[:, : len(points)]
        scores = np.sqrt((twice**2).sum(axis=1))
    first, second = np.sort(np.append(scores, np.inf))[:2]
    if second - first <= 1e-9 * second:
        return True
    return name == "ball_mean" and edge_is_near(distances[[np.argmin(scores)]].T, len(points) // 2)


def edge_is_near(away, last):
    """Whether the next point outside is about as far away as the last one inside, in any column."""
    ordered = np.sort(np.vstack([away, np.full(away.shape[1], np.inf)]), axis=0)
    return bool(np.any((ordered[last + 1] - ordered[last] <= 1e-6 * ordered[last]) & (ordered[last] > 0)))


@pytest.mark.parametrize("name", MERGES)
class TestMerges:
    @given(cloud=clouds())
    def test_order_does_not_matter(self, name, cloud):
        points = cloud.points
        if near_tie(name, points):
            return
        close(merged(name, points), merged(name, cloud.rng.permutation(points)), points)

    @given(
        cloud=clouds(kinds=("normal", "heavy", "duplicates", "near duplicates", "clusters", "line")),
        scale=st.sampled_from(SCALES),
    )
    def test_moves_and_scales_with_the_points(self, name, cloud, scale):
        points = cloud.points
        shift = cloud.rng.standard_normal(points.shape[1]) * size_of(points)
        if near_tie(name, points):
            return
        close(merged(name, scale * (points + shift)) / scale, merged(name, points) + shift, points)

    @given(cloud=clouds(kinds=("normal", "heavy", "duplicates", "near duplicates", "clusters"), min_d=2))
    def test_turns_with_the_points(self, name, cloud):
        if name not in ROTATES or near_tie(name, cloud.points):
            return
        d = cloud.points.shape[1]
        rotation = np.linalg.qr(cloud.rng.standard_normal((d, d)))[0]
        close(merged(name, cloud.points @ rotation), merged(name, cloud.points) @ rotation, cloud.points)

    @given(cloud=clouds(kinds=("normal", "heavy", "clusters"), max_k=6, max_d=4))
    def test_whole_weights_are_repetitions_and_zero_is_absence(self, name, cloud):
        points = cloud.points
        weights = cloud.rng.integers(0, 4, len(points))
        weights[0] += 1
        repeated = np.repeat(points, weights, axis=0)
        if near_tie(name, repeated):
            return
        close(merged(name, points, weights), merged(name, repeated), points)

    @given(seed=st.integers(0, 10**6), d=st.integers(1, 30), scale=st.sampled_from(SCALES))
    def test_one_point_and_equal_points_are_the_answer(self, name, seed, d, scale):
        point = scale * np.random.default_rng(seed).standard_normal(d)
        for k in (1, 2, 3, 8):
            found = MERGES[name](np.tile(point, (k, 1)))
            assert np.allclose(found.point, point, rtol=1e-15)
            assert found.radius <= 1e-14 * scale * d
            assert found.converged

    def test_two_points(self, name):
        found = merged(name, [[0.0, 0.0, 1.0], [2.0, 4.0, 1.0]])
        assert found.tolist() == ([0.0, 0.0, 1.0] if name in ("smallest_ball", "krum") else [1.0, 2.0, 1.0])

    @given(cloud=clouds(max_d=16))
    def test_every_cloud_converges(self, name, cloud):
        found = MERGES[name](cloud.points)
        weighted = MERGES[name](cloud.points, weights=cloud.rng.random(len(cloud.points)) + 1e-3)
        assert found.converged
        assert weighted.converged
        assert found.n_iter + weighted.n_iter < 400

    @pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e-170, 1e-155, 1e155, 1e200, 1e300])
    def test_squares_out_of_range_change_nothing(self, name, factor):
        rng = np.random.default_rng(0)
        for shape in [(7, 3), (5, 30), (2, 4), (6, 1)]:
            points = rng.standard_normal(shape)
            plain, moved = MERGES[name](points), MERGES[name](factor * points)
            assert np.allclose(moved.point / factor, plain.point, rtol=1e-9, atol=1e-12)
            assert np.isclose(moved.radius / factor, plain.radius, rtol=1e-9)
            assert moved.index == plain.index

    def test_tiny_differences_beside_ordinary_numbers(self, name):
        points = np.random.default_rng(1).standard_normal((7, 3))
        points[:, 0] = 3.0
        scaled = points * [1.0, 1e-200, 1e-200]
        plain, found = MERGES[name](points), MERGES[name](scaled)
        assert np.allclose(found.point / [1.0, 1e-200, 1e-200], plain.point, rtol=1e-9)
        assert np.isclose(found.radius / 1e-200, plain.radius, rtol=1e-9) or name == "centroid"

    def test_weights_whose_sum_overflows(self, name):
        points, weights = np.random.default_rng(2).standard_normal((7, 3)), np.arange(1.0, 8.0)
        close(merged(name, points, weights * 1e307), merged(name, points, weights), points)

    @given(cloud=clouds())
    def test_radius_and_index_are_of_the_point(self, name, cloud):
        found = MERGES[name](cloud.points)
        distances = np.sort(np.linalg.norm(cloud.points - found.point, axis=1))
        assert np.isclose(found.radius, distances[len(distances) // 2], rtol=1e-9, atol=1e-12)
        if found.index is not None:
            assert np.array_equal(cloud.points[found.index], found.point)

    def test_input_is_left_alone(self, name):
        points = np.random.default_rng(0).standard_normal((7, 3))
        before = points.copy()
        found = MERGES[name](points)
        found.point[:] = 99.0
        assert np.array_equal(points, before)

    def test_float32_and_lists(self, name):
        points = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
        assert np.allclose(merged(name, points), merged(name, points.tolist()))


SAMPLES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "lognormal": lambda rng, n: rng.lognormal(0, 1.75, n),
    "claims": lambda rng, n: rng.pareto(2.5, n) * (rng.random(n) < 0.1),
    "ties": lambda rng, n: rng.integers(0, 4, n).astype(float),
    "t": lambda rng, n: rng.standard_t(2.5, n),
}


@st.composite
def samples(draw, min_n=130, max_n=600):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return SAMPLES[draw(st.sampled_from(sorted(SAMPLES)))](rng, draw(st.integers(min_n, max_n)))


@pytest.mark.parametrize("name", MEANS)
class TestMeans:
    @given(u=samples(), scale=st.sampled_from([*SCALES, -1.0]), shift=st.floats(-100, 100))
    def test_moves_and_scales_with_the_sample(self, name, u, scale, shift):
        moved = MEANS[name](scale * (u + shift)) / scale
        assert np.isclose(moved, MEANS[name](u) + shift, rtol=1e-9, atol=1e-9 * (1 + np.abs(u).max()))

    @given(u=samples())
    def test_stays_within_the_sample(self, name, u):
        assert u.min() <= MEANS[name](u) <= u.max()

    @given(u=samples(max_n=200))
    def test_zero_weight_is_absence_and_scale_of_weights_is_none(self, name, u):
        padded = np.append(u, [1e30, -1e30, 5.0])
        weights = np.append(np.ones(u.size), [0.0, 0.0, 0.0])
        plain = MEANS[name](u)
        assert np.isclose(MEANS[name](padded, weights=weights), plain, rtol=1e-10, atol=1e-12)
        for size in (1e-310, 1e9, 1e306):
            assert np.isclose(MEANS[name](padded, weights=size * weights), plain, rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("value", [0.0, 1e-8, -3.5, 1e12, 1e300])
    def test_constant_sample_is_its_value(self, name, value):
        assert MEANS[name](np.full(200, value)) == pytest.approx(value, rel=1e-14)

    @given(seed=st.integers(0, 10**6))
    def test_every_axis_is_the_same_computation(self, name, seed):
        rng = np.random.default_rng(seed)
        u = rng.lognormal(size=(3, 140, 2))
        weights = rng.random(140)
        found = MEANS[name](u, axis=1, weights=weights)
        assert found.shape == (3, 2)
        expected = MEANS[name](np.ascontiguousarray(u[2, :, 1]), weights=weights)
        assert np.isclose(found[2, 1], expected, rtol=1e-12)
        assert np.allclose(MEANS[name](np.moveaxis(u, 1, 0), weights=weights), found, rtol=1e-12)
        assert np.allclose(MEANS[name](u, axis=-2, weights=weights), found, rtol=0, atol=0)

    def test_precision_is_kept_and_accuracy_is_double(self, name):
        u = np.random.default_rng(1).lognormal(size=20_000).astype(np.float32)
        found = MEANS[name](u)
        assert found.dtype == np.float32
        assert np.isclose(found, MEANS[name](u.astype(np.float64)), rtol=1e-6)
        assert MEANS[name](np.arange(200)).dtype == np.float64

    def test_order_of_the_sample(self, name):
        u = np.random.default_rng(2).lognormal(0, 1.75, 3_000)
        shuffled, in_order = MEANS[name](u), MEANS[name](np.sort(u))
        if name in ORDER_FREE:
            assert np.isclose(shuffled, in_order, rtol=1e-12)
        else:
            # A sorted file must not break an estimate that deals values to blocks by position.
            assert abs(in_order - u.mean()) <= 0.25 * u.mean()

    def test_huge_finite_values_do_not_overflow(self, name):
        u = np.random.default_rng(3).random(300) * 1e308
        assert np.isclose(MEANS[name](u) / 1e308, MEANS[name](u / 1e308), rtol=1e-9)

    def test_input_is_left_alone(self, name):
        u = np.random.default_rng(0).standard_normal(300)
        before = u.copy()
        MEANS[name](u)
        assert np.array_equal(u, before)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"u": np.array([*range(200), np.nan])}, "NaN"),
            ({"u": np.array([*range(200), np.inf])}, "infinity"),
            ({"u": np.array([*range(200), -np.inf])}, "infinity"),
            ({"u": []}, "empty"),
            ({"u": np.zeros((0, 3))}, "empty"),
            ({"u": 3.0}, "dimension"),
            ({"u": np.ones(200) + 1j}, "complex"),
            ({"u": np.ones(200), "delta": 0.0}, "delta"),
            ({"u": np.ones(200), "delta": 1.0}, "delta"),
            ({"u": np.ones(200), "delta": np.nan}, "delta"),
            ({"u": np.ones(200), "weights": -np.ones(200)}, "not negative"),
            ({"u": np.ones(200), "weights": np.zeros(200)}, "all of them are zero"),
            ({"u": np.ones(200), "weights": np.full(200, np.nan)}, "finite"),
            ({"u": np.ones(200), "weights": np.ones(199)}, "shape"),
            ({"u": np.ones(200), "axis": 1}, "axis"),
            ({"u": np.ones(200), "axis": None}, "axis must be a whole number"),
            ({"u": np.ma.masked_equal(np.arange(200.0), 7)}, "masked arrays"),
            ({"u": np.ones(200), "weights": np.ma.masked_equal(np.arange(200.0), 7)}, "masked weights"),
            ({"u": ["a", "b"]}, "could not convert"),
        ],
    )
    def test_bad_input_is_one_clear_error(self, name, arguments, message):
        with pytest.raises(ValueError, match=message):
            MEANS[name](**arguments)
