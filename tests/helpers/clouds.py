"""Random clouds of points of many kinds: what the merge properties are checked on."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


def near_duplicates(rng, k, d):
    """Some of the points within a gap of 1e-1 to 1e-13 of the first, some of those equal to it."""
    points = rng.standard_normal((k, d))
    close = np.arange(k) < rng.integers(2, max(3, k))
    gaps = 10.0 ** -rng.uniform(1, 13) * rng.standard_normal((k, d)) * (rng.random((k, 1)) < 0.8)
    return np.where(close[:, None], points[0] + gaps, points)


KINDS = {
    "normal": lambda rng, k, d: rng.standard_normal((k, d)),
    "grid": lambda rng, k, d: rng.integers(-2, 3, (k, d)).astype(float),
    "heavy": lambda rng, k, d: rng.standard_t(1.2, (k, d)),
    "duplicates": lambda rng, k, d: rng.standard_normal((max(1, k // 2), d))[
        rng.integers(0, max(1, k // 2), k)
    ],
    "clusters": lambda rng, k, d: rng.standard_normal((k, d)) + 50.0 * rng.integers(0, 2, (k, 1)),
    "far": lambda rng, k, d: rng.standard_normal((k, d)) + 1e12 * (np.arange(k) < (k - 1) // 2)[:, None],
    "near duplicates": near_duplicates,
    "line": lambda rng, k, d: np.outer(rng.integers(-9, 10, k), rng.integers(1, 5, d)).astype(float),
}


@dataclass(frozen=True)
class Cloud:
    kind: str
    points: np.ndarray
    rng: np.random.Generator


@st.composite
def clouds(draw, kinds=tuple(KINDS), max_k=12, max_d=8, min_d=1):
    kind = draw(st.sampled_from(kinds))
    k, d = draw(st.integers(1, max_k)), draw(st.integers(min_d, max_d))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Cloud(kind, KINDS[kind](rng, k, d), rng)
