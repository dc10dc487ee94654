import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from tailproof.core.sets import SETS, AllSpace, Ball, Box, ConvexSet, L1Ball, Simplex, get_set

SCALES = [1e-8, 1.0, 1e12]
MAKE = {
    "none": lambda size: AllSpace(),
    "ball": Ball,
    "box": lambda size: Box(-size / 2, size),
    "l1_ball": L1Ball,
    "simplex": Simplex,
}
NUMBERS = {
    "none": lambda size: (),
    "ball": lambda size: (size,),
    "box": lambda size: (-size / 2, size),
    "l1_ball": lambda size: (size,),
    "simplex": lambda size: (size,),
}
every_set = pytest.mark.parametrize("name", SETS)


def member(name, rng, d, size):
    """A random point of the set, some at its edge."""
    w = rng.standard_normal(d)
    edge = rng.choice([1.0, rng.random()])
    return {
        "none": lambda: size * w,
        "ball": lambda: edge * size * w / np.linalg.norm(w),
        "box": lambda: np.clip(size * w, -size / 2, size),
        "l1_ball": lambda: edge * size * w * (np.abs(w) > 0.5) / max(np.abs(w).sum(), 1e-9),
        "simplex": lambda: size * rng.dirichlet(np.full(d, 0.3)),
    }[name]()


def belongs(name, w, size):
    slack = 1e-12 * (size + np.abs(w).max())
    return {
        "none": lambda: True,
        "ball": lambda: np.linalg.norm(w) <= size + slack,
        "box": lambda: np.all((w >= -size / 2) & (w <= size)),
        "l1_ball": lambda: np.abs(w).sum() <= size + w.size * slack,
        "simplex": lambda: np.all(w >= 0) and abs(w.sum() - size) <= w.size * slack,
    }[name]()


@every_set
class TestEverySet:
    @given(
        seed=st.integers(0, 10**6),
        d=st.integers(1, 12),
        size=st.sampled_from(SCALES),
        far=st.sampled_from([1e-3, 0.5, 2.0, 1e3]),
    )
    def test_projection_is_the_nearest_point(self, name, seed, d, size, far):
        rng = np.random.default_rng(seed)
        w = far * size * np.round(rng.standard_normal(d), 2)
        found = MAKE[name](size).project(w)
        reach = size * max(1, far) * d
        assert belongs(name, found, size)
        # Nearest point of a convex set ⟺ ⟨w − Pw, v − Pw⟩ ≤ 0 for every v of the set.
        for _ in range(5):
            v = member(name, rng, d, size)
            assert belongs(name, v, size)
            assert (w - found) @ (v - found) <= 1e-12 * reach**2
        assert np.allclose(MAKE[name](size).project(found), found, rtol=1e-12, atol=1e-12 * size)
        assert np.allclose(
            found, reference.PROJECTIONS[name](w, *NUMBERS[name](size)), rtol=1e-9, atol=1e-12 * reach
        )

    @given(seed=st.integers(0, 10**6), d=st.integers(1, 12), size=st.sampled_from(SCALES))
    def test_members_stay_and_distances_do_not_grow(self, name, seed, d, size):
        rng, space = np.random.default_rng(seed), MAKE[name](size)
        v = member(name, rng, d, size)
        assert np.allclose(space.project(v), v, rtol=1e-12, atol=1e-12 * size)
        a, b = size * rng.standard_t(2, (2, d))
        gap = np.linalg.norm(space.project(a) - space.project(b))
        assert gap <= np.linalg.norm(a - b) * (1 + 1e-12) + 1e-12 * size

    @given(seed=st.integers(0, 10**6), far=st.sampled_from([1e6, 1e12]))
    def test_far_points_are_brought_in(self, name, seed, far):
        w = far * np.random.default_rng(seed).standard_normal(6)
        found = MAKE[name](1.0).project(w)
        if name == "simplex":
            assert abs(found.sum() - 1) <= 1e-15 * far * 6
        elif name != "box":
            assert belongs(name, found, 1.0 if name != "l1_ball" else 1 + 1e-15 * far * 6)

    def test_shape_is_kept_and_input_left_alone(self, name):
        w = np.arange(6.0).reshape(2, 3)
        found = MAKE[name](2.0).project(w)
        assert found.shape == (2, 3)
        assert np.array_equal(w, np.arange(6.0).reshape(2, 3))
        assert np.allclose(found.ravel(), MAKE[name](2.0).project(w.ravel()))

    def test_not_a_number_is_not_hidden(self, name):
        found = MAKE[name](1.0).project([0.5, np.nan, 2.0])
        assert np.isnan(found).any()

    def test_forms(self, name):
        assert isinstance(get_set(name), SETS[name])
        given_numbers = get_set((name, *NUMBERS[name](3.0)))
        assert given_numbers == MAKE[name](3.0)
        assert get_set([name, *NUMBERS[name](3.0)]) == given_numbers
        assert get_set(given_numbers) is given_numbers
        with pytest.raises(ValueError, match=name):
            get_set((name, 1.0, 2.0, 3.0))


def test_huge_points_reach_the_ball():
    """Norms of points beyond 1e154 overflow when squared."""
    found = Ball(1.0).project([3e200, 4e200])
    assert np.allclose(found, [0.6, 0.8])


def test_none_is_all_space():
    assert get_set(None) == AllSpace()


@pytest.mark.parametrize(
    "constraint",
    [
        "disc",
        ("disc", 1.0),
        ("ball", 0.0),
        ("ball", -1.0),
        ("ball", np.inf),
        ("ball", np.nan),
        ("ball", "wide"),
        ("box", 1.0, 0.0),
        ("box", np.nan, 1.0),
        ("l1_ball", 0.0),
        ("simplex", -1.0),
        (),
        3.0,
    ],
    ids=str,
)
def test_errors(constraint):
    with pytest.raises(ValueError, match=r"constraint|must be positive|needs low"):
        get_set(constraint)


def test_the_base_is_no_set():
    with pytest.raises(TypeError, match="use one of"):
        ConvexSet().bounds  # noqa: B018
