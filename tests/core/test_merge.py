import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clouds import clouds
from tailproof.core.merge import (
    MERGES,
    centroid,
    coordinate_median,
    geometric_median,
    majority_radius,
    smallest_ball,
)
from tailproof.core.theory import merge_constant

ROBUST = [name for name in MERGES if name != "centroid"]


def gamma_radius(points, u, gamma):
    """Δ(u; γ), straight from its definition."""
    distances = np.linalg.norm(points - u, axis=1)  # once: another sum may round differently
    for r in sorted(distances):
        if np.count_nonzero(distances <= r) > len(points) * (0.5 + gamma):
            return r
    raise AssertionError("γ < 1/2, so the largest ball holds enough")


def high_precision_median(points, weights=None):
    """Minimise Σ w‖v − u‖ in extended precision: Kuhn's test at each point, else damped Newton."""
    unique, inverse = np.unique(points, axis=0, return_inverse=True)
    w = np.bincount(inverse.ravel(), weights=weights).astype(np.longdouble)
    u = unique.astype(np.longdouble)

    def slope(v):
        away = v - u
        d = np.sqrt((away**2).sum(axis=1))
        return away, d, (w[d > 0, None] * away[d > 0] / d[d > 0, None]).sum(axis=0)

    norm = lambda x: np.sqrt((x**2).sum())  # noqa: E731
    for j in range(len(u)):
        if norm(slope(u[j])[2]) <= w[j]:
            return unique[j]
    # Start just off the best of the points, downhill: the sum is smooth from there to the minimiser.
    best = min(range(len(u)), key=lambda j: (w * slope(u[j])[1]).sum())
    # All relative to that point, so that its close neighbours keep their digits.
    centre = u[best]
    u = u - centre
    _, d, pull = slope(u[best])
    v = u[best] - pull / norm(pull) * d[d > 0].min() * np.longdouble(1e-3)
    for _ in range(2000):
        away, d, gradient = slope(v)
        if norm(gradient) <= 1e-17 * w.sum():
            break
        r = (away / d[:, None]).astype(float)
        hessian = np.eye(len(v)) * float((w / d).sum()) - (r.T * (w / d).astype(float)) @ r
        step = np.linalg.solve(hessian, gradient.astype(float)).astype(np.longdouble)
        share = np.longdouble(1)
        while share > 1e-12:
            _, d_new, gradient_new = slope(v - share * step)
            if (w * d_new).sum() < (w * d).sum() or norm(gradient_new) < norm(gradient):
                break
            share /= 2
        v = v - share * step
    assert norm(slope(v)[2]) <= 1e-13 * w.sum(), "the reference did not converge"
    return (centre + v).astype(float)


def is_collinear(points):
    return np.linalg.matrix_rank(points - points[0], tol=1e-9 * np.abs(points - points[0]).max()) < 2


@given(
    clouds(kinds=("normal", "grid", "heavy", "duplicates", "near duplicates"), max_k=8, max_d=9, min_d=2),
    st.sampled_from([1e-8, 1.0, 1e12]),
)
def test_geometric_median_agrees_with_extended_precision(cloud, scale):
    points = cloud.points * scale
    if is_collinear(points):
        return
    expected = high_precision_median(points)
    size = np.median(np.linalg.norm(points - expected, axis=1))
    found = geometric_median(points)
    assert found.converged
    # Where most points nearly coincide, the digits of a float end before those of the distances.
    assert np.linalg.norm(found.point - expected) <= 1e-7 * size + 1e-15 * np.linalg.norm(expected)


@given(clouds(kinds=("normal", "grid", "heavy", "near duplicates"), max_k=7, max_d=9, min_d=2))
def test_weighted_geometric_median_agrees_with_extended_precision(cloud):
    weights = cloud.rng.integers(1, 5, len(cloud.points)).astype(float)
    if is_collinear(cloud.points):
        return
    expected = high_precision_median(cloud.points, weights)
    size = np.median(np.linalg.norm(cloud.points - expected, axis=1))
    error = np.linalg.norm(geometric_median(cloud.points, weights).point - expected)
    assert error <= 1e-7 * size + 1e-15 * np.linalg.norm(expected)


@given(clouds(kinds=("normal", "heavy", "far"), max_k=12, max_d=1))
def test_geometric_median_on_a_line_is_the_median(cloud):
    assert np.allclose(
        geometric_median(cloud.points).point, np.median(cloud.points, axis=0), rtol=1e-14, atol=0
    )


@given(clouds(kinds=("line",), max_k=9, max_d=12))
def test_collinear_points_have_the_middle_of_the_line(cloud):
    found = geometric_median(cloud.points).point
    assert np.allclose(found, np.median(cloud.points, axis=0), rtol=1e-12, atol=1e-12)


def test_many_dimensions_and_few_are_one_algorithm():
    rng = np.random.default_rng(3)
    points = rng.standard_normal((9, 3))
    basis = np.linalg.qr(rng.standard_normal((5_000, 3)))[0]
    low, high = geometric_median(points), geometric_median(points @ basis.T)
    assert np.allclose(high.point @ basis, low.point, atol=1e-10)
    assert np.isclose(high.radius, low.radius, rtol=1e-10)


def test_far_points_cost_the_near_ones_no_digits():
    rng = np.random.default_rng(4)
    points = rng.standard_normal((10, 400))
    direction = rng.standard_normal((4, 400))
    direction /= np.linalg.norm(direction, axis=1)[:, None]
    there = points.copy()
    there[:4] = direction * 1e12
    # A point infinitely far away pulls with a unit vector: compare with nearly the same pull from 1e9.
    nearer = points.copy()
    nearer[:4] = direction * 1e9
    assert np.allclose(geometric_median(there).point, geometric_median(nearer).point, atol=1e-6)


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7, 1e-9, 1e-11])
@pytest.mark.parametrize("d", [3, 40])
def test_nearly_equal_points_cost_no_digits(d, gap):
    # The minimiser lies among points that nearly coincide: distances from anywhere else are too coarse.
    rng = np.random.default_rng(6)
    points = rng.standard_normal((8, d))
    points[3:] = points[3] + gap * rng.standard_normal((5, d))
    found, expected = geometric_median(points), high_precision_median(points)
    assert found.converged
    assert np.linalg.norm(found.point - expected) <= 1e-6 * gap + 1e-15 * np.linalg.norm(expected)


@pytest.mark.parametrize("seed", [5, 20, 38])
def test_close_points_far_from_the_first_reference(seed):
    # One product of differences is off by some 1e-9 here: the search must be repeated about its answer.
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((4, 14))
    points[1] = points[0] + 1e-9 * rng.standard_normal(14)
    found = geometric_median(points)
    assert found.converged
    assert np.linalg.norm(found.point - high_precision_median(points)) <= 1e-13


def test_points_that_once_stalled():
    points = np.array([[1.0051, 0.59094], [1.00443, 0.59095], [-1.67998, 0.64822], [-1.09663, 0.68625]])
    found = geometric_median(points)
    assert found.converged
    assert np.allclose(found.point, high_precision_median(points), rtol=1e-10)


@pytest.mark.parametrize("gap", [1e-13, 1e-14, 1e-15])
def test_gaps_of_a_few_roundings(gap):
    rng = np.random.default_rng(1)
    for _ in range(300):
        points = rng.standard_normal((4, 2))
        points[1] = points[0] + gap * rng.standard_normal(2)
        assert geometric_median(points).converged


@given(seed=st.integers(0, 10**6), d=st.integers(2, 12))
def test_a_weighted_majority_far_away(seed, d):
    rng = np.random.default_rng(seed)
    points, weights = rng.standard_normal((10, d)), rng.random(10) + 0.01
    points[:4] = 1e12 * rng.standard_normal(d) + rng.standard_normal((4, d))
    weights[:4] *= 1.5 * weights[4:].sum() / weights[:4].sum()
    found = geometric_median(points, weights)
    assert found.converged
    assert np.linalg.norm(found.point - points[:4].mean(axis=0)) <= 100 * np.sqrt(d)


def test_many_points_take_no_square_array():
    points = np.random.default_rng(7).standard_normal((3_000, 2))
    assert smallest_ball(points).radius == pytest.approx(majority_radius(points, smallest_ball(points).point))
    assert np.linalg.norm(geometric_median(points).point) < 0.1


def test_the_minimiser_at_a_data_point_is_that_point():
    points = np.array([[1.0, 1.0], [-1.0, 0.0], [1.0, 1.0], [0.0, 3.0], [1.0, 1.0]])
    found = geometric_median(points)
    assert found.point.tolist() == [1.0, 1.0]
    assert found.index == 0
    assert found.radius == 0.0


def test_symmetric_cloud_is_a_fixed_point():
    rng = np.random.default_rng(5)
    half = rng.standard_normal((6, 4))
    assert np.allclose(geometric_median(np.vstack([half, -half]) + 7.0).point, 7.0, atol=1e-12)


def test_iteration_cap_is_reported():
    found = geometric_median(np.random.default_rng(0).standard_t(1.1, (15, 6)), max_iter=1)
    assert not found.converged
    assert np.all(np.isfinite(found.point))


@pytest.mark.parametrize("merge", ROBUST)
@given(cloud=clouds(max_k=12, max_d=6), gamma=st.just(0.0) | st.floats(1e-3, 0.45))
def test_lemma_merge_requirement(merge, cloud, gamma):
    points, rng = cloud.points, cloud.rng
    k, d = points.shape
    constant = merge_constant(merge, gamma, d)
    if not np.isfinite(constant):
        return
    answer = MERGES[merge](points).point
    targets = [points[rng.integers(k)], points.mean(axis=0), rng.standard_normal(d) * np.abs(points).max()]
    for u in targets:
        # Distances to points at 1e12 carry 1e-4 of rounding; allow that much, relative.
        assert np.linalg.norm(answer - u) <= constant * gamma_radius(points, u, gamma) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("merge", ROBUST)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 12))
def test_four_of_ten_at_a_trillion_stay_within_the_lemma(merge, seed, d):
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((10, d))
    points[rng.permutation(10)[:4]] = 1e12 * rng.standard_normal((4, d))
    good = np.abs(points).max(axis=1) < 1e6
    u = points[good].mean(axis=0)
    # Six of ten are a γ-majority for every γ < 0.1.
    reach = np.linalg.norm(points[good] - u, axis=1).max()
    assert np.linalg.norm(MERGES[merge](points).point - u) <= merge_constant(merge, 0.0999999, d) * reach


def literal_smallest_ball(points, beta=None):
    k = len(points)
    radii = []
    for j in range(k):
        distances = sorted(np.linalg.norm(points[j] - points[i]) for i in range(k))
        enough = k // 2 + 1 if beta is None else int(np.ceil(k * (0.5 + beta) - 1e-9))
        radii.append(distances[enough - 1])
    return int(np.argmin(radii)), min(radii)


@given(clouds(kinds=("normal", "heavy", "far"), max_k=12), st.sampled_from([None, 0.1, 0.2, 0.3, 0.4]))
def test_smallest_ball_is_the_algorithm(cloud, beta):
    index, radius = literal_smallest_ball(cloud.points, beta)
    found = smallest_ball(cloud.points, beta)
    assert found.point.tolist() == cloud.points[index].tolist()
    if beta is None:
        assert found.radius == pytest.approx(radius, rel=1e-12)


def test_smallest_ball_needs_a_strict_majority():
    # The counter-example to c ≤ 3 for every β: with β = .3 the centre is 9, far from the six points at 0.
    points = np.array([0.0] * 6 + [9.0] + [10.0] * 3)[:, None]
    assert smallest_ball(points).point[0] == 0.0
    assert smallest_ball(points, beta=0.3).point[0] == 9.0


def test_smallest_ball_ties_go_to_the_lowest_index():
    assert smallest_ball([[0.0], [1.0], [2.0], [3.0]]).index == 1


@given(clouds(kinds=("normal", "grid", "heavy"), max_k=9))
def test_coordinate_median_is_the_algorithm(cloud):
    expected = [np.median(column) for column in cloud.points.T]
    assert np.allclose(coordinate_median(cloud.points).point, expected, rtol=1e-14)


@pytest.mark.parametrize("d", [2, 3, 4, 7])
def test_coordinate_median_attains_root_d(d):
    # d of 2d − 1 points are within 1 of u = 0, yet 1 is the median of every coordinate.
    points = np.vstack([np.eye(d), np.full((d - 1, d), 1e6)])
    u, answer = np.zeros(d), coordinate_median(points).point
    assert answer.tolist() == [1.0] * d
    attained = np.linalg.norm(answer - u) / gamma_radius(points, u, 0.0)
    assert attained == pytest.approx(merge_constant("coordinate_median", 0.0, d), rel=1e-15)


def test_centroid_is_the_mean():
    assert centroid(np.eye(4)).point.tolist() == [0.25] * 4


def test_majority_radius_counts_strictly_more_than_half():
    assert majority_radius([[0.0], [1.0], [2.0], [3.0]], [0.0]) == 2.0
    assert majority_radius([[0.0], [1.0], [9.0]], [0.0], weights=[1, 1, 3]) == 9.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": np.zeros((0, 3))}, "non-empty"),
        ({"points": np.zeros(3)}, "shape"),
        ({"points": 1.0}, "shape"),
        ({"points": [[np.nan, 1.0]]}, "finite"),
        ({"points": [[np.inf, 1.0]]}, "finite"),
        ({"points": np.ma.masked_equal([[1.0, 2.0], [3.0, 4.0]], 2.0)}, "masked"),
        ({"points": [[1.0 + 2.0j, 1.0]]}, "real"),
        ({"points": [[1.0], [2.0]], "weights": np.ma.masked_equal([1.0, 2.0], 2.0)}, "masked"),
        ({"points": [[1.0], [2.0]], "weights": [1.0, -1.0]}, "not negative"),
        ({"points": [[1.0], [2.0]], "weights": [0.0, 0.0]}, "all of them are zero"),
        ({"points": [[1.0], [2.0]], "weights": [1.0]}, "shape"),
        ({"points": [[1.0], [2.0]], "weights": [np.nan, 1.0]}, "finite"),
    ],
)
@pytest.mark.parametrize("merge", MERGES)
def test_bad_input_is_one_clear_error(merge, arguments, message):
    with pytest.raises(ValueError, match=message):
        MERGES[merge](**arguments)


@pytest.mark.parametrize("beta", [0.0, 0.5, -1.0, 2.0])
def test_beta_outside_its_range(beta):
    with pytest.raises(ValueError, match="beta"):
        smallest_ball([[1.0], [2.0]], beta=beta)


@pytest.mark.parametrize("centre", [[1.0], [1.0, np.nan], [[1.0, 2.0]], 3.0, [np.inf, 0.0]])
def test_a_centre_that_is_no_point(centre):
    with pytest.raises(ValueError, match="centre must be 2 finite numbers"):
        majority_radius([[0.0, 0.0], [1.0, 1.0]], centre)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("max_iter", 0), ("max_iter", np.nan), ("tol", 0.0), ("tol", -1.0), ("tol", np.nan), ("tol", np.inf)],
)
def test_search_arguments_are_checked(argument, value):
    with pytest.raises(ValueError, match=argument):
        geometric_median([[0.0, 0.0], [1.0, 1.0]], **{argument: value})


@given(k=st.integers(1, 9), gamma=st.floats(0, 0.499), seed=st.integers(0, 999))
def test_majority_radius_of_gamma_is_its_definition(k, gamma, seed):
    """inf{r: |{j: ‖uⱼ − u‖ ≤ r}| > k(1/2 + γ)}."""
    points = np.random.default_rng(seed).integers(-3, 4, (k, 2)).astype(float)
    distances = np.sort(np.linalg.norm(points - 1.0, axis=1))
    inside = [r for r in distances if np.sum(distances <= r) > k * (0.5 + gamma)]
    assert majority_radius(points, [1.0, 1.0], gamma=gamma) == pytest.approx(inside[0])


@pytest.mark.parametrize("gamma", [-0.1, 0.5, float("nan")])
def test_majority_radius_refuses_other_gammas(gamma):
    with pytest.raises(ValueError, match="gamma"):
        majority_radius([[0.0]], [0.0], gamma=gamma)
